"""True certificates are confirmed, tampered ones are refuted, and nothing false is ever confirmed."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from prood.certification import ImageReference, image_sha256
from prood.certification.verify import Verifier
from prood.certification.verify.ball import Ball
from prood.certification.verify.bound import highest
from prood.certification.verify.exact import flint
from prood.certification.verify.network import read_model
from prood.data import load as load_images
from prood.errors import MissingPackage
from prood.models import load


@pytest.fixture
def case(make_model, make_images, certificate_of):
    """A joint model, images, and a certificate with the bound that Prood itself computes."""
    path, name = make_model(shift=1.5, image=(1, 8, 8), scale=3.0), make_images(shape=(8, 8))
    images = load_images(name).floats()
    bound = load(path)[0].discriminator.upper_bound(images[1:2], 0.05).item() + 1e-3
    one = certificate_of(path, name, 1, images[1].numpy(), bound, shift=1.5, classes=4)
    return path, name, one


def verdict(certificate, **where) -> tuple[str, str]:
    found = Verifier(**where).verify(certificate)
    return found.outcome, found.reason


def test_a_network_that_may_overflow_is_not_confirmed(make_model, make_images, certificate_of):
    """Where a sum may be ∞ − ∞, the network says NaN, which is not below the last bias."""

    def steep(model):
        signs = torch.arange(model.body[1].weight.numel()).reshape(model.body[1].weight.shape) % 2
        model.body[1].weight.copy_(1e38 * (2.0 * signs - 1))

    path, name = make_model(change=steep), make_images()
    image = load_images(name).floats([0])[0]
    last = load(path)[0].last.bias.item()
    found = Verifier().verify(certificate_of(path, name, 0, image.numpy(), last))
    assert found.outcome == "not decided"


def test_a_line_does_not_decide_what_is_downloaded(case, monkeypatch):
    asked = []
    monkeypatch.setattr("prood.pretrained.hub.fetched", lambda given: asked.append(given))
    outcome, reason = verdict(replace(case[2], model=replace(case[2].model, path="hf:some/one")))
    assert (outcome, asked) == ("not decided", [])
    assert "--model hf:some/one" in reason


@pytest.mark.parametrize("norm", ["linf", "l2", "l1"])
def test_a_huge_radius_is_that_of_the_whole_cube(case, norm):
    one = replace(case[2], norm=norm, eps=1e200, bound=load(case[0])[0].discriminator.last.bias.item())
    assert Verifier().verify(replace(one, classes=None, confidence=None, shift=0.0)).outcome == "confirmed"


def test_what_prood_computes_is_confirmed(case):
    found = Verifier().verify(case[2])
    assert found.outcome == "confirmed"
    assert found.bound <= case[2].bound
    assert found.seconds > 0


@pytest.mark.slow
@pytest.mark.parametrize("norm", ["linf", "l2", "l1"])
@pytest.mark.parametrize("eps", [0.0, 0.02, 0.2])
def test_a_bound_below_what_is_reached_is_refuted_and_never_confirmed(case, norm, eps):
    path, name, one = case
    network = read_model(path).network
    ball = Ball(load_images(name).floats([1])[0].numpy(), norm, eps)
    value = highest(network, ball, np.inf).value
    below = float(np.nextafter(np.float32(value), np.float32(-np.inf)))
    lowered = replace(one, norm=norm, eps=eps, bound=below, classes=None, confidence=None, shift=0.0)
    assert verdict(lowered) == ("refuted", "an image in the ball has a higher value")
    assert verdict(replace(lowered, bound=below - 1.0))[0] == "refuted"
    # Between what is reached and what is proven there is room for neither.
    for step in (0.0, 1e-3, 1.0):
        found = Verifier().verify(replace(lowered, bound=float(np.float32(value + step + 1e-6))))
        assert found.outcome != "refuted"
    assert verdict(replace(lowered, bound=1e3))[0] == "confirmed"


def test_a_radius_that_was_enlarged_is_refuted_where_the_bound_fails(case):
    for norm, eps in (("linf", 0.5), ("l2", 4.0), ("l1", 20.0)):
        larger = replace(case[2], eps=eps, norm=norm)
        assert verdict(larger) == ("refuted", "an image in the ball has a higher value")


def test_another_image_is_refuted(case, make_images, tmp_path):
    _, name, one = case
    images = load_images(name).images.numpy().copy()
    assert verdict(replace(one, input=replace(one.input, row=0)))[0] == "refuted"
    outcome, reason = verdict(replace(one, input=replace(one.input, row=99)))
    assert outcome == "refuted"
    assert "no row 99" in reason
    images[1, 0, 3, 3] ^= 1
    np.savez(tmp_path / "images.npz", images=images)
    outcome, reason = verdict(one)
    assert outcome == "refuted"
    assert "the image at " in reason


def test_an_image_may_have_moved(case, make_images):
    _, name, one = case
    moved = replace(one, input=replace(one.input, name="npz:nowhere.npz"))
    assert verdict(moved)[0] == "not decided"
    assert verdict(moved, input=name)[0] == "confirmed"
    assert verdict(moved, input=make_images(shape=(8, 8), seed=3, name="other.npz"))[0] == "refuted"


def test_other_weights_are_refuted(case, make_model):
    path, _, one = case
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    outcome, reason = verdict(one)
    assert outcome == "refuted"
    assert "the model at " in reason
    path.write_bytes(b"no model")
    assert verdict(one)[0] == "refuted"
    other = make_model("other", shift=1.5, image=(1, 8, 8), seed=1)
    assert verdict(one, model=str(other))[0] == "refuted"


def test_a_model_may_have_moved(case, tmp_path):
    path, _, one = case
    moved = replace(one, model=replace(one.model, path="nowhere"))
    outcome, reason = verdict(moved)
    assert outcome == "not decided"
    assert "--model" in reason
    assert verdict(moved, model=str(path))[0] == "confirmed"
    assert verdict(moved, model=str(path.parent))[0] == "confirmed"


def test_two_certificates_with_two_hashes_for_one_path(case):
    verifier = Verifier()
    wrong = replace(case[2], model=replace(case[2].model, sha256="0" * 64))
    assert [verifier.verify(one).outcome for one in (wrong, case[2], wrong)] == ["refuted", "confirmed", "refuted"]


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"confidence": 0.2500001}, "too small"),
        ({"shift": 1.0}, "shift"),
        ({"shift": -50.0, "confidence": 0.26}, "shift"),
        ({"classes": 400, "confidence": 0.9}, "classes"),
        ({"classes": None}, "only one"),
        ({"confidence": None}, "only one"),
    ],
)
def test_what_does_not_follow_for_the_joint_model_is_refuted(case, change, why):
    outcome, reason = verdict(replace(case[2], **change))
    assert outcome == "refuted"
    assert why in reason


def test_a_confidence_may_be_larger(case):
    assert verdict(replace(case[2], confidence=0.999999))[0] == "confirmed"


def test_a_bare_discriminator_has_no_confidence(make_model, make_images, certificate_of):
    path, name = make_model(), make_images()
    image = load_images(name).floats([0])[0].numpy()
    one = certificate_of(path, name, 0, image, 100.0)
    assert verdict(one)[0] == "confirmed"
    assert verdict(replace(one, shift=2.0))[0] == "refuted"
    assert verdict(replace(one, classes=3, confidence=1.0))[0] == "refuted"


def test_other_arithmetic_and_overflow_are_not_decided(case, make_model, certificate_of):
    _, name, one = case
    assert verdict(replace(one, arithmetic="bfloat16"))[0] == "not decided"
    huge = make_model("huge", image=(1, 8, 8), scale=1e20)
    image = load_images(name).floats([1])[0].numpy()
    outcome, reason = verdict(certificate_of(huge, name, 1, image, 0.0))
    assert outcome == "not decided"
    assert "overflow" in reason


def test_an_image_of_another_shape_is_refuted(make_model, make_images, certificate_of):
    path, name = make_model(), make_images(shape=(7, 7))
    outcome, reason = verdict(certificate_of(path, name, 0, load_images(name).floats([0])[0].numpy(), 100.0))
    assert outcome == "refuted"
    assert "shape" in reason


def test_noise_and_pictures_are_images_too(make_model, certificate_of, tmp_path):
    from PIL import Image

    path = make_model()
    like = load_images("uniform", like=type("Like", (), {"shape": (1, 6, 6)}))
    assert verdict(certificate_of(path, "uniform", 7, like.floats([7])[0].numpy(), 100.0))[0] == "confirmed"
    pixels = np.arange(36, dtype=np.uint8).reshape(6, 6)
    Image.fromarray(pixels).save(tmp_path / "a.png")
    image = pixels[None].astype(np.float32) / np.float32(255)
    one = certificate_of(path, "x", 0, image, 100.0)
    picture = replace(one, input=ImageReference(str(tmp_path / "a.png"), None, image_sha256(image)))
    assert verdict(picture)[0] == "confirmed"
    assert verdict(replace(picture, input=replace(picture.input, name="none.png")))[0] == "not decided"


@pytest.mark.slow
def test_no_float32_value_is_ever_above_a_confirmed_bound(case, returned):
    """Bounds lowered until they are no longer confirmed: the last that was is still above all that float32 returns."""
    path, name, one = case
    model = load(path)[0].discriminator
    image = load_images(name).floats([1])[0].numpy()
    ball = Ball(image, "linf", one.eps)
    point = highest(read_model(path).network, ball, np.inf).image
    most = max(*returned(model, image), *returned(model, point))
    with torch.no_grad():
        most = max(most, model(torch.from_numpy(point)[None]).item())
    for step in np.linspace(0, 1, 11):
        stated = float(np.float32(one.bound - step))
        outcome = verdict(replace(one, bound=stated, confidence=1.0))[0]
        assert outcome != "confirmed" or stated >= most


def test_without_flint_it_says_what_to_install(monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "flint", None)
    with pytest.raises(MissingPackage, match=r"'\.\[verify\]'"):
        flint()
