"""prood reproduce, as a user meets it; what it does is tested in tests/test_reproduce.py."""

from pathlib import Path

import pytest

from prood import reproduce as module


@pytest.fixture
def prood(prood, monkeypatch, tmp_path):
    """In an empty folder."""
    monkeypatch.chdir(tmp_path)
    return prood


@pytest.fixture
def asked(monkeypatch):
    """What would have been made, instead of making it."""
    calls = []
    monkeypatch.setattr(module, "run_fast", lambda study: calls.append(("fast", study, {})))
    monkeypatch.setattr(module, "reproduce", lambda study, **options: calls.append(("all", study, options)))
    return calls


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["mnist"], "cannot reproduce 'mnist': choose one of cifar10, cifar100"),
        (["mnist", "--fast"], "cannot reproduce 'mnist': choose one of cifar10, cifar100"),
        (["cifar10", "--attacks", "papre"], "there is no attack preset 'papre': choose one of"),
    ],
)
def test_what_a_user_can_mend_is_one_line(prood, tmp_path, words, complaint):
    code, out, err = prood("reproduce", *words)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert err.startswith("error: ")
    assert complaint in err
    assert not list(tmp_path.iterdir())


def test_everything_by_default(prood, asked):
    assert prood("reproduce", "cifar100")[0] == 0
    ((kind, study, options),) = asked
    assert (kind, study.name, study.folder, study.outside) == ("all", "cifar100", Path("runs/cifar100"), None)
    assert (study.seed, study.device, study.command) == (0, None, "prood reproduce cifar100")
    assert options == {"results": Path("results"), "attacks": "paper", "attacked": 100}


def test_options_reach_the_study(prood, asked):
    words = ["cifar10", "--out", "svhn", "--runs", "there", "--results", "here"]
    words += ["--attacks", "none", "--attacked", "7", "--seed", "2", "--device", "cpu"]
    assert prood("reproduce", *words)[0] == 0
    ((_, study, options),) = asked
    assert (study.folder, study.outside, study.seed, study.device) == (Path("there"), "svhn", 2, "cpu")
    assert study.command == "prood reproduce " + " ".join(words)
    assert options == {"results": Path("here"), "attacks": None, "attacked": 7}


def test_the_fast_way_has_a_folder_of_its_own(prood, asked):
    """Its joint model has another shift: the whole study could not go on from it."""
    assert prood("reproduce", "cifar10", "--fast")[0] == 0
    assert prood("reproduce", "cifar10", "--fast", "--runs", "mine")[0] == 0
    assert [(kind, study.folder) for kind, study, _ in asked] == [
        ("fast", Path("runs/cifar10-fast")),
        ("fast", Path("mine")),
    ]


def test_help_names_the_studies(prood):
    code, out, _ = prood("reproduce", "--help")
    assert code == 0
    assert "cifar10 or cifar100" in out
