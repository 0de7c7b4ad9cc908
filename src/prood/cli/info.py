"""prood info RUN"""

import json
from pathlib import Path
from typing import Annotated

import typer

from prood.pretrained import listed


def info(
    run: Annotated[
        Path,
        typer.Argument(help=f"A run's folder, a .safetensors file, or a model that comes with Prood ({listed()})."),
    ],
) -> None:
    """What a run or a model holds: networks, data and settings, how far training came, and its results."""
    from rich.markup import escape

    from prood.cli.console import console
    from prood.evaluation import read_results
    from prood.models import model_path, read_metadata
    from prood.report import results_table
    from prood.training import describe

    shown = console()
    results = read_results(run)
    file = model_path(run)
    # A folder of runs with their common results, such as the quickstart's, has no model of its own.
    facts = describe(run) if results is None or file.is_file() else {}
    if file.is_file():
        about = read_metadata(run)
        if about.threshold is not None:
            share = "" if about.tpr is None else f": {100 * about.tpr:g}% of in-distribution images are not"
            facts["threshold"] = f"an image is rejected below {about.threshold:g}{share}"
        if file.with_suffix(".md").is_file():
            facts["model card"] = str(file.with_suffix(".md"))
    for key, value in facts.items():
        text = value if isinstance(value, str) else json.dumps(value)
        shown.print(f"[bold]{key:<13}[/] {escape(text)}", highlight=False, soft_wrap=True)
    if results is not None:
        shown.print(results_table(results))
