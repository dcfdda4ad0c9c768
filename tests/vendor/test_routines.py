"""Every bound routine, of CBLAS on host and sim and of cuBLAS on a GPU, is compared with sums in wider precision."""

from __future__ import annotations

import numpy as np
import pytest

from helpers.vendor import Vendor, bound, check, on_every_device
from offload_args import Device, cblas, cublas, offload_args
from offload_args.errors import ExtentError
from vendor import batched, level1, level2, level3, low, mixed

CASES = {**level1.CASES, **level2.CASES, **level3.CASES, **batched.CASES, **low.CASES, **mixed.CASES}


@pytest.mark.later("host")
@on_every_device
def test_a_routine_agrees_with_higher_precision(device: str, name: str, share: float) -> None:
    check(CASES, device, name, share)


def test_every_bound_routine_has_a_case() -> None:
    names = {*bound(cblas), *bound(cublas)}
    assert sorted(names - {*CASES}) == []
    assert len(names) > 150  # fails if no routines are found


@pytest.mark.promise("T31")
def test_too_small_a_leading_dimension_or_buffer_is_named_before_the_call(device: str) -> None:
    v = Vendor(device)
    order, no_trans = v.orders[0][1], v.op["N"]
    A, x, y = np.ones((4, 3), np.float32, order="F"), np.ones(3, np.float32), np.ones(4, np.float32)
    before = Device(device).counters
    with offload_args(A, x, y, device=device) as (dA, dx, dy):
        with pytest.raises(ValueError, match=r"cu?blas\.sgemv: .*lda"):
            v.module.sgemv(*order, no_trans, 4, 3, 1.0, dA, 3, dx, 1, 0.0, dy, 1)
        with pytest.raises(ExtentError, match=r"sgemv: A needs 16 elements \(m=4, n=4, lda=4\), has 12"):
            v.module.sgemv(*order, no_trans, 4, 4, 1.0, dA, 4, dx, 1, 0.0, dy, 1)
        with pytest.raises(ExtentError, match=r"sgemv: x needs 5 elements \(n=3, incx=2\), has 3"):
            v.module.sgemv(*order, no_trans, 4, 3, 1.0, dA, 4, dx, 2, 0.0, dy, 1)
        with pytest.raises(ExtentError, match=r"sgemv: y needs 7 elements \(m=4, incy=-2\), has 4"):
            v.module.sgemv(*order, no_trans, 4, 3, 1.0, dA, 4, dx, 1, 0.0, dy, -2)
        with pytest.raises(ExtentError, match=r"sgemv: A needs"):
            v.module.sgemv(*order, no_trans, 4, 3, 1.0, dA[:, :2], 4, dx, 1, 0.0, dy, 1)
        with pytest.raises(ValueError, match="incx"):
            v.module.sgemv(*order, no_trans, 4, 3, 1.0, dA, 4, dx, 0, 0.0, dy, 1)
    after = Device(device).counters
    assert (after.calls, after.bytes_up) == (before.calls, before.bytes_up)


def test_a_matrix_that_becomes_another_shape_fits_in_both() -> None:
    whole, tight = np.arange(30.0).reshape(5, 6), np.arange(12.0)
    before, columns = whole.copy(), tight.reshape(3, 4, order="F").copy()
    with offload_args(whole[:4, :4], tight, device="host") as (d_part, d_tight):
        cblas.dimatcopy(cblas.RowMajor, cblas.Trans, 3, 4, 2.0, d_part, 6, 6)
        for ld, new_ld in [(3, 5), (4, 4)]:  # one of the two leading dimensions exceeds the array's
            with pytest.raises(ExtentError, match=r"dimatcopy: A needs 1[45] elements .*, has 12"):
                cblas.dimatcopy(cblas.ColMajor, cblas.Trans, 3, 4, 1.0, d_tight, ld, new_ld)
        with pytest.raises(ExtentError, match="would touch elements between the lines of its array"):
            cblas.dimatcopy(cblas.RowMajor, cblas.NoTrans, 4, 4, 2.0, d_part, 6, 4)
        with pytest.raises(ValueError, match=r"dimatcopy: ldb needs at least 4 \(the rows of A as stored\), got 3"):
            cblas.dimatcopy(cblas.ColMajor, cblas.Trans, 3, 4, 1.0, d_tight, 3, 3)
        cblas.dimatcopy(cblas.ColMajor, cblas.Trans, 3, 4, 1.0, d_tight, 3, 4)
    assert np.array_equal(whole[:4, :3], 2 * before[:3, :4].T)
    assert np.array_equal(whole[:, 4:], before[:, 4:]) and np.array_equal(whole[4], before[4])
    assert np.array_equal(tight.reshape(4, 3, order="F"), columns.T)
