"""Runs that were really trained and evaluated, as published files; and what counts of many evaluations."""

import json
import math
import shutil
from dataclasses import replace

import numpy as np
import pytest

from prood.errors import AlreadyThere, Damaged, Mismatch, NotFound, Unsupported
from prood.evaluation import Evaluation, Results, evaluate_run, read_results
from prood.evaluation.words import PROVED
from prood.models import fingerprint, load, save
from prood.studies import Published, grouped, publish, read_published
from prood.studies.publishing import has_news
from prood.training import combine, load_recipe, train

RECIPE = """
[data]
inside = "npz:{folder}/in.npz"
outside = "npz:{folder}/out.npz"
[networks.classifier]
name = "small"
width = 4
[networks.discriminator]
size = "digits"
[joint]
shift = 1.3
"""
WORDS = {"command": "prood train …", "title": "ProoD", "outside": "squares"}


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """A discriminator, a plain classifier and a joint model, trained for a step or two and evaluated."""
    folder = tmp_path_factory.mktemp("runs")
    random = np.random.default_rng(0)
    np.savez(folder / "in.npz", images=random.integers(0, 60, (40, 12, 12), np.uint8), labels=np.arange(40) % 3)
    np.savez(folder / "out.npz", images=random.integers(0, 256, (30, 12, 12), np.uint8))
    methods = "".join(f"[train.{name}]\nepochs = 2\nbatch = 20\n" for name in ("plain", "discriminator", "prood"))
    (folder / "toy.toml").write_text(RECIPE.format(folder=folder) + methods)
    recipe = load_recipe(str(folder / "toy.toml"))
    train("plain", recipe, folder / "plain", device="cpu")
    train("discriminator", recipe.with_settings("discriminator", ["train.seed=4"]), folder / "disc", device="cpu")
    train("prood", recipe, folder / "prood", discriminator=folder / "disc", device="cpu")
    combine(folder / "plain", folder / "disc", folder / "prood-s", shift=2.0)
    outside, inside = [f"npz:{folder}/out.npz", "uniform"], f"npz:{folder}/in.npz"
    for name in ("disc", "prood", "prood-s"):
        options = {"outside": outside, "inside": inside, "eps": [0.01, 8 / 255], "limit": 20, "device": "cpu"}
        evaluate_run(folder / name, **options, attacks="fast" if name == "prood" else None)
    return folder


@pytest.fixture
def prood_run(runs, tmp_path):
    """A copy that may be damaged."""
    shutil.copytree(runs / "prood", tmp_path / "prood")
    return tmp_path / "prood"


@pytest.mark.slow
def test_a_published_file_says_what_the_run_says(runs, tmp_path):
    content = publish(runs / "prood", tmp_path / "a" / "b" / "prood.json", **WORDS)
    text = (tmp_path / "a" / "b" / "prood.json").read_text(encoding="utf-8")
    assert json.loads(text) == content
    assert str(runs) not in text
    assert text.count("\n") < 80
    model, about = load(runs / "prood")
    last = json.loads((runs / "prood" / "metrics.jsonl").read_text().splitlines()[-1])
    assert last["seconds"] > 0
    assert content["seconds"] == pytest.approx(last["seconds"], rel=1e-5)
    facts = {"inside": "in", "outside": "squares", "seed": 0, "shift": 1.3, "weights": fingerprint(model)}
    assert {key: content[key] for key in facts} == facts
    assert (content["title"], content["command"], content["version"]) == ("ProoD", "prood train …", about.version)
    assert content["hardware"] == next(iter(read_results(runs / "prood"))).machine
    recipe = json.loads((runs / "prood" / "recipe.json").read_text())
    assert recipe["discriminator_run"] == str(runs / "disc")
    assert content["recipe"]["discriminator_run"] == "disc"
    assert content["recipe"]["inside"] == "npz:in.npz"
    assert list(content["recipe"]["data"]) == ["npz:in.npz", "npz:out.npz"]
    assert content["recipe"]["train"] == recipe["train"]


