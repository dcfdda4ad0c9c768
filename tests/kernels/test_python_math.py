"""Elementary functions in kernels in Python: their errors, their special values, and the same bits on each device.

The references are computed in NumPy's longdouble, which has 11 bits more than float64, and by series for erf and erfc.
"""

# mypy: ignore-errors

import math
import platform
import re

import numpy as np
import pytest

from helpers.written import function_of
from offload_args import In, Out, errors, kernel, offload
from offload_args.kernels import Linear1D, Linear2D
from offload_args.kernels.compilers import Target

UNITS = {  # {function: the greatest error for float64, in units of the last place}; for float32, it is 0.51
    "exp": 1, "log": 1, "sin": 1, "cos": 1, "tanh": 1, "pow": 1,
    "exp2": 1, "expm1": 1, "log1p": 1, "log2": 1, "log10": 1, "tan": 1, "asin": 1, "acos": 1, "atan": 1, "atan2": 1,
    "hypot": 1, "cbrt": 1, "erf": 1, "sinh": 2, "cosh": 2, "erfc": 3,
}  # fmt: skip
OF_TWO = ("pow", "atan2", "hypot")
NUMPY = {"asin": "arcsin", "acos": "arccos", "atan": "arctan", "atan2": "arctan2", "pow": "power"}
COMMON = tuple(UNITS)[:6]
OTHERS = tuple(UNITS)[6:]
CASES = [
    pytest.param(dtype, names, id=f"{dtype.__name__}-{names[0]}", marks=[pytest.mark.slow] if is_slow else [])
    for dtype, names, is_slow in [
        (np.float64, COMMON, False), (np.float32, COMMON, True), (np.float64, OTHERS, True), (np.float32, OTHERS, True),
    ]
]  # fmt: skip
Long = np.longdouble


def kernel_of(names, dtype):
    """Return a kernel with a row for each function."""
    lines = [
        "def functions(a: In[T], b: In[T], y: Out[T].by(Linear2D())):",
        "    for i, j in y.mine():",
        "        value = a[i, j]",
    ]
    for number, name in enumerate(names):
        second = ", b[i, j]" if name in OF_TWO else ""
        lines += [f"        if i == {number}:", f"            value = math.{name}(a[i, j]{second})"]
    names_there = {"In": In, "Out": Out, "T": dtype, "Linear2D": Linear2D, "math": math}
    source = "\n".join([*lines, "        y[i, j] = value", ""])
    return kernel(function_of(source, f"<{names[0]} {dtype.__name__}>", names_there), debug=False)


MADE = {}


def results(names, dtype, a, b, device="host"):
    if (names, dtype) not in MADE:
        MADE[names, dtype] = kernel_of(names, dtype)
    a, b = (np.broadcast_to(points, (len(names), points.shape[-1])).astype(dtype) for points in (a, b))
    y = np.zeros_like(a)
    offload(MADE[names, dtype], a, b, y, device=device)
    return dict(zip(names, y, strict=True))


