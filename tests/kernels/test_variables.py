"""Variables of modules: device and constant memory to which kernels refer by name."""

from __future__ import annotations

import gc
from collections import UserList
from pathlib import Path

import numpy as np
import pytest

from helpers.arrays import ramp
from helpers.interrupts import ctrl_c_at_end_of
from offload_args import In, InOut, Kernel, Module, Out, Scratch, errors, offload, offload_args

SOURCE = """\
#include <offload_args/kernel.h>
OA_CONSTANT_VARIABLE(float, weights[3][2]);
OA_DEVICE_VARIABLE(int, launches);
OA_KERNEL(weigh, oa::In<float> x, oa::Out<float> y, int n) {
  for (auto element : y.mine(oa::Linear1D(n), here)) {
    const long long i = element.index();
    *element = x[i] * weights[i % 3][i % 2];
    if (i == 0) launches++;
  }
}
"""
WEIGH = (In[np.float32], Out[np.float32], np.int32)
N = 101
W = np.array([[1, 2], [3, 4], [5, 6]], np.float32)


def weighed(x: np.ndarray) -> np.ndarray:
    i = np.arange(x.size)
    return x * W[i % 3, i % 2]


@pytest.mark.later("unchecked")
@pytest.mark.parametrize("debug", [None, False], ids=["default", "unchecked"])
def test_a_kernel_reads_a_constant_and_counts_in_a_variable(device: str, debug: bool | None) -> None:
    weigh = Kernel.compile(SOURCE, "weigh", WEIGH, device=device, debug=debug)
    module = weigh.module
    weights = module.variable("weights", np.float32, (3, 2), device=device)
    launches = module.variable("launches", np.int32, device=device)
    assert (weights.shape, weights.dtype, weights.device.name) == ((3, 2), np.float32, device)
    x, y = ramp(N), np.zeros(N, np.float32)
    for factor in (1, 2):
        weights.assign(W * factor)
        offload(weigh, x, y, N, device=device)
        np.testing.assert_array_equal(y, weighed(x) * factor)
    assert module["launches"].to_host() == 2
    np.testing.assert_array_equal(weigh.module["weights"].to_host(), 2 * W)
    module.unload()
    assert not weights.live and not launches.live


@pytest.mark.later
def test_ctrl_c_while_a_module_goes_is_not_lost(device: str) -> None:
    weigh = Kernel.compile(SOURCE, "weigh", WEIGH, device=device, debug=False)
    weights = weigh.module.variable("weights", np.float32, (3, 2), device=device)
    x, y = ramp(N), np.zeros(N, np.float32)
    offload(weigh, x, y, N, device=device)
    owner = UserList([weigh])
    going = ctrl_c_at_end_of(owner)
    del weigh
    with pytest.raises(KeyboardInterrupt):
        del owner
        for _ in range(10_000):
            pass
    gc.collect()
    assert not weights.live and going() is None


@pytest.mark.later
def test_variables_are_ordered_with_launches_on_other_streams(device: str) -> None:
    weigh = Kernel.compile(SOURCE, "weigh", WEIGH, device=device, debug=False)
    launches = weigh.module.variable("launches", np.int32, device=device)
    launches.fill(0)
    x = ramp(N)
    with offload_args(x, Scratch(N, np.float32), device=device) as (dx, dy):
        for i in range(50):
            weigh[4, 32](dx, dy, N)
            if i == 19:
                launches.fill(100)
    assert launches.to_host() == 130
    weigh.module.unload()


@pytest.mark.later
def test_a_variable_is_an_operand_like_any_other(device: str) -> None:
    weigh = Kernel.compile(SOURCE, "weigh", WEIGH, device=device, debug=False)
    weights = weigh.module.variable("weights", np.float32, (6,), device=device)
    relu = Kernel.compile(
        "#include <offload_args/kernel.h>\nOA_KERNEL(relu, oa::InOut<float> x, int n) {\n"
        "  for (auto element : x.mine(oa::Linear1D(n), here)) if (*element < 0) *element = 0;\n}\n",
        "relu", [InOut[np.float32], np.int32], device=device,
    )  # fmt: skip
    weights.assign(np.array([-1, 2, -3, 4, -5, 6], np.float32))
    relu[1, 32](weights[2:], 4)
    np.testing.assert_array_equal(weights.to_host(), [-1, 2, 0, 4, 0, 6])
    y = np.zeros(6, np.float32)
    offload(weigh, weights, y, 6, device=device)  # the kernel's own constant is also its argument
    np.testing.assert_array_equal(y[:4], [1, 8, 0, 8])
    weigh.module.unload()


@pytest.mark.later
def test_variables_of_a_saved_module(device: str, tmp_path: Path) -> None:
    Kernel.compile(SOURCE, "weigh", WEIGH, device=device, debug=False).save(tmp_path / "weigh")
    module = Module.load(tmp_path / "weigh")
    if module.format == "shared object" and device.startswith("cuda"):
        pytest.skip("device unavailable: a double, which has no modules of its own")
    weights = module.variable("weights", np.float32, (3, 2), device=device)
    weights.assign(W)
    x, y = ramp(N), np.zeros(N, np.float32)
    offload(module.kernel("weigh", *WEIGH), x, y, N, device=device)
    np.testing.assert_array_equal(y, weighed(x))
    del module
    gc.collect()
    assert not weights.live


def test_a_variable_that_is_not_there_or_of_another_size_is_refused(device: str) -> None:
    module = Kernel.compile(SOURCE, "weigh", WEIGH, device=device).module
    with pytest.raises(errors.ModuleError, match="nothing: the module has no variable of that name"):
        module.variable("nothing", np.float32, device=device)
    with pytest.raises(errors.SignatureError, match=r"float64 of shape \(3, 2\) has 48 bytes; .* has 24"):
        module.variable("weights", np.float64, (3, 2), device=device)
    with pytest.raises(errors.ModuleError, match="variable 'weights' has no dtype yet: declare it by module.variable"):
        module["weights"]
    with pytest.raises(errors.SignatureError, match="can't hold elements of object"):
        module.variable("weights", object, device=device)
    with pytest.raises(errors.ArgumentTypeError, match="shape needs whole numbers"):
        module.variable("weights", np.float32, 1.5, device=device)  # type: ignore[arg-type]
    module.unload()
