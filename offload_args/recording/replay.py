"""Replaying: runs the regions, copies and calls of a recording again, on any device."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import os
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from types import BuiltinFunctionType
from typing import Any, Final, TypeAlias, TypeGuard

import numpy as np
from numpy.typing import NDArray

from .. import _core, blas
from .._table import LIBRARIES
from ..arguments import In, InOut, Out, Scratch
from ..devices import Device
from ..display import plural
from ..dtypes import DTYPE_NAMES
from ..errors import ArgumentError, OffloadError
from ..pointers import DevicePtr
from ..regions import offload_args, update
from ..running import say
from . import solved, solvers, transforms, twins
from .compare import Caller, Difference, Expected, distance, expect, expect_launch
from .contents import Use, make, note_use
from .images import Kernels
from .layout import dtype_named, flat, span
from .order import Fault, Stale, Unlike, Values, before, exchanges, first_difference, insert, numbered
from .stream import CALLS, damaged, read

__all__ = ["Event", "Replay", "Report", "call_name", "compared", "in_order", "is_object", "replay"]

Event: TypeAlias = "dict[str, Any]"


@dataclass
class Report:
    """Differences and failures of a replay."""

    device: str = ""
    recorded_on: list[str] = field(default_factory=list)
    contents: str = ""
    regions: int = 0
    calls: int = 0  #: calls that ran
    compared: int = 0  #: calls that were compared with the same call on the host
    compared_recorded: int = 0  #: arrays that were compared, after a region, with recorded contents
    skipped: Counter[str] = field(default_factory=Counter)  #: {the reason: the number of calls without a counterpart}
    taken: Counter[str] = field(default_factory=Counter)  #: functions on the CPU, whose recorded results are used
    failures: list[str] = field(default_factory=list)  #: calls that failed only in the replay, or only in the recording
    failed_again: int = 0
    #: all calls that failed in the replay
    failed: list[str] = field(default_factory=list)
    differences: list[str] = field(default_factory=list)
    is_cut: bool = False  #: whether the recorded program ended before its recording
    ended_in: str = ""  #: the call during which the program ended, if the file has this call

    @property
    def is_good(self) -> bool:
        return not self.failures and not self.differences

    def lines(self) -> list[str]:
        """Return the report as text."""
        suffix = "" if self.contents == "inputs" else "; contents that were not kept are made"
        recorded = ", ".join(self.recorded_on) or "no device"
        calls = f"{self.calls} {plural('call', self.calls)} in {self.regions} {plural('region', self.regions)}"
        lines = [f"replayed on {self.device}: {calls}, recorded on {recorded}{suffix}"]
        if self.is_cut:
            lines.append(
                f"the recorded program ended in {self.ended_in}"
                if self.ended_in
                else "the recorded program was killed: the file ends with its last flush (record --sync has each call)"
            )
        if self.failed_again:
            lines.append(f"{self.failed_again} calls failed in the recording, and here")
        lines += [f"not run {count} times: {reason}" for reason, count in sorted(self.skipped.items())]
        results = "those of the recording" if self.contents == "inputs" else "made ones"
        lines += [
            f"not run {count} times: {name} on the CPU; its results are {results}"
            for name, count in sorted(self.taken.items())
        ]
        if self.compared:
            lines.append(f"{self.compared} calls compared with the same on the host")
        if self.compared_recorded:
            lines.append(f"{self.compared_recorded} arrays compared with the recorded results")
        if self.compared or self.compared_recorded:
            lines.append(f"{len(self.differences)} differ")
        if self.differences:
            lines.append(f"the first: {self.differences[0]}")
        lines += [f"FAILED {failure}" for failure in self.failures]
        return lines


class _Region:
    def __init__(self, region: offload_args[Any], arrays: list[NDArray[Any] | None], rows: list[Event]) -> None:
        self.region, self.arrays, self.rows = region, arrays, rows
        self.pointers: list[int] = []  # the numbers of the region's pointers
        self.recorded_on = ""  # the name of the recorded device
        self.place = ""
        self.calls: list[int] = []  # the calls that used the region's arrays
        self.most = 0.0  # the bound for differences from recorded results
        self.is_bounded = True  # whether the bound is known for all calls


class Replay:
    """One replay, with the objects that replace the objects of the recorded program."""

    def __init__(
        self,
        device: Device | None,
        compares: bool,
        first: int,
        last: int | None,
        subject: str = "",
        images: bool = False,
        waits: bool = False,
        until: int = 0,
    ) -> None:
        """Prepare a replay.

        `subject` is the name and line of the calls to compare, or "" for all. With `images`, kernels are launched. With
        `waits`, the device is waited for after each call and copy, as by comparisons. `until` is the number of the
        region that is the last to end, or 0.
        """
        self._waits, self._until = waits or compares, until
        self._kernels = Kernels() if images else None
        self.report = Report(device=device.name if device else "")
        self._device, self._compares = device, compares
        self._first, self._last, self._subject = first, last, subject
        self._host = Device.host()
        self._uses: dict[int, Use] = {}
        self._places: dict[int, str] = {0: "?"}
        self._buffers: dict[int, NDArray[np.uint8]] = {}
        self._sizes: dict[int, tuple[int, int]] = {}
        self._known: dict[int, dict[tuple[Any, ...], str]] = {}  # {buffer: the recorded hashes of its arrays}
        self._devices: dict[str, Device] = {}
        self._regions: dict[int, _Region] = {}
        self._pointers: dict[int, DevicePtr[Any]] = {}
        self._objects: dict[int, Any] = {}
        self._capturing: dict[int, int] = {}  # {thread: the chain that it captures}
        self._chains: dict[int, list[tuple[int, Event]]] = {}
        self._number = 0  # the number of the current call
        self._begun: dict[int, Event] = {}  # {thread: a call that was written before it was made}
        self.arrays: dict[str, NDArray[Any]] = {}  #: {name: the array with its contents after its last region}
        self.results: list[Any] = []  #: the results of the calls that ran, except objects
        self.values = Values({}, "")  #: of the region `until`
        self._latest = ""  # the last call: its name and line
        self.unordered: Replay | None = None  #: a replay of the same events that waited for no call
        self.notes_ends = False  #: whether the replay notes the results of regions, and makes no call that never ended
        self.ends: dict[int, list[bytes | None]] = {}  #: hashes of the arrays of regions, by the regions' numbers
        self.stale: list[Stale] = []  #: differences from `unordered`, from the first one on
        self._results = Unlike(0, [], 0.0, {})  # the recorded results of the last region
        self.unlike: Unlike | None = None  #: the first region that has other results than in the recording

    def run(self, file: str | os.PathLike[str], events: list[Event] | None = None) -> Report:
        """Replay the events of a file, or `events` instead of them."""
        count = self._read_ahead(file, read(file) if events is None else events)
        if not (self._first == 1 and self._last is None) and not self._first <= (self._last or count) <= count:
            asked = f"{self._first} to {self._last}" if self._last else f"{self._first} and later ones"
            raise ArgumentError(
                f"replay: {os.fspath(file)} has {count} {plural('call', count)}, not {asked}: "
                f"they have the numbers 1 to {count}"
            )
        line = 0
        try:
            for line, event in enumerate(read(file) if events is None else events, 1):
                with _line_named(file, line):
                    self._act(event)
                if self._until and "leave" in event and event["leave"] == self._until:
                    return self.report
            with _line_named(file, line):
                self._run_begun()
        finally:
            for region in reversed(list(self._regions.values())):
                region.region.discard()
        return self.report

    def _read_ahead(self, file: str | os.PathLike[str], events: Iterable[Event]) -> int:
        """Note how arrays are used, and return the number of calls."""
        count = 0
        begun = set()
        for line, event in enumerate(events, 1):
            with _line_named(file, line):
                kind = next(iter(event))
                if kind in CALLS:
                    count += 1
                    begun.discard(event["thread"])
                elif kind == "begun":
                    begun.add(event["thread"])
                note_use(self._uses, event)
        return count + len(begun)

    def _act(self, event: Event) -> None:
        kind = next(iter(event))
        self.report.is_cut = kind != "end"
        if kind == "format":
            self.report.contents = event["contents"]
        act: Callable[[Event], None] | None = getattr(self, f"_on_{kind}", None)
        if act is not None:
            act(event)

    def _on_begun(self, event: Event) -> None:
        self._begun[event["thread"]] = {key: value for key, value in event.items() if key != "begun"}

    def _run_begun(self) -> None:
        """Make the calls that were under way when the recorded program ended."""
        if self.notes_ends and self.unordered is None:
            return
        for event in list(self._begun.values()):
            self.report.ended_in = f"call {self._number + 1}, {call_name(event)}, {self._at(event)}"
            # This line is printed before the call, because the call may end this process, too.
            say(f"replay: the recorded program ended in {self.report.ended_in}", sys.stderr)
            self._act(event)
            self.report.is_cut = True

    # -- descriptions in the file ------------------------------------------------------------------------------

    def _on_place(self, event: Event) -> None:
        self._places[event["place"]] = f"{event['file']}:{event['line']}"

    def _on_buffer(self, event: Event) -> None:
        self._sizes[event["buffer"]] = event["nbytes"], event["align"]

    def _on_free(self, event: Event) -> None:
        self._buffers.pop(event["free"], None)
        self._sizes.pop(event["free"], None)
        self._known.pop(event["free"], None)

    def _device_of(self, name: str) -> Device:
        """Return the device that replaces a recorded device."""
        device = self._devices.get(name)
        if device is None:
            device = self._device
            if device is None:
                try:
                    device = Device(name)
                except OffloadError:
                    device = self._host
            self._devices[name] = device
            self.report.recorded_on.append(name)
            names = dict.fromkeys(known.name for known in self._devices.values())
            self.report.device = ", ".join(names)
        return device

    # -- regions -----------------------------------------------------------------------------------------------

    def _view(self, row: Event) -> tuple[NDArray[Any], tuple[Any, ...]]:
        """Return the array of a row, and the key of its contents."""
        number = row["buffer"]
        memory = self._buffers.get(number)
        if memory is None:
            nbytes, align = self._sizes[number]
            whole = np.zeros(nbytes + 128, np.uint8)
            start = (align - whole.__array_interface__["data"][0]) % 64
            memory = self._buffers[number] = whole[start : start + nbytes]
        dtype, shape, strides = dtype_named(row["dtype"]), tuple(row["shape"]), tuple(row["strides"])
        first = row["offset"] - span(shape, strides, dtype.itemsize)[0] if 0 not in shape else 0
        array: NDArray[Any] = np.ndarray(shape, dtype, memory, first, strides)
        return array, (number, row["offset"], shape, strides, row["dtype"])

    def _fill(self, array: NDArray[Any], key: tuple[Any, ...], row: Event, use: Use) -> None:
        """Fill an array with the row's contents, or, if the row has none, with values of contents.py."""
        digest = row.get("hash", "")
        if "data" in row:
            array[...] = np.frombuffer(base64.b64decode(row["data"]), array.dtype).reshape(array.shape)
        elif self._hash_of(key) != digest:
            make(array, digest or f"{key[0]:x}", use)
        self._known.setdefault(key[0], {})[key] = digest

    def _hash_of(self, key: tuple[Any, ...]) -> str | None:
        """Return the last recorded hash of an array; None if there is none."""
        return self._known.get(key[0], {}).get(key)

    def _on_enter(self, event: Event) -> None:
        number, device, rows = event["enter"], self._device_of(event["device"]), event["arrays"]
        if number in self._regions:
            raise ArgumentError(f"region {number} has begun before")
        arrays: list[NDArray[Any] | None] = []
        arguments: list[Any] = []
        is_same = device.name == event["device"] and self._first == 1
        for row in rows:
            if row.get("memory"):
                arrays.append(None)
                arguments.append(Scratch(tuple(row["shape"]), dtype_named(row["dtype"])))
                continue
            array, key = self._view(row)
            if "hash" in row or self._hash_of(key) is None:
                self._fill(array, key, row, self._uses.get(row["pointer"], ""))
            arrays.append(array)
            if not row["writable"]:
                array = array.view()
                array.flags.writeable = False
            direction = row["direction"]
            kind = {"in": In, "out": Out if is_same else InOut, "inout": InOut}.get(direction)
            arguments.append(array if kind is None else kind(array))
        entered = _Region(offload_args(*arguments, device=device), arrays, rows)
        entered.recorded_on, entered.place = event["device"], self._at(event)
        pointers = entered.region.open()
        self._regions[number] = entered
        for row, pointer in zip(rows, pointers, strict=True):
            if row.get("memory") == "borrowed":
                values = np.empty(pointer.shape, pointer.dtype)
                make(values, f"{row['pointer']:x}", self._uses.get(row["pointer"], ""))
                pointer.assign(values)
            self._pointers[row["pointer"]] = pointer
            entered.pointers.append(row["pointer"])
        self.report.regions += 1

    def _on_leave(self, event: Event) -> None:
        entered = self._regions.pop(event["leave"], None)
        if entered is None:
            return
        for number in entered.pointers:
            self._pointers.pop(number, None)
        if event.get("outcome") == "discard":
            entered.region.discard()
        else:
            if event["leave"] == self._until:
                self._wait()
            entered.region.close()
            self._note_end(event["leave"], entered)
        for row, array in zip(entered.rows, entered.arrays, strict=True):
            if array is not None:
                self.arrays[row["name"]] = array
        for position, result in event["arrays"].items():
            row, array = entered.rows[int(position)], entered.arrays[int(position)]
            if array is None:
                continue
            _, key = self._view(row)
            if "hash" in result:
                self._known.setdefault(key[0], {})[key] = result["hash"]
            if "data" in result:
                recorded = np.frombuffer(base64.b64decode(result["data"]), array.dtype).reshape(array.shape)
                self._compare_recorded(event["leave"], entered, row, array, recorded)
                array[...] = recorded  # so that a region's rounding does not affect the next region

    def _compare_recorded(
        self, number: int, entered: _Region, row: Event, array: NDArray[Any], recorded: NDArray[Any]
    ) -> None:
        """Compare an array after a region with its recorded contents."""
        if not self._compares or not self._is_whole or not entered.is_bounded or not entered.calls:
            return
        self.report.compared_recorded += 1
        off = distance(array, recorded)
        if self._results.region != number:
            self._results = Unlike(number, entered.calls, entered.most, {})
        self._results.results[row["pointer"]] = recorded
        if not off <= entered.most:
            self.unlike = self.unlike or self._results
            self.report.differences.append(
                f"calls {entered.calls[0]} to {entered.calls[-1]}, in the region of {entered.place}: {row['name']} is "
                f"off by {off:.3g} from the recorded results, at most {entered.most:.3g} is due to rounding"
            )

    def _note_end(self, number: int, entered: _Region) -> None:
        """Note the arrays of a region that has ended, and whether they equal the arrays of the replay without waits."""
        if self.notes_ends:
            hashes = [None if a is None else hashlib.blake2b(a.tobytes()).digest() for a in entered.arrays]
            self.ends[number] = hashes
            other = self.unordered.ends.get(number, hashes) if self.unordered is not None else hashes
            if other != hashes and entered.calls and entered.is_bounded:
                self.stale.append(Stale(number, entered.place, sorted(set(entered.calls)), entered.most))
        if number == self._until:
            pairs = zip(entered.rows, entered.arrays, strict=True)
            arrays = {row["pointer"]: (row["name"], array.copy()) for row, array in pairs if array is not None}
            self.values = Values(arrays, self._latest)

    def _wait(self) -> None:
        for device in dict.fromkeys(self._devices.values()):
            device.synchronize()

    @property
    def _is_whole(self) -> bool:
        return self._first == 1 and self._last is None and not self.report.skipped

    def _on_update_from(self, event: Event) -> None:
        update(self._view(event["update_from"])[0])

    def _on_update_to(self, event: Event) -> None:
        array, key = self._view(event["update_to"])
        with update(array):
            self._fill(array, key, event["update_to"], "")

    # -- memory on the device ----------------------------------------------------------------------------------

    def _write(self, event: Event, write: Callable[[], object]) -> None:
        if not self._is_asked():
            return
        capturing = self._capturing.get(event["thread"])
        if capturing is not None:
            self._chains[capturing].append((self._number, event))
            return
        self._try(event, write)

    def _on_fill(self, event: Event) -> None:
        self._write(event, lambda: self._value(event["fill"]).fill(self._value(event["value"])))

    def _on_unrecorded(self, event: Event) -> None:
        self.report.skipped[f"{event['unrecorded']}: a recording does not have its calls"] += 1

    def _on_assign(self, event: Event) -> None:
        if "by" in event:
            self.report.taken[event["by"]] += 1
        self._write(event, lambda: self._value(event["assign"]).assign(self._value(event["values"])))

    def _on_copy(self, event: Event) -> None:
        self._write(event, lambda: self._value(event["copy"]).copy_from(self._value(event["from"])))

    def _on_fft(self, event: Event) -> None:
        self._write(event, lambda: transforms.transform(event, self._value(event["from"]), self._value(event["fft"])))
        for region in self._regions_of({"args": [event["fft"]]}):
            region.is_bounded = False

    def _on_stage(self, event: Event) -> None:
        value = np.asarray(self._value(event["value"]), dtype_named(event["dtype"]))
        self._made("stage", event, lambda: _core.stage(self._value(event["beside"][0]), value))

    def _on_scratch(self, event: Event) -> None:
        code, shape, strides = DTYPE_NAMES.index(event["dtype"]), tuple(event["shape"]), tuple(event["strides"])
        beside = event["beside"]
        self._made("scratch", event, lambda: _core.scratch(tuple(map(self._value, beside)), code, shape, strides, True))

    def _made(self, kind: str, event: Event, make_pointer: Callable[[], DevicePtr[Any]]) -> None:
        number = event[kind]
        self._try(event, lambda: self._pointers.__setitem__(number, make_pointer()))
        if number not in self._pointers:
            return
        beside = {pointer["p"] for pointer in event["beside"]}
        for entered in self._regions.values():
            if beside & set(entered.pointers):
                entered.pointers.append(number)

    # -- calls -------------------------------------------------------------------------------------------------

    def _is_asked(self) -> bool:
        return self._first <= max(self._number, 1) and (self._last is None or self._number <= self._last)

    def _at(self, event: Event) -> str:
        return self._places.get(event.get("at", 0), "?")

    def _try(self, event: Event, act: Callable[[], object]) -> None:
        """Repeat a recorded action, and note whether it fails as in the recording."""
        subject = f"call {self._number}, {call_name(event)}, {self._at(event)}"
        try:
            act()
            if self._waits:
                self._wait()
        except twins.NoTwinError as error:
            self.report.skipped[str(error)] += 1
        except OffloadError as error:
            self.report.failed.append(f"{subject}: {type(error).__name__}: {error}")
            if "error" in event:
                self.report.failed_again += 1
            else:
                self.report.failures.append(self.report.failed[-1])
        else:
            if "error" in event:
                self.report.failures.append(f"{subject}: it does not fail here; recorded: {event['error']}")

    def _on_blas(self, event: Event) -> None:
        self._called(event)

    def _on_call(self, event: Event) -> None:
        self._called(event)

    def _on_launch(self, event: Event) -> None:
        self._number += 1
        self._begun.pop(event["thread"], None)
        self._take(event, self._launch)

    def _called(self, event: Event) -> None:
        self._number += 1
        self._begun.pop(event["thread"], None)
        self._take(event, self._make)

    def _take(self, event: Event, act: Callable[[Event], None]) -> None:
        """Act on a call now, or, if a chain captures it, in each replay of the chain."""
        if not self._is_asked():
            return
        capturing = self._capturing.get(event["thread"])
        if capturing is not None:
            self._chains[capturing].append((self._number, event))
        else:
            self._try(event, lambda: act(event))

    def _on_image(self, event: Event) -> None:
        if self._kernels is not None:
            self._kernels.note_image(event["image"], base64.b64decode(event["data"]))

    def _on_kernel(self, event: Event) -> None:
        if self._kernels is not None:
            self._kernels.note_kernel(event)

    def _launch(self, event: Event) -> None:
        if self._kernels is None or "kernel" not in event:
            reason = (
                "the recording has its machine code; --images runs it, if you trust the file"
                if "kernel" in event
                else "the recording has no machine code (record --images)"
            )
            image = f" of image {event['image'][:16]}" if "image" in event else ""
            raise twins.NoTwinError(f"kernel {event['launch']}{image}: {reason}")
        self._kernels.check(event)
        kernels, arguments = self._kernels, [self._value(value) for value in event["args"]]
        device = next(value.device for value in arguments if isinstance(value, DevicePtr))
        expected = None
        if self._compares and self._is_comparable(event, device):
            with contextlib.suppress(
                OffloadError, twins.NoTwinError
            ):  # the host lacks its code, or raises the same error
                expected = expect_launch(
                    arguments, lambda values: kernels.launch(event, values, self._host), self._host
                )
        kernels.launch(event, arguments, device)
        self._latest = f"{call_name(event)}, {self._at(event)}"
        self.report.calls += 1
        entered = self._regions_of(event)
        for region in entered:
            region.calls.append(self._number)
            region.is_bounded &= expected is not None
            region.most += expected.most if expected is not None else 0.0
        if expected is not None:
            self._compare(event, expected, None, entered, device)

    def _make(self, event: Event) -> None:
        named = in_order(event)
        if "call" in event and self._is_foreign_setting(event):
            return
        try:
            arguments = [self._argument(event, value) for value in event["args"]]
            names = {name: self._argument(event, value) for name, value in named.items()}
        except twins.NoTwinError as error:
            raise twins.NoTwinError(f"{call_name(event)}: {error}") from error
        values = [*event["args"], *(value for name, value in named.items() if name != "handle")]
        if any(isinstance(value, dict) and "other" in value for value in values):
            raise twins.NoTwinError(f"{call_name(event)}: an argument is of a kind that a recording does not have")
        pointers = [value for value in flat([*arguments, *names.values()]) if isinstance(value, DevicePtr)]
        device = pointers[0].device if pointers else self._device or self._host
        entered = self._regions_of(event)
        recorded, base, may_factor_otherwise = arguments, 0, False
        if "blas" in event:
            routine = event["blas"]
            if routine not in blas.__all__:
                raise twins.NoTwinError(f"{routine} is no function of blas")

            def call(values: list[Any], name: str) -> Any:
                positional, keywords = _split(values, names)
                return getattr(blas, name or routine)(*positional, **keywords)

            host_call: Caller = call
        else:
            library, _, routine = event["call"].partition(".")
            backend = entered[0].recorded_on.partition(":")[0] if entered else ""
            function: Any = twins.function(library, routine)
            if backend != device.backend and not twins.runs_on(library, device):
                function, arguments, base = twins.twin(library, routine, arguments, device)
            host_call = self._host_call(library, routine, names)
            is_hosts = isinstance(function, BuiltinFunctionType) and not device.is_gpu
            may_factor_otherwise = not is_hosts and solvers.is_solver(library, routine)

            def call(values: list[Any], name: str) -> Any:
                if "times" in event:
                    steps = tuple(self._value(step) for step in event["steps"])
                    if not isinstance(function, BuiltinFunctionType):
                        return solvers.repeated(function, event["times"], steps, values)
                    return _core.repeat(function, event["times"], steps, "", *values)
                positional, keywords = _split(values, names)
                return function(*positional, **keywords)

        expected = None
        if self._compares and self._is_comparable(event, device):
            try:
                if may_factor_otherwise:
                    expected = solved.expect(library, routine, recorded, host_call, self._host) if not names else None
                else:
                    expected = expect(routine, [*recorded, *names.values()], host_call, self._host)
            except OffloadError:
                expected = None  # the call itself reports this error, or it has no counterpart on the host
        result = call([*arguments, *names.values()], "")
        if isinstance(result, int) and not isinstance(result, bool):
            result += base
        self._latest = f"{call_name(event)}, {self._at(event)}"
        self.report.calls += 1
        self._keep(event.get("result"), result)
        if not is_object(event.get("result")):
            self.results.append(result)
        for region in entered:
            region.calls.append(self._number)
            region.is_bounded &= expected is not None and not may_factor_otherwise
            region.most += expected.most if expected is not None else 0.0
        if expected is not None:
            self._compare(event, expected, result, entered, device)
            self._compare_unordered(expected, result, entered)

    def _is_foreign_setting(self, event: Event) -> bool:
        """Return whether a call only makes settings for a library that no device of the replay has."""
        library, _, name = event["call"].partition(".")
        devices = self._devices.values() or [self._device or self._host]
        return solvers.is_setting(library, name) and not any(twins.runs_on(library, device) for device in devices)

    def _argument(self, event: Event, value: Any) -> Any:
        """Return an argument; None for settings of a solver that were not made here."""
        is_missing = is_object(value) and value["object"] not in self._objects
        library, _, name = event.get("call", "").partition(".")
        if is_missing and solvers.is_solver(library, name) and value.get("kind") in _SETTINGS:
            return None
        return self._value(value)

    def _compare_unordered(self, expected: Expected, result: Any, entered: list[_Region]) -> None:
        """Compare a number that a call returned with the number that it returned in the replay without waits."""
        if self.unordered is None or not isinstance(result, (int, float, complex)) or not entered:
            return
        position, outer = len(self.results) - 1, entered[-1]
        other = self.unordered.results[position] if position < len(self.unordered.results) else None
        if not isinstance(other, (int, float, complex)) or not all(region.is_bounded for region in entered):
            return
        most = expected.most + sum(region.most for region in entered)
        if (difference := expected.distance_of(other, result, most)) is not None:
            number = next(number for number, region in self._regions.items() if region is outer)
            calls = sorted({number for region in entered for number in region.calls})
            self.stale.append(Stale(number, outer.place, calls, most, difference.off, result))

    def _compare(self, event: Event, expected: Expected, result: Any, entered: list[_Region], device: Device) -> None:
        names = self._lent_names(event) if "launch" in event else _operand_names(event)
        if device.name != "host":
            self.report.compared += 1
            if (difference := expected.difference(result, names)) is not None:
                self._differs(event, difference, "")
        recorded = event.get("result")
        if isinstance(recorded, (int, float, dict)) and self._is_whole and all(region.is_bounded for region in entered):
            most = sum(region.most for region in entered)
            if (difference := expected.distance_of(result, self._value(recorded), most)) is not None:
                self._differs(event, difference, " from the recorded result")

    def _lent_names(self, event: Event) -> list[str]:
        """Return the kernel's name of the parameter and the program's name, for each array of a launch."""
        lent = {row["pointer"]: row["name"] for region in self._regions.values() for row in region.rows}
        parameters = event.get("parameters", [])
        names = []
        for position, value in enumerate(event["args"], 1):
            if isinstance(value, dict) and "p" in value:
                name = lent.get(value["p"]) or f"argument {position}"
                parameter = f"{parameters[position - 1]}=" if position <= len(parameters) else ""
                names.append(f"{parameter}{name}")
        return names

    def _regions_of(self, event: Event) -> list[_Region]:
        """Return the regions of the pointers of a call, and then the regions that lend the same memory."""
        operands = flat([*event["args"], *event.get("names", {}).values()])
        numbers = {operand["p"] for operand in operands if isinstance(operand, dict) and "p" in operand}
        direct = [region for region in self._regions.values() if numbers & set(region.pointers)]
        rows = [row for region in direct for row in region.rows if row["pointer"] in numbers]
        buffers = {row["buffer"] for row in rows if "buffer" in row}
        around = [region for region in self._regions.values() if region not in direct]
        return direct + [region for region in around if any(row.get("buffer") in buffers for row in region.rows)]

    def _is_comparable(self, event: Event, device: Device) -> bool:
        if self._subject not in ("", f"{call_name(event)}, {self._at(event)}"):
            return False
        return (device.name != "host" or self.report.contents == "inputs") and "times" not in event

    def _host_call(self, library: str, routine: str, names: dict[str, Any]) -> Caller:
        def call(values: list[Any], name: str) -> Any:
            positional, keywords = _split(values, names)
            function, passed, base = twins.twin(library, routine, positional, self._host)
            if name:
                function = twins.function("cblas", f"{routine[0]}{name}")
            result = function(*passed, **keywords)
            index = keywords.get("result")
            if base and isinstance(index, DevicePtr):
                index.assign(index.to_host() + base)
            return result + base if isinstance(result, int) else result

        return call

    def _differs(self, event: Event, difference: Difference, than: str) -> None:
        self.report.differences.append(
            f"call {self._number}, {call_name(event)}, {self._at(event)}: {difference.operand} is off by "
            f"{difference.off:.3g}{than}, at most {difference.most:.3g} is due to rounding"
        )

    def _keep(self, recorded: Any, result: Any) -> None:
        """Note the objects that a call made."""
        if is_object(recorded):
            self._objects[recorded["object"]] = result
        elif isinstance(recorded, list) and isinstance(result, (list, tuple)):
            for part, value in zip(recorded, result, strict=False):
                self._keep(part, value)

    # -- chains of captured calls ------------------------------------------------------------------------------

    def _on_capture(self, event: Event) -> None:
        self._capturing[event["thread"]] = event["capture"]
        self._chains[event["capture"]] = []

    def _on_captured(self, event: Event) -> None:
        for thread, number in list(self._capturing.items()):
            if number == event["captured"]:
                del self._capturing[thread]

    def _on_graph(self, event: Event) -> None:
        for _ in range(event["times"]):
            for number, step in self._chains.get(event["graph"], ()):
                now, self._number = self._number, number
                if "error" not in step:
                    self._again(step)
                self._number = now

    def _again(self, event: Event) -> None:
        kind = next(iter(event))
        if kind in CALLS:
            self._try(event, lambda: self._launch(event) if kind == "launch" else self._make(event))
        else:
            getattr(self, f"_on_{kind}")(event)

    # -- values ------------------------------------------------------------------------------------------------

    def _value(self, value: Any) -> Any:
        if isinstance(value, list):
            return [self._value(part) for part in value]
        if not isinstance(value, dict):
            return value
        if "p" in value:
            return self._pointer(value)
        if "complex" in value:
            return complex(*(self._value(part) for part in value["complex"]))
        if "float" in value:
            return float(value["float"])
        if "scalar" in value:
            return dtype_named(value["scalar"]).type(self._value(value["value"]))
        if "dtype" in value:
            return dtype_named(value["dtype"])
        if "object" in value:
            if value["object"] not in self._objects:
                raise twins.NoTwinError(f"an object of kind {value.get('kind', '?')} that was not made here")
            return self._objects[value["object"]]
        if "array" in value:
            array: NDArray[Any] = np.empty(tuple(value["shape"]), dtype_named(value["array"]))
            self._fill(array, (0,), value, "")
            self._known.pop(0, None)
            return array
        return None

    def _pointer(self, value: Event) -> DevicePtr[Any]:
        root = self._pointers.get(value["p"])
        if root is None:
            raise twins.NoTwinError("a pointer of a region that was entered before the recording began, or has ended")
        if "offset" not in value:
            return root
        pointer: DevicePtr[Any] = _core.view(root, value["offset"], tuple(value["shape"]), tuple(value["strides"]))
        return pointer


