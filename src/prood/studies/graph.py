"""A study as data: models as the nodes of a graph, how each is made, and what is measured about it."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Literal

from prood.bounds import Method
from prood.data.images import Shape
from prood.errors import UnknownName
from prood.models import WrapOptions
from prood.studies.thresholds import Asked
from prood.training import Recipe


@dataclass(frozen=True)
class Opened:
    """Somebody else's classifier, by its name and what a user says of it, for a joint model's images of this shape."""

    name: str
    image: Shape
    options: WrapOptions = field(default_factory=WrapOptions)
    classes: tuple[str, ...] | None = None  # names that its classes get if it has none itself


@dataclass(frozen=True)
class Node:
    """A model: the name of its folder, its title in tables, and how it is made.

    With a `method` it is trained, by the study's recipe with these `settings`, or by another `recipe`. Without one it
    is combined of a `classifier` and a `discriminator`, or is another node `rounded` to half precision, a
    discriminator for the size of the study's images; or it is somebody else's classifier that is `opened`; or it is
    `built` by an architecture that brings its weights along. A method that trains a joint model has its
    `discriminator` held fixed. `classifier`, `discriminator` and `rounded` are names of nodes.
    """

    name: str
    title: str
    method: str | None = None
    settings: tuple[str, ...] = ()
    recipe: str | None = None
    classifier: str | None = None
    discriminator: str | None = None
    rounded: str | None = None
    gate: str | None = None  # the point of `gating.PRICES` that a rounded model's gate is fitted for
    opened: Opened | None = None
    built: dict[str, Any] | None = None  # the architecture's name and arguments; its classes are the in-distribution's
    measures: tuple[str, ...] = ("certify", "attack")  # by their names in the study
    table: Literal["main", "robust", "sizes", ""] = "main"  # which tables it is a row of
    baseline: bool = False  # of others: made for the tables that show it, not with the study
    intervals: bool = False  # its discriminator was trained with intervals, as in the paper
    headline: bool = False  # what the study is about: figures look closest at it
    gpu: bool = False  # left out, with a word, where it is not trained yet and there is no GPU

    @property
    def parts(self) -> tuple[str, ...]:
        """The nodes that it is made of."""
        return tuple(part for part in (self.discriminator, self.classifier, self.rounded) if part is not None)

    @property
    def label(self) -> str:
        """The title, distinct from the title of another training of the discriminator."""
        return f"{self.title}, intervals" if self.intervals else self.title


@dataclass(frozen=True)
class Measure:
    """An evaluation of a node on the study's sets, under attack or not.

    `eps` are its radii, by default the recipe's, and only the first of them if `first`. `bound` is how scores are
    bounded, by default as the recipe says for the node's method. Joint models follow their discriminator where a
    measure is `shared`: its bounds serve them.
    """

    name: str
    attacked: bool = False
    eps: tuple[float, ...] = ()
    first: bool = False
    bound: Method | None = None
    shared: bool = False


CERTIFY, ATTACK = Measure("certify"), Measure("attack", attacked=True)


@dataclass(frozen=True)
class Study:
    """A recipe, the models that are made by it, and what is measured about them.

    Shifts of joint models are `shift`, or chosen on held-out images with the classifier `shift_by`, or the recipe's. A
    study for a `gpu` is only trained on one, unless asked for. `limit` images of each set are evaluated, by default as
    many as the recipe says, and `attacked` are attacked. `short` is the schedule of nodes of other sizes. `inside`,
    `bound` and the training set `outside` take the place of the recipe's. What is evaluated `together`, on whole sets
    of these names, goes into one folder of results. Joint models get their threshold from the images `calibration`, as
    `asked`; a point that is asked for is fitted, and shifts are chosen, on the sets `held_back`, inside and outside, if
    they are not in the recipe's. The run of the node `whole` is the study's folder itself. Nothing about a
    `private` study is published. Gates of rounded models are fitted against what the recipe holds back and, where they
    can be read, the sets `broad`, which no model was trained on.
    """

    name: str
    recipe: str | Recipe
    nodes: tuple[Node, ...]
    heading: str = ""
    measures: tuple[Measure, ...] = (CERTIFY, ATTACK)
    shift: float | None = None
    shift_by: str | None = None
    gpu: bool = False
    attacks: str | None = "fast"
    attacked: int = 20
    limit: int | None = None
    inside: str | None = None
    outside: str | None = None
    bound: Method | None = None
    short: tuple[str, ...] = ()
    together: tuple[str, ...] = ()
    calibration: str | None = None
    broad: tuple[str, ...] = ()
    asked: Asked = field(default_factory=Asked)
    held_back: tuple[str, str] | None = None
    whole: str | None = None
    private: bool = False

    def node(self, name: str) -> Node:
        nodes = {node.name: node for node in self.nodes}
        if name not in nodes:
            raise UnknownName(f"there is no model {name!r}: choose one of {', '.join(nodes)}")
        return nodes[name]

    @property
    def rows(self) -> dict[str, Node]:
        """The nodes that tables of all methods show, in their order; robust classifiers last."""
        return {node.name: node for node in self.nodes if node.table in ("main", "robust")}

    @property
    def headline(self) -> Node:
        return next(node for node in self.nodes if node.headline)

    def with_parts(self, names: Iterable[str]) -> list[Node]:
        """These nodes and all that they are made of, in the study's order."""
        found = [self.node(name) for name in names]
        for node in found:  # it grows meanwhile
            found += [self.node(part) for part in node.parts]
        return [node for node in self.nodes if node in found]
