"""Published numbers beside those that were measured again, for the terminal."""

from collections.abc import Sequence

from rich.table import Table

from prood.evaluation.words import MISSING, percent, radius_text, set_name
from prood.studies.claims import COMPARED, Claim
from prood.studies.published import method_of


def claims_table(claims: Sequence[Claim]) -> Table:
    """A line for each evaluation, in percent: published, and in brackets what is measured here less that."""
    table = Table("set", "ε", "by", "images", *COMPARED.values(), "")
    for claim in claims:
        old = claim.published
        gaps = {name: f"{percent(getattr(old, name))} ({100 * gap:+.3f})" for name, gap in claim.gaps.items()}
        cells = [gaps.get(name, MISSING) for name in COMPARED]
        verdict = "holds" if claim.holds else "differs" if claim.same_images else "other images"
        table.add_row(set_name(old.outside), radius_text(old.eps), method_of(old), f"{old.images:,}", *cells, verdict)
    return table
