import json
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import Any

import pytest

from prood.data import Augment, find
from prood.errors import BadValue, NotFound, ProodError, UnknownName
from prood.methods import METHODS, CertifiedDiscriminator
from prood.training import Recipe, TrainOptions, explain_recipe, load_recipe, recipe_names
from prood.training.recipe import parse


def document(**changes: Any) -> dict[str, Any]:
    """A minimal recipe; a change of None removes a table."""
    tables: dict[str, Any] = {
        "data": {"inside": "digits:train", "outside": "smooth"},
        "networks": {"classifier": {"name": "small"}, "discriminator": {"size": "digits"}},
        "train": {"plain": {"epochs": 2}, "discriminator": {"eps": 0.1}},
    }
    return {name: table for name, table in (tables | changes).items() if table is not None}


WHOLE = ("cifar10", "cifar10-fast", "cifar100", "cifar100-fast", "quickstart", "rimgnet")
WITH_BASELINES = ("quickstart", "cifar10-fast", "cifar100-fast")
OURS = {"plain", "oe", "discriminator", "prood"}
OF_A_DISCRIMINATOR = ("cifar10-ibp", "cifar100-ibp")  # beside the classifiers of another recipe
OF_A_PRETRAINED_CLASSIFIER = {"rimgnet-fast": OURS - {"plain"}, "rimgnet-cpu": {"discriminator"}}
OF_THE_PAPER = ("cifar10", "cifar100", "rimgnet")


def test_a_fault_of_a_table_names_it() -> None:
    """Also where another method is to be trained: all tables are read."""
    tables = {"plain": {"epochs": 5}, "oe": {"epochs": 5, "decay_from": 9}}
    with pytest.raises(ProodError, match=r"\[train\.oe\].*decay_from"):
        parse(document(train=tables), "own")


def test_the_recipes_that_ship() -> None:
    assert recipe_names() == sorted((*WHOLE, *OF_A_DISCRIMINATOR, *OF_A_PRETRAINED_CLASSIFIER))


@pytest.mark.parametrize("name", recipe_names())
def test_every_shipped_recipe_is_complete(name: str) -> None:
    recipe = load_recipe(name)
    assert recipe.name == name
    whole = set(METHODS) if name in WITH_BASELINES else OURS
    assert set(recipe.train) == (whole if name in WHOLE else OF_A_PRETRAINED_CLASSIFIER.get(name, {"discriminator"}))
    for method in recipe.train:
        assert recipe.resolved(method)["method"] == method


@pytest.mark.parametrize("name", OF_A_DISCRIMINATOR)
def test_a_recipe_of_a_discriminator_says_where_its_classifiers_are(name: str) -> None:
    """A joint model of both recipes makes sense: they are about the same images and the same networks."""
    recipe = load_recipe(name)
    other = name.replace("-ibp", "-fast")
    assert f"Its classifiers are those of {other}." in recipe.description
    others = load_recipe(other)
    assert set(others.train) == set(METHODS)
    for attribute in ("data", "classifier", "discriminator", "augment", "evaluate"):
        assert getattr(recipe, attribute) == getattr(others, attribute)
    assert others.augment_for("discriminator") == recipe.augment_for("discriminator")  # they differ in the loss alone
    assert [one.method("discriminator").bound for one in (recipe, others)] == ["ibp", "crown-ibp"]
    with pytest.raises(NotFound, match=rf"'{name}'.*\[train.oe\]"):
        recipe.resolved("oe")


@pytest.mark.parametrize("name", OF_THE_PAPER)
def test_the_paper_augments_alike_for_all(name: str) -> None:
    recipe = load_recipe(name)
    assert recipe.own_augment == {}
    assert {recipe.augment_for(method) for method in METHODS} == {recipe.augment}


