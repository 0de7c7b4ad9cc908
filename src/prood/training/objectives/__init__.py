"""One file per objective; each is a frozen set of options and a loss."""

from prood.training.objectives.base import Batch, Logs, Objective, Step, interlace, ramp, separate
from prood.training.objectives.discriminator import CertifiedDiscriminator
from prood.training.objectives.oe import OutlierExposure
from prood.training.objectives.plain import Plain
from prood.training.objectives.semi_joint import SemiJoint

__all__ = [
    "Batch",
    "CertifiedDiscriminator",
    "Logs",
    "Objective",
    "OutlierExposure",
    "Plain",
    "SemiJoint",
    "Step",
    "interlace",
    "ramp",
    "separate",
]
