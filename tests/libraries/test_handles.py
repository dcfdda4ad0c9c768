"""Handles of a library as objects, and settings: made, set, queried, used, and destroyed, if need be by Python."""

from __future__ import annotations

import copy
import gc
import importlib
import pickle
import re
from concurrent.futures import ThreadPoolExecutor
from inspect import isroutine
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from helpers.devices import open_or_skip
from helpers.vendor import bound
from offload_args import Device, In, Scratch, cublas, libraries, offload_args
from offload_args.errors import (
    ArgumentError,
    ArgumentTypeError,
    DirectionError,
    ExtentError,
    HostPointerError,
    LibraryError,
    SizeOverflowError,
    StalePointerError,
    WrongDeviceError,
)


def test_a_handle_is_made_shown_and_destroyed(cuda: str) -> None:
    handle = cublas.create(device=cuda)
    assert isinstance(handle, cublas.Handle)
    assert handle.device == Device(cuda)
    assert handle.address
    assert repr(handle) == f"<cublas.Handle of {cuda}>"
    cublas.destroy(handle)
    assert repr(handle) == "<cublas.Handle, destroyed>"
    for use in (cublas.destroy, cublas.get_math_mode, lambda h: h.address, lambda h: h.device, lambda h: h.__enter__()):
        with pytest.raises(StalePointerError, match="was destroyed; make another one"):
            use(handle)


def test_a_block_destroys_its_handle(cuda: str) -> None:
    with cublas.create(cuda) as handle:
        cublas.set_math_mode(handle, cublas.PEDANTIC_MATH)
    with pytest.raises(StalePointerError, match="cublas.get_math_mode: handle was destroyed"):
        cublas.get_math_mode(handle)
    with cublas.create(cuda) as handle:
        cublas.destroy(handle)  # destroying it before the end of the block is allowed


def test_the_last_user_of_a_handle_destroys_it(cuda: str) -> None:
    streams = set()
    for _ in range(50):  # each handle gets the stream of the previous one
        handle = cublas.create(cuda)
        streams.add(cublas.get_stream(handle).__cuda_stream__())
        del handle
        gc.collect()
    assert len(streams) == 1


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("pointer_mode", [cublas.POINTER_MODE_DEVICE, cublas.POINTER_MODE_HOST]),
        (
            "math_mode",
            [
                cublas.TF32_TENSOR_OP_MATH,
                cublas.PEDANTIC_MATH,
                cublas.DEFAULT_MATH | cublas.MATH_DISALLOW_REDUCED_PRECISION_REDUCTION,
                cublas.DEFAULT_MATH,
            ],
        ),
        ("atomics_mode", [cublas.ATOMICS_ALLOWED, cublas.ATOMICS_NOT_ALLOWED]),
        ("sm_count_target", [8, 0]),
    ],
)
def test_a_setting_of_a_handle_is_what_was_set(cuda: str, name: str, values: list[int]) -> None:
    put, get = getattr(cublas, f"set_{name}"), getattr(cublas, f"get_{name}")
    with cublas.create(cuda) as handle, cublas.create(cuda) as other:
        before = get(other)
        for value in values:
            assert put(handle, value) is None
            assert get(handle) == value
        assert get(other) == before


def test_settings_of_emulation_are_what_was_set(cuda: str) -> None:
    settings = {"emulation_strategy": cublas.EMULATION_STRATEGY_PERFORMANT}
    settings |= {"emulation_special_values_support": 0, "fixed_point_emulation_mantissa_control": 1}
    settings |= {"fixed_point_emulation_max_mantissa_bit_count": 40, "fixed_point_emulation_mantissa_bit_offset": 2}
    with cublas.create(cuda) as handle:
        for name, value in settings.items():
            try:
                getattr(cublas, f"set_{name}")(handle, value)
            except LibraryError as error:  # before cuBLAS 13.1
                assert "a newer version of the library is needed" in str(error)
            else:
                assert getattr(cublas, f"get_{name}")(handle) == value


