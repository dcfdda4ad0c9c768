"""cuFFT and hipFFT: plans of every kind have numpy.fft's results, and a chain of transforms makes no round trip."""

from __future__ import annotations

import gc
import importlib
import threading
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from helpers.devices import HIP, here, library_or_skip, open_or_skip
from offload_args import Device, In, Out, blas, fft, offload_args, testing
from offload_args.errors import AliasError, ArgumentError, CaptureError, DirectionError, ExtentError, OffloadError

LIBRARIES = {"cuda": "cufft", "hip": "hipfft"}


@pytest.fixture(params=here("cuda:0", HIP) or ["cuda:0"])
def on(request: pytest.FixtureRequest) -> str:
    """The name of a GPU."""
    device = open_or_skip(request.param)
    library_or_skip(LIBRARIES[device.partition(":")[0]], device)
    return device


@pytest.fixture
def library(on: str) -> Any:
    """The module of its library."""
    return importlib.import_module(f"offload_args.{LIBRARIES[on.partition(':')[0]]}")


def numbers(*shape: int, dtype: str = "complex128") -> NDArray[Any]:
    random = np.random.default_rng(11)
    values = random.standard_normal(shape) + 1j * random.standard_normal(shape)
    return (values if dtype.startswith("c") else values.real).astype(dtype)


def close(result: NDArray[Any], expected: NDArray[Any]) -> None:
    tolerance = 1e-5 if result.dtype.itemsize <= 8 and result.dtype != np.float64 else 1e-13
    assert np.abs(result - expected).max() <= tolerance * max(np.abs(expected).max(), 1)


