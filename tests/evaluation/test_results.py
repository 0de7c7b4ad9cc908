import json
from dataclasses import replace

import numpy as np
import pytest

from prood import ProodError
from prood.evaluation import Evaluation, Results, Scores, read_results

SCORES = Scores(
    inside=np.array([1.0, np.inf]),
    clean=np.array([0.1, -np.inf]),
    certified=np.array([np.inf, 0.5]),
    gallery=np.array([1]),
    gallery_clean=np.full((1, 3, 2, 2), 7, np.uint8),
    gallery_attacked=np.full((1, 3, 2, 2), 9, np.uint8),
)
ONE = Evaluation(
    model="ProoD",
    inside="digits:test",
    outside="npz:/some/where/a b.npz",
    eps=8 / 255,
    images=2,
    auc=0.9,
    gauc=0.5,
    fpr95=0.1,
    gfpr95=1.0,
    intervals={"auc": [0.8, 0.95]},
    fingerprints={"model": "abc"},
    scores=SCORES,
)


def test_results_come_back_as_they_were_written(tmp_path):
    Results((ONE, replace(ONE, model="Plain", scores=None)), {"shift": 3.0}).save(tmp_path)
    again = read_results(tmp_path)
    assert again.facts == {"shift": 3.0}
    assert list(again) == [ONE, replace(ONE, model="Plain", scores=None)]
    first, second = again
    for name, value in vars(SCORES).items():
        np.testing.assert_array_equal(getattr(first.scores, name), value)
    assert second.scores is None
    content = json.loads((tmp_path / "results.json").read_text())
    assert content["evaluations"][0]["scores"].startswith("scores/npz-some-where-a-b-npz-0.0313725-")


def test_numbers_stand_without_their_scores(tmp_path):
    Results((ONE,)).save(tmp_path)
    for file in (tmp_path / "scores").iterdir():
        file.unlink()
    (one,) = read_results(tmp_path)
    assert one == ONE
    assert one.scores is None


def test_find_and_lookup():
    other = replace(ONE, eps=0.01)
    results = Results((ONE, other)).plus(replace(other, auc=0.7, seed=1))
    assert results["ProoD", ONE.outside, 0.01].auc == 0.7  # the last one
    assert results.find(ONE.identity) is ONE
    assert results.find(replace(ONE, fingerprints={"model": "abd"}).identity) is None
    assert ONE.identity == replace(ONE, auc=0.1, seconds=9.0, scores=None).identity  # outcomes do not count
    with pytest.raises(KeyError):
        results["ProoD", "nowhere", 0.01]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("{half", "is damaged or of another format"),
        ("[]", "is damaged or of another format"),
        ('{"format": 2, "evaluations": [{"model": "x"}]}', "is damaged or of another format"),
        ('{"models": {}}', "is damaged or of another format"),
        ('{"format": 99, "evaluations": []}', "newer Prood"),
    ],
)
def test_files_that_are_no_results(tmp_path, content, said):
    assert read_results(tmp_path) is None
    (tmp_path / "results.json").write_text(content)
    with pytest.raises(ProodError, match=said):
        read_results(tmp_path)


@pytest.mark.parametrize(
    "change",
    [{"eps": "a"}, {"auc": "a"}, {"intervals": []}, {"intervals": {"auc": [1]}}, {"outside": None}, {"attack": "a"}],
)
def test_values_of_another_kind_are_damage(tmp_path, change):
    Results((ONE,)).save(tmp_path)
    file = tmp_path / "results.json"
    content = json.loads(file.read_text())
    content["evaluations"][0] |= change
    file.write_text(json.dumps(content))
    with pytest.raises(ProodError, match="is damaged or of another format"):
        read_results(tmp_path)


def test_broken_scores_are_one_clear_error(tmp_path):
    Results((ONE,)).save(tmp_path)
    (file,) = (tmp_path / "scores").iterdir()
    whole = file.read_bytes()
    middle = len(whole) // 2
    for broken in (b"", b"no zip", whole[:100], whole[:60] + bytes(40) + whole[100:], whole[:middle]):
        file.write_bytes(broken)
        with pytest.raises(ProodError, match=r"cannot be read .*: evaluate again"):
            read_results(tmp_path)
        (kept,) = read_results(tmp_path, whole=False)
        assert (kept, kept.scores) == (ONE, None)
