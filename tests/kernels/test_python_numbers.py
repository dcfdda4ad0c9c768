"""Numbers in kernels in Python have the types, and the bits, that NumPy 2 gives them."""

# mypy: ignore-errors

import re

import numpy as np
import pytest

from helpers.devices import here as devices_here
from helpers.devices import open_or_skip
from offload_args import Device, In, Out, errors, kernel, offload
from offload_args.kernels import Linear1D
from offload_args.kernels.compilers import Target

TENTH, PAIR = 0.1, (0.3, 7)


@pytest.fixture(params=devices_here("host", "sim:0", "cuda:0", "hip:0", "hip:1"))
def device(request: pytest.FixtureRequest) -> str:
    """The name of a device that is here and runs machine code."""
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


def test_a_number_takes_the_type_of_what_it_is_combined_with(device: str) -> None:
    x = np.concatenate([np.float32([0, 0.1, 0.3, 0.7, -0.1]), np.random.default_rng(7).normal(size=500)])
    x, k = x.astype(np.float32), np.arange(505, dtype=np.int16)
    made = [np.zeros(505, np.float32) for _ in FUNCTIONS]
    offload(computed, x, k, *made, device=device)
    for function, result in zip(FUNCTIONS, made, strict=True):
        expected = [function(*pair) for pair in zip(x, k, strict=True)]  # as Python and NumPy compute it
        np.testing.assert_array_equal(result, np.float32(expected), err_msg=function.__name__)


@kernel
def indexed(x: In[np.float32], k: In[np.int32], a: Line, b: Out[np.float64].by(Linear1D())):
    for i in a.mine():
        a[i] = i * x[i] / x.size + x[i] * (i + 1) - len(x)
        b[i] = k[i] * x[i] + 0.1


def test_indices_and_sizes_are_numbers_of_python(device: str) -> None:
    x, k = np.random.default_rng(8).normal(size=300).astype(np.float32), np.arange(300, dtype=np.int32)
    a, b = np.zeros(300, np.float32), np.zeros(300)
    offload(indexed, x, k, a, b, device=device)
    np.testing.assert_array_equal(a, [i * x[i] / 300 + x[i] * (i + 1) - 300 for i in range(300)])
    np.testing.assert_array_equal(b, k * x + 0.1)


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


def test_a_whole_number_has_no_negative_power_as_in_numpy(device: str) -> None:
    line = inverse._written.line + 2
    with pytest.raises(errors.KernelError, match=rf":{line}: inverse: int32 to a negative power: write 1 / x, or"):
        offload(inverse, np.arange(3, dtype=np.int32), np.zeros(3), device=device)
    x, y = np.float32([1, 2, 3]), np.zeros(3)
    offload(inverse_of_floats, x, y, device=device)
    np.testing.assert_array_equal(y, 1 / x)
