"""A device pointer is not host memory, so every use on the host is refused with advice."""

from __future__ import annotations

import copy
import ctypes
import math
import operator
import pickle
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from helpers.arrays import ramp
from offload_args import Device, In, Out, _instead, blas, cblas, kernels, lapack, offload_args, testing
from offload_args.errors import (
    HostAccessError,
    HostPointerError,
    OffloadError,
)

ON_THE_HOST: dict[str, Callable[[Any], object]] = {
    "an element": lambda p: p[0],
    "the last element": lambda p: p[-1],
    "writing an element": lambda p: operator.setitem(p, 0, 1.0),
    "writing a slice": lambda p: operator.setitem(p, slice(2), 1.0),
    "deleting an element": lambda p: operator.delitem(p, 0),
    "a list index": lambda p: p[[0, 1]],
    "a mask": lambda p: p[np.array([True, False, True])],
    "iter": lambda p: iter(p),
    "unpacking": lambda p: [*p],
    "len": lambda p: len(p),
    "in": lambda p: 1.0 in p,
    "reversed": lambda p: reversed(p),
    "float": lambda p: float(p),
    "int": lambda p: int(p),
    "complex": lambda p: complex(p),
    "bool": lambda p: bool(p),
    "index": lambda p: operator.index(p),
    "round": lambda p: round(p),
    "a format of numbers": lambda p: f"{p:.3f}",
    "math.floor": lambda p: math.floor(p),
    "math.trunc": lambda p: math.trunc(p),
    "+": lambda p: p + 1,
    "1 +": lambda p: 1 + p,
    "+=": lambda p: operator.iadd(p, 1),
    "*": lambda p: p * p,
    "@": lambda p: p @ p,
    "/": lambda p: p / 2,
    "-": lambda p: -p,
    "abs": lambda p: abs(p),
    "<": lambda p: p < 1,
    ">=": lambda p: p >= p,
    "divmod": lambda p: divmod(p, 2),
    "array + pointer": lambda p: np.ones(3, np.float32) + p,
    "array == pointer": lambda p: np.ones(3, np.float32) == p,
    "np.add": lambda p: np.add(p, 1),
    "np.sum": lambda p: np.sum(p),
    "np.dot": lambda p: np.dot(p, p),
    "np.asarray": lambda p: np.asarray(p),
    "np.array of pointers": lambda p: np.array([p, p]),
    "np.copyto": lambda p: np.copyto(np.ones(3, np.float32), p),
    "memoryview": lambda p: memoryview(p),
    "bytes": lambda p: bytes(p),
    "ctypes": lambda p: (ctypes.c_char * 4).from_buffer(p),
    "copy": lambda p: copy.copy(p),
    "deepcopy": lambda p: copy.deepcopy(p),
    "pickle": lambda p: pickle.dumps(p),
    "tolist in a container": lambda p: np.asarray([[p]]),
    **{f".{name}()": operator.methodcaller(name) for name in "copy sum mean max min tolist item flatten ravel".split()},
    ".astype()": lambda p: p.astype(np.float64),
    ".sort()": lambda p: p.sort(),
    ".dot()": lambda p: p.dot(p),
    ".flat": lambda p: p.flat,
}


@pytest.mark.later("host")
@pytest.mark.promise("T36")
@pytest.mark.parametrize("name", ON_THE_HOST)
def test_every_use_on_the_host_is_refused_with_advice(device: str, name: str) -> None:
    x = ramp(3)
    with testing.counting(Device(device)) as moved, offload_args(x, device=device) as (dx,):
        with pytest.raises(TypeError) as raised:
            ON_THE_HOST[name](dx)
        assert isinstance(raised.value, HostAccessError), raised.value
        assert str(raised.value).startswith(("DevicePtr: ", "DevicePtr."))
        assert ";" in str(raised.value) or ":" in str(raised.value).removeprefix("DevicePtr: ")
    assert moved.copies_up == 0


def test_the_refusal_of_a_sequence_names_the_part_of_it_that_pointers_have() -> None:
    with offload_args(np.ones((3, 4)), ramp(3), device="host") as (dA, dx):
        for wrong, words in (
            (lambda: [*dA], r"iteration needs the values .*; dA\[i\], of `for i in range\(dA\.shape\[0\]\)`, points "),
            (lambda: len(dx), r"^DevicePtr: len\(\) is for values on the host; use dx\.shape\[0\], or dx\.size"),
            (lambda: 1.0 in dx, r"^DevicePtr: `in` needs the values on the host; use `in dx\.to_host\(\)`$"),
            (lambda: reversed(dx), r"reversed\(\) needs the values .*; dx\[::-1\] points to them backwards"),
        ):
            with pytest.raises(HostAccessError, match=words):
                wrong()
        assert [dA[i].shape for i in range(dA.shape[0])] == [(4,)] * 3
        assert [dx[i : i + 1].shape for i in range(dx.shape[0])] == [(1,)] * 3
        assert list(dx[::-1].to_host()) == [*ramp(3)[::-1]]


