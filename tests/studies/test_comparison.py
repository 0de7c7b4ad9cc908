"""The comparison of methods: which, by which rules, and all of it on a toy problem."""

import json
import shutil
from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from prood.errors import BadValue, Damaged, UnknownName
from prood.evaluation import read_results
from prood.evaluation.asymptotics.far import Far
from prood.evaluation.robustness import Robustness, robust_accuracy
from prood.methods import METHODS
from prood.models import ProoD, load
from prood.report import comparison as report
from prood.studies import Runner, compare
from prood.studies.comparing import Comparison, select
from prood.studies.known import every_method
from prood.studies.properties import RULES, Mark, Profile
from prood.training import Recipe, load_recipe

EPS = 0.05
TABLE = "epochs = 2\nbatch = 20\nlr = 0.01\n"
RECIPE = """
[data]
inside = "npz:{folder}/inside.npz"
outside = "npz:{folder}/outside.npz"
[networks.classifier]
name = "small"
width = 4
[networks.discriminator]
size = "digits"
[joint]
shift = 1.0
[evaluate]
outside = ["npz:{folder}/outside.npz", "uniform"]
eps = [0.05]
limit = 4
"""


@pytest.fixture(scope="module")
def recipe(tmp_path_factory: pytest.TempPathFactory, squares_and_ramps: tuple[np.ndarray, ...]) -> Recipe:
    """Squares against ramps, a few steps of each method."""
    folder = tmp_path_factory.mktemp("toy")
    squares, labels, ramps = squares_and_ramps
    np.savez(folder / "inside.npz", images=squares, labels=labels)
    np.savez(folder / "outside.npz", images=ramps)
    text = RECIPE.format(folder=folder)
    for method in ("plain", "oe", "acet", "atom", "robust", "discriminator"):
        text += f"[train.{method}]\n{TABLE}" + ("" if method in ("plain", "oe") else f"eps = {EPS}\n")
    (folder / "toy.toml").write_text(text)
    return load_recipe(str(folder / "toy.toml"))


def recipe_folder(found: Comparison) -> str:
    return found.inside.removeprefix("npz:").removesuffix("/inside.npz")


def run(recipe: Recipe, out: Path, names: tuple[str, ...] = (), bound: Any = None) -> tuple[Comparison, str]:
    console = Console(file=StringIO(), width=200)
    study = replace(every_method(recipe), inside=recipe.data.inside, bound=bound, attacked=recipe.evaluate.limit)
    made = compare(Runner(study, out, seeds=(None,), home=None, console=console), names)
    report.save(made, out)
    report.show(made, console)
    return made, console.file.getvalue()  # type: ignore[attr-defined]


@pytest.fixture(scope="module")
def made(recipe: Recipe, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Comparison, str]:
    out = tmp_path_factory.mktemp("compare")
    return out, *run(recipe, out)


RUNS = ["plain", "oe", "acet", "atom", "discriminator", "prood-s", "robust", "robust-prood"]


@pytest.mark.slow
def test_every_method_of_the_recipe_has_a_row(made: tuple[Path, Comparison, str]) -> None:
    out, found, printed = made
    assert [row.run for row in found.profiles] == RUNS  # there is no table [train.prood], nor those of others
    for row in found.profiles:
        assert (out / row.run / "model.safetensors").is_file()
        assert row.title in printed
        assert list(row.sets) == [f"npz:{recipe_folder(found)}/outside.npz", "uniform"]
        assert set(row.properties) == {rule.key for rule in RULES}
    assert [row.seconds is None for row in found.profiles] == [
        row.run in ("prood-s", "robust-prood") for row in found.profiles
    ]
    assert all(rule.says.split(":")[0] in " ".join(printed.split()) for rule in RULES)


def test_the_rows_hold_what_the_runs_results_hold(made: tuple[Path, Comparison, str]) -> None:
    out, found, _ = made
    for row in found.profiles:
        results = read_results(out / row.run)
        assert results is not None
        assert {one.outside: one.aauc for one in results} == {name: one["aauc"] for name, one in row.sets.items()}
        assert row.mean("gauc") == pytest.approx(sum(one.gauc for one in results) / len(results))
        assert row.accuracy == results.evaluations[0].accuracy
        assert {one.limit for one in results} == {4}


