"""Random calls of `blas`, and of the device's own library, are compared with plain sums in long double.

Each call works on random parts of a few arrays, in one region for many calls. Before the call, all elements that it may
not read are set to NaN on the device: other triangles, diagonals of ones, corners of bands, gaps, outputs if beta is 0,
and all surrounding elements. After the call, all elements that it may not write must have the same bytes. Parts may
overlap; if the call writes one of them, it must be refused. `tight` calls get pointers that end with their last
element, or one element earlier.

OFFLOAD_ARGS_RANDOM_CALLS is the number of calls of each slow test. OFFLOAD_ARGS_MODEL_SEED is a number, or "random".
"""

from __future__ import annotations

import os
import random
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import pytest

from helpers import reference as ref
from helpers.arrays import Array
from helpers.vendor import DTYPES, REAL, Vendor
from offload_args import blas, offload_args
from offload_args.errors import AliasError, ArgumentError, ExtentError

CALLS: Final = int(os.environ.get("OFFLOAD_ARGS_RANDOM_CALLS", "500"))
SEED: Final = os.environ.get("OFFLOAD_ARGS_MODEL_SEED", "1")
MOST: Final = 17  # the greatest size
SIDE: Final = 44  # the side of the square arrays
LENGTH: Final = 2000  # the length of the flat arrays


# -- the parts of a call -----------------------------------------------------------------------------------------------
@dataclass
class Operand:
    """An operand: its values as a vector or a whole matrix, and masks of its stored, read and written values."""

    name: str
    values: Array
    form: str = "vector"  # or "full", "band", "packed"
    reads: Any = True
    writes: Any = False
    counts: Any = False  # whether its memory has to exist although it is not read
    below: int = 0  # diagonals of a band
    above: int = 0
    uplo: str = "U"  # the triangle of a packed operand
    # The place of each value in a flat array, or -1 for a value that is not stored.
    base: int = -1
    places: Array = field(default_factory=lambda: np.zeros(0, int))
    inc: int = 1
    lead: int = 1
    first: int = 0

    def stored(self) -> Array:
        """Return a mask of the values that the layout stores."""
        if self.form == "vector" or self.form == "full":
            return np.ones(self.values.shape, bool)
        if self.form == "packed":
            return ref.in_triangle(len(self.values), self.uplo)
        rows, columns = np.indices(self.values.shape)
        return (columns - rows <= self.above) & (rows - columns <= self.below)

    def mask(self, which: Any) -> Array:
        return np.broadcast_to(which, self.values.shape) & self.stored()

    def touched(self) -> Array:
        """Return the places that the call reads or writes."""
        return self.places[self.mask(self.reads) | self.mask(self.writes)]

    def needed(self) -> Array:
        """Return the places that have to be inside the operand."""
        return self.places[self.mask(self.reads) | self.mask(self.writes) | self.mask(self.counts)]


@dataclass
class Call:
    """One call: its operands, and their values afterwards.

    compute: takes the values of all operands, as wide numbers or as magnitudes, and returns the new values of
    written operands, or a result. arguments: names of operands, letters of options, numbers, in the order of the vendor
    and in that of blas.
    """

    name: str
    operands: list[Operand]
    compute: Callable[..., Any]
    vendor: list[Any]
    portable: list[Any]
    options: dict[str, Any]
    terms: int
    solves: bool = False  # whether compute returns the old values for the new ones
    result: str = ""
    in_place: bool = False  # whether an operand may be exactly the other operand
    steps: bool = False  # whether it is a routine of vectors, whose increments may be 0
    numbers: dict[str, Any] = field(default_factory=dict)  # alpha, beta and others by name
    conjugates: bool = False  # with a matrix in C order, blas may have to refuse a backwards vector


class Maker:
    """Makes random calls of one dtype."""

    def __init__(self, device: str, letter: str, seed: str) -> None:
        self.on_cpu = device.startswith(("host", "sim"))
        self.letter, self.dtype, self.real = letter, np.dtype(DTYPES[letter]), np.dtype(REAL[letter])
        self.complex = letter in "cz"
        self.random = random.Random(seed)
        self.numbers = np.random.default_rng(self.random.randrange(1 << 32))

    def size(self) -> int:
        return self.random.choice([0, 1, 2, 3, *range(MOST + 1)])

    def values(self, *shape: int) -> Array:
        number = self.numbers.uniform(-1, 1, shape)
        return (number + 1j * self.numbers.uniform(-1, 1, shape) if self.complex else number).astype(self.dtype)

    def number(self, real: bool = False) -> Any:
        number = self.random.choice([1.0, -1.5, 0.25, self.random.uniform(-2, 2)])
        return complex(number, self.random.uniform(-1, 1)) if self.complex and not real else number

    def beta(self) -> Any:
        return self.random.choice([0.0, 1.0, self.number()])

    def pick(self, letters: str) -> str:
        return self.random.choice(letters)

    def vector(self, name: str, n: int, **more: Any) -> Operand:
        return Operand(name, self.values(n), **more)

    def any(self) -> Call:
        call = self.random.choice([products, triangulars, updates, matrices, steps, sums, extremes])(self)
        return call if call else self.any()


