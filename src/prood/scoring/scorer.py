"""A detector as a plain callable from batches to flat columns, for Ray, Spark, or a loop of one's own."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from prood import processes
from prood.certification.record import ImageReference, image_sha256
from prood.detector import Detector
from prood.detector.inputs import radius_of
from prood.errors import BadValue, Diverged
from prood.models import fingerprint
from prood.scoring.columns import Columns, Rows
from prood.scoring.memory import batch_for, limited
from prood.scoring.options import Options
from prood.scoring.parcel import Parcel
from prood.scoring.pictures import Column, Errors, column_of, pixels
from prood.scoring.proofs import Prover, Reference, references


class Scorer:
    """Scores any number of images: a dict with a column of images in, a dict of flat columns out, a row per image.

        scorer = Scorer("runs/guarded", eps=[0.01])
        scorer({"path": ["a.jpg", "b.jpg"]})                  # or "bytes", or "image": arrays as a Detector takes them
        dataset.map_batches(Scorer, fn_constructor_args=("runs/guarded", 0.01), concurrency=4)      # Ray Data

    `columns` chooses the columns, in that order, and may name columns of the input, which are carried over. By default
    all of the Scorer's own are returned: label, confidence, p_in, accepted, reason, for each radius `upper_bound_EPS`
    and `rejected_EPS` (provably), with `radius` how far each image provably stays rejected, then bound, sha256 (of the
    pixels, as certificates state it), fingerprint (of the model) and error. Without a threshold, accepted, reason,
    rejected and radius are absent. `certificate_EPS`, where it is asked for by name, is the line that `prood certify`
    writes; it needs a model that was given by its path.

    An image that cannot be read is a row whose `error` says why, with label −1, NaN, and nothing accepted or rejected.
    A Scorer can be pickled: it sends the model's path, or the bytes of its files if it was made from a `Detector`, and
    opens them at the first call, once in each process. A wrapped TorchScript classifier is a program: it runs only with
    `trust_code=True`. Without `device`, a path is opened on a GPU if there is one.
    """

    def __init__(
        self,
        model: Detector | Path | str,
        eps: float | Sequence[float] = (),
        *,
        radius: bool = False,
        columns: Sequence[str] | None = None,
        device: str | None = None,
        trust_code: bool = False,
        options: Options | None = None,
    ) -> None:
        self.options = options or Options()
        self.eps = tuple(map(radius_of, [eps] if isinstance(eps, float | int) else eps))
        self.radius, self.device, self.trust_code = radius, device, trust_code
        self._asked = None if columns is None else tuple(columns)
        self._live = model if isinstance(model, Detector) else None
        self._parcel = None if isinstance(model, Detector) else Parcel.at(model, trust_code=trust_code)
        self._ready: _Ready | None = None
        if self._live is not None:
            self._open()  # a wrong column is refused here, not in a worker

    def __getstate__(self) -> dict[str, Any]:
        state = dict(self.__dict__)
        if self._live is not None:
            state["_parcel"] = Parcel.of(self._live, trust_code=self.trust_code)
            state["device"] = self.device or str(self._live.device.type)
        return state | {"_live": None, "_ready": None}

    @property
    def detector(self) -> Detector:
        return self._open().detector

    @property
    def columns(self) -> Columns:
        return self._open().columns

    @property
    def file(self) -> str:
        """The sha256 of the model's file, which certificates name."""
        return self._open().prover.model.sha256

    @property
    def fingerprint(self) -> str:
        """Fingerprint of the model's weights."""
        return self._open().fingerprint

    def __call__(self, batch: Mapping[str, Any]) -> Rows:
        """A row for each image of the batch, in its order. An input column `error` says which images are damaged."""
        ready = self._open()
        name = column_of(list(batch), self.options.image)
        images: Column = batch[name]
        known = batch.get("error", [None] * len(images))
        if missing := [name for name in ready.columns.carried if name not in batch]:
            raise BadValue(f"there is no column {missing[0]!r}: choose from {', '.join((*ready.columns.all, *batch))}")
        called = references(batch, name) if ready.columns.wants("certificate") else None
        parts = [ready.columns.blank(0)]
        with limited(self.options.threads):
            for start in range(0, len(images), ready.batch):
                part = slice(start, start + ready.batch)
                stack, errors = pixels(images[part], ready.detector.shape)
                parts.append(self._rows(ready, stack, [a or b for a, b in zip(known[part], errors, strict=True)]))
        found = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
        if called is not None:
            self._certify(ready, found, called)
        found |= {name: np.asarray(batch[name]) for name in ready.columns.carried}
        return {name: found[name] for name in ready.columns.asked}

    def _certify(self, ready: _Ready, rows: Rows, called: Sequence[Reference]) -> None:
        """Make lines of the bounds that stand in the columns of certificates."""
        images = [
            None if error else ImageReference(*reference, sha256)
            for reference, sha256, error in zip(called, rows["sha256"], rows["error"], strict=True)
        ]
        for eps in self.eps:
            name = f"certificate_{eps:g}"
            if name in ready.columns.own:
                bounds = [math.nan if bound is None else bound for bound in rows[name]]
                rows[name] = np.array([*ready.prover.lines(bounds, eps, images), None], dtype=object)[:-1]

    def _open(self) -> _Ready:
        if self._ready is None:
            with limited(self.options.threads):  # a program takes its number of threads when it is opened
                self._ready = _Ready(self)
        return self._ready

    def _open_detector(self) -> Detector:
        if self._live is not None:
            return self._live
        assert self._parcel is not None
        return self._parcel.open(str(processes.device(self.device)))

    def _rows(self, ready: _Ready, stack: Tensor, errors: Errors) -> Rows:
        """The answers about the images that could be read, in their places."""
        rows = ready.columns.blank(len(stack))
        rows["error"][:] = errors
        good = np.array([error is None for error in errors], dtype=bool)
        if good.any():
            answers = self._answers(ready, stack if good.all() else stack[torch.from_numpy(good)])
            for name, values in answers.items():
                rows[name][good] = values
        return rows

    def _answers(self, ready: _Ready, stack: Tensor) -> Rows:
        """What the detector says; where that fails about a batch, about its halves."""
        try:
            return self._computed(ready, stack)
        except Diverged as error:
            if len(stack) == 1:
                rows = ready.columns.blank(1)
                rows["error"][:] = str(error)
                return rows
        except torch.cuda.OutOfMemoryError:
            if len(stack) == 1:
                raise
            torch.cuda.empty_cache()
            ready.batch = max(1, len(stack) // 2)
        middle = len(stack) // 2
        first, second = self._answers(ready, stack[:middle]), self._answers(ready, stack[middle:])
        return {name: np.concatenate([first[name], second[name]]) for name in first}

    def _computed(self, ready: _Ready, stack: Tensor) -> Rows:
        detector, columns, options = ready.detector, ready.columns, self.options
        size = len(stack)
        found = detector.predict(stack, batch=size)
        rows = columns.blank(size)
        rows |= {"label": found.label, "confidence": found.confidence, "p_in": found.p_in}
        rows["fingerprint"][:] = ready.fingerprint
        if columns.wants("sha256") or columns.wants("certificate"):
            rows["sha256"][:] = [image_sha256(image.numpy()) for image in stack]
        if detector.threshold is not None:
            rows["accepted"] = found.accepted
            rows["reason"][:] = found.reason
        if columns.wants("upper_bound") or columns.wants("rejected") or columns.wants("radius"):
            how = {"method": options.bound, "norm": options.norm}
            bounds = detector.upper_bounds(stack, self.eps, batch=size, **how)  # type: ignore[arg-type]
            for place, eps in enumerate(self.eps):
                rows[f"upper_bound_{eps:g}"] = bounds[:, place]
                if detector.threshold is not None:
                    rows[f"rejected_{eps:g}"] = detector.rule.rejects(bounds[:, place])
            if columns.wants("radius"):
                reach = detector.certified_radius(stack, **how)  # type: ignore[arg-type]
                rows["radius"] = detector.rule.reach(reach, bounds, self.eps)
        for eps in self.eps:
            if f"certificate_{eps:g}" in columns.own:
                rows[f"certificate_{eps:g}"][:] = ready.prover.bounds(stack, eps)
        if "bound" in rows:
            rows["bound"][:] = options.bound
        return rows


class _Ready:
    """What a process has once the model is open."""

    def __init__(self, scorer: Scorer) -> None:
        detector = scorer._open_detector()
        decides = detector.threshold is not None
        if scorer.radius and not decides:
            raise BadValue("a radius needs a threshold: set one with 'prood calibrate'")
        self.detector = detector
        self.columns = Columns.of(scorer.eps, threshold=decides, radius=scorer.radius, asked=scorer._asked)
        self.fingerprint = fingerprint(detector.model)
        self._where = None if scorer._parcel is None else scorer._parcel.path
        self._options = scorer.options
        self.batch = batch_for(detector, scorer.options.memory, bounded=bool(scorer.eps) or scorer.radius)

    @cached_property
    def prover(self) -> Prover:
        return Prover.of(self.detector, self._where, self._options)
