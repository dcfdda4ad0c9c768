"""Errors name a remedy, and the remedy works (T69)."""

from __future__ import annotations

import contextlib
import inspect
import re
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse

import offload_args as package
from helpers.arrays import ramp
from kernels.images import PTX
from offload_args import (
    Communicator,
    Device,
    HostAttributeError,
    In,
    Module,
    Out,
    Scratch,
    _core,
    _explain,
    blas,
    call,
    cblas,
    cublas,
    fft,
    kernels,
    lapack,
    lapacke,
    linalg,
    offload,
    offload_args,
    open_regions,
    rocblas,
    sparse,
    testing,
    trace,
    update,
)
from offload_args.display import described, with_article
from offload_args.errors import (
    ArgumentError,
    ArgumentTypeError,
    DeviceMemoryError,
    DeviceUnavailableError,
    DirectionError,
    DTypeError,
    HostAccessError,
    HostPointerError,
    PerformanceWarning,
    SignatureError,
)


def test_an_out_is_read_where_calls_wrote_it(device: str) -> None:
    x, y = ramp(4), np.full((3, 4), 9, np.float32)
    with offload_args(In(x), Out(y), device=device) as (dx, dy):
        blas.copy(dx, dy[1])
        with pytest.raises(
            DirectionError, match=r"read before it is written: calls wrote only a part .* write the rest"
        ):
            blas.axpy(1.0, dy.reshape(12)[:4], dy[1])
        dy[::2].fill(0)
        blas.axpy(1.0, dy.reshape(12)[:4], dy[1])
    np.testing.assert_array_equal(y, [[0] * 4, x, [0] * 4])


def test_a_packed_out_that_calls_write_by_parts_is_filled_first(device: str) -> None:
    x, whole = ramp(2), np.full((4, 6), 9, np.float32)
    y = whole[::2, ::3]
    with pytest.warns(PerformanceWarning), offload_args(In(x), Out(y), device=device) as (dx, dy):
        with pytest.raises(DirectionError, match=r"does not write every element .* dy\.fill\(0\), lend each part as"):
            blas.copy(dx, dy[1])
        dy.fill(0)
        blas.copy(dx, dy[1])
    np.testing.assert_array_equal(y, [[0, 0], x])
    with pytest.warns(PerformanceWarning), offload_args(In(x), *(Out(row) for row in y), device=device) as (dx, *rows):
        for row in rows:
            blas.copy(dx, row)
    np.testing.assert_array_equal(y, [x, x])
    assert np.count_nonzero(whole == 9) == 20


def test_an_out_of_which_a_triangle_is_updated_is_filled_first(device: str) -> None:
    A, C = ramp(3, 2), np.full((3, 3), 9, np.float32)
    with offload_args(In(A), Out(C), device=device) as (dA, dC):
        with pytest.raises(DirectionError, match=r"does not write every element .* dy\.fill\(0\)"):
            blas.syrk(1.0, dA, 1.0, dC)
        dC.fill(0)
        blas.syrk(1.0, dA, 1.0, dC)
    assert np.count_nonzero(C == A @ A.T) >= 6 and not (C == 9).any()


def test_a_read_only_array_is_lent_as_a_writable_copy(device: str) -> None:
    x = ramp(4)
    x.flags.writeable = False
    with pytest.raises(DirectionError, match=r"lend a writable copy, x = x\.copy\(\)"):
        offload_args(Out(x), device=device).open()
    with offload_args(x, device=device) as (dx,):
        with pytest.raises(DirectionError, match=r"lend a writable copy, x = x\.copy\(\), which gets the results"):
            blas.scal(2.0, dx)
    copy = x.copy()
    with offload_args(copy, device=device) as (dx,):
        blas.scal(2.0, dx)
    np.testing.assert_array_equal(copy, 2 * ramp(4))


def test_a_sparse_matrix_is_lent_by_its_arrays(device: str) -> None:
    sparse = pytest.importorskip("scipy.sparse").csr_array(np.eye(3))
    with pytest.raises(ArgumentTypeError, match=r"the sparse csr_array.* sparse\.lend\(x\), .* x\.toarray\(\)"):
        offload_args(sparse, device=device).open()
    with offload_args(sparse.data, In(sparse.indices), sparse.toarray(), device=device) as (data, _, _):
        blas.scal(2.0, data)
    np.testing.assert_array_equal(sparse.toarray(), 2 * np.eye(3))


def test_a_lack_of_device_memory_is_told_in_sizes_for_people_with_the_ways_out() -> None:
    sim = testing.sim_device(capacity=8 << 20)
    x = np.ones(3 << 20, np.float32)
    with pytest.raises(DeviceMemoryError, match=r"12\.00 MiB requested, 8\.00 MiB free of 8\.00 MiB, .* lend parts"):
        offload_args(Scratch(x.shape, x.dtype), device=sim).open()  # a coherent device needs memory for this alone
    for part in np.split(x, 3):
        with offload_args(part, device=sim) as (dpart,):
            blas.scal(2.0, dpart)
    assert x.sum() == 2 * x.size
    testing.sim_device()


