"""A whole study in miniature: the shipped recipes, cut down to a few steps on a few images of noise."""

import io
import json
import os
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from rich.console import Console
from safetensors import safe_open

from prood.data import ImageSet
from prood.errors import Mismatch, UnknownName
from prood.evaluation import read_results
from prood.models import Discriminator, ProoD, fingerprint, load
from prood.report import results_page, results_table, write_cards
from prood.studies import (
    STUDIES,
    Runner,
    choose_shift,
    jobs,
    known,
    making,
    measure,
    read_published,
    reproduce,
    study_of,
)
from prood.studies import runner as module
from prood.studies.programs import run_fast
from prood.studies.published import method_of
from prood.studies.shift import Candidate
from prood.training import Recipe, held_back, load_recipe

IMAGES = {"train": 60, "test": 24}
HELD_BACK = 20
LIMIT = 4
EPS = 0.01
SHIFTS = (0.0, load_recipe("cifar10-fast").shift)
COMMAND = "prood reproduce cifar10"
MODELS = {
    node.name: node.title for node in study_of("cifar10").nodes if "attack" in node.measures and not node.baseline
}
LINEAR = ["discriminator", "prood", "prood-s"]
COMPACT = known.COMPACT  # as it is, before it is shrunk as well
QUICK = known.QUICK
SETS = ["cifar100", "svhn", "textures", "places365", "smooth", "uniform"]


def write_sheet(folder: Path, split: str, seed: int, classes: int = 0) -> None:
    """Noise as the tiles of one sheet; no pixel is black, as the tiles after the last image are."""
    generator = np.random.default_rng(seed)
    count = IMAGES[split]
    tiles = np.zeros((100, 32, 32, 3), np.uint8)
    tiles[:count] = generator.integers(1, 256, (count, 32, 32, 3), dtype=np.uint8)
    folder.mkdir(exist_ok=True)
    sheet = tiles.transpose(1, 0, 2, 3).reshape(32, 3200, 3)
    Image.fromarray(sheet).save(folder / f"{split}-00.webp", "WEBP", lossless=True)
    if classes:
        np.save(folder / f"{split}-labels.npy", (np.arange(count) % classes).astype(np.uint8))
        (folder / "classes.txt").write_text("".join(f"class {i}\n" for i in range(classes)))


def shrunk(name: str) -> Recipe:
    """A shipped recipe, for a CPU and for seconds."""
    recipe = load_recipe(name)
    for method in recipe.train:
        settings = ["train.epochs=1", "train.batch=16", "train.precision=float32", "train.compile=false"]
        settings += [f"train.{key}=1" for key in recipe.train[method] if key.endswith("_ramp")]
        if name.endswith("-ibp"):  # intervals on noise: hardly a step, or the discriminator would collapse
            settings += ["train.drops=[]", "train.eps=0.00001", "train.kappa_ramp=0.1", "train.lr=0.00001"]
        else:
            settings += ["train.decay_from=0.5"] + ([] if method == "discriminator" else ["train.warmup=0.5"])
        recipe = recipe.with_settings(method, settings)
    common = ["networks.discriminator.size=XS", f"data.held_back={HELD_BACK}"]
    common += ["networks.classifier.name=small", "networks.classifier.mean=[0.5, 0.5, 0.5]"]
    common += ["networks.classifier.std=[0.25, 0.25, 0.25]", f"evaluate.limit={LIMIT}", f"evaluate.eps=[{EPS}]"]
    return recipe.with_settings("discriminator", common)


