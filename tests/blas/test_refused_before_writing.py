"""Functions with devices check every operand before anything moves, and before any array is written."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from helpers.devices import open_or_skip
from helpers.small_tiles import small_tiles
from offload_args import In, InOut, Out, blas, lapack, offload_args, testing
from offload_args.errors import (
    AliasError,
    ArgumentError,
    DeviceMemoryError,
    DirectionError,
    DTypeError,
    PresentError,
)

__all__ = ["small_tiles"]

pytestmark = pytest.mark.usefixtures("small_tiles")

N = 40
#: {function: (its operands, in order; the operands that it writes; a call with the operands)}.
FUNCTIONS: dict[str, tuple[str, str, Callable[..., None]]] = {
    "blas.gemm": ("A B C", "C", lambda A, B, C, **on: blas.gemm(1.0, A, B, 1.0, C, **on)),
    "blas.symm": ("A B C", "C", lambda A, B, C, **on: blas.symm(1.0, A, B, 1.0, C, **on)),
    "blas.syrk": ("A C", "C", lambda A, C, **on: blas.syrk(1.0, A, 1.0, C, **on)),
    "blas.syr2k": ("A B C", "C", lambda A, B, C, **on: blas.syr2k(1.0, A, B, 1.0, C, **on)),
    "blas.trmm": ("A B", "B", lambda A, B, **on: blas.trmm(1.0, A, B, **on)),
    "blas.trsm": ("A B", "B", lambda A, B, **on: blas.trsm(1.0, A, B, **on)),
    "lapack.potrf": ("A", "A", lambda A, **on: lapack.potrf(A, **on)),
    "lapack.potrs": ("A B", "B", lambda A, B, **on: lapack.potrs(A, B, **on)),
    "lapack.posv": ("A B", "A B", lambda A, B, **on: lapack.posv(A, B, **on)),
    "lapack.getrf": ("A ipiv", "A ipiv", lambda A, ipiv, **on: lapack.getrf(A, ipiv, **on)),
    "lapack.getrs": ("A ipiv B", "B", lambda A, ipiv, B, **on: lapack.getrs(A, ipiv, B, **on)),
    "lapack.gesv": ("A ipiv B", "A ipiv B", lambda A, ipiv, B, **on: lapack.gesv(A, ipiv, B, **on)),
}
OPERANDS = [(name, operand) for name, (operands, _, _) in FUNCTIONS.items() for operand in operands.split()]
WRITTEN = [(name, operand) for name, operand in OPERANDS if operand in FUNCTIONS[name][1].split()]
MATRICES = [(name, operand) for name, operand in OPERANDS if operand != "ipiv"]
Arrays = dict[str, NDArray[Any]]


def arrays_of(name: str) -> Arrays:
    """Return operands with which the function succeeds."""
    random = np.random.default_rng(3)
    values: Arrays = {key: random.standard_normal((N, N)) for key in "ABC"}
    values["A"] = values["A"] @ values["A"].T + N * np.eye(N)
    values["ipiv"] = np.arange(1, N + 1, dtype=np.int32)
    return {key: values[key] for key in FUNCTIONS[name][0].split()}


def check_refused(
    name: str, operand: str, arrays: Arrays, devices: list[str], kinds: type[Exception] | tuple[type[Exception], ...]
) -> None:
    """Require that a call names an operand, writes nothing, and moves nothing."""
    before = {key: array.copy() for key, array in arrays.items()}
    with ExitStack() as stack:
        moved = [stack.enter_context(testing.counting(device)) for device in devices]
        with pytest.raises(kinds, match=rf"^{name}: .*\b{operand}\b"):
            FUNCTIONS[name][2](**arrays, devices=devices)
    assert sum(counters.bytes_up + counters.bytes_down for counters in moved) == 0
    for key, array in arrays.items():
        np.testing.assert_array_equal(array, before[key], err_msg=key)


@pytest.fixture
def devices() -> list[str]:
    return [open_or_skip("sim:0"), open_or_skip("sim:1")]


@pytest.mark.parametrize(("name", "operand"), WRITTEN)
def test_a_result_that_is_lent_as_in(name: str, operand: str) -> None:
    arrays = arrays_of(name)
    with offload_args(In(arrays[operand]), device="sim:0"):
        check_refused(name, operand, arrays, ["sim:0"], (DirectionError, PresentError))


@pytest.mark.parametrize(("name", "operand"), MATRICES)
@pytest.mark.filterwarnings("ignore::offload_args.errors.UnwrittenWarning")
def test_an_operand_that_is_lent_as_out_and_not_written(name: str, operand: str) -> None:
    arrays = arrays_of(name)
    with offload_args(Out(arrays[operand]), device="sim:0"):
        check_refused(name, operand, arrays, ["sim:0"], (DirectionError, PresentError))


@pytest.mark.parametrize(("name", "operand"), WRITTEN)
def test_a_result_that_is_lent_to_one_of_two_devices(name: str, operand: str, devices: list[str]) -> None:
    arrays = arrays_of(name)
    with offload_args(InOut(arrays[operand]), device="sim:0"):
        check_refused(name, operand, arrays, devices, (DirectionError, PresentError))


@pytest.mark.parametrize(("name", "operand"), MATRICES)
def test_an_operand_that_is_newer_on_one_of_two_devices(name: str, operand: str, devices: list[str]) -> None:
    arrays = arrays_of(name)
    with offload_args(arrays[operand], device="sim:0") as (pointer,):
        pointer.assign(arrays[operand])
        check_refused(name, operand, arrays, devices, (DirectionError, PresentError))


@pytest.mark.parametrize(("name", "operand"), OPERANDS)
def test_an_operand_that_is_lent_in_part(name: str, operand: str) -> None:
    arrays = arrays_of(name)
    with offload_args(arrays[operand][3:7], device="sim:0"):
        check_refused(name, operand, arrays, ["sim:0"], PresentError)


@pytest.mark.parametrize(("name", "operand"), WRITTEN)
def test_a_result_that_is_read_only(name: str, operand: str) -> None:
    arrays = arrays_of(name)
    arrays[operand].flags.writeable = False
    check_refused(name, operand, arrays, ["sim:0"], DirectionError)


@pytest.mark.parametrize(("name", "operand"), OPERANDS)
def test_another_dtype(name: str, operand: str) -> None:
    arrays = arrays_of(name)
    arrays[operand] = arrays[operand].astype(np.int64 if operand in ("A", "ipiv") else np.float32)
    check_refused(name, operand, arrays, ["sim:0"], DTypeError)


@pytest.mark.parametrize(("name", "operand"), OPERANDS)
def test_a_row_too_few(name: str, operand: str) -> None:
    arrays = arrays_of(name)
    arrays[operand] = arrays[operand][:-1]
    check_refused(name, r"(has|of) shape", arrays, ["sim:0"], ArgumentError)


@pytest.mark.parametrize(
    ("name", "operand", "other"),
    [(name, operand, other) for name, operand in WRITTEN for other in FUNCTIONS[name][0].split() if other != operand],
)
def test_a_result_that_shares_memory(name: str, operand: str, other: str) -> None:
    arrays = arrays_of(name)
    if "ipiv" in (operand, other):
        matrix = other if operand == "ipiv" else operand
        arrays["ipiv"] = arrays[matrix].view(np.int32)[0, :N]
    else:
        arrays[operand] = arrays[other].T
    check_refused(name, operand, arrays, ["sim:0"], AliasError)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_device_that_is_too_small(name: str) -> None:
    arrays = arrays_of(name)
    testing.sim_device(capacity=4096)
    try:
        check_refused(name, r"sim:0", arrays, ["sim:0"], DeviceMemoryError)
    finally:
        testing.sim_device()
