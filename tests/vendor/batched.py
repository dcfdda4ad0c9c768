"""Tests of each routine that takes arrays of pointers."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from helpers import reference as ref
from helpers.vendor import (
    FORMS,
    Cases,
    Many,
    Operand,
    Routine,
    Several,
    Turn,
    close_batch,
    ld,
    many,
    many_vectors,
    vector,
)

CASES = Cases()

SHAPES = [(3, 4, 3, 5), (2, 3, 6, 2), (4, 1, 5, 3), (3, 5, 1, 1), (2, 19, 23, 17), (2, 0, 3, 4), (2, 3, 0, 4)]
# A sum of no products (k = 0), for which cuBLAS may leave the result unchanged for any beta.
EMPTY_SUM = (2, 3, 4, 0)
SHAPES_2 = [(3, 4, 3), (2, 3, 6), (4, 1, 5), (3, 5, 1), (2, 21, 18), (40, 3, 2)]


@CASES.of("{t}gemm_batched", letters="sdczh")
@CASES.of("{t}gemm3m_batched", letters="c")
def gemm(r: Routine) -> None:
    for trans_a, trans_b, form, (count, m, n, k) in r.each("NTC", "NTC", FORMS, [*SHAPES, EMPTY_SUM]):
        shape_a, shape_b = ((m, k) if trans_a == "N" else (k, m)), ((k, n) if trans_b == "N" else (n, k))
        for t in r.turns(1):
            case = f"{trans_a=} {trans_b=} {form=} {count=} {m=} {n=} {k=} {t}"
            A = many(r.values(count, *shape_a), form, t.layout)
            B = many(r.values(count, *shape_b), FORMS[t.incx % 3], (t.layout + 1) % 3)
            C = many(r.output(t.beta, count, m, n), FORMS[t.incy % 3], (t.layout + t.incx) % 3)
            options = (r.vendor.op[trans_a], r.vendor.op[trans_b], m, n, k)
            r(*options, t.given_alpha, A, ld(A), B, ld(B), t.given_beta, C, ld(C), count)
            if k:
                close_batch(r, t, A, B, C, trans_a, trans_b, case, factor=4 if "3m" in r.name else 1)
            else:
                C.check(case, True)


@CASES.of("{t}gemv_batched")
def gemv(r: Routine) -> None:
    for trans, form, (count, m, n) in r.each("NTC", FORMS, SHAPES_2):
        read, written = (n, m) if trans == "N" else (m, n)
        for t in r.turns(2):
            case = f"{trans=} {form=} {count=} {m=} {n=} {t}"
            A = many(r.values(count, m, n), form, t.layout)
            x = many_vectors(r.values(count, read), FORMS[t.incx % 3], t.incx)
            y = many_vectors(r.output(t.beta, count, written), FORMS[t.incy % 3], t.incy)
            arguments = (t.given_alpha, A, ld(A), x, t.incx, t.given_beta, y, t.incy, count)
            r(r.vendor.op[trans], m, n, *arguments)
            expected, magnitude = y.wide, abs(y.wide)
            for i, (a, b, c) in enumerate(zip(A.wide, x.wide, y.wide, strict=True)):
                expected[i] = ref.gemv(t.alpha, a, b, t.beta, c, trans)
                magnitude[i] = ref.gemv(abs(t.alpha), abs(a), abs(b), abs(t.beta), abs(c), trans)
            r.close(y, expected, read, magnitude, case)
            A.check(case)
            x.check(case)


@CASES.of("{t}trsm_batched")
def trsm(r: Routine) -> None:
    for side, uplo, trans, diag, (count, m, n) in r.each("LR", "UL", "NTC", "NU", SHAPES_2):
        for t in r.turns(1):
            form = FORMS[t.layout]
            case = f"{side=} {uplo=} {trans=} {diag=} {form=} {count=} {m=} {n=} {t}"
            size = m if side == "L" else n
            halves = np.stack([r.triangular(size, uplo, diag) for _ in range(count)])
            A, B = many(halves, form, t.layout), many(r.values(count, m, n), FORMS[t.incx % 3], t.incy % 3)
            options = [r.vendor.side[side], r.vendor.uplo[uplo], r.vendor.op[trans], r.vendor.diag[diag]]
            r(*options, m, n, t.given_alpha, A, ld(A), B, ld(B), count)
            for i, (a, b, now) in enumerate(zip(A.wide, B.wide, ref.wide(B.now()), strict=True)):
                T = ref.triangle(a, uplo, diag)
                expected, got = t.alpha * b, ref.trmm(1, T, now, side, trans)
                magnitude = ref.trmm(1, abs(T), abs(now), side, trans) + abs(expected)
                ref.assert_close(got, expected, size, magnitude, r.dtype, f"{case} [{i}]")
            B.check(case, True)
            A.check(case)


@CASES.of("{t}gemm_grouped_batched", letters="sd")
@CASES.of("{t}gemm_batch")
def grouped(r: Routine) -> None:
    op, dtype = r.vendor.op, r.dtype
    for (order, first), form, group_count in r.each(r.vendor.orders, ["arrays", "slices"] * 12, range(5)):
        groups = [(*SHAPES[r.random.integers(5)], *r.random.choice(list("NTC"), 2)) for _ in range(group_count)]
        alphas = r.random.choice([1.0, -0.5 - 0.25j if r.complex else -0.5, 0.0], group_count).astype(dtype)
        betas = r.random.choice([0.0, 1.0, 0.25 + 0.75j if r.complex else 0.75], group_count).astype(dtype)
        case = f"{order} {form=} {groups=} {alphas=} {betas=}"
        A, B, C = [], [], []
        for (count, m, n, k, trans_a, trans_b), beta in zip(groups, betas, strict=True):
            layout = int(r.random.integers(3))
            A.append(many(r.values(count, *((m, k) if trans_a == "N" else (k, m))), form, layout, order))
            B.append(many(r.values(count, *((k, n) if trans_b == "N" else (n, k))), form, 2 - layout, order))
            C.append(many(r.output(beta, count, m, n), form, 1, order))
        r(
            *first,
            [op[group[4]] for group in groups],
            np.array([op[group[5]] for group in groups], np.int32),
            tuple(group[1] for group in groups),
            [group[2] for group in groups],
            [group[3] for group in groups],
            alphas.tolist(),
            Several(A),
            [ld(array) for array in A],
            Several(B),
            [ld(array) for array in B],
            betas,
            Several(C),
            [ld(array) for array in C],
            group_count,
            [group[0] for group in groups],
        )
        for g, (_, _, _, _, trans_a, trans_b) in enumerate(groups):
            turn = Turn(1, 1, 0, alphas[g], betas[g], alphas[g], betas[g])
            close_batch(r, turn, A[g], B[g], C[g], trans_a, trans_b, f"{case} group {g}")


# -- LAPACK-like functions ---------------------------------------------------------------------------------------------

ORDERS = [(3, 4), (2, 1), (4, 7), (2, 20), (20, 3)]
SYSTEMS = [(3, 4, 2), (2, 1, 3), (4, 7, 1), (2, 20, 5)]
TALL = [(3, 4, 3), (2, 6, 6), (4, 5, 1), (2, 21, 18)]


def integers(*values: int) -> Operand:
    return vector(np.array(values, np.int32))


def regular(r: Routine, count: int, n: int) -> NDArray[Any]:
    """Return matrices that are far from singular and have pivots off the diagonal."""
    A = r.values(count, n, n)
    A[:, np.arange(n), np.arange(n)[::-1]] += 3
    return A


def factored(A: NDArray[Any], pivot: bool) -> tuple[NDArray[Any], NDArray[np.int32]]:
    """Return L and U in one matrix, and for each row the row (from 1) with which it was exchanged."""
    LU, pivots = ref.wide(A), np.arange(1, len(A) + 1, dtype=np.int32)
    for k in range(len(A)):
        if pivot:
            pivots[k] = 1 + k + int(np.argmax(abs(LU[k:, k])))
            LU[[k, pivots[k] - 1]] = LU[[pivots[k] - 1, k]]
        LU[k + 1 :, k] /= LU[k, k]
        LU[k + 1 :, k + 1 :] -= np.outer(LU[k + 1 :, k], LU[k, k + 1 :])
    return LU, pivots


def exchanged(A: NDArray[Any], pivots: NDArray[Any]) -> NDArray[Any]:
    B = A.copy()
    for k, other in enumerate(pivots):
        B[[k, other - 1]] = B[[other - 1, k]]
    return B


def product(LU: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return L U, and |L| |U|."""
    L, U = np.tril(LU, -1) + np.eye(len(LU)), np.triu(LU)
    return L @ U, abs(L) @ abs(U)


