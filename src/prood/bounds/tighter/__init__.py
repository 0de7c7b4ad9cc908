"""Tighter bounds than CROWN-IBP: optimised slopes, tightened hidden units, branch and bound."""

from prood.bounds.tighter.budget import Budget
from prood.bounds.tighter.pipeline import in_ball, tighten

__all__ = ["Budget", "in_ball", "tighten"]
