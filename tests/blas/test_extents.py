"""The elements that a call touches: operands in one memory, compared with sets of elements by BLAS's definitions."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest
import scipy.linalg

from helpers.arrays import Array
from helpers.vendor import Vendor
from offload_args import InOut, Out, blas, offload_args
from offload_args.errors import AliasError, ExtentError, LibraryVersionError, SizeOverflowError

Places = dict[tuple[int, int], int]  # {(i, j) of an element of a matrix: its place, counted from the pointer}


# -- the storage of BLAS ----------------------------------------------------------------------------------------------
def general(m: int, n: int, ld: int, order: str) -> Places:
    return {(i, j): i + j * ld if order == "F" else i * ld + j for i in range(m) for j in range(n)}


def half(places: Places, uplo: str, unit: bool = False) -> Places:
    return {
        (i, j): at for (i, j), at in places.items() if (i <= j if uplo == "U" else i >= j) and not (unit and i == j)
    }


def band(m: int, n: int, kl: int, ku: int, ld: int, order: str) -> Places:
    inside = [(i, j) for i in range(m) for j in range(n) if i - j <= kl and j - i <= ku]
    return {(i, j): ku + i - j + j * ld if order == "F" else i * ld + kl + j - i for i, j in inside}


def packed(n: int, uplo: str, order: str) -> Places:
    """Return the places of one triangle by columns or rows, including the diagonal."""
    elements = list(half(general(n, n, n, order), uplo))
    elements.sort(key=lambda element: element[::-1] if order == "F" else element)
    return {element: at for at, element in enumerate(elements)}


def vector(n: int, inc: int) -> list[int]:
    first = 0 if inc >= 0 else (1 - n) * inc
    return [first + i * inc for i in range(n)]


class Draw(NamedTuple):
    """One call, in which A and v share memory, and w is separate."""

    A: Places
    v: list[int]
    written: str  # "A" or "v"
    n_w: int  # size of w
    call: Callable[[Any, Any, Any], None]  # with pointers to A, v, w
    expected: Callable[[Array, Array, Array], Any]  # the dense values of A, v, w -> the written values, dense
    unused: bool = False  # whether A consists of its diagonal, which is not read and counts as ones


def dense(places: Places, memory: Array, shape: tuple[int, int]) -> Array:
    A = np.zeros(shape)
    for element, at in places.items():
        A[element] = memory[at]
    return A


class Random:
    """Draws calls of one library."""

    def __init__(self, vendor: Vendor, seed: int) -> None:
        self.vendor, self.library = vendor, vendor.module
        self.random = np.random.default_rng(seed)

    def below(self, n: int) -> int:
        return int(self.random.integers(n))

    def choose(self, of: Any) -> Any:
        return of[self.below(len(of))]

    def draw(self, name: str) -> tuple[Draw, tuple[int, int]]:
        """Draw a call of a routine, and the shape of its matrix."""
        order, first = self.choose(self.vendor.orders)
        uplo, trans, diag = self.choose("UL"), self.choose("NT"), self.choose("NU")
        m, n, k, kl, ku = (1 + self.below(6) for _ in range(5))
        k, kl, ku = k - 1, kl - 1, ku - 1
        gap, inc = self.below(3), self.choose([1, -1, 2, -2, 3, 7])
        fill, op, unit = self.vendor.uplo[uplo], self.vendor.op[trans], self.vendor.diag[diag]
        function = getattr(self.library, "d" + name)
        is_unit = diag == "U"
        left_out = is_unit and n > 1  # a matrix of only a diagonal needs its memory: libraries read the diagonal

        def triangular(A: Array, v: Array, w: Array) -> Array:
            T = A - np.diag(np.diag(A)) + np.eye(n) if is_unit else A
            return (T if trans == "N" else T.T) @ v

        if name in ("trmv", "tbmv", "tpmv"):
            if name == "trmv":
                ld = n + gap
                places, size, tail = half(general(n, n, ld, order), uplo, left_out), (n,), (ld,)
            elif name == "tbmv":
                ld, below = k + 1 + gap, 0 if uplo == "U" else k
                places = half(band(n, n, below, k - below, ld, order), uplo, left_out and k > 0)
                size, tail = (n, k), (ld,)
            else:
                places = packed(n, uplo, order)
                places = {e: at for e, at in places.items() if not (left_out and e[0] == e[1])}
                size, tail = (n,), ()
            drawn = Draw(
                places, vector(n, inc), "v", 0,
                lambda A, v, w: function(*first, fill, op, unit, *size, A, *tail, v, inc), triangular,
                unused=is_unit and (n == 1 or (name == "tbmv" and k == 0)),
            )  # fmt: skip
            return drawn, (n, n)
        if name in ("syr", "spr"):
            ld = n + gap
            places = packed(n, uplo, order) if name == "spr" else half(general(n, n, ld, order), uplo)
            tail = () if name == "spr" else (ld,)
            drawn = Draw(
                places, vector(n, inc), "A", 0,
                lambda A, v, w: function(*first, fill, n, 2.0, v, inc, A, *tail),
                lambda A, v, w: A + 2 * np.outer(v, v),
            )  # fmt: skip
            return drawn, (n, n)
        if name in ("symv", "sbmv"):
            below = 0 if uplo == "U" else k
            ld = n + gap if name == "symv" else k + 1 + gap
            places = half(general(n, n, ld, order) if name == "symv" else band(n, n, below, k - below, ld, order), uplo)
            size = (n,) if name == "symv" else (n, k)
            drawn = Draw(
                places, vector(n, inc), "v", n,
                lambda A, v, w: function(*first, fill, *size, 2.0, A, ld, w, 1, 3.0, v, inc),
                lambda A, v, w: 2 * (A + A.T - np.diag(np.diag(A))) @ w + 3 * v,
            )  # fmt: skip
            return drawn, (n, n)
        inner, outer = (n, m) if trans == "N" else (m, n)
        if name in ("gemv", "gbmv"):
            ld = (m if order == "F" else n) + gap if name == "gemv" else kl + ku + 1 + gap
            places = general(m, n, ld, order) if name == "gemv" else band(m, n, kl, ku, ld, order)
            size = (m, n) if name == "gemv" else (m, n, kl, ku)
            drawn = Draw(
                places, vector(outer, inc), "v", inner,
                lambda A, v, w: function(*first, op, *size, 2.0, A, ld, w, 1, 3.0, v, inc),
                lambda A, v, w: 2 * (A if trans == "N" else A.T) @ w + 3 * v,
            )  # fmt: skip
            return drawn, (m, n)
        assert name == "ger"
        ld = (m if order == "F" else n) + gap
        drawn = Draw(
            general(m, n, ld, order), vector(m, inc), "A", n,
            lambda A, v, w: function(*first, m, n, 2.0, v, inc, w, 1, A, ld),
            lambda A, v, w: A + 2 * np.outer(v, w),
        )  # fmt: skip
        return drawn, (m, n)


ROUTINES = "trmv tbmv tpmv syr spr symv sbmv gemv gbmv ger".split()


@pytest.mark.later("host")
@pytest.mark.promise("T47")
@pytest.mark.parametrize("name", ROUTINES)
def test_operands_in_one_memory_are_refused_exactly_when_they_share_an_element(device: str, name: str) -> None:
    draws = Random(Vendor(device), ROUTINES.index(name))
    shared = 0
    for _ in range(150):
        drawn, shape = draws.draw(name)
        at_A, at_v = draws.below(40), draws.below(90)
        before = draws.random.integers(-3, 4, 200).astype(float)
        w = draws.random.integers(-3, 4, drawn.n_w or 1).astype(float)
        A = {element: at_A + at for element, at in drawn.A.items()}
        v = [at_v + at for at in drawn.v]
        alias = not drawn.unused and not set(A.values()).isdisjoint(v)
        memory = before.copy()
        with offload_args(memory, w, device=device) as (d, dw):
            if alias:
                with pytest.raises(AliasError, match=r"is written and overlaps"):
                    drawn.call(d[at_A:], d[at_v:], dw)
            else:
                drawn.call(d[at_A:], d[at_v:], dw)
        shared += alias
        expected = before.copy()
        if not alias:
            new = drawn.expected(dense(A, before, shape), before[v], w[: drawn.n_w])
            for element, at in A.items() if drawn.written == "A" else ():
                expected[at] = new[element]
            if drawn.written == "v":
                expected[v] = new
        np.testing.assert_array_equal(memory, expected)
    assert 10 < shared < 140  # both kinds were drawn, on devices with and without row-major forms


@pytest.mark.promise("T47")
@pytest.mark.parametrize("n", [1, 2, 3])
def test_a_unit_triangle_may_have_its_right_side_on_its_diagonal(device: str, n: int) -> None:
    b = np.arange(2.0, 2.0 + n)
    T = np.triu(np.full((n, n), 0.5), 1) + np.eye(n)
    for name, values in (("trmv", T @ b), ("trsv", np.linalg.solve(T, b)), ("tbmv", b), ("tbsv", b)):
        is_band = name.startswith("tb")
        A = np.asfortranarray(T - np.eye(n) + np.diag(b)) if not is_band else np.array(b[None], order="F")
        with offload_args(A, device=device) as (dA,):
            x = dA._view(0, (n,), (8 if is_band else 8 * n + 8,))
            getattr(blas, name)(dA, x, diag="U")
        np.testing.assert_allclose(A[0] if is_band else np.diag(A), values)
    for name, values in (("trmm", T @ b), ("trsm", np.linalg.solve(T, b))):
        A = np.asfortranarray(T - np.eye(n) + np.diag(b))
        with offload_args(A, device=device) as (dA,):
            row = dA._view(0, (1, n), (8, 8 * n + 8))  # B of one row, in Fortran order
            getattr(blas, name)(1.0, dA, row, side="R", trans="T", diag="U")
        np.testing.assert_allclose(np.diag(A), values)
    if n == 1:
        ap = np.array([2.0])
        with offload_args(ap, device=device) as (dap,):
            blas.tpmv(dap, dap, diag="U")
            blas.tpsv(dap, dap, diag="U")
        assert ap == [2.0]


@pytest.mark.later("host")
@pytest.mark.promise("T31")
@pytest.mark.parametrize("name", ROUTINES)
def test_a_matrix_may_end_with_the_last_element_that_is_touched(device: str, name: str) -> None:
    draws = Random(Vendor(device), 100 + ROUTINES.index(name))
    for _ in range(40):
        drawn, shape = draws.draw(name)
        size = max(drawn.A.values(), default=-1) + 1
        A = draws.random.integers(-3, 4, size).astype(float)
        v = draws.random.integers(-3, 4, max(drawn.v) + 1).astype(float)
        w = draws.random.integers(-3, 4, drawn.n_w or 1).astype(float)
        new = drawn.expected(dense(drawn.A, A, shape), v[drawn.v], w[: drawn.n_w])
        with offload_args(A, v, w, device=device) as (dA, dv, dw):
            if size:
                elements = "1 element" if size == 1 else f"{size} elements"
                with pytest.raises(ExtentError, match=rf"A[P]? needs {elements} \(.*\), has {size - 1}"):
                    drawn.call(dA[:-1], dv, dw)
            drawn.call(dA, dv, dw)
        if drawn.written == "v":
            np.testing.assert_array_equal(v[drawn.v], new)
        else:
            np.testing.assert_array_equal([A[at] for at in drawn.A.values()], [new[e] for e in drawn.A])


@pytest.mark.promise("T31")
def test_the_elements_of_a_triangle_may_lie_in_lines_that_its_square_does_not(device: str) -> None:
    vendor = Vendor(device)
    first = next(first for order, first in vendor.orders if order == "F")
    x = np.ones(3)
    # three diagonals of a band, lent with gaps of two: with ld one less, its columns are diagonals
    for uplo, offset, places in (("L", 0, [0, 1, 2, 5, 6, 10]), ("U", 2, [2, 6, 7, 10, 11, 12])):
        before = np.arange(1.0, 26)
        whole = before.copy().reshape(5, 5, order="F")
        with offload_args(InOut(whole[:3]), x, device=device) as (d, dx):
            vendor.module.dsyr(*first, vendor.uplo[uplo], 3, 1.0, dx, 1, d.offset(offset), 4)
            with pytest.raises(ExtentError, match="between the lines of its array"):
                vendor.module.dsyr(*first, vendor.uplo[uplo], 3, 1.0, dx, 1, d.offset(1), 4)
        expected = before.copy()
        expected[places] += 1
        np.testing.assert_array_equal(whole.ravel(order="F"), expected)


# -- leading dimensions ------------------------------------------------------------------------------------------------
def ones_and_others(m: int, n: int) -> list[Array]:
    """Return matrices of m by n in every order, some of them parts of larger matrices."""
    random = np.random.default_rng(m + 10 * n)
    C = random.integers(-4, 5, (m, n)).astype(float)
    F = np.array(C, order="F")
    parts = [random.integers(-4, 5, (7, 8)).astype(float)[2 : 2 + m, 3 : 3 + n] for _ in range(2)]
    parts.append(np.array(parts[1].base, order="F")[1 : 1 + m, 2 : 2 + n])
    return [C, F, np.asfortranarray(C), np.ascontiguousarray(F), C.T.copy().T, *parts]


def lies(A: Array, order: str) -> bool:
    """Return whether a matrix can be described in this order."""
    m, n = A.shape
    return (m == 1 or A.strides[0] == 8) if order == "F" else (n == 1 or A.strides[1] == 8)


@pytest.mark.promise("T26")
@pytest.mark.parametrize("shape", [(1, 1), (4, 1), (1, 4), (5, 3)])
def test_ld_serves_either_order(device: str, shape: tuple[int, int]) -> None:
    vendor = Vendor(device)
    m, n = shape
    for A in ones_and_others(m, n):
        for order, trans in [(order, trans) for order in "FC" if lies(A, order) for trans in "NT"]:
            x = np.arange(1.0, (n if trans == "N" else m) + 1)
            y = np.zeros(m if trans == "N" else n)
            by_columns = next(first for order, first in vendor.orders if order == "F")
            calls = [(by_columns, trans, m, n) if order == "F" else (by_columns, "NT"[trans == "N"], n, m)]
            calls += [(first, trans, m, n) for named, first in vendor.orders if named == order]
            for first, op, rows, columns in calls:
                with offload_args(A, x, Out(y), device=device) as (dA, dx, dy):
                    vendor.module.dgemv(*first, vendor.op[op], rows, columns, 1.0, dA, dA.ld, dx, 1, 0.0, dy, 1)
                expected = (A if trans == "N" else A.T) @ x
                np.testing.assert_array_equal(y, expected, err_msg=f"{order} {trans} {A.strides}")


@pytest.mark.promise("T26")
@pytest.mark.parametrize("sizes", [(4, 1, 3), (1, 4, 3), (4, 3, 1), (1, 5, 1), (5, 1, 1), (1, 1, 5), (1, 1, 1)])
def test_ld_serves_products_of_single_rows_and_columns(device: str, sizes: tuple[int, int, int]) -> None:
    vendor = Vendor(device)
    m, k, n = sizes
    first = next(first for order, first in vendor.orders if order == "F")
    op = vendor.op["N"]
    for A, B, C in zip(ones_and_others(m, k), ones_and_others(k, n), ones_and_others(m, n), strict=True):
        for order in "FC":
            if not (lies(A, order) and lies(B, order) and lies(C, order)):
                continue
            expected = A @ B
            with offload_args(A, B, C, device=device) as (dA, dB, dC):
                if order == "F":
                    vendor.module.dgemm(*first, op, op, m, n, k, 1.0, dA, dA.ld, dB, dB.ld, 0.0, dC, dC.ld)
                else:
                    vendor.module.dgemm(*first, op, op, n, m, k, 1.0, dB, dB.ld, dA, dA.ld, 0.0, dC, dC.ld)
            np.testing.assert_array_equal(C, expected)


def test_a_band_of_more_diagonals_than_64_bits_count_is_refused(device: str) -> None:
    vendor = Vendor(device)
    first = next(first for order, first in vendor.orders if order == "F")
    wide = 2**62
    # The error depends on whether the library has 64-bit integers; rocBLAS has them since version 4.
    text = "dgbmv: .* (9223372036854775809 diagonals|takes at most)|has no rocblas_dgbmv_64"
    with offload_args(np.ones(1), np.ones(1), np.ones(1), device=device) as (dA, dx, dy):
        with pytest.raises((SizeOverflowError, LibraryVersionError), match=text):
            vendor.module.dgbmv(*first, vendor.op["N"], 1, 1, wide, wide, 1.0, dA, wide, dx, 1, 0.0, dy, 1)


def test_an_error_of_one_column_names_no_leading_dimension_that_was_not_given(device: str) -> None:
    vendor = Vendor(device)
    first = next(first for order, first in vendor.orders if order == "F")
    upper, op, plain = vendor.uplo["U"], vendor.op["N"], vendor.diag["N"]
    with offload_args(np.ones(3), np.ones(1), np.ones(9), device=device) as (dA, dx, dy):
        for call, text in (
            (lambda: vendor.module.dgemv(*first, op, 9, 1, 1.0, dA, 2, dx, 1, 0.0, dy, 1), "(m=9, n=1)"),
            (lambda: vendor.module.dgbmv(*first, op, 9, 1, 8, 0, 1.0, dA, 2, dx, 1, 0.0, dy, 1), "(n=1, 9 diagonals)"),
            (lambda: vendor.module.dsbmv(*first, upper, 1, 8, 1.0, dA, 2, dx, 1, 0.0, dy, 1), "(n=1, 9 diagonals)"),
            (
                lambda: vendor.module.dtbmv(*first, upper, op, plain, 1, 8, dA, 2, dx, 1),
                "(n=1, 9 diagonals)",
            ),
        ):
            with pytest.raises(ExtentError, match=re.escape(f"A needs 9 elements {text}, has 3")):
                call()


@pytest.mark.promise("T31")
def test_a_leading_dimension_below_1_is_refused_for_one_column_too(device: str) -> None:
    vendor = Vendor(device)
    first = next(first for order, first in vendor.orders if order == "F")
    with offload_args(np.ones((3, 1)), np.ones(1), np.ones(3), device=device) as (dA, dx, dy):
        for ld in (0, -3):
            with pytest.raises(ExtentError, match=rf"lda needs at least 3 \(the rows of A as stored\), got {ld}"):
                vendor.module.dgemv(*first, vendor.op["N"], 3, 1, 1.0, dA, ld, dx, 1, 0.0, dy, 1)
        with pytest.raises(ExtentError, match="lda needs at least 3"):
            vendor.module.dgemv(*first, vendor.op["N"], 3, 2, 1.0, dA, 2, dx, 1, 0.0, dy, 1)


# -- LAPACK's own sequences --------------------------------------------------------------------------------------------
def positive_definite(n: int, bandwidth: int, dtype: Any) -> Array:
    random = np.random.default_rng(n)
    A = random.uniform(-1, 1, (n, n))
    if np.dtype(dtype).kind == "c":
        A = A + 1j * random.uniform(-1, 1, (n, n))
    A = A + A.conj().T + 4 * n * np.eye(n)
    rows, columns = np.indices((n, n))
    return np.where(abs(rows - columns) <= bandwidth, A, 0).astype(dtype)


def close(got: Array, expected: Array) -> None:
    np.testing.assert_allclose(got, expected, rtol=1e-4 if got.dtype.char in "fF" else 1e-11, atol=1e-5)


DTYPES = {"s": np.float32, "d": np.float64, "c": np.complex64, "z": np.complex128}


def factors(A: Array, uplo: str) -> tuple[Array, Array]:
    """Return one triangle of A, and the elements outside of it."""
    return (np.triu(A), np.tril(A, -1)) if uplo == "U" else (np.tril(A), np.triu(A, 1))


def blas_potf2(dA: Any, uplo: str) -> None:
    """Compute LAPACK's dpotf2: each line of the factor from the lines before it."""
    n = dA.shape[0]
    for j in range(n):
        done, rest = (dA[:j, j], dA[j, j + 1 :]) if uplo == "U" else (dA[j, :j], dA[j + 1 :, j])
        pivot = np.sqrt(blas.asum(dA[j : j + 1, j]) - blas.dot(done, done))
        dA[j : j + 1, j].assign(np.array([pivot], dA.dtype))
        if uplo == "U":
            blas.gemv(-1.0, dA[:j, j + 1 :], done, 1.0, rest, trans="T")
        else:
            blas.gemv(-1.0, dA[j + 1 :, :j], done, 1.0, rest)
        blas.scal(1 / pivot, rest)


