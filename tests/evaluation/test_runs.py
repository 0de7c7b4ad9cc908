import os
import shutil
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
from PIL import Image

from prood import pretrained
from prood.data import load, open_set
from prood.errors import BadValue, Damaged, NotFound, ProodError
from prood.evaluation import Evaluation, Results, evaluate_run, gather, parse_radii, read_results
from prood.evaluation.runs import counterpart
from prood.models import Discriminator, ProoD, save, small


@pytest.fixture
def run(f, g, inside, outside, tmp_path):
    """A run's folder with a joint model, and its data as files."""
    np.savez(tmp_path / "in.npz", images=inside.images.squeeze(1).numpy(), labels=inside.labels.numpy())
    np.savez(tmp_path / "out.npz", images=outside["noise"].images.squeeze(1).numpy())
    save(ProoD(f, g, 1.0), tmp_path / "run" / "model.safetensors", eps=0.05)
    return tmp_path / "run"


def test_a_run_is_evaluated_by_names_into_its_own_folder(run):
    names = {"inside": f"npz:{run.parent}/in.npz", "outside": [f"npz:{run.parent}/out.npz", "uniform"]}
    results = evaluate_run(run, **names, limit=8, device="cpu")
    assert [(one.model, one.eps, one.images, one.attacks, one.limit) for one in results] == [
        ("run", 0.05, 8, "fast", 8)
    ] * 2
    assert [one.outside for one in results] == names["outside"]
    assert list(read_results(run)) == list(results)
    more = evaluate_run(run, **names, limit=8, eps=[0.01], attacks=None, device="cpu")
    assert len(read_results(run)) == 4
    assert [one.aauc for one in more] == [None, None]


def test_a_shipped_model_is_evaluated_by_its_name(run, monkeypatch):
    monkeypatch.setattr(pretrained, "FOLDER", run.parent / "shipped")
    shutil.copytree(run, run.parent / "shipped")
    (run.parent / "shipped" / "model.safetensors").rename(run.parent / "shipped" / "toys.safetensors")
    monkeypatch.chdir(run.parent)
    names = {"inside": "npz:in.npz", "outside": ["uniform"]}
    (one,) = evaluate_run("toys", **names, attacks=None, limit=8, device="cpu")
    assert (one.model, one.eps) == ("toys", 0.05)
    assert list(read_results("runs/shipped/toys")) == [one]
    (other,) = evaluate_run("toys", **names, attacks=None, limit=8, device="cpu", folder="elsewhere")
    assert list(read_results("elsewhere")) == [other] == [replace(one, seconds=other.seconds)]


def test_the_in_distribution_is_the_test_split_of_the_training_data(tmp_path):
    save(small(8, width=4), tmp_path / "model.safetensors", inside="digits:train")
    (one,) = evaluate_run(tmp_path, outside=["uniform"], eps=[0.1], attacks=None, limit=5, device="cpu")
    assert one.inside == "digits:test"
    assert one.fingerprints["inside"] == load("digits:test").fingerprint()


@pytest.mark.parametrize(
    ("trained_on", "test_set"),
    [
        ("cifar10:train", "cifar10:test"),
        ("folder:train/mine/train", "folder:train/mine/test"),
        ("npz:mine/train.npz", "npz:mine/test.npz"),
        ("csv:mine/train.csv", "csv:mine/test.csv"),
        ("npz:mine/strain.npz", None),
        ("npz:train/mine.npz", None),
        ("cifar10:test", None),
        ("", None),
    ],
)
def test_the_test_set_beside_a_training_set(trained_on, test_set):
    assert counterpart(trained_on) == test_set


def test_what_is_not_said_is_what_the_recipe_plans(tmp_path):
    plan = {"outside": ["uniform", "photographs"], "eps": [0.1, 0.2], "limit": 3}
    save(
        small(8, width=4),
        tmp_path / "model.safetensors",
        inside="digits:train",
        eps=0.5,
        recipe={"evaluate": plan},
    )
    results = evaluate_run(tmp_path, attacks=None, device="cpu")
    assert [(one.outside, one.eps, one.images) for one in results] == [
        (name, eps, 3) for name in plan["outside"] for eps in plan["eps"]
    ]
    # A name without a split means its test images, chosen by the seed.
    assert list(results)[-1].fingerprints["outside"] == load("photographs:test").subset(3, 0).fingerprint()
    (one,) = evaluate_run(tmp_path, outside=["faces"], eps=[0.3], limit=5, attacks=None, device="cpu")
    assert (one.outside, one.eps, one.images) == ("faces", 0.3, 5)


