"""The claim "no image of the ball is accepted" as VNN-LIB instances, for the tools of VNN-COMP to prove or to refute.

An instance asks whether an input X of the box [x − ε, x + ε] ∩ [0, 1]^d has Yᵢ ≥ τᵢ for all outputs i. `unsat` is the
proof: every image of the ball is rejected. Rounding is on the safe side twice. The box has ends in float32, moved
outwards. And τ is the smallest float32 number such that the detector rejects whatever has a smaller g, found by asking
the rule itself: so it needs no inverse of a gate. It stands for λ⁻¹(s) − Δ, with s the score of the threshold. For a
committee, g is the least of mᵢ(gᵢ): the outputs are the gᵢ, and τᵢ stands for mᵢ⁻¹(λ⁻¹(s) − Δ).

Tools compute over the reals or in plain floats: unlike a certificate of Prood, their `unsat` does not cover what
float32 rounds on its way through the deployed network.
"""

import csv
import io
import json
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from prood.atomic import write_bytes, write_text
from prood.bounds.options import checked_radius
from prood.detector import Detector
from prood.detector.inputs import Images, read
from prood.errors import AlreadyThere, BadValue
from prood.export.alone import INPUT, OUTPUT, check_network, network_model
from prood.export.check import on_cpu
from prood.extras import require_packages
from prood.models import Committee, ProoD, fingerprint
from prood.models.committee import flushed
from prood.version import __version__

Version = Literal["2.0", "1.0"]
Ends = NDArray[np.float32]

NETWORK, INSTANCES, MANIFEST = "onnx/g.onnx", "instances.csv", "manifest.json"
CHECKED = 8
"""Images on which the file is compared with torch."""


@dataclass(frozen=True)
class VnnLib:
    """How instances are written: their radius, the version of the language, and the seconds that each may take.

    `names` are what the images are called in the manifest, `facts` what else it says.
    """

    eps: float
    version: Version = "2.0"
    timeout: int = 300
    overwrite: bool = False
    names: Sequence[str] = ()
    facts: dict[str, Any] | None = None

    def __post_init__(self) -> None:
        checked_radius(self.eps)
        if self.version not in get_args(Version):
            raise BadValue(f"unknown VNN-LIB version {self.version}: choose {' or '.join(get_args(Version))}")
        if self.timeout < 1:
            raise BadValue(f"an instance may take 1 second or more, not {self.timeout}")


@dataclass(frozen=True)
class Written:
    """How many instances there are, the thresholds on g, and how far ONNX Runtime's g is from torch's."""

    instances: int
    thresholds: tuple[float, ...]
    difference: float


def export_vnnlib(detector: Detector, images: Images, folder: Path | str, how: VnnLib) -> Written:
    """Write onnx/g.onnx, vnnlib/NUMBER.vnnlib for each image, instances.csv and manifest.json into a new folder."""
    require_packages("export", "onnx", "onnxruntime", what="export")
    folder = Path(folder)
    if folder.exists() and not (how.overwrite and (folder / MANIFEST).is_file()):
        raise AlreadyThere(f"{folder} already exists: choose another name, or pass --overwrite to replace instances")
    with on_cpu(detector), _aside(folder) as aside:
        taus = thresholds(detector)
        facts = {"thresholds": list(taus), "weights": fingerprint(detector.discriminator), "version": __version__}
        stated = {"image": json.dumps(detector.shape)} | {key: json.dumps(value) for key, value in facts.items()}
        network = network_model(detector.discriminator, detector.shape, stated).SerializeToString()
        write_bytes(aside / NETWORK, network)
        rows, listed, seen = io.StringIO(), list[dict[str, Any]](), list[Tensor]()
        lines = csv.writer(rows, lineterminator="\n")
        for stack in read(images, detector.shape, batch=64):
            seen += list(stack[: CHECKED - len(seen)])
            g = _values(detector, stack)
            for image, value in zip(stack, g, strict=True):
                file, number = f"vnnlib/{len(listed):05d}.vnnlib", len(listed)
                name = how.names[number] if number < len(how.names) else str(number)
                title = f"{name}: is an image within {how.eps:g} accepted? unsat: none is"
                write_text(aside / file, instance(*box(image, how.eps), taus, version=how.version, title=title))
                lines.writerow([NETWORK, file, how.timeout])
                listed.append({"file": file, "image": name, "g": value})
        if not listed:
            raise BadValue("the set has no images: name one with images to make instances")
        difference = check_network(network, detector.discriminator, torch.stack(seen))
        write_text(aside / INSTANCES, rows.getvalue())
        stated_here = {"eps": how.eps, "norm": "linf", "vnnlib": how.version, "threshold": detector.threshold}
        about = stated_here | facts | (how.facts or {}) | {"instances": listed}
        write_text(aside / MANIFEST, json.dumps(about, indent=2) + "\n")
    return Written(len(listed), taus, difference)


