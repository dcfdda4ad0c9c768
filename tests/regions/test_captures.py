"""In a stream that a program captures into a graph (T62), each function is captured completely or raises CaptureError.

During the capture of an unrelated stream, each function works as usual.
"""

from __future__ import annotations

import ctypes
import gc
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from regions.test_graphs import FOR_ALL_THREADS, FOR_THIS_THREAD, RELAXED, Graphs

from helpers.devices import HIP, open_or_skip
from kernels.images import module_for
from kernels.test_debug import HEADER, KERNELS
from offload_args import (
    Device,
    In,
    InOut,
    Kernel,
    Module,
    Out,
    Scratch,
    _core,
    blas,
    call,
    cublas,
    get_include,
    lapack,
    launch,
    offload,
    offload_args,
    update,
)
from offload_args.errors import CaptureError

MODES = pytest.mark.parametrize("mode", [FOR_ALL_THREADS, FOR_THIS_THREAD, RELAXED])
CUDA = pytest.mark.parametrize("gpu", ["cuda:0"], indirect=True)  # with the same id as in other tests
LARGE = 10**6


@pytest.fixture(params=["cuda:0", HIP])
def gpu(request: pytest.FixtureRequest) -> str:
    return open_or_skip(request.param)


@pytest.fixture
def graphs(gpu: str) -> Iterator[Graphs]:
    graphs = Graphs(gpu)
    yield graphs
    graphs.destroy()


class Work:
    """Arrays, and the pointers to them in a region."""

    def __init__(self, device: str) -> None:
        self.device = device
        self.A = np.asfortranarray(np.diag([16.0, 25.0, 36.0]) + 1.0)
        self.B, self.C = (np.asfortranarray(np.arange(9.0).reshape(3, 3) + value) for value in (1, 2))
        self.x, self.y, self.s, self.large = np.arange(1.0, 4.0), np.full(3, 2.0), np.zeros(3), np.ones(LARGE)
        self.integers, self.single = np.array([3, 3, 3], np.int32), np.array([-1, 2, -3], np.float32)
        self.relu = Module.load(module_for(device), name="kernels").kernel("relu", InOut[np.float32], np.int32)
        self.arrays = [getattr(self, name) for name in NAMES]

    @contextmanager
    def lent(self, **options: Any) -> Iterator[Work]:
        """Lend the arrays, and copy them to the device."""
        values = [array.copy() for array in self.arrays]  # the guard forbids reading lent arrays
        with offload_args(*self.arrays, device=self.device, **options) as pointers:
            for name, pointer, value in zip(NAMES, pointers, values, strict=True):
                setattr(self, f"d{name}", pointer)
                pointer[..., :1].copy_from(pointer[..., 1:2])  # a partial write, so that the array is copied up
                pointer.assign(value)
            yield self

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(name)


NAMES = ["A", "B", "C", "x", "y", "s", "large", "integers", "single"]


def written(w: Work) -> None:
    with update(w.x, device=w.device):
        w.x[...] = 5.0


def through_scratch(w: Work) -> None:
    with offload_args(Scratch(3, np.float64), device=w.device) as (t,):
        blas.copy(w.dx, t)
        blas.axpy(1.0, t, w.dx)


def lent_again(w: Work) -> None:
    with offload_args(w.x, device=w.device) as (dx,):
        blas.scal(2.0, dx)


