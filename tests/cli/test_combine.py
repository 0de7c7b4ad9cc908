"""prood combine, and models of the former prood fuse, as a user meets them."""

import json

import pytest
import torch

from prood.models import Curve, Fusion, Gated, discriminator, load, save, small
from prood.studies import shift_from_prior


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """A classifier and a discriminator with random weights, in the files of two runs."""
    folder = tmp_path_factory.mktemp("combine")
    torch.manual_seed(0)
    f, g = small(8, width=4).eval(), discriminator("digits", image=(1, 28, 28)).eval()
    with torch.no_grad():
        f[-1].weight.mul_(60)
        g.last.log_weight.sub_(2.0)
    for name, model, eps in (("oe", f, None), ("discriminator", g, 0.02)):
        (folder / name).mkdir()
        save(model, folder / name / "model.safetensors", eps=eps, data={"digits:train": "0"})
    return folder


def test_a_discriminator_of_smaller_images(prood, runs, tmp_path):
    f, _ = load(runs / "oe")
    for side, image in ((14, 28), (20, 28)):
        save(f, tmp_path / "f.safetensors", image=[1, image, image])
        save(discriminator("digits", image=(1, side, side)), tmp_path / "g.safetensors", eps=0.02)
        words = ("--classifier", tmp_path / "f.safetensors", "--discriminator", tmp_path / "g.safetensors")
        code, _, err = prood("combine", *words, "--shift", 1, "--run", tmp_path / f"run-{side}")
        assert (code, err.count("\n")) == ((0, 0) if side == 14 else (2, 1))
    assert "1×20×20 and 1×40×40" in err
    model, _ = load(tmp_path / "run-14")
    assert model.discriminator.image == (1, 28, 28)


@pytest.mark.slow
def test_everything_takes_a_fused_model_of_before(prood, runs, tmp_path):
    run = tmp_path / "fused"
    model = Fusion(load(runs / "oe")[0], load(runs / "discriminator")[0], Curve(2.0, 3.0, -0.5), 1.5).eval()
    save(model, run / "model.safetensors", eps=0.02, data={"digits:train": "0"}, recipe={"method": "fuse"})
    code, out, _ = prood("info", run)
    assert (code, "fused joint model" in out) == (0, True)
    certificates = tmp_path / "certificates.jsonl"
    words = ("--model", run, "--eps", 0.01, "--limit", 2, "--out", certificates)
    assert prood("certify", "digits:test", *words)[0] == 0
    code, out, _ = prood("verify", certificates)
    assert (code, "2 confirmed, 0 refuted, 0 not decided" in out) == (0, True)
    words = ("--out", "uniform", "--in", "digits:test", "--limit", 3, "--attacks", "none")
    assert prood("evaluate", run, *words)[0] == 0
    assert json.loads((run / "results.json").read_text())["evaluations"][0]["certificate"] == "best, float32"


def test_a_fused_model_can_have_no_gate(prood, runs, tmp_path):
    model = Fusion(load(runs / "oe")[0], load(runs / "discriminator")[0], Curve(2.0, 3.0, -0.5), 1.5).eval()
    save(model, tmp_path / "model.safetensors", eps=0.02)
    before = (tmp_path / "model.safetensors").read_bytes()
    code, _, err = prood("calibrate", tmp_path, "digits:validation", "--provable", 0.3)
    assert (code, err.count("\n")) == (2, 1)
    assert (tmp_path / "model.safetensors").read_bytes() == before
    assert prood("calibrate", tmp_path, "digits:validation", "--accept", 0.9)[0] == 0  # a threshold it can have
    again, about = load(tmp_path)
    assert (type(again), about.accept) == (Fusion, 0.9)


