import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import prood
from prood import evaluate
from prood.attacks import APGD, PRESETS, Attack, Ensemble
from prood.data import ImageSet
from prood.errors import Mismatch, ProodError
from prood.evaluation import EvaluateOptions, Evaluation, Results, Scores, auc, bootstrap, fpr, read_results, rejected
from prood.evaluation.measuring import Evaluator
from prood.evaluation.metrics import ACCEPT
from prood.evaluation.words import PROVED
from prood.models import Confidence, Curve, Discriminator, Fusion, ProoD, Score, score_of

QUICK = APGD(iterations=5, restarts=2)


def test_the_metrics_are_those_of_the_scores(f, g, inside, outside):
    model = ProoD(f, g, 1.0)
    (result,) = evaluate(model, inside=inside, outside={"dark": outside["dark"]}, eps=0.02, attacks=QUICK)
    score = score_of(model)
    with torch.no_grad():
        scores = score(inside.floats())
        clean, certified = score(outside["dark"].floats()), score.upper_bound(outside["dark"].floats(), 0.02)
        right = model.predict(inside.floats()) == inside.labels
    attacked = QUICK(score, outside["dark"].floats(), 0.02).scores
    for letter, values in (("", clean), ("a", attacked), ("g", certified)):
        assert getattr(result, f"{letter}auc") == pytest.approx(auc(scores, values), abs=1e-9)
        assert getattr(result, f"{letter}fpr95") == pytest.approx(fpr(scores, values), abs=1e-9)
        assert result.intervals[f"{letter}auc"] == pytest.approx(bootstrap("auc", scores, values), abs=1e-9)
        assert result.intervals[f"{letter}fpr95"] == pytest.approx(bootstrap("fpr", scores, values), abs=1e-9)
    assert result.accuracy == right.double().mean().item()
    assert (result.classes, result.images, result.eps, result.seed) == (4, 30, 0.02, 0)
    np.testing.assert_allclose(result.scores.clean, clean, atol=1e-9)
    np.testing.assert_allclose(result.scores.certified, certified, atol=1e-9)


def test_what_is_proved_is_what_certified_false_positives_leave_at_every_acceptance(f, g, inside, outside):
    for model in (g, ProoD(f, g, -3.0), f):
        (one,) = evaluate(model, inside=inside, outside={"noise": outside["noise"]}, eps=0.001, attacks=QUICK)
        scores = one.scores
        kinds = {"certified": scores.certified, "attacked": scores.attacked, "clean": scores.clean}
        lines = rejected(scores.inside, kinds, ACCEPT)
        assert lines["certified"].tolist() == [1 - fpr(scores.inside, scores.certified, share) for share in ACCEPT]
        assert np.all(np.diff(list(lines.values()), axis=0) >= 0)
        assert one.proved95 == 1 - one.gfpr95
        for name, share in PROVED.items():
            assert getattr(one, name) == one.value(name) == lines["certified"][ACCEPT.index(share)]
            low, high = one.intervals[name]
            assert 0 <= low <= high <= 1
        assert lines["clean"].any()
        assert lines["certified"].any() == (model is g), "a classifier alone proves nothing"


def test_a_faster_form_of_a_score_is_searched_and_the_score_itself_is_reported(f, inside, outside):
    """As on a GPU, where it may be compiled."""

    class Faster(Confidence):
        searched = 0

        def quick(self, images):
            self.searched += len(images)
            return self(images)

    score, faster = Confidence(f), Faster(f)
    score.quick = None  # not to be called
    evaluator = Evaluator(score, EvaluateOptions(batch=7, attacks=QUICK, stop="never"), faster)
    with torch.no_grad():
        found, attack = evaluator.run(outside["dark"], 0.02, score(inside.floats()), lambda count: None)
        assert torch.allclose(torch.from_numpy(found.clean), score(outside["dark"].floats()))
    assert faster.searched == attack["forward"] > 0
    assert (found.attacked > found.clean).any()


def joint_models(f, g):
    return {"joint": ProoD(f, g, 1.3), "fused": Fusion(f, g, Curve(1.5, 2.0, -1.0))}