def thresholds(detector: Detector) -> tuple[float, ...]:
    """τᵢ for each output: whatever has a smaller gᵢ is rejected, by the detector's own rule and all its roundings."""
    g = detector.discriminator
    scales: list[Callable[[Tensor], Tensor]] = [lambda x: x]
    if isinstance(g, Committee):
        scales = [partial(_on_scale, scale) for _, scale in g.pairs()]
    return tuple(_threshold(partial(_rejects, detector, scale)) for scale in scales)


def _on_scale(scale: Any, x: Tensor) -> Tensor:
    """A bound of one member as the committee's, where no other is less."""
    return flushed(scale(flushed(x)).float())


def _rejects(detector: Detector, scale: Callable[[Tensor], Tensor], bound: float) -> bool:
    of_g = scale(torch.tensor([bound], dtype=torch.float32))
    score = detector.model.shifted(of_g) if isinstance(detector.model, ProoD) else of_g
    return bool(detector.rule.rejects(detector.rule.bound(score.double()).numpy())[0])


def _threshold(rejects: Callable[[float], bool]) -> float:
    """The smallest float32 number that is not rejected, by bisection over all of them; `rejects` falls."""
    low, high = _order(-np.finfo(np.float32).max), _order(np.finfo(np.float32).max)
    if not rejects(_number(low)):
        raise BadValue("at this threshold no g is low enough to reject an image alone: give a higher --threshold")
    if rejects(_number(high)):
        raise BadValue("at this threshold every image is rejected, whatever its g is: give a lower --threshold")
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if rejects(_number(middle)) else (low, middle)
    return _number(high)


def _order(number: Any) -> int:
    """The place of a float32 number among all of them, in order."""
    bits = int(np.float32(number).view(np.int32))
    return bits if bits >= 0 else -(bits & 0x7FFFFFFF)


def _number(place: int) -> float:
    return float(np.int32(abs(place)).view(np.float32)) * (-1.0 if place < 0 else 1.0)


def box(image: Tensor, eps: float) -> tuple[Ends, Ends]:
    """The ends of [x − ε, x + ε] ∩ [0, 1]^d in float32, moved outwards by rounding."""
    x, radius = image.double().numpy(), np.float64(eps)
    low, high = np.nextafter(x - radius, -np.inf), np.nextafter(x + radius, np.inf)
    down, up = low.astype(np.float32), high.astype(np.float32)
    down = np.where(down > low, np.nextafter(down, np.float32(-np.inf)), down)
    up = np.where(up < high, np.nextafter(up, np.float32(np.inf)), up)
    return down.clip(0, 1) + np.float32(0), up.clip(0, 1)  # + 0: of zeros, the one without a sign


def instance(low: Ends, high: Ends, taus: Sequence[float], *, version: Version, title: str = "") -> str:
    """The text of one instance."""
    names = [f"{INPUT}_{place}" for place in range(low.size)]
    outputs = [f"{OUTPUT}_{place}" for place in range(len(taus))]
    declared = [f"(declare-const {name} Real)" for name in (*names, *outputs)]
    if version == "2.0":
        shape = (1, *low.shape)
        names = [f"{INPUT}[{','.join(map(str, place))}]" for place in np.ndindex(*shape)]
        outputs = [f"{OUTPUT}[0,{place}]" for place in range(len(taus))]
        given = f"    (declare-input {INPUT} float32 [{','.join(map(str, shape))}])"
        declared = ["(vnnlib-version <2.0>)", "(declare-network g", given]
        declared += [f"    (declare-output {OUTPUT} float32 [1,{len(taus)}])", ")"]
    lines = [f"; {one}" for one in title.splitlines() if one] if version == "1.0" else []
    lines += declared
    lines += [f"; {one}" for one in title.splitlines() if one] if version == "2.0" else []
    for name, least, most in zip(names, low.ravel(), high.ravel(), strict=True):
        lines += [f"(assert (>= {name} {_text(least)}))", f"(assert (<= {name} {_text(most)}))"]
    return "\n".join([*lines, *(f"(assert (>= {name} {_text(t)}))" for name, t in zip(outputs, taus, strict=True)), ""])


def _text(number: Any) -> str:
    """Exactly this number, without an exponent, which the language does not have."""
    return np.format_float_positional(np.float64(number), trim="0")


@torch.no_grad()
def _values(detector: Detector, stack: Tensor) -> list[float]:
    found: list[float] = detector.discriminator.eval()(stack).tolist()
    return found


@contextmanager
def _aside(folder: Path) -> Iterator[Path]:
    """A folder beside that takes its place in the end; what stood there goes then."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    aside, old = (folder.with_name(f".{folder.name}.{os.getpid()}.{word}") for word in ("part", "old"))
    try:
        aside.mkdir()
        yield aside
        if folder.exists():
            os.rename(folder, old)
        os.rename(aside, folder)
    finally:
        for one in (aside, old):
            shutil.rmtree(one, ignore_errors=True)