def blas_potrf2(dA: Any, uplo: str, block: int) -> None:
    """Compute LAPACK's xpotrf in the right-looking form: a block of the diagonal, its panel, then the rest."""
    n = dA.shape[0]
    if n == 1:
        pivot = np.sqrt(blas.asum(dA[0]))
        dA.assign(np.array([[pivot]], dA.dtype))
        return
    for j in range(0, n, block):
        k = min(j + block, n)
        blas_potrf2(dA[j:k, j:k], uplo, 1)
        if uplo == "U":
            blas.trsm(1.0, dA[j:k, j:k], dA[j:k, k:], uplo="U", trans="C")
            blas.herk(-1.0, dA[j:k, k:], 1.0, dA[k:, k:], uplo="U", trans="C")
        else:
            blas.trsm(1.0, dA[j:k, j:k], dA[k:, j:k], side="R", uplo="L", trans="C")
            blas.herk(-1.0, dA[k:, j:k], 1.0, dA[k:, k:], uplo="L")


@pytest.mark.promise("T47")
@pytest.mark.parametrize("uplo", "UL")
@pytest.mark.parametrize("order", "FC")
@pytest.mark.parametrize("dtype", DTYPES.values())
def test_potrf_over_blas_agrees_with_scipy(device: str, order: Any, uplo: str, dtype: Any) -> None:
    n = 11
    whole = np.array(positive_definite(n + 3, n + 3, dtype), order=order)
    for factor in [blas_potf2] if np.dtype(dtype).kind == "f" else []:
        A = whole.copy(order="K")[1 : n + 1, 2 : n + 2]
        A[:] = positive_definite(n, n, dtype)
        expected, (_, beside) = scipy.linalg.cholesky(A, lower=uplo == "L"), factors(A, uplo)
        with offload_args(A, device=device) as (dA,):
            factor(dA, uplo)
        close(factors(A, uplo)[0], expected)
        np.testing.assert_array_equal(factors(A, uplo)[1], beside)
    A = np.array(positive_definite(n, n, dtype), order=order)
    expected, (_, beside) = scipy.linalg.cholesky(A, lower=uplo == "L"), factors(A, uplo)
    with offload_args(A, device=device) as (dA,):
        blas_potrf2(dA, uplo, 4)
    close(factors(A, uplo)[0], expected)
    np.testing.assert_array_equal(factors(A, uplo)[1], beside)


