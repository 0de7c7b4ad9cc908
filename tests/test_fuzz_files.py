"""Some of the crafted and damaged files that benchmarks/fuzz_files.py makes by the hundred."""

import importlib.util
import sys
from collections import Counter
from pathlib import Path

import pytest

PATH = Path(__file__).parents[1] / "benchmarks" / "fuzz_files.py"
spec = importlib.util.spec_from_file_location("fuzz_files", PATH)
fuzz_files = sys.modules["fuzz_files"] = importlib.util.module_from_spec(spec)  # dataclasses look there
spec.loader.exec_module(fuzz_files)


@pytest.mark.slow
def test_damaged_files_of_every_format_are_refused_or_harmless():
    outcomes = Counter()
    for name, number, outcome in fuzz_files.cases(95, seed=3):
        assert outcome in ("fine", "refused"), (name, number, outcome)
        outcomes[outcome] += 1
    assert outcomes["refused"] > 40
