"""Read-only arrays are never written, and the host can't write arrays while they are lent."""

from __future__ import annotations

import threading
from contextlib import closing
from typing import Any

import numpy as np
import pytest

from helpers.arrays import Array, ramp
from offload_args import (
    Device,
    In,
    InOut,
    Out,
    blas,
    offload_args,
    testing,
    update,
)
from offload_args.errors import DirectionError, PresentError


def read_only(tmp_path: Any, kind: str) -> Array:
    if kind == "frombuffer":
        return np.frombuffer(ramp(8).tobytes(), np.float32)
    if kind == "memmap":
        ramp(8).tofile(tmp_path / "file")
        return np.memmap(tmp_path / "file", np.float32, mode="r")
    x = ramp(8)
    x.setflags(write=False)
    return x


@pytest.mark.promise("T27")
@pytest.mark.parametrize("kind", ["flag", "frombuffer", "memmap"])
def test_a_read_only_output_is_refused_before_any_copy(device: str, tmp_path: Any, kind: str) -> None:
    x = read_only(tmp_path, kind)
    with testing.counting(Device(device)) as moved:
        for declared in (Out, InOut):
            with pytest.raises(ValueError, match="argument 1"):
                with offload_args(declared(x), device=device):
                    pass
        with offload_args(x, device=device) as (dx,):
            with pytest.raises(ValueError, match=r"scal: x"):
                blas.scal(2.0, dx)
            assert moved.copies_up == 0
            assert blas.asum(dx) == ramp(8).sum()
    assert moved.copies_down == 0
    assert not x.flags.writeable


@pytest.mark.promise("T27")
@pytest.mark.parametrize("part", [slice(None), slice(0, 2), slice(1, 3)], ids=str)
@pytest.mark.parametrize("backwards", [False, True])
def test_a_view_made_read_only_is_never_written_through_beside_its_array(
    device: str, backwards: bool, part: slice
) -> None:
    A = ramp(3, 5)
    view = A[part]
    view.flags.writeable = False

    def beside(view: Any) -> list[Any]:
        return [view, A] if backwards else [A, view]

    for declared in (Out, InOut):
        with pytest.raises(DirectionError, match="is read-only and lent as"):
            with offload_args(*beside(declared(view)), device=device):
                pass
        assert A.flags.writeable and not view.flags.writeable
    with offload_args(*beside(view), device=device) as pointers:
        dA, dv = pointers[::-1] if backwards else pointers
        with pytest.raises(DirectionError):
            dv.assign(9)
        dA.assign(2 * ramp(3, 5))
        with pytest.raises(DirectionError, match="is read-only and lent as"):  # inner regions know that x is read-only
            with offload_args(InOut(view), device=device):
                pass
        with offload_args(A, view, device=device) as (inner, dv):
            with pytest.raises(DirectionError):
                dv.assign(9)
            inner[0].assign(1)
    expected = 2 * ramp(3, 5)
    expected[0] = 1
    np.testing.assert_array_equal(A, expected)
    assert A.flags.writeable and not view.flags.writeable


@pytest.mark.promise("T27")
def test_a_view_taken_of_a_lent_array_is_as_writable_as_the_array(device: str) -> None:
    A = ramp(3, 5)
    before = A[1:]
    with offload_args(A, device=device):
        taken = A[1:]
        assert not taken.flags.writeable and before.flags.writeable
        for view in (taken, before):
            with offload_args(A, InOut(view), device=device) as (_, dv):
                dv[0].assign(9)
    expected = ramp(3, 5)
    expected[1] = 9
    np.testing.assert_array_equal(A, expected)
    assert A.flags.writeable and before.flags.writeable


def test_an_array_is_read_only_while_it_is_lent(device: str) -> None:
    x = ramp(8)
    with offload_args(x, device=device):
        with pytest.raises(ValueError, match="read-only"):
            x[0] = 1
        with offload_args(x, x, device=device):
            pass
        assert not x.flags.writeable
    assert x.flags.writeable


@pytest.mark.promise("T16")
def test_the_flag_comes_back_whatever_the_order_of_leaving() -> None:
    x = ramp(8)
    view = x[2:]
    for first, second in [(0, 1), (1, 0)]:
        regions = [offload_args(x), offload_args(view)]
        for region in regions:
            region.__enter__()
        assert not view.flags.writeable
        regions[first].__exit__(None, None, None)
        regions[second].__exit__(None, None, None)
        assert x.flags.writeable
        assert view.flags.writeable
    with offload_args(view, x):
        pass
    assert view.flags.writeable


@pytest.mark.promise("T16")
@pytest.mark.parametrize("way", ["close", "discard"])
def test_the_flag_comes_back_when_a_region_is_left_within_a_block_of_update(device: str, way: str) -> None:
    x = ramp(8)
    region = offload_args(x, device=device)
    region.open()
    part = x[2:5]
    with pytest.raises(PresentError, match="not present"), update(part):
        part[:] = 7.0
        getattr(region, way)()
    assert x.flags.writeable and part.flags.writeable
    np.testing.assert_array_equal(x[2:5], 7.0)
    with offload_args(x, device=device):
        region.open()
        with update(x):
            x[0] = 9.0
            region.close()
        assert not x.flags.writeable
    assert x.flags.writeable and x[0] == 9.0


@pytest.mark.filterwarnings("ignore::offload_args.NestedRegionWarning")
@pytest.mark.promise("T16")
@pytest.mark.parametrize("times", [1, 2])
def test_an_array_that_is_lent_and_left_within_a_block_of_update_may_be_written_on(device: str, times: int) -> None:
    x = ramp(8)
    with offload_args(x, device=device) as (dx,):
        with update(x):
            for _ in range(3):
                regions = [offload_args(x, device=device) for _ in range(times)]
                for region in regions:
                    region.open()
                    assert not x.flags.writeable
                regions.pop().close()
                for region in regions:  # the older region is last
                    assert not x.flags.writeable
                    region.close()
                x += 1
        assert not x.flags.writeable
        assert blas.asum(dx) == (ramp(8) + 3).sum()
    assert x.flags.writeable


