"""rocBLAS, tested with a double of a few functions, in two versions. No AMD device has run these tests."""

from __future__ import annotations

import subprocess
from pathlib import Path

import numpy as np
import pytest

from helpers.processes import printed
from offload_args import libraries, offload_args, rocblas
from offload_args.errors import LibraryError, LibraryVersionError, WrongDeviceError

BEGIN = """
import os
import numpy as np
from offload_args import offload_args, Out, rocblas, testing
from offload_args.errors import *
library = testing.library("rocblas", os.environ["DOUBLE"], backend="sim")
numbers = np.random.default_rng(7)
def matrix(rows, columns):
    return np.asfortranarray(numbers.integers(-9, 10, (rows, columns)).astype(np.float32))
"""
TRMM = """
A, B, C = np.tril(matrix(4, 4)), matrix(4, 3), matrix(5, 3)
wanted = 2 * A @ B
arguments = (rocblas.side_left, rocblas.fill_lower, rocblas.operation_none, rocblas.diagonal_non_unit, 4, 3, 2.0)
rows_below = C[4].copy()
with offload_args(np.asfortranarray(A), B, C, device="sim:0") as (dA, dB, dC):
    rocblas.strmm(*arguments, dA, 4, dB, 4, dC, 5)
assert (C[:4] == wanted).all() and (C[4] == rows_below).all()
with offload_args(np.asfortranarray(A), B, device="sim:0") as (dA, dB):
    rocblas.strmm(*arguments, dA, 4, dB, 4, dB, 4)
assert (B == wanted).all()
print(library.version)
"""
OUT_OF_PLACE = """
x = np.ones(3, np.float32)
with offload_args(x, device="sim:0") as (dx,):
    try:
        rocblas.strmm_outofplace(rocblas.side_left, rocblas.fill_lower, rocblas.operation_none,
                                 rocblas.diagonal_non_unit, 1, 1, 2.0, dx, 1, dx[1:], 1, dx[2:], 1)
    except LibraryVersionError as error:
        print(error)
print(x)
"""
WIDE = """
x = np.ones(3, np.float32)
with offload_args(x, device="sim:0") as (dx,):
    try:
        rocblas.sscal(2**31, 0.0, dx, 0)
        print("64-bit form")
    except LibraryVersionError as error:
        print(error)
"""
RAW = """
ffi = rocblas.raw.ffi
rocblas.raw.rocblas_create_handle(ffi.new("rocblas_handle *"))
try:
    rocblas.raw.rocblas_strmm(ffi.NULL, 0, 0, 0, 0, 0, 0, ffi.NULL, ffi.NULL, 0, ffi.NULL, 0, ffi.NULL, 0)
except LibraryError as error:
    print(type(error).__name__, error)
"""

SIZES = """
raw = rocblas.raw
handle, taken, memory = raw.ffi.new("rocblas_handle *"), raw.ffi.new("struct rocblas_device_malloc_base **"), []
raw.rocblas_create_handle(handle)
assert raw.rocblas_device_malloc_alloc(handle[0], taken, 3, 100, 1, 64) == 0
assert raw.rocblas_device_malloc_success(taken[0])
for index in range(3):
    address = raw.ffi.new("void **")
    raw.rocblas_device_malloc_get(taken[0], index, address)
    memory.append(int(raw.ffi.cast("uintptr_t", address[0])))
assert [address - memory[0] for address in memory] == [0, 128, 192], memory
assert raw.rocblas_device_malloc_free(taken[0]) == 0
assert raw.rocblas_set_optimal_device_memory_size_impl(handle[0], 10, *range(9, 3, -1), 2**64 - 1, 5, 4, 3) == 0
for wrong in ((2, 100), (1, 100, 1), (1, -1), (1, 2**64), (1, 1.0), ()):
    try:
        raw.rocblas_set_optimal_device_memory_size_impl(handle[0], *wrong)
    except (ArgumentError, ArgumentTypeError) as error:
        print(str(error).removeprefix("rocblas.raw.rocblas_set_optimal_device_memory_size_impl: "))
"""


