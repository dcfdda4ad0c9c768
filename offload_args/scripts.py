"""Acceleration of unmodified programs: BLAS calls of NumPy, SciPy and other modules go to a device if that is faster.

    with offload_args.accelerate() as on:
        C = A @ B
    print(on.report)

The hooks in csrc/accelerate decide by sizes, by measured rates, and by the times of calls of the same kind. If a call
does not go to the device, the original library makes it.
"""

from __future__ import annotations

import atexit
import glob
import json
import math
import os
import sys
import sysconfig
import threading
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from types import FrameType, TracebackType
from typing import TYPE_CHECKING, Any, Final, NamedTuple, NoReturn, Self

import numpy as np

from . import _core
from ._signatures import telling
from .devices import Device, chosen_default, is_name
from .display import (
    answering,
    html_table,
    listing,
    missing,
    nearest,
    plural,
    saved_text,
    shown,
    size_text,
    text_table,
    time_text,
)
from .errors import ArgumentError, ArgumentTypeError, OffloadError
from .plans import Decision, Plan, decides, rates_of
from .tracing.source import Place

__all__ = ["Accelerated", "Report", "Row", "accelerate"]

_DEVICE_WANTED, _SITE_WANTED, _LAPACK_WANTED = 2, 3, 4  # from oa_accelerate_event
PRICE: Final = _core.USUAL_PRICE  # seconds to be saved before a GPU is opened
PATIENCE: Final = 5.0  # the most seconds that a call waits for its line, if a plan needs the line
FREE: Final = ("host", "sim")  # devices that are opened immediately


# -- the places of a program -------------------------------------------------------------------------------------------

_sites: list[Place] = []
_numbers: dict[Place, int] = {}
_INSTALLED: Final = tuple({sysconfig.get_path(name) + os.sep for name in ("purelib", "platlib", "stdlib")})
_HERE: Final = os.path.dirname(__file__) + os.sep


def _number_of(frame: FrameType | None) -> int:
    """Return the number of the innermost place in the program's own files, or else of the innermost place."""
    own = frame
    while own is not None and (
        own.f_code.co_filename.startswith((*_INSTALLED, _HERE)) or own.f_code.co_filename.startswith("<frozen")
    ):
        own = own.f_back
    chosen = own or frame
    if chosen is None:
        return -1
    return _number_of_place(Place(_file(chosen.f_code.co_filename), chosen.f_lineno or 0, chosen.f_code.co_name))


@cache
def _file(name: str) -> str:
    """Return the absolute path of a file, because a script's path may be relative and scripts may change folders."""
    return name if name.startswith("<") else os.path.abspath(name)


def _number_of_place(place: Place | None) -> int:
    if place is None:
        return -1
    number = _numbers.get(place)
    if number is None:
        number = _numbers[place] = len(_sites)
        _sites.append(place)
    return number


def _own_site() -> int:
    return _number_of(sys._getframe(1) if sys._getframe(0).f_back else None)


def _serve() -> None:
    """Do the work that hooks must not do: open a device, and, on a thread without Python's lock, find the line of a
    call."""
    while True:
        event, thread, serial = _core.accelerate_wait()
        if event == _DEVICE_WANTED:
            with _lock:
                if _active:
                    _active[-1]._buy()
        elif event == _LAPACK_WANTED:
            with _lock:
                if _active:
                    _active[-1]._buy_lapack()
        elif event == _SITE_WANTED:
            _core.accelerate_set_site(serial, _number_of(sys._current_frames().get(thread)))
        else:
            return


# -- NumPy's own loops -------------------------------------------------------------------------------------------------


@cache
def _loops() -> tuple[dict[str, Any], Any] | None:
    """Return NumPy's universal functions whose loops may be replaced, and its functions that replace loops."""
    try:
        from numpy.linalg import _umath_linalg

        inner = sys.modules.get("numpy._core._multiarray_umath") or sys.modules["numpy.core._multiarray_umath"]
        named = {**vars(_umath_linalg), "matmul": inner.matmul}  # np.matmul itself may be a wrapper of a program
        return {name: f for name, f in named.items() if type(f) is np.ufunc}, inner._UFUNC_API
    except (ImportError, KeyError, AttributeError):  # another NumPy: its calls of LAPACK have hooks all the same
        return None


