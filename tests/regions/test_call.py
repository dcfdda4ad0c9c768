"""`call` lends its array arguments for one call."""

from __future__ import annotations

import inspect
import math
from typing import Any

import numpy as np
import pytest

import offload_args as package
from helpers.arrays import ramp
from offload_args import (
    Device,
    DevicePtr,
    In,
    Out,
    blas,
    call,
    offload_args,
    update,
)
from offload_args._core import reused
from offload_args.errors import (
    ArgumentError,
    ArgumentTypeError,
    PerformanceWarning,
    UnwrittenWarning,
)


def test_call_lends_calls_copies_back_and_returns_the_value(device: str) -> None:
    def dot_and_scale(factor: float, x: Any, *, y: Any, label: str) -> tuple[str, float]:
        assert isinstance(x, DevicePtr)
        value = blas.dot(x, y)
        blas.scal(factor, y)
        return label, value

    x, y = ramp(8), ramp(8)
    for function in (call, package.call, offload_args.call):
        y[:] = ramp(8)
        result = function(dot_and_scale, 2.0, In(x), y=y, label="name", device=device)
        assert result == ("name", float(ramp(8) @ ramp(8)))
        np.testing.assert_array_equal(y, 2 * ramp(8))


def test_options_of_a_region_and_of_a_call_are_named(device: str) -> None:
    x = ramp(4)
    with pytest.raises(TypeError, match="unexpected keyword argument 'devise'"):
        offload_args(x, devise=device)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="keywords must be strings"):
        offload_args(x, **{1: device})  # type: ignore[misc]
    with pytest.raises(TypeError, match="missing 1 required positional argument: 'function'"):
        call(device=device)  # type: ignore[call-arg]
    with pytest.raises(ArgumentError, match="on_error needs .*, got None"):
        call(blas.asum, x, device=device, on_error=None)  # type: ignore[arg-type]
    for wrong in ("off", None, 1, math.nan, x, x[:0], Undecided()):
        with pytest.raises(ArgumentError, match="resident needs True or False, got "):
            offload_args(x, device=device, resident=wrong)  # type: ignore[arg-type]
        with pytest.raises(ArgumentError, match="on_error needs .*, got "):
            offload_args(x, device=device, on_error=wrong)  # type: ignore[arg-type]
    for right in (True, np.True_, False, np.False_):
        with offload_args(x, device=device, resident=right):  # type: ignore[arg-type]
            pass
    assert x.flags.writeable
    names = "device=None, stream=None, on_error='discard'"
    assert str(inspect.signature(offload_args)) == f"(*arrays, {names}, resident=False, guard=False)"
    assert str(inspect.signature(call)) == f"(function, /, *arguments, {names}, **keywords)"


class Undecided:
    def __bool__(self) -> bool:
        raise ZeroDivisionError

    def __eq__(self, other: object) -> bool:
        raise ZeroDivisionError

    __hash__ = None  # type: ignore[assignment]


@pytest.mark.parametrize("on_error", ["discard", "keep"])
def test_call_replaces_arrays_wherever_they_stand_and_hands_on_the_rest(device: str, on_error: Any) -> None:
    arrays = [ramp(i) for i in range(1, 41)]

    def shapes(*arguments: Any, **keywords: Any) -> dict[str, Any]:
        passed = {str(i): value for i, value in enumerate(arguments)} | keywords
        return {name: value.shape if isinstance(value, DevicePtr) else value for name, value in passed.items()}

    known = {str(i): array.shape for i, array in enumerate(arrays)}
    assert call(shapes, *arrays, device=device, on_error=on_error) == known
    x = arrays[2]
    mixed = call(shapes, 1.5, x, "x", resident=True, y=x, device=Device(device), z=In(arrays[0]), on_error=on_error)
    assert mixed == {"0": 1.5, "1": (3,), "2": "x", "resident": True, "y": (3,), "z": (1,)}
    assert call(shapes, device=device) == {}


