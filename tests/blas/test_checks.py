"""Functions that check calls before they make a call end their own checks, and restore the checks of C code."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator

import numpy as np
import pytest

from helpers.interrupts import at_every_place
from offload_args import DevicePtr, _core, blas, embedding, offload_args
from offload_args._operands import checking
from offload_args.errors import ArgumentError


@pytest.fixture
def checks() -> Iterator[ctypes.CDLL]:
    """The core of a C program that lets the calls of this thread be checked only."""
    core = ctypes.CDLL(embedding.get_library())
    core.oa_only_check(1)
    yield core
    core.oa_only_check(0)


def test_functions_that_check_restore_the_mode_of_c_code_and_its_count(checks: ctypes.CDLL) -> None:
    x = np.arange(4.0)
    with offload_args(x, device="host") as (dx,):
        for expected, check in enumerate(
            (
                lambda: _core.overlaps(dx[:2], dx[1:]),
                lambda: _core.overlaps(dx[:2], dx[2:]),
                checked_block(dx),
            ),
        ):
            with pytest.raises(ArgumentError, match="checked, and not made"):
                dx.fill(1)
            check()
            assert checks.oa_only_checks(), expected
        assert checks.oa_only_check(0) == 3
        dx.fill(2)
    assert np.array_equal(x, np.full(4, 2.0))


def checked_block(pointer: DevicePtr) -> Callable[[], None]:
    def check() -> None:
        with checking():
            pointer.fill(3)

    return check


def test_the_check_of_captured_calls_restores_the_mode_of_c_code() -> None:
    core = ctypes.CDLL(embedding.get_library())
    x = np.arange(4.0)
    region = offload_args(x, device="host")
    with region as (dx,):
        with region.capture(x=dx) as graph:
            blas.scal(2.0, dx)
        core.oa_only_check(1)
        try:
            with pytest.raises(ArgumentError, match="checked, and not made"):
                graph.replay(x=np.ones(4))  # checks its calls before it writes x
            assert core.oa_only_checks()
        finally:
            assert core.oa_only_check(0) == 1


def test_ctrl_c_in_a_block_of_checks_ends_them() -> None:
    x = np.arange(4.0)

    def check() -> None:
        with offload_args(x, device="host") as (dx,):
            with checking():
                dx.fill(1)
            dx.fill(2)

    for _ in at_every_place(check):
        with offload_args(x, device="host") as (dx,):
            dx.fill(3)
        assert (x == 3).all()
