"""The library's version, also written into every file it makes."""

__version__ = "0.1.0"