def test_a_lack_of_device_memory_names_the_largest_arrays_there_with_their_lines() -> None:
    sim = testing.sim_device(capacity=16 << 20)
    small, large = np.ones(1 << 18), np.ones(1 << 20)
    with offload_args(small, large, device=sim) as (dsmall, dlarge):
        line = inspect.currentframe().f_lineno - 1  # type: ignore[union-attr]
        blas.scal(2.0, dsmall)
        blas.scal(2.0, dlarge)
        with offload_args(large, device=sim), pytest.raises(DeviceMemoryError) as raised:
            offload_args(Scratch((3 << 20,), np.float64), device=sim).open()
    place = rf"argument 1 of the region at \S*test_remedies\.py:{line}"
    wanted = rf"; the largest there: 8(\.00)? MiB in argument 1 of [^,]+, 2(\.00)? MiB in {place}$"
    assert re.search(wanted, str(raised.value))
    assert (small[0], large[0]) == (2.0, 2.0)
    testing.sim_device()


def test_a_list_is_made_an_array_first(device: str) -> None:
    A, y = np.eye(2), np.zeros(2)
    of_blas = r"x needs a DevicePtr, got list; make it an array, x = np\.asarray\(x, dtype\), and lend that"
    with pytest.raises(HostPointerError, match=of_blas):
        call(blas.gemv, 1.0, A, [1.0, 2.0], 0.0, y, device=device)
    for values in ([1, 2], (1, 2)):
        of_library = r"x needs .*, got a \w+; make it an array, x = np\.asarray\(x, np\.float64\), and lend that"
        with pytest.raises(HostPointerError, match=of_library):
            call(cblas.dscal, 2, 2.0, values, 1, device="host")
    call(blas.gemv, 1.0, A, np.asarray([1, 2], np.float64), 0.0, y, device=device)
    assert y.tolist() == [1, 2]


def test_a_list_of_arrays_is_lent_as_a_whole(device: str) -> None:
    As, Bs, Cs = [ramp(2, 2), ramp(2, 2)], [np.eye(2, dtype=np.float32)], [np.zeros((2, 2), np.float32) for _ in "12"]
    remedy = r"A\[0\] needs a DevicePtr, got numpy.ndarray; lend the whole list first: with offload_args\(\*A\) as dA$"
    for lists in ((As, Bs, Cs), (tuple(As), tuple(Bs), tuple(Cs))):
        with pytest.raises(HostPointerError, match=remedy):
            call(blas.gemm_batched, 1.0, *lists[:2], 0.0, lists[2], device=device)
    with (
        offload_args(*As, device=device) as dA,
        offload_args(*Bs, device=device) as dB,
        offload_args(*Cs, device=device) as dC,
    ):
        with pytest.raises(HostPointerError, match=r"B\[0\] needs .*: with offload_args\(\*B\) as dB$"):
            blas.gemm_batched(1.0, dA, Bs, 0.0, dC)
        blas.gemm_batched(1.0, dA, dB, 0.0, dC)
    np.testing.assert_array_equal(Cs, As)


def test_a_read_only_result_is_lent_as_a_writable_copy(device: str) -> None:
    A, x, y = np.eye(2), np.ones(2), np.zeros(2)
    y.flags.writeable = False
    with pytest.raises(DirectionError, match=r"y needs to be writable, .*\(argument 3 of .*y = y\.copy\(\)"):
        call(blas.gemv, 1.0, A, x, 0.0, y, device=device)
    with pytest.raises(DirectionError, match=r"is read-only; lend a writable copy, y = y\.copy\(\), which gets the "):
        call(blas.gemv, 1.0, A, x, 1.0, y, device=device)
    result = y.copy()
    call(blas.gemv, 1.0, A, x, 0.0, result, device=device)
    assert result.tolist() == [1, 1] and y.tolist() == [0, 0]


@pytest.mark.parametrize(
    ("arguments", "keywords", "remedy"),
    [
        (5, {"transa": "T"}, r"trans_a='N', trans_b='N'"),
        (7, {}, r"devices=None\): sizes, leading dimensions and increments"),
    ],
)
def test_options_of_blas_are_listed_with_their_names(
    device: str, arguments: int, keywords: dict[str, str], remedy: str
) -> None:
    A = np.eye(2)
    with offload_args(A, A.copy(), A.copy(), device=device) as (dA, dB, dC):
        with pytest.raises(ArgumentTypeError, match=r"write blas\.gemm\(alpha, A, B, beta, C, .*" + remedy):
            blas.gemm(*(1.0, dA, dB, 0.0, dC, "T", "N")[:arguments], **keywords)
        with pytest.raises(ArgumentTypeError, match=r"runs on one device: pass device= to offload_args, or to call$"):
            blas.scal(2.0, dA[0], devices=[device])


