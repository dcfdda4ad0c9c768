"""On the CPU, a graph computes transforms by the function that other calls use, in Python."""

from __future__ import annotations

import gc
import os
import signal
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from time import sleep
from typing import Any

import numpy as np
import pytest

from helpers.devices import here
from helpers.processes import python
from helpers.threads import on_a_new_thread
from offload_args import Device, Out, _core, blas, fft, offload_args, update
from offload_args.errors import ArgumentError, DiscardedWarning, InvalidDataError, StaleGraphError
from offload_args.fft._library import Work

scipy_fft = pytest.importorskip("scipy.fft")
NAMES = tuple(fft.__all__)


@pytest.fixture(params=here("host", "sim:0"))
def on(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


def during(act: Callable[[], object]) -> AbstractContextManager[None]:
    """Let this thread's transforms call a function first: SciPy calls a program's own backend."""

    class Backend:
        __ua_domain__ = "numpy.scipy.fft"

        @staticmethod
        def __ua_function__(method: Any, arguments: Any, names: Any) -> Any:
            with scipy_fft.skip_backend(Backend):
                act()
                return method(*arguments, **names)

    backend: AbstractContextManager[None] = scipy_fft.set_backend(Backend)
    return backend


def fail() -> None:
    raise ZeroDivisionError("the program's own")


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("dtype", ["float32", "float64", "complex64", "complex128"])
def test_a_replay_has_the_bits_of_a_call(on: str, name: str, dtype: str) -> None:
    if dtype.startswith("complex") and name in ("rfft", "ihfft", "rfft2", "ihfft2", "rfftn", "ihfftn"):
        return  # these functions take real numbers only
    for length in (2, 3, 8, 31, 37, 97):
        arguments: dict[str, Any] = {"n": length, "axis": 1}
        if name.endswith(("n", "2")):
            arguments = {"s": (2, length), "axes": (0, 1)}
        x = np.random.default_rng(length).standard_normal((3, 20, 2)).astype(dtype)
        region = offload_args(x, device=on)
        with region as (dx,):
            for operand in (dx, dx[::-1], dx[:, ::2]):
                with region.capture() as g:
                    result = getattr(fft, name)(operand, norm="ortho", **arguments)
                g.replay()
                expected = getattr(fft, name)(operand, norm="ortho", **arguments).to_host()
                assert result.to_host().tobytes() == expected.tobytes()


def test_an_exception_in_a_replay_is_raised_and_spoils_the_result(on: str) -> None:
    x, flag = np.arange(8.0), np.zeros(1)
    region = offload_args(x, flag, device=on)
    with region as (dx, dflag):
        y = fft.rfft(dx)
        with region.capture() as g:
            y.copy_from(fft.rfft(dx))

        def step() -> None:
            fft.rfft(dx)
            blas.scal(1.0, dflag)

        g.replay()
        for run in (g.replay, lambda: region.loop(step, until=dflag, at_most=3)):
            with during(fail), pytest.raises(ZeroDivisionError, match=r"^the program's own$"):
                run()
        with pytest.raises(InvalidDataError):
            y.to_host()
        g.replay()
        assert np.array_equal(y.to_host(), scipy_fft.rfft(x))
        with during(fail), pytest.raises(ZeroDivisionError):
            fft.rfft(dx)
        dflag.fill(0)  # the loop's graph would have written it


def test_ctrl_c_in_a_replay_is_raised(on: str) -> None:
    x = np.arange(8.0)
    region = offload_args(x, device=on)
    with region as (dx,):
        with region.capture() as g:
            y = fft.rfft(dx)
        with during(lambda: signal.raise_signal(signal.SIGINT)), pytest.raises(KeyboardInterrupt):
            g.replay()
        g.replay()
        assert np.array_equal(y.to_host(), scipy_fft.rfft(x))


def test_a_region_is_left_once_a_replay_on_another_thread_has_ended(on: str) -> None:
    x, out = np.arange(8.0), np.zeros(5, np.complex128)
    region = offload_args(x, Out(out), device=on)
    (dx, dout) = region.open()
    with region.capture() as g:
        dout.copy_from(fft.rfft(dx))
    begun, goes = threading.Event(), threading.Event()

    def act() -> None:
        begun.set()
        assert goes.wait(60)

    def replay() -> None:
        with during(act):
            g.replay()

    threads = [threading.Thread(target=replay), threading.Thread(target=region.close)]
    threads[0].start()
    assert begun.wait(60)
    assert g.calls == 2 and "replayed 0 times" in repr(g) and dx[1:].live  # no look at the region waits
    threads[1].start()
    threads[1].join(0.2)
    assert threads[1].is_alive()
    goes.set()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()
    assert np.array_equal(out, scipy_fft.rfft(x))


def test_code_that_runs_in_a_replay_may_use_the_graph_and_the_region(on: str) -> None:
    x = np.arange(8.0)
    region = offload_args(x, device=on)
    with region as (dx,):
        with region.capture() as g:
            y = fft.rfft(dx)

        def act() -> None:
            g.replay()
            fft.rfft(dx)
            Device(on).synchronize()
            for refused in (region.close, lambda: update(x)):
                with pytest.raises(ArgumentError, match="a call of this thread is still open"):
                    refused()

        with during(act):
            g.replay()
        assert np.array_equal(y.to_host(), scipy_fft.rfft(x))

        with during(lambda: g.update().__enter__()):
            g.replay()  # the graph is released meanwhile
        with pytest.raises(StaleGraphError):
            g.replay()
        region._drop_capture()


@pytest.mark.filterwarnings("ignore::offload_args.errors.DiscardedWarning", "ignore::ResourceWarning")
def test_garbage_with_graphs_may_be_collected_in_a_replay(on: str) -> None:
    x, z = np.arange(8.0), np.zeros(4)
    region = offload_args(x, device=on)

    def collect() -> None:
        inner = offload_args(x, z, device=on)
        pointers = inner.open()
        with inner.capture() as graph:
            fft.rfft(pointers[0])
            blas.scal(2.0, pointers[1])
        graph.replay()
        cycle: list[Any] = [inner, pointers, graph]
        cycle.append(cycle)
        del inner, pointers, graph, cycle
        gc.collect()

    with region as (dx,):
        with region.capture() as g:
            y = fft.rfft(dx)
        with during(collect):
            g.replay()
        assert np.array_equal(y.to_host(), scipy_fft.rfft(x))
    del g
    gc.collect()
    assert not [each for each in gc.get_objects() if type(each) is Work]  # the graphs have freed their functions


def test_a_region_that_is_collected_in_its_own_transform_ends_after_it(on: str) -> None:
    x = np.arange(8.0)

    def lent() -> Any:
        region = offload_args(x, device=on)
        (dx,) = region.open()
        cycle: list[Any] = [region]
        cycle.append(cycle)
        return dx

    gc.disable()
    try:
        dx = lent()
        with during(gc.collect), pytest.warns(DiscardedWarning, match="was never left"):
            fft.rfft(dx)
    finally:
        gc.enable()
    with offload_args(np.ones(3), device=on):
        assert not dx.live and x.flags.writeable
    assert np.array_equal(x, np.arange(8.0))


def test_an_array_becomes_undefined_while_the_first_replay_on_another_thread_fills_it(on: str) -> None:
    x, y = np.ones(64, complex), np.zeros(64, complex)
    under_way = threading.Event()

    def act() -> None:
        under_way.set()
        sleep(0.3)  # the other thread waits for the replay meanwhile, without the GIL

    region = offload_args(x, Out(y), device=on)
    with region as (dx, dy):
        with region.capture() as g:
            dy.copy_from(fft.fft(dx))

        def replay() -> None:
            with during(act):
                g.replay()

        thread = threading.Thread(target=replay)
        thread.start()
        under_way.wait()
        _core.invalidate(dy)
        thread.join()
        dy.fill(3)
    assert (y == 3).all()


@pytest.mark.later("host")
def test_threads_replay_while_other_threads_compute(on: str) -> None:
    x = np.random.default_rng(1).standard_normal(64)
    stop = threading.Event()

    def compute() -> None:
        while not stop.is_set():
            sum(range(1000))

    busy = threading.Thread(target=compute)
    busy.start()
    region = offload_args(x, device=on)
    try:
        with region as (dx,):
            with region.capture() as g:
                z = fft.irfft(fft.rfft(dx))

            def work() -> None:
                for _ in range(10):
                    g.replay()
                    np.testing.assert_allclose(z.to_host(), x, atol=1e-14)
                    fft.rfft(dx)

            def fork() -> None:
                for _ in range(3):
                    if not (child := os.fork()):
                        os._exit(0)
                    assert os.waitpid(child, 0)[1] == 0

            works = [threading.Thread(target=on_a_new_thread, args=(each,)) for each in (work, work, work, fork)]
            for thread in works:
                thread.start()
            for thread in works:
                thread.join()
    finally:
        stop.set()
        busy.join()


AT_EXIT = """
import sys, threading
import numpy as np
from offload_args import fft, offload_args
from offload_args.errors import RegionError
region = offload_args(np.random.rand(4096), device=sys.argv[1])
dx, = region.open()
with region.capture() as g:
    y = fft.rfft(dx)
begun = threading.Event()
def replay():
    try:
        while True:
            g.replay()
            begun.set()
    except RegionError as error:
        assert "Python ends" in str(error)
threading.Thread(target=replay, daemon=True).start()
begun.wait()
print("end")
"""


@pytest.mark.later
def test_a_process_ends_while_a_daemon_thread_replays(on: str) -> None:
    for _ in range(3):
        ended = python(AT_EXIT.replace("sys.argv[1]", repr(on)))
        assert (ended.returncode, ended.stdout) == (0, "end\n"), ended.stderr
        assert "terminate" not in ended.stderr


# The graph computes a transform and then calls a slow library twice. The process ends during the first call.
SLOW = """
#include <offload_args/kernel.h>
#include <unistd.h>
static volatile int runs;
static __attribute__((destructor)) void end(void) { if (runs) _exit(11); }
OA_KERNEL(slow, oa::InOut<double> x, int file) {
  runs = 1;
  if (write(file, "!", 1)) usleep(500000);
  runs = 0;
}
"""
ENDS_IN_A_CALL = f"""
import os, sys, threading
import numpy as np
from offload_args import InOut, Kernel, fft, offload_args
slow = Kernel.compile({SLOW!r}, "slow", [InOut[np.float64], np.int32], device="host", debug=False)
reads, writes = os.pipe()
device, transforms = os.environ["DEVICE"], os.environ["TRANSFORMS"]
region = offload_args(np.random.rand(8), np.zeros(1), device=device)
dx, dy = region.open()
with region.capture() as g:
    if transforms == "beside":
        fft.rfft(dx)
    slow[1, 1](dy, writes)
    slow[1, 1](dy, writes)
threading.Thread(target=g.replay, daemon=True).start()
os.read(reads, 1)
"""


@pytest.mark.later("host", "without")
@pytest.mark.parametrize("transforms", ["beside", "without"])
@pytest.mark.parametrize("device", ["host", "sim:0"])
def test_a_process_waits_at_its_end_for_a_call_of_a_graph(device: str, transforms: str) -> None:
    ended = python(ENDS_IN_A_CALL, DEVICE=device, TRANSFORMS=transforms)
    assert (ended.returncode, ended.stderr) == (0, "")


@pytest.mark.later(but="host")
def test_numpy_computes_in_a_graph_if_scipy_is_not_installed(on: str) -> None:
    code = f"""
import sys
sys.modules["scipy.fft"] = None
import numpy as np
from offload_args import fft, offload_args
x = np.random.rand(37)
region = offload_args(x, device={on!r})
with region as (dx,):
    with region.capture() as g:
        y, z = fft.fft(dx), fft.hfftn(dx)
    g.replay()
    assert y.to_host().tobytes() == np.fft.fft(x).tobytes() == fft.fft(dx).to_host().tobytes()
    assert z.to_host().tobytes() == fft.hfftn(dx).to_host().tobytes()
"""
    ended = python(code)
    assert ended.returncode == 0, ended.stderr
