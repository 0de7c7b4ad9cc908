"""Interval and linear bounds of ordinary `torch.nn` networks, as a transform over their layers.

Knows nothing of out-of-distribution detection: boxes in, bounds out.
"""

from prood.bounds import activations, affine, composite  # the rules register themselves
from prood.bounds.box import Box
from prood.bounds.certificate import Method, concretise, crown_ibp, upper_bound
from prood.bounds.layers import NegativeLinear, Normalise, Residual
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

__all__ = [
    "Affine",
    "Box",
    "Method",
    "Monotone",
    "NegativeLinear",
    "NoLinearRule",
    "Normalise",
    "Plane",
    "Pullback",
    "Residual",
    "Rule",
    "Slopes",
    "UnsupportedLayer",
    "activations",
    "affine",
    "composite",
    "concretise",
    "crown_ibp",
    "interval",
    "register",
    "relax",
    "upper_bound",
]
