"""prood serve: what a user may get wrong is one line, before anything listens. Serving itself: tests/serve."""

import importlib.util
import os
import subprocess
import sys

import pytest
import torch
from typer.testing import CliRunner

from prood.cli import app
from prood.errors import MissingPackage, ProodError
from prood.models import MODEL_FILE, ProoD, discriminator, save, small
from prood.serve import server


@pytest.fixture
def run(tmp_path):
    torch.manual_seed(0)
    model = ProoD(small(3, width=4), discriminator("digits", image=(1, 28, 28)), 1.0)
    save(model, tmp_path / "run" / MODEL_FILE, classes=["zero", "one", "two"], eps=0.1, threshold=0.7, accept=0.95)
    return tmp_path / "run"


@pytest.fixture
def served(monkeypatch):
    """What would be served: everything but the loop that waits for requests."""
    calls = []
    monkeypatch.setattr(
        server, "serve_app", lambda app, bound, **options: (bound.close(), calls.append((app, options)))
    )
    return calls


def call(*words, **environment):
    result = CliRunner().invoke(
        app, ["serve", *map(str, words), "--device", "cpu"], env={"COLUMNS": "160", **environment}
    )
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == 0, result.output
    return result.output


def test_it_says_what_where_and_with_which_limits(run, served):
    said = call(run, "--port", 0, "--batch", 5, "--rate", 2.5, "--images", 3, PROOD_TOKEN="secret")
    assert "serving   run: 3 classes, images 1×28×28, rejects below a confidence of 0.7 (accepts 95%" in said
    assert "page      http://localhost:" in said
    assert "/docs" in said
    assert "secret" not in said
    ((app, rest),) = served
    options, service = app.house.options, app.house.model("run").service
    detector, about = service.detector, service.about
    assert (options.batch, options.rate, options.images, options.token) == (5, 2.5, 3, "secret")
    assert set(options.hosts) == {"localhost", "127.0.0.1", "::1"}
    assert (detector.threshold, about.eps, detector.accept) == (0.7, 0.1, 0.95)
    assert rest == {"last": True}


def test_a_threshold_of_ones_own_has_no_rate(run, served):
    said = call(run, "--port", 0, "--threshold", 0.9, "--allow-host", "box", PROOD_TOKEN="")
    assert "rejects below a confidence of 0.9\n" in said
    ((app, _),) = served
    detector, options = app.house.model(None).service.detector, app.house.options
    assert (detector.threshold, detector.accept, options.token) == (0.9, None, None)
    assert "box" in options.hosts


def test_beyond_this_machine_it_warns(run, served):
    assert "anybody who reaches 0.0.0.0" in call(run, "--port", 0, "--host", "0.0.0.0", PROOD_TOKEN="")
    assert served[0][0].house.options.hosts is None


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["no-such-run"], "there is no model at no-such-run"),
        (["RUN", "--host", "no.such.host.invalid"], "cannot listen on"),
        (["RUN", "--token-file", "none"], "cannot read the token in none"),
        (["RUN", "--threshold", "2"], "a threshold is a confidence between 0 and 1"),
        (["RUN", "--port", "TAKEN"], "in use"),
        (["RUN", "--name", "a/b"], "cannot be reached with the name 'a/b'"),
        (["RUN", "--name", ".."], r"cannot be reached with the name '\.\.'"),
        (["RUN", "--name", ""], "cannot be reached with the name ''"),
        (["RUN", "RUN"], "two models are called run"),
        (["a=RUN", "a=RUN"], "two models are called a"),
        (["=RUN"], "cannot be reached with the name ''"),
        (["a=no-such-run"], "there is no model at no-such-run"),
        (["a=RUN", "b=RUN", "--name", "c"], "--name is for one model"),
        (["a=RUN", "b=RUN", "--threshold", "0.5"], "--threshold applies to one model only"),
        (["RUN", "--monitor", "m"], "run has no calibration to compare arrivals with"),
        (["RUN", "--admin-token-file", "none"], "cannot read the token in none"),
        (["RUN", "--threads", "100000"], "--threads 100000 exceeds this machine's [0-9]+ cores"),
    ],
)
def test_what_is_wrong_is_one_line(run, served, words, said):
    with server.bind("127.0.0.1", 0) as taken:
        port = taken.getsockname()[1]
        given = [port if word == "TAKEN" else word.replace("RUN", str(run)) for word in words]
        with pytest.raises(ProodError, match=said):
            call(*given, *([] if "TAKEN" in words else ["--port", 0]))
    assert not served


def test_without_its_packages_it_says_what_to_install(run, monkeypatch):
    real = importlib.util.find_spec
    monkeypatch.setattr("prood.extras.find_spec", lambda name: None if name == "uvicorn" else real(name))
    with pytest.raises(MissingPackage, match=r"'\.\[serve\]'"):
        call(run)
    import prood.serve

    with pytest.raises(MissingPackage):
        _ = prood.serve.create_app
    with pytest.raises(AttributeError, match="nothing"):
        _ = prood.serve.nothing


def test_importing_the_room_needs_neither_torch_nor_fastapi():
    code = "import sys, prood.serve, prood.cli; assert not {'torch', 'fastapi', 'uvicorn'} & sys.modules.keys()"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_as_many_threads_as_cores_are_taken(run, served, monkeypatch, prood):
    taken = []
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    monkeypatch.setattr(torch, "set_num_threads", taken.append)
    call(run, "--port", 0, "--threads", 2, "--name", "other")
    assert (taken, list(served[0][0].house.models)) == ([2], ["other"])
    code, _, said = prood("serve", run, "--port", 0, "--threads", 3)
    assert (code, said.count("\n"), taken) == (2, 1, [2])


def test_several_models_are_read_again_as_they_were_read(run, served, tmp_path):
    other = tmp_path / "odd=name"
    run.with_name("odd=name").mkdir()
    (other / MODEL_FILE).write_bytes((run / MODEL_FILE).read_bytes())
    said = call(f"digits={run}", other, "--port", 0, PROOD_ADMIN_TOKEN="admin")
    assert said.count("serving ") == 2
    ((app, _),) = served
    house = app.house
    assert list(house.models) == list(house.sources) == ["digits", "odd=name"]
    assert (house.options.admin_token, house.options.token) == ("admin", None)
    detector, about = house.sources["digits"]()
    assert (detector.threshold, about.name, about.eps) == (0.7, "digits", 0.1)
