"""A run is a folder: the resolved recipe, metrics.jsonl, a checkpoint while it lasts, and the model at the end."""

import json
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save as serialized
from torch import nn

from prood.atomic import locked, write_bytes, write_text
from prood.errors import AlreadyThere, BadValue, Damaged, Mismatch
from prood.models import MODEL_FILE
from prood.models.files import RUN_FILE, digest
from prood.reading import content, json_of, text


class Run:
    """The files of one training run. Everything is written aside and renamed, or appended line by line."""

    def __init__(self, folder: Path | str) -> None:
        self.folder = Path(folder)
        self.model = self.folder / MODEL_FILE
        self.recipe = self.folder / RUN_FILE
        self.metrics = self.folder / "metrics.jsonl"
        self.checkpoint = self.folder / "checkpoint.safetensors"

    @property
    def finished(self) -> bool:
        return self.model.is_file()

    def open(self, recipe: dict[str, Any], *, resume: bool, defaults: Any = None, at_once: bool = False) -> None:
        """Claim the folder for a run with this recipe, or continue the one that is there.

        A run of an earlier version may not know an option that there is now; it has the value of `defaults` then. A run
        that is made `at_once` has nothing to continue: what a kill left of one of its kind is made anew.
        """
        if self.folder.exists() and not self.folder.is_dir():
            raise AlreadyThere(f"{self.folder} is a file: choose another folder for the run")
        try:
            str(self.folder).encode()
        except UnicodeEncodeError:  # safetensors and TensorBoard take no other names
            raise BadValue(f"the name {self.folder} is not valid UTF-8: choose another folder for the run") from None
        begun = self.recipe.is_file()
        half = at_once and begun and not self.finished and self.settings().get("method") == recipe["method"]
        if begun and not half:
            if not resume:
                advice = "choose another folder" if at_once else "continue it with --resume, or choose another folder"
                raise AlreadyThere(f"{self.folder} holds a run already: {advice}")
            before, now = _flat(defaults or {}) | _flat(self.settings()), _flat(recipe)
            keys = sorted(key for key in before.keys() | now.keys() if not key.startswith(("evaluate.", "modules")))
            changed = [key for key in keys if not _same(key, before.get(key), now.get(key))]
            if changed:
                fault = f"{self.folder} was started with other settings ({', '.join(changed)})"
                raise Mismatch(f"{fault}: resume with the same ones, or choose another folder")
            for file in (self.model, self.recipe, self.metrics, self.checkpoint):  # others may be at work on results
                for left_by_a_kill in self.folder.glob(f".{file.name}.*.part"):
                    left_by_a_kill.unlink(missing_ok=True)
        elif self.finished:
            raise AlreadyThere(f"{self.folder} holds a model but no recipe of its run: choose another folder")
        else:
            write_text(self.recipe, json.dumps(recipe, indent=2) + "\n")

    @contextmanager
    def claimed(self) -> Iterator[None]:
        """Keep other processes from training into the folder meanwhile."""
        busy = f"another process is training into {self.folder}: wait for it, or end it"
        refused = self.folder.exists() and not self.folder.is_dir()  # by `open`
        with nullcontext() if refused else locked(self.folder / "training", busy=busy):
            yield

    def settings(self) -> dict[str, Any]:
        with suppress(ValueError):
            found = json_of(text(self.recipe))
            if isinstance(found, dict):
                return found
        raise Damaged(f"{self.recipe} is damaged: choose another folder, or remove this one")

    def log(self, record: dict[str, Any]) -> None:
        with self.metrics.open("a", encoding="utf-8") as file:
            file.write(json.dumps(record) + "\n")

    def last_metrics(self) -> dict[str, Any] | None:
        """The last line of metrics.jsonl that can be read."""
        records = self._records()
        return records[-1][1] if records else None

    def forget_after(self, step: int) -> None:
        """Drop the metrics of steps that a resumed run will do again, and lines that a kill or a disk has damaged."""
        if self.metrics.is_file():
            kept = [line for line, record in self._records() if record["step"] <= step]
            write_text(self.metrics, "".join(f"{line}\n" for line in kept))

    def _records(self) -> list[tuple[str, dict[str, Any]]]:
        """The whole lines that record a step. Metrics are for looking at: a run goes on without the others."""
        found = []
        lines = content(self.metrics).split(b"\n")[:-1] if self.metrics.is_file() else []
        for line in lines:
            with suppress(ValueError):
                record = json_of(line)
                if isinstance(record, dict) and isinstance(record.get("step"), int | float):
                    found.append((line.decode(), record))
        return found

    @property
    def steps_done(self) -> int:
        """Up to the checkpoint, from which a killed run goes on; 0 without one that can be read."""
        unreadable = SafetensorError, OSError, KeyError, TypeError, ValueError
        with suppress(*unreadable), safe_open(self.checkpoint, framework="pt") as opened:
            return int(opened.metadata()["step"])
        return 0

    def save_checkpoint(self, model: nn.Module, optimizer: torch.optim.Optimizer, step: int) -> None:
        tensors = {f"model.{name}": value for name, value in model.state_dict().items()}
        for index, state in optimizer.state_dict()["state"].items():
            tensors |= {f"optimizer.{index}.{key}": v for key, v in state.items() if isinstance(v, torch.Tensor)}
        tensors = {name: value.contiguous() for name, value in tensors.items()}
        facts = {"step": str(step), "sha256": digest(tensors, str(step))}
        write_bytes(self.checkpoint, serialized(tensors, metadata=facts))

    def load_checkpoint(self, model: nn.Module, optimizer: torch.optim.Optimizer) -> int:
        """Put model and optimiser back to where they were; the number of steps done, 0 without a checkpoint."""
        if not self.checkpoint.is_file():
            return 0
        weights: dict[str, torch.Tensor] = {}
        state: dict[int, dict[str, torch.Tensor]] = {}
        try:
            with safe_open(self.checkpoint, framework="pt") as opened:
                facts = opened.metadata()
                tensors = {name: opened.get_tensor(name) for name in opened.keys()}  # noqa: SIM118
            step = int(facts["step"])
            # Checkpoints of older versions have none.
            if facts.get("sha256", found := digest(tensors, str(step))) != found:
                raise ValueError("its checksum differs")
            for name, value in tensors.items():
                kind, _, rest = name.partition(".")
                if kind == "model":
                    weights[rest] = value
                else:
                    index, _, key = rest.partition(".")
                    state.setdefault(int(index), {})[key] = value
            model.load_state_dict(weights)
            optimizer.load_state_dict({"state": state, "param_groups": optimizer.state_dict()["param_groups"]})
            _lay_out_as_weights(optimizer)
        except (SafetensorError, OSError, KeyError, TypeError, ValueError, RuntimeError) as error:
            fault = " ".join(str(error).split())
            raise Damaged(f"{self.checkpoint} is damaged ({fault}): remove it to start again") from None
        return step


def _lay_out_as_weights(optimizer: torch.optim.Optimizer) -> None:
    """In a file all tensors are contiguous; fused updates refuse moments in another memory order than their weights."""
    for parameter, state in optimizer.state.items():
        for key, value in state.items():
            if isinstance(value, torch.Tensor) and value.shape == parameter.shape:
                state[key] = torch.empty_like(parameter, dtype=value.dtype, requires_grad=False).copy_(value)


def _same(key: str, one: Any, other: Any) -> bool:
    """A run may be named by another path to the same folder."""
    paths = key.endswith("_run") and isinstance(one, str) and isinstance(other, str)
    return bool(one == other or (paths and Path(one).resolve() == Path(other).resolve()))


def _flat(settings: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested settings under the names that --set gives them, train.lr, as JSON has them; `guard` is a former name."""
    flat: dict[str, Any] = {}
    for key, value in settings.items():
        own = {prefix + ("far_penalty" if key == "guard" else key): json.loads(json.dumps(value))}
        flat |= _flat(value, f"{prefix}{key}.") if isinstance(value, dict) else own
    return flat
