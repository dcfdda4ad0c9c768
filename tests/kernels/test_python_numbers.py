"""Numbers in kernels in Python have the same types and bits as in NumPy 2."""

# mypy: ignore-errors

import enum
import math
import re
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from helpers.devices import here as devices_here
from helpers.devices import open_or_skip
from helpers.written import function_of
from offload_args import Device, In, InOut, Out, errors, kernel, offload
from offload_args.kernels import Linear1D, Linear2D
from offload_args.kernels.compilers import Target

TENTH, PAIR = 0.1, (0.3, 7)


@pytest.fixture(params=devices_here("host", "sim:0", "cuda:0", "hip:0", "hip:1"))
def device(request: pytest.FixtureRequest) -> str:
    """The name of a device of this machine that runs machine code."""
    name = open_or_skip(request.param)
    if Device(name).model.startswith("double"):
        pytest.skip("device unavailable: the double runs no code that it does not know")
    return name


@kernel.function
def products(x, k):
    return 2.1 * x + 1 - TENTH * x / 3 + x * k - PAIR[0] / (x + PAIR[1])


@kernel.function
def choices(x, k):
    chosen = x if x > 0.1 else 0.7
    return chosen * x * x - (1.3 if k > 1 else x) * 0.9 * x


@kernel.function
def totals(x, k):
    total, count, factor = 0.0, 0, 0.3
    for j in range(5):
        total += x * factor
        count += 1
        if 0.1 < total <= 0.9:
            total = total + (j + 1) / 3
    return total / count


@kernel.function
def comparisons(x, k):
    return (1 if x == 0.1 else 0) + (2 if x >= 0.7 else 0) + (4 if x < 0.7 else 0) + (8 if 0.05 < x != 0.3 else 0)


@kernel.function
def least(x, k):
    return max(x, 0) * max(min(x, 0.7, x + 1), -2.5) * x * abs(x)


@kernel.function
def turned(x, k):
    return (x * (0.1 + 2j) * x).imag


FUNCTIONS = [products, choices, totals, comparisons, least, turned]
Line = Out[np.float32].by(Linear1D())


@kernel
def computed(
    x: In[np.float32], k: In[np.int16], a: Line, b: Line, c: Line, d: Line, e: Line, f: Line,
):  # fmt: skip
    for i in a.mine():
        a[i] = products(x[i], k[i])
        b[i] = choices(x[i], k[i])
        c[i] = totals(x[i], k[i])
        d[i] = comparisons(x[i], k[i])
        e[i] = least(x[i], k[i])
        f[i] = turned(x[i], k[i])


@pytest.mark.later
def test_a_number_takes_the_type_of_what_it_is_combined_with(device: str) -> None:
    x = np.concatenate([np.float32([0, 0.1, 0.3, 0.7, -0.1]), np.random.default_rng(7).normal(size=500)])
    x, k = x.astype(np.float32), np.arange(505, dtype=np.int16)
    results = [np.zeros(505, np.float32) for _ in FUNCTIONS]
    offload(computed, x, k, *results, device=device)
    for function, result in zip(FUNCTIONS, results, strict=True):
        expected = [function(*pair) for pair in zip(x, k, strict=True)]  # computed by Python and NumPy
        np.testing.assert_array_equal(result, np.float32(expected), err_msg=function.__name__)


@kernel
def indexed(x: In[np.float32], k: In[np.int32], a: Line, b: Out[np.float64].by(Linear1D())):
    for i in a.mine():
        a[i] = i * x[i] / x.size + x[i] * (i + 1) - len(x)
        b[i] = k[i] * x[i] + 0.1


@pytest.mark.later
def test_indices_and_sizes_are_numbers_of_python(device: str) -> None:
    x, k = np.random.default_rng(8).normal(size=300).astype(np.float32), np.arange(300, dtype=np.int32)
    a, b = np.zeros(300, np.float32), np.zeros(300)
    offload(indexed, x, k, a, b, device=device)
    np.testing.assert_array_equal(a, [i * x[i] / 300 + x[i] * (i + 1) - 300 for i in range(300)])
    np.testing.assert_array_equal(b, k * x + 0.1)


@kernel
def bounded(x: In[np.float32], k: In[np.int16], a: Out[np.float64].by(Linear1D()), b: Out[np.int64].by(Linear1D())):
    for i in a.mine():
        a[i] = np.minimum(x[i], 0.1) + np.maximum(0.7, x[i]) * np.fmin(x[i], TENTH) - np.copysign(0.3, x[i])
        b[i] = np.maximum(k[i], 3) + np.minimum(-1, k[i])


@pytest.mark.later
def test_functions_of_two_numbers_combine_them_as_numpy(device: str) -> None:
    x = np.array([-1, 0, 0.1, 0.7, 0.3, 2, 3, -0.5], np.float32)
    k = np.arange(-4, 4, dtype=np.int16)
    a, b = np.zeros(8), np.zeros(8, np.int64)
    offload(bounded, x, k, a, b, device=device)
    expected = np.minimum(x, 0.1) + np.maximum(0.7, x) * np.fmin(x, 0.1) - np.copysign(0.3, x)
    assert expected.dtype == np.float32
    np.testing.assert_array_equal(a, expected)
    np.testing.assert_array_equal(b, np.maximum(k, 3) + np.minimum(-1, k))


