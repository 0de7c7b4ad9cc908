"""The paper's tables, as views on what is published; on a small recipe, and on CIFAR-10 as it is in the repository."""

import json
import math
import shutil
from dataclasses import replace
from pathlib import Path
from statistics import fmean, stdev

import pytest

from prood.report.experiments import EXPERIMENTS, perform, robust
from prood.report.experiments.rows import OTHERS, table
from prood.report.experiments.tables import FPR, MAIN, RADIUS, SEEDS, SEPARATE, SETS, radii
from prood.studies import Runner, read_published, study_of

ROOT = Path(__file__).parents[3]
CHEAP = ["plain", "oe", "discriminator", "prood-s", "prood"]


def lines(text: str) -> list[list[str]]:
    """The rows of all tables of a section, with their headings."""
    found = [line.strip("| ").split(" | ") for line in text.splitlines() if line.startswith("|")]
    return [line for line in found if not line[0].startswith("---")]


def cells(text: str) -> dict[str, list[str]]:
    """The other cells by the first."""
    return {line[0]: line[1:] for line in lines(text)}


@pytest.fixture(scope="module")
def cifar(tmp_path_factory):
    """CIFAR-10 from what is published in the repository alone."""
    folder = tmp_path_factory.mktemp("cifar")
    shutil.copytree(ROOT / "results" / "cifar10" / "cifar100", folder / "results" / "cifar10" / "cifar100")
    return Runner(study_of("cifar10"), folder / "runs", results=folder / "results", training=False)


# On a small recipe


@pytest.mark.slow
def test_the_main_table_holds_what_is_published(trained):
    content = MAIN.make(trained)
    assert [row["run"] for row in content["rows"]] == CHEAP
    assert (content["sets"], content["eps"], content["outside"]) == (["ramps", "uniform"], 0.06, "ramps")
    for row in content["rows"]:
        found = trained.published(row["run"])
        assert row["shifts"] == ([1.0] if row["run"].startswith("prood") else [])
        assert found.shift == (1.0 if row["run"].startswith("prood") else None)
        for name, metrics in row["sets"].items():
            for metric, images in (("auc", 6), ("gauc", 6), ("aauc", 3)):
                one = found.best(metric, name, 0.06)
                assert one.images == images
                assert metrics[metric] == [getattr(one, metric), None]
    text = MAIN.section(content)
    assert text.startswith("AUC / GAUC / AAUC, ε = 0.06, trained against ramps, seed 0. Certified: 6 ")
    assert "Attacked: 3 images (fast) of a set." in text
    table = cells(text)
    assert list(table) == ["model", "**Plain**", "**OE**", "**ProoD-Disc**", "**ProoD-S**, Δ = 1", "**ProoD**, Δ = 1"]
    best = trained.published("oe").best
    auc, aauc = (100 * getattr(best(metric, "uniform", 0.06), metric) for metric in ("auc", "aauc"))
    assert table["**OE**"][2] == f"{auc:.1f} / 0.0 / {aauc:.1f}"
    assert table["**ProoD-Disc**"][0] == "–"


def test_false_positive_rates_are_those_of_the_same_evaluations(trained):
    content = FPR.make(trained)
    joint = {row["run"]: row for row in content["rows"]}["prood"]["sets"]["ramps"]
    found = trained.published("prood")
    assert joint == {
        metric: [getattr(found.best(metric, "ramps", 0.06), metric), None] for metric in ("fpr95", "gfpr95", "afpr95")
    }
    assert FPR.section(content).startswith("FPR / GFPR / AFPR, ε = 0.06")


@pytest.mark.slow
def test_other_radii_are_certified_and_the_largest_is_attacked(trained):
    assert radii(trained) == [0.02, 0.04, 0.08]
    content = RADIUS.make(trained)
    assert [one["eps"] for one in content["tables"]] == [0.02, 0.04, 0.08]
    for one in content["tables"]:
        joint = {row["run"]: row for row in one["rows"]}["prood"]["sets"]["ramps"]
        assert joint["gauc"][0] == trained.published("prood").best("gauc", "ramps", one["eps"]).gauc
        assert (joint["aauc"] is None) == (one["eps"] < 0.08)
    text = RADIUS.section(content)
    assert [f"ε = {eps}, " in text for eps in (0.02, 0.04, 0.08)] == [True] * 3
    assert text.count("Not attacked.") == 2


def test_additional_sets_are_noise_and_what_was_trained_against(trained):
    content = SETS.make(trained)
    assert content["sets"] == ["ramps", "uniform"]
    assert "ramps is the test set of what our models were trained against" in SETS.section(content)
    content["sets"].remove("ramps")
    assert "trained against;" not in SETS.section(content)


