"""EB, which bounds the energies of both distributions, and GOOD, which bounds its confidence in whole balls."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from prood.bounds import Box, interval
from prood.bounds.box import widen
from prood.data import Images
from prood.errors import BadValue, Unsupported
from prood.methods.base import Batch, Loss, Objective, Step, accuracy, interlace, ramp, separate
from prood.methods.declaring import option, register
from prood.models import build
from prood.models.architectures import Spec
from prood.models.baselines import Energy, EnergyClassifier
from prood.models.certified import CertifiedClassifier, CertifiedConfidence


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

    weight: float = option(0.1, "of the two bounds on the energy")
    m_in: float = option(-23.0, "energies of the in-distribution above it cost", low=-math.inf)
    m_out: float = option(-5.0, "energies of the out-distribution below it cost", low=-math.inf)
    energy_from: float = option(0.0, "the energies count from this epoch on; before it, the cross-entropy alone")

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


@register
@dataclass(frozen=True)
class GOOD(Objective):
    """−log p_f(y|x) + weight · mean over z of log(1 + r(z)²/2), with ε and the weight growing linearly from 0.

    r(z) = max_{k,l} of the interval bound of f_k − f_l over the ε-ball around z, the last layer merged; but for the
    share 1 − quantile of the batch with the largest bounds it is max f − min f at z itself: what cannot be certified
    shall at least be unsure. Of several processes each sorts its own rows. GOOD₈₀ has quantile 0.8, GOOD₁₀₀ has 1. The
    score is the confidence, with its bound.

    Bitterwolf, Meinke and Hein (2020, *Certifiably Adversarially Robust Detection of Out-of-Distribution Data*) start
    from a classifier that was trained with CEDA; here the ramps begin from nothing.
    """

    name = "good"
    title = "GOOD"
    summary = "a classifier whose own confidence is bounded, by intervals, in balls around the out-distribution"
    score = CertifiedConfidence

    eps: float = option(0.01, "radius of the ball around out-distribution images, in the maximum norm", high=1)
    quantile: float = option(0.8, "share of the batch, the smallest, whose bound counts; of the rest the image", high=1)
    weight: float = option(1.0, "of the out-distribution's loss, κ")
    eps_ramp: float = option(0.0, "epochs over which ε grows linearly from 0")
    kappa_ramp: float = option(0.0, "epochs over which the weight grows linearly from 0")

    def network(self, spec: Spec, inside: Images, outside: Images | None) -> nn.Module:
        model = build(spec)
        if not isinstance(model, CertifiedClassifier):
            fault = f"GOOD needs a network with bounds, not {spec.get('name')!r}"
            raise Unsupported(f"{fault}: say name = 'certified-classifier' in the recipe's table [networks.good]")
        return model

    def __call__(self, model: CertifiedClassifier, batch_in: Batch, batch_out: Batch, step: Step) -> Loss:
        count = len(batch_out.images)
        eps = self.eps * ramp(step, self.eps_ramp)
        # The images z themselves as well: at the border of [0, 1] they are not the centres of their balls.
        points = torch.cat([batch_in.images, batch_out.images])
        hidden = interval(model.body, Box.ball(batch_out.images, eps, points=points))
        inside, outside = widen(model.last(hidden.points)).tensor_split([len(batch_in.images)])
        bound = model.differences(hidden).flatten(1).amax(1)
        spread = outside.amax(1) - outside.amin(1)
        order = bound.detach().argsort()
        certified, rest = order.tensor_split([int(count * self.quantile)])
        loss_out = (_penalty(bound[certified]).sum() + _penalty(spread[rest]).sum()) / count
        loss_in = F.cross_entropy(inside, batch_in.targets)
        loss = loss_in + self.weight * ramp(step, self.kappa_ramp) * loss_out
        logs = {"loss_in": loss_in, "loss_out": loss_out, "eps": eps, "accuracy": accuracy(inside, batch_in)}
        logs |= {"range_out": spread.mean(), "range_out_bound": bound.mean()}
        return loss, logs | {"range_in": (inside.amax(1) - inside.amin(1)).mean()}

    def diagnose(self, logs: dict[str, float]) -> str | None:
        if logs["range_in"] > 1e-2:
            return None
        fault = f"the classifier has gone constant (its logits differ by {logs['range_in']:.1e} on the in-distribution)"
        return f"{fault}: try a longer eps_ramp and kappa_ramp, a smaller weight or quantile"


def _penalty(differences: Tensor) -> Tensor:
    """log(1 + r²/2): quadratic where the confidence is low already, and bounded gradients where it is far from it."""
    return (0.5 * differences.square()).log1p()
