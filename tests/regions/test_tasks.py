"""Tasks of asyncio with regions that are open across awaits interleave on one thread, in any order."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import numpy as np
import pytest

from offload_args import DevicePtr, InvalidDataError, offload_args, update

Array = np.ndarray[Any, np.dtype[np.float64]]
Body = Callable[[DevicePtr[np.float64], Array], None]


class Turns:
    """Lets tasks continue in a given order of their names."""

    def __init__(self, order: str) -> None:
        self.order = list(order)

    async def of(self, name: str) -> None:
        while self.order[0] != name:
            await asyncio.sleep(0)
        self.order.pop(0)


async def task(name: str, turns: Turns, x: Array, device: str, body: Body, fails: bool = False) -> None:
    await turns.of(name)
    with offload_args(x, device=device) as (dx,):
        await turns.of(name)
        body(dx, x)
        await turns.of(name)
        if fails:
            raise ValueError(name)


def run(order: str, *tasks: Callable[[Turns], Coroutine[Any, Any, None]]) -> list[BaseException | None]:
    """Run the tasks. Return each task's exception, or None."""

    async def gathered() -> list[BaseException | None]:
        turns = Turns(order)
        return await asyncio.gather(*(task(turns) for task in tasks), return_exceptions=True)

    return asyncio.run(asyncio.wait_for(gathered(), 20))


def fill(value: float) -> Body:
    return lambda dx, x: dx.fill(value)


def change_on_the_host(value: float) -> Body:
    def body(dx: DevicePtr[np.float64], x: Array) -> None:
        with update(x):
            x[0] = value

    return body


# Each task has three turns: it enters, writes and leaves.
ORDERS = ["abbaab", "ababba", "abbbaa", "aabbba", "abaabb"]


@pytest.mark.parametrize("order", ORDERS)
def test_tasks_that_write_arrays_of_their_own_leave_in_any_order(order: str, device: str) -> None:
    x, y = np.zeros(4), np.zeros(4)
    raised = run(
        order,
        lambda turns: task("a", turns, x, device, fill(1.0)),
        lambda turns: task("b", turns, y, device, fill(2.0)),
    )
    assert raised == [None, None]
    assert x.tolist() == [1.0] * 4
    assert y.tolist() == [2.0] * 4


@pytest.mark.parametrize("order", ORDERS)
def test_a_task_that_fails_discards_nothing_of_another_task_with_its_own_array(order: str, device: str) -> None:
    x, y = np.zeros(4), np.zeros(4)
    raised = run(
        order,
        lambda turns: task("a", turns, x, device, fill(1.0), fails=True),
        lambda turns: task("b", turns, y, device, change_on_the_host(2.0)),
    )
    assert isinstance(raised[0], ValueError)
    assert raised[1] is None
    assert x.tolist() == [0.0] * 4
    assert y.tolist() == [2.0, 0.0, 0.0, 0.0]


@pytest.mark.parametrize("order", ORDERS)
def test_what_tasks_wrote_to_one_array_comes_down_with_the_last_that_leaves(order: str, device: str) -> None:
    x = np.zeros(4)
    raised = run(
        order,
        lambda turns: task("a", turns, x, device, lambda dx, x: dx[:2].fill(1.0)),
        lambda turns: task("b", turns, x, device, lambda dx, x: dx[2:].fill(2.0)),
    )
    assert raised == [None, None]
    assert x.tolist() == [1.0, 1.0, 2.0, 2.0]


@pytest.mark.parametrize("order", ["ababba", "ababab"])
def test_a_task_that_fails_discards_what_others_wrote_to_the_same_array_and_says_so(order: str, device: str) -> None:
    x = np.zeros(4)
    raised = run(
        order,
        lambda turns: task("a", turns, x, device, lambda dx, x: dx[:2].fill(1.0)),
        lambda turns: task("b", turns, x, device, lambda dx, x: dx[2:].fill(2.0), fails=True),
    )
    assert x.tolist() == [0.0] * 4
    assert isinstance(raised[1], ValueError)
    assert "was written on the device and discarded" in raised[1].__notes__[0]
    if order[-1] == "a":
        assert isinstance(raised[0], InvalidDataError)
    else:  # the region was left while the array was still lent
        assert raised[0] is None
