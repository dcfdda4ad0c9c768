"""Instances of templates: kernels by their names in C++."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from helpers.arrays import ramp
from offload_args import InOut, Kernel, Module, errors, offload

SOURCE = """\
#include <offload_args/kernel.h>
template <class T, int factor>
OA_TEMPLATE_KERNEL(scale, oa::InOut<T> x, T by, int n) {
  for (auto element : x.mine(oa::Linear1D(n), here)) *element *= by * factor;
}
"""


def scale(device: str, dtype: type, expression: str) -> Kernel:
    try:
        return Kernel.compile(SOURCE, expression, [InOut[dtype], dtype, np.int32], device=device)
    except errors.LibraryError as error:
        if "AddNameExpression" not in str(error):
            raise
        pytest.skip("device unavailable: a double, which has no name expressions")


@pytest.mark.later(but="float")
@pytest.mark.parametrize(("dtype", "name"), [(np.float32, "float"), (np.int64, "long long")])
def test_an_instance_of_a_template_runs_on_every_device(device: str, dtype: type, name: str) -> None:
    kernel = scale(device, dtype, f"scale<{name}, 2>")
    x = ramp(101).astype(dtype)
    offload(kernel, x, 3, 101, device=device)
    np.testing.assert_array_equal(x, 6 * ramp(101).astype(dtype))
    assert kernel.name == f"scale<{name}, 2>"


def test_an_instance_is_in_the_saved_module_by_its_symbol(device: str, tmp_path: Path) -> None:
    kernel = scale(device, np.float32, "scale<float, 2>")
    kernel.save(tmp_path / "scale")
    module = Module.load(tmp_path / "scale")
    assert list(module.kernels) == [kernel.symbol]
    x = ramp(10)
    offload(module.kernel(kernel.symbol, InOut[np.float32], np.float32, np.int32), x, 1, 10, device=device)
    np.testing.assert_array_equal(x, 2 * ramp(10))


@pytest.mark.later
def test_an_instance_that_there_is_not_is_refused_with_the_log(device: str) -> None:
    scale(device, np.float32, "scale<float, 2>")
    with pytest.raises(errors.ModuleError, match="refuses scale<float>"):
        Kernel.compile(SOURCE, "scale<float>", [InOut[np.float32], np.float32, np.int32], device=device)
