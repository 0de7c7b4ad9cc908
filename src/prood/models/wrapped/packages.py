"""Classifiers that a package builds: torchvision, timm, Hugging Face transformers.

Their weights become tensors of Prood's own file; the package is needed again to build the network around them.
"""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from prood.errors import BadValue, Damaged, Mismatch, ProodError, Unsupported
from prood.models.wrapped.foreign import first_line, imported
from prood.models.wrapped.preprocessing import Preprocessing
from prood.models.wrapped.source import Source

_HF_FILTERS = {0: "nearest", 2: "bilinear", 3: "bicubic"}


def build_network(kind: str, model: Mapping[str, Any]) -> nn.Module:
    """The network that a spec describes, with weights yet to be loaded. Nothing is downloaded, no foreign code run."""
    builder = {"torchvision": _build_torchvision, "timm": _build_timm, "hf": _build_hf}[kind]
    try:
        return builder(dict(model)).float().eval()
    except ProodError:
        raise
    except Exception as error:  # packages raise what they like
        raise Unsupported(f"{kind} cannot build {model.get('name', 'the model')}: {first_line(error)}") from None


def open_network(kind: str, name: str, *, weights: Path | None, classes: int | None) -> Source:
    """A pretrained model by the package's name for it, or its network with the weights of a .safetensors file."""
    opener = {"torchvision": _open_torchvision, "timm": _open_timm, "hf": _open_hf}[kind]
    try:
        return opener(name, weights, classes)
    except ProodError:
        raise
    except Exception as error:  # no network, no such model, a package's own errors
        raise Unsupported(f"{kind} cannot give the classifier {name!r}: {first_line(error)}") from None


def _build_torchvision(model: dict[str, Any]) -> nn.Module:
    network: nn.Module = _package("torchvision").models.get_model(model.pop("name"), weights=None, **model)
    return network


def _open_torchvision(name: str, weights: Path | None, classes: int | None) -> Source:
    models = _package("torchvision").models
    name, _, tag = name.partition("@")
    choices = models.get_model_weights(name)
    known = getattr(choices, tag or "DEFAULT")
    if weights is None:
        network = models.get_model(name, weights=known)
        model = {"name": name, "num_classes": len(known.meta["categories"])} | _inception_arguments(network)
    else:
        values = _weights(weights)
        model = {"name": name, "num_classes": _count(models.get_model(name, weights=None), values, classes)}
        model |= {"init_weights": False} if name in ("googlenet", "inception_v3") else {}
        network = _loaded(_build_torchvision(dict(model)), values, weights)
    preset = known.transforms()
    preprocessing = Preprocessing(
        (3, preset.crop_size[0], preset.crop_size[0]),
        preset.resize_size[0],
        preset.interpolation.value,
        tuple(preset.mean),
        tuple(preset.std),
    )
    names = tuple(known.meta["categories"]) if weights is None else None
    return Source("torchvision", network=network, model=model, preprocessing=preprocessing, names=names)


def _inception_arguments(network: nn.Module) -> dict[str, Any]:
    """GoogLeNet and Inception are built otherwise with pretrained weights than without."""
    if not hasattr(network, "transform_input"):
        return {}
    return {"transform_input": network.transform_input, "aux_logits": network.aux_logits, "init_weights": False}


def _build_timm(model: dict[str, Any]) -> nn.Module:
    network: nn.Module = _package("timm").create_model(model.pop("name"), pretrained=False, **model)
    return network


def _open_timm(name: str, weights: Path | None, classes: int | None) -> Source:
    timm = _package("timm")
    if weights is None:
        network = timm.create_model(name, pretrained=True)
        model = {"name": network.pretrained_cfg.get("architecture", name), "num_classes": network.num_classes}
    else:
        values = _weights(weights)
        model = {"name": name, "num_classes": _count(timm.create_model(name, pretrained=False), values, classes)}
        network = _loaded(_build_timm(dict(model)), values, weights)
    settings = timm.data.resolve_model_data_config(network)
    channels, height, width = settings["input_size"]
    share = settings["crop_pct"]
    preprocessing = Preprocessing(
        (channels, height, width),
        int(height / share) if height == width and settings["crop_mode"] == "center" else None,
        settings["interpolation"],
        tuple(settings["mean"]),
        tuple(settings["std"]),
    )
    names = _timm_names(timm, network) if weights is None else None
    return Source("timm", network=network, model=model, preprocessing=preprocessing, names=names)


def _timm_names(timm: Any, network: Any) -> tuple[str, ...] | None:
    own = network.pretrained_cfg.get("label_names")
    if own:
        return tuple(map(str, own))
    subset = timm.data.infer_imagenet_subset(network)
    if not subset:
        return None
    info = timm.data.ImageNetInfo(subset)
    return tuple(info.index_to_description(index) for index in range(info.num_classes()))


def _build_hf(model: dict[str, Any]) -> nn.Module:
    transformers = _package("transformers")
    config = transformers.AutoConfig.for_model(**model["config"])
    network: nn.Module = transformers.AutoModelForImageClassification.from_config(config, dtype=torch.float32)
    return network