def _hook_loops(hooked: bool) -> None:
    loops = _loops()
    if loops is not None:
        _core.accelerate_loops(*loops, hooked)


# -- the active contexts -----------------------------------------------------------------------------------------------

_lock: Final = threading.RLock()
_active: list[Accelerated] = []
_server: threading.Thread | None = None
_opened: dict[str, tuple[int, tuple[float, ...] | None]] = {}  # {name of an open device: (its number, its rates)}
_have_lapack: set[str] = set()  # devices whose LAPACK is open, too


def _gpu_is_likely() -> bool:
    """Return whether this machine may have a GPU, without loading a driver."""
    return bool(glob.glob("/dev/nvidia[0-9]*") or os.path.exists("/dev/kfd") or os.path.exists("/dev/dxg"))


def _open(name: str | None, calibrated: bool) -> tuple[int, tuple[float, ...] | None]:
    """Open a device with its libraries, and return its number and its rates."""
    device = Device.default() if name is None else Device(name)
    if name is None and not device.is_gpu:
        raise OffloadError("no GPU can be opened")
    known = _opened.get(device.name)
    if known is None or (calibrated and known[1] is None):
        known = device.number, rates_of(device) if calibrated else None
        _opened[device.name] = known
    return known


def _assumed_gpu() -> str:
    """Return the rates of the GPU by which a plan counts on a machine without a GPU."""
    up, down, call, single, double = _core.accelerate_nominal()[:5]
    return (
        f"no call goes: a GPU is assumed that computes {single * 1e-12:g} TFLOP/s in float32 and {double * 1e-12:g} in "
        f"float64, copies {up * 1e-9:g} GB/s up and {down * 1e-9:g} down, and takes {time_text(call)} more a call"
    )


def _apply() -> None:
    """Pass the innermost active context to the core, or stop the acceleration if no context is active.

    The caller has the lock.
    """
    global _server
    if not _active:
        _hook_loops(False)
        _core.accelerate_stop()
        server, _server = _server, None
        if server is not None and server is not threading.current_thread():
            server.join(timeout=1)
        return
    top = _active[-1]
    _core.accelerate_set_finder(_own_site)
    _core.accelerate_start(top._margin, top._families, top._only_count, top._lines, PRICE, top._planned, PATIENCE)
    plan = top._plan.decisions.values() if top._plan is not None else ()
    rows = [(row.routine, _number_of_place(row.place), *row[2:5], 1 if row.goes else 2) for row in plan]
    _core.accelerate_plan(rows)
    _hook_loops(True)
    if _server is None:
        _server = threading.Thread(target=_serve, name="offload_args accelerate", daemon=True)
        _server.start()
    if top._device_name in _opened or top._at_once:
        top._buy()
    else:
        _core.accelerate_use(-1, None)


def _forget_in_child() -> None:
    """Let a forked child continue on the CPU.

    It gets a new lock, because a thread of the parent may have held the lock.
    """
    global _server
    _lock._at_fork_reinit()  # type: ignore[attr-defined]
    _active.clear()
    _server = None


os.register_at_fork(after_in_child=_forget_in_child)


@atexit.register
def _stop_all() -> None:
    with _lock:
        _active.clear()
        if _server is not None:
            _apply()


def _less(now: Any, before: Any) -> Any:
    """Return the growth of a count, or of each of several counts."""
    return tuple(map(_less, now, before)) if isinstance(now, tuple) else now - before


class Row(NamedTuple):
    """One row of the report: calls of one routine with similar sizes from one place."""

    routine: str  #: such as "dgemm"
    place: str  #: such as "script.py:12"; "" if it is not known
    m: int  #: m of the latest call
    n: int  #: n of the latest call
    k: int  #: k of the latest call
    calls: int  #: all calls of the row
    gone: int  #: calls that went to the device
    refused: dict[str, int]  #: {reason: the number of calls}
    bytes_up: int  #: bytes that went up for the calls
    bytes_down: int  #: bytes that came down
    bytes_spared: int  #: bytes of operands that were on the device already
    host_seconds: float  #: seconds of the calls that the CPU made
    device_seconds: float  #: seconds of the calls that went to the device
    saved: float  #: the CPU's time less the device's time, by the model
    missed: float  #: seconds that the device would have saved in calls that did not go, by the model


