"""Runs a vendor's function on lent operands, and checks that other bytes do not change, for every bound routine.

An operand is a host array of canaries with the values inside it; `slot` has the places of the values. A test of sgemv
is:

    r = Routine(Vendor("host"), "sgemv", "s")
    A = matrix(r.values(3, 4), "F", layout=0)  # 3 x 4 within 6 x 7 canaries; the region gets the inner part
    x, y = vector(r.values(4), inc=2), vector(r.nan(3))  # x: every second element; y: NaN that must not be read
    r(cblas.ColMajor, cblas.NoTrans, 3, 4, 1.0, A, ld(A), x, 2, 0.0, y, 1)  # lends the operands for this call
    r.close(y, A.wide @ x.wide, terms=4, magnitude=abs(A.wide) @ abs(x.wide), case="sgemv")  # and its canaries
    A.check("sgemv")  # no byte of A or of its canaries has changed

A function under `@CASES.of("{t}gemv")` is the case of sgemv, dgemv, cgemv and zgemv. It tries combinations: `each` and
`some` return combinations of the options, and `turns` returns combinations of scalars (on the host, on the device),
increments and layouts.
"""

from __future__ import annotations

import ctypes
import inspect
import math
import re
import tomllib
import types
import zlib
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from importlib.util import find_spec
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np
import pytest
from numpy.typing import NDArray

from helpers import reference as ref
from offload_args import _core, cblas, cublas, libraries, offload_args, rocblas

ROOT = Path(__file__).parents[2]
Array = NDArray[Any]

DTYPES = {"s": np.float32, "d": np.float64, "c": np.complex64, "z": np.complex128}
DTYPES |= {"h": np.float16, "t": ml_dtypes.bfloat16}
REAL = {"s": np.float32, "d": np.float64, "c": np.float32, "z": np.float64, "h": np.float16, "t": ml_dtypes.bfloat16}
CANARY = 77.25


class Operand:
    """An operand inside a larger host array of canaries; `slot` picks its elements out of that array.

    lent: the array that the region gets, which is all of `base` or a part. part: the slice of its pointer that the call
    gets.
    """

    def __init__(self, values: Any, base: Array, slot: Any, lent: Array, part: Any = None) -> None:
        self.values = np.asarray(values)  # the values before the call
        self.base, self.slot, self.lent = base, slot, lent
        self.part = part  # the slice of the pointer that is passed
        base[slot] = self.values
        self.before = base.copy(order="K")

    @property
    def wide(self) -> Array:
        return ref.wide(self.values)

    def now(self) -> Array:
        return self.base[self.slot]

    @property
    def all_lent(self) -> list[Array]:
        return [self.lent]

    def of(self, pointer: Any) -> Any:
        """Return the argument of the call for the pointer to `lent`."""
        return pointer if self.part is None else pointer[self.part]

    def check(self, case: str, written: Any = False) -> None:
        """Fail if a byte outside of `written`, which is a mask of the elements or True for all, has changed."""
        free = np.zeros(self.base.shape, bool)
        free[self.slot] = written
        if self.base[~free].tobytes() != self.before[~free].tobytes():
            raise AssertionError(f"{case}: wrote what it must not write:\n{self.base}\nwas\n{self.before}")


def vector(values: Array, inc: int = 1) -> Operand:
    n, step = len(values), abs(inc)
    base = np.full(4 + (n - 1) * step + 1 if n else 5, CANARY, values.dtype)
    lent = base[2:-2]
    places = slice(2, 2 + n * step, step) if n else slice(2, 2)
    if n and inc < 0:
        places = slice(2 + (n - 1) * step, 1, -step)
    return Operand(values, base, places, lent)


