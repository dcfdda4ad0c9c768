"""Checks of the promises of regions: transfers, directions, residency, streams, errors and a kernel."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from functools import partial
from itertools import product
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from .. import Device, In, InOut, Kernel, Out, Scratch, blas, empty, offload, offload_args, update
from ..errors import (
    ArgumentError,
    DeviceMemoryError,
    DirectionError,
    DTypeError,
    HostAccessError,
    HostPointerError,
    LibraryError,
    StalePointerError,
    WrongDeviceError,
)

__all__ = ["NotRunError", "errors", "kernels", "residency", "streams", "transfers"]

Array: TypeAlias = NDArray[Any]
Named: TypeAlias = Iterator[tuple[str, Callable[[], None]]]

DTYPES = ("?", "i1", "u2", "i4", "i8", "f2", "f4", "f8", "c8", "c16")
SHAPES = ((1,), (1000,), (257, 33), (7, 5, 3))


class NotRunError(Exception):
    """A check that can't run here, with the reason."""


def ramp(shape: tuple[int, ...], dtype: str) -> Array:
    """Return values that differ from their neighbours."""
    array: Array = (np.arange(np.prod(shape)) % 113).reshape(shape).astype(dtype)
    return array


# The layouts of an array in memory. Each function returns an array of this layout with the same values.
LAYOUTS: dict[str, Callable[[Array], Array]] = {
    "C order": lambda a: a.copy(),
    "Fortran order": lambda a: np.asfortranarray(a),
    "a part of rows": lambda a: _inside(a, (*a.shape[:-1], a.shape[-1] + 5), np.s_[..., : a.shape[-1]]),
    "every second element": lambda a: _inside(a, (*a.shape[:-1], 2 * a.shape[-1]), np.s_[..., ::2]),
    "reversed": lambda a: a[..., ::-1].copy()[..., ::-1],
}


def _inside(a: Array, shape: tuple[int, ...], part: Any) -> Array:
    base = np.zeros(shape, a.dtype)
    base[part] = a
    view: Array = base[part]
    return view


def _round_trip(device: Device, a: Array) -> None:
    values = a.copy()
    base = a.base if isinstance(a.base, np.ndarray) else a
    around = base.copy()
    with offload_args(InOut(a), device=device) as (da,):
        assert np.array_equal(da.to_host(), values), "the device's values differ from the lent array"
        da.fill(a.dtype.type(1))
    assert np.array_equal(a, np.ones_like(values)), "the array differs from the values that the device wrote"
    a[...] = values
    assert np.array_equal(base, around), "elements beside the array have changed"


def _directions(device: Device, dtype: str) -> None:
    a, b, c = (ramp((300,), dtype) for _ in range(3))
    before = a.copy()
    start = device.counters
    with offload_args(In(a), Out(b), InOut(c), Scratch((50,), dtype), device=device) as (da, db, dc, ds):
        db.copy_from(da)
        ds.fill(c.dtype.type(0))
        dc.fill(c.dtype.type(0))
    moved = device.counters
    assert np.array_equal(a, before) and np.array_equal(b, before) and not c.any()
    assert moved.bytes_up - start.bytes_up <= 2 * a.nbytes, "an array came up that is only written"
    assert moved.bytes_down - start.bytes_down == 2 * a.nbytes, "an array came down that is only read"


def _large(device: Device, pinned: bool) -> None:
    n = 8 << 20
    a = empty((n,), np.float64, device=device) if pinned else np.empty(n)
    a[:] = np.arange(n)
    with offload_args(a, device=device) as (da,):
        blas.scal(2.0, da)
    assert np.array_equal(a, 2.0 * np.arange(n)), "bytes were lost"


def _nested(device: Device) -> None:
    x, y = np.ones(100), np.zeros(100)
    start = device.counters.bytes_up
    with offload_args(x, y, device=device) as (dx, dy):
        blas.axpy(2.0, dx, dy)
        with offload_args(x, y, device=device) as (inner_x, inner_y):
            blas.axpy(3.0, inner_x, inner_y)
        assert not y.any(), "an inner region copied down"
        with update(x):
            x[:] = 10
        blas.axpy(1.0, dx, dy)
        dy[:50].assign(np.zeros(50))
    assert np.array_equal(y, np.repeat([0.0, 15.0], 50))
    assert device.counters.bytes_up - start <= 4 * x.nbytes, "an array came up twice"


def transfers(device: Device) -> Named:
    """Yield checks of copies both ways, of every layout, dtype, size and direction."""
    for (layout, make), dtype, shape in product(LAYOUTS.items(), DTYPES, SHAPES):
        name = f"{layout}, {dtype}, shape {shape}"
        yield f"there and back: {name}", partial(_round_trip, device, make(ramp(shape, dtype)))
    for dtype in DTYPES:
        yield f"directions of {dtype}", partial(_directions, device, dtype)
    for pinned in (False, True):
        yield f"64 MiB of {'pinned' if pinned else 'plain'} memory", partial(_large, device, pinned)
    yield "nested regions, update, assign", partial(_nested, device)


def _resident(device: Device, n: int) -> None:
    x = np.ones(n)
    for turn in range(4):
        x[turn * 7] = turn + 5.0  # the next region has to send this value
        with offload_args(x, device=device, resident=True) as (dx,):
            total = blas.asum(dx)
        assert total == x.sum(), f"turn {turn}: the device had other values"
    device.release(x)


