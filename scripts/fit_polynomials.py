"""Fit the polynomials of the functions of kernels in Python, and write them to polynomials.py.

    python scripts/fit_polynomials.py > offload_args/kernels/python/polynomials.py

Each polynomial is interpolated at Chebyshev points with 60 digits, and rounded to float64. It needs mpmath.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mpmath import mp, mpf

mp.dps = 60
Real = Any


def fitted(function: Callable[[Real], Real], low: Real, high: Real, count: int) -> list[Real]:
    """Return the coefficients (constant first) of the polynomial that equals the function at the Chebyshev points."""
    points = [(low + high) / 2 + (high - low) / 2 * mp.cos((2 * k + 1) * mp.pi / (2 * count)) for k in range(count)]
    rows = mp.matrix([[x**power for power in range(count)] for x in points])
    return list(mp.lu_solve(rows, mp.matrix([function(x) for x in points])))


def summed(term: Callable[[int], Real], count: int = 120) -> Callable[[Real], Real]:
    """Return the sum of term(k) x^k."""
    return lambda x: mp.fsum(term(k) * x**k for k in range(count))


def erfcx_of(t: Real) -> Real:
    """Return exp(x^2) erfc(x) (x + 2), for t = (x - 2) / (x + 2)."""
    x = 2 * (1 + t) / (1 - t)
    return mp.exp(x * x) * mp.erfc(x) * (x + 2)


half_log = mp.log(2) / 2 * mpf("1.001")
angle = (mp.pi / 4 * mpf("1.02")) ** 2
small = (mp.tan(mp.pi / 8) * mpf("1.001")) ** 2
ratio = ((mp.sqrt(2) - 1) / (mp.sqrt(2) + 1) * mpf("1.001")) ** 2
TABLE: dict[str, tuple[Callable[[Real], Real], Real, Real, int, int]] = {
    # {name: (function, from, to, number of coefficients for float64, and for float32)}
    "EXP": (summed(lambda k: 1 / mp.factorial(k + 2)), -half_log, half_log, 11, 6),
    "LOG": (summed(lambda k: mpf(2) / (2 * k + 3)), 0, ratio, 8, 4),
    "POW": (summed(lambda k: mpf(1) / (2 * k + 5)), 0, ratio, 8, 4),
    "SIN": (summed(lambda k: (-1) ** (k + 1) / mp.factorial(2 * k + 3)), 0, angle, 7, 4),
    "COS": (summed(lambda k: (-1) ** k / mp.factorial(2 * k + 4)), 0, angle, 7, 4),
    "ATAN": (summed(lambda k: mpf((-1) ** (k + 1)) / (2 * k + 3)), 0, small, 13, 6),
    "SINH": (summed(lambda k: 1 / mp.factorial(2 * k + 3)), 0, mpf(1), 8, 4),
    "ERF": (
        summed(lambda k: 2 / mp.sqrt(mp.pi) * (-1) ** k / (mp.factorial(k) * (2 * k + 1)) - (k == 0)),
        0, mpf(1), 13, 8,
    ),
    "ERFC": (erfcx_of, mpf(-3) / 5, mpf(13) / 15, 28, 13),
}  # fmt: skip


def parts(value: Real, bits: int = 53, count: int = 2) -> list[float]:
    """Return numbers whose sum is the value; all numbers but the last have this many bits."""
    numbers = []
    for left in range(count, 0, -1):
        if left > 1 and bits < 53:
            scale = mpf(2) ** (bits - 1 - mp.floor(mp.log(abs(value), 2)))
            numbers.append(float(mp.nint(value * scale) / scale))
        else:
            numbers.append(float(value))
        value -= numbers[-1]
    return numbers


CONSTANTS: dict[str, list[float]] = {
    "LN2": parts(mp.log(2), 32),
    "PI": parts(mp.pi),
    "LOG2_E": parts(1 / mp.log(2)),
    "LOG10_E": parts(1 / mp.log(10)),
    "LOG10_2": parts(mp.log(2, 10), 32),
    "HALF_PI": parts(mp.pi / 2, 53, 3),
    "TWO_OVER_PI": parts(2 / mp.pi, 53, 1),
    "THIRD": parts(mpf(1) / 3),
}


def main() -> None:
    print('"""Polynomials and constants of the functions of kernels: scripts/fit_polynomials.py writes this file."""\n')
    print("# fmt: off\n")
    print("#: name: (coefficients for float64, for float32), from the constant")
    print("POLYNOMIALS = {")
    for name, (function, low, high, long, short) in TABLE.items():
        print(f'    "{name}": (')
        for count in (long, short):
            print("        (")
            for coefficient in fitted(function, low, high, count):
                print(f"            {float(coefficient)!r},")
            print("        ),")
        print("    ),")
    print("}\n\n#: a number as the sum of floating-point numbers")
    print("CONSTANTS = {")
    for name, numbers in CONSTANTS.items():
        print(f'    "{name}": ({", ".join(map(repr, numbers))},),')
    print("}\n\n#: 2 / pi in words of 64 bits")
    print("TWO_OVER_PI_BITS = (")
    mp.prec = 1600
    digits = int(mp.floor(2 / mp.pi * mpf(2) ** (64 * 20)))
    for word in range(19, -1, -1):
        print(f"    {digits >> 64 * word & (1 << 64) - 1:#018x},")
    print(")")


main()
