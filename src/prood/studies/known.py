"""The studies that there are, as data: the quickstart, CIFAR-10, CIFAR-100, and every method on any other recipe."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from prood.data.public.known import GROUPS
from prood.methods import METHODS
from prood.studies.graph import ATTACK, CERTIFY, Measure, Node, Study
from prood.training import Recipe, load_recipe

REFERENCES = ("plain", "oe")
"""What the others are measured by: always part of a comparison."""
PAPERS_SIZES = ("XS", "SR", "SR2", "S", "C3s", "C4", "C1", "C3", "C2")
"""The paper's, whose XL_b and C1 are the same network."""
DIGITS_SIZES = ("digits", "digits-XS", "digits-S", "digits-L", "digits-deep")


def trained(method: str, name: str | None = None, title: str | None = None, **facts: Any) -> Node:
    """A model that a method trains; a joint one holds the discriminator of the node of that name."""
    declared = METHODS[method]
    joint = {"discriminator": "discriminator"} if declared.kind == "joint" else {}
    return Node(name or method, title or declared.title, method, **joint | facts)


def combined(name: str, title: str, classifier: str, discriminator: str = "discriminator", **facts: Any) -> Node:
    return Node(name, title, classifier=classifier, discriminator=discriminator, **facts)


def _baselines() -> list[Node]:
    """The methods of others, in the order of tables."""
    nodes = [trained(method, baseline=True) for method in ("eb", "acet", "atom")]
    for percent in (80, 100):
        quantile = (f"train.quantile={percent / 100}",)
        nodes.append(trained("good", f"good{percent}", f"GOOD{percent}", baseline=True, settings=quantile))
    return [*nodes, trained("ccu", baseline=True)]


def _robust(*settings: str) -> tuple[Node, ...]:
    """An adversarially trained classifier, and the same one combined with the discriminator."""
    facts: dict[str, Any] = {"baseline": True, "table": "robust"}
    robust = trained("robust", settings=settings, **facts)
    return robust, combined("robust-prood", "Robust-ProoD", "robust", **facts)


def _sizes(own: str, *settings: str) -> tuple[Node, ...]:
    """Discriminators of several sizes, those of the recipe's `own` kind, by a short schedule."""
    sizes = DIGITS_SIZES if own in DIGITS_SIZES else PAPERS_SIZES
    facts: dict[str, Any] = {"table": "sizes", "measures": ()}
    named = {size: (*settings, f"networks.discriminator.size={size}") for size in sizes}
    return tuple(trained("discriminator", f"sizes/{size}", settings=words, **facts) for size, words in named.items())


# Every method on a recipe

SHORT = ("train.epochs=8", "train.decay_from=4", "train.eps_ramp=4")
"""The schedule of the size ablation."""


def every_method(recipe: Recipe, *robust: str) -> Study:
    """All that the recipe has a table for, and what is combined of that; `robust` are settings of robust training.

    Methods that are registered elsewhere have a row at the end.
    """
    nodes = (
        *map(trained, REFERENCES),
        *_baselines(),
        trained("discriminator"),
        combined("prood-s", METHODS["prood"].title + "-S", "oe"),
        trained("prood", headline=True),
        *_robust(*robust),
    )
    methods = {node.method for node in nodes}
    nodes += tuple(trained(method, baseline=True) for method in METHODS if method not in methods)
    nodes += _sizes(str(recipe.discriminator.get("size", "S")), *SHORT)
    trainable = {node.name: node for node in nodes if node.method is None or node.method in recipe.train}
    possible = tuple(node for node in trainable.values() if trainable.keys() >= set(node.parts))
    return Study(recipe.name, recipe, possible, short=SHORT)


# The quickstart

INSIDE, CALIBRATION = "digits:test", "digits:validation"
"""The threshold comes from the second: neither trained nor tested on."""
FAR = ("photographs:test", "materials", "text", "faces", "smooth", "uniform")
NEAR = ("left-out",)
"""Test out-distributions, none of them seen in training; the near one is digits too, of classes left out."""
LIMIT = 100
"""Images of each out-distribution: with all of them the attacks would take longer than the training."""
CERTIFIED_ONLY = (0.1, 0.2)
"""Radii beside the one trained for, to see what is proved there; attacks would double the time."""
QUICKSTART = "Quickstart: digits against photographs"
QUICKER = ("train.epochs=8", "train.eps_ramp=4")
"""Robust training, cut so that all experiments of the quickstart take minutes; the published recipe says so, too."""


def digits(recipe: Recipe | None = None) -> Study:
    """The whole method on data that arrives inside packages."""
    study = every_method(recipe or load_recipe("quickstart"))
    nodes = tuple(node for node in study.nodes if node.table == "main" and not node.baseline)
    measures = (replace(CERTIFY, eps=CERTIFIED_ONLY), ATTACK)
    sets: dict[str, Any] = {"inside": INSIDE, "together": FAR + NEAR, "limit": LIMIT, "attacked": LIMIT}
    cheap: dict[str, Any] = {"bound": "alpha-crown"}  # on a network this small, and it proves much more
    return replace(study, nodes=nodes, measures=measures, calibration=CALIBRATION, **sets, **cheap)