@kernel
def contained(x: In[np.float32], y: Out[np.int64].by(Linear1D())):
    for i in y.mine():
        known = 1 if x[i] in (0.1, 0.7) else 0
        other = 2 if abs(x[i]) not in PAIR else 0
        mixed = 4 if x[i] in (0.7, x[1], 2) else 0
        y[i] = known + other + mixed + (8 if 0.1 in (x[i], x[0]) else 0) + (16 if x[i] in (3,) else 0)


@pytest.mark.later
def test_the_items_of_a_tuple_are_compared_one_by_one(device: str) -> None:
    x = np.array([5, -1, 0.1, 0.7, 0.3, 2, 3, np.nan], np.float32)
    y = np.zeros(8, np.int64)
    offload(contained, x, y, device=device)
    expected = [
        (1 if v in (np.float32(0.1), np.float32(0.7)) else 0)
        + (2 if v not in (np.float32(0.3), 7) else 0)
        + (4 if v in (np.float32(0.7), np.float32(-1), 2) else 0)
        + (8 if v == np.float32(0.1) else 0)
        + (16 if v == 3 else 0)
        for v in x
    ]
    np.testing.assert_array_equal(y, expected)


@kernel
def in_variables(
    x: In[np.float32], k: In[np.uint64], a: Out[np.float64].by(Linear1D()), b: Out[np.float64].by(Linear1D()),
    c: Out[np.int64].by(Linear1D()), d: Out[np.uint64].by(Linear1D()),
):  # fmt: skip
    for i in a.mine():
        pair, mixed, deep = (0.1, 0.7), (0.3, x[i]), ((0.1, 0.2), (0.3, x[i]))
        three = (0.1, 0.7, 0.9)
        first, second = pair
        a[i] = pair[0] * x[i] + pair[-1] * x[i] - mixed[0] * x[i] * mixed[1] + deep[0][1] * x[i] + three[i % 3] * x[i]
        last, _ = pair
        total = first * x[i] - x[i] / second
        for value in pair:
            total += x[i] * value
        for value in pair if x[i] > 0.2 else (0.6, 0.4):
            total -= x[i] * value
        both = (x[i], x[0])
        for item in both:
            total += item * 0.3
        if x[i] > last:
            last = x[i]
        b[i] = total + last * 0.3
        known = 1 if x[i] in pair else 0
        other = 2 if abs(x[i]) not in three else 0
        c[i] = known + other + (4 if 0.3 in mixed else 0) + (8 if x[i] in deep[0] else 0)
        bits = (3, 2**40)
        d[i] = k[i] // bits[0] + bits[1] % k[i]