@pytest.fixture(scope="module", autouse=True)
def miniature(tmp_path_factory):
    """The data folder and the settings of everything here; what evaluations were asked for."""
    root = tmp_path_factory.mktemp("data")
    for seed, (name, classes) in enumerate({"cifar10": 10, "cifar100": 100}.items()):
        write_sheet(root / name, "train", 2 * seed, classes)
        write_sheet(root / name, "test", 2 * seed + 1, classes)
    for seed, name in enumerate(("svhn", "textures", "places365")):
        write_sheet(root / name, "test", 10 + seed)
    evaluate, asked = making.evaluate_run, []

    def without_crown(run, **options):
        """Which takes minutes on a CPU."""
        asked.append((run.name, options))
        return evaluate(run, **options | ({"bound": "ibp"} if options.get("bound") == "crown" else {}))

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PROOD_DATA", str(root))
        patch.setattr("prood.studies.site.load_recipe", shrunk)
        patch.setattr(making, "SHIFTS", SHIFTS)
        patch.setattr(known, "QUICK", {"discriminator": (), "prood": ("train.epochs=0.75",)})
        short = ("train.epochs=0.5", "train.warmup=0", "train.decay_from=0")
        patch.setattr(known, "COMPACT", ("networks.classifier.name=compact", *short))
        patch.setattr(making, "evaluate_run", without_crown)
        patch.setattr("prood.detector.gates.LEAST", HELD_BACK // 2)
        yield asked


def study_in(folder: Path, *seeds: int, **facts) -> Runner:
    console = Console(file=io.StringIO(), width=160)
    study = replace(study_of("cifar10"), **{"attacks": None} | facts)
    made = Runner(study, folder / "runs", folder / "results", seeds or (0,), console=console)
    return replace(made, home=made.seeds[0], own_shifts=True, training=True, device="cpu", command=COMMAND)


@pytest.fixture(scope="module")
def done(tmp_path_factory, miniature):
    """A study that was reproduced, and the folder of its published results."""
    folder = tmp_path_factory.mktemp("study")
    study = study_in(folder, 3)
    write_cards(study, reproduce(study))
    return study, study.results


def chosen(study: Runner, ending: str) -> float:
    return json.loads((study.folder / f"discriminator{ending}-shift.json").read_text())["chosen"]


# The short way


@pytest.mark.slow
def test_the_fast_way_makes_two_models_and_certifies_the_joint_one(tmp_path):
    study = study_in(tmp_path)
    (results,) = run_fast(study)
    study.console.print(results_table(results))
    assert sorted(path.name for path in (tmp_path / "runs").iterdir()) == ["discriminator", "prood"]
    model, about = load(tmp_path / "runs" / "prood")
    assert isinstance(model, ProoD)
    assert about.shift == load_recipe("cifar10-fast").shift
    assert about.recipe["train"]["epochs"] == 0.75  # as QUICK says
    discriminator, _ = load(tmp_path / "runs" / "discriminator")
    assert fingerprint(model.discriminator) == fingerprint(discriminator)
    assert [one.outside for one in results] == SETS
    assert list(read_results(tmp_path / "runs" / "prood")) == list(results)
    for one in results:
        assert 0 <= one.gauc <= one.auc <= 1
        assert (one.images, one.eps, one.attacks) == (LIMIT, EPS, None)
    printed = study.console.file.getvalue()
    assert all(word in printed for word in ("discriminator ", "prood ", "svhn", "GAUC"))


# All of it


@pytest.mark.slow
def test_every_model_is_published(done):
    study, results = done
    found = {one.file: one for one in read_published(results)}
    titles = MODELS | {"shipped": "ProoD, linear bound, compact"}
    assert set(found) == {f"cifar10/cifar100/{run}-3.json" for run in titles}
    for run, title in titles.items():
        one = found[f"cifar10/cifar100/{run}-3.json"]
        assert (one.title, one.inside, one.outside) == (title, "cifar10", "cifar100")
        assert (one.seed, one.command) == (3, COMMAND)
        assert one.sets == tuple(SETS)
        assert one.weights == fingerprint(load(study.folder / run)[0])
        assert all(0 <= evaluation.gauc <= evaluation.auc <= 1 for evaluation in one.evaluations)
        if run in ("plain", "oe"):
            assert {evaluation.gauc for evaluation in one.evaluations} == {0}
        if run.startswith("discriminator"):
            assert {evaluation.accuracy for evaluation in one.evaluations} == {None}
        joint = "prood" in run or run == "shipped"
        assert one.shift == (chosen(study, "-ibp" if run.endswith("-ibp") else "") if joint else None)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("models", "trained"),
    [
        (["plain"], ["plain"]),
        (["discriminator-ibp"], ["discriminator-ibp"]),
        (["prood-s-ibp"], ["discriminator-ibp", "oe", "prood-s-ibp"]),
        (["shipped", "prood"], ["compact", "discriminator", "oe", "prood", "shipped"]),
    ],
)
def test_a_part_of_the_models_is_made_with_what_it_needs_and_published_alone(done, tmp_path, models, trained):
    study, _ = done
    part = study_in(tmp_path, 3)
    reproduce(part, models)
    made = {str(file.parent.relative_to(part.folder)) for file in part.folder.rglob("model.safetensors")}
    assert made == set(trained)
    for run in made:
        assert fingerprint(load(part.folder / run)[0]) == fingerprint(load(study.folder / run)[0])
    published = {one.file.removesuffix("-3.json"): one for one in read_published(tmp_path / "results")}
    assert set(published) == {f"cifar10/cifar100/{run}" for run in models}
    choices = {file.parent.name for file in (tmp_path / "results").rglob("shift.json")}
    assert choices == (made & {"discriminator", "discriminator-ibp"} if "oe" in made else set())


