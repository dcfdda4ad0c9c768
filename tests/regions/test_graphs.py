"""Calls in a stream that the program captures into a graph run at each launch of the graph."""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from helpers.arrays import ramp
from helpers.devices import HIP, open_or_skip
from helpers.processes import python
from kernels.images import module_for
from offload_args import Device, InOut, Module, blas, launch, offload_args
from offload_args.errors import CaptureError

FOR_ALL_THREADS, FOR_THIS_THREAD, RELAXED = 0, 1, 2
NAMES = {  # {function in CUDA: its names}
    "hipStreamCreateWithFlags": "cuStreamCreate",
    "hipStreamBeginCapture": "cuStreamBeginCapture_v2",
    "hipStreamDestroy": "cuStreamDestroy_v2",
    "hipEventCreateWithFlags": "cuEventCreate",
    "hipEventDestroy": "cuEventDestroy_v2",
}


def opened(*names: str) -> ctypes.CDLL:
    """Return the first available library."""
    for name in names[:-1]:
        try:
            return ctypes.CDLL(name)
        except OSError:
            pass
    return ctypes.CDLL(names[-1])


class Graphs:
    """A stream that a program made without the package, or got through its handle, and the graphs captured in it."""

    def __init__(self, device: str, stream: int = 0) -> None:
        backend, _, index = device.partition(":")
        self._is_hip, self._index = backend == "hip", int(index)
        self._driver = opened("libamdhip64.so", "libamdhip64.so.5") if self._is_hip else ctypes.CDLL("libcuda.so.1")
        self._graph, self._executable, self._stream = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p(stream)
        self._owns = not stream
        Device(device)  # from now on the device has a context
        if self._owns:
            with self.current():
                self.call("hipStreamCreateWithFlags", ctypes.byref(self._stream), 1)

    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, self._stream.value or 0

    @contextmanager
    def current(self) -> Iterator[None]:
        """Make the device current, as in a program that uses the driver."""
        if self._is_hip:
            self.call("hipSetDevice", self._index)
            yield
            return
        context, popped = ctypes.c_void_p(), ctypes.c_void_p()
        self.call("cuDevicePrimaryCtxRetain", ctypes.byref(context), self._index)
        self.call("cuCtxPushCurrent_v2", context)
        try:
            yield
        finally:
            self.call("cuCtxPopCurrent_v2", ctypes.byref(popped))
            self.call("cuDevicePrimaryCtxRelease_v2", self._index)

    def call(self, name: str, *arguments: Any, expected: int = 0) -> None:
        function = name if self._is_hip else NAMES.get(name, name.replace("hip", "cu"))
        code = getattr(self._driver, function)(*arguments)
        assert code == expected, f"{function} returned {code}"

    @contextmanager
    def captured(self, mode: int = FOR_THIS_THREAD, expected: int = 0) -> Iterator[None]:
        """Capture the work of a block, and make an executable graph of it."""
        with self.current():
            self.call("hipStreamBeginCapture", self._stream, mode)
            try:
                yield
            finally:
                self.call("hipStreamEndCapture", self._stream, ctypes.byref(self._graph), expected=expected)
            if self._is_hip:
                rest = [ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_size_t(0)]
                self.call("hipGraphInstantiate", ctypes.byref(self._executable), self._graph, *rest)
            else:
                flags = ctypes.c_ulonglong(0)
                self.call("cuGraphInstantiateWithFlags", ctypes.byref(self._executable), self._graph, flags)

    def before(self, other: Graphs) -> None:
        """Let the other stream wait for this stream's work so far.

        If this stream is captured, the other joins the capture.
        """
        event = ctypes.c_void_p()
        with self.current():
            self.call("hipEventCreateWithFlags", ctypes.byref(event), 2)
            self.call("hipEventRecord", event, self._stream)
            self.call("hipStreamWaitEvent", other._stream, event, 0)
            self.call("hipEventDestroy", event)

    def launch(self) -> None:
        with self.current():
            self.call("hipGraphLaunch", self._executable, self._stream)

    def destroy(self) -> None:
        with self.current():
            if self._executable:
                self.call("hipGraphExecDestroy", self._executable)
                self.call("hipGraphDestroy", self._graph)
        if self._owns:
            self.destroy_stream()

    def destroy_stream(self) -> None:
        with self.current():
            self.call("hipStreamDestroy", self._stream)


@pytest.fixture(params=["cuda:0", HIP])
def gpu(request: pytest.FixtureRequest) -> str:
    return open_or_skip(request.param)