@answering(
    {
        **dict.fromkeys(("to_json", "json", "save"), "as_json()"),
        **dict.fromkeys(("to_dict", "asdict"), "as_dict()"),
    }
)
@telling
class Report:
    """A report of the decisions on the program's calls.

    See also: scripts.accelerate; docs/guide/scripts.md.
    """

    def __init__(
        self,
        rows: Sequence[Row],
        small: int,
        device: str,
        note: str,
        failure: str,
        lapack: str = "",
        assumed: str = "",
    ) -> None:
        self.rows: tuple[Row, ...] = tuple(sorted(rows, key=lambda row: -(row.host_seconds + row.device_seconds)))
        self.small = (
            small  #: calls of fewer than a million multiplications; with several threads, an approximate number
        )
        self.device = device  #: the device's name; "" while no device is open
        self.note = note  #: the reason why no call goes, such as a missing GPU, or ""
        self.failure = failure  #: the failure of the device, or of its latest call that failed, or ""
        self.lapack = lapack  #: the reason why no call of LAPACK goes, or ""
        self.assumed = assumed  #: the rates of the GPU that a plan assumes while no device is open, or ""

    @property
    def calls(self) -> int:
        """All calls that were not small."""
        return sum(row.calls for row in self.rows)

    @property
    def gone(self) -> int:
        """The calls that went to the device."""
        return sum(row.gone for row in self.rows)

    @property
    def bytes_spared(self) -> int:
        """The bytes that did not move, because they were on the device already."""
        return sum(row.bytes_spared for row in self.rows)

    @property
    def saved(self) -> float:
        """The seconds that the device saved, by the model."""
        return sum(row.saved for row in self.rows)

    @property
    def missed(self) -> float:
        """The seconds that the device would have saved in calls that did not go, by the model."""
        return sum(row.missed for row in self.rows)

    def as_dict(self) -> dict[str, Any]:
        """Return the report as plain data: seconds and bytes."""
        return {
            "device": self.device,
            "note": self.note,
            "failure": self.failure,
            "lapack": self.lapack,
            "assumed": self.assumed,
            "small": self.small,
            "calls": self.calls,
            "gone": self.gone,
            "saved": self.saved,
            "missed": self.missed,
            "bytes_spared": self.bytes_spared,
            "rows": [row._asdict() for row in self.rows],
        }

    def as_json(self) -> str:
        """Return the report as JSON."""
        return json.dumps(self.as_dict(), indent=2)

    def _lines(self) -> list[str]:
        if self.note and not self.assumed:
            return [f"{self.note}, and its calls were not counted"]
        target = f" to {self.device}" if self.device else ""
        lines = [
            f"{self.calls} {plural('call', self.calls)} of BLAS and LAPACK, {self.gone} went{target}; "
            f"{self.small} small ones did not count"
        ]
        if self.gone:
            moved = sum(row.bytes_up + row.bytes_down for row in self.rows)
            spared = f", spared {size_text(self.bytes_spared)} that stayed there" if self.bytes_spared else ""
            lines.append(f"{saved_text(self.saved)} by the model, moved {size_text(moved)}{spared}")
        return [*lines, *filter(None, (self.assumed, self.lapack, self.failure))]

    def _table(self) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
        header = ("line", "routine", "size", "calls", "went", "CPU", "device", "moved", "spared", "saved", "why not")
        rows = []
        unknown = "(no line)" if any(row.place for row in self.rows) else ""
        for row in self.rows:
            size = " x ".join(str(extent) for extent in (row.m, row.n, row.k) if extent)
            reasons = {"left out": "plan only"} if self.assumed else {}
            refusals = ", ".join(f"{count} {reasons.get(reason, reason)}" for reason, count in row.refused.items())
            moved = size_text(row.bytes_up + row.bytes_down) if row.gone else ""
            spared = size_text(row.bytes_spared) if row.bytes_spared else ""
            times = (time_text(seconds) if seconds > 0 else "" for seconds in (row.host_seconds, row.device_seconds))
            saved = f"({time_text(row.missed)})" if row.missed > 0 else ""
            if row.saved:
                saved = time_text(row.saved) if row.saved > 0 else f"-{time_text(-row.saved)}"
            counts = str(row.calls), str(row.gone)
            place = row.place or unknown
            rows.append((place, row.routine, size, *counts, *times, moved, spared, saved, refusals))
        return header, rows

    def _advice(self) -> list[str]:
        """Return advice for lines that repeatedly send many bytes; a region would save these copies."""
        return [
            f"{row.place or row.routine}: {row.gone} calls moved {size_text(row.bytes_up + row.bytes_down)}; "
            "if they have an array in common, lend it around the loop: with offload_args(A) as (dA,)"
            for row in self.rows
            if row.gone >= 4 and row.bytes_up + row.bytes_down >= 1 << 28
        ]

    def __str__(self) -> str:
        header, rows = self._table()
        table = text_table([header, *rows]) if rows else []
        notes = ["(in brackets: the seconds that the device would have saved, by the model)"] if self.missed > 0 else []
        if any(row.missed > 0 and "not faster" in row.refused for row in self.rows):
            notes.append("(not faster: also first calls, which the CPU makes to be timed, and calls below the margin)")
        return "\n".join([*self._lines(), *table, *notes, *self._advice()])

    def __repr__(self) -> str:
        return f"<Report: {self._lines()[0]}>"

    def _repr_html_(self) -> str:
        header, rows = self._table()
        return html_table("; ".join(self._lines()), header, rows)