def _open_hf(name: str, weights: Path | None, classes: int | None) -> Source:
    if weights is not None:
        raise BadValue("--weights belongs to torchvision:NAME and timm:NAME: a Hugging Face folder has its own")
    transformers = _package("transformers")
    # Safetensors only, and no code that a repository brings along.
    network = transformers.AutoModelForImageClassification.from_pretrained(
        name, use_safetensors=True, trust_remote_code=False, dtype=torch.float32
    )
    config = network.config
    if config.problem_type == "multi_label_classification":
        raise Unsupported(f"{name} gives each class a probability of its own: Prood needs one class for an image")
    labels = getattr(config, "id2label", None) or {}
    names: tuple[str, ...] | None = tuple(str(labels[key]) for key in sorted(labels, key=int))
    if all(re.fullmatch(r"LABEL_\d+", one) for one in names or ()):  # what transformers writes where nobody named them
        names = None
    kept = json.loads(config.to_json_string(use_diff=False))
    kept = {key: value for key, value in kept.items() if not key.startswith("_") and key != "auto_map"}
    return Source(
        "hf",
        network=network,
        model={"name": str(name), "config": kept},
        preprocessing=hf_preprocessing(
            # Read as it is: the processors themselves need torchvision.
            json.loads(Path(transformers.utils.cached_file(name, "preprocessor_config.json")).read_text("utf-8")),
            getattr(config, "num_channels", 3),
            getattr(config, "image_size", None) or 224,
        ),
        names=names,
        output="logits",
    )


def hf_preprocessing(facts: Mapping[str, Any], channels: int, side: int | list[int]) -> Preprocessing:
    """By the facts of a preprocessor_config.json; `side` is what the network says where these are silent."""
    size = facts.get("size") if facts.get("do_resize", True) else None
    crop = facts.get("crop_size") if facts.get("do_center_crop", False) else None
    resize, shape = _hf_size(size, crop, facts.get("crop_pct"), side)
    code = facts.get("resample", 2)
    # (255·f·x − o − mean)/std, where f and o rescale a byte; f is 1/255 and o is 0 for nearly all.
    scale = 255 * facts.get("rescale_factor", 1 / 255) if facts.get("do_rescale", True) else 255.0
    scale = 1.0 if abs(scale - 1) < 1e-9 else scale
    offset = 1.0 if facts.get("rescale_offset", False) else 0.0
    normalises = facts.get("do_normalize", True)
    mean = facts.get("image_mean") if normalises else None
    std = facts.get("image_std") if normalises else None
    return Preprocessing(
        (channels, *shape),
        resize,
        _HF_FILTERS.get(code, f"of Pillow's number {code}"),
        tuple((value + offset) / scale for value in mean or [0.0] * channels),
        tuple(value / scale for value in std or [1.0] * channels),
    )


def _hf_size(
    size: Any, crop: Any, share: float | None, side: int | list[int]
) -> tuple[int | tuple[int, int] | None, tuple[int, int]]:
    """What to resize to, and what is cut from it; a size is a number, a height and a width, or a shortest edge."""

    def pair(value: Any) -> tuple[int, int]:
        if isinstance(value, dict):
            edge = value.get("shortest_edge")
            return (value["height"], value["width"]) if edge is None else (edge, edge)
        return (value[0], value[1]) if isinstance(value, list | tuple) else (value, value)

    if size is None:
        return None, pair(crop if crop is not None else side)
    height, width = pair(size)
    short = isinstance(size, int) or (isinstance(size, dict) and "shortest_edge" in size)
    cut = pair(crop) if crop is not None else (height, width)
    if share:  # ConvNeXT and PoolFormer: the size is what is left after the crop; from 384 on ConvNeXT cuts nothing
        return (int(height / share) if crop is not None or height < 384 else (height, width)), cut
    return (height if short else (height, width)), cut


def _weights(path: Path) -> dict[str, Tensor]:
    if path.suffix != ".safetensors":
        raise Unsupported(
            f"{path} is no .safetensors file, and Prood loads no pickle: write it with "
            "safetensors.torch.save_file(model.state_dict(), 'weights.safetensors')"
        )
    try:
        return load_file(path)
    except (SafetensorError, OSError) as error:
        raise Damaged(f"cannot read the weights {path}: {first_line(error)}") from None


def _count(network: nn.Module, weights: Mapping[str, Tensor], classes: int | None) -> int:
    """The number of classes: of the names given, or the length of the last bias, which is the last layer's."""
    last = list(network.state_dict())[-1]
    if classes is None and last not in weights:
        raise Mismatch(f"the weights hold no {last}: they belong to another network")
    return len(weights[last]) if classes is None else classes


def _loaded(network: nn.Module, values: Mapping[str, Tensor], path: Path) -> nn.Module:
    try:
        network.load_state_dict(dict(values))
    except RuntimeError as error:
        detail = " ".join(str(error).split())[:200]
        raise Mismatch(f"{path} does not hold weights of this network: {detail}") from None
    return network


def _package(name: str) -> Any:
    install = f"pip install -c constraints.txt {name}"
    found = imported(name, install)
    if name in ("timm", "torchvision"):
        imported({"timm": "timm.data", "torchvision": "torchvision.models"}[name], install)
    return found
