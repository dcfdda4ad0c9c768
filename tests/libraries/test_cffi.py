"""cffi's roles: the vendors' exact signatures, pointers for a user's own cffi library, and call() on its functions."""

from __future__ import annotations

import contextlib
import ctypes
import io
import subprocess
import sysconfig
from importlib.machinery import ExtensionFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
from typing import Any

import cffi
import numpy as np
import pytest

from helpers.processes import python
from offload_args import Device, In, Out, _core, call, cblas, cublas, cudnn, embedding, libraries, offload_args, testing
from offload_args._raw import Raw
from offload_args.errors import (
    ArgumentTypeError,
    DTypeError,
    ExtentError,
    HostPointerError,
    LibraryError,
    SizeOverflowError,
    StalePointerError,
)

CPUS = pytest.mark.parametrize("device", ["host", "sim:0"])
raw = cblas.raw

# -- the vendor's own signatures --------------------------------------------------------------------------------------


@pytest.mark.parametrize("library", [cblas, cublas])
def test_every_bound_function_is_there_under_its_own_name(library: Any) -> None:
    assert {*library.raw._routines} <= {*dir(library.raw)}
    others = {name for name in library.__all__ if isinstance(getattr(library, name), (int, type))}
    with_a_stream = {name for name in library.__all__ if name.endswith("_async")}  # raw takes the stream
    assert {*library.raw._routines.values()} == {*library.__all__} - {"raw"} - others - with_a_stream
    for name in dir(library.raw):
        assert getattr(library.raw, name) is getattr(library.raw, name)


def test_functions_with_the_callers_stream_or_a_struct_of_addresses_are_not_called_through_others() -> None:
    checked = cudnn.raw._routines
    assert checked["cudnnActivationForward"] == "activation_forward"
    assert not checked.keys() & {"cudnnCausalConv1dForward", "cudnnGnnAggSimpleForward", "cudnnGnnMhaGatBackward"}


def test_names_types_and_constants_are_the_headers() -> None:
    from offload_args.cublas import raw as vendor

    assert vendor is cublas.raw
    assert vendor.cublasSgemv.__name__ == "cublasSgemv_v2"
    assert "cublasSgemv_v2(struct cublasContext *, cublasOperation_t, int, int, float *" in vendor.cublasSgemv.__doc__
    assert "int64_t" in vendor.cublasSgemv_v2_64.__doc__
    assert (vendor.CUBLAS_OP_T, raw.CblasColMajor) == (cublas.OP_T, cblas.ColMajor)
    assert vendor.ffi.sizeof("cuDoubleComplex") == 16
    for name in ("cublasSgemw", "cublasHandle_t", "CUBLAS_OP_X", "__path__", ""):
        with pytest.raises(AttributeError):
            getattr(vendor, name)


def test_plain_pointers_go_to_the_vendors_function_as_they_are() -> None:
    x, y, z = np.arange(4.0), np.ones(4), np.array([1 + 2j, 3])
    px, py, pz = (raw.ffi.from_buffer("double[]", array) for array in (x, y, z.view(float)))
    assert raw.cblas_ddot(4, px, 1, py, 1) == 6
    raw.cblas_daxpy(4, 2.0, px, 1, py, 1)
    np.testing.assert_array_equal(y, [1, 3, 5, 7])
    result = raw.ffi.new("double[2]")
    raw.cblas_zdotu_sub(2, pz, 1, pz, 1, result)
    assert [*result] == [6, 4]
    with pytest.raises(ArgumentTypeError, match="cblas.raw.cblas_ddot: needs 5 arguments, got 4: double cblas_ddot"):
        raw.cblas_ddot(4, px, 1, py)
    with pytest.raises(TypeError):
        raw.cblas_ddot(4, x, 1, py, 1)


