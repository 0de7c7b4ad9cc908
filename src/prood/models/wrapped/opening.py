"""From the name of a classifier to a wrapped one that has answered a few images."""

import ast
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from prood.errors import BadValue, Diverged, Mismatch, NoAccess, NotFound, Unsupported
from prood.models.architectures import spec_of
from prood.models.confidence import look_like_probabilities
from prood.models.discriminators import Discriminator
from prood.models.joint import ProoD
from prood.models.wrapped.module import Facts, Wrapped
from prood.models.wrapped.packages import open_network
from prood.models.wrapped.preprocessing import Preprocessing
from prood.models.wrapped.programs import ENDINGS, Source, content_of, in_one_line, kind_of, open_program, sha256
from prood.models.wrapped.trust import trusting_code

PACKAGES = ("torchvision", "timm", "hf")


@dataclass(frozen=True)
class WrapOptions:
    """What a user may say of a classifier; None is what it says itself, or what a look at it tells.

    `image`, `resize`, `interpolation`, `mean` and `std` are those of `Preprocessing`. `joint_image` is the shape of the
    images that the joint model takes, if it is not to be the classifier's. `output` names the logits among
    several things that it returns. `probabilities`: it ends in a softmax. `weights` is a .safetensors file for
    torchvision:NAME and timm:NAME. `classes` are the names of its classes. `trust_code` lets TorchScript run.
    """

    image: tuple[int, int, int] | None = None
    resize: int | tuple[int, int] | None = None
    interpolation: str | None = None
    mean: tuple[float, ...] | None = None
    std: tuple[float, ...] | None = None
    output: str | int | None = None
    probabilities: bool | None = None
    weights: Path | None = None
    classes: tuple[str, ...] | None = None
    joint_image: tuple[int, int, int] | None = None
    trust_code: bool = False


def open_classifier(
    classifier: str | Path, image: Sequence[int], *, options: WrapOptions | None = None
) -> tuple[Wrapped, tuple[str, ...] | None]:
    """The classifier of this name for images of shape `image`, and the names of its classes if they are known.

    `torchvision:resnet50`, `timm:resnet18.a1_in1k`, `hf:FOLDER-OR-NAME`, a file (.onnx, .pt, .pt2), or a run of ours.
    A few images are tried: what does not take them, answers NaN or answers otherwise the next time is refused.
    """
    options = options or WrapOptions()
    with trusting_code(options.trust_code):
        return opened(found_source(str(classifier), options), classifier, image, options)


def opened(
    source: Source, classifier: str | Path, image: Sequence[int], options: WrapOptions
) -> tuple[Wrapped, tuple[str, ...] | None]:
    """The same, of a source that was found already."""
    shape = (int(image[0]), int(image[1]), int(image[2]))
    facts = facts_of(source, options, shape)
    images = trial_images(shape)
    answer = _raw(_made(facts, source), images)
    count = answer.shape[1]
    if count < 2:
        raise Unsupported(f"{classifier} returns one number for an image: a classifier has two classes or more")
    is_softmax = look_like_probabilities(answer) if options.probabilities is None else options.probabilities
    if is_softmax and not (answer >= 0).all():
        raise Unsupported(f"{classifier} returns negative numbers: they are logits, not probabilities")
    names = source.names if options.classes is None else options.classes
    if names is not None and len(names) != count:
        raise Mismatch(f"{classifier} has {count} classes, and there are {len(names)} names for them")
    wrapped = _made(replace(facts, classes=count, probabilities=is_softmax), source)
    _try(wrapped, images)
    wrapped.opened_for = shape
    return wrapped, names


def trial_images(shape: tuple[int, int, int]) -> Tensor:
    """Four images in [0, 1]: two of noise, a ramp and plain grey; the same every time."""
    noise = torch.rand((2, *shape), generator=torch.Generator().manual_seed(0))
    ramp = torch.linspace(0, 1, shape[2]).expand(1, *shape)
    return torch.cat([noise, ramp, torch.full((1, *shape), 0.5)])


def is_run(classifier: str | Path) -> bool:
    """Whether a classifier is named that Prood trained: a run's folder or a .safetensors file."""
    package, colon, _ = str(classifier).partition(":")
    path = Path(classifier)
    if path.suffix == ".safetensors":
        return True
    return not (colon and package in PACKAGES) and not path.is_file() and path.suffix not in (*ENDINGS.values(), ".pth")


def found_source(text: str, options: WrapOptions) -> Source:
    package, colon, name = text.partition(":")
    if colon and package in PACKAGES:
        count = None if options.classes is None else len(options.classes)
        return open_network(package, name, weights=options.weights, classes=count)
    if options.weights is not None:
        raise BadValue("--weights belongs to torchvision:NAME and timm:NAME: this classifier has its own")
    path = Path(text)
    if path.is_file() and path.suffix != ".safetensors":
        return _program(path)
    if path.suffix in (*ENDINGS.values(), ".pth"):
        raise NotFound(f"there is no file {path}: name a classifier's file, a run, or torchvision:, timm: or hf:NAME")
    from prood.models.files import load

    network, about = load(text)
    if isinstance(network, Discriminator | ProoD | Wrapped):
        raise BadValue(f"{text} holds a {type(network).__name__}: give a plain classifier")
    names = None if about.classes is None else tuple(about.classes)
    trained = None if about.image is None else Preprocessing((about.image[0], about.image[1], about.image[2]))
    return Source("prood", network=network, model=spec_of(network), names=names, preprocessing=trained)