class Lapack:
    """LAPACK's factorisations by a vendor's functions, on a pointer to the whole storage of a band, by columns."""

    def __init__(self, device: str, letter: str) -> None:
        self.vendor = Vendor(device)
        self.letter, self.dtype = letter, DTYPES[letter]
        self.first = next(first for order, first in self.vendor.orders if order == "F")
        self.transposed = self.vendor.op["C" if letter in "cz" else "T"]

    def __call__(self, name: str, *arguments: Any) -> Any:
        first = () if name in ("copy", "scal") else self.first
        return getattr(self.vendor.module, self.letter + name)(*first, *arguments)

    def rank_one(self, uplo: str, n: int, x: Any, incx: int, A: Any, ld: int) -> None:
        self("her" if self.letter in "cz" else "syr", self.vendor.uplo[uplo], n, -1.0, x, incx, A, ld)

    def rank_k(self, uplo: str, trans: str, n: int, k: int, A: Any, lda: int, C: Any, ldc: int) -> None:
        op = self.vendor.op["N"] if trans == "N" else self.transposed
        name = "herk" if self.letter in "cz" else "syrk"
        self(name, self.vendor.uplo[uplo], op, n, k, -1.0, A, lda, 1.0, C, ldc)

    def pivot(self, d: Any, at: int) -> float:
        value = float(np.sqrt(blas.asum(d[at : at + 1])))
        d[at : at + 1].assign(np.array([value], self.dtype))
        return value

    def pbtf2(self, d: Any, uplo: str, n: int, kd: int, ldab: int) -> None:
        """Compute xPBTF2.

        With ld = ldab - 1, x of syr is a row or column next to the triangle, in the other half of its square.
        """
        kld = max(1, ldab - 1)
        for j in range(n):
            at = (kd if uplo == "U" else 0) + j * ldab
            pivot = self.pivot(d, at)
            kn = min(kd, n - 1 - j)
            if not kn:
                continue
            x, inc = (d.offset(at + ldab - 1), kld) if uplo == "U" else (d.offset(at + 1), 1)
            self("scal", kn, 1 / pivot, x, inc)
            if self.letter in "cz" and uplo == "U":  # conj(x) (LAPACK: zlacgv) is a matrix of one row
                self.rank_k(uplo, "C", kn, 1, x, inc, d.offset(at + ldab), kld)
            else:
                self.rank_one(uplo, kn, x, inc, d.offset(at + ldab), kld)


