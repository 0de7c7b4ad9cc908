import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import prood
from prood.errors import Damaged, ProodError, Unsupported
from prood.evaluation import Evaluation, Results, Scores, read_results
from prood.evaluation.results import append, settle

SCORES = Scores(
    inside=np.array([1.0, np.inf]),
    clean=np.array([0.1, -np.inf]),
    certified=np.array([np.inf, 0.5]),
    gallery=np.array([1]),
    gallery_clean=np.full((1, 3, 2, 2), 7, np.uint8),
    gallery_attacked=np.full((1, 3, 2, 2), 9, np.uint8),
)
ONE = Evaluation(
    model="ProoD",
    inside="digits:test",
    outside="npz:/some/where/a b.npz",
    eps=8 / 255,
    images=2,
    auc=0.9,
    gauc=0.5,
    fpr95=0.1,
    gfpr95=1.0,
    intervals={"auc": [0.8, 0.95]},
    fingerprints={"model": "abc"},
    scores=SCORES,
)


def test_results_come_back_as_they_were_written(tmp_path):
    Results((ONE, replace(ONE, model="Plain", scores=None)), {"shift": 3.0}).save(tmp_path)
    again = read_results(tmp_path)
    assert again.facts == {"shift": 3.0}
    assert list(again) == [ONE, replace(ONE, model="Plain", scores=None)]
    first, second = again
    for name, value in vars(SCORES).items():
        np.testing.assert_array_equal(getattr(first.scores, name), value)
    assert second.scores is None
    content = json.loads((tmp_path / "results.json").read_text())
    assert content["evaluations"][0]["scores"].startswith("scores/npz-some-where-a-b-npz-0.0313725-")


def test_numbers_stand_without_their_scores(tmp_path):
    Results((ONE,)).save(tmp_path)
    for file in (tmp_path / "scores").iterdir():
        file.unlink()
    (one,) = read_results(tmp_path)
    assert one == ONE
    assert one.scores is None


def test_provable_shares_that_an_older_file_does_not_state_come_from_its_scores(tmp_path):
    scores = replace(SCORES, inside=np.arange(10.0), certified=np.array([1.5, 0.5]))
    old = replace(ONE, gfpr95=1.0, scores=scores)
    Results((old, replace(old, eps=0.01, proved90=0.25))).save(tmp_path)
    file = tmp_path / "results.json"
    content = json.loads(file.read_text())
    for name in ("proved95", "proved90", "proved80"):
        content["evaluations"][0].pop(name)
    file.write_text(json.dumps(content))
    one, stated = read_results(tmp_path)
    assert one == old
    assert one.identity == old.identity == replace(old, proved90=0.5).identity
    assert [one.proved95, one.proved90, one.proved80] == [None] * 3
    assert [one.value(name) for name in ("proved95", "proved90", "proved80")] == [0.0, 0.5, 1.0]
    assert stated.value("proved90") == 0.25
    (tmp_path / one.scores_file).write_bytes(b"")
    damaged, _ = read_results(tmp_path)
    for without in (damaged, replace(one, scores=None)):
        assert [without.value(name) for name in ("proved95", "proved90", "proved80")] == [0.0, None, None]


def test_find_and_lookup():
    other = replace(ONE, eps=0.01)
    results = Results((ONE, other)).plus(replace(other, auc=0.7, seed=1))
    assert results["ProoD", ONE.outside, 0.01].auc == 0.7  # the last one
    assert results.find(ONE.identity) is ONE
    assert results.find(replace(ONE, fingerprints={"model": "abd"}).identity) is None
    assert ONE.identity == replace(ONE, auc=0.1, seconds=9.0, scores=None).identity  # outcomes do not count
    with pytest.raises(KeyError):
        results["ProoD", "nowhere", 0.01]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("{half", "is damaged or of another format"),
        ("[]", "is damaged or of another format"),
        ('{"format": 2, "evaluations": [{"model": "x"}]}', "is damaged or of another format"),
        ('{"models": {}}', "is damaged or of another format"),
        ('{"format": 99, "evaluations": []}', "newer Prood"),
    ],
)
def test_files_that_are_no_results(tmp_path, content, said):
    assert read_results(tmp_path) is None
    (tmp_path / "results.json").write_text(content)
    with pytest.raises(ProodError, match=said):
        read_results(tmp_path)


@pytest.mark.parametrize(
    "change",
    [
        {"eps": "a"},
        {"auc": "a"},
        {"intervals": []},
        {"intervals": {"auc": [1]}},
        {"outside": None},
        {"attack": "a"},
        {"proved90": "a"},
    ],
)
def test_values_of_another_kind_are_damage(tmp_path, change):
    Results((ONE,)).save(tmp_path)
    file = tmp_path / "results.json"
    content = json.loads(file.read_text())
    content["evaluations"][0] |= change
    file.write_text(json.dumps(content))
    with pytest.raises(Damaged):
        read_results(tmp_path)


