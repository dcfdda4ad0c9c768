"""The capsule offload_args._C_API: extensions are compiled against only the headers."""

from __future__ import annotations

import ctypes
import gc
import importlib.util
import re
import shutil
import subprocess
import sysconfig
import weakref
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

import offload_args as package
from helpers.processes import python
from offload_args import Device, In, InOut, OffloadError, Out, Scratch, _core, get_include, offload_args
from offload_args.errors import (
    ArgumentError,
    DirectionError,
    DTypeError,
    ExtentError,
    HostPointerError,
    RegionError,
    StalePointerError,
    WrongDeviceError,
)

HERE = Path(__file__).parent
F32, F64 = 12, 13
BY_USE, OUT, INOUT = 0, 2, 3
SUFFIX = sysconfig.get_config_var("EXT_SUFFIX")


class Disguised:
    """An object that claims to be of another class, like the objects of unittest.mock."""

    def __init__(self, as_which: type) -> None:
        self.as_which = as_which

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        return self.as_which


def build(folder: Path, include: str = get_include(), *options: str) -> Path:
    """Build the extension `through`, linked with nothing of offload_args."""
    path = folder / f"through{SUFFIX}"
    python_include = sysconfig.get_path("include")
    warnings = ["-Wall", "-Wextra", "-Werror"]
    command = ["gcc", "-shared", "-fPIC", *warnings, f"-I{include}", f"-I{python_include}", *options]
    subprocess.run([*command, "-o", path, HERE / "through.c"], check=True)
    return path


@pytest.fixture(scope="module")
def extension(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("extension"))


