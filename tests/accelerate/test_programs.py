"""Unmodified programs: NumPy's and SciPy's results are the same when every possible call goes to a device."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import scipy.linalg
import scipy.linalg.blas as fortran

import offload_args
from offload_args import ArgumentError, Device, _core, accelerate, scripts, testing

DTYPES = ("f4", "f8", "c8", "c16")
RTOL = {"f": 2e-5, "d": 1e-12, "F": 2e-5, "D": 1e-12}


@pytest.fixture(autouse=True)
def nothing_stays_on() -> Iterator[None]:
    yield
    assert _core.accelerate_query() == (0, 0)


def numbers(shape: tuple[int, ...], dtype: str, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    values = rng.standard_normal(shape)
    if np.dtype(dtype).kind == "c":
        values = values + 1j * rng.standard_normal(shape)
    return values.astype(dtype)


def agree(result: np.ndarray, expected: np.ndarray) -> None:
    scale = np.abs(expected).max(initial=1)
    np.testing.assert_allclose(result, expected, rtol=0, atol=RTOL[expected.dtype.char] * 50 * scale)


def went(report: offload_args.scripts.Report, routine: str) -> int:
    return sum(row.gone for row in report.rows if row.routine == routine)


# -- NumPy and SciPy ---------------------------------------------------------------------------------------------------


@pytest.mark.later("host")
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("orders", ["CC", "CF", "FC", "FF"])
def test_a_product_of_numpy_goes_in_every_order(device: str, dtype: str, orders: str) -> None:
    A, B = numbers((33, 21), dtype), numbers((21, 45), dtype, 1)
    A, B = np.array(A, order=orders[0]), np.array(B, order=orders[1])
    expected = A @ B
    with accelerate(device, margin=0) as on:
        result = A @ B
        parts = A[::2, 3:17] @ B[3:17, 5::3]
    agree(result, expected)
    agree(parts, A[::2, 3:17].copy() @ B[3:17, 5::3].copy())
    letter = np.dtype(dtype).char.lower() if np.dtype(dtype).kind == "f" else {"F": "c", "D": "z"}[np.dtype(dtype).char]
    assert went(on.report, {"f": "s", "d": "d"}.get(letter, letter) + "gemm") >= 1
    assert on.report.device == device


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_matrix_times_its_transpose_goes(device: str, dtype: str) -> None:
    A = numbers((31, 22), dtype)
    with accelerate(device, margin=0) as on:
        products = A @ A.T, A.T @ A
    agree(products[0], A @ A.T.copy())
    agree(products[1], A.T.copy() @ A)
    assert on.report.gone == 2


@pytest.mark.later("host", "c", "s")
@pytest.mark.parametrize("letter", "sdcz")
def test_each_routine_of_level_3_agrees(device: str, letter: str) -> None:
    dtype = {"s": "f4", "d": "f8", "c": "c8", "z": "c16"}[letter]
    A, B = np.asfortranarray(numbers((19, 19), dtype)), np.asfortranarray(numbers((19, 7), dtype, 1))
    K, L = np.asfortranarray(numbers((19, 11), dtype, 2)), np.asfortranarray(numbers((19, 11), dtype, 3))
    C, D = np.asfortranarray(numbers((19, 19), dtype, 4)), np.asfortranarray(numbers((19, 7), dtype, 5))
    A = A + 8 * np.eye(19, dtype=dtype, order="F")
    calls = {}
    for lower in (0, 1):
        calls[f"symm {lower}"] = lambda low=lower: getattr(fortran, letter + "symm")(0.5, A, B, beta=2, c=D, lower=low)
        calls[f"symm right {lower}"] = lambda low=lower: getattr(fortran, letter + "symm")(
            0.5, A, np.asfortranarray(B.T), side=1, lower=low
        )
        for trans in (0, 1):
            calls[f"syrk {lower}{trans}"] = lambda low=lower, t=trans: getattr(fortran, letter + "syrk")(
                0.5, K if not t else np.asfortranarray(K.T), beta=2, c=C, trans=t, lower=low
            )
            calls[f"syr2k {lower}{trans}"] = lambda low=lower, t=trans: getattr(fortran, letter + "syr2k")(
                0.5, *(M if not t else np.asfortranarray(M.T) for M in (K, L)), beta=2, c=C, trans=t, lower=low
            )
        for trans in (0, 1, 2):
            for name in ("trmm", "trsm"):
                calls[f"{name} {lower}{trans}"] = lambda low=lower, t=trans, name=name: getattr(fortran, letter + name)(
                    0.5, A, B, lower=low, trans_a=t, diag=low
                )
    if letter in "cz":
        calls["hemm"] = lambda: getattr(fortran, letter + "hemm")(0.5, A, B, beta=2, c=D)
        for trans in (0, 2):
            calls[f"herk {trans}"] = lambda t=trans: getattr(fortran, letter + "herk")(
                0.5, K if not t else np.asfortranarray(K.T), beta=2, c=C, trans=t
            )
            calls[f"her2k {trans}"] = lambda t=trans: getattr(fortran, letter + "her2k")(
                0.5 + 0.25j, *(M if not t else np.asfortranarray(M.T) for M in (K, L)), beta=2, c=C, trans=t
            )
    for name, call in calls.items():
        expected = call()
        with accelerate(device, margin=0) as on:
            result = call()
        agree(result, expected)
        assert on.report.gone == 1, (name, on.report)


@pytest.mark.parametrize("name", ["solve", "cholesky", "eigh", "svd", "inv", "qr", "lstsq"])
def test_linear_algebra_of_numpy_and_scipy_agrees(device: str, name: str) -> None:
    A = numbers((30, 30), "f8")
    A = A @ A.T + 30 * np.eye(30)
    b = numbers((30, 4), "f8", 1)
    operands = (A, b) if name in ("solve", "lstsq") else (A,)
    for module in (np.linalg, scipy.linalg):
        function = getattr(module, name)
        expected = function(*operands)
        with accelerate(device, margin=0):
            result = function(*operands)
        for a, e in zip(*((r if isinstance(r, tuple) else (r,)) for r in (result, expected)), strict=True):
            if isinstance(e, np.ndarray) and e.size:
                agree(np.abs(a), np.abs(e))


# -- calls that never go -----------------------------------------------------------------------------------------------


def test_small_calls_are_counted_and_do_not_go(device: str) -> None:
    A = numbers((20, 20), "f8")
    with accelerate(device) as on:
        for _ in range(10):
            A @ (2 * A)
    assert on.report.small >= 10
    assert on.report.calls == 0


def test_an_output_that_overlaps_an_input_is_the_originals(device: str) -> None:
    a = np.asfortranarray(numbers((20, 20), "f8"))
    plain, lent = a.copy(order="F"), a.copy(order="F")
    fortran.dgemm(1.0, plain, plain, beta=0.0, c=plain, overwrite_c=1)
    with accelerate(device, margin=0) as on:
        fortran.dgemm(1.0, lent, lent, beta=0.0, c=lent, overwrite_c=1)
    np.testing.assert_array_equal(lent, plain)
    assert [row.refused for row in on.report.rows] == [{"overlap": 1}]


def test_a_wrong_argument_is_said_by_the_library_as_before(device: str) -> None:
    def call() -> str:
        with pytest.raises(Exception) as raised:
            fortran.dgemm(1.0, np.ones((3, 4)), np.ones((5, 6)))
        return str(raised.value)

    before = call()
    with accelerate(device, margin=0):
        assert call() == before


def test_functions_chooses_families(device: str) -> None:
    A = numbers((20, 30), "f8")
    with accelerate(device, margin=0, functions=["syrk"]) as on:
        A @ A.T
        A @ A.T.copy()
    assert {row.routine: row.gone for row in on.report.rows} == {
        "dsyrk" if device.startswith("hip") else "dgram": 1,
        "dgemm": 0,
    }
    with pytest.raises(ArgumentError, match=r"functions needs some of .*gemm.*, got 'gem'; did you mean"):
        accelerate(device, functions=["gem"])


@pytest.mark.parametrize("name", ["gpu", "cuda0", "cuda:x", "cuda:-1", ""])
def test_a_device_that_no_machine_has_is_refused(name: str) -> None:
    with pytest.raises(ArgumentError, match="accelerate: device needs a Device or a name such as"):
        accelerate(name)


@pytest.mark.parametrize("margin", [-1, float("nan"), "1"])
def test_a_margin_that_is_none_is_refused(margin: object) -> None:
    with pytest.raises(ArgumentError, match="margin needs a number of 0 or more"):
        accelerate("host", margin=margin)  # type: ignore[arg-type]


def test_the_model_keeps_calls_on_the_cpu_that_would_not_gain() -> None:
    """The rates are chosen by the test: copies to the device take so long that the device is never faster."""
    A = numbers((256, 256), "f8")
    rates = (1e6, 1e6, 1e-3, *(1e11,) * 4, *(1e11,) * 4, 1e10)
    with accelerate("host", margin=1.25) as on:
        _core.accelerate_use(Device("host").number, rates)
        for _ in range(30):
            A @ (A + 1)
    refused = sum(row.refused.get("not faster", 0) for row in on.report.rows)
    assert refused >= 20, on.report


# -- undone, nested, later ---------------------------------------------------------------------------------------------


def test_nested_and_stopped_in_any_order(device: str) -> None:
    A = numbers((20, 20), "f8")
    outer = accelerate(device, margin=0)
    with accelerate(device, margin=0, functions=["syrk"]) as inner:
        A @ (A + 1)
    A @ (A + 1)
    outer.stop()
    outer.stop()
    A @ (A + 1)
    assert (inner.report.calls, inner.report.gone) == (1, 0)
    assert (outer.report.calls, outer.report.gone) == (2, 1)
    first, second = accelerate(device, margin=0), accelerate(device, margin=0)
    first.stop()
    A @ (A + 1)
    second.stop()
    assert (first.report.calls, second.report.calls) == (0, 1)


def test_slots_are_written_and_put_back(device: str) -> None:
    """Pages that the loader made read-only are read-only again, while hooks are installed and afterwards."""

    def read_only() -> list[str]:
        with open("/proc/self/maps") as maps:
            return [line for line in maps if "_multiarray_umath" in line and line.split()[1].startswith("r--p")]

    before = read_only()
    for _ in range(3):
        with accelerate(device, margin=0):
            slots, modules = _core.accelerate_query()
            assert slots > 50 and modules >= 3
            assert read_only() == before
        assert _core.accelerate_query() == (0, 0)
        assert read_only() == before


RUN_CHILD = [sys.executable, "-c"]


def child(program: str, timeout: float = 300) -> str:
    import subprocess

    ended = subprocess.run([*RUN_CHILD, program], capture_output=True, text=True, timeout=timeout)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


@pytest.mark.later("host")
def test_a_module_that_is_loaded_later_is_caught(device: str) -> None:
    out = child(f"""
