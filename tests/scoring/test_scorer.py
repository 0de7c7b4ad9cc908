"""A Scorer says what the Detector says, about arrays, bytes and paths, in this process and in others."""

import pickle
import subprocess
import sys
import warnings

import numpy as np
import pytest
import torch
from torch import nn

from prood.certification.record import image_sha256
from prood.detector import Detector
from prood.errors import BadValue, Mismatch, NotFound, Unsupported
from prood.models import Discriminator, ProoD, discriminator, fingerprint, open_classifier, save, small
from prood.models.wrapped import trusting_code
from prood.scoring import Options, Scorer

EPS = (0.004, 0.02)


def agree(rows, detector, images, eps=EPS):
    """The rows are what predict and certify say of these images."""
    answer = detector.predict(images)
    assert rows["label"].tolist() == answer.label.tolist()
    np.testing.assert_allclose(rows["confidence"], answer.confidence, rtol=1e-6)
    np.testing.assert_allclose(rows["p_in"], answer.p_in, rtol=1e-6)
    assert rows["accepted"].tolist() == answer.accepted.tolist()
    assert rows["reason"].tolist() == list(answer.reason)
    assert 0 < rows["accepted"].sum() < len(images)
    for one in eps:
        bounds = detector.upper_bounds(images, eps)[:, list(eps).index(one)]
        np.testing.assert_allclose(rows[f"upper_bound_{one:g}"], bounds, rtol=1e-6)
        assert rows[f"rejected_{one:g}"].tolist() == detector.rule.rejects(bounds).tolist()
        assert 0 < rows[f"rejected_{one:g}"].sum() < len(images)
    assert rows["sha256"].tolist() == [image_sha256((image / 255).astype(np.float32)) for image in images]
    assert set(rows["fingerprint"]) == {fingerprint(detector.model)}
    assert set(rows["bound"]) == {"best"}
    assert set(rows["error"]) == {None}


def test_rows_are_what_the_detector_says(run, detector, images, contents, photos):
    scorer = Scorer(run, eps=EPS, device="cpu")
    paths = sorted(photos.rglob("[0-9]*.png"))
    for batch in (
        {"image": images},
        {"image": images.astype(np.float32) / 255},
        {"bytes": contents},
        {"bytes": np.array(contents, dtype=object)},
        {"path": [str(path) for path in paths]},
        {"image": [{"bytes": content, "path": None} for content in contents]},
    ):
        agree(scorer(batch), detector, images)


def test_one_radius_and_how_far_the_proof_reaches(detector, images):
    rows = Scorer(detector, eps=0.02, radius=True)({"image": images})
    proof = detector.certify(images, 0.02)
    np.testing.assert_allclose(rows["upper_bound_0.02"], proof.upper_bound, rtol=1e-6)
    reach = np.concatenate([detector.certified_radius(torch.from_numpy(images) / 255)])
    reach = detector.rule.reach(reach, proof.upper_bound[:, None], [0.02])
    np.testing.assert_allclose(rows["radius"], reach, rtol=1e-6)
    assert 0 < np.isnan(reach).sum() < len(images)


def test_a_damaged_image_is_a_row_that_says_so_and_the_others_are_as_without_it(detector, images, contents):
    spoilt = [*contents[:5], b"no picture", contents[5][:40], None, *contents[5:]]
    rows = Scorer(detector, eps=EPS)({"bytes": spoilt})
    assert [place for place, error in enumerate(rows["error"]) if error] == [5, 6, 7]
    good = np.array([error is None for error in rows["error"]])
    agree({name: values[good] for name, values in rows.items()}, detector, images)
    assert rows["label"][~good].tolist() == [-1, -1, -1]
    assert np.isnan(rows["confidence"][~good]).all()
    assert not rows["accepted"][~good].any()
    assert not rows["rejected_0.004"][~good].any()


@pytest.mark.parametrize("value", [np.nan, 2.0])
def test_pixels_that_are_none_spoil_their_row_only(detector, images, value):
    spoilt = images.astype(np.float32) / 255
    spoilt[3, 0, 2, 2] = value
    errors = Scorer(detector)({"image": spoilt})["error"]
    assert [place for place, error in enumerate(errors) if error] == [3]


class Overflows(nn.Module):
    """Its logits are not finite for an image with a bright first pixel."""

    def forward(self, images):
        return images.flatten(1)[:, :4] * torch.finfo(torch.float32).max * 2


def test_an_image_at_which_the_model_fails_spoils_its_row_only(images):
    detector = Detector(Overflows(), discriminator("digits", image=(1, 8, 8)), shift=0.0, threshold=0.5)
    dark = images // 255
    dark[:, 0, 0, :4] = 0
    dark[[3, 40]] = 255
    errors = Scorer(detector)({"image": dark})["error"]
    assert [place for place, error in enumerate(errors) if error] == [3, 40]


