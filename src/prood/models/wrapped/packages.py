"""Classifiers that a package builds: torchvision, timm, Hugging Face transformers.

Their weights become tensors of Prood's own file; the package is needed again to build the network around them.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import nn

from prood.errors import BadValue, Damaged, Mismatch, Unsupported, first_line
from prood.models.wrapped.preprocessing import Preprocessing
from prood.models.wrapped.programs import Source, imported, in_one_line

_TAKEN = {
    "torchvision": {"name", "num_classes", "transform_input", "aux_logits", "init_weights"},
    "timm": {"name", "num_classes"},
    "hf": {"name", "config"},
}
"""What these are built from in a run, and no more: timm would open a checkpoint by its path, and fetch others."""
_HF_FILTERS = {0: "nearest", 2: "bilinear", 3: "bicubic"}


def build_network(kind: str, model: Mapping[str, Any]) -> nn.Module:
    """The network that a spec describes, with weights yet to be loaded. Nothing is downloaded, no foreign code run."""
    plain = kind == "hf" or re.fullmatch(r"[\w.]+", str(model.get("name")))  # timm also takes addresses and folders
    if not plain or not model.keys() <= _TAKEN[kind]:
        raise Damaged(f"a run builds {kind} networks by {', '.join(sorted(_TAKEN[kind]))}, and not from {dict(model)}")
    with in_one_line(f"{kind} cannot build {model.get('name', 'the model')}"):
        return _built(kind, dict(model)).float().eval()


def open_network(kind: str, name: str, *, weights: Path | None, classes: int | None) -> Source:
    """A pretrained model by the package's name for it, or its network with the weights of a .safetensors file."""
    opener = {"torchvision": _open_torchvision, "timm": _open_timm, "hf": _open_hf}[kind]
    with in_one_line(f"{kind} cannot give the classifier {name!r}"):
        return opener(name, weights, classes)


def _built(kind: str, model: dict[str, Any]) -> nn.Module:
    network: nn.Module
    if kind == "hf":
        transformers = _package("transformers")
        config = transformers.AutoConfig.for_model(**model["config"])
        network = transformers.AutoModelForImageClassification.from_config(config, dtype=torch.float32)
    elif kind == "timm":
        network = _package("timm").create_model(model.pop("name"), pretrained=False, **model)
    else:
        network = _package("torchvision").models.get_model(model.pop("name"), weights=None, **model)
    return network


def _package(name: str) -> Any:
    return imported(name, f"pip install -c constraints.txt {name}")


def _open_torchvision(name: str, weights: Path | None, classes: int | None) -> Source:
    models = _package("torchvision").models
    name, _, tag = name.partition("@")
    entry = getattr(models.get_model_weights(name), tag or "DEFAULT")
    names = None
    if weights is None:
        network, names = models.get_model(name, weights=entry), tuple(entry.meta["categories"])
        model = {"name": name, "num_classes": len(names)}
        if hasattr(network, "transform_input"):  # GoogLeNet and Inception: built otherwise with weights than without
            model |= {"transform_input": network.transform_input, "aux_logits": network.aux_logits}
            model |= {"init_weights": False}
    else:
        extra = {"init_weights": False} if name in ("googlenet", "inception_v3") else {}
        model, network = _with_weights("torchvision", name, weights, classes, extra)
    preset = entry.transforms()
    side, resize, mean, std = preset.crop_size[0], preset.resize_size[0], tuple(preset.mean), tuple(preset.std)
    preprocessing = Preprocessing((3, side, side), resize, preset.interpolation.value, mean, std)
    return Source("torchvision", network=network, model=model, preprocessing=preprocessing, names=names)


def _open_timm(name: str, weights: Path | None, classes: int | None) -> Source:
    timm = _package("timm")
    names = None
    if weights is None:
        network = timm.create_model(name, pretrained=True)
        model = {"name": network.pretrained_cfg.get("architecture", name), "num_classes": network.num_classes}
        names = network.pretrained_cfg.get("label_names")
        if not names and (subset := timm.data.infer_imagenet_subset(network)):
            info = timm.data.ImageNetInfo(subset)
            names = [info.index_to_description(index) for index in range(info.num_classes())]
    else:
        model, network = _with_weights("timm", name, weights, classes, {})
    facts = timm.data.resolve_model_data_config(network)
    channels, height, width = facts["input_size"]
    central = height == width and facts["crop_mode"] == "center"
    resize = int(height / facts["crop_pct"]) if central else None
    mean, std = tuple(facts["mean"]), tuple(facts["std"])
    preprocessing = Preprocessing((channels, height, width), resize, facts["interpolation"], mean, std)
    names = tuple(map(str, names)) if names else None
    return Source("timm", network=network, model=model, preprocessing=preprocessing, names=names)


