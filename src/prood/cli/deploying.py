"""prood serve: models in use"""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Option

from prood.cli.options import Device, JointModels, TrustCode
from prood.errors import BadValue

if TYPE_CHECKING:
    from prood.detector import Detector
    from prood.serve.house import Source
    from prood.serve.options import About


def serve(
    runs: JointModels,
    host: Annotated[str, Option(help="Address to listen on; the default is reached from this machine only.")] = (
        "127.0.0.1"
    ),
    port: Annotated[int, Option(help="0 takes a free one.", min=0, max=65535)] = 8000,
    token_file: Annotated[
        Path | None, Option(help="Ask for the bearer token in this file; else that in $PROOD_TOKEN, if set.")
    ] = None,
    admin_token_file: Annotated[
        Path | None,
        Option(help="Bearer token that loads and unloads models. Default: $PROOD_ADMIN_TOKEN; without it, nobody may."),
    ] = None,
    allow_host: Annotated[
        list[str] | None, Option(help="Another name by which the service may be called; may be repeated.")
    ] = None,
    name: Annotated[str | None, Option(help="The model's name in /v2; else that of its folder.")] = None,
    threshold: Annotated[float | None, Option(help="Reject below this confidence; else the model's own.")] = None,
    batch: Annotated[int, Option(help="Images of one forward pass; 1 gathers nothing.", min=1)] = 64,
    wait_ms: Annotated[float, Option(help="How long a request waits for others.", min=0)] = 5.0,
    deadline_s: Annotated[float, Option(help="Seconds of a request, with all that waits before it.", min=1)] = 60.0,
    body_bytes: Annotated[int, Option(help="Size of a request.", min=1)] = 8 * 2**20,
    pixels: Annotated[int, Option(help="Size of a picture.", min=1)] = 25_000_000,
    images: Annotated[int, Option(help="Pictures of a request.", min=1)] = 32,
    attack_steps: Annotated[int, Option(help="Steps of an attack.", min=1)] = 200,
    rate: Annotated[float, Option(help="Requests a second of one client; 0: no limit.", min=0)] = 0.0,
    body_s: Annotated[float, Option(help="Seconds to send a request.", min=0.1)] = 30.0,
    grace_s: Annotated[
        float, Option(help="Seconds after SIGTERM in which it is not ready and still takes requests.", min=0)
    ] = 3.0,
    drain_s: Annotated[float, Option(help="Seconds from SIGTERM to the end, at most.", min=1)] = 30.0,
    threads: Annotated[int | None, Option(help="Processor cores for the model; else all.", min=1)] = None,
    device: Device = None,
    trust_code: TrustCode = False,
    access_log: Annotated[bool, Option(help="Log as JSON, with a line for every request.")] = False,
    monitor: Annotated[
        Path | None, Option(metavar="FOLDER", help="Keep what each model's monitor has seen in FOLDER/NAME.json.")
    ] = None,
) -> None:
    """Serve one detector or several over HTTP, with a page to try it: predict, certify, attack.

    Several models are given as NAME=RUN; requests that name none go to the first. SIGHUP reads all of them again.
    Requests that come together share a forward pass. ctrl-C or SIGTERM finishes what was accepted. Beyond this machine
    (--host 0.0.0.0) use a token, and a proxy that speaks TLS. docs/serving.md has the addresses and the limits.
    """
    from prood.serve import check_packages

    check_packages()
    import torch

    from prood import processes
    from prood.serve import server
    from prood.serve.app import Application
    from prood.serve.options import Options

    cores = os.cpu_count() or 1
    if threads is not None:
        if threads > cores:  # thousands end the process inside torch
            raise BadValue(f"--threads {threads} is more than this machine's {cores} cores: give {cores} or fewer")
        torch.set_num_threads(threads)
    options = Options(
        batch=batch,
        wait_ms=wait_ms,
        deadline_s=deadline_s,
        body_bytes=body_bytes,
        pixels=pixels,
        images=images,
        attack_steps=attack_steps,
        rate=rate,
        body_s=body_s,
        grace_s=grace_s,
        drain_s=drain_s,
        token=server.read_token(token_file),
        admin_token=server.read_token(admin_token_file, server.ADMIN_VARIABLE),
        hosts=server.hosts_for(host, tuple(allow_host or ())),
        access_log=access_log,
        monitor=monitor,
    )
    sources = {
        own: _source(run, own, str(processes.device(device)), threshold)
        for own, run in server.named(runs, name).items()
    }
    if threshold is not None and len(sources) > 1:
        raise BadValue("--threshold is for one model: calibrate each of several with 'prood calibrate'")
    app = Application(options)
    for source in sources.values():
        app.house.add(*source())
    app.house.sources.update(sources)
    bound = server.bind(host, port)
    print(*server.announcement(app, host, bound.getsockname()[1]), sep="\n", flush=True)
    server.serve_app(app, bound, last=True)


def _source(run: str, name: str, device: str, threshold: float | None) -> Source:
    """How a model is read, at the start and again."""
    from prood.certification.certify import certifier
    from prood.serve import server

    def read() -> tuple[Detector, About]:
        detector, about = server.loaded(run, device=device, name=name)
        if threshold is not None:
            detector.threshold = threshold
        certificate = certifier(detector, run, about.name)
        return detector, replace(about, price=_price(run, detector.threshold), certificate=certificate)

    return read


def _price(run: str, threshold: float | None) -> tuple[dict[str, float | None], ...]:
    """What the model's evaluations say about this threshold; damaged ones say nothing."""
    from prood.errors import ProodError
    from prood.evaluation.price import at_threshold, priced

    if threshold is None:
        return ()
    with suppress(ProodError):
        return tuple(asdict(point) for point in at_threshold(priced(run), threshold))
    return ()
