"""Products in a region whose second matrix goes up in panels, while the device multiplies the panels that it has."""

from __future__ import annotations

import ctypes
import re
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from types import FrameType
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from helpers.devices import HIP, here, open_or_skip
from offload_args import (
    Device,
    DevicePtr,
    In,
    InOut,
    Out,
    Scratch,
    _core,
    blas,
    call,
    embedding,
    offload_args,
    testing,
    tracing,
    update,
)
from offload_args._operands import checking
from offload_args.errors import (
    AliasError,
    ArgumentError,
    ArgumentTypeError,
    DirectionError,
    OffloadError,
    PerformanceWarning,
)

DTYPES = ("float32", "float64", "complex64", "complex128")


@pytest.fixture(params=here("sim:0", "cuda:0", HIP))
def on(request: pytest.FixtureRequest) -> str:
    return open_or_skip(request.param)


@pytest.fixture(autouse=True)
def narrow_panels() -> Iterator[None]:
    """Let small products be in panels of 4 rows or columns."""
    _core.panels_configure(4)
    try:
        with testing.part_cost():
            yield
    finally:
        _core.panels_configure(0)


def whole(shape: tuple[int, ...], dtype: str = "float64", order: Any = "C", seed: int = 0) -> NDArray[Any]:
    """Return a matrix of small whole numbers, so that every sum is exact."""
    random = np.random.default_rng([*shape, seed])
    values: NDArray[Any] = random.integers(-3, 4, shape).astype(float)
    if np.dtype(dtype).kind == "c":
        values = values + 1j * random.integers(-3, 4, shape)
    return np.asarray(values, dtype, order=order)


@contextmanager
def apart(device: str, *arrays: Any) -> Iterator[list[Any]]:
    """Lend each array in a region of its own: small arrays of one region go up together."""
    with ExitStack() as stack:
        yield [stack.enter_context(offload_args(array, device=device))[0] for array in arrays]


def calls_of(trace: tracing.Trace) -> int:
    return sum(event.kind == "call" for event in trace.events)


def is_undefined(dx: DevicePtr) -> bool:
    """Return whether calls refuse a vector as undefined."""
    try:
        blas.asum(dx)
    except OffloadError as error:
        return "undefined" in str(error)
    return False


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("beta", [0.0, 2.0])
def test_products_in_panels_are_numpys(on: str, dtype: str, order: Any, beta: float) -> None:
    for trans_a, trans_b in ("NN", "TN", "NT", "CN" if order == "C" else "NC"):
        A = whole((23, 9) if trans_a == "N" else (9, 23), dtype, order)
        B = whole((9, 31) if trans_b == "N" else (31, 9), dtype, order, 1)
        C = whole((23, 31), dtype, order, 2)
        a, b = (x if t == "N" else x.T if t == "T" else x.conj().T for x, t in ((A, trans_a), (B, trans_b)))
        expected = 3 * (a @ b) + beta * C
        with testing.counting(Device(on)) as moved, apart(on, In(A), In(B), C) as (dA, dB, dC):
            blas.gemm(3.0, dA, dB, beta, dC, trans_a=trans_a, trans_b=trans_b)
        assert np.array_equal(C, expected)
        assert moved.bytes_up == A.nbytes + B.nbytes + (C.nbytes if beta else 0)
        assert moved.bytes_down == C.nbytes


@pytest.mark.parametrize("order", ["C", "F"])
def test_only_a_matrix_that_is_not_there_makes_panels(on: str, order: Any) -> None:
    A, B, C = whole((24, 24), order=order), whole((24, 24), order=order, seed=1), np.empty((24, 24), order=order)
    with tracing.trace() as trace, apart(on, In(A), In(B), Out(C)) as (dA, dB, dC):
        blas.gemm(1.0, dA, dB, 0.0, dC)
        several = calls_of(trace)
        blas.gemm(1.0, dA, dB, 0.0, dC)
        assert calls_of(trace) == several + 1
    assert several == 6
    assert np.array_equal(C, A @ B)
    with tracing.trace() as trace, apart(on, In(A), In(B), Out(C)) as (dA, dB, dC):
        blas.gemm(1.0, dA, dB, 0.0, dC, panels=False)
        assert calls_of(trace) == 1


