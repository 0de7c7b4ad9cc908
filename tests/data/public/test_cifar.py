from pathlib import Path

import numpy as np
import pytest
import torch

from prood.data import find, load
from prood.errors import NotFound

SHARED = (Path(__file__).parents[3] / "../shared/data").resolve()
PIXELS = np.random.default_rng(0).integers(0, 256, (2, 3072), dtype=np.uint8)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PROOD_DATA", str(tmp_path))
    return tmp_path


def test_reads_both_sets_by_name(home: Path) -> None:
    for name, folder, labels in (("cifar10", "cifar-10-batches-bin", 1), ("cifar100", "cifar-100-binary", 2)):
        (home / name / folder).mkdir(parents=True)
        records = np.concatenate([np.full((2, labels), 7, np.uint8), PIXELS], axis=1)
        (home / name / folder / f"test{'_batch' * (labels == 1)}.bin").write_bytes(records.tobytes())
    (home / "cifar100" / "cifar-100-binary" / "fine_label_names.txt").write_text("\n".join(map(str, range(100))))
    for name, count in (("cifar10", 10), ("cifar100", 100)):
        # Their images have a size of their own, whatever they are to be compared with.
        read = load(f"{name}:test", like=load("digits:test"))
        assert read.name == f"{name}:test"
        assert torch.equal(read.images, torch.from_numpy(PIXELS.reshape(2, 3, 32, 32)))
        assert read.labels is not None
        assert read.labels.tolist() == [7, 7]
        assert read.classes is not None
        assert len(read.classes) == count
        with pytest.raises(NotFound):
            load(f"{name}:train")


@pytest.mark.parametrize("name", ["cifar10", "cifar100"])
def test_says_how_to_get_it(home: Path, name: str) -> None:
    with pytest.raises(NotFound, match=name):
        load(f"{name}:train")
    (home / name).mkdir()
    with pytest.raises(NotFound, match=str(home / name)):
        load(f"{name}:train")


@pytest.mark.parametrize("name", ["cifar10", "cifar100"])
def test_knows_what_is_published(name: str) -> None:
    about = find(name).public
    assert about is not None
    assert {split: facts.count for split, facts in about.facts.items()} == {"train": 50_000, "test": 10_000}
    for facts in about.facts.values():
        assert facts.per_class is not None
        assert sum(facts.per_class) == facts.count


@pytest.mark.skipif(not SHARED.is_dir(), reason="the folder of real images is not beside the repository")
def test_the_published_means_are_about_those_of_the_real_images() -> None:
    about = find("cifar100").public
    assert about is not None
    facts = about.facts["train"]
    images = load(f"mosaic:{SHARED}/cifar100/test").floats()
    assert facts.mean == pytest.approx(images.mean(dim=(0, 2, 3)).tolist(), abs=0.005)
    assert facts.std == pytest.approx(images.std(dim=(0, 2, 3)).tolist(), abs=0.005)
