"""Crafted and damaged files of every format that Prood reads: no traceback, no hang, no silent change.

    python benchmarks/fuzz_files.py [--count 500] [--seed 0] [--only results]

An honest file of each format is made, broken, and read as Prood reads it. Bytes are flipped, cut out, doubled or put
in; what holds JSON has values replaced by odd ones, or nested; archives are packed anew around damaged members. What
may come out is an error that is one line, or an answer. Where a file has a checksum, an answer is the honest one.
"""

from __future__ import annotations

import argparse
import io
import json
import random
import resource
import shutil
import signal
import sys
import tarfile
import tempfile
import traceback
import warnings
import zipfile
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from PIL import Image
from torch import nn

from prood import data
from prood.certification import Certificate, ImageReference, ModelReference, append, file_sha256, image_sha256, read
from prood.certification.files import files
from prood.certification.verify import Verifier
from prood.data.formats.pictures import decode
from prood.detector import Detector
from prood.detector.named import inputs
from prood.errors import ProodError
from prood.evaluation.results import RESULTS_FILE, Evaluation, Results, read_results
from prood.evaluation.results import append as append_evaluation
from prood.evaluation.scores import Scores
from prood.models import Gated, ProoD, discriminator, fingerprint, load, save, small
from prood.models.committee import Committee
from prood.models.gated import Gate
from prood.models.rising import Rising
from prood.models.wrapped import read_classes
from prood.models.wrapped.archives import checked_export
from prood.report import write_report
from prood.report.results import results_page
from prood.scoring.job import Job, Request, inline
from prood.studies.guarding.parts import read_parts
from prood.training import Run, TrainOptions, load_recipe

ODD: tuple[Any, ...] = (None, True, -1, 0, 1.5, 1e308, 2**70, -5.0, float("nan"), float("inf"), [], [[]], {}, {"a": []})
ODD += ([None], "", "nan", "x" * 300, "\ud800", "\x1b[2K", "../../x", "a\0b")
NUMBERS = (b"\xff\xff\xff\xff", b"\0\0\0\0", b"\x7f\xff\xff\xff", b"\0\0\xff\xff")
SECONDS = 60
Read = Callable[[Path], Any]


@dataclass(frozen=True)
class Format:
    """`file` in the folder is what is broken; `read` gets the folder. With `sealed`, an answer is the honest one."""

    name: str
    file: str
    make: Callable[[Path], None]
    read: Read
    sealed: bool = False


def make_model(folder: Path) -> None:
    torch.manual_seed(0)
    joint = ProoD(small(3, width=2), discriminator("digits-XS", image=(1, 6, 6)), 1.0)
    save(joint, folder / "model.safetensors", classes=["a", "b", "c"], threshold=0.5, eps=0.1, inside="digits:test")


def make_detector(folder: Path) -> None:
    make_model(folder)
    detector = Detector.load(folder)
    detector.calibrate(np.random.default_rng(0).random((40, 1, 6, 6), dtype=np.float32), tpr=0.8, confidence=0.8)
    detector.save(folder / "kept")


def predicted(folder: Path) -> Any:
    return Detector.load(folder / "kept").predict(torch.full((1, 1, 6, 6), 0.5))


def watched(folder: Path) -> Any:
    return Detector.load(folder / "kept").monitor(folder / "monitor.json").standing


def make_monitor(folder: Path) -> None:
    make_detector(folder)
    monitor = Detector.load(folder / "kept").monitor(folder / "monitor.json")
    monitor.add(predicted(folder))
    monitor.save()


def make_repository(folder: Path) -> None:
    make_detector(folder)
    Detector.load(folder / "kept").save_pretrained(folder / "repository")


def pretrained(folder: Path) -> Any:
    detector = Detector.from_pretrained(folder / "repository")
    return fingerprint(detector.model), detector.threshold


SETTINGS = {"train": {"lr": 0.1, "steps": [1, 2]}, "data": {"inside": "digits:train"}}


