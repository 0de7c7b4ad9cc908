"""GOOD: a classifier whose own confidence is bounded in whole balls (Bitterwolf, Meinke and Hein, 2020)."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from prood.bounds import Box, interval
from prood.bounds.box import widen
from prood.data import Images
from prood.errors import Unsupported
from prood.methods.base import Batch, Loss, Objective, Step, accuracy, ramp
from prood.methods.declaring import option, register
from prood.models import build
from prood.models.architectures import Spec
from prood.models.certified import CertifiedClassifier, CertifiedConfidence


@register
@dataclass(frozen=True)
class GOOD(Objective):
    """−log p_f(y|x) + weight · mean over z of log(1 + r(z)²/2), with ε and the weight growing linearly from 0.

    r(z) = max_{k,l} of the interval bound of f_k − f_l over the ε-ball around z, the last layer merged; but for the
    share 1 − quantile of the batch with the largest bounds it is max f − min f at z itself: what cannot be certified
    shall at least be unsure. Each of several processes sorts its own rows. GOOD₈₀ has quantile 0.8, GOOD₁₀₀ has 1. The
    score is the confidence, with its bound.

    Bitterwolf, Meinke and Hein (2020, *Certifiably Adversarially Robust Detection of Out-of-Distribution Data*) start
    from a classifier that was trained with CEDA; here the ramps begin from nothing.
    """

    name = "good"
    title = "GOOD"
    summary = "a classifier whose own confidence is bounded, by intervals, in balls around the out-distribution"
    score = CertifiedConfidence

    eps: float = option(0.01, "radius of the ball around out-distribution images, in the maximum norm", high=1)
    quantile: float = option(0.8, "share of the batch whose bounds count, the smallest; the rest count clean", high=1)
    weight: float = option(1.0, "weight κ of the out-distribution's loss")
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
