"""Discriminators, classifiers, the joint model, their scores, and files on disk."""

# Importing a module registers its architectures, by which a file builds its network again.
# ruff: noqa: F401 – what is not in `__all__` was public here, and stays for one version
from prood.models.architectures import Metadata, architecture, build, spec_of
from prood.models.baselines import EnergyClassifier, ExtraClass
from prood.models.certified import CertifiedClassifier, certified_classifier
from prood.models.classifiers import compact, resnet18, resnet50, small
from prood.models.committee import Committee, committee_of
from prood.models.discriminators import Discriminator, discriminator
from prood.models.files import MODEL_FILE, fingerprint, load, model_path, read_metadata, rounded, save
from prood.models.fusion import Curve, Fusion
from prood.models.gated import Gate, Gated
from prood.models.imagenet import efficientnet_lite0
from prood.models.joint import ProoD, confidence_logit, fuse, product_logit
from prood.models.mixture_classifier import MixtureClassifier
from prood.models.mixtures import MixtureRatio
from prood.models.score import Confidence, InLogit, JointConfidence, Score, score_of, scores
from prood.models.sizes import CLASSIFIER_SIZES, SIZES, check_size, words_of
from prood.models.wrapped import WrapOptions, Wrapped, open_classifier, trial_images

__all__ = [
    "MODEL_FILE",
    "Committee",
    "Confidence",
    "Discriminator",
    "Fusion",
    "Gate",
    "Gated",
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
