"""OpenOOD's protocol: its metrics against scikit-learn, its groups, and what is said where a model saw the kind."""

from dataclasses import replace

import numpy as np
import pytest

from prood.errors import UnknownName
from prood.evaluation import Evaluation, Results, Scores, evaluate_run
from prood.evaluation.metrics import (
    auc_ties_half,
    aupr_in_positive_interpolated,
    aupr_out_positive_interpolated,
    fpr_out_positive,
)
from prood.evaluation.openood import protocols
from prood.models import ProoD, discriminator, save, small
from prood.report import write_report
from prood.report.openood import tables_of

SETS = ("cifar100", "tin", "mnist", "svhn", "texture", "places365")


@pytest.mark.parametrize("ties", [False, True])
@pytest.mark.parametrize("sizes", [(200, 300), (57, 3), (1, 1), (3, 500)])
def test_metrics_are_those_that_openood_computes(sizes, ties):
    """As its evaluators do with scikit-learn; only that drops points of the curve, which may raise its FPR."""
    metrics = pytest.importorskip("sklearn.metrics")
    random = np.random.default_rng(sum(sizes))
    inside, outside = random.normal(1, 1, sizes[0]), random.normal(0, 1, sizes[1])
    if ties:
        inside, outside = inside.round(), outside.round()
    scores = np.concatenate([inside, outside])
    is_outside = np.concatenate([np.zeros(sizes[0]), np.ones(sizes[1])])
    false, true, _ = metrics.roc_curve(is_outside, -scores, drop_intermediate=False)
    assert auc_ties_half(inside, outside) == pytest.approx(metrics.auc(false, true))
    assert fpr_out_positive(inside, outside) == pytest.approx(false[np.argmax(true >= 0.95)])
    for positive, sign, ours in (
        (1 - is_outside, 1, aupr_in_positive_interpolated),
        (is_outside, -1, aupr_out_positive_interpolated),
    ):
        precision, recall, _ = metrics.precision_recall_curve(positive, sign * scores)
        assert ours(inside, outside) == pytest.approx(metrics.auc(recall, precision))


def evaluation(name: str, seed: int, **more) -> Evaluation:
    random = np.random.default_rng(seed)
    scores = Scores(random.normal(1, 1, 40), random.normal(0, 1, 30), np.full(30, np.inf))
    numbers = {"auc": 0.5, "gauc": 0.0, "fpr95": 0.5, "gfpr95": 1.0, "accuracy": 0.9, "images": 30}
    sets = {"inside": "openood-cifar10:test", "outside": f"openood-cifar10:{name}"}
    return Evaluation("guard", **sets, eps=0.0, **numbers, scores=scores, **more)


TRAINED = ["cifar10:train", "cifar100:train"]


def test_means_are_of_whole_groups_and_kinds_that_were_seen_are_named():
    found = [evaluation(name, seed, trained_on=TRAINED) for seed, name in enumerate(SETS)]
    (one,) = protocols(found)
    assert [line.name for line in one.lines] == [*SETS[:2], "near mean", *SETS[2:], "far mean"]
    expected = np.mean([auc_ties_half(item.scores.inside, item.scores.clean) for item in found[2:]])
    assert one.lines[-1].values[0] == pytest.approx(expected)
    assert "cifar100:train" in one.lines[0].note
    assert "cifar100" in one.lines[2].note
    assert [line.note for line in one.lines[3:]] == [""] * 5
    (part,) = protocols(found[1:])
    assert part.lines[2].values == (None,) * 4  # no mean of a half group
    assert part.lines[0].note == "not evaluated"
    assert part.lines[-1] == one.lines[-1]


def test_what_is_not_the_whole_protocol_is_said():
    some = replace(evaluation("svhn", 0, trained_on=TRAINED), available=26_032)
    unknown, lost = evaluation("tin", 1), replace(evaluation("mnist", 2, trained_on=[]), scores=None)
    (one,) = protocols([some, unknown, lost])
    notes = {line.name: line.note for line in one.lines}
    assert "30 of 26,032 images" in notes["svhn"]
    assert "not stated" in notes["tin"]
    assert "evaluate again" in notes["mnist"]
    larger = replace(evaluation("svhn", 5, trained_on=[]), images=50)
    (one,) = protocols([larger, some])  # of two evaluations of a set, that of more images
    assert {line.name: line.note for line in one.lines}["svhn"] == ""
    other = replace(some, inside="cifar10:test")
    assert protocols([other, replace(some, outside="svhn:test")]) == []


def test_reports_have_a_table_for_each_model(tmp_path):
    found = Results(tuple(evaluation(name, seed, trained_on=TRAINED) for seed, name in enumerate(SETS)))
    ((title, rows),) = tables_of(found)
    assert title == "guard on openood-cifar10, accuracy 90.0%"
    assert len(rows) == 8
    for ending in ("md", "html"):
        write_report(found, tmp_path / f"report.{ending}")
        text = (tmp_path / f"report.{ending}").read_text()
        assert "near mean" in text
        assert "AUPR (out positive)" in text
        assert "training saw images of this kind (cifar100:train)" in text
    plain = Results((replace(found.evaluations[0], inside="cifar10:test"),))
    write_report(plain, tmp_path / "plain.md")
    assert "OpenOOD" not in (tmp_path / "plain.md").read_text()


def test_a_run_is_evaluated_by_the_name_of_the_benchmark(tmp_path, monkeypatch):
    from PIL import Image

    monkeypatch.setenv("PROOD_DATA", str(tmp_path / "data"))
    lists = tmp_path / "data" / "openood" / "benchmark_imglist" / "cifar10"
    lists.mkdir(parents=True)
    random = np.random.default_rng(0)
    for name in ("cifar10", *SETS):
        rows = [f"{name}/{number}.png {number % 2 if name == 'cifar10' else -1}" for number in range(4)]
        (lists / f"test_{name}.txt").write_text("\n".join(rows))
        (tmp_path / "data" / "openood" / name).mkdir()
        for row in rows:
            pixels = random.integers(0, 256, (32, 32, 3), np.uint8)
            Image.fromarray(pixels).save(tmp_path / "data" / "openood" / row.split()[0])
    model = ProoD(small(10, width=2, channels=3), discriminator("digits", image=(3, 32, 32)), 1.0)
    data = {"cifar10:train": "0", "cifar100:train": "1"}
    save(model, tmp_path / "run" / "model.safetensors", inside="cifar10:train", data=data)
    found = evaluate_run(tmp_path / "run", benchmark="openood-cifar10")
    assert [one.outside for one in found] == [f"openood-cifar10:{name}" for name in SETS]
    assert {(one.eps, one.attacks, one.images, one.limit) for one in found} == {(0.0, None, 4, None)}
    assert found.evaluations[0].trained_on == list(data)
    (one,) = protocols(found)
    assert None not in one.lines[-1].values
    with pytest.raises(UnknownName, match="openood-cifar10"):
        evaluate_run(tmp_path / "run", benchmark="openood")
