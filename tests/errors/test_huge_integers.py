"""If a message shows an integer with more digits than Python writes, it names the number of its bits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from offload_args import Device, Scratch, blas, offload_args
from offload_args.errors import OffloadError

HUGE: Any = 10**5000


def lend(*arguments: Any, **options: Any) -> None:
    with offload_args(*arguments, **options):
        pass


@pytest.mark.parametrize(
    "call",
    [
        lambda: offload_args.empty(HUGE),
        lambda: offload_args.empty((2, -HUGE)),
        lambda: offload_args.empty((2, "a", HUGE)),
        lambda: offload_args.empty(2, order=HUGE),
        lambda: offload_args.empty(2, device=HUGE),
        lambda: lend(Scratch(HUGE), device="host"),
        lambda: lend(Scratch((2, -HUGE)), device="host"),
        lambda: lend(Scratch((2, 1.5, HUGE)), device="host"),
        lambda: Device(HUGE),
        lambda: Device.from_index(HUGE),
        lambda: lend(np.ones(1), device=HUGE),
        lambda: lend(np.ones(1), device="host", on_error=HUGE),
    ],
)
def test_a_huge_integer_is_refused(call: Callable[[], None]) -> None:
    with pytest.raises(OffloadError, match="an int of 166[0-9]+ bits"):
        call()


@pytest.mark.parametrize(
    "call",
    [
        lambda d, A: d[HUGE],
        lambda d, A: d.offset(HUGE),
        lambda d, A: d.reshape(HUGE),
        lambda d, A: d.fill(HUGE),
        lambda d, A: d.assign(HUGE),
        lambda d, A: blas.gemv(1.0, A, d[:2], 0.0, d[2:], trans=HUGE),
        lambda d, A: blas.gemv(HUGE, A, d[:2], 0.0, d[2:]),
        lambda d, A: blas.trsv(A, d[:2], uplo=HUGE),
    ],
)
def test_a_huge_integer_beside_a_pointer_is_refused(call: Callable[[Any, Any], None]) -> None:
    with offload_args(np.ones(4), np.ones((2, 2)), device="host") as (d, A):
        with pytest.raises((OffloadError, IndexError), match="an int of 166[0-9]+ bits"):
            call(d, A)
