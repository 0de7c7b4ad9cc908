"""Classifier networks: ResNet18 and a compact one for 32×32, ResNet50 for 224×224, a small one for 28×28 images.

All are Sequentials of stock layers and `Residual` sums, take images in [0, 1] and return logits.
"""

from collections.abc import Sequence

from torch import nn

from prood.bounds import Normalise, Residual
from prood.models.architectures import architecture

Numbers = Sequence[float]
CIFAR_MEAN, CIFAR_STD = (0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)
IMAGENET_MEAN, IMAGENET_STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


def _convolution(channels: int, width: int, kernel: int, stride: int = 1) -> list[nn.Module]:
    """A convolution without bias and its batch norm."""
    convolution = nn.Conv2d(channels, width, kernel, stride=stride, padding=kernel // 2, bias=False)
    return [convolution, nn.BatchNorm2d(width)]


def _block(channels: int, width: int, stride: int, *, bottleneck: bool) -> nn.Sequential:
    """One residual block of He et al. (2016), basic or bottleneck."""
    out = 4 * width if bottleneck else width
    if bottleneck:
        body = [*_convolution(channels, width, 1), nn.ReLU(), *_convolution(width, width, 3, stride), nn.ReLU()]
        body += _convolution(width, out, 1)
    else:
        body = [*_convolution(channels, width, 3, stride), nn.ReLU(), *_convolution(width, width, 3)]
    same = stride == 1 and channels == out
    shortcut = None if same else nn.Sequential(*_convolution(channels, out, 1, stride))
    return nn.Sequential(Residual(nn.Sequential(*body), shortcut), nn.ReLU())


def _resnet(stem: list[nn.Module], blocks: Sequence[int], classes: int, *, bottleneck: bool = False) -> nn.Sequential:
    layers, channels = list(stem), 64
    for stage, count in enumerate(blocks):
        for index in range(count):
            stride = 2 if stage > 0 and index == 0 else 1
            layers.append(_block(channels, 64 << stage, stride, bottleneck=bottleneck))
            channels = (64 << stage) * (4 if bottleneck else 1)
    network = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, classes))
    for layer in network.modules():
        if isinstance(layer, nn.Conv2d):
            nn.init.kaiming_normal_(layer.weight, mode="fan_out", nonlinearity="relu")
    return network


@architecture("resnet18")
def resnet18(classes: int = 10, *, mean: Numbers = CIFAR_MEAN, std: Numbers = CIFAR_STD) -> nn.Sequential:
    """The CIFAR ResNet18: 3×3 stem without pooling, 11,173,962 parameters for 10 classes."""
    return _resnet([Normalise(mean, std), *_convolution(len(mean), 64, 3), nn.ReLU()], (2, 2, 2, 2), classes)


@architecture("compact")
def compact(classes: int = 10, *, mean: Numbers = CIFAR_MEAN, std: Numbers = CIFAR_STD) -> nn.Sequential:
    """ResNet18's blocks in three stages of 3, 3 and 2: 3,147,082 parameters for 10 classes, few enough to ship."""
    return _resnet([Normalise(mean, std), *_convolution(len(mean), 64, 3), nn.ReLU()], (3, 3, 2), classes)


@architecture("resnet50")
def resnet50(classes: int = 1000, *, mean: Numbers = IMAGENET_MEAN, std: Numbers = IMAGENET_STD) -> nn.Sequential:
    """The standard ImageNet ResNet50: 25,557,032 parameters for 1,000 classes."""
    stem = [Normalise(mean, std), *_convolution(len(mean), 64, 7, 2), nn.ReLU(), nn.MaxPool2d(3, 2, 1)]
    return _resnet(stem, (3, 4, 6, 3), classes, bottleneck=True)


@architecture("small")
def small(
    classes: int = 10, *, width: int = 32, channels: int | None = None, mean: Numbers = (0.5,), std: Numbers = (0.25,)
) -> nn.Sequential:
    """A classifier for 28×28 digits that trains in seconds on a CPU: three convolutions, each with stride 2.

    What they leave, 4×4 positions, goes to the last layer unpooled: where a stroke lies tells digits apart. One `mean`
    or `std` is for all `channels`, of which there are else as many as there are means.
    """
    if width < 1:
        raise ValueError(f"width = {width} must be at least 1")
    channels = len(mean) if channels is None else channels
    if not 0 < channels < 2**20:
        raise ValueError(f"channels must be 1 or more, not {channels}")
    mean, std = (list(values) * channels if len(values) == 1 else values for values in (mean, std))
    if len(mean) != channels:
        raise ValueError(f"{len(mean)} means are not one for each of {channels} channels")
    layers: list[nn.Module] = [Normalise(mean, std)]
    for factor, kernel in ((1, 5), (2, 3), (4, 3)):
        layers += [*_convolution(channels, factor * width, kernel, 2), nn.ReLU()]
        channels = factor * width
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Linear(16 * channels, classes))