def matrix(values: Array, order: str = "F", layout: int = 0) -> Operand:
    """Make a matrix. Layout 0 lends a part of a larger matrix, 1 lends all of it and passes a part, 2 has no gaps."""
    m, n = values.shape
    pad = 0 if layout == 2 else 3
    base = np.full((m + pad, n + pad), CANARY, values.dtype, order=order)  # type: ignore[call-overload]
    slot = (slice(0, m), slice(0, n))
    if not m or not n:
        base = np.full((m + 3, n + 3), CANARY, values.dtype, order=order)  # type: ignore[call-overload]
        return Operand(values, base, slot, base)
    return Operand(values, base, slot, base if layout == 1 else base[slot], slot if layout == 1 else None)


def batch(values: Array, order: str = "F", layout: int = 0, inc: int = 0) -> tuple[Operand, int, int]:
    """Make several matrices, one after the other, in the shortest possible array; with `inc`, vectors of a column.

    Layout 0 has gaps within and between the matrices, 1 only between them, and 2 has no gaps. Return the operand, the
    leading dimension and the stride.
    """
    count, rows, columns = values.shape
    i, j, k = np.indices(values.shape)
    if inc:
        lead, size = 1, abs(inc) * rows
        inside = abs(inc) * (j if inc > 0 else rows - 1 - j)
    else:
        length, lines = (rows, columns) if order == "F" else (columns, rows)
        lead = max(length, 1) + (3 if layout == 0 else 0)
        size = lead * lines
        inside = k * lead + j if order == "F" else j * lead + k
    stride = size + (0 if layout == 2 else 5)
    places = 2 + i * stride + inside
    needed = int(places.max()) - 1 if places.size else 1
    base = np.full(needed + 4, CANARY, values.dtype)
    return Operand(values, base, places, base[2 : 2 + needed]), lead, stride


class Many:
    """Operands of an array of pointers, each in a separate array, or all in one array with a further axis."""

    def __init__(self, operands: list[Operand], whole: Array | None = None, as_list: bool = True) -> None:
        self.operands, self.whole, self.as_list = operands, whole, as_list
        self.values = np.stack([operand.values for operand in operands])

    @property
    def wide(self) -> Array:
        return ref.wide(self.values)

    def now(self) -> Array:
        return np.stack([operand.now() for operand in self.operands])

    def check(self, case: str, written: Any = False) -> None:
        for i, operand in enumerate(self.operands):
            operand.check(f"{case} [{i}]", written if isinstance(written, bool) else written[i])

    @property
    def all_lent(self) -> list[Array]:
        return [operand.lent for operand in self.operands] if self.whole is None else [self.whole]

    def of(self, *pointers: Any) -> Any:
        """Return the argument of the call for the pointers to all_lent."""
        if self.whole is None:
            return [operand.of(pointer) for operand, pointer in zip(self.operands, pointers, strict=True)]
        (pointer,) = pointers
        part = self.operands[0].part
        if self.as_list:
            return tuple(pointer[i, *part] for i in range(len(self.operands)))
        return pointer[:, *part]


class Several:
    """The matrices of several Many, one after the other, in one array of pointers."""

    def __init__(self, parts: list[Many]) -> None:
        self.parts = parts

    @property
    def all_lent(self) -> list[Array]:
        return [array for part in self.parts for array in part.all_lent]

    def of(self, *pointers: Any) -> list[Any]:
        rest = iter(pointers)
        return [pointer for part in self.parts for pointer in part.of(*[next(rest) for _ in part.all_lent])]


FORMS = ("arrays", "slices", "axis")  # how the matrices of Many are lent and passed


def many(values: Array, form: str, layout: int = 0, order: str = "F") -> Many:
    """Make matrices by columns or rows, as separate arrays, as a tuple of slices, or a pointer with a further axis."""
    count, m, n = values.shape
    if form == "arrays":
        return Many([matrix(value, order, layout) for value in values])
    pad = 0 if layout == 2 and m and n else 3
    rows, columns = (n, m) if order == "F" else (m, n)  # the shape of each part of the whole array, which is in C order
    whole = np.full((count, rows + pad, columns + pad), CANARY, values.dtype)
    part = (slice(0, rows), slice(0, columns))
    built = []
    for i, value in enumerate(values):
        base, slot = (whole[i].T, part[::-1]) if order == "F" else (whole[i], part)
        built.append(Operand(value, base, slot, whole[i], part))
    return Many(built, whole, form == "slices")


