"""How a region is shown, as text and in a notebook."""

from __future__ import annotations

from typing import Any

import numpy as np

from helpers.arrays import ramp
from offload_args import (
    In,
    Out,
    Scratch,
    blas,
    offload_args,
    testing,
)


def test_a_region_shows_its_device_and_the_size_and_state_of_each_argument(device: str) -> None:
    A, x, y = ramp(3, 4), ramp(4), ramp(3)
    region = offload_args(In(A), x, Out(y), Scratch((1000, 1000)), device=device)
    closed = repr(region)
    assert closed.splitlines() == [
        f"offload_args on {device}, not open",
        "  1  float32  (3, 4)        48 bytes  In",
        "  2  float32  (4,)          16 bytes  by use",
        "  3  float32  (3,)          12 bytes  Out",
        "  4  float64  (1000, 1000)  7.63 MiB  Scratch",
    ]
    with region as (dA, dx, dy, dw):
        blas.gemv(1.0, dA, dx, 0.0, dy)
        title, *rows = repr(region).splitlines()
        assert title.startswith(f"offload_args on {device}, open since tests/regions/test_shown.py:")
        assert title.endswith(", outermost")
        assert rows == [
            "  1  float32  (3, 4)        48 bytes  In       read-only, sent",
            "  2  float32  (4,)          16 bytes  by use   sent",
            "  3  float32  (3,)          12 bytes  Out      written",
            "  4  float64  (1000, 1000)  7.63 MiB  Scratch  untouched",
        ]
        html = region._repr_html_()
        assert html is not None and html.count("<tr>") == 5 and ">read-only, sent</td>" in html
    assert repr(region) == closed
    assert repr(offload_args()) == "offload_args, not open"


def test_showing_a_region_never_raises_and_escapes_html() -> None:
    class Awkward:
        @property
        def shape(self) -> Any:
            raise ZeroDivisionError

        dtype = np.dtype(np.float32)

    strange = np.zeros(3, dtype=[("<script>", "i4")])
    html = offload_args(strange, [1, 2], None)._repr_html_()
    assert html is not None and "&lt;script&gt;" in html and "<script>" not in html
    assert "list" in repr(offload_args([1, 2]))
    assert repr(offload_args(Awkward())).startswith("<offload_args.regions.offload_args object at 0x")
    assert offload_args(Awkward())._repr_html_() is None
    bare = offload_args.__new__(offload_args)
    assert repr(bare).startswith("<offload_args.regions.offload_args object at 0x")


def test_showing_moves_nothing_and_asks_no_device() -> None:
    sim = testing.sim_device()
    with offload_args(ramp(8), device=sim) as (dx,):
        region = offload_args(ramp(3), device=sim)
        before = testing.backend_calls(sim)
        for shown in (dx, sim, region):
            assert repr(shown) and shown._repr_html_()
        assert testing.backend_calls(sim) == before
