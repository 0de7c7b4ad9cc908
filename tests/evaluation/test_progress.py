import io
from dataclasses import replace

import torch
from rich.console import Console

from prood.attacks import APGD
from prood.evaluation import EvaluateOptions
from prood.evaluation.evaluator import Bar
from prood.evaluation.measuring import Evaluator
from prood.models import score_of


@torch.no_grad()
def test_images_under_attack_count_in_parts(f, inside, outside):
    seen = []
    attack = APGD(iterations=4, restarts=1)
    evaluator = Evaluator(score_of(f), EvaluateOptions(batch=8, attacks=attack, stop="never"))
    evaluator.run(outside["noise"], 0.1, torch.zeros(3), seen.append)
    assert seen == sorted(seen)
    assert seen[-1] == 20
    assert {8, 16, 20} <= set(seen)
    assert (
        len(seen) == 3 * (attack.iterations + 2) + 3
    )  # the first look, the start and the steps of each batch; its end
    seen.clear()
    replace(evaluator, options=EvaluateOptions(batch=8)).run(outside["noise"], 0.1, torch.zeros(3), seen.append)
    assert seen == [8, 16, 20]


def test_the_bar_goes_through_its_parts():
    file = io.StringIO()
    with Bar(Console(file=file, force_terminal=True, width=120), "ProoD", 30) as bar:
        bar.begins("first")
        bar.reaches(4.6)
        bar.reaches(10)
        bar.begins("second")
        bar.reaches(20)
        assert bar.tasks[0].completed == 30
        assert bar.finished
    assert "ProoD" in file.getvalue()
    assert "second" in file.getvalue()


def test_nothing_is_shown_where_nobody_looks():
    file = io.StringIO()
    for console in (None, Console(file=file)):
        with Bar(console, "ProoD", 30) as bar:
            bar.begins("first")
            bar.reaches(30)
    assert file.getvalue() == ""


def test_a_file_gets_a_line_now_and_then():
    file = io.StringIO()
    with Bar(Console(file=file), "ProoD", 30) as bar:
        bar.lines.every = 0.0
        bar.begins("svhn, ε = 0.01")
        bar.reaches(10)
        bar.begins("faces, ε = 0.01")
        bar.reaches(4.4)
    first, second = file.getvalue().splitlines()
    assert first.startswith("ProoD: 10/30 images (svhn, ε = 0.01), ")
    assert second.startswith("ProoD: 14/30 images (faces, ε = 0.01), ")
