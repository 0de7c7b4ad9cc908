import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from rich.console import Console
from torch import nn

from prood import data
from prood.errors import AlreadyThere, BadValue, Collapsed, Mismatch, NotFound, ProodError, UnknownName
from prood.methods import METHODS, Method, base
from prood.models import Discriminator, ProoD, discriminator, load, read_metadata, save, small
from prood.models.baselines import Energy
from prood.training import Recipe, Run, combine, describe, held_back, load_recipe, train, trainer


@pytest.fixture(scope="module")
def runs(toml: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One finished run of each method, in a folder of its name."""
    folder = tmp_path_factory.mktemp("runs")
    recipe, console = load_recipe(str(toml)), Console(quiet=True)
    for method in ("plain", "oe", "discriminator"):
        train(method, recipe, folder / method, device="cpu", console=console)
    train("prood", recipe, folder / "prood", discriminator=folder / "discriminator", device="cpu", console=console)
    combine(folder / "oe", folder / "discriminator", folder / "prood-s", shift=2.0)
    return folder


def fit(method: str, recipe: Recipe, folder: Path, **options: Any) -> nn.Module:
    return train(method, recipe, folder, device="cpu", console=Console(quiet=True), **options)


@pytest.mark.parametrize("method", ["plain", "oe", "discriminator", "prood", "prood-s"])
def test_a_run_is_a_folder_that_says_what_is_in_it(method: str, runs: Path, recipe: Recipe) -> None:
    run = Run(runs / method)
    about = read_metadata(run.folder)
    assert run.finished
    assert not run.checkpoint.exists()
    assert about.recipe == json.loads(run.recipe.read_text())
    assert about.classes == (None if method == "discriminator" else ["0", "1", "2", "3"])
    assert about.eps == (0.05 if method in ("discriminator", "prood", "prood-s") else None)
    assert about.shift == {"prood": 1.5, "prood-s": 2.0}.get(method)
    inside, outside = data.load(recipe.data.inside), data.load(recipe.data.outside)
    used = [inside] if method == "plain" else [inside, outside]
    assert about.data == {images.name: images.fingerprint() for images in used}


@pytest.mark.parametrize("method", ["plain", "oe", "discriminator", "prood"])
def test_training_leaves_metrics_settings_and_tensorboard(method: str, runs: Path, recipe: Recipe) -> None:
    run = Run(runs / method)
    lines = [json.loads(line) for line in run.metrics.read_text().splitlines()]
    assert [line["step"] for line in lines] == [4, 8, 12]
    assert lines[-1]["loss"] < lines[0]["loss"]
    assert read_metadata(run.folder).seed == 0
    settings = json.loads(run.recipe.read_text())
    resolved = json.loads(json.dumps(recipe.resolved(method)))  # tuples are lists there
    assert resolved | {"train": settings["train"]} == {
        key: value for key, value in settings.items() if key not in ("data", "discriminator_run", "shift")
    }
    assert settings["data"].items() <= read_metadata(run.folder).data.items()
    events = list((run.folder / "tensorboard").iterdir())
    assert len(events) == 1
    assert events[0].stat().st_size > 200


def test_tensorboard_reads_the_numbers_of_the_metrics(runs: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(runs / "discriminator" / "tensorboard"))
    events.Reload()
    last = Run(runs / "discriminator").last_metrics()
    assert last is not None
    for name in ("loss", "g_in", "live", "spread"):
        scalar = events.Scalars(name)[-1]
        assert scalar.step == 12
        assert scalar.value == pytest.approx(last[name])


def test_what_is_returned_is_what_was_saved(runs: Path, recipe: Recipe, tmp_path: Path) -> None:
    model = fit("prood", recipe, tmp_path / "again", discriminator=runs / "discriminator")
    saved, _ = load(tmp_path / "again")
    images = data.load(recipe.data.inside).floats()
    assert not model.training
    with torch.no_grad():
        assert torch.equal(model(images), saved(images))


def test_the_joint_model_keeps_its_discriminator_bit_by_bit(runs: Path) -> None:
    """And with it the certificate that was trained."""
    g, _ = load(runs / "discriminator")
    for joint in ("prood", "prood-s"):
        model, _ = load(runs / joint)
        assert isinstance(model, ProoD)
        kept = model.discriminator.state_dict()
        assert all(torch.equal(value, kept[name]) for name, value in g.state_dict().items())


def test_the_combined_model_holds_the_classifier_as_it_was(runs: Path) -> None:
    f, _ = load(runs / "oe")
    model, _ = load(runs / "prood-s")
    assert isinstance(model, ProoD)
    assert all(torch.equal(value, model.classifier.state_dict()[name]) for name, value in f.state_dict().items())


def test_semi_joint_training_trains_something_else_than_outlier_exposure(runs: Path) -> None:
    joint, _ = load(runs / "prood")
    oe, _ = load(runs / "oe")
    assert isinstance(joint, ProoD)
    assert not all(torch.equal(a, b) for a, b in zip(joint.classifier.parameters(), oe.parameters(), strict=True))


def test_a_shift_of_ones_own_beats_the_recipes(runs: Path, recipe: Recipe, tmp_path: Path) -> None:
    short = recipe.with_settings("prood", ["train.epochs=0.25"])
    fit("prood", short, tmp_path / "a", discriminator=runs / "discriminator", shift=-0.5)
    assert read_metadata(tmp_path / "a").shift == -0.5
    assert json.loads(Run(tmp_path / "a").recipe.read_text())["shift"] == -0.5
    fit("prood", short, tmp_path / "b", discriminator=runs / "discriminator", shift=0.0)
    assert read_metadata(tmp_path / "b").shift == 0.0


def test_the_seed_decides_the_first_weights(recipe: Recipe, tmp_path: Path) -> None:
    def first_weights(name: str, seed: int) -> torch.Tensor:
        torch.rand(3)
        settings = [f"train.seed={seed}", "train.epochs=0.25", "train.lr=1e-30"]
        model = fit("plain", recipe.with_settings("plain", settings), tmp_path / name)
        assert read_metadata(tmp_path / name).seed == seed
        return torch.cat([parameter.detach().flatten() for parameter in model.parameters()])

    before = torch.get_rng_state()
    weights = [first_weights("a", 1), first_weights("b", 1), first_weights("c", 2)]
    assert torch.equal(weights[0], weights[1])
    assert not torch.equal(weights[0], weights[2])
    torch.set_rng_state(before)


# Resuming


def test_a_finished_run_is_returned_as_it_is(runs: Path, recipe: Recipe, monkeypatch: pytest.MonkeyPatch) -> None:
    before = Run(runs / "plain").model.read_bytes()
    monkeypatch.setattr(trainer, "fit", lambda *_, **__: pytest.fail("it trained again"))
    model = fit("plain", recipe, runs / "plain", resume=True)
    assert torch.equal(model[1].weight, load(runs / "plain")[0][1].weight)  # type: ignore[index]
    assert Run(runs / "plain").model.read_bytes() == before


def test_a_folder_with_a_run_is_not_taken(runs: Path, recipe: Recipe) -> None:
    with pytest.raises(AlreadyThere, match="--resume"):
        fit("plain", recipe, runs / "plain")
    with pytest.raises(AlreadyThere):
        combine(runs / "oe", runs / "discriminator", runs / "prood-s", shift=2.0)


def test_a_run_from_before_an_option_existed_has_its_default(runs: Path, recipe: Recipe, tmp_path: Path) -> None:
    shutil.copytree(runs / "plain", tmp_path / "plain")
    file = tmp_path / "plain" / "recipe.json"
    settings = json.loads(file.read_text())
    del settings["augment"]["border"], settings["train"]["drop_factor"]
    file.write_text(json.dumps(settings))
    fit("plain", recipe, tmp_path / "plain", resume=True)
    with pytest.raises(Mismatch, match=r"\(augment.border\)"):
        fit("plain", recipe.with_settings("plain", ["augment.border=reflect"]), tmp_path / "plain", resume=True)


def test_a_combination_is_certified_as_its_discriminator_is(recipe: Recipe, tmp_path: Path) -> None:
    own = {"plain": {"bound": "ibp", "limit": 7}, "discriminator": {"bound": "crown-ibp"}}
    for method in own:
        fit(method, replace(recipe, own_evaluate=own), tmp_path / method)
    combine(tmp_path / "plain", tmp_path / "discriminator", tmp_path / "both", shift=1.0)
    planned = read_metadata(tmp_path / "both").recipe["evaluate"]
    assert (planned["bound"], planned["limit"]) == ("crown-ibp", 7)


@pytest.mark.parametrize("method", METHODS)
def test_every_method_has_defaults_for_what_it_may_be_told(method: str) -> None:
    """So that a run can be compared with options that it does not know."""
    defaults, resolved = Recipe.defaults(method), load_recipe("cifar10-fast").resolved(method)
    for table in ("augment", "train"):
        assert defaults[table].keys() == resolved[table].keys()


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        (["train.lr=0.2"], "train.lr"),
        (["train.lr=0.2", "train.epochs=4"], "train.epochs, train.lr"),
        (["augment.pad=0"], "augment.pad"),
        (["networks.classifier.width=5"], "classifier.width"),
    ],
)
def test_resuming_with_other_settings_names_them(settings: list[str], named: str, runs: Path, recipe: Recipe) -> None:
    with pytest.raises(Mismatch, match=rf"\({named}\)"):
        fit("plain", recipe.with_settings("plain", settings), runs / "plain", resume=True)


def test_resuming_another_method_or_shift_is_refused(runs: Path, recipe: Recipe) -> None:
    with pytest.raises(Mismatch):
        fit("oe", recipe, runs / "plain", resume=True)
    with pytest.raises(Mismatch):
        fit("prood", recipe, runs / "prood", discriminator=runs / "discriminator", shift=9.0, resume=True)


def test_combining_again_gives_the_same(runs: Path) -> None:
    before = Run(runs / "prood-s").model.read_bytes()
    combine(runs / "oe", runs / "discriminator", runs / "prood-s", shift=2.0, resume=True)
    assert Run(runs / "prood-s").model.read_bytes() == before
    with pytest.raises(Mismatch):
        combine(runs / "oe", runs / "discriminator", runs / "prood-s", shift=3.0, resume=True)


# Images that are never trained on


def rows(images: data.Images) -> set[bytes]:
    return {image.numpy().tobytes() for image in images.load().images}


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> list[data.Images]:
    """The sets that training is given."""
    found: list[data.Images] = []
    batches = trainer.Batches

    def spy(inside: Any, outside: Any, *rest: Any, **options: Any) -> Any:
        found[:] = [images for images in (inside, outside) if images is not None]
        return batches(inside, outside, *rest, **options)

    monkeypatch.setattr(trainer, "Batches", spy)
    return found


@pytest.mark.parametrize("method", ["plain", "oe", "discriminator", "prood"])
@pytest.mark.parametrize("limit", [0, 30])
def test_what_is_held_back_is_not_trained_on(
    method: str, limit: int, runs: Path, recipe: Recipe, seen: list[data.Images], tmp_path: Path
) -> None:
    settings = ["data.held_back=20", f"data.limit={limit}", "train.seed=3", "train.epochs=0.25"]
    changed = recipe.with_settings(method, settings)
    fit(method, changed, tmp_path / "run", discriminator=runs / "discriminator" if method == "prood" else None)
    whole = data.load(recipe.data.inside), data.load(recipe.data.outside)
    held = held_back(changed)
    assert [len(part) for part in held] == [20, 20]
    assert [part.name for part in held] == [f"{images.name} (held back)" for images in whole]
    assert len(seen) == (1 if method == "plain" else 2)
    for used, part, images in zip(seen, held, whole, strict=False):
        assert len(used) == (limit or 76)
        assert used.name == images.name
        assert not rows(used) & rows(part)
        assert rows(used) | rows(part) <= rows(images)
    # The choice depends on neither the seed nor the limit.
    other = held_back(recipe.with_settings(method, ["data.held_back=20", "train.seed=0"]))
    assert [part.fingerprint() for part in other] == [part.fingerprint() for part in held]
    assert held[0].labels is not None
    about = read_metadata(tmp_path / "run")
    assert about.recipe is not None
    assert about.recipe["held_back"] == 20
    recorded = {used.name: used.fingerprint() for used in seen}
    assert recorded.items() <= about.data.items()


def test_holding_back_takes_images_of_sets_that_stay_on_disk_and_of_noise(recipe: Recipe, tmp_path: Path) -> None:
    for number, image in enumerate(data.load(recipe.data.outside).images[:30, 0]):
        Image.fromarray(image.numpy()).save(tmp_path / f"{number}.png")
    for outside in (f"folder:{tmp_path}", "smooth"):
        changed = recipe.with_settings("oe", [f"data.outside={outside}", "data.held_back=5"])
        inside, found = held_back(changed)
        assert isinstance(found, data.ImageSet)
        assert (len(found), found.shape) == (5, inside.shape)


def test_holding_back_too_much_or_nothing_is_refused(recipe: Recipe, tmp_path: Path) -> None:
    with pytest.raises(BadValue, match=r"'toy'.*data\.held_back"):
        held_back(recipe)
    for count in (96, 1000):
        changed = recipe.with_settings("plain", [f"data.held_back={count}"])
        with pytest.raises(BadValue, match=r"96.*95"):
            held_back(changed)
        with pytest.raises(BadValue, match=r"96.*95"):
            fit("plain", changed, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_resuming_with_another_number_held_back_is_refused(runs: Path, recipe: Recipe) -> None:
    with pytest.raises(Mismatch, match="held_back"):
        fit("plain", recipe.with_settings("plain", ["data.held_back=5"]), runs / "plain", resume=True)


# A discriminator that has gone constant


@pytest.mark.parametrize("bound", ["ibp", "crown-ibp"])
def test_a_constant_discriminator_is_an_error_with_the_model_kept(
    bound: str,
    recipe: Recipe,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    console: Console,
    said: Callable[[], str],
) -> None:
    build = base.build

    def dead(spec: Any) -> nn.Module:
        model = build(spec)
        nn.init.constant_(model.body[-1].bias, -1e3)  # type: ignore[union-attr, index, arg-type]
        return model

    monkeypatch.setattr(base, "build", dead)
    short = recipe.with_settings("discriminator", [f"train.bound={bound}"])
    with pytest.raises(Collapsed):
        train("discriminator", short, tmp_path / "run", device="cpu", console=console)
    assert said().count("warning") == 1
    assert isinstance(load(tmp_path / "run")[0], Discriminator)
    with pytest.raises(Collapsed):  # nor does it pass for healthy later
        train("discriminator", short, tmp_path / "run", device="cpu", resume=True)
    with pytest.raises(Collapsed, match="constant"):
        train("prood", recipe, tmp_path / "joint", discriminator=tmp_path / "run", device="cpu")
    assert not (tmp_path / "joint").exists()
    assert "constant" in describe(tmp_path / "run")["warning"]


# What is refused


def test_semi_joint_training_needs_a_discriminator(runs: Path, recipe: Recipe, tmp_path: Path) -> None:
    with pytest.raises(BadValue, match=r"--discriminator.*RUN"):
        fit("prood", recipe, tmp_path / "run")
    for wrong in ("plain", "prood"):
        with pytest.raises(Mismatch):
            fit("prood", recipe, tmp_path / "run", discriminator=runs / wrong)
    with pytest.raises(NotFound):
        fit("prood", recipe, tmp_path / "run", discriminator=tmp_path / "nowhere")
    for options in ({"discriminator": runs / "discriminator"}, {"shift": 1.0}):
        with pytest.raises(BadValue, match=r"--discriminator.*--shift"):
            fit("oe", recipe, tmp_path / "run", **options)
    assert not (tmp_path / "run").exists()


def test_other_images_under_the_same_name_are_not_resumed(recipe: Recipe, tmp_path: Path) -> None:
    images = np.random.default_rng(0).integers(0, 256, (48, 8, 8), dtype=np.uint8)
    file = tmp_path / "inside.npz"
    changed = recipe.with_settings("plain", [f"data.inside=npz:{file}"])
    np.savez(file, images=images, labels=np.arange(48) % 3)
    fit("plain", changed, tmp_path / "run")
    images[0, 0, 0] ^= 1
    np.savez(file, images=images, labels=np.arange(48) % 3)
    with pytest.raises(Mismatch):
        fit("plain", changed, tmp_path / "run", resume=True)


def test_a_mistake_does_not_claim_the_folder(recipe: Recipe, tmp_path: Path) -> None:
    for setting in ("data.inside=nosuch", "networks.classifier.name=nosuch", "train.batch=1000"):
        with pytest.raises(ProodError):
            fit("plain", recipe.with_settings("plain", [setting]), tmp_path / "run")
    assert not (tmp_path / "run").exists()
    fit("plain", recipe, tmp_path / "run")


def test_combine_refuses_the_wrong_kinds(runs: Path, tmp_path: Path) -> None:
    for wrong, kind in (("discriminator", "Discriminator"), ("prood", "ProoD")):
        with pytest.raises(Mismatch, match=kind):
            combine(runs / wrong, runs / "discriminator", tmp_path / "run", shift=0.0)
    with pytest.raises(Mismatch):
        combine(runs / "oe", runs / "oe", tmp_path / "run", shift=0.0)
    with pytest.raises(NotFound):
        combine(tmp_path / "nowhere", runs / "discriminator", tmp_path / "run", shift=0.0)
    with pytest.raises(BadValue):
        combine(runs / "oe", runs / "discriminator", tmp_path / "run", shift=float("nan"))
    assert not (tmp_path / "run").exists()


def test_every_refusal_is_one_line(runs: Path, recipe: Recipe, tmp_path: Path) -> None:
    attempts: list[Callable[[], object]] = [
        lambda: fit("prood", recipe, tmp_path / "run"),
        lambda: fit("prod", recipe, tmp_path / "run"),
        lambda: fit("plain", recipe, runs / "plain"),
        lambda: fit("plain", recipe.with_settings("plain", ["train.lr=2"]), runs / "plain", resume=True),
        lambda: fit("plain", recipe.with_settings("plain", ["data.inside=npz:none.npz"]), tmp_path / "a"),
        lambda: fit("plain", recipe.with_settings("plain", ["networks.classifier.name=big"]), tmp_path / "b"),
        lambda: fit("plain", recipe.with_settings("plain", ["networks.classifier.depth=3"]), tmp_path / "c"),
        lambda: fit("plain", recipe.with_settings("plain", ["train.batch=1000"]), tmp_path / "d"),
        lambda: fit("oe", recipe.with_settings("oe", ["data.outside=faces"]), tmp_path / "e"),
        lambda: train("plain", recipe, tmp_path / "f", device="banana"),
    ]
    for attempt in attempts:
        with pytest.raises(ProodError) as error:
            attempt()
        assert "\n" not in str(error.value)


@pytest.mark.parametrize("device", ["banana", "cuda:99"])
def test_refuses_a_device_that_is_not_there(device: str, recipe: Recipe, tmp_path: Path) -> None:
    with pytest.raises(UnknownName, match=f"'{device}'"):
        train("plain", recipe, tmp_path / "run", device=device)


def test_a_classifier_needs_labels_and_a_discriminator_does_not(recipe: Recipe, tmp_path: Path) -> None:
    swapped = [f"data.inside={recipe.data.outside}", f"data.outside={recipe.data.inside}", "train.epochs=0.25"]
    with pytest.raises(Mismatch, match=r"outside.npz"):
        fit("plain", recipe.with_settings("plain", swapped), tmp_path / "plain")
    fit("discriminator", recipe.with_settings("discriminator", swapped), tmp_path / "discriminator")


def test_named_classes_keep_their_names(recipe: Recipe, tmp_path: Path) -> None:
    settings = ["data.inside=digits:test", "data.outside=faces", "train.epochs=0.1", "train.batch=100"]
    fit("oe", recipe.with_settings("oe", settings), tmp_path / "run")
    assert read_metadata(tmp_path / "run").classes == list("01234567")


def test_noise_may_be_the_out_distribution(recipe: Recipe, tmp_path: Path) -> None:
    fit("oe", recipe.with_settings("oe", ["data.outside=smooth", "train.epochs=0.25"]), tmp_path / "run")
    assert any(name.startswith("smooth") for name in read_metadata(tmp_path / "run").data)


def test_a_run_folder_that_holds_a_foreign_model_is_refused(recipe: Recipe, tmp_path: Path) -> None:
    model = small(3)
    model.architecture = {"name": "small", "classes": 3}  # type: ignore[assignment]
    save(model, tmp_path / "model.safetensors")
    with pytest.raises(AlreadyThere):
        fit("plain", recipe, tmp_path)


def test_colour_images_are_refused_by_a_grey_discriminator_set(recipe: Recipe, tmp_path: Path) -> None:
    np.savez(tmp_path / "colour.npz", images=np.zeros((30, 8, 8, 3), np.uint8))
    settings = [f"data.outside=npz:{tmp_path / 'colour.npz'}"]
    with pytest.raises(Mismatch):
        fit("discriminator", recipe.with_settings("discriminator", settings), tmp_path / "run")


# Networks that do not fit the images


@pytest.fixture
def coloured(recipe: Recipe, tmp_path: Path) -> Callable[..., Recipe]:
    """The recipe with images in colour: `coloured("oe", "train.lr=1")`."""
    for name in ("inside", "outside"):
        with np.load(getattr(recipe.data, name).removeprefix("npz:")) as stored:
            arrays = dict(stored)
        np.savez(tmp_path / f"{name}.npz", **arrays | {"images": arrays["images"][..., None].repeat(3, axis=3)})
    sets = [f"data.{name}=npz:{tmp_path / name}.npz" for name in ("inside", "outside")]
    return lambda method, *settings: recipe.with_settings(method, [*sets, "train.epochs=0.5", *settings])


def test_a_discriminator_of_smaller_images_is_enlarged(recipe: Recipe, runs: Path, tmp_path: Path) -> None:
    assert read_metadata(runs / "plain").image == [1, 8, 8]
    g = discriminator("4s2 fc4", image=(1, 4, 4))
    save(g, tmp_path / "g.safetensors", eps=0.05)
    settings = recipe.with_settings("prood", ["train.epochs=0.5"])
    made = fit("prood", settings, tmp_path / "prood", discriminator=tmp_path / "g.safetensors")
    combined = combine(runs / "oe", tmp_path / "g.safetensors", tmp_path / "prood-s", shift=1.0)
    for model in (made, combined, load(tmp_path / "prood")[0]):
        assert isinstance(model, ProoD)
        assert model.discriminator.image == (1, 8, 8)
        assert model.discriminator.architecture["size"] == "p2 4s2 fc4"
        assert torch.equal(model.discriminator.last.log_weight, g.last.log_weight)  # as it was


def test_the_small_classifier_takes_images_in_colour(coloured: Callable[..., Recipe], tmp_path: Path) -> None:
    fit("discriminator", coloured("discriminator"), tmp_path / "g")
    fit("prood", coloured("prood"), tmp_path / "prood", discriminator=tmp_path / "g")
    made = fit("oe", coloured("oe"), tmp_path / "oe")
    again, about = load(tmp_path / "oe")
    assert about.architecture == {"name": "small", "classes": 4, "width": 4, "channels": 3}
    image = torch.rand(1, 3, 8, 8)
    assert torch.equal(again(image), made.eval()(image))


def test_of_mean_and_std_one_may_be_left_out(coloured: Callable[..., Recipe], tmp_path: Path) -> None:
    fit("plain", coloured("plain", "networks.classifier.mean=[0.5, 0.4, 0.3]"), tmp_path / "run")
    assert load(tmp_path / "run")[0][0].std.flatten().tolist() == [0.25] * 3  # type: ignore[index]


@pytest.mark.parametrize(
    ("method", "setting", "said"),
    [
        ("plain", "networks.classifier.mean=[0.5]", r"networks\.classifier\.mean must have 3 numbers, .*not 1"),
        ("plain", "networks.classifier.std=[0.2, 0.2]", r"networks\.classifier\.std must have 3 numbers"),
        ("discriminator", "networks.discriminator.mean=[0.5]", r"networks\.discriminator\.mean must have 3 numbers"),
        ("discriminator", "networks.discriminator.image=[3, 9, 9]", "discriminator. does not take images of npz:"),
        ("discriminator", "networks.discriminator.image=[1, 8, 8]", r"of shape \(3, 8, 8\): "),
        ("plain", "networks.classifier.channels=1", "classifier. does not take images of npz:"),
        ("oe", "networks.classifier.classes=1", r"networks\.classifier\.classes = 1 is too few: npz:.* has 4"),
        ("prood", "networks.classifier.classes=3", r"networks\.classifier\.classes = 3 is too few: npz:.* has 4"),
        ("oe", "networks.oe={name='small', classes=2}", r"networks\.oe\.classes = 2 is too few"),
        (
            "prood",
            "train.lr=1",
            r"a discriminator for images of 1×8×8 cannot serve 3×8×8: it needs images with 1 channel",
        ),
    ],
)
def test_a_network_that_does_not_fit_is_one_line_and_claims_no_folder(
    method: str, setting: str, said: str, coloured: Callable[..., Recipe], runs: Path, tmp_path: Path
) -> None:
    """The last one has a discriminator for grey images."""
    given: dict[str, Any] = {}
    if method == "prood":
        given["discriminator"] = runs / "discriminator"
    if setting == "networks.classifier.classes=3":
        fit("discriminator", coloured("discriminator"), tmp_path / "g")
        given["discriminator"] = tmp_path / "g"
    with pytest.raises(ProodError, match=said) as error:
        fit(method, coloured(method, setting), tmp_path / "run", **given)
    assert "\n" not in str(error.value)
    assert not (tmp_path / "run").exists()


def declare(monkeypatch: pytest.MonkeyPatch, kind: type, **words: Any) -> None:
    """A method for this test alone."""
    for key, value in ({"name": "mine", "title": "Mine", "summary": "a method"} | words).items():
        setattr(kind, key, value)
    monkeypatch.setitem(METHODS, "mine", kind)


def test_a_method_without_a_loss_is_fitted_and_not_trained(
    recipe: Recipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    @dataclass(frozen=True)
    class Fitted(Method):
        def prepare(self, model: nn.Module, batches: Callable[[int], Any]) -> None:
            with torch.no_grad():
                last = [parameter for parameter in model.parameters() if parameter.ndim == 1][-1]
                last.fill_(float(batches(0)[0].images.mean()))

    declare(monkeypatch, Fitted)
    model = fit("mine", replace(recipe, train={"mine": {"batch": 24}}), tmp_path / "run")
    assert not model.training
    assert not (tmp_path / "run" / "metrics.jsonl").exists()
    saved, about = load(tmp_path / "run")
    biases = [parameter for parameter in saved.parameters() if parameter.ndim == 1][-1]
    assert 0 < biases[0] < 1
    assert torch.equal(biases, biases[0].expand_as(biases))
    assert about.recipe is not None
    assert about.recipe["method"] == "mine"


def test_a_method_whose_network_has_another_score_is_refused(
    recipe: Recipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    @dataclass(frozen=True)
    class Wrong(Method):
        pass

    declare(monkeypatch, Wrong, score=Energy)
    with pytest.raises(Mismatch, match="Energy"):
        fit("mine", replace(recipe, train={"mine": {"batch": 24}}), tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("name", ["discriminator", "prood"])
def test_what_differs_between_methods_is_declared_and_not_known_by_name(
    name: str, runs: Path, recipe: Recipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same method under another name ends with the same weights."""
    twin = dataclass(frozen=True)(type("Twin", (METHODS[name],), {}))
    declare(monkeypatch, twin, name="twin")
    monkeypatch.setitem(METHODS, "twin", twin)
    options = {"discriminator": runs / "discriminator"} if name == "prood" else {}
    again = fit("twin", replace(recipe, train={"twin": recipe.train[name]}), tmp_path / "twin", **options).state_dict()
    before = load(runs / name)[0].state_dict()
    assert again.keys() == before.keys()
    assert all(torch.equal(again[key], before[key]) for key in before)
    assert read_metadata(tmp_path / "twin").classes == read_metadata(runs / name).classes