def test_a_misspelt_name_gets_the_name_that_is_meant(device: str) -> None:
    with offload_args(np.eye(2), device=device) as (dA,):
        for owner, wrong, right in (
            (blas, "gemmm", "gemm"),
            (package.kernels, "elementwize", "elementwise"),
            (package.errors, "DirectonError", "DirectionError"),
            (dA, "copyfrom", "copy_from"),
            (dA, "tohost", "to_host"),
        ):
            with pytest.raises(AttributeError, match=rf"has no attribute '{wrong}'; did you mean {right}\?$"):
                getattr(owner, wrong)
            assert hasattr(owner, right)


def test_a_trace_is_computed_on_the_host(device: str) -> None:
    with offload_args(np.eye(2), device=device) as (dA,):
        with pytest.raises(HostAccessError, match=r"np\.trace runs on the host; use to_host\(\)$"):
            np.trace(dA)
        assert np.trace(dA.to_host()) == 2


def test_only_a_read_only_array_gets_the_advice_to_copy_it(device: str) -> None:
    frozen, x = np.zeros(2), np.ones(2)
    frozen.flags.writeable = False
    with offload_args(frozen, In(x), device=device) as (dfrozen, dx):
        with pytest.raises(DirectionError, match=r"is read-only; lend a writable copy, x = x\.copy\(\), which gets"):
            dfrozen.fill(1)
        with pytest.raises(DirectionError, match=r"read-only; .* or lend it as In to functions that only read it$"):
            blas.scal(2.0, dfrozen[:1])
        for refused in (lambda: dx.fill(1), lambda: blas.copy(dfrozen, dx), lambda: blas.scal(2.0, dx[:1])):
            with pytest.raises(DirectionError, match=r"\(argument 2 .*\) was lent as In; lend it as (In)?Out$"):
                refused()
    assert frozen.tolist() == [0, 0] and x.tolist() == [1, 1]


def test_a_single_number_is_passed_as_a_vector_or_matrix_of_one(device: str) -> None:
    x, y = np.array(3.0), np.array(5.0)
    with offload_args(x, y, device=device) as (dx, dy):
        with pytest.raises(ArgumentError, match=r"x has shape \(\), needs 1 dimension; pass x\.reshape\(1\)"):
            blas.scal(2.0, dx)
        blas.scal(2.0, dx.reshape(1))
        with pytest.raises(ArgumentError, match=r"A has shape \(\), needs 2 dimensions; pass A\.reshape\(1, 1\)"):
            blas.gemm(1.0, dx, dx, 0.0, dy)
        matrix = dx.reshape(1, 1)
        blas.gemm(1.0, matrix, matrix, 0.0, dy.reshape(1, 1))
    assert (x, y) == (6.0, 36.0)


def test_gesvd_names_the_jobs_for_a_shape_that_none_needs(device: str) -> None:
    A, s, U, VT = ramp(5, 3), np.empty(3, np.float32), np.empty((5, 2), np.float32), np.empty((3, 3), np.float32)
    with offload_args(A, s, U, VT, device=device) as (dA, ds, dU, dVT):
        with pytest.raises(ArgumentError, match=r'U has .*\(5, 5\) for jobu="A" or \(5, 3\) for jobu="S", with A of'):
            lapack.gesvd(dA, ds, dU, dVT)
        with pytest.raises(ArgumentError, match=r'U has .* got jobu="S"'):
            lapack.gesvd(dA, ds, dU, dVT, jobu="S")


def test_pointers_are_not_compared_by_their_values(device: str) -> None:
    x, y = ramp(4), ramp(4)
    with offload_args(x, y, device=device) as (dx, dy):
        same = dx
        assert dx == same and not dx != same and dx in (dx, dy) and {dx: 1}[dx] == 1  # noqa: SIM202
        assert dx != None and dx != "x"  # noqa: E711
        for other in (dy, 2.0, np.float32(2), y):
            with pytest.raises(HostAccessError):
                assert dx == other
            with pytest.raises(HostAccessError):
                assert dx != other
        with pytest.raises(HostAccessError, match=r"compare to_host\(\), or use `is`"):
            assert dx == dy
        assert (dx.to_host() == dy.to_host()).all()