def _program(path: Path) -> Source:
    try:
        content = content_of(path)
    except OSError as error:
        raise NoAccess(f"cannot read {path} ({error.strerror or error}): check its permissions") from None
    kind = kind_of(path, content)
    program = open_program(kind, content)
    return Source(kind, path=path, content=content, program=program, names=_names_in(program.notes))


def facts_of(source: Source, options: WrapOptions, shape: tuple[int, int, int]) -> Facts:
    """All but the number of classes, which is known once it has answered."""
    axes = None if source.program is None else source.program.shape
    layout, batch, (channels, height, width) = _declared(axes, shape)
    network = source.network if source.program is None else source.program.network
    if axes is None and network is not None:  # guessed from the first convolution, where nothing else is known
        first = next((int(weight.shape[1]) for weight in network.parameters() if weight.ndim == 4), 0)
        channels = first if first in (1, 3) else channels
    own = source.preprocessing or Preprocessing(options.image or (channels, height, width))
    given = {name: getattr(options, name) for name in ("image", "resize", "interpolation", "mean", "std")}
    if options.image is not None and options.resize is None:
        given["resize"] = options.image[1:]  # a size that was given is the whole image's, with nothing cut off
    preprocessing = replace(own, **{name: value for name, value in given.items() if value is not None})
    output = source.output if options.output is None else options.output
    digest = None if source.content is None else sha256(source.content)
    file = None if digest is None else f"classifier-{digest[:12]}{ENDINGS[source.kind]}"
    return Facts(
        source.kind, 2, preprocessing, output, layout=layout, batch=batch, file=file, sha256=digest, model=source.model
    )


def _declared(
    axes: tuple[int | None, ...] | None, shape: tuple[int, int, int]
) -> tuple[str, int | None, tuple[int, int, int]]:
    """Layout, the one length of its batches, and the image's shape by what a program says of its input."""
    if axes is None:
        return "NCHW", None, shape
    if len(axes) != 4:
        raise Unsupported(f"the classifier takes input with {len(axes)} axes: images have four, (N, C, H, W)")
    last = axes[3] in (1, 3) and axes[1] not in (1, 3)
    batch, *sides = axes if not last else (axes[0], axes[3], axes[1], axes[2])
    channels, height, width = (side or known for side, known in zip(sides, shape, strict=True))
    return "NHWC" if last else "NCHW", batch, (channels, height, width)


def _made(facts: Facts, source: Source) -> Wrapped:
    wrapped = Wrapped(facts, source.network)
    wrapped.program, wrapped.path, wrapped.content = source.program, source.path, source.content
    return wrapped.eval()


def _raw(wrapped: Wrapped, images: Tensor) -> Tensor:
    """What the classifier itself returns, before it is known to be logits or probabilities."""
    fault = f"the classifier does not take images as {wrapped.facts.preprocessing}, say --image 3x224x224 or the like"
    with in_one_line(fault, Mismatch), torch.no_grad():
        answer = wrapped.answer(images)
    if len(answer) != len(images):
        raise Unsupported(f"the classifier returned {len(answer)} answers to {len(images)} images")
    if not answer.isfinite().all():
        raise Diverged("the classifier returns NaN or infinity: check its weights, --mean and --std")
    return answer


@torch.no_grad()
def _try(wrapped: Wrapped, images: Tensor) -> None:
    """A classifier answers each image by itself, and always the same. One exported in training mode does not."""
    first, again, alone = wrapped(images), wrapped(images), wrapped(images[:1])
    slack = 1e-3 * (1 + first.abs().max())
    if (first - again).abs().max() > slack or (first[:1] - alone).abs().max() > slack:
        fault = "the classifier answers an image otherwise the next time, or in another batch, as in training mode"
        raise Unsupported(f"{fault}: call .eval() on it before the export")


def _names_in(notes: Any) -> tuple[str, ...] | None:
    """The names of the classes in the notes of an ONNX file: a list, or numbers and names, as JSON or Python."""
    for key in ("classes", "names", "labels", "class_names", "id2label"):
        text = notes.get(key)
        for parse in (json.loads, ast.literal_eval):
            try:
                value = parse(text)
            except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
                continue
            if isinstance(value, dict) and all(str(number).isdigit() for number in value):
                value = [value[number] for number in sorted(value, key=int)]
            if isinstance(value, list) and value and all(isinstance(name, str) for name in value):
                return tuple(value)
    return None
