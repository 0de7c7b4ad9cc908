"""prood reproduce, as a user meets it; what it does is tested in tests/studies and tests/report/experiments."""

from pathlib import Path

import pytest

from prood.report import experiments as module
from prood.report.experiments import EXPERIMENTS
from prood.studies import Runner, study_of


@pytest.fixture
def prood(prood, monkeypatch, tmp_path):
    """In an empty folder."""
    monkeypatch.chdir(tmp_path)
    return prood


@pytest.fixture
def asked(monkeypatch):
    """What would have been made, instead of making it."""
    calls = []
    monkeypatch.setattr(
        Runner, "carry_out", lambda runner, names, **options: calls.append((runner, list(names), options))
    )
    monkeypatch.setattr("prood.report.write_cards", lambda runner, names: None)
    return calls


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["cifar10", "--attacks", "papre"], "there is no attack preset 'papre': choose one of"),
        (["cifar10", "--model", "prodo"], "there is no model 'prodo' to reproduce: choose among plain, oe,"),
        (["cifar10", "--fast", "--model", "oe"], "--fast makes two models in turn: leave out --model and"),
        (["cifar10", "--fast", "--jobs", "2"], "--fast makes two models in turn: leave out --model and"),
        (["cifar10", "--seed", "1", "--seed", "1"], "a seed occurs twice in 1, 1: give different seeds"),
        (["table", "mian"], "there is no table 'mian': choose one of properties, main,"),
        (["figure", "main"], "there is no figure 'main': choose one of"),
        (["table", "main", "--recipe", "mnist"], "no recipe 'mnist': choose one of"),
        (["table", "main", "--seeds", "one"], "'one' is not a list of seeds: write numbers such as 0,1,2"),
        (["all", "--attacks", "papre"], "there is no attack preset 'papre': choose one of"),
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
    ((runner, names, options),) = asked
    assert (runner.name, runner.folder, runner.against) == ("cifar100", Path("runs/cifar100"), "cifar10")
    assert (runner.seeds, runner.home, runner.device, runner.command) == ((0,), 0, None, "prood reproduce cifar100")
    assert (runner.results, runner.study.attacks, runner.study.attacked) == (Path("results"), "paper", 100)
    assert (len(names), options) == (9, {"jobs": 1, "publish": True})


def test_options_reach_the_study(prood, asked):
    words = ["cifar10", "--out", "svhn", "--runs", "there", "--results", "here"]
    words += ["--attacks", "none", "--attacked", "7", "--seed", "2", "--device", "cpu", "--jobs", "3"]
    words += ["--model", "oe", "--model", "prood", "--shift", "1.5"]
    assert prood("reproduce", *words)[0] == 0
    ((runner, names, options),) = asked
    assert (runner.folder, runner.against, runner.seeds, runner.home, runner.device) == (
        Path("there"),
        "svhn",
        (2,),
        2,
        "cpu",
    )
    assert (runner.study.shift, runner.study.attacks, runner.study.attacked) == (1.5, None, 7)
    assert runner.command == "prood reproduce " + " ".join(words)
    assert (names, runner.results, options) == (["oe", "prood"], Path("here"), {"jobs": 3, "publish": True})


def test_the_published_command_holds_no_folder_of_one_machine(prood, asked):
    words = ["cifar10", "--results", "/home/me/results", "--runs=/disk/runs", "--out", "mosaic:/data/natural32/train"]
    assert prood("reproduce", *words)[0] == 0
    ((runner, _, _),) = asked
    assert runner.results == Path("/home/me/results")
    expected = "prood reproduce cifar10 --results results --runs=runs --out mosaic:natural32/train"
    assert runner.command == expected


@pytest.mark.parametrize(("where", "folder"), [([], "runs/cifar10"), (["--runs", "there"], "there")])
def test_several_seeds_are_reproduced_together(prood, asked, where, folder):
    assert prood("reproduce", "cifar10", "--seed", "0", "--seed", "2", *where)[0] == 0
    ((runner, _, _),) = asked  # in one call
    places = [str(runner.place("oe", seed)) for seed in runner.seeds]
    assert places == [f"{folder}/oe", f"{folder}/seed-2/oe"]


def test_another_seed_has_a_folder_of_its_own(prood, asked):
    """The one in which experiments look for it."""
    assert prood("reproduce", "cifar10", "--seed", "2")[0] == 0
    ((runner, _, _),) = asked
    assert runner.place("oe", 2) == Runner(study_of("cifar10"), Path("runs/cifar10")).place("oe", 2)


