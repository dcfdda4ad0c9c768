"""Regions in cells of a notebook that run again, and the list of open regions (T68)."""

from __future__ import annotations

import contextlib
import gc
import os
import subprocess
import sys
import threading
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from helpers.arrays import ramp
from offload_args import In, Out, blas, call, offload_args, open_regions
from offload_args.errors import DiscardedWarning, NestedRegionWarning

HERE = Path(__file__)


def line() -> int:
    """Return the line of the caller."""
    return sys._getframe(1).f_lineno


@pytest.mark.copies
def test_the_cell_that_opens_a_region_may_run_again_and_says_that_the_first_one_is_open(device: str) -> None:
    x = ramp(8)
    kept = offload_args(x, device=device)  # a notebook keeps it in Out[n]
    (first,) = kept.open()
    at = line() - 1
    region = offload_args(x, device=device)
    with pytest.warns(NestedRegionWarning) as caught:
        (dx,) = region.open()
    assert caught[0].filename == __file__
    text = str(caught[0].message)
    assert f"argument 1 is lent already by the region that open() entered at {shown(at)}" in text
    assert "close()" in text and "discard()" in text and "open_regions()" in text
    blas.scal(2.0, dx)
    region.close()
    np.testing.assert_array_equal(x, ramp(8))  # the closed region was the inner one
    assert open_regions() == [kept]
    open_regions()[0].close()
    np.testing.assert_array_equal(x, 2 * ramp(8))
    assert x.flags.writeable and not first.live and open_regions() == []


def shown(at: int) -> str:
    return f"{os.path.relpath(HERE)}:{at}"


@pytest.mark.parametrize("way", ["parts", "second argument", "view"])
def test_any_argument_that_shares_bytes_counts(way: str, device: str) -> None:
    x, y = ramp(64), ramp(8)
    outer = offload_args(x, device=device)
    outer.open()
    arguments = {"parts": (x[8:16],), "second argument": (y, x), "view": (x.reshape(8, 8),)}[way]
    inner = offload_args(*arguments, device=device)
    with pytest.warns(NestedRegionWarning, match=f"argument {len(arguments)} is lent already"):
        inner.open()
    inner.close()
    outer.close()


def test_regions_that_are_nested_on_purpose_do_not_warn(device: str) -> None:
    A, x, y = ramp(8, 6), ramp(8), ramp(8)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with offload_args(x, device=device):
            inner = offload_args(x, device=device)  # a block surrounds this region
            inner.open()
            inner.close()
        outer = offload_args(A[:, :3], x, device=device)
        outer.open()
        for inner in (
            offload_args(A[:, 3:], y, device=device),  # other columns, so no byte is shared
            offload_args(In(x), device=device),  # no results to copy down
        ):
            inner.open()
            inner.close()
        with offload_args(x, device=device) as (dx,):
            blas.scal(2.0, dx)
        call(blas.scal, 2.0, x, device=device)

        def elsewhere() -> None:
            region = offload_args(x, device=device)
            region.open()
            region.close()

        thread = threading.Thread(target=elsewhere)
        thread.start()
        thread.join()
        outer.close()
    np.testing.assert_array_equal(x, 4 * ramp(8))


def test_a_warning_made_an_error_leaves_nothing_open(device: str) -> None:
    x = ramp(8)
    outer, inner = (offload_args(x, device=device) for _ in range(2))
    outer.open()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(NestedRegionWarning):
            inner.open()
    assert "not open" in repr(inner) and open_regions() == [outer]
    outer.close()
    assert x.flags.writeable


def test_a_region_shows_where_it_was_entered_and_whether_it_is_inside_another(device: str) -> None:
    x, y = ramp(8), ramp(8)
    with offload_args(x, device=device), contextlib.ExitStack() as stack:
        outer, at = open_regions()[0], line() - 1
        assert repr(outer).startswith(f"offload_args on {device}, open since {shown(at)}, outermost\n")
        stack.enter_context(offload_args(Out(x[2:4]), device=device)) and None
        inner = open_regions()[1]
        title = f"offload_args on {device}, open since {shown(line() - 2)}, inner: inside the region of {shown(at)}\n"
        assert repr(inner).startswith(title)
        with offload_args(y, device=device):
            assert "outermost" in repr(open_regions()[2])
        open_regions()[1].discard()
        assert open_regions() == [outer]
    assert open_regions() == []
    assert repr(outer).startswith(f"offload_args on {device}, not open\n")


def test_open_regions_has_those_of_all_threads_and_none_that_is_left(device: str) -> None:
    entered, leave = threading.Event(), threading.Event()

    def lend() -> None:
        with offload_args(ramp(8), device=device):
            entered.set()
            leave.wait(600)

    thread = threading.Thread(target=lend)
    thread.start()
    entered.wait(600)
    assert len(open_regions()) == 1 and "lend" not in repr(open_regions())
    leave.set()
    thread.join()
    gc.collect()
    assert open_regions() == []


@pytest.mark.later("host")
def test_a_region_collected_while_open_warns_where_python_hides_resource_warnings(device: str) -> None:
    x = ramp(8)
    region = offload_args(x, device=device)
    (dx,) = region.open()
    at = line() - 1
    blas.scal(2.0, dx)
    with pytest.warns(DiscardedWarning, match=r"never left; its results are lost: .* close\(\)") as caught:
        del region
        gc.collect()
    assert f"the region that {shown(at)} entered" in str(caught[0].message)
    program = "import numpy, offload_args as o; r = o.offload_args(numpy.ones(3), device='host'); r.open(); r = 0"
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=300)
    assert "DiscardedWarning: offload_args: the region that <string>:1 entered was never left" in ran.stderr


def test_a_forked_child_has_no_open_region(device: str) -> None:
    with offload_args(ramp(8), device=device):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            child = os.fork()
        if not child:
            os._exit(len(open_regions()))
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert len(open_regions()) == 1


def test_a_cell_is_named_as_the_notebook_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    shell: Any = type("Shell", (), {})()
    shell.compile = type("Compile", (), {})()
    shell.compile.format_code_name = lambda name: ("Cell", "In[7]") if name == "<ipython-input-7-ab>" else None
    monkeypatch.setitem(sys.modules, "IPython", type("IPython", (), {"get_ipython": staticmethod(lambda: shell)}))
    x = ramp(8)
    kept = offload_args(x, device="host")
    cell = compile("\nkept.open()", "<ipython-input-7-ab>", "exec")
    exec(cell, {"kept": kept})
    region = offload_args(x, device="host")
    with pytest.warns(NestedRegionWarning, match=r"entered at In\[7\]:2"):
        region.open()
    region.close()
    kept.close()