def test_each_panel_goes_up_alone(on: str) -> None:
    A, B, C = whole((32, 8)), whole((8, 16), seed=1), np.empty((32, 16))
    with testing.counting(Device(on)) as moved, apart(on, In(A), In(B), Out(C)) as (dA, dB, dC):
        blas.gemm(1.0, dA, dB, 0.0, dC)
        assert moved.bytes_up == A.nbytes + B.nbytes
        assert moved.copies_up == 1 + 7  # the last two of the 8 panels go up together
    assert moved.copies_down == 1
    assert np.array_equal(C, A @ B)


def test_panels_that_are_there_do_not_go_up_again(on: str) -> None:
    A, B, C = whole((32, 8)), whole((8, 16), seed=1), np.empty((32, 16))
    with testing.counting(Device(on)) as moved, apart(on, In(A), In(B), Out(C)) as (dA, dB, dC):
        blas.asum(dA[8:12].reshape(-1))
        blas.gemm(1.0, dA, dB, 0.0, dC)
        assert moved.bytes_up == A.nbytes + B.nbytes
    assert np.array_equal(C, A @ B)


def test_call_multiplies_in_panels(on: str) -> None:
    A, B, C = whole((128, 96)), whole((96, 16), seed=1), np.empty((128, 16))  # A is not small
    with tracing.trace() as trace:
        call(blas.gemm, 1.0, A, B, 0.0, Out(C), device=on)
    assert calls_of(trace) == 16
    assert np.array_equal(C, A @ B)


def test_parts_of_arrays_and_one_array_for_all_operands(on: str) -> None:
    big = whole((40, 60))
    before = big.copy()
    with offload_args(big, device=on) as (d,):
        blas.gemm(1.0, d[:16, :8], d[20:28, 30:42], 0.0, d[:16, 10:22])
    before[:16, 10:22] = before[:16, :8] @ before[20:28, 30:42]
    assert np.array_equal(big, before)
    A, C = whole((24, 24)), np.empty((24, 24))
    with offload_args(In(A), C, device=on) as (dA, dC):
        blas.gemm(1.0, dA, dA, 0.0, dC, trans_b="T")
    assert np.array_equal(C, A @ A.T)


def test_a_refused_call_computes_no_panel(on: str) -> None:
    A, B, C = whole((32, 8)), whole((8, 16), seed=1), whole((32, 16), seed=2)
    before, overlapping = C.copy(), whole((40, 16))
    expected = overlapping.copy()
    with apart(on, In(A), In(B), Out(C)) as (dA, dB, dC):
        with pytest.raises(DirectionError, match="would be read before it is written"):
            blas.gemm(1.0, dA, dB, 1.0, dC)
        with pytest.raises(ArgumentError, match=r"^blas\.gemm: B has shape"):
            blas.gemm(1.0, dA, dB[:7], 0.0, dC)
        dC.fill(4)
    assert (C == 4).all()
    C[...] = before
    with offload_args(In(A), In(B), In(C), device=on) as (dA, dB, dC):
        with pytest.raises(DirectionError, match="lent as In"):
            blas.gemm(1.0, dA, dB, 0.0, dC)
    assert np.array_equal(C, before)
    with offload_args(overlapping, In(whole((16, 16))), device=on) as (d, dB):
        with pytest.raises(AliasError):  # the last panel alone would overlap
            blas.gemm(1.0, d[:32], dB, 0.0, d[8:])
    assert np.array_equal(overlapping, expected)


def test_a_call_that_is_only_checked_computes_no_panel(on: str) -> None:
    A, B, C = whole((32, 8)), whole((8, 16), seed=1), whole((32, 16), seed=2)
    before = C.copy()
    with testing.counting(Device(on)) as moved, apart(on, In(A), In(B), C) as (dA, dB, dC):
        with checking():
            blas.gemm(1.0, dA, dB, 1.0, dC)
        assert (moved.calls, moved.bytes_up) == (0, 0)
    assert np.array_equal(C, before)


