"""Devices whose driver says how they read the host's memory. Only doubles of the drivers have run these tests."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from helpers.processes import printed
from offload_args import offload_args

SAID = """
import numpy as np
from offload_args import Device, _core, offload_args, testing, update
device, x, y = Device("{name}"), np.ones(1000), np.ones(1000)
with testing.counting(device) as moved:
    with offload_args(x, y, device=device) as (dx, dy):
        dx.fill(3)
        update(x[:500])
        dy.copy_from(dx)
    try:
        with offload_args(x, device=device) as (dx,):
            dx.fill(4)
            raise KeyError
    except KeyError:
        pass
print(_core.device_info(device.number).reads_host, device.coherent, x.sum(), y.sum())
print(moved.bytes_up + moved.bytes_down)
"""


def is_a_double(name: str) -> bool:
    """Whether the driver of the device is a double, whose answers the environment sets."""
    with offload_args(np.ones(1), device=name):  # the driver is loaded
        return "/build/doubles/" in Path("/proc/self/maps").read_text()


def check(name: str) -> None:
    """Check every answer of the driver with every mode; nothing is said of a real driver."""
    if not is_a_double(name):
        return
    code = SAID.format(name=name)

    def said(reads: str, mode: str) -> list[str]:
        return printed(code, GPU_DOUBLE_READS_HOST=reads, OFFLOAD_ARGS_COHERENT=mode).split("\n")

    assert said("0", "auto")[0] == said("0", "always")[0] == "0 False 3000.0 3000.0"
    assert said("1", "auto")[0] == "1 False 3000.0 3000.0"
    assert said("1", "always") == ["1 True 3000.0 3000.0", "0", ""]
    assert said("2", "auto") == ["2 True 3000.0 3000.0", "0", ""]
    assert said("2", "never")[0] == "2 False 3000.0 3000.0"


@pytest.mark.promise("T79")
def test_the_attributes_of_cuda_decide(cuda: str) -> None:
    check(cuda)


@pytest.mark.promise("T79")
def test_the_attributes_of_hip_decide(hip: str) -> None:
    check(hip)