def test_the_evaluations_are_those_of_the_run_to_six_digits(runs, tmp_path):
    publish(runs / "prood", tmp_path / "prood.json", **WORDS)
    (one,) = read_published(tmp_path)
    assert (one.file, one.title, one.sets) == ("prood.json", "ProoD", ("out", "uniform"))
    results = list(read_results(runs / "prood"))
    assert len(one.evaluations) == len(results) == 4
    for published, measured in zip(one.evaluations, results, strict=True):
        assert published.eps == measured.eps  # all digits: it is a setting
        for name in ("auc", "gauc", "aauc", "fpr95", "gfpr95", "afpr95", *PROVED, "accuracy"):
            value = getattr(measured, name)
            assert getattr(published, name) == float(f"{value:.6g}")
        for name in ("images", "certificate", "attacks", "stop", "seed", "machine", "fingerprints"):
            assert getattr(published, name) == getattr(measured, name)
        assert published.intervals["gauc"] == pytest.approx(measured.intervals["gauc"], abs=1e-5)
    assert [found.outside for found in one.evaluations] == ["npz:out.npz"] * 2 + ["uniform"] * 2


def test_models_without_attack_training_or_seed(runs, tmp_path):
    content = publish(runs / "disc", tmp_path / "d.json", **WORDS | {"title": "ProoD-Disc"}, hardware="one GPU")
    assert (content["seed"], content["shift"], content["hardware"]) == (4, None, "one GPU")
    assert {one["aauc"] for one in content["evaluations"]} == {None}
    assert {one["accuracy"] for one in content["evaluations"]} == {None}
    combined = publish(runs / "prood-s", tmp_path / "s.json", **WORDS)
    assert (combined["seed"], combined["seconds"], combined["shift"]) == (None, None, 2.0)
    assert combined["recipe"]["classifier_run"] == "plain"
    assert publish(runs / "prood-s", tmp_path / "s.json", **WORDS, seed=7)["seed"] == 7
    assert [one.seed for one in read_published(tmp_path)] == [4, 7]


def test_what_was_published_of_the_same_weights_stays(prood_run, tmp_path):
    """As from another machine, whose results are not here. Nothing is there twice; other weights are another model."""
    file = tmp_path / "out" / "prood.json"
    content = publish(prood_run, file, **WORDS)
    results = json.loads((prood_run / "results.json").read_text())
    _, *others = results["evaluations"]
    (prood_run / "results.json").write_text(json.dumps(results | {"evaluations": others}))
    assert not has_news(prood_run, read_published(file.parent)[0])
    assert publish(prood_run, file, **WORDS) == content
    moved = [one | {"eps": one["eps"] / 2} for one in results["evaluations"]]
    (prood_run / "results.json").write_text(json.dumps(results | {"evaluations": moved}))
    assert has_news(prood_run, read_published(file.parent)[0])
    both = publish(prood_run, file, **WORDS)["evaluations"]
    radii = [one["eps"] for one in content["evaluations"]]
    assert [one["eps"] for one in both] == radii + [eps / 2 for eps in radii]
    file.write_text(file.read_text().replace(content["weights"], "0" * 16))
    assert len(publish(prood_run, file, **WORDS)["evaluations"]) == 4
    file.write_text("{")
    with pytest.raises(Damaged, match=r"prood\.json"):
        publish(prood_run, file, **WORDS)


def test_provable_shares_that_were_not_published_are_news(prood_run, tmp_path):
    """Files from before they were stated stay readable, and get them from the scores in the run's folder."""
    file, results = tmp_path / "out" / "prood.json", prood_run / "results.json"
    whole = publish(prood_run, file, **WORDS)
    for path in (file, results):
        content = json.loads(path.read_text())
        for evaluation in content["evaluations"]:
            for name in PROVED:
                del evaluation[name]
        path.write_text(json.dumps(content))
    (old,) = read_published(file.parent)
    assert {one.proved90 for one in old.evaluations} == {None}
    assert old.evaluations[0].value("proved95") == 1 - old.evaluations[0].gfpr95
    assert has_news(prood_run, old)
    assert publish(prood_run, file, **WORDS) == whole
    assert not has_news(prood_run, read_published(file.parent)[0])
    shutil.rmtree(prood_run / "scores")
    assert not has_news(prood_run, read_published(file.parent)[0])
    assert publish(prood_run, file, **WORDS) == whole, "what was published stays without the scores"


