"""Variables of a module: device memory and constant memory to which its kernels refer by name."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from .._signatures import telling
from ..devices import Device, as_device
from ..display import answering, shown
from ..dtypes import code_of
from ..errors import ArgumentTypeError, ModuleError, SignatureError
from ..pointers import DevicePtr
from .loaded import Loaded

if TYPE_CHECKING:
    from numpy.typing import DTypeLike

__all__ = ["Variables"]


@answering(
    {
        **dict.fromkeys(("get_function", "function", "get_kernel"), "kernel(name, *signature)"),
        **dict.fromkeys(("get_global", "global_", "get_variable"), "variable"),
        **dict.fromkeys(("functions", "names"), "kernels"),
        **dict.fromkeys(("close", "free"), "unload()"),
    }
)
@telling
class Variables:
    """Access the variables of a Module, or of Kernel.module, the module of a kernel.

    See also: Module, Kernel; docs/guide/kernels.md.
    """

    __slots__ = ("_kernel", "_loaded")

    def __init__(self, loaded: Loaded, kernel: object = None) -> None:
        """Take a module, and the kernel for whose module this is, unless it is a Module."""
        self._loaded, self._kernel = loaded, kernel

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[object, ...]]:
        return operator.attrgetter("module"), (self._kernel,)

    @property
    def name(self) -> str:
        """The name of the file, or the name that was passed."""
        return self._loaded.name

    def variable(
        self, name: str, dtype: DTypeLike, shape: int | Sequence[int] = (), *, device: Device | str | None = None
    ) -> DevicePtr[Any]:
        """Return the pointer to a variable of the module: `__device__` or `__constant__` memory, or a CPU's global.

        name: the name in the module; declare the variable `extern "C"`, or by OA_DEVICE_VARIABLE or
        OA_CONSTANT_VARIABLE of kernel.h. dtype, shape: describe all bytes of the variable. device: with None, the
        default device if it can run the module, else the first device that can. After this call, `module[name]` returns
        the same pointer. The pointer needs no region, and is live until the module is unloaded or collected. Launches
        of the module's kernels wait for other uses of the variable, and other uses wait for launches.

        Raises ModuleError if there is no such variable, and SignatureError if the variable has another size.

            source = '''
            #include <offload_args/kernel.h>
            OA_DEVICE_VARIABLE(float, factor);
            OA_KERNEL(scale, oa::InOut<float> x, int n) {
              for (auto element : x.mine(oa::Linear1D(n), here)) *element *= factor;
            }'''
            scale = Kernel.compile(source, "scale", [InOut[np.float32], np.int32])
            scale.module.variable("factor", np.float32).assign(5)
            x = np.ones(3, np.float32)
            offload(scale, x, 3)
            print(x)  # [5. 5. 5.]
            scale.module.unload()

        See also: Module.kernel, Module.unload, DevicePtr; docs/guide/kernels.md.
        """
        if not isinstance(name, str):
            raise ArgumentTypeError(f"Module.variable: name needs a string, got {type(name).__name__}")
        element = np.dtype(dtype)
        if code_of(element) < 0:
            raise SignatureError(f"{name}: devices can't hold elements of {element}")
        try:
            sizes = tuple(map(operator.index, shape if isinstance(shape, Sequence) else (shape,)))
        except TypeError:
            raise ArgumentTypeError(f"{name}: shape needs whole numbers, got {shown(shape)}") from None
        on = self._loaded.default_device() if device is None else as_device(device)
        return self._loaded.variable(name, element, sizes, on)

    def __getitem__(self, name: str) -> DevicePtr[Any]:
        """Return the pointer to a variable that `variable` has declared, on the device of the last declaration."""
        try:
            return self._loaded.variables[name]
        except (KeyError, TypeError):
            raise ModuleError(
                f"{self.name}: variable {shown(name)} has no dtype yet: declare it by module.variable(name, dtype, "
                "shape)"
            ) from None

    def unload(self) -> None:
        """Wait for the devices, and free the module on all of them. Its kernels can't be launched any more.

        See also: Module.load; docs/guide/kernels.md.
        """
        self._loaded.unload()
