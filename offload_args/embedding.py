"""The place of the C library: its headers, its file, and the flags for build systems.

    cc program.c $(python -m offload_args config --cflags --libs)
    cmake -Doffload_args_DIR=$(python -m offload_args config --cmake-dir) ...
    PKG_CONFIG_PATH=$(python -m offload_args config --pkg-config-dir) ...

docs/guide/embedding.md has details.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from . import _core
from ._signatures import telling
from .devices import by_number
from .display import listing, missing
from .dtypes import DTYPE_NAMES
from .errors import ArgumentError, DTypeError, HostPointerError, WrongDeviceError

__all__ = ["declare_status", "get_cmake_dir", "get_fortran_module", "get_include", "get_library", "get_pkg_config_dir"]

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

# In an editable install, the extension is in another folder than the sources.
_FOLDER = Path(_core.__file__).resolve().parent


@telling
def get_include() -> str:
    """Return the folder of the C headers, for the compiler's option -I.

        print(os.path.isdir(embedding.get_include()))  # True

    See also: embedding.get_library; docs/guide/embedding.md.
    """
    return str(_FOLDER / "include")


@telling
def get_library() -> str:
    """Return the path of the C library.

    At run time, a linked program finds the library through an rpath, which is the library's folder. In a process that
    imported offload_args, the library is already loaded.

        print(os.path.isfile(embedding.get_library()))  # True

    See also: embedding.get_include; docs/guide/embedding.md.
    """
    major, minor = _core.VERSION.split(".")[:2]
    return str(_FOLDER / f"liboffload_args.so.{f'0.{minor}' if major == '0' else major}")


@telling
def get_cmake_dir() -> str:
    """Return the value of the variable offload_args_DIR for CMake's find_package(offload_args): a folder.

        print(os.path.isdir(embedding.get_cmake_dir()))  # True

    See also: embedding.get_library; docs/guide/embedding.md.
    """
    return str(_FOLDER / "cmake")


@telling
def get_pkg_config_dir() -> str:
    """Return the folder of offload_args.pc, for PKG_CONFIG_PATH.

        print(os.path.isdir(embedding.get_pkg_config_dir()))  # True

    See also: embedding.get_library; docs/guide/embedding.md.
    """
    return str(_FOLDER / "pkgconfig")


@telling
def get_fortran_module() -> str:
    """Return the path of offload_args.f90, the Fortran module of the C API, which programs compile.

        print(os.path.isfile(embedding.get_fortran_module()))  # True

    See also: embedding.get_library; docs/guide/embedding.md.
    """
    return str(_FOLDER / "include" / "offload_args.f90")


def cflags() -> list[str]:
    """Return the options for a C compiler."""
    return [f"-I{get_include()}"]


def libs() -> list[str]:
    """Return the options for the linker."""
    folder = os.path.dirname(get_library())
    return [f"-L{folder}", "-loffload_args", f"-Wl,-rpath,{folder}"]


@telling
def declare_status(
    function: Any, *, success: int | Collection[int] = 0, error: Callable[[int], object] | None = None
) -> None:
    """Declare which results of a cffi function are success, so that `call` raises an exception after any other result.

    function: a function of your own cffi library, or an enum such as ffi.typeof("mine_status"), which stands for all
    functions that return it. success: the result that means success, or several such results. error: a function that
    raises the exception for any other result; with None, a LibraryError is raised. After such an exception, no bytes
    that the function wrote are committed. The same rule holds for any exception in a region's body.

    A function that returns `enum oa_status` needs no declaration. If a function returns an oa_status as an int, pass
    error=errors.raise_status, which raises the exception of the failed call of the core.

        ffi = cffi.FFI()
        ffi.cdef("int memcmp(const double *, const double *, size_t);")  # 0 if both are the same
        libc = ffi.dlopen(None)
        embedding.declare_status(libc.memcmp)
        print(call(libc.memcmp, np.ones(2), np.ones(2), 16, device="host"))  # 0
        try:
            call(libc.memcmp, np.ones(2), np.zeros(2), 16, device="host")
        except LibraryError:
            print("they differ")  # they differ

    See also: call; docs/guide/cffi.md.
    """
    from . import _cffi

    _cffi.declare_status(function, success, error)


def _refuse(value: Any, dtype: int, device: int) -> NoReturn:
    """Raise the error of an object that is not a DevicePtr, or not of the kind that a C extension needs."""
    if dtype != _core.OA_ANY and not 0 <= dtype < len(DTYPE_NAMES):
        raise ArgumentError(
            f"offload_args: an extension asks for a DevicePtr of dtype {dtype}, which is not an oa_dtype"
        )
    needed = "DevicePtr" if dtype == _core.OA_ANY else f"DevicePtr[{DTYPE_NAMES[dtype]}]"
    # isinstance alone would trust the object's __class__
    if not issubclass(type(value), _core.Pointer) or not isinstance(value, _core.Pointer):
        raise HostPointerError(
            f"offload_args: an argument needs a {needed}, got {type(value).__name__}; lend the array in a region first"
        )
    own = DTYPE_NAMES[value._dtype_code]
    if dtype not in (_core.OA_ANY, value._dtype_code):
        raise DTypeError(
            f"offload_args: an argument needs a {needed}, got a DevicePtr[{own}]; lend an array of its dtype"
        )
    raise WrongDeviceError(
        f"offload_args: an argument is on {by_number(value._device)}, needs to be on {by_number(device)}; "
        "lend it in a region there"
    )


if not TYPE_CHECKING:  # static checkers read all names
    __getattr__ = missing(__name__, __all__)
    __dir__ = listing(__all__)