def make_run(folder: Path) -> None:
    run = Run(folder)
    run.open(SETTINGS, resume=False)
    for step in range(5):
        run.log({"step": step, "loss": 0.5})
    model, optimizer = trained()
    run.save_checkpoint(model, optimizer, 4)


def trained() -> tuple[nn.Module, torch.optim.Optimizer]:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Flatten(), nn.Linear(9, 3))
    optimizer = TrainOptions(optimizer="adam", lr=0.1).make_optimizer(model)
    model(torch.rand(4, 9)).sum().backward()
    optimizer.step()
    return model, optimizer


def resumed(folder: Path) -> Any:
    model, optimizer = trained()
    step = Run(folder).load_checkpoint(model, optimizer)
    return step, fingerprint(model)


def metrics(folder: Path) -> Any:
    Run(folder).forget_after(3)
    return Run(folder).last_metrics()


def evaluation() -> Evaluation:
    numbers = np.linspace(0, 1, 20)
    scores = Scores(numbers, numbers, numbers, numbers)
    shares = {"auc": 0.5, "gauc": 0.4, "fpr95": 0.9, "gfpr95": 0.95, "aauc": 0.45, "afpr95": 0.92}
    return Evaluation("m", "in", "out", 0.1, 20, **shares, intervals={"auc": [0.4, 0.6]}, scores=scores)


def make_results(folder: Path) -> None:
    Results((evaluation(),), {"note": "x"}).save(folder)


def make_lines(folder: Path) -> None:
    append_evaluation(folder, evaluation())
    append_evaluation(folder, replace(evaluation(), eps=0.2))


def reported(folder: Path) -> Any:
    found = read_results(folder)
    if found is not None:
        for ending in ("html", "md", "csv"):
            write_report(found, folder / f"report.{ending}")


def make_published(folder: Path) -> None:
    facts = asdict(replace(evaluation(), scores=None))
    del facts["model"], facts["inside"], facts["scores"]
    words = dict.fromkeys(("inside", "outside", "command", "hardware", "weights"), "x")
    numbers = {"format": 1, "seed": 0, "shift": 3.0, "seconds": 5.0}
    more = {"version": "0.1.0", "recipe": {"train": {"lr": 0.1}}, "evaluations": [facts]}
    published = {"title": "ProoD", **words, **numbers, **more}
    (folder / "one.json").write_text(json.dumps(published))


def make_certificates(folder: Path) -> None:
    make_model(folder)
    images = np.random.default_rng(0).integers(0, 256, (2, 6, 6), dtype=np.uint8)
    np.savez(folder / "images.npz", images=images)
    image = images[1][None].astype(np.float32) / np.float32(255)
    reference = ImageReference(f"npz:{folder}/images.npz", 1, image_sha256(image))
    model = ModelReference(str(folder), file_sha256(folder / "model.safetensors"))
    for eps in (0.05, 0.1):
        append(folder / "c.jsonl", Certificate(reference, model, "linf", eps, "ibp", 1000.0))


def make_table(folder: Path) -> None:
    make_certificates(folder)
    lines = (folder / "c.jsonl").read_text().splitlines()
    (folder / "c.jsonl").unlink()
    pq.write_table(pa.table({"certificate": lines}), folder / "c.parquet")


def verified_table(folder: Path) -> Any:
    verifier = Verifier()
    found = [claim.certificate() for file in files(folder / "c.parquet") for claim in file.claims()]
    return [replace(one, digest="") for one in found if verifier.verify(one).outcome == "confirmed"]


def verified(folder: Path) -> Any:
    found, _ = read(folder / "c.jsonl")
    verifier = Verifier()
    outcomes = [(one, verifier.verify(one).outcome) for one in found]
    return [replace(one, digest="") for one, outcome in outcomes if outcome == "confirmed"]