def test_the_refusal_of_a_function_of_numpy_names_the_attribute_or_the_method() -> None:
    with offload_args(ramp(3), device="host") as (dx,):
        for wrong, words in (
            (lambda: np.shape(dx), r"np\.shape runs on the host; use dx\.shape, or"),
            (lambda: np.ndim(dx), r"use dx\.ndim, or"),
            (lambda: np.size(dx), r"use dx\.size, or"),
            (lambda: np.squeeze(dx), r"use dx\.reshape\(\.\.\.\), or"),
            (lambda: np.copyto(dx, 1), r"use dx\.copy_from\(dy\), dx\.assign\(values\) or dx\.fill\(value\), or"),
        ):
            with pytest.raises(HostAccessError, match=words):
                wrong()


def test_the_refusal_of_an_array_method_names_the_remedy() -> None:
    with offload_args(ramp(3), device="host") as (dx,):
        meant = {
            "copy": "copy_from",
            "sum": r"kernels\.reduce\(.*or to_host\(\)\.sum",
            "mean": r"divide by dx\.size",
            "tolist": r"to_host\(\).tolist\(\)",
            "item": "to_host",
            "astype": r"x = x\.astype\(dtype\)",
            "ravel": r"reshape\(-1\)",
            "flatten": r"reshape\(-1\)",
            "cumsum": r"to_host\(\).cumsum",
            "transpose": "use T",
            "mT": "trans_a",
        }
        for name, remedy in meant.items():
            assert not hasattr(dx, name)
            with pytest.raises(HostAccessError, match=f"DevicePtr.{name}: .*{remedy}"):
                getattr(dx, name)
        for name in ("no_such_thing", "__array_interface__", "_ipython_canary_method_should_not_exist_"):
            with pytest.raises(AttributeError) as raised:
                getattr(dx, name)
            assert not isinstance(raised.value, HostAccessError)


def test_arithmetic_on_pointers_names_the_function_of_blas_that_does_it(device: str) -> None:
    A, x = np.ones((3, 3)), ramp(3)
    with offload_args(A, x, device=device) as (dA, dx):
        for wrong, remedy in (
            (lambda: dA @ dx, "blas.gemv for a matrix and a vector, blas.gemm for matrices"),
            (lambda: A @ dx, "blas.gemm"),
            (lambda: np.dot(dA, dx), "blas.gemv"),
            (lambda: np.einsum("ij,j", dA, dx), "blas.gemv"),
            (lambda: dA + dA, "blas.axpy for vectors, blas.geam for matrices"),
            (lambda: dx + 1, r"blas.axpy .*; slices and offset\(n\) point further on"),
            (lambda: x - dx, "blas.axpy"),
            (lambda: 2 * dx, "blas.scal for a number"),
            (lambda: -dx, "blas.scal"),
            (lambda: np.linalg.norm(dx), "blas.nrm2"),
            (lambda: np.linalg.solve(dA, dx), "linalg.solve"),
            (lambda: dx**2, r"kernels\.elementwise"),
        ):
            with pytest.raises(HostAccessError, match=f"; use .*{remedy}"):
                wrong()


def test_a_function_of_numpy_is_named_with_its_module(device: str) -> None:
    with offload_args(ramp(3), device=device) as (dx,):
        for wrong, name in (
            (lambda: np.sum(dx), "np.sum"),
            (lambda: np.add(dx, 1), "np.add"),
            (lambda: np.linalg.norm(dx), "np.linalg.norm"),
            (lambda: np.fft.fft(dx), "np.fft.fft"),
        ):
            with pytest.raises(HostAccessError, match=rf"^DevicePtr: {re.escape(name)} runs on the host; use "):
                wrong()


def test_the_tuple_of_a_region_passed_for_its_pointer_names_the_way_to_unpack_it(device: str) -> None:
    A, x, y = np.ones((3, 3)), ramp(3), np.zeros(3)
    with offload_args(x, y, device=device) as (dx, dy), offload_args(A, device=device) as dA:
        for wrong in (
            lambda: blas.gemv(1.0, dA, dx, 0.0, dy),  # type: ignore[arg-type]
            lambda: blas.gemm(1.0, dA, dA, 0.0, dA),  # type: ignore[arg-type]
            lambda: lapack.potrf(dA),  # type: ignore[arg-type]
            lambda: cblas.sger(cblas.ColMajor, 3, 3, 1.0, dx, 1, dx, 1, dA, 3),  # type: ignore[arg-type]
        ):
            with pytest.raises(HostPointerError, match=r"A needs a DevicePtr.*got a? ?tuple; .* as \(dA,\)$"):
                wrong()
    with offload_args(x, y, device=device) as both, pytest.raises(HostPointerError, match=r"as \(dx, \.\.\.\)$"):
        blas.nrm2(both)  # type: ignore[arg-type]
    with pytest.raises(HostPointerError, match=r"got tuple; make it an array"):
        blas.nrm2((1.0, 2.0))  # type: ignore[arg-type]


