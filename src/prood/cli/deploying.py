"""prood serve RUN…"""

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
    host: Annotated[str, Option(help="Address to listen on. Only this machine reaches 127.0.0.1.")] = ("127.0.0.1"),
    port: Annotated[int, Option(help="Port to listen on; 0 takes a free one.", min=0, max=65535)] = 8000,
    token_file: Annotated[
        Path | None, Option(help="File with the bearer token that requests need. Default: $PROOD_TOKEN, if set.")
    ] = None,
    admin_token_file: Annotated[
        Path | None,
        Option(
            help="File with the bearer token for loading and unloading models. Default: $PROOD_ADMIN_TOKEN, if set."
        ),
    ] = None,
    allow_host: Annotated[
        list[str] | None, Option(help="Additional host name that requests may use. Repeatable.")
    ] = None,
    name: Annotated[str | None, Option(help="Name of the model in /v2. Default: its folder's name.")] = None,
    threshold: Annotated[
        float | None, Option(help="Reject below this confidence. Default: the model's threshold.")
    ] = None,
    batch: Annotated[int, Option(help="Maximum images in a forward pass; 1 never groups requests.", min=1)] = 64,
    wait_ms: Annotated[
        float, Option(help="Milliseconds that a request waits for others to share its pass.", min=0)
    ] = 5.0,
    deadline_s: Annotated[float, Option(help="Maximum seconds for a request, including its wait.", min=1)] = 60.0,
    body_bytes: Annotated[int, Option(help="Maximum bytes in a request.", min=1)] = 8 * 2**20,
    pixels: Annotated[int, Option(help="Maximum pixels in a picture.", min=1)] = 25_000_000,
    images: Annotated[int, Option(help="Maximum pictures in a request.", min=1)] = 32,
    attack_steps: Annotated[int, Option(help="Maximum steps of an attack.", min=1)] = 200,
    rate: Annotated[float, Option(help="Maximum requests per second from one client; 0 sets no limit.", min=0)] = 0.0,
    body_s: Annotated[float, Option(help="Maximum seconds for sending a request.", min=0.1)] = 30.0,
    grace_s: Annotated[
        float, Option(help="Seconds after SIGTERM during which the service reports not ready but still answers.", min=0)
    ] = 3.0,
    drain_s: Annotated[float, Option(help="Maximum seconds from SIGTERM to the end.", min=1)] = 30.0,
    threads: Annotated[int | None, Option(help="Processor cores for the model. Default: all.", min=1)] = None,
    device: Device = None,
    trust_code: TrustCode = False,
    access_log: Annotated[bool, Option(help="Log in JSON, one line per request.")] = False,
    monitor: Annotated[
        Path | None, Option(metavar="FOLDER", help="Folder for the state of each model's monitor. Default: no monitor.")
    ] = None,
) -> None:
    """Serve models over HTTP, with a page to try them.

    Give several models as NAME=RUN; requests without a name go to the first. SIGHUP reloads all models. Requests that
    arrive together share a forward pass. Ctrl-C or SIGTERM finishes accepted requests, then stops.

    If other machines can reach the service (--host 0.0.0.0), use a token, and a proxy that speaks TLS.
    docs/serving.md lists addresses and limits.
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
            raise BadValue(f"--threads {threads} exceeds this machine's {cores} cores: give {cores} or fewer")
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
        raise BadValue("--threshold applies to one model only: calibrate each of several with 'prood calibrate'")
    app = Application(options)
    for source in sources.values():
        app.house.add(*source())
    app.house.sources.update(sources)
    bound = server.bind(host, port)
    print(*server.announcement(app, host, bound.getsockname()[1]), sep="\n", flush=True)
    server.serve_app(app, bound, last=True)


def _source(run: str, name: str, device: str, threshold: float | None) -> Source:
    """A function that reads the model, at the start and at every reload."""
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
    """The price of proof at this threshold by the model's evaluations; damaged files are skipped."""
    from prood.errors import ProodError
    from prood.evaluation.price import at_threshold, priced

    if threshold is None:
        return ()
    with suppress(ProodError):
        return tuple(asdict(point) for point in at_threshold(priced(run), threshold))
    return ()
