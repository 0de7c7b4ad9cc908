import io

import pytest
from rich.console import Console

from prood import ProodError
from prood.evaluation import read_results, results_table

RESULTS = {
    "in_distribution": "digits:test",
    "eps": 0.3,
    "models": {
        "Plain": {"accuracy": 0.991, "out": {"smooth": {"auc": 0.975, "gauc": 0.0}}},
        "ProoD-Disc": {"accuracy": None, "out": {"smooth": {"auc": 1.0, "gauc": 0.8844}}},
    },
}


def test_the_table_shows_percent_and_a_dash_for_what_has_no_accuracy():
    console = Console(width=100, record=True, file=io.StringIO())
    console.print(results_table(RESULTS))
    lines = [line.split() for line in console.export_text().splitlines()]
    where = next(number for number, words in enumerate(lines) if words[:1] == ["Plain"])
    assert lines[where : where + 4] == [["Plain", "99.1", "97.5"], ["0.0"], ["ProoD-Disc", "–", "100.0"], ["88.4"]]


def test_results_that_are_not_there_or_not_json(tmp_path):
    assert read_results(tmp_path) is None
    (tmp_path / "results.json").write_text("{half")
    with pytest.raises(ProodError, match="not valid JSON"):
        read_results(tmp_path)
