"""Level 1 as in the reference BLAS, element after element: increments of 0, n below 0, the same vector twice."""

from __future__ import annotations

import re
from itertools import product
from typing import Any

import numpy as np
import pytest

from helpers.arrays import Array
from helpers.devices import HIP
from helpers.vendor import DTYPES, REAL, Vendor, bound
from offload_args import Out, Scratch, _core, blas, offload_args
from offload_args.errors import AliasError, ArgumentError, LibraryVersionError, StalePointerError

SIZES = [-3, 0, 1, 2, 5, 40]
INCREMENTS = [0, 1, -1, 2, -2]
WITH_ZERO = [(a, b) for a, b in product(INCREMENTS, INCREMENTS) if not a or not b]
H = [[0.5, -0.5], [0.25, 0.75]]
AFTER: dict[str, tuple[Any, ...]] = {"rot": (0.5, 0.25), "rotm": ((-1, 0.5, 0.25, -0.5, 0.75),)}  # c, s; flag and H


def places(n: int, inc: int) -> list[int]:
    first = (1 - n) * inc if inc < 0 else 0
    return [first + i * inc for i in range(n)]


def one_by_one(name: str, n: int, x: Array, incx: int, y: Array, incy: int) -> Any:
    """Do the steps of the reference BLAS in its order; return the result of dot."""
    total = x.dtype.type(0)
    for i, j in zip(places(n, incx), places(n, incy), strict=True):
        a, b = x[i].copy(), y[j].copy()
        if name == "copy":
            y[j] = a
        elif name == "swap":
            x[i], y[j] = b, a
        elif name == "axpy":
            y[j] = b + 2 * a
        elif name == "rot":
            y[j] = 0.5 * b - 0.25 * a
            x[i] = 0.5 * a + 0.25 * b
        elif name == "rotm":
            x[i], y[j] = H[0][0] * a + H[0][1] * b, H[1][0] * a + H[1][1] * b
        else:
            total += a * b
    return total


def vectors(n: int, letter: str) -> tuple[Array, Array]:
    random = np.random.default_rng(abs(n))
    x, y = random.integers(-4, 5, (2, 2 * max(n, 1)))
    return x.astype(DTYPES[letter]), y.astype(DTYPES[letter])


def names(letter: str) -> dict[str, str]:
    """Return the names of the routines of two vectors for a letter."""
    built = {name: letter + name for name in ("copy", "swap", "axpy")}
    built["dot"] = letter + ("dotu" if letter in "cz" else "dot")
    built["rot"] = {"c": "csrot", "z": "zdrot"}.get(letter, letter + "rot")
    return built if letter in "cz" else {**built, "rotm": letter + "rotm"}


@pytest.mark.later("host")
@pytest.mark.promise("T46")
@pytest.mark.parametrize("letter", "sdcz")
def test_an_increment_of_0_repeats_one_element_as_in_the_reference(device: str, letter: str) -> None:
    library = Vendor(device).module
    for (name, called), n, (incx, incy) in product(names(letter).items(), SIZES, WITH_ZERO):
        x, y = vectors(n, letter)
        # each array ends with the last element that the call touches; it has one element if the increment is 0
        x, y = (v[: max(places(n, inc), default=0) + 1].copy() for v, inc in ((x, incx), (y, incy)))
        expected_x, expected_y = x.copy(), y.copy()
        expected = one_by_one(name, n, expected_x, incx, expected_y, incy)
        before = {"axpy": (2.0,)}.get(name, ())
        after = AFTER.get(name, ())
        with offload_args(x, y, device=device) as (dx, dy):
            result = getattr(library, called)(n, *before, dx, incx, dy, incy, *after)
        case = f"{called} {n=} {incx=} {incy=}"
        np.testing.assert_allclose(x, expected_x, rtol=1e-4, atol=1e-6, err_msg=case)
        np.testing.assert_allclose(y, expected_y, rtol=1e-4, atol=1e-6, err_msg=case)
        assert (result is None) == (name != "dot")
        if name == "dot":
            np.testing.assert_allclose(result, expected, rtol=1e-4, atol=1e-6, err_msg=case)


