"""The functions of Python, math and NumPy that kernels may call; each has a name in rules.py, or is a function of
kernels. The module also has remedies for some functions that kernels lack."""

from __future__ import annotations

import math
import operator
from typing import Any, Final

import numpy as np

__all__ = ["CALLS", "OF_REAL_NUMBERS", "OF_TWO", "REMEDIES", "whole"]


def whole(value: Any) -> Any:
    """Mark a value of a formula that has to be an integer or a bool."""
    return value


#: source.py adds functions of kernels.
CALLS: Final[dict[Any, Any]] = {
    math.sqrt: "oa__sqrt",
    np.sqrt: "oa__sqrt",
    math.fabs: "oa__fabs",
    np.fabs: "oa__fabs",
    abs: "oa__abs",
    np.abs: "oa__abs",
    np.floor: "oa__floor",
    np.ceil: "oa__ceil",
    np.trunc: "oa__trunc",
    np.rint: "oa__rint",
    math.copysign: "oa__copysign",
    np.copysign: "oa__copysign",
    whole: "oa__whole",
}
_SUMS: Final = 'write the loop, or, for the sum of an array, kernels.reduce("sum", x=np.float64)'


def _add_elementary() -> None:
    for name in ("exp", "exp2", "expm1", "log", "log1p", "log2", "log10", "sin", "cos", "tan", "sinh", "cosh", "tanh",
                 "hypot", "cbrt"):  # fmt: skip
        CALLS[getattr(math, name)] = CALLS[getattr(np, name)] = f"oa__{name}"
    for name in ("isnan", "isinf", "isfinite"):
        CALLS[getattr(math, name)] = CALLS[getattr(np, name)] = f"oa__{name}"
    for name in ("asin", "acos", "atan", "atan2"):
        CALLS[getattr(math, name)] = CALLS[getattr(np, f"arc{name[1:]}")] = f"oa__{name}"
    for name in ("erf", "erfc", "pow"):
        CALLS[getattr(math, name)] = f"oa__{name}"
    CALLS[np.power] = CALLS[operator.pow] = "oa__power"


_add_elementary()

OF_TWO: Final = frozenset({"oa__copysign", "oa__hypot", "oa__atan2", "oa__pow", "oa__power"})  #: the others take one

#: functions that are written in Python, and whose arguments have an order
OF_REAL_NUMBERS: Final = frozenset({math.floor, math.ceil, math.trunc, np.minimum, np.maximum, np.fmin, np.fmax})

REMEDIES: Final[dict[Any, str]] = {
    math.fmod: "write x - y * np.trunc(x / y)",
    np.fmod: "write x - y * np.trunc(x / y)",
    np.remainder: "write x - y * np.floor(x / y)",
    math.gamma: "compute its values on the host, as scipy.special.gamma(x), and lend them",
    math.lgamma: "compute its values on the host, as scipy.special.gammaln(x), and lend them",
    math.acosh: "write np.log(x + np.sqrt(x * x - 1))",
    np.arccosh: "write np.log(x + np.sqrt(x * x - 1))",
    math.asinh: "write np.copysign(np.log(abs(x) + np.sqrt(x * x + 1)), x)",
    np.arcsinh: "write np.copysign(np.log(abs(x) + np.sqrt(x * x + 1)), x)",
    math.atanh: "write (np.log1p(x) - np.log1p(-x)) / 2",
    np.arctanh: "write (np.log1p(x) - np.log1p(-x)) / 2",
    np.sign: "write (x > 0) - (x < 0), or np.copysign(1, x)",
    np.radians: "write x * (math.pi / 180)",
    math.radians: "write x * (math.pi / 180)",
    np.degrees: "write x * (180 / math.pi)",
    math.degrees: "write x * (180 / math.pi)",
    np.reciprocal: "write 1 / x",
    np.round: "write np.rint(x), or np.floor(x + 0.5)",
    round: "write np.rint(x), or np.floor(x + 0.5)",
    np.heaviside: "write (x > 0) + h * (x == 0)",
    np.where: "write a if condition else b",
    np.clip: "write min(max(x, least), most)",
    np.zeros: "a variable holds one number, and shared(shape, dtype) the numbers of a block",
    np.empty: "a variable holds one number, and shared(shape, dtype) the numbers of a block",
    np.array: "write a tuple, or variables",
    np.sort: "sort on the host",
    np.random.rand: "lend an array of random numbers",
    np.random.random: "lend an array of random numbers",
    print: "kernels print nothing: write the value into an array, and print that after the launch",
    str: "kernels have no strings: write numbers into an array",
    sum: _SUMS,
    math.fsum: _SUMS,
}
