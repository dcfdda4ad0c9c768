"""`python -m offload_args trace`."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from helpers.scripts import LOOP, run, slices, traced


@pytest.mark.later
def test_the_command_waits_for_the_threads_of_the_script(tmp_path: Path) -> None:
    ran = traced(
        tmp_path / "threads.py",
        """\
import threading, time
import numpy as np
from offload_args import blas, offload_args
def work():
    time.sleep(0.3)
    with offload_args(np.ones(10), device="host") as (d,):
        blas.asum(d)
threading.Thread(target=work).start()
""",
    )
    assert "\n1 region, 1 call on host" in ran.stderr


@pytest.mark.later
def test_the_command_ends_with_its_summary_when_a_thread_is_interrupted(tmp_path: Path) -> None:
    ran = traced(
        tmp_path / "long.py",
        """\
import os, signal, sys, threading, time
import numpy as np
from offload_args import blas, offload_args
def names():
    frame = sys._current_frames()[threading.main_thread().ident]
    while frame:
        yield frame.f_code.co_name
        frame = frame.f_back
def work():
    with offload_args(np.ones(10), device="host") as (d,):
        blas.asum(d)
    while "join" not in names():
        time.sleep(0.01)
    os.kill(os.getpid(), signal.SIGINT)
    time.sleep(0.3)
threading.Thread(target=work).start()
""",
    )
    assert "\n1 region, 1 call on host" in ran.stderr and ran.returncode == 1


def test_command_keeps_the_scripts_arguments_output_and_status(tmp_path: Path) -> None:
    script = tmp_path / "leaving.py"
    script.write_text("import sys\nprint(sys.argv[1:], __name__)\nsys.exit('sorry')\n")
    clean = {name: value for name, value in os.environ.items() if not name.startswith("OFFLOAD_ARGS_")}
    ran = subprocess.run(
        [sys.executable, "-m", "offload_args", "trace", "--save", "t.json", "leaving.py", "--device", "x"],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env=clean,
    )
    assert (ran.returncode, ran.stdout) == (1, "['--device', 'x'] __main__\n")
    assert ran.stderr.startswith("sorry\n\n-- offload_args trace\n0 regions, 0 calls on no device")
    assert ran.stderr.endswith("timeline: t.json (open it in ui.perfetto.dev)\n")
    assert slices(tmp_path / "t.json") == []


ENDS_OF_STDERR = {
    "closed": "sys.stderr.close()",
    "its file closed": "os.close(2)",
    "None": "sys.stderr = None",
    "a full disk": "os.dup2(os.open('/dev/full', os.O_WRONLY), 2)",
}


@pytest.mark.later(but="closed")
@pytest.mark.parametrize("end", ENDS_OF_STDERR)
def test_a_script_that_closes_stderr_keeps_its_output_and_status(tmp_path: Path, end: str) -> None:
    ran = traced(tmp_path / "quiet.py", f"import os, sys\n{ENDS_OF_STDERR[end]}\nsys.exit(3)\n")
    assert (ran.returncode, ran.stdout) == (3, "")
    assert ran.stderr.startswith("\n-- offload_args trace" if end == "None" else "")
    assert "lost sys.stderr" not in ran.stderr and "Traceback" not in ran.stderr


@pytest.mark.later
def test_a_child_that_the_script_forks_tells_no_summary_of_its_own(tmp_path: Path) -> None:
    text = "import os, sys\nchild = os.fork()\nif not child:\n    sys.exit(5)\nprint(os.waitpid(child, 0)[1] >> 8)\n"
    ran = traced(tmp_path / "forking.py", text)
    assert (ran.returncode, ran.stdout, ran.stderr.count("-- offload_args trace")) == (0, "5\n", 1)


@pytest.mark.later
@pytest.mark.parametrize("option", ["--save", "--json"])
def test_a_file_that_can_not_be_written_is_named_before_the_script_runs(tmp_path: Path, option: str) -> None:
    (tmp_path / "short.py").write_text("print('it ran')\n")
    for place in (tmp_path, tmp_path / "none" / "t.json"):
        ran = run(tmp_path / "short.py", "-m", "offload_args", "trace", option, str(place))
        assert (ran.returncode, ran.stdout) == (2, "") and len(ran.stderr.splitlines()) == 1
        assert ran.stderr.startswith("trace: ") and str(place) in ran.stderr


@pytest.mark.later
def test_a_file_that_can_not_be_written_any_more_is_named_after_the_summary(tmp_path: Path) -> None:
    file = str(tmp_path / "t.json")
    (tmp_path / "short.py").write_text(f"import os\nos.mkdir({file!r})\n")
    ran = run(tmp_path / "short.py", "-m", "offload_args", "trace", "--save", file)
    assert ran.returncode == 2 and "-- offload_args trace\n" in ran.stderr
    assert ran.stderr.splitlines()[-1].startswith("trace: ") and "t.json" in ran.stderr.splitlines()[-1]


@pytest.mark.later
def test_a_picture_is_written_whatever_the_case_of_its_suffix(tmp_path: Path) -> None:
    (tmp_path / "short.py").write_text("pass\n")
    ran = run(tmp_path / "short.py", "-m", "offload_args", "trace", "--save", str(tmp_path / "T.SVG"))
    assert ran.returncode == 0 and "open it in a browser" in ran.stderr
    assert (tmp_path / "T.SVG").read_text().startswith("<svg")


def test_command_shows_the_scripts_own_traceback(tmp_path: Path) -> None:
    ran = traced(tmp_path / "failing.py", "def f():\n    1 / 0\nf()\n")
    assert ran.returncode == 1
    assert ran.stderr.splitlines()[1].endswith('failing.py", line 3, in <module>')
    assert "ZeroDivisionError" in ran.stderr and "runpy" not in ran.stderr and "-- offload_args trace" in ran.stderr


@pytest.mark.later("host")
def test_the_scripts_output_is_all_there_is_on_stdout(device: str, tmp_path: Path) -> None:
    text = LOOP.format(device=device)
    (tmp_path / "plain.py").write_text(text)
    plain = run(tmp_path / "plain.py")
    ran = traced(tmp_path / "cg.py", text)
    assert ran.stdout == plain.stdout != ""
    assert "-- offload_args trace" in ran.stderr


@pytest.mark.later
def test_command_runs_a_module_and_refuses_a_missing_file(tmp_path: Path) -> None:
    (tmp_path / "part.py").write_text("print('as', __name__)\n")
    command = [sys.executable, "-m", "offload_args", "trace"]
    ran = subprocess.run([*command, "-m", "part"], capture_output=True, text=True, cwd=tmp_path)
    assert ran.stdout == "as __main__\n" and ran.returncode == 0
    ran = subprocess.run([*command, "none.py"], capture_output=True, text=True, cwd=tmp_path)
    assert ran.returncode == 2 and "no file none.py" in ran.stderr