@pytest.mark.promise("T46")
@pytest.mark.parametrize("letter", "sdcz")
def test_routines_of_one_vector_take_an_increment_of_0_as_the_reference(device: str, letter: str) -> None:
    vendor = Vendor(device)
    of_real = {"c": "sc", "z": "dz"}.get(letter, letter)
    for n in SIZES:
        x = np.array([-3], DTYPES[letter])
        with offload_args(x, device=device) as (dx,):
            assert getattr(vendor.module, of_real + "asum")(n, dx, 0) == 0
            assert getattr(vendor.module, f"i{letter}amax")(n, dx, 0) == 0
            assert getattr(vendor.module, f"i{letter}amin")(n, dx, 0) == 0
            getattr(vendor.module, letter + "scal")(n, 2.0, dx, 0)
            if not vendor.is_cublas:
                assert getattr(vendor.module, of_real + "nrm2")(n, dx, 0) == pytest.approx(3 * max(n, 0) ** 0.5)
            else:  # GPUs would return 0
                with pytest.raises(ArgumentError, match="incx needs an increment other than 0, got 0"):
                    getattr(vendor.module, of_real + "nrm2")(n, dx, 0)
        assert x[0] == -3


@pytest.mark.promise("T46")
@pytest.mark.parametrize("letter", "sdcz")
def test_a_length_below_0_counts_as_0(device: str, letter: str) -> None:
    library = Vendor(device).module
    of_real = {"c": "sc", "z": "dz"}.get(letter, letter)
    dot = letter + ("dotu" if letter in "cz" else "dot")
    x, y, real = np.ones(3, DTYPES[letter]), np.full(3, 2, DTYPES[letter]), np.full((), 7, REAL[letter])
    result = np.full((), 7, DTYPES[letter])
    with offload_args(x, y, result, real, device=device) as (dx, dy, dr, dreal):
        for n in (-1, -(2**31) - 5, -(2**62)):
            assert getattr(library, dot)(n, dx, 1, dy, 1) == 0
            assert getattr(library, of_real + "nrm2")(n, dx, 1) == 0
            assert getattr(library, of_real + "asum")(n, dx, 1) == 0
            assert getattr(library, f"i{letter}amax")(n, dx, 1) == 0
            assert getattr(library, f"i{letter}amin")(n, dx, 1) == 0
            for name, called in names(letter).items():
                before = {"axpy": (2.0,)}.get(name, ())
                after = AFTER.get(name, ())
                getattr(library, called)(n, *before, dx, 1, dy, 1, *after)
            getattr(library, letter + "scal")(n, 2.0, dx, 1)
        getattr(library, dot)(-1, dx, 1, dy, 1, result=dr)
        getattr(library, of_real + "nrm2")(-1, dx, 1, result=dreal)
    assert (x == 1).all() and (y == 2).all() and result == 0 and real == 0
    with pytest.raises(StalePointerError):  # wrong arguments are refused even so
        getattr(library, letter + "copy")(-1, dx, 1, dy, 1)


@pytest.mark.promise("T46")
def test_nothing_moves_for_n_below_0(device: str) -> None:
    library = Vendor(device).module
    y = np.full(3, 7.0)
    with pytest.warns(match="nothing wrote it"), offload_args(np.ones(3), Out(y), device=device) as (dx, dy):
        library.dcopy(-1, dx, 1, dy, 1)
    assert (y == 7).all()


# Names of the batched functions of vectors, and of functions whose dtypes are arguments.
FORMS = re.compile(r"(?:i?[sdcz]{1,2}|i)?(axpy|copy|swap|scal|dot|asum|nrm2|rotm?|amax|amin)[cu]?((?:_\w+)?)")
OF_ONE = ("scal", "asum", "nrm2", "amax", "amin")
PARAM: Any = [-1, 0.5, 0.25, -0.5, 0.75]
SHORT = {"float32": "f32", "float64": "f64", "complex64": "c64", "complex128": "c128"}