@pytest.mark.slow
def test_a_shift_that_is_set_is_not_chosen(tmp_path):
    study = study_in(tmp_path, 3, shift=1.25)
    reproduce(study, ["prood", "prood-s"])
    assert sorted(path.name for path in study.folder.iterdir()) == ["discriminator", "oe", "prood", "prood-s"]
    assert {load(study.folder / run)[1].shift for run in ("prood", "prood-s")} == {1.25}
    assert [one.shift for one in read_published(tmp_path / "results")] == [1.25, 1.25]


def test_a_model_that_there_is_none_of_is_refused_before_anything_is_made(tmp_path):
    with pytest.raises(UnknownName, match="'robust'"):
        reproduce(study_in(tmp_path), ["oe", "robust"])
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_what_was_trained_with_linear_bounds_is_also_certified_by_crown(done, miniature):
    _, results = done
    crown = [(run, tuple(options["eps"])) for run, options in miniature if options.get("bound") == "crown"]
    assert crown[:3] == [(run, (EPS,)) for run in LINEAR]  # first that whose bounds serve the others
    assert {run for run, _ in crown} == set(LINEAR)  # whatever else was reproduced here
    found = {one.title: {method_of(evaluation) for evaluation in one.evaluations} for one in read_published(results)}
    for run in LINEAR:
        assert found.pop(MODELS[run]) == {"best", "ibp"}  # which stands for crown here
    assert set(map(frozenset, found.values())) == {frozenset(["best"])}


def test_joint_models_hold_the_parts_that_they_are_named_after(done):
    study, _ = done
    networks = {run: load(study.folder / run)[0] for run in (*MODELS, "shipped")}
    assert isinstance(networks["discriminator"], Discriminator)
    for ending in ("", "-ibp"):
        own = fingerprint(networks[f"discriminator{ending}"])
        for run in ("prood", "prood-s"):
            assert fingerprint(networks[run + ending].discriminator) == own
        assert fingerprint(networks[f"prood-s{ending}"].classifier) == fingerprint(networks["oe"])
        assert fingerprint(networks[f"prood{ending}"].classifier) != fingerprint(networks["oe"])
    assert fingerprint(networks["discriminator"]) != fingerprint(networks["discriminator-ibp"])


@pytest.mark.parametrize("ending", ["", "-ibp"])
def test_the_choice_of_a_shift_is_published_with_all_it_was_made_from(done, ending):
    study, results = done
    text = (results / "cifar10" / "cifar100" / f"discriminator{ending}" / "shift.json").read_text()
    assert text == (study.folder / f"discriminator{ending}-shift.json").read_text()
    content = json.loads(text)
    assert (content["inside"], content["outside"], content["seed"]) == ("cifar10", "cifar100", 3)
    assert content["discriminator"] == f"discriminator{ending}"
    assert content["images"] == HELD_BACK
    candidates = [Candidate(**one) for one in content["candidates"]]
    assert tuple(one.shift for one in candidates) == SHIFTS
    assert all(0 <= one.gauc <= one.auc <= 1 for one in candidates)
    rule = choose_shift(candidates, content["baseline"]["auc"], tolerance=making.TOLERANCE)
    assert content["chosen"] == rule.shift
    assert making.shift_of(study, study.study.node(f"prood-s{ending}"), 3) == content["chosen"]