@pytest.mark.parametrize("mode", [FOR_ALL_THREADS, FOR_THIS_THREAD, RELAXED])
def test_captured_calls_run_with_each_launch_and_their_results_come_down(gpu: str, mode: int) -> None:
    graphs, A = Graphs(gpu), np.array([[0.0, 1.0], [1.0, 0.0]])
    x, y, z = np.array([1.0, 2.0]), np.zeros(2), np.zeros(2)
    with offload_args(A, x, y, z, device=gpu, stream=graphs) as (dA, dx, dy, dz):
        blas.axpy(1.0, dx, dy)  # copies x and y up
        blas.gemv(1.0, dA, dy, 0.0, dz)
        with graphs.captured(mode):
            blas.axpy(2.0, dx, dy)
            blas.gemv(1.0, dA, dy, 1.0, dz)
        np.testing.assert_array_equal(dy.to_host(), [1, 2])  # the graph has not run yet
        for _ in range(3):
            graphs.launch()
    np.testing.assert_array_equal(y, [7, 14])
    np.testing.assert_array_equal(z, [2 + 6 + 10 + 14, 1 + 3 + 5 + 7])
    graphs.destroy()


def test_captured_fills_copies_and_slices_run_with_each_launch(gpu: str) -> None:
    graphs, A, b = Graphs(gpu), np.zeros((6, 5), np.float32), ramp(6)
    with offload_args(A, b, device=gpu, stream=graphs) as (dA, db):
        dA.fill(0.0)
        blas.scal(1.0, db)
        with graphs.captured():
            dA[:, 1:3].fill(7.0)
            dA[:, 4].copy_from(db)
            blas.scal(2.0, db)
        graphs.launch()
        graphs.launch()
    np.testing.assert_array_equal(A[:, 1:3], 7)
    np.testing.assert_array_equal(A[:, 4], 2 * ramp(6))
    np.testing.assert_array_equal(A[:, [0, 3]], 0)
    np.testing.assert_array_equal(b, 4 * ramp(6))
    graphs.destroy()


def test_a_call_that_needs_a_copy_is_refused_and_the_capture_goes_on(gpu: str) -> None:
    graphs, x, y = Graphs(gpu), ramp(4), np.ones(4, np.float32)
    with offload_args(x, y, device=gpu, stream=graphs) as (dx, dy):
        blas.scal(1.0, dy)
        with graphs.captured():
            with pytest.raises(CaptureError, match="use it once before the capture begins"):
                blas.axpy(1.0, dx, dy)
            blas.scal(3.0, dy)
        graphs.launch()
    np.testing.assert_array_equal(y, 3)
    graphs.destroy()


def test_a_captured_launch_keeps_the_arguments_that_it_had(gpu: str) -> None:
    graphs, x, n = Graphs(gpu), -ramp(8), np.int32(4)
    relu = Module.load(module_for(gpu), name="kernels").kernel("relu", InOut[np.float32], np.int32)
    with offload_args(x, device=gpu, stream=graphs) as (dx,):
        launch(relu, dx, np.int32(1))
        with graphs.captured():
            launch(relu, dx, n)
        n = np.int32(8)
        graphs.launch()
    np.testing.assert_array_equal(x, [0, 0, 0, 0, *-ramp(8)[4:]])
    graphs.destroy()


FIRST_USE = """
import sys
import numpy as np
from offload_args import Device, blas, offload_args
from offload_args.errors import CaptureError
from regions.test_graphs import Graphs
device = Device(GPU)  # starts the driver
graphs, x, y = Graphs(GPU), np.ones(4), np.ones(4)
with offload_args(x, y, device=device, stream=graphs) as (dx, dy):
    dy.fill(2.0)
    with graphs.captured():
        try:
            blas.axpy(1.0, dx, dy)
        except CaptureError:
            dy.fill(3.0)
    graphs.launch()
print(y)
"""


def test_the_first_use_of_a_routine_while_a_stream_is_captured_spoils_nothing(gpu: str) -> None:
    path = os.pathsep.join([str(Path(__file__).parents[1]), *sys.path])
    ran = python(FIRST_USE.replace("GPU", repr(gpu)), PYTHONPATH=path)
    assert (ran.stdout, ran.stderr) == ("[3. 3. 3. 3.]\n", "")


def test_what_a_graph_writes_after_the_last_call_comes_down(gpu: str) -> None:
    graphs, x = Graphs(gpu), ramp(4)
    with offload_args(x, device=gpu, stream=graphs) as (dx,):
        blas.scal(1.0, dx)
        with graphs.captured():
            blas.scal(2.0, dx)
        blas.scal(1.0, dx)
        for _ in range(4):
            graphs.launch()
    np.testing.assert_array_equal(x, 16 * ramp(4))
    graphs.destroy()


