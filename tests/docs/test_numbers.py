"""Numbers that pages state are those of their source: the code, a file, or another page. Tables are in test_site."""

import re

import pytest
from docs_pages import PAGES, ROOT

from prood.certification.sampling import Sample
from prood.detector import Detector, needed
from prood.errors import BadValue
from prood.pretrained import names
from prood.serve.options import Options
from prood.studies.guarding.parts import FEWEST_OUTSIDE, sizes
from prood.training.guard_table import GuardTable


def page(name: str) -> str:
    return " ".join((ROOT / name).read_text(encoding="utf-8").split())


def fewest(accepts: int = 1000) -> int:
    """The least number of images inside with which `prood guard` begins."""
    for count in range(accepts):
        try:
            sizes(count, GuardTable())
        except BadValue:
            continue
        return count
    raise AssertionError("no number is enough")


def test_how_many_images_a_guard_needs() -> None:
    assert f"at least {fewest()} photographs" in page("README.md")
    assert f"{fewest()} are the least" in page("docs/guides/guard.md")
    assert fewest() > FEWEST_OUTSIDE


def test_how_much_is_proved_about_data_that_are_far_apart() -> None:
    (row,) = re.findall(r"(?m)^\| traffic signs, .*", (ROOT / "docs" / "guides" / "guard.md").read_text("utf-8"))
    (share,) = re.findall(r"traffic signs provably rejects ([\d.]+%)", page("README.md"))
    assert f" {share} |" in row


def test_the_torch_that_was_tested() -> None:
    (version,) = re.findall(r"^torch==(\S+)", (ROOT / "constraints.txt").read_text("utf-8"))
    for name in ("README.md", "docs/install.md"):
        assert version in page(name), name


def test_how_many_certificates_a_sample_takes() -> None:
    text = f"{Sample(at_most=0.001).wanted:,}"
    assert f"0.001 draws {text}" in page("docs/reference/commands.md")
    assert f"`--at-most 0.001` draws {text}" in page("docs/guides/scale.md")


def test_how_many_images_a_calibration_takes() -> None:
    text = " ".join((Detector.calibrate.__doc__ or "").split())
    assert f"It takes {needed(0.95, 0.95)} images by default" in text


def test_the_limits_of_the_service() -> None:
    """The table of options is generated from the command; these are the defaults where no command says them."""
    text = page("docs/reference/commands.md")
    section = text[text.index("## prood serve") : text.index("## prood export")]
    for option, value in (
        ("--batch", Options().batch),
        ("--images", Options().images),
        ("--drain-s", Options().drain_s),
    ):
        assert re.search(rf"`{option} \w+` \|[^|]*\| `{value}` \|", section), option


@pytest.mark.parametrize("name", PAGES)
def test_no_page_names_a_shipped_model_that_is_none(name: str) -> None:
    for model in re.findall(r"prood\.load\(\"(\w+)\"\)", page(name)):
        assert model in names(), model
