"""Every number of the paper's tables, for any model that has a score."""

import platform
import shutil
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import torch
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from torch import Tensor, nn

from prood import processes
from prood.attacks import Compiled
from prood.data import ImageSet
from prood.data.images import channels_last
from prood.errors import BadValue, Damaged, Mismatch, NoAccess, Unsupported, first_line, warn
from prood.evaluation.measuring import Evaluator
from prood.evaluation.metrics import auc, fpr, intervals, rejected
from prood.evaluation.options import EvaluateOptions, radii_of
from prood.evaluation.results import Evaluation, Results, append, identity, read_results, settle
from prood.evaluation.scores import Scores
from prood.evaluation.sets import Inside, Outside, opened
from prood.evaluation.verdicts import judged
from prood.evaluation.words import PROVED
from prood.models import Score, fingerprint, score_of
from prood.models.confidence import renamed
from prood.models.constancy import constant
from prood.progress import Lines

Plan = dict[str, tuple[ImageSet, dict[str, Any]]]


class Scored(Protocol):
    """A `Detector`, as far as this room knows it."""

    classes: tuple[str, ...]
    device: torch.device

    @property
    def score(self) -> Score: ...

    def to(self, device: str | torch.device) -> Any: ...


@torch.no_grad()
def evaluate(
    model: nn.Module | Score | Scored,
    *,
    inside: Inside,
    outside: Outside,
    eps: float | str | Iterable[float | str],
    options: EvaluateOptions | None = None,
    **keywords: Any,
) -> Results:
    """Compare the scores of in-distribution images with those of each out-distribution, at each radius `eps`.

    AUC and FPR take the images as they are; GAUC and GFPR the certified upper bounds over the ℓ∞ balls of radius eps (a
    model without a certificate has 0 and 1); AAUC and AFPR the highest scores that an attack finds in them.

    `model` is a network with a score, a `Score` or a `Detector`. Sets may be given by name: `inside="digits:test"`,
    `outside=["uniform", "smooth"]`; without a split the name means the split `test`. A `DataLoader` or another
    iterable of batches is a set, too. A radius may be text: `"8/255"`.
    `options`, or `keywords` by the names of its fields, say how: see `EvaluateOptions`. Under torchrun each process
    takes a part of the images. The model is moved to the device, and stays in eval mode.
    """
    options = replace(options or EvaluateOptions(), **renamed(keywords))
    if options.compile and options.place.type != "cuda":
        raise Unsupported("attacks are compiled for a GPU only: leave out --compile, or choose --device cuda")
    names = getattr(model, "classes", None)
    if isinstance(model, nn.Module | Score):
        score = model if isinstance(model, Score) else score_of(model)
    elif isinstance(getattr(model, "score", None), Score):
        options = replace(options, device=options.device or model.device)
        score = model.to(options.place).score
    else:
        raise BadValue(f"evaluate takes a model, a Score or a Detector, not {type(model).__name__}: use prood.load(…)")
    names = names if isinstance(names, tuple) else None
    inside, outside = opened(inside, outside, classes=names, limit=options.limit, seed=options.seed)
    score.model.to(options.place).eval()
    score.model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]  # faster convolutions
    plan = _plan(score, inside, outside, radii_of(eps), options)
    store = None if options.folder is None else Path(options.folder)
    stored = (read_results(store) if store else None) or Results()
    found = _usable(stored, plan)
    evaluator = Evaluator(score, options, Compiled(score) if options.compile and options.attack else None)
    missing = {name: part for name, part in plan.items() if name not in found}
    if missing:
        _check_shape(score, inside, options.place)
        if fault := constant(score.model):
            warn(f"{options.name}: {fault}")
        lines = Lines(options.console if processes.is_main() else None, options.name)
        seen = partial(_seen, lines, inside)
        reference = evaluator.over(inside, score, seen)
        classified = _classified(evaluator, inside, seen)
        if store is not None:
            _shared(store)
    with Bar(options.console, options.name, sum(len(images) for images, _ in missing.values())) as bar:
        for name, (images, settings) in missing.items():
            bar.begins(f"{settings['outside']}, ε = {settings['eps']:g}")
            began = time.monotonic()
            bounds_of_g = _known((*(options.reuse or ()), *stored), score, settings)
            whole = len(outside[settings["outside"]])
            facts = settings | classified | ({"available": whole} if len(images) < whole else {})

            def made(scores: Scores, attack: dict[str, Any], facts: Any = facts, began: float = began) -> Evaluation:
                seconds = round(time.monotonic() - began, 3)
                return replace(_evaluation(facts, scores, attack), seconds=seconds, machine=machine(options.place))

            if store is None:
                found[name] = made(*evaluator.run(images, settings["eps"], reference, bar.reaches, bounds_of_g))
                continue
            shelf = evaluator.shelf(images, store / "scores" / f".{name}")
            evaluator.measured(images, settings["eps"], reference, bar.reaches, bounds_of_part=bounds_of_g, shelf=shelf)
            with shelf.taken() as parts:
                if parts is not None:  # else another process is not done yet, and will put them together
                    found[name] = made(*evaluator.together(images, reference, parts, all_of_them=True))
                    append(store, found[name])
    while store is not None and (left := {name: plan[name] for name in missing if name not in found}):
        found |= _usable(read_results(store) or Results(), left)  # what other processes are still at
        time.sleep(0.2)
    if store is not None and processes.is_main():
        for name in missing:  # of two calls at a time, one may leave parts
            shutil.rmtree(store / "scores" / f".{name}", ignore_errors=True)
    threshold = options.threshold
    if threshold is None:
        threshold = getattr(score.model, "threshold", None)
    verdicts = (judged(found[name], threshold, found[name].classes) for name in plan)
    asked = tuple(replace(one, trained_on=_trained_on(score, options)) for one in verdicts)
    if store and processes.is_main():
        with suppress(OSError):  # a read-only folder still answers from stored results
            settle(store, asked)
    processes.barrier()  # what one process has stored, all find in the folder from now on
    return Results(asked)


