"""ONNX graphs of all habits: what they take, what they return, and what is refused."""

from collections import namedtuple
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper

from prood.errors import BadValue, Damaged, Mismatch, ProodError, UnknownName, Unsupported
from prood.models import ProoD, WrapOptions, discriminator, open_classifier, score_of
from prood.models.confidence import look_like_probabilities
from prood.models.wrapped.module import logits_of

WEIGHT = np.random.default_rng(0).normal(size=(12, 4)).astype(np.float32)


def graph(
    folder: Path,
    nodes: list,
    *,
    image: tuple = ("N", 3, 2, 2),
    outputs: tuple = ("out",),
    kind: int = TensorProto.FLOAT,
    weight: np.ndarray = WEIGHT,
    notes: dict[str, str] | None = None,
) -> Path:
    """A file with these nodes between `x` and `outputs`; `w` is a weight, `flat` is x flattened."""
    first = helper.make_node("Flatten", ["x"], ["flat"])
    made = helper.make_graph(
        [first, *nodes],
        "classifier",
        [helper.make_tensor_value_info("x", kind, image)],
        [helper.make_tensor_value_info(name, kind, None) for name in outputs],
        [numpy_helper.from_array(weight.astype(helper.tensor_dtype_to_np_dtype(kind)), "w")],
    )
    model = helper.make_model(made, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    helper.set_model_props(model, notes or {})
    onnx.save(model, folder / "model.onnx")
    return folder / "model.onnx"


def node(kind: str, inputs: str, output: str, **attributes):
    return helper.make_node(kind, inputs.split(), [output], **attributes)


LINEAR = node("MatMul", "flat w", "out")


def expected(images: torch.Tensor) -> torch.Tensor:
    return images.flatten(1) @ torch.from_numpy(WEIGHT)


IMAGES = torch.rand(5, 3, 2, 2, generator=torch.Generator().manual_seed(0))


def opened(path: Path, **options):
    return open_classifier(path, (3, 2, 2), options=WrapOptions(**options))


def test_plain_logits(tmp_path):
    classifier, names = opened(graph(tmp_path, [LINEAR]))
    assert torch.allclose(classifier(IMAGES), expected(IMAGES), atol=1e-5)
    assert (names, classifier.facts.classes, classifier.facts.probabilities) == (None, 4, False)


def test_probabilities_are_seen_and_their_logarithm_taken(tmp_path):
    path = graph(tmp_path, [node("MatMul", "flat w", "z"), node("Softmax", "z", "out", axis=1)])
    classifier, _ = opened(path)
    assert classifier.facts.probabilities
    logits = classifier(IMAGES)
    assert torch.allclose(logits.softmax(1), expected(IMAGES).softmax(1), atol=1e-6)
    assert torch.equal(logits.argmax(1), expected(IMAGES).argmax(1))
    bare, _ = opened(path, probabilities=False)  # who insists that they are logits is believed
    assert torch.allclose(bare(IMAGES), expected(IMAGES).softmax(1), atol=1e-6)


def test_a_probability_of_zero_has_a_finite_logit(tmp_path):
    path = graph(tmp_path, [node("MatMul", "flat w", "z"), node("Softmax", "z", "out", axis=1)], weight=1e4 * WEIGHT)
    classifier, _ = opened(path)
    logits = classifier(IMAGES)
    assert logits.isfinite().all()
    assert (logits.softmax(1).max(1).values == 1).all()
    torch.manual_seed(0)
    g = discriminator("digits", image=(3, 2, 2)).eval()
    score = score_of(ProoD(classifier, g, 1.0))
    assert score(IMAGES).isfinite().all()
    assert (score(IMAGES) <= score.upper_bound(IMAGES, 0.0)).all()


def test_probabilities_that_are_declared_must_be_some(tmp_path):
    with pytest.raises(Unsupported):
        opened(graph(tmp_path, [LINEAR]), probabilities=True)


def test_channels_last(tmp_path):
    classifier, _ = opened(graph(tmp_path, [LINEAR], image=("N", 2, 2, 3)))
    assert classifier.facts.layout == "NHWC"
    assert torch.allclose(classifier(IMAGES), expected(IMAGES.permute(0, 2, 3, 1)), atol=1e-5)


@pytest.mark.parametrize("length", [1, 2, 3])
def test_batches_of_one_length(tmp_path, length):
    path = graph(tmp_path, [LINEAR], image=(length, 3, 2, 2))
    classifier, _ = opened(path)
    assert classifier.facts.batch == length
    for count in (1, 2, 3, 5):
        assert torch.allclose(classifier(IMAGES[:count]), expected(IMAGES[:count]), atol=1e-5)


@pytest.mark.parametrize("kind", [TensorProto.FLOAT16, TensorProto.DOUBLE])
def test_other_precisions(tmp_path, kind):
    classifier, _ = opened(graph(tmp_path, [LINEAR], kind=kind))
    logits = classifier(IMAGES)
    assert logits.dtype == (torch.float32 if kind == TensorProto.FLOAT16 else torch.float64)
    assert torch.allclose(logits.float(), expected(IMAGES), atol=2e-2)


def test_trailing_axes_are_dropped(tmp_path):
    last = node("Unsqueeze", "z a", "out")
    nodes = [node("MatMul", "flat w", "z"), helper.make_node("Constant", [], ["a"], value_ints=[2, 3]), last]
    classifier, _ = opened(graph(tmp_path, nodes))
    assert torch.allclose(classifier(IMAGES), expected(IMAGES), atol=1e-5)


def test_several_outputs(tmp_path):
    nodes = [node("MatMul", "flat w", "first"), node("Neg", "first", "second")]
    path = graph(tmp_path, nodes, outputs=("first", "second"))
    with pytest.raises(BadValue, match="--output"):
        opened(path)
    assert torch.allclose(opened(path, output="second")[0](IMAGES), -expected(IMAGES), atol=1e-5)
    with pytest.raises(UnknownName, match="'third'"):
        opened(path, output="third")
    nodes[0] = node("MatMul", "flat w", "logits")
    path = graph(tmp_path, [nodes[0], node("Neg", "logits", "other")], outputs=("other", "logits"))
    assert torch.allclose(opened(path)[0](IMAGES), expected(IMAGES), atol=1e-5)


@pytest.mark.parametrize(
    "notes",
    [
        {"classes": '["cat", "dog", "emu", "fox"]'},
        {"names": "{0: 'cat', 1: 'dog', 2: 'emu', 3: 'fox'}"},
        {"id2label": '{"0": "cat", "2": "emu", "1": "dog", "3": "fox"}', "labels": "__import__('os')"},
    ],
)
def test_names_in_the_notes(tmp_path, notes):
    assert opened(graph(tmp_path, [LINEAR], notes=notes))[1] == ("cat", "dog", "emu", "fox")


def test_names_that_do_not_fit_are_refused(tmp_path):
    with pytest.raises(Mismatch):
        opened(graph(tmp_path, [LINEAR], notes={"names": '["cat", "dog"]'}))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"weight": np.full((12, 4), np.nan)}, "returns NaN or infinity"),
        ({"weight": np.full((12, 4), np.inf)}, "returns NaN or infinity"),
        ({"weight": np.ones((12, 1))}, "one number for an image"),
        ({"weight": np.ones((9, 4))}, "cannot be opened as onnx"),
        ({"image": ("N", 12)}, "2 axes: images have four"),
        ({"image": ("N", 2, 2, 2), "weight": np.ones((8, 4))}, "grey or colour"),
    ],
)
def test_graphs_that_are_no_classifiers(tmp_path, change, said):
    with pytest.raises(ProodError, match=said) as caught:
        opened(graph(tmp_path, [LINEAR], **change))
    assert "\n" not in str(caught.value)


