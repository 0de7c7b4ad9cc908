"""How a network is trained, whatever its objective: length, batch, optimiser, learning rate, precision."""

from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import nn

from prood.bounds import NegativeLinear
from prood.errors import BadValue
from prood.methods.declaring import check, option
from prood.models.mixtures import MixtureRatio


@dataclass(frozen=True)
class TrainOptions:
    """Lengths and places in the schedule are in epochs of the in-distribution set."""

    epochs: float = option(10, "length, in epochs of the in-distribution", high=10**9, above=True)  # more is a mistake
    batch: int = option(128, "in-distribution images a step over all processes, as many of the other set", low=1)
    optimizer: Literal["adam", "sgd"] = option("adam", "adam or sgd")
    lr: float = option(1e-3, "learning rate, before warmup, drops and decay", above=True)
    weight_decay: float = option(0.0, "coupled L2 penalty; never on a discriminator's last layer nor on mixtures")
    momentum: float = option(0.9, "of SGD")
    nesterov: bool = option(False, "Nesterov's momentum, of SGD")
    warmup: float = option(0.0, "the learning rate grows linearly from 0 up to this epoch")
    drops: tuple[float, ...] = option((), "epochs at which the learning rate is divided by drop_factor")
    drop_factor: float = option(10.0, "what the learning rate is divided by at each drop", above=True)
    decay_from: float | None = option(None, "from this epoch on the learning rate falls linearly to 0 at the end")
    seed: int = option(0, "of initialisation, order, augmentation and noise", high=2**32 - 1)
    precision: Literal["float32", "bfloat16"] = option("float32", "float32, or bfloat16 (mixed, for GPUs)")
    compile: bool = option(False, "compile the step with torch.compile (for GPUs)")
    checkpoint_seconds: float = option(30.0, "minimum seconds between checkpoints")

    def __post_init__(self) -> None:
        check(self)
        if self.momentum >= 1:
            raise BadValue(f"momentum = {self.momentum} must be below 1")
        if self.nesterov and not self.momentum:
            raise BadValue("nesterov needs a momentum above 0")
        if self.decay_from is not None and self.decay_from >= self.epochs:
            change = f"change both, for instance train.decay_from={self.epochs / 2:g}"
            raise BadValue(f"decay_from = {self.decay_from:g} is not before the last epoch, {self.epochs:g}: {change}")

    def learning_rate(self, epoch: float) -> float:
        rate = self.lr * self.drop_factor ** -sum(epoch >= drop for drop in self.drops)
        if epoch < self.warmup:
            rate *= epoch / self.warmup
        if self.decay_from is not None and epoch > self.decay_from:
            rate *= (self.epochs - epoch) / (self.epochs - self.decay_from)
        return rate

    def make_optimizer(self, model: nn.Module) -> torch.optim.Optimizer:
        apart = NegativeLinear, MixtureRatio  # to pull their weights to zero would make −1 of them, or move centres
        undecayed = {id(p) for m in model.modules() if isinstance(m, apart) for p in m.parameters()}
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
