"""The command line as a user meets it: the real entry point, its output and its exit code."""

import pytest

from prood.evaluation import read_results
from prood.models import load
from prood.version import __version__


@pytest.mark.slow
def test_version_and_help(prood):
    assert prood("--version") == (0, f"prood {__version__}\n", "")
    code, out, _ = prood("--help")
    assert code == 0
    for command in ("quickstart", "train", "combine", "evaluate", "report", "info"):
        assert command in out
        assert "Usage" in prood(command, "--help")[1]


@pytest.mark.slow
def test_train_combine_and_info(prood, tiny, tmp_path):
    runs = {name: tmp_path / name for name in ("plain", "discriminator", "prood", "combined")}
    assert prood("train", "plain", "--recipe", tiny, "--run", runs["plain"])[0] == 0
    code, out, _ = prood(
        "train",
        "discriminator",
        "--recipe",
        tiny,
        "--run",
        runs["discriminator"],
        "--seed",
        5,
        "--set",
        "train.eps=0.1",
    )
    assert code == 0
    estimate, wrote = out.splitlines()
    assert estimate.startswith("estimate on")
    assert wrote == f"wrote {runs['discriminator']}"
    arguments = ("--recipe", tiny, "--run", runs["prood"], "--discriminator", runs["discriminator"], "--shift", 1.5)
    threshold = ("--calibrate", f"npz:{tiny.parent}/in.npz", "--accept", 0.9)
    code, out, _ = prood("train", "prood", *arguments, *threshold)
    assert code == 0
    assert f"accepts 90% of npz:{tiny.parent}/in.npz" in out
    assert load(runs["prood"])[1].accept == 0.9
    assert prood("train", "prood", *arguments, *threshold, "--resume")[0] == 0  # nothing to train, and the same again
    parts = ("--classifier", runs["plain"], "--discriminator", runs["discriminator"])
    assert prood("combine", *parts, "--shift", 2, "--run", runs["combined"])[0] == 0

    about = load(runs["discriminator"])[1]
    assert (about.seed, about.eps) == (5, 0.1)
    assert load(runs["prood"])[0].shift == 1.5
    assert load(runs["combined"])[1].classes == ["0", "1", "2"]
    code, out, _ = prood("info", runs["combined"])
    assert code == 0
    assert "joint model" in out
    assert "no input whatsoever gets a confidence above" in out


@pytest.mark.slow
def test_evaluate_and_report(prood, tiny, tmp_path):
    for method in ("plain", "discriminator"):
        assert prood("train", method, "--recipe", tiny, "--run", tmp_path / method)[0] == 0
    runs = [tmp_path / "plain", tmp_path / "discriminator"]
    images = f"npz:{tiny.parent}/out.npz,uniform"
    options = ("--in", f"npz:{tiny.parent}/in.npz", "--out", images, "--eps", "0.01,8/255", "--limit", 10)
    code, out, err = prood("evaluate", *runs, *options)
    assert (code, err) == (0, "")
    results = read_results(runs[0])
    assert [(one.outside, one.eps) for one in results] == [(n, e) for n in images.split(",") for e in (0.01, 8 / 255)]
    assert {one.attacks for one in results} == {"fast"}
    assert "8/255" in out
    assert f"{100 * results['plain', 'uniform', 8 / 255].aauc:.1f}" in out
    before = (runs[0] / "results.json").read_bytes()
    assert prood("evaluate", *runs, *options)[0] == 0
    assert (runs[0] / "results.json").read_bytes() == before

    code, _, err = prood("evaluate", *runs, *options, "--compile", "--device", "cpu")
    assert code == 2
    assert "leave out --compile" in err

    code, out, _ = prood("report", *runs)
    assert code == 0
    assert "discriminator" in out
    assert all((tmp_path / f"report.{ending}").stat().st_size > 100 for ending in ("html", "md", "tex", "csv"))
    assert prood("report", runs[0])[0] == 0
    assert (runs[0] / "report.html").is_file()
    assert prood("report", tmp_path, "--out", tmp_path / "there")[0] == 0
    assert "discriminator" in (tmp_path / "there" / "report.md").read_text()
    code, out, _ = prood("info", runs[0])
    assert "parameters" in out
    assert "8/255" in out


def test_a_run_is_not_overwritten_but_resumed_when_asked(prood, tiny, tmp_path):
    arguments = ("train", "plain", "--recipe", tiny, "--run", tmp_path / "run")
    assert prood(*arguments)[0] == 0
    before = (tmp_path / "run" / "model.safetensors").read_bytes()
    code, _, err = prood(*arguments)
    assert code == 2
    assert "--resume" in err
    assert prood(*arguments, "--resume")[0] == 0
    assert (tmp_path / "run" / "model.safetensors").read_bytes() == before


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("train", "prood", "--run", "x"), "--discriminator"),
        (("train", "oe", "--run", "x", "--recipe", "nosuch"), "no recipe 'nosuch'"),
        (("train", "oe", "--run", "x", "--set", "train.epoch=3"), "unknown key 'epoch'"),
        (("train", "oe", "--run", "x", "--set", "nonsense"), "train.epochs=5"),
        (("train", "oe", "--run", "x", "--set", "train.lr=fast"), "must be of type float"),
        (("train", "oe", "--run", "x", "--precision", "float8"), "bfloat16"),
        (("train", "oe", "--run", "x", "--device", "cuda:77"), "no device"),
        (("train", "oe", "--run", "x", "--set", "data.inside=nosuch"), "no image set"),
        (("train", "oe", "--run", "x", "--discriminator", "y"), "belong to"),
        (("info", "nosuch"), "no model at nosuch"),
        (("evaluate", "nosuch", "--out", "uniform"), "nosuch is neither the folder of a run nor a shipped model"),
        (("evaluate", ".", "--out", "uniform", "--eps", "0.1.2"), "0.1.2"),
        (("evaluate", ".", "--out", "uniform"), "no model at"),
        (("report", "nosuch"), "no folder nosuch"),
        (("report", "."), "nothing was evaluated yet"),
        (("combine", "--classifier", "a", "--discriminator", "b", "--shift", "1", "--run", "c"), "no model at b"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(prood, tmp_path, monkeypatch, words, said):
    monkeypatch.chdir(tmp_path)
    code, _, err = prood(*words)
    assert code == 2
    assert said in err
    assert err.startswith("error: ")
    assert err.count("\n") == 1
    assert not (tmp_path / "x" / "model.safetensors").exists()


@pytest.mark.slow
def test_an_estimate_stops_there(prood, tiny, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for words in (("discriminator", "--estimate"), ("prood", "--dry-run"), ("plain", "--estimate", "--run", "x")):
        code, out, err = prood("train", *words, "--recipe", tiny)
        assert (code, err) == (0, "")
        assert "3 steps" in out
        assert out.count("\n") == 1
    assert not list(tmp_path.iterdir())
    code, _, err = prood("train", "plain", "--recipe", tiny)
    assert code == 2
    assert "--run" in err


def test_an_unknown_method_is_refused(prood):
    code, _, err = prood("train", "magic", "--run", "x")
    assert code == 2
    assert "discriminator" in err
