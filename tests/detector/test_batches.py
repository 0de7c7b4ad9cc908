"""Batches from a loader, a generator or a data set of `datasets` are the same images; what is ambiguous is refused."""

import io
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import DataLoader, Dataset, TensorDataset

from prood import evaluate
from prood.data import ImageSet
from prood.data.formats.batches import gathered
from prood.detector import Detector
from prood.detector.inputs import read
from prood.errors import BadValue, Mismatch
from prood.scoring import Scorer

SHAPE = (1, 28, 28)
IMAGES = torch.from_numpy(np.random.default_rng(0).integers(0, 256, (7, *SHAPE), dtype=np.uint8))
LABELS = torch.arange(7)
PICTURES = [Image.fromarray(one[0].numpy()) for one in IMAGES]


def encoded(picture: Image.Image) -> bytes:
    file = io.BytesIO()
    picture.save(file, "PNG")
    return file.getvalue()


class Own(Dataset):
    """As torchvision's: a length, and a pair for each number."""

    def __len__(self) -> int:
        return len(PICTURES)

    def __getitem__(self, place: int):
        return PICTURES[place], int(LABELS[place])


FORMS = {
    "a loader of pairs": lambda: DataLoader(TensorDataset(IMAGES.float() / 255, LABELS), batch_size=3),
    "a loader of images alone": lambda: DataLoader(TensorDataset(IMAGES), batch_size=2),
    "a loader of dicts": lambda: DataLoader([{"image": a, "label": b} for a, b in zip(IMAGES, LABELS, strict=True)]),
    "a data set of torch": lambda: Own(),
    "a generator of batches": lambda: (IMAGES[start : start + 3] for start in range(0, 7, 3)),
    "a generator of pictures": lambda: iter(PICTURES),
    "rows of dicts": lambda: iter([{"img": picture, "label": 0} for picture in PICTURES]),
    "a column of datasets, not decoded": lambda: iter([{"bytes": encoded(one), "path": None} for one in PICTURES]),
    "a batch of columns": lambda: {"image": PICTURES, "label": LABELS},
    "images and labels": lambda: (IMAGES, LABELS),
    "lists of pictures": lambda: iter([PICTURES[:4], PICTURES[4:]]),
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("batch", [2, 100])
def test_every_form_gives_the_same_pixels(form, batch):
    found = list(read(FORMS[form](), SHAPE, batch=batch))
    assert all(len(one) <= batch for one in found)
    assert torch.equal(torch.cat(found), IMAGES.float() / 255)


def test_nothing_is_read_ahead():
    asked = []

    def batches():
        for start in range(7):
            asked.append(start)
            yield IMAGES[start : start + 1]

    next(read(batches(), SHAPE, batch=2))
    assert len(asked) <= 3


@pytest.mark.parametrize(
    ("form", "match"),
    [
        (lambda: iter([(IMAGES, IMAGES)]), "2 stacks"),
        (lambda: iter([{"pixels": IMAGES}]), "pixels"),
        (lambda: iter([(LABELS, LABELS)]), "neither"),
        (lambda: {"train": [IMAGES]}, "train"),
        (lambda: [{"bytes": None, "path": None}], "neither"),
        (lambda: 3, "iterable"),
        (lambda: b"png", "bytes"),
    ],
)
def test_what_is_ambiguous_is_refused(form, match):
    with pytest.raises(BadValue, match=match) as caught:
        list(read(form(), SHAPE, batch=4))
    assert len(str(caught.value).splitlines()) == 1


def test_a_detector_answers_about_a_loader(model):
    detector = Detector(model, threshold=0.3)
    expected = detector.predict(IMAGES)
    found = detector.predict(FORMS["a loader of pairs"](), batch=2)
    assert np.array_equal(found.label, expected.label)
    assert np.allclose(found.confidence, expected.confidence, rtol=1e-6)
    proof = detector.certify(FORMS["a generator of batches"](), eps=0.1)
    assert np.allclose(proof.upper_bound, detector.certify(IMAGES, eps=0.1).upper_bound, rtol=1e-6)
    rows = Scorer(detector)({"image": PICTURES})
    assert np.array_equal(rows["label"], expected.label)


def test_an_evaluation_takes_loaders(model, digits):
    inside, labels = digits[:20], torch.arange(20) % 8
    loader = DataLoader(TensorDataset(inside.float() / 255, labels), batch_size=7)
    unknown = DataLoader(TensorDataset(IMAGES, torch.full((7,), -1)), batch_size=4)
    found = evaluate(model, inside=loader, outside={"noise": unknown}, eps=[0.1])["model", "noise", 0.1]
    sets = {"inside": ImageSet("inside", inside, labels), "outside": {"noise": ImageSet("noise", IMAGES)}}
    again = evaluate(model, **sets, eps=[0.1])["model", "noise", 0.1]
    assert (found.auc, found.gauc, found.accuracy) == (again.auc, again.gauc, again.accuracy)
    assert found.fingerprints == again.fingerprints
    with pytest.raises(BadValue, match="int"):
        evaluate(model, inside=3, outside={"noise": unknown}, eps=[0.1])


def test_what_is_gathered_is_bytes_of_one_size():
    grey = gathered("grey", iter(PICTURES))
    assert torch.equal(grey.images, IMAGES)
    assert grey.labels is None
    colour = gathered("colour", [Image.new("RGBA", (4, 3), (9, 8, 7))])
    assert colour.images[0, :, 0, 0].tolist() == [9, 8, 7]
    with pytest.raises(BadValue, match="augmentation"):
        gathered("normalised", [IMAGES.float() / 255 - 0.5])
    with pytest.raises(Mismatch, match="size"):
        gathered("of two sizes", [IMAGES, IMAGES[..., :20]])
    with pytest.raises(Mismatch, match="labels"):
        gathered("half labelled", [(IMAGES, LABELS), IMAGES])
    with pytest.raises(BadValue, match="read before"):
        gathered("empty", iter([]))
    with pytest.raises(BadValue, match="str"):
        gathered("paths", ["a.png"])


def test_a_data_set_of_datasets_and_its_column(tmp_path: Path):
    datasets = pytest.importorskip("datasets")
    made = datasets.Dataset.from_dict({"image": PICTURES, "label": LABELS.tolist()})
    made = made.cast_column("image", datasets.Image())
    plain = made.cast_column("image", datasets.Image(decode=False))
    for form in (made, made["image"], made[:], made.with_format("torch"), made.to_iterable_dataset(), plain):
        assert torch.equal(torch.cat(list(read(form, SHAPE, batch=3))), IMAGES.float() / 255)
    found = gathered("mine", made)
    assert torch.equal(found.images, IMAGES)
    assert torch.equal(found.labels, LABELS)
