"""Plans and rates: facts about a program's calls and about a machine, which are stored for later runs.

A plan is a file that the user names. It states for each group of calls whether they go to the device. The calls of a
group come from one line, are of one routine, and have sizes between the same powers of two. Rates are in the cache
(cache.py); they hold for a device and its driver, and for the CPUs and their BLAS.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import platform
import sys
import tempfile
from typing import Any, Final, NamedTuple

import numpy as np

from . import __version__, _core, cache
from ._operands import need_path
from .devices import Device
from .display import shown
from .errors import ArgumentError
from .tracing.source import Place

__all__ = ["Decision", "Plan", "decides", "machine", "rates_of"]

VERSION: Final = 1  # the version of the file format
_RATES_VERSION: Final = "1"
_RATES: Final = 12  # the number of values that accelerate_calibrate returns


# -- this machine ------------------------------------------------------------------------------------------------------


def _cpu() -> str:
    """Return the processor's name."""
    try:
        with open("/proc/cpuinfo", errors="replace") as file:
            for line in file:
                name, _, value = line.partition(":")
                if name.strip() in ("model name", "CPU implementer", "cpu model"):
                    return value.strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def _blas() -> str:
    """Return the name and version of NumPy's BLAS."""
    config = getattr(np, "__config__", None)
    parts = getattr(config, "CONFIG", {}).get("Build Dependencies", {}).get("blas", {})
    return f"{parts.get('name', '')} {parts.get('version', '')}".strip()


def machine(device: Device | None) -> dict[str, Any]:
    """Return the facts on which a program's results and times depend: the device, its driver, the CPUs and the BLAS."""
    return {
        "device": device.model or device.name if device is not None else "",
        "driver": device.driver_version if device is not None else 0,
        "cpu": _cpu(),
        "cpus": sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "cores": os.cpu_count(),
        "blas": _blas(),
    }


def rates_of(device: Device) -> tuple[float, ...]:
    """Return the rates of a device from the cache; if they are missing, measure in at most a second and store them."""
    key = cache.key_of("rates", _RATES_VERSION, __version__, json.dumps(machine(device), sort_keys=True))
    with contextlib.suppress(ValueError):  # the file is damaged, or another program wrote it
        rates = json.loads(cache.find(key) or b"[]")
        if len(rates) == _RATES and all(isinstance(rate, float) and math.isfinite(rate) and rate > 0 for rate in rates):
            return tuple(rates)
    measured = _core.accelerate_calibrate(device.number)
    cache.store(key, json.dumps(measured).encode())
    return measured


# -- plans -------------------------------------------------------------------------------------------------------------


class Decision(NamedTuple):
    """One decision: whether calls of a routine with similar sizes from one place go to the device."""

    place: Place | None  #: None if it is not known, such as on threads without Python code
    routine: str  #: such as "dgemm"
    m: int
    n: int
    k: int
    goes: bool


def _home() -> str:
    """Return the folder of the program; a plan's file names are relative to it, so that the program can be moved."""
    script = sys.argv[0] if sys.argv else ""
    return os.path.dirname(os.path.abspath(script)) if os.path.isfile(script) else os.getcwd()


def _name_of_machine(parts: dict[str, Any]) -> str:
    cpus = parts.get("cpus")
    count = len(cpus) if isinstance(cpus, list) else cpus
    words = [
        parts.get("device") or "no GPU",
        f"{count} of {parts.get('cores')} CPUs",
        parts.get("cpu"),
        parts.get("blas"),
    ]
    return f"{parts.get('name')} ({', '.join(str(word) for word in words)})"


