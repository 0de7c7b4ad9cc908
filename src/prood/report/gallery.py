"""The images that an attack moved farthest, before and after, within a budget of characters."""

import base64
import io
import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from prood.evaluation.results import Evaluation
from prood.evaluation.scores import Scores
from prood.evaluation.words import percent
from prood.models.confidence import confidence_of, logistic
from prood.report.markup import Html, element

BUDGET = 1_500_000  # characters of all pictures together: a page is to stay small enough to be sent by mail


MOST = 6


def confidence(score: float, classes: int | None) -> float:
    """The confidence behind the score of a classifier with K classes; σ(s) where there are none."""
    return logistic(score) if classes is None else confidence_of(score, classes)


def shown_each(evaluations: Sequence[Evaluation]) -> int:
    """How many images of every gallery fit into the budget: at least 1, at most 6."""
    sizes = [item.scores.gallery_clean[0].size for item in evaluations if item.scores and len(item.scores.gallery)]
    cost = sum(2 * (100 + 4 * size / 3) for size in sizes)  # a PNG of noise is as large as its pixels, base64 adds 1/3
    return max(1, min(MOST, int(BUDGET // cost))) if sizes else 0


def picked(scores: Scores, count: int) -> list[int]:
    """Places in the gallery: by turns the highest attacked and the highest certified score that is left."""
    found = scores.clean if scores.attacked is None else scores.attacked
    orders = [np.argsort(-values[scores.gallery], kind="stable").tolist() for values in (found, scores.certified)]
    turns = [place for both in zip(*orders, strict=True) for place in both]
    return list(dict.fromkeys(turns))[:count]


def gallery(evaluation: Evaluation, outside: str, count: int) -> Html | None:
    """A row for one model and set: pairs of pictures, captioned 'clean → attacked ≤ certified' confidence."""
    scores = evaluation.scores
    if scores is None or not len(scores.gallery):
        return None
    pairs = [_pair(evaluation.classes, scores, place, outside) for place in picked(scores, count)]
    name = "confidence" if evaluation.classes else "p(in)"
    head = element("div", element("strong", evaluation.model), element("small", name), class_="who")
    return element("div", head, element("div", *pairs, class_="pairs"), class_="gallery")


def _pair(classes: int | None, scores: Scores, place: int, outside: str) -> Html:
    index = int(scores.gallery[place])
    pictures = [_picture(scores.gallery_clean[place], f"Image {index} of {outside}")]
    words = f"{percent(confidence(float(scores.clean[index]), classes))}%"
    if scores.attacked is not None and place < len(scores.gallery_attacked):
        pictures.append(_picture(scores.gallery_attacked[place], f"Image {index} of {outside} after the attack"))
        words += f" → {percent(confidence(float(scores.attacked[index]), classes))}%"
    bound = float(scores.certified[index])
    if bound < math.inf:
        # A bound is rounded up, as everything else would be no bound.
        words += f" ≤ {percent(math.ceil(1000 * confidence(bound, classes) - 1e-6) / 1000)}%"
    caption = element("figcaption", words, *([] if bound < math.inf else [element("small", "no certificate")]))
    return element("figure", element("div", *pictures), caption, class_="pair")


def _picture(pixels: NDArray[np.uint8], description: str) -> Html:
    """(C, H, W) as a PNG inside the page: grey for one channel, colours for three, else the first channel."""
    channels = pixels.transpose(1, 2, 0) if len(pixels) == 3 else pixels[0]
    file = io.BytesIO()
    Image.fromarray(np.ascontiguousarray(channels)).save(file, "PNG", optimize=True)
    data = base64.b64encode(file.getvalue()).decode()
    return element("img", src=f"data:image/png;base64,{data}", alt=description, title=description)
