"""`python -m offload_args run`, `plan SCRIPT` and %accelerate, which accelerate programs without changing them."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import offload_args
from offload_args import _core, scripts

PROGRAM = """
import sys
import numpy as np

def main(n):
    A = np.arange(n * n, dtype=float).reshape(n, n) / n**2
    C = A @ (A + 1)
    print("sum", round(float(C.sum()), 6))

main(int(sys.argv[1]))
sys.exit(3)
"""


@pytest.fixture
def program(tmp_path: Path) -> Path:
    path = tmp_path / "program.py"
    path.write_text(PROGRAM)
    return path


def command(*arguments: object, **options: Any) -> subprocess.CompletedProcess[str]:
    words = [sys.executable, "-m", "offload_args", *map(str, arguments)]
    return subprocess.run(words, capture_output=True, text=True, timeout=300, **options)


@pytest.mark.later("host")
def test_run_keeps_the_programs_output_and_status(program: Path, device: str, tmp_path: Path) -> None:
    plain = subprocess.run([sys.executable, program, "64"], capture_output=True, text=True, timeout=300)
    file = tmp_path / "report.json"
    ended = command("run", "--device", device, "--margin", 0, "--report", "--json", file, program, 64)
    assert (ended.returncode, ended.stdout) == (plain.returncode, plain.stdout) == (3, ended.stdout)
    assert "-- offload_args run" in ended.stderr and f"1 went to {device}" in ended.stderr
    report = json.loads(file.read_text())
    assert [row["routine"] for row in report["rows"]] == ["dgemm"]
    assert report["gone"] == 1


ENDS = """
import atexit, concurrent.futures, sys, threading
register = getattr(threading, "_register_atexit", atexit.register)
say = sys.stdout.write
register(say, "first registered\\n")
register(say, "second registered\\n")
pool = concurrent.futures.ThreadPoolExecutor(1)
pool.submit(say, "in a pool\\n")
threading.Thread(target=say, args=("on a thread\\n",)).start()
atexit.register(say, "at exit\\n")
say("end of the script\\n")
"""


@pytest.mark.later
def test_what_a_program_registers_for_its_end_runs_once(tmp_path: Path) -> None:
    path = tmp_path / "ends.py"
    path.write_text(ENDS)
    plain = subprocess.run([sys.executable, path], capture_output=True, text=True, timeout=300)
    for name in "run", "trace":
        ended = command(name, path)
        assert (ended.returncode, sorted(ended.stdout.split("\n"))) == (0, sorted(plain.stdout.split("\n")))


def test_run_without_a_gpu_says_so_in_a_line_and_runs_the_program(program: Path) -> None:
    if scripts._gpu_is_likely():
        ended = command("run", program, 64)
        assert ended.stderr == ""
    else:
        ended = command("run", program, 64)
        assert ended.stderr == "offload_args run: no GPU is here: the program runs as it is\n"
        report = command("run", "--report", program, 64)
        assert report.stderr.endswith("no GPU is here: the program runs as it is, and its calls were not counted\n")
        assert "0 calls" not in report.stderr
    assert ended.returncode == 3
    assert ended.stdout.startswith("sum ")


@pytest.mark.later
def test_run_takes_a_module(tmp_path: Path, device: str) -> None:
    (tmp_path / "measured.py").write_text("import numpy as np\nA = np.ones((40, 40))\nprint((A @ (A + 1))[0, 0])\n")
    ended = command("run", "--device", device, "--margin", 0, "--report", "-m", "measured", cwd=tmp_path)
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout == "80.0\n"
    assert "1 went" in ended.stderr


@pytest.mark.later
def test_run_prints_an_exception_as_python_does(tmp_path: Path) -> None:
    path = tmp_path / "fails.py"
    path.write_text("import numpy as np\nnp.linalg.cholesky(-np.eye(3))\n")
    plain = subprocess.run([sys.executable, path], capture_output=True, text=True, timeout=300)
    ended = command("run", "--device", "host", path)
    assert ended.returncode == plain.returncode == 1
    assert ended.stderr == plain.stderr


@pytest.mark.later
def test_run_names_a_file_that_is_not_there() -> None:
    ended = command("run", "nowhere.py")
    assert (ended.returncode, ended.stderr) == (2, "run: no file nowhere.py\n")


@pytest.mark.later
def test_plan_of_a_script_counts_and_sends_nothing(program: Path) -> None:
    ended = command("plan", program, 600)
    assert ended.returncode == 3
    assert ended.stdout.startswith("sum ")
    assert "-- offload_args plan" in ended.stderr
    assert "1 call of BLAS and LAPACK, 0 went; " in ended.stderr
    if not scripts._gpu_is_likely():
        assert (
            "\nno call goes: a GPU is assumed that computes 20 TFLOP/s in float32 and 10 in float64, " in ended.stderr
        )
        assert "dgemm" in ended.stderr and "1 plan only" in ended.stderr and "left out" not in ended.stderr
    assert "plan: no file" in command("plan", "nowhere.py").stderr


def test_options_after_a_script_are_the_scripts_own(tmp_path: Path) -> None:
    script = tmp_path / "options.py"
    script.write_text("import sys\nprint(sys.argv[1:])\n")
    for name in ("plan", "run", "trace"):
        ended = command(name, script, "--json", "-m", "--depth", 3)
        assert (ended.returncode, ended.stdout) == (0, "['--json', '-m', '--depth', '3']\n"), name


class Shell:
    """The part of IPython's shell that the extension uses."""

    def __init__(self) -> None:
        self.magics: dict[str, Any] = {}
        self.results: list[object] = []

    def register_magic_function(self, function: Any, kind: str, name: str) -> None:
        assert kind == "line_cell"
        self.magics[name] = function

    def run_cell(self, cell: str) -> None:
        exec(cell, {"np": np, "results": self.results})


