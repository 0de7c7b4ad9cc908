"""Interval and linear bounds of ordinary `torch.nn` networks, as a transform over their layers.

Knows nothing of out-of-distribution detection: boxes in, bounds out.
"""

from prood.bounds import activations, affine, certificate, channelwise, composite, registry  # noqa: F401 – the rules register themselves
from prood.bounds.arithmetic import strict
from prood.bounds.box import Box, Norm
from prood.bounds.certificate import Method, concretise, upper_bound
from prood.bounds.layers import BlockedLinear, NegativeLinear, Normalise, Residual
from prood.bounds.options import Budget, Options
from prood.bounds.radius import bound_curve, certified_radius
from prood.bounds.registry import Affine, Monotone, Plane, Rule, UnsupportedLayer, interval, register, relax
from prood.bounds.rounding import EXACT, NotCovered, Sums

__all__ = [
    "EXACT",
    "Affine",
    "BlockedLinear",
    "Box",
    "Budget",
    "Method",
    "Monotone",
    "NegativeLinear",
    "Norm",
    "Normalise",
    "NotCovered",
    "Options",
    "Plane",
    "Residual",
    "Rule",
    "Sums",
    "UnsupportedLayer",
    "bound_curve",
    "certified_radius",
    "concretise",
    "interval",
    "register",
    "relax",
    "strict",
    "upper_bound",
]

# Names that were public here: they stay for one version.
Arithmetic, crown_ibp = certificate.Arithmetic, certificate.crown_ibp
NoLinearRule, Pullback, Slopes = registry.NoLinearRule, registry.Pullback, registry.Slopes