import numpy as np, sys
from offload_args import accelerate, _core
assert "scipy.linalg" not in sys.modules
with accelerate({device!r}, margin=0) as on:
    before = _core.accelerate_query()
    import scipy.linalg.blas as blas
    blas.dgemm(1.0, np.ones((5, 6), order="F"), np.ones((6, 7), order="F"))
print(_core.accelerate_query(), before[0] > 0, on.report.gone)
""")
    assert out.split("\n")[0] == "(0, 0) True 1"


@pytest.mark.later
def test_undone_while_other_threads_call(device: str) -> None:
    A = numbers((24, 24), "f8")
    expected, ending, wrong = A @ (A + 1), threading.Event(), []

    def work() -> None:
        while not ending.is_set():
            if not np.allclose(A @ (A + 1), expected):
                wrong.append(1)

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    for _ in range(25):
        with accelerate(device, margin=0):
            pass
    ending.set()
    for thread in threads:
        thread.join()
    assert not wrong


# -- threads, forks, signals, failures ---------------------------------------------------------------------------------


def test_threads_share_operands(device: str) -> None:
    A, B = numbers((40, 30), "f8"), numbers((30, 20), "f8", 1)
    expected = A @ B
    with accelerate(device, margin=0) as on, ThreadPoolExecutor(8) as pool:
        for result in pool.map(lambda _: A @ B, range(80)):
            agree(result, expected)
    assert on.report.calls == 80
    assert on.report.gone > 0


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")
def test_a_child_that_is_forked_while_a_device_opens_ends_its_program() -> None:
    """The thread that opens the device holds the lock, and does not exist in the child."""
    taken, forked = threading.Event(), threading.Event()

    def hold() -> None:
        with scripts._lock:
            taken.set()
            forked.wait()

    with accelerate("host", margin=0) as outer:
        thread = threading.Thread(target=hold)
        thread.start()
        taken.wait()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            pid = os.fork()
        if pid == 0:
            signal.alarm(300)
            outer.stop()
            os._exit(0)
        status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        forked.set()
        thread.join()
    assert status == 0


def test_a_forked_child_uses_the_library(device: str) -> None:
    A = numbers((30, 30), "f8")
    expected = A @ (A + 1)
    with accelerate(device, margin=0) as on:
        A @ (A + 1)
        pid = os.fork()
        if pid == 0:
            signal.alarm(300)
            status = 1
            try:
                status = 0 if np.allclose(A @ (A + 1), expected) else 2
            finally:
                os._exit(status)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
        agree(A @ (A + 1), expected)
    assert on.report.gone == 2


@pytest.mark.parametrize("beta", [0.0, 0.5])
def test_a_device_that_fails_at_any_call_changes_nothing(beta: float) -> None:
    a, b, c = (np.asfortranarray(numbers(s, "f8", i)) for i, s in enumerate([(30, 20), (20, 25), (30, 25)]))
    expected = fortran.dgemm(1.0, a, b, beta=beta, c=c)
    sim = testing.sim_device(index=1)
    with accelerate(sim, margin=0) as on, warnings.catch_warnings():
        warnings.simplefilter("error")
        for k in range(1, 40):
            testing.fail_call(sim, k)
            agree(fortran.dgemm(1.0, a, b, beta=beta, c=c), expected)
        testing.fail_call(sim, 0)
        warnings.simplefilter("ignore")  # the next region warns once if it can't have a pool
        with offload_args.offload_args(a, device=sim):
            pass
        agree(fortran.dgemm(1.0, a, b, beta=beta, c=c), expected)
    assert on.report.calls == 40
    failed = sum(row.refused.get("device failed", 0) for row in on.report.rows)
    assert failed > 0 and on.report.gone > 0


def test_the_report_says_why_a_call_on_a_device_failed() -> None:
    A, sim = numbers((30, 30), "f8"), testing.sim_device(4096, index=1)
    with accelerate(sim, margin=0) as on:
        A @ (A + 1)
        assert on.report.gone == 0 and on.report.failure.startswith("a call on the device failed: ")
        assert "4" in on.report.failure and "sim:1" in on.report.failure and on.report.failure in str(on.report)
    testing.sim_device(index=1)
    with accelerate(sim, margin=0) as on:
        A @ (A + 1)
    assert on.report.gone == 1 and on.report.failure == ""


def test_the_report_names_a_library_that_can_not_be_loaded() -> None:
    program = """
