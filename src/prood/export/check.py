"""Whether ONNX Runtime returns what torch returns, and whether its bound is one."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from prood.detector import Detector
from prood.errors import Refuted, Unsupported, first_line
from prood.export.graph import OUTPUTS
from prood.models import Committee, Gated, ProoD

TOLERANCE = 1e-4
"""How far the two may be apart: what float32 does to logits of any size. Usually it is a thousandth of this."""


@dataclass(frozen=True)
class Agreement:
    """The largest differences between ONNX Runtime and torch, over `images` images."""

    images: int
    probabilities: float
    p_in: float
    confidence: float
    upper_bound: float


def check(path: Path | str, detector: Detector, images: Tensor | None = None) -> Agreement:
    """Compare a file with the detector that it was made from, and the bound with the confidences; or raise an error.

    `images` are float32 in [0, 1], (N, C, H, W); without them grey ones, noise and patterns are taken.
    """
    with on_cpu(detector):
        images = examples(detector) if images is None else images
        session, model, said = open_session(path), detector.joint().eval(), detector.predict(images)
        with torch.no_grad():
            logits, probabilities = model.logits(images), model.log_probabilities(images).exp().numpy()
        first, second = logits.topk(2, 1).values.T
        clear = (first - second > 1e-3 * first.abs()).numpy()  # classes that are closer may change places by rounding
        expected: dict[str, NDArray[Any]] = {"probabilities": probabilities}
        expected |= {"p_in": said.p_in, "confidence": said.confidence}
        found: dict[str, float] = dict.fromkeys(OUTPUTS, 0.0)
        for eps in (0.01, 0.1):
            got = run(session, images, eps)
            expected["upper_bound"] = detector.upper_bound(images, float(np.float32(eps)))
            for name in OUTPUTS:
                found[name] = max(found[name], _distance(got[name], expected[name]))
            above = max(np.max(values - got["upper_bound"]) for values in (got["confidence"], expected["confidence"]))
            if above > 0:
                raise Refuted(f"the exported bound is wrong: a confidence is {above:g} above it at eps {eps}")
            if (clear & (got["probabilities"].argmax(1) != logits.argmax(1).numpy())).any():
                raise Refuted("ONNX Runtime gives another class than torch: the classifier was not exported faithfully")
    of_g, of_both = _steepest(model)
    allowed = {name: TOLERANCE * (of_g if name == "p_in" else of_both) for name in OUTPUTS}
    wrong = {name: distance for name, distance in found.items() if not distance <= allowed[name]}
    if wrong:
        where = ", ".join(f"{name} by {distance:g}" for name, distance in wrong.items())
        raise Refuted(f"ONNX Runtime and torch disagree in {where}: the model was not exported faithfully")
    return Agreement(len(images), **found)


@contextmanager
def on_cpu(detector: Detector) -> Iterator[None]:
    """What a file is made from and compared with is on the CPU; after that the detector is back where it was."""
    before = detector.device
    detector.to("cpu")
    try:
        yield
    finally:
        detector.to(before)


def open_session(file: Path | str | bytes, level: str = "all") -> Any:
    """A session on the CPU, of a file or its content.

    `level` is what the runtime may do to the graph: disabled, basic, extended or all.
    """
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")  # threads that wait shall not burn a core
    words = {"disabled": "ORT_DISABLE_ALL", "basic": "ORT_ENABLE_BASIC", "extended": "ORT_ENABLE_EXTENDED"}
    options.graph_optimization_level = getattr(onnxruntime.GraphOptimizationLevel, words.get(level, "ORT_ENABLE_ALL"))
    try:
        given = file if isinstance(file, bytes) else str(file)
        return onnxruntime.InferenceSession(given, options, providers=["CPUExecutionProvider"])
    except Exception as error:  # the runtime's exceptions have no common type of their own
        name = "the network" if isinstance(file, bytes) else Path(file).name
        raise Unsupported(f"ONNX Runtime cannot load {name}: {first_line(error)}") from None


def run(session: Any, images: Tensor, eps: float) -> dict[str, NDArray[Any]]:
    """The outputs by name."""
    feed = {"images": images.numpy(), "eps": np.array(eps, dtype=np.float32)}
    return dict(zip(OUTPUTS, session.run(list(OUTPUTS), feed), strict=True))


def examples(detector: Detector) -> Tensor:
    """A black, a grey and a white image, and noise of fine and of coarse grey values."""
    source = torch.Generator().manual_seed(0)
    flat = torch.tensor([0.0, 0.5, 1.0]).reshape(-1, 1, 1, 1).expand(-1, *detector.shape)
    noise = torch.rand(2, *detector.shape, generator=source)
    return torch.cat([flat, noise[:1], (noise[1:] * 3).round() / 3])


def _steepest(model: ProoD) -> tuple[float, float]:
    """By how much the scales of a committee enlarge a difference of g, and these with a gate, at most.

    What is this much larger is not a fault of the file.
    """
    g = model.discriminator
    scales = [one for _, one in g.pairs()] if isinstance(g, Committee) else []
    of_g = max([1.0, *(_slope(one.knots, one.values) for one in scales)])
    return of_g, of_g * (max(1.0, _slope(model.knots, model.caps)) if isinstance(model, Gated) else 1.0)


def _slope(knots: Tensor, values: Tensor) -> float:
    return (values.double().diff() / knots.double().diff()).max().item() if len(knots) > 1 else 1.0


def _distance(got: NDArray[Any], expected: NDArray[Any]) -> float:
    """The largest difference; infinite where the shapes differ, NaN where a value is."""
    return float(np.max(np.abs(got - expected), initial=0.0)) if got.shape == expected.shape else np.inf