@CPUS
def test_pointers_of_a_region_are_checked_moved_and_marked(device: str) -> None:
    x, y, z = np.arange(4.0), np.ones(4), np.array([1 + 2j, 3])
    new = raw.ffi.new
    with offload_args(In(x), y, z, device=device) as (dx, dy, dz):
        raw.cblas_daxpy(4, 2.0, dx, 1, dy, 1)
        assert raw.cblas_ddot(4, dx, 1, dy, 1) == 34
        assert raw.cblas_idamax(4, dy, 1) == 3
        result = new("double[2]")
        assert raw.cblas_zdotu_sub(2, dz, 1, dz, 1, result) is None
        assert [*result] == [6, 4]
        for value in (new("double[2]", [0, 1]), [1j], [np.complex64(1j)], (1j,)):
            raw.cblas_zscal(2, value, dz, 1)
        order = raw.ffi.cast("enum CBLAS_ORDER", raw.CblasColMajor)
        raw.cblas_dgemv(order, raw.CblasNoTrans, 1, 4, 1.0, dx, 1, dx, 1, 0.0, dy[:1], 1)
        with pytest.raises(ExtentError, match=r"cblas\.daxpy: x needs 5 elements"):
            raw.cblas_daxpy(5, 2.0, dx, 1, dy, 1)
        with pytest.raises(DTypeError, match=r"cblas\.zscal: x needs a DevicePtr\[complex128\]"):
            raw.cblas_zscal(2, [1j], dx, 1)
        with pytest.raises(HostPointerError, match=r"cblas\.daxpy: x needs a DevicePtr\[float64\]"):
            raw.cblas_daxpy(4, 2.0, raw.ffi.from_buffer("double[]", np.zeros(4)), 1, dy, 1)
    np.testing.assert_array_equal(y, [14, 3, 5, 7])
    np.testing.assert_array_equal(z, [1 + 2j, 3])
    with pytest.raises(StalePointerError):
        raw.cblas_ddot(4, dx, 1, dy, 1)


@CPUS
def test_call_lends_arrays_to_a_function_of_the_vendors_signatures(device: str) -> None:
    x, y = np.arange(4.0), np.ones(4)
    with testing.counting(Device(device)) as moved:
        call(raw.cblas_daxpy, 4, 2.0, x, 1, y, 1, device=device)
    assert (moved.copies_up, moved.copies_down) == (2, 1)  # x is only read, by its role
    np.testing.assert_array_equal(y, [1, 3, 5, 7])


@CPUS
def test_numbers_of_a_rotation_are_read_from_where_c_has_them(device: str) -> None:
    a, b, c, s = (raw.ffi.new("double *", value) for value in (3, 4, 0, 0))
    raw.cblas_drotg(a, b, c, s)
    x, y = np.array([3.0]), np.array([4.0])
    d1, d2, b1 = raw.ffi.new("double *", 1), raw.ffi.new("double *", 2), raw.ffi.new("double *", 3)
    param = raw.ffi.new("double[5]")
    raw.cblas_drotmg(d1, d2, b1, 4.0, param)
    assert (d1[0], d2[0], b1[0], tuple(param)) == cblas.drotmg(1.0, 2.0, 3.0, 4.0)
    with offload_args(x, y, device=device) as (dx, dy):
        raw.cblas_drot(1, dx, 1, dy, 1, c[0], s[0])
        raw.cblas_drotm(1, dx, 1, dy, 1, param)
    expected = np.array([5.0]), np.array([0.0])
    with offload_args(*expected, device=device) as (dx, dy):
        cblas.drotm(1, dx, 1, dy, 1, tuple(param))
    np.testing.assert_allclose((x[0], y[0]), (expected[0][0], expected[1][0]), atol=1e-14)


def test_a_function_that_the_package_does_not_bind_gets_the_address(monkeypatch: pytest.MonkeyPatch) -> None:
    vendor = Raw("cblas")
    for name in ("cblas_saxpby", "cblas_daxpby"):
        monkeypatch.delitem(vendor._routines, name, raising=False)
    x, y = np.arange(4.0), np.ones(4)
    with offload_args(In(x), y, device="host") as (dx, dy):
        vendor.cblas_daxpby(4, 2.0, dx, 1, 3.0, dy, 1)
        with pytest.raises(DTypeError, match=r"cblas\.raw\.cblas_saxpby: argument 3 needs float \*"):
            vendor.cblas_saxpby(4, 2.0, dx, 1, 3.0, dy, 1)
        with pytest.raises(HostPointerError, match="cblas.raw.cblas_daxpby: argument 2 needs double, got a DevicePtr"):
            vendor.cblas_daxpby(4, dx, dx, 1, 3.0, dy, 1)
    np.testing.assert_array_equal(y, [3, 5, 7, 9])


STATUSES = """
int cublasCaxpy_v2(void) { return 0; }
int cublasCreate_v2(void **handle) { *handle = (void *)16; return 0; }
int cublasDestroy_v2(void *handle) { return handle == (void *)16 ? 0 : 7; }
"""


