"""Ordering errors: calls that run before the work that they need are found at their line, and shrunk to a script."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Literal

import numpy as np
import pytest
from recordings.files import events_of, rewritten

from offload_args import ArgumentError, Device, blas, offload_args, record, testing
from offload_args.recording import order
from offload_args.recording.replay import replay
from offload_args.recording.shrink import Shrunk, shrink

HERE = Path(__file__)


@pytest.fixture
def unordered() -> Iterator[Device]:
    """A simulated device whose streams do not wait for each other."""
    yield testing.sim_device(delay_us=3000, index=3, ordered=False)
    testing.sim_device(index=3)


def line_of(mark: str) -> int:
    """Return the number of the line of this file that ends with a comment."""
    (number,) = (n for n, text in enumerate(HERE.read_text().splitlines(), 1) if text.endswith(f"# {mark}"))
    return number


def read_too_early(device: Device) -> None:
    x, y = np.ones(60), np.zeros(60)
    with offload_args(x, y, device=device) as (dx, dy):  # the region
        blas.scal(1.5, dy)
        blas.asum(dy)
        blas.asum(dx)
        for _ in range(8):
            blas.scal(1.5, dx)
        with offload_args(x, y, device=device) as (inner_x, inner_y):
            blas.scal(1.5, inner_y)
            blas.axpy(1.0, inner_x, inner_y)  # this call
            blas.scal(1.5, inner_y)


def recorded(
    file: Path,
    program: Callable[[Device], object],
    device: Device,
    shows: Callable[[], bool],
    contents: Literal["hash", "inputs"] = "hash",
) -> None:
    """Record a program, again and again until its recording shows its error: a busy machine may hide the error."""
    for _ in range(30):
        file.unlink(missing_ok=True)
        with record(file, contents=contents):
            program(device)
        if shows():
            return
    pytest.fail("no recording shows the error")


@pytest.mark.parametrize("contents", ["hash", "inputs"])
def test_a_call_that_reads_an_operand_too_early_is_found_at_its_line(
    contents: Literal["hash", "inputs"], unordered: Device, tmp_path: Path
) -> None:
    place = f"call 13, blas.axpy, {HERE}:{line_of('this call')}: y is off by"

    def is_found() -> bool:
        differences = replay(tmp_path / "r", device=unordered, compare=True).differences
        return bool(differences) and (
            differences[0].startswith(place) and "unless each call is waited for, an ordering error" in differences[0]
        )

    recorded(tmp_path / "r", read_too_early, unordered, is_found, contents)
    testing.sim_device(index=3)
    report = replay(tmp_path / "r", device=unordered, compare=True)
    assert not any("an ordering error" in difference for difference in report.differences)


def fails(script: str) -> bool:
    try:
        exec(script, {})
    except AssertionError:
        return True
    return False


@pytest.mark.later
@pytest.mark.parametrize("contents", ["hash", "inputs"])
def test_an_ordering_error_is_shrunk_to_a_script_that_shows_it(
    contents: Literal["hash", "inputs"], unordered: Device, tmp_path: Path
) -> None:
    shrunk: list[Shrunk] = []

    def is_shrunk() -> bool:
        try:
            shrunk[:] = [shrink(str(tmp_path / "r"), "differs", unordered)]
        except ArgumentError:  # the error does not show
            return False
        return (
            f"blas.axpy, {HERE}:{line_of('this call')}: y is off by" in shrunk[0].fault
            and len(shrunk[0].script.splitlines()) <= 30
            and any(fails(shrunk[0].script) for _ in range(20))
        )

    recorded(tmp_path / "r", read_too_early, unordered, is_shrunk, contents)
    assert shrunk[0].after < shrunk[0].before
    testing.sim_device(index=3)
    assert not fails(shrunk[0].script)


@pytest.mark.later
def test_a_number_that_is_returned_too_early_is_found(unordered: Device, tmp_path: Path) -> None:
    place = f"call 10, blas.asum, {HERE}:{line_of('this number')}: the result is off by"

    def return_too_early(device: Device) -> None:
        x = np.ones(60)
        with offload_args(x, device=device) as (dx,):
            blas.asum(dx)
            for _ in range(8):
                blas.scal(1.5, dx)
            with offload_args(x, device=device) as (inner,):
                blas.asum(inner)  # this number

    def is_found() -> bool:
        differences = replay(tmp_path / "r", device=unordered, compare=True).differences
        if not differences or not differences[0].startswith(place):
            return False
        try:
            script = shrink(str(tmp_path / "r"), "differs", unordered).script
        except ArgumentError:  # the error does not show
            return False
        return len(script.splitlines()) <= 30 and "got, expected = blas.asum(" in script

    recorded(tmp_path / "r", return_too_early, unordered, is_found)


def test_an_ordering_error_that_no_call_shows_again_is_found_in_its_region(
    unordered: Device, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(order, "_difference", lambda stale, run, last: None)
    place = f"calls 1 to 14, in the region of {HERE}:{line_of('the region')}"
    text = f"{place}: results differ unless each call is waited for, an ordering error"
    recorded(
        tmp_path / "r",
        read_too_early,
        unordered,
        lambda: replay(tmp_path / "r", device=unordered, compare=True).differences == [text],
    )


@pytest.mark.parametrize(("off", "count"), [(1e-10, 0), (1e-6, 1)])
def test_rounding_of_an_inner_region_is_no_difference_of_the_outer_one(off: float, count: int, tmp_path: Path) -> None:
    A, x, y = np.ones((300, 300)), np.ones(300), np.ones(300)
    with record(tmp_path / "r", contents="inputs"), offload_args(A, x, y, device="sim:0") as (dA, dx, dy):
        blas.scal(1.0, dy)
        with offload_args(y, device="sim:0") as (inner,):
            blas.gemv(1.0, dA, dx, 1.0, inner)
    events = events_of(tmp_path / "r")
    (leave,) = (event for event in events if "leave" in event and "2" in event["arrays"])
    leave["arrays"]["2"]["data"] = base64.b64encode(np.full(300, 301 + off)).decode()
    rewritten(tmp_path / "r", events)
    report = replay(tmp_path / "r", device=Device("host"), compare=True)
    assert report.compared_recorded > 0 and len(report.differences) == count