def banded(n: int, kd: int, ldab: int, uplo: str, dtype: Any) -> tuple[Array, Array]:
    """Return one triangle of a band matrix in BLAS's storage, with -777 in its gaps, and the expected factor."""
    A = positive_definite(n, kd, dtype)
    AB = np.full((ldab, n), -777, dtype, order="F")
    for (i, j), at in half(band(n, n, kd * (uplo == "L"), kd * (uplo == "U"), ldab, "F"), uplo).items():
        AB[at - j * ldab, j] = A[i, j]
    expected = AB.copy(order="F")
    expected[: kd + 1] = scipy.linalg.cholesky_banded(AB[: kd + 1], lower=uplo == "L")
    return AB, expected


@pytest.mark.promise("T47")
@pytest.mark.parametrize("uplo", "UL")
@pytest.mark.parametrize("letter", "sdcz")
def test_pbtf2_over_vendor_functions_agrees_with_scipy(device: str, letter: str, uplo: str) -> None:
    lapack = Lapack(device, letter)
    for n, kd, ldab in [(9, 3, 4), (9, 3, 6), (5, 4, 5), (6, 1, 2), (4, 0, 1)]:
        AB, expected = banded(n, kd, ldab, uplo, lapack.dtype)
        memory = AB.ravel(order="F")
        with offload_args(memory, device=device) as (d,):
            lapack.pbtf2(d, uplo, n, kd, ldab)
        got = memory.reshape((ldab, n), order="F")
        inside = AB != -777
        close(got[inside], expected[inside])
        np.testing.assert_array_equal(got[~inside], AB[~inside])