import numpy as np
from offload_args import accelerate
A = np.ones((200, 200))
with accelerate("host", margin=0) as on:
    A @ (A + 1)
print(on.report.failure)
"""
    environment = {**os.environ, "OFFLOAD_ARGS_CBLAS": "here/libblas.so"}
    command = [sys.executable, "-c", program]
    result = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=True)
    assert result.stdout.startswith("a call on the device failed: cblas: not loaded"), result.stdout
    assert "OFFLOAD_ARGS_CBLAS=here/libblas.so: not an absolute path" in result.stdout


def test_a_product_is_added_once_if_memory_can_not_be_freed() -> None:
    """The result is in the array already, so the library must not make the call again."""
    a, b, c = (np.asfortranarray(numbers(s, "f8", i)) for i, s in enumerate([(370, 20), (20, 370), (370, 370)]))
    expected = fortran.dgemm(1.0, a, b, beta=0.5, c=c)
    sim = testing.sim_device(index=1)
    with accelerate(sim, margin=0) as on:
        for k in range(20, 45):
            testing.fail_call(sim, k)
            agree(fortran.dgemm(1.0, a, b, beta=0.5, c=c), expected)
        testing.fail_call(sim, 0)
    testing.sim_device(index=1)
    assert on.report.gone > 0


def test_a_device_without_room_changes_nothing() -> None:
    A = numbers((200, 200), "f8")
    expected = A @ (A + 1)
    with accelerate(testing.sim_device(64 << 10, index=1), margin=0) as on:
        agree(A @ (A + 1), expected)
    testing.sim_device(index=1)
    assert on.report.gone == 0


def test_floating_point_flags_stay_as_they_were(device: str) -> None:
    A = numbers((30, 30), "f8")
    with np.errstate(all="raise"), accelerate(device, margin=0) as on:
        A @ (A + 1)
        np.ones((3, 0)) @ np.ones((0, 4))
    assert on.report.gone >= 1


def test_signals_during_calls(device: str) -> None:
    A = numbers((40, 40), "f8")
    expected, hits = A @ (A + 1), []
    before = signal.signal(signal.SIGALRM, lambda *_: hits.append(1))
    signal.setitimer(signal.ITIMER_REAL, 0.001, 0.001)
    try:
        with accelerate(device, margin=0):
            rounds = 0
            while rounds < 200 or not hits:
                agree(A @ (A + 1), expected)
                rounds += 1
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def test_ctrl_c_between_calls_leaves_nothing_behind(device: str) -> None:
    A = numbers((40, 40), "f8")
    timer = threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGINT))
    with pytest.raises(KeyboardInterrupt), accelerate(device, margin=0):
        timer.start()
        while True:
            A @ (A + 1)
    timer.join()
    agree(A @ (A + 1), A @ (A + 1).copy())


def test_temporaries_and_read_only_arrays(device: str, tmp_path: object) -> None:
    A = numbers((40, 40), "f8")
    A.flags.writeable = False
    mapped = np.memmap(f"{tmp_path}/m", "f8", "w+", shape=(40, 40))
    mapped[:] = A
    with accelerate(device, margin=0):
        for i in range(50):
            agree((A + i) @ (A - i), np.dot((A + i).copy(), (A - i).copy()))
            mapped[i % 40] = i
            agree(mapped @ A, np.asarray(mapped).copy() @ A)
            gc.collect(0)


# -- the report --------------------------------------------------------------------------------------------------------


def test_the_report_names_the_line_of_a_call_that_holds_pythons_lock(device: str) -> None:
    a = np.asfortranarray(numbers((30, 30), "f8"))
    with accelerate(device, margin=0) as on:
        fortran.dgemm(1.0, a, a)  # f2py holds Python's lock
    (row,) = on.report.rows
    assert row.place.startswith(("tests/accelerate/test_programs.py:", __file__)), row
    assert "dgemm" in str(on.report) and "1 went" in str(on.report)
    assert "<table" in on.report._repr_html_()
    assert '"gone": 1' in on.report.as_json()


def test_the_report_names_the_line_of_a_call_that_does_not() -> None:
    """NumPy frees Python's lock in matmul, so another thread can read the line during the call."""
    A = numbers((30, 30), "f8")
    with accelerate(testing.sim_device(delay_us=3000, index=1), margin=0) as on:
        known, ends = False, time.monotonic() + 300  # the other thread may wait for a core as long as a call lasts
        while not known and time.monotonic() < ends:
            A @ (A + 1)
            known = any("test_programs.py:" in row.place for row in on.report.rows)
    testing.sim_device(index=1)
    assert known, on.report


def test_counting_alone_sends_nothing(device: str) -> None:
    A = numbers((200, 200), "f8")
    with accelerate(device, only_count=True) as on:
        A @ (A + 1)
    assert on.report.gone == 0
    assert [row.refused for row in on.report.rows] == [{"left out": 1}]


INTERPRETERS = """
import sys, threading
try:
    import _interpreters as interpreters
except ImportError:
    import _xxsubinterpreters as interpreters
import numpy as np
from offload_args import accelerate

interpreters.destroy(interpreters.create())
A = np.arange(3600.0).reshape(60, 60)
expected = A @ (A + 1)
with accelerate(sys.argv[1], margin=0) as on:
    def work():
        for _ in range(50):
            assert (A @ (A + 1) == expected).all()
    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    work()
    for thread in threads:
        thread.join()
print(on.report.calls)
"""


@pytest.mark.later
def test_a_second_interpreter_changes_nothing(device: str) -> None:
    """Once a second interpreter has existed, PyGILState_Check returns true for each thread."""
    words = [sys.executable, "-c", INTERPRETERS, device]
    ended = subprocess.run(words, capture_output=True, text=True, timeout=300)
    assert (ended.returncode, ended.stdout) == (0, "200\n"), ended.stderr