def test_a_call_that_c_code_lets_be_checked_computes_no_panel(on: str) -> None:
    core = ctypes.CDLL(embedding.get_library())
    A, B, C = whole((32, 8)), whole((8, 16), seed=1), whole((32, 16), seed=2)
    before = C.copy()
    with testing.counting(Device(on)) as moved, apart(on, In(A), In(B), C) as (dA, dB, dC):
        assert not core.oa_only_checks()
        core.oa_only_check(1)
        try:
            with pytest.raises(ArgumentError, match="checked, and not made"):
                blas.gemm(1.0, dA, dB, 1.0, dC)
            assert core.oa_only_checks()  # the call has not ended it
        finally:
            assert core.oa_only_check(0) == 1
        assert (moved.calls, moved.bytes_up) == (0, 0)
    assert np.array_equal(C, before)


def test_results_that_do_not_come_in_parts_are_one_call(on: str) -> None:
    A, B = whole((32, 8)), whole((8, 16), seed=1)
    with offload_args(In(A), In(B), Scratch((32, 16), np.float64), device=on) as (dA, dB, dC):
        blas.gemm(1.0, dA, dB, 0.0, dC)
        assert np.array_equal(dC.to_host(), A @ B)
    C = np.full((32, 32), np.nan)
    with pytest.warns(PerformanceWarning), offload_args(In(A), In(B), Out(C[:, ::2]), device=on) as (dA, dB, dC):
        blas.gemm(1.0, dA, dB, 0.0, dC)
    assert np.array_equal(C[:, ::2], A @ B) and np.isnan(C[:, 1::2]).all()


def test_an_undefined_result_is_overwritten_whole(on: str) -> None:
    A, B, C = whole((32, 8)), whole((8, 16), seed=1), np.zeros((32, 16))
    with apart(on, In(A), In(B), C) as (dA, dB, dC):
        with pytest.raises(ZeroDivisionError), offload_args(C, device=on) as (inner,):
            inner.fill(3)
            raise ZeroDivisionError
        blas.gemm(1.0, dA, dB, 0.0, dC)
    assert np.array_equal(C, A @ B)


def test_a_graph_has_one_product(on: str) -> None:
    A, B, C = whole((32, 8)), whole((8, 16), seed=1), np.zeros((32, 16))
    with (region := offload_args(In(A), In(B), C, device=on)) as (dA, dB, dC):
        blas.scal(1.0, dC.reshape(-1))
        with region.capture() as graph:
            blas.gemm(1.0, dA, dB, 1.0, dC)
        for _ in range(3):
            graph.replay()
    assert graph.calls == 1
    assert np.array_equal(C, 3 * (A @ B))


@pytest.mark.parametrize("keywords", [{}, {"panels": True}, {"panels": False}])
def test_the_keyword_decides_about_panels(on: str, keywords: dict[str, bool]) -> None:
    A, B, C = whole((32, 8)), whole((8, 16), seed=1), np.empty((32, 16))
    with tracing.trace() as trace, apart(on, In(A), In(B), Out(C)) as (dA, dB, dC):
        blas.gemm(1.0, dA, dB, 0.0, dC, trans_a="N", **keywords)
        assert calls_of(trace) == (8 if keywords.get("panels", True) else 1)
    assert np.array_equal(C, A @ B)


def test_operands_by_name_are_in_panels(on: str) -> None:
    A, B, C = whole((32, 8)), whole((8, 16), seed=1), np.full((32, 16), np.nan)
    for by_name in ("alpha A B beta C", "B beta C", "C beta"):
        with tracing.trace() as recording, apart(on, In(A), In(B), Out(C)) as (dA, dB, dC):
            operands: dict[str, Any] = {"alpha": 1.0, "A": dA, "B": dB, "beta": 0.0, "C": dC}
            named = {name: operands[name] for name in by_name.split()}
            blas.gemm(*(operands[name] for name in operands if name not in named), trans_a="N", **named)
        assert np.array_equal(C, A @ B) and calls_of(recording) > 2
    with apart(on, In(A), In(B), C) as (dA, dB, dC):
        with pytest.raises(ArgumentTypeError, match=r"^blas\.gemm\(\) got multiple values for argument 'A'"):
            blas.gemm(1.0, dA, A=dA, B=dB, beta=0.0, C=dC)
        with pytest.raises(ArgumentTypeError, match=r"^blas\.gemm\(\) missing 1 required positional argument: 'beta'"):
            blas.gemm(1.0, dA, dB, C=dC, panels=True)


