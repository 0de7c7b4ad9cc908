"""The public image sets of the paper: one entry each, with its source, terms and known facts."""

# Importing them registers them.
from prood.data.public import cifar, imagenet, kinds, openimages, scenes, svhn, tiny_images  # noqa: F401
