import numpy as np
import torch

from prood.data import Augment, generator
from prood.data.augment import OPERATIONS, POLICY
from prood.data.augment.operations import choose

PAPER = """Invert .1 7; Contrast .2 6 | Rotate .7 2; TranslateX .3 9 | Sharpness .8 1; Sharpness .9 3
| ShearY .5 8; TranslateY .7 9 | AutoContrast .5 8; Equalize .9 2 | ShearY .2 7; Posterize .3 7
| Color .4 3; Brightness .6 7 | Sharpness .3 9; Brightness .7 9 | Equalize .6 5; Equalize .5 1
| Contrast .6 7; Sharpness .6 5 | Color .7 7; TranslateX .5 8 | Equalize .3 7; AutoContrast .4 8
| TranslateY .4 3; Sharpness .2 6 | Brightness .9 6; Color .2 8 | Solarize .5 2; Invert .0 3
| Equalize .2 0; AutoContrast .6 0 | Equalize .2 8; Equalize .6 4 | Color .9 9; Equalize .6 6
| AutoContrast .8 4; Solarize .2 8 | Brightness .1 3; Color .7 0 | Solarize .4 5; AutoContrast .9 3
| TranslateY .9 9; TranslateY .7 9 | AutoContrast .9 2; Solarize .8 3 | Equalize .8 8; Invert .1 3
| TranslateY .7 9; AutoContrast .9 1"""


def test_the_policy_is_that_of_the_paper() -> None:
    written = "|".join("; ".join(f"{name} {chance} {level}" for name, chance, level in pair) for pair in POLICY)
    assert written.replace(" 0.", " .").split("|") == [pair.strip() for pair in PAPER.split("|")]


def test_every_pair_is_drawn_as_often_and_its_operations_as_probably_as_they_should_be() -> None:
    count = 400
    for number, pair in enumerate(POLICY):
        uniform = torch.rand(count, 5, generator=generator(7, number), dtype=torch.float64).numpy()
        uniform[:, 0] = (number + uniform[:, 0]) / 25
        chosen = choose(uniform)
        for k, (name, chance, magnitude) in enumerate(pair):
            done = chosen[:, 2 * k] != 0
            assert abs(done.mean() - chance) < 4 * np.sqrt(chance * (1 - chance) / count) + 1e-9
            assert set(chosen[done, 2 * k]) <= {OPERATIONS[name]}
            assert set(np.abs(chosen[done, 2 * k + 1])) <= {magnitude}
            if magnitude and done.any():
                assert abs((chosen[done, 2 * k + 1] > 0).mean() - 0.5) < 2 / np.sqrt(done.sum())


def test_pairs_are_uniform() -> None:
    """Seen through draws: what share of the images has which first operation."""
    draws = Augment(autoaugment=True).draw(20000, generator(3))
    for name, code in OPERATIONS.items():
        if name != "Identity":
            share = sum(chance for (other, chance, _), _ in POLICY if other == name) / 25
            assert abs((draws[:, 3] == code).double().mean().item() - share) < 4 * (share / 20000) ** 0.5 + 1e-9


def test_the_end_of_the_interval_is_still_a_pair() -> None:
    assert choose(np.full((1, 5), np.nextafter(1, 0))).shape == (1, 4)
