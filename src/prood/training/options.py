"""How a network is trained, whatever its objective: length, batch, optimiser, learning rate, precision."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import nn

from prood.bounds import NegativeLinear
from prood.errors import ProodError
from prood.models.mixtures import MixtureRatio

MOST_EPOCHS = 10**9
"""More are taken for a mistake, before their steps are counted."""


@dataclass(frozen=True)
class TrainOptions:
    """Lengths and places in the schedule are in epochs of the in-distribution set."""

    epochs: float = 10
    batch: int = 128  # in-distribution images per step over all processes, and as many out-distribution ones
    optimizer: Literal["adam", "sgd"] = "adam"
    lr: float = 1e-3
    weight_decay: float = 0.0  # coupled L2; never on a discriminator's last layer, nor on mixtures
    momentum: float = 0.9  # SGD only
    nesterov: bool = False  # SGD only
    warmup: float = 0.0  # the learning rate grows linearly from 0 up to this epoch
    drops: tuple[float, ...] = ()  # at these epochs it is divided by drop_factor
    drop_factor: float = 10.0
    decay_from: float | None = None  # from this epoch on it falls linearly to 0 at the end
    seed: int = 0
    precision: Literal["float32", "bfloat16"] = "float32"
    compile: bool = False
    checkpoint_seconds: float = 30.0  # at least so long between two checkpoints

    def __post_init__(self) -> None:
        for name in ("epochs", "batch", "lr", "drop_factor"):
            if not 0 < getattr(self, name) < math.inf:
                raise ProodError(f"{name} must be positive, not {getattr(self, name)}")
        if self.epochs > MOST_EPOCHS:
            raise ProodError(f"epochs = {self.epochs:g} would never end: choose at most {MOST_EPOCHS:,}")
        for name in ("warmup", "drops", "decay_from", "checkpoint_seconds"):
            value = getattr(self, name)
            for number in value if isinstance(value, tuple) else () if value is None else (value,):
                if not 0 <= number < math.inf:
                    raise ProodError(f"{name} must be finite and not negative: {number}")
        if not 0 <= self.seed < 2**32:
            raise ProodError(f"seed = {self.seed} must be at least 0 and below 2³²")
        if not 0 <= self.weight_decay < math.inf:
            raise ProodError(f"weight_decay must not be negative: {self.weight_decay}")
        if not 0 <= self.momentum < 1:
            raise ProodError(f"momentum = {self.momentum} must be at least 0 and below 1")
        if self.nesterov and not self.momentum:
            raise ProodError("nesterov needs a momentum above 0")
        if self.decay_from is not None and self.decay_from >= self.epochs:
            raise ProodError(
                f"decay_from = {self.decay_from:g} must lie before the last epoch, {self.epochs:g}: "
                f"change both, for instance train.decay_from={self.epochs / 2:g}"
            )

    def learning_rate(self, epoch: float) -> float:
        """The learning rate at a (fractional) epoch."""
        rate = self.lr * self.drop_factor ** -sum(epoch >= drop for drop in self.drops)
        if epoch < self.warmup:
            rate *= epoch / self.warmup
        if self.decay_from is not None and epoch > self.decay_from:
            rate *= (self.epochs - epoch) / (self.epochs - self.decay_from)
        return rate

    def make_optimizer(self, model: nn.Module) -> torch.optim.Optimizer:
        apart = NegativeLinear, MixtureRatio  # to pull their weights to zero would make −1 of them, or move centres
        last = [p for m in model.modules() if isinstance(m, apart) for p in m.parameters()]
        undecayed = {id(parameter) for parameter in last}
        trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
        groups = [
            {"params": [p for p in trained if id(p) not in undecayed], "weight_decay": self.weight_decay},
            {"params": [p for p in trained if id(p) in undecayed], "weight_decay": 0.0},
        ]
        groups = [group for group in groups if group["params"]]
        on_gpu = all(parameter.is_cuda for parameter in trained)
        # On a GPU all weights are updated by one kernel, and the learning rate is a tensor: a captured step reads it.
        lr: Any = torch.tensor(self.lr, device=trained[0].device) if on_gpu else self.lr
        if self.optimizer == "adam":
            return torch.optim.Adam(groups, lr=lr, fused=on_gpu, capturable=on_gpu)
        return torch.optim.SGD(groups, lr=lr, momentum=self.momentum, nesterov=self.nesterov, fused=on_gpu)