@pytest.mark.copies
def test_small_arguments_of_a_call_need_no_device_memory(device: str) -> None:
    B, c = ramp(7, 6), np.full((5, 2), np.nan, np.float32)
    A, x, y = B[1:6, 1:4], ramp(3), c[:, 1]  # rows with gaps; elements with gaps
    before = Device(device).counters
    with pytest.warns(PerformanceWarning, match="packed"):
        call(blas.gemv, 2.0, A, x[::-1], 0.0, Out(y), device=device)
    after = Device(device).counters
    np.testing.assert_array_equal(y, 2 * A @ x[::-1])  # small integers, so the results are exact
    assert np.isnan(c[:, 0]).all()
    np.testing.assert_array_equal(B, ramp(7, 6))
    assert after.allocations - before.allocations == (1 if device == "host" else 0)
    assert after.bytes_up - before.bytes_up >= 4 * (A.size + x.size)
    call(blas.gemm, 1.0, ramp(3, 5, order="F"), ramp(5, 2), 0.0, c[:3], device=device)
    np.testing.assert_array_equal(c[:3], ramp(3, 5) @ ramp(5, 2))


def test_matrices_of_a_product_are_read_right_wherever_call_puts_them(device: str) -> None:
    for n in (20, 64, 100, 128):  # sizes with different ways to place the arrays
        A, B = ramp(n, n + 3) % 8, np.asfortranarray(ramp(n + 3, n) % 7)
        C = np.full((n, n), np.nan, np.float32)
        call(blas.gemm, 1.0, A, B, 0.0, C, device=device)
        np.testing.assert_array_equal(C, A @ B)  # integers, so exact
        call(blas.gemm, 1.0, A, B=B, beta=-1.0, C=C, device=device)
        np.testing.assert_array_equal(C, 0)
        call(blas.gemm, 1.0, In(A), A, 0.0, Out(C), trans_b="T", device=device)
        np.testing.assert_array_equal(C, A @ A.T)
        call(blas.syrk, 1.0, B, 0.0, C, trans="T", device=device)
        np.testing.assert_array_equal(np.triu(C), np.triu(B.T @ B))


def test_call_copies_what_products_only_read_and_nothing_that_they_write() -> None:
    A, B = 1 << 1, 1 << 2  # bits of the places of A and B in (alpha, A, B, ...)
    assert reused[blas.gemm] == reused[blas.symm] == A | B
    assert reused[blas.syrk] == reused[blas.trsm] == A
    assert blas.gemv not in reused and blas.ger not in reused


def test_a_function_that_is_called_may_use_its_pointers_as_in_a_region(device: str) -> None:
    x, y = ramp(8), ramp(8)

    def play(dx: Any, dy: Any) -> None:
        blas.axpy(1.0, dx, dy)  # y: 2 r
        with update(y) as again:
            np.testing.assert_array_equal(again, 2 * ramp(8))
            again[:] = 3
        dx.assign(4)
        with offload_args(x[:4], device=device) as (part,):
            blas.scal(2.0, part)
        assert dy[2:].address == dy.address + 8
        blas.axpy(10.0, dx, dy)

    call(play, x, y, device=device)
    np.testing.assert_array_equal(x, [8, 8, 8, 8, 4, 4, 4, 4])
    np.testing.assert_array_equal(y, 3 + 10 * x)
    out = ramp(8)
    call(lambda d: d.address, Out(out), device=device)  # the region knows of no write


def test_call_points_its_warnings_at_the_caller(device: str) -> None:
    with pytest.warns(UnwrittenWarning) as caught:
        call(lambda dx: None, Out(ramp(8)), device=device)
    assert caught[0].filename == __file__


def test_call_passes_on_arguments_that_are_no_arrays(device: str) -> None:
    seen: list[Any] = []
    passed = [1, 2.5, None, "text", [ramp(2)], np.float32(3), {"a": 1}]
    call(lambda *arguments: seen.extend(arguments), *passed, device=device)
    assert all(a is b for a, b in zip(seen, passed, strict=True))


@pytest.mark.parametrize("name", ["linalg.solve", "linalg.matmul", "fft.fft"])
def test_a_function_that_returns_new_arrays_is_refused_and_called_directly(device: str, name: str) -> None:
    module, _, function = name.partition(".")
    x = np.ones(4)
    with pytest.raises(ArgumentTypeError, match=rf"^call: .* got {name}, which .* call it directly: result = {name}\("):
        call(getattr(getattr(package, module), function), np.eye(4), x, device=device)
    assert (x == 1).all()
