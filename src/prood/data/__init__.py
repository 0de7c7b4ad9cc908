"""Image sets by name, noise, augmentation on the device, and the order of the batches."""

from prood.data import digits, photographs  # noqa: F401 – importing them registers their sources
from prood.data.augment import Augment
from prood.data.images import ImageSet
from prood.data.noise import smooth_noise, uniform_noise
from prood.data.npz import read_npz
from prood.data.order import Order, generator
from prood.data.sources import Source, file_source, load, names, noise_source, source

__all__ = [
    "Augment",
    "ImageSet",
    "Order",
    "Source",
    "file_source",
    "generator",
    "load",
    "names",
    "noise_source",
    "read_npz",
    "smooth_noise",
    "source",
    "uniform_noise",
]
