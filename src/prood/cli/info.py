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
    from prood.training import describe

    console = Console()
    results = read_results(run)
    if results is None:
        for key, value in describe(run).items():
            console.print(
                f"[bold]{key:<13}[/] {value if isinstance(value, str) else json.dumps(value)}", highlight=False
            )
    else:
        console.print(results_table(results))
