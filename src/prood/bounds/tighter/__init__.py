"""Tighter bounds than CROWN-IBP: optimised slopes, tightened hidden units, branch and bound."""
