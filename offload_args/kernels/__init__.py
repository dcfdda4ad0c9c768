"""A program's own kernels: their modules, signatures with types, and checked launches.

    from offload_args import In, Out, Module, offload

    vadd = Module.load("vadd.ptx").kernel("vadd", In[np.float32], In[np.float32], Out[np.float32], np.int32)
    offload(vadd, a, b, c, n)

The package itself also has these names: Kernel, Module, Shared, kernel, launch, offload, offload_unsafe. This module's
other names are partitions, words of kernels in Python, and `include`. docs/guide/kernels.md explains them.
"""

from typing import TYPE_CHECKING

from ..display import listing, missing
from .compilers import include
from .kernel_type import Kernel
from .launches import launch, offload, offload_unsafe
from .module import Module
from .partitions import GridStride1D, Linear1D, Linear2D, PerBlock, RowBlocks, Rows, Tiles
from .python import (
    PythonKernel,
    Reduction,
    atomic_add,
    atomic_max,
    atomic_min,
    barrier,
    elementwise,
    here,
    kernel,
    reduce,
    shared,
)
from .shared_memory import Shared

__all__ = [
    "GridStride1D",
    "Kernel",
    "Linear1D",
    "Linear2D",
    "Module",
    "PerBlock",
    "PythonKernel",
    "Reduction",
    "RowBlocks",
    "Rows",
    "Shared",
    "Tiles",
    "atomic_add",
    "atomic_max",
    "atomic_min",
    "barrier",
    "elementwise",
    "here",
    "include",
    "kernel",
    "launch",
    "offload",
    "offload_unsafe",
    "reduce",
    "shared",
]

if not TYPE_CHECKING:  # static checkers report an unknown name
    __getattr__ = missing(__name__, __all__)
    __dir__ = listing(__all__)
