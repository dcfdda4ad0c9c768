"""`linalg` of views that it copies on the host reads the newest elements of arrays that regions lend."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from offload_args import In, blas, call, linalg, offload_args, update
from offload_args.errors import CaptureError, PresentError


class Tagged(np.ndarray[Any, Any]):
    pass


View = Callable[[NDArray[Any]], NDArray[Any]]

# Views of a square matrix.
VIEWS: dict[str, View] = {
    "reversed rows": lambda A: A[::-1],
    "reversed columns": lambda A: A[:, ::-1],
    "reversed": lambda A: A[::-1, ::-1],
    "some columns": lambda A: A[:, ::2],
    "some rows and columns": lambda A: A[::2, ::-3],
    "broadcast": lambda A: np.broadcast_to(A[1], (4, A.shape[1])),
    "sliding": lambda A: np.lib.stride_tricks.sliding_window_view(A[0], 3),
    "of real parts": lambda A: A.view(np.complex128).real,
    "of another class": lambda A: A[::-1].view(Tagged),
}
FUNCTIONS: dict[str, Callable[[NDArray[Any], str], Any]] = {
    "matmul": lambda V, device: linalg.matmul(V, np.arange(1.0, 1 + V.shape[-1]), device=device),
    "svd": lambda V, device: linalg.svd(V, compute_uv=False, device=device),
    "lstsq": lambda V, device: linalg.lstsq(V, np.arange(1.0, 1 + V.shape[0]), device=device)[0],
    "solve": lambda V, device: linalg.solve(np.eye(len(V)), V, device=device),
}


def square() -> NDArray[Any]:
    return np.arange(36.0).reshape(6, 6) + 40 * np.eye(6)


@pytest.mark.parametrize("function", FUNCTIONS)
@pytest.mark.parametrize("view", VIEWS)
def test_a_view_of_a_lent_array_has_the_elements_of_the_device(device: str, view: str, function: str) -> None:
    A = square()
    expected = FUNCTIONS[function](VIEWS[view](10 * A), device)
    with offload_args(A, device=device) as (dA,):
        blas.scal(10.0, dA.reshape(-1))
        result = FUNCTIONS[function](VIEWS[view](A), device)
        blas.scal(2.0, dA.reshape(-1))  # the device goes on with its own elements
    np.testing.assert_allclose(result, expected, rtol=1e-9, atol=1e-9)
    np.testing.assert_array_equal(A, 20 * square())


def test_a_view_in_the_other_byte_order_has_the_elements_of_the_device(device: str) -> None:
    x = np.arange(1.0, 5.0)
    with offload_args(x, device=device) as (dx,):
        dx.assign(np.arange(10.0, 50.0, 10.0).byteswap())
        swapped = linalg.matmul(np.eye(4), x.view(x.dtype.newbyteorder()), device=device)
    np.testing.assert_array_equal(swapped, [10, 20, 30, 40])


def test_a_conversion_and_a_list_read_the_elements_of_the_device(device: str) -> None:
    x, y = np.arange(4, dtype=np.float32), np.arange(4.0)
    with offload_args(x, y, device=device) as (dx, dy):
        blas.scal(10.0, dx)
        blas.scal(10.0, dy)
        wide = linalg.matmul(np.eye(4), x, device=device)
        rows = linalg.matmul(np.eye(2), [y, [1.0, 2.0, 3.0, 4.0]], device=device)
    np.testing.assert_array_equal(wide, [0, 10, 20, 30])
    np.testing.assert_array_equal(rows, [[0, 10, 20, 30], [1, 2, 3, 4]])


def test_a_view_of_which_devices_have_some_has_the_newest_elements(device: str) -> None:
    x = np.arange(1.0, 7.0)
    with offload_args(x[:2], In(x[4:]), device=device) as (dx, _):
        blas.scal(10.0, dx)
        result = linalg.matmul(np.eye(6), x[::-1], device=device)
    np.testing.assert_array_equal(result, [6, 5, 4, 3, 20, 10])


def test_a_view_of_an_array_on_two_devices_has_the_newest_elements(device: str) -> None:
    x, y = np.arange(4.0), np.arange(4.0)
    with offload_args(x, device=device) as (dx,), offload_args(y, device="host") as (dy,):
        blas.scal(10.0, dx)
        blas.scal(10.0, dy)
        of_x, of_y = (linalg.matmul(np.eye(4), v[::-1], device=at) for v, at in ((x, "host"), (y, device)))
    np.testing.assert_array_equal(of_x, [30, 20, 10, 0])
    np.testing.assert_array_equal(of_y, [30, 20, 10, 0])


def test_elements_that_the_host_writes_meanwhile_stay(device: str) -> None:
    x = np.arange(4.0)
    with offload_args(x, device=device) as (dx,):
        blas.scal(10.0, dx)
        with update(x[:2]):
            x[0] = 5.0
            with pytest.raises(PresentError, match=r"the host writes some of .* in a block of update.*update all of"):
                linalg.matmul(np.eye(4), x[::-1], device=device)
        np.testing.assert_array_equal(linalg.matmul(np.eye(4), x[::-1], device=device), [30, 20, 10, 5])
        blas.scal(10.0, dx)
        with update(x):
            x[1] = 7.0
            np.testing.assert_array_equal(linalg.matmul(np.eye(4), x[::-1], device=device), [300, 200, 7, 50])
    np.testing.assert_array_equal(x, [50, 7, 200, 300])


def test_a_copy_on_the_host_needs_nothing_of_an_array_that_no_call_wrote(device: str) -> None:
    x = np.arange(4.0)
    with offload_args(x, device=device) as (dx,):
        call(blas.copy, x, np.zeros(4), device=device)
        np.testing.assert_array_equal(linalg.matmul(np.eye(4), x[::-1], device=device), [3, 2, 1, 0])
        assert dx.size == 4


def test_a_guarded_array_is_read_through_its_views(device: str) -> None:
    x = np.arange(4.0)
    with offload_args(x, device=device, guard=True) as (dx,):
        blas.scal(10.0, dx)
        np.testing.assert_array_equal(linalg.matmul(np.eye(4), x[::-1], device=device), [30, 20, 10, 0])


def test_a_view_of_an_array_that_captured_calls_write_is_refused(device: str) -> None:
    x = np.arange(4.0)
    region = offload_args(x, device=device)
    with region as (dx,):
        blas.scal(10.0, dx)
        with region.capture():
            blas.scal(10.0, dx)
            with pytest.raises(CaptureError, match="do it before the capture begins or after it has"):
                linalg.matmul(np.eye(4), x[::-1], device=device)
