"""The search for directions in which a model stays sure of itself."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from prood.errors import BadValue, Diverged
from prood.evaluation.asymptotics import (
    adversarial_directions,
    fates,
    objective_of,
    random_directions,
    scale_wise_maximum,
)
from prood.evaluation.asymptotics.adversary import FAR, PAPER, Stage
from prood.models import Discriminator, ProoD, small

SHAPE = (1, 8, 8)


def test_it_finds_the_best_direction() -> None:
    """Of a linear function the best point of a sphere is known."""
    torch.manual_seed(0)
    weight = torch.randn(1, *SHAPE)
    stages = (Stage(10.0, 300, 1.0), Stage(20.0, 100, 0.1))
    found = adversarial_directions(lambda x: (x * weight).flatten(1).sum(1), SHAPE, count=5, schedule=stages)
    best = 20 * weight.norm()
    torch.testing.assert_close(found.values.float(), best.expand(5), rtol=1e-3, atol=0)
    largest = weight / weight.abs().max()
    torch.testing.assert_close(found.directions, largest.expand(5, *SHAPE), rtol=0, atol=0.05)
    assert found.steps == 400
    assert not found.flat.any()


def test_points_stay_on_the_sphere_and_the_best_is_kept() -> None:
    seen: list[tuple[Tensor, Tensor]] = []

    def hilly(points: Tensor) -> Tensor:
        values = torch.sin(3 * points).flatten(1).sum(1)
        seen.append((points.detach().clone(), values.detach()))
        return values

    found = adversarial_directions(hilly, SHAPE, count=3, schedule=(Stage(5.0, 30, 2.0),))
    norms = torch.stack([points.flatten(1).norm(dim=1) for points, _ in seen])
    torch.testing.assert_close(norms, torch.full_like(norms, 5.0))
    values = torch.stack([values for _, values in seen])
    assert torch.equal(found.values, values.amax(0).double())
    assert (values.argmax(0) < 30).any()  # the last point is not the best, so keeping the best matters
    assert found.directions.abs().flatten(1).amax(1).tolist() == pytest.approx([1, 1, 1])


def test_each_row_climbs_by_itself() -> None:
    """A row's steps do not depend on the others, and a steep row is no faster than a flat one."""
    torch.manual_seed(0)
    weight, scale = torch.randn(1, *SHAPE), torch.tensor([1.0, 1e-4, 1e4])

    def objective(points: Tensor) -> Tensor:
        return (points * weight).flatten(1).sum(1) * scale[: len(points)]

    stages = (Stage(10.0, 20, 0.5),)
    found = adversarial_directions(objective, SHAPE, count=3, schedule=stages)
    alone = adversarial_directions(objective, SHAPE, count=1, schedule=stages)
    torch.testing.assert_close(found.directions[:1], alone.directions)
    cosines = torch.cosine_similarity(found.directions.flatten(1), weight.flatten(1))
    assert cosines.min() > 0.3
    raw = adversarial_directions(objective, SHAPE, count=3, schedule=stages, unit=False)
    slow = torch.cosine_similarity(raw.directions.flatten(1), weight.flatten(1))
    assert slow[1] < 0.3 < cosines[1]  # as in the paper: its steps are as long as the function is steep
    assert slow[2] > 0.99


def test_a_flat_top_ends_the_search(make: Callable[..., nn.Sequential]) -> None:
    """Where no last unit is on, g is at its cap and has no gradient: those directions stay, and it finds them."""
    g = Discriminator(make(1)).eval()
    found = adversarial_directions(g, SHAPE, count=20, schedule=FAR)
    assert found.flat.any()
    assert found.values[found.flat] == pytest.approx(g.ceiling)
    about = fates(g, found.directions)
    assert about.stays.sum() >= found.flat.sum() / 2
    if found.flat.all():
        assert found.steps < sum(stage.steps for stage in FAR)


def test_with_a_guard_it_finds_none(make: Callable[..., nn.Sequential]) -> None:
    g = Discriminator(make(1)).eval().with_far_penalty(1.0)
    found = adversarial_directions(g, SHAPE, count=20, schedule=(Stage(100.0, 60, 2.0), Stage(1000.0, 20, 10.0)))
    assert not found.flat.any()
    assert fates(g, found.directions).decays.all()
    joint = ProoD(small(4, width=4), g, 3.0).eval()
    curve = scale_wise_maximum(joint, found.directions, [0.0, 1.0, 100.0, 1e4])
    assert curve[0] > 0.5
    assert curve[2] < 1e-6
    assert curve[3] == 0


def test_the_maximum_is_taken_scale_by_scale(make: Callable[..., nn.Sequential]) -> None:
    g = Discriminator(make(1, tilt=0.0)).eval()
    directions = random_directions(300, SHAPE)
    joint = ProoD(small(4, width=4), g, 1.5).eval()
    for alpha, found in zip((1.0, 30.0), scale_wise_maximum(joint, directions, [1.0, 30.0]), strict=True):
        with torch.no_grad():
            values = torch.sigmoid(g(alpha * directions).double() + 1.5)
        assert found == pytest.approx(values.max().item(), rel=1e-6)
        assert values.mean() < 0.99 * found


def test_a_plain_classifier_becomes_sure() -> None:
    torch.manual_seed(0)
    model = small(4, width=4).eval()
    found = adversarial_directions(model, SHAPE, count=5, schedule=(Stage(100.0, 20, 2.0),))
    assert scale_wise_maximum(model, found.directions, [1e4])[0] > 0.999


def test_what_is_maximised(g: Discriminator) -> None:
    joint, images = ProoD(small(4, width=4), g, 2.0).eval(), torch.rand(3, *SHAPE)
    torch.testing.assert_close(objective_of(joint)(images), g(images).double())
    torch.testing.assert_close(objective_of(g)(images), g(images).double())
    assert objective_of(joint.classifier)(images).shape == (3,)


def test_the_papers_schedule() -> None:
    assert [(stage.radius, stage.steps, stage.step) for stage in PAPER] == [
        (100, 10000, 0.1),
        (100, 10000, 0.01),
        (1000, 20000, 0.1),
    ]


def test_bad_requests_are_refused(g: Discriminator) -> None:
    with pytest.raises(BadValue):
        adversarial_directions(g, SHAPE, schedule=())
    with pytest.raises(Diverged):
        adversarial_directions(lambda x: x.flatten(1).sum(1) * torch.nan, SHAPE, count=1, schedule=FAR)