def make_gated(folder: Path) -> None:
    torch.manual_seed(0)
    members, scale = [discriminator("digits-XS", image=(1, 6, 6)) for _ in range(2)], Rising((-1.0, 1.0), (0.0, 2.0))
    g = Committee(members, [scale, scale])
    gated = Gated(small(3, width=2), g, Gate((-1.0, 2.0), (-3.0, 1.0)), 1.0)
    save(gated, folder / "model.safetensors", classes=["a", "b", "c"], threshold=0.5, eps=0.1, inside="digits:test")


def make_parts(folder: Path) -> None:
    facts = {"counts": {"inside/train": 5, "outside/test": 3}, "inside": "in", "outside": "out", "shared": 0}
    (folder / "parts.json").write_text(json.dumps(facts))


def make_sources(folder: Path) -> None:
    """Pictures in every form that is scored."""
    make_model(folder)
    make_images(folder)
    for place in range(3):
        pixels = np.random.default_rng(place).integers(0, 256, (9, 9, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(folder / f"{place}.png")
    names = [f"{place}.png" for place in range(3)]
    (folder / "some.txt").write_text("\n".join(names))
    (folder / "some.csv").write_text("path,label\n" + "".join(f"{name},1\n" for name in names))
    with tarfile.open(folder / "some.tar", "w") as archive:
        for name in names:
            archive.add(folder / name, name)
    pq.write_table(pa.table({"image": [(folder / name).read_bytes() for name in names]}), folder / "some.parquet")


def make_job(folder: Path) -> None:
    make_sources(folder)
    scored(folder)


def scored(folder: Path) -> None:
    """As `prood score` does it, in this process; a job that is there is about the honest sources."""
    honest = folder.parent / "honest" / folder.name
    sources = honest if (folder / "out").exists() and honest.exists() else folder
    names = ("some.txt", "some.csv", "some.tar", "some.parquet", "images.npz")
    request = Request(tuple(str(sources / name) for name in names), str(sources), rows=5)
    scorer = request.scorer("cpu")
    job = Job.begun(folder / "out", request, scorer, 1)
    for number in range(len(job.pieces)):
        if job.done(number) is None:
            job.score(number, scorer, inline, lambda *_: None)
    job.finished()


def make_images(folder: Path) -> None:
    images = np.random.default_rng(0).integers(0, 256, (4, 6, 6), dtype=np.uint8)
    np.savez_compressed(folder / "images.npz", images=images, labels=np.arange(4))


def picture(kind: str) -> Callable[[Path], None]:
    def make(folder: Path) -> None:
        pixels = np.random.default_rng(0).integers(0, 256, (9, 9, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(folder / f"a.{kind}")

    return make


def make_program(folder: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        exported = torch.export.export(nn.Sequential(nn.Flatten(), nn.Linear(4, 2)).eval(), (torch.rand(1, 1, 2, 2),))
        torch.export.save(exported, folder / "model.pt2")


RECIPE = """[data]
inside = "digits:train"
outside = "faces:train"
[networks.classifier]
name = "small"
width = 4
[networks.discriminator]
size = "digits"
[train.plain]
epochs = 1
batch = 20
"""


def written(name: str, text: str) -> Callable[[Path], None]:
    return lambda folder: (folder / name).write_text(text) and None


def pictures(name: str) -> Read:
    def look(folder: Path) -> Any:
        decode(folder / name)
        return inputs([str(folder / name)], (1, 6, 6), None).read([0])

    return look


def model(folder: Path) -> Any:
    found, about = load(folder)
    return fingerprint(found), about


FORMATS = [
    Format("model", "model.safetensors", make_model, model, True),
    Format("gated", "model.safetensors", make_gated, model, True),
    Format("parts", "parts.json", make_parts, read_parts),
    Format("table", "some.csv", make_sources, lambda at: data.load(f"csv:{at}/some.csv", shape=(1, 6, 6))),
    *(Format(f"scored {kind}", f"some.{kind}", make_sources, scored) for kind in ("txt", "csv", "tar", "parquet")),
    Format("manifest", "out/_manifest.json", make_job, scored),
    Format("plan", "out/_prood/plan.json", make_job, scored),
    Format("listing", "out/_prood/listing.parquet", make_job, scored),
    Format("shard", "out/scores-000000.parquet", make_job, scored),
    Format("calibration", "kept/calibration.json", make_detector, predicted),
    Format("checkpoint", "checkpoint.safetensors", make_run, resumed, True),
    Format("metrics", "metrics.jsonl", make_run, metrics),
    Format("settings", "recipe.json", make_run, lambda at: Run(at).open(SETTINGS, resume=True)),
    Format("recipe", "mine.toml", written("mine.toml", RECIPE), lambda at: load_recipe(str(at / "mine.toml"))),
    Format("results", RESULTS_FILE, make_results, reported),
    Format("evaluations", "evaluations.jsonl", make_lines, reported),
    Format("scores", "scores/*.npz", make_results, reported),
    Format("published", "one.json", make_published, results_page),
    Format("certificates", "c.jsonl", make_certificates, verified, True),
    Format("certificate table", "c.parquet", make_table, verified_table, True),
    Format("monitor", "monitor.json", make_monitor, watched, True),
    Format("repository", "repository/config.json", make_repository, pretrained),
    Format("repository model", "repository/model.safetensors", make_repository, pretrained, True),
    Format("images", "images.npz", make_images, lambda at: data.load(f"npz:{at}/images.npz")),
    Format("program", "model.pt2", make_program, lambda at: checked_export((at / "model.pt2").read_bytes())),
    Format("classes", "names.json", written("names.json", '["a", "b"]'), lambda at: read_classes(at / "names.json")),
    *(Format(kind, f"a.{kind}", picture(kind), pictures(f"a.{kind}")) for kind in ("png", "jpg", "webp", "gif", "bmp")),
]


def broken(content: bytes, choice: random.Random) -> bytes:
    """The file with a wound: of its bytes, of the JSON in it, or of a member of the archive that it is."""
    if content[:2] == b"PK" and choice.random() < 0.5:
        return _repacked(content, choice)
    if choice.random() < 0.6:
        lines = content.split(b"\n")
        place = choice.randrange(len(lines))
        for text in (content, lines[place]):
            try:
                odd = json.dumps(_odd(json.loads(text), choice)).encode()
            except ValueError:
                continue
            return odd if text is content else b"\n".join([*lines[:place], odd, *lines[place + 1 :]])
        length = int.from_bytes(content[:8], "little")
        if content[8:9] == b"{" and length < len(content):  # safetensors
            header = json.loads(content[8 : 8 + length])
            if choice.random() < 0.6 and "prood" in header.get("__metadata__", {}):
                facts = json.loads(header["__metadata__"]["prood"])
                if choice.random() < 0.5:
                    facts.pop("sha256", None)  # as a forger would
                header["__metadata__"]["prood"] = json.dumps(_odd(facts, choice))
            else:
                header = _odd(header, choice)
            text = json.dumps(header).encode()
            return len(text).to_bytes(8, "little") + text + content[8 + length :]
    start, length = choice.randrange(len(content) + 1), choice.choice((1, 4, 50, 1000))
    wounds = {
        "flip": lambda: content[:start] + bytes(255 - one for one in content[start : start + 1]) + content[start + 1 :],
        "cut": lambda: content[:start],
        "out": lambda: content[:start] + content[start + length :],
        "twice": lambda: content[: start + length] + content[start:],
        "number": lambda: content[:start] + choice.choice(NUMBERS) + content[start + 4 :],
        "nested": lambda: choice.choice((b"[" * 100_000, b'{"a":' * 50_000, b"a = " + b"[" * 100_000)),
        "in": lambda: content[:start] + choice.randbytes(length) + content[start:],
        "none": lambda: choice.choice((b"", b"\0" * 100, b"\xff\xfe", b"null", b"[]", b"{}", b"1", b'"a"')),
    }
    return wounds[choice.choice(list(wounds))]()


def _odd(value: Any, choice: random.Random) -> Any:
    """One value somewhere inside is replaced, left out, or nested deeply."""
    if isinstance(value, dict) and value and choice.random() < 0.9:
        key = choice.choice(list(value))
        if choice.random() < 0.15:
            return {name: one for name, one in value.items() if name != key}
        if choice.random() < 0.1:
            return value | {"unknown": choice.choice(ODD)}
        return value | {key: _odd(value[key], choice)}
    if isinstance(value, list) and value and choice.random() < 0.8:
        place = choice.randrange(len(value))
        return [*value[:place], _odd(value[place], choice), *value[place + 1 :]]
    if choice.random() < 0.1:
        for _ in range(80):
            value = [value]
        return value
    return choice.choice(ODD)


def _repacked(content: bytes, choice: random.Random) -> bytes:
    """With a damaged member whose checksum is right, or one that unpacks to far more than it is."""
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    name = choice.choice(list(members))
    members[name] = b"\0" * 2**30 if choice.random() < 0.1 else broken(members[name], choice)
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        for name, member in members.items():
            archive.writestr(name, member)
    return packed.getvalue()


class Hang(BaseException):
    """A case took too long."""


def _late(*_: object) -> None:
    raise Hang


def cases(count: int, seed: int = 0, only: str = "") -> Iterator[tuple[str, int, str]]:
    """Format, number and what came of it: "fine", "refused", or what went wrong; the same for the same seed."""
    chosen = [one for one in FORMATS if not only or one.name == only]
    expected: dict[str, Any] = {}
    signal.signal(signal.SIGALRM, _late)
    with tempfile.TemporaryDirectory() as place:
        for one in chosen:
            (honest := Path(place, "honest", one.name)).mkdir(parents=True)
            one.make(honest)
            shutil.copytree(honest, Path(place, one.name))
            expected[one.name] = one.read(Path(place, one.name))
        for number in range(count):
            one = chosen[number % len(chosen)]
            honest, folder = Path(place, "honest", one.name), Path(place, one.name)
            shutil.rmtree(folder)
            shutil.copytree(honest, folder)
            yield one.name, number, _case(one, folder, expected[one.name], random.Random(f"{seed} {number}"))


def _case(one: Format, folder: Path, expected: Any, choice: random.Random) -> str:
    file = next(folder.glob(one.file))
    file.write_bytes(broken(file.read_bytes(), choice))
    signal.alarm(SECONDS)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = one.read(folder)
    except ProodError as error:
        return "refused" if len(str(error)) < 3000 else f"an error of {len(str(error))} letters"
    except Hang:
        return "a hang"
    except OSError as error:  # the command line says those of the system in a line
        return "refused" if error.errno is not None else traceback.format_exc()
    except Exception:
        return traceback.format_exc()
    finally:
        signal.alarm(0)
    forged = (
        one.file.endswith("safetensors") and b"sha256" not in file.read_bytes()
    )  # who leaves it out may say anything
    if (
        one.sealed
        and not forged
        and not (all(line in expected for line in found) if isinstance(found, list) else found == expected)
    ):
        return f"a silent change: {found}, not {expected}"
    return "fine"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=500)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="")
    options = parser.parse_args()
    counts: Counter[tuple[str, str]] = Counter()
    wrong = 0
    for name, number, outcome in cases(options.count, options.seed, options.only):
        fault = outcome not in ("fine", "refused")
        counts[name, "wrong" if fault else outcome] += 1
        wrong += fault
        if fault:
            print(f"{name}, case {number}: {outcome}", flush=True)
    for name in sorted({name for name, _ in counts}):
        print(f"{name:28}", ", ".join(f"{counts[name, how]} {how}" for how in ("refused", "fine", "wrong")))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(f"{options.count} files, {wrong} wrong; at most {peak:.1f} GiB of memory")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