def test_the_recipe_may_say_which_bounds_certify(run, f, g):
    names = {"inside": f"npz:{run.parent}/in.npz", "outside": [f"npz:{run.parent}/out.npz"]}
    save(ProoD(f, g, 1.0), run / "model.safetensors", eps=0.05, recipe={"evaluate": {"method": "ibp"}})
    (planned,) = evaluate_run(run, **names, attacks=None, limit=4, device="cpu")
    (asked,) = evaluate_run(run, **names, attacks=None, limit=4, method="crown-ibp", device="cpu")
    assert [one.certificate.partition(",")[0] for one in (planned, asked)] == ["ibp", "crown-ibp"]


def test_a_joint_model_takes_the_bounds_of_the_run_that_its_discriminator_is_from(run, f, g, monkeypatch):
    asked = []
    bound = Discriminator.upper_bound

    def counted(self, images, *args, **options):
        asked.append(len(images))
        return bound(self, images, *args, **options)

    monkeypatch.setattr(Discriminator, "upper_bound", counted)
    names = {"inside": f"npz:{run.parent}/in.npz", "outside": [f"npz:{run.parent}/out.npz"]}
    options = names | {"attacks": None, "limit": 12, "device": "cpu"}
    alone = run.parent / "g"
    save(g, alone / "model.safetensors", eps=0.05)
    save(ProoD(f, g, 1.0), run / "model.safetensors", eps=0.05, recipe={"discriminator_run": str(alone)})
    evaluate_run(alone, **options)
    assert sum(asked) == 12
    (reused,) = evaluate_run(run, **options)
    assert sum(asked) == 12
    (scores,) = (alone / "scores").iterdir()
    # What cannot be read is as if it were not there.
    for count, damaged in ((24, scores), (36, alone / "results.json")):
        (run / "results.json").unlink()
        damaged.write_text("{half")
        (computed,) = evaluate_run(run, **options)
        assert sum(asked) == count
        assert (computed.gauc, computed.identity) == (reused.gauc, reused.identity)


def test_of_a_set_on_disk_only_what_is_needed_is_read(tmp_path):
    save(small(8, width=4), tmp_path / "run" / "model.safetensors", inside="digits:train")
    (tmp_path / "pictures").mkdir()
    for number, image in enumerate(load("digits:test").images[:6]):
        Image.fromarray(image[0].numpy()).save(tmp_path / "pictures" / f"{number}.png")
    (tmp_path / "pictures" / "6.png").write_bytes(b"damaged")
    name = f"folder:{tmp_path / 'pictures'}"
    chosen = open_set(name).subset(2, 0).rows.tolist()
    assert 6 not in chosen  # with this seed
    (one,) = evaluate_run(tmp_path / "run", outside=[name], eps=[0.1], limit=2, seed=0, attacks=None, device="cpu")
    assert one.images == 2
    with pytest.raises(Damaged, match=r"6\.png"):
        evaluate_run(tmp_path / "run", outside=[name], eps=[0.1], limit=0, attacks=None, device="cpu")


@pytest.mark.parametrize(
    ("facts", "options", "said"),
    [
        ({}, {"eps": [0.1], "outside": None}, "names no test out-distributions: name some with --out"),
        ({}, {"eps": [0.1]}, "name it with --in"),
        ({"data": {"npz:mine.npz": "x"}}, {"eps": [0.1]}, "name it with --in"),
        ({}, {"inside": "digits:test"}, "was not trained for a radius: give one with --eps"),
        ({}, {"inside": "digits:best", "eps": [0.1]}, "has no split 'best'"),
        ({}, {"inside": "digits:test", "eps": [0.1], "device": "banana"}, "there is no device 'banana'"),
    ],
)
def test_what_is_missing_is_said(f, tmp_path, facts, options, said):
    save(f, tmp_path / "model.safetensors", **facts)
    with pytest.raises(ProodError, match=said):
        evaluate_run(tmp_path, **({"outside": ["uniform"]} | options))


