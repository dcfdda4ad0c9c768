"""Fixtures of the tests of kernels: a module of three kernels for each device."""

from __future__ import annotations

import numpy as np
import pytest

from helpers.devices import here, open_or_skip
from kernels.images import module_for
from offload_args import Device, In, InOut, Kernel, Module, Out


@pytest.fixture(params=here("host", "sim:0", "cuda:0", "hip:0", "hip:1"))
def device(request: pytest.FixtureRequest) -> str:
    """The name of a device of this machine."""
    return open_or_skip(request.param)


@pytest.fixture
def running_device(device: str) -> str:
    """The name of a device of this machine that runs machine code."""
    if Device(device).model.startswith("double"):
        pytest.skip("device unavailable: the double runs no code that it does not know")
    return device


@pytest.fixture
def module(device: str) -> Module:
    """The three kernels, on a device of this machine."""
    return Module.load(module_for(device), name="kernels")


@pytest.fixture
def vadd(module: Module) -> Kernel:
    return module.kernel("vadd", In[np.float32], In[np.float32], Out[np.float32], np.int32)


@pytest.fixture
def relu(module: Module) -> Kernel:
    return module.kernel("relu", InOut[np.float32], np.int32)
