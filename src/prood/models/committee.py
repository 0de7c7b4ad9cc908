"""A committee: several discriminators as one, of which each may reject an image (docs/verdict.md)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Unpack

import numpy as np
import torch
from torch import Tensor, nn

from prood import bounds
from prood.bounds import NegativeLinear
from prood.errors import BadValue, Diverged, Unsupported
from prood.models.architectures import Spec, architecture, build, spec_of
from prood.models.confidence import Floats
from prood.models.discriminators import Discriminator
from prood.models.rising import Rising, rising

LEVELS = (0.005, 0.01, 0.02, 0.03, 0.05, 0.075, 0.1, 0.15, 0.2, 0.25, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
LEAST = 100
"""Images that the scales take: with fewer, the lowest level is less than one of them."""


class Scale(nn.Module):
    """A `Rising` function whose numbers stand in the model's file, as float32; it is computed in float64."""

    knots: Tensor
    values: Tensor

    def __init__(self, function: Rising) -> None:
        super().__init__()
        self.register_buffer("knots", torch.tensor(function.knots, dtype=torch.float32))
        self.register_buffer("values", torch.tensor(function.values, dtype=torch.float32))
        _ = self.function  # refuses numbers that float32 cannot tell apart

    @property
    def function(self) -> Rising:
        return Rising(tuple(self.knots.tolist()), tuple(self.values.tolist()))

    def forward(self, x: Tensor) -> Tensor:
        return rising(x, self.knots, self.values)

    def before(self, value: Tensor) -> Tensor:
        """The x at which it has this value, up to rounding."""
        return rising(value, self.values, self.knots)

    def _load_from_state_dict(self, *arguments: Any, **named: Any) -> None:
        super()._load_from_state_dict(*arguments, **named)
        _ = self.function  # refuses what does not rise


class Committee(Discriminator):
    """g = min over the members of mᵢ(gᵢ), rounded to float32, with functions mᵢ that rise (`Scale`).

    A threshold t on g is one for each member: g ≥ t if and only if gᵢ ≥ mᵢ⁻¹(t) for all i, up to that rounding. As no
    mᵢ falls, rounding included, and rounding to float32 keeps the order, min mᵢ(ḡᵢ) bounds g over a ball wherever the
    ḡᵢ bound the members: one member that provably rejects is enough.
    """

    def __init__(self, members: Sequence[Discriminator], scales: Sequence[Rising] | None = None) -> None:
        nn.Module.__init__(self)  # it has no layers of its own
        if len(members) < 2 or not all(isinstance(one, Discriminator) for one in members):
            raise BadValue(f"a committee has two discriminators or more as its members, not {len(members)}")
        if any(isinstance(one, Committee) for one in members):
            raise Unsupported("a committee cannot be a member of a committee: give its members instead")
        shapes = sorted({one.image for one in members if hasattr(one, "architecture")})
        if len(shapes) > 1:
            raise BadValue(f"the members of a committee take images of one shape, not {shapes[0]} and {shapes[1]}")
        scales = [Rising()] * len(members) if scales is None else scales
        if len(scales) != len(members):
            raise BadValue(f"a committee has a scale for each of its {len(members)} members, not {len(scales)}")
        self.members, self.scales = nn.ModuleList(members), nn.ModuleList(map(Scale, scales))

    def pairs(self) -> list[tuple[Discriminator, Scale]]:
        """Each member with its scale."""
        return list(zip(self.members, self.scales, strict=True))  # type: ignore[arg-type]  # so they were given

    @property
    def architecture(self) -> dict[str, Any]:
        members = [spec_of(member) for member, _ in self.pairs()]
        return {"name": "committee", "members": members, "knots": [len(scale.knots) for _, scale in self.pairs()]}

    @property
    def image(self) -> tuple[int, int, int]:
        return self.pairs()[0][0].image

    @property
    def last(self) -> NegativeLinear:
        raise Unsupported("a committee has no last layer: use the layers of its members")

    @property
    def network(self) -> nn.Sequential:
        raise Unsupported("a committee is not an nn.Sequential: use the layers of its members")

    @property
    def ceiling(self) -> float:
        """g(x) ≤ ceiling for every x whatsoever: the least of the members' ceilings, each on the common scale."""
        tops = [scale(scale.values.new_tensor([member.ceiling])) for member, scale in self.pairs()]
        return torch.cat(tops).amin().float().item()

    def with_far_penalty(self, weight: float = 1.0) -> Committee:
        scales = [scale.function for _, scale in self.pairs()]
        return Committee([member.with_far_penalty(weight) for member, _ in self.pairs()], scales).train(self.training)

    def forward(self, images: Tensor) -> Tensor:
        return torch.stack([scale(member(images)) for member, scale in self.pairs()]).amin(0).float()

    def upper_bound(
        self,
        images: Tensor,
        eps: float | Tensor,
        *,
        threshold: float | Tensor | None = None,
        **options: Unpack[bounds.Options],
    ) -> Tensor:
        """min mᵢ(ḡᵢ); infinite where a member may overflow, for its NaN would become everyone's.

        By the methods that stop, a member is asked only about images that none before it decided.
        """
        found = torch.full((len(images),), torch.inf, dtype=torch.float64, device=images.device)
        overflow = torch.zeros_like(found, dtype=torch.bool)
        decided = -torch.inf if threshold is None or options.get("method") not in ("auto", "bab") else threshold
        for member, scale in self.pairs():
            least = None if threshold is None else scale.before(torch.as_tensor(threshold, device=images.device))
            still = found >= decided
            for asked, more in ((still, {}), (~still, {"method": "ibp"})):
                rows = asked.nonzero()[:, 0]
                if len(rows):
                    way: Any = {**options, **more, "threshold": _of(rows, least)}
                    bound = member.upper_bound(images[rows], _of(rows, eps), **way)
                    found = found.index_copy(0, rows, torch.minimum(found[rows], scale(flushed(bound))))
                    overflow = overflow.index_copy(0, rows, overflow[rows] | (bound == torch.inf))
        return flushed(found.float()).where(~overflow, torch.inf)