@pytest.fixture(scope="module")
def through(extension: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location("through", extension)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_an_extension_is_linked_with_nothing_of_the_package(extension: Path) -> None:
    needed = subprocess.run(["readelf", "-d", extension], capture_output=True, text=True, check=True).stdout
    assert "offload_args" not in needed


def test_an_extension_computes_on_pointers_of_pythons_region(through: ModuleType, device: str) -> None:
    x = np.arange(6.0)
    with offload_args(x, device=device) as (dx,):
        through.scale(dx, 3)
        through.scale(dx[2:4], 2)
    np.testing.assert_array_equal(x, [0, 3, 12, 18, 12, 15])


def test_a_stale_pointer_and_a_wrong_one_are_refused(through: ModuleType, device: str) -> None:
    x, y = np.ones(4), np.ones(4, np.float32)
    with offload_args(x, y, device=device) as (dx, dy):
        assert through.get(dx, F64, -1) and through.get(dy, F32, -1) and through.get(dy, 0, dy.device.number)
        with pytest.raises(DTypeError, match=r"needs a DevicePtr\[float64\], got a DevicePtr\[float32\]"):
            through.scale(dy, 1)
        with pytest.raises(WrongDeviceError, match="needs to be on sim:3"):
            through.get(dx, F64, Device("sim:3").number)
        for nothing in (99, -7):
            with pytest.raises(ArgumentError, match=f"dtype {nothing}, which is not an oa_dtype"):
                through.get(dx, nothing, -1)
        for wrong in (x, None, 7, "x", object(), type(dx), Disguised(type(dx))):
            with pytest.raises(HostPointerError, match=rf"DevicePtr\[float64\], got {type(wrong).__name__}"):
                through.scale(wrong, 1)
    with pytest.raises(StalePointerError):
        through.scale(dx, 1)
    with pytest.raises(StalePointerError):
        through.get(dx, 0, -1)


def test_a_call_that_fails_raises_the_exception_of_python(through: ModuleType, device: str) -> None:
    x = np.ones(4)
    with offload_args(In(x), device=device) as (dx,), pytest.raises(DirectionError, match="blas.*dscal|dscal"):
        through.scale(dx, 2)


def test_a_handle_becomes_a_pointer_with_bounds_of_its_own(through: ModuleType, device: str) -> None:
    x = np.arange(6.0)
    with offload_args(x, device=device) as (dx,):
        half, every_second = through.make(dx, 3, 0), through.make(dx, 3, 16)
        assert (half.shape, half.strides, half.dtype, half.device) == ((3,), (8,), dx.dtype, dx.device)
        np.testing.assert_array_equal(every_second.to_host(), [0, 2, 4])
        through.scale(half, 10)
        with pytest.raises(ExtentError):
            through.make(dx, 7, 0)
        for count, stride in ((-1, 0), (2**62, 0), (2, 2**62), (-(2**63), 8)):
            with pytest.raises((ExtentError, ArgumentError, OverflowError)):
                through.make(dx, count, stride)
        with pytest.raises(HostPointerError):
            through.make_of_nothing()
        whole = through.vector(dx[1:])
        assert (whole.shape, whole.dtype) == ((5,), dx.dtype)
    assert not half.live and not whole.live
    np.testing.assert_array_equal(x, [0, 10, 20, 3, 4, 5])


def test_the_region_of_python_gives_its_handle_while_it_is_open(through: ModuleType, device: str) -> None:
    region = offload_args(np.ones(3), device=device)
    with pytest.raises(RegionError, match="not open"):
        through.synchronize(region)
    with region:
        through.synchronize(region)
    with pytest.raises(RegionError, match="not open"):
        through.synchronize(region)
    for wrong in (3, None, offload_args, Disguised(offload_args)):
        with pytest.raises(TypeError, match=r"needs an offload_args\(...\) region"):
            through.synchronize(wrong)


@pytest.mark.promise("T43")
def test_the_c_api_is_called_without_the_gil_and_shares_what_is_present(through: ModuleType) -> None:
    x = np.arange(4.0)
    y = x.copy()
    through.double_on_a_thread(x)
    np.testing.assert_array_equal(x, 2 * y)
    device = Device("sim:0")
    with offload_args(x, device=device) as (dx,):
        through.scale(dx, 3)
        before = device.counters
        through.double_on_a_thread(x)  # the array is already present
        after = device.counters
        assert (after.bytes_up, after.mappings) == (before.bytes_up, before.mappings)
    np.testing.assert_array_equal(x, 12 * y)


@pytest.mark.promise("T43")
def test_the_c_api_is_imported_twice(through: ModuleType) -> None:
    through.import_again()
    assert through.has("oa_cublas_sgemm") and through.has("oa_region_enter")
    assert not through.has("oa_no_such_function") and not through.has("malloc") and not through.has("")


@pytest.mark.later
@pytest.mark.promise("T43")
def test_an_extension_of_another_version_is_refused_when_it_is_imported(tmp_path: Path) -> None:
    include = shutil.copytree(get_include(), tmp_path / "include")
    core = include / "offload_args/core.h"
    core.write_text(re.sub(r"#define OA_VERSION \d+", "#define OA_VERSION 700", core.read_text()))
    build(tmp_path, str(include))
    ran = python(f"import sys; sys.path.insert(0, {str(tmp_path)!r}); import through")
    assert ran.returncode == 1
    assert "ImportError: this extension can't use the installed offload_args" in ran.stderr
    assert "compiled with the header of version 0.7.0" in ran.stderr


@pytest.mark.promise("T43")
def test_a_capsule_that_is_shorter_than_the_headers_is_refused(
    extension: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pointer = ctypes.pythonapi.PyCapsule_GetPointer
    pointer.restype, pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    new = ctypes.pythonapi.PyCapsule_New
    new.restype, new.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
    name = b"offload_args._C_API"
    size = ctypes.c_size_t.from_address(pointer(package._C_API, name)).value
    shorter = ctypes.create_string_buffer(ctypes.string_at(pointer(package._C_API, name), size))
    ctypes.c_size_t.from_buffer(shorter).value = size - 8
    monkeypatch.setattr(package, "_C_API", new(ctypes.addressof(shorter), name, None))
    fresh = shutil.copy(extension, extension.with_name(f"fresh{SUFFIX}"))
    spec = importlib.util.spec_from_file_location("through", fresh)
    assert spec is not None
    with pytest.raises(ImportError, match="older than the headers"):
        importlib.util.module_from_spec(spec)


def test_headers_of_libraries_before_that_of_python_are_refused(tmp_path: Path) -> None:
    source = tmp_path / "wrong.c"
    source.write_text("#include <offload_args_blas.h>\n#include <offload_args/python.h>\n")
    include = [f"-I{get_include()}", f"-I{sysconfig.get_path('include')}"]
    ran = subprocess.run(["gcc", "-fsyntax-only", *include, source], capture_output=True, text=True)
    assert ran.returncode != 0 and "include offload_args/python.h before" in ran.stderr


def test_the_handles_of_out_arguments_are_written(through: ModuleType, device: str) -> None:
    x, y = np.ones(3), np.empty(3)
    with offload_args(In(x), Out(y), device=device) as (dx, dy):
        dy.copy_from(dx)
        through.scale(dy, 5)
    np.testing.assert_array_equal(y, [5, 5, 5])


@pytest.mark.filterwarnings("ignore:.*it is packed on its way:offload_args.PerformanceWarning")
def test_an_extension_enters_a_region_on_arrays_that_python_lends(through: ModuleType) -> None:
    matrix = np.zeros((4, 6), order="C")
    for x, part in ((np.arange(5.0), 1), (matrix[:3, 1:4], 1), (matrix.T[1:3], 1), (np.arange(12.0)[::3], 0)):
        x[...] = 1 + np.arange(x.size).reshape(x.shape)
        before = x.copy()
        through.scale_array(x, BY_USE, 2)
        np.testing.assert_array_equal(x, 2 * before)
        with offload_args(x, device="sim:0") as (dx,):
            dx.fill(3)
            through.scale_array(x, INOUT, 2)  # x is read-only during the call
            through.scale_array(x[part:], BY_USE, 10)
            np.testing.assert_array_equal(x, 2 * before)
        expected = np.full_like(x, 6)
        expected[part:] *= 10
        np.testing.assert_array_equal(x, expected)
        assert x.flags.writeable
    through.scale_array(InOut(matrix), BY_USE, 0)
    np.testing.assert_array_equal(matrix, 0)


def test_an_array_that_an_extension_may_not_lend_so_is_refused(through: ModuleType) -> None:
    x = np.ones(4)
    x.flags.writeable = False
    with pytest.raises(DirectionError):
        through.scale_array(x, BY_USE, 2)
    with pytest.raises(ValueError, match="read-only"):
        through.scale_array(x, INOUT, 2)
    with pytest.raises(ArgumentError, match="declared In, and the function lends it as Out; pass the array alone"):
        through.scale_array(In(x), OUT, 2)
    for direction in (-1, 4, 99):
        with pytest.raises(ArgumentError, match="direction needs one of OA_BY_USE"):
            through.scale_array(x, direction, 2)
    for wrong in ([1.0], None, 3, "x", np.array(["x"]), Scratch(3, np.float64)):
        with pytest.raises(TypeError):
            through.scale_array(wrong, BY_USE, 2)
    with pytest.raises(ArgumentError, match=r"scale_array: x needs one of float64, got \d+"):
        through.scale_array(np.ones(3, np.float32), BY_USE, 2)
    with offload_args(np.ones(3), device="sim:0") as (dx,), pytest.raises(TypeError, match="device pointer"):
        through.scale_array(dx, BY_USE, 2)


def test_an_array_is_kept_and_read_only_as_long_as_an_extension_holds_it(through: ModuleType) -> None:
    x = np.ones(4)
    dies = weakref.ref(x)
    first, second = through.hold_array(x), through.hold_array(x[1:])
    for array in (x, x[2:]):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 2
    del second
    assert not x.flags.writeable
    del first
    x[0] = 2
    holder = through.hold_array(x)
    del x, array
    gc.collect()
    assert dies() is not None
    del holder
    gc.collect()
    assert dies() is None


@pytest.mark.filterwarnings("ignore:.*it is packed on its way:offload_args.PerformanceWarning")
def test_a_pointer_tells_an_extension_how_its_array_lies(through: ModuleType, device: str) -> None:
    square, wide = np.ones((4, 4)), np.ones((3, 8))
    fortran, vector, cube = np.ones((5, 3), order="F"), np.ones(9), np.ones((2, 3, 4, 2))
    with offload_args(square, wide[:, 1:6], fortran, vector[::2], cube, device=device) as pointers:
        dA, dW, dF, dx, dC = pointers
        parts = [dA.T, dW.T, dW[1:, :2], dF.T, dF[1:4], dx[1:], dx[::-1], dC[1], dC[1, :, 2], dC[:, 0, 0, 0], dA[:0]]
        for pointer in (*pointers, *parts):
            shape, strides, rows, columns, ld, ld_by_rows, inc = through.layout(pointer)
            assert (shape, strides) == (pointer.shape, pointer.strides)
            if pointer.ndim == 2:
                assert (rows, columns) == pointer.shape and max(ld, ld_by_rows) == pointer.ld
            elif pointer.ndim == 1:
                assert (rows, columns, inc) == (pointer.size, 1, pointer.strides[0] // 8 if pointer.size > 1 else 1)
        assert through.layout(dA)[4:6] == (0, 4) and through.layout(dA.T)[4:6] == (4, 0)
    with pytest.raises(StalePointerError):
        through.layout(dA)


def test_an_error_of_another_thread_is_raised_with_its_own_text(through: ModuleType) -> None:
    with pytest.raises(ExtentError, match="^cblas.dscal: x needs 7$"):
        through.raise_text(_core.OA_ERROR_EXTENT, "cblas.dscal: x needs 7")
    with pytest.raises(OffloadError, match=r"^\(status 99\)|^ ?\(status 99\)"):
        through.raise_text(99, None)