def points(name, dtype, count, rng):
    """Return arguments at which a function is finite: half over its range, and half with a value near 0 or 1."""
    facts = np.finfo(dtype)
    low, high = math.log(facts.tiny), math.log(facts.max)

    def wide():
        return np.exp(rng.uniform(low, high, count)) * np.where(rng.random(count) < 0.5, -1, 1)

    def within(a, b):
        return rng.uniform(a, b, count)

    def mixed(*choices):
        return np.choose(rng.integers(0, len(choices), count), choices)

    a = {
        "exp": lambda: mixed(within(low, high), within(-2, 2)),
        "exp2": lambda: mixed(within(low, high) / math.log(2), within(-2, 2)),
        "expm1": lambda: mixed(within(-40, high), within(-1, 1), np.clip(wide(), -1, 1)),
        "log": lambda: mixed(abs(wide()), within(0.5, 2)),
        "log1p": lambda: mixed(abs(wide()), within(-1, 1), np.clip(wide(), -0.5, 0.5)),
        "sin": lambda: mixed(wide(), within(-1e5, 1e5), within(-10, 10)),
        "asin": lambda: mixed(within(-1, 1), np.clip(wide(), -1, 1)),
        "atan": lambda: mixed(wide(), within(-3, 3)),
        "sinh": lambda: mixed(within(-high, high), within(-2, 2)),
        "tanh": lambda: mixed(wide(), within(-20, 20), within(-1, 1)),
        "cbrt": wide, "atan2": wide, "hypot": wide,
        "erf": lambda: mixed(wide(), within(-6, 6), within(-1, 1)),
        "erfc": lambda: within(-6, math.sqrt(-low) * 0.99),
        "pow": lambda: mixed(abs(wide()), within(0.3, 3)),
    }  # fmt: skip
    like = {"log2": "log", "log10": "log", "cos": "sin", "tan": "sin", "acos": "asin", "cosh": "sinh"}
    first = a[like.get(name, name)]().astype(dtype)
    second = np.ones_like(first)
    if name == "pow":
        logarithm = np.log(first.astype(np.float64))
        second = rng.uniform(low, high, count) * 0.99 / np.where(logarithm == 0, 1, logarithm)
        second = np.clip(second, facts.min / 2, facts.max / 2)
    elif name in OF_TWO:
        first = np.clip(first, facts.min / 2**20, facts.max / 2**20)
        second = mixed(wide(), first.astype(np.float64) * np.exp(np.clip(rng.normal(0, 3, count), -9, 9)))
        second = np.clip(second, facts.min / 4, facts.max / 4)
    return first, second.astype(dtype)


def long_erf(x):
    """Return erf by a series without cancellation, for |x| up to 4."""
    term = total = Long(2) / np.sqrt(Long(np.pi) + Long("1.2246467991473532e-16")) * x * np.exp(-x * x)
    for k in range(1, 120):
        term = term * 2 * x * x / (2 * k + 1)
        total = total + term
    return total


def long_erfc(x):
    """Return erfc by a continued fraction, for x >= 2."""
    fraction = np.zeros_like(x)
    for k in range(400, 0, -1):
        fraction = Long(k) / 2 / (x + fraction)
    return np.exp(-x * x) / np.sqrt(Long(np.pi) + Long("1.2246467991473532e-16")) / (x + fraction)


def reference(name, a, b):
    a, b = a.astype(Long), b.astype(Long)
    with np.errstate(all="ignore"):
        if name == "erf":
            far = abs(a) > 4
            return np.where(far, np.sign(a) * (1 - long_erfc(np.where(far, abs(a), 4))), long_erf(np.where(far, 0, a)))
        if name == "erfc":
            far = a > 2
            return np.where(far, long_erfc(np.where(far, a, 2)), 1 - long_erf(np.where(far | (a < -6), 0, a)))
        return getattr(np, NUMPY.get(name, name))(*([a, b] if name in OF_TWO else [a]))


@pytest.mark.later
@pytest.mark.parametrize(("dtype", "names"), CASES)
def test_the_errors_are_those_that_are_stated(running_device, names, dtype) -> None:
    if dtype == np.float64 and np.finfo(Long).nmant < 63:
        pytest.skip(f"device unavailable: {platform.machine()} has no long double that is longer")
    rng = np.random.default_rng(7)
    a, b = (np.array(values) for values in zip(*(points(name, dtype, 6000, rng) for name in names), strict=True))
    got = results(names, dtype, a, b, running_device)
    for name, x, y in zip(names, a, b, strict=True):
        exact = reference(name, x, y)
        with np.errstate(over="ignore", under="ignore"):
            unit = np.spacing(abs(exact.astype(dtype))).astype(Long)
        finite = np.isfinite(exact.astype(dtype))
        assert finite.mean() > 0.9
        error = abs(got[name].astype(Long) - exact)[finite] / unit[finite]
        worst = int(np.argmax(error))
        most = UNITS[name] if dtype == np.float64 else 0.51
        assert error[worst] <= most, (name, x[finite][worst], y[finite][worst], float(error[worst]))


@pytest.mark.parametrize(("dtype", "names"), CASES)
def test_every_device_has_the_bits_of_the_host(running_device, names, dtype) -> None:
    rng = np.random.default_rng(8)
    a, b = (np.array(values) for values in zip(*(points(name, dtype, 2000, rng) for name in names), strict=True))
    expected, got = results(names, dtype, a, b), results(names, dtype, a, b, running_device)
    for name in names:
        np.testing.assert_array_equal(got[name], expected[name], err_msg=name)


