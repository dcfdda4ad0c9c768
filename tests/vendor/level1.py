"""Tests of each routine of level 1."""

from __future__ import annotations

import ctypes

import numpy as np

from helpers import reference as ref
from helpers.vendor import Cases, Operand, Routine, number, own_function, vector

CASES = Cases()

# n and the increments of x and y. In routines with one vector, reference BLAS does nothing for negative increments.
PAIRS = [(0, 1, 1), (1, 1, 1), (7, 1, 1), (7, 2, 3), (7, -1, 2), (5, -2, -1), (33, 1, -2), (300, 1, 1)]
SINGLES = [(0, 1), (1, 1), (7, 1), (7, 2), (33, 3), (300, 1)]


@CASES.of("i{t}amax", "i{t}amin")
def iamax(r: Routine) -> None:
    base = 1 if r.vendor.is_cublas else 0
    greatest = r.name.endswith("amax")
    for n, inc in SINGLES[1:]:
        values = r.values(n)
        ties = [0] if n == 1 else [n // 2, n - 1]  # the first of the equal values is the result
        values[ties] = (4 if greatest else 2**-20) * np.array([1, -1], r.real)[: len(ties)]
        x = vector(values, inc)
        assert r(n, x, inc) == ties[0] + base, f"{n=} {inc=}"
        x.check(r.name)
    assert r(0, vector(r.values(0)), 1) == 0


@CASES.of("{t}asum", "{t}nrm2", letters="sd")
@CASES.of("{r}{t}asum", "{r}{t}nrm2", letters="cz")
def norms(r: Routine) -> None:
    function = ref.asum if r.name.endswith("asum") else ref.nrm2
    for n, inc in SINGLES:
        x = vector(r.values(n), inc)
        expected = function(x.wide)
        ref.assert_close(r(n, x, inc), expected, n, expected, r.real, f"{n=} {inc=}")
        result = number(np.nan, r.real)
        assert r(n, x, inc, result=result) is None
        ref.assert_close(result.now(), expected, n, expected, r.real, f"{n=} {inc=} to result")
        x.check(r.name)


def ssum_by_ctypes(n: int, x: Operand, inc: int) -> float:
    """Return the result of the library's cblas_ssum, which on some CPUs is not the sum of x (docs/guide/cblas.md)."""
    function = own_function("ssum")
    function.restype, function.argtypes = ctypes.c_float, [ctypes.c_int64, ctypes.c_void_p, ctypes.c_int64]
    return float(function(n, x.now().ctypes.data, inc))


@CASES.of("{t}sum", "{t}amax", "{t}amin", letters="sd")
@CASES.of("{r}{t}sum", "{r}{t}amax", "{r}{t}amin", letters="cz")
def sums(r: Routine) -> None:
    for n, inc in SINGLES[1:]:
        x = vector(r.values(n), inc)
        real, imaginary = x.wide.real, x.wide.imag
        if r.name.endswith("sum"):
            expected, magnitude = (real + imaginary).sum(), (abs(real) + abs(imaginary)).sum()
            if r.name == "ssum":
                expected = ref.wide(np.float32(ssum_by_ctypes(n, x, inc)))
        else:
            sizes = abs(real) + abs(imaginary)
            expected = magnitude = sizes.max() if r.name.endswith("amax") else sizes.min()
        ref.assert_close(r(n, x, inc), expected, n, magnitude, r.real, f"{n=} {inc=}")
        result = number(np.nan, r.real)
        assert r(n, x, inc, result=result) is None
        ref.assert_close(result.now(), expected, n, magnitude, r.real, f"{n=} {inc=} to result")
        x.check(r.name)
    assert r(0, vector(r.values(0)), 1) == 0


@CASES.of("i{t}max", "i{t}min", letters="sd")
def extremes(r: Routine) -> None:
    for n, inc in SINGLES[1:]:
        x = vector(r.values(n), inc)
        assert r(n, x, inc) == (x.values.argmax() if r.name.endswith("max") else x.values.argmin()), f"{n=} {inc=}"
        x.check(r.name)


@CASES.of("{t}axpby")
def axpby(r: Routine) -> None:
    for alpha, beta, given_alpha, given_beta in r.scalars():
        for n, incx, incy in PAIRS:
            case = f"{alpha=} {beta=} {n=} {incx=} {incy=}"
            x, y = vector(r.values(n), incx), vector(r.values(n), incy)
            assert r(n, given_alpha, x, incx, given_beta, y, incy) is None
            magnitude = abs(alpha) * abs(x.wide) + abs(beta) * abs(y.wide)
            r.close(y, alpha * x.wide + beta * y.wide, 3, magnitude, case)
            x.check(case)


@CASES.of("{t}axpyc", letters="cz")
def axpyc(r: Routine) -> None:
    for alpha, _, arguments, _ in r.scalars():
        for n, incx, incy in PAIRS:
            case = f"{alpha=} {n=} {incx=} {incy=}"
            x, y = vector(r.values(n), incx), vector(r.values(n), incy)
            assert r(n, arguments, x, incx, y, incy) is None
            magnitude = ref.axpy(abs(alpha), abs(x.wide), abs(y.wide))
            r.close(y, ref.axpy(alpha, x.wide.conj(), y.wide), 2, magnitude, case)
            x.check(case)


@CASES.of("{t}axpy")
def axpy(r: Routine) -> None:
    for alpha, _, arguments, _ in r.scalars():
        for n, incx, incy in PAIRS:
            case = f"{alpha=} {n=} {incx=} {incy=}"
            x, y = vector(r.values(n), incx), vector(r.values(n), incy)
            assert r(n, arguments, x, incx, y, incy) is None
            magnitude = ref.axpy(abs(alpha), abs(x.wide), abs(y.wide))
            r.close(y, ref.axpy(alpha, x.wide, y.wide), 2, magnitude, case)
            x.check(case)


@CASES.of("{t}scal")
@CASES.of("{t}{r}scal", letters="cz")
def scal(r: Routine) -> None:
    for alpha, _, arguments, _ in r.scalars(alpha_real=len(r.name) == 6):
        for n, inc in SINGLES:
            x = vector(r.values(n), inc)
            r(n, arguments, x, inc)
            r.close(x, alpha * x.wide, 1, abs(alpha) * abs(x.wide), f"{alpha=} {n=} {inc=}")


@CASES.of("{t}copy")
def copy(r: Routine) -> None:
    for n, incx, incy in PAIRS:
        x, y = vector(r.values(n), incx), vector(r.nan(n), incy)
        r(n, x, incx, y, incy)
        assert np.array_equal(y.now(), x.values)
        y.check(r.name, True)
        x.check(r.name)


@CASES.of("{t}swap")
def swap(r: Routine) -> None:
    for n, incx, incy in PAIRS:
        x, y = vector(r.values(n), incx), vector(r.values(n), incy)
        r(n, x, incx, y, incy)
        assert np.array_equal(y.now(), x.values)
        assert np.array_equal(x.now(), y.values)
        x.check(r.name, True)
        y.check(r.name, True)


@CASES.of("{t}dot", letters="sd")
@CASES.of("{t}dotu", "{t}dotc", letters="cz")
def dot(r: Routine) -> None:
    for n, incx, incy in PAIRS:
        case = f"{n=} {incx=} {incy=}"
        x, y = vector(r.values(n), incx), vector(r.values(n), incy)
        expected = ref.dot(x.wide, y.wide, conjugated=r.name.endswith("c"))
        magnitude = ref.dot(abs(x.wide), abs(y.wide))
        ref.assert_close(r(n, x, incx, y, incy), expected, n, magnitude, r.dtype, case)
        result = number(np.nan, r.dtype)
        assert r(n, x, incx, y, incy, result=result) is None
        ref.assert_close(result.now(), expected, n, magnitude, r.dtype, case + " to result")
        x.check(case)
        y.check(case)


@CASES.of("dsdot", "sdsdot", letters="s")
def dot_in_double(r: Routine) -> None:
    alpha = () if r.name == "dsdot" else (1.5,)
    for n, incx, incy in PAIRS:
        case = f"{n=} {incx=} {incy=}"
        x, y = vector(r.values(n), incx), vector(r.values(n), incy)
        expected = ref.dot(x.wide, y.wide) + sum(alpha)
        magnitude = ref.dot(abs(x.wide), abs(y.wide)) + sum(alpha)
        got = r(n, *alpha, x, incx, y, incy)
        if n < 32 and not alpha:
            ref.assert_close(got, expected, n, magnitude, np.float64, case)
        else:  # OpenBLAS sums blocks of 32 in single precision, and sdsdot's result has single precision
            ref.assert_close(got, expected, n, magnitude, np.float32, case)


@CASES.of("{t}rot")
@CASES.of("{t}{r}rot", letters="cz")
def rot(r: Routine) -> None:
    c, s = 0.5, -0.75 + (0.25j if r.complex and len(r.name) == 4 else 0)
    s_dtype = r.dtype if isinstance(s, complex) else r.real
    for given_c, given_s in [(c, s), (number(c, r.real), number(s, s_dtype)), (c, number(s, s_dtype))]:
        for n, incx, incy in PAIRS:
            case = f"{n=} {incx=} {incy=}"
            x, y = vector(r.values(n), incx), vector(r.values(n), incy)
            r(n, x, incx, y, incy, given_c, given_s)
            new_x, new_y = ref.rot(x.wide, y.wide, c, s)
            magnitude_x, magnitude_y = ref.rot(abs(x.wide), abs(y.wide), abs(c), abs(s), minus=1)
            r.close(x, new_x, 2, magnitude_x, case)
            r.close(y, new_y, 2, magnitude_y, case)


@CASES.of("{t}rotg")
def rotg(r: Routine) -> None:
    phase = np.exp(0.7j) if r.complex else 1
    for a, b in [(3, 4), (4, 3), (-1.5, 0.25), (0.25, -1.5), (2, 0), (0, 2), (0, 0)]:
        a, b = r.dtype(a * phase), r.dtype(b)
        arguments = [number(a, r.dtype), number(b, r.dtype), number(np.nan, r.real), number(np.nan, r.dtype)]
        assert r(*arguments) is None
        forms = [[operand.now() for operand in arguments]]
        if not r.vendor.is_cublas:
            forms.append(r(a, b))
        for form in forms:
            new_a, new_b, c, s = (ref.wide(value) for value in form)
            wide_a, wide_b, size = ref.wide(a), ref.wide(b), abs(a) + abs(b)
            ref.assert_close(c * wide_a + s * wide_b, new_a, 8, size, r.dtype, f"r of {a}, {b}")
            ref.assert_close(c * wide_b - np.conj(s) * wide_a, 0, 8, size, r.dtype, f"zero of {a}, {b}")
            ref.assert_close(c * c + abs(s) ** 2, 1, 8, 1, r.dtype, f"norm of {a}, {b}")
            if not r.complex:
                z = s if abs(a) > abs(b) or size == 0 else 1 / c if c else 1
                ref.assert_close(new_b, z, 8, abs(z), r.dtype, f"z of {a}, {b}")


@CASES.of("{t}rotm", letters="sd")
def rotm(r: Routine) -> None:
    for flag in (-2, -1, 0, 1):
        param = np.array([flag, 0.5, -0.75, 0.25, 1.5], r.dtype)
        H = ref.rotm_matrix(ref.wide(param))
        for arguments in (param.tolist(), vector(param)):
            for n, incx, incy in PAIRS:
                case = f"{flag=} {n=} {incx=} {incy=}"
                x, y = vector(r.values(n), incx), vector(r.values(n), incy)
                r(n, x, incx, y, incy, arguments)
                new, magnitude = H @ [x.wide, y.wide], abs(H) @ [abs(x.wide), abs(y.wide)]
                r.close(x, new[0], 2, magnitude[0], case)
                r.close(y, new[1], 2, magnitude[1], case)


@CASES.of("{t}rotmg", letters="sd")
def rotmg(r: Routine) -> None:
    # d1, d2, x1, y1: either weight greater, nothing to zero, sizes that need scaling, and no such rotation
    # If both weights need scaling, rocBLAS's H is wrong (docs/guide/rocblas.md).
    small = (1e-9, 3.0 if r.vendor.device.startswith("hip") else 3e-9, 0.5, 1.5)
    for numbers in [(2, 3, 1.5, 0.5), (1, 3, 0.5, 1.5), (2, 3, 1.5, 0), small, (-1, 3, 0.5, 1.5)]:
        d1, d2, x1, y1 = (r.dtype(number) for number in numbers)
        param = vector(r.nan(5))
        arguments = [number(value, r.dtype) for value in (d1, d2, x1, y1)]
        assert r(*arguments, param) is None
        assert arguments[3].now() == y1
        forms = [(*(operand.now() for operand in arguments[:3]), param.now())]
        if not r.vendor.is_cublas:
            forms.append(r(d1, d2, x1, y1))
        for form in forms:
            case = f"{numbers} gave {form}"
            new_d1, new_d2, new_x1 = (ref.wide(value) for value in form[:3])
            H = ref.rotm_matrix(ref.wide(np.asarray(form[3], r.dtype)))
            if d1 < 0:
                assert not np.any(H) and not new_d1 and not new_d2 and not new_x1, case
                continue
            before = np.array([ref.wide(x1), ref.wide(y1)])
            size = abs(H) @ abs(before)
            ref.assert_close(H @ before, [new_x1, 0], 12, size, r.dtype, case)
            energy = ref.wide(d1) * before[0] ** 2 + ref.wide(d2) * before[1] ** 2
            ref.assert_close(new_d1 * new_x1**2, energy, 24, energy, r.dtype, case)