@pytest.mark.parametrize("panels", ["no", 1, 0, None, np.False_])
def test_panels_needs_a_bool(panels: Any) -> None:
    A, B, C = whole((32, 8)), whole((8, 16), seed=1), np.zeros((32, 16))
    message = r"^blas\.gemm: panels needs True or False, got "
    with offload_args(A, B, C, device="sim:0") as (dA, dB, dC):
        with pytest.raises(ArgumentTypeError, match=message):
            blas.gemm(1.0, dA, dB, 0.0, dC, panels=panels)
    with pytest.raises(ArgumentTypeError, match=message):
        blas.gemm(1.0, A, B, 0.0, C, panels=panels, devices=["sim:0"])  # type: ignore[call-overload]
    assert not C.any()


def test_devices_and_one_call_exclude_each_other() -> None:
    A, B, C = whole((32, 8)), whole((8, 16), seed=1), np.zeros((32, 16))
    with pytest.raises(ArgumentError, match=r"^blas\.gemm: panels=False needs pointers, got devices; leave one"):
        blas.gemm(1.0, A, B, 0.0, C, panels=False, devices=["sim:0"])  # type: ignore[call-overload]
    assert not C.any()


def test_a_slice_that_is_there_makes_no_panels(on: str) -> None:
    A, B, C = whole((256, 8)), whole((8, 16), seed=1), np.empty((64, 16))
    with tracing.trace() as trace, apart(on, In(A), In(B), Out(C)) as (dA, dB, dC):
        blas.gemm(1.0, dA[:64], dB, 0.0, dC)
        several = calls_of(trace)
        assert several > 1
        assert _core.query(dA[:64]).lacking == 0
        assert _core.query(dA[32:96]).lacking == 32 * 8 * 8
        assert _core.query(dA).lacking == 192 * 8 * 8
        blas.gemm(1.0, dA[:64], dB, 0.0, dC)
        assert calls_of(trace) == several + 1
    assert np.array_equal(C, A[:64] @ B)


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("updated", ["A", "B", "C"])
def test_a_product_of_an_array_in_an_update_is_one_call(on: str, order: Any, updated: str) -> None:
    bytes_up, results = [], []
    for keywords in ({}, {"panels": False}):
        A, B = whole((32, 32), order=order), whole((32, 32), order=order, seed=1)
        C = whole((32, 32), order=order, seed=2)
        with apart(on, A, B, C) as (dA, dB, dC), update({"A": A, "B": B, "C": C}[updated]):
            assert _core.query({"A": dA, "B": dB, "C": dC}[updated]).host_writes
            with testing.counting(Device(on)) as moved:
                blas.gemm(1.0, dA, dB, 2.0, dC, **keywords)
                bytes_up.append(moved.bytes_up)
                assert moved.calls == 1
        results.append(C)
    assert bytes_up[0] == bytes_up[1]
    assert np.array_equal(*results)


@pytest.mark.filterwarnings("ignore::offload_args.errors.PerformanceWarning")
@pytest.mark.filterwarnings("ignore::offload_args.errors.UnwrittenWarning")
def test_a_failed_panel_waits_for_calls_of_other_threads() -> None:
    """Another thread's call writes C when a panel's failure is raised, and needs the interpreter to end."""
    waited = 0
    for k in range(1, 60):
        device = testing.sim_device()
        A, B, C = whole((32, 8)), whole((8, 16), seed=1), np.zeros((32, 16))
        with suppress(OffloadError), apart(str(device), In(A), In(B), C) as (dA, dB, dC):
            testing.fail_call(device, k)
            waited += multiply_while_another_writes(dA, dB, dC)
        testing.sim_device()
    assert waited > 5


