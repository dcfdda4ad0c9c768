"""Plans: an engine of cuDNN runs several operations as one."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Final, NoReturn

import numpy as np

from .. import _core, cudnn
from ..devices import by_number
from ..display import shown
from ..dtypes import DTYPE_NAMES
from ..errors import ArgumentTypeError, LibraryError
from ..pointers import DevicePtr
from .descriptors import Facts, service
from .operations import ALIGNMENT, Operations, Tensor, Typed, make, tensor_descriptor

__all__ = ["Plan", "plan_of"]


@cache
def _handle(number: int) -> Any:
    """Return the device's cuDNN handle for building plans."""
    return service("create")(device=by_number(number))


_NAMES: Final = (
    "cudnnBackendCreateDescriptor",
    "cudnnBackendSetAttribute",
    "cudnnBackendFinalize",
    "cudnnBackendExecute",
    "cudnnBackendDestroyDescriptor",
    cudnn.BACKEND_VARIANT_PACK_DESCRIPTOR,
    cudnn.ATTR_VARIANT_PACK_UNIQUE_IDS,
    cudnn.ATTR_VARIANT_PACK_DATA_POINTERS,
    cudnn.ATTR_VARIANT_PACK_WORKSPACE,
    cudnn.TYPE_INT64,
    cudnn.TYPE_VOID_PTR,
)
_plans: dict[object, Plan] = {}
_READ, _OVERWRITE = 1, 2  # oa_access
_MOST_PROPOSED: Final = 64
_MOST_ENGINES: Final = 16  # the most engines that are tried, or measured
# Notes of engines that round operands or sums of float32 to TF32 or less.
_LESS_EXACT: Final = {
    cudnn.NUMERICAL_NOTE_TENSOR_CORE,
    cudnn.NUMERICAL_NOTE_DOWN_CONVERT_INPUTS,
    cudnn.NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION,
}
_MOST_TEXT: Final = 4096  # bytes of a message of cuDNN
_ROUNDS, _CALLS, _ROUND = 5, 20, 2e-3  # for an engine: measured rounds, a round's most calls, its most seconds


@dataclass(frozen=True)
class Plan:
    """An executable graph: call it with the input pointers, then the output pointers."""

    _plan: Any
    _tensors: tuple[tuple[Any, ...], ...]
    _parts: tuple[Any, ...]  # the descriptors from which the plan is made
    workspace: int  #: bytes of device memory that each call takes from the pool and returns

    def __call__(self, *pointers: DevicePtr[Any]) -> None:
        """Execute the plan. Raises the errors of any call of a library's function."""
        if len(pointers) != self._arrays or not all(isinstance(pointer, DevicePtr) for pointer in pointers):
            listed = ", ".join(map(shown, pointers))
            raise ArgumentTypeError(
                f"cudnn.Plan: needs {self._arrays} DevicePtrs, inputs and then outputs, got {listed}"
            )
        _core.graph_run("cudnn.Plan", "cudnn", _NAMES, self._plan, self._tensors, pointers, self.workspace)

    def __reduce__(self) -> NoReturn:
        raise ArgumentTypeError(
            "cudnn.Plan: can't be copied or pickled: it belongs to a device of this process; pickle the cudnn.Graph, "
            "and call its plan() where it is used"
        )

    def __repr__(self) -> str:
        return f"<cudnn.Plan of {self._arrays} arrays, workspace of {self.workspace} bytes>"

    @property
    def _arrays(self) -> int:
        return sum(1 for _, _, _, access, *_ in self._tensors if access)


def plan_of(
    graph: Operations, outputs: dict[int, Tensor], number: int, measured_on: Sequence[DevicePtr[Any]], exact: bool
) -> Plan:
    """Return the plan of a graph on a device; later requests get the same plan.

    outputs: {uid of a result: the argument to which it is written}. exact: whether the plan must not round to TF32.
    """
    tensors = tuple((tensor.uid, tensor.facts, tensor.number) for tensor in graph._tensors)
    written = tuple((uid, tensor.uid) for uid, tensor in outputs.items())
    signature = tensors, tuple(operation.signature for operation in graph._operations), written
    key = (number, signature, bool(measured_on), exact)
    if key not in _plans:
        _plans[key] = _build(graph, outputs, number, measured_on, exact)
    return _plans[key]


def _build(
    graph: Operations, outputs: dict[int, Tensor], number: int, measured_on: Sequence[DevicePtr[Any]], exact: bool
) -> Plan:
    """Return the plan of the first engine that takes a graph; with `measured_on`, of the fastest engine."""
    handle = _handle(number)
    _said()
    whole, kept = _whole(graph, outputs, handle)
    arguments = _arguments(graph, outputs)
    refusals: list[str] = []
    best, least = None, math.inf
    for plan, more in _plans_of(whole, handle, refusals, exact):
        size = np.zeros(1, np.int64)
        service("backend_get_attribute")(plan, cudnn.ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, cudnn.TYPE_INT64, 1, size)
        candidate = Plan(plan, arguments, (*kept, *more, handle), int(size[0]))
        if not measured_on:
            return candidate
        try:
            seconds = _seconds(candidate, measured_on)
        except LibraryError as error:
            refusals.append(_reason(error))
            continue
        if seconds < least:
            best, least = candidate, seconds
    if best is None:
        reason = "; ".join(dict.fromkeys(refusals)) or "it has no engine for them"
        raise LibraryError(f"cudnn.Graph.plan: cuDNN does not take these operations as one: {reason}")
    return best


