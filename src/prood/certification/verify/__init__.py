"""Verifies certificates on a path of its own: it shares no code with `prood.bounds`, nor with the networks themselves.

It shares the parser of a line, the decoding of images and the hashing with what made them.

Weights are read as numbers, every bound is computed in arithmetic whose own rounding is paid for, and what the deployed
float32 network may round is covered for any order of summation (`rounding`).
"""

from prood.certification.verify.verdict import Outcome, Verdict, Verifier

__all__ = ["Outcome", "Verdict", "Verifier"]
