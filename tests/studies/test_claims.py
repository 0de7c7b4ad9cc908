"""Published numbers, measured again."""

import json

import pytest

from prood import ProodError
from prood.evaluation import evaluate_run
from prood.models import ProoD, discriminator, save, small
from prood.report.claims import claims_table
from prood.studies import check_claims, publish
from prood.studies.claims import Which
from prood.studies.published import read_one


@pytest.fixture
def claimed(tmp_path, monkeypatch):
    """A run on digits, in the current folder, and what was published of it."""
    monkeypatch.chdir(tmp_path)
    model = ProoD(small(8, width=4), discriminator("digits", image=(1, 28, 28)), 1.0).eval()
    save(model, "run/model.safetensors", eps=0.05, inside="digits:train", data={"digits:train": "x"})
    (tmp_path / "run" / "recipe.json").write_text("{}")
    for limit, method in ((6, "best"), (5, "ibp")):
        options = {"outside": ["uniform", "faces"], "eps": [0.02, 0.05], "limit": limit, "method": method}
        evaluate_run("run", attacks=None, device="cpu", **options)
    evaluate_run("run", outside=["uniform"], eps=[0.02], attacks="fast", limit=2, device="cpu")
    publish("run", "published.json", command="prood", title="ProoD", outside="photographs")
    return tmp_path / "published.json"


def changed(file, row, **values):
    content = json.loads(file.read_text())
    content["evaluations"][row] |= values
    file.write_text(json.dumps(content))


@pytest.mark.slow
def test_every_claim_of_the_same_weights_holds(claimed):
    claims = check_claims(read_one(claimed), "run", device="cpu")
    assert [(one.published.outside, one.published.images) for one in claims] == [
        *[("uniform", 6)] * 2,
        *[("faces", 6)] * 2,
        *[("uniform", 5)] * 2,
        *[("faces", 5)] * 2,
    ]
    for one in claims:
        assert one.holds
        assert one.gaps.keys() == {"accuracy", "auc", "gauc", "fpr95", "gfpr95"}
        assert max(map(abs, one.gaps.values())) < 1e-6  # six digits are published


@pytest.mark.slow
def test_they_are_measured_aside_and_not_taken_from_the_run(claimed, tmp_path):
    before = (tmp_path / "run" / "results.json").read_bytes()
    published = read_one(claimed)
    first = check_claims(published, "run", Which(eps=[0.02], bound="ibp"), device="cpu")
    assert (tmp_path / "run" / "results.json").read_bytes() == before
    (place,) = (tmp_path / "runs" / "again").iterdir()
    assert place.name == published.weights
    again = check_claims(
        published, "run", Which(eps=[0.02], bound="ibp"), device="cpu"
    )  # what is there is not made again
    assert [one.again.seconds for one in again] == [one.again.seconds for one in first]


@pytest.mark.slow
@pytest.mark.parametrize("metric", ["accuracy", "auc", "gauc"])
@pytest.mark.parametrize(("by", "holds"), [(0.0009, True), (-0.0009, True), (0.0012, False), (-0.0012, False)])
def test_a_tenth_of_a_point_is_tolerated(claimed, metric, by, holds):
    value = getattr(read_one(claimed).evaluations[0], metric)
    changed(claimed, 0, **{metric: value + by})
    found = check_claims(read_one(claimed), "run", Which(outside=["uniform"], eps=[0.02], bound="best"), device="cpu")
    (claim,) = found
    assert claim.holds is holds
    assert claim.gaps[metric] == pytest.approx(-by, abs=1e-6)
    assert list(claims_table(found).columns[-1].cells) == ["holds" if holds else "differs"]


@pytest.mark.slow
@pytest.mark.parametrize("metric", ["fpr95", "gfpr95"])
def test_rates_at_one_threshold_are_shown_and_not_judged(claimed, metric):
    changed(claimed, 0, **{metric: 0.4321})
    found = check_claims(read_one(claimed), "run", Which(outside=["uniform"], eps=[0.02], bound="best"), device="cpu")
    assert found[0].holds
    assert any(cell.startswith("43.2 (") for column in claims_table(found).columns for cell in column.cells)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["inside", "outside"])
def test_other_images_of_the_same_name_say_nothing_about_a_claim(claimed, kind):
    prints = read_one(claimed).evaluations[0].fingerprints
    changed(claimed, 0, fingerprints=prints | {kind: "0123456789abcdef"}, auc=0.123)
    first, second = check_claims(read_one(claimed), "run", Which(outside=["uniform"], bound="best"), device="cpu")
    assert not first.same_images
    assert not first.holds
    assert second.holds
    assert list(claims_table([first, second]).columns[-1].cells) == ["other images", "holds"]


@pytest.mark.slow
def test_the_weights_must_be_those_that_were_published(claimed):
    save(ProoD(small(8, width=4), discriminator("digits", image=(1, 28, 28)), 1.0), "other/model.safetensors")
    with pytest.raises(ProodError, match=r"^other has the weights \w+, and \w+ were published: name that model$"):
        check_claims(read_one(claimed), "other", device="cpu")


@pytest.mark.slow
@pytest.mark.parametrize("asked", [{"outside": ["svhn"]}, {"eps": [0.3]}, {"bound": "crown"}])
def test_what_was_not_published_cannot_be_checked(claimed, asked):
    with pytest.raises(ProodError, match=r"choose among the sets uniform, faces and radii 0\.02, 0\.05$"):
        check_claims(read_one(claimed), "run", Which(**asked), device="cpu")


@pytest.mark.slow
def test_on_the_command_line(claimed, prood):
    words = ["reproduce", "claims", "published.json", "--model", "run", "--method", "best", "--device", "cpu"]
    code, out, _ = prood(*words)
    assert code == 0
    assert out.count("holds") == 4
    changed(claimed, 0, gauc=0.5)
    code, out, err = prood(*words, "--eps", "0.02")
    assert (code, err) == (2, "error: 1 of 2 evaluations differ from what published.json says\n")
    assert (out.count("holds"), out.count("differs")) == (1, 1)
    changed(claimed, 0, fingerprints={})
    code, out, err = prood(*words, "--eps", "0.02", "--out", "uniform")
    assert code == 2
    assert err.startswith("error: no set here has the published images")
