"""Each operation of kernels in Python, for each type and each pair of types, has NumPy's type and bits.

The reference is Python's evaluation of the same expression of NumPy's scalars. Each value is stored as a float64 or a
complex128, and an integer also as an int64, so that a result of another type has other numbers.
"""

# mypy: ignore-errors

import math
import re
from itertools import product

import numpy as np
import pytest

from helpers.written import function_of
from offload_args import In, Out, errors, kernel, offload
from offload_args.kernels import Linear1D

INTEGERS = ("int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64")
REAL = ("bool", *INTEGERS, "float16", "float32", "float64")
TYPES = (*REAL, "complex64", "complex128")
SOME = ("bool", "int8", "uint64", "float32", "complex64")  # the slow run has pairs of these
UNSIGNED = (("uint8", "uint8"), ("uint32", "uint32"), ("uint16", "bool"), ("uint8", "-3"), ("uint32", "3"))
ORDER = (
    *(f"a {sign} b" for sign in ("<", "<=", ">", ">=")), "min(a, b)", "max(a, b)", "np.minimum(a, b)",
    "np.maximum(a, b)", "np.fmin(a, b)", "np.fmax(a, b)", "np.copysign(a, b)",
)  # fmt: skip
DIVISION = ("a // b", "a % b")
BITS = ("a & b", "a | b", "a ^ b", "a << b", "a >> b")
EQUAL = ("a == b", "a != b")
JOINED = ("a if a == b else b", "a and b", "a or b", "min(a, b)", "max(a, b)")
LITERALS = ("3", "-3", "300", "2**40", "0.1", "-0.0", "math.nan", "True", "0.1 + 2j", "np.float32(0.1)")
NAMES = {"np": np, "math": math}


def edges(name: str) -> np.ndarray:
    """Return the numbers of a type at which an operation may differ."""
    dtype = np.dtype(name)
    if dtype.kind == "b":
        return np.array([False, True])
    if dtype.kind in "iu":
        facts = np.iinfo(dtype)
        numbers = [facts.min, facts.min + 1, -7, -2, -1, 0, 1, 2, 3, 7, 63, 64, facts.max - 1, facts.max]
        return np.array(sorted({number for number in numbers if number >= facts.min}), dtype)
    facts = np.finfo(dtype)
    if dtype.kind == "f":
        sizes = [0, 1, 3, 0.1, 2.5, facts.max, facts.tiny, facts.smallest_subnormal, facts.eps, math.inf, math.nan]
        return np.array([*sizes, *(-size for size in sizes)], dtype)
    parts = [0.0, -0.0, 1, -2.5, 0.1, facts.max, facts.smallest_subnormal, -math.inf, math.nan]
    return np.array([complex(*pair) for pair in product(parts, parts)], dtype)


def read(values: np.ndarray) -> np.ndarray:
    """Return elements in the type that kernels compute in."""
    return values.astype(np.float32) if values.dtype == np.float16 else values


def in_64_bits(*operands: np.ndarray) -> list[np.ndarray]:
    """Return integers in the type of 64 bits in which kernels combine them, and other numbers as they are."""
    kinds = {operand.dtype.kind for operand in operands}
    if not kinds <= {*"biu"}:
        return list(operands)
    has_uint64 = any(operand.dtype == np.uint64 for operand in operands)
    return [operand.astype(np.uint64 if has_uint64 and "i" not in kinds else np.int64) for operand in operands]


def evaluated(expression: str, a: np.ndarray, b: np.ndarray, dtype: np.dtype | None = None) -> np.ndarray:
    """Return the values of an expression of NumPy's scalars."""
    code = compile(expression, "<expected>", "eval")
    with np.errstate(all="ignore"):
        values = [eval(code, {**NAMES, "a": x, "b": y}) for x, y in zip(a, b, strict=True)]
        return np.array(values if dtype is None else [dtype.type(value) for value in values])


