import signal
import subprocess
import sys
import threading

import pytest

from prood.atomic import locked, replacing, write_text
from prood.errors import Busy

HOLDER = """
import sys, pathlib
from prood.atomic import locked
with locked(pathlib.Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""


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


def test_a_lock_is_refused_or_waited_for_and_leaves_nothing(tmp_path):
    target, order = tmp_path / "new" / "file", []

    def second():
        with locked(target):
            order.append("second")

    with locked(target):
        with pytest.raises(Busy, match="come back later"), locked(target, busy="come back later"):
            pass
        with locked(tmp_path / "new" / "other", busy="another path, another lock"):
            pass
        waiting = threading.Thread(target=second)
        waiting.start()
        waiting.join(0.3)
        order.append("first")
    waiting.join(10)
    assert order == ["first", "second"]
    assert list(target.parent.iterdir()) == []


def test_a_lock_keeps_other_processes_out_until_they_are_killed(tmp_path):
    target = tmp_path / "file"
    command = [sys.executable, "-c", HOLDER, str(target)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        try:
            assert holder.stdout.readline() == "held\n"
            with pytest.raises(Busy), locked(target, busy="held"):
                pass
        finally:
            holder.send_signal(signal.SIGKILL)
    with locked(target, busy="free"):
        pass
    assert list(tmp_path.iterdir()) == []


def test_no_two_hold_a_lock_at_once_though_its_file_is_removed_each_time(tmp_path):
    holders, most, rounds = [], [], 40

    def work(number):
        for _ in range(rounds):
            with locked(tmp_path / "file"):
                holders.append(number)
                most.append(len(holders))
                holders.remove(number)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(most) == 4 * rounds
    assert max(most) == 1