def flushed(bound: Tensor) -> Tensor:
    """Zero for what some processors take for zero."""
    return torch.where((bound < 0) & (bound > -torch.finfo(torch.float32).tiny), 0, bound)


def _of(rows: Tensor, values: Any) -> Any:
    """Takes one number for all images, or one for each."""
    return values[rows] if isinstance(values, Tensor) and values.numel() > 1 else values


def committee_of(
    members: Sequence[Discriminator], seen: Sequence[Floats], shares: Sequence[float] | None = None
) -> Committee:
    """The committee that spends false rejections by these shares, from each member's g of the same images.

    They are of the in-distribution, and no member was trained on them. At the level q the i-th member rejects the
    share wᵢ·q of them, so all together reject q at most. The threshold of each is a knot of its scale; the value
    there is the mean of all thresholds, weighted by the shares.
    """
    weights = shares_of(len(members), shares)
    if len(seen) != len(members) or len({len(one) for one in seen}) > 1:
        raise BadValue("a committee is made from g of each member on the same images")
    count = len(seen[0])
    if count < LEAST:
        raise BadValue(f"{count} images are too few for a committee: give {LEAST} or more of the in-distribution")
    for number, one in enumerate(seen, 1):
        if not np.isfinite(one).all():
            raise Diverged(f"g of member {number} is not finite on one of these images: train it again")
        if one.min() == one.max():
            raise Unsupported(f"g of member {number} is equal on all images: leave it out")
    ordered, places = [np.sort(one) for one in seen], np.arange(count)
    knots: list[list[float]] = []
    values: list[float] = []
    for q in LEVELS:
        at = [float(np.float32(np.interp(w * q * count, places, one))) for w, one in zip(weights, ordered, strict=True)]
        value = float(np.float32(np.dot(weights, at)))
        if not values or (value > values[-1] and all(new > old for new, old in zip(at, knots[-1], strict=True))):
            knots.append(at)
            values.append(value)
    return Committee(members, [Rising(column, tuple(values)) for column in zip(*knots, strict=True)])


def shares_of(count: int, shares: Sequence[float] | None = None) -> list[float]:
    """A share of the false rejections for each member, by default the same for all."""
    found = [1 / count] * count if shares is None else [float(one) for one in shares]
    if len(found) != count:
        raise BadValue(f"there are {count} members and {len(found)} shares: give a share for each member")
    if not all(0 < one <= 1 for one in found):
        wrong = next(one for one in found if not 0 < one <= 1)
        raise BadValue(f"a member's share of the false rejections is above 0 and at most 1, not {wrong}")
    if abs(sum(found) - 1) > 1e-6:
        raise BadValue(f"the members' shares must sum to 1, not to {sum(found):g}")
    return found


@architecture("committee")
def _committee(members: Sequence[Spec], knots: Sequence[int] = ()) -> nn.Module:
    counts = [tuple(float(number) for number in range(count)) for count in knots]  # in their place come the file's
    return Committee([build(one) for one in members], [Rising(one, one) for one in counts] or None)  # type: ignore[misc]  # refused there
