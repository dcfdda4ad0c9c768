"""A recording as a self-contained Python script, which makes the calls, and fails at the fault of the recording."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .. import blas
from ..devices import Device
from ..dtypes import DTYPE_NAMES
from ..errors import ArgumentError
from ..pointers import DevicePtr
from . import transforms, twins
from .compare import Expected, distance, host_values
from .layout import dtype_named, flat
from .order import Fault
from .predicate import Check
from .replay import Event, Replay, call_name, in_order, is_object

__all__ = ["script"]


class _Writer(Replay):
    """Replay events, and write a script that makes the same calls."""

    def __init__(
        self,
        events: list[Event],
        device: Device | None,
        compares: bool,
        subject: str,
        keeps_results: bool,
        fault: Fault | None,
    ) -> None:
        super().__init__(device, compares, 1, None, subject)
        self._fault = fault
        self._keeps_results = keeps_results
        rows = [row for event in events for row in event.get("arrays", ()) if isinstance(row, dict) and "buffer" in row]
        rows += [event[kind] for event in events for kind in ("update_from", "update_to") if kind in event]
        views = {(row["buffer"], row["offset"], *row["shape"], *row["strides"], row["dtype"]) for row in rows}
        self._views = Counter(view[0] for view in views)  # {buffer: the number of its views}
        self._memories: set[int] = set()
        self.body: list[str] = []
        self.modules: set[str] = {"offload_args"}
        self.has_fault = False
        self._open: list[int] = []  # the numbers of the regions around the next line
        self._named: dict[tuple[Any, ...], str] = {}  # the names of arrays
        self._filled: dict[tuple[Any, ...], NDArray[Any]] = {}
        self.variables: dict[str, str] = {}  #: {the program's name of an array: the script's name}

    def _line(self, text: str) -> None:
        self.body.append(f"{'    ' * len(self._open)}{text}")

    # -- arrays and regions ------------------------------------------------------------------------------------

    def _fill(self, array: NDArray[Any], key: tuple[Any, ...], row: Event, use: Any) -> None:
        super()._fill(array, key, row, use)
        self._filled[key] = array.copy()

    def _on_enter(self, event: Event) -> None:
        super()._on_enter(event)
        device = self._device_of(event["device"])
        arguments, later = [], []
        for row in event["arrays"]:
            pointer = f"p{int(row['pointer'])}"
            if row.get("memory"):
                arguments.append(f"Scratch({tuple(row['shape'])}, {dtype_named(row['dtype']).name!r})")
                self.modules.add("Scratch")
                if row["memory"] == "borrowed":
                    later.append(f"{pointer}.assign({self._text(self._pointers[row['pointer']].to_host())})")
                continue
            kind = {"in": "In", "out": "Out" if device.name == event["device"] else "InOut", "inout": "InOut"}.get(
                row["direction"], "" if row["writable"] else "In"
            )
            name = self._array(row)
            arguments.append(f"{kind}({name})" if kind else name)
            self.modules |= {kind} - {""}
        pointers = "".join(f"p{int(row['pointer'])}, " for row in event["arrays"])
        self._line(f"with offload_args({', '.join(arguments)}, device={device.name!r}) as ({pointers.rstrip()}):")
        self._open.append(event["enter"])
        for line in later:
            self._line(line)

    def _array(self, row: Event) -> str:
        """Return the name of an array; write the lines that make the array, or that fill it again."""
        name = self._variable(row)
        if "name" in row:
            self.variables[row["name"]] = name
        return name

    def _variable(self, row: Event) -> str:
        array, key = self._view(row)
        values = self._filled.pop(key, None)
        name = self._named.get(key)
        if name is not None:
            if values is not None:
                self._line(f"{name}[...] = {self._text(values)}")
            return name
        name = self._named[key] = f"a{len(self._named) + 1}"
        if self._views[key[0]] == 1 and (array.flags.c_contiguous or array.flags.f_contiguous) and values is not None:
            order = "" if array.flags.c_contiguous else ', order="F"'
            self._line(f"{name} = {self._text(values, order)}")
            return name
        memory = f"memory{int(row['buffer'])}"
        if row["buffer"] not in self._memories:
            self._memories.add(row["buffer"])
            self._line(f"{memory} = np.zeros({self._sizes[row['buffer']][0]}, np.uint8)")
        first = array.__array_interface__["data"][0] - self._buffers[row["buffer"]].__array_interface__["data"][0]
        self._line(f"{name} = np.ndarray({array.shape}, {array.dtype.name!r}, {memory}, {first}, {array.strides})")
        if values is not None:
            self._line(f"{name}[...] = {self._text(values)}")
        return name

    def _on_leave(self, event: Event) -> None:
        super()._on_leave(event)
        if event["leave"] in self._open and self._open.pop() != event["leave"]:
            raise ArgumentError("replay: a script can't have regions that overlap and do not nest")

    def _write(self, event: Event, write: Callable[[], object]) -> None:
        kind = next(iter(event))
        value = self._source(event[{"fill": "value", "assign": "values", "copy": "from", "fft": "from"}[kind]])
        method = "copy_from" if kind in ("copy", "fft") else kind
        if kind == "fft":
            self.modules.add("fft")
            name, arguments = transforms.arguments_of(event)
            value = f"fft.{name}({', '.join([value, *map(repr, arguments)])})"
        self._line(f"{self._source(event[kind])}.{method}({value})")
        super()._write(event, write)

    def _on_update_from(self, event: Event) -> None:
        self._line(f"update({self._array(event['update_from'])})")
        self.modules.add("update")
        super()._on_update_from(event)

    def _on_update_to(self, event: Event) -> None:
        super()._on_update_to(event)
        key = self._view(event["update_to"])[1]
        values = self._filled.pop(key)
        name = self._array(event["update_to"])
        self._line(f"with update({name}):")
        self._line(f"    {name}[...] = {self._text(values)}")
        self.modules.add("update")

    def _made(self, kind: str, event: Event, make_pointer: Callable[[], DevicePtr[Any]]) -> None:
        beside = ", ".join(self._source(value) for value in event["beside"])
        self.modules.add("_core")
        if kind == "stage":
            value = f"np.array({self._source(event['value'])}, {dtype_named(event['dtype']).name!r})"
            call = f"_core.stage({self._source(event['beside'][0])}, {value})"
        else:
            code = DTYPE_NAMES.index(event["dtype"])
            call = f"_core.scratch(({beside},), {code}, {tuple(event['shape'])}, {tuple(event['strides'])})"
        self._line(f"p{int(event[kind])} = {call}")
        super()._made(kind, event, make_pointer)

    # -- calls -------------------------------------------------------------------------------------------------

    def _make(self, event: Event) -> None:
        name = call_name(event)
        arguments = [self._source(value) for value in event["args"]]
        for key, value in event.get("names", {}).items():
            if not key.isidentifier():
                raise twins.NoTwinError(f"{name} with an argument {key!r}")
            arguments.append(f"{key}={self._source(value)}")
        self.modules.add(name.partition(".")[0])
        if "blas" not in event:
            twins.function(*name.split("."))  # raises an error for other names, because files are not trusted
        elif event["blas"] not in blas.__all__:
            raise twins.NoTwinError(f"{name} is no function of blas")
        kept = event.get("result")
        target = f"o{int(kept['object'])} = " if is_object(kept) else ""
        text = f"{name}({', '.join(arguments)})"
        if "times" in event:
            self.modules.add("_core")
            steps = f"{', '.join(map(self._source, event['steps']))},"
            text = f"_core.repeat({name}, {int(event['times'])}, ({steps}), '', {', '.join(arguments)})"
        if self._keeps_results and not target:
            text = f"results.append({text})"
        self._line(f"{target}{text}")
        super()._make(event)
        if self._fault is not None and self._number == self._fault.call:
            fault = self._fault
            index = f"[{', '.join(map(str, fault.element))}]" if fault.element else "[()]"
            got = f"p{fault.pointer}.to_host(){index}" if fault.pointer else self.body.pop().strip()
            self._line(f"got, expected = {got}, {fault.expected!r}")
            self._line(f"assert abs(got - expected) <= {fault.most!r}, (got, expected)")

    def _compare(self, event: Event, expected: Expected, result: Any, entered: Any, device: Device) -> None:
        before = len(self.report.differences)
        super()._compare(event, expected, result, entered, device)
        if len(self.report.differences) == before or self.has_fault:
            return
        self.has_fault = True
        values = flat([*event["args"], *in_order(event).values()])
        operands = [value for value in values if isinstance(value, dict) and "p" in value]
        for operand, pointer, wanted in zip(operands, expected.pointers, expected.results, strict=True):
            now = host_values(pointer)
            if not (off := distance(now, wanted)) <= expected.most:
                apart = np.abs(now.astype("c16") - wanted.astype("c16"))
                place = np.unravel_index(int(np.nanargmax(np.where(np.isnan(apart), np.inf, apart))), now.shape)
                index = f"[{', '.join(str(int(i)) for i in place)}]"
                most = expected.most if expected.backwards is None else min(off / 2, 1e300)
                self._line(f"got, expected = {self._source(operand)}.to_host(){index}, {wanted[place].item()!r}")
                self._line(f"assert abs(got - expected) <= {most!r}, (got, expected)")
                return
        call = self.body.pop().strip()
        self._line(f"got, expected = {call}, {np.asarray(expected.returned).item()!r}")
        self._line(f"assert abs(got - expected) <= {expected.most!r}, (got, expected)")

    # -- values ------------------------------------------------------------------------------------------------

    def _source(self, value: Any) -> str:
        """Return a recorded value as source text."""
        if isinstance(value, list):
            return f"[{', '.join(map(self._source, value))}]"
        if isinstance(value, dict) and "p" in value:
            if "offset" not in value:
                return f"p{int(value['p'])}"
            return _part(f"p{int(value['p'])}", self._value(value), self._pointers[value["p"]], value["offset"])
        if isinstance(value, dict) and "object" in value:
            return f"o{int(value['object'])}"
        real = self._value(value)
        if isinstance(real, np.ndarray):
            return self._text(real)
        if isinstance(real, np.generic):
            return f"np.{real.dtype.name}({real.item()!r})"
        if isinstance(real, np.dtype):
            return f"np.dtype({real.name!r})"
        if isinstance(real, (float, complex)) and not np.isfinite(real):
            return f"{type(real).__name__}({str(real)!r})"
        return repr(real)

    def _text(self, values: NDArray[Any], order: str = "") -> str:
        """Return an array as source text."""
        name = values.dtype.name
        numbers = values.ravel()
        if numbers.size > 3 and values.dtype.kind in "iuf" and np.array_equal(numbers, np.arange(1, 1 + numbers.size)):
            shape = f".reshape({values.shape}{order})" if values.ndim > 1 and not order else ""
            text = f"np.arange(1, {1 + numbers.size}).astype({name!r}){shape}"
            return text if not order else f"np.asfortranarray({text}.reshape({values.shape}))"
        return f"np.array({values.tolist()!r}, {name!r}{order})"


def _part(name: str, part: DevicePtr[Any], whole: DevicePtr[Any], offset: int) -> str:
    """Return the source of a part of an array, by slices if slices can express it."""
    strides, indices, axes = whole._strides, [], []
    rest = offset
    starts = dict.fromkeys(range(len(strides)), 0)
    for axis in sorted(starts, key=lambda axis: -strides[axis]):
        if strides[axis] > 0:
            starts[axis], rest = divmod(rest, strides[axis])
    for axis, start in starts.items():
        taken = [place for place, stride in enumerate(part._strides) if stride == strides[axis] and place not in axes]
        if taken:
            axes.append(taken[0])
            indices.append(f"{start}:{start + part._shape[taken[0]]}")
        else:
            indices.append(str(start))
    is_said = rest == 0 and len(axes) == len(part._shape) and all(stride > 0 for stride in strides)
    if is_said and axes in (sorted(axes), sorted(axes, reverse=True)):
        return f"{name}[{', '.join(indices)}]{'' if axes == sorted(axes) else '.T'}"
    return f"_core.view({name}, {offset}, {part._shape}, {part._strides})"


def script(
    file: str,
    events: list[Event],
    fault: str,
    device: Device | None,
    compares: bool,
    subject: str,
    check: Check | None,
    order: Fault | None = None,
) -> str:
    """Return the script of a shrunk recording.

    `check` is the predicate of its fault, or None if the calls show the fault. `order` is the ordering error that the
    script shows, or None.
    """
    keeps_results = check is not None and check.has_results
    writer = _Writer(events, device, compares, subject, keeps_results, order)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        writer.run(file, events)
    if any("_core.view(" in line for line in writer.body):
        writer.modules.add("_core")
    head = [
        *(f"# {line}" for line in fault.splitlines()),
        "import numpy as np",
        "",
        f"from offload_args import {', '.join(sorted(writer.modules, key=str.lower))}",
        "",
    ]
    end = []
    if check is not None:
        head += ["", *check.source.splitlines(), "", ""]
        head += ["results = []"] if keeps_results else []
        arrays = ", ".join(f"{name!r}: {variable}" for name, variable in writer.variables.items())
        end = [f"assert not shows({{{arrays}}}, {'results' if keeps_results else '[]'})"]
    return "\n".join([*head, *writer.body, *end, ""])
