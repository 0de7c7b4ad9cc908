"""Archives by people who wish us ill, or whose disk was full."""

import gzip
import io
import os
import stat
import tarfile
import zipfile
from pathlib import Path

import pytest

from prood.data.archives import is_archive, unpack
from prood.errors import Damaged


def member(name: str, content: bytes = b"hello", **fields: object) -> tuple[tarfile.TarInfo, bytes]:
    info = tarfile.TarInfo(name)
    info.size = len(content)
    for key, value in fields.items():
        setattr(info, key, value)
    return info, content


def tar(path: Path, *members: tuple[tarfile.TarInfo, bytes]) -> Path:
    with tarfile.open(path, "w:gz" if path.suffix in (".gz", ".tgz") else "w") as made:
        for info, content in members:
            made.addfile(info, io.BytesIO(content) if info.isreg() else None)
    return path


def zipped(path: Path, *members: tuple[str | zipfile.ZipInfo, bytes]) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as made:
        for name, content in members:
            made.writestr(name, content)
    return path


def files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.fixture
def refused(tmp_path: Path):
    """Unpack, expect a refusal that says these words, and nothing outside the folder."""

    def outside() -> dict[str, bytes]:
        return {name: content for name, content in files(tmp_path).items() if not name.startswith("a/b/")}

    def run(archive: Path, *words: str, **options: int) -> None:
        before = outside()
        with pytest.raises(Damaged) as raised:
            unpack(archive, tmp_path / "a" / "b", **options)
        text = str(raised.value)
        assert "\n" not in text
        assert all(word in text for word in (archive.name, *words)), text
        assert outside() == before

    return run


@pytest.mark.parametrize("name", ["x.tar", "x.tar.gz", "x.tgz", "x.zip", "X.ZIP"])
def test_files_arrive_as_they_were_with_plain_modes(tmp_path: Path, name: str) -> None:
    big = os.urandom(3_000_001)
    assert is_archive(name)
    if name.lower().endswith("zip"):
        archive = zipped(tmp_path / name, ("one/", b""), ("one/two/big.bin", big), ("./three", b""))
    else:
        folder = member("one", b"", type=tarfile.DIRTYPE, mode=0o7000)
        archive = tar(tmp_path / name, folder, member("one/two/big.bin", big, mode=0o4777), member("./three", b""))
    mask = os.umask(0o077)
    try:
        unpack(archive, tmp_path / "out")
    finally:
        os.umask(mask)
    assert files(tmp_path / "out") == {"one/two/big.bin": big, "three": b""}
    for path in [tmp_path / "out", *(tmp_path / "out").rglob("*")]:
        assert stat.S_IMODE(path.stat().st_mode) == (0o755 if path.is_dir() else 0o644)


@pytest.mark.parametrize("name", ["x.npz", "x.mat", "images.gz", "zip", "x.tar.xz"])
def test_other_files_are_no_archives(name: str) -> None:
    assert not is_archive(name)


OUTSIDE = ["../evil", "one/../../evil", "/ROOT/evil", "..", "..\\evil", "one\\..\\..\\evil", "C:\\evil", "\\evil"]


@pytest.mark.parametrize("name", OUTSIDE)
@pytest.mark.parametrize("ending", ["tar", "tgz", "zip"])
def test_a_path_that_leads_out_is_refused(tmp_path: Path, refused, name: str, ending: str) -> None:
    path, name = tmp_path / f"x.{ending}", name.replace("/ROOT", str(tmp_path))
    archive = zipped(path, ("good", b""), (name, b"evil")) if ending == "zip" else tar(path, member(name, b"evil"))
    refused(archive, repr(name), "leads out")


def test_a_folder_that_leads_out_is_refused(tmp_path: Path, refused) -> None:
    refused(tar(tmp_path / "x.tar", member("../evil", b"", type=tarfile.DIRTYPE)), "leads out")
    refused(zipped(tmp_path / "x.zip", ("../evil/", b"")), "leads out")
    assert not (tmp_path / "a" / "evil").exists()


@pytest.mark.parametrize(
    ("kind", "target"),
    [
        (tarfile.SYMTYPE, "/tmp"),
        (tarfile.SYMTYPE, "../.."),
        (tarfile.SYMTYPE, "inside"),
        (tarfile.LNKTYPE, "../../secret"),
        (tarfile.LNKTYPE, "/etc/passwd"),
        (tarfile.CHRTYPE, ""),
        (tarfile.BLKTYPE, ""),
        (tarfile.FIFOTYPE, ""),
        (tarfile.GNUTYPE_SPARSE, ""),
    ],
)
def test_links_and_devices_are_refused_before_anything_is_written_through_them(
    tmp_path: Path, refused, kind: bytes, target: str
) -> None:
    (tmp_path / "secret").write_text("mine")
    link = member("link", b"", type=kind, linkname=target)
    refused(tar(tmp_path / "x.tar", link, member("link/evil"), member("link")), "'link'", "neither a plain file")
    assert list((tmp_path / "a" / "b").iterdir()) == []


