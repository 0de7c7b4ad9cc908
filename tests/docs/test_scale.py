"""The files beside the guide on ten million images: manifests that are well-formed, and programs that run."""

import importlib.util
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from docs_commands import check
from docs_pages import ROOT

FILES = ROOT / "docs" / "guides" / "scale"


def test_the_job_is_one_that_kubernetes_runs_index_by_index():
    job = yaml.safe_load((FILES / "job.yaml").read_text())
    assert (job["apiVersion"], job["kind"]) == ("batch/v1", "Job")
    spec = job["spec"]
    assert spec["completionMode"] == "Indexed"
    pod = spec["template"]["spec"]
    assert pod["restartPolicy"] == "Never", "backoffLimitPerIndex asks for it"
    (container,) = pod["containers"]
    (text,) = container["args"]
    words = shlex.split(text.replace("$JOB_COMPLETION_INDEX", "3"))
    assert words[0] == "exec"
    check(words[1:])
    assert words[words.index("--shard") + 1] == f"3/{spec['completions']}"
    assert words[words.index("--workers") + 1] == container["resources"]["limits"]["cpu"]
    volumes = {volume["name"] for volume in pod["volumes"]}
    assert {mount["name"] for mount in container["volumeMounts"]} == volumes


def test_the_array_is_one_that_bash_reads_and_whose_command_is_understood():
    text = (FILES / "array.sh").read_text()
    subprocess.run(["bash", "-n", FILES / "array.sh"], check=True)
    options = dict(re.findall(r"(?m)^#SBATCH --([\w-]+)=(\S+)$", text))
    command = text[text.index("exec") :].replace("\\\n", " ")
    command = command.replace("$SLURM_ARRAY_TASK_ID", "7").replace("$SLURM_CPUS_PER_TASK", options["cpus-per-task"])
    words = shlex.split(command)
    check(words[1:])
    assert words[words.index("--shard") + 1] == "7/8"
    assert options["array"] == "0-7"


@pytest.mark.slow
@pytest.mark.parametrize("name", ["ray", "spark"])
def test_the_programs_run(name: str, place: Path) -> None:
    package = {"ray": "ray", "spark": "pyspark"}[name]
    if importlib.util.find_spec(package) is None:
        pytest.skip(f"{package} is not installed")
    if name == "spark" and shutil.which("java") is None:
        pytest.skip("Spark needs Java, and there is none")
    import pyarrow.parquet as pq

    words = [FILES / f"{name}_scores.py", place / "photos" / "test", place / "runs" / "prood", place / "scores"]
    env = os.environ | {"PYSPARK_PYTHON": sys.executable}  # of Spark's workers
    done = subprocess.run([sys.executable, *map(str, words)], capture_output=True, text=True, env=env)
    assert done.returncode == 0, done.stderr
    table = pq.read_table(place / "scores")
    assert len(table) == len(list((place / "photos" / "test").rglob("*.png"))) > 0
    assert table["error"].null_count == len(table)
    assert table["upper_bound_0.01"].null_count == 0
