"""Functions that read a host array read its newest elements, also if a region lends the array and a call wrote it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from offload_args import blas, call, lapack, linalg, offload_args, update
from offload_args.errors import CaptureError, HostPointerError


def lent(values: Any) -> NDArray[np.float64]:
    return np.array(values, np.float64)


@pytest.mark.parametrize("view", [np.s_[:], np.s_[::-1], np.s_[::2], np.s_[None, :3]], ids=str)
def test_assign_sends_the_newest_elements(device: str, view: Any) -> None:
    y = np.arange(1.0, 5.0)
    target = np.zeros_like(y[view])
    with offload_args(y, target, device=device) as (dy, dtarget):
        blas.scal(10.0, dy)
        dtarget.assign(y[view])
    np.testing.assert_array_equal(target, 10 * np.arange(1.0, 5.0)[view])


def test_assign_sends_the_newest_elements_of_a_list_and_of_another_region(device: str) -> None:
    y, rows = np.arange(3.0), np.zeros((2, 3))
    with offload_args(y, device=device) as (dy,), offload_args(rows, device="host") as (drows,):
        blas.scal(10.0, dy)
        drows.assign([y, [1.0, 2.0, 3.0]])
        drows[1:].assign(y)
        blas.scal(2.0, dy)
    assert rows.tolist() == [[0, 10, 20], [0, 10, 20]]
    assert y.tolist() == [0, 20, 40]


def test_fill_takes_the_newest_number(device: str) -> None:
    number, x = lent(1), np.zeros(2)
    with offload_args(number, x, device=device) as (dnumber, dx):
        dnumber.fill(7.0)
        dx.fill(number)
    assert x.tolist() == [7, 7]


def test_assign_of_the_lent_array_to_itself_keeps_its_elements(device: str) -> None:
    x = np.ones(3)
    with offload_args(x, device=device) as (dx,):
        blas.scal(5.0, dx)
        dx.assign(x)
        blas.scal(2.0, dx)
    assert x.tolist() == [10, 10, 10]


def test_a_replay_reads_the_newest_elements_of_new_contents(device: str) -> None:
    x, y, total = np.zeros(3), np.ones(3), np.zeros(3)
    region = offload_args(x, y, total, device=device)
    with region as (dx, dy, dtotal):
        with region.capture(x=dx) as g:
            blas.axpy(1.0, dx, dtotal)
        for _ in range(3):
            blas.scal(10.0, dy)
            g.replay(x=y)
    assert total.tolist() == [1110, 1110, 1110]


def test_a_replay_exchanges_two_lent_arrays(device: str) -> None:
    x, y, steps = np.arange(3.0), 10 * np.ones(3), np.zeros(1)
    region = offload_args(x, y, steps, device=device)
    with region as (dx, dy, dsteps):
        with region.capture(x=dx, y=dy) as g:
            blas.scal(2.0, dx)
        g.replay()  # the device has 0, 2, 4
        g.replay(x=y, y=x)
        assert dx.to_host().tolist() == [20, 20, 20]
        g.replay(x=dy, y=x)
        assert dsteps.size == 1
    assert x.tolist() == [0, 4, 8]
    assert y.tolist() == [20, 20, 20]


def test_a_captured_assign_of_an_array_that_the_graph_writes_is_refused(device: str) -> None:
    x, y = np.zeros(3), np.ones(3)
    region = offload_args(x, y, device=device)
    with region as (dx, dy):
        blas.scal(2.0, dy)
        with region.capture():
            blas.scal(2.0, dy)
            with pytest.raises(CaptureError):
                dx.assign(y)


def test_numbers_in_arrays_are_the_newest(device: str) -> None:
    number, x = lent(1), np.ones(4)
    with offload_args(number, x, device=device) as (dnumber, dx):
        dnumber.fill(3.0)
        blas.scal(number, dx)
        dnumber.fill(5.0)
        blas.axpy(number, dx[:1], dx[1:2])
    assert x.tolist() == [3, 18, 3, 3]


def test_complex_numbers_and_numbers_of_other_dtypes_in_arrays_are_the_newest(device: str) -> None:
    number, x, single, y = np.array(1j), np.ones(2, complex), np.array(1, np.float32), np.ones(2, np.float32)
    with offload_args(number, x, single, y, device=device) as (dnumber, dx, dsingle, dy):
        dnumber.fill(2j)
        blas.scal(number, dx)
        dsingle.fill(np.float32(4))
        blas.scal(single, dy)
    assert x.tolist() == [2j, 2j]
    assert y.tolist() == [4, 4]


def test_numbers_of_a_call_in_arrays_are_the_newest(device: str) -> None:
    number, x = lent(1), np.ones(2)
    with offload_args(number, device=device) as (dnumber,):
        dnumber.fill(3.0)
        call(blas.scal, number, x, device=device)
    assert x.tolist() == [3, 3]


def test_a_number_that_captured_calls_write_is_refused_as_a_number_of_the_host(device: str) -> None:
    number, x = lent(1), np.ones(4)
    region = offload_args(number, x, device=device)
    with region as (dnumber, dx):
        dnumber.fill(3.0)
        with region.capture():
            blas.scal(2.0, dnumber.reshape(1))
            with pytest.raises(CaptureError):
                blas.scal(number, dx)


def test_norms_of_condition_numbers_are_the_newest(device: str) -> None:
    A, ipiv, norms = np.stack([np.eye(2), 2 * np.eye(2)]), np.empty((2, 2), np.int32), np.zeros(2)
    with offload_args(A, ipiv, norms, device=device) as (dA, dipiv, dnorms):
        lapack.getrf(dA, dipiv)
        dnorms.assign(np.array([1.0, 2.0]))
        assert lapack.gecon(dA, norms).tolist() == [1, 1]
        assert lapack.gecon(dA[0], norms[:1].reshape(())) == 1


def test_the_singular_values_of_a_list_of_lent_rows_are_of_the_newest(device: str) -> None:
    row, other = np.array([1.0, 0.0]), [0.0, 3.0]
    with offload_args(row, device=device) as (drow,):
        blas.scal(5.0, drow)
        U, s, Vh = linalg.svd([row, other], hermitian=True, device=device)
    np.testing.assert_allclose(s, [5, 3])
    np.testing.assert_allclose(U * s @ Vh, [[5, 0], [0, 3]])


def test_elements_that_the_host_writes_are_the_newest(device: str) -> None:
    x, y = np.ones(3), np.zeros(3)
    with offload_args(x, y, device=device) as (dx, dy):
        blas.scal(5.0, dx)
        with update(x):
            x[0] = 9.0
            dy.assign(x)
    assert y.tolist() == [9, 5, 5]


def test_an_array_of_numbers_is_told_from_a_number(device: str) -> None:
    alpha, numbers, x = np.full(1, 3.0), np.arange(1.0, 3.0), np.ones(3)
    with offload_args(x, device=device) as (dx,):
        with pytest.raises(HostPointerError, match=r"; pass alpha\.item\(\), or lend it$"):
            blas.scal(alpha, dx)
        blas.scal(alpha.item(), dx)
        with pytest.raises(HostPointerError, match=r"; pass one of its 2 elements, such as alpha\.item\(0\)$"):
            blas.scal(numbers, dx)
        blas.scal(numbers.item(1), dx)
        with offload_args(alpha, device=device) as (dalpha,):
            dalpha.fill(5.0)
            with pytest.raises(HostPointerError, match=r"; pass its pointer, dalpha$"):
                blas.scal(alpha, dx)
            blas.scal(dalpha, dx)
    assert x.tolist() == [30, 30, 30]