def is_object(recorded: Any) -> TypeGuard[Event]:
    """Return whether a call's recorded result is an object of a library."""
    return isinstance(recorded, dict) and "object" in recorded


def call_name(event: Event) -> str:
    """Return the name of a call's function, with its library."""
    if "launch" in event:
        return f"kernel {event['launch']}"
    return f"blas.{event['blas']}" if "blas" in event else str(event.get("call", next(iter(event))))


def _parameters(event: Event) -> list[str]:
    """Return the names of the parameters of a call's function."""
    if "blas" in event:
        code = getattr(getattr(blas, event["blas"], None), "__text_signature__", "") or ""
        return [part.strip().partition("=")[0] for part in code.strip("()").split(",")]
    library, _, routine = event["call"].partition(".")
    return [row[1] for row in _core.record(library, routine)] if library in LIBRARIES else []


def in_order(event: Event) -> Event:
    """Return the arguments that are passed by name, in the order of the parameters."""
    names: Event = event.get("names", {})
    if len(names) < 2:
        return names
    parameters = _parameters(event)
    places = {name: parameters.index(name) if name in parameters else len(parameters) for name in names}
    return dict(sorted(names.items(), key=lambda item: places[item[0]]))


def _split(values: list[Any], names: Event) -> tuple[list[Any], Event]:
    """Return the values that are passed by position, and the last values by their names."""
    positional = len(values) - len(names)
    return values[:positional], dict(zip(names, values[positional:], strict=True))


