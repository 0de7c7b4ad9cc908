"""The paper's models on CIFAR, from the images to published results, for one seed or several."""

from collections.abc import Sequence
from dataclasses import replace

from prood.errors import UnknownName
from prood.evaluation import Results, read_results
from prood.studies.known import fast
from prood.studies.lab import Lab


def reproduce(lab: Lab, models: Sequence[str] = (), *, jobs: int = 1) -> list[str]:
    """Train, choose the shifts, certify, attack and publish all models but the baselines, or these; their names.

    Baselines come with the tables that show them. `jobs` tasks are carried out at a time, each in a process of its own.
    """
    known = [node.name for node in lab.study.nodes if node.measures and not node.baseline]
    for model in models:
        if model not in known:
            raise UnknownName(f"there is no model {model!r} to reproduce: choose among {', '.join(known)}")
    wanted = [name for name in known if not models or name in models]
    lab.carry_out(wanted, jobs=jobs, publish=True)
    return wanted


def run_fast(lab: Lab) -> list[Results]:
    """The discriminator and the joint model by shorter schedules, and what is proved about the latter, by seed."""
    lab = replace(lab, study=fast(lab.study))
    joint = lab.study.headline.name
    lab.carry_out([joint])
    return [read_results(lab.place(joint, seed)) or Results() for seed in lab.seeds]