def test_the_fast_way_has_a_folder_of_its_own(prood, asked):
    """Its joint model has another shift: the whole study could not go on from it."""
    assert prood("reproduce", "cifar10", "--fast")[0] == 0
    assert prood("reproduce", "cifar10", "--fast", "--runs", "mine")[0] == 0
    assert [(names, runner.folder) for runner, names, _ in asked] == [
        (["prood"], Path("runs/cifar10-fast")),
        (["prood"], Path("mine")),
    ]


def test_another_out_distribution_has_a_folder_of_its_own(prood, asked):
    assert prood("reproduce", "cifar10", "--out", "natural32:train")[0] == 0
    assert prood("reproduce", "cifar10", "--out", "mosaic:far/away/natural32/train", "--seed", "1")[0] == 0
    assert [runner.place("oe", runner.seeds[0]) for runner, _, _ in asked] == [
        Path("runs/cifar10@natural32/oe"),
        Path("runs/cifar10@natural32/seed-1/oe"),
    ]


def test_help_names_what_there_is(prood):
    code, out, _ = prood("reproduce", "--help")
    assert code == 0
    assert all(f"│ {word} " in out for word in ("cifar10", "cifar100", "table", "figure", "all"))
    code, out, err = prood("reproduce", "mnist")
    assert (code, out) == (2, "")
    assert "No such command 'mnist'" in err


@pytest.mark.parametrize("kind", ["table", "figure"])
def test_without_a_name_the_experiments_are_listed(prood, tmp_path, kind):
    code, out, _ = prood("reproduce", kind)
    names = [one.name for one in EXPERIMENTS if one.kind == kind]
    assert (code, [line.split()[0] for line in out.splitlines()]) == (0, names)
    assert not list(tmp_path.iterdir())


@pytest.fixture
def labs(monkeypatch):
    """The labs that experiments would have been made in."""
    found = []
    monkeypatch.setattr(
        module, "perform_all", lambda experiments, runner, again: found.append((experiments, runner, again))
    )
    return found


def test_options_reach_the_lab(prood, labs):
    words = ["--recipe", "cifar10", "--runs", "there", "--results", "here", "--seeds", "3,4", "--attacks", "none"]
    words += ["--attacked", "7", "--only-published", "--again", "--device", "cpu", "--docs", "pages"]
    assert prood("reproduce", "table", "fpr", *words) == (0, "wrote pages/experiments.md\n", "")
    (((experiment,), runner, again),) = labs
    assert (experiment.name, again) == ("fpr", True)
    assert (runner.name, runner.folder, runner.results, runner.seeds) == (
        "cifar10",
        Path("there"),
        Path("here"),
        (3, 4),
    )
    assert (runner.study.attacks, runner.study.attacked, runner.training, runner.device) == (None, 7, False, "cpu")
    assert runner.command == "prood reproduce table fpr " + " ".join(words)


def test_experiments_that_failed_are_named_at_the_end(prood, monkeypatch, tmp_path):
    failed = {"figure-sizes": "no GPU", "table-main": "the dog ate it"}
    monkeypatch.setattr(module, "perform_all", lambda experiments, runner, again: failed)
    code, out, err = prood("reproduce", "all")
    assert (code, out, err.count("\n")) == (2, "wrote docs/experiments.md\n", 1)
    assert err.startswith(
        f"error: 2 of {len(EXPERIMENTS)} experiments could not be made: figure sizes (no GPU); table main"
    )
    assert (tmp_path / "docs" / "experiments.md").is_file()


def test_what_the_lab_is_by_default(prood, labs):
    assert prood("reproduce", "all")[0] == 0
    assert prood("reproduce", "all", "--recipe", "cifar100")[0] == 0
    (experiments, quick, again), (_, cifar, _) = labs
    assert (set(experiments), len(experiments), again) == (set(EXPERIMENTS), len(EXPERIMENTS), False)
    kinds = [one.kind for one in experiments]
    assert kinds == sorted(kinds, reverse=True)  # tables, which train the models, before figures
    assert (quick.name, quick.folder, quick.results) == ("quickstart", Path("runs/quickstart"), Path("results"))
    assert (quick.seeds, quick.study.attacks, quick.study.attacked, quick.training) == ((0, 1, 2), "fast", 20, None)
    assert (cifar.folder, cifar.study.attacks, cifar.study.attacked) == (Path("runs/cifar100"), "paper", 100)
