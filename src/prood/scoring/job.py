"""What a folder of scores is about: the request, the plan and the manifest, made once by whoever comes first."""

from __future__ import annotations

import hashlib
import json
import os
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from prood.atomic import locked, replacing, write_text
from prood.data.images import Shape
from prood.errors import AlreadyThere, BadValue, Damaged, Mismatch, NoAccess
from prood.reading import content, json_of
from prood.scoring import shards
from prood.scoring.columns import schema_of
from prood.scoring.options import Options
from prood.scoring.scorer import Scorer
from prood.scoring.sources import Chunk, Listing, Piece, chunks, planned, settled
from prood.version import __version__

if TYPE_CHECKING:
    import pyarrow as pa

FORMAT = 1
MANIFEST, INSIDE = "_manifest.json", "_prood"
CHUNK = 256
"""Images that are read and handed on at a time."""

Decode = Callable[[Iterator[Chunk]], Iterator[dict[str, Any]]]


@dataclass(frozen=True)
class Request:
    """What is to be scored, by which model, and what is said about each image."""

    sources: tuple[str, ...]
    model: str
    eps: tuple[float, ...] = ()
    radius: bool = False
    columns: tuple[str, ...] | None = None
    column: str | None = None  # of the images, in Parquet and CSV
    rows: int | None = None  # images of a shard
    limit: int | None = None  # only the first images of each source
    trust_code: bool = False
    options: Options = field(default_factory=Options)

    def scorer(self, device: str | None) -> Scorer:
        how = {"radius": self.radius, "columns": self.columns, "device": device, "trust_code": self.trust_code}
        return Scorer(self.model, self.eps, options=self.options, **how)  # type: ignore[arg-type]

    def settings(self) -> dict[str, Any]:
        """Whatever changes a row. Where the model lies, and what a machine gives it, do not."""
        found: dict[str, Any] = {"eps": list(self.eps), "radius": self.radius, "columns": self.columns}
        found |= {} if self.limit is None else {"limit": self.limit}
        found |= {"bound": self.options.bound, "norm": self.options.norm, "column": self.column}
        return found | {"sources": [settled(source) for source in self.sources]}


@dataclass(frozen=True)
class Job:
    """A folder with its plan; it can be sent to workers."""

    out: Path
    identity: str
    fingerprint: str  # of the model
    pieces: tuple[Piece, ...]

    @classmethod
    def begun(cls, out: Path, request: Request, scorer: Scorer, parts: int) -> Job:
        """Make the plan, or take the one that is there, if it is about the same images, settings and model."""
        detector = scorer.detector
        if scorer.columns.carried or "error" not in scorer.columns.own:
            known, asked = ", ".join(scorer.columns.all), ", ".join(scorer.columns.asked)
            raise BadValue(f"columns are among {known}, and 'error' is one of them: not {asked}")
        model = {"fingerprint": scorer.fingerprint, "threshold": detector.threshold}
        if scorer.columns.wants("certificate"):
            model["sha256"] = scorer.file  # a certificate names a file, not only weights
        facts = {"format": FORMAT, "version": __version__, "command": sys.argv, "begun": _now()}
        facts |= {"model": {"path": request.model, "classes": list(detector.classes), **model}}
        facts |= {"request": request.settings(), "complete": False}
        identity = _digest({"model": model, "request": request.settings()})
        manifest = out / MANIFEST
        _check(out, request)
        with locked(manifest):
            stored = _read(manifest)
            if stored is not None and stored.get("identity") != identity:
                raise Mismatch(f"{out} holds {_difference(stored, facts)}: give another --out")
            if stored is None:
                facts |= {"identity": identity} | _plan(out, request, parts, detector.shape)
                write_text(manifest, json.dumps(facts, indent=1))
        return cls(out, identity, scorer.fingerprint, _pieces(out, (stored or facts).get("plan")))

    @property
    def known(self) -> int | None:
        """How many images there are; None with tar archives, which are counted as they are read."""
        counts = [piece.count for piece in self.pieces]
        return None if None in counts else sum(count or 0 for count in counts)

    def done(self, number: int) -> Counter[str] | None:
        return shards.done(shards.shard_path(self.out, number), self.identity)

    def schema(self, scorer: Scorer) -> pa.Schema:
        return schema_of(scorer.columns.own)

    def score(self, number: int, scorer: Scorer, decode: Decode, told: Callable[[int, int], None]) -> Counter[str]:
        """Score a shard and write its file; `told` hears of images and errors as they are done."""
        if scorer.fingerprint != self.fingerprint:
            raise Mismatch(
                f"a worker found model {scorer.fingerprint} in place of {self.fingerprint}: keep it as it is"
            )
        piece = self.pieces[number]
        if piece.kind == "listing":
            piece = Piece("listing", str(self.out / INSIDE / "listing.parquet"), piece.start, piece.count)

        def parts() -> Iterator[dict[str, Any]]:
            for batch in decode(chunks(piece, CHUNK, scorer.detector.shape)):
                rows = scorer(batch)
                told(len(rows["error"]), sum(error is not None for error in rows["error"]))
                yield {"image": batch["name"], **rows}

        return shards.write(shards.shard_path(self.out, number), self.identity, self.schema(scorer), parts())

    def finished(self) -> Counter[str] | None:
        """The totals over all shards, which go into the manifest; None while one is missing."""
        totals: Counter[str] = Counter()
        for number in range(len(self.pieces)):
            found = self.done(number)
            if found is None:
                return None
            totals.update(found)
        manifest = self.out / MANIFEST
        with locked(manifest):
            facts = _read(manifest) or {}
            if not facts.get("complete"):
                facts |= {"complete": True, "ended": _now(), "totals": dict(totals)}
                write_text(manifest, json.dumps(facts, indent=1))
            for left in self.out.glob(".scores-*.part"):  # by a kill
                with suppress(OSError):
                    left.unlink()
        return totals


