"""prood certify IMAGE… --model MODEL --eps RADIUS, and prood verify CERTIFICATES"""

import json
from pathlib import Path
from typing import Annotated, Any

from rich.console import Console
from rich.markup import escape
from typer import Argument, Exit, Option

from prood.cli.options import AnyDetector, Device, FirstImages, ImageNames, TrustCode, console
from prood.errors import NotFound, printable

REFUTED, NOT_DECIDED = 1, 3  # exit codes; 2 is wrong use
_COLOURS = {"confirmed": "green", "refuted": "red", "not decided": "yellow"}


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
    out: Annotated[Path | None, Option(metavar="FILE.jsonl", help="Write the certificates there.")] = None,
    limit: FirstImages = None,
    batch: Annotated[int, Option(help="Images at a time.", min=1)] = 64,
    device: Device = None,
    trust_code: TrustCode = False,
) -> None:
    """Prove bounds: no image within the radius has a confidence above the number printed.

    With a threshold the table has a sentence about each image: whether it is rejected, and up to which change that is
    proved. A picture of another size than the model's is cut to its aspect around the centre and resized (bilinear).

    The bounds hold for every value that the float32 network can return, in any order of summation. A file of
    certificates can be checked by 'prood verify'. Interrupted, the same command continues; under torchrun the images
    are shared among the processes.
    """
    from prood import processes
    from prood.certification.certify import Request, own_radius
    from prood.certification.table import SHOWN, certify_images, show
    from prood.detector import Detector
    from prood.detector.answering import threshold_words
    from prood.evaluation import parse_radii

    target = processes.device(device)
    processes.start(target)
    detector = Detector.load(model, device=target)
    if threshold is not None:
        detector.threshold = threshold
    radii = [own_radius(model)] if eps is None else parse_radii(eps, norm)  # type: ignore[arg-type]  # refused below
    request = Request(radii, norm, method, batch, radius)  # type: ignore[arg-type]  # wrong words are refused there
    rows = certify_images(detector, model, images, request, out=out, limit=limit)
    if processes.is_main():
        print(f"threshold: {threshold_words(detector.threshold, detector.accept)}")
        console().print(show(rows))
        if out is not None:
            print(f"wrote {out} (the first {SHOWN} images are shown)" if len(rows) == SHOWN else f"wrote {out}")
    processes.stop()


def verify(
    certificates: Annotated[Path, Argument(help="What 'prood certify … --out FILE' wrote.")],
    model: Annotated[str | None, Option(help="Where the model is now; its hash decides all the same.")] = None,
    input: Annotated[
        str | None, Option(help="Where the images are now, a folder for pictures; their hashes decide all the same.")
    ] = None,
    limit: Annotated[int | None, Option(help="Verify the first N certificates only.", min=1)] = None,
    strict: Annotated[bool, Option("--strict", hidden=True)] = False,  # nothing is left for it to say
    as_json: Annotated[bool, Option("--json", help="For programs: a line of JSON per certificate.")] = False,
) -> None:
    """Check certificates on an independent path, with rigorous arithmetic.

    confirmed: a bound of our own, which covers every rounding of the float32 network, is no higher than the stated one.
    It holds for sums in any order; where it needs hidden linear layers to add up in blocks, as Prood's do, it says so.

    refuted: a hash does not match, the confidence does not follow from the bound, or an image in the ball has a higher
    value.

    not decided: neither; our bound is looser, or there is no rule for the model.

    The exit code is 0 if all are confirmed; 1 if one or more are refuted; 3 if none is refuted and one or more are not
    decided, also because a model or an image that a certificate names is missing; 2 for wrong use.

    The names of the method and of the version, and the seconds, are remarks: nothing that is proven depends on them.
    """
    from prood import certification, pretrained

    if model is not None and not (file := pretrained.model_path(model)).is_file():  # a mistake, not an open question
        raise NotFound(f"there is no model at {file}: say with --model where it is now")
    found, note = certification.read(certificates)
    if not found:
        raise NotFound(f"{certificates} holds no certificate")

    from prood import data  # with torch, which takes seconds
    from prood.certification.verify import Verifier

    if input is not None and not Path(input).exists():
        data.find(input)  # refuses what is no image set either
    plain: dict[str, Any] = {"highlight": False, "soft_wrap": True, "emoji": False}  # :cat: may be part of a name
    aside, shown = Console(stderr=True, **plain), Console(**plain)
    if note:
        aside.print(f"note: {note}", markup=False)
    verifier = Verifier(model=model, input=input)
    counts = dict.fromkeys(_COLOURS, 0)
    for number, certificate in enumerate(found[:limit], 1):
        verdict = verifier.verify(certificate)
        counts[verdict.outcome] += 1
        row = certificate.input.row
        name = printable(certificate.input.name if row is None else f"{certificate.input.name}[{row}]", 200)
        if as_json:
            line = {"number": number, "input": name, "stated": certificate.bound, **verdict.to_dict()}
            print(json.dumps(line), flush=True)
            continue
        proven = "" if verdict.bound is None else f", proven {verdict.bound:.6g}"
        seen = "" if verdict.value is None else f", seen {verdict.value:.6g}"
        reason = escape(printable(verdict.reason))
        shown.print(
            f"[{_COLOURS[verdict.outcome]}]{verdict.outcome:<11}[/] {escape(name)} "
            f"{certificate.norm} eps {certificate.eps:g}: "
            f"stated {certificate.bound:.6g}{proven}{seen}; {reason} [dim]({verdict.seconds:.2f} s)[/]"
        )
    if not as_json:
        shown.print(", ".join(f"{count} {outcome}" for outcome, count in counts.items()))
    every = sum(counts.values())
    if counts["refuted"]:
        aside.print(f"[red]error:[/] {counts['refuted']} of {every} certificates are refuted")
        raise Exit(REFUTED)
    if counts["not decided"]:
        aside.print(f"note: {counts['not decided']} of {every} certificates are not decided: they may be true")
        raise Exit(NOT_DECIDED)