@pytest.mark.parametrize("shape", [(12,), (4, 6), (3, 4, 5)])
def test_plans_of_each_rank_transform_there_and_back(on: str, library: Any, shape: tuple[int, ...]) -> None:
    plan = getattr(library, f"plan{len(shape)}d")
    for dtype, complex_type, real_type in (
        ("complex64", library.C2C, None),
        ("complex128", library.Z2Z, None),
        ("float32", library.R2C, library.C2R),
        ("float64", library.D2Z, library.Z2D),
    ):
        x = numbers(*shape, dtype=dtype)
        half = (*shape[:-1], shape[-1] // 2 + 1)
        single = x.dtype in (np.float32, np.complex64)
        y = np.empty(half if real_type else shape, np.complex64 if single else np.complex128)
        z = np.empty_like(x)
        batch = (1,) if len(shape) == 1 else ()
        forward = plan(*shape, complex_type, *batch, device=on)
        back = plan(*shape, real_type, *batch, device=on) if real_type else forward
        letter = ("c" if single else "z") + "2" + ("c" if single else "z")
        spoilt = real_type and on.startswith("hip")  # hipFFT may overwrite real numbers
        lent = x.copy() if spoilt else In(x)
        with offload_args(lent, y, Out(z), device=on) as (dx, dy, dz):
            if real_type:
                if spoilt:
                    with offload_args(In(x), device=on) as (d,), pytest.raises(DirectionError, match="idata needs to"):
                        getattr(library, "exec_r2c" if single else "exec_d2z")(forward, d, dy)
                getattr(library, "exec_r2c" if single else "exec_d2z")(forward, dx, dy)
                close(dy.to_host(), np.fft.rfftn(x.astype(np.float64)))
                getattr(library, "exec_c2r" if single else "exec_z2d")(back, dy, dz)
            else:
                getattr(library, f"exec_{letter}")(forward, dx, dy, library.FORWARD)
                close(dy.to_host(), np.fft.fftn(x.astype(np.complex128)))
                getattr(library, f"exec_{letter}")(back, dy, dz, 1)
        close(z / x.size, x.astype(np.complex128))


def test_columns_of_a_matrix_are_transformed_where_they_are(on: str, library: Any) -> None:
    A = numbers(5, 7)
    B = A.copy()
    plan = library.create(device=on)
    library.set_auto_allocation(plan, 0)
    assert library.make_plan_many64(plan, 1, [5], [5], 7, 1, [5], 7, 1, library.Z2Z, 7) >= 0
    with offload_args(B, device=on) as (dB,):
        library.exec_z2z(plan, dB, dB, library.FORWARD)
        with pytest.raises(ExtentError, match="idata needs 35 elements"):
            library.exec_z2z(plan, dB[:4], dB, library.FORWARD)
    close(B, np.fft.fft(A, axis=0))


def test_lines_with_gaps_leave_the_gaps_alone(on: str, library: Any) -> None:
    whole = numbers(4, 10)
    before = whole.copy()
    plan = library.plan_many(1, [6], [6], 1, 10, [6], 1, 10, library.Z2Z, 4, device=on)
    with offload_args(whole, device=on) as (p,):
        library.exec_z2z(plan, p[:, :6], p[:, :6], library.FORWARD)
    close(whole[:, :6], np.fft.fft(before[:, :6]))
    assert np.array_equal(whole[:, 6:], before[:, 6:])


def test_real_lines_in_place_are_padded(on: str, library: Any) -> None:
    n, lines = 6, 3
    memory = np.zeros((lines, n // 2 + 1), np.complex128)
    padded = memory.view(np.float64)
    x = numbers(lines, n, dtype="float64")
    padded[:, :n] = x
    plan = library.plan1d(n, library.D2Z, lines, device=on)
    back = library.plan1d(n, library.Z2D, lines, device=on)
    with offload_args(padded, memory, device=on) as (dr, dc):
        library.exec_d2z(plan, dr, dc)
        close(dc.to_host(), np.fft.rfft(x))
        with pytest.raises(ExtentError, match="idata .*width=6, lines=3, pitch=8"):
            library.exec_d2z(plan, dr.reshape(-1)[:21], dc)
        library.exec_z2d(back, dc, dr)
    close(padded[:, :n] / n, x)


def test_lines_that_would_overwrite_others_in_place_are_refused(on: str, library: Any) -> None:
    n, lines = 6, 3
    memory = np.zeros((lines, n // 2 + 1), np.complex128)
    padded = memory.view(np.float64)
    padded[:, :n] = numbers(lines, n, dtype="float64")
    before = padded.copy()
    close_lines = library.plan_many(1, [n], [n], 1, n, [4], 1, 4, library.D2Z, lines, device=on)
    with_padding = library.plan_many(1, [n], [8], 1, 8, [4], 1, 4, library.D2Z, lines, device=on)
    with offload_args(padded, memory, device=on) as (dr, dc):
        with pytest.raises(AliasError, match=r"exec_d2z: odata is idata, but the plan's lines .*idist = 2 \* odist"):
            library.exec_d2z(close_lines, dr, dc)
        library.exec_d2z(with_padding, dr, dc)
        close(dc.to_host(), np.fft.rfft(before[:, :n]))


def test_a_transform_to_real_numbers_needs_an_input_that_may_change(on: str, library: Any) -> None:
    plan = library.plan1d(8, library.Z2D, 1, device=on)
    with offload_args(In(np.zeros(5, complex)), np.zeros(8), device=on) as (dx, dy):
        with pytest.raises(DirectionError, match="idata needs to be writable"):
            library.exec_z2d(plan, dx, dy)


def test_a_plan_says_what_it_is_for(on: str, library: Any) -> None:
    plan = library.plan1d(8, library.C2C, 1, device=on)
    fresh = library.create(device=on)
    with offload_args(np.zeros(8, complex), np.zeros(8, np.complex64), device=on) as (dz, dc):
        with pytest.raises(ArgumentError, match="plan is for C2C, needs to be for Z2Z"):
            library.exec_z2z(plan, dz, dz, library.FORWARD)
        with pytest.raises(ArgumentError, match="plan has no transform yet; call one of make_plan_"):
            library.exec_c2c(fresh, dc, dc, library.FORWARD)


def test_a_plan_serves_threads_one_at_a_time(on: str, library: Any) -> None:
    x = numbers(4, 16)
    results = [np.empty_like(x) for _ in range(4)]
    plan = library.plan1d(16, library.Z2Z, 4, device=on)

    def work(y: NDArray[Any]) -> None:
        with offload_args(In(x), Out(y), device=on) as (dx, dy):
            for _ in range(3):
                library.exec_z2z(plan, dx, dy, library.FORWARD)

    threads = [threading.Thread(target=work, args=(y,)) for y in results]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for y in results:
        close(y, np.fft.fft(x))


def test_a_chain_makes_no_round_trip(on: str) -> None:
    picture = numbers(8, 10, dtype="float64")
    with offload_args(In(picture), device=on) as (dp,), testing.counting(Device(on)) as moved:
        transform = fft.rfft2(dp)
        blas.scal(2.0, transform.reshape(-1))
        back = fft.irfft2(transform, (8, 10))
        assert (moved.bytes_up, moved.bytes_down) == (picture.nbytes, 0)
        close(back.to_host(), 2 * picture)


def test_transforms_of_one_shape_share_a_plan(on: str, library: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    plans = []
    create = library.create
    monkeypatch.setattr(library, "create", lambda **options: plans.append(options) or create(**options))
    for _ in range(3):
        close(fft.fft(numbers(3, 23), device=on), np.fft.fft(numbers(3, 23)))
    assert len(plans) <= 1


@pytest.mark.promise("T77")
def test_a_graph_has_the_work_areas_of_its_plans_and_keeps_the_plans(on: str, library: Any) -> None:
    x, y, z = numbers(3, 16), numbers(3, 16), numbers(3, 16)
    with_area = library.plan1d(16, library.Z2Z, 3, device=on)
    without = library.create(device=on)
    library.set_auto_allocation(without, 0)
    library.make_plan1d(without, 16, library.Z2Z, 3)
    region = offload_args(In(x), Out(y), Out(z), device=on)
    with region as (dx, dy, dz):
        library.exec_z2z(with_area, dx, dy, library.FORWARD)
        graphs = []
        for _ in range(2):
            with region.capture() as g:
                library.exec_z2z(with_area, dx, dz, library.FORWARD)
                library.exec_z2z(without, dz, dz, 1)
            graphs.append(g)
        for plan in (with_area, without):  # their calls outside of the graphs have other areas
            library.exec_z2z(plan, dx, dy, library.FORWARD)
            with pytest.raises(CaptureError, match="a graph has executions of plan; make another plan"):
                library.make_plan1d(plan, 8, library.Z2Z, 1)
        library.destroy(with_area)
        del without
        gc.collect()
        with pytest.raises(OffloadError, match="plan was destroyed"):
            library.exec_z2z(with_area, dx, dy, library.FORWARD)
        for g in graphs:
            dz.fill(0.0)
            g.replay()
            close(dz.to_host() / 16, x)
    close(y, np.fft.fft(x))


def test_a_graph_replays_a_plan_with_new_contents(on: str, library: Any) -> None:
    x, y = numbers(8, dtype="float64"), numbers(5)
    forward = library.plan1d(8, library.D2Z, 1, device=on)
    region = offload_args(x, Out(y), device=on)
    with region as (dx, dy):
        with region.capture(x=dx) as g:
            library.exec_d2z(forward, dx, dy)
        assert [node.function.rpartition(".")[2] for node in g.nodes] == ["exec_d2z"]
        for new in np.eye(8)[:3]:
            g.replay(x=new)
            close(dy.to_host(), np.fft.rfft(new))


def test_graphs_of_plans_leave_memory_as_it_was(on: str, library: Any) -> None:
    region = offload_args(numbers(64), device=on)
    with region as (dx,):
        for turn in range(6):
            plan = library.plan1d(64, library.Z2Z, 1, device=on)
            with region.capture() as g:
                for _ in range(3):
                    library.exec_z2z(plan, dx, dx, library.FORWARD)
            g.replay()
            del g, plan
            gc.collect()
            if turn == 1:
                used = Device(on).counters.memory_used
        assert Device(on).counters.memory_used == used