def pbtrf(lapack: Lapack, d: Any, work: Any, uplo: str, n: int, kd: int, ldab: int, block: int) -> None:
    """Compute xPBTRF by blocks of the diagonal and the parts next to each: A12 or A21 in the band, A13 or A31 in work.

    The band has only the lower triangle of A13; work is a square of `block`, in which all other elements are zero.
    """
    upper, ld, ldw = uplo == "U", ldab - 1, block
    unit, fill, op = lapack.vendor.diag["N"], lapack.vendor.uplo[uplo], lapack.vendor.op
    side = lapack.vendor.side["L" if upper else "R"]

    def at(row: int, column: int) -> Any:
        return d.offset(row + column * ldab)

    for i in range(0, n, block):
        ib = min(block, n - i)
        diagonal = at(kd if upper else 0, i)
        for j in range(ib):  # xPOTF2 of the block, one line of the factor at a time
            here = (kd if upper else 0) + (i + j) * ldab
            pivot, rest = lapack.pivot(d, here), ib - 1 - j
            if rest:
                x, inc = (d.offset(here + ld), ld) if upper else (d.offset(here + 1), 1)
                lapack("scal", rest, 1 / pivot, x, inc)
                if upper:
                    lapack.rank_k(uplo, "C", rest, 1, x, inc, d.offset(here + ldab), ld)
                else:
                    lapack.rank_one(uplo, rest, x, inc, d.offset(here + ldab), ld)
        i2, i3 = min(kd - ib, n - i - ib), min(ib, n - i - kd)
        near = at(kd - ib, i + ib) if upper and i2 > 0 else at(ib, i) if i2 > 0 else None
        trans = "C" if upper else "N"
        if near is not None:
            solved = (ib, i2) if upper else (i2, ib)
            lapack("trsm", side, fill, lapack.transposed, unit, *solved, 1.0, diagonal, ld, near, ld)
            lapack.rank_k(uplo, trans, i2, ib, near, ld, at(kd if upper else 0, i + ib), ld)
        if i3 > 0:
            for j in range(i3):
                if upper:  # column j of A13 has elements in the rows from j on
                    lapack("copy", ib - j, at(0, i + kd + j), 1, work.offset(j + j * ldw), 1)
                else:  # column j of A31 has elements in the rows 0 to j
                    lapack("copy", j + 1, at(kd - j, i + j), 1, work.offset(j * ldw), 1)
            if not upper:
                for j in range(i3, ib):
                    lapack("copy", i3, at(kd - j, i + j), 1, work.offset(j * ldw), 1)
            solved = (ib, i3) if upper else (i3, ib)
            lapack("trsm", side, fill, lapack.transposed, unit, *solved, 1.0, diagonal, ld, work, ldw)
            if near is not None and upper:
                mixed = lapack.transposed, op["N"], i2, i3, ib, -1.0, near, ld, work, ldw
                lapack("gemm", *mixed, 1.0, at(ib, i + kd), ld)
            elif near is not None:
                mixed = op["N"], lapack.transposed, i3, i2, ib, -1.0, work, ldw, near, ld
                lapack("gemm", *mixed, 1.0, at(kd - ib, i + ib), ld)
            lapack.rank_k(uplo, trans, i3, ib, work, ldw, at(kd if upper else 0, i + kd), ld)
            for j in range(i3):
                if upper:
                    lapack("copy", ib - j, work.offset(j + j * ldw), 1, at(0, i + kd + j), 1)
                else:
                    lapack("copy", j + 1, work.offset(j * ldw), 1, at(kd - j, i + j), 1)
            if not upper:
                for j in range(i3, ib):
                    lapack("copy", i3, work.offset(j * ldw), 1, at(kd - j, i + j), 1)


@pytest.mark.promise("T47")
@pytest.mark.parametrize("uplo", "UL")
@pytest.mark.parametrize("letter", "sdcz")
def test_pbtrf_over_vendor_functions_agrees_with_scipy(device: str, letter: str, uplo: str) -> None:
    lapack = Lapack(device, letter)
    for n, kd, ldab, block in [(17, 5, 6, 3), (12, 4, 7, 4), (9, 6, 7, 4), (6, 5, 6, 4)]:
        AB, expected = banded(n, kd, ldab, uplo, lapack.dtype)
        memory = AB.ravel(order="F")
        with offload_args(memory, np.zeros(block * block, lapack.dtype), device=device) as (d, work):
            pbtrf(lapack, d, work, uplo, n, kd, ldab, block)
        got = memory.reshape((ldab, n), order="F")
        inside = AB != -777
        close(got[inside], expected[inside])
        np.testing.assert_array_equal(got[~inside], AB[~inside])
