"""An adversarially trained classifier, and the same one combined with the discriminator: Robust-ProoD."""

from typing import Any

import torch

from prood import processes
from prood.evaluation.robustness import robust_accuracy
from prood.evaluation.words import percent, radius_text
from prood.models import load, score_of
from prood.report.experiments import rows
from prood.report.experiments.experiment import Content, Experiment
from prood.report.formats import escaped
from prood.studies.published import read_json
from prood.studies.runner import Runner

RUNS = ("robust", "robust-prood")
PAPERS_ACCURACY = {"cifar10": "58.5% at ε = 8/255 for both, of an adversarially trained ResNet18 from RobustBench"}


def make(runner: Runner) -> Content:
    """What was measured of the same weights before is taken over: it outlives the models, and attacks take the time."""
    content = rows.table(runner, [node for node in runner.study.rows.values() if node.table == "robust"])
    found = _before(runner)
    asked: dict[str, Any] = {"attacks": runner.study.attacks or "fast", "limit": 2 * runner.study.attacked}
    trainable = runner.training is not False and all(runner.has(run) for run in RUNS)
    if trainable and not (found and asked.items() <= found.items()):
        found = _robustness(runner, **asked)
    found = found or _published(runner)
    if found is None:
        runner.notes.append("Robust accuracy is measured where the trained models are, and they are not here.")
    return content | {"robustness": found}


def _before(runner: Runner) -> dict[str, Any] | None:
    file = EXPERIMENT.file(runner)
    stored = read_json(file) if file.is_file() else {}
    models = {f"{run}-0": runner.weights(run) for run in RUNS}
    same = None not in models.values() and models.items() <= stored.get("models", {}).items()
    return dict(found) if same and (found := stored["content"]["robustness"]) else None


def _published(runner: Runner) -> dict[str, Any] | None:
    """What was measured of both for the table of properties, by the same attacks on the same images."""
    values, conditions = {}, set()
    for run in RUNS:
        published = runner.published(run, attack=False)
        found = None if published is None or published.measured is None else published.measured.robustness
        if published is None or found is None:
            return None
        values[run] = found.robust_accuracy
        presets = {one.attacks for one in published.evaluations if one.attacks and one.images == found.images}
        conditions |= {(found.eps, found.images, preset) for preset in presets}
    if len(conditions) != 1:
        return None
    ((eps, images, attacks),) = conditions
    return {"eps": eps, "images": images, "attacks": attacks, "robust_accuracy": values, "same_class": None}


@torch.no_grad()
def _robustness(runner: Runner, attacks: str, limit: int) -> dict[str, Any]:
    """Robust accuracy of both at the radius that the robust one was trained for, and whether they agree on the class.

    Eq. 3 keeps the order of the classes, so the two have the same robust accuracy. A search may still end at other
    points, as it climbs another function: the share of equal classes on the test set is what shows the equality.
    """
    device, inside = processes.device(runner.device), runner.inside()
    models = {run: load(runner.run(run), device=device) for run in RUNS}
    eps = float(models["robust"][1].eps or runner.eps)
    options: dict[str, Any] = {"attacks": attacks, "limit": limit, "device": device}
    found = {run: robust_accuracy(model, inside, eps, **options) for run, (model, _) in models.items()}
    same = 0
    for part in torch.split(torch.arange(len(inside)), 250):
        images, classes = inside.floats(part).to(device), []
        for model, _ in models.values():
            logits = score_of(model).logits(images)
            assert logits is not None
            classes.append(logits.argmax(1))
        same += int((classes[0] == classes[1]).sum())
    return {
        "eps": eps,
        "images": found["robust"].images,
        "attacks": attacks,
        "limit": limit,
        "robust_accuracy": {run: one.robust_accuracy for run, one in found.items()},
        "same_class": same / len(inside),
    }


def section(content: Content) -> str:
    parts = [rows.section(content, others=("Robust", "Robust-ProoD"))]
    if found := content["robustness"]:
        titles = {row["run"]: row["title"] for row in content["rows"]}
        values = ", ".join(f"{titles[run]} {percent(value)}" for run, value in found["robust_accuracy"].items())
        text = f"Robust accuracy at ε = {radius_text(found['eps'])}, under the attacks `{found['attacks']}` on "
        text += f"{found['images']} test images: {values}."
        if found["same_class"] is not None:
            text += f" Both name the same class for {percent(found['same_class'])} of the test images: the combination "
            text += "does not change the classifier's answers."
        parts.append(text)
    if content["inside"] in PAPERS_ACCURACY:
        parts.append(f"In the paper: {escaped(PAPERS_ACCURACY[content['inside']])}.")
    return "\n\n".join(parts)


TITLE, PAPER = "A robust classifier, combined: Robust-ProoD", "App. “Combining ProoD with a Robust Classifier”"
EXPERIMENT = Experiment("table", "robust", TITLE, PAPER, make, section)