# No graph can contain these functions, because they need the host or the whole device while they run.
REFUSED: dict[str, Callable[[Work], Any]] = {
    "assign": lambda w: w.dx.assign([7.0, 8.0, 9.0]),
    "assign a number": lambda w: w.dA.assign(1.0),
    "assign to a slice": lambda w: w.dB[1:, ::2].assign(1.0),
    "assign many": lambda w: w.dlarge.assign(np.zeros(LARGE)),
    "to_host": lambda w: w.dx.to_host(),
    "address": lambda w: w.dx.address,
    "update": written,
    "Device.synchronize": lambda w: Device(w.device).synchronize(),
    "Device.trim": lambda w: Device(w.device).trim(),
    "nrm2": lambda w: blas.nrm2(w.dx),
    "asum": lambda w: blas.asum(w.dx),
    "iamax": lambda w: blas.iamax(w.dx),
    "dot": lambda w: blas.dot(w.dx, w.dy),
    "through scratch memory": through_scratch,
    "lent again": lent_again,
    "call": lambda w: call(blas.scal, 2.0, w.x, device=w.device),
    "call of two": lambda w: call(blas.axpy, 2.0, np.ones(3), w.x, device=w.device),
    "offload": lambda w: offload(w.relu, w.single, np.int32(3), device=w.device),
    "lists": lambda w: blas.gemm_batched(1.0, [w.dA], [w.dB], 0.0, [w.dC]),
}
LAPACK: dict[str, Callable[[Work], Any]] = {
    "potrf": lambda w: lapack.potrf(w.dA),
    "posv": lambda w: lapack.posv(w.dA, w.dB),
    "trtrs": lambda w: lapack.trtrs(w.dA, w.dB),
    "getrf": lambda w: lapack.getrf(w.dA, w.dintegers),
    "getrs": lambda w: lapack.getrs(w.dA, w.dintegers, w.dB),
    "gesv": lambda w: lapack.gesv(w.dA, w.dintegers, w.dB),
    "geqrf": lambda w: lapack.geqrf(w.dA, w.ds),
    "ormqr": lambda w: lapack.ormqr(w.dA, w.ds, w.dB),
    "gels": lambda w: lapack.gels(w.dA, w.dB),
    "syevd": lambda w: lapack.syevd(w.dA, w.ds),
    "gesvd": lambda w: lapack.gesvd(w.dA, w.ds, w.dB, w.dC),
}
# A graph can contain these functions.
CAPTURED: dict[str, Callable[[Work], Any]] = {
    "fill": lambda w: w.dx.fill(7.0),
    "fill a slice": lambda w: w.dB[1:, ::2].fill(0.1),
    "copy_from": lambda w: w.dy.copy_from(w.dx),
    "scal": lambda w: blas.scal(3.0, w.dx),
    "copy": lambda w: blas.copy(w.dx, w.dy),
    "swap": lambda w: blas.swap(w.dx, w.dy),
    "gemv": lambda w: blas.gemv(2.0, w.dA, w.dx, 0.5, w.dy),
    "gemm": lambda w: blas.gemm(1.0, w.dA, w.dB, 0.5, w.dC),
    "trsm": lambda w: blas.trsm(1.0, w.dA, w.dB),
    "dot, result": lambda w: blas.dot(w.dx, w.dy, result=w.ds[0:1].reshape(())),
    "nrm2, result": lambda w: blas.nrm2(w.dx, result=w.ds[1:2].reshape(())),
    "scalar on the device": lambda w: blas.gemv(2.0, w.dA, w.dx, w.ds[2:3].reshape(()), w.dy),
    "launch": lambda w: launch(w.relu, w.dsingle, np.int32(3)),
}


def functions(*tables: dict[str, Callable[[Work], Any]]) -> Any:
    both = [(name, function) for table in tables for name, function in table.items()]
    return pytest.mark.parametrize("function", [function for _, function in both], ids=[name for name, _ in both])


@MODES
@functions(REFUSED)
def test_what_a_graph_can_not_have_is_refused_and_spoils_nothing(
    graphs: Graphs, gpu: str, mode: int, function: Callable[[Work], Any]
) -> None:
    refuse(graphs, gpu, mode, function)


@MODES
@CUDA
@functions(LAPACK)
def test_lapack_is_refused_and_spoils_nothing(
    graphs: Graphs, gpu: str, mode: int, function: Callable[[Work], Any]
) -> None:
    refuse(graphs, gpu, mode, function)


def refuse(graphs: Graphs, gpu: str, mode: int, function: Callable[[Work], Any]) -> None:
    work = Work(gpu)
    before = {name: getattr(work, name).copy() for name in NAMES}
    with work.lent(stream=graphs):
        with graphs.captured(mode):
            blas.scal(2.0, work.dx)
            with pytest.raises(CaptureError, match="captur"):
                function(work)
            blas.scal(3.0, work.dx)
        np.testing.assert_array_equal(work.dx.to_host(), before["x"])  # the graph has not run yet
        graphs.launch()
        graphs.launch()
    for name in NAMES:
        np.testing.assert_array_equal(getattr(work, name), before[name] * (36 if name == "x" else 1), name)


@MODES
@functions(CAPTURED)
def test_what_a_graph_has_runs_with_each_launch_alone(
    graphs: Graphs, gpu: str, mode: int, function: Callable[[Work], Any]
) -> None:
    capture(graphs, gpu, mode, function)


@MODES
@CUDA
def test_potrs_is_captured_as_it_is_two_calls_of_trsm(graphs: Graphs, gpu: str, mode: int) -> None:
    capture(graphs, gpu, mode, lambda w: lapack.potrs(w.dA, w.dB))


