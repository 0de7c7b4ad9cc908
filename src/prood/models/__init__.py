"""Discriminators, classifiers, the joint model, their scores, and files on disk."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

# Importing a module registers its architectures, by which a file builds its network again.
from prood.models import certified, energy, extra_class, mixture_classifier  # noqa: F401
from prood.models.architectures import architecture, build, spec_of
from prood.models.classifiers import small
from prood.models.discriminators import Discriminator, discriminator
from prood.models.files import MODEL_FILE, fingerprint, load, model_path, read_metadata, save
from prood.models.fusion import Curve, Fusion
from prood.models.joint import ProoD, fuse
from prood.models.metadata import Metadata
from prood.models.score import Confidence, InLogit, Score, score_of
from prood.models.wrapped import WrapOptions, open_classifier

__all__ = [
    "MODEL_FILE",
    "Confidence",
    "Curve",
    "Discriminator",
    "Fusion",
    "InLogit",
    "Metadata",
    "ProoD",
    "Score",
    "WrapOptions",
    "architecture",
    "build",
    "discriminator",
    "fingerprint",
    "fuse",
    "load",
    "model_path",
    "open_classifier",
    "read_metadata",
    "save",
    "score_of",
    "small",
    "spec_of",
]

if not TYPE_CHECKING:
    _MOVED = {  # names that were public here: they stay for one version
        "certified": ("CLASSIFIER_SIZES", "CertifiedClassifier", "certified_classifier"),
        "classifiers": ("compact", "resnet18", "resnet50"),
        "discriminators": ("SIZES",),
        "energy": ("EnergyClassifier",),
        "extra_class": ("ExtraClass",),
        "files": ("rounded",),
        "fusion": ("product_logit",),
        "joint": ("confidence_logit",),
        "mixture_classifier": ("MixtureClassifier",),
        "mixtures": ("MixtureRatio",),
        "score": ("JointConfidence", "scores"),
        "wrapped": ("Wrapped", "trial_images"),
    }

    def __getattr__(name: str) -> Any:
        for module, names in _MOVED.items():
            if name in names:
                return getattr(import_module(f"prood.models.{module}"), name)
        raise AttributeError(f"module 'prood.models' has no attribute {name!r}")