@pytest.mark.later
def test_the_items_of_a_tuple_in_a_variable_are_numbers_of_python(device: str) -> None:
    x = np.array([5, 0.1, 0.7, 0.3, 2, 0.9, 0.2, -0.7, *np.random.default_rng(3).normal(size=40)], np.float32)
    k = np.arange(1, x.size + 1, dtype=np.uint64) * 2**58
    a, b, c, d = np.zeros(x.size), np.zeros(x.size), np.zeros(x.size, np.int64), np.zeros(x.size, np.uint64)
    offload(in_variables, x, k, a, b, c, d, device=device)
    three = np.resize(np.array([0.1, 0.7, 0.9], np.float32), x.size)
    np.testing.assert_array_equal(a, 0.1 * x + 0.7 * x - 0.3 * x * x + 0.2 * x + three * x)
    total = 0.1 * x - x / 0.7 + x * 0.1 + x * 0.7
    total = total - np.where(x > 0.2, x * 0.1, x * 0.6)
    total = total - np.where(x > 0.2, x * 0.7, x * 0.4)
    total = total + x * 0.3 + x[0] * 0.3
    expected = total + np.where(x > 0.1, x, np.float32(0.1)) * 0.3
    assert expected.dtype == np.float32
    np.testing.assert_array_equal(b, expected)
    known = np.isin(x, np.float32([0.1, 0.7])) + 2 * ~np.isin(abs(x), np.float32([0.1, 0.7, 0.9]))
    known = known + 4  # mixed contains 0.3
    np.testing.assert_array_equal(c, known + 8 * np.isin(x, np.float32([0.1, 0.2])))
    np.testing.assert_array_equal(d, k // 3 + 2**40 % k)


@kernel
def begun_by_a_number(
    x: In[np.float32], k: In[np.int16], a: Line, b: Line, c: Out[np.int64].by(Linear1D()),
):  # fmt: skip
    for i in a.mine():
        largest = 0.1
        if x[i] > largest:  # in float32
            largest = x[i]
        a[i] = largest * 3
        nearest, far = 0.1, largest == 0.1
        if not nearest or x[i] == nearest or far:
            nearest += x[i]
        b[i] = nearest
        at, bits, least = 0, 3, 7
        if k[at] == at and k[i] != bits:
            at = int(k[i]) % x.size
        first = 1
        value = (bits & k[i]) + (bits << 2) + np.int16(first) + np.minimum(first, k[i]) + min(least, k[i])
        first = k[at]
        for j in range(least, 9):
            value += j + first
        bits ^= k[i]
        least -= k[i] + bits
        c[i] = value + least


@pytest.mark.later
def test_a_variable_that_begins_with_a_number_can_be_used_before_it_changes(device: str) -> None:
    x = np.array([-1, 0, 0.1, 0.3, 2], np.float32)
    k = np.array([0, 3, -5, 7, 300], np.int16)
    a, b, c = np.zeros(5, np.float32), np.zeros(5, np.float32), np.zeros(5, np.int64)
    offload(begun_by_a_number, x, k, a, b, c, device=device)
    tenth, whole = np.float32(0.1), k.astype(np.int64)
    largest = np.where(x > tenth, x, tenth)
    np.testing.assert_array_equal(a, largest * np.float32(3))
    np.testing.assert_array_equal(b, np.where((x == tenth) | (largest == tenth), tenth + x, tenth))
    at = np.where(k != 3, whole % 5, 0)
    value = (3 & whole) + 12 + 1 + np.minimum(1, whole) + np.minimum(7, whole) + 7 + 8 + 2 * whole[at]
    np.testing.assert_array_equal(c, value + 7 - (whole + (3 ^ whole)))


@pytest.mark.later
def test_expressions_of_float32_have_no_float64_on_gpus() -> None:
    text = computed._source.compiled(Target("cuda", "sm_90")).data.decode()
    assert not re.search(r"\bf64\b|\.f64", text)


@kernel
def inverse(x: In[np.int32], y: Out[np.float64].by(Linear1D())):
    for i in y.mine():
        y[i] = x[i] ** -1


@kernel
def inverse_of_floats(x: In[np.float32], y: Out[np.float64].by(Linear1D())):
    for i in y.mine():
        y[i] = x[i] ** -1


@pytest.mark.later
def test_a_whole_number_has_no_negative_power_as_in_numpy(device: str) -> None:
    line = inverse._written.line + 2
    with pytest.raises(errors.KernelError, match=rf":{line}: inverse: int32 to a negative power: write 1 / x, or"):
        offload(inverse, np.arange(3, dtype=np.int32), np.zeros(3), device=device)
    x, y = np.float32([1, 2, 3]), np.zeros(3)
    offload(inverse_of_floats, x, y, device=device)
    np.testing.assert_array_equal(y, 1 / x)


@kernel
def whole_numbers(
    u: In[np.uint64], n: In[np.int64], m: In[np.int64], a: Out[np.uint64].by(Linear1D()),
    b: Out[np.uint64].by(Linear1D()), c: Out[np.int64].by(Linear1D()), d: Out[np.int64].by(Linear1D()),
    e: Out[np.int64].by(Linear1D()), f: Out[np.int64].by(Linear1D()), g: Out[np.uint64].by(Linear1D()),
):  # fmt: skip
    for i in a.mine():
        a[i] = u[i] // 3
        b[i] = 7 % u[i]
        c[i] = n[i] // m[i]
        d[i] = n[i] << m[i]
        e[i] = n[i] >> m[i]
        f[i] = (u[i] > -1) + 2 * (u[i] > 5) + 2**40
        g[i] = min(u[i], 2**63) >> 1


@pytest.mark.later
def test_whole_numbers_at_their_ends_are_those_of_numpy(device: str) -> None:
    least, most = -(2**63), 2**63 - 1
    n, m = (grid.ravel() for grid in np.meshgrid([least, -100, -1, 0, 1, most], [least, -1, 0, 1, 63, 64, 65, most]))
    u = np.resize(np.array([0, 1, 6, 2**63 - 1, 2**63, 2**64 - 1], np.uint64), n.size)
    a, b, c, d, e, f, g = (np.zeros(n.size, dtype) for dtype in [np.uint64] * 2 + [np.int64] * 4 + [np.uint64])
    offload(whole_numbers, u, n, m, a, b, c, d, e, f, g, device=device)
    with np.errstate(all="ignore"):
        expected = [
            u // 3,
            7 % u,
            n // m,
            n << m,
            n >> m,
            1 + 2 * (u > 5) + 2**40,
            np.minimum(u, 2**63) >> np.uint64(1),
        ]
    for result, values in zip((a, b, c, d, e, f, g), expected, strict=True):
        np.testing.assert_array_equal(result, values)


@kernel
def stored_before_it_changes(x: In[np.float32], k: In[np.int16], a: Line, b: Out[np.int64].by(Linear1D())):
    for i in a.mine():
        value, count = 0.7, 3
        a[i] = value
        b[i] = count
        if x[i] > 1:
            value, count = x[i], k[i]
            a[i] = value
            b[i] = count


def test_a_variable_that_begins_with_a_number_can_be_stored_before_it_changes(device: str) -> None:
    x, k = np.arange(3, dtype=np.float32), np.arange(5, 8, dtype=np.int16)
    a, b = np.zeros(3, np.float32), np.zeros(3, np.int64)
    offload(stored_before_it_changes, x, k, a, b, device=device)
    assert a.tolist() == [np.float32(0.7), np.float32(0.7), 2.0]
    assert b.tolist() == [3, 3, 7]


INTEGERS = (np.int8, np.uint8, np.int16, np.uint16, np.int32, np.uint32, np.int64, np.uint64)
LITERALS = (-(2**63), -300, -3, -1, 3, 300, 2**31, 2**32, 2**63 - 1, 2**63, 2**64 - 1)


MODE = 2


@kernel.function
def penalty(x):
    if MODE == 1:
        return abs(x)
    elif MODE == 2:
        return 0.0
    return x * x


@kernel.function
def whole(x, scale):
    if scale is None:
        return 3
    return x * scale


def compiled_lines(dtype, result, expressions):
    """Return a kernel with a row of results for each expression of an element x."""
    lines = ["def lines(a: In[T], y: Out[R].by(Linear2D())):", "    for i, j in y.mine():", "        x = a[j]"]
    for number, expression in enumerate(expressions):
        lines += [f"        if i == {number}:", f"            y[i, j] = {expression}"]
    names = {"In": In, "Out": Out, "T": dtype, "R": result, "Linear2D": Linear2D, "np": np, "math": math}
    names |= {"penalty": penalty, "whole": whole, "MODE": MODE}
    file = f"<{expressions[0]} of {dtype.__name__}>"
    return kernel(function_of("\n".join([*lines, ""]), file, names), debug=False)


@kernel.function
def of_difference(d):
    return 1000 if d < 0 else 0


@pytest.mark.parametrize("dtype", [np.uint8, pytest.param(np.uint16, marks=pytest.mark.slow),
                                   pytest.param(np.uint32, marks=pytest.mark.slow)],
                         ids=lambda dtype: dtype.__name__)  # fmt: skip
def test_differences_of_small_unsigned_integers_are_right(device: str, dtype: type) -> None:
    most = int(np.iinfo(dtype).max)
    expressions = [
        "p - q", "(p - q) * 0.5", "-(p - q)", "abs(p - q)", "(p - q) // 2", "(p - q) % 7", "(p - q) / 2", "p - 5 - q",
        "1 if p - q < 0 else 0", "1 if p - q == -2 else 0", "min(p - q, 0)", "min(p, q) - max(p, q)", "(p << 1) - q",
        "(p & q) - (p | q)", "(p >> 1) - (q >> 1)", "(p > 3) - q", "int(p) - int(q)", "math.floor(p) - math.ceil(q)",
        "math.trunc(p) - int(q)", "of_difference(p - q)", "len((1, 2)) - p",
        "p // 2 - q % 7", "(1 << p % 8) - q",
    ]  # fmt: skip
    lines = [
        "def lines(first: In[T], second: In[T], total: InOut[T].by(Linear1D()), y: Out[np.float64].by(Linear2D())):",
        "    for i in total.mine():", "        total[i] -= first[i]", "    for i, j in y.mine():",
        "        p, q = first[j], second[j]", "        d, n = p, 0", "        d -= q",
        "        for k in range(p - q):", "            n += 1", "            d -= 2",
        "        y[i, j] = d if i == 0 else n",
        *(f"        if i == {row + 2}:\n            y[i, j] = {text}" for row, text in enumerate(expressions)),
    ]  # fmt: skip
    names = {"In": In, "Out": Out, "InOut": InOut, "T": dtype, "Linear1D": Linear1D, "Linear2D": Linear2D, "np": np}
    names |= {"of_difference": of_difference, "math": math}
    p, q = [3, 250, 0, most], [5, 10, most, most - 3]
    total, y = np.full(4, 7, dtype), np.zeros((2 + len(expressions), 4))
    file = f"<differences of {dtype.__name__}>"
    built = kernel(function_of("\n".join([*lines, ""]), file, names), debug=False)
    offload(built, np.array(p, dtype), np.array(q, dtype), total, y, device=device)
    assert total.tolist() == [(7 - a) % (most + 1) for a in p]
    steps = [max(a - b, 0) for a, b in zip(p, q, strict=True)]
    np.testing.assert_array_equal(y[1], steps)
    np.testing.assert_array_equal(y[0], [a - b - 2 * n for a, b, n in zip(p, q, steps, strict=True)])
    place = {
        "of_difference": lambda d: 1000 if d < 0 else 0,
        "abs": abs,
        "min": min,
        "max": max,
        "int": int,
        "math": math,
        "len": len,
    }
    for expression, row in zip(expressions, y[2:], strict=True):
        expected = [float(eval(expression, place, {"p": a, "q": b})) for a, b in zip(p, q, strict=True)]
        np.testing.assert_array_equal(row, expected, err_msg=expression)


@pytest.mark.slow
def test_a_product_of_two_uint32_has_all_its_bits(device: str) -> None:
    x, y = np.array([3, 2**32 - 1], np.uint32), np.zeros((3, 2))
    offload(compiled_lines(np.uint32, np.float64, ["x * x", "x ** 2", "np.square(x)"]), x, y, device=device)
    np.testing.assert_array_equal(y, [[9, float((2**32 - 1) ** 2)]] * 3)


@pytest.mark.parametrize(
    ("dtype", "literals"),
    [
        pytest.param(np.uint64, LITERALS[1::3], id="uint64-some"),
        *(
            pytest.param(
                dtype, LITERALS, id=dtype.__name__,
                marks=pytest.mark.slow if dtype in (np.int8, np.int64, np.uint64) else pytest.mark.exhaustive
            )
            for dtype in INTEGERS
        ),
    ],
)  # fmt: skip
def test_integers_are_compared_with_literals_of_any_size_as_in_numpy(
    device: str, dtype: type, literals: tuple[int, ...]
) -> None:
    expressions = [f"x {sign} {literal}" for sign in ("<", "<=", "==", "!=", ">", ">=") for literal in literals]
    expressions += [f"{literal} < x" for literal in literals]
    facts = np.iinfo(dtype)
    expressions += ["x < np.uint64(2**63)", "x == np.uint64(2**63 - 1)", "np.int64(-1) < x", "(x > 3) == True"]
    a = np.array([facts.min, facts.min + 1, 0, 1, 3, facts.max - 1, facts.max], dtype)
    y = np.zeros((len(expressions), a.size), bool)
    offload(compiled_lines(dtype, bool, expressions), a, y, device=device)
    for expression, row in zip(expressions, y, strict=True):
        np.testing.assert_array_equal(row, eval(expression, {"x": a, "np": np}), err_msg=expression)


@pytest.mark.later
@pytest.mark.parametrize("dtype", [np.uint64, np.int64], ids=lambda dtype: dtype.__name__)
def test_integers_of_64_bits_combine_with_each_literal_of_their_type_as_in_numpy(device: str, dtype: type) -> None:
    facts = np.iinfo(dtype)
    literals = [literal for literal in LITERALS if facts.min <= literal <= facts.max]
    expressions = [f"x {sign} {literal}" for sign in ("+", "-", "*", "//", "%", "&", "|", "^") for literal in literals]
    expressions += [f"{literal} {sign} x" for sign in ("//", "%", "-") for literal in literals]
    expressions += [f"np.minimum(x, {literal}) + np.maximum({literal}, x)" for literal in literals]
    a = np.array([facts.min, facts.min + 1, 0, 1, 3, facts.max - 1, facts.max], dtype)
    y = np.zeros((len(expressions), a.size), dtype)
    offload(compiled_lines(dtype, dtype, expressions), a, y, device=device)
    for expression, row in zip(expressions, y, strict=True):
        with np.errstate(all="ignore"):
            np.testing.assert_array_equal(row, eval(expression, {"x": a, "np": np}), err_msg=expression)


NO_UINT64, NO_INT64 = "-3 is not a uint64", f"{2**63} is not an int64"


@pytest.mark.parametrize(
    ("body", "line"),
    [
        ("if x > 3:\n        return x\n    return -3", 4),
        ("if x > 3:\n        return -3\n    return x", 3),
        ("y = -3\n    if x > 3:\n        return x\n    return y if x > 1 else -3", 5),
    ],
    ids=str,
)
def test_a_literal_of_a_result_that_its_type_lacks_is_refused_at_its_line(body: str, line: int) -> None:
    function = function_of(f"def result(x):\n    {body}\n", f"<result {body!r}>", {"np": np})
    names = {"In": In, "Out": Out, "Linear1D": Linear1D, "np": np, "result": kernel.function(function)}
    source = (
        "def lines(a: In[np.uint64], y: Out[np.float64].by(Linear1D())):\n"
        "    for i in y.mine():\n        x = a[i]\n\n        y[i] = result(x)\n"
    )
    with pytest.raises(errors.KernelError, match=rf"^<result .*>:{line}: result: {NO_UINT64}"):
        caller = function_of(source, f"<caller of {body!r}>", names)
        offload(kernel(caller, debug=False), np.ones(3, np.uint64), np.zeros(3), device="host")


@pytest.mark.parametrize(
    ("dtype", "expression", "message"),
    [
        *[(np.uint64, f"x {sign} -3", NO_UINT64) for sign in ("+", "-", "*", "//", "%", "<<", ">>", "&", "|", "^")],
        *[(np.uint64, f"{name}(x, -3)", NO_UINT64) for name in ("min", "max", "np.minimum", "np.fmax")],
        (np.uint64, "-3 % x", NO_UINT64),
        (np.uint64, "x - (1 - 4)", NO_UINT64),
        *[(np.int64, f"x {sign} 2**63", NO_INT64) for sign in ("+", "//", "&")],
        (np.int8, "min(2**63, x)", f"{2**63} is not an int64"),
        (np.uint32, "x + 2**63", NO_INT64),
        (np.int64, "1 if x < 2**70 else 0", r"2 \*\* 70: an integer of a kernel has 64 bits: write 2.0 \*\* 70"),
        (np.int64, "x + (1 << 64)", "1 << 64: an integer of a kernel has 64 bits"),
        (np.int64, "x + HUGE", "HUGE: an integer of a kernel has 64 bits"),
        (np.int64, "x + -18446744073709551615", "-18446744073709551615: an integer of a kernel has 64 bits"),
        *[
            (np.uint64, text, "-1 is not a uint64: convert the other number, as np.int64")
            for text in ("x if x > 3 else -1", "-1 if x > 3 else x", "x if x > 3 else (-1 if x > 1 else 3)")
        ],
        (np.int64, "x if x > 3 else 2**63", NO_INT64),
        (np.int8, "2**63 if x > 3 else x", NO_INT64),
        (np.int64, "np.uint8(300)", r"np.uint8\(300\): uint8 has the numbers from 0 to 255"),
        (np.int64, "np.uint32(-1)", r"np.uint32\(-1\): uint32 has the numbers from 0 to 4294967295"),
    ],
)
def test_a_literal_that_its_type_lacks_is_refused_at_its_line(dtype: type, expression: str, message: str) -> None:
    source = "def lines(a: In[T], y: Out[np.float64].by(Linear1D())):\n    for i in y.mine():\n        x = a[i]\n"
    names = {"In": In, "Out": Out, "T": dtype, "Linear1D": Linear1D, "np": np, "HUGE": 2**70}
    with pytest.raises(errors.KernelError, match=rf":4: lines: .*{message}"):
        function = function_of(source + f"        y[i] = {expression}\n", f"<{expression}>", names)
        offload(kernel(function, debug=False), np.ones(3, dtype), np.zeros(3), device="host")


@pytest.mark.parametrize(
    ("dtype", "statements"),
    [
        (np.uint64, ["v = -1", "if x > 3:", "    v = x"]),
        (np.uint64, ["v = x", "if x > 3:", "    v = -1"]),
        (np.uint64, ["v = -1", "v += x"]),
        (np.uint64, ["v = -1", "for k in range(3):", "    v += x"]),
        (np.uint64, ["v, w = -1, 3", "if x > 3:", "    v, w = x, x"]),
        (np.int64, ["v = 2**63", "if x > 3:", "    v = x"]),
        (np.uint8, ["v = 2**63", "if x > 3:", "    v = x"]),
    ],
    ids=str,
)
def test_a_variable_of_a_type_that_lacks_its_literal_is_refused(dtype: type, statements: list) -> None:
    source = "def lines(a: In[T], y: Out[np.float64].by(Linear1D())):\n    for i in y.mine():\n        x = a[i]\n"
    source += "".join(f"        {statement}\n" for statement in [*statements, "y[i] = v"])
    names = {"In": In, "Out": Out, "T": dtype, "Linear1D": Linear1D, "np": np}
    with pytest.raises(errors.KernelError, match=rf":\d: lines: .*(-1|{2**63}) is not an? u?int64: convert"):
        built = kernel(function_of(source, f"<{dtype.__name__}: {statements}>", names), debug=False)
        offload(built, np.ones(3, dtype), np.zeros(3), device="host")


@kernel.function
def returned(x):
    if x > 0.3:
        return x
    return -1


@kernel
def joined_numbers(
    x: In[np.float32], k: In[np.int32], u: In[np.uint64], a: Out[np.float64].by(Linear1D()),
    b: Out[np.int64].by(Linear1D()), c: Out[np.uint64].by(Linear1D()), d: Out[np.float64].by(Linear1D()),
):  # fmt: skip
    for i in a.mine():
        a[i] = (x[i] if x[i] > 0.3 else (1 if x[i] < 0 else 0.1)) * 3 - returned(x[i]) * 0.7
        b[i] = k[i] if x[i] > 0.3 else -1
        c[i] = u[i] if x[i] > 0.3 else 2**63 + 1
        d[i] = x[i] if x[i] > 0.3 else 2**63


@pytest.mark.later
def test_joined_numbers_take_the_type_of_the_other_value(device: str) -> None:
    x, k, u = np.float32([-1, 0, 0.7, 0.9]), np.arange(4, dtype=np.int32), np.full(4, 2**64 - 1, np.uint64)
    a, b, c, d = np.zeros(4), np.zeros(4, np.int64), np.zeros(4, np.uint64), np.zeros(4)
    offload(joined_numbers, x, k, u, a, b, c, d, device=device)
    chosen = np.where(x > 0.3, x, np.where(x < 0, np.float32(1), np.float32(0.1)))
    expected = chosen * 3 - np.where(x > 0.3, x, np.float32(-1)) * 0.7
    assert expected.dtype == np.float32
    np.testing.assert_array_equal(a, expected)
    assert b.tolist() == [-1, -1, 2, 3]
    assert c.tolist() == [2**63 + 1] * 2 + [2**64 - 1] * 2
    np.testing.assert_array_equal(d, np.where(x > 0.3, x, np.float32(2**63)))


@kernel
def of_one_path(x: In[np.float32], a: Line, b: Out[np.float64].by(Linear1D())):
    for i in a.mine():
        a[i] = penalty(x[i])
        zero, number, choice = penalty(x[i]), whole(x[i], None), x[i] if MODE == 1 else 0.5
        b[i] = zero - number + x[number - 2] + (-choice if choice else 100)


@pytest.mark.later
def test_a_number_of_the_only_path_that_numba_keeps_is_used_like_others(device: str) -> None:
    x, a, b = np.float32([2, -1, 0.5, 4]), np.ones(4, np.float32), np.ones(4)
    offload(of_one_path, x, a, b, device=device)
    assert a.tolist() == [0] * 4
    assert b.tolist() == [-4.5] * 4
    values = {
        "-penalty(x)": 0, "abs(penalty(x))": 0, "penalty(x) ** 3": 0, "1 if penalty(x) else 2": 2, "not penalty(x)": 1,
        "penalty(x) and x > 0": 0, "a[whole(x, None)]": 4, "int(penalty(x))": 0, "np.float32(whole(x, None))": 3,
        "~whole(x, None)": -4, "math.floor(penalty(x))": 0, "math.sqrt(whole(x, None) + 1)": 2,
        "math.exp(penalty(x))": 1, "math.atan2(penalty(x), 1)": 0, "math.copysign(whole(x, None), -1)": -3,
        "-(x if MODE == 1 else 0.5)": -0.5, "math.sqrt(x if MODE == 1 else 4.0)": 2,
    }  # fmt: skip
    y = np.full((len(values), 4), 100.0)
    offload(compiled_lines(np.float32, np.float64, list(values)), x, y, device=device)
    assert {name: set(row) for name, row in zip(values, y.tolist(), strict=True)} == {
        name: {value} for name, value in values.items()
    }


@kernel
def of_a_tuple(at: In[np.int64], y: Out[np.int64].by(Linear1D())):
    for i in y.mine():
        items = (5, 6, 7)
        y[i] = items[at[i]]


@kernel
def by_steps(steps: In[np.int64], y: Out[np.int64].by(Linear1D())):
    for i in y.mine():
        count = 0
        for _ in range(0, 5, steps[i]):
            count += 1
        y[i] = count


@pytest.mark.parametrize(("steps", "wrong", "good"), [(of_a_tuple, 3, [6, 7, 6]), (by_steps, 0, [5, 3, 5])], ids=str)
def test_a_thread_that_ends_early_is_an_error(device: str, steps, wrong: int, good: list[int]) -> None:
    y = np.zeros(3, np.int64)
    offload(steps, np.array([1, 2, 1]), y, device=device)
    assert y.tolist() == good
    if device in ("host", "sim:0"):  # where accesses are checked
        with pytest.raises(
            errors.ExtentError, match=r"thread \(2, 0, 0\) of block \(0, 0, 0\) ended early: the step of"
        ):
            offload(steps, np.array([1, 2, wrong]), y, device=device)


def test_a_literal_that_an_array_lacks_is_not_stored(device: str) -> None:
    for dtype, literal in ((np.uint8, "300"), (np.int16, "-2**15 - 1"), (np.uint64, "-1")):
        source = f"def stored(y: Out[T].by(Linear1D())):\n    for i in y.mine():\n        y[i] = {literal}\n"
        names = {"Out": Out, "T": dtype, "Linear1D": Linear1D}
        with pytest.raises(errors.KernelError, match=rf":3: stored: y\[i\] = .*: {dtype.__name__} has the numbers"):
            kernel(function_of(source, f"<stored {literal}>", names))(np.zeros(3, dtype))


@pytest.mark.later
def test_angles_of_integers_take_negative_literals(device: str) -> None:
    a, y = np.arange(4, dtype=np.uint64), np.zeros((2, 4))
    offload(compiled_lines(np.uint64, np.float64, ["np.copysign(x, -3)", "np.hypot(x, -1)"]), a, y, device=device)
    np.testing.assert_array_equal(y[0], np.copysign(a, -3))
    np.testing.assert_allclose(y[1], np.hypot(a, -1), rtol=1e-15)


Plane = Out[np.complex64].by(Linear1D())


@kernel
def quotients(
    z: In[np.complex64], w: In[np.complex64], x: In[np.float32], k: In[np.int8], a: Plane, b: Plane, c: Plane, d: Plane,
    e: Line, f: Out[np.complex128].by(Linear1D()), g: Out[np.float64].by(Linear1D()),
):  # fmt: skip
    for i in a.mine():
        a[i] = z[i] / w[i]
        b[i] = z[i] / 3
        c[i] = 1 / w[i]
        d[i] = z[i] * z[i] + w[i] ** 2
        e[i] = x[i] ** -2
        f[i] = z[i] / np.complex128(w[i])
        g[i] = x[i] ** k[i]


@pytest.mark.later
def test_quotients_and_powers_are_those_of_numpy(device: str) -> None:
    rng = np.random.default_rng(9)
    special = np.array([0, 1, 1j, -2 - 3j, 1e-30 + 1e-30j, 1e30j, complex(np.inf, 1), complex(0, np.nan)])
    z = np.concatenate([np.repeat(special, 8), rng.normal(size=200) + 1j * rng.normal(size=200)]).astype(np.complex64)
    w = np.concatenate([np.tile(special, 8), rng.normal(size=200) + 1j * rng.normal(size=200)]).astype(np.complex64)
    x = np.concatenate([[0, -0.0, np.inf, np.nan, 1e-30], rng.normal(size=z.size - 5)]).astype(np.float32)
    k = np.full(z.size, 3, np.int8)
    *results, f, g = [np.zeros_like(z) for _ in range(4)] + [
        np.zeros_like(x),
        np.zeros(z.size, complex),
        np.zeros(z.size),
    ]
    offload(quotients, z, w, x, k, *results, f, g, device=device)
    with np.errstate(all="ignore"):
        rows = [(a / b, a / 3, 1 / b, a * a + b * b, 1 / (c * c), a / np.complex128(b))
                for a, b, c in zip(z, w, x, strict=True)]  # fmt: skip
    for result, values in zip([*results, f], zip(*rows, strict=True), strict=True):
        np.testing.assert_array_equal(result, values)
    assert (g == g.astype(np.float32))[~np.isnan(x)].all()  # a power in float32, like NumPy's power of float32 and int8


class Mode(enum.IntEnum):
    LOW = 3
    HIGH = 2**63 + 1


@kernel
def of_members(x: In[np.float32], a: Out[np.float64].by(Linear1D()), b: Out[np.int64].by(Linear1D())):
    for i in a.mine():
        a[i] = x[i] * Mode.LOW + np.float32(Mode.LOW) + Mode.HIGH / 4
        b[i] = np.int32(Mode.LOW) + max(Mode.LOW, i) * (Mode.LOW.value if i < Mode.LOW else 10)


def test_a_member_of_an_int_enum_is_the_integer_that_numpy_takes_it_for(device: str) -> None:
    x, a, b = np.float32([0.1, 0.7, -3, 2, 1e7]), np.zeros(5), np.zeros(5, np.int64)
    offload(of_members, x, a, b, device=device)
    assert a.tolist() == [number * Mode.LOW + np.float32(Mode.LOW) + Mode.HIGH / 4 for number in x]
    assert b.tolist() == [12, 12, 12, 33, 43]


@pytest.mark.parametrize("option", ["fma", "debug"])
def test_an_option_of_a_kernel_is_true_or_false(option: str) -> None:
    with pytest.raises(errors.ArgumentTypeError, match=rf"kernel: {option} needs True or False, got 'no'"):
        kernel(**{option: "no"})


@pytest.mark.later(but="float64")
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_kernel_with_fma_rounds_a_product_and_a_sum_once(dtype: Any, device: str) -> None:
    def add(a: np.float64, x: In[np.float64], y: InOut[np.float64].by(Linear1D())):
        for i in y.mine():
            y[i] = a * x[i] - y[i]

    add.__annotations__ = {"a": dtype, "x": In[dtype], "y": InOut[dtype].by(Linear1D())}
    a, x = dtype(0.3), np.random.default_rng(3).standard_normal(500).astype(dtype)
    before = (a * x).astype(dtype)  # so that the difference is the rounding of the product
    once = np.array([dtype(Fraction(float(a)) * Fraction(float(b)) - Fraction(float(c)))
                     for b, c in zip(x, before, strict=True)])  # fmt: skip
    assert np.count_nonzero(once) > 400
    has_instruction = device.startswith(("cuda", "hip")) or "fma" in Path("/proc/cpuinfo").read_text()
    for fma, expected in (True, once if has_instruction else np.zeros_like(x)), (False, np.zeros_like(x)):
        y = before.copy()
        offload(kernel(add, fma=fma), a, x, y, device=device)
        np.testing.assert_array_equal(y, expected)


def test_elementary_functions_have_the_same_bits_with_fma(device: str) -> None:
    def compute(x: In[np.float64], y: Out[np.float64].by(Linear1D())):
        for i in y.mine():
            y[i] = np.exp(x[i])

    x = np.linspace(-30, 30, 1001)
    results = []
    for fma in False, True:
        results.append(np.zeros_like(x))
        offload(kernel(compute, fma=fma), x, results[-1], device=device)
    np.testing.assert_array_equal(*results)
