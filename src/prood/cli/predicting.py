"""prood predict IMAGE… --model MODEL"""

import csv
import json
import sys
from typing import Annotated

from rich import box
from rich.markup import escape
from rich.table import Table
from typer import Option

from prood.cli.options import AnyDetector, Device, FirstImages, ImageNames, TrustCode, console
from prood.errors import BadValue, Damaged


def predict(
    images: ImageNames,
    model: AnyDetector,
    threshold: Annotated[
        float | None,
        Option(help="Reject below this confidence (for a bare discriminator, below this g). Default: the model's."),
    ] = None,
    as_json: Annotated[bool, Option("--json", help="Print one line of JSON per image.")] = False,
    as_csv: Annotated[bool, Option("--csv", help="Print CSV: a header, then one line per image.")] = False,
    limit: FirstImages = None,
    batch: Annotated[int, Option(help="Images at a time.", min=1)] = 64,
    device: Device = None,
    trust_code: TrustCode = False,
) -> None:
    """Label images, and say which are rejected.

    Each line has the class, the confidence, p(in), whether the image is accepted, and which gate rejects it: g or the
    confidence. Prood crops pictures around the centre and resizes them (bilinear) to the model's size. An unreadable
    image gets a line with the reason; the exit code is then 2.
    """
    from prood import processes
    from prood.detector import Detector
    from prood.detector.answering import answered, threshold_words
    from prood.detector.named import inputs

    if as_json and as_csv:
        raise BadValue("--json and --csv exclude each other: give one of them")
    detector = Detector.load(model, device=processes.device(device))
    if threshold is not None:
        detector.threshold = threshold
    named = inputs(images, detector.shape, limit)
    table, writer, damaged = Table(box=box.SIMPLE_HEAD, pad_edge=False), None, 0
    for title in ("image", "class", "confidence", "p(in)", "accepted", "reason"):
        table.add_column(title, overflow="fold", justify="right" if title in ("confidence", "p(in)") else "left")
    for one in answered(detector, named, batch=batch):
        damaged += one.answer is None
        if as_json:
            print(json.dumps(one.to_json()), flush=True)
        elif as_csv:
            values = one.to_json()
            if writer is None:
                writer = csv.DictWriter(sys.stdout, list(values), lineterminator="\n")
                writer.writeheader()
            writer.writerow(values)
        elif one.answer is None:
            table.add_row(escape(one.image), "–", "–", "–", "–", escape(f"error: {one.error}"))
        else:
            answer = one.answer
            accepted = "–" if answer.accepted is None else "yes" if answer.accepted else "no"
            numbers = f"{answer.confidence:.4f}", f"{answer.p_in:.4f}"
            table.add_row(escape(one.image), escape(answer.name), *numbers, accepted, answer.reason or "")
    if not (as_json or as_csv):
        print(f"threshold: {threshold_words(detector.threshold, detector.accept)}")
        console().print(table)
    if damaged:
        raise Damaged(f"{damaged} of {len(named)} images could not be read: their lines say why")
