"""Kernels in Python: `@kernel`, which numba types and LLVM compiles.

decorated.py is the way in, words.py has the names that kernels use. source.py reads a kernel and checks its tree,
barriers.py that all threads come to its barriers; rules.py teaches numba the types; emit.py makes PTX, HSACO and shared
objects, which linker.py links. The last three are imported when a kernel is compiled; rules.py and emit.py import
numba. formulas.py and reductions.py make kernels of one line.
"""

from .decorated import PythonKernel, kernel
from .formulas import elementwise
from .reductions import Reduction, reduce
from .words import atomic_add, atomic_max, atomic_min, barrier, here, shared

__all__ = [
    "PythonKernel",
    "Reduction",
    "atomic_add",
    "atomic_max",
    "atomic_min",
    "barrier",
    "elementwise",
    "here",
    "kernel",
    "reduce",
    "shared",
]
