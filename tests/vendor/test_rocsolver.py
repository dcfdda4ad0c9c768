"""rocSOLVER's functions take handles of rocBLAS, with a queried workspace that the caller lends."""

from __future__ import annotations

import numpy as np
import pytest

from helpers.devices import library_or_skip, open_or_skip
from offload_args import Scratch, offload_args, rocblas, rocsolver
from offload_args.errors import LibraryError, StalePointerError


@pytest.fixture
def hip() -> str:
    device = open_or_skip("hip:0")
    library_or_skip("rocsolver", device)
    return device


def solve(hip: str, handle: rocblas.Handle, nbytes: int) -> list[float]:
    A, b = np.asfortranarray([[4.0, 2.0], [2.0, 3.0]]), np.array([8.0, 8.0])
    info, work = Scratch(1, np.int32), Scratch(4096, np.uint8)
    with offload_args(A, b, info, work, device=hip) as (dA, db, dinfo, dwork):
        rocblas.set_workspace(handle, dwork, nbytes)
        try:
            rocsolver.dpotrf(rocsolver.fill_lower, 2, dA, dA.ld, dinfo, handle=handle)
            rocsolver.dpotrs(rocsolver.fill_lower, 2, 1, dA, dA.ld, db, 2, handle=handle)
        finally:
            rocblas.set_workspace(handle, None, 0)
    return [round(value, 6) for value in b.tolist()]


def test_calls_in_a_query_of_memory_answer_its_size_and_write_nothing(hip: str) -> None:
    handle = rocblas.create_handle(hip)
    A, b, info = np.asfortranarray([[4.0, 2.0], [2.0, 3.0]]), np.array([8.0, 8.0]), np.full(1, 7, np.int32)
    with offload_args(A, b, info, device=hip) as (dA, db, dinfo):
        rocblas.start_device_memory_size_query(handle)
        rocsolver.dpotrf(rocsolver.fill_lower, 2, dA, dA.ld, dinfo, handle=handle)
        rocsolver.dpotrs(rocsolver.fill_lower, 2, 1, dA, dA.ld, db, 2, handle=handle)
        nbytes = rocblas.stop_device_memory_size_query(handle)
    assert nbytes > 0 and A.tolist() == [[4.0, 2.0], [2.0, 3.0]] and b.tolist() == [8.0, 8.0] and info[0] == 7
    assert solve(hip, handle, nbytes) == [1.0, 2.0]
    with pytest.raises(LibraryError, match="rocblas_status_memory_error"):
        solve(hip, handle, 64)
    assert solve(hip, handle, nbytes) == [1.0, 2.0]


def test_a_destroyed_handle_is_refused(hip: str) -> None:
    handle = rocblas.create_handle(hip)
    rocblas.destroy_handle(handle)
    with offload_args(np.eye(2, order="F"), Scratch(1, np.int32), device=hip) as (dA, dinfo):
        dinfo.fill(0)
        with pytest.raises(StalePointerError, match=r"^rocsolver\.dpotrf: handle was destroyed"):
            rocsolver.dpotrf(rocsolver.fill_lower, 2, dA, dA.ld, dinfo, handle=handle)
