"""In a forked child, arrays are usable again, pointers raise a clear error, and the exit is silent."""

from __future__ import annotations

import os
from collections.abc import Callable

import numpy as np
import pytest
from scipy.sparse import csr_array

from helpers.arrays import ramp
from helpers.processes import printed, python
from offload_args import Device, blas, linalg, offload_args, sparse, trace, update
from offload_args.errors import ForkedError

SHOWN_LATE = """
import atexit, os
import numpy as np
from offload_args import Device, blas, offload_args

x, device = np.ones(3), Device({device!r})
region = offload_args(x, device=device)
(dx,) = region.open()
blas.scal(2.0, dx)

def show():
    for shown in (region, dx, device):
        shown._repr_html_()
        assert device.name in repr(shown) or "dead" in repr(shown)
    print(repr(dx).rpartition(" ")[2])

atexit.register(show)
child = os.fork()
if child:
    assert os.waitpid(child, 0)[1] == 0
"""


@pytest.mark.later("host")
@pytest.mark.promise("T21")
def test_regions_and_pointers_show_themselves_in_a_forked_child_and_at_exit(device: str) -> None:
    # Python 3.12 warns about every fork of a process with threads.
    ran = python(SHOWN_LATE.format(device=device), "-W", "ignore::DeprecationWarning")
    assert (ran.returncode, ran.stderr, ran.stdout) == (0, "", "dead)\nwritten)\n")


LENT_ELSEWHERE = """
import os, threading, warnings
import numpy as np
from offload_args import offload_args
from offload_args.errors import ForkedError
warnings.simplefilter("ignore", DeprecationWarning)  # of forking with threads
a, inside, go = np.zeros(10), threading.Event(), threading.Event()
def other():
    with offload_args(a, device="{device}"):
        inside.set()
        go.wait()
thread = threading.Thread(target=other)
thread.start()
inside.wait()
again = offload_args(a, device="{device}")
child = os.fork()
if child == 0:
    try:
        again.__enter__()
    except ForkedError:
        os._exit(7 if a.flags.writeable else 8)
status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
go.set()
thread.join()
print(status, a.flags.writeable)
"""


@pytest.mark.later("host")
@pytest.mark.promise("T21")
def test_a_region_refused_in_a_child_leaves_the_array_writable(device: str) -> None:
    code = LENT_ELSEWHERE.format(device=device)
    ran = python(code)
    assert (ran.stdout, ran.stderr) == ("7 True\n", "")


FORKED_BY_A_HANDLER = """
import os, signal, warnings
import numpy as np
from offload_args import blas, testing

warnings.simplefilter("ignore", DeprecationWarning)  # of forking with threads
A, C, process, children = np.ones((40, 40)), np.zeros((40, 40)), os.getpid(), []

def handler(*_):
    children.append(os.fork())
    if {raises} and os.getpid() != process:
        raise KeyError("handler")

def multiply():
    blas.symm(1.0, A, A, 0.0, C, devices=["sim:0"])

multiply()  # imports modules
signal.signal(signal.SIGALRM, handler)
testing.sim_device(delay_us=20000)
signal.setitimer(signal.ITIMER_REAL, 0.08)  # the call takes 0.17 s
try:
    multiply()
except Exception as error:
    print(type(error).__name__, str(error)[:9], os.getpid() == process, flush=True)
    os._exit(0)
print(os.waitpid(children[0], 0)[1], C.sum())
"""


