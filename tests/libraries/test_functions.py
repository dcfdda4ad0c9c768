"""The functions of vendor libraries as Python objects, made on first use, which behave like a module's functions."""

from __future__ import annotations

import copy
import gc
import importlib
import inspect
import pickle
import re
import subprocess
import sys
import weakref
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from types import BuiltinFunctionType, ModuleType
from typing import Any

import numpy as np
import pytest

from offload_args import blas, cblas, cublas, cufft, cusolver, lapack, libraries, linalg, offload_args, rocblas
from offload_args.errors import (
    ArgumentTypeError,
    DTypeError,
    ExtentError,
    HostPointerError,
    LibraryError,
    SizeOverflowError,
    StalePointerError,
    WrongDeviceError,
)

MODULES = [importlib.import_module(f"offload_args.{name}") for name in libraries.NAMES]


@pytest.mark.later("offload_args.cublas", "offload_args.rocblas")
@pytest.mark.parametrize("module", MODULES)
def test_every_function_is_shown_documented_and_pickled_as_one_of_its_module(module: ModuleType) -> None:
    names = [name for name in dir(module) if isinstance(getattr(module, name), BuiltinFunctionType) and name[0] != "_"]
    assert len(names) > 3
    assert {*names} <= {*module.__all__}
    for name in names:
        function = getattr(module, name)
        assert (function.__name__, function.__qualname__, function.__module__) == (name, name, module.__name__)
        assert inspect.signature(function)
        assert inspect.getdoc(function)
        assert pickle.loads(pickle.dumps(function)) is copy.deepcopy(function) is function
        assert repr(function) == f"<built-in function {name}>"