def multiply_while_another_writes(dA: DevicePtr, dB: DevicePtr, dC: DevicePtr) -> bool:
    """Multiply, and open a call that writes C once the product has failed; return whether it did."""
    opened, ended = threading.Event(), threading.Event()

    def work(*_: int) -> int:
        opened.set()
        time.sleep(0.01)  # without the interpreter, which the failed product may wait for meanwhile
        ended.set()
        return 0

    def write() -> None:
        testing.fail_call(dC.device, 0)
        with suppress(OffloadError):  # if C is undefined
            _core.library_call("other", "cblas", (("C", dC, _core.OA_OVERWRITE, dC.size, 1, dC.size),), work)
        opened.set()

    def at_a_failure(frame: FrameType, event: str, _: object) -> None:
        if event == "call" and frame.f_code.co_name == "raise_status" and not opened.is_set():
            thread.start()
            opened.wait()

    thread = threading.Thread(target=write, daemon=True)
    sys.setprofile(at_a_failure)
    try:
        blas.gemm(1.0, dA, dB, 0.0, dC)
    except OffloadError:
        sys.setprofile(None)
        thread.join()
        return ended.is_set()
    finally:
        sys.setprofile(None)
    return False


def test_an_update_by_the_host_is_seen(on: str) -> None:
    A, B, C = whole((32, 8)), whole((8, 16), seed=1), np.zeros((32, 16))
    with offload_args(A, In(B), C, device=on) as (dA, dB, dC):
        with update(A):
            A[5] = 2
            blas.gemm(1.0, dA, dB, 0.0, dC)
            A[6] = 3
        blas.gemm(1.0, dA, dB, 0.0, dC)
    assert np.array_equal(C, A @ B)


@pytest.mark.filterwarnings("ignore::offload_args.errors.PerformanceWarning")
@pytest.mark.filterwarnings("ignore::offload_args.errors.UnwrittenWarning")
@pytest.mark.parametrize("direction", [Out, InOut])
def test_a_result_of_which_a_panel_failed_is_undefined(direction: Any) -> None:
    A, B = whole((32, 8)), whole((8, 16), seed=1)
    failed = undefined = 0
    for k in range(1, 60):
        device = testing.sim_device()
        C, before = np.full((32, 16), 7.0), np.full((32, 16), 7.0)
        try:
            with apart(str(device), In(A), In(B), direction(C)) as (dA, dB, dC):
                testing.fail_call(device, k)
                try:
                    blas.gemm(1.0, dA, dB, 0.0, dC)
                except OffloadError as error:
                    failed += 1
                    assert re.match(r"(cblas\.dgemm|blas\.gemm|offload_args)", str(error)), error
                    testing.fail_call(device, 0)
                    undefined += is_undefined(dC[0])
        except OffloadError:
            pass
        finally:
            testing.sim_device()
        assert np.array_equal(C, before) or np.array_equal(C, A @ B)
    assert failed > 5 and undefined > 5


# -- other functions of matrices ---------------------------------------------------------------------------------------
# {function: the options that are tried}; n and k, or m and n, are sizes of matrices.
OPTIONS: dict[str, list[dict[str, str]]] = {
    "symm": [{"side": side, "uplo": uplo} for side in "LR" for uplo in "UL"],
    "syrk": [{"uplo": uplo, "trans": trans} for uplo in "UL" for trans in "NT"],
    "herk": [{"uplo": uplo, "trans": trans} for uplo in "UL" for trans in "NC"],
}
OPTIONS |= {"hemm": OPTIONS["symm"], "syr2k": OPTIONS["syrk"], "her2k": OPTIONS["herk"]}


def triangle(matrix: NDArray[Any], uplo: str) -> NDArray[Any]:
    return np.triu(matrix) if uplo == "U" else np.tril(matrix)


def operated(matrix: NDArray[Any], trans: str) -> NDArray[Any]:
    return {"N": matrix, "T": matrix.T, "C": matrix.conj().T}[trans]