def _plan(
    score: Score, inside: ImageSet, outside: Mapping[str, ImageSet], radii: list[float], options: EvaluateOptions
) -> Plan:
    """By their identities, the evaluations that are asked for: the images, and all that decides the outcome."""
    prints = {"model": fingerprint(score.model), "inside": inside.fingerprint()}
    prints |= {"attack": identity(attack=repr(options.attack))} if options.attack else {}  # a preset may change one day
    plan: Plan = {}
    for title, images in outside.items():
        if images.shape != inside.shape:
            fault = f"{title} has images of shape {images.shape}, but {inside.name} of shape {inside.shape}"
            raise Mismatch(f"{fault}{channels_last(images.shape)}")
        chosen = images if options.limit is None else images.subset(options.limit, options.seed)
        settings = options.identity | {"inside": inside.name, "outside": title}
        settings |= {"fingerprints": prints | {"outside": chosen.fingerprint()}}
        for radius in radii:
            whole = settings | {"eps": radius}
            plan[identity(**whole)] = (chosen, whole)
    return plan


def _trained_on(score: Score, options: EvaluateOptions) -> list[str] | None:
    about = getattr(score.model, "about", None)
    names = options.trained_on if options.trained_on is not None or about is None else tuple(about.data)
    return None if names is None else list(names)


def _usable(stored: Results, plan: Plan) -> dict[str, Evaluation]:
    """The stored part of the plan, without evaluations whose scores cannot be read any more."""
    found = {}
    for one in stored:
        with suppress(Damaged):
            if one.identity in plan and (one.scores is None or one.scores.clean is not None):
                found[one.identity] = one
    return found


def _shared(store: Path) -> None:
    """Refuse a folder that is another one for each process: it would wait for the parts of others forever."""
    if processes.is_main():
        (store / "scores").mkdir(parents=True, exist_ok=True)
    processes.barrier()
    if not (store / "scores").is_dir():
        raise NoAccess(f"{store} is not the folder of the first process: put it on a disk that all processes share")


def _seen(lines: Lines, inside: ImageSet, done: int) -> None:
    """Before the bar, which is about images outside, and quick on most machines."""
    lines.tell(0, 0, lambda: f"{done}/{len(inside)} images of the in-distribution")


