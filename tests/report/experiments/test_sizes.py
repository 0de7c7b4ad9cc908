"""The size ablation, with schedules of one epoch."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from prood.errors import NotFound
from prood.models import MODEL_FILE, load
from prood.models.sizes import SIZES
from prood.report.experiments import EXPERIMENTS, perform, sizes
from prood.studies import Runner, known

DIGITS = known.DIGITS_SIZES
CHOSEN = ("digits-XS", "digits", "digits-deep")


@pytest.fixture(scope="module", autouse=True)
def short() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(known, "SHORT", ("train.epochs=1",))
        patch.setattr(known, "DIGITS_SIZES", CHOSEN)
        yield


@pytest.fixture(scope="module")
def runner(runner_in: Callable[..., Runner], tmp_path_factory: pytest.TempPathFactory) -> Runner:
    return runner_in(tmp_path_factory.mktemp("sizes"))


@pytest.fixture(scope="module")
def made(runner: Runner) -> dict:
    return json.loads(perform(sizes.EXPERIMENT, runner).read_text())


def test_each_size_is_trained_by_the_short_schedule(runner: Runner, made: dict) -> None:
    content = made["content"]
    assert {row["size"] for row in content["sizes"]} == set(CHOSEN)
    counts = [row["parameters"] for row in content["sizes"]]
    assert counts == sorted(counts)
    assert (content["own"], content["settings"], content["eps"]) == ("digits", ["train.epochs=1"], 0.06)
    for row in content["sizes"]:
        model, about = load(runner.folder / "sizes" / row["size"])
        assert sum(weights.numel() for weights in model.parameters()) == row["parameters"]
        assert about.architecture["size"] == row["size"]
        assert about.recipe["train"]["epochs"] == 1
        assert row["words"] == SIZES[row["size"]]
        assert list(row["sets"]) == ["ramps", "uniform"]
        assert all(0 <= one["gauc"] <= one["auc"] <= 1 for one in row["sets"].values())


def test_nothing_is_trained_twice(runner: Runner, made: dict) -> None:
    files = [runner.folder / "sizes" / size / MODEL_FILE for size in CHOSEN]
    before = [file.stat().st_mtime_ns for file in files]
    perform(sizes.EXPERIMENT, runner, again=True)
    assert [file.stat().st_mtime_ns for file in files] == before
    assert "there already" not in runner.console.file.getvalue()  # type: ignore[attr-defined]
    perform(sizes.EXPERIMENT, runner)
    assert "there already" in runner.console.file.getvalue()  # type: ignore[attr-defined]


def test_it_does_not_train_where_it_must_not(runner_in: Callable[..., Runner], tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="'sizes/digits-XS'"):
        sizes.make(runner_in(tmp_path, training=False))


def test_the_papers_sizes_are_all_there() -> None:
    assert {*known.PAPERS_SIZES, *DIGITS} == {size for size in SIZES if not size.startswith("photo")} - {"XL_b"}
    assert sizes.EXPERIMENT in EXPERIMENTS


def content(*values: float) -> dict:
    rows = [
        {"size": str(place), "words": "", "parameters": 10**place, "sets": {"a": {"auc": 1.0, "gauc": value}}}
        for place, value in enumerate(values, 3)
    ]
    return {"eps": 0.1, "own": "3", "settings": [], "sizes": rows}


def test_the_correlation_is_with_the_logarithm_of_the_size() -> None:
    assert sizes.correlation(content(0.1, 0.2, 0.3)) == pytest.approx(1.0)
    assert sizes.correlation(content(0.3, 0.2, 0.1)) == pytest.approx(-1.0)
    assert sizes.correlation(content(0.3, 0.3, 0.3)) is None


@pytest.mark.slow
def test_section_and_figure(made: dict, tmp_path: Path) -> None:
    text = sizes.section(made["content"])
    assert "| **digits** |" in text
    assert "train.epochs=1" in text
    assert "+1.00" in sizes.section(content(0.1, 0.2))
    for file in ("one.svg", "two.svg"):
        sizes.draw(made["content"], tmp_path / file)
    assert (tmp_path / "one.svg").read_bytes() == (tmp_path / "two.svg").read_bytes()
