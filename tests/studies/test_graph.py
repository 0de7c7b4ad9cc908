"""Studies as data: what holds for all of them, and that nothing hangs on how a model is called."""

from dataclasses import replace

import pytest

from prood.errors import UnknownName
from prood.studies import STUDIES, study_of
from prood.studies.known import digits, fast

ALL = {name: make() for name, make in STUDIES.items()} | {"first steps": digits()}
ALL |= {"fast": fast(ALL["cifar10"])}


@pytest.mark.parametrize("name", ALL)
def test_a_study_hangs_together(name):
    study = ALL[name]
    names = [node.name for node in study.nodes]
    assert len(set(names)) == len(names)
    measures = {one.name for one in study.measures}
    for node in study.nodes:
        assert set(node.parts) <= set(names)
        assert (node.method is None) == bool(node.classifier or node.rounded or node.built)
        assert not measures.isdisjoint(node.measures) or not node.measures
    assert sum(node.headline for node in study.nodes) == 1
    labels = [node.label for node in study.rows.values()]
    assert len(set(labels)) == len(labels)


def test_a_node_comes_with_its_parts():
    study = study_of("cifar10")
    assert [node.name for node in study.with_parts(["shipped"])] == ["discriminator", "compact", "shipped"]
    assert [node.name for node in study.with_parts(["robust-prood"])] == ["discriminator", "robust", "robust-prood"]
    with pytest.raises(UnknownName):
        study.with_parts(["prod"])


def test_nothing_hangs_on_a_models_name(trained, runner_in, tmp_path):
    """The same study with other names has the same weights and numbers."""
    names = {node.name: f"model-{place}" for place, node in enumerate(trained.study.nodes)}
    parts = [
        {key: names.get(getattr(node, key)) for key in ("name", "classifier", "discriminator", "rounded")}
        for node in trained.study.nodes
    ]
    nodes = tuple(replace(node, **changed) for node, changed in zip(trained.study.nodes, parts, strict=True))
    runner = runner_in(tmp_path, nodes=nodes, seeds=(0,))
    cheap = ["plain", "oe", "discriminator", "prood-s", "prood"]
    runner.carry_out([names[one] for one in cheap], publish=True)
    for one in cheap:
        assert runner.weights(names[one]) == trained.weights(one)
        ours, theirs = runner.read(names[one]), trained.published(one)
        found = {(each.outside, each.eps, each.images, each.auc, each.gauc, each.aauc) for each in ours.evaluations}
        known = {(each.outside, each.eps, each.images, each.auc, each.gauc, each.aauc) for each in theirs.evaluations}
        assert found <= known
        assert len(found) == 4
