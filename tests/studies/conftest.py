"""The attacks of these tests are short."""

import pytest


@pytest.fixture(scope="module", autouse=True)
def _short(short):
    """The preset's attacks with a tenth of their steps."""
