"""Somebody else's classifier inside a joint model: torchvision, timm, Hugging Face, ONNX, TorchScript, torch.export."""

from prood.models.wrapped.beside import open_beside
from prood.models.wrapped.classes import read_classes
from prood.models.wrapped.module import Facts, Wrapped, wrapped_parts
from prood.models.wrapped.opening import WrapOptions, is_run, open_classifier, trial_images
from prood.models.wrapped.preprocessing import INTERPOLATIONS, Preprocessing
from prood.models.wrapped.trust import trust, trusting_code

__all__ = [
    "INTERPOLATIONS",
    "Facts",
    "Preprocessing",
    "WrapOptions",
    "Wrapped",
    "is_run",
    "open_beside",
    "open_classifier",
    "read_classes",
    "trial_images",
    "trust",
    "trusting_code",
    "wrapped_parts",
]
