"""The former place of `prood.combine` and what it needs, for one version."""

from prood.models.wrapped import read_classes
from prood.training.joint import combine as wrap

__all__ = ["read_classes", "wrap"]