@pytest.mark.promise("T21")
@pytest.mark.parametrize("raises", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_a_signal_handler_may_fork_during_a_call_with_devices(raises: bool) -> None:
    # Without this variable, OpenBLAS may wait for its threads for ever in the parent's fork, also without this package.
    came = printed(FORKED_BY_A_HANDLER.format(raises=raises), OPENBLAS_NUM_THREADS="1")
    child = "KeyError 'handler'" if raises else "ForkedError blas.symm"
    assert came == f"{child} False\n0 64000.0\n"


@pytest.mark.promise("T21")
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")  # a driver has threads
def test_a_forked_child_has_its_arrays_back_and_a_clear_error(device: str) -> None:
    x = ramp(8)
    view = x[2:]
    with offload_args(x, view, device=device) as (dx, _):
        child = os.fork()
        if child == 0:
            code = 1
            try:
                x[0] = 5
                view[0] = 6
                try:
                    blas.scal(2.0, dx)
                except ForkedError:
                    code = 0
            finally:
                os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        blas.scal(2.0, dx)
    np.testing.assert_array_equal(x, 2 * ramp(8))


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_the_error_in_a_forked_child_names_the_function(device: str) -> None:
    x, target, A = ramp(8), Device(device), csr_array(np.eye(8, dtype=np.float32))
    region = offload_args(x, device=target)
    with region as (dx,), sparse.lend(A, device=target) as dA:
        dsquare = dx[:4].reshape(2, 2)
        calls: dict[str, Callable[[], object]] = {
            "DevicePtr.assign": lambda: dx.assign(x),
            "DevicePtr.fill": lambda: dx.fill(0),
            "DevicePtr.copy_from": lambda: dx.copy_from(dx),
            "DevicePtr.to_host": dx.to_host,
            "DevicePtr.address": lambda: dx.address,
            "DevicePtr": lambda: dx[2:],
            "update": lambda: update(x),
            "offload_args": lambda: offload_args(np.ones(3), device=target).open(),
            "offload_args.capture": lambda: region.capture().__enter__(),
            "linalg.inv": lambda: linalg.inv(dsquare),
            "sparse.lend": lambda: sparse.lend(A, device=target).__enter__(),
            "sparse.matmul": lambda: sparse.matmul(dA, dx),
            "linalg.solve": lambda: linalg.solve(np.eye(2), np.ones(2), device=target),
            "Device": lambda: Device(device),
            "Device.counters": lambda: target.counters,
            "Device.keep": lambda: target.keep(x),
            "Device.residency": lambda: target.residency,
            "Device.synchronize": target.synchronize,
            "Device.trim": target.trim,
            "trace": lambda: trace().__enter__(),
        }
        read, write = os.pipe()
        if os.fork() == 0:
            try:
                for call in (lambda: blas.scal(2.0, dx), *calls.values()):
                    try:
                        call()
                    except ForkedError as error:
                        os.write(write, f"{error}\n".encode())
            finally:
                os._exit(0)
        os.close(write)
        with open(read) as texts:
            scal, *named = texts.read().splitlines()
        os.wait()
    assert scal.partition(": ")[0].endswith("scal")
    assert [text.partition(": ")[0] for text in named] == list(calls)
    assert all("start workers with the spawn method" in text for text in (scal, *named))


FORKS = """
import gc, os, signal, sys, threading, warnings
import numpy as np
from offload_args import Device, blas, empty, offload_args
from offload_args.errors import ForkedError

warnings.simplefilter("ignore", DeprecationWarning)  # of forking with threads
device = Device("{device}")
stop = threading.Event()
right = []

def work(value):
    x = np.full(1 << 16, value, np.float32)
    while not stop.is_set():
        with offload_args(x, device=device, resident=value % 2 == 1) as (dx,):
            blas.scal(-1.0, dx)
            blas.scal(-1.0, dx)
    right.append(bool((x == value).all()))

def child(region, x, dx):
    signal.alarm(300)  # a child that hangs ends
    x[0] = 5
    for use in (
        lambda: blas.scal(2.0, dx),
        lambda: dx[1:],
        lambda: offload_args(x, device=device).__enter__(),
        lambda: empty(3, device=device),
        lambda: device.keep(x),
        lambda: region.__exit__(None, None, None),
        device.synchronize,
    ):
        try:
            use()
        except ForkedError:
            continue
        os._exit(1)

threads = [threading.Thread(target=work, args=(i,)) for i in range(2)]
for thread in threads:
    thread.start()
for i in range({children}):
    kept, pinned, x, abandoned = np.ones(1 << 16), empty(100, device=device), np.ones(8), np.ones(8)
    device.keep(kept)
    cycle = [offload_args(abandoned, device=device)]
    cycle.append(cycle)
    cycle[0].__enter__()
    with offload_args(pinned, x, device=device) as (dpinned, dx):
        piece = dx[2:]
        inner = offload_args(x, device=device)
        inner.__enter__()
        child_id = os.fork()
        if child_id == 0:
            child(inner, x, dx)
            del cycle, kept, pinned, piece, inner
            gc.collect()
            sys.exit(7)
        # Wait for this child only, because other threads' first calls may start a process to look for their library.
        status = os.waitstatus_to_exitcode(os.waitpid(child_id, 0)[1])
        blas.scal(2.0, piece)
        inner.__exit__(None, None, None)
        cycle[0].__exit__(None, None, None)
    if status != 7 or x.tolist() != [1, 1] + [2] * 6:
        print(i, status, x)
stop.set()
for thread in threads:
    thread.join()
print(right, device.counters.regions, device.counters.mappings)
"""


FIRST_USE = """
import os, signal, sys, threading, warnings
import numpy as np
from offload_args import Device, blas, offload_args
from offload_args.errors import ForkedError

warnings.simplefilter("ignore", DeprecationWarning)  # of forking with threads
reached, forked = threading.Event(), threading.Event()

class Slow:  # an import that takes until the fork
    def find_spec(self, name, path, target=None):
        if name != "offload_args." + {{"cuda": "cublas", "hip": "rocblas"}}.get(device.backend, "libraries"):
            return None
        spec = next(filter(None, (f.find_spec(name, path, target) for f in sys.meta_path if f is not self)))
        run = spec.loader.exec_module
        spec.loader.exec_module = lambda module: (reached.set(), forked.wait(), run(module))
        return spec

device, x = Device("{device}"), np.ones(4)
sys.meta_path.insert(0, Slow())

def first():
    with offload_args(np.ones(4), device=device) as (dx,):
        blas.scal(2.0, dx)

with offload_args(x, device=device) as (dx,):
    thread = threading.Thread(target=first)
    thread.start()
    reached.wait()
    child = os.fork()
    if child == 0:
        signal.alarm(300)  # a child that hangs ends
        try:
            blas.scal(2.0, dx)
        except ForkedError:
            os._exit(7)
        os._exit(1)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    forked.set()
    thread.join()
    blas.scal(2.0, dx)
print(status, x)
"""


@pytest.mark.later("host")
@pytest.mark.promise("T21")
def test_a_child_forked_while_a_thread_finds_the_library_is_told_and_does_not_wait(device: str) -> None:
    run = python(FIRST_USE.format(device=device), timeout=300)
    assert (run.returncode, run.stderr, run.stdout) == (0, "", "7 [2. 2. 2. 2.]\n")


@pytest.mark.later("host")
@pytest.mark.promise("T21")
@pytest.mark.parametrize("children", [3, pytest.param(10, marks=pytest.mark.slow)])
def test_children_forked_while_threads_are_busy_say_so_and_leave_quietly(device: str, children: int) -> None:
    code = FORKS.format(device=device, children=children)
    run = python(code, timeout=300)
    assert (run.returncode, run.stderr, run.stdout) == (0, "", "[True, True] 0 0\n")


REPLAYED_BY_A_THREAD = """
import os, signal, sys, threading, warnings
import numpy as np
from offload_args import blas, offload_args
from offload_args.errors import ForkedError
warnings.simplefilter("ignore")  # Python 3.12 warns of forks beside threads
x = np.ones(4)
region = offload_args(x, device=os.environ["DEVICE"])
(dx,) = region.open()
with region.capture(x=dx) as g:
    blas.scal(1.0, dx)

def replay():
    while True:
        g.replay(x=x)

threading.Thread(target=replay, daemon=True).start()
while g.replays < 10:
    pass
for child in range(6):
    if pid := os.fork():
        assert os.waitpid(pid, 0)[1] == 0
        continue
    signal.alarm(20)
    try:
        g.replay(x=x)
    except ForkedError:
        os._exit(0)
    os._exit(1)
print("fine")
"""


@pytest.mark.slow
def test_a_child_forked_while_a_thread_replays_a_graph_is_told_and_does_not_wait(device: str) -> None:
    ended = python(REPLAYED_BY_A_THREAD, DEVICE=device)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "fine\n", "")
