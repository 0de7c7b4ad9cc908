"""Restricted ImageNet in miniature: tiny prepared sets, and a classifier that is drawn instead of pretrained."""

import io
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from rich.console import Console

import prood
from prood import data
from prood.data.public.known import GROUPS
from prood.errors import NotFound, Unsupported
from prood.models import Discriminator, ProoD, fingerprint, load
from prood.report import results_page, write_cards
from prood.studies import STUDIES, Runner, read_published, reproduce
from prood.training import load_recipe

EACH = 120  # validation images of a group: a gate is fitted on 100 or more, twice
SMALL = {"name": "small", "channels": 3, "width": 4}
SETTINGS = [
    *("augment.crop=12", "networks.discriminator.size=8s2 fc8", "data.held_back=4", "train.batch=4"),
    *("train.epochs=1", "train.warmup=0", "train.decay_from=0.5", "train.eps_ramp=0.5", "train.precision=float32"),
    *("train.attack_steps=1",),
]


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Archives such as benchmarks/rimgnet.py writes, of noise: 14×14 to train on, and four times 12 to test on."""
    folder = tmp_path_factory.mktemp("data") / "rimgnet-mini"
    folder.mkdir()
    random = np.random.default_rng(0)

    def write(name: str, count: int, side: int, labels: np.ndarray | None = None) -> None:
        images = random.integers(0, 256, (count, 3, side, side), dtype=np.uint8)
        more = {} if labels is None else {"labels": labels, "classes": np.array(list(GROUPS))}
        np.savez(folder / f"{name}.npz", images=images, **more)

    write("rimgnet-train", 40, 14, np.arange(40) % 9)
    write("notrimgnet-train", 40, 14)
    write("rimgnet-test", 9 * EACH, 48, np.arange(9 * EACH) % 9)
    write("notrimgnet-test", 100, 48)
    write("flowers-test", 9, 48)
    write("cars-test", 9, 48)
    return folder.parent


@pytest.fixture
def sets(prepared: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PROOD_DATA", str(prepared))


@pytest.fixture
def runner(sets: None, tmp_path: Path) -> Runner:
    study = STUDIES["rimgnet"]()
    recipe = load_recipe("rimgnet-cpu").with_settings("discriminator", SETTINGS)
    built = {node.name: replace(node, built=SMALL) for node in study.nodes if node.built}
    nodes = tuple(built.get(node.name, node) for node in study.nodes)
    study = replace(study, recipe=recipe, nodes=nodes, limit=3, attacked=1)
    console = Console(file=io.StringIO(), width=200)
    return Runner(study, tmp_path / "runs", tmp_path / "results", (0,), own_shifts=True, training=True, console=console)


def test_a_fifth_of_the_validation_images_is_for_choices(sets: None) -> None:
    held, test, named = (data.load(f"rimgnet-mini:{split}") for split in ("validation", "test", "without-turtles"))
    assert (len(held), len(test)) == (9 * EACH // 5, 9 * EACH * 4 // 5)
    assert torch.bincount(held.labels).tolist() == [EACH // 5] * 9
    assert not set(held.marks()) & set(test.marks())
    turtle = list(GROUPS).index("turtle")
    assert sorted(named.marks()) == sorted(test.select((test.labels != turtle).nonzero()[:, 0]).marks())
    assert named.classes == tuple(GROUPS)
    held, test = (data.load(f"not-rimgnet-mini:{split}") for split in ("validation", "test"))
    assert (len(held), len(test)) == (80, 20)
    assert not set(held.marks()) & set(test.marks())
    assert (data.load("flowers-mini").shape, data.load("rimgnet-mini:train").shape) == ((3, 48, 48), (3, 14, 14))


def test_says_how_to_make_the_sets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PROOD_DATA", str(tmp_path))
    with pytest.raises(NotFound, match=r"five repositories that benchmarks/rimgnet\.py names"):
        data.load("rimgnet-mini:train")
    (tmp_path / "rimgnet-mini").mkdir()
    with pytest.raises(NotFound, match=r"rimgnet-train\.npz: make it with benchmarks/rimgnet\.py"):
        data.load("rimgnet-mini:train")


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::prood.errors.ProodWarning")
def test_without_a_gpu_the_small_models_are_made(runner: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    runner = replace(runner, device="cpu")
    made = reproduce(runner)
    assert made == ["plain", "discriminator", "prood-s", "shipped"]
    said = runner.console.file.getvalue()
    assert "left out: oe, discriminator-large, prood-s-large, prood-large: trained on a GPU alone" in said
    small, g = (load(runner.place(name))[0] for name in ("small", "discriminator"))
    assert isinstance(g, Discriminator)
    assert (small.image, g.image) == ((3, 12, 12), (3, 48, 48))
    assert g.architecture["size"] == "p4 8s2 fc8"
    shipped, about = load(runner.place("shipped"))
    assert isinstance(shipped, ProoD)
    assert about.classes == list(GROUPS)
    assert about.threshold is not None
    assert about.inside == "rimgnet-mini:train"
    assert fingerprint(shipped.discriminator) == fingerprint(g)
    published = {one.title: one for one in read_published(runner.results)}
    assert [len(one.evaluations) >= 10 for one in published.values()] == [True] * 4
    joint, plain = published["ProoD-S"], published["Plain"]
    assert joint.sets == ("flowers-mini", "cars-mini", "not-rimgnet-mini", "smooth", "uniform")
    assert joint.evaluations[0].accuracy == plain.evaluations[0].accuracy
    page = results_page(runner.results)
    assert "## In-distribution rimgnet-mini, trained against not-rimgnet-mini" in page
    rows = [line for line in page.splitlines() if line.startswith("| ↳ *paper, NotR.ImgNet* | – |")]
    assert all(cell in rows[0] for cell in ("90.7 / 86.9 / 87.3", "81.5 / 76.8 / 77.3", "73.6 / 69.9 / 69.9")), rows
    assert "| Plain, to compare with |" in page
    write_cards(runner, made)
    assert 'prood.load("rimgnet")' in (runner.place("shipped") / "rimgnet.md").read_text()
    assert not (runner.place("discriminator") / "rimgnet.md").exists()
    monkeypatch.chdir(runner.place("shipped"))
    loaded = prood.load(str(runner.place("shipped")))
    images = torch.rand(2, 3, 48, 48)
    assert (loaded.confidence(images) <= loaded.upper_bound(images, 0.01)).all()


def test_what_needs_a_gpu_is_refused_without_one(runner: Runner) -> None:
    with pytest.raises(Unsupported, match="oe: trained on a GPU alone, and there is none: leave out --model oe"):
        reproduce(replace(runner, device="cpu"), ["oe"])
