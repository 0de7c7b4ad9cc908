"""The paper's kind of table, from a results file, for the terminal."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich.table import Table

from prood.errors import ProodError

RESULTS_FILE = "results.json"


def read_results(folder: Path | str) -> dict[str, Any] | None:
    """The results in a folder, None if there are none yet."""
    file = Path(folder) / RESULTS_FILE
    if not file.is_file():
        return None
    try:
        results: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    except ValueError:
        raise ProodError(f"{file} is not valid JSON: evaluate again") from None
    return results


def results_table(results: Mapping[str, Any]) -> Table:
    """One row a model; accuracy, then AUC and GAUC for each out-distribution, in percent."""
    models: Mapping[str, Any] = results["models"]
    names = list(next(iter(models.values()))["out"])
    title = f"In: {results['in_distribution']}, ε = {results['eps']:g}; AUC over GAUC, in percent"
    table = Table(title=title, box=None, padding=(0, 1, 0, 0), header_style="bold underline")
    table.add_column("model", no_wrap=True)
    table.add_column("Acc", justify="right", no_wrap=True)
    for name in names:
        table.add_column(name, justify="right")
    for model, values in models.items():
        accuracy = "–" if values["accuracy"] is None else f"{100 * values['accuracy']:.1f}"
        cells = [f"{_percent(values['out'][name]['auc'])}\n{_percent(values['out'][name]['gauc'])}" for name in names]
        table.add_row(model, accuracy, *cells)
    return table


def _percent(fraction: float) -> str:
    return f"{100 * fraction:.1f}"
