"""prood verify CERTIFICATES"""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from rich.console import Console
from rich.markup import escape
from typer import Argument, Exit, Option

from prood.errors import BadValue, NotFound, printable

if TYPE_CHECKING:
    from prood.certification import Certificate
    from prood.certification.files import Claim, File
    from prood.certification.sampling import Sample
    from prood.certification.verify import Verdict

REFUTED, NOT_DECIDED = 1, 3  # exit codes; 2 is wrong use
_COLOURS = {"confirmed": "green", "refuted": "red", "not decided": "yellow"}


def verify(
    certificates: Annotated[Path, Argument(help="File or folder that 'prood certify --out' wrote.")],
    model: Annotated[
        str | None, Option(help="Where the model is now; its hash must match. Default: the path in the certificate.")
    ] = None,
    input: Annotated[
        str | None,
        Option(help="Where the images are now; their hashes must match. Default: the path in the certificate."),
    ] = None,
    limit: Annotated[int | None, Option(help="Verify the first N certificates only. Default: all.", min=1)] = None,
    sample: Annotated[int | None, Option(help="Verify N certificates, drawn at random.", min=1)] = None,
    at_most: Annotated[
        float | None,
        Option(
            metavar="SHARE", help="Draw a sample that can show that at most this share is wrong: 0.001 draws 4,603."
        ),
    ] = None,
    level: Annotated[float, Option(help="Confidence in what a sample shows.")] = 0.99,
    seed: Annotated[
        int | None, Option(help="Seed for the sample. Default: a fresh one, which Prood prints.", min=0)
    ] = None,
    strict: Annotated[bool, Option("--strict", hidden=True)] = False,  # nothing is left for it to say
    as_json: Annotated[bool, Option("--json", help="Print one line of JSON per certificate.")] = False,
) -> None:
    """Check certificates on an independent path.

    confirmed: the verifier's own bound, which covers every rounding of the float32 network, does not exceed the stated
    one. It holds for any order of summation, unless the line says that hidden linear layers must add up in blocks.

    refuted: a hash does not match, the confidence does not follow from the bound, or an image in the ball has a higher
    value.

    not decided: the verifier's bound is looser, it has no rule for the model, or a model or an image is missing.

    Exit codes: 0 if all are confirmed; 1 if one or more are refuted; 3 if none is refuted but some are not decided; 2
    for wrong use.

    With --sample or --at-most, Prood checks a random sample. The last line then bounds the share of all certificates
    that is not confirmed. This holds if the author of the files could not know the seed.

    The fields for the way of bounding, the version and the seconds are remarks; no proof depends on them.
    """
    from prood import pretrained
    from prood.certification.files import files
    from prood.certification.sampling import Sample

    if model is not None and not (place := pretrained.model_path(model)).is_file():  # a mistake, not an open question
        raise NotFound(f"there is no model at {place}: give its place with --model")
    asked = None
    if sample is not None or at_most is not None:
        asked = Sample(sample, at_most, level, *([] if seed is None else [seed]))
        if limit is not None:
            raise BadValue("--limit takes the first certificates, a sample takes random ones: give one of them")
    found = files(certificates)
    claims, every = _drawn(found, asked) if asked is not None else (_all(found), None)
    first = next(claims, None)
    if first is None:
        raise NotFound(f"{certificates} holds no certificates: give a file that 'prood certify --out' wrote")
    first.certificate()  # a damaged one is refused at once

    from prood import data  # with torch, which takes seconds
    from prood.certification.verify import Verifier

    if input is not None and not Path(input).exists():
        data.find(input)  # refuses names that are not image sets
    plain: dict[str, Any] = {"highlight": False, "soft_wrap": True, "emoji": False}  # :cat: may be part of a name
    aside, shown = Console(stderr=True, **plain), Console(**plain)
    verifier = Verifier(model=model, input=input)
    counts = dict.fromkeys(_COLOURS, 0)
    for number, claim in enumerate(islice(_with(first, claims), limit), 1):
        certificate = claim.certificate()
        verdict = verifier.verify(certificate)
        counts[verdict.outcome] += 1
        if as_json:
            line = {"number": number, "input": _name(certificate), "stated": certificate.bound, **verdict.to_dict()}
            print(json.dumps(line | ({} if asked is None else {"place": printable(claim.place)})), flush=True)
        elif asked is None or verdict.outcome != "confirmed":
            shown.print(_line(certificate, verdict))
    for file in found:
        if file.note:
            aside.print(f"note: {file.note}", markup=False)
    if asked is not None and every is not None:
        _say(asked, counts, every, as_json=as_json, shown=shown)
    elif not as_json:
        shown.print(", ".join(f"{count} {outcome}" for outcome, count in counts.items()))
    checked = sum(counts.values())
    if counts["refuted"]:
        aside.print(f"[red]error:[/] {counts['refuted']} of {checked} certificates are refuted")
        raise Exit(REFUTED)
    if counts["not decided"]:
        aside.print(f"note: {counts['not decided']} of {checked} certificates are not decided: they may be true")
        raise Exit(NOT_DECIDED)


