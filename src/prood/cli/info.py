"""prood info RUN"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer


def info(run: Annotated[Path, typer.Argument(help="A run's folder, or a .safetensors file.")]) -> None:
    """What a run holds: the model, its data and settings, how far training came, and its results."""
    from rich.console import Console

    from prood.evaluation import read_results, results_table
    from prood.models import model_path
    from prood.training import describe

    console = Console()
    results = read_results(run)
    # A folder of runs with their common results, such as the quickstart's, has no model of its own.
    facts = describe(run) if results is None or model_path(run).is_file() else {}
    for key, value in facts.items():
        console.print(f"[bold]{key:<13}[/] {value if isinstance(value, str) else json.dumps(value)}", highlight=False)
    if results is not None:
        console.print(results_table(results))
