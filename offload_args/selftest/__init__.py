"""Some hundreds of checks of one device, and a report to paste: `python -m offload_args selftest --device cuda:0`."""

from __future__ import annotations

import platform
import time
import warnings
from collections.abc import Callable, Iterator
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np

from .. import Device, __version__, libraries
from .._signatures import telling
from ..devices import as_device
from ..display import listing, missing
from ..errors import LibraryError
from . import behaviour, routines

__all__ = ["lines", "run"]

GROUPS: dict[str, Callable[[Device], Iterator[tuple[str, Callable[[], None]]]]] = {
    "transfers": behaviour.transfers,
    "residency": behaviour.residency,
    "blas": routines.checks,
    "streams": behaviour.streams,
    "errors": behaviour.errors,
    "kernels": behaviour.kernels,
}

# {backend: the library whose functions `blas` calls on its devices}.
BLAS = {"cuda": "cublas", "hip": "rocblas"}


def _memory(device: Device) -> str:
    total = device.memory.total
    return f"{total / 2**30:.1f} GiB" if total else "memory not known"


def _library(device: Device) -> str:
    name = BLAS.get(device.backend, "cblas")
    try:
        library = libraries.load(name)
    except LibraryError as error:
        return str(error)
    return f"{name} {library.version or 'of no known version'}, {library.path}"


def _first_line(error: BaseException) -> str:
    text = next(iter(str(error).splitlines()), "")
    return text if isinstance(error, AssertionError) and text else f"{type(error).__name__}: {text}"


@telling
def run(device: Device | str, say: Callable[[str], None] = lambda text: None, every: int = 1) -> dict[str, Any]:
    """Run the checks on a device, and return the report. `say` gets a line for each group.

    every: run only each `every`-th check of a group, beginning with the first one.

        report = selftest.run(Device("host"), every=1000)
        print(report["failures"])  # []

    See also: selftest.lines, testing.sim_device; docs/guide/devices.md.
    """
    device = as_device(device)
    started = time.perf_counter()
    counts: dict[str, dict[str, int]] = {}
    failures: list[dict[str, str]] = []
    not_run: list[dict[str, str]] = []
    for group, checks in GROUPS.items():
        count = counts[group] = {"passed": 0, "failed": 0, "not run": 0}
        for name, check in islice(checks(device), 0, None, every):
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    check()
            except behaviour.NotRunError as error:
                count["not run"] += 1
                not_run.append({"group": group, "check": name, "why": str(error)})
            except Exception as error:
                count["failed"] += 1
                failures.append({"group": group, "check": name, "why": _first_line(error)})
            else:
                count["passed"] += 1
        say(f"{group}: {', '.join(f'{number} {outcome}' for outcome, number in count.items() if number)}")
    return {
        "offload_args": __version__,
        "python": f"{platform.python_implementation()} {platform.python_version()}, NumPy {np.__version__}",
        "system": f"{platform.platform()}, {platform.machine()}",
        "device": f"{device.name}, {device.model}, {_memory(device)}",
        "driver": f"{device.driver_version} {libraries.driver(device.backend)}".rstrip(),
        "library": _library(device),
        "checks": counts,
        "failures": failures,
        "not run": not_run,
        "seconds": round(time.perf_counter() - started, 1),
    }


@telling
def lines(report: dict[str, Any]) -> Iterator[str]:
    """Yield the lines of a report.

        report = selftest.run(Device("host"), every=1000)
        print(next(iter(selftest.lines(report)))[:12])  # offload_args

    See also: selftest.run; docs/guide/devices.md.
    """
    for key in ("offload_args", "python", "system", "device", "driver", "library"):
        yield f"{key:<13}{report[key]}"
    totals = [sum(count[outcome] for count in report["checks"].values()) for outcome in ("passed", "failed", "not run")]
    yield f"{'checks':<13}{totals[0]} passed, {totals[1]} failed, {totals[2]} not run, in {report['seconds']} s"
    for kind in ("failures", "not run"):
        reasons: dict[tuple[str, str], list[str]] = {}
        for entry in report[kind]:
            reasons.setdefault((entry["group"], entry["why"]), []).append(entry["check"])
        for (group, reason), names in reasons.items():
            more = f" and {len(names) - 1} more" if len(names) > 1 else ""
            yield f"{'FAILED' if kind == 'failures' else 'not run':<13}{group}: {names[0]}{more}: {reason}"
    if report["failures"]:
        name = report["device"].partition(",")[0]
        yield f"{'record it':<13}python -m offload_args record --sync -m offload_args selftest --device {name}"


if not TYPE_CHECKING:  # static checkers read all names
    __getattr__ = missing(__name__, __all__)
    __dir__ = listing(__all__)
