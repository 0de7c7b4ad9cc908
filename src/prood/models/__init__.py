"""Discriminators, classifiers, the joint model, their scores, and files on disk."""

from prood.models.architectures import architecture, build, spec_of
from prood.models.classifiers import compact, resnet18, resnet50, small
from prood.models.discriminators import SIZES, Discriminator, discriminator
from prood.models.files import MODEL_FILE, Metadata, fingerprint, load, model_path, read_metadata, rounded, save
from prood.models.joint import ProoD, confidence_logit, fuse
from prood.models.score import Confidence, InLogit, JointConfidence, Score, score_of

__all__ = [
    "MODEL_FILE",
    "SIZES",
    "Confidence",
    "Discriminator",
    "InLogit",
    "JointConfidence",
    "Metadata",
    "ProoD",
    "Score",
    "architecture",
    "build",
    "compact",
    "confidence_logit",
    "discriminator",
    "fingerprint",
    "fuse",
    "load",
    "model_path",
    "read_metadata",
    "resnet18",
    "resnet50",
    "rounded",
    "save",
    "score_of",
    "small",
    "spec_of",
]
