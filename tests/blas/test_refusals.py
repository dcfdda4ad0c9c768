"""Refusals of the portable BLAS: operands, dtypes, options and orders that do not fit."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from itertools import product
from typing import Any

import numpy as np
import pytest

from offload_args import Device, In, blas, offload_args
from offload_args.errors import (
    AliasError,
    ArgumentError,
    ArgumentTypeError,
    DirectionError,
    DTypeError,
    HostPointerError,
    StalePointerError,
    WrongDeviceError,
)


def refusing(error: type[Exception], text: str) -> AbstractContextManager[Any]:
    return pytest.raises(error, match=text)


Call = Callable[[Any, Any, Any], object]


def test_a_scalar_that_was_left_out_is_named(device: str) -> None:
    with offload_args(np.ones((3, 3)), np.ones(3), np.ones(3), device=device) as (dA, dx, dy):
        of_A, of_y = r"got a pointer of shape \(3, 3\)", r"got a pointer of shape \(3,\)"
        calls: list[tuple[Callable[[], object], str]] = [
            (
                lambda: blas.gemm(1.0, dA, dA, dA),  # type: ignore[call-arg]
                rf"1 .*: 'beta', {of_A} in .*; write blas\.gemm\(alpha, A, B, 0\.0, C\), where 0\.0 overwrites C$",
            ),
            (lambda: blas.gemm(1.0, dA, dA, C=dA), "'beta'"),  # type: ignore[call-arg]
            (
                lambda: blas.gemm(1.0, dA, dA, dA, trans_a="T"),  # type: ignore[call-arg]
                rf"'beta', {of_A} in place of beta",
            ),
            (
                lambda: blas.gemv(1.0, dA, dx, dy),  # type: ignore[call-arg]
                rf"'beta', {of_y} .*; write blas\.gemv\(alpha, A, x, 0\.0, y\), where 0\.0 overwrites y$",
            ),
            (
                lambda: blas.gemm(dA, dA, dA),  # type: ignore[call-arg]
                rf"2 .* arguments: 'alpha' and 'beta', {of_A} in .*; write blas\.gemm\(1\.0, A, B, 0\.0, C\)",
            ),
            (
                lambda: blas.geam(1.0, dA, dA, dA),  # type: ignore[call-arg]
                rf"'beta', {of_A} .*; write blas\.geam\(alpha, A, 1\.0, B, C\)$",
            ),
            (lambda: blas.axpy(dx, dy), rf"'alpha', {of_y}"),  # type: ignore[call-arg]
            (lambda: blas.scal(dx), rf"'alpha', {of_y}"),  # type: ignore[call-arg]
            (
                lambda: blas.gemm_batched(1.0, [dA], [dA], [dA]),  # type: ignore[call-arg]
                "'beta', got a list in place of beta",
            ),
            (lambda: blas.gemm(1.0, dA), r"^blas\.gemm\(\) missing 3 required"),  # type: ignore[call-arg]
            (
                lambda: blas.gemm(1.0, dA, dA, 0.0),  # type: ignore[call-arg]
                r"'C'; write blas\.gemm\(alpha, A, B, beta, C, \.\.\.\), where C is an array that gets the result$",
            ),
        ]
        for call, words in calls:
            with pytest.raises(TypeError, match=words):
                call()


# Calls on A (3, 5), x (5,) and y (3,), each with the text of its error.
SHAPE_ERRORS: list[tuple[Call, str]] = [
    (lambda A, x, y: blas.gemv(1, A, y, 0, y), r"gemv: x has shape \(3,\), needs \(5,\) for A of shape \(3, 5\)"),
    (lambda A, x, y: blas.gemv(1, A, x, 0, x), r"gemv: y has shape \(5,\), needs \(3,\) for A of shape \(3, 5\)"),
    (lambda A, x, y: blas.gemv(1, A, x, 0, y, trans="T"), r'gemv: x has shape \(5,\), needs \(3,\) .* trans="T"'),
    (lambda A, x, y: blas.ger(1, x, y, A), r"ger: x has shape \(5,\), needs \(3,\)"),
    (lambda A, x, y: blas.axpy(1, x, y), r"axpy: y has shape \(3,\), needs \(5,\) as x has"),
    (lambda A, x, y: blas.axpy(1, A, y), r"axpy: x has shape \(3, 5\), needs 1 dimension; pass x\.reshape\(-1\)"),
    (lambda A, x, y: blas.gemv(1, x, x, 0, y), r"gemv: A has shape \(5,\), needs 2 dimensions; pass A\[:, None\]"),
    (lambda A, x, y: blas.nrm2(A), r"nrm2: x has shape \(3, 5\), needs 1 dimension"),
    (lambda A, x, y: blas.symv(1, A, x, 0, y), r"symv: A has shape \(3, 5\), needs \(3, 3\) as a square matrix"),
    (lambda A, x, y: blas.trsv(A[:, :3], x), r"trsv: x has shape \(5,\), needs \(3,\) for A of shape \(3, 3\)"),
    (lambda A, x, y: blas.gemm(1, A, A, 0, A), r"gemm: B has shape \(3, 5\), needs \(5, 5\)"),
    (
        lambda A, x, y: blas.gemm(1, A, A[:, :3], 0, A),
        r"gemm: A has shape \(3, 5\), needs \(3, 3\) for C of|gemm: B has",
    ),
    (
        lambda A, x, y: blas.gemm(1, A.T, A, 0, A),
        r"gemm: C has shape \(3, 5\), needs \(5, 5\) for A of shape \(5, 3\), B of shape \(3, 5\), trans_a=\"N\" and",
    ),
    (
        lambda A, x, y: blas.gemm(1, A, A, 0, A, trans_b="T"),
        r"gemm: C has shape \(3, 5\), needs \(3, 3\) for A of .*trans_b=\"T\"$",
    ),
    (lambda A, x, y: blas.gemm(1, A.T, A, 0, A[:, :3].T), r"gemm: C has shape \(3, 3\), needs \(5, 5\) for A of"),
    (lambda A, x, y: blas.gemm(1, A, A.T, 0, A), r"gemm: C has shape \(3, 5\), needs \(3, 3\) for A of"),
    (lambda A, x, y: blas.symm(1, A, A, 0, A), r"symm: A has shape \(3, 5\), needs \(3, 3\) for C of"),
    (lambda A, x, y: blas.syrk(1, A, 0, A), r"syrk: C has shape \(3, 5\), needs \(3, 3\)"),
    (lambda A, x, y: blas.syrk(1, A, 0, A[:2, :2]), r"syrk: A has shape \(3, 5\), needs \(2, 5\) for C of"),
    (lambda A, x, y: blas.syr2k(1, A, A.T, 0, A[:, :3]), r"syr2k: B has shape \(5, 3\), needs \(3, 5\) as A has"),
    (lambda A, x, y: blas.trsm(1, A, A), r"trsm: A has shape \(3, 5\), needs \(3, 3\) for B of"),
    (lambda A, x, y: blas.gemv(1, A, x, 0, y, trans="X"), r'gemv: trans must be "N" or "T" or "C", got \'X\''),
    (lambda A, x, y: blas.trsm(1, A[:, :3], A, side="l"), r'trsm: side must be "L" or "R", got \'l\''),
    (lambda A, x, y: blas.trmv(A[:, :3], y, uplo="x"), r'trmv: uplo must be "U" or "L", got \'x\''),
    (lambda A, x, y: blas.trmv(A[:, :3], y, diag="X"), r'trmv: diag must be "N" or "U", got \'X\''),
    (
        lambda A, x, y: blas.gemv(1, A[:, ::2], y, 0, y),
        r"gemv: A has shape \(3, 3\) and strides .*ascontiguousarray\(A\)",
    ),
    (
        lambda A, x, y: blas.gemv(1, A[::-1], x, 0, y),
        r"gemv: A has shape \(3, 5\) and strides .*ascontiguousarray\(A\)",
    ),
    (lambda A, x, y: blas.syr(1, y, A), r"syr: A has shape \(3, 5\), needs \(3, 3\) as a square matrix"),
    (lambda A, x, y: blas.her2(1, y, x, A[:, :3]), r"her2: y has shape \(5,\), needs \(3,\) for A of shape \(3, 3\)"),
    (
        lambda A, x, y: blas.gbmv(1, A.T, y, 0, y, kl=1, ku=1),
        r"gbmv: ab has shape \(5, 3\), needs \(3, 3\) for kl=1 and ku=1",
    ),
    (lambda A, x, y: blas.gbmv(1, A.T, y, 0, y, kl=-1, ku=5), "gbmv: kl and ku need to be at least 0, got -1 and 5"),
    (
        lambda A, x, y: blas.gbmv(1, A, y, 0, x, kl=1, ku=1),
        r'gbmv: x has shape \(3,\), needs \(5,\) for ab of shape \(3, 5\) and trans="N"',
    ),
    (
        lambda A, x, y: blas.gbmv(1, A, x, 0, y, kl=1, ku=1),
        r"gbmv: ab has shape \(3, 5\) and strides \(40, 8\), needs Fortran order.*ab = np\.asfortranarray\(ab\)",
    ),
    (
        lambda A, x, y: blas.gbmv(1, A.T[::-1], y, 0, x, kl=2, ku=2),
        r"gbmv: ab has shape \(5, 3\) and strides .*ab = np\.asfortranarray\(ab\)",
    ),
    (lambda A, x, y: blas.sbmv(1, A.T, x, 0, x), r"sbmv: ab has shape \(5, 3\), needs \(5, 5\) for x of shape \(5,\)"),
    (lambda A, x, y: blas.hbmv(1, A, x, 0, y), r"hbmv: y has shape \(3,\), needs \(5,\) as x has"),
    (lambda A, x, y: blas.tbsv(A[:, :-1], x), r"tbsv: ab has shape \(3, 4\), needs \(3, 5\) for x of shape \(5,\)"),
    (lambda A, x, y: blas.tbmv(A[:0], x), r"tbmv: ab has shape \(0, 5\), needs \(1, 5\) for x of shape \(5,\)"),
    (lambda A, x, y: blas.tbmv(x, x), r"tbmv: ab has shape \(5,\), needs 2 dimensions"),
    (lambda A, x, y: blas.spmv(1, x, y, 0, y), r"spmv: ap has shape \(5,\), needs \(6,\) for x of shape \(3,\)"),
    (lambda A, x, y: blas.tpsv(x, y), r"tpsv: ap has shape \(5,\), needs \(6,\) for x of shape \(3,\)"),
    (lambda A, x, y: blas.hpr2(1, y, x, y), r"hpr2: y has shape \(5,\), needs \(3,\) as x has"),
    (
        lambda A, x, y: blas.tpmv(A[:, 0], x[:2]),
        r"tpmv: ap has strides \(40,\), needs \(8,\), .*ap = np\.ascontiguousarray\(ap\)",
    ),
    (lambda A, x, y: blas.tpmv(A, x), r"tpmv: ap has shape \(3, 5\), needs 1 dimension"),
    (lambda A, x, y: blas.tbmv(A, x, trans="X"), r'tbmv: trans must be "N" or "T" or "C", got \'X\''),
    (lambda A, x, y: blas.axpy(1, A[:, 1:2], y), r"axpy: x has shape \(3, 1\), needs 1 dimension; pass x\[:, 0\], the"),
    (lambda A, x, y: blas.gemv(1, A, A[1:2], 0, y), r"gemv: x has shape \(1, 5\), needs 1 dimension; pass x\[0\], the"),
    (lambda A, x, y: blas.rotm(y, y, x[:4]), r"rotm: param has shape \(4,\), needs \(5,\) for a flag and H"),
    (lambda A, x, y: blas.rotm(y, y, x[::-1]), r"rotm: param has strides \(-8,\), needs \(8,\)"),
    (lambda A, x, y: blas.rotmg(x[:1], x[1:2], x[2:3], x[3:4], y), r"rotmg: param has shape \(3,\), needs \(5,\)"),
    (
        lambda A, x, y: blas.rotg(x[:1], x[1:3], y[:1], y[1:2]),
        r"rotg: b has shape \(2,\), needs one element; .*b\[0:1\]",
    ),
]


@pytest.mark.later("host")
@pytest.mark.parametrize("index", range(len(SHAPE_ERRORS)))
def test_operands_that_do_not_fit_are_named_before_the_call(device: str, index: int) -> None:
    call, text = SHAPE_ERRORS[index]
    A, x, y = np.zeros((3, 5)), np.zeros(5), np.zeros(3)
    before = Device(device).counters
    with offload_args(A, x, y, device=device) as pointers, refusing(ArgumentError, "^blas." + text):
        call(*pointers)
    after = Device(device).counters
    assert (after.calls, after.bytes_up) == (before.calls, before.bytes_up)


def test_bands_and_packed_triangles_of_the_fewest_elements(device: str) -> None:
    x, y, param = np.ones(4), np.zeros(4), np.array([-1.0, 0, 1, 1, 0])
    ab, ap = np.ones((3, 4), order="F"), np.ones(10)
    with offload_args(In(ab), ap, x, y, param, device=device) as (d_ab, d_ap, dx, dy, d_param):
        calls: list[tuple[Any, Any, Any]] = [
            (lambda ab: blas.gbmv(1, ab, dx, 0, dy, kl=1, ku=1), d_ab, d_ab[:, :-1]),
            (lambda ab: blas.gbmv(1, ab, dx, 0, dy, kl=1, ku=1), d_ab, d_ab[:-1]),
            (lambda ab: blas.sbmv(1, ab, dx, 0, dy), d_ab, d_ab[:, :-1]),
            (lambda ab: blas.hbmv(1, ab, dx, 0, dy), d_ab, d_ab[:, :-1]),
            (lambda ab: blas.tbmv(ab, dx), d_ab, d_ab[:, :-1]),
            (lambda ab: blas.tbsv(ab, dx), d_ab, d_ab[:, :-1]),
            (lambda ap: blas.spmv(1, ap, dx, 0, dy), d_ap, d_ap[:-1]),
            (lambda ap: blas.hpmv(1, ap, dx, 0, dy), d_ap, d_ap[:-1]),
            (lambda ap: blas.tpmv(ap, dx), d_ap, d_ap[:-1]),
            (lambda ap: blas.tpsv(ap, dx), d_ap, d_ap[:-1]),
            (lambda ap: blas.spr(1, dx, ap), d_ap, d_ap[:-1]),
            (lambda ap: blas.hpr(1, dx, ap), d_ap, d_ap[:-1]),
            (lambda ap: blas.spr2(1, dx, dx, ap), d_ap, d_ap[:-1]),
            (lambda ap: blas.hpr2(1, dx, dx, ap), d_ap, d_ap[:-1]),
            (lambda param: blas.rotm(dx, dy, param), d_param, d_param[:-1]),
        ]
        for call, enough, less in calls:
            with refusing(ArgumentError, r"^blas\.\w+: (ab|ap|x|param) has shape .*, needs "):
                call(less)
            call(enough)


def test_a_host_array_where_a_pointer_belongs(device: str) -> None:
    A, x, y = np.zeros((3, 5)), np.zeros(5), np.zeros(3)
    with offload_args(A, x, y, device=device) as (dA, dx, dy):
        text = (
            r"^blas\.gemv: x needs a DevicePtr, got numpy\.ndarray; lend it first: with offload_args\(x\) as \(dx,\), "
            r"or write call\(blas\.gemv, \.\.\.\)$"
        )
        with refusing(HostPointerError, text):
            blas.gemv(1, dA, x, 0, dy)  # type: ignore[arg-type]
        with refusing(HostPointerError, r"^blas\.gemv: A needs a DevicePtr, got numpy\.ndarray"):
            blas.gemv(1, A, dx, 0, dy)  # type: ignore[arg-type]
        with refusing(HostPointerError, r"^blas\.nrm2: x needs a DevicePtr, got int"):
            blas.nrm2(140)  # type: ignore[arg-type]
        with refusing(HostPointerError, r"^blas\.gemm: C needs a DevicePtr, got None"):
            blas.gemm(1, dA, dA.T, 0, None)  # type: ignore[arg-type]


def test_dtypes_that_differ_or_that_blas_does_not_take(device: str) -> None:
    A, x, y = np.zeros((3, 5)), np.zeros(5, np.float32), np.zeros(3)
    halves, whole = np.zeros(3, np.float16), np.zeros(3, np.int32)
    with offload_args(A, x, y, halves, whole, device=device) as (dA, dx, dy, d_halves, d_whole):
        with refusing(DTypeError, r"^blas\.gemv: x is float32, needs A's float64; "):
            blas.gemv(1, dA, dx, 0, dy)
        with refusing(DTypeError, r"^blas\.axpy: y is float64, needs x's float32; "):
            blas.axpy(1, dx[:3], dy)
        with refusing(DTypeError, r"^blas\.gemm: A is float64, needs float32 as B; .*: A = A\.astype\(np\.float32\)$"):
            blas.gemm(1, dA[:1, :], dx[:, None], 0, dx[:1, None])
        takes = "float32 or float64 or complex64 or complex128"
        for pointer, name in [(d_halves, "float16"), (d_whole, "int32")]:
            with refusing(DTypeError, rf"^blas\.scal: x needs {takes}, got {name}"):
                blas.scal(2, pointer)
        with refusing(DTypeError, "result"):
            blas.nrm2(dy, result=dx[:1])
        with refusing(TypeError, "alpha needs a real number"):
            blas.scal(1j, dy)


@pytest.mark.parametrize("function", ["gemm", "gemv", "axpy"])
def test_the_remedy_for_operands_of_several_dtypes_works_at_once(device: str, function: str) -> None:
    """Whichever dtypes the operands have, one edit is enough, and it converts no operand to the dtype of a minority."""
    calls: dict[str, Any] = {
        "gemm": ("ABC", lambda A, B, C: blas.gemm(1, A, B, 0, C)),
        "gemv": ("Axy", lambda A, x, y: blas.gemv(1, A, x, 0, y)),
        "axpy": ("xy", lambda x, y: blas.axpy(1, x, y)),
    }
    names, run = calls[function]
    for dtypes in product((np.float16, np.int32, np.float32, np.float64, np.complex64), repeat=len(names)):
        arrays = {name: np.ones((2, 2) if name < "a" else 2, dtype) for name, dtype in zip(names, dtypes, strict=True)}
        try:
            with offload_args(*arrays.values(), device=device) as pointers:
                run(*pointers)
            continue
        except DTypeError as error:
            remedy = str(error).partition(" first: ")[2]
        changed = dict(arrays)
        exec(remedy, {"np": np}, changed)
        most = max(dtypes, key=dtypes.count)
        if dtypes.count(most) > len(names) / 2 and most in (np.float32, np.float64) and np.complex64 not in dtypes:
            assert all(array.dtype == most for name, array in changed.items() if name in arrays), (dtypes, remedy)
        with offload_args(*changed.values(), device=device) as pointers:
            run(*pointers)


def square(name: str) -> tuple[Call, int]:
    """Return a function as a call that takes only its operands, and the number of operands."""
    calls: dict[str, tuple[Any, int]] = {
        "axpy": (lambda x, y: blas.axpy(1, x, y), 2),
        "scal": (lambda x: blas.scal(1, x), 1),
        "rot": (lambda x, y: blas.rot(x, y, 1, 0), 2),
        "gemv": (lambda A, x, y: blas.gemv(1, A, x, 0, y), 3),
        "ger": (lambda x, y, A: blas.ger(1, x, y, A), 3),
        "gerc": (lambda x, y, A: blas.gerc(1, x, y, A), 3),
        "symv": (lambda A, x, y: blas.symv(1, A, x, 0, y), 3),
        "hemv": (lambda A, x, y: blas.hemv(1, A, x, 0, y), 3),
        "gemm": (lambda A, B, C: blas.gemm(1, A, B, 0, C), 3),
        "gemm_strided_batched": (lambda A, B, C: blas.gemm_strided_batched(1, A, B, 0, C), 3),
        "gemm_batched": (lambda A, B, C: blas.gemm_batched(1, [A], [B], 0, [C]), 3),
        "trsm_batched": (lambda A, B: blas.trsm_batched(1, [A], [B]), 2),
        "geam": (lambda A, B, C: blas.geam(1, A, 1, B, C), 3),
        "dgmm": (blas.dgmm, 3),
        "symm": (lambda A, B, C: blas.symm(1, A, B, 0, C), 3),
        "hemm": (lambda A, B, C: blas.hemm(1, A, B, 0, C), 3),
        "syrk": (lambda A, C: blas.syrk(1, A, 0, C), 2),
        "herk": (lambda A, C: blas.herk(1, A, 0, C), 2),
        "syr2k": (lambda A, B, C: blas.syr2k(1, A, B, 0, C), 3),
        "her2k": (lambda A, B, C: blas.her2k(1, A, B, 0, C), 3),
        "trmm": (lambda A, B: blas.trmm(1, A, B), 2),
        "trsm": (lambda A, B: blas.trsm(1, A, B), 2),
        "rotg": (lambda a, b, s: blas.rotg(a, b, s, s), 3),
        "rotm": (lambda x, y: blas.rotm(x, y, [-2, 0, 0, 0, 0]), 2),
        "rotmg": (blas.rotmg, 5),
        "gbmv": (lambda ab, x, y: blas.gbmv(1, ab, x, 0, y, kl=1, ku=0), 3),
    }
    function = getattr(blas, name)
    if name in ("sbmv", "hbmv", "spmv", "hpmv"):
        return lambda A, x, y: function(1, A, x, 0, y), 3
    if name in ("syr", "her", "spr", "hpr"):
        return lambda x, A: function(1, x, A), 2
    if name in ("syr2", "her2", "spr2", "hpr2"):
        return lambda x, y, A: function(1, x, y, A), 3
    two = name in ("copy", "swap", "dot", "dotu", "dotc", "trmv", "trsv", "tbmv", "tbsv", "tpmv", "tpsv")
    return calls.get(name, (function, 2 if two else 1))


# {function with other operands than vectors: its matrices ("A"), batches ("B") and 0-d operands ("0")}.
MATRICES_OF = {
    **dict.fromkeys("gemv symv hemv trmv trsv gbmv sbmv hbmv tbmv tbsv".split(), "A"),
    **dict.fromkeys("ger gerc syr2 her2".split(), "..A"),
    **dict.fromkeys("syr her".split(), ".A"),
    "gemm_strided_batched": "BBB",
    "dgmm": "A.A",
    "rotg": "000",
    "rotmg": "0000.",
}
LEVEL_3 = "gemm gemm_batched trsm_batched geam symm hemm syrk herk syr2k her2k trmm trsm".split()


@pytest.mark.later("host")
@pytest.mark.parametrize("size", [2, 0])
@pytest.mark.parametrize("name", blas.__all__)
def test_a_dtype_that_blas_does_not_take_is_named_for_every_operand(device: str, name: str, size: int) -> None:
    call, count = square(name)
    wrong = [np.int32, np.int64, np.uint8, np.bool_, np.float16, np.float32]
    shapes = [
        (size, size) if name in LEVEL_3 or kind == "A" else {"0": (), "B": (3, size, size)}.get(kind, (size,))
        for kind in MATRICES_OF.get(name, "").ljust(count, ".")[:count]
    ]
    right = [np.ones(shape) for shape in shapes]
    for at, dtype in product(range(count), wrong):
        if dtype == np.float32 and count == 1:
            continue  # the function takes this dtype
        arrays = [array.astype(dtype) if i == at else array for i, array in enumerate(right)]
        with (
            offload_args(*arrays, device=device) as pointers,
            refusing(DTypeError, rf"^blas\.{name}: \w+ (needs|is) .*{np.dtype(dtype).name}"),
        ):
            call(*pointers)
        takes_half = device.startswith("cuda") and name in ("gemm", "gemm_strided_batched")
        if dtype != np.float32 and not (takes_half and dtype == np.float16):
            arrays = [array.astype(dtype) for array in right]
            with offload_args(*arrays, device=device) as pointers, refusing(DTypeError, rf"^blas\.{name}: \w+ needs"):
                call(*pointers)


@pytest.mark.parametrize("option", [None, 1, [], {}, b"N", "n"])
def test_an_option_that_is_no_letter_of_blas_is_named(device: str, option: Any) -> None:
    with offload_args(np.ones((2, 2)), np.ones(2), np.ones(2), device=device) as (dA, dx, dy):
        for call, name in [
            (lambda: blas.gemv(1, dA, dx, 0, dy, trans=option), "trans"),
            (lambda: blas.trmv(dA, dx, uplo=option), "uplo"),
            (lambda: blas.symv(1, dA, dx, 0, dy, uplo=option), "uplo"),
            (lambda: blas.trsm(1, dA, dA, diag=option), "diag"),
            (lambda: blas.symm(1, dA, dA, 0, dA, side=option), "side"),
            (lambda: blas.syrk(1, dA, 0, dA, trans=option), "trans"),
            (lambda: blas.gbmv(1, dA, dx, 0, dy, kl=1, ku=0, trans=option), "trans"),
            (lambda: blas.her(1, dx, dA, uplo=option), "uplo"),
            (lambda: blas.tpmv(dx, dy, diag=option), "diag"),
            (lambda: blas.gemm(1, dA, dA, 0, dA, trans_b=option), "trans_b"),
        ]:
            with refusing(ArgumentError, rf'{name} must be ".*, got '):
                call()


def test_orders_that_no_call_can_express(device: str) -> None:
    A = np.zeros((3, 3), np.complex128)
    F = np.asfortranarray(A)
    with offload_args(A, F, device=device) as (dA, dF):
        with refusing(
            ArgumentError, r"^blas\.gemm: .*needs the order of C, got A F, B F, C C; .*A = np\.ascontiguousarray"
        ):
            blas.gemm(1, dF, dF, 0, dA, trans_a="C")
        with refusing(ArgumentError, r"^blas\.symm: B and C need the same order, got A F, B F, C C"):
            blas.symm(1, dF, dF, 0, dA)
        with refusing(ArgumentError, r"^blas\.hemm: A and B and C need the same order, got A F, B C, C C"):
            blas.hemm(1, dF, dA, 0, dA)
        with refusing(ArgumentError, r"^blas\.herk: A and C need the same order, got A F, C C"):
            blas.herk(1, dF, 0, dA)
        with refusing(ArgumentError, r"^blas\.her2k: A and B and C need the same order"):
            blas.her2k(1, dF, dF, 0, dA)
        with refusing(ArgumentError, r"^blas\.trsm: .*trans=\"C\" needs the order of B, got A F, B C"):
            blas.trsm(1, dF, dA, trans="C")
        with refusing(ArgumentError, r'^blas\.syrk: trans must be "N" or "T" for complex128, got "C"; herk'):
            blas.syrk(1, dF, 0, dA, trans="C")
        with refusing(ArgumentError, r'^blas\.herk: trans must be "N" or "C" for complex128, got "T"; syrk'):
            blas.herk(1, dA, 0, dA, trans="T")


@pytest.mark.promise("T14", "T37")
def test_refusals_of_the_vendors_call_come_through(device: str) -> None:
    A, x, y = np.ones((3, 5)), np.ones(5), np.ones(3)
    with offload_args(In(A), x, In(y), device=device) as (dA, dx, dy):
        with refusing(DirectionError, "gemv: y"):
            blas.gemv(1, dA, dx, 0, dy)
        with refusing(AliasError, "gemv: "):
            blas.gemv(1, dA[:, :3], dx[:3], 0, dx[1:4])
    with refusing(StalePointerError, "gemv: "):
        blas.gemv(1, dA, dx, 0, dy)
    other = "sim:1" if device.startswith("sim") else "sim:0"
    with (
        offload_args(A, device=device) as (dA,),
        offload_args(x, y, device=other) as (dx, dy),
        refusing(WrongDeviceError, r"gemv: "),
    ):
        blas.gemv(1, dA, dx, 0, dy)


def test_misplaced_operands_are_told_by_the_order_of_the_arguments(device: str) -> None:
    x, y = np.ones(3), np.ones(3)
    untyped: Any = blas
    with offload_args(np.ones((3, 3)), x, y, device=device) as (dA, dx, dy):
        order = r"write blas\.gemv\(alpha, A, x, beta, y, \.\.\.\)$"
        calls: list[tuple[Callable[[], object], str]] = [
            (
                lambda: untyped.gemv(1.0, dA, dx, dy, 0.0),
                rf"^blas\.gemv: beta needs a number, got a pointer of shape \(3,\), and y needs a D.*got 0\.0; {order}",
            ),
            (lambda: untyped.gemv(dA, dx, dy, 1.0, 0.0), rf"alpha needs .*, and y needs a DevicePtr, .*{order}"),
            (lambda: untyped.axpy(dx, 2.0, dy), r"alpha needs a number, .*; write blas\.axpy\(alpha, x, y\)$"),
            (lambda: untyped.axpy(dx, dy, 2.0), r"alpha needs a number, .*, and y needs a DevicePtr, got 2\.0"),
            (lambda: untyped.scal(dx, 2.0), r"alpha needs a number, .*; write blas\.scal\(alpha, x\)$"),
            (
                lambda: untyped.gemv("N", 3, 3, 1.0, dA, 3, dx, 1, 0.0, dy, 1),
                r"takes 5 .*11 were given; write blas\.gemv\(.*\): sizes, leading .* come from the pointers$",
            ),
            (
                lambda: untyped.gemv(1.0, dA, dx, 0.0, dy, device="host"),
                r"'device'; it runs on the device of its pointers: pass device= to offload_args, or to call$",
            ),
            (lambda: untyped.gemv(1.0, dA, dx, 0.0, dy, transpose="T"), r"'transpose'; .*, y, trans='N'\)$"),
        ]
        for wrong, words in calls:
            with pytest.raises(ArgumentTypeError, match=words):
                wrong()
    assert (y == 1).all()


def test_a_region_in_place_of_its_pointer_is_entered(device: str) -> None:
    region = offload_args(np.ones(3), device=device)
    with pytest.raises(HostPointerError, match=r"x needs a DevicePtr, .*; a region gives .*: with region as \(dx,\)$"):
        blas.scal(2.0, region)  # type: ignore[arg-type]


def test_a_matrix_for_a_vector_names_the_vector_of_all_elements(device: str) -> None:
    A = np.arange(6.0).reshape(2, 3)
    for array, part in ((A, r"x\.reshape\(-1\)"), (np.asfortranarray(A), r"x\.T\.reshape\(-1\)")):
        with offload_args(array, device=device) as (dA,):
            for wrong in (lambda: blas.nrm2(dA), lambda: blas.scal(2.0, dA), lambda: blas.dot(dA, dA)):
                with pytest.raises(ArgumentError, match=rf"x has shape \(2, 3\), needs 1 dimension; pass {part}, the"):
                    wrong()
            assert np.isclose(blas.nrm2(dA.reshape(-1) if array is A else dA.T.reshape(-1)), np.linalg.norm(A))
    with offload_args(A, device=device) as (dA,):
        with pytest.raises(
            ArgumentError, match=r"x\[0\]; for x\.reshape\(-1\), copy it first: x = np\.ascontiguousarray\(x\)$"
        ):
            blas.nrm2(dA[:, :2])


def test_a_product_of_other_dimensions_names_the_function_for_them(device: str) -> None:
    A, x, S = np.ones((3, 3)), np.ones(3), np.ones((4, 3, 3))
    with offload_args(A, x, S, np.ones((4, 3)), device=device) as (dA, dx, dS, dX):
        calls: list[tuple[Callable[[], object], str]] = [
            (lambda: blas.gemm(1.0, dA, dx, 0.0, dA), r"B has shape \(3,\), .*; blas\.gemv multiplies .*B\[:, None\]$"),
            (lambda: blas.gemv(1.0, dA, dA, 0.0, dA), r"x has shape \(3, 3\), .*; blas\.gemm multiplies matrices"),
            (
                lambda: blas.gemv(1.0, dx, dA, 0.0, dx),
                r"; A and x are exchanged: write blas\.gemv\(alpha, A, x, beta, y",
            ),
            (
                lambda: blas.gemv(1.0, dS, dX, 0.0, dX),
                r"blas\.gemm takes stacks: .*A, x\[\.\.\., None\], beta, y\[\.\.\., N",
            ),
        ]
        for wrong, words in calls:
            with pytest.raises(ArgumentError, match=words):
                wrong()


def test_a_complex_number_for_real_arrays_is_refused_with_the_arrays_to_lend() -> None:
    with offload_args(np.ones(2), np.ones((2, 2), complex), device="host") as (dx, dA):
        with pytest.raises(ArgumentTypeError, match=r"daxpy: alpha needs a real number .*; or lend complex arrays$"):
            blas.axpy(1 + 1j, dx, dx)
        with pytest.raises(ArgumentTypeError, match=r"zherk: alpha needs a real number .*, got the complex \(1\+1j\)$"):
            blas.herk(1 + 1j, dA, 0.0, dA)


@pytest.mark.parametrize("name", ["geru", "zgeru"])
def test_a_vendors_name_of_ger_is_told_with_the_name_here(name: str) -> None:
    with pytest.raises(AttributeError, match=r"use blas\.ger, which takes complex vectors, too; gerc conjugates y$"):
        getattr(blas, name)
