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
    lines = console.export_text().splitlines()
    plain = next(line for line in lines if "Plain" in line)
    assert "99.1" in plain
    assert "97.5" in plain
    assert "0.0" in plain
    bare = next(line for line in lines if "ProoD-Disc" in line)
    assert "–" in bare
    assert "88.4" in bare


def test_results_that_are_not_there_or_not_json(tmp_path):
    assert read_results(tmp_path) is None
    (tmp_path / "results.json").write_text("{half")
    with pytest.raises(ProodError, match="not valid JSON"):
        read_results(tmp_path)
