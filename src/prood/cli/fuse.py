"""prood fuse CLASSIFIER DISCRIMINATOR"""

from pathlib import Path
from typing import Annotated

import typer

from prood.cli.train import PRIOR


def fuse(
    classifier: Annotated[Path, typer.Argument(help="Run or file of a trained classifier, or of a joint model.")],
    discriminator: Annotated[Path, typer.Argument(help="Run or file of a trained discriminator.")],
    run: Annotated[Path, typer.Option(help="Folder for the fused model.")],
    recipe: Annotated[str, typer.Option(help="The recipe of both: it names the held-back images.")] = "quickstart",
    auc_drop: Annotated[
        float, typer.Option(help="So many points may the AUC be below the classifier's, for a higher GAUC.")
    ] = 0.5,
    eps: Annotated[float | None, typer.Option(help="Radius of the GAUC; else the discriminator's.")] = None,
    shift: Annotated[float | None, typer.Option(help="Δ, added to all scores: how sure the model sounds.")] = None,
    prior: Annotated[float | None, typer.Option(help=PRIOR)] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Continue the run in this folder, if there is one.")] = False,
    device: Annotated[str | None, typer.Option(help="cpu, cuda, cuda:1 …; else a GPU if there is one.")] = None,
) -> None:
    """Fuse a classifier and a discriminator by a curve that is fitted on held-back images.

    More than one shift: a guaranteed AUC as high as can be, at the AUC that you ask for. The certificate is that of the
    discriminator, as for every joint model.
    """
    from prood.studies import fuse as join
    from prood.studies.fusing import FuseOptions
    from prood.studies.shift import choice_of_shift
    from prood.training import load_recipe

    made = join(
        classifier,
        discriminator,
        run,
        recipe=load_recipe(recipe),
        options=FuseOptions(auc_drop, choice_of_shift(shift, prior, 0.0) or 0.0, eps),
        resume=resume,
        device=device,
    )
    print(f"on held-back images: the classifier alone has AUC {made.classifier_auc:.2%}")
    for title, one in (("fused", made.fitted), ("with the best single shift", made.single)):
        print(f"{title}: AUC {one.auc:.2%}, GAUC {one.gauc:.2%} (at most {made.ceiling:.2%} with this discriminator)")
    least = made.classifier_auc - auc_drop / 100
    if made.fitted.auc < least:
        print(
            f"no curve has the AUC that was asked for, {least:.2%}: this is the highest; a better discriminator helps"
        )
    print(f"wrote {run}")
