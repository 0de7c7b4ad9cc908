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
        str | None, Option(metavar="RADIUS,…", help="0.01,8/255 … Default: the radius that the model was trained for.")
    ] = None,
    norm: Annotated[str, Option(help="linf, l2 or l1.")] = "linf",
    method: Annotated[
        str, Option(help="best, ibp, crown-ibp, alpha-crown, crown, bab or auto; see docs/soundness.md.")
    ] = "best",
    threshold: Annotated[
        float | None,
        Option(help="Reject below this confidence (this g, of a bare discriminator); else the model's own."),
    ] = None,
    radius: Annotated[
        bool, Option("--radius", help="Search how far each image provably stays rejected: about twenty more bounds.")
    ] = False,
    out: Annotated[
        Path | None,
        Option(
            metavar="FILE.jsonl|FOLDER",
            help="Write the certificates there. A name without an ending is a folder, for any number of images.",
        ),
    ] = None,
    shard: Annotated[
        str | None,
        Option(metavar="I/N", help="With a folder: only every N-th shard, from shard I on. Default: torchrun's share."),
    ] = None,
    workers: Annotated[
        int | None, Option(help="With a folder: processes. Default: one for each core or GPU.", min=1)
    ] = None,
    limit: FirstImages = None,
    batch: Annotated[int, Option(help="Images at a time.", min=1)] = 64,
    device: Device = None,
    trust_code: TrustCode = False,
) -> None:
    """Prove bounds: no image within the radius has a confidence above the number printed.

    With a threshold the table has a sentence about each image: whether it is rejected, and up to which change that is
    proved. A picture of another size than the model's is cut to its aspect around the centre and resized (bilinear).

    The bounds hold for every value that the float32 network can return, in any order of summation. A file of
    certificates can be checked by 'prood verify'. Interrupted, the same command continues.

    A folder takes any number of images, from the sources of 'prood score' and from image sets: one Parquet file for
    each shard. torchrun's processes and machines with --shard share it: see docs/guides/scale.md.
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
            raise BadValue("certificates in a folder are for any threshold: leave out --threshold and --radius")
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
            options=Options(bound=method, norm=norm),  # type: ignore[arg-type]  # wrong words are refused there
        )
        carry_out(many, out, engine)
        return
    if world > 1 or shard is not None or workers is not None:
        raise BadValue("several processes share a folder: give --out the name of one, without an ending")
    target = processes.device(device)
    detector = Detector.load(model, device=target)
    if threshold is not None:
        detector.threshold = threshold
    request = Request(radii, norm, method, batch, radius)  # type: ignore[arg-type]  # wrong words are refused there
    rows = certify_images(detector, model, images, request, out=out, limit=limit)
    print(f"threshold: {threshold_words(detector.threshold, detector.accept)}")
    console().print(show(rows))
    if out is not None:
        print(f"wrote {out} (the first {SHOWN} images are shown)" if len(rows) == SHOWN else f"wrote {out}")
