"""Modules: files of kernels."""

from __future__ import annotations

import difflib
import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, final, overload

from .._signatures import telling
from ..errors import ArgumentError, ArgumentTypeError, ModuleError, SignatureError
from .binary import read
from .facts import KernelFacts
from .kernel_type import Kernel
from .loaded import Loaded
from .pickled import loaded_again, pickled
from .undeclared import UndeclaredKernel
from .variables import Variables

__all__ = ["Module"]


@telling
@final
class Module(Variables):
    """Hold the kernels of one file.

    Module.load makes a Module. A device loads it when it first launches one of its kernels.

        source = '''
        #include <offload_args/kernel.h>
        OA_KERNEL(add, oa::In<float> x, oa::InOut<float> y, int n) {
          for (auto element : y.mine(oa::Linear1D(n), here))
            *element += x[element.index()];
        }'''
        types = [In[np.float32], InOut[np.float32], np.int32]
        Kernel.compile(source, "add", types, device="host").save("add.so")
        add = Module.load("add.so").kernel("add", *types)
        x, y = np.arange(3, dtype=np.float32), np.ones(3, np.float32)
        offload(add, x, y, 3, device="host")
        print(y)  # [1. 2. 3.]

    See also: Kernel, offload, launch; docs/guide/kernels.md.
    """

    __slots__ = ()

    def __init__(self, loaded: Loaded) -> None:
        if not isinstance(loaded, Loaded):
            raise ArgumentTypeError(
                f"Module: modules are read by Module.load(path or bytes), got {type(loaded).__name__}"
            )
        super().__init__(loaded)

    @classmethod
    def load(cls, source: str | os.PathLike[str] | bytes | bytearray | memoryview, *, name: str = "") -> Module:
        """Read a module of kernels.

        source: the path of a file, or its bytes. It is PTX, a cubin or a fatbin for NVIDIA GPUs, an HSACO or a bundle
        of HSACOs for AMD GPUs, or a shared object for host and sim. The format is found from the contents; no GPU is
        needed. name: the module's name in messages; by default, the name of the file.

        Raises ModuleError if the file has another format or is damaged, and OSError if it can't be read.

        See also: Kernel.compile, Kernel.save, Module.kernel; docs/guide/kernels.md.
        """
        if isinstance(source, (bytes, bytearray, memoryview)):
            data, name = bytes(source), name or "the module"
        elif isinstance(source, (str, os.PathLike)):
            path = os.fspath(source)
            if isinstance(source, str) and "\n" in source:
                raise ArgumentError(
                    "Module.load: source needs a path or bytes, got the text of a module: pass source.encode(), or for "
                    "C++ use Kernel.compile"
                )
            with open(path, "rb") as file:
                data = file.read()
            name = name or os.path.basename(path)
        else:
            raise ArgumentTypeError(f"Module.load: source needs a path or bytes, got {type(source).__name__}")
        return cls(Loaded(read(name, data)))

    @property
    def format(self) -> str:
        """The format of the module's file, such as "PTX"."""
        return self._loaded.image.format

    @property
    def target(self) -> str:
        """The processor for which the module was compiled, such as "sm_90"."""
        return self._loaded.image.target

    @property
    def kernels(self) -> dict[str, KernelFacts]:
        """Return the facts that the module states about its kernels, by name."""
        return dict(self._loaded.image.kernels)

    @overload
    def kernel(self, name: str, /) -> UndeclaredKernel: ...
    @overload
    def kernel(self, name: str, first: Any, /, *others: Any) -> Kernel: ...
    def kernel(self, name: str, /, *signature: Any) -> Kernel | UndeclaredKernel:
        """Return a kernel with the types of its parameters.

        signature: a type for each parameter: In[dtype], Out[dtype] or InOut[dtype] for a pointer, a NumPy type for a
        value, or a structured dtype (align=True) for a struct. The kernel only reads an In. It writes all of an Out,
        and reads none of it. In, Out and InOut without a dtype take pointers to any elements. The signature must not
        contradict the module's own facts. Without a signature, the arguments of each launch determine the types, and
        every pointer counts as read and written.

        Raises ModuleError if there is no such kernel, and SignatureError if the module contradicts the signature.

            source = '''
            #include <offload_args/kernel.h>
            OA_KERNEL(twice, oa::InOut<float> x, int n) {
              for (auto element : x.mine(oa::Linear1D(n), here)) *element *= 2;
            }'''
            Kernel.compile(source, "twice", [InOut[np.float32], np.int32], device="host").save("twice.so")
            module = Module.load("twice.so")
            print(module.kernel("twice", InOut[np.float32], np.int32).signature)  # ('InOut[float32]', 'int32')

        See also: Module.load, launch; docs/guide/kernels.md.
        """
        if not isinstance(name, str):
            raise ArgumentTypeError(f"Module.kernel: name needs a string, got {type(name).__name__}")
        if len(signature) == 1 and type(signature[0]) in (list, tuple):
            raise SignatureError(f"Module.kernel: the types stand by position: write module.kernel({name!r}, *types)")
        known = self._loaded.image.kernels
        if name not in known and self._loaded.image.whole:
            near = difflib.get_close_matches(name, known, 1)
            listed = f"did you mean {near[0]}?" if near else f"it has {', '.join(list(known)[:8]) or 'none'}"
            raise ModuleError(f"{self.name}: there is no kernel {name!r}; {listed}")
        facts = known.get(name)
        if signature:
            return Kernel(self._loaded, name, signature, facts)
        if facts is None or facts.parameters is None:
            raise SignatureError(f"{name}: {self.name} says nothing of its parameters; declare them all")
        return UndeclaredKernel(self._loaded, facts)

    if not TYPE_CHECKING:  # static checkers report an unknown attribute

        def __getattr__(self, name: str) -> Any:
            loaded = None if name.startswith("_") else getattr(self, "_loaded", None)
            if loaded is not None and name in loaded.image.kernels:
                raise AttributeError(f"Module has no attribute {name!r}; use kernel({name!r}, *types)", name=name)
            return super().__getattr__(name)

    def __reduce__(self) -> tuple[Callable[[bytes], Any], tuple[bytes]]:
        return pickled(loaded_again, self._loaded.image.data, self._loaded.name, "")

    def __repr__(self) -> str:
        lines = [f"Module({self.name}: {self.format} for {self.target})"]
        return "\n".join([*lines, *(f"  {facts}" for facts in self._loaded.image.kernels.values())])