def test_the_smallest_recipe_has_two_lines(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text('data.inside = "digits"\ndata.outside = "photographs"\n')
    recipe = load_recipe(str(file))
    assert set(recipe.train) == OURS
    for method in recipe.train:
        assert recipe.options(method) == TrainOptions()
        assert recipe.method(method) == METHODS[method]()
        assert recipe.network(method).items() >= {"size": "S"}.items() or recipe.network(method) == {"name": "small"}
    assert 'size = "S"' in explain_recipe(recipe)
    assert recipe.with_settings("oe", ["train.epochs=3"]).options("discriminator") == TrainOptions()


def test_the_rest_of_a_network_has_its_default() -> None:
    recipe = parse(document(networks={"classifier": {"width": 4}, "discriminator": {"guard": 1.0}}), "own")
    assert recipe.classifier == {"name": "small", "width": 4}
    assert recipe.discriminator == {"size": "S", "guard": 1.0}


def test_the_comment_at_the_head_is_the_description(tmp_path: Path) -> None:
    assert load_recipe("cifar10").description.startswith("CIFAR-10 as in the paper (App. D)")
    assert "pad" not in load_recipe("cifar10").description


# What the paper gives in App. D, number by number.
CLASSIFIER = {"optimizer": "sgd", "lr": 0.1, "momentum": 0.9, "weight_decay": 5e-4, "batch": 128, "drop_factor": 10}
DISCRIMINATOR = {"optimizer": "adam", "lr": 1e-4, "weight_decay": 5e-4, "drop_factor": 5, "bound": "ibp", "eps": 0.01}


@pytest.mark.parametrize(
    ("name", "classifier", "discriminator", "shift", "outside", "limit"),
    [
        (
            name,
            {"epochs": 100, "drops": (50, 75, 90)},
            {"epochs": 1000, "drops": (500, 750, 850), "batch": 128, "eps_ramp": 300, "kappa_ramp": 300},
            shift,
            (other, "svhn", "lsun-classroom", "smooth"),
            1000,
        )
        for name, other, shift in (("cifar10", "cifar100", 3), ("cifar100", "cifar10", 5))
    ]
    + [
        (
            "rimgnet",
            {"epochs": 75, "drops": (30, 60)},
            {"epochs": 50, "drops": (25, 35, 45), "batch": 32, "eps_ramp": 25, "kappa_ramp": 25},
            4,
            ("flowers", "aircraft", "cars", "smooth"),
            400,
        )
    ],
    ids=["cifar10", "cifar100", "rimgnet"],
)
def test_the_paper_s_recipes_hold_its_hyperparameters(
    name: str,
    classifier: dict[str, Any],
    discriminator: dict[str, Any],
    shift: float,
    outside: tuple[str, ...],
    limit: int,
) -> None:
    recipe = load_recipe(name)
    for method in ("plain", "oe", "prood"):
        train = recipe.resolved(method)["train"]
        expected = CLASSIFIER | classifier | {"nesterov": method != "plain"}
        assert {key: train[key] for key in expected} == expected
        assert train.get("weight", 1.0) == 1.0
    train = recipe.resolved("discriminator")["train"]
    expected = DISCRIMINATOR | discriminator
    assert {key: train[key] for key in expected} == expected
    assert recipe.shift == shift
    assert recipe.augment == Augment(pad=4, flip=True, autoaugment=name != "rimgnet")
    assert (recipe.evaluate.outside, recipe.evaluate.limit) == (outside, limit)


@pytest.mark.parametrize("name", recipe_names())
def test_every_image_set_of_a_recipe_exists(name: str) -> None:
    recipe = load_recipe(name)
    for used, split in [(recipe.data.inside, "train"), (recipe.data.outside, "train")] + [
        (other, "test") for other in recipe.evaluate.outside
    ]:
        source = find(used)
        assert not source.splits or split in source.splits or source.splits == ("test",)


def test_what_is_not_said_has_its_default() -> None:
    recipe = parse(document(), "mine")
    assert recipe.options("plain") == TrainOptions(epochs=2)
    assert recipe.method("discriminator") == CertifiedDiscriminator(eps=0.1)
    assert recipe.augment == Augment()
    assert recipe.shift == 0.0
    assert (recipe.data.limit, recipe.data.held_back) == (0, 0)


def test_resolved_holds_every_setting_and_survives_json() -> None:
    resolved = parse(document(), "mine").resolved("discriminator")
    tables = {"augment", "discriminator", "train", "evaluate"}
    assert set(resolved) == {*vars(parse(document(), "mine").data), "recipe", "method"} | tables
    options = {item.name for kind in (TrainOptions, CertifiedDiscriminator) for item in fields(kind)}
    assert set(resolved["train"]) == options
    assert resolved["train"]["lr"] == TrainOptions().lr
    assert resolved["train"]["eps"] == 0.1
    assert set(resolved["augment"]) == set(Augment.__dataclass_fields__)
    assert json.loads(json.dumps(resolved))["train"]["bound"] == "crown-ibp"
    assert parse(document(), "mine").resolved("plain")["classifier"] == {"name": "small"}


# Augmentation of one method alone


def augmented(augment: dict[str, Any] | None = None) -> Recipe:
    own = {"pad": 4, "autoaugment": True, "discriminator": {"autoaugment": False, "degrees": 5}}
    return parse(document(augment=own if augment is None else augment), "mine")


def test_the_augmentation_of_a_method_overrides_that_of_all() -> None:
    """Key by key, and for that method only."""
    recipe = augmented()
    assert recipe.augment == Augment(pad=4, autoaugment=True)
    assert recipe.augment_for("discriminator") == Augment(pad=4, autoaugment=False, degrees=5.0)
    for method in ("plain", "oe", "prood"):
        assert recipe.augment_for(method) == recipe.augment
    resolved = {method: recipe.resolved(method)["augment"] for method in ("plain", "discriminator")}
    assert resolved == {method: asdict(recipe.augment_for(method)) for method in resolved}
    assert resolved["plain"] != resolved["discriminator"]


def test_any_method_may_have_its_own_augmentation() -> None:
    recipe = augmented({"flip": True} | {method: {"pad": pad} for pad, method in enumerate(METHODS)})
    assert [recipe.augment_for(method) for method in METHODS] == [
        Augment(pad=pad, flip=True) for pad in range(len(METHODS))
    ]


def test_the_augmentation_of_a_method_survives_settings() -> None:
    recipe = augmented()
    assert recipe.with_settings("plain", []) == recipe
    again = recipe.with_settings("plain", ["train.epochs=9", "augment.autoaugment=false"])
    assert again.own_augment == recipe.own_augment
    assert again.augment_for("plain") == Augment(pad=4)
    # A setting of all methods reaches those with a table of their own, too, unless that says otherwise.
    padded = recipe.with_settings("plain", ["augment.pad=2", "augment.degrees=1"])
    assert padded.augment_for("discriminator") == Augment(pad=2, autoaugment=False, degrees=5.0)
    assert padded.augment_for("oe") == Augment(pad=2, autoaugment=True, degrees=1.0)


def test_a_setting_for_a_method_is_not_lost_on_a_table_of_its_own() -> None:
    recipe = augmented().with_settings("discriminator", ["augment.autoaugment=true", "augment.pad=1"])
    assert recipe.augment_for("discriminator") == Augment(pad=1, autoaugment=True, degrees=5.0)
    assert recipe.augment_for("oe") == Augment(pad=1, autoaugment=True)


def test_a_method_may_be_evaluated_in_its_own_way() -> None:
    recipe = load_recipe("cifar10-fast")
    assert recipe.evaluate_for("good") == replace(recipe.evaluate, bound="ibp")
    for method in ("plain", None):
        assert recipe.evaluate_for(method) == recipe.evaluate
    assert recipe.resolved("good")["evaluate"]["bound"] == "ibp"
    assert recipe.with_settings("plain", ["train.epochs=9"]).own_evaluate == recipe.own_evaluate
    changed = recipe.with_settings("good", ["evaluate.method=crown", "evaluate.limit=5"])
    assert changed.evaluate_for("good") == replace(recipe.evaluate, bound="crown", limit=5)
    assert changed.evaluate.bound == "best"
    for setting in ("evaluate.method=magic", "evaluate.good.bound=magic"):
        with pytest.raises(BadValue, match="'magic'"):
            recipe.with_settings("plain", [setting])
    with pytest.raises(UnknownName, match=r"'bounds'.*\[evaluate.good\].*'bound'"):
        recipe.with_settings("good", ["evaluate.good.bounds=ibp"])


def test_settings_reach_the_augmentation_of_a_method() -> None:
    """Whichever method they are given with, if they name the table."""
    for method in ("plain", "discriminator"):
        recipe = augmented().with_settings(method, ["augment.discriminator.autoaugment=true"])
        assert recipe.augment_for("discriminator") == Augment(pad=4, autoaugment=True, degrees=5.0)
    recipe = augmented({}).with_settings("plain", ["augment.oe.flip=true"])
    assert (recipe.augment, recipe.augment_for("oe")) == (Augment(), Augment(flip=True))


def test_settings_leave_the_augmentation_of_the_recipe_itself_alone() -> None:
    recipe = augmented()
    recipe.with_settings("plain", ["augment.discriminator.pad=1"])
    assert recipe == augmented()


@pytest.mark.parametrize(
    ("setting", "complaint"),
    [
        ("augment.discriminator.blur=1", r"unknown key 'blur' in \[augment.discriminator\]: .*t takes pad, flip"),
        ("augment.discriminator.pat=1", "did you mean 'pad'"),
        ("augment.discriminator.pad=1.5", "pad = 1.5 must be of type int"),
        ("augment.discriminator.autoaugment=1", "autoaugment = 1 must be of type bool"),
        ("augment.discriminator.degrees=far", "degrees = 'far' must be of type float"),
        ("augment.discriminator.pad=-1", r"pad.*-1"),
        ("augment.discriminator=5", r"unknown key 'discriminator' in \[augment\]"),
        ("augment.referee.pad=1", r"unknown key 'referee' in \[augment\]"),
        ("augment.discriminator.pad.more=1", r"must be of type int|no setting"),
    ],
)
def test_refuses_a_wrong_augmentation_of_a_method(setting: str, complaint: str) -> None:
    with pytest.raises(ProodError, match=complaint) as refused:
        parse(document(), "mine").with_settings("plain", [setting])
    assert "\n" not in str(refused.value)


# Settings of the command line


def changed(method: str, *settings: str) -> Recipe:
    return parse(document(), "mine").with_settings(method, settings)


def test_settings_reach_every_table() -> None:
    recipe = changed(
        "discriminator",
        "train.epochs=5",
        "train.drops=[1, 2.5]",
        "train.bound=ibp",
        "train.compile=true",
        "data.outside=npz:my/own.npz",
        "augment.pad=2",
        "augment.flip=true",
        "networks.discriminator.size=S",
        "networks.classifier.width=8",
        "joint.shift=3",
        "data.limit=50",
        "data.held_back=7",
        'evaluate.outside=["svhn", "smooth"]',
    )
    options = recipe.options("discriminator")
    assert (options.epochs, options.drops, options.compile) == (5.0, (1.0, 2.5), True)
    assert recipe.method("discriminator") == CertifiedDiscriminator(eps=0.1, bound="ibp")
    assert recipe.data.outside == "npz:my/own.npz"
    assert recipe.augment == Augment(pad=2, flip=True)
    assert recipe.discriminator == {"size": "S"}
    assert recipe.classifier == {"name": "small", "width": 8}
    assert recipe.shift == 3.0
    assert (recipe.data.limit, recipe.data.held_back) == (50, 7)
    assert recipe.evaluate.outside == ("svhn", "smooth")
    assert recipe.options("plain").epochs == 2  # train. means the table of the method alone


def test_settings_leave_the_recipe_itself_alone() -> None:
    recipe = parse(document(), "mine")
    before = recipe.resolved("plain")
    recipe.with_settings("plain", ["train.epochs=7", "networks.classifier.name=resnet18", "augment.pad=1"])
    assert recipe.resolved("plain") == before
    assert recipe.with_settings("plain", []) == recipe


def test_blanks_around_a_setting_do_not_matter() -> None:
    assert changed("plain", " train.epochs = 5 ").options("plain").epochs == 5


def test_a_value_may_hold_an_equals_sign() -> None:
    assert changed("plain", "data.inside=npz:a=b.npz").data.inside == "npz:a=b.npz"


def test_a_method_without_a_table_gets_one() -> None:
    assert changed("oe", "train.epochs=4").options("oe") == TrainOptions(epochs=4)


@pytest.mark.parametrize("setting", ["train.epochs", "epochs=5", "=5", "", "5"])
def test_refuses_settings_it_cannot_read(setting: str) -> None:
    with pytest.raises(BadValue, match=r"train.epochs=5"):
        changed("plain", setting)


def test_a_size_may_be_spelled_out() -> None:
    recipe = changed("discriminator", "networks.discriminator.size=p4 8s2 8 fc8")
    assert recipe.resolved("discriminator")["discriminator"]["size"] == "p4 8s2 8 fc8"
    assert changed("plain", "networks.discriminator.size=p8 photo-M").discriminator["size"] == "p8 photo-M"
    mine = changed("plain", "networks.classifier.name=mine", "networks.classifier.size=huge")  # means what it means
    assert mine.classifier["size"] == "huge"


@pytest.mark.parametrize(
    ("setting", "complaint"),
    [
        ("train.epoch=5", r"unknown key 'epoch' in \[train.plain\]: did you mean 'epochs'\? It takes epochs, batch"),
        ("train.eps=0.1", r"unknown key 'eps' in \[train.plain\]"),
        ("train.plain.epochs=5", r"unknown key 'plain' in \[train.plain\]"),
        ("train=5", "'plain' in a recipe must be a table"),
        ("data.between=5", r"unknown key 'between' in \[data\]: it takes inside, outside, patterns, limit"),
        ("data.insied=svhn", "did you mean 'inside'"),
        ("data.limit=-1", "limit must be at least 0, not -1"),
        ("data.held_back=-1", "held_back must be at least 0, not -1"),
        ("data.held_back=some", "held_back = 'some' must be of type int"),
        ("trian.epochs=5", "unknown key 'trian' in a recipe: did you mean 'train'"),
        ("evaluate.limits=5", "did you mean 'limit'"),
        ("evaluate.outside=svhn", "outside must be a list"),
        ("data.inside.deep=5", "no setting 'data.inside.deep'"),
        ("joint.delta=1", r"unknown key 'delta' in \[joint\]: it takes shift"),
        ("joint.shift=much", "shift = 'much' must be of type float"),
        ("augment.blur=1", r"unknown key 'blur' in \[augment\]"),
        ("augment.pad=-1", r"pad.*-1"),
        ("networks.referee.name=small", r"unknown key 'referee' in \[networks\]"),
        ("networks.discriminator.size=XXL", r"\[networks.discriminator\]: unknown discriminator size 'XXL': choose"),
        ("networks.discriminator.size=p4 8z fc8", r"\[networks.discriminator\]: the size .* has the word '8z'"),
        ("networks.discriminator.size=4", "the size of a discriminator must be a text"),
        ('networks.good={name="certified-classifier", size="S"}', r"\[networks.good\]: unknown classifier size 'S'"),
        ("optimizer.lr=1", "unknown key 'optimizer' in a recipe: it takes modules, data, augment"),
        ("train.seed=1.5", "seed = 1.5 must be of type int"),
        ("train.seed=", "seed = '' must be of type int"),
        ("train.epochs=many", "epochs = 'many' must be of type float"),
        ("train.epochs=true", "epochs = True must be of type float"),
        ("train.nesterov=1", "nesterov = 1 must be of type bool"),
        ("train.optimizer=lion", "optimizer = 'lion' is not one of adam, sgd"),
        ("train.precision=float16", "precision = 'float16' is not one of float32, bfloat16"),
        ("train.drops=5", "drops must be a list"),
        ('train.drops=["late"]', "drops = 'late' must be of type float"),
        ("train.decay_from=soon", "decay_from = 'soon' must be of type float or NoneType"),
        ("train.lr=-1", "lr must be above 0, not -1"),
        ("train.lr=nan", "lr must be a finite number, not nan"),
        ("evaluate.eps=[0.1, inf]", "eps must be a finite number, not inf"),
        ("evaluate.eps=[nan]", "eps must be a finite number, not nan"),
        ("evaluate.eps=[-0.1]", "eps must be at least 0 and at most 1, not -0.1"),
        ("evaluate.limit=-1", "limit must be at least 0, not -1"),
        ("train.epochs=1e300", "epochs must be above 0 and at most 1,000,000,000, not 1e[+]300"),
    ],
)
def test_refuses_wrong_settings_by_name(setting: str, complaint: str) -> None:
    with pytest.raises(ProodError, match=complaint):
        changed("plain", setting)


@pytest.mark.parametrize(
    ("setting", "complaint"),
    [
        (f"train.lr={10**400}", "lr is a number of more than 300 digits"),
        (f"networks.classifier.mean=[{10**400}]", "mean is a number of more than 300 digits"),
        (f"train.seed=0x{'f' * 5000}", "seed is a number of more than 300 digits"),
        (f"train.seed={'9' * 5000}", "cannot read the value '99999"),
        (f"networks.classifier.mean={'[' * 5000}", "cannot read the value"),
        (f"networks.classifier.mean={'[' * 100}{']' * 100}", "mean is nested more than 20 deep"),
        (f"networks.classifier.{'a.' * 5000}a=1", "a is nested more than 20 deep"),
    ],
    ids=range(7),
)
def test_refuses_what_no_number_or_nesting_can_be(setting: str, complaint: str) -> None:
    with pytest.raises(BadValue, match=complaint) as error:
        changed("plain", setting)
    assert len(str(error.value)) < 200


@pytest.mark.parametrize(
    ("setting", "complaint"),
    [
        ("train.eps=wide", "eps = 'wide' must be of type float"),
        ("train.eps=-0.1", "eps"),
        ("train.bound=crown", "bound = 'crown' is not one of crown-ibp, ibp"),
        ("train.loss=hinge", "loss = 'hinge' is not one of paper, official"),
        ("train.attack_steps=2.5", "attack_steps = 2.5 must be of type int"),
        ("train.certified_weight=1.5", "certified_weight"),
        ("train.eps_ramp=inf", "eps_ramp must be a finite number, not inf"),
    ],
)
def test_refuses_wrong_settings_of_the_discriminator(setting: str, complaint: str) -> None:
    with pytest.raises(ProodError, match=complaint):
        changed("discriminator", setting)


@pytest.mark.parametrize("ramp", ["eps_ramp", "kappa_ramp"])
def test_a_ramp_ends_within_the_training(ramp: str) -> None:
    """Else ε silently ends at a part of what was asked for."""
    settings = ["train.epochs=5.5", "train.eps=0.3", "train.eps_ramp=2", f"train.{ramp}=25"]
    with pytest.raises(BadValue, match=rf"{ramp} = 25.*5\.5.*train\.{ramp}=2\.75") as error:
        load_recipe("quickstart").with_settings("discriminator", [*settings, "train.decay_from=2"])
    assert ("0.066 instead of 0.3" in str(error.value)) == (ramp == "eps_ramp")
    settings = ["train.epochs=5.5", "train.decay_from=2", "train.eps_ramp=5.5", "train.kappa_ramp=5.5"]
    assert load_recipe("quickstart").with_settings("discriminator", settings).options("discriminator").epochs == 5.5


def test_refuses_settings_of_an_unknown_method() -> None:
    with pytest.raises(ProodError, match=r"'prod'.*'prood'"):
        changed("prod", "train.epochs=5")


# Documents


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        (
            {"results": {}},
            "unknown key 'results' in a recipe: it takes modules, data, augment, networks, train, joint, evaluate",
        ),
        ({"data": {"inside": "digits:train"}}, "recipe 'mine' does not say which outside to use"),
        ({"data": {"outside": "smooth"}}, "does not say which inside to use"),
        ({"data": None}, "does not say which inside to use"),
        ({"networks": {"discriminator": {"size": "XXS"}}}, r"\[networks.discriminator\].*'XXS'.*XS"),
        ({"networks": {"discriminator": {"sise": "S"}}}, r"sise.*\[networks.discriminator\]"),
        ({"evaluate": {"eps": [8]}}, "eps must be at least 0 and at most 1, not 8"),
        ({"networks": {"classifier": "small", "discriminator": {}}}, "'classifier' in a recipe must be a table"),
        ({"data": "digits"}, "'data' in a recipe must be a table"),
        ({"train": {"plain": 5}}, "'plain' in a recipe must be a table"),
        ({"train": {"prod": {}}}, "unknown method 'prod'"),
        ({"train": {"oe": {"weight": True}}}, "weight = True must be of type float"),
        ({"train": {"oe": {"epochs": "many"}}}, "epochs = 'many' must be of type float"),
        ({"joint": {"shift": [1]}}, r"shift = \[1\] must be of type float"),
        ({"augment": {"degrees": 200}}, "degrees"),
    ],
    ids=str,
)
def test_refuses_wrong_documents(changes: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ProodError, match=complaint):
        parse(document(**changes), "mine")