def lu_of(r: Routine, count: int, n: int, pivot: bool) -> tuple[NDArray[Any], NDArray[Any], Operand | None]:
    """Return matrices, their factors, and the pivots of all matrices, or None without pivots."""
    A = regular(r, count, n)
    if not pivot:  # make the diagonal large
        A = A[:, :, ::-1].copy()
    built = [factored(value, pivot) for value in A]
    LU = np.stack([array.astype(r.dtype) for array, _ in built])
    return A, LU, integers(*np.concatenate([value for _, value in built])) if pivot else None


@CASES.of("{t}getrf_batched")
def getrf(r: Routine) -> None:
    for (count, n), form, layout, pivot in r.each(ORDERS, FORMS, range(3), (True, False)):
        case = f"{count=} {n=} {form=} {layout=} {pivot=}"
        values = regular(r, count, n)
        if not pivot:
            values = values[:, :, ::-1].copy()
        values[0] = 0 if n == 1 or pivot else values[0]
        A, info = many(values, form, layout), integers(*[-5] * count)
        P = integers(*[-5] * (n * count)) if pivot else None
        r(n, A, ld(A), P, info, count)
        singular = int(n == 1 or pivot)
        assert info.now().tolist() == [singular] + [0] * (count - 1), case
        pivots = P.now().reshape(count, n) if P else np.tile(np.arange(1, n + 1), (count, 1))
        for i in range(singular, count):
            LU, magnitude = product(ref.wide(A.now()[i]))
            assert (pivots[i] >= np.arange(1, n + 1)).all() and (pivots[i] <= n).all(), case
            ref.assert_close(LU, exchanged(ref.wide(values[i]), pivots[i]), 2 * n, magnitude, r.dtype, f"{case} [{i}]")
        A.check(case, True)
        info.check(case, True)
        if P:
            P.check(case, True)


