"""What every test has: the devices of this machine one by one, and an empty present table at its end."""

from __future__ import annotations

import gc
import os
import signal
from collections.abc import Iterator
from types import ModuleType

import pytest

from offload_args import Device, cblas, cublas, testing
from offload_args.errors import DeviceUnavailableError

DEVICES = ("host", "sim:0", "cuda:0")


def open_or_skip(name: str) -> str:
    """Return the name of a device that is here; else skip, or fail where OFFLOAD_ARGS_REQUIRE asks for it.

    OFFLOAD_ARGS_REQUIRE names backends, of which the first device will do ("cuda"), and devices ("cuda:1").
    """
    backend, _, index = name.partition(":")
    try:
        Device(name)
    except DeviceUnavailableError as error:
        required = os.environ.get("OFFLOAD_ARGS_REQUIRE", "").split(",")
        if name in required or (backend in required and index in ("", "0")):
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


@pytest.fixture(scope="module", autouse=True)
def collections_are_short() -> Iterator[None]:
    """Leave what imports and other tests made out of garbage collections: many tests collect, some a hundred times."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.fixture(scope="session", autouse=True)
def ctrl_c_arrives() -> Iterator[None]:
    """Take SIGINT here and in children: a program that is started in the background ignores it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture(autouse=True)
def nothing_stays_present() -> Iterator[None]:
    yield
    testing.no_mappings_left()
