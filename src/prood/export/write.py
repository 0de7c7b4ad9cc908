"""One ONNX file from images and a radius to probabilities and a proven bound."""

import hashlib
import json
from pathlib import Path
from typing import Any

import torch

from prood.atomic import replacing
from prood.detector import Detector
from prood.errors import AlreadyThere, BadValue, Unsupported
from prood.export.check import Agreement, check, on_cpu
from prood.export.classifier import classifier_model
from prood.export.graph import INPUTS, OUTPUTS, Graph
from prood.export.shapes import TABLE
from prood.export.translate import Writer, trace, translate
from prood.extras import require_packages
from prood.models import Fusion, ProoD, fingerprint, model_path
from prood.version import __version__

OPSET = 20
OPSETS = range(18, 22)
"""Reductions take their axes as an input from 18 on; up to 21 the versions of the operators used here are known."""

_PACKAGES = ("onnx", "onnxruntime", "onnxscript")
_TRACED = (3, 5)  # two numbers of images, to see what depends on it
_DOCS = {
    "images": "float32 in [0, 1], (N, channels, height, width)",
    "eps": "radius of the ball in the maximum norm, not negative",
    "probabilities": "p(y|x), the classifier's class on top",
    "p_in": "the discriminator's probability of in-distribution",
    "confidence": "max p(y|x)",
    "upper_bound": "no image of [0, 1]^d within eps has a confidence above this; 1 where nothing is proven",
}


def export(
    model: Detector | ProoD | Path | str,
    path: Path | str,
    *,
    opset: int = OPSET,
    overwrite: bool = False,
) -> Agreement:
    """Write the joint model and its certified bound (docs/export.md), and say how well ONNX Runtime agrees with torch.

    `model` is a detector, a joint model, or where one is stored. The file is compared with torch on a few images
    before it gets its name; if the two disagree there is an error, and no file.
    """
    path = Path(path)
    _check_request(path, opset, overwrite)
    detector, facts = _detector(model)
    with on_cpu(detector):
        proto = build(detector, opset, facts)
        with replacing(path) as aside:
            aside.write_bytes(proto.SerializeToString())
            return check(aside, detector)


def build(detector: Detector, opset: int, facts: dict[str, str]) -> Any:
    """The ONNX model: the classifier by torch's exporter, all that a proof rests on by our own."""
    from onnx import TensorProto, checker, helper

    model = detector.joint().eval()
    classifier = classifier_model(model.classifier, torch.zeros(2, *detector.shape), opset)
    writer = guard_nodes(model, detector)
    graph = helper.make_graph(
        [*classifier.graph.node, *writer.nodes],
        "prood",
        [
            helper.make_tensor_value_info("images", TensorProto.FLOAT, ["N", *detector.shape], _DOCS["images"]),
            helper.make_tensor_value_info("eps", TensorProto.FLOAT, [], _DOCS["eps"]),
        ],
        [
            helper.make_tensor_value_info(
                "probabilities", TensorProto.FLOAT, ["N", detector.count], _DOCS["probabilities"]
            ),
            *(helper.make_tensor_value_info(name, TensorProto.DOUBLE, ["N"], _DOCS[name]) for name in OUTPUTS[1:]),
        ],
        [*classifier.graph.initializer, *writer.initializers.values()],
    )
    proto = helper.make_model(
        graph,
        opset_imports=classifier.opset_import,
        functions=classifier.functions,
        ir_version=classifier.ir_version,
        producer_name="prood",
        producer_version=__version__,
    )
    helper.set_model_props(proto, facts)
    checker.check_model(proto)
    return proto


def guard_nodes(model: ProoD, detector: Detector) -> Writer:
    """From images, logits and eps to the outputs, with the discriminator and the proof."""
    guard = Graph(model).eval()
    traces = [
        trace(guard, torch.zeros(n, *detector.shape), torch.zeros(n, detector.count), torch.zeros(())) for n in _TRACED
    ]
    return translate(traces[0], traces[1], TABLE, [INPUTS[0], "logits", INPUTS[1]], OUTPUTS)


def _check_request(path: Path, opset: int, overwrite: bool) -> None:
    require_packages("export", *_PACKAGES, what="export")
    if opset not in OPSETS:
        raise BadValue(f"the operator set must be one of {OPSETS[0]} to {OPSETS[-1]}, not {opset}")
    if path.suffix != ".onnx":
        raise BadValue(f"the file must be called something.onnx, not {path.name}")
    if path.is_dir() or (path.exists() and not overwrite):
        raise AlreadyThere(f"there is something at {path} already: choose another name, or say overwrite")


def _detector(model: Detector | ProoD | Path | str) -> tuple[Detector, dict[str, str]]:
    """The detector, and what the file says about it."""
    facts: dict[str, str] = {}
    if isinstance(model, str | Path):
        source, model = model_path(model), Detector.load(model)
        facts["sha256"] = hashlib.sha256(source.read_bytes()).hexdigest()
    detector = model if isinstance(model, Detector) else Detector(model)
    if isinstance(detector.joint(), Fusion):
        raise Unsupported("a fused model cannot be exported yet: export a joint model, of 'prood combine' say")
    facts |= {
        "version": __version__,
        "image": json.dumps(detector.shape),
        "classes": json.dumps(detector.classes, ensure_ascii=False),
        "shift": repr(detector.shift),
        "weights": fingerprint(detector.model),
        "norm": "linf",
        "method": "best",
        "arithmetic": "float32",
    }
    if detector.threshold is not None:
        facts["threshold"] = repr(detector.threshold)
    return detector, facts
