"""Compare the cost of a launch with the bare call of the driver, and with other packages; see README.md in this folder.

python benchmarks/launch_cost.py [--device cuda:0] [--rounds N]
python benchmarks/launch_cost.py --own [--rounds N]     on a driver that does nothing (no_driver.c), and on the host
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import importlib
import math
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from timeit import Timer
from typing import Any

import numpy as np

from offload_args import Device, In, Kernel, Module, Out, call, launch, offload, offload_args

GOAL = 0.6  # the most us over C
PLAIN_GOAL = 0.8  # the same for the forms that choose grid and block
OFFLOAD_GOAL = 0.5  # the most, as a share of CuPy's time with its copies
COUNT = 200  # the launches of a run; the GPU's queue takes so many without waiting
N, BLOCK = 256, 256
NOT_CURRENT = "the context not current"
CHOSEN = "grid and block chosen"
FOLDER = "OFFLOAD_ARGS_NO_DRIVER"  # the folder of the driver that does nothing, set by the first of two processes
SIGNATURE = (In[np.float32], In[np.float32], Out[np.float32], np.int32)
Runs = dict[str, Callable[[], float]]
SOURCE = """
extern "C" __global__ void vadd(const float *a, const float *b, float *c, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) c[i] = a[i] + b[i];
}"""


def build(folder: Path) -> tuple[bytes, ctypes.CDLL]:
    """Return the kernel as PTX, and the bare calls."""
    nvcc = shutil.which("nvcc")
    if nvcc is None:
        raise SystemExit("launch_cost.py: nvcc is not here; it comes with the CUDA toolkit")
    ptx, library = folder / "vadd.ptx", folder / "bare.so"
    subprocess.run([nvcc, "-ptx", "-x", "cu", "-", "-o", ptx], input=SOURCE.encode(), check=True)
    source = Path(__file__).with_suffix(".c")
    subprocess.run(["cc", "-O2", "-Wall", "-shared", "-fPIC", source, "-o", library, "-ldl"], check=True)
    bare = ctypes.CDLL(str(library))
    bare.bare_issue.restype = ctypes.c_double
    bare.bare_issue.argtypes = [ctypes.c_long, *[ctypes.c_uint] * 2, *[ctypes.c_void_p] * 3, ctypes.c_int]
    image = ptx.read_bytes() + b"\0"
    if bare.bare_open(image, b"vadd"):
        raise SystemExit("launch_cost.py: the driver's own calls failed")
    bare.bare_current(0)
    return image, bare


def timer(statement: str, **names: Any) -> Callable[[], float]:
    """Return a run, which returns the seconds of a launch."""
    timer = Timer(statement, globals=names)
    return lambda: timer.timeit(COUNT) / COUNT


# -- other packages: each returns its run ------------------------------------------------------------------------------


def with_cupy(ptx: bytes, host: list[Any]) -> Callable[[], float]:
    import cupy

    kernel = cupy.RawKernel(SOURCE, "vadd")
    a, b, c = map(cupy.asarray, host)
    return timer("kernel((1,), (256,), (a, b, c, n))", kernel=kernel, a=a, b=b, c=c, n=np.int32(N))


def with_cuda_core(ptx: bytes, host: list[Any]) -> Callable[[], float]:
    try:
        core = importlib.import_module("cuda.core")
        core.launch  # noqa: B018
    except (ImportError, AttributeError):
        core = importlib.import_module("cuda.core.experimental")
    device = core.Device(0)
    device.set_current()
    stream = device.create_stream()
    kernel = core.ObjectCode.from_ptx(ptx).get_kernel("vadd")
    buffers = [device.allocate(4 * N, stream=stream) for _ in host]
    a, b, c = (int(buffer.handle) for buffer in buffers)
    names = {"launch": core.launch, "stream": stream, "config": core.LaunchConfig(grid=1, block=BLOCK)}
    names |= {"kernel": kernel, "a": a, "b": b, "c": c, "n": np.int32(N), "buffers": buffers}
    return timer("launch(stream, config, kernel, a, b, c, n)", **names)


def with_pycuda(ptx: bytes, host: list[Any]) -> Callable[[], float]:
    import pycuda.driver as driver

    driver.init()
    context = driver.Device(0).retain_primary_context()
    context.push()
    function = driver.module_from_buffer(ptx).get_function("vadd")
    function.prepare("PPPi")
    a, b, c = (driver.mem_alloc(4 * N) for _ in host)
    names = {"call": function.prepared_async_call, "stream": driver.Stream(), "a": a, "b": b, "c": c, "n": N}
    context.pop()  # the loop makes the context current; a context on PyCUDA's stack would crash the process at its end
    return timer("call((1, 1), (256, 1, 1), stream, a, b, c, n)", **names, context=context)


def with_numba(ptx: bytes, host: list[Any]) -> Callable[[], float]:
    if not hasattr(np, "row_stack"):  # numba-cuda 0.30 uses this function, which NumPy 2.5 lacks
        np.row_stack = np.vstack  # type: ignore[attr-defined]
    from numba import cuda

    def vadd(a: Any, b: Any, c: Any, n: int) -> None:
        i = cuda.grid(1)
        if i < n:
            c[i] = a[i] + b[i]

    stream = cuda.stream()
    a, b, c = map(cuda.to_device, host)
    launcher = cuda.jit("void(float32[::1], float32[::1], float32[::1], int32)")(vadd)[1, BLOCK, stream]
    return timer("launcher(a, b, c, n)", launcher=launcher, a=a, b=b, c=c, n=N)


OTHERS = {
    "CuPy RawKernel": with_cupy,
    "cuda.core": with_cuda_core,
    "PyCUDA, prepared": with_pycuda,
    "numba-cuda": with_numba,
}


def in_turn(bare: ctypes.CDLL, rounds: int, ours: Runs, others: Runs) -> dict[str, list[float]]:
    """Make each run in turn and return their times in us; the first round, in which caches are filled, does not count.

    The GPU's context is current, except in rows whose names state the opposite.
    """
    times: dict[str, list[float]] = {name: [] for name in (*others, *ours)}
    for _ in range(rounds + 1):
        for name, run in (*others.items(), *ours.items()):
            bare.bare_current(NOT_CURRENT not in name)
            times[name].append(1e6 * run())
            bare.bare_current(1)
            bare.bare_wait()
    bare.bare_current(0)
    return {name: taken[1:] for name, taken in times.items()}


def report(times: dict[str, list[float]], ours: Runs) -> None:
    in_c = times["C, cuLaunchKernel"]
    medians = {name: statistics.median(taken) for name, taken in times.items()}
    least = min((us for name, us in medians.items() if name not in ours and times[name] is not in_c), default=math.inf)
    print("| | µs | best | over C | |\n|---|---:|---:|---:|---|")
    for name, taken in times.items():
        over = statistics.median(time - other for time, other in zip(taken, in_c, strict=True))
        verdict = ""
        if name in ours:
            goal = PLAIN_GOAL if CHOSEN in name else GOAL
            verdict = f"at most {goal} over C: {'met' if over <= goal else 'missed'}, "
            verdict += f"below other packages: {'met' if medians[name] < least else 'missed'}"
        print(f"| {name} | {medians[name]:.2f} | {min(taken):.2f} | {over:.2f} | {verdict} |")


# -- a launch with a region of its own ---------------------------------------------------------------------------------


def offload_beside_cupy(vadd: Kernel, device: Device, rounds: int) -> None:
    """Print the time of an offload of three arrays of 4 KiB, compared with CuPy and its copies.

    Both wait for the result.
    """
    n = 1024
    a, b, c = (np.ones(n, np.float32) for _ in range(3))
    runs: Runs = {
        "offload_args, `offload`": timer(
            "f(k, a, b, c, n, device=device)", f=offload, k=vadd, a=a, b=b, c=c, n=n, device=device
        )
    }
    try:
        import cupy

        kernel, on_device = cupy.RawKernel(SOURCE, "vadd"), cupy.empty(n, np.float32)
        text = "kernel((4,), (256,), (asarray(a), asarray(b), d, n)); d.get(out=c)"
        names = {"kernel": kernel, "asarray": cupy.asarray, "d": on_device, "a": a, "b": b, "c": c, "n": np.int32(n)}
        runs["CuPy, `asarray`, `RawKernel`, `get`"] = timer(text, **names)
        runs["CuPy, the same and a new array for the result"] = timer(
            text.replace(", d,", ", e,").replace("kernel(", "e = empty(n, 'f'); kernel(", 1).replace("d.get", "e.get"),
            **names,
            empty=cupy.empty,
        )
    except ImportError as error:
        print(f"Without CuPy: {error}\n")
    times: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(rounds + 1):
        for name, run in runs.items():
            times[name].append(1e6 * run())
    medians = {name: statistics.median(taken[1:]) for name, taken in times.items()}
    ours, *others = medians.values()
    print("\n| three arrays of 4 KiB, up, a launch, down | µs | |\n|---|---:|---|")
    for name, us in medians.items():
        verdict = ""
        if others and us is ours:
            ratio = ours / min(others)
            verdict = f"{ratio:.2f} of CuPy (at most {OFFLOAD_GOAL}: {'met' if ratio <= OFFLOAD_GOAL else 'missed'})"
        print(f"| {name} | {us:.2f} | {verdict} |")


# -- the package's own part, without a GPU -----------------------------------------------------------------------------

NO_CODE = b"""\
.version 7.0
.target sm_52
.address_size 64
.visible .entry vadd(.param .u64 a, .param .u64 b, .param .u64 c, .param .u32 n)
{
  ret;
}
"""
ON_HOST = """\
#include <offload_args/kernel.h>

