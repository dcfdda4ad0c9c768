"""Dynamic shared memory of a launch, in numbers of elements."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple, final

import numpy as np

from .._signatures import telling
from ..display import shown
from ..errors import ArgumentError, ArgumentTypeError
from .values import whole

if TYPE_CHECKING:
    from numpy.typing import DTypeLike

__all__ = ["Shared", "SharedOf"]

_MOST: Final = 2**32 - 1  # the most bytes


@telling
@final
class Shared:
    """Request dynamic shared memory of a block by elements: `Shared[np.float32](256)` or `Shared(256, np.float32)`.

        source = '''
        #include <offload_args/kernel.h>
        OA_BLOCK_KERNEL(sums, oa::In<float> x, oa::Out<float> y) {
          const auto part = here.shared<float>();  // the block's
          here.phase([&](const oa::Here &here) { part[here.thread()] = x[here.index()]; });
          here.phase([&](const oa::Here &here) {
            for (auto element : y.mine(oa::PerBlock(), here)) {
              *element = 0;
              for (long long i = 0; i < part.size(); i++) *element += part[i];
            }
          });
        }'''
        types = [In[np.float32], Out[np.float32].by(kernels.PerBlock())]
        sums = Kernel.compile(source, "sums", types)
        x, y = np.arange(8, dtype=np.float32), np.zeros(2, np.float32)
        offload(sums, x, y, block=4, shared_bytes=Shared[np.float32](4))
        print(y)  # [ 6. 22.]

    See also: kernels.PerBlock, launch, offload; docs/guide/kernels.md.
    """

    __slots__ = ("dtype", "nbytes", "size")

    def __init__(self, size: int, dtype: DTypeLike = np.uint8) -> None:
        self.dtype: np.dtype[Any] = np.dtype(dtype)
        try:
            self.size = whole(size)
        except TypeError:
            raise ArgumentTypeError(f"Shared: size needs a whole number of elements, got {shown(size)}") from None
        if self.dtype.itemsize == 0 or self.dtype.hasobject:
            raise ArgumentError(f"Shared: needs elements that devices can hold, got {self.dtype}")
        most = _MOST // self.dtype.itemsize
        if not 0 <= self.size <= most:
            raise ArgumentError(f"Shared: size needs 0 to {most} elements of {self.dtype}, got {shown(size)}")
        self.nbytes = self.size * self.dtype.itemsize

    def __class_getitem__(cls, dtype: DTypeLike) -> SharedOf:
        return SharedOf(np.dtype(dtype))

    def __repr__(self) -> str:
        return f"Shared[{self.dtype}]({self.size})"


class SharedOf(NamedTuple):
    """Shared memory of elements of one dtype: a parameter's type in kernels in Python, whose call makes a Shared."""

    dtype: np.dtype[Any]

    def __call__(self, size: int) -> Shared:
        return Shared(size, self.dtype)