def test_a_function_is_made_when_it_is_first_asked_for() -> None:
    code = """
import sys
from offload_args import cblas
assert "sgemv" in dir(cblas) and "sgemv" not in vars(cblas)
from offload_args.cblas import sgemv
assert vars(cblas)["sgemv"] is sgemv is cblas.sgemv
assert "cffi" not in sys.modules and "offload_args._explain" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=300)


def test_threads_that_ask_at_once_get_the_same_function() -> None:
    vars(cblas).pop("drotm", None)
    barrier = Barrier(8)

    def ask(_: int) -> Any:
        barrier.wait()
        return cblas.drotm

    with ThreadPoolExecutor(8) as threads:
        assert len({*map(id, threads.map(ask, range(8)))}) == 1


@pytest.mark.parametrize(
    ("module", "name", "own"),
    [
        (cblas, "cblas_dgemv", "cblas.dgemv; cblas.raw.cblas_dgemv has the vendor's arguments"),
        (cblas, "CblasRowMajor", "cblas.RowMajor"),
        (cublas, "cublasDgemv_v2", "cublas.dgemv; cublas.raw.cublasDgemv_v2 has the vendor's arguments"),
        (cublas, "CUBLAS_OP_T", "cublas.OP_T"),
        (cusolver, "cusolverDnDpotrf", "cusolver.dpotrf; cusolver.raw.cusolverDnDpotrf has the vendor's arguments"),
        (cufft, "cufftMakePlanMany64", "cufft.make_plan_many64; cufft.raw.cufftMakePlanMany64 has the vendor's argum"),
        (rocblas, "rocblas_dgemv", "rocblas.dgemv; rocblas.raw.rocblas_dgemv has the vendor's arguments"),
    ],
)
def test_a_name_of_the_vendors_manual_is_answered_with_the_name_here(module: ModuleType, name: str, own: str) -> None:
    with pytest.raises(AttributeError, match=rf"^module 'offload_args\.\w+' has no attribute '{name}'; use {own}"):
        getattr(module, name)
    assert hasattr(module, own.partition(".")[2].partition(";")[0])


@pytest.mark.parametrize("name", ["sgemw", "", "sgemv\0x", "__path__", "Sgemv"])
def test_a_function_that_the_library_lacks_is_no_attribute(name: str) -> None:
    with pytest.raises(AttributeError, match=r"module 'offload_args\.cblas' has no attribute"):
        getattr(cblas, name)


@pytest.mark.parametrize(
    ("module", "name", "likely"),
    [
        (cblas, "sgemvv", "sgemv"),
        (cblas, "NoTran", "NoTrans"),
        (cublas, "OP_TRANS", ""),
        (blas, "gemmv", "gemv or gemm"),
        (lapack, "getr", "getrs or getri or getrf"),
        (blas, "__wrapped_", ""),
    ],
)
def test_a_misspelt_name_is_answered_with_the_names_like_it(module: ModuleType, name: str, likely: str) -> None:
    text = f"; did you mean {likely}" if likely else "$"
    with pytest.raises(AttributeError, match=rf"^module 'offload_args\.\w+' has no attribute '{name}'{text}"):
        getattr(module, name)


@pytest.mark.parametrize(
    ("module", "name"),
    [(linalg, "eig"), (linalg, "norm"), (linalg, "pinv"), (linalg, "cond"), (linalg, "dot"), (linalg, "outer"),
     (linalg, "lu_factor"), (linalg, "cho_factor"), (linalg, "solve_triangular"), (blas, "matmul"), (blas, "norm"),
     (blas, "add"), (blas, "sum"), (blas, "solve"), (blas, "outer"), (lapack, "solve"), (lapack, "inv"),
     (lapack, "lstsq"), (lapack, "svd"), (lapack, "eigh"), (lapack, "eig"), (lapack, "det")],
)  # fmt: skip
def test_a_name_of_numpy_is_answered_with_the_functions_here(module: ModuleType, name: str) -> None:
    with pytest.raises(AttributeError, match=rf"has no attribute '{name}'; use ") as caught:
        getattr(module, name)
    remedies = re.findall(r"\b(blas|lapack|linalg|kernels)\.(\w+)", str(caught.value).partition("; use ")[2])
    assert remedies
    for other, function in remedies:
        assert callable(getattr(importlib.import_module(f"offload_args.{other}"), function))


def test_a_misspelt_keyword_is_answered_with_the_one_like_it() -> None:
    message = r"^cblas\.dscal\(\) got an unexpected keyword argument 'inxx'; did you mean incx\?; write "
    with pytest.raises(TypeError, match=message):
        cblas.dscal(4, 2.0, None, inxx=1)  # type: ignore[call-arg,arg-type]


def test_a_function_without_references_is_freed() -> None:
    # This function is not used by the portable BLAS, which keeps the functions that it has called.
    function = vars(cblas).pop("dsdot", None) or cblas.__getattr__("dsdot")
    vars(cblas).pop("dsdot", None)
    gone = weakref.ref(function)
    del function
    gc.collect()
    assert gone() is None
    assert cblas.dsdot.__name__ == "dsdot"


def test_arguments_may_be_named() -> None:
    x = np.arange(4.0)
    with offload_args(x, device="host") as (dx,):
        cblas.dscal(4, 2.0, incx=1, x=dx)
        cblas.dscal(alpha=0.5, n=4, incx=1, x=dx)
        assert cblas.ddot(4, dx, 1, incy=1, y=dx, result=None) == 14
        assert cblas.dasum(n=4, x=dx, incx=1) == 6


@pytest.mark.parametrize(
    ("arguments", "keywords", "text"),
    [
        ((1, 2.0), {}, "() missing 2 required positional arguments: 'x' and 'incx'"),
        ((1, 2.0), {"incx": 1}, "() missing 1 required positional argument: 'x'"),
        ((1, 2, 3, 4, 5), {}, "() takes 4 positional arguments but 5 were given"),
        ((1, 2, 3, 4), {"n": 1}, "() got multiple values for argument 'n'"),
        ((1, 2, 3, 4), {"m": 1}, "() got an unexpected keyword argument 'm'"),
        ((1, 2, 3, 4), {"handle": 1}, "() got an unexpected keyword argument 'handle'"),
        ((1, 2, 3, 4), {"result": 1}, "() got an unexpected keyword argument 'result'"),
        ((), {"n\0": 1}, "() got an unexpected keyword argument 'n\\x00'; did you mean n?"),
    ],
)
def test_arguments_that_do_not_fit_are_named_as_pythons_own_functions_do(
    arguments: tuple[Any, ...], keywords: dict[str, Any], text: str
) -> None:
    with pytest.raises(TypeError) as raised:
        cblas.dscal(*arguments, **keywords)
    told = str(raised.value).replace("\0", "\\x00")
    assert told == f"cblas.dscal{text}; write cblas.dscal(n, alpha, x, incx)"


class Index:
    def __init__(self, value: Any) -> None:
        self.value = value

    def __index__(self) -> Any:
        if isinstance(self.value, BaseException):
            raise self.value
        return self.value


class Number:
    def __init__(self, value: Any) -> None:
        self.value = value

    def __float__(self) -> Any:
        if isinstance(self.value, BaseException):
            raise self.value
        return float(self.value)


class Complex:
    def __complex__(self) -> complex:
        return 2j


def test_numbers_of_any_kind_are_read() -> None:
    x, z = np.ones(4), np.ones(2, np.complex64)
    with offload_args(x, z, device="host") as (dx, dz):
        for n in (4, np.int8(4), np.uint64(4), Index(4)):
            for alpha in (2, 2.0, np.float32(2), np.float16(2), np.array(2.0), Number(2), Index(2), True, False + 1):
                cblas.dscal(n, alpha, dx, 1)
                cblas.dscal(n, 1 / float(alpha), dx, 1)
        for alpha in (2, 2.0, 2j, np.complex64(2), np.complex128(2), np.float64(2), Number(2), Complex()):
            cblas.cscal(2, alpha, dz, 1)
    np.testing.assert_array_equal(x, np.ones(4))
    np.testing.assert_array_equal(z, np.full(2, -256))


def test_an_exception_while_an_argument_is_read_is_raised() -> None:
    x = np.ones(4)
    with offload_args(x, device="host") as (dx,):
        for error in (KeyboardInterrupt(), ZeroDivisionError(), MemoryError()):
            with pytest.raises(type(error)):
                cblas.dscal(Index(error), 2.0, dx, 1)
            with pytest.raises(type(error)):
                cblas.dscal(4, Number(error), dx, 1)
        with pytest.raises(ArgumentTypeError, match="cblas.dscal: n needs an integer"):
            cblas.dscal(Index(TypeError()), 2.0, dx, 1)
        with pytest.raises(ArgumentTypeError, match="cblas.dscal: alpha needs a real number"):
            cblas.dscal(4, Number(ValueError()), dx, 1)
        with pytest.raises(SizeOverflowError, match="cblas.dscal: alpha needs a real number"):
            cblas.dscal(4, 10**400, dx, 1)
    np.testing.assert_array_equal(x, np.ones(4))


@pytest.mark.parametrize("place", [0, 1, 2])
def test_an_integer_of_more_digits_than_python_writes_is_refused_by_name(place: int) -> None:
    wrong = ("n", SizeOverflowError), ("alpha", SizeOverflowError), ("x", HostPointerError)
    with offload_args(np.ones(4), device="host") as (dx,):
        arguments: list[Any] = [4, 2.0, dx, 1]
        arguments[place] = 10**5000
        name, error = wrong[place]
        with pytest.raises(error, match=f"cblas.dscal: {name} needs .*, got an int of 16610 bits"):
            cblas.dscal(*arguments)


@pytest.mark.filterwarnings("ignore:Casting complex")
@pytest.mark.parametrize("alpha", [1 + 2j, np.complex64(1 + 2j), np.complex128(1 + 2j), np.clongdouble(1 + 2j)])
def test_no_imaginary_part_is_lost(alpha: Any) -> None:
    x, two = np.ones(2), np.array([2.0])
    with offload_args(x, two, device="sim:0") as (dx, d2):
        with pytest.raises(ArgumentTypeError, match="cblas.dscal: alpha needs a real number"):
            cblas.dscal(2, alpha, dx, 1)
        with pytest.raises(ArgumentTypeError, match="cblas.dgemv: alpha needs a real number"):
            cblas.dgemv(cblas.ColMajor, cblas.NoTrans, 1, 1, alpha, dx, 1, dx[:1], 1, d2, dx[1:], 1)
        with pytest.raises(ArgumentTypeError, match=r"cblas.drotm: P\[4\] needs a real number"):
            cblas.drotm(1, dx, 1, dx[1:], 1, [0, 0, 0, 0, alpha])
    np.testing.assert_array_equal(x, [1, 1])


@pytest.mark.parametrize("wrong", ["2", None, [2.0], 10**400])
def test_the_wrong_one_of_several_numbers_is_named(wrong: Any) -> None:
    x, y = np.ones(1), np.ones(1)
    with offload_args(x, y, device="host") as (dx, dy):
        with pytest.raises((ArgumentTypeError, SizeOverflowError), match=r"cblas.drotm: P\[1\] needs a real number"):
            cblas.drotm(1, dx, 1, dy, 1, (0.0, wrong, 0.0, 0.0, 0.0))


class Fickle:
    """An object that is a number only when it is read a second time, for the error message."""

    def __init__(self) -> None:
        self.asked = 0

    def __float__(self) -> float:
        self.asked += 1
        if self.asked == 1:
            raise TypeError("the first time")
        return 1.0


def test_an_argument_that_is_right_when_it_is_looked_at_again_raises_its_own_error() -> None:
    with offload_args(np.ones(4), device="host") as (dx,):
        with pytest.raises(TypeError, match="the first time"):
            cblas.dscal(4, Fickle(), dx, 1)


@pytest.mark.parametrize("value", ["1", b"1", None, [1.0]])
def test_a_complex_scalar_is_no_text(value: object) -> None:
    with offload_args(np.ones(4, np.complex64), device="host") as (dz,):
        with pytest.raises(ArgumentTypeError, match="cblas.cscal: alpha needs a number or a 0-d DevicePtr"):
            cblas.cscal(4, value, dz, 1)


@pytest.mark.parametrize("device", ["host", "sim:0"])
def test_the_numbers_of_a_plane_rotation_come_back_as_a_tuple(device: str) -> None:
    np.testing.assert_allclose(cblas.drotg(3.0, 4), (5, 5 / 3, 0.6, 0.8))
    np.testing.assert_allclose(cblas.crotg(3, 4j)[2], 0.6, rtol=1e-6)
    assert cblas.drotg(3.0, 4.0, None, s=None) == cblas.drotg(3.0, 4.0)
    d1, d2, x1, param = cblas.drotmg(1.0, 2.0, 3.0, 4.0)
    assert [type(value) for value in (d1, d2, x1)] == [float] * 3
    assert param == (1.0, 0.375, 0.0, 0.0, 0.75)  # because of the flag, two of them are not used
    x, y = np.array([3.0]), np.array([4.0])
    with offload_args(x, y, device=device) as (dx, dy):
        cblas.drotm(1, dx, 1, dy, 1, param)
        for wrong in (param[:4], (*param, 0), "abcde", 1.0, None):
            with pytest.raises(ArgumentTypeError, match="cblas.drotm: P needs a sequence of 5 numbers"):
                cblas.drotm(1, dx, 1, dy, 1, wrong)
    np.testing.assert_allclose((x[0], y[0]), (x1, 0), atol=1e-15)
    with pytest.raises(HostPointerError, match=r"cblas\.drotg: c needs None \(its value is returned\)"):
        cblas.drotg(3.0, 4.0, 1.0, None)


def test_the_numbers_of_a_plane_rotation_may_all_be_on_the_device() -> None:
    ab, cs = np.array([3.0, 4.0]), np.zeros(2)
    with offload_args(ab, cs, device="sim:0") as (da, dc):
        assert cblas.drotg(da[:1], da[1:], dc[:1], dc[1:]) is None
        with pytest.raises(HostPointerError, match=r"cblas\.drotg: c needs a DevicePtr\[float64\], as other arguments"):
            cblas.drotg(da[:1], da[1:])
        with pytest.raises(HostPointerError, match=r"cblas\.drotg: b needs a DevicePtr\[float64\], as other arguments"):
            cblas.drotg(da[:1], 4.0, dc[:1], dc[1:])
        with pytest.raises(ExtentError, match="cblas.drotg: a needs a pointer to 1 element, got"):
            cblas.drotg(da, da[1:], dc[:1], dc[1:])
    np.testing.assert_allclose([*ab, *cs], (5, 5 / 3, 0.6, 0.8))


def test_a_host_scalar_beside_one_on_the_device_is_sent_there() -> None:
    x, y, two = np.ones(3), np.ones(3), np.array(2.0)
    A = np.ones((3, 3))
    with offload_args(A, x, y, two, device="sim:0") as (dA, dx, dy, d2):
        cblas.dgemv(cblas.ColMajor, cblas.NoTrans, 3, 3, d2, dA, 3, dx, 1, 0, dy, 1)
        cblas.dgemv(cblas.ColMajor, cblas.NoTrans, 3, 3, np.float32(1), dA, 3, dx, 1, d2, dy, 1)
        with pytest.raises(DTypeError, match=r"cblas\.dgemv: x needs a DevicePtr\[float64\]"):
            with offload_args(np.ones(3, np.float32), device="sim:0") as (single,):
                cblas.dgemv(cblas.ColMajor, cblas.NoTrans, 3, 3, d2, dA, 3, single, 1, 0.0, dy, 1)
        with pytest.raises(ArgumentTypeError, match=r"cblas\.dgemv: beta needs a real number"):
            cblas.dgemv(cblas.ColMajor, cblas.NoTrans, 3, 3, d2, dA, 3, dx, 1, "0", dy, 1)
    np.testing.assert_array_equal(y, np.full(3, 15))


def test_a_pointer_of_a_closed_region_is_named_beside_a_host_scalar() -> None:
    with offload_args(np.ones(4), np.ones(1), device="sim:0") as (dead, dead_alpha):
        pass
    with offload_args(np.ones(4), np.ones(1), device="sim:0") as (dx, d2):
        with pytest.raises(StalePointerError, match="cblas.dgemv: alpha is a pointer whose region has ended"):
            cblas.dgemv(cblas.ColMajor, cblas.NoTrans, 1, 1, dead_alpha, dx, 1, dx[1:], 1, 0.0, dx[2:], 1)
        with pytest.raises(StalePointerError, match="cblas.dgemv: A is a pointer whose region has ended"):
            cblas.dgemv(cblas.ColMajor, cblas.NoTrans, 1, 1, 1.0, dead, 1, dx[1:], 1, d2, dx[2:], 1)


@pytest.mark.parametrize("handle", [1.5, "handle", 0, True, object(), -1, 2**64])
def test_an_object_that_is_no_handle_is_refused(handle: object) -> None:
    with offload_args(np.ones(4), device="host") as (dx,):
        with pytest.raises(
            ArgumentTypeError, match="cublas.dscal: handle needs an object that cublas made, a handle of"
        ):
            cublas.dscal(4, 2.0, dx, 1, handle=handle)


def test_no_handle_is_the_regions_own() -> None:
    with offload_args(np.ones(4), device="host") as (dx,):
        with pytest.raises((WrongDeviceError, LibraryError), match="cublas"):
            cublas.dscal(4, 2.0, dx, 1, handle=None)


@pytest.mark.parametrize(
    ("dtype", "value"), [(np.float32, 1e300), (np.float32, -(10**39)), (np.complex64, 1e39j), (np.complex64, 1e39)]
)
def test_a_scalar_that_would_be_rounded_to_infinity_is_refused(device: str, dtype: Any, value: complex) -> None:
    x = np.ones(3, dtype)
    with offload_args(x, device=device) as (dx,):
        with pytest.raises(SizeOverflowError, match=r"alpha needs .* holds no number as large; pass numpy.inf"):
            blas.scal(value, dx)
        blas.scal(float(np.finfo(np.float32).max), dx)
    np.testing.assert_array_equal(x, np.full(3, np.finfo(np.float32).max, dtype))
    with offload_args(x, device=device) as (dx,):
        blas.scal(np.inf, dx)
    assert np.all(np.isinf(x.real))