def test_a_symlink_in_a_zip_is_refused(tmp_path: Path, refused) -> None:
    link = zipfile.ZipInfo("link")
    link.external_attr = (stat.S_IFLNK | 0o777) << 16
    refused(zipped(tmp_path / "x.zip", (link, b"/tmp"), ("link/evil", b"evil")), "'link'", "neither a plain file")


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_of_a_name_that_comes_twice_the_last_stays(tmp_path: Path) -> None:
    unpack(tar(tmp_path / "x.tar", member("a", b"first, longer"), member("./a", b"last")), tmp_path / "tar")
    unpack(zipped(tmp_path / "x.zip", ("a", b"first, longer"), ("a", b"last")), tmp_path / "zip")
    assert files(tmp_path / "tar") == files(tmp_path / "zip") == {"a": b"last"}


def test_a_file_and_a_folder_of_one_name_are_refused(tmp_path: Path, refused) -> None:
    refused(tar(tmp_path / "x.tar", member("a"), member("a/b")), "in the place of a file")
    refused(tar(tmp_path / "y.tar", member("c/b"), member("c")), "in the place of a folder")
    refused(tar(tmp_path / "z.tar", member(".")), "in the place of a folder")


def test_backslashes_in_a_zip_separate_folders(tmp_path: Path) -> None:
    archive = zipped(tmp_path / "x.zip", ("one\\", b""), ("one\\two\\three", b"3"))
    unpack(archive, tmp_path / "out")
    assert files(tmp_path / "out") == {"one/two/three": b"3"}


@pytest.mark.parametrize("ending", ["tgz", "zip"])
def test_a_bomb_is_refused(tmp_path: Path, refused, ending: str) -> None:
    path, zeros = tmp_path / f"x.{ending}", bytes(10_000_000)
    archive = zipped(path, ("zeros", zeros)) if ending == "zip" else tar(path, member("zeros", zeros))
    refused(archive, "suspiciously big", "1,000,000", limit=1_000_000)
    unpack(archive, tmp_path / "out")
    assert files(tmp_path / "out") == {"zeros": zeros}


def test_a_bomb_in_a_header_or_behind_the_end_is_refused(tmp_path: Path, refused) -> None:
    header = member("x" * 5_000_000)
    refused(tar(tmp_path / "header.tgz", header), "suspiciously big", limit=1_000_000)
    plain = tar(tmp_path / "plain.tar", member("a")).read_bytes()
    (tmp_path / "tail.tgz").write_bytes(gzip.compress(plain + bytes(50_000_000)))
    refused(tmp_path / "tail.tgz", "suspiciously big", limit=1_000_000)


@pytest.mark.parametrize("ending", ["tar", "tgz", "zip"])
def test_wherever_an_archive_is_cut_short_it_is_refused(tmp_path: Path, ending: str) -> None:
    path, members = tmp_path / f"x.{ending}", [(str(n), os.urandom(700)) for n in range(4)]
    archive = zipped(path, *members) if ending == "zip" else tar(path, *(member(*one) for one in members))
    whole = archive.read_bytes()
    # A plain tar ends with zeros, of which one block is enough.
    length = 4 * 1536 if ending == "tar" else len(whole)
    cuts = [*range(0, length, 256), length - 1]
    for cut in cuts:
        archive.write_bytes(whole[:cut])
        with pytest.raises(Damaged):
            unpack(archive, tmp_path / f"cut{cut}")
    archive.write_bytes(whole)
    unpack(archive, tmp_path / "whole")
    assert files(tmp_path / "whole") == dict(members)


@pytest.mark.parametrize("ending", ["tgz", "zip"])
def test_a_flipped_byte_is_noticed(tmp_path: Path, ending: str) -> None:
    path, content = tmp_path / f"x.{ending}", os.urandom(5000)
    archive = zipped(path, ("a", content)) if ending == "zip" else tar(path, member("a", content))
    damaged = bytearray(archive.read_bytes())
    damaged[3000] ^= 1
    archive.write_bytes(damaged)
    with pytest.raises(Damaged):
        unpack(archive, tmp_path / "out")


def test_a_page_of_text_and_a_locked_zip_are_no_archives(tmp_path: Path, refused) -> None:
    for name in ("x.zip", "x.tar.gz", "x.tar"):
        (tmp_path / name).write_text("<html>not found</html>" * 100)
        refused(tmp_path / name, "damaged")
    locked = bytearray(zipped(tmp_path / "locked.zip", ("a", b"1")).read_bytes())
    locked[6] |= 1  # "encrypted", in the header of the file and in the list at the end
    locked[locked.index(b"PK\x01\x02") + 8] |= 1
    (tmp_path / "locked.zip").write_bytes(locked)
    refused(tmp_path / "locked.zip", "cannot be unpacked")
