"""The files of deploy/: each is parsed, and what it says fits the command line, the service and the other files."""

import configparser
import importlib.util
import json
import re
import shlex
from pathlib import Path

import pytest
import typer
import yaml

from prood.cli import app
from prood.serve.app import Application
from prood.serve.options import Options

ROOT = Path(__file__).parents[1]
DEPLOY = ROOT / "deploy"


def text(name: str) -> str:
    return (DEPLOY / name).read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def dockerfile() -> list[tuple[str, str]]:
    spec = importlib.util.spec_from_file_location("check", DEPLOY / "check.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return list(module.steps(text("Dockerfile")))


@pytest.fixture(scope="module")
def compose() -> dict:
    return yaml.safe_load(text("compose.yaml"))["services"]


@pytest.fixture(scope="module")
def pod() -> dict:
    return yaml.safe_load(text("kserve.yaml"))["spec"]["predictor"]


@pytest.fixture(scope="module")
def unit() -> dict:
    found = configparser.ConfigParser(interpolation=None, strict=False)
    found.optionxform = str
    found.read_string(text("prood.service"))
    return {name: dict(found[name]) for name in found.sections()}


def understood(words: list[str]) -> dict:
    """The options of these words of `prood serve`; a run's folder in a container is the shipped model here."""
    words = [re.sub(r"^(\w+=)/\S+$|^/models/prood$", r"\1cifar10", word) for word in words]
    command = typer.main.get_command(app)
    return command.commands["serve"].make_context("serve", words).params


def entrypoint(dockerfile) -> list[str]:
    name, verb, *words = json.loads(dict(dockerfile)["ENTRYPOINT"])
    assert (name, verb) == ("prood", "serve")
    return words


def seconds(value: str) -> float:
    return float(value.removesuffix("s"))


def test_the_steps_of_the_dockerfile_find_what_they_name(dockerfile):
    known = {"FROM", "ARG", "ENV", "WORKDIR", "COPY", "RUN", "USER", "EXPOSE", "HEALTHCHECK", "ENTRYPOINT", "CMD"}
    assert {name for name, _ in dockerfile} <= known
    let_in = {line[1:] for line in text("Dockerfile.dockerignore").splitlines() if line.startswith("!")}
    for name, rest in dockerfile:
        if name == "COPY":
            for source in rest.split()[:-1]:
                assert (ROOT / source).exists(), source
                assert source in let_in
    extras = re.findall(r"'\.\[([\w,]+)\]'", str(dockerfile))[0].split(",")
    declared = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    assert all(re.search(rf"(?m)^{extra} = \[", declared) for extra in extras)
    assert all("--constraint constraints.txt" in rest for name, rest in dockerfile if name == "RUN")
    assert dict(dockerfile)["USER"].isdecimal()


def test_what_the_container_runs_is_understood(dockerfile):
    found = understood([*entrypoint(dockerfile), *json.loads(dict(dockerfile)["CMD"])])
    assert (found["host"], str(found["port"])) == ("0.0.0.0", dict(dockerfile)["EXPOSE"])


def test_compose(dockerfile, compose):
    service = compose["prood"]
    found = understood([*entrypoint(dockerfile), *service["command"]])
    assert (DEPLOY / service["build"]["context"] / service["build"]["dockerfile"]).is_file()
    assert found["monitor"] == Path("/monitor")
    assert {str(found["token_file"]), str(found["admin_token_file"])} == {
        f"/run/secrets/{name}" for name in service["secrets"]
    }
    assert seconds(service["stop_grace_period"]) > found["drain_s"] + 2
    assert service["read_only"]
    assert f"server_name {found['allow_host'][0]};" in text("nginx.conf")
    for volume in compose["nginx"]["volumes"]:
        source, target, mode = volume.split(":")
        assert mode == "ro"
        assert target.startswith("/etc/nginx/")
        assert source == "./tls" or (DEPLOY / source).is_file()


def test_the_proxy_lets_through_what_the_service_takes():
    conf = re.sub(r"#.*", "", text("nginx.conf"))
    assert conf.count("{") == conf.count("}")
    for statement in re.split(r"[;{}]", conf.replace("\n", " ")):
        assert re.fullmatch(r"\s*|\s*[a-z][a-z0-9_]*( .+?)?\s*", statement), statement
    said = dict(re.findall(r"(?m)^\s*(\w+) ([^;{]+);", conf))
    options = Options()
    assert said["client_max_body_size"] == f"{options.body_bytes // 2**20}m"
    assert seconds(said["client_body_timeout"]) == options.body_s
    assert seconds(said["proxy_read_timeout"]) > options.deadline_s
    assert "ssl" in said["listen"]
    assert re.findall(r"location (\S+) \{ return 404; \}", conf) == ["/metrics", "/v2/repository/"]
    assert "server prood:8000;" in conf


def test_kserve(dockerfile, pod):
    (container,) = pod["containers"]
    found = understood([*entrypoint(dockerfile), *container["args"]])
    assert found["runs"] == ["prood=cifar10"]
    assert pod["terminationGracePeriodSeconds"] > found["drain_s"] + 2
    assert container["readinessProbe"]["periodSeconds"] * 3 <= found["grace_s"]
    assert container["ports"][0]["containerPort"] == found["port"]
    assert {"PROOD_TOKEN", "PROOD_ADMIN_TOKEN"} <= {one["name"] for one in container["env"]}
    house = Application(Options()).house
    assert house.status == "empty"
    paths = {container[probe]["httpGet"]["path"] for probe in ("startupProbe", "readinessProbe", "livenessProbe")}
    assert paths == {"/v2/health/ready", "/v2/health/live"}


def test_the_unit(unit):
    service = unit["Service"]
    program, verb, *words = shlex.split(service["ExecStart"])
    assert (Path(program).name, verb) == ("prood", "serve")
    found = understood(words)
    assert float(service["TimeoutStopSec"]) > found["drain_s"] + 2
    assert str(found["monitor"]) == f"/var/lib/{service['StateDirectory']}"
    assert service["ExecReload"].endswith("-HUP $MAINPID")
    assert found["host"] == "127.0.0.1"
    options = Options()
    assert int(service["LimitNOFILE"]) > options.connections + 256
