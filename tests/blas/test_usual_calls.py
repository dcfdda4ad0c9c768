"""The functions of `blas`: usual calls are made in C, and all other calls in Python."""

from __future__ import annotations

import inspect
import pickle
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from blas.test_layout_table import FORMS

from offload_args import Device, In, blas, offload_args
from offload_args.errors import ArgumentError, HostPointerError

FUNCTIONS = (blas.gemm, blas.gemm_strided_batched, blas.gemv)


def operands(function: Any, dtype: type = np.float32) -> list[Any]:
    shapes: dict[Any, list[tuple[int, ...]]] = {
        blas.gemm: [(3, 3), (3, 3), (3, 3)],
        blas.gemm_strided_batched: [(2, 3, 3)] * 3,
        blas.gemv: [(3, 3), (3,), (3,)],
    }
    return [np.ones(shape, dtype) for shape in shapes[function]]


def called_in_python(function: Callable[[], object]) -> list[str]:
    names: list[str] = []
    sys.setprofile(lambda frame, event, argument: names.append(frame.f_code.co_name) if event == "call" else None)
    try:
        function()
    finally:
        sys.setprofile(None)
    return [name for name in names if name != "<lambda>"]


def by_columns(array: Any) -> Any:
    return array if array.ndim == 1 else array.swapaxes(-1, -2).copy().swapaxes(-1, -2)


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda function: function.__name__)
@pytest.mark.parametrize("columns", ["", "A", "AC"], ids=lambda names: f"{names or 'none'} in Fortran order")
def test_a_usual_call_runs_no_code_in_python(device: str, function: Any, columns: str) -> None:
    A, B, C = operands(function)
    A, C = by_columns(A) if "A" in columns else A, by_columns(C) if "C" in columns else C
    option = "trans" if function is blas.gemv else "trans_a"
    # CBLAS has no call for a batch; its replacement is in Python.
    expected = [] if function is not blas.gemm_strided_batched or Device(device).is_gpu else ["call"]
    with offload_args(A, B, C, device=device) as (dA, dB, dC):
        function(1.0, dA, dB, 0.0, dC)
        assert called_in_python(lambda: function(1.0, dA, dB, 0.0, dC)) == expected
        assert called_in_python(lambda: function(2, dA, dB, np.float32(0), dC, **{option: "T"})) == expected
    np.testing.assert_array_equal(C, 6)


PLANNED = sorted(set(FORMS) - {"gemm", "gemv", "gemm_strided_batched", "gemm_batched", "trsm_batched"})


