"""Experiments on models that are trained in seconds."""

import pytest


@pytest.fixture(scope="module", autouse=True)
def _short(short):
    """The preset's attacks with a tenth of their steps."""
