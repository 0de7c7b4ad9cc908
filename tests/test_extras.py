import sys

import pytest

from prood.cli import main
from prood.errors import MissingPackage
from prood.extras import require_packages
from prood.version import __version__


def test_what_is_missing_is_named_with_its_extra():
    require_packages("serve", "json", "sys", what="this")
    with pytest.raises(MissingPackage) as caught:
        require_packages("serve", "json", "no_such_one", "nor_this", what="this")
    assert str(caught.value) == (
        "this needs no_such_one and nor_this: pip install '.[serve]' in Prood's checkout, "
        f"or pip install 'prood-{__version__}-py3-none-any.whl[serve]' beside its wheel"
    )


def test_without_matplotlib_a_study_says_so_before_it_begins(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.setattr(sys, "argv", ["prood", "reproduce", "figure", "shift"])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    assert "pip install '.[studies]'" in "".join(capsys.readouterr())
    assert not list(tmp_path.iterdir())