@pytest.mark.parametrize(
    ("name", "remedy"),
    [
        ("get", r"to_host\(\)"),
        ("cpu", r"to_host\(\)"),
        ("numpy", r"to_host\(\)"),
        ("to", "device=..."),
        ("cuda", "device=..."),
        ("data_ptr", "address"),
        ("set", "assign"),
    ],
)
def test_names_of_other_packages_arrays_say_what_to_write(device: str, name: str, remedy: str) -> None:
    with offload_args(ramp(4), device=device) as (dx,):
        assert not hasattr(dx, name)
        with pytest.raises(HostAttributeError, match=rf"DevicePtr\.{name}: .*{remedy}"):
            getattr(dx, name)()


def test_an_option_in_small_letters_is_told_in_capitals(device: str) -> None:
    A, x, y = ramp(3, 4), ramp(3), ramp(4)
    with offload_args(A, x, y, device=device) as (dA, dx, dy):
        with pytest.raises(ArgumentError, match=r'blas\.gemv: trans must be .*got \'t\'; write trans="T"$'):
            blas.gemv(1.0, dA, dx, 0.0, dy, trans="t")
        with pytest.raises(ArgumentError, match=r"got 'x'$"):
            blas.gemv(1.0, dA, dx, 0.0, dy, trans="x")
        blas.gemv(1.0, dA, dx, 0.0, dy, trans="T")
    np.testing.assert_allclose(y, A.T @ x, rtol=1e-6)


def test_the_package_lists_its_public_names_alone() -> None:
    assert dir(package) == sorted([*package.__all__, "__version__"])
    assert {"HostAttributeError", "blas", "cublas", "launch"} <= set(dir(package))


def run_remedy(error: Exception, names: dict[str, object]) -> None:
    """Run the assignment that an error's text names, such as "y = y.astype(np.float64)"."""
    exec(re.search(r"[A-Za-z]+ = \w+\.\S+\)", str(error))[0], {"np": np}, names)  # type: ignore[index]


def test_a_written_array_of_another_dtype_is_converted_under_its_name(device: str) -> None:
    names = {"A": np.eye(3) + 1, "x": np.arange(3.0), "y": np.zeros(3, np.float32)}
    with pytest.raises(
        DTypeError, match=r"y is float32, needs A's float64; convert .*: y = y\.astype\(np\.float64\)$"
    ) as e:
        call(blas.gemv, 1.0, names["A"], names["x"], 0.0, names["y"], device=device)
    run_remedy(e.value, names)
    call(blas.gemv, 1.0, names["A"], names["x"], 0.0, names["y"], device=device)
    np.testing.assert_array_equal(names["y"], [3, 4, 5])


def test_an_integer_array_that_is_scaled_is_converted_under_its_name(device: str) -> None:
    names = {"x": np.ones(3, int)}
    with pytest.raises(DTypeError, match=r"x = x\.astype\(np\.float64\)$") as raised:
        call(blas.scal, 2.0, names["x"], device=device)
    run_remedy(raised.value, names)
    call(blas.scal, 2.0, names["x"], device=device)
    assert names["x"].tolist() == [2, 2, 2]


def test_an_array_that_devices_can_not_hold_is_converted_under_its_name(device: str) -> None:
    for dtype, words in ((np.longdouble, "float64"), (">f8", "newbyteorder"), (object, "float64")):
        names = {"x": np.ones(3, dtype)}
        with pytest.raises(DTypeError, match=words) as raised:
            call(blas.scal, 2.0, names["x"], device=device)
        exec(re.search(r"x = x\.astype\(.*\)$", str(raised.value))[0], {"np": np}, names)  # type: ignore[index]
        call(blas.scal, 2.0, names["x"], device=device)
        assert names["x"].tolist() == [2, 2, 2]


def test_pivots_of_another_dtype_and_a_right_side_of_another_order_are_made_under_their_names(device: str) -> None:
    names = {"A": np.asfortranarray(2 * np.eye(2)), "ipiv": np.zeros(2, int), "B": np.ones(2, np.float32)}
    for operand in ("ipiv", "B"):
        with pytest.raises(DTypeError, match=rf"{operand} needs .*{operand} = {operand}\.astype") as raised:
            call(lapack.gesv, names["A"], names["ipiv"], names["B"], device=device)
        run_remedy(raised.value, names)
    call(lapack.gesv, names["A"], names["ipiv"], names["B"], device=device)
    assert names["B"].tolist() == [0.5, 0.5]


def test_a_matrix_without_an_order_is_copied_under_its_name(device: str) -> None:
    with offload_args(np.ones((4, 6)), np.zeros(4), device=device) as (dA, dy):
        with pytest.raises(ArgumentError, match=r"copy it first: A = np\.ascontiguousarray\(A\)$"):
            blas.gemv(1.0, dA[:, ::2], dy[:3], 0.0, dy)


