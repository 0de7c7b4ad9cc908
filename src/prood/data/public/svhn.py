"""Street View House Numbers, the cropped digits.

Netzer et al., Reading digits in natural images with unsupervised feature learning, 2011.
"""

from pathlib import Path

import numpy as np
import torch

from prood.data.catalog import Download, Facts, Public
from prood.data.formats.matlab import read_mat
from prood.data.images import ImageSet
from prood.data.sources import Shape, public_source
from prood.errors import Damaged

_PAGE = "http://ufldl.stanford.edu/housenumbers"
_AGAIN = "fetch it again with 'prood data fetch svhn --again'"


@public_source(
    "svhn",
    description="digits of house numbers (Street View House Numbers), 32×32",
    splits=("train", "test"),
    about=Public(
        title="Street View House Numbers (cropped digits)",
        licence="free for non-commercial use",
        page=f"{_PAGE}/",
        bytes=246_316_178,
        folder="svhn",
        downloads=(
            Download(f"{_PAGE}/train_32x32.mat", 182_040_794, "md5:e26dedcc434d2e4c54c9b2d4a06d8373"),
            Download(f"{_PAGE}/test_32x32.mat", 64_275_384, "md5:eb5a983be6a315427106f1b164d9cef3"),
        ),
        facts={
            "train": Facts(73_257, (4_948, 13_861, 10_585, 8_497, 7_458, 6_882, 5_727, 5_595, 5_045, 4_659)),
            "test": Facts(26_032, (1_744, 5_099, 4_149, 2_882, 2_523, 2_384, 1_977, 2_019, 1_660, 1_595)),
        },
    ),
)
def svhn(folder: Path, split: str, shape: Shape | None = None) -> ImageSet:
    """`X` holds the images as (row, column, colour, image), `y` their digits, where 10 means 0."""
    path = folder / f"{split}_32x32.mat"
    content = read_mat(path, "X", "y")
    pixels, digits = content["X"], content["y"]
    if pixels.dtype != np.uint8 or pixels.ndim != 4 or pixels.shape[:3] != (32, 32, 3) or pixels.shape[3] == 0:
        raise Damaged(f"{path} holds images of type {pixels.dtype} and shape {pixels.shape}: {_AGAIN}")
    if digits.size != pixels.shape[3]:
        raise Damaged(f"{path} holds {digits.size} labels for {pixels.shape[3]} images: {_AGAIN}")
    if digits.dtype.kind not in "iuf" or not np.isin(digits, range(1, 11)).all():
        raise Damaged(f"{path} holds labels that are not 1 to 10: {_AGAIN}")
    images = np.ascontiguousarray(pixels.transpose(3, 2, 0, 1))
    labels = digits.ravel().astype(np.int64) % 10
    return ImageSet(f"svhn:{split}", torch.from_numpy(images), torch.from_numpy(labels), tuple("0123456789"))