def test_a_status_of_the_vendor_is_raised_by_its_name(tmp_path: Path) -> None:
    source = tmp_path / "double.c"
    source.write_text(STATUSES)
    library = tmp_path / "libcublas.so"
    subprocess.run(["cc", "-shared", "-fPIC", source, "-o", library], check=True)
    code = """
from offload_args import cublas, libraries
raw = cublas.raw
handle = raw.ffi.new("cublasHandle_t *")
assert libraries.loaded("cublas") is None
print(raw.cublasCreate(handle), raw.cublasDestroy(handle[0]))
for call in (lambda: raw.cublasDestroy(raw.ffi.NULL), lambda: raw.cublasSgemv(*[0] * 4, *[raw.ffi.NULL] * 8)):
    try:
        call()
    except Exception as error:
        print(type(error).__name__, error)
"""
    ran = python(code, OFFLOAD_ARGS_CUBLAS=str(library))
    assert ran.stderr == ""
    assert ran.stdout.splitlines()[:2] == [
        "0 0",
        "LibraryError cublas.raw.cublasDestroy_v2: the library returned CUBLAS_STATUS_INVALID_VALUE (7)",
    ]


def test_a_handle_of_the_callers_own_comes_first(cuda: str) -> None:
    vendor = cublas.raw
    handle = vendor.ffi.new("cublasHandle_t *")
    A, x, y = np.ones((3, 3), np.float32), np.arange(3, dtype=np.float32), np.zeros(3, np.float32)
    with offload_args(A, x, y, device=cuda) as (dA, dx, dy):
        vendor.cublasCreate(handle)
        alpha, beta = vendor.ffi.new("float *", 2), [0.0]
        for own in (None, handle[0]):
            vendor.cublasSgemv(own, vendor.CUBLAS_OP_N, 3, 3, alpha, dA, 3, dx, 1, beta, dy, 1)
        result = vendor.ffi.new("float *")
        assert vendor.cublasSdot(handle[0], 3, dx, 1, dx, 1, result) == 0
        assert result[0] == 5
        vendor.cublasDestroy(handle[0])
    np.testing.assert_array_equal(y, [6, 6, 6])


class Recorder:
    """A stand-in for a library's module, which notes the calls of its functions."""

    def __init__(self) -> None:
        self.calls: list[Any] = []

    def __getattr__(self, name: str) -> Any:
        def function(*arguments: Any, **keywords: Any) -> Any:
            self.calls.append((name, arguments, keywords))
            return 1 + 2j if name == "cdotc" else 7 if name == "isamax" else None

        return function


def test_arguments_in_the_vendors_order_become_those_of_the_module(monkeypatch: pytest.MonkeyPatch) -> None:
    vendor, recorder = cublas.raw, Recorder()
    new = vendor.ffi.new
    monkeypatch.setattr(vendor, "functions", recorder)
    with offload_args(np.ones(4), device="host") as (dx,):
        for handle in (None, 0, vendor.ffi.NULL):
            assert vendor.cublasSgemv(handle, 1, 2, 3, new("float *", 2), dx, 5, dx, 6, [0.5], dx, 7) == 0
        handle = vendor.ffi.cast("cublasHandle_t", 4096)
        vendor.cublasCgemv_v2_64(handle, 1, 2, 3, new("cuComplex *", (1, 2)), dx, 5, dx, 6, dx, dx, 7)
        place, index = new("cuComplex *"), new("int64_t *")
        vendor.cublasCdotc(4096, 4, dx, 1, dx, 1, place)
        vendor.cublasIsamax_v2_64(None, 4, dx, 1, index)
        vendor.cublasSnrm2(None, 4, dx, 1, dx)
        vendor.cublasSrotm(None, 4, dx, 1, dx, 1, new("float[5]", list(range(5))))
    host = ("sgemv", (1, 2, 3, 2.0, dx, 5, dx, 6, 0.5, dx, 7), {})
    assert recorder.calls == [
        *[host] * 3,
        ("cgemv", (1, 2, 3, 1 + 2j, dx, 5, dx, 6, dx, dx, 7), {"handle": 4096}),
        ("cdotc", (4, dx, 1, dx, 1), {"handle": 4096}),
        ("isamax", (4, dx, 1), {}),
        ("snrm2", (4, dx, 1), {"result": dx}),
        ("srotm", (4, dx, 1, dx, 1, (0, 1, 2, 3, 4)), {}),
    ]
    assert (place.x, place.y, index[0]) == (1, 2, 7)


def test_integers_are_as_wide_as_those_of_the_library_that_is_loaded() -> None:
    libraries.load("cblas")
    bits = _core.library_integer_bits("cblas")
    assert bits in (32, 64)
    (size,) = {raw.ffi.sizeof(raw.function_type("cblas_ddot").args[0])}
    assert 8 * size == bits
    assert _core.library_integer_bits("cublas") in (0, 32)