@pytest.mark.parametrize("kind", ["joint", "fused"])
def test_bounds_of_the_discriminator_that_are_there_are_not_computed_again(
    f, g, inside, outside, kind, monkeypatch, tmp_path
):
    options = {"inside": inside, "outside": outside, "eps": [0.01, 0.05], "method": "ibp"}
    bounds_of_g = evaluate(g, **options)
    model = joint_models(f, g)[kind]
    whole = evaluate(model, **options)

    def refused(*_, **__):
        raise AssertionError("computed again")

    evaluate(g, **options, name="g", folder=tmp_path)
    monkeypatch.setattr(Discriminator, "upper_bound", refused)
    reused = evaluate(model, **options, reuse=bounds_of_g, batch=7)
    from_folder = evaluate(model, **options, folder=tmp_path)
    for one, other in zip([*whole, *whole], [*reused, *from_folder], strict=True):
        np.testing.assert_array_equal(one.scores.certified, other.scores.certified)
        assert (one.gauc, one.gfpr95, one.identity) == (other.gauc, other.gfpr95, other.identity)


@pytest.mark.parametrize(
    "change", [{"eps": 0.03}, {"method": "crown-ibp"}, {"limit": 5}, {"seed": 1, "limit": 19}, "weights", "no scores"]
)
def test_bounds_of_anything_else_are_not_taken_over(f, g, inside, outside, change):
    options = {"inside": inside, "outside": {"noise": outside["noise"]}, "eps": 0.05, "method": "ibp", "limit": 19}
    known = evaluate(g, **options)
    if change == "weights":
        with torch.no_grad():
            g.last.bias.add_(0.5)
    elif change == "no scores":
        known = Results(tuple(replace(one, scores=None) for one in known))
    else:
        options |= change
    model = ProoD(f, g, 1.3)
    (whole,), (reused,) = evaluate(model, **options), evaluate(model, **options, reuse=known)
    np.testing.assert_array_equal(whole.scores.certified, reused.scores.certified)


@pytest.mark.slow
@pytest.mark.parametrize("stop", ["auc", "bound", "never"])
def test_clean_attacked_and_certified_are_in_order_for_every_image(f, g, inside, outside, stop):
    for model in (f, g, ProoD(f, g, 2.0)):
        results = evaluate(
            model, inside=inside, outside=outside, eps=[0.0, 0.01, 0.1], attacks=QUICK, stop=stop, batch=8
        )
        assert len(results) == 6
        for result in results:
            scores = result.scores
            assert (scores.clean <= scores.attacked).all()
            assert (scores.attacked <= scores.certified).all()
            assert result.gauc <= result.aauc <= result.auc
            assert result.gfpr95 >= result.afpr95 >= result.fpr95
            assert (result.gauc, result.gfpr95) == (0, 1) or model is not f


@pytest.mark.slow
def test_stopping_by_auc_changes_no_metric_and_saves_passes(f, g, inside, outside):
    saved = 0
    for model in (f, g, ProoD(f, g, 1.0)):
        options = {"inside": inside, "outside": outside, "eps": 0.05, "attacks": QUICK}
        for whole, short in zip(
            evaluate(model, stop="never", **options), evaluate(model, stop="auc", **options), strict=True
        ):
            assert (whole.aauc, whole.afpr95) == (short.aauc, short.afpr95)
            assert short.attack["forward"] <= whole.attack["forward"]
            saved += whole.attack["forward"] - short.attack["forward"]
            assert whole.attack["settled"] == 0
    assert saved > 0


@pytest.mark.slow
def test_batches_do_not_change_the_result(f, g, inside, outside):
    options = {"inside": inside, "outside": outside, "eps": 0.02, "attacks": QUICK, "stop": "never"}
    whole, pieces = (evaluate(ProoD(f, g, 1.0), batch=batch, **options) for batch in (100, 7))
    for one, other in zip(whole, pieces, strict=True):
        assert one.accuracy == other.accuracy
        for kind in ("inside", "clean", "attacked", "certified"):
            # Rounding differs with the batch, and a search may then take another turn; its draws are the same.
            np.testing.assert_allclose(getattr(one.scores, kind), getattr(other.scores, kind), atol=2e-3)


