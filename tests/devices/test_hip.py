"""AMD's runtime: how it is found, and how it fails. No AMD device has run these tests."""

from __future__ import annotations

import ctypes
import mmap
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from helpers.processes import output_of, printed, python
from offload_args import Scratch, blas, offload_args
from offload_args.errors import DeviceMemoryError

SAY_WHY = """
from offload_args import Device
from offload_args.errors import DeviceUnavailableError
try:
    print(Device("hip:0"))
except DeviceUnavailableError as error:
    print(error)
"""


TOO_MUCH = """
import numpy as np
from offload_args import Device, Scratch, offload_args, testing
from offload_args.errors import DeviceMemoryError
x = np.ones(1000)
try:
    with offload_args(x, Scratch((1 << 50,), "f8"), device="hip:0"):
        pass
except DeviceMemoryError as error:
    print(error)
testing.no_mappings_left()
with offload_args(x, device="hip:0") as (dx,):
    dx[1:].fill(3)
print(x.sum(), Device("hip:0").counters.memory_used)
"""


NOTHING_SAID = """
import numpy as np
from offload_args import Device, Scratch, offload_args
from offload_args.errors import DeviceMemoryError
device, x = Device("hip:0"), np.ones(1000)
with offload_args(x, device=device) as (dx,):
    dx.fill(3)
print(device.memory, x.sum())
try:
    with offload_args(Scratch((1 << 50,), "f8"), device=device):
        pass
except DeviceMemoryError as error:
    print(error)
"""


def library(path: Path, *options: str) -> None:
    subprocess.run(["cc", "-shared", "-fPIC", "-o", path, "-x", "c", "/dev/null", *options], check=True)


@pytest.mark.later
@pytest.mark.parametrize("tree", ["lib", "core-10.2/lib"])  # the folders of old and of new releases
def test_a_runtime_that_needs_a_missing_library_is_named_with_it(tmp_path: Path, tree: str) -> None:
    folder = tmp_path / tree
    folder.mkdir(parents=True)
    library(folder / "libneeded.so.1", "-Wl,-soname,libneeded.so.1")
    library(folder / "libamdhip64.so.5", "-Wl,--no-as-needed", f"-L{folder}", "-l:libneeded.so.1")
    (folder / "libneeded.so.1").unlink()
    said = printed(SAY_WHY, ROCM_PATH=str(tmp_path), LD_LIBRARY_PATH="")
    if "no device" not in said:
        return  # the system has a runtime that works
    assert "libamdhip64.so.5 could not be loaded: libneeded.so.1: cannot open shared object file" in said


def is_the_double(hip: str) -> bool:
    """Return whether HIP's runtime is the double, which can be made to fail, unlike AMD's own runtime."""
    with offload_args(np.ones(1), device=hip):  # HIP is loaded
        return hasattr(runtime(), "hipDoubleFail")


def runtime() -> ctypes.CDLL:
    """HIP's runtime, which the process has loaded."""
    for line in Path("/proc/self/maps").read_text().splitlines():
        if "libamdhip64" in line:
            return ctypes.CDLL(line.split(maxsplit=5)[5])
    raise AssertionError("HIP is not loaded")


@pytest.mark.promise("T49")
@pytest.mark.parametrize("pools", ["0", "1"])  # release 5 has pools if the environment sets this
def test_an_allocation_that_succeeds_with_a_null_pointer_is_out_of_memory(hip: str, pools: str) -> None:
    said = printed(TOO_MUCH.replace("hip:0", hip), HIP_DOUBLE_VERSION="5", HIP_MEM_POOL_SUPPORT=pools)
    assert f"{hip}: out of device memory: 8388608.00 GiB requested" in said
    assert said.rstrip().endswith("2998.0 0")


