"""One file per objective; each is a frozen set of options and a loss."""

from prood.training.objectives.acet import ACET
from prood.training.objectives.atom import ATOM
from prood.training.objectives.base import Batch, Logs, Objective, Step, interlace, ramp, separate
from prood.training.objectives.ccu import CCU
from prood.training.objectives.discriminator import CertifiedDiscriminator
from prood.training.objectives.eb import EB
from prood.training.objectives.good import GOOD
from prood.training.objectives.oe import OutlierExposure
from prood.training.objectives.plain import Plain
from prood.training.objectives.robust import Robust
from prood.training.objectives.semi_joint import SemiJoint

__all__ = [
    "ACET",
    "ATOM",
    "CCU",
    "EB",
    "GOOD",
    "Batch",
    "CertifiedDiscriminator",
    "Logs",
    "Objective",
    "OutlierExposure",
    "Plain",
    "Robust",
    "SemiJoint",
    "Step",
    "interlace",
    "ramp",
    "separate",
]