def test_runs_repeat_exactly_and_the_seed_matters(f, inside, outside):
    def attacked(seed):
        options = {"outside": {"noise": outside["noise"]}, "eps": 0.02, "attacks": QUICK, "stop": "never"}
        (result,) = evaluate(f, inside=inside, seed=seed, **options)
        return result.scores.attacked

    assert (attacked(0) == attacked(0)).all()
    assert (attacked(0) != attacked(1)).any()


def test_without_an_attack_there_is_no_adversarial_number(g, inside, outside):
    for result in evaluate(g, inside=inside, outside=outside, eps=0.01):
        assert (result.aauc, result.afpr95, result.attacks, result.stop, result.attack) == (None, None, None, None, {})
        assert result.scores.attacked is None
        assert "aauc" not in result.intervals


def test_a_discriminator_has_no_accuracy_and_the_joint_model_that_of_its_classifier(f, g, inside, outside):
    options = {"inside": inside, "outside": outside, "eps": 0.01}
    # Far below zero every class of the joint model has almost the same probability, but their order stays.
    nn.init.constant_(g.last.bias, -500.0)
    alone, joint, bare = (next(iter(evaluate(model, **options))) for model in (f, ProoD(f, g), g))
    assert joint.accuracy == alone.accuracy
    assert (bare.accuracy, bare.classes) == (None, None)
    unlabelled = ImageSet("plain", inside.images)
    (first, _) = evaluate(f, inside=unlabelled, outside=outside, eps=0.01)
    assert (first.accuracy, first.classes) == (None, 4)


def test_limit_takes_a_seeded_choice_and_the_gallery_shows_the_worst(f, inside, outside):
    (result,) = evaluate(
        f, inside=inside, outside={"noise": outside["noise"]}, eps=0.1, attacks=QUICK, limit=12, seed=3, stop="never"
    )
    chosen = outside["noise"].subset(12, 3)
    assert result.images == 12
    assert result.fingerprints["outside"] == chosen.fingerprint()
    scores = result.scores
    assert scores.gallery.tolist() == np.argsort(-scores.attacked)[:6].tolist()
    assert (scores.gallery_clean == chosen.images[torch.tensor(scores.gallery)].numpy()).all()
    change = np.abs(scores.gallery_attacked.astype(int) - scores.gallery_clean)
    assert 0 < change.max() <= round(0.1 * 255) + 1


def test_any_score_can_be_evaluated(f, inside, outside):
    class Brightness(Score):
        def __call__(self, images):
            return images.double().mean((1, 2, 3))

        def upper_bound(self, images, eps, *, method="best"):
            return (images.double() + eps).clamp_max(1).mean((1, 2, 3))

    (result,) = evaluate(Brightness(f), inside=inside, outside={"dark": outside["dark"]}, eps=0.1, attacks="fast")
    assert result.auc == 1
    np.testing.assert_allclose(result.scores.attacked, result.scores.clean)  # certified to lose, so never attacked
    (result,) = evaluate(
        Brightness(f), inside=inside, outside={"dark": outside["dark"]}, eps=0.1, attacks=QUICK, stop="never"
    )
    np.testing.assert_allclose(result.scores.attacked, result.scores.certified, atol=1e-6)


