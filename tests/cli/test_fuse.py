"""prood fuse, and --prior, as a user meets them."""

import json

import numpy as np
import pytest
import torch

from prood import data
from prood.models import Curve, Fusion, ProoD, discriminator, load, save, score_of, small
from prood.studies import shift_from_prior

RECIPE = """
[data]
inside = "npz:{0}/inside.npz"
outside = "npz:{0}/outside.npz"
held_back = 40
[networks.classifier]
name = "small"
[networks.discriminator]
size = "digits"
[train.discriminator]
epochs = 1
eps = 0.02
"""


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """A classifier and a discriminator with random weights, in the files of two runs."""
    folder = tmp_path_factory.mktemp("fuse")
    torch.manual_seed(0)
    f, g = small(8, width=4).eval(), discriminator("digits", image=(1, 28, 28)).eval()
    with torch.no_grad():
        f[-1].weight.mul_(60)
        g.last.log_weight.sub_(2.0)
    for name, model, eps in (("oe", f, None), ("discriminator", g, 0.02)):
        (folder / name).mkdir()
        save(model, folder / name / "model.safetensors", eps=eps, data={"digits:train": "0"})
    images = data.load("digits:test").images[:50].numpy()
    np.savez(folder / "inside.npz", images=images, labels=np.arange(50) % 8)
    np.savez(folder / "outside.npz", images=images // 3)
    (folder / "few.toml").write_text(RECIPE.format(folder))
    return folder


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--recipe", "smaller.toml"), "has images of shape (1, 14, 14), and"),
        (("--recipe", "few.toml", "--eps", "nan"), "eps is a radius, 0 or more, not nan"),
        (("--recipe", "few.toml", "--eps", "-1"), "eps is a radius, 0 or more, not -1"),
        (("--recipe", "few.toml", "--shift", "inf"), "a shift is a finite number, not inf"),
    ],
)
def test_what_does_not_fit_is_one_line(prood, runs, tmp_path, monkeypatch, words, said):
    monkeypatch.chdir(tmp_path)
    np.savez(tmp_path / "small.npz", images=np.zeros((50, 14, 14), np.uint8), labels=np.arange(50) % 8)
    (tmp_path / "few.toml").write_text(RECIPE.format(runs))
    other = RECIPE.format(runs).replace(f"{runs}/inside", "small").replace(f"{runs}/outside", "small")
    (tmp_path / "smaller.toml").write_text(other)
    code, _, err = prood("fuse", runs / "oe", runs / "discriminator", "--run", "fused", *words)
    assert (code, err.count("\n")) == (2, 1)
    assert said in err
    assert not (tmp_path / "fused").exists()


@pytest.mark.slow
def test_fuse_writes_a_run_that_everything_takes(prood, runs, tmp_path):
    run = tmp_path / "fused"
    parts = (runs / "oe", runs / "discriminator", "--recipe", runs / "few.toml", "--run", run)
    code, out, err = prood("fuse", *parts, "--auc-drop", "2", "--prior", "0.25")
    assert (code, err) == (0, "")
    assert "the classifier alone has AUC" in out
    assert f"wrote {run}" in out
    facts = json.loads((run / "fusion.json").read_text())
    model, about = load(run)
    assert isinstance(model, Fusion)
    assert model.curve == Curve(**facts["fusion"]["curve"])
    assert about.eps == 0.02
    assert about.shift == pytest.approx(shift_from_prior(0.25))
    assert facts["least_auc"] == pytest.approx(facts["classifier_auc"] - 0.02)
    assert facts["fusion"]["gauc"] <= facts["ceiling"]
    assert facts["images"] == {"inside": 40, "outside": 40}

    again = prood("fuse", *parts, "--auc-drop", "2", "--prior", "0.25")
    assert again[0] == 2
    assert "holds a run already" in again[2]
    before = (run / "model.safetensors").read_bytes()
    assert prood("fuse", *parts, "--auc-drop", "2", "--prior", "0.25", "--resume")[0] == 0
    assert (run / "model.safetensors").read_bytes() == before

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


