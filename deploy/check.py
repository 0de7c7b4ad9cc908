"""Run the steps of deploy/Dockerfile where no Docker is: in an empty folder, with a virtual environment for its Python.

    python deploy/check.py [FOLDER]

COPY, RUN, ENV and WORKDIR are carried out as they stand, below FOLDER and with the Python of this machine. Then the
ENTRYPOINT serves the shipped model cifar10 on a free port, HEALTHCHECK must succeed, and SIGTERM must end it with 0.
FROM, ARG, USER and EXPOSE are Docker's own. It takes minutes: pip installs torch.
"""

import json
import os
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import venv
from collections.abc import Iterator
from pathlib import Path

HERE = Path(__file__).resolve().parent


def steps(text: str) -> Iterator[tuple[str, str]]:
    """The instructions of a Dockerfile and what follows them."""
    for line in text.replace("\\\n", " ").splitlines():
        if line.strip() and not line.startswith("#"):
            instruction, _, rest = line.partition(" ")
            yield instruction, rest.strip()


def build(root: Path, environment: dict[str, str]) -> dict[str, str]:
    """Carry out the steps below `root`; the ones that are only kept for later, by name."""
    kept, place = {}, root
    for instruction, rest in steps((HERE / "Dockerfile").read_text(encoding="utf-8")):
        print(f"{instruction} {rest}", flush=True)
        if instruction == "WORKDIR":
            place = root / rest.lstrip("/")
            place.mkdir(parents=True, exist_ok=True)
        elif instruction == "ENV":
            environment |= dict(word.split("=", 1) for word in shlex.split(rest))
        elif instruction == "COPY":
            *sources, target = rest.split()
            for source in sources:
                copy(HERE.parent / source, place / target)
        elif instruction == "RUN":
            subprocess.run(rest, shell=True, check=True, cwd=place, env=environment)
        else:
            kept[instruction] = rest
    return kept


def copy(source: Path, target: Path) -> None:
    """As COPY does it: what is in a folder into the target, a file into the folder that it names."""
    if source.is_dir():
        shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
    else:
        shutil.copy(source, target)


def serve(kept: dict[str, str], environment: dict[str, str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = str(free.getsockname()[1])
    words = [port if word == "8000" else word for word in json.loads(kept["ENTRYPOINT"])]
    words[0] = shutil.which(words[0], path=environment["PATH"]) or words[0]
    health = json.loads(kept["HEALTHCHECK"].partition("CMD ")[2].replace(":8000/", f":{port}/"))
    health[0] = shutil.which(health[0], path=environment["PATH"]) or health[0]
    service = subprocess.Popen([*words, "cifar10"], env=environment | {"PROOD_TOKEN": "check"})
    try:
        for _ in range(120):
            if subprocess.run(health, env=environment, stderr=subprocess.DEVNULL).returncode == 0:
                break
            if service.poll() is not None:
                sys.exit(f"the service ended with {service.returncode}")
            time.sleep(1)
        else:
            sys.exit("the service was not ready within two minutes")
        service.send_signal(signal.SIGTERM)
        if code := service.wait(45):
            sys.exit(f"after SIGTERM the service ended with {code}")
    finally:
        service.kill()


def main() -> None:
    root = Path(sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp()).resolve()
    if root.exists() and any(root.iterdir()):
        sys.exit(f"{root} is not empty: give an empty folder, or none")
    venv.create(root / "python", with_pip=True)
    environment = {"PATH": f"{root / 'python' / 'bin'}{os.pathsep}{os.defpath}", "HOME": str(root)}
    environment |= {key: value for key, value in os.environ.items() if key.startswith("PIP_")}
    serve(build(root, environment), environment)
    print(f"every step of the Dockerfile was carried out in {root}, and the service came up, was healthy and ended")


if __name__ == "__main__":
    main()
