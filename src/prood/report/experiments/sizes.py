"""The size ablation: guaranteed AUC of discriminators of different sizes, all trained by the same short schedule."""

import math
from pathlib import Path
from statistics import mean
from typing import Any

import numpy as np

from prood import processes
from prood.evaluation import evaluate
from prood.evaluation.words import set_name
from prood.models import load
from prood.models.sizes import words_of
from prood.report import plots
from prood.report.experiments.experiment import Content, Experiment
from prood.report.formats import markdown_table
from prood.studies.runner import Runner


def make(runner: Runner) -> Content:
    target = processes.device(runner.device)
    inside, outside = runner.inside(), runner.outside()
    rows: list[dict[str, Any]] = []
    for node in (one for one in runner.study.nodes if one.table == "sizes"):
        model, about = load(runner.run(node.name), device=target)
        size = str(about.architecture["size"])
        parameters = sum(weights.numel() for weights in model.parameters())
        found = evaluate(model, inside=inside, outside=outside, eps=runner.eps, device=target)
        sets = {set_name(one.outside): {"auc": one.auc, "gauc": one.gauc} for one in found}
        rows.append({"size": size, "words": " ".join(words_of(size)), "parameters": parameters, "sets": sets})
        runner.console.print(f"{size:<10} {parameters:>10,} parameters, GAUC {_gauc(rows[-1]):.3f}", highlight=False)
    rows.sort(key=lambda row: row["parameters"])
    own = str(runner.recipe.discriminator.get("size", "S"))
    return {"eps": runner.eps, "own": own, "settings": list(runner.study.short), "sizes": rows}


def _gauc(row: dict[str, Any], name: str | None = None) -> float:
    """GAUC on one set, or the mean over all."""
    sets = row["sets"]
    return float(sets[name]["gauc"]) if name else mean(values["gauc"] for values in sets.values())


def correlation(content: Content) -> float | None:
    """Pearson's correlation of GAUC with the logarithm of the number of parameters; None if either is constant."""
    sizes = [math.log10(row["parameters"]) for row in content["sizes"]]
    values = [_gauc(row) for row in content["sizes"]]
    if len(set(sizes)) < 2 or len(set(values)) < 2:
        return None
    return float(np.corrcoef(sizes, values)[0, 1])


def draw(content: Content, file: Path) -> None:
    first = next(iter(content["sizes"][0]["sets"]))
    with plots.figure(file, 8, 3.6) as figure:
        for axes, name in zip(figure.subplots(1, 2), (first, None), strict=True):
            for row in content["sizes"]:
                own = row["size"] == content["own"]
                look = {"marker": "X", "color": plots.COLOURS[1], "s": 70} if own else {"color": plots.COLOURS[0]}
                place = row["parameters"], 100 * _gauc(row, name)
                axes.scatter(*place, **look)
                axes.annotate(row["size"], place, textcoords="offset points", xytext=(5, 5), fontsize=8)
            axes.set(xscale="log", xlabel="parameters", ylabel="GAUC, %", title=name or "mean of all sets")
            axes.margins(x=0.15, y=0.15)


def section(content: Content) -> str:
    names = [f"{name} AUC / GAUC" for name in content["sizes"][0]["sets"]]
    lines = [["size", "layers", "parameters", *names, "mean GAUC"]]
    for row in content["sizes"]:
        title = f"**{row['size']}**" if row["size"] == content["own"] else row["size"]
        cells = [f"{100 * one['auc']:.1f} / {100 * one['gauc']:.1f}" for one in row["sets"].values()]
        lines.append([title, row["words"], f"{row['parameters']:,}", *cells, f"{100 * _gauc(row):.1f}"])
    found = correlation(content)
    text = "not defined" if found is None else f"{found:+.2f}"
    return (
        f"Discriminators of different sizes at ε = {content['eps']:g}, each trained once, all with the same short "
        f"schedule ({', '.join(content['settings'])}). The size of the recipe is printed bold, and is the cross in the "
        "figure. The paper finds no dependence of GAUC on size. Ours: the correlation of mean GAUC with the logarithm "
        f"of the number of parameters is {text}, over {len(lines) - 1} models and one seed.\n\n"
        f"{markdown_table(lines)}"
    )


EXPERIMENT = Experiment("figure", "sizes", "Size of the discriminator", "App. H, Figure 4", make, section, draw)
