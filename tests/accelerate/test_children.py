"""Child processes of `run --children`: which of them are accelerated, their reports, and their unchanged behaviour."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from helpers.devices import HIP, here

PROGRAM = """
import multiprocessing, subprocess, sys
import numpy as np

def work(n):
    A = np.ones((n, n))
    return float((A @ (A + 1))[0, 0])

if __name__ == "__main__":
    kind = sys.argv[1]
    if kind == "loky":
        from joblib import Parallel, delayed
        print(Parallel(2)(delayed(work)(60) for _ in range(4)))
    if kind == "pool":
        with multiprocessing.get_context("spawn").Pool(1) as pool:
            print(pool.map(work, [60] * 4))
            pool.close()
            pool.join()
    if kind in ("spawn", "forkserver", "fork"):
        child = multiprocessing.get_context(kind).Process(target=work, args=(60,))
        child.start()
        child.join()
        print(child.exitcode)
    if kind == "python":
        subprocess.run([sys.executable, __file__, "itself"], check=True)
    if kind == "python python":
        subprocess.run([sys.executable, __file__, "python"], check=True)
    if kind == "itself":
        print([work(60) for _ in range(4)])
"""
# {kind of program: (calls in children, calls of these that go to the device)}.
KINDS = {"python": (4, 4), "python python": (4, 4), "loky": (4, 4), "pool": (4, 4), "spawn": (1, 1), "fork": (0, 0)}
LONG = {"python python", "loky", "pool", "spawn"}
# The children of a long program are the same for each device, so CI has them with devices that get arrays by copies.
CASES = [
    pytest.param(
        device,
        kind,
        marks=[] if kind not in LONG else pytest.mark.exhaustive if device == "host" else pytest.mark.slow,
    )
    for device in here("host", "sim:0", "cuda:0", HIP)
    for kind in KINDS
]


@pytest.fixture
def program(tmp_path: Path) -> Path:
    path = tmp_path / "program.py"
    path.write_text(PROGRAM)
    return path


def run(*arguments: object, **options: Any) -> subprocess.CompletedProcess[str]:
    words = [sys.executable, "-m", "offload_args", "run", *map(str, arguments)]
    return subprocess.run(words, capture_output=True, text=True, timeout=300, **options)


@pytest.mark.later(but="sim:0-fork")
@pytest.mark.parametrize(("device", "kind"), CASES, indirect=["device"])
def test_children_are_accelerated_if_asked_for(device: str, program: Path, tmp_path: Path, kind: str) -> None:
    plain = subprocess.run([sys.executable, program, kind], capture_output=True, text=True, timeout=300)
    report = tmp_path / "report.json"
    ended = run("--children", "--device", device, "--margin", 0, "--report", "--json", report, program, kind)
    assert (ended.returncode, ended.stdout) == (plain.returncode, plain.stdout) == (0, plain.stdout)
    children = json.loads(report.read_text())["children"]
    calls, gone = KINDS[kind]
    assert sum(child["calls"] for child in children) == calls
    assert sum(child["gone"] for child in children) == gone
    assert f"child process{'es' * (len(children) != 1)}: {calls} calls"[:-1] in ended.stderr


@pytest.mark.slow
def test_executors_end_under_run_as_they_do_under_python(program: Path) -> None:
    """joblib's executor keeps a thread that ends only when Python announces its own end."""
    assert run("--device", "host", "--margin", 0, program, "loky").returncode == 0


def test_children_run_as_they_are_by_default(program: Path, tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text("import sys; sys.stderr.write('hidden one\\n')")
    code = "import os, sys; print('offload_args' in sys.modules, os.environ.get('OFFLOAD_ARGS_RUN'))"
    (tmp_path / "parent.py").write_text(f"import subprocess, sys\nsubprocess.run([sys.executable, '-c', {code!r}])\n")
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    ended = run("--device", "host", tmp_path / "parent.py", env=environment)
    assert ended.stdout == "False None\n"
    assert ended.stderr == "hidden one\n" * 2
    # With --children, a child that imports no NumPy imports nothing of this package; a hidden module still runs.
    ended = run("--children", "--device", "host", tmp_path / "parent.py", env=environment)
    assert ended.stdout.startswith("False {") and ended.stderr == "hidden one\n" * 2


@pytest.mark.later
def test_a_plan_has_the_calls_of_children(device: str, program: Path, tmp_path: Path) -> None:
    plan, report = tmp_path / "plan.json", tmp_path / "report.json"
    assert run("--children", "--device", device, "--margin", 0, "--plan", plan, program, "python").returncode == 0
    data = json.loads(plan.read_text())
    assert [(row["file"], row["line"], row["goes"]) for row in data["calls"]] == [("program.py", 7, True)]
    data["calls"][0]["goes"] = False
    plan.write_text(json.dumps(data))
    words = ["--children", "--device", device, "--margin", 0, "--plan", plan, "--deterministic", "--json", report]
    assert run(*words, program, "python").returncode == 0
    (child,) = json.loads(report.read_text())["children"]
    assert {reason for row in child["rows"] for reason in row["refused"]} == {"by the plan"}
    assert sum(row["refused"]["by the plan"] for row in child["rows"]) == child["calls"] == 4


@pytest.mark.later
def test_a_child_that_cannot_be_accelerated_says_so_and_runs(program: Path) -> None:
    environment = {**os.environ, "OFFLOAD_ARGS_RUN": "{}"}
    code = f"import sys; sys.path.insert(0, {os.fspath(startup())!r}); import sitecustomize; import numpy; print(1)"
    ended = subprocess.run([sys.executable, "-S", "-c", SITE + code], env=environment, capture_output=True, text=True)
    assert ended.stdout == "1\n"
    assert "runs as it is: 'device'" in ended.stderr


SITE = "import site; site.main(); import sys; sys.modules.pop('sitecustomize', None); "


def startup() -> Path:
    import offload_args

    return Path(offload_args.__file__).parent / "startup"
