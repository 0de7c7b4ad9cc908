"""prood compare, from the command line."""

import pytest
from typer.testing import CliRunner

from prood.cli import app
from prood.errors import ProodError


def test_help_says_what_is_measured() -> None:
    result = CliRunner().invoke(app, ["compare", "--help"], env={"COLUMNS": "200"})
    assert result.exit_code == 0
    assert "all methods" in result.output
    for option in ("--recipe", "--out", "--methods", "--attacks", "--bound", "--limit", "--seed"):
        assert option in result.output


def test_an_unknown_run_is_refused_before_anything_is_made(tmp_path) -> None:
    result = CliRunner().invoke(app, ["compare", "--methods", "plain,magic", "--out", str(tmp_path / "out")])
    assert isinstance(result.exception, ProodError)
    assert "cannot make 'magic'" in str(result.exception)
    assert "acet" in str(result.exception)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(("option", "value"), [("--recipe", "no-such"), ("--attacks", "slow"), ("--bound", "magic")])
def test_a_wrong_word_is_refused_before_anything_is_made(tmp_path, option, value) -> None:
    result = CliRunner().invoke(app, ["compare", option, value, "--out", str(tmp_path / "out")])
    assert isinstance(result.exception, ProodError)
    assert value in str(result.exception)
    assert not (tmp_path / "out").exists()
