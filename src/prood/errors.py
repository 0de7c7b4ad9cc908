"""What a user is meant to read: one line that says what is wrong, with which value, and what to do.

The type says what kind of thing went wrong, so that a program, and a test, need not read the words.
"""

import warnings


class ProodError(Exception):
    """An error that its reader can mend: the command line prints it as one line and exits with 2."""

    def __str__(self) -> str:
        """One line, whatever is quoted in it: the message of a library, or the name of a file, may hold line breaks."""
        return printable(" ".join(super().__str__().splitlines()))


class BadValue(ProodError):
    """An argument, an option, a setting or a pixel has a value that is not allowed, alone or beside another."""


class UnknownName(ProodError):
    """No such method, preset, recipe key, image set …: the line lists the known names, or says how to list them."""


class NotFound(ProodError):
    """A file, a folder, a model or a result that must exist first does not."""


class AlreadyThere(ProodError):
    """A file, a folder or a run that would have to be replaced."""


class Damaged(ProodError):
    """A file is cut short, or is not what it should be."""


class Mismatch(ProodError):
    """Two things that do not belong together: images and a model, weights and a result, a run and other settings."""


class Unsupported(ProodError):
    """Prood cannot do this with a layer, a format, a model or a machine of this kind."""


class Diverged(ProodError):
    """A loss, a weight or a score became NaN or infinite, or a training came to nothing."""


class Collapsed(Diverged):
    """A discriminator became constant in training, and tells nothing apart: train it anew with other settings."""


class Refuted(ProodError):
    """A claim was checked and does not hold."""


class MissingPackage(ProodError):
    """An optional package is not installed, or cannot be imported."""


class Busy(ProodError):
    """Another process does the same at this moment."""


class NoAccess(ProodError):
    """The operating system refuses to read, to write or to listen."""


class Unreachable(ProodError):
    """A server does not answer, or breaks off."""


class ProodWarning(UserWarning):
    """What is allowed and probably not meant: the command line prints it as one line and goes on."""


def warn(text: str) -> None:
    """Shown once for each place in the caller's code that leads here."""
    warnings.warn(text, ProodWarning, stacklevel=3)


def printable(text: str, longest: int = 2000) -> str:
    """The text without what would steer a terminal, and without its middle if it is longer: names of files are given
    by others, too."""
    if len(text) > longest:
        text = f"{text[: longest // 2]} … {text[-longest // 2 :]}"
    return "".join(one if one.isprintable() else one.encode("unicode_escape").decode() for one in text)


def first_line(error: BaseException) -> str:
    """The first line of what a library says: some go on with where in their own code it happened."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