@answering(
    {
        **dict.fromkeys(("summary", "stats", "result", "results"), "report"),
        **dict.fromkeys(("close", "end", "disable"), "stop()"),
    }
)
@telling
class Accelerated:
    """Keep accelerate() on until stop() or the end of the `with` block.

    See also: scripts.accelerate, scripts.Report; docs/guide/scripts.md.
    """

    def __init__(
        self,
        device: str | None,
        margin: float,
        families: int,
        only_count: bool,
        lines: bool,
        plan: Plan | None = None,
        deterministic: bool = False,
    ) -> None:
        device = device or chosen_default() or None
        self._device_name = device
        self._plan = plan
        self._planned = 0 if plan is None else 2 if deterministic else 1  # a value of oa_accelerate_planning
        self._margin = margin
        self._families = families
        self._only_count = only_count
        self._lines = lines or plan is not None
        self._note = self._failure = self._lapack = ""
        self._device = ""
        self._number = -1
        self._ended: Report | None = None
        on_cpu = device is not None and device.partition(":")[0] in FREE
        self._at_once = (margin == 0 or on_cpu or (plan is not None and plan.goes)) and not only_count
        no_gpu = device is None and not _gpu_is_likely()
        if plan is not None:
            plan.check(None, not no_gpu)
        if no_gpu:
            self._note = "no GPU is here: the program runs as it is"
        with _lock:
            self._before, self._small_before = _core.accelerate_read()
            if self._note and not only_count:
                self._ended = Report((), 0, "", self._note, "")
                return
            _active.append(self)
            try:
                _apply()
            except BaseException:
                _active.remove(self)
                _apply()
                raise

    def __reduce__(self) -> NoReturn:
        raise ArgumentTypeError(
            "Accelerated: can't be copied or pickled: it accelerates this process; pickle its `report`, and call "
            "accelerate() in each process"
        )

    def _buy(self) -> None:
        """Open the device, and let calls go to it. The caller of this function has the lock."""
        try:
            number, rates = _open(self._device_name, self._margin > 0 and self._planned != 2)
            if self._plan is not None:
                self._plan.check(Device._opened[number])
            _core.accelerate_use(number, rates)
            self._device = Device._opened[number].name
            self._number = number
            if self._at_once or self._planned or self._device in _have_lapack:
                self._buy_lapack()
        except OffloadError as error:
            if self._at_once:
                raise
            self._failure = f"the device can't be used: {error}"

    def _buy_lapack(self) -> None:
        """Open the device's LAPACK, and let calls go to it; if that fails, they stay on the CPU.

        The caller has the lock.
        """
        try:
            _core.accelerate_use_lapack(self._number)
            _have_lapack.add(self._device)
        except OffloadError as error:
            self._lapack = f"calls of LAPACK stay on the CPU: {error}"

    def stop(self) -> None:
        """Turn this context's acceleration off; an outer context continues. A second call has no effect.

        Raises OSError if the plan can't be written.
        """
        with _lock:
            if self._ended is not None:
                return
            self._ended = self._read()
            if self._plan is not None and self._planned == 1:
                for decision in self.decisions():
                    self._plan.add(decision)
            was_last = _active and _active[-1] is self
            was_on = self in _active  # False in a forked child; its parent writes the plan
            if was_on:
                _active.remove(self)
            if was_last:
                _apply()
        if was_on and self._plan is not None and self._planned == 1:
            self._write_plan()

    def _write_plan(self) -> None:
        if self._plan is not None:
            self._plan.write(next((device for device in Device._opened.values() if device.name == self._device), None))

    def add_decisions(self, decisions: Sequence[Decision]) -> None:
        """Add the decisions of child processes to the plan, if this run may change the plan.

        Raises OSError if the plan can't be written.
        """
        if self._plan is None or self._planned != 1 or not decisions:
            return
        for decision in decisions:
            self._plan.add(decision)
        self._write_plan()

    def decisions(self) -> Iterator[Decision]:
        """Decide for each kind of call, by its measured times, whether it should go to the device next time.

        If no device was opened, no kind goes, because all calls together would have saved too little.
        """
        for site, row, counts in self._grown(_core.accelerate_read()[0]):
            calls, gone, _, _, _, _, host, device, _, missed = counts
            goes = self._device != "" and decides(gone, calls, host, device, missed, self._margin)
            place = _sites[site] if 0 <= site < len(_sites) else None
            yield Decision(place, *row, goes)

    def _grown(self, now: list[tuple[Any, ...]]) -> Iterator[tuple[int, tuple[str, int, int, int], tuple[Any, ...]]]:
        """Yield, for each row that had calls since the start, the place, the routine with its sizes, and the counts."""
        for at, (routine, site, m, n, k, *counts) in enumerate(now):
            before = self._before[at][5:] if at < len(self._before) else (0, 0, (0,) * len(counts[2]), *(0,) * 7)
            grown = tuple(map(_less, counts, before))
            if grown[0] > 0:
                yield site, (routine, m, n, k), grown

    def _read(self) -> Report:
        now, small = _core.accelerate_read()
        texts, rows = _core.accelerate_reasons(), []
        for site, (routine, m, n, k), counts in self._grown(now):
            calls, gone, refused, up, down, spared, host, device, predicted, missed = counts
            place = str(_sites[site]) if 0 <= site < len(_sites) else ""
            reasons = {reason: count for reason, count in zip(texts, refused, strict=True) if count}
            rows.append(
                Row(routine, place, m, n, k, calls, gone, reasons, up, down, spared, host, device, predicted - device,
                    missed)
            )  # fmt: skip
        failure = self._failure
        if not failure and any("device failed" in row.refused for row in rows):
            failure = f"a call on the device failed: {_core.accelerate_failure()}"
        assumed = _assumed_gpu() if self._only_count and not self._device else ""
        return Report(rows, small - self._small_before, self._device, self._note, failure, self._lapack, assumed)

    @property
    def report(self) -> Report:
        """The report on the calls of all threads until now, or until the end of the acceleration."""
        with _lock:
            return self._ended if self._ended is not None else self._read()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()

    def __repr__(self) -> str:
        return f"<accelerate: {'off' if self._ended is not None else 'on'}, {self.report._lines()[0]}>"