@pytest.mark.slow
@pytest.mark.parametrize(("seed", "replaced"), [(0, True), (4, False)])
def test_the_choice_of_another_seed_than_0_replaces_none(done, tmp_path, seed, replaced):
    _, results = done  # of seed 3
    shutil.copytree(results, tmp_path / "results")
    reproduce(study_in(tmp_path, seed), ["prood"])
    public = json.loads((tmp_path / "results" / "cifar10" / "cifar100" / "discriminator" / "shift.json").read_text())
    assert public["seed"] == (seed if replaced else 3)


@pytest.mark.parametrize(("lost", "shift"), [((0.0015, 0.0005), 1), ((0.0009, 0.0005), 0), ((0.0015, 0.0011), 2)])
def test_a_shift_may_cost_less_than_a_tenth_of_a_point(done, tmp_path, monkeypatch, lost, shift):
    study, _ = done
    for run in ("oe", "discriminator"):
        shutil.copytree(study.folder / run, tmp_path / "runs" / run)
    aucs = [0.97 - one for one in lost] + [0.98]
    curve = [Candidate(*one) for one in zip((0.0, 1.0, 2.0), aucs, (0.7, 0.6, 0.5), strict=True)]
    monkeypatch.setattr(making, "sweep", lambda *parts, **options: (0.97, curve))
    making.choose(study_in(tmp_path, 3), "discriminator", 3)
    content = json.loads((tmp_path / "runs" / "discriminator-shift.json").read_text())
    assert content["chosen"] == shift
    assert "less than 0.1 points" in content["rule"]


@pytest.mark.slow
def test_a_choice_is_made_again_for_other_networks_and_other_shifts(done, tmp_path, monkeypatch):
    study, _ = done
    for run in ("oe", "discriminator", "discriminator-ibp"):
        shutil.copytree(study.folder / run, tmp_path / "runs" / run)
    made, sweeping = [], making.sweep

    def counted(*parts, **options):
        made.append(1)
        return sweeping(*parts, **options)

    monkeypatch.setattr(making, "sweep", counted)
    again = study_in(tmp_path, 3)
    runs = tmp_path / "runs"
    for _ in range(2):
        making.choose(again, "discriminator", 3)
        assert len(made) == 1
    shutil.copy(runs / "discriminator-ibp" / "model.safetensors", runs / "discriminator" / "model.safetensors")
    making.choose(again, "discriminator", 3)
    assert len(made) == 2
    monkeypatch.setattr(making, "SHIFTS", (0.0, 0.5))
    making.choose(again, "discriminator", 3)
    assert making.shift_of(again, again.study.node("prood-s"), 3) in (0.0, 0.5)
    assert len(made) == 3
    shutil.rmtree(runs / "oe")  # what was chosen with it stays chosen
    making.choose(again, "discriminator", 3)
    assert len(made) == 3


@pytest.mark.slow
@pytest.mark.parametrize("ending", ["", "-ibp"])
def test_a_shift_is_chosen_by_what_g_does_to_the_classifier_of_oe(done, ending):
    study, _ = done
    content = json.loads((study.folder / f"discriminator{ending}-shift.json").read_text())
    oe, discriminator = (load(study.folder / run)[0] for run in ("oe", f"discriminator{ending}"))
    inside, outside = held_back(study.recipe)
    alone = measure(oe, inside, outside, EPS)
    assert content["classifier"] == "oe"
    assert content["baseline"] == {"auc": alone.auc, "accuracy": alone.accuracy}
    for candidate in content["candidates"]:
        joint = measure(ProoD(oe, discriminator, candidate["shift"]), inside, outside, EPS)
        assert candidate["auc"] == pytest.approx(joint.auc, abs=1e-9)
        assert candidate["gauc"] == pytest.approx(joint.gauc, abs=1e-9)


# The model that ships


def passing(study: Runner) -> tuple[ImageSet, torch.Tensor, float, float]:
    model, about = load(study.folder / "shipped")
    inside, _ = held_back(study.recipe)
    with torch.no_grad():
        return inside, model.confidence(inside.floats(range(len(inside)))).double(), about.threshold, about.tpr


def test_the_shipped_model_lets_the_held_back_images_pass(done):
    """At least 95% of them, and no threshold above it would."""
    inside, confidence, threshold, tpr = passing(done[0])
    assert (len(inside), tpr) == (HELD_BACK, 0.95)
    assert (confidence >= threshold).double().mean() >= 0.95
    assert (confidence > threshold).double().mean() < 0.95