def symmetric(triangle: NDArray[Any], conjugates: bool) -> NDArray[Any]:
    """Return the symmetric or Hermitian matrix of which one triangle is passed, which has a real diagonal then."""
    other = (triangle.conj() if conjugates else triangle).T
    return triangle + other - np.diag(np.diag(triangle))


def drawn(function: str, dtype: str, order: Any, **options: str) -> tuple[list[NDArray[Any]], NDArray[Any]]:
    """Return the operands of a call with the numbers of numbers_of, and NumPy's result of it."""
    alpha = alpha_of(function, dtype)
    left, uplo, trans = options.get("side") == "L", options["uplo"], options.get("trans", "N")
    if function in ("symm", "hemm"):
        m, n = (6, 29) if left else (29, 6)
        A, B, C = whole((6, 6), dtype, order), whole((m, n), dtype, order, 1), whole((m, n), dtype, order, 2)
        A[np.diag_indices(6)] = A.diagonal().real
        full = symmetric(triangle(A, uplo), function == "hemm")
        return [A, B, C], alpha * (full @ B if left else B @ full) + 3 * C
    A = whole((21, 18) if trans == "N" else (18, 21), dtype, order)
    B, C = whole(A.shape, dtype, order, 1), whole((21, 21), dtype, order, 2)
    a, b, turned = operated(A, trans), operated(B, trans), "C" if function.startswith("her") else "T"
    if function.startswith("her"):
        C[np.diag_indices(21)] = C.diagonal().real
    if function in ("syrk", "herk"):
        operands, sums = [A, C], alpha * (a @ operated(a, turned))
    else:
        other = np.conj(alpha) if function == "her2k" else alpha
        operands, sums = [A, B, C], alpha * (a @ operated(b, turned)) + other * (b @ operated(a, turned))
    return operands, triangle(sums + 3 * C, uplo) + C - triangle(C, uplo)


def alpha_of(function: str, dtype: Any) -> complex:
    return 2 - 1j if np.dtype(dtype).kind == "c" and function != "herk" else 2.0


def numbers_of(function: str, *operands: Any) -> tuple[Any, ...]:
    """Return the arguments of a call with the operands, alpha_of, and beta = 3."""
    return alpha_of(function, operands[0].dtype), *operands[:-1], 3.0, operands[-1]


@pytest.mark.parametrize("function", OPTIONS)
@pytest.mark.parametrize("order", ["C", "F"])
def test_functions_of_matrices_in_panels_are_numpys(on: str, function: str, order: Any) -> None:
    for dtype in ("float64", "complex128"):
        for options in OPTIONS[function]:
            if "her" in function and dtype == "float64" and options["trans"] == "C":
                continue
            operands, expected = drawn(function, dtype, order, **options)
            inputs, result = operands[:-1], operands[-1]
            before = [array.copy() for array in inputs]
            with tracing.trace() as recording, testing.counting(Device(on)) as moved:
                with apart(on, *map(In, inputs), result) as pointers:
                    getattr(blas, function)(*numbers_of(function, *pointers), **options)
            assert np.array_equal(result, expected), (dtype, options)
            assert all(map(np.array_equal, inputs, before))
            assert calls_of(recording) > 4, (dtype, options)
            assert moved.bytes_up <= sum(array.nbytes for array in operands)
            assert moved.bytes_down <= result.nbytes


@pytest.mark.parametrize("function", OPTIONS)
def test_any_function_makes_one_call_if_it_has_to(on: str, function: str) -> None:
    operands, expected = drawn(function, "float64", "C", **OPTIONS[function][0])
    with tracing.trace() as recording, apart(on, *map(In, operands[:-1]), operands[-1]) as pointers:
        getattr(blas, function)(*numbers_of(function, *pointers), panels=False, **OPTIONS[function][0])
    assert calls_of(recording) == 1
    assert np.array_equal(operands[-1], expected)