def test_separate_training_keeps_the_accuracy_of_outlier_exposure(trained):
    content = SEPARATE.make(trained)
    assert [row["run"] for row in content["rows"]] == ["oe", "prood-s", "prood"]
    assert content["same_accuracy"] == {"prood-s": True}
    assert "ProoD-S has exactly OE's accuracy, as it must." in SEPARATE.section(content)


def test_another_accuracy_of_separate_training_is_said(trained, runner_in, tmp_path):
    """From published files alone, one of which was tampered with."""
    shutil.copytree(trained.results, tmp_path / "results")
    runner = runner_in(tmp_path, training=False)
    file = runner.file("prood-s")
    content = json.loads(file.read_text())
    for one in content["evaluations"]:
        one["accuracy"] -= 0.01
    file.write_text(json.dumps(content))
    content = SEPARATE.make(runner)
    assert content["same_accuracy"] == {"prood-s": False}
    assert "ProoD-S has **not** OE's accuracy" in SEPARATE.section(content)


@pytest.mark.slow
def test_error_bars_are_over_the_seeds(trained):
    content = SEEDS.make(trained)
    assert [(row["run"], row["seeds"]) for row in content["rows"]] == [
        ("oe", [0, 1]),
        ("discriminator", [0, 1]),
        ("prood", [0, 1]),
    ]
    values = [trained.published("prood", seed).best("gauc", "ramps", 0.06).gauc for seed in (0, 1)]
    mean, deviation, count = content["rows"][2]["sets"]["ramps"]["gauc"]
    assert count == 2
    assert math.isclose(mean, fmean(values), rel_tol=1e-5)
    assert math.isclose(deviation, stdev(values), rel_tol=1e-5, abs_tol=1e-9)
    assert "**ProoD**, Δ = 1, 2 seeds" in cells(SEEDS.section(content))
    assert {"oe-0", "oe-1", "prood-1"} <= set(trained.models)


def test_a_caption_names_only_what_the_means_are_of(trained, runner_in, tmp_path):
    """Of two seeds that were certified and attacked differently, by published files that are changed so."""
    table(trained, [trained.study.node("prood")], seeds=(0, 1))  # publishes both
    shutil.copytree(trained.results, tmp_path / "results")
    runner = runner_in(tmp_path, training=False)
    for seed in (0, 1):
        file = runner.file("prood", seed)
        content = json.loads(file.read_text())
        if seed:
            tighter = [one | {"certificate": "crown, float32"} for one in content["evaluations"] if not one["attacks"]]
            stronger = [one | {"attacks": "paper", "images": 2} for one in content["evaluations"] if one["attacks"]]
            content["evaluations"] += tighter + stronger
        file.write_text(json.dumps(content))
    content = table(runner, [runner.study.node("prood")], seeds=(0, 1))
    assert content["certified"] == ["6 images (best)"]
    assert content["attacked"] == ["2 images (paper)"]


@pytest.mark.slow
def test_a_robust_classifier_keeps_its_answers(trained):
    trained.notes.clear()
    content = robust.make(trained)
    assert [row["run"] for row in content["rows"]] == ["robust", "robust-prood"]
    assert not trained.notes
    found = content["robustness"]
    assert (found["same_class"], found["images"], found["eps"]) == (1.0, 6, 0.06)
    plain, joint = found["robust_accuracy"].values()
    assert 0 <= plain <= 1
    assert abs(plain - joint) <= 1 / 6  # of six images
    accuracies = [row["accuracy"] for row in content["rows"]]
    assert accuracies[0] == accuracies[1]
    assert "Both name the same class for 100.0 of the test images" in robust.section(content)


@pytest.mark.slow
def test_robust_accuracy_outlives_the_models(trained, runner_in, tmp_path, monkeypatch):
    """And is not measured again, unless by other attacks."""
    file = perform(robust.EXPERIMENT, trained)
    monkeypatch.setattr(robust, "_robustness", lambda runner, attacks, limit: {"attacks": attacks, "limit": limit})
    before = json.loads(file.read_text())["content"]["robustness"]
    assert robust.make(trained)["robustness"] == before
    shutil.copytree(trained.results, tmp_path / "results")
    runner = runner_in(tmp_path, training=False)
    assert robust.make(runner)["robustness"] == before
    assert not runner.notes
    assert robust.make(replace(trained, study=replace(trained.study, attacked=2)))["robustness"] == {
        "attacks": "fast",
        "limit": 4,
    }
    published = runner.file("robust")
    published.write_text(published.read_text().replace(trained.weights("robust"), "0" * 16))
    assert robust.make(runner)["robustness"] is None


# On CIFAR-10, from what is published