def test_the_gate_of_the_shipped_model_is_fitted_on_held_back_images(done, monkeypatch):
    """Of the outliers that are trained against, and of a broad set where it is there."""
    seen = []
    monkeypatch.setattr(making, "at_point", lambda model, samples, point: seen.append((samples, point)) or (model, 0.0))
    study, model = done[0], done[0].folder / "shipped" / "model.safetensors"
    before = model.read_bytes()
    model.unlink()
    write_sheet(Path(os.environ["PROOD_DATA"]) / "natural32", "train", 99)
    reproduce(study, ["shipped"])
    model.write_bytes(before)
    ((narrow, broad), point), *_ = seen
    assert (len(narrow.g_in), len(narrow.g_out), len(broad.g_out), point) == (HELD_BACK, HELD_BACK, 40, "default")


def test_the_shipped_model_is_in_half_precision(done):
    folder = done[0].folder / "shipped"
    with safe_open(folder / "model.safetensors", framework="pt") as opened:
        tensors = [opened.get_tensor(name) for name in opened.keys()]  # noqa: SIM118
    matrices = [tensor for tensor in tensors if tensor.ndim >= 2]
    assert matrices
    assert {tensor.dtype for tensor in matrices} == {torch.float16}
    about = load(folder)[1]
    assert about.architecture["classifier"]["name"] == "compact"
    assert about.classes == [f"class {i}" for i in range(10)]
    assert (about.seed, about.eps) == (3, 0.01)


def test_the_shipped_model_has_a_card(done):
    study, results = done
    text = (study.folder / "shipped" / "cifar10.md").read_text()
    assert text.startswith("# ProoD, linear bound, compact for cifar10\n")
    (published,) = [one for one in read_published(results) if one.file.endswith("shipped-3.json")]
    assert published.weights in text
    assert 'prood.load("cifar10")' in text
    assert all(name in text for name in SETS)


@pytest.mark.slow
def test_what_an_interruption_left_of_the_shipped_model_is_completed(done, tmp_path):
    """Its folder alone says nothing: the model comes last."""
    study, _ = done
    model = study.folder / "shipped" / "model.safetensors"
    before = model.read_bytes()
    model.unlink()
    reproduce(study, ["shipped"])
    assert model.read_bytes() == before


# Several at a time


@pytest.mark.slow
def test_several_at_a_time_make_the_same_as_one_after_the_other(done, tmp_path, monkeypatch):
    """Of two seeds; processes are copies of this one, as only these have the small settings."""
    alone, published = done  # of seed 3
    monkeypatch.setattr(jobs, "START", "fork")
    study = study_in(tmp_path, 3, 4)
    reproduce(study, ["plain", "prood", "prood-s"], jobs=3)
    for run in ("plain", "oe", "discriminator", "prood", "prood-s"):
        weights = [one.weights(run, seed) for one, seed in ((alone, 3), (study, 3), (study, 4))]
        assert weights[0] == weights[1] != weights[2]
    for run in ("plain", "prood", "prood-s"):
        ((before,), (after,), (_,)) = (
            [one for one in read_published(place) if one.file.endswith(f"/{run}-{seed}.json")]
            for place, seed in ((published, 3), (tmp_path / "results", 3), (tmp_path / "results", 4))
        )
        assert [replace(one, seconds=0) for one in after.evaluations] == [
            replace(one, seconds=0) for one in before.evaluations
        ]
    printed = study.console.file.getvalue()
    assert printed.count("make ") == 10
    assert "trained in" not in printed  # a line for each task, and bars of none


# Again


def test_what_is_there_is_not_made_again(done):
    study, results = done

    def state() -> dict[Path, int]:
        kept = [*study.folder.rglob("*.safetensors"), *study.folder.rglob("metrics.jsonl")]
        kept += [*study.folder.rglob("scores/*.npz"), *study.folder.rglob("*-shift.json")]
        return {path: path.stat().st_mtime_ns for path in kept}

    def published() -> dict[Path, bytes]:
        return {path: path.read_bytes() for path in results.rglob("*.json")}

    models, texts = state(), published()
    assert len([path for path in models if path.name == "model.safetensors"]) == len(MODELS) + 2  # compact and shipped
    reproduce(study)
    assert state() == models
    assert published() == texts