@pytest.mark.later("host")
@pytest.mark.parametrize("order", "CF")
@pytest.mark.parametrize("name", PLANNED)
def test_a_usual_call_of_every_function_runs_no_code_in_python(device: str, name: str, order: Any) -> None:
    function, form, n = getattr(blas, name), FORMS[name].split(), 4
    is_band = name in ("gbmv", "sbmv", "hbmv", "tbmv", "tbsv")
    of_band = (3, n) if order == "F" else (n, 3)
    shapes = {"M": of_band if is_band else (n, n), "v": (n,), "p": (n * (n + 1) // 2,)}
    arrays = [
        np.array(np.eye(*shapes["M"]) if kind == "M" else np.ones(shapes[kind]), order=order)
        for kind in form
        if kind in shapes
    ]
    options: dict[str, Any] = {"kl": 1, "ku": 1} if name == "gbmv" else {}
    if "order" in inspect.signature(function).parameters:
        options["order"] = order
    gpu = Device(device).is_gpu
    with offload_args(*arrays, device=device) as pointers:
        passed = iter(pointers)
        arguments = [
            next(passed) if kind in shapes else [-2.0, 0, 0, 0, 0] if kind == "H" else float(kind) for kind in form
        ]
        function(*arguments, **options)
        results = called_in_python(lambda: function(*arguments, **options))
    if name in ("geam", "dgmm") and not gpu:
        assert results[0] == "call"  # CBLAS lacks them; they are made from other functions in Python
    else:
        assert not results


@pytest.mark.parametrize("order", "CF")
@pytest.mark.parametrize("name", ["gemm_batched", "trsm_batched"])
def test_a_usual_call_with_lists_of_matrices_runs_no_code_in_python(device: str, name: str, order: Any) -> None:
    function: Any = getattr(blas, name)
    arrays = [np.array(np.eye(4), order=order) for _ in range(5)]
    with offload_args(*arrays, device=device) as (dA, *pointers):
        lists = ([dA], pointers[:2], pointers[2:]) if name == "gemm_batched" else ([dA], pointers)
        arguments = (2.0, *lists[:2], 0.0, *lists[2:])[: 5 if name == "gemm_batched" else 3]
        function(*arguments)
        actual = called_in_python(lambda: function(*arguments))
    # CBLAS has no call for a batch; its replacement is in Python.
    assert actual == ([] if Device(device).is_gpu else ["call"])
    np.testing.assert_array_equal(arrays[-1], (2 if name == "gemm_batched" else 4) * np.eye(4))


@pytest.mark.parametrize("name", PLANNED)
def test_every_function_has_its_name_signature_and_module(name: str) -> None:
    function = getattr(blas, name)
    for parameter in inspect.signature(function).parameters.values():
        assert parameter.kind is (
            parameter.KEYWORD_ONLY
            if parameter.default is not parameter.empty or parameter.name in ("kl", "ku")
            else parameter.POSITIONAL_OR_KEYWORD
        )
    assert function.__name__ == name and function.__module__.startswith("offload_args.blas.")
    assert pickle.loads(pickle.dumps(function)) is function


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda function: function.__name__)
def test_they_are_functions_of_the_package_with_names_signatures_and_docs(function: Any) -> None:
    parameters = inspect.signature(function).parameters
    assert [name for name, parameter in parameters.items() if parameter.kind is parameter.KEYWORD_ONLY] == (
        {blas.gemv: ["trans"], blas.gemm: ["trans_a", "trans_b", "panels", "devices"]}.get(
            function, ["trans_a", "trans_b"]
        )
    )
    defaults = {p.name: p.default for p in parameters.values() if p.kind is p.KEYWORD_ONLY}
    assert all(default == {"devices": None, "panels": True}.get(name, "N") for name, default in defaults.items())
    assert function.__module__.startswith("offload_args.blas.")
    signature, blank, sentence = function.__doc__.split("\n", 2)
    assert signature.startswith(f"{function.__name__}(") and not blank and sentence.strip().startswith("Set ")
    assert pickle.loads(pickle.dumps(function)) is function


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda function: function.__name__)
def test_wrong_arguments_are_refused_and_the_result_is_as_it_was(device: str, function: Any) -> None:
    arrays = operands(function)
    option = "trans" if function is blas.gemv else "trans_b"
    with offload_args(*arrays, device=device) as (dA, dB, dC):
        for arguments, named, error in [
            ((), {}, TypeError),
            ((1.0, dA, dB, 0.0), {}, TypeError),
            ((1.0, dA, dB, 0.0, dC, "N"), {}, TypeError),
            ((1.0, dA, dB, 0.0, dC), {"transpose": "T"}, TypeError),
            ((1.0, dA, dB, 0.0, dC), {option: "X"}, ArgumentError),
            ((1.0, dA, dB, 0.0, dC), {option: "TT"}, ArgumentError),
            ((1.0, dA, dB, 0.0, dC), {option: 1}, ArgumentError),
            ((1.0, dA, dB, 0.0, dC), {option: []}, ArgumentError),
            (("1", dA, dB, 0.0, dC), {}, TypeError),
            ((1.0, dA, dB, 1j, dC), {}, TypeError),
            ((1e300, dA, dB, 0.0, dC), {}, OverflowError),
            ((1.0, arrays[0], dB, 0.0, dC), {}, HostPointerError),
            ((1.0, dA, dB, 0.0, None), {}, HostPointerError),
        ]:
            with pytest.raises(error):
                function(*arguments, **named)
    np.testing.assert_array_equal(arrays[2], 1)


class Unconvertible:
    def __float__(self) -> float:
        raise ZeroDivisionError("this number's own")


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda function: function.__name__)
def test_the_failure_of_a_numbers_own_conversion_is_raised(device: str, function: Any) -> None:
    arrays = operands(function)
    with offload_args(*arrays, device=device) as (dA, dB, dC):
        for alpha, beta in ((Unconvertible(), 0.0), (1.0, Unconvertible())):
            with pytest.raises(ZeroDivisionError, match="this number's own"):
                function(alpha, dA, dB, beta, dC)
    np.testing.assert_array_equal(arrays[2], 1)


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda function: function.__name__)
def test_numbers_on_the_device_and_in_python_may_be_mixed(device: str, function: Any) -> None:
    arrays, alpha = operands(function), np.full((), 2, np.float32)
    with offload_args(*arrays, In(alpha), device=device) as (dA, dB, dC, dalpha):
        function(dalpha, dA, dB, 1.0, dC)
    np.testing.assert_array_equal(arrays[2], 7)


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda function: function.__name__)
def test_one_function_serves_devices_and_dtypes_in_turns(device: str, function: Any) -> None:
    for _ in range(2):
        for on in (device, "host"):
            for dtype in (np.float32, np.complex128):
                arrays = operands(function, dtype)
                with offload_args(*arrays, device=on) as (dA, dB, dC):
                    function(2.0, dA, dB, 0.0, dC, **{"trans" if function is blas.gemv else "trans_a": "C"})
                np.testing.assert_array_equal(arrays[2], 6)