def test_a_method_that_the_recipe_lacks() -> None:
    recipe = parse(document(), "mine")
    with pytest.raises(NotFound, match=r"'mine'.*\[train.oe\]"):
        recipe.options("oe")
    with pytest.raises(UnknownName, match="'prod'"):
        recipe.method("prod")


# Files


def test_a_file_of_ones_own_is_named_by_its_stem(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text(
        '[data]\ninside = "digits:train"\noutside = "smooth"\n'
        '[networks]\nclassifier = {name = "small"}\ndiscriminator = {size = "S"}\n[train.oe]\nweight = 2\n'
    )
    recipe = load_recipe(str(file))
    assert recipe.name == "mine"
    assert recipe.resolved("oe")["train"]["weight"] == 2.0


@pytest.mark.parametrize(
    "content",
    [b"[data\n", b"inside = digits\n", b"\xff\xfe", b"a = 1\na = 2\n", b"a=" + b"9" * 5000, b"a=" + b"[" * 5000],
    ids=range(6),
)
def test_refuses_what_is_no_toml(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "broken.toml"
    file.write_bytes(content)
    with pytest.raises(BadValue, match="TOML"):
        load_recipe(str(file))


def test_a_byte_order_mark_does_not_matter(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    text = '# Mine.\n[data]\ninside = "digits"\noutside = "smooth"\n[networks]\nclassifier = {}\ndiscriminator = {}\n'
    file.write_text(text, encoding="utf-8-sig")
    assert load_recipe(str(file)).description == "Mine."


@pytest.mark.parametrize("name", ["cifar11", "", ".", "no/such/file.toml"])
def test_an_unknown_recipe_is_refused_with_the_known_ones(name: str) -> None:
    with pytest.raises(NotFound):
        load_recipe(name)
