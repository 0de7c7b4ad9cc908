"""Whether arrivals still look like the calibration images: tested image by image, with a stated rate of false alarms.

Two alarms, each raised where the capital of a gambler (`prood.detector.betting`) reaches 2/α, so that the chance of any
false alarm, ever, is at most α:

**shift** bets against exchangeability: that calibration images and arrivals might have come in any other order. The n
calibration scores cut the line into n + 1 gaps. If all scores are exchangeable, the next one falls into gap j with
probability (1 + cⱼ)/(n + 1 + t), where cⱼ of the t scores before it did (Pólya's urn). So

    p = (Σ_{i<j} (1 + cᵢ) + U·(1 + cⱼ)) / (n + 1 + t),    U uniform on [0, 1],

are independent and uniform. This is full online conformal prediction (Vovk, Gammerman and Shafer, *Algorithmic learning
in a random world*, 2005) for scores of which only the gap is kept: each joins the bag, which is never more than n + 1
counts. P-values against a calibration set that stays fixed would not do. They all depend on the same n images, and in
the long run a set that happens to be unlike its distribution would raise the alarm.

**promise** bets that more images are rejected than the calibration allows, 1 − `accept`. It tests the rate alone, and
its alarm is false only where the promise holds, as it does with probability `level` over calibration sets.
"""

from __future__ import annotations

import hashlib
import json
import math
import secrets
import threading
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from prood.atomic import write_text
from prood.detector.answers import Prediction
from prood.detector.betting import P_WAYS, REJECTION_WAYS, Capital, bets_on_p, bets_on_rejection
from prood.detector.calibration import Calibration
from prood.errors import BadValue, Damaged, Mismatch, NoAccess
from prood.models.confidence import Floats
from prood.reading import content, json_of

FALSE_ALARMS = 0.01
_FORMAT, _LARGEST = 1, 64 * 2**20
_STACK = 256


@dataclass(frozen=True)
class Standing:
    """What a monitor says. `shift` and `promise` are log10 of the capital, and `needed` raises the alarm.

    `shift_at` and `promise_at` count the image, from 1, at which the alarm was raised: it stays. `accepted` of the
    `seen` images were; `accept` is the share that the calibration promises, `calibration` how many images it had.
    """

    seen: int
    accepted: int
    accept: float
    calibration: int
    false_alarms: float
    needed: float
    shift: float
    promise: float
    shift_at: int | None
    promise_at: int | None

    @property
    def alarm(self) -> bool:
        return self.shift_at is not None or self.promise_at is not None

    def to_json(self) -> dict[str, Any]:
        return {"alarm": self.alarm, **asdict(self)}