def test_inputs_that_are_no_images(tmp_path):
    path = graph(tmp_path, [LINEAR], kind=TensorProto.INT32)
    with pytest.raises(Unsupported, match=r"\(tensor\(int32\)\)"):
        opened(path)
    path.write_bytes(b"no graph at all")
    with pytest.raises(Damaged, match=r"model\.onnx.*ONNX") as caught:
        opened(path)
    assert "\n" not in str(caught.value)


def test_weights_beside_the_graph_that_are_missing(tmp_path):
    model = onnx.load(graph(tmp_path, [LINEAR], weight=WEIGHT))
    onnx.save(model, tmp_path / "model.onnx", save_as_external_data=True, location="model.data", size_threshold=0)
    assert torch.allclose(opened(tmp_path / "model.onnx")[0](IMAGES), expected(IMAGES), atol=1e-5)
    (tmp_path / "model.data").unlink()
    with pytest.raises(Damaged, match="ONNX"):
        opened(tmp_path / "model.onnx")


# What other networks return

Answer = namedtuple("Answer", "logits hidden")


def test_the_logits_are_found_among_what_is_returned():
    logits, other = torch.rand(2, 3), torch.rand(2, 7)
    assert logits_of(logits) is logits
    assert logits_of({"hidden": other, "logits": logits}) is logits
    assert logits_of((logits,)) is logits
    assert logits_of([other, logits], output=1) is logits
    assert logits_of([other, logits], output="1") is logits
    assert logits_of(SimpleNamespace(logits=logits, hidden=other, loss=None)) is logits
    assert logits_of({"only": logits, "loss": None}) is logits
    assert torch.equal(logits_of(logits[:, :, None, None]), logits)
    assert logits_of(logits.bfloat16()).dtype == torch.float32
    for wrong in ((logits, other), {}, None, 3, Answer(logits, other)[:0]):
        with pytest.raises(BadValue):
            logits_of(wrong)
    for wrong in (logits[0], logits[:, :, None, None].expand(2, 3, 4, 4), logits.long()):
        with pytest.raises(Unsupported):
            logits_of(wrong)
    with pytest.raises(UnknownName):
        logits_of(logits, output="logits")


def test_what_looks_like_probabilities():
    logits = torch.randn(4, 10)
    assert look_like_probabilities(logits.softmax(1))
    assert look_like_probabilities(logits.softmax(1).half().float())
    assert not look_like_probabilities(logits)
    assert not look_like_probabilities(logits.sigmoid())
    assert not look_like_probabilities(logits.log_softmax(1))
    assert not look_like_probabilities(torch.cat([logits.softmax(1), logits[:1]]))
