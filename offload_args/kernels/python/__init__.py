"""Kernels in Python by `@kernel`: numba infers their types, and LLVM compiles them.

decorated.py has @kernel, and words.py has the names that kernels use. source.py reads a kernel, checks its syntax tree
with names.py, expressions.py and statements.py, and makes the records of definitions.py. barriers.py checks that all
threads reach the kernel's barriers, and for the CPU phases.py divides the kernel at them. rules.py, number_rules.py,
partition_rules.py and thread_loops.py give numba the functions that trees call, and value_types.py gives numba the
types of their values. emit.py makes PTX, HSACO and shared objects, which linker.py links. numba is imported when a
kernel is compiled. formulas.py and reductions.py make kernels of one line.
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