def test_tiles_of_another_dtype_name_the_conversion(device: str) -> None:
    A, C = np.eye(2), np.zeros((2, 2), np.float32)
    with pytest.raises(DTypeError, match=r"C needs np\.float64 as A has, got float32; .*C = C\.astype\(np\.float64\)$"):
        blas.gemm(1.0, A, A, 0.0, C, devices=[device])


def test_a_host_without_the_device_names_the_host(device: str) -> None:
    for name, remedy in (("cpu", 'device="host" is the CPU'), ("gpu", "without device="), ("sim:9", 'device="host"')):
        with pytest.raises(DeviceUnavailableError, match=rf"{name}.*; .*{remedy}"):
            call(blas.scal, 2.0, np.ones(3), device=name)
    with pytest.raises(ArgumentError, match=r"got 0; Device\.from_index\(0\) is"):
        call(blas.scal, 2.0, np.ones(3), device=0)


def test_names_that_modules_lack_say_where_they_are() -> None:
    for module, name, remedy in (
        (blas, "dgemm", "; use gemm: the dtype is that of the arrays"),
        (blas, "multiply", "; use kernels.elementwise, or blas.dgmm for a diagonal matrix"),
        (blas, "argmax", "; use kernels.reduce; blas.iamax is for absolute values"),
        (blas, "transpose", "; use T of a pointer"),
        (fft, "fftfreq", "; use np.fft.fftfreq"),
        (fft, "dct", "; use scipy.fft.dct"),
        (sparse, "csr_matrix", "; use scipy.sparse.csr_matrix, and lend it by sparse.lend"),
        (sparse, "cg", "; use sparse.matmul and blas in a loop"),
    ):
        with pytest.raises(AttributeError, match=re.escape(f"no attribute {name!r}{remedy}")):
            getattr(module, name)


def test_options_of_scipy_are_told_in_those_of_blas(device: str) -> None:
    with offload_args(np.eye(3), np.ones(3), np.ones(3), device=device) as (dA, dx, dy):
        for trans, letter in ((True, "T"), (1, "T"), (0, "N"), (2, "C"), ("transpose", "T")):
            with pytest.raises(ArgumentError, match=rf'trans must be .*; write trans="{letter}"$'):
                blas.gemv(1.0, dA, dx, 0.0, dy, trans=trans)  # type: ignore[arg-type]
        with pytest.raises(ArgumentError, match=r'; write uplo="L"$'):
            blas.trsv(dA, dx, uplo="lower")
        with pytest.raises(ArgumentError, match=r"got 7$"):
            blas.gemv(1.0, dA, dx, 0.0, dy, trans=7)  # type: ignore[arg-type]


def test_a_call_without_an_output_or_a_function_is_told_the_form(device: str) -> None:
    A, x = np.eye(3), np.ones(3)
    with pytest.raises(ArgumentTypeError, match=r"write blas\.gemv\(.*\), where y is an array that gets the result$"):
        call(blas.gemv, 1.0, A, x, device=device)
    for wrong in (A, "gemv"):
        with pytest.raises(
            ArgumentTypeError, match=r"^call: function needs a function, got an? \w+; write call\(blas\.scal"
        ):
            call(wrong, A, x)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"'A'; arrays stand by position, and the keywords are device, stream"):
        offload_args(A=A)  # type: ignore[call-overload]
    with offload_args(x, device=device) as (dx,):
        with pytest.raises(ArgumentTypeError, match=r"got DevicePtr; to_host\(\) reads a pointer"):
            update(dx)  # type: ignore[arg-type]


def test_letters_in_the_place_of_a_vendors_constants_name_the_constants(device: str) -> None:
    with offload_args(np.eye(3), np.ones(3), np.ones(3), device=device) as (dA, dx, dy):
        for order, trans, words in (
            ("R", "T", "order needs a constant of cblas, RowMajor or ColMajor, got the str 'R'; write cblas.RowMajor"),
            (cblas.RowMajor, "T", "NoTrans, Trans or ConjTrans, got the str 'T'; write cblas.Trans"),
            (cblas.RowMajor, "conjtrans", "got the str 'conjtrans'; write cblas.ConjTrans"),
            (cblas.RowMajor, None, "NoTrans, Trans or ConjTrans, got None"),
            (cblas.RowMajor, "x", "NoTrans, Trans or ConjTrans, got the str 'x'"),
        ):
            with pytest.raises(ArgumentTypeError, match=f"{re.escape(words)}$"):
                cblas.dgemv(order, trans, 3, 3, 1.0, dA, 3, dx, 1, 0.0, dy, 1)  # type: ignore[arg-type]
        for function, words in (
            (cublas.dgemv, "trans needs a constant of cublas, OP_N, OP_T or OP_C, got the str 'T'; write cublas.OP_T"),
            (rocblas.dgemv, "got the str 'T'; write rocblas.operation_transpose"),
        ):
            with pytest.raises(ArgumentTypeError, match=f"{re.escape(words)}$"):
                function("T", 3, 3, 1.0, dA, 3, dx, 1, 0.0, dy, 1)  # type: ignore[arg-type]


