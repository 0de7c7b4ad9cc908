"""Robust accuracy, where the worst point in the ball is known."""

import pytest
import torch
from torch import Tensor, nn

from prood.attacks import PGD
from prood.data import ImageSet
from prood.errors import Mismatch, UnknownName, Unsupported
from prood.evaluation.robustness import Margin, robust_accuracy
from prood.models import ProoD, discriminator, score_of, small

CLASSES, COUNT, EPS = 3, 40, 0.05
ATTACK = PGD(steps=10, uniform=1, gaussian=0)


def images(count: int = COUNT) -> ImageSet:
    torch.manual_seed(0)
    pixels = torch.randint(0, 256, (count, 1, 8, 8), dtype=torch.uint8)
    return ImageSet("squares", pixels, torch.arange(count) % CLASSES)


def linear() -> nn.Sequential:
    """A linear classifier whose labels are those of `images` for most of them."""
    model, given = nn.Sequential(nn.Flatten(), nn.Linear(64, CLASSES)), images()
    x, y = given.floats(), given.labels
    torch.manual_seed(1)
    for _ in range(60):
        loss = nn.functional.cross_entropy(model(x), y)  # type: ignore[arg-type]
        loss.backward()
        with torch.no_grad():
            for parameter in model.parameters():
                parameter -= 0.5 * parameter.grad  # type: ignore[operator]
                parameter.grad = None
    return model


def worst_margins(model: nn.Sequential, given: ImageSet, eps: float) -> Tensor:
    """min over the ball inside [0, 1] of f_y − max_k f_k: for each k each pixel goes to the end that hurts."""
    x = given.floats().double().flatten(1)
    low, high = (x - eps).clamp(0, 1), (x + eps).clamp(0, 1)
    weight, bias = model[1].weight.double(), model[1].bias.double()
    margins = []
    for row, y in enumerate(given.labels.tolist()):  # type: ignore[union-attr]
        of_row = []
        for k in range(CLASSES):
            if k != y:
                w = weight[y] - weight[k]
                of_row.append((torch.where(w > 0, low[row], high[row]) * w).sum() + bias[y] - bias[k])
        margins.append(torch.stack(of_row).min())
    return torch.stack(margins)


@pytest.mark.parametrize("eps", [0.0, 0.02, EPS, 0.5])
def test_on_a_linear_classifier_it_is_the_known_optimum(eps: float) -> None:
    model, given = linear(), images()
    found = robust_accuracy(model, given, eps, attacks=ATTACK)
    assert found.robust_accuracy == (worst_margins(model, given, eps) > 0).double().mean().item()
    assert found.accuracy == (model(given.floats()).argmax(1) == given.labels).double().mean().item()
    assert (found.eps, found.images) == (eps, COUNT)


def test_the_cases_above_tell_radii_apart() -> None:
    model, given = linear(), images()
    shares = [(worst_margins(model, given, eps) > 0).double().mean().item() for eps in (0.0, 0.02, EPS, 0.5)]
    assert 1 >= shares[0] > shares[1] > shares[2] > 0.1 > shares[3]


def test_a_joint_model_has_the_robust_accuracy_of_its_classifier() -> None:
    """By construction: fusion keeps the order of the classes. And so it is for every attacked image."""
    torch.manual_seed(3)
    classifier = small(CLASSES, width=4).eval()
    joint = ProoD(classifier, discriminator("digits", image=(1, 8, 8)), shift=-2.0).eval()
    given = images()
    # Labels that the network gets right mostly, so that there is something to lose.
    guessed = classifier(given.floats()).argmax(1)
    given = ImageSet("guessed", given.images, torch.where(torch.arange(COUNT) < 35, guessed, (guessed + 1) % CLASSES))
    alone, guarded = (robust_accuracy(model, given, 0.01, attacks=ATTACK) for model in (classifier, joint))
    assert alone == guarded
    assert 0 < alone.robust_accuracy < alone.accuracy == 35 / 40
    for label in range(CLASSES):
        rows = (given.labels == label).nonzero().squeeze(1)  # type: ignore[union-attr]
        found = ATTACK(Margin(score_of(joint), label), given.floats(rows), 0.01, goal=0.0)
        assert torch.equal(joint(found.images).argmax(1), classifier(found.images).argmax(1))
        assert torch.equal(joint.predict(found.images), classifier(found.images).argmax(1))


def test_a_choice_of_images_is_the_seeded_one() -> None:
    model, given = linear(), images()
    found = robust_accuracy(model, given, EPS, attacks=ATTACK, limit=7, seed=5)
    part = given.subset(7, 5)
    assert found.images == 7
    assert found.robust_accuracy == (worst_margins(model, part, EPS) > 0).double().mean().item()


def test_what_cannot_be_measured_is_refused() -> None:
    with pytest.raises(Mismatch):
        robust_accuracy(linear(), ImageSet("none", images().images), EPS, attacks=ATTACK)
    with pytest.raises(Unsupported):
        robust_accuracy(discriminator("digits", image=(1, 8, 8)), images(), EPS, attacks=ATTACK)
    with pytest.raises(UnknownName):
        robust_accuracy(linear(), images(), EPS, attacks="slow")


def test_labels_that_the_model_does_not_have_are_refused() -> None:
    given = images()
    more = ImageSet("more", given.images, given.labels + 1)  # type: ignore[operator]
    with pytest.raises(Mismatch, match=rf"{CLASSES}.*{CLASSES}"):
        robust_accuracy(linear(), more, EPS, attacks=ATTACK)