def _operand_names(event: Event) -> list[str]:
    """Return a name for each pointer among a call's arguments."""
    parameters = _parameters(event)
    names: list[str] = []
    positional = [
        (parameters[position] if position < len(parameters) else f"argument {position + 1}", value)
        for position, value in enumerate(event["args"])
    ]
    for name, value in (*positional, *in_order(event).items()):
        names += [name for part in flat([value]) if isinstance(part, dict) and "p" in part]
    return names


#: The classes of settings of solvers.
_SETTINGS: Final = ("Params", "SyevjInfo", "GesvdjInfo")
#: The exceptions for events whose values have types, names or sizes that a recording never writes.
_MEANINGLESS: Final = (
    OffloadError, ArithmeticError, AttributeError, LookupError, MemoryError, RecursionError, TypeError, ValueError,
)  # fmt: skip


@contextlib.contextmanager
def _line_named(file: str | os.PathLike[str], line: int) -> Iterator[None]:
    """Raise an ArgumentError that names the line of the file if the block raises because the line has no meaning."""
    try:
        yield
    except _MEANINGLESS as error:
        raise damaged(file, line, error) from error


def replay(
    file: str | os.PathLike[str],
    *,
    device: Device | None = None,
    compare: bool = False,
    first: int = 1,
    last: int | None = None,
    images: bool = False,
) -> Report:
    """Run the calls of a recording again, and return a report.

    device: the device for all calls; None stands for the recorded devices, or for the host if a recorded device is
    missing. compare: whether each call is also made on the host, and the results are compared. first, last: the
    numbers, from 1, of the first and last call to run. images: whether the machine code of kernels in the file is run;
    use it only with a file that you trust.

    Raises ArgumentError if the file is not a recording, is damaged, has no such calls, or is of a later version.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if not compare:
            return Replay(device, False, first, last, images=images).run(file)
        return compared(file, None, device, first, last, images=images)[0]


def compared(
    file: str | os.PathLike[str],
    events: list[Event] | None,
    device: Device | None,
    first: int = 1,
    last: int | None = None,
    *,
    images: bool = False,
) -> tuple[Report, Fault | None]:
    """Replay a recording, compare its calls, and find the first ordering error. Return the report and that error."""
    replayed = Replay(device, True, first, last, images=images)
    if device is None or device.name != "host":  # calls on the host are waited for
        replayed.unordered = Replay(device, False, first, last, images=images)
        replayed.unordered.notes_ends = replayed.notes_ends = True
        replayed.unordered.run(file, events)
    report = replayed.run(file, events)
    if not replayed.stale:
        if replayed.unlike is not None:
            _explain(report, replayed.unlike, list(read(file)) if events is None else events, file, device)
        return report, None
    stale = replayed.stale[0]

    def values_after(call: int, waits: bool) -> Values:
        part = Replay(device, False, first, call, images=images, waits=waits, until=stale.region)
        part.run(file, events)
        return part.values

    text, fault = first_difference(stale, values_after)
    insert(report.differences, text, fault.call if fault is not None else stale.calls[-1])
    return report, fault


def _explain(
    report: Report, unlike: Unlike, events: list[Event], file: str | os.PathLike[str], device: Device | None
) -> None:
    """Find a call that would give the recorded results if it ran before an earlier call, and add it to the report."""
    for call, earlier, moved in exchanges(events, unlike.calls):
        part = Replay(device, False, 1, None, waits=True, until=unlike.region)
        try:
            part.run(file, moved)
        except ArgumentError:  # the call needs a pointer that the earlier event makes
            continue
        pairs = [(part.values.arrays.get(pointer), recorded) for pointer, recorded in unlike.results.items()]
        if all(pair is not None and distance(pair[1], recorded) <= unlike.most for pair, recorded in pairs):
            places = {event["place"]: f"{event['file']}:{event['line']}" for event in events if "place" in event}
            event = next(event for number, event in numbered(events) if number == call)
            insert(report.differences, before(call, earlier, call_name(event), places.get(event["at"], "?")), call)
            return
