"""Results, copies and events of launches."""

from __future__ import annotations

import threading
from functools import partial
from types import ModuleType

import numpy as np
import pytest

from helpers.arrays import Array, ramp
from offload_args import (
    ArgumentError,
    Device,
    In,
    InOut,
    Kernel,
    Module,
    Out,
    Scratch,
    Shared,
    launch,
    offload,
    offload_args,
    trace,
)

N = 1037  # no multiple of a block


def terms() -> tuple[Array, Array, Array]:
    return ramp(N), ramp(N)[::-1] * np.float32(0.5), np.full(N, -1, np.float32)


def test_a_kernel_adds_arrays_in_a_region(vadd: Kernel, device: str) -> None:
    a, b, c = terms()
    with offload_args(a, b, c, device=device) as (da, db, dc):
        vadd[-(-N // 128), 128](da, db, dc, N)
    np.testing.assert_array_equal(c, a + b)


def test_arguments_in_a_tuple_and_a_launcher_of_a_partial_launch_as_well(vadd: Kernel, device: str) -> None:
    for call in (
        lambda go, *arguments: go.__call__(*arguments),
        lambda go, *arguments: go(*arguments),
        lambda go, *arguments: partial(go, *arguments[:2])(*arguments[2:]),
        lambda go, *arguments: list(map(go, *([argument] for argument in arguments))),
    ):
        a, b, c = terms()
        with offload_args(a, b, c, device=device) as (da, db, dc):
            call(vadd[-(-N // 128), 128], da, db, dc, N)
        np.testing.assert_array_equal(c, a + b)


def test_launch_and_offload_choose_grid_and_block_themselves(vadd: Kernel, device: str) -> None:
    a, b, c = terms()
    with offload_args(a, b, c, device=device) as (da, db, dc):
        launch(vadd, da, db, dc, N)
    np.testing.assert_array_equal(c, a + b)
    c[:] = 0
    assert offload(vadd, a, b, c, N, device=device) is None
    np.testing.assert_array_equal(c, a + b)


def test_a_cooperative_launch_computes_where_the_device_can_and_is_refused_elsewhere(vadd: Kernel, device: str) -> None:
    a, b, c = terms()
    with offload_args(a, b, c, device=device) as (da, db, dc):
        if vadd.info(device).cooperative:
            launch(vadd, da, db, dc, N, grid=-(-N // 128), block=128, cooperative=True)
        else:
            with pytest.raises(ArgumentError, match="cooperative"):
                launch(vadd, da, db, dc, N, grid=-(-N // 128), block=128, cooperative=True)
            launch(vadd, da, db, dc, N)
    np.testing.assert_array_equal(c, a + b)


def test_a_grid_of_fewer_threads_leaves_the_rest_alone(relu: Kernel, device: str) -> None:
    x = -ramp(N)
    with offload_args(x, device=device) as (dx,):
        relu[3, 32](dx, N)
    np.testing.assert_array_equal(x, np.where(np.arange(N) < 96, 0, -ramp(N)))


@pytest.mark.parametrize(
    ("grid", "block"),
    [
        ((5, 1), 256),
        ((5,), (256, 1, 1)),
        ([5], [256]),
        (np.int32(5), np.int64(256)),
        (np.array([5, 1]), np.array([256])),
        (range(5, 6), np.array(256)),
    ],
)
def test_grid_and_block_are_numbers_or_up_to_three_of_them(
    vadd: Kernel, device: str, grid: object, block: object
) -> None:
    a, b, c = terms()
    with offload_args(a, b, c, device=device) as (da, db, dc):
        vadd[grid, block](da, db, dc, N)
    np.testing.assert_array_equal(c, a + b)


def test_directions_of_the_signature_decide_what_moves(vadd: Kernel, device: str) -> None:
    a, b, c = terms()
    before = Device(device).counters
    offload(vadd, a, b, c, N, device=device)
    after = Device(device).counters
    assert (after.copies_up - before.copies_up, after.copies_down - before.copies_down) == (2, 1)
    assert after.bytes_up - before.bytes_up == a.nbytes + b.nbytes
    assert after.calls - before.calls == 1


def test_inout_goes_up_and_comes_down(relu: Kernel, device: str) -> None:
    x = ramp(N) - 500
    before = Device(device).counters
    offload(relu, x, N, device=device)
    after = Device(device).counters
    np.testing.assert_array_equal(x, np.maximum(ramp(N) - 500, 0))
    assert (after.copies_up - before.copies_up, after.copies_down - before.copies_down) == (1, 1)


def test_a_struct_goes_by_value_as_a_tuple_or_a_scalar(module: Module, device: str) -> None:
    expected = 0.5 * np.arange(N) + 1e-9
    offsets = {"names": ["slope", "start"], "formats": ["f4", "f8"], "offsets": [0, 8], "itemsize": 16}
    for line_type in (np.dtype([("slope", np.float32), ("start", np.float64)], align=True), np.dtype(offsets)):
        line = module.kernel("line", Out[np.float64], line_type, np.int64)
        for value in ((0.5, 1e-9), np.array((0.5, 1e-9), line_type)[()]):
            y = np.zeros(N)
            offload(line, y, value, N, device=device)
            np.testing.assert_array_equal(y, expected)


def test_pointers_without_a_dtype_take_any(module: Module, device: str) -> None:
    relu = module.kernel("relu", InOut, np.int32)
    x = np.array([-1, 2, -3], np.float32)
    offload(relu, x.view(np.int32), 3, device=device)
    np.testing.assert_array_equal(x, [0, 2, 0])


def test_a_chain_of_library_calls_and_kernels_makes_no_round_trip(
    relu: Kernel, device: str, library: ModuleType
) -> None:
    m, n = 37, 53
    rng = np.random.default_rng(12)
    A = np.asfortranarray(rng.standard_normal((m, n)).astype(np.float32))
    B = np.asfortranarray(rng.standard_normal((n, m)).astype(np.float32))
    x, y = rng.standard_normal(n).astype(np.float32), np.zeros(n, np.float32)
    before = Device(device).counters
    from offload_args import blas

    with offload_args(A, B, x, Scratch(m, np.float32), Out(y), device=device) as (dA, dB, dx, dh, dy):
        blas.gemv(1.0, dA, dx, 0.0, dh)
        relu[2, 32](dh, m)
        blas.gemv(1.0, dB, dh, 0.0, dy)
    after = Device(device).counters
    hidden = np.maximum(A.astype(np.float64) @ x.astype(np.float64), 0)
    np.testing.assert_allclose(y, B.astype(np.float64) @ hidden, rtol=1e-4, atol=1e-5)
    assert (after.copies_up - before.copies_up, after.copies_down - before.copies_down) == (3, 1)


def test_launches_run_in_order_over_regions_of_two_threads(relu: Kernel, vadd: Kernel, device: str) -> None:
    a, b, c = terms()
    a -= np.float32(N / 2)
    expected = np.maximum(a, 0) + b
    with offload_args(a, b, c, device=device) as (da, db, dc):
        relu[9, 128](da, N)

        def add() -> None:
            with offload_args(a, b, c, device=device) as (ea, eb, ec):
                vadd[9, 128](ea, eb, ec, N)

        thread = threading.Thread(target=add)
        thread.start()
        thread.join()
    np.testing.assert_array_equal(c, expected)


def test_a_launch_is_one_event_with_grid_block_and_shared_bytes(vadd: Kernel, device: str) -> None:
    a, b, c = terms()
    with trace() as traced, offload_args(a, b, c, device=device) as (da, db, dc):
        vadd[9, (64, 2), Shared[np.float32](100)](da, db, dc, N)
    launches = [event for event in traced.events if event.kind == "launch"]
    assert [(event.name, event.why) for event in launches] == [("vadd", "grid 9x1x1 block 64x2x1 shared 400")]
    assert traced.summary.calls == 1
    assert "vadd" in str(traced.summary)


def test_a_launcher_shows_its_shape_and_a_kernel_its_signature(vadd: Kernel) -> None:
    assert repr(vadd[9, (64, 2)]) == "vadd[grid=(9, 1, 1), block=(64, 2, 1), shared_bytes=0]"
    assert repr(vadd) == "Kernel(vadd(In[float32], In[float32], Out[float32], int32), from kernels)"


def test_the_limits_of_a_kernel_are_known(vadd: Kernel, device: str) -> None:
    info = vadd.info(device)
    assert info.most_threads >= info.good_threads >= 1
    assert info.most_shared_bytes >= 48 << 10
    assert info.multiprocessors >= 1


def test_an_empty_array_is_a_null_pointer(relu: Kernel, device: str) -> None:
    x = np.zeros(0, np.float32)
    with offload_args(x, device=device) as (dx,):
        relu[1, 32](dx, 0)
    offload(relu, x, 0, device=device)


def test_in_out_and_inout_of_arrays_are_lent_as_they_say(vadd: Kernel, relu: Kernel, device: str) -> None:
    a, b, c = terms()
    offload(vadd, In(a), b, Out(c), N, device=device)
    np.testing.assert_array_equal(c, a + b)
    offload(relu, InOut(c), N, device=device)


def test_many_launches_keep_no_memory(relu: Kernel, device: str) -> None:
    x = ramp(64)
    with offload_args(x, device=device) as (dx,):
        for _ in range(1000):
            relu[1, 64](dx, 64)
    assert Device(device).counters.mappings == 0
