"""The engine: carries a study out task by task, and gives models by name; existing models and results are reused."""

import time
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import NamedTuple

from prood.errors import NotFound
from prood.evaluation.robustness import measured
from prood.studies import making
from prood.studies.graph import ATTACK, CERTIFY
from prood.studies.jobs import carry_out
from prood.studies.published import Published
from prood.studies.site import Site

MAKE, CHOOSE = "make", "choose"


class Task(NamedTuple):
    """A node is made, or its shift is chosen; or it is measured, by the name of one of the study's measures."""

    what: str
    node: str
    seed: int | None

    def __str__(self) -> str:
        return f"{self.what} {self.node}" + (f", seed {self.seed}" if self.seed else "")


Graph = dict[Task, set[Task]]
"""Tasks with those that each comes after, in the order in which they are begun where they may be."""


class Runner(Site):
    """A site with the engine that carries its study out."""

    def carry_out(self, names: Collection[str], *, jobs: int = 1, publish: bool = False) -> None:
        """Make these nodes and all that they need, with every seed; then measure them, and `publish` what is found.

        All models are made before any is measured, and attacks come last: they take longer than everything else.
        """
        graph = self.making(names, self.seeds)
        self.add_measuring(graph, names)
        carry_out(graph, partial(self.perform, publish=names if publish else ()), jobs=jobs, console=self.console)

    def making(self, names: Iterable[str], seeds: Iterable[int | None], *, missing: bool = False) -> Graph:
        """Each node after all that it needs; only what is `missing`, or everything, as settings may have changed."""
        graph: Graph = {}

        def add(name: str, seed: int | None) -> Task:
            task = Task(MAKE, name, seed)
            if task not in graph and not (missing and self.has(name, seed)):
                node = self.study.node(name)
                needs = {add(part, seed) for part in node.parts}
                if node.discriminator is not None and making.chooses(self, node.discriminator):
                    needs.add(choose(node.discriminator, seed if self.own_shifts else self.home))
                graph[task] = needs & graph.keys()
            return task

        def choose(discriminator: str, seed: int | None) -> Task:
            task = Task(CHOOSE, discriminator, seed)
            assert self.study.shift_by is not None
            if not (missing and making.still_holds(self, discriminator, seed)):
                graph[task] = {add(discriminator, seed), add(self.study.shift_by, seed)} & graph.keys()
            return task

        for seed in seeds:
            for name in names:
                add(name, seed)
        return graph

    def add_measuring(self, graph: Graph, names: Collection[str]) -> None:
        """After a node is made its measures come, one after the other; where they share bounds, g's are found first."""
        last = {(task.node, task.seed): task for task in graph if task.what == MAKE}
        for measure in self.study.measures:
            nodes = [node for node in self.study.nodes if node.name in names and measure.name in node.measures]
            shared = {node.discriminator for node in nodes if measure.shared}
            nodes = [node for node in self.study.nodes if node in nodes or node.name in shared]
            for seed in self.seeds if not measure.attacked or self.study.attacks else ():
                for node in nodes:
                    task = Task(measure.name, node.name, seed)
                    first = Task(measure.name, node.discriminator or "", seed)
                    graph[task] = {last[node.name, seed]} | ({first} & graph.keys() if measure.shared else set())
                    last[node.name, seed] = task

    def perform(self, task: Task, publish: Collection[str] = ()) -> None:
        """Carry out one task, when those that it needs are done."""
        node = self.study.node(task.node)
        if task.what == MAKE:
            making.make(self, node, task.seed)
        elif task.what == CHOOSE:
            making.choose(self, node.name, task.seed)
        else:
            (measure,) = (one for one in self.study.measures if one.name == task.what)
            began = time.monotonic()
            making.evaluate(self, node, task.seed, measure)
            self.console.print(f"{node.name:<14} {task.what} in {time.monotonic() - began:.0f} s", markup=False)
            if node.name in publish:
                making.publish(self, node, task.seed)

    def run(self, name: str, seed: int | None = 0) -> Path:
        """The folder of a trained node, made now if it is not there."""
        self.study.node(name)
        if not self.has(name, seed):
            if not self.may_train:
                raise NotFound(f"{self.name} has no {name!r} of seed {seed}: train it on a GPU, or with --train")
            carry_out(self.making([name], [seed], missing=True), self.perform)
        if (weights := self.weights(name, seed)) is not None:
            self.models[f"{name}-{seed}"] = weights
        return self.place(name, seed)

    def published(
        self, name: str, seed: int | None = 0, *, eps: Sequence[float] = (), attack: bool = True, measure: bool = False
    ) -> Published | None:
        """What is published of a node, evaluated at these radii, by default the recipe's; None if it is not here.

        With `measure`, robust accuracy and what the model says far away are part of it, if anything is attacked.
        A trained run that is here is evaluated and published first, as far as it was not yet. What was published
        elsewhere is taken as it is. What is neither is trained if that may be.
        """
        node = self.study.node(name)
        missing = not self.file(name, seed).is_file() and self.may_train
        if self.training is not False and (self.has(name, seed) or missing):
            run, radii = self.run(name, seed), list(eps or self.radii)
            radii += [self.eps] if measure and self.eps not in radii else []
            making.evaluate(self, node, seed, replace(CERTIFY, eps=tuple(radii)))
            if attack and self.study.attacks is not None:
                attacked = making.evaluate(self, node, seed, replace(ATTACK, eps=tuple(radii)))
                if measure:
                    measured(run, next(one for one in attacked if one.eps == self.eps), self.device)
            making.publish(self, node, seed)
        found = self.read(name, seed)
        if found is not None:
            self.models[f"{name}-{seed}"] = found.weights
        return found
