"""One file per objective; each is a frozen set of options and a loss."""

from prood.methods.acet import ACET
from prood.methods.atom import ATOM
from prood.methods.base import Batch, Logs, Objective, Step, interlace, ramp, separate
from prood.methods.ccu import CCU
from prood.methods.discriminator import CertifiedDiscriminator
from prood.methods.eb import EB
from prood.methods.good import GOOD
from prood.methods.oe import OutlierExposure
from prood.methods.plain import Plain
from prood.methods.prood import SemiJoint
from prood.methods.robust import Robust

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