@telling
def accelerate(
    device: Device | str | None = None,
    *,
    margin: float = 1.25,
    functions: Iterable[str] | None = None,
    lines: bool = True,
    only_count: bool = False,
    plan: str | os.PathLike[str] | None = None,
    deterministic: bool = False,
) -> Accelerated:
    """Send the program's calls of BLAS and LAPACK to a device if that is faster, until stop() or the end of `with`.

    Acceleration applies to all threads of the process. It may be nested; then the innermost context decides. No call
    fails because of acceleration: if the device can't or should not make a call, the original library makes it.

    device: by default the one that OFFLOAD_ARGS_DEVICE names, or the first GPU. The device is opened once the previous
    calls would have saved a second on it.
    margin: the factor by which the device has to be faster, by the model. With 0, every possible call goes to the
    device, for tests.
    functions: the families whose calls may go to the device, such as ["gemm", "syrk"]; by default all families.
    lines: whether the report has the program's lines.
    only_count: whether no call goes to the device, and the report only states the time that would have been saved.
    plan: a file that states which calls go to the device, by line, routine and sizes. The model decides about other
    calls, and stop() adds these decisions to the plan.
    deterministic: whether the plan alone decides, and is not changed, so that the results of all runs are the same.

    Raises ArgumentError for a wrong argument, or for a plan of another machine. Raises LibraryError on systems other
    than Linux with glibc.

        A = np.eye(300) * 2.0
        with accelerate() as on:
            B = A @ A  # goes to a GPU, if one is here and takes less time
        print(B[0, 0], type(on.report).__name__)  # 4.0 Report

    See also: call; docs/guide/scripts.md.
    """
    if isinstance(device, Device):
        device = device.name
    elif device is not None and not (isinstance(device, str) and is_name(device)):
        here = ", ".join(each.name for each in Device.all())
        listed = f"; the devices here are {here}" if isinstance(device, str) else ""
        raise ArgumentError(
            f'accelerate: device needs a Device or a name such as "cuda:0", got {shown(device)}{listed}'
        )
    if not isinstance(margin, (int, float)) or not math.isfinite(margin) or margin < 0:
        raise ArgumentError(f"accelerate: margin needs a number of 0 or more, got {shown(margin)}")
    names = _core.accelerate_families()
    families = 0
    if isinstance(functions, str) or not isinstance(functions, Iterable | None):
        raise ArgumentTypeError(
            f'accelerate: functions needs families, such as ["gemm", "syrk"], got {shown(functions)}'
        )
    for name in () if functions is None else functions:
        if name not in names:
            raise ArgumentError(
                f"accelerate: functions needs some of {', '.join(names)}, got {shown(name)}{nearest(str(name), names)}"
            )
        families |= 1 << names.index(name)
    if functions is not None and not families:
        raise ArgumentError("accelerate: functions names none")
    kept = None if plan is None else Plan(plan)
    if deterministic and (kept is None or kept.is_new):
        missing = "a plan" if kept is None else f"a plan, and there is no file {kept.path}"
        raise ArgumentError(f"accelerate: deterministic needs {missing}; a run with plan=FILE alone makes it")
    return Accelerated(device, float(margin), families, only_count, lines, kept, deterministic)