@CASES.of("{t}getrs_batched")
def getrs(r: Routine) -> None:
    for trans, (count, n, nrhs), form, layout, pivot in r.each("NTC", SYSTEMS, FORMS, range(3), (True, False)):
        case = f"{trans=} {count=} {n=} {nrhs=} {form=} {layout=} {pivot=}"
        values, LU, P = lu_of(r, count, n, pivot)
        A, B = many(LU, form, layout), many(r.values(count, n, nrhs), FORMS[layout], (layout + 1) % 3)
        assert r(r.vendor.op[trans], n, nrhs, A, ld(A), P, B, ld(B), count) == 0, case
        for i, X in enumerate(ref.wide(B.now())):
            rows = exchanged(np.arange(n), P.now().reshape(count, n)[i]) if P else np.arange(n)
            sizes = np.empty((n, n), r.real)
            sizes[rows] = product(ref.wide(LU[i]))[1]
            magnitude = ref.op(sizes, trans) @ abs(X)
            got = ref.op(ref.wide(values[i]), trans) @ X
            ref.assert_close(got, B.wide[i], 4 * n, magnitude, r.dtype, f"{case} [{i}]")
        B.check(case, True)
        A.check(case)


def close_inverse(r: Routine, A: NDArray[Any], C: Many, case: str) -> None:
    for i, X in enumerate(ref.wide(C.now())):
        # The error of an inverse is the error of A times the condition number.
        magnitude = abs(X) @ abs(ref.wide(A[i])) @ abs(X)
        exact = np.linalg.inv(A[i].astype(np.complex128 if r.complex else np.float64))
        ref.assert_close(X, ref.wide(exact), 8 * len(X), magnitude, r.dtype, f"{case} [{i}]")