class Monitor:
    """Fed with predictions as they are made; `standing` and `alarm` may be asked at any time.

    `false_alarms` is α. `seed` is for the random numbers that break ties and smooth p-values; by default it is drawn,
    because whoever sends the images must not know it. With a `file`, what was seen before is read from it, and `save`
    writes it.
    """

    def __init__(
        self,
        calibration: Calibration | None,
        *,
        false_alarms: float | None = None,
        seed: int | None = None,
        file: Path | str | None = None,
    ) -> None:
        if calibration is None:
            raise BadValue(
                "the detector has no calibration to compare with: call calibrate(images), or prood calibrate"
            )
        self.calibration, self.file = calibration, None if file is None else Path(file)
        self.false_alarms = FALSE_ALARMS if false_alarms is None else false_alarms
        if not 0 < self.false_alarms < 1:
            raise BadValue(f"false_alarms is a share between 0 and 1, not {self.false_alarms}")
        self.seed = secrets.randbits(48) if seed is None else seed
        self.counts = np.zeros(len(calibration) + 1, dtype=np.int64)
        self._shift, self._promise = Capital(P_WAYS), Capital(REJECTION_WAYS)
        self._accepted, self._now = 0, [0.0, 0.0]
        self._one = threading.Lock()
        self._at: list[int | None] = [None, None]
        if self.file is not None and self.file.exists():
            self._take_over(self.file, false_alarms)
        keys = np.random.default_rng([self.seed, 0]).random(len(calibration))
        order = np.lexsort((keys, calibration.scores))
        self._keys = keys[order]

    def __repr__(self) -> str:
        told = self.standing
        return f"Monitor({told.seen:,} images, {'ALARM' if told.alarm else 'no alarm'})"

    def of(self, calibration: Calibration) -> bool:
        """Whether this is what it compares with."""
        return _digest(calibration) == _digest(self.calibration)

    @property
    def seen(self) -> int:
        return self._shift.rounds

    @property
    def alarm(self) -> bool:
        return self.standing.alarm

    @property
    def needed(self) -> float:
        """log10 of the capital at which either alarm is raised: together they are false with probability α at most."""
        return math.log10(2 / self.false_alarms)

    @property
    def standing(self) -> Standing:
        shift, promise = self._now
        numbers = self.seen, self._accepted, self.calibration.accept, len(self.calibration)
        return Standing(*numbers, self.false_alarms, self.needed, shift, promise, *self._at)

    def add(self, prediction: Prediction, watched: NDArray[np.bool_] | None = None) -> Standing:
        """What the detector said about the next images, in the order in which they came; of all, or of the watched."""
        if prediction.threshold != self.calibration.threshold:
            raise Mismatch(
                "the predictions were made with another threshold than the calibration's: make a new monitor"
            )
        which = slice(None) if watched is None else watched
        return self.observe(prediction.score[which], prediction.accepted[which])

    def observe(self, scores: Floats, accepted: NDArray[np.bool_]) -> Standing:
        if not np.isfinite(scores).all():
            raise BadValue("a score is not finite: check the images and the weights for NaN and infinity")
        with self._one:
            for start in range(0, len(scores), _STACK):
                part = slice(start, start + _STACK)
                self._played(0, self._shift.play(bets_on_p(self.p_values(scores[part]))))
                gains = bets_on_rejection(~accepted[part], 1 - self.calibration.accept)
                self._played(1, self._promise.play(gains))
                self._accepted += int(accepted[part].sum())
            return self.standing

    def p_values(self, scores: Floats) -> Floats:
        """Those of the next scores, at most 256; they join the bag. Independent and uniform under exchangeability."""
        random = np.random.default_rng([self.seed, 1, self.seen]).random((2, len(scores)))
        gaps = self._gaps(scores, random[0])
        below = np.cumsum(1 + self.counts) - (1 + self.counts)
        earlier = np.tri(len(gaps), k=-1, dtype=bool)  # row t: what came before t
        lower = below[gaps] + ((gaps[None] < gaps[:, None]) & earlier).sum(1)
        width = 1 + self.counts[gaps] + ((gaps[None] == gaps[:, None]) & earlier).sum(1)
        before = len(self.counts) + self.seen + np.arange(len(gaps))
        np.add.at(self.counts, gaps, 1)
        return np.asarray((lower + random[1] * width) / before)

    def _gaps(self, scores: Floats, keys: Floats) -> NDArray[np.int64]:
        """How many calibration scores lie below each; ties are broken by random keys, which keeps them exchangeable."""
        ordered = self.calibration.scores
        gaps, last = np.searchsorted(ordered, scores, "left"), np.searchsorted(ordered, scores, "right")
        for place in np.flatnonzero(gaps < last):
            gaps[place] += np.searchsorted(self._keys[gaps[place] : last[place]], keys[place])
        return gaps

    def _played(self, which: int, capital: Floats) -> None:
        """Log capital after each image of a stack, the last that were played."""
        log10 = capital / math.log(10)
        self._now[which] = float(log10[-1])
        if self._at[which] is None and (reached := np.flatnonzero(log10 >= self.needed)).size:
            rounds = (self._shift, self._promise)[which].rounds
            self._at[which] = rounds - len(log10) + int(reached[0]) + 1

    def save(self, file: Path | str | None = None) -> None:
        """Write what was seen, aside and renamed, into this file or the monitor's own."""
        path = self.file if file is None else Path(file)
        if path is None:
            raise BadValue("the monitor has no file: name one, save('monitor.json')")
        write_text(path, self.written())

    def written(self) -> str:
        with self._one:
            state = self._state()
            return json.dumps(state | {"sha256": _sha256(state)}, allow_nan=False)

    def _state(self) -> dict[str, Any]:
        return {
            "format": _FORMAT,
            "calibration": _digest(self.calibration),
            "false_alarms": self.false_alarms,
            "seed": self.seed,
            "seen": self.seen,
            "accepted": self._accepted,
            "alarms": self._at,
            "now": self._now,
            "shift": [None if math.isinf(one) else one for one in self._shift.awake.tolist()],
            "promise": [None if math.isinf(one) else one for one in self._promise.awake.tolist()],
            "counts": self.counts.tolist(),
        }

    def _take_over(self, file: Path, asked: float | None) -> None:
        try:
            state = json_of(content(file, _LARGEST))
            if state.pop("sha256", None) not in (None, _sha256(state)):  # older files have none
                raise ValueError("its checksum differs")
            fits = state["format"] == _FORMAT and state["calibration"] == _digest(self.calibration)
            seen, self._accepted, self.seed = (_whole(state[name]) for name in ("seen", "accepted", "seed"))
            self._at = [None if one is None else _whole(one) for one in state["alarms"]]
            self._now, kept = [_number(one) for one in state["now"]], _number(state["false_alarms"])
            self._shift, self._promise = (
                _capital(state["shift"], P_WAYS, seen),
                _capital(state["promise"], REJECTION_WAYS, seen),
            )
            counts = [_whole(one) for one in state["counts"]]
            if fits and not (len(counts) == len(self.counts) and sum(counts) == seen and 0 < kept < 1):
                raise ValueError("its counts do not add up")
            counted = [self._accepted, *(one for one in self._at if one is not None)]
            if len(self._at) != 2 or len(self._now) != 2 or max(counted) > seen:
                raise ValueError("its numbers do not fit each other")
        except OSError as error:
            raise NoAccess(f"cannot read {file} ({error.strerror}): check its permissions") from None
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise Damaged(f"{file} is not the state of a monitor ({error!r:.80}): remove it to start over") from None
        if not fits:
            raise Mismatch(f"{file} belongs to another calibration: remove it or name another file to start over")
        if asked is not None and asked != kept:
            raise Mismatch(f"{file} was begun with false_alarms={kept:g}, not {asked:g}: remove it to start over")
        self.false_alarms, self.counts = kept, np.array(counts, dtype=np.int64)


def _digest(calibration: Calibration) -> str:
    facts = f"{calibration.threshold!r} {calibration.accept!r} {calibration.level!r}"
    return hashlib.sha256(facts.encode() + calibration.scores.tobytes()).hexdigest()


def _sha256(state: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(state, allow_nan=False).encode()).hexdigest()


def _whole(value: Any) -> int:
    if type(value) is not int or not 0 <= value < 2**53:
        raise ValueError(f"{value!r:.40} is not a count")
    return value


def _number(value: Any) -> float:
    if type(value) not in (int, float) or not math.isfinite(value):
        raise ValueError(f"{value!r:.40} is not a number")
    return float(value)


def _capital(values: Any, ways: int, rounds: int) -> Capital:
    if len(values) != ways:
        raise ValueError(f"it has {len(values)} ways to bet, not {ways}")
    return Capital(ways, rounds, np.array([-math.inf if one is None else _number(one) for one in values]))