def test_a_setting_that_no_library_knows_is_refused(cuda: str) -> None:
    with cublas.create(cuda) as handle:
        with pytest.raises(ArgumentError, match=r"cublas.set_math_mode: mode needs .*DEFAULT_MATH \(0\).*, got 7"):
            cublas.set_math_mode(handle, 7)
        with pytest.raises(
            ArgumentTypeError, match=r"mode needs a constant of cublas, DEFAULT_MATH, .*, got the str 'fast'$"
        ):
            cublas.set_math_mode(handle, "fast")  # type: ignore[arg-type]
        with pytest.raises(SizeOverflowError, match="smCountTarget needs an integer of at most 31 bits, got .* 16610"):
            cublas.set_sm_count_target(handle, 10**5000)
        with pytest.raises(LibraryError, match="set_sm_count_target: the library returned CUBLAS_STATUS_INV"):
            cublas.set_sm_count_target(handle, -1)
        assert cublas.get_math_mode(handle) == cublas.DEFAULT_MATH


def test_what_is_not_a_handle_is_refused() -> None:
    for wrong in (3, None, "handle", object()):
        with pytest.raises(ArgumentTypeError, match=r"cublas.get_math_mode: handle needs a cublas.Handle, got"):
            cublas.get_math_mode(wrong)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"cublas.Handle: objects of this class are made by functions of its library"):
        cublas.Handle()


def test_a_handle_can_not_be_copied(cuda: str) -> None:
    with cublas.create(cuda) as handle:
        for copied in (copy.copy, copy.deepcopy, pickle.dumps):
            with pytest.raises(TypeError, match=r"cublas.Handle: objects of a library can't be copied or pickled"):
                copied(handle)


def test_calls_use_a_handle_its_stream_and_its_settings(cuda: str) -> None:
    x, y = np.arange(5.0), np.ones(5)
    with cublas.create(cuda) as handle:
        cublas.set_pointer_mode(handle, cublas.POINTER_MODE_DEVICE)
        with offload_args(x, y, device=cuda) as (dx, dy):
            cublas.daxpy(5, 2.0, dx, 1, dy, 1, handle=handle)
            assert cublas.ddot(5, dx, 1, dx, 1, handle=handle) == 30
            cublas.daxpy(5, 2.0, dx, 1, dy, 1)
            cublas.daxpy(5, 2.0, dx, 1, dy, 1, handle=handle.address)
        assert cublas.get_pointer_mode(handle) == cublas.POINTER_MODE_DEVICE
    np.testing.assert_array_equal(y, 1 + 6 * np.arange(5.0))


def test_a_call_with_a_destroyed_handle_moves_nothing(cuda: str) -> None:
    x = np.ones(4)
    handle = cublas.create(cuda)
    cublas.destroy(handle)
    before = Device(cuda).counters.copies_up
    with offload_args(x, device=cuda) as (dx,):
        with pytest.raises(StalePointerError, match="cublas.dscal: handle was destroyed; make another one"):
            cublas.dscal(4, 2.0, dx, 1, handle=handle)
        assert Device(cuda).counters.copies_up == before
    np.testing.assert_array_equal(x, np.ones(4))


def test_a_handle_may_be_destroyed_while_a_region_has_its_results(cuda: str) -> None:
    x = np.ones(1000)
    with offload_args(x, device=cuda) as (dx,):
        with cublas.create(cuda) as handle:
            cublas.dscal(1000, 3.0, dx, 1, handle=handle)
    np.testing.assert_array_equal(x, np.full(1000, 3.0))


def test_a_handle_is_of_one_device(cuda: str) -> None:
    first, second = cuda, open_or_skip("cuda:1")
    x = np.ones(4)
    with cublas.create(second) as handle, offload_args(x, device=first) as (dx,):
        assert handle.device == Device(second)
        with pytest.raises(WrongDeviceError, match=f"handle is of {second}, and x is on {first}; make one for that"):
            cublas.dscal(4, 2.0, dx, 1, handle=handle)
        with offload_args(np.ones(4), device=second) as (dz,):
            cublas.dscal(4, 2.0, dz, 1, handle=handle)


def test_a_handle_of_a_device_without_the_library_is_refused(cuda: str) -> None:
    with pytest.raises(WrongDeviceError, match="cublas.create: device needs to be a cuda device, got host"):
        cublas.create("host")
    with pytest.raises(ArgumentError, match="cuda:01"):
        cublas.create(device="cuda:01")


