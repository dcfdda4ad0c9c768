"""Modules that another thread is importing while arrays are lent."""

from __future__ import annotations

import sys
import types

import numpy as np
import pytest

from offload_args import offload_args


class Tagged(np.ndarray):
    """A subclass of arrays that changes nothing."""


def test_arrays_are_lent_while_another_thread_imports_numpy_ma(device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "numpy.ma", types.ModuleType("numpy.ma"))  # as during its import
    x = np.zeros(6).view(Tagged)
    with offload_args(x, device=device) as (dx,):
        dx[:3].assign(np.arange(3.0).view(Tagged))
        dx[3:].assign(np.arange(3.0))
    assert x.tolist() == [0.0, 1.0, 2.0] * 2
