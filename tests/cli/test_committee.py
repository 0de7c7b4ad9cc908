"""prood committee, and everything that takes a discriminator, with a committee in its place."""

import json

import numpy as np
import pytest
import torch

from prood import data
from prood.detector import Detector
from prood.models import Committee, Gated, discriminator, load, save, small


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """A classifier and two discriminators with random weights, in the files of three runs; and another shape."""
    folder = tmp_path_factory.mktemp("committee")
    torch.manual_seed(0)
    models = {"plain": small(8, width=4)}
    models |= {size: discriminator(size, image=(1, 28, 28)) for size in ("digits", "digits-S")}
    models["colour"] = discriminator("XS")
    with torch.no_grad():
        models["plain"][-1].weight.mul_(60)
        models["digits"].last.log_weight.sub_(2.0)
        models["digits-S"].last.log_weight.sub_(1.0)
    for name, model in models.items():
        eps = {"digits": 0.02, "digits-S": 0.05}.get(name)
        save(model.eval(), folder / name / "model.safetensors", eps=eps, data={"digits:train": "0"})
    return folder


@pytest.fixture(scope="module")
def members(runs):
    return ("--discriminator", runs / "digits", "--discriminator", runs / "digits-S", "--inside", "digits:validation")


@pytest.mark.slow
def test_a_committee_goes_where_a_discriminator_goes(prood, runs, members, tmp_path):
    code, out, _ = prood("committee", *members, "--share", "0.7,0.3", "--run", tmp_path / "g")
    assert (code, "2 members" in out) == (0, True)
    model, about = load(tmp_path / "g")
    assert isinstance(model, Committee)
    assert (about.eps, about.recipe["shares"]) == (0.02, [0.7, 0.3])
    assert set(about.data) == {"digits:train", "digits:validation"}

    joint = tmp_path / "joint"
    words = ("--classifier", runs / "plain", "--discriminator", tmp_path / "g", "--shift", 1.5, "--run", joint)
    assert prood("combine", *words)[0] == 0
    assert prood("calibrate", joint, "digits:test", "--accept", 0.8, "--provable", 0.4)[0] == 0
    detector = Detector.load(joint)
    assert isinstance(detector.model, Gated)
    assert isinstance(detector.discriminator, Committee)
    assert detector.predict(data.load("digits:test")).accepted.mean() > 0.7
    code, out, _ = prood("info", joint)
    assert (code, "gated joint model" in out) == (0, True)
    assert "committee of discriminators" in prood("info", tmp_path / "g")[1]

    words = ("--out", "uniform", "--in", "digits:test", "--limit", 12, "--attacks", "fast", "--eps", 0.02)
    assert prood("evaluate", joint, *words)[0] == 0  # which stops at a score above its bound
    (found,) = json.loads((joint / "results.json").read_text())["evaluations"]
    assert found["gauc"] <= found["aauc"] <= found["auc"]
    out = prood("info", joint)[1]
    shares = [line.split()[0] for line in out.splitlines() if line.strip().startswith(("99.0%", "95.0%", "50.0%"))]
    assert shares == ["99.0%", "95.0%", "50.0%"]
    assert "(the threshold)" in out
    assert prood("calibrate", joint, "digits:test", "--provable", 0.1)[0] == 0  # another gate, another price
    assert "(the threshold)" not in prood("info", joint)[1]

    certificates = tmp_path / "certificates.jsonl"
    words = ("--model", joint, "--eps", 0.01, "--limit", 2, "--out", certificates)
    assert prood("certify", "digits:test", *words)[0] == 0
    assert "2 confirmed, 0 refuted, 0 not decided" in prood("verify", certificates)[1]
    assert prood("export", joint, tmp_path / "model.onnx")[0] == 0


@pytest.mark.parametrize(
    ("words", "needed"),
    [
        (("--share", "0.5,0.4"), "0.9"),
        (("--share", "1"), "2 members"),
        (("--share", "half,half"), "half"),
        (("--share", "1.5,-0.5"), "1.5"),
        (("--discriminator", "{runs}/colour"), "(3, 32, 32)"),
        (("--discriminator", "{runs}/plain"), "plain"),
        (("--discriminator", "{runs}/nothing"), "nothing"),
        (("--inside", "npz:{runs}/few.npz"), "too few"),
    ],
)
def test_what_a_user_gets_wrong(prood, runs, members, tmp_path, words, needed):
    np.savez(runs / "few.npz", images=np.zeros((40, 28, 28), np.uint8))
    given = [str(word).format(runs=runs) for word in (*members, *words)]
    code, _, err = prood("committee", *given, "--run", tmp_path / "g")
    assert (code, err.count("\n"), needed in err) == (2, 1, True), err
    assert not (tmp_path / "g").exists()


def test_one_member_is_none(prood, runs, members, tmp_path):
    code, _, err = prood("committee", *members[2:], "--run", tmp_path / "g")
    assert (code, err.count("\n"), "two" in err) == (2, 1, True)


def test_a_folder_that_is_taken(prood, runs, members):
    code, _, err = prood("committee", *members, "--run", runs / "digits")
    assert (code, err.count("\n"), "digits" in err) == (2, 1, True)
