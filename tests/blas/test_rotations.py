"""Rotations of any numbers: every call ends, and if the library's own function ends, the results are the same."""

from __future__ import annotations

import itertools
import subprocess
import sys
import warnings
from typing import Any

import numpy as np
import pytest

from offload_args import blas, cblas, offload_args

# Sizes near which products and weights overflow or underflow in either precision, infinities and NaN.
SIZES = [0.0, 1.0, 1.4, 5e-324, 1e-300, 1e-160, 1e-45, 1e-20, 2.0**-24, 5.9604645e-8, 2.0**24, 1e20, 3e38, 1e160, 1e308]
NUMBERS = [*SIZES, *(-size for size in SIZES), -0.5e308, np.inf, -np.inf, np.nan]
# For these numbers, OpenBLAS's own function does not end.
ENDLESS = [
    (np.inf, 1.0, 1.0, 1.0),
    (1.0, np.inf, 1.0, 1.0),
    (1e308, -0.5e308, 1.0, 1.4),
    (1.0, -1 / 9, 5.0, 15.0),
    (3e-160, -1e-200, 1e-170, 1e-140),
]


def count_calls(letter: str) -> int:
    """Call rotmg with random choices of these numbers, and rotg with all pairs; return the number of ended calls."""
    count, real = 0, np.float32 if letter in "sc" else np.float64
    random = np.random.default_rng(5)
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        values = [float(real(value)) for value in NUMBERS]
        if letter in "sd":
            calls = [random.choice(values, 4).tolist() for _ in range(20_000)] + [list(value) for value in ENDLESS]
            for arguments in calls:
                getattr(cblas, f"{letter}rotmg")(*(float(real(value)) for value in arguments))
                count += 1
            for a, b in itertools.product(values, values):
                getattr(cblas, f"{letter}rotg")(a, b)
                count += 1
        else:
            for arguments in random.choice(values, (10_000, 4)):
                getattr(cblas, f"{letter}rotg")(complex(*arguments[:2]), complex(*arguments[2:]))
                count += 1
    return count


@pytest.mark.later
@pytest.mark.parametrize("letter", "sdcz")
def test_rotations_of_any_numbers_end(letter: str) -> None:
    """T62. The calls run in a separate process, which is killed if a call does not end."""
    code = f"import sys; sys.path.insert(0, {__file__.rsplit('/', 1)[0]!r}); import test_rotations as tests; "
    code += f"print(tests.count_calls({letter!r}))"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300)
    assert ran.returncode == 0, ran.stderr
    assert int(ran.stdout) >= 10_000


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("place", ["host", "sim"])
def test_rotmg_leaves_infinite_weights(place: str, dtype: type) -> None:
    """T62. An infinite weight is not scaled; if only rounding prevents a rotation, all results are 0."""
    check_infinite_weights(place, dtype)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_rotmg_of_amd_leaves_infinite_weights(hip: str, dtype: type) -> None:
    """T62, T63. The results are the same."""
    check_infinite_weights(hip, dtype)


def check_infinite_weights(device: str, dtype: type) -> None:
    largest = float(np.finfo(dtype).max)
    rounded = (1, -9 / 169, 3, 13) if dtype is np.float32 else (1, -1 / 9, 5, 15)  # 1 + h12 h21 is rounded to 0
    for numbers, weights, x, flag in [
        ((np.inf, 1, 1, 1), (np.inf, 1), 1, 0),
        ((1, np.inf, 1, 2), (np.inf, 1), 2, 1),
        (rounded, (0, 0), 0, -1),
        ((largest, -largest / 2, 1, 1.4), (np.inf, -np.inf), None, 0),
    ]:
        arguments: list[Any] = [np.array([number], dtype) for number in numbers]
        param: Any = np.full(5, 7, dtype)
        with offload_args(*arguments, param, device=device) as pointers:
            blas.rotmg(*pointers)
        assert (arguments[0][0], arguments[1][0]) == weights, numbers
        assert x is None or arguments[2][0] == x, numbers
        assert param[0] == flag, numbers


@pytest.mark.later
@pytest.mark.parametrize("letter", "sd")
def test_rotmg_is_the_librarys_where_that_ends(letter: str) -> None:
    """T62. The results are equal bit for bit, for numbers of usual sizes with signs, and for some that need scaling."""
    raw: Any = cblas.raw
    function = getattr(raw, f"cblas_{letter}rotmg")
    real, place = (np.float32, "float *") if letter == "s" else (np.float64, "double *")
    random = np.random.default_rng(3)
    for _ in range(2_000):
        numbers = [float(real(value)) for value in random.normal(size=4) * 10.0 ** random.integers(-12, 13, 4)]
        kept = [np.array([number], real) for number in numbers[:3]]
        param = np.zeros(5, real)
        places = [raw.ffi.cast(place, array.ctypes.data) for array in (*kept, param)]
        function(*places[:3], numbers[3], places[3])
        *updated, H = getattr(cblas, f"{letter}rotmg")(*numbers)
        np.testing.assert_array_equal(updated, [value[0] for value in kept], err_msg=f"{numbers}")
        np.testing.assert_array_equal(H, param, err_msg=f"{numbers}")