def test_every_constant_of_a_routine_is_told_for_a_string() -> None:
    for library in (cblas, cublas, rocblas, lapacke):
        for name in dir(library):
            record = _core.record(library.__name__.rpartition(".")[2], name) if name[0].islower() else ()
            for kind, parameter, *_ in record:
                if kind == "enum":
                    names = _explain._constants(f"{library.__name__.rpartition('.')[2]}.{name}", parameter)
                    constants = re.findall(r"\w{3,}", names)
                    assert constants and all(hasattr(library, constant) for constant in constants), (name, parameter)


def test_values_of_another_kind_or_shape_name_a_conversion_that_works(device: str) -> None:
    values: Any
    with offload_args(np.zeros((2, 3)), np.zeros(3, np.int32), device=device) as (dx, dn):
        for values, remedy in (
            (np.ones(6), r"pass values\.reshape\(\(2, 3\)\)"),
            (np.ones(2), r"pass values\[:, None\]"),
            (np.ones((4, 3)), r"pass values\[:2, :3\]"),
            (np.ones((2, 3), np.int32), r"np\.asarray\(values, dtype=np\.float64\)"),
            (np.ones((2, 3), complex), r"np\.asarray\(values\.real, dtype=np\.float64\)"),
            (["1", "2", "3"], r"np\.asarray\(values, dtype=np\.float64\)"),
            (np.array([1, 2.5, 3], object), r"np\.asarray\(values, dtype=np\.float64\)"),
        ):
            dx.fill(0)
            with pytest.raises((ArgumentError, DTypeError), match=remedy) as raised:
                dx.assign(values)
            text = re.search(remedy, str(raised.value))
            assert text is not None
            dx.assign(eval(text[0].removeprefix("pass "), {"np": np, "values": values}))
            assert dx.to_host().all()
        with pytest.raises(ArgumentError, match=r"a slice takes them: dx\[:1, :2\]\.assign\(values\)$"):
            dx.assign(np.ones((1, 2)))
        with pytest.raises(ArgumentError, match=r"; pass a number, or values of that shape$"):
            dx.assign(np.ones((1, 7)))
        with pytest.raises(DTypeError, match=r"got object; pass a number, such as 2\.5, or an array of np\.float64$"):
            dx.assign(np.array([1, None, 3], object))
        with pytest.raises(DTypeError, match=r"fill: value needs float64, got 'a'; pass a number, such as 2\.5$"):
            dx.fill("a")
        with pytest.raises(DTypeError, match=r"fill: value needs float64, got None; pass a number, such as 2\.5$"):
            dx.fill(None)
        with pytest.raises(DTypeError, match=r"got 'a'; pass a number, such as 2, or an array of np\.int32$"):
            dn.assign("a")
        with pytest.raises(ArgumentError, match=r"fill: value needs one number, got \[1, 2\]; use assign\(values\)$"):
            dx.fill([1, 2])


def test_arrays_of_other_shapes_for_a_formula_name_a_change_that_works(device: str) -> None:
    if Device(device).model.startswith("double"):
        pytest.skip("device unavailable: the double runs no code that it does not know")
    twice = kernels.elementwise("y = 2 * x", x=In[np.float32], y=Out[np.float32])
    for x, y, remedy in (
        (np.ones((2, 2), np.float32), np.empty(4, np.float32), r"nothing is reshaped: lend x\.reshape\(\(4,\)\)"),
        (
            np.ones(1, np.float32),
            np.empty(4, np.float32),
            r"nothing is broadcast: lend np\.broadcast_to\(x, \(4,\)\)\.copy\(\)",
        ),
        (np.ones(3, np.float32), np.empty(4, np.float32), "sizes must agree: lend arrays of one shape"),
    ):
        with pytest.raises(ArgumentError, match=f"needs the shape of .*\\): .*; got .*: {remedy}$") as raised:
            offload(twice, x, y, device=device)
        text = re.search(r"lend (\S+\(.*\))$", str(raised.value))
        if text is not None:
            offload(twice, eval(text[1], {"np": np, "x": x}), y, device=device)
            np.testing.assert_array_equal(y, 2)


@pytest.mark.parametrize("dtype", ["float32", "complex64"])
def test_an_operand_of_a_dtype_that_blas_lacks_takes_that_of_the_others(device: str, dtype: str) -> None:
    operands = {"A": np.ones((2, 2), np.int32), "x": np.ones(2, dtype), "y": np.ones(2, dtype)}
    with offload_args(*operands.values(), device=device) as (dA, dx, dy):
        with pytest.raises(DTypeError, match=rf"; convert it first: A = A\.astype\(np\.{dtype}\)$") as raised:
            blas.gemv(1.0, dA, dx, 0.0, dy)
    exec(str(raised.value).rpartition("first: ")[2], {"np": np}, operands)
    with offload_args(*operands.values(), device=device) as (dA, dx, dy):
        blas.gemv(1.0, dA, dx, 0.0, dy)
    np.testing.assert_array_equal(operands["y"], 2)