@pytest.mark.parametrize(("library", "symbol"), [("cblas", "cblas_elephant"), ("elephant", "cblas_ddot")])
def test_a_function_that_the_library_does_not_have_is_named(library: str, symbol: str) -> None:
    with pytest.raises((LibraryError, ValueError), match="elephant"):
        _core.library_address(library, symbol)


# -- libraries of the user's own --------------------------------------------------------------------------------------
DECLARED = "void scale_add(int n, float a, const float *x, float *y); double total(const double *x, int n);"
SOURCE = """
void scale_add(int n, float a, const float *x, float *y) { for (int i = 0; i < n; i++) y[i] += a * x[i]; }
double total(const double *x, int n) { double sum = 0; for (int i = 0; i < n; i++) sum += x[i]; return sum; }
"""


@pytest.fixture(scope="module")
def in_abi_mode(tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Any]:
    folder = tmp_path_factory.mktemp("abi")
    (folder / "mine.c").write_text(SOURCE)
    subprocess.run(["cc", "-shared", "-fPIC", "mine.c", "-o", "libmine.so"], cwd=folder, check=True)
    ffi = cffi.FFI()
    ffi.cdef(DECLARED)
    return ffi, ffi.dlopen(str(folder / "libmine.so"))


@pytest.fixture(scope="module")
def in_api_mode(tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Any]:
    folder = tmp_path_factory.mktemp("api")
    ffi = cffi.FFI()
    ffi.cdef(DECLARED)
    ffi.set_source("mine", SOURCE)
    with contextlib.redirect_stdout(io.StringIO()):
        ffi.emit_c_code(str(folder / "mine.c"))
    built = folder / f"mine{sysconfig.get_config_var('EXT_SUFFIX')}"
    include = [f"-I{sysconfig.get_path(name)}" for name in ("include", "platinclude")]
    subprocess.run(["cc", "-shared", "-fPIC", *include, "mine.c", "-o", built], cwd=folder, check=True)
    spec = spec_from_loader("mine", ExtensionFileLoader("mine", str(built)))
    assert spec is not None and spec.loader is not None
    module: Any = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.ffi, module.lib


@pytest.fixture(params=["in_abi_mode", "in_api_mode"])
def mine(request: pytest.FixtureRequest) -> tuple[Any, Any]:
    """A user's own library: its ffi and its functions."""
    built: tuple[Any, Any] = request.getfixturevalue(request.param)
    return built


@CPUS
def test_call_lends_arrays_to_a_function_of_a_cffi_library(mine: tuple[Any, Any], device: str) -> None:
    _, lib = mine
    x, y = np.arange(4, dtype=np.float32), np.ones(4, np.float32)
    with testing.counting(Device(device)) as moved:
        call(lib.scale_add, 4, 2.0, In(x), y, device=device)
    assert (moved.copies_up, moved.copies_down) == (2, 1)
    np.testing.assert_array_equal(y, [1, 3, 5, 7])
    assert call(lib.total, x.astype(float), 4, device=device) == 6


@CPUS
def test_an_array_that_does_not_fit_is_refused_before_anything_moves(mine: tuple[Any, Any], device: str) -> None:
    _, lib = mine
    x, y = np.arange(4.0), np.ones(4, np.float32)
    with testing.counting(Device(device)) as moved:
        with pytest.raises(DTypeError, match=r"argument 4 needs float \*, got a DevicePtr\[float64\]"):
            call(lib.scale_add, 4, 2.0, y, x, device=device)
        with pytest.raises(HostPointerError, match=r"argument 1 needs int, got a DevicePtr\[float32\]"):
            call(lib.scale_add, y, 2.0, y, y, device=device)
    assert (moved.copies_up, moved.copies_down) == (0, 0)
    with pytest.raises(TypeError):
        call(lib.scale_add, 4, 2.0, y, device=device)
    np.testing.assert_array_equal(y, np.ones(4))


@CPUS
def test_a_pointer_of_a_region_is_passed_as_cffis_own(mine: tuple[Any, Any], device: str) -> None:
    ffi, lib = mine
    x, y = np.arange(4, dtype=np.float32), np.ones(4, np.float32)
    with offload_args(In(x), y, device=device) as (dx, dy):
        cblas.sscal(4, 0.5, dy, 1)
        lib.scale_add(2, 1.0, dx[2:].cdata(ffi), dy[2:].cdata(ffi, "float *"))
        cblas.sscal(4, 2.0, dy, 1)
        assert int(ffi.cast("uintptr_t", dy.cdata(ffi))) == dy.address
    np.testing.assert_array_equal(y, [1, 1, 5, 7])
    with pytest.raises(StalePointerError):
        dy.cdata(ffi)


