"""A look at the classifier before anything takes long: are the classes of the folder its own?"""

import torch

from prood import processes
from prood.errors import Mismatch
from prood.models import load
from prood.studies.guarding.study import CLASSIFIER
from prood.studies.runner import Runner


def check_classifier(runner: Runner) -> None:
    """Make or open the classifier, say how good it is on held-out images, and refuse one that hardly guesses.

    Wrong names or a wrong normalisation leave about 1/K of the images right, or fewer.
    """
    device = processes.device(runner.device)
    model, about = load(runner.run(CLASSIFIER, None), device=device)
    images = runner.held_back()[0].numbered_as(about.classes)
    if images.labels is None:
        return
    rows = torch.split(torch.arange(len(images)), 64)
    with torch.no_grad():
        logits = torch.cat([model(images.floats(some).to(device)).cpu() for some in rows])
    labels = images.labels_of(logits.shape[1])
    right = float((logits.argmax(1).numpy() == (images.labels if labels is None else labels).numpy()).mean())
    sentence = f"the classifier alone names {right:.1%} of {len(images):,} held-out images right"
    runner.console.print(sentence, highlight=False)
    if right < (1 + 1 / logits.shape[1]) / 4:
        fault = f"the classifier names only {right:.1%} of the held-out images right"
        folders = images.classes or ()
        if len(folders) not in (0, logits.shape[1]):
            fault += (
                f" (it has {logits.shape[1]} classes, and there are {len(folders)} folders: {', '.join(folders[:3])} …)"
            )
        raise Mismatch(
            f"{fault}: its classes are in another order (--classes FILE), or --mean and --std are not its own"
        )