def products(make: Maker) -> Call | None:
    """Make y = alpha A x + beta y, for general, symmetric and Hermitian matrices in every form."""
    name = make.random.choice("gemv gbmv symv hemv sbmv hbmv spmv hpmv".split())
    if make.complex and name in ("sbmv", "spmv"):
        return None
    m, n, trans, uplo = make.size(), make.size(), make.pick("NTC"), make.pick("UL")
    alpha, beta = make.number(), make.beta()
    general, hermitian = name.startswith("g"), name.startswith("h")
    m = m if general else n
    kl, ku = make.random.randrange(6), make.random.randrange(6)
    form = {"b": "band", "p": "packed"}.get(name[1], "full")
    A = Operand("A", make.values(m, n), form, below=kl, above=ku, uplo=uplo)
    if not general:
        if A.form == "band":
            A.below, A.above = (0, ku) if uplo == "U" else (ku, 0)
        A.reads = ref.in_triangle(n, uplo)
        if hermitian:
            A.values[np.diag_indices(n)] = A.values.diagonal().real
    inner, outer = (n, m) if trans == "N" or not general else (m, n)
    x, y = make.vector("x", inner), make.vector("y", outer, writes=bool(m and n), reads=beta != 0 or not (m and n))
    stored = A.stored()

    def compute(alpha: Any, beta: Any, A: Array, x: Array, y: Array) -> list[Array]:
        A = np.where(stored, A, 0)
        A = ref.op(A, trans) if general else ref.symmetric(A, uplo, hermitian)
        return [ref.gemv(alpha, A, x, beta, y)]

    sizes = {"ge": [m, n], "gb": [m, n, kl, ku], "sy": [n], "he": [n], "sb": [n, ku], "hb": [n, ku]}.get(name[:2], [n])
    first = ["op:" + trans] if general else ["uplo:" + uplo]
    options: dict[str, Any] = {"trans": trans} if general else {"uplo": uplo}
    options |= {"kl": kl, "ku": ku} if name == "gbmv" else {}
    operands = ["alpha", "A", "x", "beta", "y"]
    call = Call(name, [A, x, y], compute, [*first, *sizes, *operands], operands, options, inner)
    call.conjugates = make.complex and (trans == "C" if general else True)
    call.numbers = {"alpha": alpha, "beta": beta}
    return call


def triangulars(make: Maker) -> Call:
    """Make x = op(A) x, or its solution, for triangular matrices in every form."""
    name = make.random.choice("trmv trsv tbmv tbsv tpmv tpsv".split())
    n, uplo, trans, diag, k = make.size(), make.pick("UL"), make.pick("NTC"), make.pick("NU"), make.random.randrange(6)
    values = make.values(n, n) / max(n, 1)
    values[np.diag_indices(n)] = make.values(n) + 2
    values = values.astype(make.dtype)
    A = Operand("A", values, {"b": "band", "p": "packed"}.get(name[1], "full"), uplo=uplo)
    A.below, A.above = (0, k) if uplo == "U" else (k, 0)
    A.reads = ref.in_triangle(n, uplo) & ~(np.eye(n, dtype=bool) & (diag == "U"))
    A.counts = n == 1 or (A.form == "band" and k == 0)  # a triangle that consists of its diagonal, even of ones
    stored = A.stored()
    x = make.vector("x", n, writes=True)

    def compute(A: Array, x: Array) -> list[Array]:
        return [ref.op(ref.triangle(np.where(stored, A, 0), uplo, diag), trans) @ x]

    sizes = [n, k] if A.form == "band" else [n]
    options = {"uplo": uplo, "trans": trans, "diag": diag}
    first = [f"uplo:{uplo}", f"op:{trans}", f"diag:{diag}"]
    call = Call(name, [A, x], compute, [*first, *sizes, "A", "x"], ["A", "x"], options, n, solves=name[2] == "s")
    call.conjugates = make.complex and trans == "C"
    return call


