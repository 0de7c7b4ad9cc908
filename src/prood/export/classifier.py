"""The classifier as ONNX, by torch's own exporter: it may be any network, and no proof rests on it."""

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from prood.errors import Unsupported
from prood.models.wrapped import Facts, wrapped_parts

PREFIX = "classifier/"
_AGAIN = "; wrap the same network as a .pt2 of torch.export"


def classifier_model(classifier: nn.Module, images: Tensor, opset: int) -> Any:
    """An ONNX model from `images` to `logits`, all other names under a prefix."""
    from onnx import compose

    for part in wrapped_parts(classifier):
        _check_kind(part.facts)
    try:
        with _quiet():
            program = torch.onnx.export(
                classifier,
                (images,),
                dynamo=True,
                opset_version=opset,
                input_names=["images"],
                output_names=["logits"],
                dynamic_shapes=({0: torch.export.Dim("N")},),
                verbose=False,
            )
        assert program is not None
        model = program.model_proto
    except Exception as error:  # whatever a foreign network makes the exporter say
        hint = _AGAIN if any(part.facts.kind == "torchscript" for part in wrapped_parts(classifier)) else ""
        raise Unsupported(f"torch cannot export the classifier to ONNX: {_first_line(error)}{hint}") from None
    rows = model.graph.output[0].type.tensor_type.shape.dim[0]
    if not rows.dim_param:
        raise Unsupported(
            "the classifier cannot be exported: it takes the number of images for a constant; where it says len(x), "
            "say x.shape[0]"
        )
    return compose.add_prefix(model, PREFIX, rename_inputs=False, rename_outputs=False)


def _check_kind(facts: Facts) -> None:
    """What torch sees nothing of, or only with one number of images."""
    if facts.kind == "onnx":
        raise Unsupported(
            "a wrapped ONNX classifier cannot be exported, because torch does not see into its file: wrap the same "
            "network as a .pt2 of torch.export"
        )
    if facts.batch is not None:
        raise Unsupported(
            f"the wrapped classifier takes batches of {facts.batch} only, and the exported file has to take any: "
            "export it to .pt2 with dynamic_shapes=({0: torch.export.Dim.DYNAMIC},), and wrap it again"
        )


@contextmanager
def _quiet() -> Iterator[None]:
    """The exporter reports on packages that are not there, and on itself."""
    before = logging.root.manager.disable
    logging.disable(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)


def _first_line(error: BaseException) -> str:
    """What went wrong at the bottom of a chain of errors."""
    while error.__cause__ is not None:
        error = error.__cause__
    lines = [line for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[0].strip()}" if lines else type(error).__name__