@pytest.mark.slow
def test_an_interrupted_evaluation_continues_where_it_stopped(f, g, inside, outside, tmp_path):
    calls = []

    class Counting(Attack):
        name = "counting"
        cost = 0

        def __repr__(self):
            return "Counting()"

        def search(self, search):
            calls.append(len(search.images))
            if len(calls) == 3:
                raise KeyboardInterrupt

    options = {"inside": inside, "outside": outside, "eps": [0.01, 0.02], "attacks": Counting(), "folder": tmp_path}
    with pytest.raises(KeyboardInterrupt):
        evaluate(ProoD(f, g), name="joint", **options)
    first = read_results(tmp_path)
    assert len(first) == 2
    again = evaluate(ProoD(f, g), name="joint", **options)
    assert calls == [30, 30, 20, 20, 20]  # the interrupted one anew, and no other
    assert [(one.outside, one.eps) for one in again] == [
        ("dark", 0.01),
        ("dark", 0.02),
        ("noise", 0.01),
        ("noise", 0.02),
    ]
    assert json.loads((tmp_path / "results.json").read_text())["evaluations"][:2] == [one.to_json() for one in first]
    assert list(read_results(tmp_path))[:2] == list(first)

    evaluate(ProoD(f, g), name="joint", **options)
    assert len(calls) == 5
    # Other weights, another name, another seed, another set of images: nothing of the old is taken for the new.
    evaluate(ProoD(f, g, 1.0), name="joint", **options)
    assert len(calls) == 9
    evaluate(ProoD(f, g), name="other", **options)
    assert len(calls) == 13
    evaluate(ProoD(f, g), name="joint", seed=1, **options)
    assert len(calls) == 17
    evaluate(ProoD(f, g), name="joint", limit=10, **options)
    assert len(calls) == 21
    assert len(read_results(tmp_path)) == 20


MAKE = """
import torch
from prood.data import uniform_noise
from prood.evaluation import evaluate
from prood.evaluation.measuring import Evaluator
from prood.models import small
torch.manual_seed(0)
noise = {name: uniform_noise(5, (1, 28, 28), seed=seed) for seed, name in enumerate("abc")}
model, inside = small(4, width=4), noise.pop("c")
"""
KILLED = f"""
import sys, time
sys.path.insert(0, sys.argv[1])
{MAKE}
measured, made = Evaluator.measured, []
def slow(self, *rest, **more):
    made.append(1)
    if len(made) == 3:
        print("under way", flush=True)
        time.sleep(600)
    return measured(self, *rest, **more)
Evaluator.measured = slow
evaluate(model, inside=inside, outside=noise, eps=[0.1, 0.2], folder=sys.argv[2])
"""