@pytest.mark.parametrize("function", OPTIONS)
def test_every_function_refuses_panels_that_are_no_bool_and_parts_that_are_forbidden(function: str) -> None:
    operands, _ = drawn(function, "float64", "C", **OPTIONS[function][0])
    before = operands[-1].copy()
    with pytest.raises(ArgumentError, match=rf"^blas\.{function}: panels=False needs pointers, got devices; leave one"):
        getattr(blas, function)(*numbers_of(function, *operands), panels=False, devices=["sim:0"])
    with offload_args(*operands, device="sim:0") as pointers:
        with pytest.raises(ArgumentTypeError, match=rf"^blas\.{function}: panels needs True or False, got 'no'"):
            getattr(blas, function)(*numbers_of(function, *pointers), panels="no")
    assert np.array_equal(operands[-1], before)


@pytest.mark.filterwarnings("ignore::offload_args.errors.PerformanceWarning")
@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("function", ["syrk", "herk", "symm", "her2k"])
def test_any_result_of_which_a_panel_failed_is_undefined(function: str, order: Any) -> None:
    options = OPTIONS[function][0]
    failed = undefined = 0
    for k in range(1, 60):
        operands, expected = drawn(function, "complex128", order, **options)
        result, before = operands[-1], operands[-1].copy()
        device = testing.sim_device()
        try:
            with apart(str(device), *map(In, operands[:-1]), result) as pointers:
                testing.fail_call(device, k)
                try:
                    getattr(blas, function)(*numbers_of(function, *pointers), **options)
                except OffloadError:
                    failed += 1
                    testing.fail_call(device, 0)
                    undefined += is_undefined(pointers[-1][0])
        except OffloadError:
            pass
        finally:
            testing.sim_device()
        assert np.array_equal(result, before) or np.array_equal(result, expected)
    assert failed > 5 and undefined > 5


def test_a_symmetric_product_that_is_only_checked_or_refused_computes_no_panel(on: str) -> None:
    A, B, C = np.eye(6), whole((6, 29)), whole((6, 29), seed=1)
    before = C.copy()
    with testing.counting(Device(on)) as moved, apart(on, In(A), In(B), C) as (dA, dB, dC):
        with checking():
            blas.symm(1.0, dA, dB, 0.0, dC)
        for overlapping in (dC[:, :6], dC[:, 23:]):  # some panels alone would not overlap: the last, or the first ones
            with pytest.raises(AliasError):
                blas.symm(1.0, overlapping, dB, 0.0, dC)
        assert (moved.calls, moved.bytes_up) == (0, 0)
    with apart(on, In(A), In(B), In(C)) as (dA, dB, dC), pytest.raises(DirectionError, match="lent as In"):
        blas.symm(1.0, dA, dB, 0.0, dC)
    assert np.array_equal(C, before)


@pytest.mark.parametrize("function", [blas.trmm, blas.trsm])
def test_a_product_with_a_triangle_and_a_solve_are_one_call(on: str, function: Any) -> None:
    message = rf"^blas\.{function.__name__}\(\) got an unexpected keyword argument 'panels'; write blas\."
    A, B = np.eye(6), whole((6, 29))
    before = B.copy()
    with tracing.trace() as recording, apart(on, In(A), B) as (dA, dB):
        for panels in (True, False):
            with pytest.raises(ArgumentTypeError, match=message):
                function(2.0, dA, dB, panels=panels)
        assert calls_of(recording) == 0
        function(2.0, dA, dB)
    assert calls_of(recording) == 1
    assert np.array_equal(B, 2 * before)


@pytest.mark.filterwarnings("ignore::offload_args.errors.UnwrittenWarning")
@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("uplo", ["U", "L"])
@pytest.mark.parametrize("trans", ["N", "T"])
def test_each_panel_of_a_sum_or_a_triangle_goes_up_alone(on: str, order: Any, uplo: str, trans: str) -> None:
    A, C = whole((64, 32) if trans == "N" else (32, 64), order=order), np.zeros((64, 64))
    with testing.counting(Device(on)) as moved, apart(on, In(A), Out(C)) as (dA, dC):
        blas.syrk(1.0, dA, 0.0, dC, uplo=uplo, trans=trans)
        assert moved.bytes_up == A.nbytes
        assert moved.copies_up >= 7
