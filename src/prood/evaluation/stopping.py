"""When the search for an image may end: where nothing is left to find, or nothing that would count."""

from typing import Literal, get_args

import torch
from torch import Tensor

from prood.attacks import NEVER, TOLERANCE
from prood.errors import UnknownName

Stop = Literal["auc", "bound", "never"]


def check(stop: str) -> None:
    if stop not in get_args(Stop):
        raise UnknownName(f"there is no stopping rule {stop!r}: choose one of {', '.join(get_args(Stop))}")


def goals(stop: Stop, bound: Tensor, inside: Tensor, tolerance: float = TOLERANCE) -> Tensor:
    """The score at which the search for each image ends, given its certified bound; float64.

    "bound": within `tolerance` of the bound, where nothing is left to find.

    "auc": at the highest in-distribution score that the bound allows to reach. Between it and the bound there is no
    in-distribution score to overtake, so AAUC and AFPR are exactly those of a search that goes on. A model without a
    certificate is done with an image once that outranks every in-distribution score; an image whose bound lies below
    all of them need not be attacked at all. The attacked score is then what the search had found so far, if anything.

    On a GPU a search rounds otherwise than the score does, and all of this holds up to that.

    "never": only when the attack itself ends.
    """
    check(stop)
    bound = bound.double()
    if stop == "never":
        return torch.full_like(bound, NEVER)
    if stop == "bound":
        return bound - tolerance
    ranked = torch.cat([inside.new_tensor([-torch.inf]), inside]).to(bound).sort().values
    return ranked[torch.searchsorted(ranked, bound, right=True) - 1]