def test_of_several_seeds_all_models_are_trained_before_any_is_certified(tmp_path, monkeypatch):
    asked = {}
    monkeypatch.setattr(module, "carry_out", lambda tasks, *_, **options: asked.update(tasks))
    reproduce(study_in(tmp_path, 0, 1, attacks="fast"))
    kinds = [task.what for task in asked]
    order = {"make": 0, "choose": 0, "certify": 1, "tighten": 2, "attack": 3}
    assert [order[kind] for kind in kinds] == sorted(order[kind] for kind in kinds)
    for kind, count in {"make": 10, "choose": 2, "certify": 9, "tighten": 3, "attack": 8}.items():
        assert kinds.count(kind) == 2 * count
    needs = {str(task): set(map(str, before)) for task, before in asked.items()}
    parts = {"make discriminator, seed 1", "make oe, seed 1", "choose discriminator, seed 1"}
    assert needs["make prood-s, seed 1"] == parts
    assert needs["attack prood"] == {"tighten prood"}
    assert needs["tighten prood"] == {"certify prood", "tighten discriminator"}
    assert needs["attack prood-ibp"] == {"certify prood-ibp"}
    assert needs["make shipped"] == {"make compact"}


def test_attacks_see_fewer_images(tmp_path, monkeypatch):
    asked = []
    monkeypatch.setattr(making, "evaluate_run", lambda run, **options: asked.append((run.name, options)))
    study = study_in(tmp_path, attacks="paper", attacked=2)
    for one in study.study.measures:
        making.evaluate(study, study.study.node("prood"), 0, one)
    seen = [(run, options["attacks"], options["limit"], options["bound"]) for run, options in asked]
    assert seen == [("prood", None, LIMIT, "best"), ("prood", None, LIMIT, "crown"), ("prood", "paper", 2, "best")]


# The page


def test_the_page_shows_every_model(done):
    page = results_page(done[1])
    assert "## In-distribution cifar10, trained against cifar100" in page
    for title in (*MODELS.values(), "ProoD, linear bound, compact"):
        assert title in page
    for run in (*MODELS, "shipped"):
        assert f"`cifar10/cifar100/{run}-3.json`" in page
    assert COMMAND in page


# What can go wrong


@pytest.mark.parametrize("name", STUDIES)
def test_the_settings_suit_the_recipes_as_they_ship(name, tmp_path, monkeypatch):
    """Every node's settings fit into the schedule of its method."""
    monkeypatch.setattr("prood.studies.site.load_recipe", load_recipe)
    monkeypatch.setattr(known, "COMPACT", COMPACT)
    monkeypatch.setattr(known, "QUICK", QUICK)
    runner = Runner(study_of(name), tmp_path)
    for node in runner.study.nodes:
        if node.method is not None:
            assert runner.recipe_of(node, 0).options(node.method).epochs > 0
    if not runner.study.gpu:
        return
    compact = runner.recipe_of(runner.study.node("compact"), 0)
    assert compact.classifier["name"] == "compact"
    assert compact.options("prood").epochs == 100
    papers = runner.recipe_of(runner.study.node("discriminator-ibp"), 0)
    assert papers.method("discriminator").bound == "ibp"
    for node in known.fast(runner.study).nodes:
        assert runner.recipe_of(node, 0).options(node.method).epochs < runner.recipe.options(node.method).epochs


def test_other_settings_in_the_same_folder_are_refused(done):
    study, _ = done
    with pytest.raises(Mismatch, match=r"\(train.seed\)"):
        run_fast(replace(study, seeds=(4,), home=4))


def test_another_out_distribution_reaches_every_recipe_and_is_published_by_its_name(tmp_path):
    runner = study_in(tmp_path, 5, outside="mosaic:/home/me/natural32/train")
    for name in ("discriminator", "discriminator-ibp"):
        recipe = runner.recipe_of(runner.study.node(name), 5)
        assert recipe.data.outside == "mosaic:/home/me/natural32/train"
        assert recipe.options("discriminator").seed == 5
    assert runner.against == "natural32"
    assert study_in(tmp_path).against == "cifar100"
