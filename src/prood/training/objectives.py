"""The old name of `prood.methods`, for one version."""

from prood.methods import *  # noqa: F403