FUNCTIONS_OF_TWO = (
    "math.atan2", "np.arctan2", "math.hypot", "np.hypot", "math.pow", "np.power", "math.copysign", "np.copysign",
)  # fmt: skip


@pytest.mark.later
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_literal_takes_the_type_of_the_other_argument(running_device, dtype) -> None:
    forms = [form for name in FUNCTIONS_OF_TWO for form in (f"{name}(x, {{n}})", f"{name}({{n}}, x)")]
    calls = [form.format(n=number) for form in [*forms, "x ** ({n})", "({n}) ** x"] for number in ("0.1", "-0.7", "20")]
    lines = [
        "def functions(a: In[T], y: Out[np.float64].by(Linear2D()), z: Out[np.float64].by(Linear2D())):",
        "    for i, j in y.mine():",
        "        x = a[j]",
    ]
    for row, call in enumerate(calls):
        typed = re.sub(r"-?0\.\d|\b20\b", r"T(\g<0>)", call)
        lines += [f"        if i == {row}:", f"            y[i, j], z[i, j] = {call}, {typed}"]
    names = {"In": In, "Out": Out, "T": dtype, "Linear2D": Linear2D, "math": math, "np": np}
    functions = kernel(function_of("\n".join([*lines, ""]), f"<literals {dtype.__name__}>", names), debug=False)
    a = np.random.default_rng(5).normal(size=40).astype(dtype)
    y, z = np.zeros((2, len(calls), a.size))
    offload(functions, a, y, z, device=running_device)
    for row, call in enumerate(calls):
        numpy_call = call.replace("math.pow", "np.power").replace("math.atan2", "np.arctan2").replace("math.", "np.")
        with np.errstate(all="ignore"):
            expected = eval(numpy_call, {"np": np, "x": a})
        assert expected.dtype == dtype, call
        np.testing.assert_array_equal(y[row], z[row], err_msg=call)
        np.testing.assert_array_equal(y[row], y[row].astype(dtype), err_msg=call)
        np.testing.assert_allclose(y[row], expected, rtol=4 * np.finfo(dtype).eps, err_msg=call)


SPECIAL = [0.0, -0.0, 1.0, -1.0, 2.0, -2.0, 3.0, -3.0, 0.5, -0.5, 2.5, 1e30, -1e30, np.inf, -np.inf, np.nan]


@pytest.mark.parametrize(("dtype", "names"), CASES)
def test_special_values_are_those_of_numpy(running_device, names, dtype) -> None:
    a, b = (grid.ravel() for grid in np.meshgrid([*SPECIAL, np.finfo(dtype).max, np.finfo(dtype).smallest_subnormal],
                                               SPECIAL))  # fmt: skip
    got = results(names, dtype, a, b, running_device)
    a, b = a.astype(dtype), b.astype(dtype)
    for name in names:
        with np.errstate(all="ignore"):
            if name in ("erf", "erfc"):
                expected = np.array([getattr(math, name)(x) for x in a]).astype(dtype)
            else:
                expected = reference(name, a, b).astype(dtype)
        np.testing.assert_allclose(got[name], expected, rtol=4 * np.finfo(dtype).eps, atol=0, err_msg=name)
        is_number = ~np.isnan(expected)
        np.testing.assert_array_equal(np.signbit(got[name])[is_number], np.signbit(expected)[is_number], name)


@kernel
def of_numpy(x: In[np.float32], c: In[np.complex64], n: In[np.int16], y: Out[np.float64].by(Linear1D())):
    for i in y.mine():
        y[i] = abs(c[i]) + abs(n[i]) + np.fmin(x[i], math.nan) + np.fmax(math.nan, x[i]) + np.square(n[i]) + x[i] ** 0.5