@pytest.mark.parametrize(
    ("name", "mode"),  # CUDA allows no waits in a capture for all threads
    [("cuda:0", FOR_THIS_THREAD), ("cuda:0", RELAXED), (HIP, FOR_ALL_THREADS), (HIP, FOR_THIS_THREAD), (HIP, RELAXED)],
)
def test_another_region_is_entered_and_left_while_a_stream_is_captured(name: str, mode: int) -> None:
    gpu = open_or_skip(name)
    graphs, x = Graphs(gpu), ramp(4)
    kept: list[float] = []
    with offload_args(x, device=gpu, stream=graphs) as (dx,):
        blas.scal(1.0, dx)
        with graphs.captured(mode):
            blas.scal(2.0, dx)
            with ThreadPoolExecutor(1) as pool:
                kept += pool.submit(thrice, gpu, 300_000).result()
        graphs.launch()
    assert kept == [3.0, 3.0]
    np.testing.assert_array_equal(x, 2 * ramp(4))
    graphs.destroy()


def test_a_capture_for_all_threads_survives_what_another_thread_does_here(hip: str) -> None:
    """HIP 7 ends the capture if a thread whose mode is not relaxed waits, queries or allocates."""
    graphs, x = Graphs(hip), ramp(4)
    kept: list[float] = []
    with offload_args(x, device=hip, stream=graphs) as (dx,):
        blas.scal(1.0, dx)
        with graphs.captured(FOR_ALL_THREADS):
            blas.scal(2.0, dx)
            with ThreadPoolExecutor(1) as pool:
                kept += pool.submit(results_of, hip).result()
        graphs.launch()
    assert kept == [3.0, 3.0, 9.0, 2.0]
    np.testing.assert_array_equal(x, 2 * ramp(4))
    graphs.destroy()


def results_of(device: str) -> list[float]:
    y, big = np.array([0.0, 0.0, 3.0, 0.0]), np.ones(700_000)
    with offload_args(y, big, device=device) as (dy, dbig):
        blas.scal(2.0, dbig)
        results = [blas.nrm2(dy), blas.asum(dy), blas.dot(dy, dy), float(dbig.to_host()[-1])]
    assert big[0] == 2
    return results


def thrice(device: str, size: int) -> list[float]:
    y = np.ones(size)
    with offload_args(y, device=device) as (dy,):
        blas.scal(3.0, dy)
    return [float(y[0]), float(y[-1])]


def test_other_regions_compute_while_a_stream_is_captured(gpu: str) -> None:
    graphs, x, y = Graphs(gpu), ramp(4), ramp(4)
    with offload_args(x, device=gpu, stream=graphs) as (dx,), offload_args(y, device=gpu) as (dy,):
        blas.scal(1.0, dx)
        blas.scal(1.0, dy)
        with graphs.captured(RELAXED):
            blas.scal(2.0, dx)
            blas.scal(3.0, dy)
        graphs.launch()
    np.testing.assert_array_equal(x, 2 * ramp(4))
    np.testing.assert_array_equal(y, 3 * ramp(4))
    graphs.destroy()


@pytest.mark.parametrize("mode", [FOR_ALL_THREADS, FOR_THIS_THREAD, RELAXED])
def test_a_graph_beside_the_capture_of_a_program_leaves_that_alone(gpu: str, mode: int) -> None:
    """The first captured call of a routine may load kernels; the other capture would forbid loading."""
    x, graphs = np.arange(1.0, 9.0), Graphs(gpu)
    region = offload_args(x, device=gpu)
    with region as (dx,):
        with graphs.captured(mode):
            with region.capture() as g:
                blas.scal(2.0, dx)
                blas.swap(dx[:4], dx[4:])
            g.replay()
        g.replay()
    graphs.destroy()
    assert np.array_equal(x, 4 * np.arange(1.0, 9.0))


def test_rows_go_up_without_pinned_memory_while_a_stream_is_captured_for_all_threads(hip: str) -> None:
    tests = Path(__file__).parents[1]
    code = f"import sys; sys.path[:0] = [{str(tests)!r}]; from regions import test_graphs as t; t.double_rows({hip!r})"
    ran = python(code, OFFLOAD_ARGS_PINNED_LIMIT="0")
    assert ran.returncode == 0, ran.stderr


def double_rows(gpu: str) -> None:
    whole = np.ones((600, 1000))
    graphs, x = Graphs(gpu), ramp(4)
    with offload_args(x, device=gpu, stream=graphs) as (dx,):
        blas.scal(1.0, dx)
        with graphs.captured(FOR_ALL_THREADS), ThreadPoolExecutor(1) as pool:
            blas.scal(2.0, dx)
            pool.submit(double_one, gpu, whole[:, :900]).result()
        graphs.launch()
    assert (whole[0, :900] == 2.0).all()
    assert (whole[1:] == 1.0).all()
    assert (whole[0, 900:] == 1.0).all()
    graphs.destroy()


def double_one(device: str, rows: np.ndarray) -> None:
    with offload_args(rows, device=device) as (dA,):
        blas.scal(2.0, dA[0])