def test_a_cell_and_from_here_on(device: str) -> None:
    shell = Shell()
    offload_args.load_ipython_extension(shell)
    magic = shell.magics["accelerate"]
    report = magic(device, "A = np.ones((200, 200)); results.append((A @ (A + 1))[0, 0])")
    assert shell.results == [400.0]
    assert report.calls == 1
    assert magic(device) is None
    A = np.ones((200, 200))
    A @ (A + 1)
    assert magic("report").calls == 1
    assert magic("off").calls == 1
    assert magic("off") is None
    with pytest.raises(offload_args.ArgumentError, match=r"^%accelerate: needs off, report, a device .*; got 'of'$"):
        magic("of")
    with pytest.raises(offload_args.ArgumentError, match=r"^%%accelerate: needs a device .*; got 'off'$"):
        magic("off", "pass")


def test_loading_the_extension_again_ends_no_acceleration_and_unloading_it_does(device: str) -> None:
    A = np.ones((200, 200))
    for unloads in (False, True):
        shell = Shell()
        offload_args.load_ipython_extension(shell)
        shell.magics["accelerate"](device)
        if unloads:
            offload_args.unload_ipython_extension(shell)
        offload_args.load_ipython_extension(shell)
        A @ (A + 1)
        report = shell.magics["accelerate"]("off")
        assert (report.calls if report else None) == (None if unloads else 1)
        assert _core.accelerate_query() == (0, 0)


def test_a_report_calls_a_loss_a_loss_and_a_row_without_a_line_says_so() -> None:
    rows = [
        scripts.Row("dgemm", "a.py:3", 9, 9, 9, 2, 2, {}, 8, 8, 0, 0.0, 0.6, -0.5, 0.0),
        scripts.Row("dgemm", "", 9, 9, 9, 5, 0, {"not faster": 5}, 0, 0, 0, 0.12, 0.0, 0.0, 0.072),
    ]
    text = str(scripts.Report(rows, 0, "sim:0", "", ""))
    assert "\nlost 500 ms by the model, moved 16 bytes\n" in text and "-500 ms" in text
    assert re.search(r"\n *\(no line\)", text) and "(not faster: also first calls" in text
    assert "(no line)" not in str(scripts.Report(rows[1:], 0, "sim:0", "", ""))


def test_a_name_that_is_no_device_is_answered_with_the_devices() -> None:
    with pytest.raises(offload_args.errors.ArgumentError, match="got 'gpu'; the devices here are .*host"):
        offload_args.accelerate("gpu")
