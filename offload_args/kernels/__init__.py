"""Kernels of one's own: modules, typed signatures, checked launches.

    from offload_args import In, Out, Module, offload

    vadd = Module.load("vadd.ptx").kernel("vadd", In[np.float32], In[np.float32], Out[np.float32], np.int32)
    offload(vadd, a, b, c, n)

These names are also those of the package itself: Kernel, Module, Shared, launch, offload, offload_unsafe. The others
are partitions, and `include`. docs/guide/kernels.md explains them.
"""

from .compilers import include
from .kernel import Kernel, Shared, launch, offload, offload_unsafe
from .module import Module
from .partitions import GridStride1D, Linear1D, Linear2D, PerBlock, RowBlocks, Rows, Tiles

__all__ = [
    "GridStride1D",
    "Kernel",
    "Linear1D",
    "Linear2D",
    "Module",
    "PerBlock",
    "RowBlocks",
    "Rows",
    "Shared",
    "Tiles",
    "include",
    "launch",
    "offload",
    "offload_unsafe",
]
