"""Counters and histograms as Prometheus reads them; written out by hand, for a page of text needs no package."""

import threading
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Mapping
from itertools import accumulate

Labels = tuple[str, ...]

SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
ROWS = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 1024.0)


class Counter:
    """A number that only grows, for each value of its labels."""

    kind = "counter"

    def __init__(self, name: str, text: str, labels: Labels) -> None:
        self.name, self.text, self.labels = name, text, labels
        self._values: defaultdict[Labels, float] = defaultdict(float)
        self._lock = threading.Lock()

    def add(self, *values: str, count: float = 1) -> None:
        with self._lock:
            self._values[values] += count

    def lines(self) -> list[str]:
        with self._lock:
            values = sorted(self._values.items())
        return [f"{self.name}{_braces(self.labels, key)} {_number(value)}" for key, value in values]


class Histogram:
    """How many observations were at most each edge, their sum and their count."""

    kind = "histogram"

    def __init__(self, name: str, text: str, label: str, edges: tuple[float, ...]) -> None:
        self.name, self.text, self.label, self.edges = name, text, label, edges
        self._counts: defaultdict[str, list[int]] = defaultdict(lambda: [0] * (len(edges) + 1))
        self._sums: defaultdict[str, float] = defaultdict(float)
        self._lock = threading.Lock()

    def observe(self, key: str, value: float) -> None:
        with self._lock:
            self._counts[key][bisect_left(self.edges, value)] += 1
            self._sums[key] += value

    def lines(self) -> list[str]:
        lines, edges = [], (*map("{:g}".format, self.edges), "+Inf")
        with self._lock:
            for key, counts in sorted(self._counts.items()):
                totals = list(accumulate(counts))
                for edge, total in zip(edges, totals, strict=True):
                    lines.append(f"{self.name}_bucket{_braces((self.label, 'le'), (key, edge))} {total}")
                own = _braces((self.label,), (key,))
                lines += [f"{self.name}_sum{own} {_number(self._sums[key])}", f"{self.name}_count{own} {totals[-1]}"]
        return lines


class Metrics:
    """Everything that /metrics shows. A gauge, by its name, is a text and a number that is looked up when asked for."""

    def __init__(self, gauges: Mapping[str, tuple[str, Callable[[], float]]]) -> None:
        self.requests = Counter("prood_requests_total", "Requests answered.", ("path", "status"))
        self.seconds = Histogram("prood_request_seconds", "Time from request to answer.", "path", SECONDS)
        self.rows = Histogram("prood_batch_rows", "Images or balls of a forward pass.", "work", ROWS)
        self.images = Counter("prood_images_total", "Images predicted, by what became of them.", ("verdict",))
        self.gauges = gauges

    def text(self) -> str:
        counted: list[Counter | Histogram] = [self.requests, self.seconds, self.rows, self.images]
        shown = [(one.name, one.text, one.kind, one.lines()) for one in counted]
        shown += [(name, text, "gauge", [f"{name} {_number(read())}"]) for name, (text, read) in self.gauges.items()]
        blocks = [(f"# HELP {name} {text}", f"# TYPE {name} {kind}", *lines) for name, text, kind, lines in shown]
        return "\n".join(line for block in blocks for line in block) + "\n"


def _number(value: float) -> str:
    """All digits: a counter that is rounded stands still."""
    return str(int(value)) if value == int(value) else repr(float(value))


def _braces(names: Labels, values: Labels) -> str:
    pairs = ",".join(f'{name}="{_escaped(value)}"' for name, value in zip(names, values, strict=True))
    return f"{{{pairs}}}"


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
