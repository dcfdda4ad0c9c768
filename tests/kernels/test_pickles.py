"""Kernels can be pickled: another process makes each kernel again, once, from its sources and types."""

from __future__ import annotations

import copy
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from helpers.arrays import ramp
from helpers.processes import printed
from offload_args import In, InOut, Kernel, Module, Out, errors, kernel, offload, offload_args
from offload_args.kernels import Linear1D, elementwise, reduce

RATE = 3.0
SOURCE = """
#include <offload_args/kernel.h>
OA_KERNEL(times, float a, oa::InOut<float> x, int n) {
  for (auto element : x.mine(oa::Linear1D(n), here)) *element *= a * FACTOR;
}"""
USE = """
import pickle, sys
import numpy as np
from offload_args import offload

with open("pickles", "rb") as file:
    while line := file.readline():
        data = bytes.fromhex(line.decode())
        thing, before, after = pickle.loads(data)
        x = np.ones(5, np.float32)
        if hasattr(thing, "signature"):
            offload(thing, *before, x, *after, device={device!r})
        print(x[4] if hasattr(thing, "signature") else thing(x))
        assert pickle.loads(data)[0] is thing
"""


@kernel.function
def grown(value):
    """Return a value that has grown."""
    return value * RATE


@kernel
def grow(a: np.float32, x: InOut[np.float32].by(Linear1D())):
    for i in x.mine():
        x[i] += grown(a) * np.sqrt(x[i])


def times(device: str) -> Kernel:
    types = [np.float32, InOut[np.float32], np.int32]
    return Kernel.compile(SOURCE, "times", types, options=["-DFACTOR=10"], device=device)


def test_another_process_runs_kernels_that_came_by_pickle(running_device: str, tmp_path: Path) -> None:
    things: list[tuple[Any, tuple[Any, ...], tuple[Any, ...], str]] = [
        (grow, (2.0,), (), "7.0"),
        (elementwise("y = y * RATE + i", y=InOut[np.float32]), (), (), "7.0"),
        (reduce("sum", "x * RATE", x=np.float32), (), (), "15.0"),
        (times(running_device), (2.0,), (5,), "20.0"),
    ]
    lines = [pickle.dumps(thing[:3]).hex() for thing in things]
    (tmp_path / "pickles").write_text("".join(f"{line}\n" for line in lines))
    code = f"import os; os.chdir({str(tmp_path)!r})\n{USE.format(device=running_device)}"
    assert printed(code).split() == [expected for *_, expected in things]


def test_a_module_and_its_kernels_are_read_again(module: Module, device: str) -> None:
    relu = module.kernel("relu", InOut[np.float32], np.int32)
    for thing in (module.kernel("relu"), relu, pickle.loads(pickle.dumps(module)).kernel("relu")):
        again = pickle.loads(pickle.dumps(thing))
        assert again is not thing and repr(again) == repr(thing)
        x = -ramp(64)
        offload(again, x, np.int32(64), device=device, block=64)
        assert not x.any()


def test_a_launch_and_the_module_of_a_kernel_are_read_again(running_device: str) -> None:
    source = SOURCE.replace("FACTOR", "factor").replace("OA_KERNEL", "OA_DEVICE_VARIABLE(float, factor);\nOA_KERNEL", 1)
    scale = Kernel.compile(source, "times", [np.float32, InOut[np.float32], np.int32], device=running_device)
    launch, module = pickle.loads(pickle.dumps((scale[2, 8, 16], scale.module)))
    assert repr(launch) == repr(scale[2, 8, 16]) and launch.kernel is not scale
    module.variable("factor", np.float32, device=running_device).assign(5)
    x = ramp(12)
    with offload_args(x, device=running_device) as (dx,):
        launch(2.0, dx, 12)
    assert np.array_equal(x, 10 * ramp(12))
    module.unload()


def test_a_kernel_is_its_own_copy(module: Module) -> None:
    relu = module.kernel("relu", InOut[np.float32], np.int32)
    for thing in (relu, grow, grown):
        assert copy.copy(thing) is copy.deepcopy(thing) is thing


def test_a_pickle_keeps_whether_accesses_are_checked(running_device: str) -> None:
    def shifted(x: In[np.float32], y: Out[np.float32].by(Linear1D())):
        for i in y.mine():
            y[i] = x[i + 1]

    for debug in (None, True, False):
        again = pickle.loads(pickle.dumps(kernel(debug=debug)(shifted)))
        assert (again._checked is not None, again._always_checked) == (debug is not False, debug is True)
    if running_device in ("host", "sim:0"):
        with pytest.raises(errors.ExtentError):
            offload(pickle.loads(pickle.dumps(kernel(shifted))), ramp(4), ramp(4), device=running_device)


def test_a_function_of_kernels_that_came_by_pickle_says_that_python_can_not_call_it() -> None:
    again = pickle.loads(pickle.dumps(grown))
    assert again.__name__ == "grown" and again.__doc__ == grown.__doc__
    with pytest.raises(errors.KernelError, match=r"test_pickles\.py:\d+: grown: .* import its module, to call it"):
        again(2.0)