def test_models_that_are_not_here_are_noted(cifar):
    cifar.notes.clear()
    content = MAIN.make(cifar)
    nodes = {name: node for name, node in cifar.study.rows.items() if node.table == "main"}
    here = {run for run in nodes if cifar.file(run).is_file()}
    assert {row["run"] for row in content["rows"]} == here
    missing = [run for run in nodes if run not in here]
    assert len(cifar.notes) == (1 if missing else 0)
    for run in missing:
        assert f" {nodes[run].label};" in cifar.notes[0].replace(".", ";")


def test_robust_accuracy_is_also_taken_from_what_is_published_of_the_models(cifar, monkeypatch):
    monkeypatch.setattr(robust, "_before", lambda runner: None)
    cifar.notes.clear()
    content = robust.make(cifar)
    published = {run: cifar.published(run).measured.robustness for run in robust.RUNS}
    values = {run: one.robust_accuracy for run, one in published.items()}
    assert content["robustness"]["robust_accuracy"] == values
    assert not cifar.notes
    text = robust.section(content)
    assert "Robust accuracy at ε = 0.01, under the attacks `fast` on 200 test images" in text
    assert "the same class" not in text


def papers(table: list[list[str]], title: str) -> list[str]:
    """The paper's row of a model, below ours or by itself."""
    for place, line in enumerate(table):
        if line[0].startswith(f"{title}, *paper"):
            return line
        if line[0].startswith((f"**{title}**", f"**{title}, linear bound**")) and table[place + 1][0].startswith("↳"):
            return table[place + 1]
    raise AssertionError(f"no row of the paper's for {title}")


def test_the_papers_rows_are_there_for_all_of_its_models(cifar):
    table = lines(MAIN.section(MAIN.make(cifar)))
    assert table[0][:3] == ["model", "Acc", "cifar100"]
    for title in OTHERS:
        assert "paper, 80M Tiny Images" in papers(table, title)[0]
    assert papers(table, "OE")[2] == "96.1 / 0.0 / 6.0"
    assert not any(line[0].startswith("Robust") for line in table)


@pytest.mark.parametrize(
    ("experiment", "title", "against", "cell"),
    [
        (FPR, "GOOD80", "OpenImages", "65.1 / 100.0 / 84.8"),
        (RADIUS, "GOOD100", "OpenImages", "67.8 / 39.4 / 43.5"),
        (SETS, "OE", "OpenImages", "99.7 / 0.0 / 2.5"),
        (SETS, "ATOM", "OpenImages", "73.4 / 0.0 / 22.3"),  # on OpenImages, which it was trained against
        (SEPARATE, "ProoD-S", "OpenImages", "89.3 / 44.7 / 45.3"),
        (SEEDS, "Plain", "80M Tiny Images, 5 seeds", "90.0 ± 0.1 / 0.0 ± 0.0 / 0.6 ± 0.1"),
        (robust.EXPERIMENT, "Robust", "OpenImages", "82.7 / 0.0 / 75.3"),
    ],
)
def test_every_table_has_the_papers_numbers(cifar, experiment, title, against, cell):
    table = lines(experiment.section(experiment.make(cifar)))
    found = papers(table, title)
    assert against in found[0]
    assert found[table[0].index("cifar100")] == cell


def test_on_cifar_error_bars_are_of_the_seeds_that_are_there(cifar):
    cifar.notes.clear()
    there: dict[str, set[int]] = {}
    for one in read_published(cifar.results):
        there.setdefault(one.title, set()).add(one.seed)
    rows = SEEDS.make(cifar)["rows"]
    for row in rows:
        assert set(row["seeds"]) == there[row["title"]] & set(cifar.seeds)
    said = "One seed so far, hence no deviation: "
    (alone,) = [note.removeprefix(said).rstrip(".") for note in cifar.notes if note.startswith(said)]
    assert alone.split("; ") == [row["title"] for row in rows if len(row["seeds"]) == 1]


def test_robust_accuracy_is_left_out_where_nobody_has_measured_it(cifar, monkeypatch):
    monkeypatch.setattr(Runner, "published", lambda *_, **__: None)
    cifar.notes.clear()
    content = robust.make(cifar)
    assert content["robustness"] is None
    assert any(note.startswith("Robust accuracy is measured where the trained models are") for note in cifar.notes)
    assert "58.5% at ε = 8/255" in robust.section(content)


def test_the_names_are_unique():
    assert len({one.key for one in EXPERIMENTS}) == len(EXPERIMENTS)
    tables = {one.name for one in EXPERIMENTS if one.kind == "table"}
    assert {"main", "fpr", "radius", "sets", "separate", "robust", "seeds"} <= tables
