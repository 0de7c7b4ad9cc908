"""prood wrap, serve: models in use"""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Argument, Option

from prood.cli.calibrating import Accept, Calibrate, Level, Outside, Provable, set_threshold, threshold_for
from prood.cli.options import Device, Discriminator, JointModels, TrustCode
from prood.errors import BadValue

if TYPE_CHECKING:
    from prood.detector import Detector
    from prood.serve.house import Source
    from prood.serve.options import About


def wrap(
    classifier: Annotated[
        str,
        Argument(
            help="torchvision:resnet50, timm:resnet18.a1_in1k, hf:FOLDER-OR-NAME, model.onnx, model.pt2, model.pt "
            "(TorchScript), or a run."
        ),
    ],
    discriminator: Discriminator,
    shift: Annotated[float, Option(help="Δ, added to g: larger trusts the classifier more.")],
    run: Annotated[Path, Option(help="Folder for the guarded classifier.")],
    classes: Annotated[
        Path | None, Option(metavar="FILE", help="Names of the classes: one a line, or a JSON list.")
    ] = None,
    weights: Annotated[
        Path | None, Option(metavar="FILE.safetensors", help="For torchvision: and timm:NAME; else pretrained.")
    ] = None,
    image: Annotated[
        str | None, Option(metavar="CxHxW", help="The images it takes: 224, 3x224x224 …; else what it says.")
    ] = None,
    resize: Annotated[
        str | None, Option(metavar="SIDE", help="Before the centre is cut out: 256 (shorter side) or 256x256.")
    ] = None,
    interpolation: Annotated[str | None, Option(help="bilinear, bicubic or nearest.")] = None,
    mean: Annotated[str | None, Option(metavar="M,…", help="Subtracted from pixels in [0, 1].")] = None,
    std: Annotated[str | None, Option(metavar="S,…", help="And divided by.")] = None,
    joint_image: Annotated[
        str | None, Option(metavar="CxHxW", help="The images the guarded model takes. Default: the classifier's.")
    ] = None,
    output: Annotated[str | None, Option(help="Which of several outputs: a name or a number.")] = None,
    probabilities: Annotated[
        bool | None, Option("--probabilities/--logits", help="What it returns; else seen from a few images.")
    ] = None,
    calibrate: Calibrate = None,
    accept: Accept = None,
    level: Level = None,
    provable: Provable = None,
    outside: Outside = None,
    tpr: Annotated[float | None, Option(hidden=True, help="The former name of --accept.")] = None,
    confidence: Annotated[float | None, Option(hidden=True, help="The former name of --level.")] = None,
    device: Device = None,
    trust_code: TrustCode = False,
) -> None:
    """Guard any classifier, with its own preprocessing, by a discriminator: the result is used like every run.

    The guarded model takes the classifier's images and resizes, cuts and normalises them as that wants. A discriminator
    for smaller images gets averages of squares of pixels. ε and certificates are about the images as they come. A
    classifier that is a file is copied into the folder, and checked by its hash when it is loaded. TorchScript files
    are programs: they need --trust-code, wherever the run is used. See docs/wrap.md.
    """
    from prood import wrapping
    from prood.models import WrapOptions

    options = WrapOptions(
        image=None if image is None else _image(image),
        resize=None if resize is None else _side(resize),
        interpolation=interpolation,
        mean=None if mean is None else _numbers(mean),
        std=None if std is None else _numbers(std),
        output=output,
        probabilities=probabilities,
        weights=weights,
        joint_image=None if joint_image is None else _image(joint_image),
        classes=None if classes is None else wrapping.read_classes(classes),
    )
    accept, level = (tpr if accept is None else accept), (confidence if level is None else level)
    threshold = threshold_for(calibrate, accept, level, provable, outside)
    if threshold is not None:
        threshold.check(discriminator)
    made = wrapping.wrap(classifier, discriminator, run, shift=shift, options=options, device=device)
    facts = made.classifier.facts
    kind = "probabilities" if facts.probabilities else "logits"
    print(f"classifier: {facts.kind}, {kind} of {facts.classes} classes; takes {facts.preprocessing}")
    averages = (
        f", of which the discriminator averages {made.averages}×{made.averages} pixels" if made.averages > 1 else ""
    )
    print(f"images: {'×'.join(map(str, made.detector.shape))}{averages}")
    print(f"wrote {run}")
    set_threshold(threshold, run, device)


def _image(text: str) -> tuple[int, int, int]:
    sides = _sides(text, (1, 3), "224, or 3x224x224")
    return (3, sides[0], sides[0]) if len(sides) == 1 else (sides[0], sides[1], sides[2])


def _side(text: str) -> int | tuple[int, int]:
    sides = _sides(text, (1, 2), "256 for the shorter side, or 256x256")
    return sides[0] if len(sides) == 1 else (sides[0], sides[1])


def _sides(text: str, counts: tuple[int, int], example: str) -> list[int]:
    """So many whole numbers, with an x between them."""
    try:
        sides = [int(side) for side in text.lower().replace("×", "x").split("x")]
    except ValueError:
        sides = []
    if len(sides) not in counts:
        raise BadValue(f"{text!r} is no size: write {example}")
    return sides


def _numbers(text: str) -> tuple[float, ...]:
    try:
        return tuple(float(number) for number in text.split(","))
    except ValueError:
        raise BadValue(f"{text!r} is no list of numbers: write 0.485,0.456,0.406") from None


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
