"""An exported file against torch and against attacks, on many images.

    python benchmarks/export.py RUN [--file model.onnx] [--sets digits:test,faces,smooth,uniform] [--images 1000]
                                [--eps 0,0.1,0.3] [--attacks fast]

For each level of the runtime's graph optimisation: how far classes, probabilities, p(in), confidences and bounds are
from torch's. Then the images are attacked, and what torch and the runtime say of the attacked ones is compared with the
exported bound. Prints the smallest margins; ends with exit code 1 if a class differs, a probability is off by more than
1e-5, or a confidence exceeds its bound.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

from prood.attacks import preset
from prood.data import load
from prood.detector import Detector
from prood.export import OUTPUTS, export, open_session, run
from prood.models import score_of

LEVELS = ("disabled", "basic", "extended", "all")


def gather(names: str, count: int) -> torch.Tensor:
    """As equal shares of the sets as they allow, all of the size of the first."""
    first, *others = names.split(",")
    inside = load(first)
    sets = [inside.floats(), *(load(name, like=inside).floats() for name in others)]
    left, parts = count, []
    for number, images in enumerate(sorted(sets, key=len)):
        parts.append(images[: left // (len(sets) - number)])
        left -= len(parts[-1])
    return torch.cat(parts)


def in_batches(session: Any, images: torch.Tensor, eps: float, size: int = 64) -> dict[str, np.ndarray]:
    parts = [run(session, some, eps) for some in images.split(size)]
    return {name: np.concatenate([part[name] for part in parts]) for name in OUTPUTS}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run")
    parser.add_argument("--file")
    parser.add_argument("--sets", default="digits:test,faces,smooth,uniform")
    parser.add_argument("--images", type=int, default=1000)
    parser.add_argument("--eps", default="0,0.1,0.3")
    parser.add_argument("--attacks", default="fast")
    options = parser.parse_args()
    detector = Detector.load(options.run)
    path = options.file or str(Path(tempfile.mkdtemp()) / "model.onnx")
    if not Path(path).exists():
        began = time.perf_counter()
        print(
            export(options.run, path),
            f"written in {time.perf_counter() - began:.1f} s, {Path(path).stat().st_size:,} bytes",
        )
    images = gather(options.sets, options.images)
    said = detector.predict(images)
    with torch.no_grad():
        probabilities = torch.cat([detector.model.log_probabilities(part).exp() for part in images.split(256)]).numpy()
    wrong = 0
    sessions = {level: open_session(path, level) for level in LEVELS}
    for eps in (float(np.float32(word)) for word in options.eps.split(",")):
        began = time.perf_counter()
        bounds = torch.cat([detector.model.upper_bound(part, eps) for part in images.split(64)]).numpy()
        print(f"ε = {eps:g}: torch bounds {len(images)} images in {time.perf_counter() - began:.1f} s")
        found = {}
        for level, session in sessions.items():
            began = time.perf_counter()
            got = found[level] = in_batches(session, images, eps)
            seconds = time.perf_counter() - began
            classes = int((got["probabilities"].argmax(1) != said.label).sum())
            apart = float(np.abs(got["probabilities"] - probabilities).max())
            wrong += classes + int(apart > 1e-5)
            print(
                f"  {level:<9} {seconds:5.1f} s; other classes {classes}, differences: probability {apart:.2g}, "
                f"p(in) {np.abs(got['p_in'] - said.p_in).max():.2g}, "
                f"confidence {np.abs(got['confidence'] - said.confidence).max():.2g}, bound "
                f"{(got['upper_bound'] - bounds).min():+.2g} to {(got['upper_bound'] - bounds).max():+.2g}"
            )
        attacked = preset(options.attacks)(score_of(detector.model), images, eps).images if eps else images
        seen = {"torch": detector.predict(attacked).confidence}
        seen |= {level: in_batches(session, attacked, 0.0)["confidence"] for level, session in sessions.items()}
        for level, got in found.items():
            margins = {who: float((got["upper_bound"] - values).min()) for who, values in seen.items()}
            wrong += sum(margin < 0 for margin in margins.values())
            print(f"  bound of {level:<9} minus attacked confidence, smallest:", margins)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
