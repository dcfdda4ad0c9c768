"""Compare a C program that calls BLAS and LAPACK with itself under NVBLAS, and under this package's library.

    python benchmarks/beside_nvblas.py [--blas PATH] [--nvblas PATH] [--device cuda:0] [--sizes N ...] [--only REGEX]

beside_nvblas.c is compiled once, and linked with a BLAS of the CPU that has Fortran's names (`dgemm_`), such as
libopenblas.so.0. It runs unchanged with LD_PRELOAD of nothing, of NVBLAS without and with pinning of the program's
arrays (NVBLAS_AUTOPIN_MEM_ENABLED), and of this package's library. A call has new operands each time. See README.md in
this folder. Without a BLAS the script ends, and without NVBLAS it leaves out NVBLAS's columns.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
import time
from ctypes.util import find_library
from pathlib import Path
from typing import NamedTuple

from offload_args import Device, get_library, libraries
from offload_args.errors import DeviceUnavailableError, LibraryError

NVBLAS = ("NVBLAS", "NVBLAS, pinning")
OURS = "offload_args"
TOLERANCES = {"sgemm": 1e-4, "dgesv": 1e-6}  #: of a random sum of the result, relative to its norm; else 1e-10
SETTLE = 4.0  #: seconds in which this package's library opens a device in the background


class Call(NamedTuple):
    """A task of the program: the times of calls in milliseconds, and numbers that depend on all of its result."""

    first: float
    later: float
    sum: float
    norm: float


def compiled(folder: Path, blas: str) -> tuple[Path, bool]:
    """Return the program, linked with a BLAS (a path or a name), and whether it calls LAPACK; raises without a BLAS."""
    program = folder / "beside_nvblas"
    place = [blas, f"-Wl,--disable-new-dtags,-rpath,{Path(blas).parent}"] if "/" in blas else [f"-l:{blas}"]
    for options in (["-DWITH_LAPACK"], []):
        words = ["cc", "-O2", *options, "-o", program, Path(__file__).with_suffix(".c"), *place, "-lm"]
        built = subprocess.run(words, capture_output=True, text=True, check=False)
        if built.returncode == 0:
            return program, bool(options)
    raise LibraryError(f"cc can't link {blas}: {built.stderr.strip()}")


def nvblas_path() -> str | None:
    """Return the path of NVBLAS: beside cuBLAS, in NVIDIA's wheels, in a toolkit, or None."""
    folders = [Path(libraries.load("cublas").path).parent]
    folders += [folder for entry in sys.path for folder in sorted(Path(entry).glob("nvidia/*/lib"))]
    folders += [Path("/usr/local/cuda/lib64"), *sorted(Path("/usr/local").glob("cuda-*/lib64"), reverse=True)]
    folders += [Path(entry) for entry in os.environ.get("LD_LIBRARY_PATH", "").split(":") if entry.startswith("/")]
    paths = (path for folder in folders for path in sorted(folder.glob("libnvblas.so*"), reverse=True))
    return str(next(paths, "")) or find_library("nvblas")


def environment(library: str, extra: dict[str, str], needed: list[str]) -> dict[str, str]:
    """Return variables that load a library before the program, and show the folders of libraries that it needs."""
    folders = [str(Path(path).parent) for path in needed if "/" in path]
    places = ":".join([*folders, *filter(None, [os.environ.get("LD_LIBRARY_PATH")])])
    return os.environ | {"LD_PRELOAD": library, "LD_LIBRARY_PATH": places} | extra


def nvblas_environment(folder: Path, library: str, blas: str, pins: bool) -> dict[str, str]:
    log, settings = folder / f"nvblas-{int(pins)}.log", folder / f"nvblas-{int(pins)}.conf"
    lines = [f"NVBLAS_LOGFILE {log}", "NVBLAS_TRACE_LOG_ENABLED", f"NVBLAS_CPU_BLAS_LIB {blas}", "NVBLAS_GPU_LIST 0"]
    lines += ["NVBLAS_AUTOPIN_MEM_ENABLED"] * pins
    settings.write_text("\n".join(lines) + "\n")
    return environment(library, {"NVBLAS_CONFIG_FILE": str(settings)}, [library])


def our_environment(device: Device, margin: float | None) -> dict[str, str]:
    names = ("cublas", "cusolver", "cusparse") if device.is_gpu else ("cblas", "lapacke")
    paths = {f"OFFLOAD_ARGS_{name.upper()}": libraries.load(name).path for name in names}
    words = f"{device.name},report" + ("" if margin is None else f",margin={margin}")
    return environment(str(get_library()), {"OFFLOAD_ARGS_ACCELERATE": words} | paths, list(paths.values()))


def run(program: Path, words: list[object], variables: dict[str, str]) -> tuple[dict[str, Call], float, str]:
    """Return the times of tasks, the seconds of the process, and its text on stderr."""
    begun = time.perf_counter()
    done = subprocess.run(
        [program, *map(str, words)], env=variables, capture_output=True, text=True, timeout=300, check=False
    )
    seconds = time.perf_counter() - begun
    if done.returncode or "cannot be preloaded" in done.stderr:
        raise LibraryError(f"the program ended with {done.returncode}: {done.stderr.strip()[-500:]}")
    rows = (line.split(",") for line in done.stdout.splitlines() if line.count(",") == 4)
    return {name: Call(*map(float, numbers)) for name, *numbers in rows}, seconds, done.stderr


