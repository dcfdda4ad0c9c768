"""A plugin of pytest that replaces numpy.linalg by offload_args.linalg, for NumPy's own tests.

    export OFFLOAD_ARGS_DEVICE=sim:0 PYTHONPATH=tests/suites
    python -m pytest -p numpy_suite --pyargs numpy.linalg.tests.test_linalg

tests/lapack/test_numpy_suite.py runs it. Functions that NumPy builds on these, such as pinv and cond, then call the
replacements.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest
from numpy.linalg import _linalg as numpy_linalg
from selection import leave_out

from offload_args import linalg

#: {pattern of tests that do not hold for offload_args: the reason}. docs/guide/linalg.md states the same.
OTHER = {
    # BLAS has no products of integers, float16, longdouble and objects.
    r"::test_matmul$",
    r"MatrixPower::test_(large_power|power_is_zero|power_is_one|power_is_two)\[dt([0-9]|12|15|16)\]",
}
#: The order of factors differs from NumPy's, and so the last bits differ; float32 is compared to one decimal less.
LESS = 1


def pytest_configure() -> None:
    for name in set(linalg.__all__) & set(np.linalg.__all__):
        if callable(getattr(linalg, name)) and not isinstance(getattr(linalg, name), type):
            for module in (np.linalg, numpy_linalg):
                setattr(module, name, getattr(linalg, name))


def pytest_collection_modifyitems(config: pytest.Config, items: list[Any]) -> None:
    leave_out(OTHER)(config, items)
    for module in {item.module for item in items}:
        compare = module.assert_almost_equal

        def looser(a: Any, b: Any, single_decimal: int = 6, compare: Any = compare, **keywords: Any) -> None:
            compare(a, b, single_decimal=single_decimal - LESS, **keywords)

        module.assert_almost_equal = partial(looser)
