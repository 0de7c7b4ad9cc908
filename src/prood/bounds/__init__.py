"""Interval and linear bounds of ordinary `torch.nn` networks, as a transform over their layers.

Knows nothing of out-of-distribution detection: boxes in, bounds out.
"""

from prood.bounds import activations, affine, composite  # the rules register themselves
from prood.bounds.balls import Norm
from prood.bounds.box import Box
from prood.bounds.certificate import Arithmetic, Budget, Method, concretise, crown_ibp, upper_bound
from prood.bounds.layers import BlockedLinear, NegativeLinear, Normalise, Residual
from prood.bounds.options import Options
from prood.bounds.radius import bound_curve, certified_radius
from prood.bounds.registry import (
    Affine,
    Monotone,
    NoLinearRule,
    Plane,
    Pullback,
    Rule,
    Slopes,
    UnsupportedLayer,
    interval,
    register,
    relax,
)
from prood.bounds.rounding import EXACT, NotCovered, Sums, strict

__all__ = [
    "EXACT",
    "Affine",
    "Arithmetic",
    "BlockedLinear",
    "Box",
    "Budget",
    "Method",
    "Monotone",
    "NegativeLinear",
    "NoLinearRule",
    "Norm",
    "Normalise",
    "NotCovered",
    "Options",
    "Plane",
    "Pullback",
    "Residual",
    "Rule",
    "Slopes",
    "Sums",
    "UnsupportedLayer",
    "activations",
    "affine",
    "bound_curve",
    "certified_radius",
    "composite",
    "concretise",
    "crown_ibp",
    "interval",
    "register",
    "relax",
    "strict",
    "upper_bound",
]
