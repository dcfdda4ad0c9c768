"""Kernels of one's own: modules, typed signatures, checked launches.

    from offload_args import In, Out, Module, offload

    vadd = Module.load("vadd.ptx").kernel("vadd", In[np.float32], In[np.float32], Out[np.float32], np.int32)
    offload(vadd, a, b, c, n)

The names but `include` are also those of the package itself. docs/kernels.md explains them.
"""

from .compilers import include
from .kernel import Kernel, Shared, launch, offload
from .module import Module

__all__ = ["Kernel", "Module", "Shared", "include", "launch", "offload"]
