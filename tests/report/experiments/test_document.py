"""The page of experiments, from files alone."""

import json
from pathlib import Path

import pytest

from prood.errors import Damaged, ProodError
from prood.report.experiments import Experiment, document
from prood.report.experiments.document import experiments_page, write_page
from prood.report.experiments.experiment import FORMAT

DOCUMENT = {
    "format": FORMAT,
    "command": "prood reproduce all",
    "hardware": "a_machine",
    "seconds": 3.2,
    "models": {"oe-0": "abc"},
    "notes": ["Of *one* seed."],
    "content": {"word": "hello"},
}


def never(runner):
    raise AssertionError("a page makes no experiment")


def draw(content, file):
    Path(file).write_text(f"<svg>{content['word']}</svg>")


@pytest.fixture(autouse=True)
def registry(monkeypatch):
    """Two experiments: a figure, and a table that reads what is not in every file."""
    figure = Experiment("figure", "curve", "A <curve>", "Section 3", never, lambda content: content["word"], draw)
    table = Experiment("table", "many", "Many", "App. B", never, lambda content: f"{content['number']:.1f}")
    monkeypatch.setattr(document, "EXPERIMENTS", (figure, table))


def write(results, runner="quickstart", key="figure-curve", **changes):
    folder = results / runner / "experiments"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{key}.json").write_text(json.dumps(DOCUMENT | changes))


def test_without_experiments_the_page_says_so(tmp_path):
    assert "No experiment is stored in this folder." in experiments_page(tmp_path)


def test_a_section_says_what_the_file_says(tmp_path):
    write(tmp_path)
    text = experiments_page(tmp_path)
    expected = [
        "## Quickstart: digits against photographs",
        "### A \\<curve\\>",
        "*In the paper: Section 3.*",
        "![A \\<curve\\>](figures/quickstart/figure-curve.svg)",
        "hello",
        "- Of \\*one\\* seed.",
        "<small>Made by `prood reproduce all` on a\\_machine, 3.2 s. Models: oe-0 `abc`.</small>",
    ]
    assert text.split("\n\n")[3:] == [*expected[:-1], f"{expected[-1]}\n"]


def test_a_view_does_not_say_how_long_reading_took(tmp_path):
    write(tmp_path, key="table-many", content={"number": 1})
    assert "Made by `prood reproduce all`, from published results. Models: oe-0 `abc`." in experiments_page(tmp_path)


def test_labs_and_experiments_have_their_order(tmp_path):
    for runner in ("mine", "cifar10", "quickstart"):
        write(tmp_path, runner, "table-many", content={"number": 1})
    write(tmp_path, "cifar10")
    headings = [line for line in experiments_page(tmp_path).splitlines() if line.startswith("##")]
    assert headings == [
        "## Quickstart: digits against photographs",
        "### Many",
        "## CIFAR-10",
        "### A \\<curve\\>",
        "### Many",
        "## mine",
        "### Many",
    ]


def test_figures_are_drawn_beside_the_page(tmp_path):
    write(tmp_path / "results")
    write(tmp_path / "results", "cifar10", "table-many", content={"number": 1})
    file = write_page(tmp_path / "results", tmp_path / "docs")
    assert file == tmp_path / "docs" / "experiments.md"
    assert file.read_text() == experiments_page(tmp_path / "results")
    drawn = [path.relative_to(tmp_path / "docs") for path in (tmp_path / "docs").rglob("*.svg")]
    assert drawn == [Path("figures/quickstart/figure-curve.svg")]
    assert (tmp_path / "docs" / drawn[0]).read_text() == "<svg>hello</svg>"
    assert list(document.figures(tmp_path / "results", tmp_path / "docs")) == [tmp_path / "docs" / drawn[0]]


@pytest.mark.parametrize(
    ("key", "changes", "complaint"),
    [
        ("figure-else", {}, "figure-else.json belongs to an unknown experiment"),
        ("figure-curve", {"format": FORMAT - 1}, "figure-curve.json is damaged or of another format"),
        ("figure-curve", {"content": [1]}, "figure-curve.json is damaged or of another format"),
        ("figure-curve", {"models": None}, "figure-curve.json is damaged or of another format"),
        ("table-many", {}, "quickstart/experiments/table-many.json is damaged or of another format"),
    ],
)
def test_a_file_that_cannot_be_shown_is_named(tmp_path, key, changes, complaint):
    write(tmp_path, key=key, **changes)
    with pytest.raises(ProodError, match=complaint):
        experiments_page(tmp_path)


def test_a_figure_that_cannot_be_drawn_is_named(tmp_path):
    write(tmp_path / "results", content={})
    complaint = "quickstart/experiments/figure-curve.json is damaged or of another format"
    with pytest.raises(Damaged, match=complaint):
        write_page(tmp_path / "results", tmp_path / "docs")


def write_published(file, weights):
    evaluation = {"outside": "svhn", "eps": 0.1, "images": 9, "auc": 0.9, "gauc": 0.5, "fpr95": 0.1, "gfpr95": 0.6}
    words = dict.fromkeys(("title", "inside", "outside", "command", "hardware", "version"), "word")
    numbers = {"format": 1, "seed": 0, "shift": None, "seconds": None, "recipe": {}, "evaluations": [evaluation]}
    file.parent.mkdir(exist_ok=True)
    file.write_text(json.dumps(words | numbers | {"weights": weights}))


def test_a_model_that_was_published_anew_is_named(tmp_path):
    write(tmp_path, models={"oe-0": "abc", "prood-0": "def", "plain-0": "ghi"})
    write_published(tmp_path / "quickstart" / "textures" / "oe-0.json", "abc")
    write_published(tmp_path / "quickstart" / "textures" / "prood-0.json", "other")
    assert "- Of \\*one\\* seed.\n- Models that were trained again since then, with other results now: prood-0\n" in (
        experiments_page(tmp_path)
    )
    write_published(tmp_path / "quickstart" / "elsewhere" / "prood-0.json", "def")  # trained against another set
    assert "trained anew" not in experiments_page(tmp_path)
