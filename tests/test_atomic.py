import pytest

from prood.atomic import replacing, write_text


def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path):
    file = tmp_path / "kept.txt"
    write_text(file, "old")

    def fail():
        with replacing(file) as aside:
            aside.write_text("half")
            raise RuntimeError("killed here")

    with pytest.raises(RuntimeError, match="killed here"):
        fail()
    assert file.read_text() == "old"
    assert list(tmp_path.iterdir()) == [file]


def test_folders_on_the_way_are_made_and_the_file_is_replaced_whole(tmp_path):
    file = tmp_path / "a" / "b" / "new.txt"
    write_text(file, "one")
    write_text(file, "two")
    assert file.read_text() == "two"
    assert list(file.parent.iterdir()) == [file]
