"""Counters and histograms as Prometheus reads them; written out by hand, for a page of text needs no package."""

import threading
from bisect import bisect_left
from collections.abc import Callable, Mapping

Labels = tuple[str, ...]

SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
ROWS = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 1024.0)


class Counter:
    """A number that only grows, for each value of its labels."""

    kind = "counter"

    def __init__(self, name: str, text: str, labels: Labels = ()) -> None:
        self.name, self.text, self.labels = name, text, labels
        self._values: dict[Labels, float] = {} if labels else {(): 0.0}
        self._lock = threading.Lock()

    def add(self, *values: str, count: float = 1) -> None:
        with self._lock:
            self._values[values] = self._values.get(values, 0.0) + count

    def lines(self) -> list[str]:
        with self._lock:
            return [
                f"{self.name}{_braces(self.labels, key)} {_number(value)}"
                for key, value in sorted(self._values.items())
            ]


class Gauge:
    """A number that is looked up when somebody asks."""

    kind = "gauge"

    def __init__(self, name: str, text: str, read: Callable[[], float]) -> None:
        self.name, self.text, self._read = name, text, read

    def lines(self) -> list[str]:
        return [f"{self.name} {_number(self._read())}"]


class Histogram:
    """How many observations were at most each edge, their sum and their count."""

    kind = "histogram"

    def __init__(self, name: str, text: str, label: str, edges: tuple[float, ...]) -> None:
        self.name, self.text, self.label, self.edges = name, text, label, edges
        self._counts: dict[str, list[int]] = {}
        self._sums: dict[str, float] = {}
        self._lock = threading.Lock()

    def observe(self, key: str, value: float) -> None:
        with self._lock:
            counts = self._counts.setdefault(key, [0] * (len(self.edges) + 1))
            counts[bisect_left(self.edges, value)] += 1
            self._sums[key] = self._sums.get(key, 0.0) + value

    def lines(self) -> list[str]:
        lines = []
        with self._lock:
            for key, counts in sorted(self._counts.items()):
                total = 0
                for edge, count in zip((*map("{:g}".format, self.edges), "+Inf"), counts, strict=True):
                    total += count
                    lines.append(f"{self.name}_bucket{_braces((self.label, 'le'), (key, edge))} {total}")
                own = _braces((self.label,), (key,))
                lines += [f"{self.name}_sum{own} {_number(self._sums[key])}", f"{self.name}_count{own} {total}"]
        return lines


class Metrics:
    """Everything that /metrics shows."""

    def __init__(self, gauges: Mapping[str, tuple[str, Callable[[], float]]]) -> None:
        self.requests = Counter("prood_requests_total", "Requests answered.", ("path", "status"))
        self.seconds = Histogram("prood_request_seconds", "Time from request to answer.", "path", SECONDS)
        self.rows = Histogram("prood_batch_rows", "Images or balls of a forward pass.", "work", ROWS)
        self.images = Counter("prood_images_total", "Images predicted, by what became of them.", ("verdict",))
        self.gauges = [Gauge(name, text, read) for name, (text, read) in gauges.items()]

    def text(self) -> str:
        lines = []
        counted: list[Counter | Gauge | Histogram] = [self.requests, self.seconds, self.rows, self.images]
        for one in counted + list(self.gauges):
            lines += [f"# HELP {one.name} {one.text}", f"# TYPE {one.name} {one.kind}", *one.lines()]
        return "\n".join(lines) + "\n"


def _number(value: float) -> str:
    """All digits: a counter that is rounded stands still."""
    return str(int(value)) if value == int(value) else repr(float(value))


def _braces(names: Labels, values: Labels) -> str:
    pairs = ",".join(f'{name}="{_escaped(value)}"' for name, value in zip(names, values, strict=True))
    return f"{{{pairs}}}" if pairs else ""


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
