"""A committee in the verifier: its file is read, one member's proof is enough, and a higher value refutes."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.numpy import load_file, save_file

from prood import models
from prood.certification import file_sha256
from prood.certification.verify import Verifier
from prood.certification.verify.ball import Ball
from prood.certification.verify.committee import Committee, bounds, highest
from prood.certification.verify.exact import Undecided
from prood.certification.verify.network import read_model
from prood.data import load as load_images
from prood.models import Gate, Gated, discriminator, save, small
from prood.models.committee import committee_of

EPS = 0.05


def made(seed=0, scale=1.0):
    """Three members, of which each is the least somewhere."""
    torch.manual_seed(seed)
    members = [discriminator(size, image=(1, 8, 8)).eval() for size in ("digits", "digits-S", "digits-XS")]
    with torch.no_grad():
        for one in members:
            one.last.log_weight.sub_(1.0)
            for value in one.body.parameters():
                value.mul_(scale)
        images = torch.rand(200, 1, 8, 8)
        seen = [one.covered(images).double().numpy() for one in members]
    return committee_of(members, seen, (0.4, 0.3, 0.3)).eval()


@pytest.fixture(params=["alone", "gated"])
def path(request, tmp_path):
    model = made()
    if request.param == "gated":
        torch.manual_seed(1)
        model = Gated(small(4, width=4), model, Gate((-1.0, 2.0), (-4.0, 1.0)), 1.5).eval()
    save(model, tmp_path / "model.safetensors")
    return tmp_path / "model.safetensors"


def discriminator_of(path):
    model = models.load(path)[0]
    return getattr(model, "discriminator", model)


@pytest.fixture
def case(path, make_images, certificate_of):
    """An image, its bound by one method, and the certificate."""
    name = make_images(shape=(8, 8))
    image = load_images(name).floats()[1:2]
    bound = discriminator_of(path).upper_bound(image, EPS).item() + 1e-3
    facts = {"shift": 1.5, "classes": 4} if "classifier" in str(load_file(path).keys()) else {}
    return certificate_of(path, name, 1, image[0].numpy(), bound, eps=EPS, **facts)


def test_the_file_is_read(path):
    found, model = read_model(path).network, discriminator_of(path)
    assert isinstance(found, Committee)
    assert found.shape == model.image
    for (_, scale), (_, own) in zip(found.members, model.pairs(), strict=True):
        assert (scale.knots, scale.caps) == (own.function.knots, own.function.values)


def test_its_own_bound_is_confirmed_and_a_lower_value_refuted(case, path):
    assert Verifier().verify(case).outcome == "confirmed"
    image = torch.from_numpy(load_images(case.input.name).floats()[1:2].numpy())
    with torch.no_grad():
        low = discriminator_of(path)(image).item() - 0.1
    found = Verifier().verify(replace(case, bound=low))
    assert (found.outcome, found.value > low) == ("refuted", True)


@pytest.mark.parametrize("scale", [1.0, 3.0])
def test_all_bounds_hold_for_the_deployed_committee(tmp_path, scale):
    model = made(2, scale)
    save(model, tmp_path / "model.safetensors")
    found, image = read_model(tmp_path).network, np.random.default_rng(0).random((1, 8, 8), dtype=np.float32)
    ball = Ball(image, "linf", EPS)
    lowest = min(bound for _, (_, bound) in zip(range(12), bounds(found, ball), strict=False))
    point = highest(found, ball, np.inf)
    assert ball.contains(point.image)
    noise = torch.from_numpy(np.random.default_rng(1).uniform(-EPS, EPS, (500, 1, 8, 8)).astype(np.float32))
    with torch.no_grad():
        near = model((torch.from_numpy(image) + noise).clamp(0, 1)).max().item()
        reached = model(torch.from_numpy(point.image)[None]).item()
    assert max(near, reached) <= lowest
    assert near - 1e-4 <= reached  # the search is no worse than noise
    assert reached >= point.value


def test_one_member_is_enough(tmp_path):
    """The others say nothing: their ceilings are far above."""
    model = made()
    with torch.no_grad():
        for number in (0, 1):
            model.pairs()[number][0].last.bias.add_(50.0)
    save(model, tmp_path / "model.safetensors")
    ball = Ball(np.full((1, 8, 8), 0.5, np.float32), "linf", EPS)
    best = min(bounds(read_model(tmp_path).network, ball), key=lambda one: one[1])
    assert "member 3" in best[0]


def rewritten(path, case, *, spec=None, **tensors):
    with safe_open(path, "numpy") as opened:
        about = opened.metadata()
    if spec is not None:
        facts = json.loads(about["prood"])
        spec(facts["architecture"].get("discriminator", facts["architecture"]))
        about = {**about, "prood": json.dumps(facts)}
    prefix = "discriminator." if "discriminator.scales.0.knots" in load_file(path) else ""
    changed = {prefix + name.replace("_", "."): value for name, value in tensors.items()}
    assert changed.keys() <= load_file(path).keys()
    save_file({**load_file(path), **changed}, path, about)
    return replace(case, model=replace(case.model, sha256=file_sha256(path)))


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"scales_1_values": np.zeros(3, np.float32)}, "member 2"),
        ({"spec": lambda spec: spec["members"].pop()}, "members"),
        ({"spec": lambda spec: spec.update(knots=[1, 1, 1])}, "member 1"),
        ({"spec": lambda spec: spec["members"][1].update(name="committee")}, "committee"),
        ({"spec": lambda spec: spec["members"][2].update(size="digits-deep")}, "digits-deep"),
    ],
)
def test_a_damaged_committee_is_not_decided(path, case, change, word):
    found = Verifier().verify(rewritten(path, case, **change))
    assert found.outcome == "not decided"
    assert word in found.reason


def test_a_scale_that_falls_is_not_decided(path, case):
    prefix = "discriminator." if "discriminator.scales.0.knots" in load_file(path) else ""
    values = load_file(path)[f"{prefix}scales.0.values"][::-1].copy()
    found = Verifier().verify(rewritten(path, case, scales_0_values=values))
    assert (found.outcome, "rise" in found.reason) == ("not decided", True)


def test_a_member_that_may_overflow_leaves_all_undecided(tmp_path):
    model = made()
    with torch.no_grad():
        for value in model.pairs()[2][0].body.parameters():
            value.mul_(1e20)
    save(model, tmp_path / "model.safetensors")
    ball = Ball(np.full((1, 8, 8), 0.5, np.float32), "linf", EPS)
    with pytest.raises(Undecided):
        next(bounds(read_model(tmp_path).network, ball))
    image = torch.full((1, 1, 8, 8), 0.5)
    assert model.upper_bound(image, EPS).item() == np.inf
    assert model.upper_bound(image, EPS, threshold=1e9, method="auto").item() == np.inf