# -- notebooks ---------------------------------------------------------------------------------------------------------


_of_cells: list[Accelerated] = []  # the acceleration that %accelerate started


def _stop_of_cells() -> Report | None:
    if not _of_cells:
        return None
    _of_cells[-1].stop()
    return _of_cells.pop().report


def load_ipython_extension(shell: Any) -> None:
    """Define %accelerate and %%accelerate; IPython calls this function for %load_ext offload_args."""

    def magic(line: str, cell: str | None = None) -> Report | None:
        """%accelerate [device] starts, %accelerate report shows the report, and %accelerate off stops and shows it.

        %%accelerate [device] is for one cell."""
        device = line.strip()
        words = () if cell is not None else ("off", "report")
        if device and device not in words and not is_name(device):
            needs = ", ".join((*words, "a device such as cuda:0, or nothing"))
            raise ArgumentError(f"{'%' * (1 + (cell is not None))}accelerate: needs {needs}; got {shown(device)}")
        if cell is not None:
            with accelerate(device or None) as here:
                shell.run_cell(cell)
            return here.report
        if device == "off":
            return _stop_of_cells()
        if device == "report":
            return _of_cells[-1].report if _of_cells else None
        started = accelerate(device or None)
        _stop_of_cells()
        _of_cells.append(started)
        return None

    shell.register_magic_function(magic, "line_cell", "accelerate")


def unload_ipython_extension(shell: Any) -> None:
    """End the acceleration that %accelerate started, for %unload_ext and %reload_ext offload_args of IPython."""
    _stop_of_cells()


if not TYPE_CHECKING:  # static checkers read all names
    __getattr__ = missing(__name__, __all__)
    __dir__ = listing(__all__)