def _seconds(plan: Plan, pointers: Sequence[DevicePtr[Any]]) -> float:
    """Return the time of a call of a plan."""
    device, times, calls = pointers[0].device, [], 1
    plan(*pointers)
    for _ in range(1 + _ROUNDS):
        device.synchronize()
        start = time.perf_counter()
        for _ in range(calls):
            plan(*pointers)
        device.synchronize()
        times.append((time.perf_counter() - start) / calls)
        calls = max(1, min(_CALLS, int(_ROUND / times[0])))
    return min(times)


def _whole(graph: Operations, outputs: dict[int, Tensor], handle: Any) -> tuple[Any, tuple[Any, ...]]:
    """Return the descriptor of all operations, and the descriptors from which it is made."""
    descriptors: dict[tuple[int, Facts], Any] = {}
    parts: list[Any] = []

    def descriptor_of(tensor: Tensor) -> Any:
        real = outputs.get(tensor.uid, tensor)
        key = (real.uid, real.facts)
        if key not in descriptors:
            descriptors[key] = tensor_descriptor(real)
        return descriptors[key]

    operations = [operation.descriptor(descriptor_of, parts) for operation in graph._operations]
    whole = make("OPERATIONGRAPH", OPS=operations, HANDLE=handle)
    return whole, (*descriptors.values(), *parts, *operations, whole)


def _arguments(graph: Operations, outputs: dict[int, Tensor]) -> tuple[tuple[Any, ...], ...]:
    """Return the core's record of each tensor that is not internal: inputs, outputs, numbers."""
    written = {tensor.uid for tensor in outputs.values()}
    arguments = [tensor for tensor in graph._tensors if not tensor.is_virtual]
    arguments.sort(key=lambda tensor: (tensor.number is not None, tensor.uid in written))
    return tuple(
        (
            f"argument {at}",
            tensor.uid,
            DTYPE_NAMES.index(tensor.facts.dtype),
            0 if tensor.number is not None else _OVERWRITE if tensor.uid in written else _READ,
            tensor.facts.elements,
            tensor.facts.span,
            *tensor.facts.lines,
            tensor.number or 0.0,
            ALIGNMENT,
        )
        for at, tensor in enumerate(arguments, 1)
    )


def _said() -> list[str]:
    """Return the reasons that cuDNN noted since the last call of this function: the first reason for each engine."""
    buffer = np.zeros(_MOST_TEXT, np.uint8)
    service("get_last_error_string")(buffer, buffer.nbytes)
    text = buffer.tobytes().partition(b"\0")[0].decode(errors="replace").strip("\n ")
    firsts = [match[1] for part in text.split("\n\n") if (match := re.search(r"Reason: (.*)", part))]
    return firsts or text.splitlines()[:1]


def _reason(error: LibraryError) -> str:
    """Return the text of an error, with cuDNN's last message."""
    return ": ".join([str(error), *_said()])


def _plans_of(whole: Any, handle: Any, refusals: list[str], exact: bool) -> Iterator[tuple[Any, list[Any]]]:
    """Yield a plan, and the descriptors from which it is made, for each engine that takes them, the best first."""
    for mode in (cudnn.HEUR_MODE_A, cudnn.HEUR_MODE_FALLBACK):
        try:
            heuristics = make("ENGINEHEUR", OPERATION_GRAPH=whole, MODE=Typed(cudnn.TYPE_HEUR_MODE, mode))
            proposed = _engines(heuristics)
            engines = [engine for engine in proposed if not (exact and _notes(engine) & _LESS_EXACT)][:_MOST_ENGINES]
        except LibraryError as error:
            refusals.append(_reason(error))
            continue
        if not proposed:
            refusals += _said()
        elif len(engines) < len(proposed) and exact:
            refusals.append("there are engines that compute float32 in TF32, and plan(tf32=True) takes them")
        for engine in engines:
            try:
                plan = make("EXECUTION_PLAN", HANDLE=handle, ENGINE_CONFIG=engine)
            except LibraryError as error:
                refusals.append(_reason(error))
                continue
            yield plan, [heuristics, engine]


def _engines(heuristics: Any) -> list[Any]:
    """Return the engines that cuDNN proposes, the best first."""
    return _parts_of(heuristics, cudnn.ATTR_ENGINEHEUR_RESULTS, cudnn.BACKEND_ENGINECFG_DESCRIPTOR, _MOST_PROPOSED)


def _parts_of(whole: Any, name: int, kind: int, most: int) -> list[Any]:
    """Return the descriptors in an attribute of another descriptor, but no more than `most`."""
    descriptors = [service("backend_create_descriptor")(kind) for _ in range(most)]
    addresses = np.array([descriptor.address for descriptor in descriptors], np.uint64)
    count = service("backend_get_attribute")(whole, name, cudnn.TYPE_BACKEND_DESCRIPTOR, most, addresses)
    return descriptors[: int(count)]


def _notes(configuration: Any) -> set[int]:
    """Return cuDNN's notes on an engine's numerical behaviour."""
    (engine,) = _parts_of(configuration, cudnn.ATTR_ENGINECFG_ENGINE, cudnn.BACKEND_ENGINE_DESCRIPTOR, 1)
    most = sum(name.startswith("NUMERICAL_NOTE_") for name in dir(cudnn))
    notes = np.zeros(most, np.int32)
    name, kind = cudnn.ATTR_ENGINE_NUMERICAL_NOTE, cudnn.TYPE_NUMERICAL_NOTE
    count = service("backend_get_attribute")(engine, name, kind, notes.size, notes)
    return {*notes[: int(count)].tolist()}
