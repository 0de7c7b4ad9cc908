"""prood certify IMAGE… --model MODEL --eps RADIUS"""

from pathlib import Path
from typing import Annotated

import typer

from prood.pretrained import listed


def certify(
    images: Annotated[
        list[str], typer.Argument(metavar="IMAGE…", help="Pictures, or image sets by name: digits:test, folder:PATH …")
    ],
    model: Annotated[
        str,
        typer.Option(help=f"Run or file of a discriminator or a joint model, or a shipped one ({listed()})."),
    ],
    eps: Annotated[str, typer.Option(metavar="RADIUS,…", help="0.01,8/255 …")],
    norm: Annotated[str, typer.Option(help="linf, l2 or l1.")] = "linf",
    method: Annotated[
        str, typer.Option(help="best, ibp, crown-ibp, alpha-crown, crown, bab or auto; see docs/soundness.md.")
    ] = "best",
    threshold: Annotated[
        float | None,
        typer.Option(help="Reject below this confidence (this g, of a bare discriminator); else the model's own."),
    ] = None,
    out: Annotated[Path | None, typer.Option(metavar="FILE.jsonl", help="Write the certificates there.")] = None,
    limit: Annotated[int | None, typer.Option(help="Images of each set, the first ones; else all.", min=1)] = None,
    batch: Annotated[int, typer.Option(help="Images at a time.", min=1)] = 64,
    device: Annotated[str | None, typer.Option(help="cpu, cuda, cuda:1 …; else a GPU if there is one.")] = None,
) -> None:
    """Prove bounds: no image within the radius has a confidence above the number printed.

    With a threshold the table says whether an image is rejected: 'provably' (and so is every image within the smallest
    radius given), 'yes' (but an image near it may not be) or 'no', and the radius up to which that is proven. A picture
    of another size than the model's is cut to its aspect around the centre and resized (bilinear).

    The bounds hold for every value that the float32 network can return, in any order of summation. A file of
    certificates can be checked by 'prood verify'. Interrupted, the same command continues; under torchrun the images
    are shared among the processes.
    """
    from prood import processes
    from prood.certification.certify import Request
    from prood.certification.table import SHOWN, certify_images, show
    from prood.cli.console import console
    from prood.detector import Detector
    from prood.evaluation import parse_radii

    target = processes.device(device)
    processes.start(target)
    detector = Detector.load(model, device=target)
    if threshold is not None:
        detector.threshold = threshold
    request = Request(parse_radii(eps), norm, method, batch)  # type: ignore[arg-type]  # wrong words are refused there
    rows = certify_images(detector, model, images, request, out=out, limit=limit)
    if processes.is_main():
        console().print(show(rows))
        if out is not None:
            print(f"wrote {out} (the first {SHOWN} images are shown)" if len(rows) == SHOWN else f"wrote {out}")
    processes.stop()