def many_vectors(values: Array, form: str, inc: int = 1) -> Many:
    """Make vectors, in the forms of many()."""
    built = [vector(value, inc) for value in values]
    if form == "arrays":
        return Many(built)
    whole = np.stack([operand.base for operand in built])
    part = (slice(2, whole.shape[1] - 2),)
    built = [Operand(operand.values, whole[i], operand.slot, whole[i], part) for i, operand in enumerate(built)]
    return Many(built, whole, form == "slices")


def ld(operand: Operand | Many) -> int:
    if isinstance(operand, Many):
        return ld(operand.operands[0])
    return max(operand.base.strides) // operand.base.itemsize if operand.base.ndim == 2 else 1


def number(value: Any, dtype: Any) -> Operand:
    """Make a 0-d operand, which is a scalar, or the place of a result."""
    base = np.full((), value, dtype)
    return Operand(base.copy(), base, (), base)


def run(function: Callable[..., Any], device: str, *arguments: Any, **keywords: Any) -> Any:
    """Call `function` with pointers to the operands among its arguments, which are lent for this call."""
    operands = list(
        {id(a): a for a in [*arguments, *keywords.values()] if isinstance(a, (Operand, Many, Several))}.values()
    )
    with offload_args(*[array for operand in operands for array in operand.all_lent], device=device) as pointers:
        rest = iter(pointers)
        passed = {id(operand): operand.of(*[next(rest) for _ in operand.all_lent]) for operand in operands}
        return function(
            *[passed.get(id(a), a) for a in arguments],
            **{name: passed.get(id(a), a) for name, a in keywords.items()},
        )


class Vendor:
    """One vendor's BLAS on one device, and its constants by the letters of BLAS."""

    def __init__(self, device: str) -> None:
        self.device = device
        backend = device.partition(":")[0]
        self.is_cublas = backend in ("cuda", "hip")  # or rocBLAS, which has the same functions
        self.module: Any = {"cuda": cublas, "hip": rocblas}.get(backend, cblas)
        # pairs of NumPy's order, and the first arguments for it of a function of level 2 or 3
        self.orders: list[tuple[str, tuple[int, ...]]]
        if backend == "hip":
            self.orders = [("F", ())]
            names = {"N": "none", "T": "transpose", "C": "conjugate_transpose"}
            self.op = {letter: getattr(rocblas, f"operation_{name}") for letter, name in names.items()}
            self.uplo = {"U": rocblas.fill_upper, "L": rocblas.fill_lower}
            self.side = {"L": rocblas.side_left, "R": rocblas.side_right}
            self.diag = {"N": rocblas.diagonal_non_unit, "U": rocblas.diagonal_unit}
        elif self.is_cublas:
            self.orders = [("F", ())]
            self.op = {"N": cublas.OP_N, "T": cublas.OP_T, "C": cublas.OP_C}
            self.uplo = {"U": cublas.FILL_MODE_UPPER, "L": cublas.FILL_MODE_LOWER}
            self.side = {"L": cublas.SIDE_LEFT, "R": cublas.SIDE_RIGHT}
            self.diag = {"N": cublas.DIAG_NON_UNIT, "U": cublas.DIAG_UNIT}
        else:
            self.orders = [("F", (cblas.ColMajor,)), ("C", (cblas.RowMajor,))]
            self.op = {"N": cblas.NoTrans, "T": cblas.Trans, "C": cblas.ConjTrans, "R": cblas.ConjNoTrans}
            self.uplo = {"U": cblas.Upper, "L": cblas.Lower}
            self.side = {"L": cblas.Left, "R": cblas.Right}
            self.diag = {"N": cblas.NonUnit, "U": cblas.Unit}