# CIFAR

SHORT_CIFAR = ("train.epochs=40", "train.decay_from=20", "train.eps_ramp=20")
"""The paper shortens its schedule for sizes as well, from 1000 to 300 epochs."""
COMPACT = ("networks.classifier.name=compact", "train.epochs=100", "train.decay_from=6")
"""The shipped model has a smaller classifier, and for both sets the same schedule."""
QUICK = {
    "discriminator": ("train.epochs=70", "train.decay_from=35", "train.eps_ramp=35"),
    "prood": ("train.epochs=25",),
}
"""What the `fast` study trains by: shorter schedules, meant for five minutes on one GPU."""
TIGHTEN = Measure("tighten", bound="crown", first=True, shared=True)
"""What was trained with linear bounds is certified by tighter ones besides, at the radius that it was trained for."""


def cifar(name: str, heading: str) -> Study:
    """The paper's main table: discriminators trained with intervals, as in the paper, and with linear bounds."""
    papers: dict[str, Any] = {"discriminator": "discriminator-ibp", "intervals": True}
    certified: dict[str, Any] = {"measures": (CERTIFY.name,)}
    linear: dict[str, Any] = {"measures": (CERTIFY.name, TIGHTEN.name, ATTACK.name)}
    disc, joint = METHODS["discriminator"].title, METHODS["prood"].title
    nodes = (
        *map(trained, REFERENCES),
        Node("discriminator-ibp", disc, "discriminator", recipe=f"{name}-ibp", intervals=True),
        trained("prood", "prood-ibp", **papers),
        combined("prood-s-ibp", f"{joint}-S", "oe", **papers),
        trained("discriminator", title=f"{disc}, linear bound", **linear),
        trained("prood", title=f"{joint}, linear bound", headline=True, **linear),
        combined("prood-s", f"{joint}-S, linear bound", "oe", **linear),
        *_baselines(),
        *_robust(),
        trained("prood", "compact", settings=COMPACT, table="", measures=()),
        Node("shipped", f"{joint}, linear bound, compact", rounded="compact", gate="default", table="", **certified),
        *_sizes("S", *SHORT_CIFAR),
    )
    measures = (CERTIFY, TIGHTEN, ATTACK)
    facts: dict[str, Any] = {"shift_by": "oe", "gpu": True, "attacks": "paper", "attacked": 100, "short": SHORT_CIFAR}
    facts["broad"] = ("natural32:train",)
    return Study(name, f"{name}-fast", nodes, heading, measures, **facts)


def fast(study: Study) -> Study:
    """The discriminator and the joint model alone, by shorter schedules and at the recipe's shift."""
    nodes = tuple(replace(study.node(name), settings=words) for name, words in QUICK.items())
    return replace(study, nodes=nodes, measures=(replace(CERTIFY, first=True),), shift_by=None)


# Restricted ImageNet

LITE0 = {"name": "efficientnet-lite0", "groups": [list(group) for group in GROUPS.values()], "weights": "package"}
"""The pretrained classifier, its 1,000 classes summed into the paper's nine groups."""


def rimgnet() -> Study:
    """Images of 224×224: a pretrained classifier beside a discriminator that two cores can train; more with a GPU."""
    disc, joint = METHODS["discriminator"].title, METHODS["prood"].title
    large: dict[str, Any] = {"recipe": "rimgnet-fast", "gpu": True}
    nodes = (
        Node("plain", METHODS["plain"].title, built=LITE0, measures=(CERTIFY.name,)),
        trained("oe", **large),
        trained("discriminator", "small", table="", measures=()),
        Node("discriminator", disc, rounded="small"),
        combined("prood-s", f"{joint}-S", "plain", headline=True),
        Node("shipped", f"{joint}-S, shipped", rounded="prood-s", gate="default", table="", measures=(CERTIFY.name,)),
        trained("discriminator", "large", table="", measures=(), **large),
        Node("discriminator-large", f"{disc}, large", rounded="large", gpu=True),
        combined("prood-s-large", f"{joint}-S, large", "plain", "discriminator-large", gpu=True),
        Node("prood-large", joint, "prood", discriminator="discriminator-large", **large),
    )
    facts: dict[str, Any] = {"shift_by": "plain", "attacks": "fast", "attacked": 20}
    facts["held_back"] = ("rimgnet-mini:validation", "not-rimgnet-mini:validation")
    return Study("rimgnet", "rimgnet-cpu", nodes, "Restricted ImageNet", (CERTIFY, ATTACK), **facts)


STUDIES: dict[str, Callable[[], Study]] = {
    "quickstart": lambda: replace(every_method(load_recipe("quickstart"), *QUICKER), heading=QUICKSTART),
    "cifar10": lambda: cifar("cifar10", "CIFAR-10"),
    "cifar100": lambda: cifar("cifar100", "CIFAR-100"),
    "rimgnet": rimgnet,
}
"""The studies that come with Prood."""


def study_of(name: str) -> Study:
    """A study by its name, or every method on a recipe of one's own."""
    return STUDIES[name]() if name in STUDIES else every_method(load_recipe(name))
