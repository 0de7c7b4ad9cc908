"""The public image sets of the paper: their sources, terms and facts are in `sets.toml`, their readers here."""

# Importing them registers them.
from prood.data.public import known, labelled, openimages, packed  # noqa: F401
