"""The monitors of arrivals, one for each model with a calibration: kept in a folder, shown in metrics and answers."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from prood.atomic import locked
from prood.detector import Monitor, Standing
from prood.errors import BadValue, ProodError
from prood.serve.options import Options

if TYPE_CHECKING:
    from prood.serve.metrics import Gauge
    from prood.serve.service import Service

EVERY_S = 10.0
"""Between two looks whether a state must be written."""
log = logging.getLogger("prood.serve")


class Watch:
    """Gives each service its monitor. With a folder, states are read from it, and written every ten seconds.

    After a kill what came within these seconds is missing. That keeps the alarms valid: which images they were does not
    depend on their scores.
    """

    def __init__(self, options: Options) -> None:
        self._folder = options.monitor
        self._monitors: dict[str, Monitor] = {}
        self._saved: dict[str, int] = {}
        self._told: set[Monitor] = set()
        self._locks, self._locked = ExitStack(), set[str]()
        self._task: asyncio.Task[None] | None = None

    @property
    def gauges(self) -> dict[str, Gauge]:
        def of(read: Callable[[Standing], float]) -> Callable[[], dict[str | None, float]]:
            return lambda: {name: read(one.standing) for name, one in self._monitors.items()}

        return {
            "prood_monitor_images": ("Images that the monitor has seen.", of(lambda one: one.seen)),
            "prood_monitor_accepted": ("Of these, the accepted ones.", of(lambda one: one.accepted)),
            "prood_monitor_alarm": ("1 if arrivals do not look like calibration.", of(lambda one: float(one.alarm))),
            "prood_monitor_shift": ("log10 of the evidence for a shift.", of(lambda one: one.shift)),
            "prood_monitor_promise": ("log10 of that for a broken promise.", of(lambda one: one.promise)),
            "prood_monitor_needed": ("log10 of the evidence that raises an alarm.", of(lambda one: one.needed)),
        }

    def over(self, service: Service, before: Service | None) -> None:
        """Watch over a service that begins; with the same calibration it goes on where the one `before` has got to."""
        name, calibration = service.about.name, service.detector.calibration
        if calibration is None:
            if self._folder is not None and before is None:
                raise BadValue(
                    f"{name} has no calibration to compare arrivals with: 'prood calibrate RUN SET --accept 0.95' "
                    "makes one, or leave --monitor out"
                )
            self.leave(service)
            return
        old = self._monitors.get(name)
        if old is not None and before is not None and old.of(calibration):
            service.monitor = old
            return
        if self._folder is not None and name not in self._locked:
            file = self._folder / f"{name}.json"
            self._locks.enter_context(locked(file, busy=f"{file} is written by another service: give each its own"))
            self._locked.add(name)
        service.monitor = self._monitors[name] = self._opened(name, service, begins=before is None)

    def _opened(self, name: str, service: Service, *, begins: bool) -> Monitor:
        file = None if self._folder is None else self._folder / f"{name}.json"
        if begins:
            return service.detector.monitor(file)
        # Somebody has loaded other weights or calibrated anew: the old state says nothing about them.
        log.warning("the monitor of %s begins anew: the model has another calibration", name)
        monitor = service.detector.monitor()
        monitor.file = file
        return monitor

    def leave(self, service: Service) -> None:
        """The model is gone. Its state stays in its file."""
        monitor = self._monitors.pop(service.about.name, None)
        if monitor is not None:
            self._write(service.about.name, monitor)

    @staticmethod
    def standing(service: Service) -> dict[str, Any] | None:
        return None if service.monitor is None else service.monitor.standing.to_json()

    def start(self) -> None:
        self._task = asyncio.ensure_future(self._look())

    async def _look(self) -> None:
        while True:
            await asyncio.sleep(EVERY_S)
            await asyncio.to_thread(self.save)

    def save(self) -> None:
        """Write what has changed, and say once in the log what an alarm says."""
        for name, monitor in list(self._monitors.items()):
            told = monitor.standing
            if told.alarm and monitor not in self._told:
                self._told.add(monitor)
                log.warning("what arrives at %s does not look like its calibration: see /v1/monitor", name)
            if self._saved.get(name) != told.seen and self._write(name, monitor):
                self._saved[name] = told.seen

    @staticmethod
    def _write(name: str, monitor: Monitor) -> bool:
        """Whether it is in its file, if it has one; a disk that is full ends no service."""
        try:
            if monitor.file is not None:
                monitor.save()
            return True
        except (OSError, ProodError) as error:
            log.error("the monitor of %s cannot be written: %s", name, error)
            return False

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
        await asyncio.to_thread(self.save)
        self._locks.close()