def test_infinities_are_null(prood_run, tmp_path):
    first, *_ = read_results(prood_run)
    Results((replace(first, intervals={"auc": [-math.inf, math.nan]}, seconds=math.inf),)).save(prood_run)
    recipe = json.loads((prood_run / "recipe.json").read_text())
    (prood_run / "recipe.json").write_text(json.dumps(recipe | {"highest": math.inf}))
    content = publish(prood_run, tmp_path / "out" / "p.json", **WORDS)
    assert content["evaluations"][0]["intervals"] == {"auc": [None, None]}
    assert content["evaluations"][0]["seconds"] is None
    assert content["recipe"]["highest"] is None
    assert len(read_published(tmp_path / "out")) == 1


def test_a_line_of_the_metrics_that_a_kill_cut_short_does_not_count(prood_run, tmp_path):
    metrics = prood_run / "metrics.jsonl"
    metrics.write_text('{"step": 1, "seconds": 12.3456789}\n{"step": 2, "sec')
    assert publish(prood_run, tmp_path / "p.json", **WORDS)["seconds"] == 12.3457
    metrics.write_text('{"step": 1}\n')
    with pytest.raises(Damaged, match=r"metrics\.jsonl"):
        publish(prood_run, tmp_path / "p.json", **WORDS)


def test_what_must_not_be_published(runs, prood_run, tmp_path):
    with pytest.raises(NotFound):
        publish(runs / "plain", tmp_path / "p.json", **WORDS)
    shutil.copy(runs / "prood-s" / "results.json", prood_run)
    with pytest.raises(Mismatch, match=r"results\.json"):
        publish(prood_run, tmp_path / "p.json", **WORDS)
    shutil.copy(runs / "prood" / "results.json", prood_run)
    first, second, *_ = read_results(prood_run)
    Results((first, replace(second, inside="other:test"))).save(prood_run)
    with pytest.raises(Mismatch, match=r"results\.json"):
        publish(prood_run, tmp_path / "p.json", **WORDS)
    assert not (tmp_path / "p.json").exists()
    with pytest.raises(NotFound):
        publish(tmp_path / "nosuch", tmp_path / "p.json", **WORDS)


def test_of_several_in_distributions_the_models_own_is_published(prood_run, tmp_path):
    model, about = load(prood_run)
    data = {"digits:train": "0", **about.data}
    save(
        model,
        prood_run / "model.safetensors",
        recipe=about.recipe,
        inside="digits:train",
        data=data,
        eps=about.eps,
        classes=about.classes,
    )
    own, *others = (replace(one, inside="digits:test") for one in read_results(prood_run))
    Results((own, *(replace(one, inside="other:test") for one in others))).save(prood_run)
    content = publish(prood_run, tmp_path / "out" / "p.json", **WORDS)
    assert (content["inside"], len(content["evaluations"])) == ("digits", 1)
    (published,) = read_published(tmp_path / "out")
    assert not has_news(prood_run, published)  # what was evaluated on the other is none