def test_broken_scores_are_one_clear_error_when_they_are_asked_for(tmp_path):
    Results((ONE,)).save(tmp_path)
    (file,) = (tmp_path / "scores").iterdir()
    whole = file.read_bytes()
    middle = len(whole) // 2
    for broken in (b"", b"no zip", whole[:100], whole[:60] + bytes(40) + whole[100:], whole[:middle]):
        file.write_bytes(broken)
        (kept,) = read_results(tmp_path)
        assert kept == ONE
        with pytest.raises(Damaged):
            _ = kept.scores.clean


def test_scores_are_read_once_and_only_when_they_are_asked_for(tmp_path, monkeypatch):
    Results((ONE, replace(ONE, eps=0.01))).save(tmp_path)
    loads = []
    load = Scores.load
    monkeypatch.setattr(Scores, "load", lambda file: loads.append(file) or load(file))
    one, _ = read_results(tmp_path)
    assert replace(one, model="other").scores is one.scores
    assert not loads
    assert one.scores.attacked is None
    np.testing.assert_array_equal(one.scores.clean, SCORES.clean)
    assert loads == [tmp_path / ONE.scores_file]


def test_what_was_added_counts_whether_or_not_it_was_settled(tmp_path):
    other, third = replace(ONE, eps=0.01), replace(ONE, eps=0.02)
    append(tmp_path, ONE)
    append(tmp_path, other)
    assert list(read_results(tmp_path)) == [ONE, other]
    assert not (tmp_path / "results.json").exists()
    settle(tmp_path, [ONE])  # what was asked for stands last
    assert list(read_results(tmp_path)) == [other, ONE]
    assert not (tmp_path / "evaluations.jsonl").exists()
    append(tmp_path, third)
    append(tmp_path, replace(other, auc=0.7))  # made again: the last one counts
    assert list(read_results(tmp_path)) == [ONE, third, replace(other, auc=0.7)]
    written = (tmp_path / "results.json").read_bytes()
    settle(tmp_path, [third])
    assert (tmp_path / "results.json").read_bytes() != written
    assert list(read_results(tmp_path)) == [ONE, replace(other, auc=0.7), third]
    assert all(one.scores.clean[0] == SCORES.clean[0] for one in read_results(tmp_path))


@pytest.mark.parametrize("cut", [1, 30, 400])
def test_a_line_that_was_not_written_to_its_end_costs_that_evaluation_only(tmp_path, cut):
    other, third = replace(ONE, eps=0.01), replace(ONE, eps=0.02)
    append(tmp_path, ONE)
    append(tmp_path, other)
    file = tmp_path / "evaluations.jsonl"
    file.write_bytes(file.read_bytes()[: -1 - cut])  # killed in the middle of the line
    assert list(read_results(tmp_path)) == [ONE]
    append(tmp_path, third)
    assert list(read_results(tmp_path)) == [ONE, third]
    settle(tmp_path, [third])
    assert list(read_results(tmp_path)) == [ONE, third]


def test_lines_of_a_newer_prood_are_refused(tmp_path):
    append(tmp_path, ONE)
    file = tmp_path / "evaluations.jsonl"
    file.write_text(file.read_text().replace('"format": 2', '"format": 99'))
    with pytest.raises(Unsupported):
        read_results(tmp_path)


@pytest.mark.slow
def test_processes_that_add_and_settle_at_a_time_lose_nothing(tmp_path):
    """Each adds evaluations of its own, and settles in between; readers see every one that was added."""
    code = (
        "import sys; sys.path.insert(0, sys.argv[3])\n"
        "from dataclasses import replace; from pathlib import Path\n"
        "from prood.evaluation.results import Evaluation, append, read_results, settle\n"
        "number, folder = int(sys.argv[1]), Path(sys.argv[2])\n"
        "one = Evaluation('m', 'in', 'out', 0.1, 2, 0.9, 0.5, 0.1, 1.0)\n"
        "for count in range(12):\n"
        "    made = replace(one, seed=100 * number + count)\n"
        "    append(folder, made)\n"
        "    assert made in tuple(read_results(folder)), made.seed\n"
        "    if count % 3 == number: settle(folder, [made])\n"
    )
    words = [sys.executable, "-c", code]
    source = str(Path(prood.__file__).parent.parent)
    running = [subprocess.Popen([*words, str(number), str(tmp_path), source]) for number in range(3)]
    assert [one.wait() for one in running] == [0, 0, 0]
    seeds = sorted(one.seed for one in read_results(tmp_path))
    assert seeds == sorted(100 * number + count for number in range(3) for count in range(12))
