"""prood verify CERTIFICATES"""

from pathlib import Path
from typing import Annotated

import typer

_COLOURS = {"confirmed": "green", "refuted": "red", "not decided": "yellow"}


def verify(
    certificates: Annotated[Path, typer.Argument(help="What 'prood certify … --out FILE' wrote.")],
    model: Annotated[str | None, typer.Option(help="Where the model is now; its hash decides all the same.")] = None,
    input: Annotated[
        str | None,
        typer.Option(help="Where the images are now, a folder for pictures; their hashes decide all the same."),
    ] = None,
    limit: Annotated[int | None, typer.Option(help="Verify the first N certificates only.", min=1)] = None,
    strict: Annotated[bool, typer.Option("--strict", help="What is not decided is an error, too.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="For programs: a line of JSON per certificate.")] = False,
) -> None:
    """Check certificates on an independent path, with rigorous arithmetic.

    confirmed: a bound of our own, which covers every rounding of the float32 network, is no higher than the stated one.
    It holds for sums in any order; where it needs hidden linear layers to add up in blocks, as Prood's do, it says so.

    refuted: a hash does not match, the confidence does not follow from the bound, or an image in the ball has a higher
    value.

    not decided: neither; our bound is looser, or there is no rule for the model.

    The exit code is 0 if none is refuted and 2 if one is; with --strict it is 2 unless all are confirmed.
    """
    import json

    from rich.console import Console
    from rich.markup import escape

    from prood.certification import read
    from prood.certification.verify import Verifier
    from prood.data import find
    from prood.errors import Damaged, NotFound, ProodError, Refuted
    from prood.models import model_path

    if model is not None and not model_path(model).is_file():  # a mistake, not an open question
        raise NotFound(f"there is no model at {model_path(model)}: say with --model where it is now")
    if input is not None and not Path(input).exists():
        find(input)  # refuses what is no image set either
    found, note = read(certificates)
    if note:
        Console(stderr=True).print(f"note: {note}", highlight=False, soft_wrap=True, markup=False)
    if not found:
        raise NotFound(f"{certificates} holds no certificate")
    console = Console()
    verifier = Verifier(model=model, input=input)
    counts = dict.fromkeys(_COLOURS, 0)
    for number, certificate in enumerate(found[:limit], 1):
        verdict = verifier.verify(certificate)
        counts[verdict.outcome] += 1
        row = certificate.input.row
        name = certificate.input.name if row is None else f"{certificate.input.name}[{row}]"
        if as_json:
            print(
                json.dumps({"number": number, "input": name, "stated": certificate.bound, **verdict.to_dict()}),
                flush=True,
            )
            continue
        proven = "" if verdict.bound is None else f", proven {verdict.bound:.6g}"
        seen = "" if verdict.value is None else f", seen {verdict.value:.6g}"
        console.print(
            f"[{_COLOURS[verdict.outcome]}]{verdict.outcome:<11}[/] {escape(name)} "
            f"{certificate.norm} eps {certificate.eps:g}: "
            f"stated {certificate.bound:.6g}{proven}{seen}; {escape(verdict.reason)} [dim]({verdict.seconds:.2f} s)[/]",
            highlight=False,
            soft_wrap=True,
        )
    if not as_json:
        console.print(", ".join(f"{count} {outcome}" for outcome, count in counts.items()), highlight=False)
    if counts["refuted"]:
        raise Refuted(f"{counts['refuted']} of {sum(counts.values())} certificates are refuted")
    if note and strict:
        raise Damaged(f"{certificates} is not whole: {note}")
    if counts["not decided"]:
        text = f"{counts['not decided']} of {sum(counts.values())} certificates are not decided"
        if strict:
            raise ProodError(text)
        Console(stderr=True).print(f"note: {text}: they may be true", highlight=False, soft_wrap=True)
