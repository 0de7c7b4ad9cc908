"""One ONNX file from images and a radius to probabilities and a proven bound.

All that a proof rests on is translated by us. The classifier, which may be any network, is left to torch's exporter.
"""

import hashlib
import json
import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from prood.atomic import replacing
from prood.detector import Detector
from prood.errors import AlreadyThere, BadValue, Unsupported
from prood.export.check import Agreement, check, on_cpu
from prood.export.graph import INPUTS, OUTPUTS, Graph
from prood.export.operators import TABLE
from prood.export.translate import trace, translate
from prood.extras import require_packages
from prood.models import Committee, Gated, ProoD, fingerprint, model_path
from prood.models.gated import Rescored
from prood.models.wrapped import wrapped_parts
from prood.version import __version__

OPSET = 20
OPSETS = range(18, 22)
"""Reductions take their axes as an input from 18 on; up to 21 the versions of the operators used here are known."""

_PACKAGES = ("onnx", "onnxruntime", "onnxscript")
_AGAIN = "wrap the same network as a .pt2 of torch.export"
_DOCS = {
    "images": "float32 in [0, 1], (N, channels, height, width)",
    "eps": "radius of the ball in the maximum norm, not negative",
    "probabilities": "p(y|x), the classifier's class on top",
    "p_in": "the discriminator's probability of in-distribution",
    "confidence": "max p(y|x)",
    "upper_bound": "no image of [0, 1]^d within eps has a confidence above this; 1 where nothing is proven",
}


def export(
    model: Detector | ProoD | Path | str, path: Path | str, *, opset: int = OPSET, overwrite: bool = False
) -> Agreement:
    """Write the joint model and its certified bound (docs/export.md), and say how well ONNX Runtime agrees with torch.

    `model` is a detector, a joint model, or where one is stored. The file is compared with torch on a few images
    before it gets its name; if the two disagree there is an error, and no file.
    """
    path = Path(path)
    require_packages("export", *_PACKAGES, what="export")
    if opset not in OPSETS:
        raise BadValue(f"the operator set must be one of {OPSETS[0]} to {OPSETS[-1]}, not {opset}")
    if path.suffix != ".onnx":
        raise BadValue(f"the file must be called something.onnx, not {path.name}")
    if path.is_dir() or (path.exists() and not overwrite):
        raise AlreadyThere(f"{path} already exists: choose another name or pass --overwrite")
    detector, facts = _detector(model)
    with on_cpu(detector):
        proto = build(detector, opset, facts)
        with replacing(path) as aside:
            aside.write_bytes(proto.SerializeToString())
            return check(aside, detector)


def _detector(model: Detector | ProoD | Path | str) -> tuple[Detector, dict[str, str]]:
    """The detector, and what the file says about it."""
    facts: dict[str, str] = {}
    if isinstance(model, str | Path):
        source, model = model_path(model), Detector.load(model)
        facts["sha256"] = hashlib.sha256(source.read_bytes()).hexdigest()
    detector = model if isinstance(model, Detector) else Detector(model)
    joint = detector.joint()
    if isinstance(joint, Rescored) and not isinstance(joint, Gated):
        raise Unsupported("a fused model cannot be exported: export a joint model from 'prood combine'")
    facts |= {
        "version": __version__,
        "image": json.dumps(detector.shape),
        "classes": json.dumps(detector.classes, ensure_ascii=False),
        "shift": repr(detector.shift),
        "weights": fingerprint(detector.model),
    }
    if isinstance(joint, Gated) and len(joint.knots):
        facts["gate"] = json.dumps({"knots": joint.gate.knots, "caps": joint.gate.caps})
    if isinstance(joint.discriminator, Committee):
        functions = [scale.function for _, scale in joint.discriminator.pairs()]
        facts["committee"] = json.dumps([{"knots": one.knots, "values": one.values} for one in functions])
    facts |= {"norm": "linf", "method": "best", "arithmetic": "float32"}
    if detector.threshold is not None:
        facts["threshold"] = repr(detector.threshold)
    return detector, facts


def build(detector: Detector, opset: int, facts: dict[str, str]) -> Any:
    """The ONNX model: the classifier, and from its logits, images and eps on the discriminator and the proof."""
    from onnx import TensorProto, checker, helper

    def value(name: str, kind: int, *shape: str | int) -> Any:
        return helper.make_tensor_value_info(name, kind, shape, _DOCS[name])

    model = detector.joint().eval()
    classifier = classifier_model(model.classifier, torch.zeros(2, *detector.shape), opset)
    guard = Graph(model).eval()
    traces = [  # with two numbers of images, to see what depends on it
        trace(guard, torch.zeros(n, *detector.shape), torch.zeros(n, detector.count), torch.zeros(())) for n in (3, 5)
    ]
    writer = translate(traces, TABLE, [INPUTS[0], "logits", INPUTS[1]], OUTPUTS)
    probabilities = value("probabilities", TensorProto.FLOAT, "N", detector.count)
    graph = helper.make_graph(
        [*classifier.graph.node, *writer.nodes],
        "prood",
        [value("images", TensorProto.FLOAT, "N", *detector.shape), value("eps", TensorProto.FLOAT)],
        [probabilities, *(value(name, TensorProto.DOUBLE, "N") for name in OUTPUTS[1:])],
        [*classifier.graph.initializer, *writer.initializers.values()],
    )
    versions = {"opset_imports": classifier.opset_import, "ir_version": classifier.ir_version}
    about = {"producer_name": "prood", "producer_version": __version__}
    proto = helper.make_model(graph, functions=classifier.functions, **versions, **about)
    helper.set_model_props(proto, facts)
    checker.check_model(proto)
    return proto


def classifier_model(classifier: nn.Module, images: Tensor, opset: int) -> Any:
    """An ONNX model from `images` to `logits`, all other names under a prefix."""
    from onnx import compose

    parts = [part.facts for part in wrapped_parts(classifier)]
    for facts in parts:  # what torch sees nothing of, or only with one number of images
        if facts.kind == "onnx":
            raise Unsupported(f"a wrapped ONNX classifier cannot be exported, as torch cannot trace it: {_AGAIN}")
        if facts.batch is not None:
            raise Unsupported(
                f"the wrapped classifier takes batches of {facts.batch} only, and the exported file has to take any: "
                "export it to .pt2 with dynamic_shapes=({0: torch.export.Dim.DYNAMIC},), and wrap it again"
            )
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
        hint = f"; {_AGAIN}" if any(facts.kind == "torchscript" for facts in parts) else ""
        raise Unsupported(f"torch cannot export the classifier to ONNX: {_bottom(error)}{hint}") from None
    if not model.graph.output[0].type.tensor_type.shape.dim[0].dim_param:
        raise Unsupported("the export fixed the number of images: write x.shape[0] instead of len(x) in the classifier")
    return compose.add_prefix(model, "classifier/", rename_inputs=False, rename_outputs=False)


@contextmanager
def _quiet() -> Iterator[None]:
    """The exporter reports on packages that are not there, and on itself."""
    before = logging.root.manager.disable
    logging.disable(logging.ERROR)
    try:
        with warnings.catch_warnings(action="ignore"):
            yield
    finally:
        logging.disable(before)


def _bottom(error: BaseException) -> str:
    """What went wrong at the bottom of a chain of errors, in one line."""
    while error.__cause__ is not None:
        error = error.__cause__
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return ": ".join([type(error).__name__, *lines[:1]])