def test_a_handle_takes_a_stream_of_the_callers(cuda: str) -> None:
    x, y = np.ones(3), np.zeros(3)
    region = offload_args(x, device=cuda)
    (dx,) = region.open()
    with cublas.create(cuda) as handle:
        own = cublas.get_stream(handle)
        stream = region.stream
        cublas.set_stream(handle, stream)
        assert cublas.get_stream(handle) is stream
        cublas.set_stream(handle, own)
        assert cublas.get_stream(handle).__cuda_stream__() == own.__cuda_stream__()
        cublas.set_stream(handle, stream)
        with offload_args(y, device=cuda) as (dy,):
            cublas.daxpy(3, 2.0, dx, 1, dy, 1, handle=handle)
        with pytest.raises(ArgumentTypeError, match="cublas.set_stream: streamId needs an object with __cuda_stream__"):
            cublas.set_stream(handle, 0)  # type: ignore[arg-type]
        with offload_args(y, device=cuda, stream=own) as (dy,):
            cublas.dscal(3, 2.0, dy, 1)
    region.close()
    np.testing.assert_array_equal(y, [4, 4, 4])
    with pytest.raises(StalePointerError):
        own.__cuda_stream__()


def test_threads_may_share_a_handle(cuda: str) -> None:
    with cublas.create(cuda) as handle:

        def work(i: int) -> float:
            x = np.full(100, float(i))
            with offload_args(x, device=cuda) as (dx,):
                for _ in range(20):
                    cublas.dscal(100, 1.0, dx, 1, handle=handle)
                cublas.set_pointer_mode(handle, i % 2)
                return float(cublas.dasum(100, dx, 1, handle=handle))

        with ThreadPoolExecutor(4) as pool:
            assert list(pool.map(work, range(8))) == [100.0 * i for i in range(8)]


def test_a_library_says_its_version(cuda: str) -> None:
    parts = [cublas.get_property(part) for part in (cublas.MAJOR_VERSION, cublas.MINOR_VERSION, cublas.PATCH_LEVEL)]
    loaded = libraries.loaded("cublas")
    assert loaded is not None and loaded.version == ".".join(map(str, parts))
    with cublas.create(cuda) as handle:
        assert cublas.get_version(handle) // 10000 == parts[0]
    assert cublas.get_cudart_version() // 1000 == parts[0]


def test_a_status_has_a_name_and_a_text(cuda: str) -> None:
    assert cublas.get_status_name(0) == "CUBLAS_STATUS_SUCCESS"
    assert cublas.get_status_name(7) == "CUBLAS_STATUS_INVALID_VALUE"
    assert len(cublas.get_status_string(7)) > 3
    with pytest.raises(SizeOverflowError, match="cublas.get_status_name: status needs an integer of at most 31 bits"):
        cublas.get_status_name(2**40)


def test_the_log_goes_to_a_file(cuda: str, tmp_path: Path) -> None:
    file = tmp_path / "log of cuBLAS"
    raw = cublas.raw
    raw.cublasLoggerConfigure(1, 0, 0, str(file).encode())
    with cublas.create(cuda):
        pass
    raw.cublasLoggerConfigure(0, 0, 0, raw.ffi.NULL)
    assert file.read_text()


def test_classes_of_objects_are_names_of_the_module() -> None:
    module = importlib.import_module("offload_args.cublas")
    assert "Handle" in dir(module) and "Handle" in module.__all__
    assert module.Handle is cublas.Handle and cublas.Handle.__module__ == "offload_args.cublas"
    with pytest.raises(TypeError, match=r"create\(\) takes from 0 to 1 positional arguments but 2 were given"):
        cublas.create("cuda:0", 1)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match=r"get_math_mode\(\) missing 1 required positional argument: 'handle'"):
        cublas.get_math_mode()  # type: ignore[call-arg]


