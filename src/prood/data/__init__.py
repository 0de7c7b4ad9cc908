"""Image sets by name, noise, augmentation on the device, and the order of the batches."""

from prood.data import bundled  # noqa: F401 – importing it, as those of the public sets, registers its sources
from prood.data.augment import Augment
from prood.data.formats import huggingface, table  # noqa: F401
from prood.data.formats.arrays import read_npz
from prood.data.formats.folder import read_folder
from prood.data.formats.mosaic import read_mosaic
from prood.data.images import ImageSet
from prood.data.made import made_outliers
from prood.data.noise import smooth_noise, uniform_noise
from prood.data.order import Order, generator
from prood.data.pipeline import Prefetch, Stream, stream
from prood.data.public import known, labelled, lsun, openimages, openood, rimgnet_mini, tiny_images  # noqa: F401
from prood.data.sources import Source, file_source, find, load, names, noise_source, open_set, public_source, source
from prood.data.stored import Images, Reader, StoredSet

__all__ = [
    "Augment",
    "ImageSet",
    "Images",
    "Order",
    "Prefetch",
    "Reader",
    "Source",
    "StoredSet",
    "Stream",
    "file_source",
    "find",
    "generator",
    "load",
    "made_outliers",
    "names",
    "noise_source",
    "open_set",
    "public_source",
    "read_folder",
    "read_mosaic",
    "read_npz",
    "smooth_noise",
    "source",
    "stream",
    "uniform_noise",
]
