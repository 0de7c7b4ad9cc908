"""Discriminators, classifiers, the joint model, their scores, and files on disk."""

from prood.models.architectures import architecture, build, spec_of
from prood.models.certified import CLASSIFIER_SIZES, CertifiedClassifier, certified_classifier
from prood.models.classifiers import compact, resnet18, resnet50, small
from prood.models.discriminators import SIZES, Discriminator, discriminator
from prood.models.energy import EnergyClassifier
from prood.models.extra_class import ExtraClass
from prood.models.files import MODEL_FILE, fingerprint, load, model_path, read_metadata, rounded, save
from prood.models.fusion import Curve, Fusion, product_logit
from prood.models.joint import ProoD, confidence_logit, fuse
from prood.models.metadata import Metadata
from prood.models.mixture_classifier import MixtureClassifier
from prood.models.mixtures import MixtureRatio
from prood.models.score import Confidence, InLogit, JointConfidence, Score, score_of, scores
from prood.models.wrapped import WrapOptions, Wrapped, open_classifier, trial_images

__all__ = [
    "CLASSIFIER_SIZES",
    "MODEL_FILE",
    "SIZES",
    "CertifiedClassifier",
    "Confidence",
    "Curve",
    "Discriminator",
    "EnergyClassifier",
    "ExtraClass",
    "Fusion",
    "InLogit",
    "JointConfidence",
    "Metadata",
    "MixtureClassifier",
    "MixtureRatio",
    "ProoD",
    "Score",
    "WrapOptions",
    "Wrapped",
    "architecture",
    "build",
    "certified_classifier",
    "compact",
    "confidence_logit",
    "discriminator",
    "fingerprint",
    "fuse",
    "load",
    "model_path",
    "open_classifier",
    "product_logit",
    "read_metadata",
    "resnet18",
    "resnet50",
    "rounded",
    "save",
    "score_of",
    "scores",
    "small",
    "spec_of",
    "trial_images",
]
