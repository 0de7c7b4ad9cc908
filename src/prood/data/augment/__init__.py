"""Augmentation of a whole batch on its device, with a different draw for each image.

Drawing is apart from applying: every process draws for the global batch with the same generator and applies its own
rows, and the result for an image depends on that image and its draw alone.
"""

from prood.data.augment.augment import Augment
from prood.data.augment.operations import OPERATIONS, POLICY, operate

__all__ = ["OPERATIONS", "POLICY", "Augment", "operate"]