OA_KERNEL(vadd, oa::In<float> a, oa::In<float> b, oa::Out<float> c, int n) {
  for (auto element : c.mine(oa::Linear1D(n), here)) *element = a[element.index()] + b[element.index()];
}
"""


def own_part(device: Device, vadd: Kernel, rounds: int) -> None:
    """Print the fastest runs of each form."""
    a, b, c = (np.ones(8, np.float32) for _ in range(3))
    large = [np.ones(1024, np.float32) for _ in range(3)]
    with offload_args(a, b, c, device=device) as (da, db, dc):
        names = {"a": da, "b": db, "c": dc, "n": 8, "vadd": vadd, "launch": launch}
        lent = dict(zip("abc", large, strict=True)) | {"n": 1024, "vadd": vadd, "device": device}
        runs = {
            "`vadd[grid, block]` made before": timer("go(a, b, c, n)", go=vadd[1, 32], **names),
            "`vadd[grid, block](...)`": timer("vadd[1, 32](a, b, c, n)", **names),
            "`vadd(...)`": timer("vadd(a, b, c, n)", **names),
            "`launch(vadd, ...)`": timer("launch(vadd, a, b, c, n)", **names),
            "`launch(vadd, ..., grid=, block=)`": timer("launch(vadd, a, b, c, n, grid=1, block=32)", **names),
        }
        lent_runs = {
            "`offload(vadd, ...)` of three arrays of 4 KiB": timer("offload(vadd, a, b, c, n, device=device)",
                                                                   offload=offload, **lent),
            "`call(vadd[grid, block], ...)` of them": timer("call(vadd[4, 256], a, b, c, n, device=device)",
                                                            call=call, **lent),
        }  # fmt: skip
        gc.disable()
        print(f"\n| {device.name}, the package's own part | µs, fastest of {rounds} |\n|---|---:|")
        for name, run in runs.items():
            print(f"| {name} | {min(1e6 * run() for _ in range(rounds)):.3f} |")
    for name, run in lent_runs.items():
        print(f"| {name} | {min(1e6 * run() for _ in range(rounds)):.3f} |")


def measure_own(rounds: int) -> int:
    if FOLDER in os.environ:
        own_part(Device("cuda:0"), Module.load(NO_CODE, name="vadd.ptx").kernel("vadd", *SIGNATURE), rounds)
        host = Kernel.compile(ON_HOST, "vadd", SIGNATURE, device="host", debug=False)
        own_part(Device.host(), host, rounds)
        return 0
    with tempfile.TemporaryDirectory() as folder:
        built = os.path.join(folder, "libcuda.so.1")
        source = Path(__file__).with_name("no_driver.c")
        subprocess.run(["cc", "-O2", "-shared", "-fPIC", source, "-o", built], check=True)
        path = os.pathsep.join(filter(None, (folder, os.environ.get("LD_LIBRARY_PATH"))))
        changed = os.environ | {FOLDER: folder, "LD_LIBRARY_PATH": path}
        return subprocess.run([sys.executable, *sys.argv], env=changed).returncode


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--rounds", type=int, default=301)
    parser.add_argument("--own", action="store_true", help="the package's own part, without a GPU")
    options = parser.parse_args()
    if options.own:
        return measure_own(options.rounds)
    device = Device(options.device)
    host = [np.ones(N, np.float32) for _ in range(3)]
    print(f"{device.model}: a launch of {BLOCK} threads, issued; median of {options.rounds} rounds of {COUNT}\n")
    with (
        tempfile.TemporaryDirectory() as folder,
        offload_args(*host, device=device) as (a, b, c),
        offload_args(
            *[array.copy() for array in host], device=device
        ) as borrowed,  # separate arrays, because taking an address changes a mapping
    ):
        ptx, bare = build(Path(folder))
        vadd = Module.load(ptx, name="vadd.ptx").kernel("vadd", *SIGNATURE)
        names = {"a": a, "b": b, "c": c, "n": N}
        made_before = timer("go(a, b, c, n)", go=vadd[1, BLOCK], **names)
        ours = {
            "offload_args, `vadd[grid, block]` made before": made_before,
            f"offload_args, `vadd(...)`, {CHOSEN}": timer("vadd(a, b, c, n)", vadd=vadd, **names),
            f"offload_args, `launch(vadd, ...)`, {CHOSEN}": timer(
                "launch(vadd, a, b, c, n)", launch=launch, vadd=vadd, **names
            ),
            "offload_args, `vadd[grid, block](...)`": timer(f"vadd[1, {BLOCK}](a, b, c, n)", vadd=vadd, **names),
            f"offload_args, made before, {NOT_CURRENT}": made_before,
        }
        places = [pointer.address for pointer in borrowed]
        others: Runs = {"C, cuLaunchKernel": lambda: float(bare.bare_issue(COUNT, 1, BLOCK, *places, N)) / COUNT}
        bare.bare_current(1)
        for name, prepare in OTHERS.items():
            try:
                run = prepare(ptx, host)
                run()
                others[name] = run
            except Exception as error:  # the package is not installed, or does not work here
                print(f"Without {name}: {type(error).__name__}: {error}\n")
        report(in_turn(bare, options.rounds, ours, others), ours)
    offload_beside_cupy(vadd, device, max(11, options.rounds // 10))
    return 0


if __name__ == "__main__":
    sys.exit(main())