@CASES.of("{t}getri_batched")
def getri(r: Routine) -> None:
    for (count, n), form, layout, pivot in r.each(ORDERS, FORMS, range(3), (True, False)):
        case = f"{count=} {n=} {form=} {layout=} {pivot=}"
        arguments, LU, P = lu_of(r, count, n, pivot)
        A, C = many(LU, form, layout), many(r.nan(count, n, n), FORMS[layout], (layout + 1) % 3)
        info = integers(*[-5] * count)
        r(n, A, ld(A), P, C, ld(C), info, count)
        assert info.now().tolist() == [0] * count, case
        close_inverse(r, arguments, C, case)
        C.check(case, True)
        A.check(case)
        info.check(case, True)


@CASES.of("{t}matinv_batched")
def matinv(r: Routine) -> None:
    for (count, n), form, layout in r.each(ORDERS, FORMS, range(3)):
        case = f"{count=} {n=} {form=} {layout=}"
        arguments = regular(r, count, n)
        A, C = many(arguments, form, layout), many(r.nan(count, n, n), FORMS[layout], (layout + 1) % 3)
        info = integers(*[-5] * count)
        r(n, A, ld(A), C, ld(C), info, count)
        assert info.now().tolist() == [0] * count, case
        close_inverse(r, arguments, C, case)
        C.check(case, True)
        A.check(case)


@CASES.of("{t}geqrf_batched")
def geqrf(r: Routine) -> None:
    for (count, m, n), form, layout in r.each([*TALL, (2, 3, 5), (3, 1, 4)], FORMS, range(3)):
        case = f"{count=} {m=} {n=} {form=} {layout=}"
        A, Tau = many(r.values(count, m, n), form, layout), many_vectors(r.nan(count, min(m, n)), FORMS[layout])
        assert r(m, n, A, ld(A), Tau, count) == 0, case
        for i, (QR, tau) in enumerate(zip(ref.wide(A.now()), ref.wide(Tau.now()), strict=True)):
            Q = ref.wide(np.eye(m, dtype=r.dtype))
            for k, factor in enumerate(tau):
                v = np.concatenate([np.zeros(k), np.ones(1), QR[k + 1 :, k]])
                Q = Q - factor * np.outer(Q @ v, v.conj())
            R = np.triu(QR)
            magnitude = np.linalg.norm(A.values[i].astype(complex), axis=0) + np.zeros((m, n))
            ref.assert_close(Q @ R, A.wide[i], 8 * m * n, magnitude, r.dtype, f"{case} [{i}]")
            ref.assert_close(Q.conj().T @ Q, np.eye(m), 8 * m * n, np.ones((m, m)), r.dtype, f"{case} [{i}]")
        A.check(case, True)
        Tau.check(case, True)


@CASES.of("{t}gels_batched")
def gels(r: Routine) -> None:
    for (count, m, n), nrhs, form, layout, messages in r.each(TALL, (1, 3), FORMS, range(3), (True, False)):
        case = f"{count=} {m=} {n=} {nrhs=} {form=} {layout=} {messages=}"
        values = r.values(count, m, n)
        values[:, np.arange(n), np.arange(n)] += 3
        A, C = many(values, form, layout), many(r.values(count, m, nrhs), FORMS[layout], (layout + 1) % 3)
        infos = integers(*[-5] * count) if messages else None
        assert r(r.vendor.op["N"], m, n, nrhs, A, ld(A), C, ld(C), infos, count) == 0, case
        for i in range(count):
            # The residual of the solution is orthogonal to the columns of A.
            a, X = ref.wide(values[i]), ref.wide(C.now()[i][:n])
            residual = C.wide[i] - a @ X
            magnitude = abs(a.conj().T) @ (abs(a) @ abs(X) + abs(C.wide[i]))
            zero = np.zeros((n, nrhs), a.dtype)
            ref.assert_close(a.conj().T @ residual, zero, 8 * m * n, magnitude, r.dtype, f"{case} [{i}]")
        A.check(case, True)
        C.check(case, True)
        if infos:
            assert infos.now().tolist() == [0] * count, case
            infos.check(case, True)
