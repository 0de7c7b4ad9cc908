"""The network that a run trains: made from the recipe's table, and tried out before a folder is claimed."""

import torch
from torch import nn

from prood.data import Images
from prood.errors import BadValue, Mismatch, first_line
from prood.methods.base import deployed
from prood.models import ProoD, score_of
from prood.models.architectures import takes
from prood.training.recipe import Recipe
from prood.training.sets import class_names


def make_network(recipe: Recipe, method: str, inside: Images, outside: Images | None) -> nn.Module:
    """The method's network for these images, its weights drawn from the recipe's seed."""
    declared = recipe.method(method)
    bare = declared.kind == "discriminator"
    spec = ({"name": "discriminator"} if bare else {"classes": len(class_names(inside))}) | recipe.network(method)
    channels = inside.shape[0]
    if takes(spec, "image"):
        spec = {"image": list(inside.shape)} | spec
    if takes(spec, "channels") and channels != 1:
        spec = {"channels": channels} | spec
    for key in ("mean", "std"):
        given = spec.get(key)
        if isinstance(given, list | tuple) and len(given) != channels:
            raise BadValue(
                f"networks.{recipe.network_table(method)}.{key} must have {channels} numbers, one for each channel of "
                f"{inside.name}, not {len(given)}: change it, or leave it out"
            )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(recipe.options(method).seed)
        return declared.network(spec, inside, outside)


@torch.no_grad()
def try_out(model: nn.Module, recipe: Recipe, method: str, inside: Images, device: torch.device) -> None:
    """Show the model one grey image: does it take this shape, and has it an output for each class?"""
    declared, table = recipe.method(method), recipe.network_table(method)
    parts = [(model, f"the network of [networks.{table}]")]
    if isinstance(model, ProoD):
        parts = [(model.discriminator, "the discriminator"), (model.classifier, parts[0][1])]
    image = torch.full((1, *inside.shape), 0.5, device=device)
    with deployed(model):
        for part, name in parts:
            try:
                output = part(image)
            except (RuntimeError, ValueError) as error:
                fault = f"{name} does not take images of {inside.name}, of shape {inside.shape}"
                raise Mismatch(f"{fault}: {first_line(error)}") from None
    if declared.kind != "discriminator" and output.shape[1] < (classes := len(class_names(inside))):
        raise BadValue(
            f"networks.{table}.classes = {output.shape[1]} is too few: {inside.name} has {classes}, leave it out"
        )
    if not isinstance(score_of(model), declared.score):
        raise Mismatch(
            f"method {method!r} detects by {declared.score.__name__}, its {type(model).__name__} by "
            f"{type(score_of(model)).__name__}: change 'score' of {type(declared).__name__}, or its network"
        )