INCREMENTS = [(1, 1), (2, -1), (-1, 2), (1, 3), (-2, -1)]


class Turn(NamedTuple):
    incx: int
    incy: int
    layout: int  # the layout for matrix()
    alpha: Any
    beta: Any
    given_alpha: Any  # the passed alpha: a number, or an operand on the device
    given_beta: Any

    def __str__(self) -> str:
        kinds = ["device" if isinstance(argument, Operand) else "host" for argument in self[5:]]
        return f"{self.incx=} {self.incy=} {self.layout=} {self.alpha=} {self.beta=} {kinds}".replace("self.", "")


class Routine:
    """One function under test: its vendor, its letter and dtypes, and random numbers that are the same every time.

    share: the share of all combinations that is tried; each function, dtype and device tries other combinations.
    """

    def __init__(self, vendor: Vendor, name: str, letter: str, share: float = 1) -> None:
        self.vendor, self.name, self.letter = vendor, name, letter
        self.function = getattr(vendor.module, name)
        self.dtype, self.real = DTYPES[letter], REAL[letter]
        self.complex = letter in "cz"
        self.share = share
        self.random = np.random.default_rng(zlib.crc32(f"{name} {letter} {vendor.device}".encode()))
        self.turn = 0

    def __call__(self, *arguments: Any, **keywords: Any) -> Any:
        return run(self.function, self.vendor.device, *arguments, **keywords)

    def values(self, *shape: int) -> Array:
        built = self.random.uniform(-1, 1, shape)
        if self.complex:
            built = built + 1j * self.random.uniform(-1, 1, shape)
        return built.astype(self.dtype)

    def nan(self, *shape: int) -> Array:
        return np.full(shape, complex(np.nan, np.nan) if self.complex else np.nan, self.dtype)

    def triangular(self, n: int, uplo: str, diag: str) -> Array:
        """Return one triangle of a matrix for systems, with NaN in the other, and on a diagonal that counts as ones."""
        A = (self.values(n, n) / max(n, 1)).astype(self.dtype)
        A[np.diag_indices(n)] = self.nan(n) if diag == "U" else self.values(n) + 2
        A[~ref.in_triangle(n, uplo)] = np.nan
        return A

    def half(self, n: int, uplo: str, hermitian: bool = False) -> Array:
        """Return one triangle of a symmetric or Hermitian matrix, with NaN in the other triangle."""
        A = self.values(n, n)
        if hermitian:
            A[np.diag_indices(n)] = A.diagonal().real
        A[~ref.in_triangle(n, uplo)] = np.nan
        return A

    def scalars(self, alpha_real: bool = False, beta_real: bool = False) -> Iterator[tuple[Any, Any, Any, Any]]:
        """Yield alpha and beta as numbers, and in the passed form: on the host, on the device, and one of each."""
        real_a, real_b = alpha_real or not self.complex, beta_real or not self.complex
        alpha, beta = (-1.5 if real_a else 0.5 - 1.25j), (0.75 if real_b else -0.75 + 0.25j)
        a_type, b_type = self.real if alpha_real else self.dtype, self.real if beta_real else self.dtype
        yield alpha, beta, alpha, beta
        yield alpha, 0.0, alpha, 0.0
        yield alpha, 1.0, alpha, 1.0
        yield 0.0, beta, 0.0, beta
        yield alpha, beta, number(alpha, a_type), number(beta, b_type)
        yield alpha, 0.0, number(alpha, a_type), number(0, b_type)
        yield alpha, beta, alpha, number(beta, b_type)
        yield alpha, 0.0, number(alpha, a_type), 0.0

    def turns(self, count: int, alpha_real: bool = False, beta_real: bool = False) -> Iterator[Turn]:
        """Yield the next `count` of all combinations (some 120) of increments, scalars and ways to lend."""
        scalars = list(self.scalars(alpha_real, beta_real))
        for _ in range(count):
            i = self.turn
            self.turn += 1
            yield Turn(*INCREMENTS[i % 5], i % 3, *scalars[i % 8])

    def each(self, *axes: Iterable[Any]) -> list[tuple[Any, ...]]:
        """Return all combinations, or the function's share of them, in any order."""
        return self.some(None, *axes)

    def some(self, count: int | None, *axes: Iterable[Any]) -> list[tuple[Any, ...]]:
        """Return `count` of all combinations, or the function's share of `count`, in any order."""
        combinations = list(product(*axes))
        most = min(count or len(combinations), len(combinations))
        chosen = self.random.choice(len(combinations), math.ceil(most * self.share), replace=False)
        return [combinations[i] for i in chosen]

    def output(self, beta: Any, *shape: int) -> Array:
        """Return values for an output, which are NaN if they are not read because of beta."""
        return self.nan(*shape) if beta == 0 else self.values(*shape)

    def one_triangle(self, beta: Any, n: int, uplo: str, hermitian: bool) -> Array:
        """Return one triangle for an output, with NaN in the other, or in both if beta makes both unread."""
        return self.nan(n, n) if beta == 0 else self.half(n, uplo, hermitian)

    def close(
        self, operand: Operand | Many, expected: Any, terms: int, magnitude: Any, case: str, mask: Any = True
    ) -> None:
        """Check the written elements (those in `mask`), and that no other element was written."""
        mask = np.broadcast_to(mask, operand.values.shape)
        ref.assert_close(operand.now()[mask], expected[mask], terms, magnitude[mask], self.dtype, case)
        operand.check(case, mask)


