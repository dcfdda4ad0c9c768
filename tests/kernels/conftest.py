"""Fixtures of the tests of kernels: a module of three kernels for each device."""

from __future__ import annotations

import numpy as np
import pytest

from kernels.programs import module_for
from offload_args import In, InOut, Kernel, Module, Out


@pytest.fixture
def module(device: str) -> Module:
    """The three kernels, on a device that is here."""
    return Module.load(module_for(device), name="kernels")


@pytest.fixture
def vadd(module: Module) -> Kernel:
    return module.kernel("vadd", In[np.float32], In[np.float32], Out[np.float32], np.int32)


@pytest.fixture
def relu(module: Module) -> Kernel:
    return module.kernel("relu", InOut[np.float32], np.int32)
