from importlib.machinery import ModuleSpec

import pytest

from prood.data import bundled as module
from prood.data import load, sources
from prood.data.bundled import bundled
from prood.errors import MissingPackage


def test_finds_a_file_in_a_package() -> None:
    assert bundled("skimage", "data", "coins.png").is_file()


def test_a_file_the_package_does_not_hold() -> None:
    with pytest.raises(MissingPackage, match=r"data/nothing\.png.*--upgrade"):
        bundled("skimage", "data", "nothing.png")


def test_a_package_that_is_not_there() -> None:
    with pytest.raises(MissingPackage, match=r"no_such_package_xyz.*'\.\[quickstart\]'"):
        bundled("no_such_package_xyz", "file")


@pytest.mark.parametrize("name", ["digits:train", "left-out", "photographs:test", "materials", "text", "faces"])
def test_every_bundled_set_says_what_to_install(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def nothing(package: str) -> ModuleSpec | None:
        return None

    monkeypatch.setattr(module, "find_spec", nothing)
    module._digits.cache_clear()
    for entry in sources._REGISTRY.values():
        if entry.read_split is not None:
            entry.read_split.cache_clear()
    with pytest.raises(MissingPackage, match=r"'\.\[quickstart\]'"):
        load(name)
