"""The recipe of a guard, from what was chosen."""

from dataclasses import dataclass
from typing import Any

from prood.data.images import Shape
from prood.studies.guarding.asked import Asked
from prood.studies.guarding.parts import MADE, TRAIN
from prood.training import Recipe
from prood.training.guard_table import GuardTable
from prood.training.recipe import parse


@dataclass(frozen=True)
class Setting:
    """What follows from the images and the machine alone."""

    image: Shape
    factor: int
    eps: float
    batch: int
    classes: int
    gpu: bool

    @property
    def small(self) -> Shape:
        """The images that g is trained on."""
        channels, height, width = self.image
        return channels, height // self.factor, width // self.factor


def recipe(asked: Asked, table: GuardTable, setting: Setting, name: str, epochs: float, f_epochs: float) -> Recipe:
    """By our own measurements: linear bounds beside a short attack, ε growing over the first half, no weight decay."""
    batch, side, outside = setting.batch, min(setting.small[1:]), asked.outside or f"made:{MADE[TRAIN]}"
    precision = {"precision": "bfloat16"} if setting.gpu else {}
    f = {"epochs": f_epochs, "decay_from": f_epochs / 4, "warmup": min(1.0, f_epochs / 10), "lr": 0.003}
    g = {"epochs": epochs, "decay_from": epochs / 2, "warmup": min(1.0, epochs / 20), "lr": 1e-3}
    g |= {"eps": setting.eps, "eps_ramp": epochs / 2}
    document: dict[str, Any] = {
        "data": {
            "inside": asked.inside,
            "outside": outside,
            "image": list(setting.image),
            "damaged": asked.damaged or "refuse",
        },
        "augment": {"pad": max(1, side // 14), "border": "reflect"},
        "networks": {
            "classifier": {"name": "compact"} if setting.gpu else {"name": "small", "width": 48},
            "discriminator": {"size": name, "far_penalty": 1.0},
        },
        "evaluate": {"outside": [outside], "eps": [setting.eps], "limit": table.most},
        "guard": {key: value for key, value in vars(table).items() if value is not None},
        "train": {"oe": {**f, "batch": batch, **precision}, "discriminator": {**g, "batch": batch, **precision}},
    }
    words = "Written by Prood for 'prood guard --recipe'. Nothing is mirrored (flip), as signs and text would change. "
    return parse(document, "guard", words + "Turn it on for photographs whose mirror images are as likely.")