def updates(make: Maker) -> Call | None:
    """Make A += alpha x y^T or a similar update, for general, symmetric and Hermitian matrices, full and packed."""
    name = make.random.choice("ger gerc syr her syr2 her2 spr hpr spr2 hpr2".split())
    if make.complex and name in ("spr", "spr2"):
        return None
    general, hermitian, two = name.startswith("g"), name[0] == "h" or name == "gerc", name[-1] == "2"
    n, uplo = make.size(), make.pick("UL")
    m = make.size() if general else n
    alpha = make.number(real=hermitian and not two and not general)
    A = Operand("A", make.values(m, n), "packed" if name[1] == "p" else "full", uplo=uplo)
    A.writes = True if general else ref.in_triangle(n, uplo)
    A.reads = A.writes
    if hermitian and not general:
        A.values[np.diag_indices(n)] = A.values.diagonal().real
    x, y = make.vector("x", m), make.vector("y", n)
    vectors = [x, y] if two or general else [x]

    def compute(alpha: Any, A: Array, x: Array, y: Array | None = None) -> list[Array]:
        if two:
            return [ref.syr2(alpha, x, y, A, hermitian)]
        return [ref.ger(alpha, x, y if y is not None else x, A, hermitian)]

    names = [vector.name for vector in vectors]
    vendor = ["alpha", *names, "A"]
    vendor = [m, n, *vendor] if general else ["uplo:" + uplo, n, *vendor]
    options = {} if general else {"uplo": uplo}
    call = Call(name, [A, *vectors], compute, vendor, ["alpha", *names, "A"], options, 3)
    call.conjugates = make.complex and (hermitian or not general)
    call.numbers = {"alpha": alpha}
    return call


def matrices(make: Maker) -> Call:
    """Make a call of level 3, such as C = alpha A B + beta C, with any kind of matrix."""
    name = make.random.choice("gemm symm hemm trmm trsm syrk herk syr2k her2k".split())
    m, n, k, uplo, side, diag = make.size(), make.size(), make.size(), make.pick("UL"), make.pick("LR"), make.pick("NU")
    hermitian, kind = name.startswith("he"), name[2:4]
    alpha, beta = make.number(real=name == "herk"), make.beta()
    trans, trans_b = (
        make.pick("NTC" if not make.complex or name[0] in "gt" else "NC" if hermitian else "NT"),
        make.pick("NTC"),
    )
    vendor: list[Any]
    if name == "gemm":
        shapes = [(m, k) if trans == "N" else (k, m), (k, n) if trans_b == "N" else (n, k), (m, n)]
        vendor, options, terms = [f"op:{trans}", f"op:{trans_b}", m, n, k], {"trans_a": trans, "trans_b": trans_b}, k
    elif kind == "rk" or kind == "r2":
        n = m
        shapes = [(n, k) if trans == "N" else (k, n)] * (2 if kind == "r2" else 1) + [(n, n)]
        vendor, options, terms = [f"uplo:{uplo}", f"op:{trans}", n, k], {"uplo": uplo, "trans": trans}, 2 * k
        beta = float(np.real(beta)) if hermitian else beta
    else:
        order = m if side == "L" else n
        shapes, terms = [(order, order), (m, n), (m, n)], order
        vendor, options = [f"side:{side}", f"uplo:{uplo}", m, n], {"side": side, "uplo": uplo}
    operands = [Operand(name, make.values(*shape), "full") for name, shape in zip("ABC", shapes, strict=False)]
    if kind in ("rk", "r2"):
        operands[-1].name = "C"
    A, out = operands[0], operands[-1]
    numbers: dict[str, Any] = {"alpha": alpha, "beta": beta}
    if name[0] == "t":
        operands, numbers = operands[:2], {"alpha": alpha}
        out = operands[1]
        vendor[2:2] = [f"op:{trans}", f"diag:{diag}"]
        options |= {"trans": trans, "diag": diag}
        A.values = (A.values / max(len(A.values), 1)).astype(make.dtype)
        A.values[np.diag_indices(len(A.values))] += 2
        A.reads = ref.in_triangle(len(A.values), uplo) & ~(np.eye(len(A.values), dtype=bool) & (diag == "U"))
        A.counts = len(A.values) == 1
    elif kind == "mm" and name != "gemm":
        A.reads = ref.in_triangle(len(A.values), uplo)
        if hermitian:
            A.values[np.diag_indices(len(A.values))] = A.values.diagonal().real
    out.writes = ref.in_triangle(n, uplo) if kind in ("rk", "r2") else True
    out.reads = out.writes if name[0] == "t" or beta != 0 else False
    if hermitian and kind != "mm":
        out.values[np.diag_indices(n)] = out.values.diagonal().real

    def compute(alpha: Any, *arguments: Any) -> list[Array]:
        if name[0] == "t":
            T, B = ref.triangle(arguments[0], uplo, diag), arguments[1]
            return [ref.trmm(1, T, B, side, trans) / alpha if name == "trsm" else ref.trmm(alpha, T, B, side, trans)]
        beta, A, *B, C = arguments
        if name == "gemm":
            return [ref.gemm(alpha, A, B[0], beta, C, trans, trans_b)]
        if kind == "mm":
            return [ref.symm(alpha, ref.symmetric(A, uplo, hermitian), B[0], beta, C, side)]
        function: Any = ref.syr2k if B else ref.syrk
        return [function(alpha, A, *B, beta, C, trans, hermitian)]

    names = ["alpha", *[operand.name for operand in operands]]
    if name[0] != "t":
        names.insert(-1, "beta")
    call = Call(name, operands, compute, [*vendor, *names], names, options, terms, solves=name == "trsm")
    call.numbers, call.conjugates = numbers, True
    return call