def close_gemm(
    r: Routine, t: Turn, A: Operand, B: Operand, C: Operand, trans_a: str, trans_b: str, case: str, factor: float = 1
) -> None:
    """Check C after a product of general matrices; errors are compared to `factor` times the magnitude."""
    expected = ref.gemm(t.alpha, A.wide, B.wide, t.beta, C.wide, trans_a, trans_b)
    wides = abs(A.wide), abs(B.wide), abs(t.beta), abs(C.wide)
    terms = A.wide.shape[1] if trans_a == "N" else A.wide.shape[0]
    r.close(C, expected, terms, factor * ref.gemm(abs(t.alpha), *wides, trans_a, trans_b), case)
    A.check(case)
    B.check(case)


def close_batch(
    r: Routine,
    t: Turn,
    A: Operand | Many,
    B: Operand | Many,
    C: Operand | Many,
    trans_a: str,
    trans_b: str,
    case: str,
    factor: float = 1,
) -> None:
    """Check each C of a batch of products."""
    expected, magnitude = C.wide, abs(C.wide)
    for i, (a, b, c) in enumerate(zip(A.wide, B.wide, C.wide, strict=True)):
        expected[i] = ref.gemm(t.alpha, a, b, t.beta, c, trans_a, trans_b)
        magnitude[i] = ref.gemm(abs(t.alpha), abs(a), abs(b), abs(t.beta), abs(c), trans_a, trans_b)
    terms = A.values.shape[2 if trans_a == "N" else 1]
    r.close(C, expected, terms, factor * magnitude, case)
    A.check(case)
    B.check(case)


def close_symm(
    r: Routine, t: Turn, A: Operand, B: Operand, C: Operand, side: str, uplo: str, hermitian: bool, case: str
) -> None:
    """Check C after a product with a symmetric or Hermitian matrix A on one side."""
    S = ref.symmetric(A.wide, uplo, hermitian)
    expected = ref.symm(t.alpha, S, B.wide, t.beta, C.wide, side)
    magnitude = ref.symm(abs(t.alpha), abs(S), abs(B.wide), abs(t.beta), abs(C.wide), side)
    r.close(C, expected, len(S), magnitude, case)
    A.check(case)
    B.check(case)


Case = Callable[[Routine], None]


