"""prood serve RUN"""

import os
from pathlib import Path
from typing import Annotated

import typer

from prood.errors import BadValue
from prood.pretrained import listed


def serve(
    run: Annotated[str, typer.Argument(help=f"Run or file of a joint model, or a shipped one ({listed()}).")],
    host: Annotated[str, typer.Option(help="Address to listen on; the default is reached from this machine only.")] = (
        "127.0.0.1"
    ),
    port: Annotated[int, typer.Option(help="0 takes a free one.", min=0, max=65535)] = 8000,
    token_file: Annotated[
        Path | None, typer.Option(help="Ask for the bearer token in this file; else that in $PROOD_TOKEN, if set.")
    ] = None,
    allow_host: Annotated[
        list[str] | None, typer.Option(help="Another name by which the service may be called; may be repeated.")
    ] = None,
    name: Annotated[str | None, typer.Option(help="The model's name in /v2; else that of its folder.")] = None,
    threshold: Annotated[float | None, typer.Option(help="Reject below this confidence; else the model's own.")] = None,
    batch: Annotated[int, typer.Option(help="Images of one forward pass; 1 gathers nothing.", min=1)] = 64,
    wait_ms: Annotated[float, typer.Option(help="How long a request waits for others.", min=0)] = 5.0,
    queue: Annotated[int, typer.Option(help="Images that may wait before it is busy.", min=1)] = 2048,
    body_bytes: Annotated[int, typer.Option(help="Size of a request.", min=1)] = 8 * 2**20,
    pixels: Annotated[int, typer.Option(help="Size of a picture.", min=1)] = 25_000_000,
    images: Annotated[int, typer.Option(help="Pictures of a request.", min=1)] = 32,
    attack_steps: Annotated[int, typer.Option(help="Steps of an attack.", min=1)] = 200,
    rate: Annotated[float, typer.Option(help="Requests a second of one client; 0: no limit.", min=0)] = 0.0,
    body_s: Annotated[float, typer.Option(help="Seconds to send a request.", min=0.1)] = 30.0,
    drain_s: Annotated[float, typer.Option(help="Seconds to finish what was accepted.", min=1)] = 30.0,
    threads: Annotated[int | None, typer.Option(help="Processor cores for the model; else all.", min=1)] = None,
    device: Annotated[str | None, typer.Option(help="cpu, cuda, cuda:1 …; else a GPU if there is one.")] = None,
    access_log: Annotated[bool, typer.Option(help="A line for every request.")] = False,
) -> None:
    """Serve a detector over HTTP, with a page to try it: predict, certify, attack.

    Requests that come together share a forward pass. ctrl-C or SIGTERM finishes what was accepted. Beyond this machine
    (--host 0.0.0.0) use a token, and a proxy that speaks TLS. docs/serving.md has the addresses and the limits.
    """
    from prood.serve import check_packages

    check_packages()
    import torch
    from rich.console import Console

    from prood import processes
    from prood.serve import server
    from prood.serve.options import Options

    console = Console(soft_wrap=True, highlight=False)
    cores = os.cpu_count() or 1
    if threads is not None:
        if threads > cores:  # thousands end the process inside torch
            raise BadValue(f"--threads {threads} is more than this machine's {cores} cores: give {cores} or fewer")
        torch.set_num_threads(threads)
    options = Options(
        batch=batch,
        wait_ms=wait_ms,
        queue=queue,
        body_bytes=body_bytes,
        pixels=pixels,
        images=images,
        attack_steps=attack_steps,
        rate=rate,
        body_s=body_s,
        drain_s=drain_s,
        token=server.read_token(token_file),
        hosts=server.hosts_for(host, tuple(allow_host or ())),
    )
    detector, about = server.loaded(run, device=str(processes.device(device)), name=name)
    if threshold is not None:
        detector.threshold = threshold
    bound = server.bind(host, port)
    for line in server.announcement(detector, about, options, host, bound.getsockname()[1]):
        console.print(line, markup=False)
    server.serve(detector, options, about, host=host, bound=bound, access_log=access_log)
