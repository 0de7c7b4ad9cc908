"""The network that a recipe asks for, tried out on an image before the training begins."""

from dataclasses import replace

import torch
from torch import Tensor, nn

from prood.data import Images
from prood.errors import BadValue, Mismatch, first_line
from prood.methods.base import deployed
from prood.models import Discriminator, ProoD, score_of
from prood.models.architectures import takes
from prood.training.recipe import Recipe


def class_names(inside: Images) -> list[str]:
    """The set's own, or the numbers of its labels."""
    if inside.labels is None:
        raise Mismatch(f"{inside.name} has no labels: a classifier cannot be trained on it")
    highest = int(inside.labels.max())
    if highest >= 100_000:  # a mistake, refused before memory is allocated for these classes
        raise BadValue(f"{inside.name} has a label {highest}: number the classes from 0, without gaps")
    return list(inside.classes or map(str, range(highest + 1)))


def make_network(recipe: Recipe, method: str, inside: Images, outside: Images | None) -> nn.Module:
    """The method's network for these images, its weights drawn from the recipe's seed."""
    declared = recipe.method(method)
    bare = declared.kind == "discriminator"
    spec = ({"name": "discriminator"} if bare else {"classes": len(class_names(inside))}) | recipe.network(method)
    channels = inside.shape[0]
    if takes(spec, "image"):
        spec = {"image": list(recipe.augment_for(method).shape(inside.shape))} | spec
    if takes(spec, "channels") and channels != 1:
        spec = {"channels": channels} | spec
    for key in ("mean", "std"):
        given = spec.get(key)
        if isinstance(given, list | tuple) and len(given) != channels:
            name = f"networks.{recipe.network_table(method)}.{key}"
            raise BadValue(f"{name} must have {channels} numbers, as {inside.name} has channels, not {len(given)}")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(recipe.options(method).seed)
        model = declared.network(spec, inside, outside)
    started = getattr(model, "architecture", None)
    if isinstance(started, dict) and started.get("weights") == "start":  # no part of what is trained
        del started["weights"]
    return model


def make_discriminator(recipe: Recipe, inside: Images, outside: Images | None) -> Discriminator:
    """The recipe's discriminator, untrained, whether or not the recipe says how it is trained."""
    table = {"discriminator": recipe.train.get("discriminator", {})}
    network = make_network(replace(recipe, train=recipe.train | table), "discriminator", inside, outside)
    assert isinstance(network, Discriminator)
    return network


def try_out(model: nn.Module, recipe: Recipe, method: str, inside: Images, device: torch.device) -> None:
    """Show the model one grey image: does it take this shape, and has it an output for each class?"""
    declared, table = recipe.method(method), recipe.network_table(method)
    parts = [(model, f"the network of [networks.{table}]")]
    if isinstance(model, ProoD):
        parts = [(model.discriminator, "the discriminator"), (model.classifier, parts[0][1])]
    image = torch.full((1, *recipe.augment_for(method).shape(inside.shape)), 0.5, device=device)
    with deployed(model):
        for part, name in parts:
            output = answer(part, image, f"{name} does not take images of {inside.name}")
    if declared.kind != "discriminator" and (given := output.shape[1]) < (classes := len(class_names(inside))):
        raise BadValue(f"networks.{table}.classes = {given} is too few: {inside.name} has {classes}, leave it out")
    found, meant = type(score_of(model)), declared.score
    if not issubclass(found, meant):
        fault = f"method {method!r} detects by {meant.__name__}, its {type(model).__name__} by {found.__name__}"
        raise Mismatch(f"{fault}: change 'score' of {type(declared).__name__}, or its network")


@torch.no_grad()
def answer(model: nn.Module, image: Tensor, fault: str) -> Tensor:
    """What the model makes of an image; `fault` says what is wrong if it takes none of this shape."""
    try:
        output: Tensor = model(image)
    except (RuntimeError, ValueError) as error:
        raise Mismatch(f"{fault}, of shape {tuple(image.shape[1:])}: {first_line(error)}") from None
    return output