@pytest.mark.parametrize("kind", ["path", "detector", "gated"])
def test_it_can_be_sent_to_another_process(kind, run, detector, images):
    if kind == "gated":
        detector.calibrate(np.concatenate([images] * 3), accept=0.5, provable=0.2)
    scorer = Scorer(run if kind == "path" else detector, eps=EPS, device="cpu")
    again = pickle.loads(pickle.dumps(scorer))
    for name, values in scorer({"image": images}).items():
        np.testing.assert_array_equal(again({"image": images})[name], values)
    if kind == "detector":
        detector.model.eval()
        assert again.detector is not detector
        assert pickle.loads(pickle.dumps(scorer)).detector is again.detector, "a process opens its model once"


def test_a_model_that_no_file_can_hold_stays_in_its_process(images):
    scorer = Scorer(Detector(Overflows(), discriminator("digits", image=(1, 8, 8)), shift=0.0))
    with pytest.raises(Unsupported, match="Overflows"):
        pickle.dumps(scorer)


@pytest.fixture
def scripted(tmp_path, images):
    """A run with a TorchScript classifier."""
    torch.manual_seed(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of torch, about tracing
        program = torch.jit.trace(small(4, channels=1, width=4).eval(), torch.zeros(1, 1, 8, 8))
        torch.jit.save(program, tmp_path / "classifier.pt")
    with trusting_code():
        wrapped, _ = open_classifier(tmp_path / "classifier.pt", (1, 8, 8))
    g: Discriminator = discriminator("digits", image=(1, 8, 8))
    save(ProoD(wrapped, g, 1.0), tmp_path / "scripted" / "model.safetensors", threshold=0.5)
    return tmp_path / "scripted"


def test_torchscript_is_a_program_and_runs_only_if_it_is_trusted(scripted, images):
    with pytest.raises(Unsupported, match="trust_code"):
        Scorer(scripted)
    rows = Scorer(scripted, device="cpu", trust_code=True)({"image": images})
    detector = Detector.load(scripted, trust_code=True)
    np.testing.assert_allclose(rows["confidence"], detector.predict(images).confidence, rtol=1e-6)
    with pytest.raises(Unsupported, match="trust_code"):
        pickle.dumps(Scorer(detector))
    again = pickle.loads(pickle.dumps(Scorer(detector, trust_code=True)))  # with the bytes of the classifier's file
    np.testing.assert_array_equal(again({"image": images})["label"], rows["label"])


def test_columns_are_chosen_and_carried_over(detector, images):
    batch = {"image": images[:4], "id": ["a", "b", "c", "d"]}
    rows = Scorer(detector, columns=["id", "p_in"])(batch)
    assert list(rows) == ["id", "p_in"]
    assert rows["id"].tolist() == batch["id"]
    with pytest.raises(BadValue, match="p_out"):
        Scorer(detector, columns=["p_out"])(batch)
    with pytest.raises(Mismatch, match="picture"):
        Scorer(detector)({"picture": images})


def test_without_a_threshold_nothing_is_rejected_and_no_column_says_so(images):
    torch.manual_seed(0)
    detector = Detector(discriminator("digits", image=(1, 8, 8)))
    rows = Scorer(detector, eps=0.1)({"image": images[:3]})
    assert list(rows) == ["label", "confidence", "p_in", "upper_bound_0.1", "bound", "sha256", "fingerprint", "error"]
    with pytest.raises(BadValue, match="threshold"):
        Scorer(detector, radius=True)


def test_batches_stay_within_the_memory_and_threads_within_their_bound(detector, images):
    large, little = Scorer(detector, eps=EPS), Scorer(detector, eps=EPS, options=Options(memory=1))
    sizes = []
    predict = detector.predict
    detector.predict = lambda stack, batch: sizes.append((len(stack), torch.get_num_threads())) or predict(stack)
    before = torch.get_num_threads()
    little.options = Options(memory=1, threads=before + 1)
    rows = little({"image": images[:6]})
    assert sizes == [(1, before + 1)] * 6
    assert torch.get_num_threads() == before
    np.testing.assert_allclose(rows["confidence"], large({"image": images[:6]})["confidence"], rtol=1e-5)


def test_an_empty_batch_has_all_columns(detector):
    rows = Scorer(detector, eps=EPS)({"bytes": []})
    assert {len(values) for values in rows.values()} == {0}
    assert "rejected_0.02" in rows


def test_what_cannot_be_asked_for_is_refused(detector, tmp_path):
    with pytest.raises(NotFound):
        Scorer(tmp_path / "nothing")
    for wrong in ({"bound": "auto"}, {"bound": "bab"}, {"norm": "l7"}, {"memory": 0}, {"threads": 0}):
        with pytest.raises(BadValue):
            Options(**wrong)
    with pytest.raises(BadValue, match="column"):
        Scorer(detector, eps=[0.1, 0.1])


def test_the_top_level_name_loads_no_torch():
    code = "import sys, prood; assert 'Scorer' in prood.__all__ and 'torch' not in sys.modules; prood.Scorer"
    subprocess.run([sys.executable, "-c", code], check=True)