def test_results_go_into_a_folder(f, tmp_path):
    save(f, tmp_path / "model.safetensors")
    with pytest.raises(NotFound, match=r"model\.safetensors"):
        evaluate_run(tmp_path / "model.safetensors", outside=["uniform"])


@pytest.mark.slow
def test_two_processes_find_what_one_finds(run):
    names = {"inside": f"npz:{run.parent}/in.npz", "outside": [f"npz:{run.parent}/out.npz"]}
    (alone,) = evaluate_run(run, **names, eps=[0.05], device="cpu", stop="never")
    (run / "results.json").rename(run / "alone.json")
    script = run.parent / "script.py"
    script.write_text(
        f"from prood.evaluation import evaluate_run\nevaluate_run({str(run)!r}, inside={names['inside']!r}, "
        f"outside={names['outside']!r}, eps=[0.05], device='cpu', stop='never')\n"
    )
    launch = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2"]
    launch += ["--rdzv-backend", "c10d", "--rdzv-endpoint", "localhost:0", str(script)]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    done = subprocess.run(launch, env=environment, capture_output=True, text=True, check=False, timeout=180)
    assert done.returncode == 0, done.stderr[-3000:]
    (both,) = read_results(run)
    assert both.accuracy == alone.accuracy
    assert both.attack["forward"] == alone.attack["forward"]
    for kind in ("inside", "clean", "certified"):
        np.testing.assert_allclose(getattr(both.scores, kind), getattr(alone.scores, kind), atol=1e-5)
    # The draws are the same; rounding in other batches may send a search another way.
    np.testing.assert_allclose(both.scores.attacked, alone.scores.attacked, atol=2e-3)
    np.testing.assert_array_equal(np.sort(both.scores.gallery), np.sort(alone.scores.gallery))
    shown = dict(zip(both.scores.gallery, both.scores.gallery_clean, strict=True))
    for place, image in zip(alone.scores.gallery, alone.scores.gallery_clean, strict=True):
        np.testing.assert_array_equal(shown[place], image)


def one(model: str, **change) -> Evaluation:
    numbers = {"auc": 0.5, "gauc": 0.0, "fpr95": 0.5, "gfpr95": 1.0, "images": 1}
    return Evaluation(model=model, inside="i", outside="o", eps=0.1, **(numbers | change))


def test_gather_reads_runs_and_folders_of_runs_and_tells_equal_names_apart(tmp_path):
    Results((one("plain"),)).save(tmp_path / "a" / "plain")
    Results((one("prood"),)).save(tmp_path / "a" / "prood")
    Results((one("prood", auc=0.7),)).save(tmp_path / "b" / "prood")
    (tmp_path / "a" / "note.txt").write_text("not a run")
    assert [found.model for found in gather([tmp_path / "a"])] == ["plain", "prood"]
    both = gather([tmp_path / "a", tmp_path / "b" / "prood"])
    assert [(found.model, found.auc) for found in both] == [("plain", 0.5), ("a/prood", 0.5), ("b/prood", 0.7)]
    Results((one("prood", auc=0.9),)).save(tmp_path / "c" / "b" / "prood")
    Results((one("prood", auc=0.8),)).save(tmp_path / "c" / "b" / "copy")
    (tmp_path / "link").symlink_to(tmp_path / "b")
    others = [tmp_path / name for name in ("b/prood", "link/prood", "c/b/prood", "c/b/copy")]
    far = [(found.model, found.auc) for found in gather(others)]
    assert far == [(f"{tmp_path.name}/b/prood", 0.7), ("c/b/prood", 0.9), ("b/copy/prood", 0.8)]
    Results((one("all"),)).save(tmp_path / "a")  # a summary of its own counts alone
    assert [found.model for found in gather([tmp_path / "a"])] == ["all"]
    (tmp_path / "empty").mkdir()
    assert [found.model for found in gather([tmp_path / "empty", tmp_path / "a"])] == ["all"]
    with pytest.raises(NotFound, match="--out"):
        gather([tmp_path / "empty"])
    with pytest.raises(NotFound):
        gather([tmp_path / "a", tmp_path / "absent"])


def test_radii_are_numbers_or_fractions():
    assert parse_radii("0.01,8/255, 1") == [0.01, 8 / 255, 1.0]
    for wrong in ("", "a", "1/0", "1/2/3", "0.1,,0.2", "inf", "1e400", "nan"):
        with pytest.raises(BadValue):
            parse_radii(wrong)
