"""Plans: each run sends the same calls to the device, and a file states which ones."""

from __future__ import annotations

import ctypes
import json
import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from time import sleep
from typing import Any

import numpy as np
import pytest
import scipy_openblas32

from offload_args import ArgumentError, accelerate

PROGRAM = """
import numpy as np
A = np.arange(3600.0).reshape(60, 60) / 3600
for _ in range(3):
    B = A @ (A + 1)
C = B[:, :20] @ A[:20]
print(B.tobytes().hex()[:64], round(float(C.sum()), 6))
"""


@pytest.fixture
def program(tmp_path: Path) -> Path:
    path = tmp_path / "program.py"
    path.write_text(PROGRAM)
    return path


def run(*arguments: object, **options: Any) -> subprocess.CompletedProcess[str]:
    words = [sys.executable, "-m", "offload_args", "run", *map(str, arguments)]
    return subprocess.run(words, capture_output=True, text=True, timeout=300, **options)


def decisions(plan: Path) -> dict[tuple[str, int, str], bool]:
    return {(row["file"], row["line"], row["routine"]): row["goes"] for row in json.loads(plan.read_text())["calls"]}


def multiply(A: np.ndarray) -> np.ndarray:
    return A @ (A + 1)


@pytest.mark.later("host")
def test_a_run_stores_its_decisions_and_the_next_one_follows_them(device: str, program: Path, tmp_path: Path) -> None:
    plan, report = tmp_path / "plan.json", tmp_path / "report.json"
    first = run("--device", device, "--margin", 0, "--plan", plan, program)
    assert (first.returncode, first.stderr) == (0, "")
    assert decisions(plan) == {("program.py", 5, "dgemm"): True, ("program.py", 6, "dgemm"): True}
    data = json.loads(plan.read_text())
    next(row for row in data["calls"] if row["line"] == 5)["goes"] = False
    plan.write_text(json.dumps(data))
    moved = tmp_path / "elsewhere"
    moved.mkdir()
    program.rename(moved / "program.py")  # file names are relative to the program's folder
    for words in ([], ["--deterministic"]):
        again = run("--device", device, "--margin", 0, "--plan", plan, "--json", report, *words, moved / "program.py")
        assert again.returncode == 0, again.stderr
        rows = json.loads(report.read_text())["rows"]
        assert [row["place"].rpartition(":")[2] for row in rows if row["gone"]] == ["6"]
        assert sum(row["gone"] for row in rows) == 1
        assert sum(row["refused"].get("by the plan", 0) for row in rows) == 3
    assert json.loads(plan.read_text()) == data
    words = ["--plan", plan, "--deterministic", "--device", device, "--margin", 0, "--json", report]
    again = run(*words, "program.py", cwd=moved)
    assert again.returncode == 0, again.stderr
    assert [row["gone"] for row in json.loads(report.read_text())["rows"] if row["place"].endswith(":6")] == [1]


def test_a_deterministic_run_sends_nothing_that_its_plan_lacks(device: str, tmp_path: Path) -> None:
    plan, A = tmp_path / "plan.json", np.arange(900.0).reshape(30, 30)
    with accelerate(device, margin=0, plan=plan):
        multiply(A)
    before = plan.read_text()
    with accelerate(device, margin=0, plan=plan, deterministic=True) as on:
        multiply(A)
        multiply(A[:31, :31])  # these sizes are between the same powers of two
        multiply(np.ones((200, 200)))
        A @ (A + 1)  # another line
    assert on.report.gone == 2
    assert sum(row.refused.get("by the plan", 0) for row in on.report.rows) == 2
    assert plan.read_text() == before
    with accelerate(device, margin=0, plan=plan):  # this run adds the new decisions
        multiply(np.ones((200, 200)))
    assert len(json.loads(plan.read_text())["calls"]) == 2


def test_a_plan_decides_against_the_model_and_in_a_crowd(tmp_path: Path) -> None:
    """The host device is never faster, so the model would send no call; calls of eight threads would be refused."""
    plan, A = tmp_path / "plan.json", np.arange(14400.0).reshape(120, 120)
    with accelerate("host", margin=0, plan=plan):
        multiply(A)
    expected = multiply(A)
    with accelerate("host", plan=plan, deterministic=True) as on, ThreadPoolExecutor(8) as pool:
        results = list(pool.map(multiply, [A] * 24))
    assert on.report.calls == on.report.gone == 24
    for result in results:
        np.testing.assert_allclose(result, expected, rtol=1e-12)