class Plan:
    """Hold the decisions of a plan file, which come from earlier runs and from this run."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = os.path.abspath(need_path("accelerate", "plan", path))
        self.home = _home()
        self.decisions: dict[tuple[Place | None, str, int, int, int], Decision] = {}
        self.machine: dict[str, Any] = {}
        self.is_new = True
        try:
            with open(self.path, "rb") as file:
                text = file.read()
        except FileNotFoundError:
            return
        self.is_new = False
        self._read(text)

    def _wrong(self, fault: str) -> ArgumentError:
        return ArgumentError(f"plan: {self.path} {fault}; delete it, or name another file")

    def _read(self, text: bytes) -> None:
        try:
            data = json.loads(text)
            version, self.machine, rows = data["offload_args plan"], data["machine"], data["calls"]
        except (ValueError, TypeError, KeyError, RecursionError):
            raise self._wrong("is no plan of offload_args") from None
        if version != VERSION:
            raise self._wrong(f"has version {shown(version)} of plans, and this is {VERSION}")
        try:
            for row in rows:
                m, n, k = (int(size) for size in row["size"])
                self.add(Decision(self._place(row), str(row["routine"]), m, n, k, bool(row["goes"])))
            self.machine = dict(self.machine)
        except (ValueError, TypeError, KeyError):
            raise self._wrong("is no plan of offload_args") from None

    def _place(self, row: dict[str, Any]) -> Place | None:
        file = row["file"]
        if file is None:
            return None
        file = file if file.startswith("<") else os.path.normpath(os.path.join(self.home, file))
        return Place(str(file), int(row["line"]), str(row["function"]))

    @property
    def goes(self) -> bool:
        """Whether the plan sends any call to the device."""
        return any(decision.goes for decision in self.decisions.values())

    def add(self, decision: Decision) -> None:
        """Add a decision, unless the plan has a decision for such calls."""
        key = (
            decision.place,
            decision.routine,
            decision.m.bit_length(),
            decision.n.bit_length(),
            decision.k.bit_length(),
        )
        self.decisions.setdefault(key, decision)

    def check(self, device: Device | None, there_is_one: bool = True) -> None:
        """Refuse a plan of another machine, because its decisions and results differ from this machine's.

        device: None if no device is open. there_is_one: whether the machine may have a device. If no device is open but
        the machine may have one, the device and its driver are not compared.
        """
        if self.is_new:
            return
        here = machine(device)
        unknown = (device is None and there_is_one) or not self.machine.get("device")
        compared = here.keys() - ({"device", "driver"} if unknown else set())
        if all(self.machine.get(name) == here[name] for name in compared):
            return
        here["name"] = platform.node()
        raise self._wrong(f"is of another machine, {_name_of_machine(self.machine)}; this is {_name_of_machine(here)}")

    def write(self, device: Device | None) -> None:
        """Write a file in the same folder, and rename it, so that no reader gets an incomplete file.

        Raises OSError if the file can't be written.
        """
        parts = self.machine
        if self.is_new or not parts.get("device"):
            parts = {**machine(device), "name": platform.node()}
        rows = []
        for decision in sorted(self.decisions.values(), key=lambda decision: (str(decision.place), *decision[1:])):
            file, line, function = decision.place if decision.place is not None else (None, 0, "")
            if file is not None and not file.startswith("<"):
                file = os.path.relpath(file, self.home)
            size = [decision.m, decision.n, decision.k]
            rows.append({"file": file, "line": line, "function": function, "routine": decision.routine, "size": size,
                         "goes": decision.goes})  # fmt: skip
        data = {"offload_args plan": VERSION, "machine": parts, "calls": rows}
        folder, name = os.path.split(self.path)
        descriptor, beside = tempfile.mkstemp(prefix=f".{name}.", dir=folder)
        try:
            with open(descriptor, "w") as to:
                to.write(json.dumps(data, indent=1) + "\n")
            umask = os.umask(0)
            os.umask(umask)
            os.chmod(beside, 0o666 & ~umask)
            os.replace(beside, self.path)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(beside)
            raise


def decides(gone: int, calls: int, host: float, device: float, missed: float, margin: float) -> bool:
    """Return whether calls of one kind should go to the device.

    host, device: the seconds of these calls on the CPU and on the device. missed: the seconds that were lost by making
    calls on the CPU.
    """
    stayed = calls - gone
    if gone and stayed:
        return device / gone * margin < host / stayed
    return gone > 0 or (missed > 0 and (host - missed) * margin < host)
