"""If other processes can write the memory, or the kernel can't watch pages, all bytes are sent again."""

from __future__ import annotations

import gc
import mmap
import subprocess
import sys
from multiprocessing import shared_memory
from typing import Any

import numpy as np
import pytest

from helpers.residency import PAGE, N, ramp, sent
from offload_args import Device, In, Scratch, blas, offload_args, testing
from offload_args.errors import (
    ArgumentError,
    DeviceMemoryError,
    DTypeError,
)


def test_memory_that_is_not_the_arrays_own_is_sent_again(device: str, tmp_path: Any) -> None:
    block = shared_memory.SharedMemory(create=True, size=4 * N)
    path = tmp_path / "array"
    path.write_bytes(bytes(4 * N))
    try:
        foreign = [
            np.frombuffer(bytearray(4 * N), np.float32),
            np.frombuffer(mmap.mmap(-1, 4 * N), np.float32),
            np.memmap(path, np.float32, "r+"),
            np.memmap(path, np.float32, "c"),
            np.ndarray(N, np.float32, block.buf),
        ]
        for array in foreign:
            for _ in range(3):
                assert sent(array, device, resident=True) == array.nbytes
        del foreign, array
    finally:
        gc.collect()
        block.close()
        block.unlink()


# The kernel writes an array through an io_uring's fixed buffer, with pinned pages and without page tables. The program
# prints for each step how many bytes were sent, and whether the device has the host's bytes.
PINNED = """
import ctypes, mmap, os, struct, sys
import numpy as np
from offload_args import Device, In, Out, blas, offload_args, testing

SETUP, ENTER, REGISTER = 425, 426, 427
REGISTER_BUFFERS, UNREGISTER_BUFFERS, READ_FIXED, GETEVENTS = 0, 1, 4, 1
libc = ctypes.CDLL(None, use_errno=True)

def system(number, *arguments):
    result = libc.syscall(number, *arguments)
    if result < 0:
        print("refused:", os.strerror(ctypes.get_errno()))
        sys.exit()
    return result

def vm_pin():
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("VmPin:"))

def send(step):
    y = np.empty(x.size, np.float32)
    with testing.counting(device) as moved:
        with offload_args(In(x), Out(y), device=device, resident=True) as (dx, dy):
            blas.copy(dx, dy)
    print(step, moved.bytes_up, (x == y).all(), vm_pin() > 0)

device = Device("{device}")
size = 64 * mmap.PAGESIZE
owner = np.empty(size + mmap.PAGESIZE, np.uint8)
x = owner[-owner.ctypes.data % mmap.PAGESIZE :][:size].view(np.float32)
x[:] = 1
parameters = ctypes.create_string_buffer(120)
ring = system(SETUP, 1, parameters)
_, sq_tail, _, _, _, _, sq_array = struct.unpack_from("7I", parameters, 40)
_, _, _, _, _, completions = struct.unpack_from("6I", parameters, 80)
queue = mmap.mmap(ring, mmap.PAGESIZE, offset=0)
entries = mmap.mmap(ring, mmap.PAGESIZE, offset=0x10000000)

send("first")
send("again")
system(REGISTER, ring, REGISTER_BUFFERS, struct.pack("QQ", x.ctypes.data, size), 1)
send("pinned")
send("again")
source = os.memfd_create("source")
os.write(source, np.full(1000, 7, np.float32).tobytes())
struct.pack_into("BBHiQQIIQHHi", entries, 0, READ_FIXED, 0, 0, source, 0, x.ctypes.data + 4000, 4000, 0, 0, 0, 0, 0)
struct.pack_into("I", queue, sq_array, 0)
struct.pack_into("I", queue, sq_tail, 1)
system(ENTER, ring, 1, 1, GETEVENTS, None, 0)
assert struct.unpack_from("i", queue, completions + 8) == (4000,) and (x[1000:2000] == 7).all()
send("written")
system(REGISTER, ring, UNREGISTER_BUFFERS, None, 0)
send("free")
send("again")
"""


@pytest.mark.later("host")
def test_while_memory_is_pinned_for_writing_everything_is_sent_again(device: str, tracked: None) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PINNED.replace("{device}", device)], capture_output=True, text=True, timeout=300
    )
    assert (done.returncode, done.stderr) == (0, "")
    if "refused" in done.stdout:  # this container refuses io_uring
        pytest.skip("device unavailable")
    size = 64 * PAGE
    assert done.stdout.splitlines() == [
        f"first {size} True False",
        "again 0 True False",
        f"pinned {size} True True",
        f"again {size} True True",
        f"written {size} True True",
        f"free {size} True False",
        "again 0 True False",
    ]


def test_a_region_that_can_not_be_entered_leaves_resident_arrays_alone(device: str, tracked: None) -> None:
    x = ramp()
    sent(x, device, resident=True)
    with pytest.raises(DeviceMemoryError):
        offload_args(x, Scratch((1 << 57,), np.uint8), device=device).__enter__()
    assert sent(x, device) == 0


def test_the_edges_of_neighbours_on_the_device_are_sent_each_to_its_own(device: str) -> None:
    arrays = [ramp() for _ in range(4)]  # arrays of 1 MiB may get adjacent addresses on the device
    with offload_args(*map(In, arrays), device=device, resident=True) as pointers:
        for pointer in pointers:
            blas.asum(pointer)
    for x in arrays:
        x[0] = x[-1] = -5
    with offload_args(*map(In, arrays), device=device) as pointers:
        for i in range(0, 4, 2):
            assert blas.dot(pointers[i][-1:], pointers[i + 1][:1]) == 25
            assert blas.dot(pointers[i][:1], pointers[i + 1][-1:]) == 25
    for x in arrays:
        Device(device).release(x)


def test_an_object_that_can_not_be_lent_can_not_be_kept(device: str) -> None:
    with pytest.raises(DTypeError, match=r"Device\.keep: array has dtype <U1"):
        Device(device).keep(np.array(["a"]))
    Device(device).release(np.array(["a"]))
    with pytest.raises(ArgumentError, match="mode needs .* got 'never'"):
        with testing.residency("never"):  # type: ignore[arg-type]
            pass


def test_where_the_kernel_refuses_everything_is_sent_again(device: str) -> None:
    x = ramp()
    with testing.residency("explicit", tracking=False):
        assert not Device(device).residency.tracking
        assert [sent(x, device, resident=True) for _ in range(3)] == [x.nbytes] * 3
        assert Device(device).residency.kept == 1


def test_a_kernel_that_begins_to_refuse(device: str) -> None:
    from offload_args import _core

    x = ramp()
    sent(x, device, resident=True)
    _core.residency_configure(1, 0)
    assert [sent(x, device, resident=True) for _ in range(2)] == [x.nbytes] * 2