def test_a_device_whose_memory_is_not_known_works(hip: str, tmp_path: Path) -> None:
    if not is_the_double(hip):
        return  # AMD's own runtime has it
    said = printed(NOTHING_SAID.replace("hip:0", hip), HIP_DOUBLE_MEMORY="0")
    assert said.startswith("Memory(free=0, total=0) 3000.0")
    assert f"{hip}: out of device memory: 8388608.00 GiB requested" in said
    command = sys.executable, "-m", "offload_args"
    messages = output_of(*command, "info", folder=tmp_path, HIP_DOUBLE_MEMORY="0")
    assert f"device {hip}" in messages
    assert "memory not known" in messages
    checks = "selftest", "--device", hip, "--every", "60"
    assert "memory not known" in output_of(*command, *checks, folder=tmp_path, HIP_DOUBLE_MEMORY="0")


def test_a_failure_that_is_reported_here_is_not_left_for_the_programs_own_checks(hip: str) -> None:
    with pytest.raises(DeviceMemoryError), offload_args(Scratch((1 << 50,), "f8"), device=hip):
        pass
    assert runtime().hipGetLastError() == 0


@pytest.mark.parametrize("size", [100, 1 << 16, 1 << 21])  # packed, with a separate copy, in chunks
@pytest.mark.parametrize("part", ["first half", "last half", "middle", "both halves apart"])
def test_arrays_of_which_the_program_registered_a_part_come_and_go_whole(hip: str, part: str, size: int) -> None:
    page = 4096
    x = np.frombuffer(mmap.mmap(-1, 8 * size + page), np.float64)[:size]
    start, half = x.ctypes.data, -(-x.nbytes // 2 // page) * page
    ranges = {
        "first half": [(start, half)],
        "last half": [(start + half, half)],
        "middle": [(start + x.nbytes // 4 // page * page, half)],
        "both halves apart": [(start, half), (start + half, half)],
    }[part]
    x[:] = np.arange(size)
    with offload_args(np.ones(1), device=hip):  # HIP is loaded
        library = runtime()
    for address, nbytes in ranges:
        assert library.hipHostRegister(ctypes.c_void_p(address), ctypes.c_size_t(nbytes), 1) == 0
    try:
        with offload_args(x, device=hip) as (dx,):
            blas.scal(2.0, dx)
        np.testing.assert_array_equal(x, 2.0 * np.arange(size))
        lines = x[: size // 10 * 10].reshape(10, -1)[:, 1:-1]
        with offload_args(lines, device=hip) as (dlines,):
            dlines.fill(3.0)
        assert (lines == 3).all() and x[0] == 0
    finally:
        for address, _ in ranges:
            assert library.hipHostUnregister(ctypes.c_void_p(address)) == 0


# -- on the double alone: it can be told to fail ----------------------------------------------------------------------

ON_THE_DOUBLE = """
import ctypes, os, warnings
import numpy as np
from offload_args import Device, In, Out, Scratch, blas, call, offload_args, testing, update
from offload_args.errors import *
hip = Device(os.environ["HIP"])
double = ctypes.CDLL("libamdhip64.so")
warnings.simplefilter("ignore", PerformanceWarning)
"""


def on_the_double(hip: str, code: str, **environment: str) -> str:
    """Run code with the double's functions; this does not test AMD's own runtime."""
    return printed(ON_THE_DOUBLE + code, HIP=hip, **environment) if is_the_double(hip) else ""


FAIL_EACH = """
def in_a_region(A, x, y):
    with offload_args(A, x, y, device=hip) as (dA, dx, dy):
        blas.gemv(1.0, dA, dx, 0.0, dy)
def by_call(A, x, y):
    call(blas.gemv, 1.0, A, x, 0.0, y, device=hip)
double.hipDoubleFail.restype = ctypes.c_longlong
A, x, y = np.arange(40, dtype="f4").reshape(5, 8)[:3, :4], np.arange(4, dtype="f4"), np.zeros(3, "f4")
for multiply in in_a_region, by_call:
    multiply(A, x, y)
    hip.trim()
    before = double.hipDoubleFail(ctypes.c_longlong(0))
    multiply(A, x, y)
    needed = double.hipDoubleFail(ctypes.c_longlong(0)) - before
    failures = 0
    for k in range(1, needed + 1):
        y[:] = 0
        hip.trim()
        used = hip.counters.memory_used
        double.hipDoubleFail(ctypes.c_longlong(k))
        try:
            multiply(A, x, y)
        except BackendError as error:
            failures += 1
            assert "hip" in str(error) and "hipErrorUnknown (999)" in str(error), error
            assert (y == 0).all() or (y == A @ x).all(), y
        finally:
            double.hipDoubleFail(ctypes.c_longlong(0))
        assert double.hipGetLastError() == 0, k
        testing.no_mappings_left()
        hip.trim()
        assert A.flags.writeable and hip.counters.memory_used == used
        multiply(A, x, y)
        assert (y == A @ x).all()
    print(needed >= 3, failures >= 1)
"""


@pytest.mark.promise("T01")
def test_when_the_kth_call_of_hip_fails_nothing_stays(hip: str) -> None:
    assert on_the_double(hip, FAIL_EACH) in ("", "True True\n" * 2)


def test_values_may_change_as_soon_as_assign_returns(device: str) -> None:
    A, values = np.zeros((6, 5)), np.ones((6, 2))
    with offload_args(A, device=device) as (dA,):
        dA[:, 1:3].assign(values)
        values[:] = 7
    np.testing.assert_array_equal(A[:, 1:3], 1)


STREAM = """
class Stream:
    def __init__(self, address):
        self.address = address
    def __cuda_stream__(self):
        return 0, self.address
"""


RELEASES = pytest.mark.parametrize("release", ["5", "6", "7"])


@RELEASES
def test_a_stream_that_was_destroyed_is_an_error_and_the_device_lives(hip: str, release: str) -> None:
    """T64. HIP 7 would use the stream's freed memory; in this case, the double ends the process."""
    code = f"""{STREAM}
x, stream = np.ones(4), ctypes.c_void_p()
with offload_args(x, device=hip) as (dx,):  # it makes streams now, and none at the destroyed one's address
    blas.scal(1.0, dx)
double.hipSetDevice(hip.index)
double.hipStreamCreateWithFlags(ctypes.byref(stream), 1)
double.hipStreamDestroy(stream)
try:
    with offload_args(x, device=hip, stream=Stream(stream.value)) as (dx,):
        blas.scal(2.0, dx)
except OffloadError as error:
    print(type(error).__name__, error)
with offload_args(x, device=hip) as (dx,):
    blas.scal(3.0, dx)
print(x)
"""
    said = on_the_double(hip, code, HIP_DOUBLE_VERSION=release)
    if said:
        wanted = "hipStreamGetId failed" if release == "7" else "hipErrorContextIsDestroyed (709)"
        assert said.startswith("BackendError") and wanted in said and "lost" not in said
        assert said.endswith("[3. 3. 3. 3.]\n")


@RELEASES
def test_a_stream_that_is_destroyed_after_its_calls_is_not_asked_again(hip: str, release: str) -> None:
    """T64. The region waits for the work of the stream, but not for the stream itself."""
    code = f"""{STREAM}
x, y, stream = np.ones(4), np.ones(300_000), ctypes.c_void_p()
Device(hip.name)
double.hipSetDevice(hip.index)
double.hipStreamCreateWithFlags(ctypes.byref(stream), 1)
with offload_args(x, y, device=hip) as (dx, dy):
    blas.scal(3.0, dx)
    with offload_args(x, y, device=hip, stream=Stream(stream.value)) as (ex, ey):
        blas.scal(2.0, ex)
        blas.scal(2.0, ey)
        double.hipStreamDestroy(stream)
    blas.axpy(1.0, dx, dy[:4])
    hip.trim()
print(x, y[:4], y[-1])
"""
    assert on_the_double(hip, code, HIP_DOUBLE_VERSION=release) in ("", "[6. 6. 6. 6.] [8. 8. 8. 8.] 2.0\n")


USES_AFTER_A_RESET = {
    "a region": "with offload_args(x, device=hip) as (dx,): blas.scal(2.0, dx)",
    "a call in an open region": "blas.scal(2.0, dx)",
    "a fill": "dx.fill(0.0)",
    "a copy from the device": "dx.to_host()",
    "memory": "hip.memory",
    "trim": "hip.trim()",
    "leaving": "region.close()",
    "an update": "update(x)",
}


@RELEASES
@pytest.mark.parametrize("use", USES_AFTER_A_RESET)
def test_after_a_reset_every_use_is_an_error_that_names_it(hip: str, release: str, use: str) -> None:
    """T64. Streams, events and pools no longer exist, and HIP 7 would use their freed memory."""
    code = f"""
x = np.ones(4)
region = offload_args(x, device=hip)
dx, = region.__enter__()
blas.scal(2.0, dx)
double.hipSetDevice(hip.index)
double.hipDeviceReset()
try:
    {USES_AFTER_A_RESET[use]}
except DeviceLostError as error:
    print(error)
try:
    region.close()
except OffloadError:
    pass
print(x)
"""
    said = on_the_double(hip, code, HIP_DOUBLE_VERSION=release)
    assert not said or ("other code reset the device" in said and said.endswith("[1. 1. 1. 1.]\n"))


def test_a_failure_of_the_programs_own_stays_where_nothing_fails_here(hip: str) -> None:
    code = """
x = np.ones(300_000)
double.hipSetDevice(hip.index)
assert double.hipSetDevice(99) == 101
with offload_args(x, device=hip) as (dx,):
    blas.scal(2.0, dx)
hip.trim()
print(double.hipGetLastError(), double.hipGetLastError())
"""
    assert on_the_double(hip, code, HIP_DOUBLE_VERSION="7") in ("", "101 0\n")


@pytest.mark.promise("T20")
def test_a_reset_of_the_device_is_its_loss_and_the_program_ends_quietly(hip: str) -> None:
    code = """
x = np.ones(4)
with offload_args(x, device=hip) as (dx,):
    blas.scal(2.0, dx)
double.hipSetDevice(hip.index)
double.hipDeviceReset()
try:
    with offload_args(x, device=hip) as (dx,):
        blas.scal(2.0, dx)
except DeviceLostError as error:
    print(error)
print(x)
"""
    said = on_the_double(hip, code)
    if said:
        assert "other code reset the device" in said and said.endswith("[2. 2. 2. 2.]\n")


@pytest.mark.parametrize("use", ["hip.memory", "hip.trim()"])
def test_memory_of_a_device_that_was_reset_is_asked_for_nothing(hip: str, use: str) -> None:
    code = f"""
with offload_args(np.ones(4), device=hip) as (dx,):
    blas.scal(2.0, dx)
double.hipSetDevice(hip.index)
double.hipDeviceReset()
try:
    {use}
except DeviceLostError as error:
    print(error)
"""
    assert "other code reset the device" in (on_the_double(hip, code) or "other code reset the device")


def test_a_host_dereference_of_device_memory_ends_the_process(hip: str) -> None:
    if not is_the_double(hip):
        return  # the host may access memory of an AMD device
    code = (
        ON_THE_DOUBLE
        + """
with offload_args(np.ones(4), device=hip) as (dx,):
    blas.scal(2.0, dx)
    print("up", flush=True)
    ctypes.cast(dx.address, ctypes.POINTER(ctypes.c_double))[0]
print("nothing trapped")
"""
    )
    ran = python(code, HIP=hip)
    assert ran.stdout == "up\n" and ran.returncode != 0


@pytest.mark.promise("T19")
def test_the_callers_current_device_stays_whatever_runs(hip: str) -> None:
    code = """
def current():
    number = ctypes.c_int(-1)
    assert double.hipGetDevice(ctypes.byref(number)) == 0
    return number.value
A, x, y = np.ones((5, 8))[:, :4], np.ones(4), np.zeros(5)
for number in 0, 1:
    double.hipSetDevice(number)
    seen = []
    with offload_args(A, x, Out(y), device=hip) as (dA, dx, dy):
        seen.append(current())
        blas.gemv(1.0, dA, dx, 0.0, dy)
        seen.append(current())
    hip.trim()
    hip.memory
    try:
        with offload_args(Scratch((1 << 31,), "f4"), device=hip):
            pass
    except DeviceMemoryError:
        seen.append(current())
    assert seen == [number] * 3 and current() == number, (number, seen)
    assert (y == 4).all()
print("the same")
"""
    assert on_the_double(hip, code) in ("", "the same\n")
