"""The certified discriminator: logistic loss with an upper bound of g on the out-distribution (Eq. 5)."""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional as F

from prood.bounds import Box, concretise, interval, relax
from prood.methods.base import Batch, Logs, Loss, Objective, Step, climb, ramp
from prood.methods.declaring import option, register
from prood.models import Discriminator, InLogit
from prood.models.constancy import ADVICE, SPREAD, collapsed

_Bounded = tuple[Tensor, Tensor, Tensor, Logs]  # g of the in-distribution, bounds of the other, their loss, logs


@register
@dataclass(frozen=True)
class CertifiedDiscriminator(Objective):
    """softplus(−g(x)) + κ · out(z), with ε and κ growing linearly from 0.

    bound = "ibp", the paper's:  out(z) = softplus(ḡ(z)) with the interval bound ḡ over the ε-ball.
    bound = "crown-ibp", ours:   out(z) = (1−a)·softplus(g(z̃)) + a·softplus(ḡ_lin(z)) with a point z̃ found by a short
    gradient attack in the ball and the CROWN-IBP bound. The first term shapes g, the second keeps it provable; no
    slow ramp is needed, because gradients still flow when every interval bound of the last hidden layer is dead.
    """

    name = "discriminator"
    title = "ProoD-Disc"
    summary = "the certified discriminator, the part of ProoD that carries the proof"
    kind = "discriminator"
    score = InLogit

    eps: float = option(0.01, "radius of the ball around out-distribution images, in the maximum norm", high=1)
    bound: Literal["crown-ibp", "ibp"] = option("crown-ibp", "ibp (the paper's), or linear beside a short attack")
    eps_ramp: float = option(0.0, "epochs over which ε grows linearly from 0")
    kappa_ramp: float = option(0.0, "epochs over which κ, the out-distribution's weight, grows linearly from 0")
    certified_weight: float = option(0.4, "crown-ibp only: share of the bound, beside the attack's", high=1)
    attack_steps: int = option(2, "crown-ibp only: gradient steps of the attack")
    attack_step_size: float = option(0.75, "crown-ibp only: length of a step, in units of ε")
    loss: Literal["paper", "official"] = option("paper", "paper (Eq. 5) or official, log(e + e^g) as in their code")

    @property
    def needs_noise(self) -> bool:
        return self.bound != "ibp"

    def __call__(self, model: Discriminator, batch_in: Batch, batch_out: Batch, step: Step) -> Loss:
        eps = self.eps * ramp(step, self.eps_ramp)
        forward = self._interval if self.bound == "ibp" else self._multi_task
        g_in, upper, loss_out, logs = forward(model, batch_in, batch_out, eps)
        loss_in = self.penalty(-g_in).mean()
        loss = loss_in + ramp(step, self.kappa_ramp) * loss_out
        logs |= {"loss_in": loss_in, "loss_out": loss_out, "eps": eps}
        logs |= {"g_in": g_in.mean(), "g_out_bound": upper.mean(), "spread": torch.cat([g_in, upper]).std()}
        return loss, logs

    def penalty(self, g: Tensor) -> Tensor:
        """softplus(g) as in Eq. 5, or log(e + e^g) = 1 + softplus(g − 1) as in the authors' code."""
        return F.softplus(g) if self.loss == "paper" else 1 + F.softplus(g - 1)

    def _interval(self, model: Discriminator, batch_in: Batch, batch_out: Batch, eps: Tensor) -> _Bounded:
        box = Box.ball(batch_out.images, eps, points=batch_in.images)
        hidden = interval(model.body, box)
        output = interval(model.tail, hidden)
        upper = output.upper.squeeze(1)
        # What gradients flow through; the in-distribution alone may well put all units to sleep, so that g is its cap.
        live = _live(torch.cat([hidden.points, hidden.lower]))
        logs = {"live": live, "awake": _live(hidden.upper)}
        return output.points.squeeze(1), upper, self.penalty(upper).mean(), logs

    def _multi_task(self, model: Discriminator, batch_in: Batch, batch_out: Batch, eps: Tensor) -> _Bounded:
        attacked = self.attack(model, batch_out, eps)
        points = torch.cat([batch_in.images, attacked])
        box = Box.ball(batch_out.images, eps, points=points)
        hidden, pull_body = relax(model.body, box)
        g_in, g_attacked = model.tail(hidden.points).squeeze(1).tensor_split([len(batch_in.images)])
        # All weights above the last ReLU are negative, so only its lower relaxation counts; the slope that is exact
        # at the attacked point makes the bound tight where the maximum was last seen.
        slopes = {model.tail[0]: hidden.points[len(batch_in.images) :].detach() > 0}
        output, pull_tail = relax(model.tail, hidden, slopes)
        upper = concretise(box, lambda plane: pull_body(pull_tail(plane)), output.radius)
        a = self.certified_weight
        loss = (1 - a) * self.penalty(g_attacked).mean() + a * self.penalty(upper).mean()
        logs = {"g_out_attacked": g_attacked.mean(), "live": _live(hidden.points), "awake": _live(hidden.upper)}
        return g_in, upper, loss, logs

    def attack(self, model: Discriminator, batch: Batch, eps: Tensor) -> Tensor:
        return climb(model, batch, eps, steps=self.attack_steps, step_size=self.attack_step_size)

    def diagnose(self, logs: dict[str, float]) -> str | None:
        if logs["live"] > 0 and logs["spread"] > SPREAD:
            return None
        change = ADVICE
        if self.bound == "ibp":
            change += ", or bound = 'crown-ibp', which is more stable"
        return collapsed(f"live hidden units {logs['live']:.0%}, spread of g {logs['spread']:.1e}", change)

    def hopeless(self, logs: dict[str, float], epoch: float) -> bool:
        """Once no point of any ball wakes a hidden unit, no gradient does; and after the ramps nothing else changes.

        Before, while κ is small, a g that is constant may well be the best one.
        """
        return logs["awake"] == 0 or epoch > max(self.eps_ramp, self.kappa_ramp)


def _live(hidden: Tensor) -> Tensor:
    """The fraction of last hidden units that are active on at least one image."""
    return (hidden.detach() > 0).any(0).float().mean()
