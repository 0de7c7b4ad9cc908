"""The options of augmentation: what is drawn for an image, and what is then done to it."""

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from prood.data.augment import geometry, operations
from prood.data.augment.colours import jitter
from prood.errors import BadValue, Mismatch

COLUMNS = 20  # of draws
_CLOSE, _FAR = (1 / 8, 1 / 2), (3 / 2, 4)  # what an image at another scale shows, in sides of the image: least, most
_LARGEST = 4096  # side of a crop
_MOST = 1000  # pixels to pad with, or to cut out: more is a mistake, and no memory holds what is padded with much more

_PARTS = [3, operations.STEP, operations.STEP, 4, 2, 3, 3, 3]  # of a plan: … hole, turn, view, crop, colour


@dataclass(frozen=True)
class Augment:
    """What is done to a training image, in this order.

    pad: pad and crop, i.e. move by whole pixels in [−pad, pad] along each axis. `border` says what with: zeros, or the
    image's reflection, which leaves no edge for a network to go by.
    flip: mirror left and right, with probability 1/2.
    autoaugment: AutoAugment's policy for CIFAR (`POLICY`): one of 25 pairs of operations, each operation with
    its own probability. What moves in from outside is grey.
    cutout: a grey square of this side; its centre is uniform over the pixels, and what reaches over the border is cut
    off (DeVries & Taylor 2017).
    degrees, scale: turn about the centre by U[−degrees, degrees] and zoom by U[1 − scale, 1 + scale], in a single
    bilinear interpolation with zeros outside.
    rescaled: this share of the out-distribution, and nothing of the in-distribution, is shown at another scale. Half of
    it from close up, a part of 1/8 to 1/2 of the image's sides, which is smooth and without objects; half from afar,
    3/2 to 4 times the image's sides, where its mirror images go on, which is rough and has many. Bilinear, without a
    filter. So outliers are made that look like neither set, of which one set of photographs has few.
    crop: a random square of this side is cut out of the larger image, and the network takes images of this side.
    resized: the square that `crop` takes has U[1 − resized, 1] of the image's shorter side, and is resized bilinearly.
    colour: brightness, contrast and saturation are each multiplied by a number of U[1 − colour, 1 + colour].

    All but the last six work on bytes and are exact: they agree with Pillow bit for bit.
    """

    pad: int = 0
    flip: bool = False
    autoaugment: bool = False
    cutout: int = 0
    degrees: float = 0
    scale: float = 0
    border: Literal["zeros", "reflect"] = "zeros"
    rescaled: float = 0
    crop: int = 0
    resized: float = 0
    colour: float = 0

    def __post_init__(self) -> None:
        limits: list[tuple[str, float, int]] = [("pad", self.pad, _MOST), ("cutout", self.cutout, _MOST)]
        limits += [("degrees", self.degrees, 180), ("rescaled", self.rescaled, 1), ("crop", self.crop, _LARGEST)]
        for name, value, most in limits:
            if not 0 <= value <= most:
                raise BadValue(f"augmentation cannot have {name} = {value}: choose {name} from 0 to {most}")
        if self.border not in ("zeros", "reflect"):
            raise BadValue(f"augmentation cannot pad with {self.border!r}: choose border = 'zeros' or 'reflect'")
        if not 0 <= self.scale < 1:
            raise BadValue(f"augmentation cannot zoom by 1 ± {self.scale}: choose scale ≥ 0 and below 1")
        for name, value in (("resized", self.resized), ("colour", self.colour)):
            if not 0 <= value < 1:
                raise BadValue(f"augmentation cannot have {name} = {value}: choose {name} ≥ 0 and below 1")
        if self.resized and not self.crop:
            raise BadValue(f"resized = {self.resized} resizes a crop: say its side with crop = 56, say")

    def shape(self, image: tuple[int, int, int]) -> tuple[int, int, int]:
        """What images of this shape are when a network gets them."""
        if self.crop > min(image[1:]) and not self.resized:
            sides = "×".join(map(str, image[1:]))
            raise BadValue(
                f"images of {sides} pixels hold no crop = {self.crop}: choose at most {min(image[1:])}, or resized"
            )
        return (image[0], self.crop, self.crop) if self.crop else image

    def draw(self, count: int, generator: torch.Generator, *, outside: bool = False) -> Tensor:
        """(count, COLUMNS) in float64 on the CPU, a row for each image.

        Rows down and columns right, which say where in the padded image the crop lies; flip (0 or 1); code and signed
        magnitude of AutoAugment's first and of its second operation (0 for none); the centre of the hole, down and
        right, as parts of the sides; degrees counter-clockwise; zoom; the view at another scale: its side (1 for
        none), and how far of its way it is moved, down and right; the crop: the part of the shorter side that it
        shows, and how far of its way it is moved; factors of brightness, contrast and saturation. All are always
        drawn, so that switching one option leaves the others' draws alone.
        """
        return self.choose(self.uniform(count, generator, outside=outside))

    @staticmethod
    def uniform(count: int, generator: torch.Generator, *, outside: bool = False) -> Tensor:
        """The random numbers that `choose` takes, for images of the in- or of the out-distribution."""
        # The sub-policy and two signs are drawn; a row keeps only the operations that follow from them.
        others = torch.rand(count, 12, generator=generator, dtype=torch.float64)
        # Whether, how large, and where, down and right: last, so that the others are what they were before views.
        views = torch.rand(count, 4, generator=generator, dtype=torch.float64)
        if not outside:
            views[:, 0] = 1  # which is not below any share
        crops = torch.rand(count, 6, generator=generator, dtype=torch.float64)
        return torch.cat([others, views, crops], dim=1)

    def choose(self, uniform: Tensor) -> Tensor:
        """`draw`, from uniform numbers: a batch's, or those of many batches one below the other."""
        # In float64, because u · (2 pad + 1) in float32 comes close to rounding up to the next integer. With numpy,
        # whose calls cost less than those of PyTorch: on tensors this small, nothing else counts.
        u = uniform.numpy()
        draws = np.empty((len(u), COLUMNS))
        draws[:, :2] = np.floor(u[:, :2] * (2 * self.pad + 1)) - self.pad
        draws[:, 2] = (u[:, 2] < 0.5) & self.flip
        draws[:, 3:7] = operations.choose(u[:, 3:8]) * self.autoaugment
        draws[:, 7:9] = u[:, 8:10]
        draws[:, 9] = (2 * u[:, 10] - 1) * self.degrees
        draws[:, 10] = 1 + (2 * u[:, 11] - 1) * self.scale
        close, far = (least + (most - least) * u[:, 13] for least, most in (_CLOSE, _FAR))
        draws[:, 11] = np.where(u[:, 12] < self.rescaled / 2, close, np.where(u[:, 12] < self.rescaled, far, 1))
        draws[:, 12:14] = u[:, 14:16]
        draws[:, 14] = 1 - u[:, 16] * self.resized
        draws[:, 15:17] = u[:, 17:19]
        draws[:, 17:20] = 1 + (2 * u[:, 19:22] - 1) * self.colour
        return torch.from_numpy(draws)

    def apply(self, images: Tensor, draws: Tensor) -> Tensor:
        """The augmented images in [0, 1], float32, on their device: uint8 images, and draws on the CPU.

        Row i of `draws` belongs to image i.
        """
        if images.ndim != 4 or images.dtype != torch.uint8 or images.shape[1] not in (1, 3):
            raise BadValue(f"augmentation takes uint8 images NCHW, C 1 or 3, not {images.dtype} {tuple(images.shape)}")
        self.shape((images.shape[1], images.shape[2], images.shape[3]))
        if draws.shape != (len(images), COLUMNS):
            raise Mismatch(f"{len(images)} images take {len(images)} × {COLUMNS} draws, not {tuple(draws.shape)}")
        plan = self.plan(draws, images.shape[2], images.shape[3])
        if images.device.type == "cpu":
            # Bytes have no gradient, and without the books that are kept for one, small operations are 10% faster.
            with torch.inference_mode():
                images = self._bytes(images, plan, operations.by_rows)
            return self._floats(images, plan)
        if images.device.type == "cuda":
            plan = plan.pin_memory()  # from other memory, a copy to the GPU waits for all that was asked of it before
        return self.on_device(images, plan.to(images.device, non_blocking=True))

    def plan(self, draws: Tensor, height: int, width: int) -> Tensor:
        """What the draws mean for images of this size: one float64 tensor on the host, a row for each image.

        Columns: rows, columns and flip as drawn; two steps of `operations`; top, bottom, left and right end of the
        hole; cosine and sine of the angle, divided by the zoom; the view and the colours as drawn; top and left end and
        side of the crop, in pixels.
        """
        rows = draws.numpy()
        first = np.floor(rows[:, 7:9] * (height, width)) - self.cutout // 2
        hole = np.stack([first, first + self.cutout], axis=2).reshape(-1, 4)
        steps = [operations.planned(rows[:, k], rows[:, k + 1], height, width) for k in (3, 5)]
        circle = np.zeros((len(rows), 2))
        if self.degrees or self.scale:
            # By the mathematics of Python: batched sines may round differently in batches of different size, and then
            # an image would depend on its neighbours.
            turns = [(math.radians(degrees), zoom) for degrees, zoom in rows[:, 9:11].tolist()]
            pairs = [(math.cos(angle) / zoom, math.sin(angle) / zoom) for angle, zoom in turns]
            circle = np.array(pairs, dtype=np.float64).reshape(-1, 2)
        side = rows[:, 14:15] * min(height, width) if self.resized else np.full((len(rows), 1), float(self.crop))
        room = np.array([height, width]) - side
        corner = room * rows[:, 15:17] if self.resized else np.floor((room + 1) * rows[:, 15:17])
        columns = [rows[:, :3], *steps, hole, circle, rows[:, 11:14], corner, side, rows[:, 17:]]
        return torch.from_numpy(np.concatenate(columns, axis=1))

    def on_device(self, images: Tensor, plan: Tensor) -> Tensor:
        """`apply` for a plan that lies beside the images, without a word to the host: made for `torch.compile`."""
        return self._floats(self._bytes(images, plan, operations.for_all), plan)

    def _bytes(self, images: Tensor, plan: Tensor, operate: operations.Way) -> Tensor:
        moves, first, second, hole, *_ = torch.split(plan, _PARTS, dim=1)
        if self.pad or self.flip:
            images = geometry.move(images, moves, self.pad, reflect=self.border == "reflect")
        if self.autoaugment:
            images = operate(operate(images, first), second)
        if self.cutout:
            images = geometry.cut(images, hole)
        return images

    def _floats(self, images: Tensor, plan: Tensor) -> Tensor:
        floats = images.to(torch.float32).div_(255)
        *_, circle, views, squares, colours = torch.split(plan, _PARTS, dim=1)
        if self.degrees or self.scale:
            floats = geometry.turn(floats, circle)
        if self.rescaled:
            floats = geometry.view(floats, views)
        if self.crop:
            floats = geometry.crop(floats, squares, self.crop)
        return jitter(floats, colours) if self.colour else floats