def _classified(evaluator: Evaluator, inside: ImageSet, seen: Callable[[int], None]) -> dict[str, Any]:
    """How the model classifies the in-distribution, if it does: its accuracy, and among how many classes."""
    logits = evaluator.score.logits(inside.floats([0]).to(evaluator.options.place))
    classes = None if logits is None else logits.shape[1]
    labels = None if classes is None else inside.labels_of(classes)
    if labels is None:
        return {"accuracy": None, "classes": classes}

    def guess(images: Tensor) -> Tensor:
        logits = evaluator.score.logits(images)
        assert logits is not None
        return logits.argmax(1)

    right = evaluator.over(inside, guess, seen).long() == labels
    return {"accuracy": right.double().mean().item(), "classes": classes}


def _evaluation(settings: dict[str, Any], scores: Scores, attack: dict[str, Any]) -> Evaluation:
    """The metrics of what was measured, and the measurements themselves."""
    kinds = {"": scores.clean, "g": scores.certified} | ({} if scores.attacked is None else {"a": scores.attacked})
    values: dict[str, Any] = {letter + "auc": auc(scores.inside, outside) for letter, outside in kinds.items()}
    values |= {letter + "fpr95": fpr(scores.inside, outside) for letter, outside in kinds.items()}
    proved = rejected(scores.inside, {"g": scores.certified}, PROVED.values())["g"]
    values |= dict(zip(PROVED, proved.tolist(), strict=True))
    ends = intervals(scores.inside, kinds, seed=settings["seed"])
    named = {"auc": "auc", "fpr": "fpr95"}
    between = {letter + name: list(ends[metric][letter]) for letter in kinds for metric, name in named.items()}
    between |= {name: list(ends[name]["g"]) for name in PROVED}
    return Evaluation(**settings, **values, images=len(scores.clean), intervals=between, attack=attack, scores=scores)


def _known(before: Iterable[Evaluation], score: Score, settings: dict[str, Any]) -> Tensor | None:
    """The bounds of the score's part on these images, if they are among what was evaluated before."""
    part = score.part()
    if part is None:
        return None
    wanted = (settings["eps"], settings["certificate"], fingerprint(part.model), settings["fingerprints"]["outside"])
    for one in before:
        found = (one.eps, one.certificate, one.fingerprints.get("model"), one.fingerprints.get("outside"))
        if found == wanted and one.scores is not None:
            with suppress(Damaged):  # then they are computed again
                return torch.from_numpy(one.scores.certified)
    return None


def machine(device: torch.device) -> str:
    if device.type == "cuda":
        return f"{torch.cuda.get_device_name(device)}, torch {torch.__version__}"
    return f"{platform.machine()}, {torch.get_num_threads()} threads, torch {torch.__version__}"


def _check_shape(score: Score, inside: ImageSet, device: torch.device) -> None:
    """Whether the model takes images of this shape is seen by one grey image of it."""
    try:
        score(torch.full((1, *inside.shape), 0.5, device=device))
    except (RuntimeError, ValueError) as error:
        fault = f"the model does not take images of {inside.name}, of shape {inside.shape}"
        raise Mismatch(f"{fault}{channels_last(inside.shape) or f': {first_line(error)}'}") from None


class Bar(Progress):
    """A bar with the time left on a terminal, else a line now and then; in the first process only."""

    def __init__(self, console: Console | None, title: str, images: int) -> None:
        name, part = (TextColumn(text, markup=False) for text in (f"{title:<14}", "{task.description}"))
        count = TextColumn("{task.completed:.0f}/{task.total} images")
        times = TimeElapsedColumn(), TextColumn("left"), TimeRemainingColumn(elapsed_when_finished=False)
        columns = name, BarColumn(), count, *times, part
        console = console if processes.is_main() and images else None
        super().__init__(*columns, console=console, disable=console is None or not console.is_terminal, transient=True)
        self.lines = Lines(console, title)
        self.task = self.add_task("", total=images)
        self.before = 0.0

    def begins(self, text: str) -> None:
        """The next part, and what it is called."""
        self.before = self.tasks[self.task].completed
        self.update(self.task, description=text)

    def reaches(self, images: float) -> None:
        self.update(self.task, completed=self.before + images)
        task = self.tasks[self.task]
        total = task.total or 0
        self.lines.tell(task.completed, total, lambda: f"{task.completed:.0f}/{total:.0f} images ({task.description})")
