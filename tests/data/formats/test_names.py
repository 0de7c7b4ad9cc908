import os
import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prood.data.formats.folder import Names

TEXTS = st.lists(st.binary().map(os.fsdecode), max_size=8)


@given(TEXTS)
def test_holds_any_names_in_order(texts: list[str]) -> None:
    names = Names(texts)
    assert len(names) == len(texts)
    assert list(names) == texts
    assert [names[row] for row in range(len(names))] == texts
    for row in (-1, len(texts)):
        with pytest.raises(IndexError):
            names[row]
    copy = pickle.loads(pickle.dumps(names))
    assert list(copy) == texts
    assert copy.digest() == names.digest()


def test_the_digest_sees_names_order_and_ends() -> None:
    lists = [["ab", "c"], ["a", "bc"], ["c", "ab"], ["abc"], ["ab", "c", ""], []]
    assert len({Names(names).digest() for names in lists}) == len(lists)