def _with_weights(
    kind: str, name: str, path: Path, classes: int | None, extra: dict[str, Any]
) -> tuple[dict[str, Any], nn.Module]:
    """What the network is built from, and the network with the weights of a file.

    Without names of the classes there are as many as the last bias has numbers, which is the last layer's.
    """
    if path.suffix != ".safetensors":
        writer = "safetensors.torch.save_file(model.state_dict(), 'weights.safetensors')"
        raise Unsupported(f"{path} is not a .safetensors file, and Prood loads no pickles: write it with {writer}")
    try:
        values = load_file(path)
    except (SafetensorError, OSError) as error:
        raise Damaged(f"cannot read the weights {path}: {first_line(error)}") from None
    if classes is None:
        last = list(_built(kind, {"name": name}).state_dict())[-1]
        if last not in values:
            raise Mismatch(f"the weights hold no {last}: they belong to another network")
        classes = len(values[last])
    model = {"name": name, "num_classes": classes} | extra
    network = _built(kind, dict(model))
    try:
        network.load_state_dict(values)
    except RuntimeError as error:
        detail = " ".join(str(error).split())[:200]
        raise Mismatch(f"{path} does not hold weights of this network: {detail}") from None
    return model, network


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
        raise Unsupported(f"{name} is a multi-label classifier: Prood needs one class per image")
    labels = getattr(config, "id2label", None) or {}
    names = tuple(str(labels[key]) for key in sorted(labels, key=int))
    nameless = all(re.fullmatch(r"LABEL_\d+", one) for one in names)  # what transformers writes for want of names
    kept = json.loads(config.to_json_string(use_diff=False))
    kept = {key: value for key, value in kept.items() if not key.startswith("_") and key != "auto_map"}
    # Read as it is: the processors themselves need torchvision.
    facts = json.loads(Path(transformers.utils.cached_file(name, "preprocessor_config.json")).read_text("utf-8"))
    side = getattr(config, "image_size", None) or 224
    preprocessing = hf_preprocessing(facts, getattr(config, "num_channels", 3), side)
    found = Source("hf", network, {"name": str(name), "config": kept}, preprocessing=preprocessing, output="logits")
    return found if nameless else replace(found, names=names)


def hf_preprocessing(facts: Mapping[str, Any], channels: int, side: int | list[int]) -> Preprocessing:
    """By the facts of a preprocessor_config.json; `side` is what the network says where these are silent."""
    size = facts.get("size") if facts.get("do_resize", True) else None
    crop = facts.get("crop_size") if facts.get("do_center_crop", False) else None
    shape = _pair(next(one for one in (crop, size, side) if one is not None))
    resize: int | tuple[int, int] | None = None
    if size is not None:
        height, width = _pair(size)
        shortest = isinstance(size, int) or (isinstance(size, dict) and "shortest_edge" in size)
        resize = height if shortest else (height, width)
        # ConvNeXT and PoolFormer: the size is what is left after the crop; from 384 on ConvNeXT cuts nothing.
        if share := facts.get("crop_pct"):
            resize = int(height / share) if crop is not None or height < 384 else (height, width)
    code = facts.get("resample", 2)
    # (255·f·x − o − mean)/std, where f and o rescale a byte; f is 1/255 and o is 0 for nearly all.
    scale = 255 * facts.get("rescale_factor", 1 / 255) if facts.get("do_rescale", True) else 255.0
    scale = 1.0 if abs(scale - 1) < 1e-9 else scale
    offset = 1.0 if facts.get("rescale_offset", False) else 0.0
    given = facts if facts.get("do_normalize", True) else {}
    mean = tuple((value + offset) / scale for value in given.get("image_mean") or [0.0] * channels)
    std = tuple(value / scale for value in given.get("image_std") or [1.0] * channels)
    return Preprocessing((channels, *shape), resize, _HF_FILTERS.get(code, f"of Pillow's number {code}"), mean, std)


def _pair(value: Any) -> tuple[int, int]:
    """A size is a number, a height and a width, or a shortest edge."""
    if isinstance(value, dict):
        edge = value.get("shortest_edge")
        return (value["height"], value["width"]) if edge is None else (edge, edge)
    return (value[0], value[1]) if isinstance(value, list | tuple) else (value, value)
