"""The functions of Python, math and NumPy that kernels call: a name of rules.py, or a function of kernels."""

from __future__ import annotations

import math
from typing import Any, Final

import numpy as np

__all__ = ["CALLS"]

#: source.py adds functions of kernels.
CALLS: Final[dict[Any, Any]] = {
    math.sqrt: "oa__sqrt",
    np.sqrt: "oa__sqrt",
    math.fabs: "oa__fabs",
    np.fabs: "oa__fabs",
    np.abs: "abs",
    np.floor: "oa__floor",
    np.ceil: "oa__ceil",
    np.trunc: "oa__trunc",
    np.rint: "oa__rint",
    math.copysign: "oa__copysign",
    np.copysign: "oa__copysign",
}