class Cases(dict[str, tuple[str, Case]]):
    """{name of a routine: (its letter, its case)}."""

    def of(self, *templates: str, letters: str = "sdcz") -> Callable[[Case], Case]:
        """Register a case for names such as "{t}gemv"; {r} is the letter of the real type of {t}."""

        def register(case: Case) -> Case:
            for template in templates:
                for t in letters:
                    self[template.format(t=t, r={"c": "s", "z": "d"}.get(t, t))] = (t, case)
            return case

        return register


def with_32_bit_integers() -> str:
    """Return the path of scipy-openblas32's library, which is LP64."""
    spec = find_spec("scipy_openblas32")
    assert spec is not None and spec.origin is not None
    return str(next((Path(spec.origin).parent / "lib").glob("libscipy_openblas*.so*")))


@cache
def cblas_as_loaded() -> tuple[ctypes.CDLL, str, str]:
    """Return the library that cblas loads, and the prefix and suffix of its symbols."""
    loaded = ctypes.CDLL(libraries.load("cblas").path)
    spelled = product(("", "scipy_"), ("", "64_", "_64"))
    return loaded, *next(spelling for spelling in spelled if hasattr(loaded, f"{spelling[0]}cblas_isamax{spelling[1]}"))


def own_function(name: str) -> Any:
    """Return ctypes' function of the library that cblas loads; None if the library lacks it."""
    loaded, prefix, suffix = cblas_as_loaded()
    return getattr(loaded, f"{prefix}cblas_{name}{suffix}", None)


@cache
def working_since() -> dict[str, list[int]]:
    """Return {end of a function's name: the first version of OpenBLAS in which the function is right}."""
    roles = tomllib.loads((ROOT / "bindings" / "roles" / "cblas.toml").read_text())
    versions = {name: role["since"]["version"] for name, role in roles["family"].items() if "since" in role}
    return {name: [int(part) for part in version.split(".")] for name, version in versions.items()}


def is_there(name: str) -> bool:
    """Return whether the library that cblas loads has a right version of a bound function, or of all its parts."""
    if (own_function(f"{name}_sub") or own_function(name)) is None:
        return False
    version = re.search(r"OpenBLAS (\d+(?:\.\d+)*)", libraries.load("cblas").version)
    since = next((since for end, since in working_since().items() if name.endswith(end)), [0])
    return version is None or [int(part) for part in version[1].split(".")] >= since


def bound(module: types.ModuleType) -> list[str]:
    """Return the names of a module's bound functions that compute, without helper functions and copies."""
    library = module.__name__.rpartition(".")[2]
    computing = {"in", "out", "inout", "scalar", "result", "update", "output"}

    def computes(name: str) -> bool:
        kinds = {kind.rstrip("*?") for kind, *_ in _core.record(library, name)}
        return bool(computing & kinds) and not {"host_in", "host_out"} & kinds

    return [name for name in module.__all__ if inspect.isroutine(getattr(module, name)) and computes(name)]


# The shares of a routine's combinations: a part, more of them in CI, or all. CI runs no short form that the default run
# leaves out.
SHORT = 0.1
SHARES = pytest.mark.parametrize(
    "share",
    [
        pytest.param(SHORT, id="short"),
        pytest.param(0.4, id="long", marks=pytest.mark.slow),
        pytest.param(1, id="all", marks=pytest.mark.exhaustive),
    ],
)


def on_every_device(test: Callable[..., None]) -> Any:
    """Parametrize a test over (device, name) for every bound function, and over the shares."""
    pairs = [(device, name) for device in ("host", "sim:0") for name in bound(cblas) if is_there(name)]
    pairs += [("cuda:0", name) for name in bound(cublas)]
    return pytest.mark.parametrize(("device", "name"), pairs, indirect=["device"])(SHARES(test))


def check(cases: Cases, device: str, name: str, share: float) -> None:
    letter, case = cases[name]
    case(Routine(Vendor(device), name, letter, share))