def _all(found: list[File]) -> Iterator[Claim]:
    for file in found:
        yield from file.claims()


def _drawn(found: list[File], asked: Sample) -> tuple[Iterator[Claim], int]:
    """The sample in the order of the files, and how many certificates there are."""
    counts = [file.count() for file in found]
    numbers = asked.draw(sum(counts))

    def claims() -> Iterator[Claim]:
        start = place = 0
        for file, count in zip(found, counts, strict=True):
            end = start
            while end < len(numbers) and numbers[end] < place + count:
                end += 1
            if end > start:
                yield from file.claims([number - place for number in numbers[start:end]])
            start, place = end, place + count

    return claims(), sum(counts)


def _with(first: Claim, rest: Iterator[Claim]) -> Iterator[Claim]:
    yield first
    yield from rest


def _name(certificate: Certificate) -> str:
    row = certificate.input.row
    return printable(certificate.input.name if row is None else f"{certificate.input.name}[{row}]", 200)


def _line(certificate: Certificate, verdict: Verdict) -> str:
    proven = "" if verdict.bound is None else f", proven {verdict.bound:.6g}"
    seen = "" if verdict.value is None else f", seen {verdict.value:.6g}"
    reason = escape(printable(verdict.reason))
    return (
        f"[{_COLOURS[verdict.outcome]}]{verdict.outcome:<11}[/] {escape(_name(certificate))} "
        f"{certificate.norm} eps {certificate.eps:g}: "
        f"stated {certificate.bound:.6g}{proven}{seen}; {reason} [dim]({verdict.seconds:.2f} s)[/]"
    )


def _say(asked: Sample, counts: dict[str, int], every: int, *, as_json: bool, shown: Console) -> None:
    """Print what the sample shows about all certificates. The share is rounded up, so that the sentence stays true."""
    drawn = sum(counts.values())
    failed = drawn - counts["confirmed"]
    share = asked.limit(drawn, failed, every)
    if as_json:
        facts = {"certificates": every, "drawn": drawn, "seed": asked.seed, **counts}
        print(json.dumps(facts | {"at_most": share, "level": 1.0 if drawn == every else asked.level}))
        return
    shown.print(", ".join(f"{count} {outcome}" for outcome, count in counts.items()))
    words = f"{every:,} certificates, {drawn:,} of them drawn at random (seed {asked.seed}) and checked:"
    if drawn == every:
        shown.print(f"all {every:,} certificates were checked: {failed:,} are not confirmed")
    else:
        shown.print(f"{words} with {100 * asked.level:g}% confidence, at most {_percent(share)} of all are wrong")


def _percent(share: float) -> str:
    """Three digits, rounded up."""
    from decimal import ROUND_CEILING, Context, Decimal

    return f"{Context(prec=3, rounding=ROUND_CEILING).multiply(Decimal(repr(share)), Decimal(100)):f}%"