def test_stacks_that_were_transposed_by_T_name_the_option(device: str) -> None:
    A, B, C = ramp(3, 2, 2), ramp(3, 2, 2), ramp(3, 2, 2)
    with offload_args(A, B, C, device=device) as (dA, dB, dC):
        with pytest.raises(ArgumentError, match=r'; for stacks, write trans_b="T" and not B\.T$'):
            blas.gemm(1.0, dA, dB.T, 0.0, dC)
        with pytest.raises(ArgumentError, match=r'; for stacks, write trans_a="T" and not A\.T$'):
            blas.gemm(1.0, dA.T, dB, 0.0, dC)
        with pytest.raises(ArgumentError, match=r'A of shape .*trans_b="N"$'):
            blas.gemm(1.0, dA, dB[:, :, :1], 0.0, dC)


def test_what_is_no_number_device_or_reduction_is_told_what_to_pass(device: str) -> None:
    x, y = np.ones(3), np.ones(3)
    with offload_args(x, y, device=device) as (dx, dy):
        for alpha in (None, "1"):
            with pytest.raises(ArgumentTypeError, match=r"alpha needs .*, got .*; pass a number, such as 1\.0$"):
                blas.axpy(alpha, dx, dy)  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match=rf"^Device: name needs .*; name it without a list: '{device}'$"):
        offload_args(x, device=[device]).open()  # type: ignore[call-overload]
    with pytest.raises(SignatureError, match=r"; for a variance, divide the sum of '\(x - mean\) \* \(x - mean\)'"):
        kernels.reduce("std", x=np.float64)


def test_options_and_names_of_other_packages_are_told_in_those_of_this_one(device: str) -> None:
    with pytest.raises(ArgumentError, match=r'; write mode="reduced"$'):
        linalg.qr(np.eye(3), mode="economic", device=device)  # type: ignore[call-overload]
    with pytest.raises(ArgumentTypeError, match=r"^Device\.from_index: index needs a whole number, got 'a'$"):
        Device.from_index("a")  # type: ignore[arg-type]
    with pytest.raises(
        AttributeError, match=r"'ndarray'; arrays are NumPy's: make one by np\.array\(\.\.\.\), and lend"
    ):
        _ = package.ndarray  # type: ignore[attr-defined]
    x, (rank,) = np.ones(3), Communicator.all([device])
    with rank, offload_args(x, device=device) as (dx,), pytest.raises(ArgumentError, match=r'; write op="sum"$'):
        rank.all_reduce(dx, dx, op="SUM")  # type: ignore[arg-type]
    with pytest.raises(
        DTypeError, match=r"ipiv needs int32, .*; make it by np\.empty\(\(3,\), np\.int32\), or write the ar"
    ):
        call(lapack.gesv, np.eye(3), np.ones(3), np.empty(3, np.int32), device=device)


def test_a_region_of_a_sparse_matrix_shows_the_line_that_lends_it(device: str) -> None:
    with sparse.lend(scipy.sparse.csr_array(np.eye(3)), device=device), contextlib.ExitStack() as stack:
        stack.enter_context(sparse.lend(scipy.sparse.csr_array(np.eye(2)), device=device))
        line = inspect.currentframe().f_lineno  # type: ignore[union-attr]
        places = [re.search(r"test_remedies\.py:(\d+), ", repr(region)) for region in open_regions()]
    assert [int(place[1]) for place in places if place] == [line - 2, line - 1]


def test_names_of_this_package_and_misspelt_ones_are_told_in_the_vendors_names() -> None:
    for raw, name, remedy in (
        (cblas.raw, "daxpy", "its names are the vendor's: cblas_daxpy"),
        (cblas.raw, "cblas_daxpyy", "did you mean cblas_daxpy"),
        (cublas.raw, "dgemv", "its names are the vendor's: cublasDgemv"),
    ):
        with pytest.raises(AttributeError, match=f"has no function or constant '{name}'; {remedy}"):
            getattr(raw, name)


def test_articles_are_those_of_the_sound() -> None:
    for word in ("array", "ndarray", "int", "In", "object", "HSACO", "UndeclaredKernel", "8-dimensional", "11-sided"):
        assert with_article(word) == f"an {word}"
    for word in ("list", "uint8", "ufunc", "UniqueId", "NoneType", "cubin", "str", "7-dimensional", "110-sided"):
        assert with_article(word) == f"a {word}"
    assert (described(None), described(np.ones(2)), described([])) == ("None", "an ndarray", "a list")


