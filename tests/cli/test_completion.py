"""The shell asks the program itself what may stand next."""

import pytest


@pytest.mark.parametrize(
    ("words", "place", "expected"),
    [("prood ex", 1, ["export"]), ("prood data fe", 2, ["fetch"]), ("prood export --over", 2, ["--overwrite"])],
)
def test_commands_and_options_are_completed(prood, monkeypatch, words, place, expected):
    for name, value in {"COMP_WORDS": words, "COMP_CWORD": str(place), "_PROOD_COMPLETE": "complete_bash"}.items():
        monkeypatch.setenv(name, value)
    code, out, _ = prood()
    assert (code, out.split()) == (0, expected)


def test_the_help_has_one_line_about_it(prood):
    out = prood("--help")[1]
    assert "--install-completion" in out
    assert "--show-completion" not in out
