"""Results as an evaluation makes them, drawn at random instead of measured."""

from html.parser import HTMLParser

import numpy as np
import pytest

from prood.evaluation.metrics import rejected
from prood.evaluation.results import Evaluation, Results
from prood.evaluation.scores import Scores
from prood.evaluation.words import PROVED

SETS = ("photographs:test", "textures", "text", "faces", "smooth", "uniform", "left-out")
MODELS = {  # accuracy, mean of the clean scores, whether there is a certificate
    "Plain": (0.992, 0.0, False),
    "OE": (0.990, -6.0, False),
    "ProoD-Disc": (None, -12.0, True),
    "ProoD-S": (0.989, -8.0, True),
    "ProoD": (0.991, -8.5, True),
}


def above(inside, outside):
    """P(x > z), and the share of z above the score that 95% of x reach."""
    auc = 1 - np.searchsorted(np.sort(inside), outside, side="right").mean() / len(inside)
    return float(auc), float((outside >= np.quantile(inside, 0.05)).mean())


def one(model, outside, eps, *, count=400, gallery=6, channels=1, inside="digits:test", seed=0):
    accuracy, mean, certified = MODELS.get(model, (0.985, -7.0, True))
    place = SETS.index(outside) if outside in SETS else 0
    random = np.random.default_rng([seed, len(model), place, round(1e6 * eps)])
    scores_in = random.normal(7, 2.5, count)
    clean = random.normal(mean + 0.7 * place, 2, count)
    if outside == "left-out":  # near to what the model knows: hard as it is, nothing to prove
        clean = random.normal(5 if accuracy is None else 1.5, 2, count)
    if accuracy is None:
        scores_in, clean = np.minimum(scores_in, 4), np.minimum(clean, 4)
    attacked = clean + eps * (8 if certified else 45) * random.uniform(0.5, 1, count)
    bound = attacked + eps * 40 * random.uniform(0.2, 1, count) if certified else np.full(count, np.inf)
    chosen = np.argsort(-attacked)[:gallery]
    waves = np.sin(np.arange(28) * random.uniform(0.1, 0.6, (gallery, channels, 1))) * 60
    images = (128 + waves[:, :, :, None] + waves[:, :, None, ::-1]).astype(np.uint8)
    shifted = np.clip(images + random.choice([-255 * eps, 255 * eps], images.shape), 0, 255).astype(np.uint8)
    (auc, fpr), (aauc, afpr), (gauc, gfpr) = (above(scores_in, values) for values in (clean, attacked, bound))
    values = {"auc": auc, "aauc": aauc, "gauc": gauc, "fpr95": fpr, "afpr95": afpr, "gfpr95": gfpr}
    proved = rejected(scores_in, {"": bound}, PROVED.values())[""]
    values |= dict(zip(PROVED, proved.tolist(), strict=True))
    return Evaluation(
        model, inside, outside, eps, count, **values,
        accuracy=accuracy, classes=None if accuracy is None else 8, attacks="standard", limit=count, seed=seed,
        intervals={name: [max(0.0, value - 0.004), min(1.0, value + 0.003)] for name, value in values.items()},
        attack={"forward": 123456, "backward": 65432, "settled": 0.25 * certified, "seconds": 12.345,
                "by": {"apgd": 0.7, "square": 0.3}},
        machine="x86_64, 2 threads", version="0.3",
        scores=Scores(scores_in, clean, bound, attacked, chosen, images, shifted),
    )  # fmt: skip


@pytest.fixture(scope="session")
def make_results():
    """A factory: every model against every set at every radius, as the evaluator orders them."""

    def make(models=tuple(MODELS), sets=SETS, radii=(0.1, 0.3), **options) -> Results:
        made = [one(model, name, eps, **options) for eps in radii for model in models for name in sets]
        return Results(tuple(made), {"shift": 3.0, "near": ["left-out"]})

    return make


@pytest.fixture(scope="session")
def results(make_results):
    return make_results()


class Tree(HTMLParser):
    """A flat list of (tag, attributes, text inside, tags around it), enough to ask a page what it holds."""

    def __init__(self, text):
        super().__init__()
        self.elements, self.open = [], []
        self.feed(text)
        assert not self.open, f"not closed: {[entry['tag'] for entry in self.open]}"

    def handle_starttag(self, tag, attrs):
        entry = {"tag": tag, "attrs": dict(attrs), "text": "", "within": list(self.open)}
        self.elements.append(entry)
        if tag not in ("meta", "img"):
            self.open.append(entry)

    def handle_endtag(self, tag):
        assert self.open[-1]["tag"] == tag, f"<{self.open[-1]['tag']}> closed by </{tag}>"
        self.open.pop()

    def handle_data(self, data):
        for entry in self.open:
            entry["text"] += data

    def all(self, tag, within=None, cls=None, **attrs):
        """The elements of a tag, below an element or one with an id, with a class and attributes."""

        def inside(entry):
            if within is None:
                return True
            return any(outer is within or outer["attrs"].get("id") == within for outer in entry["within"])

        return [
            entry
            for entry in self.elements
            if entry["tag"] == tag
            and inside(entry)
            and (cls is None or cls in (entry["attrs"].get("class") or "").split())
            and all(entry["attrs"].get(name) == value for name, value in attrs.items())
        ]


@pytest.fixture(scope="session")
def parse():
    return Tree
