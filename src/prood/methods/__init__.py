"""Methods to detect, each declared once by its class: command line, recipes and tables derive from that."""

from prood.methods.base import Batch, Logs, Loss, Method, Objective, Step, interlace, ramp, separate
from prood.methods.declaring import METHODS, method, option, register

# In the order in which they are listed.
# isort: off
from prood.methods.plain import Plain
from prood.methods.oe import OutlierExposure
from prood.methods.discriminator import CertifiedDiscriminator
from prood.methods.prood import SemiJoint
from prood.methods.ccu import CCU
from prood.methods.eb import EB
from prood.methods.good import GOOD
from prood.methods.acet import ACET
from prood.methods.atom import ATOM
from prood.methods.robust import Robust

__all__ = [
    "ACET",
    "ATOM",
    "CCU",
    "EB",
    "GOOD",
    "METHODS",
    "Batch",
    "CertifiedDiscriminator",
    "Logs",
    "Loss",
    "Method",
    "Objective",
    "OutlierExposure",
    "Plain",
    "Robust",
    "SemiJoint",
    "Step",
    "interlace",
    "method",
    "option",
    "ramp",
    "register",
    "separate",
]