def test_files_that_are_not_published(runs, tmp_path):
    with pytest.raises(NotFound):
        read_published(tmp_path / "nosuch")
    assert read_published(tmp_path) == []
    (tmp_path / "a").mkdir()
    for name in ("shift.json", "gpu.json"):  # these have another form
        (tmp_path / "a" / name).write_text("{}")
    assert read_published(tmp_path) == []
    whole = publish(runs / "prood", tmp_path / "a" / "wrong.json", **WORDS)
    evaluation = whole["evaluations"][0]
    broken = ["{half", "[]", "{}", json.dumps(whole | {"format": "x"}), json.dumps(whole | {"surprise": 1})]
    broken += [json.dumps({key: value for key, value in whole.items() if key != "weights"})]
    for change in ({"auc": "high"}, {"eps": None}, {"colour": 1}):
        broken.append(json.dumps(whole | {"evaluations": [evaluation | change]}))
    for change in ({"outside": 3}, {"certificate": None}, {"intervals": [1]}, {"intervals": {"auc": [0.1]}}):
        broken.append(json.dumps(whole | {"evaluations": [evaluation | change]}))
    for change in ({"title": 3}, {"outside": 3}, {"command": None}, {"hardware": None}, {"shift": "3"}):
        broken.append(json.dumps(whole | change))
    broken.append(json.dumps(whole | {"evaluations": []}))
    for content in broken:
        (tmp_path / "a" / "wrong.json").write_text(content)
        with pytest.raises(Damaged, match=r"wrong\.json (is damaged or of another format|cannot be read)"):
            read_published(tmp_path)
    (tmp_path / "a" / "wrong.json").write_text(json.dumps(whole | {"format": 2}))
    with pytest.raises(Unsupported, match=r"wrong\.json"):
        read_published(tmp_path)


def one(outside="svhn", eps=0.01, **change) -> Evaluation:
    numbers = {"auc": 0.9, "gauc": 0.3, "fpr95": 0.4, "gfpr95": 0.9, "images": 1000, "certificate": "best, float32"}
    return Evaluation(model="ProoD", inside="cifar10", outside=outside, eps=eps, **(numbers | change))


def model(*evaluations: Evaluation, seed: int | None = 0, **change) -> Published:
    words = {"title": "ProoD", "inside": "cifar10", "outside": "cifar100", "command": "", "hardware": "", "version": ""}
    facts = {"seed": seed, "shift": 3.0, "seconds": 1.0, "weights": "", "recipe": {}, "file": f"{seed}.json"}
    return Published(**(words | facts | change), evaluations=evaluations)


def test_a_guarantee_is_the_tightest_proof_on_the_most_images():
    few = one(gauc=0.9, gfpr95=0.1, images=100, certificate="bab, float32")
    loose, tight = one(proved80=0.1), one(gauc=0.5, gfpr95=0.8, proved80=0.3, certificate="crown, float32")
    elsewhere = [one("smooth", gauc=0.99), one(eps=0.02, gauc=0.99)]
    found = model(few, tight, loose, *elsewhere)
    assert found.best("gauc", "svhn", 0.01) is tight
    assert found.best("gfpr95", "svhn", 0.01) is tight
    assert found.best("proved95", "svhn", 0.01) is tight, "what its false positives leave"
    assert found.best("proved80", "svhn", 0.01) is tight
    assert found.best("proved90", "svhn", 0.01) is None
    assert found.best("auc", "svhn", 0.01) is loose
    assert found.best("gauc", "svhn", 0.5) is None
    (group,) = grouped([found])
    assert group.methods("svhn", 0.01) == {"crown"}
    assert group.only("bab").statistic("gauc", "svhn", 0.01).mean == 0.9


def test_an_adversarial_value_is_the_worst_of_the_strongest_attack():
    weak = one(aauc=0.2, afpr95=0.99, attacks="fast", images=5000)
    strong = [one(aauc=value, afpr95=1 - value, attacks="paper") for value in (0.6, 0.5, 0.7)]
    found = model(one(aauc=None), weak, *strong, one(aauc=0.1, afpr95=1.0, attacks="paper", images=10))
    assert found.best("aauc", "svhn", 0.01).aauc == 0.5
    assert found.best("afpr95", "svhn", 0.01).afpr95 == 0.5
    lucky = one(aauc=0.4, afpr95=0.6, attacks="fast")  # on as many images: what it found was found
    assert model(lucky, *strong).best("aauc", "svhn", 0.01) is lucky
    assert model(one()).best("aauc", "svhn", 0.01) is None
    assert model(weak, one()).best("aauc", "svhn", 0.01) is weak


