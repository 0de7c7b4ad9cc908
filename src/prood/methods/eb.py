"""EB: energy-bounded learning (Liu, Wang, Owens and Li, 2020, *Energy-based Out-of-distribution Detection*)."""

import math
from dataclasses import dataclass

from torch import nn
from torch.nn import functional as F

from prood.bounds.box import widen
from prood.data import Images
from prood.errors import BadValue
from prood.methods.base import Batch, Loss, Objective, Step, accuracy, interlace, separate
from prood.methods.declaring import option, register
from prood.models import build
from prood.models.architectures import Spec
from prood.models.baselines import Energy, EnergyClassifier


@register
@dataclass(frozen=True)
class EB(Objective):
    """−log p_f(y|x) + weight · ( max(0, E(x) − m_in)² + max(0, m_out − E(z))² ) with E = −log Σ_l exp f_l.

    The score is −E. Energies of the in-distribution are pushed below m_in, those of the out-distribution above m_out.
    Liu, Wang, Owens and Li (2020, *Energy-based Out-of-distribution Detection*) fine-tune a trained classifier. Here
    both phases are one run: the energies count from the epoch `energy_from` on, before it the loss is the cross-entropy
    alone (with both batches in each batch norm).
    """

    name = "eb"
    title = "EB"
    summary = "a classifier that detects by its energy, with bounds on the energies of both distributions"
    score = Energy

    weight: float = option(0.1, "weight of the two bounds on the energy")
    m_in: float = option(-23.0, "in-distribution energies above this cost", low=-math.inf)
    m_out: float = option(-5.0, "out-distribution energies below this cost", low=-math.inf)
    energy_from: float = option(0.0, "epoch from which the energies count; before it, only the cross-entropy does")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.m_in >= self.m_out:
            raise BadValue(f"m_in = {self.m_in} must lie below m_out = {self.m_out}: low energies are in-distribution")

    def network(self, spec: Spec, inside: Images, outside: Images | None) -> nn.Module:
        return EnergyClassifier(build(spec))

    def __call__(self, model: EnergyClassifier, batch_in: Batch, batch_out: Batch, step: Step) -> Loss:
        inside, outside = separate(widen(model(interlace(batch_in.images, batch_out.images))))
        energy_in, energy_out = model.energy(inside), model.energy(outside)
        loss_in = F.cross_entropy(inside, batch_in.targets)
        bounds = F.relu(energy_in - self.m_in).square().mean() + F.relu(self.m_out - energy_out).square().mean()
        # A tensor: the step is compiled once for both phases.
        counts = (step.epoch >= self.energy_from).to(bounds.dtype)
        logs = {"loss_in": loss_in, "loss_out": bounds, "accuracy": accuracy(inside, batch_in)}
        logs |= {"energy_in": energy_in.mean(), "energy_out": energy_out.mean()}
        return loss_in + self.weight * counts * bounds, logs