@pytest.mark.slow
def test_a_kill_loses_the_evaluation_under_way_and_no_other(tmp_path):
    words = [sys.executable, "-c", KILLED, str(Path(prood.__file__).parent.parent), str(tmp_path)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as running:
        assert running.stdout.readline() == "under way\n"
        running.kill()
    kept = read_results(tmp_path)
    assert len(kept) == 2
    names = {}
    exec(MAKE, names)
    again = evaluate(names["model"], inside=names["inside"], outside=names["noise"], eps=[0.1, 0.2], folder=tmp_path)
    assert again.evaluations[:2] == kept.evaluations  # their seconds, too: they were not made again
    assert len(read_results(tmp_path)) == 4


def test_scores_that_cannot_be_read_are_made_again(f, inside, outside, tmp_path):
    options = {"inside": inside, "outside": outside, "eps": 0.01, "folder": tmp_path}
    made = evaluate(f, **options)
    damaged = tmp_path / made.evaluations[0].scores_file
    damaged.write_bytes(b"garbage")
    evaluate(f, **(options | {"eps": 0.02}))
    assert made.evaluations[0] in read_results(tmp_path).evaluations  # its numbers outlive its scores
    again = evaluate(f, **options)
    assert [(one.identity, one.auc) for one in again] == [(one.identity, one.auc) for one in made]
    assert len(read_results(tmp_path)) == 4
    np.testing.assert_array_equal(Scores.load(damaged).clean, made.evaluations[0].scores.clean)


def test_what_is_asked_for_last_stands_last(f, inside, outside, tmp_path):
    """Where reports look for it."""
    options = {"inside": inside, "outside": {"dark": outside["dark"]}, "eps": 0.01, "folder": tmp_path, "name": "f"}
    for limit in (None, 3, None):
        evaluate(f, limit=limit, **options)
        assert read_results(tmp_path)["f", "dark", 0.01].limit == limit
    assert [one.limit for one in read_results(tmp_path)] == [3, None]


def test_a_folder_that_may_only_be_read_answers_what_it_has(f, inside, outside, tmp_path, monkeypatch):
    options = {"inside": inside, "outside": {"dark": outside["dark"]}, "eps": 0.01, "folder": tmp_path}
    first, _ = (evaluate(f, limit=limit, **options) for limit in (None, 3))

    def refuse(self, folder):
        raise PermissionError(13, "Permission denied", str(folder))

    monkeypatch.setattr(Results, "save", refuse)
    monkeypatch.setattr(Evaluation, "save_scores", refuse)
    assert evaluate(f, **options).evaluations == first.evaluations
    with pytest.raises(PermissionError):
        evaluate(f, limit=4, **options)


def test_two_evaluations_at_a_time_keep_each_others_results(f, inside, outside, tmp_path, monkeypatch):
    measured, others = Evaluator.measured, [("noise", 0.01)]

    def meanwhile(self, *rest, **more):
        if others:
            name, eps = others.pop()
            evaluate(f, inside=inside, outside={name: outside[name]}, eps=eps, folder=tmp_path)
        return measured(self, *rest, **more)

    monkeypatch.setattr(Evaluator, "measured", meanwhile)
    evaluate(f, inside=inside, outside={"dark": outside["dark"]}, eps=0.01, folder=tmp_path)
    assert [one.outside for one in read_results(tmp_path)] == ["noise", "dark"]


def test_a_preset_that_has_changed_is_run_again(f, inside, outside, tmp_path, monkeypatch):
    options = {"outside": {"noise": outside["noise"]}, "eps": 0.02, "attacks": "fast", "folder": tmp_path, "limit": 3}
    for attack, count in ((QUICK, 1), (QUICK, 1), (APGD(iterations=6, restarts=2), 2)):
        monkeypatch.setitem(PRESETS, "fast", Ensemble((attack,)))
        assert len(evaluate(f, inside=inside, **options)) == 1
        assert len(read_results(tmp_path)) == count


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"eps": -0.1}, "eps must be a radius"),
        ({"eps": [0.1, float("nan")]}, "eps must be a radius"),
        ({"eps": []}, "eps is empty"),
        ({"attacks": "rude"}, "no attack preset 'rude': choose one of paper, fast, strong"),
        ({"stop": "soon", "attacks": "fast"}, "stopping rule 'soon': choose one of auc, bound, never"),
        ({"batch": 0}, "batch must be at least 1, not 0"),
        ({"method": "magic"}, "unknown bound 'magic': choose one of"),
        ({"limit": 0}, "subset of 0 images"),
        ({"compile": True, "attacks": "fast"}, "for a GPU only: leave out --compile, or choose --device cuda"),
        (
            {"outside": {"big": ImageSet("big", torch.zeros(2, 1, 32, 32, dtype=torch.uint8))}},
            "big has images of shape",
        ),
    ],
)
def test_bad_input_is_said_before_anything_is_computed(f, inside, outside, change, said):
    class Unused(Confidence):
        def __call__(self, images):
            raise AssertionError("computed")

    with pytest.raises(ProodError, match=said):
        evaluate(Unused(f), **({"inside": inside, "outside": outside, "eps": 0.1} | change))


def test_labels_that_the_model_does_not_have_are_refused_before_anything_is_made(f, inside, outside, tmp_path):
    more = ImageSet("more", inside.images, inside.labels + 1)
    with pytest.raises(Mismatch, match="'more'"):
        evaluate(f, inside=more, outside=outside, eps=0.1, folder=tmp_path)
    assert read_results(tmp_path) is None


def test_radii_come_in_any_row(f, inside, outside):
    for radii in (np.array([0.1, 0.2]), (0.1, 0.2, 0.1), iter([0.1, 0.2])):
        found = evaluate(f, inside=inside, outside=outside, eps=radii)
        assert [(one.outside, one.eps) for one in found] == [(name, eps) for name in outside for eps in (0.1, 0.2)]


def test_a_batch_of_big_images_is_smaller(f, inside, outside, monkeypatch):
    sizes = []

    class Watched(Confidence):
        def __call__(self, images):
            sizes.append(len(images))
            return super().__call__(images)

    monkeypatch.setattr("prood.evaluation.measuring.PIXELS", 7 * 28 * 28 + 1)
    evaluate(Watched(f), inside=inside, outside={"noise": outside["noise"]}, eps=0.1)
    assert max(sizes) == 7