def steps(make: Maker) -> Call | None:
    """Make a routine that writes one of two vectors; it works element by element, so that an increment may be 0."""
    name = make.random.choice("copy swap axpy scal rot rotm".split())
    if make.complex and name == "rotm":
        return None
    n, alpha, c, s = make.size(), make.number(), make.random.uniform(-0.7, 0.7), make.random.uniform(-0.7, 0.7)
    x = make.vector("x", n, writes=name in ("swap", "rot", "rotm", "scal"))
    y = make.vector("y", n, writes=True, reads=name != "copy")
    param = [make.random.choice([-2.0, -1.0, 0.0, 1.0]), *(make.random.uniform(-0.7, 0.7) for _ in range(4))]
    operands = [x] if name == "scal" else [x, y]
    vendor = [n, "alpha", *[operand.name for operand in operands]] if name in ("axpy", "scal") else [n, "x", "y"]
    vendor += {"rot": [c, s], "rotm": [param]}.get(name, [])
    call = Call(name, operands, lambda: None, vendor, vendor[1:], {}, 2, steps=True)
    call.in_place = name in ("copy", "swap") or (name == "axpy" and not (make.complex and make.on_cpu))
    H = ref.rotm_matrix(np.array(param, np.longdouble))
    call.numbers = {"alpha": alpha, "c": c, "s": s, "H": H}
    return call


def sums(make: Maker) -> Call | None:
    """Make a routine of vectors whose result is a sum."""
    name = make.random.choice("dot dotu dotc asum nrm2".split())
    if make.complex and name == "dot":
        return None
    n = make.size()
    x, y = make.vector("x", n), make.vector("y", n)
    two = name.startswith("dot")

    def compute(x: Array, y: Array | None = None) -> Any:
        if y is not None:
            return ref.dot(x, y, name == "dotc")
        return ref.asum(x) if name == "asum" else ref.nrm2(x)

    names = ["x", "y"] if two else ["x"]
    call = Call(name, [x, y] if two else [x], compute, [n, *names], names, {}, n, result="sum")
    call.steps = True
    return call


