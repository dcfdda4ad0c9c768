"""Lend NumPy arrays to a device for the duration of calls into the vendors' own libraries.

    from offload_args import offload_args, blas, Out

    with offload_args(A, x, Out(y)) as (dA, dx, dy):
        blas.gemv(1.0, dA, dx, 0.0, dy)

Importing the package needs no GPU and loads no vendor library. `blas`, `communicator`, `embedding`, `fft`, `kernels`,
`lapack`, `linalg`, `scripts`, `sparse`, `testing` and the modules of the vendor libraries are imported at their first
use. `libraries.NAMES` lists the vendor libraries. In docstrings, docs/guide/blas.md stands for a page of the
documentation: in a checkout, for this file; on the site, for guide/blas.
"""

from __future__ import annotations

import importlib
import os
import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any, NoReturn

from . import _core, errors
from ._core import _C_API as _C_API
from ._table import LIBRARIES
from .arguments import In, InOut, Out, Scratch
from .devices import Device
from .errors import *  # noqa: F403
from .memory import empty
from .pointers import DevicePtr
from .regions import call, offload_args, open_regions, update
from .tracing import trace

if TYPE_CHECKING:
    from . import blas, communicator, embedding, fft, kernels, lapack, libraries, linalg, scripts, sparse, testing
    from .communicator import Communicator
    from .embedding import get_cmake_dir, get_include, get_library
    from .graphs import Graph
    from .kernels import Kernel, Module, Shared, kernel, launch, offload, offload_unsafe
    from .recording import record
    from .scripts import accelerate

__version__: str = _core.VERSION

_LAZY = (
    "blas",
    "communicator",
    "embedding",
    "fft",
    "kernels",
    "lapack",
    "libraries",
    "linalg",
    "scripts",
    "sparse",
    "testing",
    *LIBRARIES,
)
_OF_COMMUNICATOR = ("Communicator",)
_OF_EMBEDDING = ("get_cmake_dir", "get_include", "get_library")
_OF_GRAPHS = ("Graph",)
_OF_RECORDING = ("record",)
_OF_SCRIPTS = ("accelerate", "load_ipython_extension", "unload_ipython_extension")
_OF_KERNELS = ("Kernel", "Module", "Shared", "kernel", "launch", "offload", "offload_unsafe")

__all__ = [
    "Communicator",
    "Device",
    "DevicePtr",
    "Graph",
    "In",
    "InOut",
    "Kernel",
    "Module",
    "Out",
    "Scratch",
    "Shared",
    "accelerate",
    "blas",
    "call",
    "communicator",
    "embedding",
    "empty",
    "errors",
    "fft",
    "get_cmake_dir",
    "get_include",
    "get_library",
    "kernel",
    "kernels",
    "lapack",
    "launch",
    "libraries",
    "linalg",
    "offload",
    "offload_args",
    "offload_unsafe",
    "open_regions",
    "record",
    "scripts",
    "sparse",
    "testing",
    "trace",
    "update",
]
__all__ += errors.__all__
__all__.extend(LIBRARIES)


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        return importlib.import_module(f"{__name__}.{name}")
    if name in _OF_COMMUNICATOR:
        return getattr(importlib.import_module(f"{__name__}.communicator"), name)
    if name in _OF_EMBEDDING:
        return getattr(importlib.import_module(f"{__name__}.embedding"), name)
    if name in _OF_KERNELS:
        return getattr(importlib.import_module(f"{__name__}.kernels"), name)
    if name in _OF_GRAPHS:
        return getattr(importlib.import_module(f"{__name__}.graphs"), name)
    if name in _OF_RECORDING:
        return getattr(importlib.import_module(f"{__name__}.recording"), name)
    if name in _OF_SCRIPTS:
        return getattr(importlib.import_module(f"{__name__}.scripts"), name)
    if name == "library":  # the name of `libraries` in 0.1
        return importlib.import_module(f"{__name__}.libraries")
    from ._advice import of_package
    from .display import no_name

    raise no_name(__name__, name, of_package(name, __all__))


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])


class _Package(ModuleType):
    """The package as an object whose call names the remedy: its main class has the same name."""

    def __call__(self, *arguments: object, **keywords: object) -> NoReturn:
        raise errors.ArgumentTypeError(
            "offload_args: 'module' object is not callable; write from offload_args import offload_args, or "
            "import offload_args as oa, and oa.offload_args(...)"
        )


sys.modules[__name__].__class__ = _Package


if any(name.startswith("OFFLOAD_ARGS_") for name in os.environ):
    importlib.import_module(f"{__name__}.environment").warn_of_unknown()
if any(os.environ.get(f"OFFLOAD_ARGS_{name}") for name in ("TRACE", "INFO", "NVTX", "PROGRESS")):
    from .tracing.process import start_from_environment

    start_from_environment()
if os.environ.get("OFFLOAD_ARGS_RECORD"):
    importlib.import_module(f"{__name__}.recording.process").start_from_environment()
