"""What a service is told: limits, batching, who may ask; and what it knows of its model beside the weights."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING

from prood.errors import BadValue

if TYPE_CHECKING:
    from torch import Tensor

    from prood.serve.gallery import Gallery


@dataclass(frozen=True)
class Options:
    """Requests that come within `wait_ms` of each other share a forward pass of at most `batch` images, and of about
    `pass_s` seconds; 1: none do. A request that would take longer than `deadline_s`, or finds that much work
    before it, is refused; what is not answered by then is given up.

    A request has at most `body_bytes`, to be sent within `body_s` seconds, `images` images of `pixels` pixels each,
    four times as many together, and `radii` radii or factors. All bodies together have at most `held_bytes`, and
    pictures are decoded within `decoding_bytes`. An attack makes at most `attack_steps` steps; they run one at a time,
    and `attacks` counts those that wait, too. `rate` limits the requests a second of one client (0: no limit), with
    bursts of ten seconds' worth. `requests` are worked on at once, from at most `connections` connections. `token` is
    asked for as a bearer token, `admin_token` to load and unload models; without it nobody may. `hosts` are the names
    by which the service may be called; None: any. `access_log` makes the log JSON, with a line for every request.
    `monitor` is the folder that keeps what the monitors have seen.

    After SIGTERM the service says for `grace_s` seconds that it is not ready, and still answers; it ends at the latest
    `drain_s` seconds after the signal.
    """

    batch: int = 64
    wait_ms: float = 5.0
    pass_s: float = 0.5
    deadline_s: float = 60.0
    body_bytes: int = 8 * 2**20
    held_bytes: int = 128 * 2**20
    decoding_bytes: int = 600 * 2**20
    pixels: int = 25_000_000
    images: int = 32
    radii: int = 33
    attack_steps: int = 200
    attacks: int = 4
    requests: int = 1024
    connections: int = 4096
    rate: float = 0.0
    header_s: float = 10.0
    body_s: float = 30.0
    grace_s: float = 3.0
    drain_s: float = 30.0
    token: str | None = field(default=None, repr=False)
    admin_token: str | None = field(default=None, repr=False)
    hosts: tuple[str, ...] | None = None
    access_log: bool = False
    monitor: Path | None = None

    def __post_init__(self) -> None:
        for one in fields(self):
            value = getattr(self, one.name)
            if one.type is int and value < 1:
                raise BadValue(f"{one.name} is at least 1, not {value}")
            if one.type is float and not (math.isfinite(value) and value >= 0):
                raise BadValue(f"{one.name} is a finite number and not negative, not {value}")
        for token in (self.token, self.admin_token):
            if token is not None and not (token.isascii() and token.isprintable() and token.strip()):
                raise BadValue("a token must be one line of printable ASCII characters, not an empty one")


@dataclass(frozen=True)
class About:
    """A model's name in addresses, the radius it was trained for and the name of its in-distribution.

    `price` is what its evaluations say about its threshold, a mapping for each radius: `eps`, the share of its own kind
    that is `accepted`, those of other images that are `rejected`, provably so (`proved`) and under attack (`attacked`),
    and how many `sets`.
    """

    name: str = "prood"
    eps: float | None = None
    inside: str | None = None
    price: tuple[Mapping[str, float | None], ...] = ()
    gallery: "Gallery | None" = None
    certificate: "Callable[[Tensor, str, float, float], str] | None" = None