def in_other_forms(module: Any, dtype: Any) -> list[tuple[str, str, str]]:
    """Return (name, routine, form) of these functions."""
    library, in_other_forms = module.__name__.rpartition(".")[2], []
    for name in bound(module):
        match = FORMS.fullmatch(name)
        x = next((row[2:4] for row in _core.record(library, name) if row[1] == "x"), None)
        if match and match[2] and x in (("any", "xType"), ("any", "x_type"), (SHORT[np.dtype(dtype).name], "")):
            in_other_forms.append((name, match[1], match[2]))
    return in_other_forms


def call_form(library: Any, name: str, form: str, n: int, passed: dict[str, Any]) -> Any:
    """Call a function by its record.

    `passed` has incx, incy, and pointers to x, y, results and param, with a line for each call of a batch.
    """
    arguments: list[Any] = []
    dtype, lines = passed["x"].dtype, passed["x"].shape[0]
    real = np.zeros(0, dtype).real.dtype
    for role, label, *_ in _core.record(library.__name__.rpartition(".")[2], name):
        if role == "type":
            of_real = label.startswith("cs") or (label.startswith("result") and "asum" in name)
            of_real |= "nrm2" in name and not label.startswith("x")
            arguments.append(real if of_real else dtype)
        elif role == "size":
            sizes = {"n": n, "batch_count": lines, "incx": passed["incx"], "incy": passed["incy"], "stride_param": 5}
            arguments.append(sizes[label] if label in sizes else passed[label[-1]].strides[0] // dtype.itemsize)
        elif role == "scalar":
            arguments.append({"alpha": 2.0, "c": 0.5, "s": 0.25, "param": PARAM}[label])
        elif role.endswith("*"):
            arguments.append([passed[label][i] for i in range(lines)])
        elif role != "result":
            arguments.append(passed[label].reshape(-1))
    return getattr(library, name)(*arguments)


@pytest.mark.promise("T46")
@pytest.mark.parametrize("device", ["cuda:0", HIP], indirect=True)
@pytest.mark.parametrize("letter", "sdcz")
def test_other_forms_take_increments_of_0_and_lengths_below_0_as_the_reference(device: str, letter: str) -> None:
    vendor, dtype, real = Vendor(device), DTYPES[letter], np.dtype(REAL[letter])
    forms = in_other_forms(vendor.module, dtype)
    assert len(forms) > (8 if device.startswith("cuda") else 24)
    for (name, routine, form), n, (incx, incy) in product(forms, SIZES, WITH_ZERO):
        if (routine == "rotm" and letter in "cz") or (routine in OF_ONE and n > 0 and incx != 0):
            continue
        lines = 2 if "batched" in form else 1
        index = np.int64 if name.endswith("_64") else np.int32
        kind = index if routine in ("amax", "amin") else real if routine in ("nrm2", "asum") else dtype
        x, y = (np.stack([vector] * lines) for vector in vectors(n, letter))
        x[1:] += 1
        results, param = np.full(lines, 7, kind), np.stack([np.array(PARAM, real)] * lines)
        expected_x, expected_y, expected = x.copy(), y.copy(), [0] * lines
        if routine not in OF_ONE:
            pairs = zip(expected_x, expected_y, strict=True)
            expected = [one_by_one(routine, n, value, incx, other, incy) for value, other in pairs]
        case = f"{name} {n=} {incx=} {incy=}"
        with offload_args(x, y, results, param, device=device) as (dx, dy, dr, dp):
            arguments = {"x": dx, "y": dy, "result": dr, "results": dr, "param": dp, "incx": incx, "incy": incy}
            if routine == "nrm2" and incx == 0:  # GPUs return 0, and the reference returns sqrt(n) |x|
                with pytest.raises(ArgumentError, match="incx needs an increment other than 0, got 0"):
                    call_form(vendor.module, name, form, n, arguments)
                continue
            try:
                returned = call_form(vendor.module, name, form, n, arguments)
            except LibraryVersionError:  # rocBLAS before 4.4.1 lacks the function
                assert name.endswith("_64")
                continue
        np.testing.assert_allclose(x, expected_x, rtol=1e-4, atol=1e-6, err_msg=case)
        np.testing.assert_allclose(y, expected_y, rtol=1e-4, atol=1e-6, err_msg=case)
        if routine in ("dot", *OF_ONE[1:]):
            got = results if returned is None else [returned]
            np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-6, err_msg=case)