def test_magnitudes_and_powers_of_other_types(running_device) -> None:
    x, c, n = np.array([2, 9], np.float32), np.array([3 + 4j, 0], np.complex64), np.array([-5, 7], np.int16)
    y = np.zeros(2)
    offload(of_numpy, x, c, n, y, device=running_device)
    np.testing.assert_array_equal(y, [5 + 5 + 2 + 2 + 25 + float(np.float32(2) ** 0.5), 0 + 7 + 9 + 9 + 49 + 3])


@kernel
def wave(x: In[np.float32], y: Out[np.float32].by(Linear1D())):
    for i in y.mine():
        y[i] = math.sin(x[i])


@pytest.mark.parametrize(
    "target", [Target("cuda", "sm_90"), Target("hip", "gfx90a")], ids=lambda target: target.processor
)
def test_the_code_for_a_gpu_needs_no_library(target) -> None:
    image = wave._source.compiled(target)
    assert image.data
    if target.backend == "cuda":
        text = image.data.decode()
        assert ".extern" not in text and "fma.rn.f64" in text and ".approx" not in text


def test_functions_of_float32_round_once(running_device) -> None:
    x = np.random.default_rng(9).uniform(-100, 100, 5000).astype(np.float32)
    y = np.zeros_like(x)
    offload(wave, x, y, device=running_device)
    exact = np.sin(x.astype(np.float64))
    assert (abs(y - exact) <= 0.51 * np.spacing(abs(exact.astype(np.float32)))).all()


# Angles of float32 above 2^40 that are nearest to multiples of pi / 2, by mantissa and exponent, with sine and cosine.
NEAREST = [
    (11617958, 17, -1.0, -6.916359710572901e-09), (11617958, 18, 1.3832719421145802e-08, -0.9999999999999999),
    (9012376, 53, 1.0, -7.3323631368543984e-09), (8895696, 34, -0.9999999999999999, 1.3281576663504313e-08),
    (16367173, 72, 1.0, -1.6147697982476211e-09), (16367173, 73, -3.2295395964952422e-09, -1.0),
    (14173733, 89, 2.0449741916998505e-08, -0.9999999999999998), (12438944, 103, -0.9999999999999998,
    -2.3124749758691973e-08),
]  # fmt: skip


@kernel
def circle(x: In[np.float32], s: Out[np.float32].by(Linear1D()), c: Out[np.float32].by(Linear1D())):
    for i in s.mine():
        s[i] = math.sin(x[i])
        c[i] = math.cos(x[i])


def test_the_hardest_angles_of_float32_are_rounded_once(running_device) -> None:
    x, sine, cosine = (np.float32(column) for column in zip(*((math.ldexp(m, e), s, c) for m, e, s, c in NEAREST),
                                                            strict=True))  # fmt: skip
    x, sine, cosine = np.concatenate([x, -x]), np.concatenate([sine, -sine]), np.concatenate([cosine, cosine])
    s, c = np.zeros_like(x), np.zeros_like(x)
    offload(circle, x, s, c, device=running_device)
    np.testing.assert_array_equal(s, sine)
    np.testing.assert_array_equal(c, cosine)


def missing(x: In[np.float32], y: Out[np.float32].by(Linear1D())):
    for i in y.mine():
        y[i] = math.gamma(x[i])


def by_integers(n: In[np.int32], y: Out[np.float32].by(Linear1D())):
    for i in y.mine():
        y[i] = n[i] ** i


def of_complex(c: In[np.complex64], y: Out[np.complex64].by(Linear1D())):
    for i in y.mine():
        y[i] = np.exp(c[i])


@pytest.mark.parametrize(
    ("function", "line", "words"),
    [
        (missing, 2, r"math.gamma: kernels do not have this function: compute its values on the host"),
        (by_integers, 2, r"a power of integers: use a whole number of at most 16 .* np.float64\(x\) \*\* n"),
        (of_complex, 2, r"there is no exp\(complex64\)"),
    ],
)
def test_functions_that_kernels_lack_are_refused_with_their_line(function, line, words) -> None:
    with pytest.raises(errors.KernelError, match=words) as caught:
        refused = kernel(function)
        offload(
            refused, *[np.zeros(3, parameter.dtype) for parameter in function.__annotations__.values()], device="host"
        )
    assert f"{__file__}:{function.__code__.co_firstlineno + line}: " in str(caught.value)
