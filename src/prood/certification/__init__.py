"""Certificates as files: what was proven, for which image and which weights. `verify` checks them on its own."""

from prood.certification.files import append, read
from prood.certification.record import Certificate, ImageReference, ModelReference, file_sha256, image_sha256

__all__ = ["Certificate", "ImageReference", "ModelReference", "append", "file_sha256", "image_sha256", "read"]