def test_the_files_say_what_was_returned(made: tuple[Path, Comparison, str]) -> None:
    out, found, _ = made
    content = json.loads((out / "compare.json").read_text())
    assert [row["run"] for row in content["rows"]] == RUNS
    assert content == json.loads(json.dumps(found.to_json()))
    assert content["eps"] == EPS
    assert content["rules"] == {rule.key: rule.says for rule in RULES}
    page = (out / "compare.md").read_text()
    for row in found.profiles:
        assert f"| {row.title} |" in page
    for rule in RULES:
        assert f"- **{rule.title}**: {rule.says}" in page
    mark = Mark(found.profiles[0].properties["clean"]).sign
    assert f"{mark} {100 * (found.profiles[0].mean('auc') or 0):.1f}" in page


def test_a_robust_classifier_keeps_its_robust_accuracy_in_the_joint_model(made: tuple[Path, Comparison, str]) -> None:
    out, found, _ = made
    robust, joint = (next(row for row in found.profiles if row.run == name) for name in ("robust", "robust-prood"))
    assert robust.robustness is not None
    assert robust.robustness == joint.robustness
    assert (robust.accuracy, robust.sets.keys()) == (joint.accuracy, joint.sets.keys())
    model, _ = load(out / "robust-prood")
    assert isinstance(model, ProoD)
    from prood import data

    again = robust_accuracy(model, data.load(found.inside), EPS, limit=4)
    assert again == robust.robustness


@pytest.mark.slow
def test_nothing_is_made_twice(recipe: Recipe, made: tuple[Path, Comparison, str]) -> None:
    out, found, _ = made
    weights = {name: (out / name / "model.safetensors").read_bytes() for name in RUNS}
    stamps = {name: (out / name / "metrics.jsonl").stat().st_mtime_ns for name in ("plain", "acet")}
    file = out / "plain" / "measured.json"
    content = json.loads(file.read_text())
    content["far"]["trajectories"] = 12345  # what is measured anew would not say so
    file.write_text(json.dumps(content))
    again, _ = run(recipe, out)
    assert again.profiles[0].far.trajectories == 12345
    assert again.profiles[1:] == found.profiles[1:]
    assert {name: (out / name / "model.safetensors").read_bytes() for name in RUNS} == weights
    assert {name: (out / name / "metrics.jsonl").stat().st_mtime_ns for name in stamps} == stamps
    # What goes with another evaluation, of other weights or images say, is measured again.
    file.write_text(json.dumps(content | {"of": "0" * 16}))
    assert run(recipe, out)[0].profiles == found.profiles


@pytest.mark.slow
def test_bounds_are_those_that_the_recipe_names_for_a_method(
    recipe: Recipe, made: tuple[Path, Comparison, str], tmp_path: Path
) -> None:
    shutil.copytree(made[0], tmp_path / "out")
    shutil.rmtree(tmp_path / "out" / "prood-s")  # a combination says where its parts are
    own = replace(recipe, own_evaluate={"discriminator": {"bound": "ibp"}})

    def certificates(**options: str) -> dict[str, str]:
        found, _ = run(own, tmp_path / "out", ("discriminator", "prood-s"), **options)
        return {one.model: one.certificate.partition(",")[0] for one in found.results}

    assert certificates() == {"Plain": "best", "OE": "best", "ProoD-Disc": "ibp", "ProoD-S": "best"}
    assert set(certificates(bound="crown-ibp").values()) == {"crown-ibp"}


