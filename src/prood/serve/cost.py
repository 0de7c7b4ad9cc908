"""What a pass of the model costs, learnt from those so far: how many rows fit into a time, and how long rows take."""

import math

KEEP = 0.9
"""A pass counts this much less with each that follows: the machine may have other work now."""


class Cost:
    """Seconds of a pass as a line in its rows, a + b·rows, by least squares."""

    def __init__(self) -> None:
        self._weight = self._rows = self._squares = self._seconds = self._products = 0.0
        self._line = (0.0, 0.0)
        self._known = False  # whether passes were of different sizes lately
        self._largest = 0.0  # of these

    def add(self, rows: int, seconds: float) -> None:
        self._weight = KEEP * self._weight + 1
        self._rows = KEEP * self._rows + rows
        self._squares = KEEP * self._squares + rows * rows
        self._seconds = KEEP * self._seconds + seconds
        self._products = KEEP * self._products + rows * seconds
        self._largest = max(KEEP * self._largest, rows)
        mean, time = self._rows / self._weight, self._seconds / self._weight
        spread = self._squares / self._weight - mean * mean
        self._known = spread > 0.01 * mean * mean
        # Passes of one size tell nothing of the line: then all that they cost is counted for their rows.
        slope = (self._products / self._weight - mean * time) / spread if self._known else math.inf
        slope = min(max(slope, 0.0), time / mean)
        self._line = (time - slope * mean, slope)

    def fitting(self, seconds: float, most: int) -> int:
        """Rows of a pass of about `seconds`: at least one, and at most twice as many as were tried lately.

        Where passes had one size only, twice as many are tried, to learn what they cost. Where a pass costs more than
        `seconds` however small it is, it takes enough rows to cost as much again.
        """
        fixed, each = self._line
        rows = max(seconds - fixed, fixed) / each if each > 0 and self._known else math.inf
        return int(max(1, min(rows, 2 * self._largest, most)))

    def seconds(self, rows: int, a_pass: float, most: int) -> float:
        """Seconds for this number of rows, in passes of about `a_pass` seconds; 0 while unknown."""
        fixed, each = self._line
        return fixed * math.ceil(rows / self.fitting(a_pass, most)) + each * rows