@pytest.mark.promise("T46")
@pytest.mark.parametrize("letter", "sdcz")
def test_a_vector_with_itself_gives_the_result_of_the_reference(device: str, letter: str) -> None:
    library = Vendor(device).module
    values = np.arange(1, 10).astype(DTYPES[letter])
    for inc in (1, 2, -1, -3):
        n = 1 + 8 // abs(inc)
        x, factor = values.copy(), 2 - 1j if letter in "cz" else 2
        with offload_args(x, device=device) as (dx,):
            getattr(library, letter + "swap")(n, dx, inc, dx, inc)
            getattr(library, letter + "copy")(n, dx, inc, dx, inc)
            if letter in "cz" and device.startswith(("host", "sim")):  # OpenBLAS reads elements that it has written
                with pytest.raises(AliasError):
                    getattr(library, letter + "axpy")(n, factor, dx, inc, dx, inc)
                getattr(library, letter + "scal")(n, 1 + factor, dx, abs(inc))
            else:
                getattr(library, letter + "axpy")(n, factor, dx, inc, dx, inc)
            for name, called in names(letter).items():
                if name == "dot":
                    continue
                arguments = {"axpy": (2.0,)}.get(name, ())
                after = AFTER.get(name, ())
                with pytest.raises(AliasError):  # refused, because the order would matter backwards, or for a rotation
                    getattr(library, called)(n, *arguments, dx, inc, dx, inc if after else -inc, *after)
                with pytest.raises(AliasError):
                    getattr(library, called)(2, *arguments, dx[:-1], 1, dx[1:], 1, *after)
        expected = values.copy()
        expected[:: abs(inc)] *= 1 + factor
        np.testing.assert_array_equal(x, expected)


@pytest.mark.promise("T46")
def test_a_row_of_a_matrix_with_itself_as_lapack_swaps_it(device: str) -> None:
    library = Vendor(device).module
    A = np.asfortranarray(np.arange(12.0).reshape(3, 4))
    with offload_args(A, device=device) as (dA,):
        for i, k in [(0, 2), (1, 1), (2, 2)]:
            library.dswap(4, dA[i], 3, dA[k], 3)
            blas.swap(dA[k], dA[k])
        library.dswap(1, dA[0], 0, dA[2], -1)
    np.testing.assert_array_equal(A, [[0, 9, 10, 11], [4, 5, 6, 7], [8, 1, 2, 3]])


def test_increments_of_0_are_refused_where_the_reference_refuses_them(device: str) -> None:
    vendor = Vendor(device)
    first = vendor.orders[0][1]
    with offload_args(np.ones((2, 2)), np.ones(2), Scratch(2), device=device) as (dA, dx, dy):
        for n in (0, 1, 2):
            with pytest.raises(ArgumentError, match=r"dgemv: incx needs an increment other than 0, got 0 \(for x\)"):
                vendor.module.dgemv(*first, vendor.op["N"], n, n, 1.0, dA, 2, dx, 0, 0.0, dy, 1)
        with pytest.raises(ArgumentError, match="n needs to be at least 0, got -1"):
            vendor.module.dgemv(*first, vendor.op["N"], 2, -1, 1.0, dA, 2, dx, 1, 0.0, dy, 1)