def capture(graphs: Graphs, gpu: str, mode: int, function: Callable[[Work], Any]) -> None:
    work, expected = Work(gpu), Work(gpu)
    with expected.lent():
        for _ in range(3):
            function(expected)
    with work.lent(stream=graphs):
        before = [getattr(work, f"d{name}").to_host() for name in NAMES]
        with graphs.captured(mode):
            function(work)
        for name, was in zip(NAMES, before, strict=True):
            np.testing.assert_array_equal(getattr(work, f"d{name}").to_host(), was)  # the graph has not run yet
        for _ in range(3):
            graphs.launch()
    for name in NAMES:
        np.testing.assert_array_equal(getattr(work, name), getattr(expected, name), name)


# Drivers refuse to wait for the whole device while one of its streams is captured.
BESIDE = {
    name: function for name, function in (REFUSED | CAPTURED).items() if not name.startswith(("Device", "address"))
}


@MODES
@pytest.mark.parametrize("whose", ["a lent stream", "another stream", "another thread's stream"])
@functions(BESIDE)
def test_beside_a_capture_every_function_does_what_it_always_does(
    graphs: Graphs, gpu: str, mode: int, whose: str, function: Callable[[Work], Any]
) -> None:
    check_beside(graphs, gpu, mode, whose, function)


@MODES
@pytest.mark.parametrize("whose", ["a lent stream", "another stream", "another thread's stream"])
@CUDA
@functions(LAPACK)
def test_beside_a_capture_lapack_does_what_it_always_does(
    graphs: Graphs, gpu: str, mode: int, whose: str, function: Callable[[Work], Any]
) -> None:
    check_beside(graphs, gpu, mode, whose, function)


def check_beside(graphs: Graphs, gpu: str, mode: int, whose: str, function: Callable[[Work], Any]) -> None:
    work, expected, z = Work(gpu), Work(gpu), np.ones(2)
    with expected.lent():
        value = function(expected)
    with ExitStack() as stack:
        if whose == "a lent stream":
            (dz,) = stack.enter_context(offload_args(z, device=gpu, stream=graphs))
            blas.scal(1.0, dz)
        with graphs.captured(mode):
            if whose == "a lent stream":
                blas.scal(2.0, dz)
            if whose == "another thread's stream":
                with ThreadPoolExecutor(1) as pool:
                    result = pool.submit(run, work, function).result()
            else:
                result = run(work, function)
        graphs.launch()
    np.testing.assert_array_equal(z, 2 if whose == "a lent stream" else 1)
    np.testing.assert_array_equal(result, value)
    for name in NAMES:
        np.testing.assert_array_equal(getattr(work, name), getattr(expected, name), name)


def run(work: Work, function: Callable[[Work], Any]) -> Any:
    with work.lent():
        return function(work)


# -- regions ---


@MODES
def test_a_region_whose_arrays_a_graph_has_is_left_after_the_capture(graphs: Graphs, gpu: str, mode: int) -> None:
    x = np.ones(4)
    region = offload_args(x, device=gpu, stream=graphs)
    (dx,) = region.open()
    blas.scal(1.0, dx)
    with graphs.captured(mode):
        blas.scal(2.0, dx)
        with pytest.raises(CaptureError, match="leaving the region"):
            region.close()
        with pytest.raises(CaptureError, match="leaving the region"):
            region.discard()
        blas.scal(3.0, dx)
    graphs.launch()
    region.close()
    np.testing.assert_array_equal(x, 6)


@MODES
def test_a_region_that_is_collected_during_a_capture_lets_its_arrays_go_later(
    graphs: Graphs, gpu: str, mode: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    messages: list[Any] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda report: messages.append(str(report.exc_value)))
    x, t = np.ones(4), np.zeros(4)
    with offload_args(x, device=gpu, stream=graphs) as (dx,):
        blas.scal(1.0, dx)
        inner = offload_args(Scratch(4, np.float64), t, device=gpu, stream=graphs)
        with graphs.captured(mode):
            dt, _ = inner.open()
            dt.fill(2.0)
            blas.axpy(1.0, dt, dx)
            del inner, dt, _
            gc.collect()
        graphs.launch()
    np.testing.assert_array_equal(x, 3)
    assert len(messages) == 1 and "leaving the region" in messages[0]
    with offload_args(np.ones(1), device=gpu):
        pass
    assert t.flags.writeable


