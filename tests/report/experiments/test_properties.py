"""The table of properties: its numbers are measured, and outlive the models in what is published."""

import json
import shutil
from dataclasses import replace

import pytest

from prood.errors import Damaged, ProodError
from prood.evaluation.robustness import FILE, read_measured
from prood.models import fingerprint, load
from prood.report.experiments import perform, properties
from prood.studies import Runner, making, read_published, study_of
from prood.studies.properties import RULES

CHEAP = ["plain", "oe", "discriminator", "prood-s", "prood"]


@pytest.fixture(scope="module")
def here(trained, runner_in, tmp_path_factory):
    """A copy of the trained models, with nothing measured and nothing published yet."""
    folder = tmp_path_factory.mktemp("properties")
    for run in CHEAP:
        shutil.copytree(trained.place(run), folder / "runs" / run)
    return runner_in(folder)


@pytest.fixture(scope="module")
def stored(here):
    return json.loads(perform(properties.EXPERIMENT, here).read_text())


def as_json(content):
    return json.loads(json.dumps(content))


def rows(content):
    return {row["run"]: row for row in content["rows"]}


@pytest.mark.slow
def test_the_numbers_are_those_of_the_published_models(here, stored):
    content = stored["content"]
    assert (content["inside"], content["outside"], content["eps"]) == ("squares", "ramps", 0.06)
    assert list(rows(content)) == CHEAP
    for run, row in rows(content).items():
        found = here.published(run)
        measured = read_measured(here.place(run))
        assert found.measured == measured
        assert row["far"]["auc"] == list(measured.far.auc)
        assert row["fingerprint"] == fingerprint(load(here.place(run))[0])
        for name, metrics in row["sets"].items():
            assert metrics == {metric: getattr(found.best(metric, name, 0.06), metric) for metric in metrics}
        assert row["gauc"] == sum(metrics["gauc"] for metrics in row["sets"].values()) / 2
    assert rows(content)["discriminator"]["robustness"] is None
    assert rows(content)["oe"]["robustness"]["images"] == 3
    assert rows(content)["plain"]["properties"]["accuracy"] == "yes"  # no worse than itself
    assert rows(content)["plain"]["properties"]["certificates"] == "no"


def test_the_section_shows_marks_numbers_and_the_papers_ticks(stored):
    text = properties.section(stored["content"])
    table = [line.strip("| ").split(" | ") for line in text.splitlines() if line.startswith("|")]
    assert table[0] == ["model", *(rule.title for rule in RULES), "robust acc", "far conf", "trained"]
    assert {len(line) for line in table if "---" not in line[0]} == {9}
    names = [line[0] for line in table]
    assert names[names.index("**ProoD**") + 1] == names[names.index("**OE**") + 1] == "↳ *paper*"
    assert table[names.index("**OE**") + 1][1:6] == ["✓", "✓", "✗", "✗", "✗"]
    accuracy = rows(stored["content"])["plain"]["accuracy"]
    assert table[names.index("**Plain**")][1] == f"✓ {100 * accuracy:.1f}"
    for rule in RULES:
        assert f"- **{rule.title}**: " in text


def test_nothing_is_measured_twice_and_all_outlives_the_models(here, stored, runner_in, tmp_path, monkeypatch):
    monkeypatch.setattr("prood.evaluation.robustness.far_away", None)
    assert as_json(properties.make(here)) == stored["content"]
    shutil.copytree(here.results, tmp_path / "results")
    gone = runner_in(tmp_path, training=False)
    assert as_json(properties.make(gone)) == stored["content"]
    assert not gone.notes


@pytest.mark.slow
def test_the_radius_of_training_is_measured_though_the_recipe_evaluates_others(here, tiny, tmp_path):
    for run in ("plain", "oe"):
        shutil.copytree(here.place(run), tmp_path / "runs" / run, ignore=shutil.ignore_patterns("results.json", FILE))
    recipe = tmp_path / "other.toml"
    recipe.write_text(tiny.read_text().replace("eps = [0.06]", "eps = [0.03]"))
    runner = replace(here, study=study_of(str(recipe)), folder=tmp_path / "runs", results=tmp_path / "results")
    found = runner.published("oe", measure=True)
    assert found.radii == (0.03, 0.06)
    assert found.measured.robustness.eps == 0.06


def test_what_was_not_measured_is_noted(here, stored, runner_in, tmp_path):
    shutil.copytree(here.results, tmp_path / "results")
    runner = runner_in(tmp_path, training=False)
    file = runner.file("oe")
    content = json.loads(file.read_text())
    del content["measured"]
    file.write_text(json.dumps(content))
    made = properties.make(runner)
    assert "oe" not in rows(made)
    assert runner.notes == ["Not measured here: OE."]
    assert rows(made)["prood"]["properties"]["clean"] == "none"  # OE is what it is measured by


def test_measurements_of_other_weights_are_not_published(here, stored, runner_in, tmp_path):
    for run in ("oe", "plain"):
        shutil.copytree(here.place(run), tmp_path / "runs" / run)
    runner = runner_in(tmp_path)
    shutil.copy(here.place("plain") / FILE, runner.place("oe") / FILE)
    assert runner.published("oe").measured is None
    assert runner.published("plain").measured == read_measured(runner.place("plain"))


@pytest.mark.parametrize("damage", [[], {}, {"of": "x"}, {"of": "x", "far": {}, "robustness": None}, "text"])
def test_damaged_measurements_are_said(here, stored, tmp_path, damage):
    content = json.loads(here.file("oe").read_text())
    (tmp_path / "oe.json").write_text(json.dumps(content | {"measured": damage}))
    with pytest.raises(Damaged, match=r"oe\.json"):
        read_published(tmp_path)


def test_good_is_certified_by_intervals_on_cifar(tmp_path, monkeypatch):
    asked = []

    def evaluate(folder, **options):
        asked.append(options.get("bound"))
        raise ProodError("enough")

    monkeypatch.setattr(making, "evaluate_run", evaluate)
    monkeypatch.setattr(Runner, "run", lambda self, run, seed=0: tmp_path)
    runner = Runner(study_of("cifar10"), tmp_path, results=tmp_path / "results", training=True)
    for run in ("good80", "good100", "prood"):
        with pytest.raises(ProodError, match="enough"):
            runner.published(run)
    assert asked == ["ibp", "ibp", "best"]