def test_a_workspace_lives_as_long_as_the_handle_has_it(cuda: str) -> None:
    x, nbytes = np.ones(64, np.float32), 1 << 20
    before = Device(cuda).counters.memory_used
    with cublas.create(cuda) as handle:
        with offload_args(Scratch(nbytes, np.uint8), device=cuda) as (work,):
            cublas.set_workspace(handle, work, nbytes)
        assert not work.live
        assert Device(cuda).counters.memory_used - before >= nbytes
        with offload_args(x, device=cuda) as (dx,):  # cuBLAS may use memory that is not lent
            cublas.sscal(64, 2.0, dx, 1, handle=handle)
        with offload_args(Scratch(4096, np.uint8), device=cuda) as (other,):
            cublas.set_workspace(handle, other[:2048], 2048)
        assert Device(cuda).counters.memory_used - before < nbytes
        cublas.set_workspace(handle, None, 0)
        assert Device(cuda).counters.memory_used == before
        with offload_args(Scratch(nbytes, np.uint8), device=cuda) as (work,):
            cublas.set_workspace(handle, work, nbytes)
    assert Device(cuda).counters.memory_used == before
    np.testing.assert_array_equal(x, np.full(64, 2.0))


def test_a_workspace_that_will_not_do_is_refused(cuda: str) -> None:
    with (
        cublas.create(cuda) as handle,
        offload_args(Scratch((64, 64), np.uint8), In(np.ones(99)), device=cuda) as (w, r),
    ):
        with pytest.raises(
            ExtentError, match="cublas.set_workspace: workspace needs 4097 bytes without gaps, has 4096"
        ):
            cublas.set_workspace(handle, w, 4097)
        with pytest.raises(ExtentError, match="workspace needs 256 bytes without gaps, has 32"):
            cublas.set_workspace(handle, w[:, :32], 256)
        with pytest.raises(DirectionError, match="workspace needs to be writable; lend it as InOut or Scratch"):
            cublas.set_workspace(handle, r, 99)
        with pytest.raises(ArgumentError, match="workspace needs a DevicePtr of 10 bytes, got None"):
            cublas.set_workspace(handle, None, 10)
        with pytest.raises(ArgumentError, match="workspaceSizeInBytes needs to be at least 0, got -1"):
            cublas.set_workspace(handle, w, -1)
        wrong: Any
        for wrong in (1 << 20, np.ones(99), "memory"):
            with pytest.raises(HostPointerError, match="cublas.set_workspace: workspace needs a DevicePtr, got"):
                cublas.set_workspace(handle, wrong, 10)
        dead = w
    with cublas.create(cuda) as handle:
        with pytest.raises(StalePointerError, match="workspace belongs to a region that has ended"):
            cublas.set_workspace(handle, dead, 64)


def test_a_workspace_is_on_the_device_of_its_handle(cuda: str) -> None:
    second = open_or_skip("cuda:1")
    with cublas.create(second) as handle, offload_args(Scratch(4096, np.uint8), device=cuda) as (work,):
        with pytest.raises(WrongDeviceError, match=f"workspace is on {cuda}, and handle is of {second}"):
            cublas.set_workspace(handle, work, 4096)


def test_raw_functions_take_a_handle(cuda: str) -> None:
    raw = cublas.raw
    x = np.ones(4)
    mode = raw.ffi.new("cublasMath_t *")
    with cublas.create(cuda) as handle, offload_args(x, device=cuda) as (dx,):
        cublas.set_math_mode(handle, cublas.PEDANTIC_MATH)
        assert raw.cublasGetMathMode(handle, mode) == 0
        raw.cublasDscal(handle, 4, raw.ffi.new("double *", 2.0), dx, 1)
        with pytest.raises(ArgumentTypeError, match="cublas.raw.cublasGetMathMode"):
            cublas.raw.cublasGetMathMode()
    assert mode[0] == cublas.PEDANTIC_MATH
    np.testing.assert_array_equal(x, np.full(4, 2.0))
    with pytest.raises(StalePointerError):
        raw.cublasGetMathMode(handle, mode)


def test_every_service_has_a_test() -> None:
    services = {name for name in cublas.__all__ if isroutine(getattr(cublas, name))} - {*bound(cublas)}
    assert len(services) > 25
    beside = Path(__file__).with_name("test_host_arrays.py")
    tested = set(re.findall(r"\w+", Path(__file__).read_text() + beside.read_text()))
    stems = {name: {name, re.sub(r"^[gs]et_", "", name), name.removesuffix("_async")} for name in services}
    assert {name for name, stem in stems.items() if not stem & tested} == set()
