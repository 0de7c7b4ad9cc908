"""What a job is: the settings of one training, and the list that jobs are taken from."""

from __future__ import annotations

import json
import tomllib
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Settings:
    """Lengths in the schedule are parts of the whole training, so that a short job is a long one compressed."""

    inside: str = "cifar10"  # or "rimgnet", whose outliers are notrimgnet alone
    size: str = "S"  # a named size, or the words that spell one: "192 384s2 384 p2 fc256"
    epochs: float = 40
    batch: int = 256
    lr: float = 4e-4
    decay: str = "linear"  # or "cosine"; from `decay_from` on
    decay_from: float = 0.5
    warmup: float = 0.0
    average: float = 0.999  # decay of the averaged weights, a step
    eps: float = 0.01  # training radius
    eps_high: float = 0.0  # if above `eps`, each image's radius is uniform between the two
    eps_ramp: float = 0.5
    certified_weight: float = 0.4  # a
    certified_end: float | None = None  # if given, a moves there linearly over the training
    attack_steps: int = 2
    attack_step_size: float = 0.75
    l1: float = 0.0  # times the sum of the weights' absolute values
    tail: float = 0.0  # weight of softplus(out − t), t the 5% quantile of the batch's g(x)
    in_weight: float = 1.0  # weight of the in-distribution's loss
    in_tail: float = 0.0  # weight of the mean loss of the worst tenth of the in-distribution
    natural: float = 0.0  # share of natural32 among the outliers
    procedural: float = 0.0  # share of made textures (and, for rimgnet, of noise)
    rescaled: float = 0.0  # share of outliers shown from close up or from afar
    pad: int = 4
    crop: int = 0  # train on crops of this side, and judge on those at the centre
    resized: float = 0.0
    colour: float = 0.0
    cutout: int = 0
    autoaugment: bool = False
    init: float = 1.0  # times the first weights of all layers but the last; √6 makes PyTorch's He's
    seed: int = 0

    def __post_init__(self) -> None:
        if self.decay not in ("linear", "cosine"):
            raise ValueError(f"decay is 'linear' or 'cosine', not {self.decay!r}")
        if self.inside not in ("cifar10", "rimgnet"):
            raise ValueError(f"inside is 'cifar10' or 'rimgnet', not {self.inside!r}")


@dataclass(frozen=True)
class Job:
    name: str
    changes: dict[str, Any] = field(default_factory=dict)  # from the defaults
    group: str = ""  # jobs that are compared with each other; the one named like the group is their base
    combine: str = ""  # a group: take over all its changes that gained
    needs: float = 0.0  # points that a change must gain to be taken over


def read_jobs(path: Path) -> tuple[dict[str, Any], dict[str, Any], list[Job]]:
    """The tables `run` and `defaults`, and the jobs."""
    content = tomllib.loads(path.read_text(encoding="utf-8"))
    known = {item.name for item in fields(Settings)}
    defaults = content.get("defaults", {})
    jobs = []
    for entry in content["jobs"]:
        own = {key: entry.pop(key) for key in ("name", "group", "combine", "needs") if key in entry}
        changes = defaults | entry
        unknown = changes.keys() - known
        if unknown:
            raise ValueError(f"{own['name']} has unknown settings: {', '.join(sorted(unknown))}")
        jobs.append(Job(changes=entry, **own))
    names = [job.name for job in jobs]
    if len(set(names)) != len(names):
        raise ValueError(f"{path} names a job twice")
    return content.get("run", {}), defaults, jobs


def resolve(job: Job, defaults: dict[str, Any], jobs: list[Job], lines: list[dict[str, Any]]) -> Settings | None:
    """The job's settings; None while results that it builds on are missing."""
    taken: dict[str, Any] = {}
    if job.combine:
        group = [other for other in jobs if other.group == job.combine]
        results = {line["name"]: line for line in lines}
        if any(other.name not in results for other in group):
            return None
        scored = {other.name: score(results[other.name]) for other in group}
        base = scored.get(job.combine, 0.0)
        taken = next((dict(other.changes) for other in group if other.name == job.combine), {})
        for other in sorted(group, key=lambda other: scored[other.name]):  # where two differ, the better one wins
            if other.name != job.combine and scored[other.name] >= base + job.needs / 100:
                taken |= other.changes
    return Settings(**(defaults | taken | job.changes))


def score(line: dict[str, Any]) -> float:
    """Mean share provably rejected at 95% accepted, over the held-back sets, plus a little for the clean AUC.

    By `crown` bounds where the line has them: `crown-ibp` ranks networks of different lengths of training wrongly.
    """
    if "error" in line:
        return -1.0
    best = 0.0
    for kind in ("crown",) if "crown" in line else ("raw", "averaged"):
        sets = [values for name, values in line[kind].items() if name != "uniform"]
        radius = min(sets[0]["at"], key=float)
        proven = sum(values["at"][radius]["rejected"][0] for values in sets) / len(sets)
        best = max(best, proven + 0.01 * sum(values["auc"] for values in sets) / len(sets))
    return best


def read_lines(path: Path) -> list[dict[str, Any]]:
    """The results so far; a line that was cut off is left out."""
    found = []
    for text in path.read_text(encoding="utf-8").splitlines() if path.is_file() else []:
        try:
            found.append(json.loads(text))
        except ValueError:
            continue
    return found


def as_table(settings: Settings) -> dict[str, Any]:
    return asdict(settings)