def test_no_message_writes_the_article_of_a_name_itself() -> None:
    for path in Path(package.__file__).parent.rglob("*.py"):
        assert not re.search(r"\ban? \{type\(", path.read_text()), path


def test_bytes_in_the_place_of_an_option_name_the_string(device: str) -> None:
    A, x = np.eye(2), np.ones(2)
    options: list[Any] = [b"T", b"l", b"U", b"ortho", b"r", b"complete", b"ColMajor"]
    T, L, U, ortho, r, full, order = options
    with offload_args(A, x, device=device) as (dA, dx):
        for wrong, words in (
            (lambda: blas.gemv(1.0, dA, dx, 0.0, dx, trans=T), """trans must be .*, got b'T'; write trans="T"$"""),
            (lambda: blas.trsv(dA, dx, uplo=L), """got b'l'; write uplo="L"$"""),
            (lambda: lapack.potrf(dA, uplo=U), """got b'U'; write uplo="U"$"""),
            (lambda: cblas.dgemv(order, 111, 2, 2, 1.0, dA, 2, dx, 1, 0.0, dx, 1), r"; write cblas\.ColMajor$"),
            (lambda: fft.fft(x, norm=ortho), """norm must be .*, got b'ortho'; write norm="ortho"$"""),
            (lambda: linalg.qr(A, mode=r), """mode must be .*, got b'r'; write mode="r"$"""),
            (lambda: linalg.qr(A, mode=full), """mode must be .*; write mode="complete"$"""),
            (lambda: linalg.eigh(A, U), """UPLO .* must be .*, got b'U'; write UPLO="U"$"""),
        ):
            with pytest.raises((ArgumentError, ArgumentTypeError), match=words):
                wrong()


def test_an_array_in_a_signature_names_the_declaration() -> None:
    array = np.ones(2, np.float32)
    module = Module.load(PTX.encode(), name="kernels")
    for wrong, declared in (
        (In(array), r"In\[np\.float32\], and pass"),
        (Out(array), r"Out\[np\.float32\], and pass"),
        (array, r"In\[np\.float32\], or Out or InOut if the kernel writes it, and pass"),
    ):
        with pytest.raises(
            SignatureError, match=rf"relu: argument 1 needs .*; declare {declared} the array to the kernel$"
        ):
            module.kernel("relu", wrong, np.int32)
        with pytest.raises(
            SignatureError, match=r"x needs a dtype, got an .*: write x=np\.float32, and pass the array"
        ):
            kernels.reduce("sum", x=wrong)


def test_a_context_manager_is_no_array_and_is_entered_first() -> None:
    for block in (trace(), testing.counting("host"), threading.Lock()):
        with pytest.raises(TypeError, match=r"not an array: it is a context manager: enter it first, with c, offload_"):
            offload_args(block, device="host").open()


def test_none_is_not_told_to_be_lent_to_linalg(device: str) -> None:
    with pytest.raises(TypeError, match=r"^linalg\.matmul: x1 needs an array, got None; pass an array, or a list"):
        linalg.matmul(None, np.eye(2))
    with offload_args(np.eye(2), device=device) as (dA,):
        with pytest.raises(HostPointerError, match=r"x1 needs a DevicePtr as x2 is one, got None; pass the pointer of"):
            linalg.matmul(None, dA)
        with pytest.raises(HostPointerError, match=r"x2 needs a DevicePtr as x1 is one, got an ndarray; lend it too"):
            linalg.matmul(dA, np.eye(2))


def test_a_reduction_that_is_written_as_a_call_is_told_the_right_form() -> None:
    with pytest.raises(SignatureError, match=r"got 'sum\(\)'; write kernels\.reduce\('sum', \.\.\.\)$"):
        kernels.reduce("sum()", x=np.float32)
    with pytest.raises(
        SignatureError, match=r"'sum\(x \* x\)' has the .*: write kernels\.reduce\('sum', 'x \* x', \.\.\.\)$"
    ):
        kernels.reduce("sum", "sum(x * x)", x=np.float32)
    with pytest.raises(
        SignatureError, match=r"'prod\(\)' has the operation .*: write kernels\.reduce\('prod', \.\.\.\)$"
    ):
        kernels.reduce("sum", "prod()", x=np.float32)
    assert repr(kernels.reduce("sum", x=np.float32)) == "<sum of x, to float32>"


def test_the_text_of_a_module_is_passed_as_bytes() -> None:
    with pytest.raises(ArgumentError, match=r"^Module\.load: .* got the text of a module: pass source\.encode\(\), or"):
        Module.load(PTX)
    assert Module.load(PTX.encode()).format == "PTX"
