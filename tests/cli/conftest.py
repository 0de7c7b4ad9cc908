import sys

import pytest

from prood import cli


@pytest.fixture
def prood(monkeypatch, capsys):
    """Run `prood …` in this process; the exit code, what it printed, and what it complained about."""

    def run(*words: object, columns: int = 200) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["prood", *map(str, words)])
        monkeypatch.setenv("COLUMNS", str(columns))
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            cli.main()
        out, err = capsys.readouterr()
        return int(ended.value.code or 0), out, err

    return run