def residency(device: Device) -> Named:
    """Yield checks of resident arrays."""
    for n in (100, 10_000, 1 << 20):
        yield f"an array of {n} elements that stays", partial(_resident, device, n)


def _in_threads(device: Device, count: int) -> None:
    failed: list[BaseException] = []

    def work(number: int) -> None:
        try:
            for turn in range(10):
                A, x, y = np.full((50, 40), number + 1.0), np.ones(40), np.empty(50)
                with offload_args(A, x, Out(y), device=device) as (dA, dx, dy):
                    blas.gemv(1.0, dA, dx, 0.0, dy)
                assert np.array_equal(y, np.full(50, 40.0 * (number + 1))), f"thread {number}, turn {turn}"
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failed:
        raise failed[0]


def _chained(device: Device) -> None:
    x, y = np.ones(100_000), np.zeros(100_000)
    with offload_args(x, y, device=device) as (dx, dy):
        for _ in range(200):  # each call needs the results of earlier calls
            blas.axpy(1.0, dx, dy)
            blas.swap(dx, dy)
            blas.scal(0.5, dx)
    expected_x, expected_y = np.ones(1), np.zeros(1)
    for _ in range(200):
        expected_y = expected_y + expected_x
        expected_x, expected_y = expected_y, expected_x
        expected_x = 0.5 * expected_x
    assert (x == expected_x).all() and (y == expected_y).all(), "calls overtook each other"


def _own_stream(device: Device) -> None:
    x = np.ones(1000)
    with offload_args(device=device) as region_is_empty:
        assert region_is_empty == ()
    region = offload_args(x, device=device)
    with region as (dx,), offload_args(dx.to_host(), device=device, stream=region.stream) as (dz,):
        blas.axpy(1.0, dx, dz)
        blas.scal(3.0, dx)
    assert (x == 3).all()


def streams(device: Device) -> Named:
    """Yield checks of the order of calls, and of threads."""
    yield "600 calls, each on the results of the last", partial(_chained, device)
    if device.is_gpu:
        yield "a region on the stream of another", partial(_own_stream, device)
    for count in (2, 8):
        yield f"{count} threads at the same time", partial(_in_threads, device, count)


def _raises(kind: type[Exception], device: Device, use: Callable[[Any], Any]) -> None:
    A = np.ones((3, 4))
    try:
        with offload_args(In(A), device=device) as (dA,):
            use(dA)
    except kind as error:
        assert str(error), "the error says nothing"
    else:
        raise AssertionError(f"no {kind.__name__}")
    assert (A == 1).all() and A.flags.writeable
    x = np.ones(4)  # check that the device works after the error
    with offload_args(x, device=device) as (dx,):
        blas.scal(2.0, dx)
    assert (x == 2).all()


def _stale(device: Device) -> None:
    with offload_args(np.ones(4), device=device) as (dx,):
        pass
    _raises(StalePointerError, device, lambda dA: blas.scal(2.0, dx))


def _to_the_host(dA: Any) -> None:
    wrong: Any = np.ones(1)
    blas.nrm2(dA[0], result=wrong)


def _mixed(device: Device, dA: Any) -> None:
    with offload_args(Scratch((4,), "f4"), device=device) as (other,):
        blas.axpy(1.0, dA[0], other)


def errors(device: Device) -> Named:
    """Yield checks that wrong use raises the right error before it can do harm."""
    wrong: dict[str, tuple[type[Exception], Callable[[Any], Any]]] = {
        "an element that is read on the host": (HostAccessError, lambda dA: dA[0, 0]),
        "the values as a NumPy array": (HostAccessError, np.asarray),
        "a write to what is only read": (DirectionError, lambda dA: blas.scal(2.0, dA[0])),
        "a matrix for a vector": (ArgumentError, lambda dA: blas.nrm2(dA, result=dA[0, :1])),
        "vectors of other sizes": (ArgumentError, lambda dA: blas.dot(dA[0], dA[:, 0])),
        "an array of the host as a result": (HostPointerError, _to_the_host),
        "another dtype": (DTypeError, partial(_mixed, device)),
        "more elements than there are": (ArgumentError, lambda dA: dA.reshape((13,))),
        "more memory than there is": (
            DeviceMemoryError,
            lambda dA: offload_args(Scratch((1 << 58,), "u1"), device=device).open(),
        ),
    }
    for name, (kind, use) in wrong.items():
        yield name, partial(_raises, kind, device, use)
    yield "a pointer after its region", partial(_stale, device)


VECTOR_ADD = """
#include <offload_args/kernel.h>

OA_KERNEL(vadd, oa::In<float> a, oa::In<float> b, oa::Out<float> c, int n) {
  for (auto element : c.mine(oa::Linear1D(n), here))
    *element = a[element.index()] + b[element.index()];
}
"""


def _kernel(device: Device, n: int) -> None:
    signature = [In[np.float32], In[np.float32], Out[np.float32], np.int32]
    try:
        vadd = Kernel.compile(VECTOR_ADD, "vadd", signature, device=device)
    except (LibraryError, WrongDeviceError) as error:
        raise NotRunError(str(error)) from None
    a, b, c = ramp((n,), "f4"), np.ones(n, np.float32), np.zeros(n, np.float32)
    offload(vadd, a, b, c, n, device=device)
    assert np.array_equal(c, a + b)


def kernels(device: Device) -> Named:
    """Yield checks of a program's own kernel, if there is a compiler for the device."""
    for n in (1, 1000, 1_000_000):
        yield f"a kernel over {n} elements", partial(_kernel, device, n)