@pytest.mark.filterwarnings("ignore::offload_args.NestedRegionWarning")
@pytest.mark.promise("T16")
@pytest.mark.parametrize("first", ["the older region", "the younger region", "the block"])
def test_an_array_is_read_only_while_any_region_within_a_block_of_update_lends_it(device: str, first: str) -> None:
    x = ramp(8)
    with offload_args(x, device=device):
        block, older, younger = update(x), offload_args(x, device=device), offload_args(x, device=device)
        block.__enter__()
        older.open()
        younger.open()
        if first == "the block":
            block.__exit__(None, None, None)
        (older if first == "the older region" else younger).close()
        assert not x.flags.writeable
        (younger if first == "the older region" else older).close()
        assert x.flags.writeable == (first != "the block")
        if first != "the block":
            block.__exit__(None, None, None)
        assert not x.flags.writeable
    assert x.flags.writeable


def test_a_view_taken_while_its_base_is_lent_may_be_written_by_the_device(device: str) -> None:
    x = ramp(8)
    with offload_args(x, device=device):
        with offload_args(InOut(x[4:]), device=device) as (part,):
            blas.scal(2.0, part)
    np.testing.assert_array_equal(x[4:], 2 * ramp(8)[4:])


@pytest.mark.promise("T27")
def test_an_array_that_was_read_only_stays_so(device: str) -> None:
    x = ramp(8)
    x.setflags(write=False)
    with offload_args(In(x), device=device):
        pass
    assert not x.flags.writeable


def test_a_failed_entry_gives_the_flags_back(device: str) -> None:
    x = ramp(8)
    with pytest.raises(TypeError):
        offload_args(x, np.array(["text"]), device=device).__enter__()
    assert x.flags.writeable


@pytest.mark.promise("T14")
def test_a_read_only_view_between_the_columns_of_a_lent_array_is_not_written(device: str) -> None:
    A = ramp(4, 6)
    v = A[1:3, 3:]
    v.setflags(write=False)
    with offload_args(A[:, :3], device=device):
        region = offload_args(InOut(v), device=device)
        with pytest.raises(DirectionError, match="read-only"):
            region.open()
        with offload_args(v, device=device) as (dv,), pytest.raises(DirectionError, match="read-only"):
            dv.fill(1.0)
    np.testing.assert_array_equal(A, ramp(4, 6))


def test_a_write_by_the_host_in_a_region_is_noted_with_the_array_and_the_remedy(device: str) -> None:
    x, other = ramp(3), ramp(3)

    def add_one(values: Array) -> None:
        values += 1

    for write, name in ((lambda: x.__setitem__(0, 5.0), "x"), (lambda: add_one(x[:2]), "values")):
        with pytest.raises(ValueError, match="read-only") as raised, offload_args(other, x, device=device):
            write()
        (note,) = raised.value.__notes__
        assert note.startswith(f"offload_args: the region lends {name}, which the host can't write until")
        assert f"`with update({name}):`" in note
    mine = ramp(3)
    mine.flags.writeable = False
    with pytest.raises(ValueError, match="read-only") as raised, offload_args(other, device=device):
        mine[0] = 1.0
    assert not hasattr(raised.value, "__notes__")


def test_a_write_to_an_array_of_an_opened_region_is_noted_by_a_block_inside(device: str) -> None:
    """The error does not leave a block of the region itself."""
    x, other = ramp(3), ramp(3)
    with closing(offload_args(x, device=device)) as region:
        region.open()
        with pytest.raises(ValueError, match="read-only") as raised, offload_args(other, device=device):
            with offload_args(other, device=device):
                x[0] = 5.0
    (note,) = raised.value.__notes__  # once, although two blocks ended
    assert note.startswith("offload_args: the region lends x, which the host can't write until the region ends")


def test_a_write_to_an_array_that_another_thread_lends_is_noted_by_a_block_of_this_thread(device: str) -> None:
    x, other = ramp(3), ramp(3)
    opened, written = threading.Event(), threading.Event()

    def lend_and_wait() -> None:
        with offload_args(x, device=device):
            opened.set()
            written.wait(60)

    thread = threading.Thread(target=lend_and_wait)
    thread.start()
    opened.wait(60)
    try:
        with pytest.raises(ValueError, match="read-only") as raised, offload_args(other, device=device):
            x[0] = 5.0
    finally:
        written.set()
        thread.join()
    assert raised.value.__notes__[0].startswith("offload_args: the region lends x, which")


ramp_of_module = ramp(3)


class Owner:
    """An object with an array, and a property that no message may run."""

    def __init__(self) -> None:
        self.values = ramp(3)

    @property
    def property(self) -> Array:
        raise RuntimeError("a message ran it")


def test_a_write_to_a_global_or_an_attribute_in_a_region_is_noted(device: str) -> None:
    owner = Owner()

    def write_global() -> None:
        ramp_of_module[0] = 5.0

    def write_attribute(of: Owner) -> None:
        _ = of.values.__setitem__(0, 5.0), of.property

    for array, write, name in (
        (ramp_of_module, write_global, "ramp_of_module"),
        (owner.values, lambda: write_attribute(owner), "of.values"),
    ):
        with pytest.raises(ValueError, match="read-only") as raised, offload_args(array, device=device):
            write()
        (note,) = raised.value.__notes__
        assert note.startswith(f"offload_args: the region lends {name}, which the host can't write until")
        assert f"`with update({name}):`" in note
