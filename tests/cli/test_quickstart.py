"""prood quickstart, as a user meets it; what it does is tested in tests/studies."""

from prood import data, studies
from prood.data import uniform_noise
from prood.evaluation import evaluate
from prood.models import ProoD, discriminator, small


def test_the_table_is_about_what_was_attacked_and_the_report_lies_beside_it(prood, monkeypatch, tmp_path):
    model = ProoD(small(8, width=4), discriminator("digits", image=(1, 28, 28)), 1.0).eval()
    noise = uniform_noise(4, (1, 28, 28), seed=1)
    sets = {"inside": data.load("digits:test").subset(8, 0), "outside": {"uniform": noise}}
    asked = []

    def made(out, *, seed, console):
        asked.append((out, seed))
        options = {**sets, "name": "ProoD", "folder": out}
        certified = evaluate(model, eps=[0.1], attacks=None, **options)
        return certified.plus(*evaluate(model, eps=[0.3], attacks="fast", **options))

    monkeypatch.setattr(studies, "quickstart", made)
    code, out, err = prood("quickstart", "--out", tmp_path / "q", "--seed", "3")
    assert (code, err, asked) == (0, "", [(tmp_path / "q", 3)])
    assert "ε = 0.3" in out
    assert "ε = 0.1" not in out
    assert f"the worst images: {tmp_path / 'q' / 'report.html'}" in out
    page = (tmp_path / "q" / "report.html").read_text()
    assert "ProoD" in page
