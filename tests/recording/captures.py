"""Checks that a function in a captured stream is either captured completely, or refused before the library is called.

The library is a double on a GPU or on a double of a GPU. It notes its calls, and does nothing with the arrays.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
from regions.test_graphs import FOR_ALL_THREADS, FOR_THIS_THREAD, RELAXED, Graphs

from bindings.emit.helper_functions import body_of
from bindings.helper_functions import HostArray
from offload_args import offload_args
from offload_args.errors import CaptureError
from recording import copies, descriptors, helper_functions, legal, plans, products
from recording.bench import DoubleBench, Form
from recording.legal import roles


@cache
def graphs_of(device: str) -> Graphs:
    """Return a stream of the program, which exists until the process ends."""
    return Graphs(device)


Made = tuple[dict[str, Any], Callable[[dict[str, Any]], Any], bool]


def drawn(bench: DoubleBench, function: roles.Function) -> Made:
    """Return the arrays of a legal call, a function that makes it with their pointers, and whether the library is
    called."""
    random = np.random.default_rng(zlib.crc32(f"captures {function.name}".encode()))
    name = bench.library.name
    if function.name in legal.with_descriptors(name):
        values, arrays = descriptors.legal_values(bench, function, full=True)
        return arrays, lambda pointers: descriptors.called(bench, function, values, pointers), True
    if function.name in legal.written(name):
        values, arrays = (plans if function.name in legal.executions(name) else products).arguments(bench, function)
        names = [parameter.name for parameter in function.parameters]
        call = getattr(bench.module, function.name)
        return arrays, lambda pointers: call(*((values | pointers)[name] for name in names)), True
    if function.name in legal.copies(name):
        integers = copies.sizes(function, random)
        drawn_values = {
            parameter.name: np.zeros(
                int(legal.touched_by(parameter.extent, integers, by_rows=False).max()) + 1,
                copies.DTYPE,  # type: ignore[attr-defined]
            )
            for parameter in function.parameters
            if parameter.name not in integers
        }
        on_host = {
            parameter.name: drawn_values.pop(parameter.name)
            for parameter in function.parameters
            if isinstance(parameter, HostArray)
        }
        names = [parameter.name for parameter in function.parameters]
        call = getattr(bench.module, function.name)
        return drawn_values, lambda pointers: call(*((integers | on_host | pointers)[name] for name in names)), True
    drawn_call = legal.draw(bench.library, function, random, least=1)
    return (
        bench.arrays(drawn_call, Form()),
        lambda pointers: bench.by_python(drawn_call, pointers),
        drawn_call.reaches_the_vendor,
    )


def is_refused(library: roles.Library, function: roles.Function) -> bool:
    """Return whether, according to the records, `region.capture` refuses calls of a function."""
    if function.captured:
        return False
    body = body_of(library, function)
    waits = {"OA_ON_DEFAULT_STREAM", "OA_ON_HOST_MEMORY"} & {*body.special} and not function.written
    return bool(library.uncaptured or waits or body.uncaptured in ("OA_NEEDS_WORKSPACE", "OA_RESULT_ON_HOST"))


def check_own(bench: DoubleBench, function: roles.Function) -> None:
    """Make a call in a graph of `region.capture`.

    The call must be refused before the library is called, or be captured completely.
    """
    success = bench.library.success.to_bytes(8, "little", signed=True)
    arrays, call, reaches = drawn(bench, function)
    listed = [element for array in arrays.values() for element in (array if isinstance(array, list) else [array])]
    if not listed:
        return
    region = offload_args(*listed, device=bench.device)
    with region as pointers:
        rest = iter(pointers)
        named = {
            name: [next(rest) for _ in array] if isinstance(array, list) else next(rest)
            for name, array in arrays.items()
        }
        bench.recorder.reset({}, success)
        refused = ""
        with region.capture() as graph:
            try:
                call(named)
            except CaptureError as error:
                refused = str(error)
        times = [record.symbol for record in bench.recorder.records(own=True)].count(function.symbol)
        assert times == (reaches and not refused), f"{function.symbol}: called {times} times in a graph, {refused=}"
        assert graph.calls == times, graph
        on_host = any(not number.is_read_only for number in function.numbers)
        if reaches:
            assert bool(refused) == (is_refused(bench.library, function) or on_host), f"{function.symbol}: {refused=}"


def check(bench: DoubleBench, function: roles.Function, turns: int) -> None:
    """Make a call in a captured stream, and one beside a captured stream, in each mode.

    A call that disturbs the capture makes the capture fail.
    """
    graphs = graphs_of(bench.device)
    success = bench.library.success.to_bytes(8, "little", signed=True)
    check_own(bench, function)
    for mode in [FOR_ALL_THREADS, FOR_THIS_THREAD, RELAXED][:: 1 if turns > 1 else 2]:
        arrays, call, reaches = drawn(bench, function)
        bench.stream = graphs
        bench.recorder.reset({}, success)
        with bench.lent(arrays) as pointers:
            call(pointers)  # copies the arrays up
            bench.recorder.reset({}, success)
            refused = False
            with graphs.captured(mode):
                try:
                    call(pointers)
                except CaptureError:
                    refused = True
            times = [record.symbol for record in bench.recorder.records(own=True)].count(function.symbol)
            assert times == (reaches and not refused), f"{function.symbol}: called {times} times, {refused=}"
        bench.stream = None
        bench.recorder.reset({}, success)
        with graphs.captured(mode), bench.lent(arrays) as pointers:
            call(pointers)
        times = [record.symbol for record in bench.recorder.records(own=True)].count(function.symbol)
        assert times == reaches, f"{function.symbol}: called {times} times beside a capture"


def check_helper_function(bench: DoubleBench, function: roles.Function, turns: int) -> None:
    """Call a helper function while another stream is captured."""
    graphs = graphs_of(bench.device)
    for mode in (FOR_ALL_THREADS, FOR_THIS_THREAD, RELAXED):
        with graphs.captured(mode):
            helper_functions.check(bench, function, turns)
