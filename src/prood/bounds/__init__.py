"""Interval and linear bounds of ordinary `torch.nn` networks, as a transform over their layers.

Knows nothing of out-of-distribution detection: boxes in, bounds out.
"""

from prood.bounds import activations, affine, composite  # the rules register themselves
from prood.bounds.box import Box
from prood.bounds.certificate import Arithmetic, Method, concretise, crown_ibp, upper_bound
from prood.bounds.layers import BlockedLinear, NegativeLinear, Normalise, Residual
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
    "Method",
    "Monotone",
    "NegativeLinear",
    "NoLinearRule",
    "Normalise",
    "NotCovered",
    "Plane",
    "Pullback",
    "Residual",
    "Rule",
    "Slopes",
    "Sums",
    "UnsupportedLayer",
    "activations",
    "affine",
    "composite",
    "concretise",
    "crown_ibp",
    "interval",
    "register",
    "relax",
    "strict",
    "upper_bound",
]