@pytest.mark.later
def test_a_plan_of_another_machine_is_refused_with_its_name(program: Path, tmp_path: Path) -> None:
    plan = tmp_path / "plan.json"
    with accelerate("host", margin=0, plan=plan):
        multiply(np.ones((30, 30)))
    data = json.loads(plan.read_text())
    here = dict(data["machine"])
    data["machine"].update(name="big-iron", device="Colossus", cpu="valves")
    plan.write_text(json.dumps(data))
    ended = run("--device", "host", "--plan", plan, program)
    assert (ended.returncode, ended.stdout) == (2, "")
    assert "is of another machine, big-iron (Colossus, " in ended.stderr and "valves" in ended.stderr
    for part in ("device", "driver", "cpu", "cpus", "cores", "blas"):
        data["machine"] = {**here, "name": "big-iron", part: "another"}
        plan.write_text(json.dumps(data))
        for deterministic in (False, True):
            with pytest.raises(ArgumentError, match="is of another machine, big-iron"):
                accelerate("host", plan=plan, deterministic=deterministic)


HALF = '{"offload_args plan": 1, "machine": {}, "calls": [{}]}'


@pytest.mark.parametrize("text", ["", "{}", "[1]", HALF, "\x00", "[" * 9999])
def test_a_file_that_is_no_plan_is_refused(tmp_path: Path, text: str) -> None:
    plan = tmp_path / "plan.json"
    plan.write_text(text)
    with pytest.raises(ArgumentError, match=r"plan\.json is no plan of offload_args; delete it, or name another"):
        accelerate("host", plan=plan)
    assert plan.read_text() == text


def test_a_plan_of_another_version_is_refused(tmp_path: Path) -> None:
    plan = tmp_path / "plan.json"
    plan.write_text('{"offload_args plan": 7, "machine": {}, "calls": []}')
    with pytest.raises(ArgumentError, match="has version 7 of plans, and this is 1"):
        accelerate("host", plan=plan)


def test_deterministic_needs_a_plan(tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match="deterministic needs a plan; a run with plan=FILE alone makes it"):
        accelerate("host", deterministic=True)
    with pytest.raises(ArgumentError, match=r"deterministic needs a plan, and there is no file .*plan\.json"):
        accelerate("host", plan=tmp_path / "plan.json", deterministic=True)


@pytest.mark.slow
@pytest.mark.later("host")
def test_a_plan_that_cannot_be_written_is_said_at_the_end(device: str, program: Path, tmp_path: Path) -> None:
    plan = tmp_path / "no such folder" / "plan.json"
    ended = run("--device", device, "--margin", 0, "--plan", plan, program)
    assert ended.returncode == 2 and ended.stdout
    assert ended.stderr.startswith("run: the plan can't be written: [Errno 2]")
    with pytest.raises(FileNotFoundError):
        accelerate(device, margin=0, plan=plan).stop()


THREAD = r"""
#include <pthread.h>
void scipy_cblas_dgemm(int, int, int, int, int, int, double, const void *, int, const void *, int, double, void *, int);
static void *call(void *at) {
  scipy_cblas_dgemm(102, 111, 111, 40, 40, 40, 1, at, 40, at, 40, 0, (double *)at + 1600, 40);
  return 0;
}
void call_on_a_thread(void *at) {
  pthread_t thread;
  pthread_create(&thread, 0, call, at);
  pthread_join(thread, 0);
}
"""


def test_a_thread_unknown_to_python_does_not_wait_for_its_lock(device: str, tmp_path: Path) -> None:
    """The thread that waits for it holds Python's lock all the time."""
    compiled(tmp_path, "thread", THREAD)
    module = ctypes.PyDLL(str(tmp_path / "thread.so"))
    both = np.arange(3200.0)
    with accelerate(device, margin=0, plan=tmp_path / "plan.json") as on:
        module.call_on_a_thread(ctypes.c_void_p(both.ctypes.data))
    A = both[:1600].reshape(40, 40).T
    np.testing.assert_allclose(both[1600:].reshape(40, 40).T, A @ A.copy(), rtol=1e-12)
    assert on.report.gone == 1
    assert [row["file"] for row in json.loads((tmp_path / "plan.json").read_text())["calls"]] == [None]


