"""Kernels in Python: `@kernel`, which numba types and LLVM compiles.

decorated.py is the way in, words.py has the names that kernels use. source.py reads a kernel and checks its tree;
rules.py teaches numba the types; emit.py makes PTX, HSACO and shared objects, which linker.py links. The last three
import numba, and are imported when a kernel is compiled.
"""

from .decorated import PythonKernel, kernel
from .words import atomic_add, atomic_max, atomic_min, here

__all__ = ["PythonKernel", "atomic_add", "atomic_max", "atomic_min", "here", "kernel"]
