"""What /metrics shows, in the format of Prometheus. Every name begins with prood_."""

from collections.abc import Callable, Iterator, Mapping

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric

from prood.detector import Prediction, Rule
from prood.models.confidence import Floats

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
ROWS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)
SHARES = (0.01, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99, 1.0)

Gauge = tuple[str, Callable[[], Mapping[str | None, float]]]
"""A text, and a function that gives the number of each model when it is asked for; None: of the process."""


class Metrics:
    """Counters and histograms of one process; `gauges`, by name, are looked up when somebody asks."""

    def __init__(self, gauges: Mapping[str, Gauge]) -> None:
        self._gauges, self._all = gauges, CollectorRegistry()
        self._all.register(self)
        self.requests = self._counter("requests", "Requests answered.", "path", "status")
        self.seconds = self._histogram("request_seconds", "Time from request to answer.", SECONDS, "path")
        self.stages = self._histogram(
            "stage_seconds", "Time of a stage: receive (body and pictures), wait, compute (a pass).", SECONDS, "stage"
        )
        self.rows = self._histogram("batch_rows", "Images or balls of a forward pass.", ROWS, "model", "work")
        self.images = self._counter("images", "Images predicted, by what became of them.", "model", "verdict")
        self.balls = self._counter(
            "certified", "Balls certified: rejected (all of it, proved) or open.", "model", "proof"
        )
        self.p_in = self._histogram("p_in", "p(in) of the images that were predicted.", SHARES, "model")

    def _counter(self, name: str, text: str, *labels: str) -> Counter:
        return Counter(f"prood_{name}", text, labels, registry=self._all)

    def _histogram(self, name: str, text: str, edges: tuple[float, ...], *labels: str) -> Histogram:
        return Histogram(f"prood_{name}", text, labels, buckets=edges, registry=self._all)

    def saw(self, model: str, found: Prediction) -> None:
        """A pass of predictions."""
        observe = self.p_in.labels(model).observe
        for value in found.p_in.tolist():
            observe(value)
        if found.threshold is None:
            self.images.labels(model, "undecided").inc(len(found))
            return
        accepted = int(found.accepted.sum())
        self.images.labels(model, "accepted").inc(accepted)
        self.images.labels(model, "rejected").inc(len(found) - accepted)

    def proved(self, model: str, rule: Rule, bounds: Floats) -> None:
        """The bounds (N, R) of a request."""
        rejected = 0 if rule.threshold is None else int(rule.rejects(bounds).sum())
        self.balls.labels(model, "rejected").inc(rejected)
        self.balls.labels(model, "open").inc(bounds.size - rejected)

    def collect(self) -> Iterator[Metric]:
        """The gauges."""
        for name, (text, read) in self._gauges.items():
            values = read()
            family = GaugeMetricFamily(name, text, labels=[] if None in values else ["model"])
            for model, value in values.items():
                family.add_metric([] if model is None else [model], value)
            yield family

    def text(self) -> bytes:
        return generate_latest(_Shown(self._all))


class _Shown:
    """A registry without the time at which each counter began, which doubles the lines."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._registry = registry

    def collect(self) -> Iterator[Metric]:
        for metric in self._registry.collect():
            metric.samples = [one for one in metric.samples if not one.name.endswith("_created")]
            yield metric