GUARDED = r"""
#include <pthread.h>
#include <stdatomic.h>
void scipy_cblas_dgemm(int, int, int, int, int, int, double, const void *, int, const void *, int, double, void *, int);
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static atomic_int taken, wanted;
void multiply(void *at) {
  pthread_mutex_lock(&mutex);
  atomic_store(&taken, 1);
  while (!atomic_load(&wanted)) continue;
  scipy_cblas_dgemm(102, 111, 111, 40, 40, 40, 1, at, 40, at, 40, 0, (double *)at + 1600, 40);
  pthread_mutex_unlock(&mutex);
}
int is_taken(void) { return atomic_load(&taken); }
void take(void) {
  atomic_store(&wanted, 1);
  pthread_mutex_lock(&mutex);
  pthread_mutex_unlock(&mutex);
}
"""

GUARDED_PROGRAM = """
import ctypes, json, sys, threading, time
import numpy as np
from offload_args import accelerate, scripts

scripts.PATIENCE = float(sys.argv[3])
free, held = ctypes.CDLL("./guarded.so"), ctypes.PyDLL("./guarded.so")  # without and with Python's lock
both = np.arange(3200.0)
def work():
    free.multiply(ctypes.c_void_p(both.ctypes.data))
with accelerate(sys.argv[1], margin=0, plan=sys.argv[2], deterministic=True) as on:
    thread = threading.Thread(target=work)
    thread.start()
    while not free.is_taken():
        time.sleep(0.001)
    (held if sys.argv[4] == "held" else free).take()
    thread.join()
A = both[:1600].reshape(40, 40).T
assert np.allclose(both[1600:].reshape(40, 40).T, A @ A.copy())
print(on.report.calls, on.report.gone)
"""


def compiled(tmp_path: Path, name: str, text: str) -> None:
    folder = Path(scipy_openblas32.get_lib_dir())
    library = next(folder.glob("libscipy_openblas*.so*"))
    (tmp_path / f"{name}.c").write_text(text)
    words = [os.environ.get("CC", "cc"), "-shared", "-fPIC", "-pthread", f"{name}.c", "-o", f"{name}.so", library]
    subprocess.run([*words, f"-Wl,-rpath,{folder}"], cwd=tmp_path, check=True, timeout=300)


@pytest.mark.later
def test_a_call_inside_a_lock_does_not_wait_for_the_thread_that_waits_for_the_lock(tmp_path: Path) -> None:
    """The thread with Python's lock waits for the mutex around the call, so the line of the call can't be found, and
    the call stays on the CPU.

    Without such a thread, the line is found, and the call goes to the device. The plan is made in this way.
    """
    compiled(tmp_path, "guarded", GUARDED)
    (tmp_path / "guarded.py").write_text(GUARDED_PROGRAM)

    def outcome(patience: float, lock: str) -> str:
        words = [sys.executable, "guarded.py", "sim:0", "plan.json", str(patience), lock]
        return subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, timeout=300, check=True).stdout

    text = (tmp_path / "guarded.py").read_text()
    (tmp_path / "guarded.py").write_text(text.replace(", deterministic=True", ""))
    assert outcome(60, "free") == "1 1\n"
    (tmp_path / "guarded.py").write_text(text)
    assert outcome(60, "free") == "1 1\n"
    assert outcome(0.1, "held") == "1 0\n"


def test_what_a_handler_of_a_signal_raises_is_not_lost(device: str, tmp_path: Path) -> None:
    """A handler may also run while the line of a call is searched for."""
    A, fired, caught = np.ones((40, 40)), 0, 0

    class Late(Exception):
        pass

    def late(*_: object) -> None:
        nonlocal fired
        fired += 1
        raise Late

    before = signal.signal(signal.SIGALRM, late)
    try:
        with accelerate(device, margin=0, plan=tmp_path / "plan.json"):
            for i in range(100):
                try:
                    signal.setitimer(signal.ITIMER_REAL, 1e-4 + 7e-6 * i)
                    while fired == i:
                        A @ A[::-1]
                    sleep(0)
                except Late:
                    caught += 1
    finally:
        signal.signal(signal.SIGALRM, before)
    assert caught == fired == 100
