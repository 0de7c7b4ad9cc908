"""ATOM, adversarial training with informative outlier mining (Chen, Li, Wu, Liang and Jha, ECML PKDD 2021)."""

from dataclasses import dataclass

import torch
from torch.nn import functional as F

from prood.data import Images
from prood.errors import BadValue
from prood.methods.base import Adversarial, Batch, Loss, Step, accuracy, deployed
from prood.methods.declaring import option, register
from prood.models.architectures import Spec
from prood.models.baselines import ExtraClass, NotExtra, not_last, with_extra_class


@register
@dataclass(frozen=True)
class ATOM(Adversarial):
    """−log p(y|x) + weight · max_{‖u−z‖∞ ≤ ε} −log p(K+1|u) for a classifier with a class more, for outliers.

    The score is log((1 − p(K+1|x)) / p(K+1|x)); the classes are told apart by the first K logits.

    Only informative outliers are trained on. Sorted from the one that looks most like the in-distribution, a fraction
    `quantile` is passed over, as too near, and the next fraction `mined` is taken. The paper (Chen, Li, Wu, Liang and
    Jha, ECML PKDD 2021) sorts 400,000 images before each epoch and takes 100,000; here each step mines its own batch,
    with the network as it stands. That is fresher, and what a step sees remains a function of its number alone; but a
    batch has fewer of the rare hard ones than the whole set, a step trains on `mined` times as many outliers as there
    are in-distribution images (in the paper on twice as many), and of several processes each sorts its own rows.
    """

    name = "atom"
    title = "ATOM"
    summary = "a classifier with a reject class, trained on mined adversarial outliers"
    score = NotExtra

    weight: float = option(1.0, "weight of the outliers' loss")
    quantile: float = option(0.125, "share of the outliers to skip, the most in-distribution ones", high=1)
    mined: float = option(0.25, "share of the outliers to train on, the next ones", high=1, above=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.quantile + self.mined > 1:
            raise BadValue(f"quantile = {self.quantile} and mined = {self.mined} are together more than all outliers")

    def __call__(self, model: ExtraClass, batch_in: Batch, batch_out: Batch, step: Step) -> Loss:
        eps = self.radius(step)
        mined = self.mine(model, batch_out)
        attacked = self.attack(model, mined, eps, lambda images: not_last(model.extended(images)))
        # Not interlaced, as there are fewer outliers; of several processes each has its share of both.
        logits = model.extended(torch.cat([batch_in.images, attacked]))
        inside, outside = logits.tensor_split([len(batch_in.images)])
        loss_in = F.cross_entropy(inside, batch_in.targets)
        extra = torch.full_like(outside[:, 0], outside.shape[1] - 1, dtype=torch.long)
        loss_out = F.cross_entropy(outside, extra)
        logs = {"loss_in": loss_in, "loss_out": loss_out, "eps": eps, "accuracy": accuracy(inside[:, :-1], batch_in)}
        return loss_in + self.weight * loss_out, logs

    def network(self, spec: Spec, inside: Images, outside: Images | None) -> ExtraClass:
        return with_extra_class(spec)

    def mine(self, model: ExtraClass, batch: Batch) -> Batch:
        """The outliers of the batch that are worth training on, with their noise."""
        with deployed(model), torch.no_grad():
            order = not_last(model.extended(batch.images)).argsort(descending=True, stable=True)
        count = max(1, round(self.mined * len(order)))
        first = min(round(self.quantile * len(order)), len(order) - count)
        kept = order[first : first + count]
        assert batch.noise is not None
        return Batch(batch.images[kept], noise=batch.noise[kept])
