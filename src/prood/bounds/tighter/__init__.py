"""Tighter bounds than CROWN-IBP: optimised slopes, tightened hidden units, branch and bound."""

from prood.bounds.tighter.pipeline import in_ball, tighten

__all__ = ["in_ball", "tighten"]
