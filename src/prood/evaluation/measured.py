"""What is measured of a model besides its evaluations: robust accuracy, and what it says far away from all data."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from prood import data, processes
from prood.atomic import write_text
from prood.errors import Damaged
from prood.evaluation.asymptotics.far import TRAJECTORIES, Far, far_away
from prood.evaluation.results import Evaluation
from prood.evaluation.robustness import Robustness, robust_accuracy
from prood.evaluation.runs import part_of
from prood.models import load

FILE = "measured.json"


@dataclass(frozen=True)
class Measured:
    """`of` names the evaluation that they go with: the same weights, images, radius and attacks."""

    of: str
    far: Far
    robustness: Robustness | None  # None for a model that does not classify


def measured(run: Path, evaluation: Evaluation, device: str | None = None) -> Measured:
    """The measurements that are in the run's folder if they go with this evaluation, else new ones."""
    found = read_measured(run)
    if found is not None and found.of == evaluation.identity:
        return found
    target = processes.device(device)
    model, about = load(run, device=target)
    inside = data.load(evaluation.inside).numbered_as(about.classes)
    outside = part_of(evaluation.outside, inside, TRAJECTORIES, evaluation.seed)
    robustness = None
    if evaluation.accuracy is not None:
        options: dict[str, Any] = {"attacks": evaluation.attacks, "limit": evaluation.limit, "seed": evaluation.seed}
        robustness = robust_accuracy(model, inside, evaluation.eps, device=target, **options)
    far = far_away(model, inside, outside, seed=evaluation.seed, device=target)
    made = Measured(evaluation.identity, far, robustness)
    if processes.is_main():
        write_text(run / FILE, json.dumps(asdict(made), indent=2) + "\n")
    return made


def read_measured(run: Path | str) -> Measured | None:
    """What was measured into a run's folder, if anything was."""
    file = Path(run) / FILE
    if not file.is_file():
        return None
    try:
        return from_json(json.loads(file.read_text(encoding="utf-8")))
    except (ValueError, KeyError, TypeError, AttributeError):
        raise Damaged(f"{file} is damaged or of another format: remove it and compare again") from None


def from_json(content: dict[str, Any]) -> Measured:
    """What `dataclasses.asdict` made of it, and JSON of that."""
    lines = content["far"].items()
    far: dict[str, Any] = {key: tuple(value) if isinstance(value, list) else value for key, value in lines}
    robustness = content["robustness"]
    return Measured(content["of"], Far(**far), None if robustness is None else Robustness(**robustness))
