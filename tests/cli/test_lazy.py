"""What is wrong in a command is said before torch is imported, which takes seconds."""

import subprocess
import sys

import pytest

COMMANDS = [
    "certify a.png --model nosuch",
    "predict a.png --model nosuch",
    "verify nosuch.jsonl",
    "info nosuch",
    "serve nosuch",
    "export nosuch a.onnx",
    "asymptotics nosuch",
    "calibrate nosuch digits:test",
    "wrap a.onnx --discriminator nosuch --shift 1 --run r",
    "nosuch",
    "certify",
    "certify nosuch.png --model cifar10",
    "predict folder/nosuch --model cifar10",
    "score nosuch/ --model cifar10 --out o",
    "score . --model nosuch --out o",
    "train plain",
    "train plain --recipe nosuch --run r",
    "evaluate nosuch",
    "report nosuch",
    "results nosuch",
    "guard nosuch.onnx --inside a/ --outside b/ --run r",
    "init --inside a/",
]


@pytest.mark.slow
@pytest.mark.parametrize("command", COMMANDS)
def test_a_failure_that_needs_no_torch_does_not_import_it(tmp_path, command):
    code = (
        "import sys; sys.argv = ['prood', *sys.argv[1:]]\n"
        "from prood.cli import main\n"
        "try: main()\n"
        "except SystemExit as end: print(end.code, 'torch' in sys.modules)"
    )
    run = [sys.executable, "-c", code, *command.split()]
    done = subprocess.run(run, capture_output=True, text=True, cwd=tmp_path, env={"PYTHONPATH": ":".join(sys.path)})
    assert done.stdout.splitlines()[-1] == "2 False"
    assert done.stderr.count("\n") == 1