@MODES
def test_the_stream_of_a_region_is_captured(graphs: Graphs, gpu: str, mode: int) -> None:
    x, y = np.ones(4), np.ones(4)
    region = offload_args(x, y, device=gpu)
    dx, dy = region.open()
    blas.scal(1.0, dx)
    own = Graphs(gpu, stream=region.stream.handle)
    with own.captured(mode):
        blas.scal(2.0, dx)
        with pytest.raises(CaptureError, match="copied up"):
            blas.scal(2.0, dy)
        with pytest.raises(CaptureError):
            blas.nrm2(dx)
        with pytest.raises(CaptureError, match="its stream is being captured"):
            region.close()
        with offload_args(np.ones(3), device=gpu) as (dz,):  # this region has another stream
            blas.scal(2.0, dz)
    np.testing.assert_array_equal(dx.to_host(), 1)
    own.launch()
    own.launch()
    region.close()
    np.testing.assert_array_equal(x, 4)
    np.testing.assert_array_equal(y, 1)
    own.destroy()


@MODES
def test_a_capture_that_is_forked_into_the_stream_of_a_region_has_its_calls(
    graphs: Graphs, gpu: str, mode: int
) -> None:
    x, y = np.ones(4), np.ones(4)
    region = offload_args(y, device=gpu)
    with offload_args(x, device=gpu, stream=graphs) as (dx,):
        (dy,) = region.open()
        own = Graphs(gpu, stream=region.stream.handle)
        blas.scal(1.0, dx)
        blas.scal(1.0, dy)
        with graphs.captured(mode):
            blas.scal(2.0, dx)
            graphs.before(own)
            blas.scal(3.0, dy)
            with pytest.raises(CaptureError):
                blas.axpy(1.0, dx, dy)  # operands of two streams, which the graph would not order
            own.before(graphs)
        np.testing.assert_array_equal(dy.to_host(), 1)
        graphs.launch()
        graphs.launch()
        region.close()
    np.testing.assert_array_equal(x, 4)
    np.testing.assert_array_equal(y, 9)
    own.destroy()


@MODES
def test_copies_go_on_beside_the_capture_of_a_stream_that_had_copies(graphs: Graphs, gpu: str, mode: int) -> None:
    x, y = np.ones(4), np.ones(4)
    region = offload_args(x, device=gpu)
    (dx,) = region.open()
    own = Graphs(gpu, stream=region.stream.handle)
    for _ in range(100):  # more copies than the device has blocks for small copies
        dx.assign(3.0)
    with own.captured(mode):
        blas.scal(2.0, dx)
        with offload_args(y, device=gpu) as (dy,):
            for i in range(100):
                dy.assign(np.full(4, float(i)))
    own.launch()
    region.close()
    np.testing.assert_array_equal(x, 6)
    np.testing.assert_array_equal(y, 99)
    own.destroy()


@MODES
def test_a_region_is_entered_and_left_in_a_capture_of_its_stream(graphs: Graphs, gpu: str, mode: int) -> None:
    x, y = np.ones(4), np.ones(4)
    with offload_args(x, y, device=gpu, stream=graphs) as (dx, dy):
        blas.axpy(1.0, dx, dy)
        with graphs.captured(mode):
            with offload_args(x, y, device=gpu, stream=graphs) as (inner_x, inner_y):
                blas.axpy(1.0, inner_x, inner_y)
            with offload_args(np.ones(4), device=gpu, stream=graphs) as (dz,), pytest.raises(CaptureError):
                blas.scal(1.0, dz)  # z is not on the device yet
        graphs.launch()
    np.testing.assert_array_equal(y, 3)


@MODES
def test_what_no_call_has_written_yet_is_not_written_by_a_graph_first(graphs: Graphs, gpu: str, mode: int) -> None:
    x, y = np.ones(4), np.full(4, 5.0)
    with (
        pytest.warns(UserWarning, match="nothing wrote it"),
        offload_args(x, Out(y), device=gpu, stream=graphs) as (dx, dy),
    ):
        blas.scal(1.0, dx)
        with graphs.captured(mode):
            with pytest.raises(CaptureError, match="nothing has written"):
                blas.copy(dx, dy)
            with pytest.raises(CaptureError, match="nothing has written"):
                dy.fill(1.0)
    np.testing.assert_array_equal(y, 5)  # otherwise y would have the previous bytes of the memory


