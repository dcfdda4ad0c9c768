"""The devices of this machine, for tests."""

from __future__ import annotations

import os

import pytest

from offload_args import Device, libraries, testing
from offload_args.errors import DeviceUnavailableError, LibraryError

HIP = os.environ.get("OFFLOAD_ARGS_TEST_HIP", "hip:0")  # the AMD device that tests use


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


def library_or_skip(library: str, device: str) -> None:
    """Load the library of a device that is here; skip if it is not installed, unless OFFLOAD_ARGS_REQUIRE names it."""
    try:
        libraries.load(library)
    except LibraryError as error:
        if library in os.environ.get("OFFLOAD_ARGS_REQUIRE", "").split(","):
            pytest.fail(f"OFFLOAD_ARGS_REQUIRE needs {library}: {error}")
        pytest.skip(f"device unavailable: no {library} for {device}")