def extremes(make: Maker) -> Call:
    name = make.random.choice(["iamax", "iamin"])
    n = make.size()
    x = make.vector("x", n)
    if n > 2 and make.random.random() < 0.5:  # the first of several equal elements has to be found
        x.values[[n // 2, n - 1]] = 4 if name == "iamax" else 0
    find = np.argmax if name == "iamax" else np.argmin
    return Call(name, [x], lambda x: find(ref.size1(x)) if x.size else 0, [n, "x"], ["x"], {}, 1, result="index")


# -- where its operands are --------------------------------------------------------------------------------------------
@dataclass
class Run:
    """The arrays of one region, by number, and their pointers: two flat arrays, and square ones in C and F order."""

    make: Maker
    vendor: Vendor
    arrays: list[Array]
    pointers: list[Any]
    scalars: dict[str, Any]  # 0-d pointers, by name
    refused: int = 0
    declined: int = 0
    called: int = 0

    # -- for blas: slices of pointers
    def slice(self, operand: Operand) -> Any:
        """Place an operand; return its pointer."""
        choose, n = self.make.random, len(operand.values)
        if operand.form == "packed":
            return self.part(operand, choose.randrange(2), n * (n + 1) // 2)
        if operand.form == "vector":
            if choose.random() < 0.5:
                return self.part(operand, choose.randrange(2), n, choose.choice([1, 1, 2, 3, -1, -2]))
            which, across = choose.randrange(2, 4), choose.randrange(SIDE)
            step = choose.choice([1, 1, 2, -1, -2])
            key = self.steps(n, SIDE, step)
            return self.view(operand, which, (across, key) if choose.random() < 0.5 else (key, across))
        rows, columns = operand.values.shape
        if operand.form == "band":
            rows = operand.below + operand.above + 1
            return self.view(operand, 3, (self.steps(rows, SIDE, 1), self.steps(columns, SIDE, 1)))
        return self.view(operand, choose.randrange(2, 4), (self.steps(rows, SIDE, 1), self.steps(columns, SIDE, 1)))

    def steps(self, n: int, length: int, step: int) -> slice:
        if not n:
            return slice(0, 0)
        reach = (n - 1) * abs(step)
        first = self.make.random.randrange(length - reach)
        if step > 0:
            return slice(first, first + reach + 1, step)
        return slice(first + reach, first - 1 if first else None, step)

    def part(self, operand: Operand, which: int, n: int, step: int = 1) -> Any:
        return self.view(operand, which, (self.steps(n, min(LENGTH, 3 * MOST + n), step) if n else slice(0, 0),))

    def view(self, operand: Operand, which: int, key: Any) -> Any:
        """Take a part of an array as an operand's memory."""
        array = self.arrays[which]
        elements = np.arange(array.size).reshape(array.shape, order="F" if array.flags.f_contiguous else "C")[key]
        operand.base, operand.inc = which, elements.strides[0] if elements.ndim == 1 else 1
        places = elements
        if operand.form == "packed":
            places = self.packed(operand, elements, "F")
        elif operand.form == "band":
            rows, columns = np.indices(operand.values.shape)
            d = np.clip(operand.above + rows - columns, 0, operand.below + operand.above)
            places = elements[d, columns]
        operand.places = np.where(operand.stored(), places, -1) if operand.form in ("band", "packed") else places
        pointer = self.pointers[which]
        return pointer[key]

    def packed(self, operand: Operand, array: Array, order: str) -> Array:
        """Return the places of a triangle's elements, from their places in the triangle's order."""
        n = len(operand.values)
        places = np.full((n, n), -1)
        inside = ref.in_triangle(n, operand.uplo)
        if order == "C":
            places[inside] = array  # by rows
        else:
            places.T[inside.T] = array
        return places

    # -- for a vendor's function: a flat array, with ld and inc
    def tight(self, operand: Operand, order: str) -> Any:
        """Place an operand; return a pointer that ends with its last element."""
        choose, shape = self.make.random, operand.values.shape
        n = shape[0]
        if operand.form == "vector":
            places = np.arange(n) * abs(operand.inc)
            if operand.inc < 0:
                places = places[::-1]
        elif operand.form == "packed":
            places = self.packed(operand, np.arange(n * (n + 1) // 2), order)
        else:
            rows, columns = np.indices(shape)
            if operand.form == "band":
                along = operand.above + rows - columns if order == "F" else operand.below + columns - rows
                length = operand.below + operand.above + 1
            else:
                along, length = (rows, shape[0]) if order == "F" else (columns, shape[1])
            operand.lead = max(length, 1) + choose.choice([0, 0, 1, 3])
            places = (columns if order == "F" else rows) * operand.lead + along
            places = np.where(operand.stored(), places, -1)
        operand.base = choose.randrange(2)
        operand.places = places
        most = int(operand.needed().max()) + 1 if operand.needed().size else 0
        operand.first = choose.randrange(min(LENGTH - most, 3 * MOST) + 1)
        operand.places = np.where(
            places < 0, -1, places + operand.first
        )  # some places may be past the end, but none of these is touched
        return self.pointers[operand.base][operand.first : operand.first + most]

    # -- the call
    def prepare(self, call: Call) -> list[Array]:
        """Fill the device's arrays with NaN except at the places that the call reads; return the arrays' contents."""
        filled = [np.full(array.size, np.nan, array.dtype) for array in self.arrays]
        for operand in call.operands:
            reads = operand.mask(operand.reads)
            filled[operand.base][operand.places[reads]] = operand.values[reads]
        for array, pointer, flat in zip(self.arrays, self.pointers, filled, strict=True):
            pointer.assign(flat.reshape(array.shape, order="F" if array.flags.f_contiguous else "C"))
        for operand in call.operands:  # several operands may read one place
            stored = operand.mask(operand.reads) | operand.mask(operand.writes)
            operand.values = operand.values.copy()
            operand.values[stored] = filled[operand.base][operand.places[stored]]
        return filled

    def now(self) -> list[Array]:
        orders = ["F" if array.flags.f_contiguous else "C" for array in self.arrays]
        return [pointer.to_host().ravel(order=order) for pointer, order in zip(self.pointers, orders, strict=True)]

    def overlaps(self, call: Call) -> tuple[bool, bool]:
        """Return whether a written operand has elements of another operand, and whether this is allowed."""
        both = False
        for i, operand in enumerate(call.operands):
            for other in call.operands[:i]:
                if operand.base != other.base or not (
                    np.any(operand.mask(operand.writes)) or np.any(other.mask(other.writes))
                ):
                    continue
                a, b = (set(each.touched().tolist()) for each in (operand, other))
                both |= bool(a & b)
        same = call.in_place and np.array_equal(call.operands[0].places, call.operands[1].places)
        return both, same and call.operands[0].base == call.operands[1].base


def scalar(run: Run, call: Call, name: str) -> Any:
    """Return alpha or beta in the form for the call: a number, or a 0-d pointer."""
    value = call.numbers[name]
    if run.make.random.random() < 0.75 or name not in ("alpha", "beta") or isinstance(value, str):
        return value
    real = call.name in {"alpha": ("her", "hpr", "herk"), "beta": ("herk", "her2k")}[name] and run.make.complex
    pointer = run.scalars[f"real {name}" if real else name]
    pointer.assign(np.asarray(value, run.make.real if real else run.make.dtype))
    return pointer


def rounded(run: Run, call: Call) -> None:
    """Round alpha and beta to the dtype, as device scalars are rounded."""
    for name in ("alpha", "beta"):
        if name in call.numbers:
            value = run.make.dtype.type(call.numbers[name])
            call.numbers[name] = complex(value) if np.iscomplexobj(value) and value.imag else float(value.real)


def stepwise(call: Call, arrays: list[Array], magnitude: bool) -> list[Array]:
    """Do the steps of a routine of vectors, in the order of the reference BLAS, on copies of the flat arrays."""
    arrays = [ref.wide(np.nan_to_num(array)) for array in arrays]
    alpha, c, s, H = (call.numbers.get(name) for name in ("alpha", "c", "s", "H"))
    minus: Any = -1
    if magnitude:
        arrays = [abs(array) for array in arrays]
        alpha, c, s, H, minus = abs(alpha), abs(c), abs(s), abs(H), 1
    x, y = call.operands[0], call.operands[-1]
    X, Y = arrays[x.base], arrays[y.base]
    for i, j in zip(x.places, y.places, strict=True):
        a, b = X[i], Y[j]
        if call.name == "copy":
            Y[j] = a
        elif call.name == "swap":
            X[i], Y[j] = b, a
        elif call.name == "axpy":
            Y[j] = b + alpha * a
        elif call.name == "scal":
            X[i] = alpha * a
        elif call.name == "rot":
            Y[j] = c * b + minus * s * a
            X[i] = c * a + s * b
        else:
            X[i], Y[j] = H[0][0] * a + H[0][1] * b, H[1][0] * a + H[1][1] * b
    return arrays


def verify(run: Run, call: Call, before: list[Array], result: Any, case: str) -> None:
    """Compare the results of the call with plain sums, and all other bytes with their values before."""
    after = run.now()
    wides = [ref.wide(np.nan_to_num(operand.values)) for operand in call.operands]
    arguments = [call.numbers[name] for name in ("alpha", "beta") if name in call.numbers and name in call.vendor]
    if call.result:
        expected = call.compute(*wides)
        if call.result == "index":
            assert result == expected, case
        else:
            magnitude = call.compute(*map(abs, wides))
            ref.assert_close(result, expected, call.terms, magnitude, run.make.dtype, case)
    allowed = [np.zeros(operand.size, bool) for operand in before]
    written = [operand for operand in call.operands if np.any(operand.mask(operand.writes))]
    for operand in written:
        allowed[operand.base][operand.places[operand.mask(operand.writes)]] = True
    for was, now, may in zip(before, after, allowed, strict=True):
        assert was[~may].tobytes() == now[~may].tobytes(), f"{case}: wrote what it must not write"
    if call.steps and not call.result:
        expected, magnitude = stepwise(call, before, False), stepwise(call, before, True)
        for operand, now, new, size in zip(allowed, after, expected, magnitude, strict=True):
            ref.assert_close(
                now[operand], new[operand], 2 * len(call.operands[0].values), size[operand], run.make.dtype, case
            )
    for operand in written if not call.steps else []:
        mask = operand.mask(operand.writes)
        new = np.zeros(operand.values.shape, run.make.dtype)
        new[mask] = after[operand.base][operand.places[mask]]
        assert np.isfinite(new).all(), f"{case}: {operand.name} has what must not be read"
        at = call.operands.index(operand)
        old, wide = wides[at], ref.wide(new)
        if call.solves:
            wides[at] = wide
        expected = call.compute(*arguments, *wides)[0]
        magnitude = call.compute(*map(abs, arguments), *map(abs, wides))[0]
        got, wanted = (expected, old) if call.solves else (wide, expected)
        ref.assert_close(got[mask], wanted[mask], call.terms, magnitude[mask], run.make.dtype, case)


def attempt(run: Run, call: Call, function: Callable[[], Any], case: str, short: bool = False) -> None:
    """Make the call if it has to succeed; if it has to be refused, check that it is."""
    overlap, allowed = run.overlaps(call)
    before = run.prepare(call)
    try:
        result = function()
    except AliasError:
        assert overlap, f"{case}: refused without an overlap"
        run.refused += 1
        assert not allowed, f"{case}: refused though it is in place"
    except ExtentError:
        assert short, case
        run.refused += 1
    except ArgumentError as error:
        empty = call.name in ("iamax", "iamin") and "at least one element" in str(error)
        backwards = call.conjugates or call.result == "index"
        names_remedy = re.search(r"\bnp\.as\w+array\(|numpy\.|; pass ", str(error))
        assert empty or (backwards and names_remedy), f"{case}: {error}"
        run.declined += 1
    else:
        assert not short, f"{case}: an element too few was taken"
        assert not overlap or allowed, f"{case}: an overlap was taken"
        run.called += 1
        verify(run, call, before, result, case)
        return
    for was, now in zip(before, run.now(), strict=True):
        assert was.tobytes() == now.tobytes(), f"{case}: was refused, and wrote"


def described(call: Call, device: str, seed: str, step: int) -> str:
    forms = [
        (operand.name, operand.form, operand.values.shape, operand.base, operand.inc, operand.lead)
        for operand in call.operands
    ]
    return f"{seed=} {step=} {device} {call.name} {call.vendor} {call.options} {call.numbers} {forms}"


def portable(run: Run, call: Call, case: Callable[[], str]) -> None:
    """Make a call of blas."""
    call.operands.sort(key=lambda operand: operand.form == "vector")
    pointers = {operand.name: run.slice(operand) for operand in call.operands}
    arguments = [
        pointers.get(argument, argument) if isinstance(argument, str) else argument for argument in call.portable
    ]
    arguments = [scalar(run, call, argument) if isinstance(argument, str) else argument for argument in arguments]
    attempt(run, call, lambda: getattr(blas, call.name)(*arguments, **call.options), case())


def name_of(call: Call, letter: str) -> str:
    """Return the name of a vendor's function."""
    name, real = call.name, {"c": "s", "z": "d"}.get(letter, letter)
    if name in ("iamax", "iamin"):
        return f"i{letter}{name[1:]}"
    if letter in "cz":
        if name in ("asum", "nrm2"):
            return real + letter + name
        return letter + {"ger": "geru", "rot": real + "rot"}.get(name, name)
    same = {"gerc": "ger", "dotu": "dot", "dotc": "dot", "her": "syr", "her2": "syr2", "hpr": "spr", "hpr2": "spr2"}
    same |= {"hemv": "symv", "hbmv": "sbmv", "hpmv": "spmv"}
    return letter + same.get(name, name)


def vendors(run: Run, call: Call, case: Callable[[], str]) -> None:
    """Make a call of the library, with pointers that end with the last touched element, or one element earlier."""
    vendor, choose = run.vendor, run.make.random
    function = getattr(vendor.module, name_of(call, run.make.letter), None)
    if function is None:
        return
    order, first = choose.choice(vendor.orders)
    leveled = any(operand.form != "vector" for operand in call.operands)
    one_way = call.name in ("scal", "asum", "nrm2", "iamax", "iamin")
    with_zero = call.steps and call.name != "nrm2"
    for chosen in call.operands:
        chosen.inc = choose.choice([1, 2, 3] if one_way else [1, 1, 2, 3, -1, -2, *([0] if with_zero else [])])
    if with_zero and any(operand.inc == 0 and np.any(operand.reads) for operand in call.operands):
        for chosen in call.operands:
            if chosen.inc == 0 and chosen.values.size:
                chosen.values[:] = chosen.values[-1]
    pointers = {operand.name: run.tight(operand, order) for operand in call.operands}
    short = choose.choice(call.operands) if choose.random() < 0.1 else None
    if short is not None and pointers[short.name].size:
        pointers[short.name] = pointers[short.name][:-1]
    else:
        short = None
    arguments: list[Any] = [*first] if leveled else []
    for argument in call.vendor:
        if not isinstance(argument, str):
            arguments.append(argument)
        elif argument in pointers:
            chosen = next(operand for operand in call.operands if operand.name == argument)
            arguments.append(pointers[argument])
            if chosen.form != "packed":
                arguments.append(chosen.inc if chosen.form == "vector" else chosen.lead)
        elif ":" in argument:
            kind, _, letter = argument.partition(":")
            arguments.append(getattr(vendor, kind)[letter])
        else:
            arguments.append(scalar(run, call, argument))

    if call.name == "trmm" and vendor.is_cublas:  # its result is a separate operand, or B
        arguments += arguments[-2:]

    def called() -> Any:
        result = function(*arguments)
        return result - vendor.is_cublas if call.result == "index" and result else result

    attempt(run, call, called, case() + f" {order=}", short is not None)


# -- the tests ---------------------------------------------------------------------------------------------------------
def programs(device: str, letter: str, calls: int, make_one: Callable[[Run, Call, Callable[[], str]], None]) -> None:
    """Make this number of calls, 40 in each region."""
    seed = f"{random.randrange(1 << 32) if SEED == 'random' else SEED} {letter} {make_one.__name__}"
    make, totals = Maker(device, letter, seed), [0, 0, 0]
    for begin in range(0, calls, 40):
        flat = [np.zeros(LENGTH, make.dtype) for _ in range(2)]
        squares = [np.zeros((SIDE, SIDE), make.dtype, order="C"), np.zeros((SIDE, SIDE), make.dtype, order="F")]
        numbers = [np.zeros((), dtype) for dtype in (make.dtype, make.dtype, make.real, make.real)]
        with offload_args(*flat, *squares, *numbers, device=device) as pointers:
            scalars = dict(zip(("alpha", "beta", "real alpha", "real beta"), pointers[4:], strict=True))
            run = Run(make, Vendor(device), [*flat, *squares], list(pointers[:4]), scalars)
            for step in range(begin, min(begin + 40, calls)):
                call = make.any()
                rounded(run, call)
                make_one(run, call, lambda call=call, step=step: described(call, device, seed, step))
        totals = [a + b for a, b in zip(totals, (run.called, run.refused, run.declined), strict=True)]
    assert totals[0] > calls // 2 and (calls < 500 or totals[1] > calls // 200), totals


def counts(short: int) -> pytest.MarkDecorator:
    return pytest.mark.parametrize(
        "calls", [pytest.param(short, id="short"), pytest.param(CALLS, id="all", marks=pytest.mark.slow)]
    )


@pytest.mark.later("host", "s", "c")
@counts(240)  # each function is among them
@pytest.mark.parametrize("letter", "sdcz")
def test_random_calls_of_blas_come_out_as_plain_sums(device: str, letter: str, calls: int) -> None:
    programs(device, letter, calls, portable)


@pytest.mark.later("host", "s", "c")
@counts(60)
@pytest.mark.parametrize("letter", "sdcz")
def test_random_calls_of_the_library_come_out_as_plain_sums(device: str, letter: str, calls: int) -> None:
    programs(device, letter, calls, vendors)


@counts(60)
@pytest.mark.parametrize("letter", "sdcz")
def test_rotations_of_random_numbers_are_rotations(device: str, letter: str, calls: int) -> None:
    make = Maker(device, letter, f"{SEED} {letter} rotations")
    limit = float(np.finfo(make.dtype).eps) * 32
    numbers, reals = np.zeros(40, make.dtype), np.zeros(40, make.real)
    with offload_args(numbers, reals, device=device) as (dn, dr):
        for _ in range(calls // 4):
            scale = 10.0 ** make.numbers.integers(-3, 4, 4)
            values = (make.values(4) * scale * make.numbers.integers(0, 4, 4).clip(0, 1)).astype(make.dtype)
            i, j, k, m = make.random.sample(range(40), 4)
            before = np.full(40, np.nan, make.dtype)
            before[[i, j]] = a, b = values[:2]
            dn.assign(before)
            dr.assign(np.full(40, np.nan, make.real))
            blas.rotg(dn[i : i + 1], dn[j : j + 1], dr[m : m + 1], dn[k : k + 1])
            after, c = dn.to_host(), dr.to_host()
            assert np.isnan(np.delete(after, [i, j, k])).all() and np.isnan(np.delete(c, m)).all()
            wide_a, wide_b, r, c, s = (ref.wide(number)[()] for number in (a, b, after[i], c[m], after[k]))
            size = abs(wide_a) + abs(wide_b)
            assert abs(c * wide_a + s * wide_b - r) <= limit * size, f"{a=} {b=}"
            assert abs(c * wide_b - np.conj(s) * wide_a) <= limit * size, f"{a=} {b=}"
            assert abs(c * c + abs(s) ** 2 - 1) <= limit, f"{a=} {b=}"
            if make.complex:
                continue
            d1, d2, x1, y1 = before[[i, j, k, m]] = abs(values[0]) + 0.5, abs(values[1]), *values[2:]
            dn[:35].assign(before[:35])
            places = [dn[at : at + 1] for at in (i, j, k, m) if at < 35]
            if len(places) < 4:
                continue
            blas.rotmg(*places, dn[35:])
            after = dn.to_host()
            assert np.isnan(np.delete(after, [i, j, k, m, *range(35, 40)])).all()
            if after[35] == -2:
                continue
            # elements that H implies are unchanged
            H = ref.rotm_matrix(ref.wide(np.where(np.isnan(after[35:]), 0, after[35:])))
            new = H @ ref.wide([x1, y1])
            size = abs(H) @ abs(ref.wide([x1, y1]))
            assert after[m] == before[m]
            assert abs(new[0] - after[k]) <= limit * size[0], f"{d1=} {d2=} {x1=} {y1=}"
            assert d1 * x1 * x1 + d2 * y1 * y1 == 0 or abs(new[1]) <= limit * size[1], f"{d1=} {d2=} {x1=} {y1=}"