def check(way: str, calls: dict[str, Call], plain: dict[str, Call]) -> None:
    """Raise if the CPU's BLAS had other results."""
    for name, expected in plain.items():
        limit = TOLERANCES.get(name.split(":")[0], 1e-10)
        for actual, right in ((calls[name].sum, expected.sum), (calls[name].norm, expected.norm)):
            if not abs(actual - right) <= limit * expected.norm:
                raise SystemExit(f"{name} under {way}: {actual}, and {right} on the CPU")


def table(titles: list[str], rows: list[list[str]]) -> None:
    for row in (titles, ["---", *["---:"] * (len(titles) - 1)], *rows):
        print("| " + " | ".join(row) + " |")
    print(flush=True)


def note(way: str, folder: Path, said: str) -> None:
    """Print how many calls went, from NVBLAS's log or from this package's report."""
    log = folder / f"nvblas-{int('pinning' in way)}.log"
    if way in NVBLAS and log.exists():
        text = log.read_text(errors="replace")
        print(f"{way}: {text.count('[gpu]')} calls on the GPU, {text.count('[cpu]')} on the CPU", said[-500:])
    elif way == OURS:
        print("\n".join(line.removeprefix("-- ") for line in said.splitlines()))


def measure(program: Path, ways: dict[str, dict[str, str]], tasks: list[str], rounds: int, folder: Path) -> None:
    results: dict[str, dict[str, Call]] = {}
    for way, variables in ways.items():
        try:
            results[way], _, said = run(program, [rounds, SETTLE if way == OURS else 0, *tasks], variables)
        except (LibraryError, subprocess.TimeoutExpired) as error:
            if way not in NVBLAS:
                raise
            print(f"{way} is left out: {error}")
            continue
        check(way, results[way], results["CPU"])
        note(way, folder, said)
    beside = [way for way in NVBLAS if way in results]
    titles = ["call, ms", *(f"{way}, {which}" for way in results for which in ("first", "later"))]
    titles += [f"{OURS} over the CPU", *([f"{OURS} over NVBLAS"] if beside else [])]
    rows = []
    for task in results["CPU"]:
        calls = {way: result[task] for way, result in results.items()}
        row = [task, *(f"{number:.2f}" for call in calls.values() for number in (call.first, call.later))]
        row.append(f"{calls[OURS].later / calls['CPU'].later:.3f}")
        if beside:
            row.append(f"{calls[OURS].later / min(calls[way].later for way in beside):.3f}")
        rows.append(row)
    table(titles, rows)


def measure_processes(program: Path, ways: dict[str, dict[str, str]], tasks: list[str]) -> None:
    """Measure processes that do one task once: the start of a library and of the device is a part of their time."""
    rows = []
    for task in tasks:
        row = [task]
        plain: dict[str, Call] = {}
        for way, variables in ways.items():
            try:
                calls, seconds, _ = run(program, [0, 0, task], variables)
            except (LibraryError, subprocess.TimeoutExpired):
                if way not in NVBLAS:
                    raise
                row.append("")
                continue
            plain = plain or calls
            check(way, calls, plain)
            row.append(f"{seconds:.2f} ({calls[task].first / 1e3:.2f})")
        rows.append(row)
    if rows:
        table(["a process with one task, s (the task alone)", *ways], rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--blas", help="a BLAS with Fortran's names; the system's OpenBLAS or BLAS unless given")
    parser.add_argument("--nvblas", help="the path of libnvblas.so")
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--margin", type=float, help="0: all possible calls go, as for a device that is not a GPU")
    parser.add_argument("--sizes", type=int, nargs="+", default=[1024, 2048, 4096, 8192])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", default="", help="a regular expression of tasks, such as dgemm or :4096")
    options = parser.parse_args()
    blas = options.blas or find_library("openblas") or find_library("blas")
    if not blas:
        print("no BLAS with Fortran's names: --blas needs the path of a library such as libopenblas.so.0")
        return
    try:
        device = Device(options.device)
    except DeviceUnavailableError as error:
        print(error)
        return
    blas = str(Path(blas).resolve()) if "/" in blas else blas
    most, middle = max(options.sizes), sorted(options.sizes)[-2:][0]
    sizes = [middle, *(n for n in options.sizes if n != middle)]  # the middle size first: the device opens early
    tasks = [f"{name}:{n}" for name in ("dgemm", "sgemm") for n in sizes]
    tasks += [f"products:{middle}", f"dsyrk:{middle}", f"dtrsm:{middle}", f"dgemv:{most}"]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        program, has_lapack = compiled(folder, blas)
        tasks += [f"dpotrf:{middle}", f"dgesv:{middle}"] if has_lapack else []
        ways = {"CPU": environment("", {}, [])}
        nvblas = options.nvblas or (nvblas_path() if device.name.startswith("cuda") else None)
        for way in NVBLAS if nvblas else ():
            ways[way] = nvblas_environment(folder, nvblas, blas, way != NVBLAS[0])
        ways[OURS] = our_environment(device, options.margin if device.is_gpu else 0)
        print(f"{device}, {blas}, {nvblas or 'NVBLAS is not there'}", flush=True)
        chosen = [task for task in tasks if re.search(options.only, task)]
        measure(program, ways, chosen, options.rounds, folder)
        measure_processes(program, ways, [task for task in (f"products:{middle}", f"dgemm:{most}") if task in chosen])


if __name__ == "__main__":
    main()