@pytest.fixture(scope="module")
def doubles(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Return {version: the file of its double}."""
    folder = tmp_path_factory.mktemp("rocblas")
    doubles = {}
    for version, *options in (("4.4.1",), ("2.47.0", "-DBEFORE_4")):
        doubles[version] = str(folder / f"librocblas-{version}.so")
        command = ["cc", "-std=c11", "-Wall", "-Werror", "-shared", "-fPIC", f'-DVERSION="{version}"', *options]
        subprocess.run([*command, Path(__file__).with_name("rocblas.c"), "-o", doubles[version]], check=True)
    return doubles


def run(code: str, double: str) -> str:
    return printed(BEGIN + code, DOUBLE=double).strip()


def test_it_is_listed_and_refuses_devices_that_are_not_of_hip() -> None:
    assert "rocblas" in libraries.NAMES and "strmm" in dir(rocblas)
    with (
        offload_args(np.ones(3, np.float32), device="host") as (dx,),
        pytest.raises(WrongDeviceError, match=r"rocblas\.sscal: x is on host, needs to be on a hip device"),
    ):
        rocblas.sscal(3, 2.0, dx, 1)


def test_functions_compute_with_numbers_on_host_and_device(doubles: dict[str, str]) -> None:
    code = """
A, x, y = matrix(4, 3), matrix(3, 1)[:, 0], np.full(4, np.nan, np.float32)
with offload_args(A, x, Out(y), device="sim:0") as (dA, dx, dy):
    rocblas.sgemv(rocblas.operation_none, 4, 3, 2.0, dA, 4, dx, 1, 0.0, dy, 1)
assert (y == 2 * A @ x).all()
X, Y, dots, places = matrix(3, 4), matrix(3, 4), np.empty(4, np.float32), np.empty(4, np.int32)
with offload_args(X, Y, Out(dots), Out(places), device="sim:0") as (dX, dY, results, indices):
    rocblas.sdot_strided_batched(3, dX, 1, 3, dY, 1, 3, 4, results)
    rocblas.isamax_strided_batched(3, dX, 1, 3, 4, indices)
assert (dots == (X * Y).sum(axis=0)).all()
assert (places == X.argmax(axis=0) + 1).all()
print("fine")
"""
    assert run(code, doubles["4.4.1"]) == "fine"


@pytest.mark.later
def test_a_call_that_had_less_memory_than_it_wanted_has_done_its_work(doubles: dict[str, str]) -> None:
    code = """
handle = rocblas.create_handle("sim:0")
A, x, y = matrix(4, 3), matrix(3, 1)[:, 0], np.full(4, np.nan, np.float32)
rocblas.set_device_memory_size(handle, 1)
with offload_args(A, x, Out(y), device="sim:0") as (dA, dx, dy):
    rocblas.sgemv(rocblas.operation_none, 4, 3, 2.0, dA, 4, dx, 1, 0.0, dy, 1, handle=handle)
assert (y == 2 * A @ x).all()
print("fine")
"""
    assert run(code, doubles["4.4.1"]) == "fine"


@pytest.mark.later
def test_calls_in_a_query_of_memory_say_what_they_need_and_write_nothing(doubles: dict[str, str]) -> None:
    code = """
handle = rocblas.create_handle("sim:0")
A, x, y = matrix(4, 3), matrix(3, 1)[:, 0], np.arange(4, dtype=np.float32)
with offload_args(A, x, y, device="sim:0") as (dA, dx, dy):
    rocblas.start_device_memory_size_query(handle)
    for columns in 3, 0:
        rocblas.sgemv(rocblas.operation_none, 4, columns, 2.0, dA, 4, dx, 1, 0.0, dy, 1, handle=handle)
    print(rocblas.stop_device_memory_size_query(handle))
assert (y == np.arange(4)).all()
with offload_args(A, x, y, device="sim:0") as (dA, dx, dy):
    rocblas.start_device_memory_size_query(handle)
    rocblas.sgemv(rocblas.operation_none, 4, 3, 2.0, dA, 4, dx, 1, 0.0, dy, 1, handle=handle)
    rocblas.stop_device_memory_size_query(handle)
    rocblas.sscal(4, 2.0, dy, 1)
assert (y == 2 * np.arange(4)).all()
"""
    assert run(code, doubles["4.4.1"]) == "640"


@pytest.mark.later
def test_raw_returns_a_status_that_is_not_a_failure(doubles: dict[str, str]) -> None:
    code = """
raw, ffi = rocblas.raw, rocblas.raw.ffi
handle = ffi.new("rocblas_handle *")
raw.rocblas_create_handle(handle)
raw.rocblas_start_device_memory_size_query(handle[0])
number = ffi.new("float *")
print(raw.rocblas_sgemv(handle[0], 111, 1, 1, number, number, 1, number, 1, number, number, 1))
"""
    assert run(code, doubles["4.4.1"]) == "9"


@pytest.mark.later
@pytest.mark.parametrize("version", ["4.4.1", "2.47.0"])
def test_trmm_is_one_function_in_every_version(doubles: dict[str, str], version: str) -> None:
    assert run(TRMM, doubles[version]) == f"{version}.abcdef01"


@pytest.mark.later
def test_a_function_of_older_versions_only_names_both_versions(doubles: dict[str, str]) -> None:
    assert run(OUT_OF_PLACE, doubles["2.47.0"]) == "[1. 1. 2.]"
    text = run(OUT_OF_PLACE, doubles["4.4.1"])
    assert "has no rocblas_strmm_outofplace: its version is 4.4.1.abcdef01; version 2.47.0 has it" in text
    assert text.endswith("[1. 1. 1.]")


@pytest.mark.later
def test_a_64_bit_form_that_the_loaded_version_lacks_names_both_versions(doubles: dict[str, str]) -> None:
    assert run(WIDE, doubles["4.4.1"]) == "64-bit form"
    text = run(WIDE, doubles["2.47.0"])
    assert "has no rocblas_sscal_64: its version is 2.47.0.abcdef01; version 4.4.1 has it" in text


@pytest.mark.later
def test_raw_refuses_a_function_that_takes_other_arguments_in_the_loaded_version(doubles: dict[str, str]) -> None:
    assert run(RAW, doubles["4.4.1"]) == (
        "LibraryError rocblas.raw.rocblas_strmm: the library returned rocblas_status_invalid_value (11)"
    )
    text = run(RAW, doubles["2.47.0"])
    assert text.startswith("LibraryVersionError rocblas.raw.rocblas_strmm: before version 4.0 it takes other arguments")
    assert text.endswith("call rocblas_strmm_outofplace")


def test_the_error_is_one_that_programs_catch() -> None:
    assert issubclass(LibraryVersionError, LibraryError) and issubclass(LibraryVersionError, NotImplementedError)


@pytest.mark.later
@pytest.mark.parametrize(
    ("call", "kind", "text"),
    [
        ('testing.library("rocblas", "/other.so")', "LibraryError", "testing: rocblas is loaded already"),
        ('testing.library("nothing", "/x.so")', "ArgumentError", "library needs the name of a library of this build"),
        ('testing.library("cblas", "/x.so", "vulkan")', "ArgumentError", "backend needs the name of one of this build"),
        ('testing.library("cblas", "/x.so")', "LibraryError", "/x.so"),
    ],
)
def test_a_double_that_cannot_be_taken_is_refused(doubles: dict[str, str], call: str, kind: str, text: str) -> None:
    code = f"try:\n    {call}\nexcept OffloadError as error:\n    print(type(error).__name__, error)"
    said = run(code, doubles["4.4.1"])
    assert said.startswith(kind) and text in said


@pytest.mark.later
def test_functions_of_any_number_of_sizes_are_called_through_raw(doubles: dict[str, str]) -> None:
    lines = printed(BEGIN + SIZES, DOUBLE=doubles["4.4.1"]).splitlines()
    assert lines[:2] == ["got 1 sizes, and 2 as their number", "got 2 sizes, and 1 as their number"]
    assert [line.rpartition("got ")[2] for line in lines[2:5]] == ["-1", str(2**64), "1.0"]
    assert lines[5].startswith("needs 2 arguments, got 1")
