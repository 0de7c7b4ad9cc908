"""Every method on the same data: trained, evaluated, and judged by rules that say what was measured."""

from prood.compare.entries import ENTRIES, Entry, select
from prood.compare.properties import RULES, Mark, Rule
from prood.compare.rows import Row
from prood.compare.study import Comparison, compare

__all__ = ["ENTRIES", "RULES", "Comparison", "Entry", "Mark", "Row", "Rule", "compare", "select"]