def test_a_pointer_has_its_dtypes_own_c_type() -> None:
    ffi = cffi.FFI()
    expected = {
        bool: "_Bool *", np.int8: "int8_t *", np.int16: "int16_t *", np.int32: "int32_t *", np.int64: "int64_t *",
        np.uint8: "uint8_t *", np.uint16: "uint16_t *", np.uint32: "uint32_t *", np.uint64: "uint64_t *",
        np.float16: "uint16_t *", np.float32: "float *", np.float64: "double *",
    }  # fmt: skip
    for dtype, c_type in expected.items():
        with offload_args(np.ones(2, dtype), device="host") as (dx,):
            assert ffi.typeof(dx.cdata(ffi)).cname == c_type
            assert ffi.typeof(dx.cdata(ffi, "void *")).cname == "void *"
            with pytest.raises(DTypeError, match=r"DevicePtr\.cdata: c_type needs char \* \*"):
                dx.cdata(ffi, "char **")
    for dtype, c_type in {np.complex64: "float", np.complex128: "double"}.items():
        with offload_args(np.full(2, 1 + 2j, dtype), device="host") as (dz,):
            assert ffi.typeof(dz.cdata(ffi)).cname == f"{c_type} _Complex *" or "complex" in str(dz.cdata(ffi))
            pair = dz.cdata(ffi, f"struct {{ {c_type} x, y; }} *")
            assert (pair[1].x, pair[1].y) == (1, 2)


def test_what_is_no_ffi_of_cffis_is_refused() -> None:
    with offload_args(np.ones(2), device="host") as (dx,):
        with pytest.raises(ArgumentTypeError, match="DevicePtr.cdata: ffi needs an object of cffi's"):
            dx.cdata(object())


def test_what_is_lent_as_out_is_zero_until_it_is_written(mine: tuple[Any, Any]) -> None:
    ffi, lib = mine
    y = np.full(4, 9, np.float32)
    call(lib.scale_add, 4, 2.0, In(np.ones(4, np.float32)), Out(y), device="host")
    np.testing.assert_array_equal(y, np.full(4, 2))


def test_a_function_on_the_cores_c_api_gets_handles_and_is_checked() -> None:
    ffi = cffi.FFI()
    ffi.cdef(
        "typedef struct oa_f32 oa_f32; const char *oa_last_error(void);"
        "int oa_cblas_sscal(int64_t n, float alpha, oa_f32 *x, int64_t incx);"
    )
    core = ffi.dlopen(embedding.get_library())
    x = np.ones(4, np.float32)
    assert call(core.oa_cblas_sscal, 4, 3.0, x, 1, device="sim:0") == 0
    np.testing.assert_array_equal(x, np.full(4, 3))
    assert call(core.oa_cblas_sscal, 5, 3.0, x, 1, device="sim:0") != 0
    assert b"cblas.sscal: x needs 5 elements" in ffi.string(core.oa_last_error())
    with pytest.raises(DTypeError, match=r"argument 3 needs oa_f32 \*, got a DevicePtr\[float64\]"):
        call(core.oa_cblas_sscal, 4, 3.0, np.ones(4), 1, device="sim:0")


def test_other_functions_are_called_as_before_once_cffi_is_imported() -> None:
    x = np.ones(4)
    assert call(cblas.dasum, 4, x, 1, device="host") == 4
    assert call(lambda dx: dx.to_host().sum(), x, device="host") == 4
    assert call(max, 1, 2) == 2
    assert call(ctypes.c_int, 3).value == 3
    ffi = cffi.FFI()
    assert call(ffi.sizeof, "int") == 4
    with pytest.raises(TypeError):
        call(ffi.new("int *"), x, device="host")
    with pytest.raises(TypeError):
        call("abs", x, device="host")


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        (("x",), ArgumentTypeError, "abs: an integer is required"),
        ((1, 2), ArgumentTypeError, r"abs: .*expects 1 arguments, got 2"),
        ((2**70,), SizeOverflowError, r"abs: .*int.*"),
    ],
)
def test_an_argument_that_cffi_refuses_is_refused_by_the_functions_name(
    arguments: tuple[Any, ...], error: type[Exception], words: str
) -> None:
    ffi = cffi.FFI()
    ffi.cdef("int abs(int);")
    with pytest.raises(error, match=words):
        call(ffi.dlopen(None).abs, *arguments, device="host")