def test_a_damaged_file_is_said(recipe: Recipe, made: tuple[Path, Comparison, str]) -> None:
    out, _, _ = made
    file = out / "plain" / "measured.json"
    text = file.read_text()
    for damaged in (text[: len(text) // 2], "[]", "{}"):
        file.write_text(damaged)
        with pytest.raises(Damaged):
            run(recipe, out)
    file.write_text(text)


# ---- which methods


def names(recipe: Recipe, *asked: str) -> list[str]:
    return [node.name for node in select(every_method(recipe), asked)]


def test_parts_and_references_come_along(recipe: Recipe, tmp_path: Path) -> None:
    assert names(recipe, "atom") == ["plain", "oe", "atom"]
    assert names(recipe, "robust-prood") == ["plain", "oe", "discriminator", "robust", "robust-prood"]
    with pytest.raises(UnknownName, match="'prood'"):
        names(recipe, "prood")
    silent = replace(recipe, evaluate=replace(recipe.evaluate, outside=()))
    with pytest.raises(BadValue):
        run(silent, tmp_path / "out")
    assert not (tmp_path / "out").exists()
    poor = replace(recipe, train={name: table for name, table in recipe.train.items() if name != "oe"})
    with pytest.raises(UnknownName, match=r"train\.oe"):
        names(poor)


def test_the_quickstart_compares_every_method_there_is() -> None:
    nodes = select(every_method(load_recipe("quickstart")))
    assert {node.method for node in nodes} - {None} == set(METHODS)
    assert len({node.name for node in nodes}) == len({node.title for node in nodes}) == len(nodes)


# ---- the rules


def row(run: str, **values: object) -> Profile:
    sets = {"a": {"auc": 0.99, "aauc": 0.0, "gauc": 0.0}, "b": {"auc": 0.99, "aauc": 0.0, "gauc": 0.0}}
    far = Far((0.0, 1000.0), 10, (0.9, 0.0), (0.5, 1.0), 4)
    default = Profile(run, run, run, 1.0, 0.95, sets, far, Robustness(0.1, 10, 0.95, 0.0), "0" * 16)
    return replace(default, **values)  # type: ignore[arg-type]


def mark(key: str, judged: Profile) -> Mark:
    rule = next(rule for rule in RULES if rule.key == key)
    plain, oe = row("plain", sets=sets("auc", 0.5, 0.5)), row("oe", accuracy=0.5)  # each a reference of its own
    return rule.mark(judged, {"plain": plain, "oe": oe, judged.run: judged})


def sets(metric: str, first: float, second: float) -> dict[str, dict[str, float]]:
    return {name: {"auc": 0.99, "aauc": 0.0, "gauc": 0.0} | {metric: v} for name, v in (("a", first), ("b", second))}


@pytest.mark.parametrize(
    ("accuracy", "expected"), [(0.97, "yes"), (0.94, "yes"), (0.939, "partly"), (0.92, "partly"), (0.91, "no")]
)
def test_accuracy_is_measured_by_plain(accuracy: float, expected: str) -> None:
    assert mark("accuracy", row("x", accuracy=accuracy)) == expected
    assert mark("accuracy", row("x", accuracy=None)) == "none"


@pytest.mark.parametrize(
    ("first", "second", "expected"), [(1.0, 0.97, "yes"), (0.98, 0.95, "partly"), (0.99, 0.9, "no")]
)
def test_clean_detection_is_measured_by_oe(first: float, second: float, expected: str) -> None:
    assert mark("clean", row("x", sets=sets("auc", first, second))) == expected


@pytest.mark.parametrize(("first", "second", "expected"), [(0.9, 0.1, "yes"), (0.49, 0.49, "no"), (0.6, 0.1, "partly")])
def test_adversarial_detection_is_measured_by_a_coin(first: float, second: float, expected: str) -> None:
    assert mark("adversarial", row("x", sets=sets("aauc", first, second))) == expected


@pytest.mark.parametrize(("first", "second", "expected"), [(0.2, 0.0, "yes"), (0.1, 0.05, "partly"), (0.0, 0.0, "no")])
def test_certificates_must_prove_something(first: float, second: float, expected: str) -> None:
    assert mark("certificates", row("x", sets=sets("gauc", first, second))) == expected


@pytest.mark.parametrize(("auc", "expected"), [(1.0, "yes"), (0.999, "yes"), (0.99, "partly"), (0.4, "no")])
def test_far_away_means_at_a_thousand(auc: float, expected: str) -> None:
    assert mark("asymptotics", row("x", far=Far((1000.0, 2000.0), 10, (auc, 0.7), (0.3, 0.3), 4))) == expected


def test_without_the_reference_there_is_no_mark() -> None:
    rule = next(rule for rule in RULES if rule.key == "clean")
    assert rule.mark(row("x"), {"x": row("x")}) == Mark.none
