"""prood certify IMAGE… --model MODEL --eps RADIUS"""

from pathlib import Path
from typing import Annotated

from typer import Option

from prood.cli.options import AnyDetector, Device, FirstImages, ImageNames, TrustCode, console
from prood.cli.scoring import carry_out, shares
from prood.errors import BadValue


def certify(
    images: ImageNames,
    model: AnyDetector,
    eps: Annotated[
        str | None, Option(metavar="RADIUS,…", help="Radii: 0.01,8/255 … Default: the radius of training.")
    ] = None,
    norm: Annotated[str, Option(help="Norm of the ball: linf, l2 or l1.")] = "linf",
    bound: Annotated[
        str, Option(help="Way of bounding: best, ibp, crown-ibp, alpha-crown, crown, bab or auto.")
    ] = "best",
    threshold: Annotated[
        float | None,
        Option(help="Reject below this confidence (for a bare discriminator, below this g). Default: the model's."),
    ] = None,
    radius: Annotated[
        bool,
        Option(
            "--radius",
            help="Search the largest radius at which each image provably stays rejected: about 20 more bounds.",
        ),
    ] = False,
    out: Annotated[
        Path | None,
        Option(
            metavar="FILE.jsonl|FOLDER",
            help="File for the certificates, or a folder (a name without an ending) for any number of images.",
        ),
    ] = None,
    shard: Annotated[
        str | None,
        Option(
            metavar="I/N",
            help="With a folder: certify every N-th shard only, from shard I on. Default: torchrun's share.",
        ),
    ] = None,
    workers: Annotated[
        int | None, Option(help="With a folder: number of processes. Default: one per core or GPU.", min=1)
    ] = None,
    limit: FirstImages = None,
    batch: Annotated[int, Option(help="Images at a time.", min=1)] = 64,
    device: Device = None,
    trust_code: TrustCode = False,
) -> None:
    """Prove upper bounds on the confidence within a radius.

    No image within the radius --eps has a confidence above the bound that is printed.

    If the model has a threshold, a sentence about each image says whether it is rejected, and up to which change that
    is proved. Prood crops pictures around the centre and resizes them (bilinear) to the model's size.

    The bounds hold for every value that the float32 network can return, in any order of summation; docs/soundness.md
    explains the ways of bounding. 'prood verify' checks the files. The same command continues an interrupted one.

    With a folder, Prood takes every source of 'prood score' as well as image sets, and writes one Parquet file per
    shard. Processes of torchrun and machines with --shard share the folder: see docs/guides/scale.md.
    """
    from prood import processes
    from prood.certification.certify import Request, own_radius
    from prood.certification.table import SHOWN, certify_images, show
    from prood.detector import Detector
    from prood.detector.answering import threshold_words
    from prood.evaluation import parse_radii
    from prood.scoring import Engine, Options
    from prood.scoring import Request as Many

    rank, world = processes.announced()
    radii = [own_radius(model)] if eps is None else parse_radii(eps, norm)  # type: ignore[arg-type]  # refused below
    if out is not None and (out.is_dir() or not (out.suffix or out.is_file())):
        if threshold is not None or radius:
            raise BadValue("certificates in a folder hold for any threshold: leave out --threshold and --radius")
        engine = Engine(
            "local", workers or (1 if world > 1 else None), 0.0, *shares(shard or f"{rank}/{world}"), device
        )
        many = Many(
            sources=tuple(images),
            model=model,
            eps=tuple(radii),
            columns=(*(f"certificate_{one:g}" for one in radii), "error"),
            limit=limit,
            trust_code=trust_code,
            options=Options(bound=bound, norm=norm),  # type: ignore[arg-type]  # wrong words are refused there
        )
        carry_out(many, out, engine)
        return
    if world > 1 or shard is not None or workers is not None:
        raise BadValue("--shard, --workers and torchrun need a folder: give --out a name without an ending")
    target = processes.device(device)
    detector = Detector.load(model, device=target)
    if threshold is not None:
        detector.threshold = threshold
    request = Request(radii, norm, bound, batch, radius)  # type: ignore[arg-type]  # wrong words are refused there
    rows = certify_images(detector, model, images, request, out=out, limit=limit)
    print(f"threshold: {threshold_words(detector.threshold, detector.accept)}")
    console().print(show(rows))
    if out is not None:
        print(f"wrote {out} (the first {SHOWN} images are shown)" if len(rows) == SHOWN else f"wrote {out}")
