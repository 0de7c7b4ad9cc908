"""prood calibrate: whatever a user gets wrong about the gate is one line, and the run stays as it is."""

import math

import numpy as np
import pytest
import torch

from prood.models import Gate, Gated, ProoD, discriminator, load, save, small


@pytest.fixture
def run(tmp_path):
    torch.manual_seed(3)
    f, g = small(8, width=4).eval(), discriminator("digits", image=(1, 28, 28)).eval()
    with torch.no_grad():
        f[-1].weight.mul_(60)
        g.last.log_weight.sub_(2.0)
    save(ProoD(f, g, 1.5).eval(), tmp_path / "run" / "model.safetensors", eps=0.1)
    return tmp_path / "run"


def changed(run, change):
    model, about = load(run)
    with torch.no_grad():
        change(model.discriminator)
    save(model, run / "model.safetensors", eps=about.eps)


@pytest.mark.parametrize(
    ("words", "needed"),
    [
        (("--provable", "1.5"), "1.5"),
        (("--provable=-0.1",), "-0.1"),
        (("--provable", "nan"), "nan"),
        (("--provable", "most"), "most"),
        (("--provable", "default"), "--outside"),
        (("--provable", "strong", "--outside", "faces"), "400"),
        (("--accept", "0"), "accept"),
        (("--accept", "1.5"), "1.5"),
        (("--accept", "nan"), "nan"),
        (("--accept", "0.9", "--level", "1"), "level"),
        (("--provable", "0.3", "--accept", "0.999"), "5990"),
        (("--outside", "uniform", "--eps", "-1"), "radius"),
        (("--outside", "nothing"), "nothing"),
    ],
)
def test_what_a_user_gets_wrong(prood, run, words, needed):
    before = (run / "model.safetensors").read_bytes()
    code, _, err = prood("calibrate", run, "digits:validation", *words)
    assert (code, err.count("\n"), needed in err) == (2, 1, True), err
    assert (run / "model.safetensors").read_bytes() == before
    assert not (run / "calibration.json").exists()


def test_too_few_images_for_a_gate(prood, run, tmp_path):
    images = np.random.default_rng(0).integers(0, 256, (150, 28, 28), dtype=np.uint8)
    np.savez(tmp_path / "few.npz", images=images)
    code, _, err = prood("calibrate", run, f"npz:{tmp_path / 'few.npz'}", "--accept", 0.8, "--provable", 0.3)
    assert (code, err.count("\n"), "200" in err, "150" in err) == (2, 1, True, True), err


@pytest.mark.parametrize(
    ("change", "needed"),
    [
        (lambda g: g.last.log_weight.fill_(-200.0), "is equal on all images"),
        (lambda g: g.body[1].weight.fill_(torch.nan), "NaN"),
        (lambda g: g.last.bias.fill_(torch.inf), "finite"),
    ],
)
def test_a_discriminator_that_cannot_be_a_gate(prood, run, change, needed):
    changed(run, change)
    before = (run / "model.safetensors").read_bytes()
    code, _, err = prood("calibrate", run, "digits:validation", "--accept", 0.8, "--provable", 0.3)
    assert (code, err.count("\n"), needed in err) == (2, 1, True), err
    assert (run / "model.safetensors").read_bytes() == before


@pytest.mark.parametrize(
    ("knots", "caps"),
    [((-1.0, 2.0), (-3.0, -4.0)), ((-1.0, -1.0), (-4.0, -3.0)), ((-1.0, 2.0), (-4.0, math.nan)), ((0.0,), (1.0,))],
)
@pytest.mark.parametrize("command", ["calibrate", "info", "certify"])
def test_a_file_whose_gate_is_none(prood, run, knots, caps, command):
    """One that falls, that has two values at a point, that is NaN, or that is above g."""
    model, about = load(run)
    gate = Gate((0.0, 1.0)[: len(knots)], (-9.0, -8.0)[: len(knots)])
    gated = Gated(model.classifier, model.discriminator, gate, 1.5)
    gated.knots.copy_(torch.tensor(knots))
    gated.caps.copy_(torch.tensor(caps))
    save(gated, run / "model.safetensors", eps=about.eps, threshold=0.5)
    before = (run / "model.safetensors").read_bytes()
    words = {
        "calibrate": (run, "digits:validation", "--accept", 0.9),
        "info": (run,),
        "certify": ("faces", "--model", run, "--eps", 0.1),
    }
    code, _, err = prood(command, *words[command])
    assert (code, err.count("\n"), "model.safetensors" in err) == (2, 1, True), err
    assert (run / "model.safetensors").read_bytes() == before


def test_equal_images_are_ties_and_no_trouble(prood, run, tmp_path):
    """Twenty images, each twenty times: the levels that ties leave are enough."""
    images = np.random.default_rng(0).integers(0, 256, (20, 28, 28), dtype=np.uint8).repeat(20, 0)
    np.savez(tmp_path / "ties.npz", images=images)
    code, out, _ = prood("calibrate", run, f"npz:{tmp_path / 'ties.npz'}", "--accept", 0.8, "--provable", 0.3)
    assert (code, "30% of the false rejections" in out) == (0, True)
    assert 1 <= len(load(run)[0].gate.knots) < 20