def test_seeds_of_one_model_have_a_mean_and_a_sample_deviation():
    seeds = [model(one(gauc=value, accuracy=0.9 + value / 10), seed=seed) for seed, value in enumerate((0.1, 0.2, 0.6))]
    other = [model(one(), title="OE"), model(one(), inside="digits"), model(one(), outside="natural32")]
    first, *rest = grouped([*seeds[:2], *other, seeds[2]])
    assert [len(group.members) for group in (first, *rest)] == [3, 1, 1, 1]
    statistic = first.statistic("gauc", "svhn", 0.01)
    assert statistic.mean == pytest.approx(0.3)
    assert statistic.deviation == pytest.approx(np.std([0.1, 0.2, 0.6], ddof=1))
    assert statistic.text() == "30.0 ± 26.5"
    assert first.accuracy().mean == pytest.approx(0.93)
    assert rest[0].statistic("gauc", "svhn", 0.01).text() == "30.0"
    assert rest[0].statistic("aauc", "svhn", 0.01) is None
    assert rest[0].accuracy() is None


def test_a_mean_of_guarantees_is_of_one_method_where_the_seeds_share_one():
    tighter = one(gauc=0.5, gfpr95=0.2, certificate="crown, float32")
    (group,) = grouped([model(one(gauc=0.3, gfpr95=0.6), tighter), model(one(gauc=0.2, gfpr95=0.8), seed=1, shift=4.0)])
    assert group.statistic("gauc", "svhn", 0.01).mean == pytest.approx(0.25)
    assert group.statistic("gfpr95", "svhn", 0.01).mean == pytest.approx(0.7)
    assert group.methods("svhn", 0.01) == {"best"}
    assert group.shifts == [3.0, 4.0]
    (group,) = grouped([model(tighter, one(gauc=0.3)), model(one(gauc=0.2), tighter, seed=1)])
    assert group.statistic("gauc", "svhn", 0.01).mean == 0.5
    (group,) = grouped([model(tighter), model(one(gauc=0.1), seed=1), model(one("smooth"), seed=2)])  # none in common
    assert group.statistic("gauc", "svhn", 0.01).mean == pytest.approx(0.3)
    assert group.methods("svhn", 0.01) == {"best", "crown"}


def test_a_mean_of_adversarial_values_is_of_the_seeds_that_were_attacked_the_most():
    strong, weak = one(aauc=0.2, attacks="paper"), one(aauc=0.6, attacks="fast", images=5000)
    lucky = one(aauc=0.1, attacks="fast")  # of a seed that was attacked by both
    (group,) = grouped([model(strong), model(weak, seed=1), model(strong, lucky, seed=2), model(one(), seed=3)])
    statistic = group.statistic("aauc", "svhn", 0.01)
    assert statistic.mean == pytest.approx(0.15)
    assert statistic.deviation is not None
    (group,) = grouped([model(weak), model(one(), seed=1)])
    assert group.statistic("aauc", "svhn", 0.01).text() == "60.0"


def test_the_same_seed_twice_is_a_mistake():
    with pytest.raises(AlreadyThere, match=r"3\.json.*again\.json.*'ProoD'"):
        grouped([model(one(), seed=3), model(one(), seed=3, file="again.json")])


def test_published_again_elsewhere_nothing_is_lost(prood_run, tmp_path):
    """Of the same weights, the machine that trained them and the seconds that it took."""
    first = publish(prood_run, tmp_path / "p.json", **WORDS, hardware="one GPU")
    (prood_run / "metrics.jsonl").unlink()
    again = publish(prood_run, tmp_path / "p.json", **WORDS)
    assert (again["hardware"], again["seconds"]) == ("one GPU", first["seconds"])
    assert again["seconds"] is not None
