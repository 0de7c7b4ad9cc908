"""The public image sets of the paper: their sources, terms and facts are in `sets.toml`, their readers here."""

# Importing them registers them.
from prood.data.public import cifar, imagenet, kinds, lsun, openimages, svhn, tiny_images  # noqa: F401
from prood.data.public.known import register_trees

register_trees()
