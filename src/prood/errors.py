"""The one exception a user is meant to read: a line that says what is wrong and what to do."""


class ProodError(Exception):
    """Bad input, a missing file, an unsupported layer: the command line prints it and exits with 2."""
