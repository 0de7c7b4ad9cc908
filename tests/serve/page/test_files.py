"""The page's files: nothing is missing, nothing is left over, and nothing comes from elsewhere."""

import re
from pathlib import Path

from prood import serve as served

PAGE = Path(served.__file__).with_name("page")
INDEX = (PAGE / "index.html").read_text(encoding="utf-8")


def test_the_files_name_each_other_and_nothing_else(service):
    named = set(re.findall(r'(?:src|href)="([^"#]+)"', INDEX)) - {"docs"}
    for file in PAGE.glob("*.js"):
        named.update(re.findall(r'from "\./([^"]+)"', file.read_text(encoding="utf-8")))
    assert named | {"index.html"} == {file.name for file in PAGE.iterdir()}
    for name in named:
        assert service.get(name) == (PAGE / name).read_bytes()
    assert service.get("") == (PAGE / "index.html").read_bytes()


def test_nothing_comes_from_elsewhere_and_nothing_is_inline():
    for file in PAGE.iterdir():
        text = file.read_text(encoding="utf-8").replace("http://www.w3.org/2000/svg", "")
        assert not re.search(r"https?://|@import|innerHTML|outerHTML|insertAdjacent|eval\(|document\.write", text), file
    assert not re.search(r"<style|\sstyle=|\son[a-z]+=|<script(?![^>]*\ssrc=)", INDEX), "the content policy forbids it"


def test_labels_and_descriptions_refer_to_what_is_there():
    ids = re.findall(r'\bid="([^"]+)"', INDEX)
    assert len(ids) == len(set(ids))
    referred = re.findall(r'(?:\bfor|aria-labelledby|aria-describedby)="([^"]+)"', INDEX)
    assert len(referred) > 8
    assert set(referred) <= set(ids)
    asked = {name for file in PAGE.glob("*.js") for name in re.findall(r'byId\("([^"]+)"\)', file.read_text("utf-8"))}
    assert asked <= set(ids)