@pytest.mark.slow
@torch.no_grad()
def test_the_classifier_of_a_joint_model_is_fused_anew(prood, runs, tmp_path):
    joint = ProoD(load(runs / "oe")[0], load(runs / "discriminator")[0], 3.0)
    (tmp_path / "joint").mkdir()
    save(joint, tmp_path / "joint" / "model.safetensors")
    for name, part in (("a", tmp_path / "joint"), ("b", runs / "oe")):
        words = ("--recipe", runs / "few.toml", "--run", tmp_path / name)
        assert prood("fuse", part, runs / "discriminator", *words)[0] == 0
    images = data.load("digits:test").floats(range(5))
    one, other = (score_of(load(tmp_path / name)[0])(images) for name in ("a", "b"))
    assert one.equal(other)


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (("{0}/discriminator", "{0}/discriminator", "--run", "x"), "holds a discriminator: give a classifier"),
        (("{0}/oe", "{0}/oe", "--run", "x"), "holds no discriminator"),
        (("{0}/oe", "{0}/discriminator", "--run", "x", "--auc-drop", "-1"), "0 to 100 points"),
        (("{0}/oe", "{0}/discriminator", "--run", "x", "--recipe", "mnist"), "no recipe 'mnist'"),
        (("{0}/oe", "{0}/discriminator", "--run", "x", "--shift", "1", "--prior", "0.1"), "one of --shift and --prior"),
        (("{0}/oe", "{0}/nothing", "--run", "x"), "no model at"),
    ],
)
def test_what_a_user_can_mend_is_one_line(prood, runs, tmp_path, monkeypatch, words, complaint):
    monkeypatch.chdir(tmp_path)
    code, out, err = prood("fuse", *(word.format(runs) for word in words))
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert complaint in err
    assert not (tmp_path / "x").exists()


def test_combine_takes_a_prior(prood, runs, tmp_path):
    parts = ("--classifier", runs / "oe", "--discriminator", runs / "discriminator")
    assert prood("combine", *parts, "--prior", 0.1, "--run", tmp_path / "a")[0] == 0
    assert load(tmp_path / "a")[0].shift.item() == pytest.approx(shift_from_prior(0.1))
    code, _, err = prood("combine", *parts, "--run", tmp_path / "b")
    assert (code, "give --shift, or --prior" in err) == (2, True)
    code, _, err = prood("combine", *parts, "--prior", 1.5, "--run", tmp_path / "b")
    assert (code, "between 0 and 1" in err) == (2, True)
    assert not (tmp_path / "b").exists()


@pytest.mark.slow
@pytest.mark.parametrize("command", ["fuse", "combine"])
def test_it_is_evaluated_by_the_method_of_the_discriminator(prood, runs, tmp_path, command):
    """A classifier's own, such as GOOD's, is for the classifier's certificate."""
    for name, method in (("oe", "ibp"), ("discriminator", "crown-ibp")):
        model, about = load(runs / name)
        (tmp_path / name).mkdir()
        recipe = {"evaluate": {"outside": [], "limit": 7, "method": method}}
        save(model, tmp_path / name / "model.safetensors", eps=about.eps, data=about.data, recipe=recipe)
    words = ["--recipe", runs / "few.toml"] if command == "fuse" else ["--shift", 1]
    parts = [tmp_path / "oe", tmp_path / "discriminator"]
    parts = parts if command == "fuse" else ["--classifier", parts[0], "--discriminator", parts[1]]
    code, _, err = prood(command, *parts, *words, "--run", tmp_path / "run")
    assert (code, err) == (0, "")
    assert load(tmp_path / "run")[1].recipe["evaluate"] == {"outside": [], "limit": 7, "method": "crown-ibp"}


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


@pytest.mark.slow
def test_an_auc_that_cannot_be_kept_is_said(prood, tmp_path, runs):
    g, about = load(runs / "discriminator")
    with torch.no_grad():
        for weight in g.parameters():
            weight.neg_() if weight is not g.last.bias else None
    save(g, tmp_path / "worse" / "model.safetensors", eps=0.02, data=about.data)
    for drop, kept in ((0, False), (50, True)):
        run = tmp_path / f"run-{drop}"
        words = (runs / "oe", tmp_path / "worse", "--recipe", runs / "few.toml", "--run", run, "--auc-drop", drop)
        code, out, _ = prood("fuse", *words)
        facts = json.loads((run / "fusion.json").read_text())
        assert code == 0
        assert (facts["fusion"]["auc"] >= facts["least_auc"]) == kept
        assert ("no curve has the AUC that was asked for" in out) != kept
