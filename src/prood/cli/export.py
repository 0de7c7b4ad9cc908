"""prood export RUN model.onnx"""

from pathlib import Path
from typing import Annotated

import typer

from prood.pretrained import listed


def export(
    run: Annotated[str, typer.Argument(help=f"Run or file of a joint model, or a shipped one ({listed()}).")],
    file: Annotated[Path, typer.Argument(metavar="FILE.onnx", help="Where to write.")],
    opset: Annotated[int, typer.Option(help="Version of the operator set, 18 to 21.")] = 20,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace a file of that name.")] = False,
) -> None:
    """Write a joint model and its certified bound as one ONNX file.

    Its inputs are 'images' (N, C, H, W, float32 in [0, 1]) and 'eps', a radius; its outputs 'probabilities', 'p_in',
    'confidence' and 'upper_bound': no image of [0, 1]^d within eps has a confidence above that. The bound covers every
    value that the float32 network in the file can return, in any order of summation; docs/export.md says which runtimes
    keep to that.

    The file is compared with torch on a few images before it gets its name.
    """
    from prood.export import export as write

    found = write(run, file, opset=opset, overwrite=overwrite)
    print(f"wrote {file}")
    differences = f"{found.probabilities:.1g} in a probability and {found.upper_bound:.1g} in a bound"
    print(f"ONNX Runtime and torch differ by at most {differences} ({found.images} images)")