def inline(found: Iterator[Chunk]) -> Iterator[dict[str, Any]]:
    """What a Scorer decodes itself."""
    for chunk in found:
        yield {"name": chunk.names, "reference": chunk.references, "image": chunk.images}


def _plan(out: Path, request: Request, parts: int, shape: Shape) -> dict[str, Any]:
    inside = out / INSIDE
    with replacing(inside / "listing.parquet") as aside, Listing(aside) as listing:
        how = {"column": request.column, "rows": request.rows, "limit": request.limit}
        pieces = planned(request.sources, listing, parts=parts, shape=shape, **how)  # type: ignore[arg-type]
    plan = json.dumps([piece.to_json() for piece in pieces])
    write_text(inside / "plan.json", plan)
    counts = [piece.count for piece in pieces]
    images = None if None in counts else sum(count or 0 for count in counts)
    return {"shards": len(pieces), "images": images, "plan": hashlib.sha256(plan.encode()).hexdigest()}


def _pieces(out: Path, digest: Any) -> tuple[Piece, ...]:
    """As they were planned: a number that is another would leave out images, or score some twice."""
    file = out / INSIDE / "plan.json"
    try:
        plan = content(file)
    except FileNotFoundError:
        raise Damaged(f"{out} has lost its {INSIDE}/plan.json: give another --out") from None
    except OSError as error:
        raise NoAccess(f"cannot read {file} ({error.strerror}): check its permissions") from None
    if hashlib.sha256(plan).hexdigest() != digest:
        raise Damaged(f"{file} is not the plan that {MANIFEST} tells of: give another --out")
    return tuple(Piece(*values) for values in json_of(plan))


def _check(out: Path, request: Request) -> None:
    if out.exists() and not out.is_dir():
        raise AlreadyThere(f"{out} is a file: give a folder for --out")
    if out.is_dir() and not (out / MANIFEST).exists() and any(out.glob("scores-*.parquet")):
        raise AlreadyThere(f"{out} holds scores without their {MANIFEST}: give another --out")
    for source in request.sources:
        if os.path.isdir(source) and Path(os.path.abspath(out)).is_relative_to(os.path.abspath(source)):
            raise BadValue(f"--out {out} lies in {source}, which is to be scored: give a folder outside of it")


def _read(path: Path) -> dict[str, Any] | None:
    try:
        facts = json_of(content(path))
        if not isinstance(facts, dict) or not all(isinstance(facts.get(one), dict) for one in ("model", "request")):
            raise ValueError("it says nothing of a model and a request")
        return facts
    except FileNotFoundError:
        return None
    except OSError as error:
        raise NoAccess(f"cannot read {path} ({error.strerror}): check its permissions") from None
    except ValueError as error:
        raise Damaged(f"{path} is damaged ({error}): give another --out") from None


def _difference(there: dict[str, Any], asked: dict[str, Any]) -> str:
    """What a folder holds that is not what is asked for."""
    theirs, ours = there.get("model", {}), asked["model"]
    if theirs.get("fingerprint") != ours["fingerprint"]:
        return f"the scores of another model, {theirs.get('path')} ({theirs.get('fingerprint')})"
    if theirs.get("threshold") != ours["threshold"]:
        return f"scores at the threshold {theirs.get('threshold')}, not {ours['threshold']}"
    for name, value in asked["request"].items():
        if there.get("request", {}).get(name) != json.loads(json.dumps(value)):
            return f"scores with {name} {there.get('request', {}).get(name)}, not {value}"
    return "other scores"


def _digest(facts: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:32]


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