def expected(expression: str, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Return the values of an expression of two elements, in which kernels compute integers in 64 bits."""
    a, b = read(a), read(b)
    if expression in JOINED:
        return evaluated(expression, a, b, np.result_type(a, b))
    is_exact = expression in (*EQUAL, "a / b") or expression in ORDER
    of_bools = a.dtype == b.dtype == bool and expression in BITS[:3]
    if is_exact or of_bools:
        return evaluated(expression, a, b)
    if expression == "a * b" and "c" in a.dtype.kind + b.dtype.kind:  # of two types, some CPUs give -0 for 0
        a, b = (operand.astype(np.result_type(a, b)) for operand in (a, b))
    if expression == "a * b" and a.dtype == b.dtype == np.uint32:  # a product may need all 64 bits
        return evaluated(expression, a.astype(np.uint64), b.astype(np.uint64))
    if expression in BITS[3:] and a.dtype == np.uint64:  # NumPy has no shift of a uint64 by a signed number
        return evaluated(expression, a, b.astype(np.uint64))
    return evaluated(expression, *in_64_bits(a, b))


class Table:
    """A kernel of many expressions of the elements a and b, with the values that each has to have."""

    def __init__(self, name: str, first: np.ndarray, second: np.ndarray, values: dict[str, np.ndarray]) -> None:
        self.first, self.second, self.values = first, second, values
        kinds = {value.dtype.kind for value in values.values()}
        self.result = np.complex128 if "c" in kinds else np.float64
        lines = [
            "def table(first: In[A], second: In[B], y: Out[R].by(Linear1D()), z: Out[np.int64].by(Linear1D())):",
            "    for i in y.mine():", "        row, at = i // first.size, i % first.size",
            "        a, b = first[at], second[at]", "        z[i] = 0",
        ]  # fmt: skip
        for row, (expression, value) in enumerate(values.items()):
            lines += [f"        if row == {row}:", f"            v{row} = {expression}", f"            y[i] = v{row}"]
            lines += [f"            z[i] = v{row}"] if value.dtype.kind in "biu" else []
        names = {"In": In, "Out": Out, "Linear1D": Linear1D, "R": self.result, **NAMES}
        names |= {"A": first.dtype.type, "B": second.dtype.type}
        self.kernel = kernel(function_of("\n".join([*lines, ""]), f"<{name}>", names), debug=False)

    def check(self, device: str) -> None:
        shape = len(self.values), self.first.size
        y, z = np.zeros(shape, self.result), np.zeros(shape, np.int64)
        offload(self.kernel, self.first, self.second, y.reshape(-1), z.reshape(-1), device=device)
        for row, (expression, value) in enumerate(self.values.items()):
            units = units_of(expression, self.first.dtype.kind)
            wrong = ~agrees(y[row], value.astype(self.result), value.dtype, units)
            if value.dtype.kind in "biu":
                wrong |= z[row] != value.astype(np.int64)
            if "copysign" in expression and device.startswith("cuda"):  # a float16's NaN has no sign there
                is_nan = np.isnan(self.second) & (self.second.dtype == np.float16)
                wrong &= ~is_nan | (abs(y[row]) != abs(value))
            lines = [
                f"a={self.first[at]!r} b={self.second[at]!r}: {y[row, at]!r}, {z[row, at]}, not {value[at]!r}"
                for at in np.flatnonzero(wrong)[:3]
            ]
            assert not lines, "\n".join([expression, *lines])


def agrees(result: np.ndarray, value: np.ndarray, dtype: np.dtype, units: int) -> np.ndarray:
    """Return where results are the values, or NaN, or at most some units in the last place of the dtype away.

    If units are allowed, the signs of zeros may differ, too.
    """
    if value.dtype.kind == "c":
        part = np.finfo(dtype).dtype if dtype.kind == "c" else dtype
        return agrees(result.real, value.real, part, units) & agrees(result.imag, value.imag, part, units)
    same = result == value
    if not units:
        same &= np.signbit(result) == np.signbit(value)
    elif dtype.kind == "f":
        with np.errstate(all="ignore"):
            unit = np.spacing(abs(value.astype(dtype))).astype(np.float64)
            same |= abs(result - value) <= units * unit
    return same | (np.isnan(result) & np.isnan(value))


def units_of(expression: str, kind: str) -> int:
    """Return the units in the last place by which a result may differ from NumPy's, which also rounds powers.

    A power by a small whole number is computed by products. fmin and fmax choose one of two zeros.
    """
    if "**" in expression:
        return 8 if expression.endswith("16") else 3
    return int("np.fm" in expression or (kind == "c" and "abs" in expression))


def operations(a: str, b: str, device: str) -> list[str]:
    """Return the operations that kernels have for a pair of types on a device: GPUs have no exact a % b of floats."""
    kinds = {np.dtype(a).kind, np.dtype(b).kind}
    of_pair = ["a + b", "a - b", "a * b", "a / b", *EQUAL, *JOINED]
    if "c" in kinds:
        return [expression for expression in of_pair if expression not in ORDER]
    if kinds <= {*"biu"}:
        return [*of_pair, *ORDER, *DIVISION, *BITS]
    return [*of_pair, *ORDER, *(DIVISION if device.startswith(("host", "sim")) else ()), "a ** b"]


def grid(a: str, b: str) -> tuple[np.ndarray, np.ndarray]:
    first, second = np.meshgrid(edges(a), edges(b))
    return first.ravel(), second.ravel()


def is_slow(name: str, other: str) -> bool:
    """Return whether the slow run has a pair: two of some types in one order, or one of these types with a literal.

    It has each literal with one of these types, and two literals with each of them.
    """
    if (name, other) in UNSIGNED:
        return True
    if name not in SOME or other not in (*SOME, *LITERALS):
        return False
    if other in LITERALS:
        return (SOME.index(name) + LITERALS.index(other)) % len(SOME) == 0
    first, second = SOME.index(name), SOME.index(other)
    return first == second or (first < second) == ((first + second) % 2 == 0)


def cases(seconds: tuple[str, ...], often: tuple, join: str) -> list:
    """Return the pairs of a type and another word: in each run, in the slow one, in the exhaustive one."""
    return [
        pytest.param(
            pair, id=join.join(pair), marks=[] if pair in often else pytest.mark.slow
            if is_slow(*pair) else pytest.mark.exhaustive,
        )
        for pair in product(TYPES, seconds)
    ]  # fmt: skip


@pytest.mark.parametrize("pair", cases(TYPES, (("uint8", "int16"),), "-"))
def test_an_operation_of_two_types_is_that_of_numpy(pair: tuple[str, str], running_device: str) -> None:
    a, b = grid(*pair)
    values = {expression: expected(expression, a, b) for expression in operations(*pair, running_device)}
    Table("-".join(pair), a, b, values).check(running_device)


def with_literal(expression: str, a: np.ndarray, literal: str, is_first: bool) -> np.ndarray | None:
    """Return the values of an operation of elements and a literal, which is perhaps first. None: kernels refuse it."""
    number, a = eval(literal, NAMES), read(a)
    if a.dtype == np.float64 and isinstance(number, complex):  # Python computes with a float64 itself
        a = a.astype(np.complex128)
    is_whole = isinstance(number, int) and a.dtype.kind in "biu"
    is_compared = expression in (*EQUAL, *ORDER[:4])
    if is_whole and a.dtype == np.uint64 and number < 0 and not is_compared:
        return None
    if is_whole and type(number) is int:
        a = a.astype(np.uint64 if a.dtype == np.uint64 else np.int64)
        number = number if is_compared else a.dtype.type(number)
    b = np.full(a.size, number) if is_whole and not is_compared else [number] * a.size
    pair = (b, a) if is_first else (a, b)
    if type(number) is bool and is_whole and not is_compared:
        return expected(expression, *pair)
    return evaluated(expression, *pair, (a[:1] + number).dtype if expression in JOINED else None)


@pytest.mark.later
@pytest.mark.parametrize("case", cases(LITERALS, (("float32", "0.1"),), " with "))
def test_an_operation_with_a_literal_is_that_of_numpy(case: tuple[str, str], running_device: str) -> None:
    name, literal = case
    a, kind = edges(name), np.asarray(eval(literal, NAMES)).dtype.kind
    other = {"c": "complex64", "f": "float32"}.get(kind, "int8")
    values = {}
    for expression, is_first in product(operations(name, other, running_device), (False, True)):
        value = with_literal(expression, a, literal, is_first)
        operands = (f"({literal})", "a") if is_first else ("a", f"({literal})")
        if value is not None:
            values[re.sub(r"\b[ab]\b", lambda name, x=operands: x["ab".index(name[0])], expression)] = value
    Table(" with ".join(case), a, a, values).check(running_device)


def of_one(name: str) -> dict[str, np.ndarray]:
    """Return the operations that kernels have for one element, with their values."""
    a = read(edges(name))
    kind, wide = a.dtype.kind, a.astype(np.uint64) if a.dtype == np.uint32 else in_64_bits(a)[0]
    floating = a.astype(np.float64) if kind in "biu" else a
    kept = ["not a", "1 if a else 2", "bool(a)", "np.isnan(a)", "np.isinf(a)", "np.isfinite(a)", "np.complex64(a)",
            "np.complex128(a)", "abs(a)", "np.abs(a)"]  # fmt: skip
    kept += ["~a", "~~a"] if kind in "biu" else []
    kept += ["-a", "+a", "- -a", "-(-(-a))", "abs(-a)", "a.real", "a.imag"] if kind != "b" else []
    kept += [f"np.{other}(a)" for other in (*INTEGERS, "bool_")] if kind in "biu" else []
    kept += ["np.floor(a)", "np.ceil(a)", "np.trunc(a)", "np.float32(a)", "np.float64(a)"] if kind != "c" else []
    whole = [f"a ** {n}" for n in (0, 1, 2, 3)] + ["np.square(a)"] + (["a ** 16"] if kind != "c" else [])
    rounded = ["np.sqrt(a)", "np.fabs(a)", "np.rint(a)"] if kind != "c" else []
    values = {expression: evaluated(expression, a, a) for expression in kept}
    values |= {expression: evaluated(expression, wide, wide) for expression in whole}
    return values | {expression: evaluated(expression, floating, floating) for expression in rounded}


@pytest.mark.later
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(
            name, marks=[] if name == "uint8" else pytest.mark.slow if name in SOME else pytest.mark.exhaustive
        )
        for name in TYPES
    ],
)
def test_an_operation_of_one_type_is_that_of_numpy(name: str, running_device: str) -> None:
    a = edges(name)
    Table(name, a, a, of_one(name)).check(running_device)


@pytest.mark.later
@pytest.mark.parametrize("name", ["float16", "float32", "float64"])
def test_a_float_becomes_the_integer_that_numpy_gives(name: str, running_device: str) -> None:
    a = np.array([-0.0, 0.1, 0.9, 1, 2.5, 7.99, 100, 126.9], name)
    both = ["int(a)", "math.floor(a)", "math.ceil(a)", "int(np.trunc(-a))", *(f"np.{other}(a)" for other in INTEGERS)]
    signed = [f"np.{other}(-a)" for other in INTEGERS if other.startswith("i")]
    Table(name, a, a, {text: evaluated(text, read(a), a) for text in (*both, *signed)}).check(running_device)


@pytest.mark.parametrize(
    ("pair", "expression", "message"),
    [
        (("int8", "uint64"), "a ** b", "a power of integers: use a whole number"),
        (("int8", "uint64"), "a ** 17", "a power of integers: use a whole number"),
        (("uint64", "uint64"), "a ** 17", "a power of integers: use a whole number"),
        (("bool", "float16"), "a & b", r"there is no and\(bool, float32\)"),
        (("float64", "int8"), "a << b", r"there is no lshift\(float64, int8\)"),
        (("float32", "float32"), "~a", r"there is no invert\(float32\)"),
        (("complex64", "int8"), "a // b", r"there is no floordiv\(complex64, int8\)"),
        (("float64", "complex128"), "a % b", r"there is no mod\(float64, complex128\)"),
        (("complex64", "float64"), "a ** b", r"there is no pow\(complex64, float64\)"),
        (("bool", "complex64"), "a < b", r"there is no lt\(bool, complex64\)"),
        (("complex64", "complex128"), "min(a, b)", r"there is no min\(complex64, complex128\)"),
        (("complex64", "float64"), "np.copysign(a, b)", r"there is no copysign\(complex64, float64\)"),
        *(
            (("complex64", "float32"), f"np.{name}(b, a)", "a function of real numbers gets complex64: take .real")
            for name in ("minimum", "maximum", "fmin", "fmax")
        ),
        (("complex64", "bool"), "np.int16(a)", "complex64 does not become int16: take .real, .imag or abs"),
        (("int64", "bool"), "np.float32((a, a))", r"UniTuple\(int64 x 2\) does not become float32: pass"),
        (("complex64", "bool"), "np.bool_(a)", "complex64 does not become bool: take .real, .imag or abs"),
        (("complex128", "bool"), "math.floor(a)", "a function of real numbers gets complex128: take .real, .imag"),
        (("float32", "bool"), "np.minimum((a, b), a)", r"a function of real numbers gets .*: pass a number"),
        (("float32", "bool"), "np.isnan((a, b))", r"there is no isnan\(.*\)"),
    ],
)  # fmt: skip
def test_an_operation_that_a_pair_of_types_lacks_is_refused(pair: tuple, expression: str, message: str) -> None:
    a, b = grid(*pair)
    table = Table(f"refused {pair} {expression}", a, b, {expression: np.zeros(a.size)})
    with pytest.raises(errors.KernelError, match=rf">:7: table: {message}"):
        table.check("host")