def test_a_threshold_comes_with_the_model(prood, runs, tmp_path):
    """As by combine and then calibrate."""
    parts = ("--classifier", runs / "oe", "--discriminator", runs / "discriminator", "--shift", 1.5, "--device", "cpu")
    asked = ("--accept", 0.9, "--level", 0.9, "--provable", 0.3)
    code, out, _ = prood("combine", *parts, "--run", tmp_path / "one", "--calibrate", "digits:validation", *asked)
    assert code == 0
    assert "accuracy: " in out
    assert "accepts 90% of digits:validation" in out
    assert prood("combine", *parts, "--run", tmp_path / "two")[0] == 0
    assert prood("calibrate", tmp_path / "two", "digits:validation", *asked, "--device", "cpu")[0] == 0
    (one, about), (two, also) = load(tmp_path / "one"), load(tmp_path / "two")
    assert isinstance(one, Gated)
    assert all(torch.equal(value, two.state_dict()[name]) for name, value in one.state_dict().items())
    assert (about.threshold, about.accept) == (also.threshold, 0.9)
    assert about.recipe["method"] == "combine"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--calibrate", "nothing"), "no image set 'nothing'"),
        (("--calibrate", "digits:validation", "--accept", 1), "above 0 and below 1"),
        (("--calibrate", "digits:validation", "--provable", 2), "between 0 and 1"),
        (("--calibrate", "digits:validation", "--provable", "strong"), "--outside"),
        (("--accept", 0.9), "--calibrate SET"),
    ],
)
def test_a_threshold_that_cannot_be_set_is_refused_before_anything_is_made(prood, runs, tmp_path, words, said):
    parts = ("--classifier", runs / "oe", "--discriminator", runs / "discriminator", "--shift", 1.5)
    code, _, err = prood("combine", *parts, "--run", tmp_path / "run", *words)
    assert (code, err.count("\n")) == (2, 1)
    assert said in err
    assert not (tmp_path / "run").exists()
    start = ("train", "prood", "--recipe", "quickstart", "--discriminator", runs / "discriminator")
    code, _, err = prood(*start, "--run", tmp_path / "run", *words)
    assert (code, err.count("\n")) == (2, 1)
    assert said in err
    assert not (tmp_path / "run").exists()


def test_only_a_joint_model_has_a_threshold(prood, tmp_path):
    code, _, err = prood("train", "plain", "--run", tmp_path / "run", "--calibrate", "digits:validation")
    assert (code, err.count("\n")) == (2, 1)
    assert "--calibrate works for joint models only" in err


def test_the_command_that_fused_is_gone(prood):
    code, _, err = prood("fuse", "a", "b", "--run", "x")
    assert (code, err.count("\n"), "fuse" in err) == (2, 1, True)


def test_combine_takes_a_prior(prood, runs, tmp_path):
    parts = ("--classifier", runs / "oe", "--discriminator", runs / "discriminator")
    assert prood("combine", *parts, "--prior", 0.1, "--run", tmp_path / "a")[0] == 0
    assert load(tmp_path / "a")[0].shift.item() == pytest.approx(shift_from_prior(0.1))
    code, _, err = prood("combine", *parts, "--run", tmp_path / "b")
    assert (code, "give --shift, or --prior" in err) == (2, True)
    code, _, err = prood("combine", *parts, "--prior", 1.5, "--run", tmp_path / "b")
    assert (code, "between 0 and 1" in err) == (2, True)
    assert not (tmp_path / "b").exists()


def test_it_is_evaluated_by_the_method_of_the_discriminator(prood, runs, tmp_path):
    """A classifier's own, such as GOOD's, is for the classifier's certificate."""
    for name, method in (("oe", "ibp"), ("discriminator", "crown-ibp")):
        model, about = load(runs / name)
        (tmp_path / name).mkdir()
        recipe = {"evaluate": {"outside": [], "limit": 7, "method": method}}
        save(model, tmp_path / name / "model.safetensors", eps=about.eps, data=about.data, recipe=recipe)
    parts = ["--classifier", tmp_path / "oe", "--discriminator", tmp_path / "discriminator"]
    code, _, err = prood("combine", *parts, "--shift", 1, "--run", tmp_path / "run")
    assert (code, err) == (0, "")
    assert load(tmp_path / "run")[1].recipe["evaluate"] == {"outside": [], "limit": 7, "bound": "crown-ibp"}


def test_parts_for_other_images_are_not_combined(prood, runs, tmp_path):
    """Nor does a network for colour take grey images for three equal channels."""
    for place, channels in ((tmp_path / "grey", 1), (tmp_path / "colour", 3)):
        f = small(8, width=4, channels=4 - channels).eval()
        save(f, place / "oe" / "model.safetensors")
        save(discriminator("digits", image=(channels, 28, 28)).eval(), place / "disc" / "model.safetensors", eps=0.02)
        words = ["--classifier", place / "oe", "--discriminator", place / "disc", "--shift", 1]
        code, _, err = prood("combine", *words, "--run", tmp_path / "run")
        assert (code, err.count("\n")) == (2, 1)
        assert f"does not take the images of {place / 'disc'}, of shape ({channels}, 28, 28)" in err
        assert not (tmp_path / "run").exists()
