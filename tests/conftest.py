"""What every test has: the devices of this machine one by one, and an empty present table at its end."""

from __future__ import annotations

import os
from collections.abc import Iterator
from types import ModuleType

import pytest

from offload_args import Device, cblas, cublas, testing
from offload_args.errors import DeviceUnavailableError

DEVICES = ("host", "sim:0", "cuda:0")


def open_or_skip(name: str) -> str:
    """Return the name of a device that is here; else skip, or fail where OFFLOAD_ARGS_REQUIRE names its backend."""
    backend, _, index = name.partition(":")
    try:
        Device(name)
    except DeviceUnavailableError as error:
        if backend in os.environ.get("OFFLOAD_ARGS_REQUIRE", "").split(","):
            pytest.fail(f"OFFLOAD_ARGS_REQUIRE needs {name}: {error}")
        pytest.skip("device unavailable")
    if backend == "sim":
        testing.sim_device(index=int(index))
    return name


@pytest.fixture(params=DEVICES)
def device(request: pytest.FixtureRequest) -> str:
    """The name of a device that is here."""
    return open_or_skip(request.param)


@pytest.fixture
def cuda() -> str:
    """The name of the first GPU."""
    return open_or_skip("cuda:0")


@pytest.fixture
def library(device: str) -> ModuleType:
    """The library whose functions run on the device."""
    return cublas if device.startswith("cuda") else cblas


@pytest.fixture(autouse=True)
def nothing_stays_present() -> Iterator[None]:
    yield
    testing.no_mappings_left()
