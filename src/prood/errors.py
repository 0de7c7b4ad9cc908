"""The one exception a user is meant to read: a line that says what is wrong and what to do."""


class ProodError(Exception):
    """Bad input, a missing file, an unsupported layer: the command line prints it and exits with 2."""


def first_line(error: BaseException) -> str:
    """Of what a library says: some go on with where in their own code it happened."""
    return (str(error).splitlines() or [type(error).__name__])[0]
