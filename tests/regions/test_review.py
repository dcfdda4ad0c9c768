"""What a review found: each case once gave a wrong result or refused what should work."""

from __future__ import annotations

import numpy as np
import pytest

from offload_args import In, InOut, Out, blas, offload_args, testing, update
from offload_args.errors import ExtentError, OffloadError


def test_parts_of_reversed_pointers_are_those_of_reversed_arrays(device: str) -> None:
    x = np.arange(24.0)
    A = np.arange(24.0).reshape(4, 6)
    B = np.arange(24.0).reshape(2, 3, 4)
    out = np.zeros(2)
    with offload_args(x, A, B, out, device=device) as (dx, dA, dB, dout):
        for pointer, array in (
            (dx[::-1][2:9:3], x[::-1][2:9:3]),
            (dx[::-1][::-1], x),
            (dA[::-1][:, 2], A[::-1][:, 2]),
            (dA[::-1].T[1], A[::-1].T[1]),
            (dA[:, ::-1][1:3, 4], A[:, ::-1][1:3, 4]),
            (dB[:, ::-1, ::-2][1, 1], B[:, ::-1, ::-2][1, 1]),
        ):
            assert pointer.shape == array.shape
            assert blas.asum(pointer) == array.sum()
        blas.copy(dA[::-1, ::-1][1, 2:4], dout)
    np.testing.assert_array_equal(out, A[::-1, ::-1][1, 2:4])


def test_assigning_to_a_part_of_a_reversed_pointer_writes_that_part(device: str) -> None:
    x = np.arange(8.0)
    with offload_args(x, device=device) as (dx,):
        dx[::-1][1:3].assign(np.array([70.0, 60.0]))
    np.testing.assert_array_equal(x, [0, 1, 2, 3, 4, 60, 70, 7])


@pytest.mark.parametrize("shape", [(0, 3), (3, 0), (0, 0)])
def test_an_empty_matrix_has_a_leading_dimension(device: str, shape: tuple[int, int]) -> None:
    with offload_args(np.zeros(shape), device=device) as (dA,):
        assert dA.ld == max(*shape, 1)


@pytest.mark.parametrize("out", [slice(0, 5), slice(0, 8)])
def test_an_unwritten_out_that_overlaps_a_written_inout_keeps_the_hosts_bytes(device: str, out: slice) -> None:
    x = np.arange(8.0)
    with offload_args(Out(x[out]), InOut(x[3:]), device=device) as (_, db):
        blas.scal(2.0, db)
    np.testing.assert_array_equal(x, [0, 1, 2, 6, 8, 10, 12, 14])


def test_the_address_of_an_out_leaves_its_neighbours_alone(device: str) -> None:
    x = np.arange(8.0)
    with offload_args(Out(x[0::2]), InOut(x[1::2]), device=device) as (da, db):
        blas.scal(2.0, db)
        assert da.address
    np.testing.assert_array_equal(x[1::2], [2, 6, 10, 14])


def test_an_inner_region_has_the_rights_of_whichever_part_grants_them(device: str) -> None:
    x = np.arange(8.0)
    with offload_args(In(x), InOut(x[2:6]), device=device):
        with offload_args(InOut(x[3:5]), device=device) as (dx,):
            blas.scal(2.0, dx)
    np.testing.assert_array_equal(x, [0, 1, 2, 6, 8, 5, 6, 7])


def test_a_part_of_a_lent_reshaped_array_may_be_written_inside(device: str) -> None:
    A = np.arange(12.0).reshape(3, 4)  # a view: A[1].base is not A
    with offload_args(A, device=device):
        with offload_args(A[1], device=device) as (dx,):
            blas.scal(2.0, dx)
    np.testing.assert_array_equal(A[1], [8, 10, 12, 14])


def test_a_part_of_a_lent_reshaped_array_may_be_updated(device: str) -> None:
    A = np.arange(12.0).reshape(3, 4)
    with offload_args(A, device=device) as (dA,):
        blas.scal(2.0, dA[0])
        with update(A[1]) as row:
            row[:] = 5
        blas.scal(2.0, dA[1])
    np.testing.assert_array_equal(A[1], [10, 10, 10, 10])


def test_a_scalar_on_the_device_has_exactly_one_element(device: str) -> None:
    x, w = np.ones(4), np.full(3, 2.0)
    with offload_args(x, w, device=device) as (dx, dw):
        with pytest.raises(ExtentError, match=r"alpha needs a pointer to 1 element, got .*alpha\[:1\]"):
            blas.scal(dw, dx)
        with pytest.raises(ExtentError, match=r"result needs a pointer to 1 element"):
            blas.dot(dx, dx, result=dw)
        blas.scal(dw[1:2], dx)
    np.testing.assert_array_equal(x, 2.0)


def test_a_failure_on_the_way_down_names_the_arrays() -> None:
    sim = testing.sim_device()
    x, y = np.ones(4), np.ones(4)
    messages = []
    for k in range(1, 40):
        try:
            with offload_args(x, y, device=sim) as (dx, dy):
                blas.axpy(1.0, dx, dy)
                testing.fail_call(sim, k)
        except OffloadError as error:
            messages.append(str(error))
        finally:
            testing.fail_call(sim, 0)
    assert messages
    for message in messages:
        assert message.startswith("offload_args: ")
        assert "copy_down" not in message or "copying back argument 2: " in message
