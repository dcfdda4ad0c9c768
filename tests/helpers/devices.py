"""The devices of this machine, for tests."""

from __future__ import annotations

import os
from typing import overload

import pytest

from offload_args import Device, _core, libraries, testing
from offload_args.errors import DeviceUnavailableError, LibraryError, LibraryVersionError

HIP = os.environ.get("OFFLOAD_ARGS_TEST_HIP", "hip:0")  # the AMD device that tests use


def is_required(name: str) -> bool:
    """Return whether OFFLOAD_ARGS_REQUIRE names a device.

    The variable names devices ("cuda:1"), and backends, which stand for their first devices ("cuda").
    """
    backend, _, index = name.partition(":")
    required = os.environ.get("OFFLOAD_ARGS_REQUIRE", "").split(",")
    return name in required or (backend in required and index in ("", "0"))


def here(*names: str) -> tuple[str, ...]:
    """Return the devices among `names` that can be opened, or are required.

    For a missing device, thousands of skipped tests are not made; only tests that name it alone report its absence.
    """
    return tuple(name for name in names if is_required(name) or _opens(name))


def _opens(name: str) -> bool:
    try:
        Device(name)
    except DeviceUnavailableError:
        return False
    return True


def open_or_skip(name: str) -> str:
    """Return the name of a device of this machine. If it is missing, skip, or fail if OFFLOAD_ARGS_REQUIRE names it."""
    backend, _, index = name.partition(":")
    try:
        Device(name)
    except DeviceUnavailableError as error:
        if is_required(name):
            pytest.fail(f"OFFLOAD_ARGS_REQUIRE needs {name}: {error}")
        pytest.skip("device unavailable")
    if backend == "sim":
        testing.sim_device(index=int(index))
    return name


@overload
def copied(name: str, count: int, /) -> int: ...
@overload
def copied(name: str, /, *counts: int) -> tuple[int, ...]: ...
def copied(name: str, /, *counts: int) -> int | tuple[int, ...]:
    """Return numbers of copies or bytes, all of them 0 for a device that uses arrays in the host's memory."""
    expected = tuple(0 if works_in_place(name) else count for count in counts)
    return expected if len(expected) > 1 else expected[0]


def works_in_place(name: str) -> bool:
    """Return whether a device uses arrays in the host's memory. It has copies of guarded arrays."""
    return Device(name).coherent and os.environ.get("OFFLOAD_ARGS_GUARD") != "1"


def has_symbol(library: str, symbol: str) -> bool:
    """Return whether this version of a library has a function."""
    try:
        _core.library_address(library, symbol)
    except LibraryVersionError:
        return False
    return True


def library_or_skip(library: str, device: str) -> None:
    """Load the library of a device; skip if the library is not installed, unless OFFLOAD_ARGS_REQUIRE names it."""
    try:
        libraries.load(library)
    except LibraryError as error:
        if library in os.environ.get("OFFLOAD_ARGS_REQUIRE", "").split(","):
            pytest.fail(f"OFFLOAD_ARGS_REQUIRE needs {library}: {error}")
        pytest.skip(f"device unavailable: no {library} for {device}")