@pytest.mark.parametrize("order", "CF")
@pytest.mark.parametrize("steps", [(-1, -1), (-2, 1), (2, -3)])
@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
def test_complex_matrices_of_either_order_take_vectors_of_negative_stride(
    device: str, dtype: str, steps: tuple[int, int], order: Any
) -> None:
    rng, n = np.random.default_rng(3), 4

    def some(*shape: int) -> Any:
        return (rng.integers(-3, 4, shape) + 1j * rng.integers(-3, 4, shape)).astype(dtype)

    a, b, c = 2 - 1j, 1 + 1j, 3.0
    A, rows = np.array(some(n + 2, n), order=order)[:n], np.array(some(n, n + 1), order=order)
    T = np.triu(A, 1) + 2 * np.eye(n)
    H, S = (np.triu(A, 1) + half + np.diag(A.diagonal().real) for half in (np.triu(A, 1).conj().T, np.triu(A, 1).T))
    S = S + 1j * np.diag(A.diagonal().imag)
    x, y, w = (some(3 * size) for size in (n, n, n + 1))
    u, v, z = x[:: steps[0]][:n], y[:: steps[1]][:n], w[:: steps[1]][: n + 1]
    calls: list[tuple[str, Any, Any, Any]] = [
        ("gemv", rows, lambda dA, du, dv, dz: blas.gemv(a, dA, du, b, dz, trans="C"),
         ("z", a * rows.conj().T @ u + b * z)),
        ("gemv", rows, lambda dA, du, dv, dz: blas.gemv(a, dA, du, 0, dz, trans="C"), ("z", a * rows.conj().T @ u)),
        ("gerc", rows, lambda dA, du, dv, dz: blas.gerc(a, du, dz, dA), ("A", rows + a * np.outer(u, z.conj()))),
        ("hemv", A, lambda dA, du, dv, dz: blas.hemv(a, dA, du, b, dv), ("v", a * H @ u + b * v)),
        ("symv", A, lambda dA, du, dv, dz: blas.symv(a, dA, du, b, dv), ("v", a * S @ u + b * v)),
        ("her", A, lambda dA, du, dv, dz: blas.her(c, du, dA), ("U", H + c * np.outer(u, u.conj()))),
        ("syr", A, lambda dA, du, dv, dz: blas.syr(a, du, dA), ("U", S + a * np.outer(u, u))),
        ("her2", A, lambda dA, du, dv, dz: blas.her2(a, du, dv, dA),
         ("U", H + a * np.outer(u, v.conj()) + np.conj(a) * np.outer(v, u.conj()))),
        ("syr2", A, lambda dA, du, dv, dz: blas.syr2(a, du, dv, dA), ("U", S + a * (np.outer(u, v) + np.outer(v, u)))),
        ("trmv", T, lambda dA, du, dv, dz: blas.trmv(dA, dv, trans="C"), ("v", T.conj().T @ v)),
        ("trsv", T, lambda dA, du, dv, dz: blas.trsv(dA, dv, trans="C"), ("v", np.linalg.solve(T.conj().T, v))),
    ]  # fmt: skip
    for name, matrix, call, (place, expected) in calls:
        M, given_x, given_y, given_z = np.array(matrix, dtype, order=order), x.copy(), y.copy(), w.copy()
        with offload_args(M, given_x, given_y, given_z, device=device) as (dM, dx, dy, dw):
            call(dM, dx[:: steps[0]][:n], dy[:: steps[1]][:n], dw[:: steps[1]][: n + 1])
        actual = {"A": M, "U": np.triu(M), "v": given_y[:: steps[1]][:n], "z": given_z[:: steps[1]][: n + 1]}[place]
        expected = np.triu(expected) if place == "U" else expected
        np.testing.assert_allclose(actual, expected, rtol=1e-4, atol=1e-4, err_msg=name)
        for changed, kept in ((given_x, x), *([(given_y, y)] * (place != "v")), *([(given_z, w)] * (place != "z"))):
            np.testing.assert_array_equal(changed, kept, err_msg=name)