@MODES
def test_a_captured_call_comes_after_calls_on_other_streams(graphs: Graphs, gpu: str, mode: int) -> None:
    n = 300
    A, x, y = np.eye(n), np.ones(n), np.zeros(n)
    with offload_args(In(A), x, y, device=gpu, stream=graphs) as (dA, dx, dy):
        blas.copy(dx, dy)
        with offload_args(A, x, device=gpu) as (inner_A, inner_x):  # this region uses another stream
            for _ in range(200):
                blas.trmv(inner_A, inner_x)
            blas.scal(2.0, inner_x)
        with graphs.captured(mode):
            blas.axpy(1.0, dx, dy)
        graphs.launch()
    np.testing.assert_array_equal(y, 3)


@MODES
def test_a_call_on_another_stream_comes_after_the_launch_of_a_graph(graphs: Graphs, gpu: str, mode: int) -> None:
    x = np.ones(1 << 20)
    with offload_args(x, device=gpu, stream=graphs) as (dx,):
        blas.scal(1.0, dx)
        with graphs.captured(mode):
            for _ in range(50):
                blas.scal(-1.0, dx)
            dx.fill(3.0)
        graphs.launch()
        with offload_args(x, device=gpu) as (inner,):
            blas.scal(2.0, inner)
    np.testing.assert_array_equal(x, 6)


@MODES
def test_a_scalar_that_is_staged_lives_as_long_as_the_graph(graphs: Graphs, gpu: str, mode: int) -> None:
    A, x, y, beta = np.eye(3), np.ones(3), np.ones(3), np.array(2.0)
    with offload_args(A, x, y, beta, device=gpu, stream=graphs) as (dA, dx, dy, dbeta):
        blas.gemv(1.0, dA, dx, dbeta, dy)
        with graphs.captured(mode):
            blas.gemv(10.0, dA, dx, dbeta, dy)
        for _ in range(20):
            with offload_args(np.full(1, 7.0), device=gpu) as (other,):
                blas.scal(2.0, other)
        graphs.launch()
    np.testing.assert_array_equal(y, 16)


@MODES
@CUDA
def test_a_kernel_that_checks_its_accesses_is_refused(graphs: Graphs, gpu: str, mode: int) -> None:
    signature = [InOut[np.float32], InOut[np.float64], np.int32]
    kernel = Kernel.compile(HEADER + KERNELS["both"], "both", signature, device=gpu, debug=True)
    refuse(graphs, gpu, mode, lambda w: launch(kernel, w.dsingle, w.dx, np.int32(3)))


def status_of(handle: int) -> int:
    """Return the core's status for the handle of a library's object: 0, or an error if the object was destroyed."""
    (path,) = Path(get_include()).parent.glob("liboffload_args.so.*")
    names = ctypes.CDLL(str(path)).oa_object_names
    return int(names(ctypes.c_void_p(handle), None, None, None))


@MODES
@pytest.mark.parametrize("then", ["region", "handle"])
@CUDA
def test_a_handle_that_is_collected_during_a_capture_is_destroyed_later(
    graphs: Graphs, gpu: str, mode: int, then: str
) -> None:
    """T62. When a handle is destroyed, libraries wait for the device, and this would end the capture."""
    x = np.ones(4)
    kept = cublas.create(gpu)
    handle = _core.object_handle(kept)
    with offload_args(x, device=gpu, stream=graphs) as (dx,):
        blas.scal(1.0, dx)
        with graphs.captured(mode):
            blas.scal(3.0, dx)
            del kept
            gc.collect()
            assert status_of(handle) == 0
        graphs.launch()
    if then == "region":
        with offload_args(np.ones(1), device=gpu):
            pass
    else:
        with cublas.create(gpu):
            pass
    assert status_of(handle) != 0
    np.testing.assert_array_equal(x, 3)


@MODES
@CUDA
def test_a_handle_whose_stream_is_captured(graphs: Graphs, gpu: str, mode: int) -> None:
    x, y = np.ones(4), np.ones(4)
    with cublas.create(gpu) as handle, offload_args(x, y, device=gpu) as (dx, dy):
        cublas.set_stream(handle, graphs)
        cublas.dscal(4, 1.0, dx, 1, handle=handle)
        blas.scal(1.0, dy)
        with graphs.captured(mode):
            cublas.dscal(4, 2.0, dx, 1, handle=handle)
            with pytest.raises(CaptureError):
                cublas.dnrm2(4, dx, 1, handle=handle)
            with pytest.raises(CaptureError):
                blas.scal(5.0, dx)  # on the region's stream, before the graph
            blas.scal(3.0, dy)
        graphs.launch()
        graphs.launch()
        blas.scal(5.0, dx)
    np.testing.assert_array_equal(x, 20)
    np.testing.assert_array_equal(y, 3)