def test_host_memory_is_not_exported_as_gpu_memory() -> None:
    with offload_args(ramp(3), device="host") as (dx,):
        assert not hasattr(dx, "__cuda_array_interface__")
        with pytest.raises(HostAccessError, match="on host"):
            dx.__dlpack__()
        with pytest.raises(TypeError):
            np.from_dlpack(dx)


def test_wrong_kinds_of_pointers_are_offload_errors() -> None:
    with offload_args(ramp(3), Out(ramp(3))) as (dx, dy):
        with pytest.raises(OffloadError) as raised:
            blas.copy(dx, ramp(3))
        assert isinstance(raised.value, HostPointerError)
        blas.copy(dx, dy)


@pytest.mark.later
def test_functions_of_numpy_name_the_kernel_of_a_formula_that_does_it(device: str) -> None:
    """The remedies in the errors are run, and have the results of NumPy."""
    if Device(device).model.startswith("double"):
        pytest.skip("device unavailable: the double runs no code that it does not know")
    x, y, z, total = np.array([1.0, 4.0, 9.0]), np.array([1.0, 2.0, 3.0]), np.zeros(3), np.zeros(1)
    with offload_args(x, y, z, total, device=device) as (dx, dy, dz, dresult):
        names = {"np": np, "In": In, "Out": Out, "kernels": kernels, "dx": dx, "dz": dz, "dresult": dresult}
        for wrong, expected in (
            (lambda: np.sum(dx), x.sum()),
            (lambda: dx.sum, x.sum()),
            (lambda: dx.mean, x.sum()),
            (lambda: np.max(dx), x.max()),
            (lambda: np.exp(dx), np.exp(x)),
            (lambda: np.sqrt(dx), np.sqrt(x)),
            (lambda: abs(dx), abs(x)),
            (lambda: dx**2, x**2),
            (lambda: dx + 1, x + 1),
            (lambda: 1.5 - dx, 1.5 - x),
            (lambda: dx + dy, x + y),
            (lambda: np.multiply(dx, dy), x * y),
            (lambda: np.maximum(dx, 2.0), np.maximum(x, 2)),
            (lambda: np.square(dx), x * x),
            (lambda: np.clip(dx, 0, 1), np.clip(x, 0, 1)),
        ):
            with pytest.raises(HostAccessError) as raised:
                wrong()
            remedy = re.search(r"kernels\.\w+\(.*?\)\([a-z, ]*\)", str(raised.value))
            assert remedy is not None, str(raised.value)
            is_number = remedy[0].endswith("dresult)")
            # With one operand the remedy's result is dy.
            result = dresult if is_number else dz
            exec(remedy[0], names | {"dy": dy if "dz" in remedy[0] else dz})
            np.testing.assert_allclose(result.to_host(), [expected] if is_number else expected)


def test_every_formula_in_the_errors_is_a_kernel() -> None:
    for dtype in ("float32", "float64"):
        for name in _instead._FORMULAS:
            call = re.search(r"kernels\.elementwise\(.*?\](?=\)\()\)", _instead.instead_of(name, dtype))
            assert call is not None
            exec(call[0], {"np": np, "In": In, "Out": Out, "kernels": kernels})


def test_other_functions_of_numpy_name_the_function_for_pointers(device: str) -> None:
    with offload_args(ramp(3), device=device) as (dx,):
        for wrong, remedy in (
            (lambda: np.fft.fft(dx), r"use fft\.fft, or to_host\(\)$"),
            (lambda: np.sort(dx), r"use to_host\(\)$"),
            (lambda: np.zeros_like(dx), r"Scratch\(x\.shape, x\.dtype\)"),
            (lambda: np.concatenate([dx, dx]), "copy_from into slices of a Scratch"),
            (lambda: dx < 1, r"kernels\.elementwise or kernels\.reduce"),
            (lambda: np.asarray(dx), "linalg, lapack, blas, fft and sparse have functions that take pointers"),
        ):
            with pytest.raises(HostAccessError, match=remedy):
                wrong()


def test_arithmetic_of_a_matrix_and_a_vector_names_a_way_that_takes_both(device: str) -> None:
    A, v, ones = np.ones((4, 3)), np.arange(3.0), np.ones(4)
    expected = A - v
    with offload_args(A, v, ones, device=device) as (dA, dv, dones):
        for wrong, remedy in (
            (lambda: dA - dv, r"use blas\.ger\(-1\.0, dones, dv, dA\) in place.*B\[i, j\] = A\[i, j\] - v\[j\]"),
            (lambda: np.add(dA, dv), r"use blas\.ger\(1\.0, dones, dv, dA\) in place"),
            (lambda: dv * dA, r"use a @kernel with .*B\[i, j\] = v\[j\] \* A\[i, j\]"),
            (lambda: np.sum(dA, axis=0), r'kernels\.reduce\("sum", axis=0, x=np\.float64\) for each column'),
            (lambda: dA.mean(axis=1), r'kernels\.reduce\("sum", axis=0, x=np\.float64\) .*axis=1 for each row'),
        ):
            with pytest.raises((HostAccessError, AttributeError), match=remedy):
                wrong()
        blas.ger(-1.0, dones, dv, dA)
    np.testing.assert_array_equal(A, expected)
