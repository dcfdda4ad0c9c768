"""`linalg` of pointers: results stay on the device, in memory of the region that is freed with the last pointer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from lapack.conftest import Matrices

from helpers.devices import open_or_skip
from offload_args import Device, DevicePtr, In, Out, blas, linalg, offload_args, testing
from offload_args.errors import (
    ArgumentError,
    CaptureError,
    DeviceMemoryError,
    DTypeError,
    HostPointerError,
    OffloadError,
    StalePointerError,
    WrongDeviceError,
)


def test_every_function_returns_pointers(device: str, matrices: Matrices) -> None:
    A, b = matrices.general(4, 4), matrices.general(4)
    S, tall = matrices.definite(4), np.asfortranarray(matrices.general(5, 3))
    near = matrices.near
    with offload_args(In(A), In(b), In(S), In(tall), device=device) as (dA, db, dS, dtall):
        U, s, Vh = linalg.svd(dtall, full_matrices=False)
        Q, R = linalg.qr(dtall)
        w, v = linalg.eigh(dS)
        sign, log = linalg.slogdet(dA)
        x, residuals, rank, values = linalg.lstsq(dtall, dtall[:, 0])
        simple = {
            "solve": (linalg.solve(dA, db), np.linalg.solve(A, b)),
            "inv": (linalg.inv(dA), np.linalg.inv(A)),
            "cholesky": (linalg.cholesky(dS), np.linalg.cholesky(S)),
            "det": (linalg.det(dA), np.linalg.det(A)),
            "sign": (sign, np.linalg.slogdet(A)[0]),
            "log": (log, np.linalg.slogdet(A)[1]),
            "eigvalsh": (linalg.eigvalsh(dS), np.linalg.eigvalsh(S)),
            "w": (w, np.linalg.eigvalsh(S)),
            "s": (s, np.linalg.svd(tall, compute_uv=False)),
            "values": (values, np.linalg.svd(tall, compute_uv=False)),
            "x": (x, np.eye(3)[0]),
            "residuals": (residuals, np.zeros(1)),
            "matmul": (linalg.matmul(dA, db), A @ b),
            "row": (linalg.matmul(db, dA), b @ A),
            "dot": (linalg.matmul(db, db), b @ b),
            "power": (linalg.matrix_power(dA, 3), np.linalg.matrix_power(A, 3)),
        }
        assert rank == 3
        for name, (pointer, expected) in simple.items():
            assert isinstance(pointer, DevicePtr), name
            assert near(pointer.to_host(), expected), name
        assert near(U.to_host() * s.to_host() @ Vh.to_host(), tall)
        assert near(Q.to_host() @ R.to_host(), tall)
        assert near(S @ v.to_host(), v.to_host() * w.to_host())


def test_results_are_operands_of_further_calls(device: str) -> None:
    A, b, y = np.array([[4.0, 1.0], [2.0, 3.0]]), np.array([6.0, 8.0]), np.zeros(2)
    with offload_args(A, b, Out(y), device=device) as (dA, db, dy):
        blas.gemv(2.0, dA, linalg.solve(dA, db), 0.0, dy)
        dz = linalg.solve(linalg.inv(dA), db)
        blas.axpy(1.0, dz[:], dy)
    assert np.allclose(y, 2 * b + A @ b)


def test_memory_ends_with_the_last_pointer(device: str) -> None:
    A = np.eye(50)
    with offload_args(A, device=device) as (dA,):
        used = Device(device).counters.memory_used
        inverse = linalg.inv(dA)
        row = inverse[3]
        assert Device(device).counters.memory_used == used + A.nbytes
        del inverse
        assert Device(device).counters.memory_used == used + A.nbytes
        blas.scal(2.0, row)
        assert np.array_equal(row.to_host(), 2 * A[3])
        del row
        assert Device(device).counters.memory_used == used
        kept = linalg.inv(dA)
    assert not kept.live
    with pytest.raises(StalePointerError, match=r"^linalg\.inv: a belongs to a region that has ended"):
        linalg.inv(kept)


def test_results_belong_to_the_youngest_region_of_the_operands(device: str) -> None:
    A, b = np.array([[4.0, 1.0], [2.0, 3.0]]), np.array([6.0, 8.0])
    with offload_args(A, device=device) as (dA,):
        with offload_args(b, device=device) as (db,):
            x, inverse = linalg.solve(dA, db), linalg.inv(dA)
        assert not x.live
        assert np.allclose(inverse.to_host() @ A, np.eye(2))


def test_a_failed_call_leaves_the_arguments_as_they_were(device: str) -> None:
    A, b = np.zeros((3, 3)), np.ones(3)
    with offload_args(A, b, device=device) as (dA, db):
        used = Device(device).counters.memory_used
        with pytest.raises(np.linalg.LinAlgError, match=r"^linalg\.solve: a is singular"):
            linalg.solve(dA, db)
        assert np.array_equal(dA.to_host(), A)
        dA.fill(1)
        blas.scal(2.0, db)
        assert Device(device).counters.memory_used == used
    assert np.all(A == 1) and np.all(b == 2)


def test_wrong_operands_are_refused(device: str) -> None:
    A, single, counts = np.eye(3), np.ones(3, np.float32), np.eye(3, dtype=np.int32)
    with offload_args(A, single, counts, device=device) as (dA, dsingle, dcounts):
        with pytest.raises(HostPointerError, match=r"^linalg\.solve: b needs a DevicePtr as a is one, got an ndarray"):
            linalg.solve(dA, np.ones(3))
        with pytest.raises(DTypeError, match=r"^linalg\.solve: b needs float64 as a has, got float32"):
            linalg.solve(dA, dsingle)
        with pytest.raises(DTypeError, match=r"^linalg\.inv: a needs float32 or float64 .*, got int32"):
            linalg.inv(dcounts)
        with pytest.raises(ArgumentError, match=r"neither|needs unit stride"):
            linalg.inv(dA[::2, ::2])
        with pytest.raises(ArgumentError, match=r"hermitian=True needs an array"):
            linalg.svd(dA, hermitian=True)
        with pytest.raises(np.linalg.LinAlgError, match=r"needs square"):
            linalg.inv(dA[:2])


def test_operands_of_two_devices_are_refused(device: str) -> None:
    other = open_or_skip("sim:1")
    A, b = np.eye(3), np.ones(3)
    with offload_args(A, device=device) as (dA,), offload_args(b, device=other) as (db,):
        with pytest.raises(WrongDeviceError, match=r"^linalg\.solve: b is on sim:1, and a is on "):
            linalg.solve(dA, db)
        with pytest.raises(WrongDeviceError, match=r"leave device out for pointers"):
            linalg.solve(dA, dA[0], device=other)


def test_stacks_with_broadcast_operands(device: str, matrices: Matrices) -> None:
    A, B = matrices.general(2, 1, 4, 4), matrices.general(3, 4, 2)
    with offload_args(In(A), In(B), device=device) as (dA, dB):
        x, product = linalg.solve(dA, dB), linalg.matmul(dA, dB)
        assert matrices.near(x.to_host(), np.linalg.solve(A, B))
        assert matrices.near(product.to_host(), A @ B)


def test_a_lack_of_memory_names_the_function_and_its_operands() -> None:
    A, b = np.eye(100), np.ones((100, 100))  # 80,000 bytes, which is no small array
    with testing.residency("off"):
        for capacity, words in (
            (70_000, r"(a|b|result 1) \(80000 bytes"),  # arrays in the order of their addresses
            (200_000, r"(a|b|result 1) \(80000 bytes"),
            (250_000, r"a result or workspace \(80000 bytes\): .* 78\.1 KiB in an operand or result of linalg, "),
        ):
            sim = testing.sim_device(capacity=capacity)
            with pytest.raises(DeviceMemoryError, match=rf"^linalg\.solve: {words}") as raised:
                linalg.solve(A, b, device=sim)
            assert "argument" not in str(raised.value)
        sim = testing.sim_device(capacity=100_000)
        with offload_args(A, device=sim) as (dA,):
            blas.scal(2.0, dA[0])
            for name in ("solve", "inv", "svd", "matmul", "lstsq"):
                words = (
                    rf"^linalg\.{name}: a result or workspace \(\d+ bytes\): sim:0: out .* in argument 1 of the region"
                )
                with pytest.raises(DeviceMemoryError, match=words):
                    getattr(linalg, name)(*(dA,) * (1 if name in ("inv", "svd") else 2))
        testing.sim_device()
    assert (A[0] == 2 * np.eye(100)[0]).all()


def test_a_function_is_named_that_a_capture_does_not_take(device: str) -> None:
    A = np.eye(3)
    region = offload_args(A, device=device)
    with region as (dA,), region.capture():
        for name in ("inv", "det", "qr", "cholesky"):
            with pytest.raises(CaptureError, match=rf"^linalg\.{name}: the region is being captured"):
                getattr(linalg, name)(dA)


CALLS: dict[str, Callable[..., Any]] = {
    "solve": lambda dA, db: linalg.solve(dA, db),
    "inv": lambda dA, db: linalg.inv(dA),
    "cholesky": lambda dA, db: linalg.cholesky(dA),
    "lstsq": lambda dA, db: linalg.lstsq(dA, db)[0],
    "qr": lambda dA, db: linalg.qr(dA).R,
    "svd": lambda dA, db: linalg.svd(dA).S,
    "eigh": lambda dA, db: linalg.eigh(dA).eigenvalues,
    "det": lambda dA, db: linalg.det(dA),
    "matmul": lambda dA, db: linalg.matmul(dA, db),
    "matrix_power": lambda dA, db: linalg.matrix_power(dA, 3),
}


@pytest.mark.parametrize("name", [*CALLS])
def test_a_call_of_the_device_that_fails_leaves_nothing(name: str) -> None:
    """Let the k-th call of the backend fail, for each k.

    The result is right, or there is an error and no memory is left.
    """
    sim = testing.sim_device()
    A, b = np.diag([1.0, 2.0, 3.0, 4.0]), np.ones(4)

    def run(k: int) -> Any:
        with offload_args(In(A), In(b), device=sim) as (dA, db):
            testing.fail_call(sim, k)
            try:
                return CALLS[name](dA, db).to_host()
            finally:
                testing.fail_call(sim, 0)

    expected, used, before = run(0), sim.counters.memory_used, testing.backend_calls(sim)
    run(0)
    calls, failed = testing.backend_calls(sim) - before, 0
    for k in range(1, calls + 1, max(calls // 25, 1)):
        try:
            assert np.array_equal(run(k), expected)
        except OffloadError:
            failed += 1
        testing.no_mappings_left()
        assert sim.counters.memory_used == used
    assert failed
