"""The words that kernels in Python have beyond Python's own.

In a kernel they stand for code; elsewhere they raise errors.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NoReturn

from ..._signatures import telling
from ...errors import ArgumentTypeError

if TYPE_CHECKING:
    from numpy.typing import DTypeLike

__all__ = ["WORDS", "Here", "atomic_add", "atomic_max", "atomic_min", "barrier", "here", "shared"]


def _refuse(name: str) -> NoReturn:
    raise ArgumentTypeError(f"{name} is for kernels: call it in a function that @kernel begins")


class Here:
    """The running thread of a kernel in Python, `here`. An axis is 0 for x, 1 for y, or 2 for z.

        @kernel
        def number(y: Out[np.int64].by(kernels.Linear1D())):
            for i in y.mine():
                y[i] = 100 * here.block_index(0) + here.thread_index(0)

        y = np.empty(3, np.int64)
        offload(number, y, grid=2, block=2)
        print(y)  # [  0   1 100]

    See also: kernels.here, kernel; docs/guide/python-kernels.md.
    """

    def index(self, axis: int = 0) -> int:
        """Return the thread's number in the grid along an axis.

        See also: kernels.here.size, kernels.here.thread_index; docs/guide/python-kernels.md.
        """
        _refuse("here.index")

    def size(self, axis: int = 0) -> int:
        """Return the number of threads of the grid along an axis.

        See also: kernels.here.index; docs/guide/python-kernels.md.
        """
        _refuse("here.size")

    def thread_index(self, axis: int = 0) -> int:
        """Return the thread's number in its block along an axis.

        See also: kernels.here.threads, kernels.here.index; docs/guide/python-kernels.md.
        """
        _refuse("here.thread_index")

    def threads(self, axis: int = 0) -> int:
        """Return the number of threads of a block along an axis.

        See also: kernels.here.thread_index; docs/guide/python-kernels.md.
        """
        _refuse("here.threads")

    def block_index(self, axis: int = 0) -> int:
        """Return the number of the thread's block along an axis.

        See also: kernels.here.blocks, kernels.here.index; docs/guide/python-kernels.md.
        """
        _refuse("here.block_index")

    def blocks(self, axis: int = 0) -> int:
        """Return the number of blocks along an axis.

        See also: kernels.here.block_index; docs/guide/python-kernels.md.
        """
        _refuse("here.blocks")

    def thread(self) -> int:
        """Return the thread's number in its block along x, then y, then z.

        See also: kernels.here.thread_index, kernels.shared; docs/guide/python-kernels.md.
        """
        _refuse("here.thread")

    def __repr__(self) -> str:
        return "<the thread of a kernel>"


here: Final = Here()


@telling
def atomic_add(array: Any, i: Any, value: Any) -> Any:
    """Add to an element in one step, in a kernel; return the previous value.

    array: InOut without a partition, of integers or floating-point numbers of 4 or 8 bytes.
    i: the element, or a pair of row and column.
    value: the number to add.

        @kernel
        def count(x: In[np.uint8], counts: InOut[np.int32]):
            for i in range(kernels.here.index(), x.size, kernels.here.size()):
                kernels.atomic_add(counts, x[i], 1)

        x, counts = np.array([0, 2, 2], np.uint8), np.zeros(3, np.int32)
        offload(count, x, counts)
        print(counts)  # [1 0 2]

    See also: kernels.atomic_max, kernels.atomic_min, kernel; docs/guide/python-kernels.md.
    """
    _refuse("atomic_add")


@telling
def atomic_min(array: Any, i: Any, value: Any) -> Any:
    """Lower an element to a value in one step, in a kernel; return the previous value.

    array: InOut without a partition, of integers or floating-point numbers of 4 or 8 bytes.
    i: the element, or a pair of row and column.
    value: the new value of the element, if the element is greater.

        @kernel
        def least(x: In[np.float32], y: InOut[np.float32]):
            for i in range(kernels.here.index(), x.size, kernels.here.size()):
                kernels.atomic_min(y, 0, x[i])

        x, y = np.array([3, 1, 2], np.float32), np.array([9], np.float32)
        offload(least, x, y)
        print(y)  # [1.]

    See also: kernels.atomic_add, kernels.atomic_max, kernel; docs/guide/python-kernels.md.
    """
    _refuse("atomic_min")


@telling
def atomic_max(array: Any, i: Any, value: Any) -> Any:
    """Raise an element to a value in one step, in a kernel; return the previous value.

    array: InOut without a partition, of integers or floating-point numbers of 4 or 8 bytes.
    i: the element, or a pair of row and column.
    value: the new value of the element, if the element is less.

        @kernel
        def most(x: In[np.float32], y: InOut[np.float32]):
            for i in range(kernels.here.index(), x.size, kernels.here.size()):
                kernels.atomic_max(y, 0, x[i])

        x, y = np.array([3, 1, 2], np.float32), np.zeros(1, np.float32)
        offload(most, x, y)
        print(y)  # [3.]

    See also: kernels.atomic_add, kernels.atomic_min, kernel; docs/guide/python-kernels.md.
    """
    _refuse("atomic_max")


@telling
def barrier() -> None:
    """Wait for all threads of the block, in a kernel.

    Each thread can then read the stores of the other threads to shared memory.

    All threads of a block have to reach the barrier. So a barrier is refused in a condition or a loop that differs
    between threads.

        @kernel
        def reverse(x: In[np.int32], y: Out[np.int32].by(kernels.Tiles(1, 4))):
            part = kernels.shared(4, np.int32)
            first = 4 * kernels.here.block_index()
            for i in range(kernels.here.thread(), 4, kernels.here.threads()):
                part[3 - i] = x[0, first + i]
            kernels.barrier()
            for i, j in y.mine():
                y[i, j] = part[j - first]

        x, y = np.arange(8, dtype=np.int32).reshape(1, 8), np.zeros((1, 8), np.int32)
        offload(reverse, x, y, block=4)
        print(y)  # [[3 2 1 0 7 6 5 4]]

    See also: kernels.shared, kernel; docs/guide/python-kernels.md.
    """
    _refuse("barrier")


@telling
def shared(shape: int | tuple[int, ...], dtype: DTypeLike) -> Any:
    """Declare an array that the threads of a block share, in a kernel: `part = shared(256, np.float32)`.

    Each block has a separate array, whose values are undefined at first. Any thread of the block may read and store any
    element; barrier() orders these accesses. The launch sets the size of a parameter `part: Shared[np.float32]` by
    shared_bytes=Shared(...).

    shape: one or two numbers, which are fixed when the kernel is made.
    dtype: the dtype of the elements.

        @kernel
        def sums(x: In[np.int32], y: Out[np.int32].by(kernels.PerBlock())):
            part = kernels.shared(1, np.int32)
            if kernels.here.thread() == 0:
                part[0] = 0
            kernels.barrier()
            kernels.atomic_add(part, 0, x[kernels.here.index()])
            kernels.barrier()
            for i in y.mine():
                y[i] = part[0]

        x, y = np.arange(8, dtype=np.int32), np.zeros(2, np.int32)
        offload(sums, x, y, block=4)
        print(y)  # [ 6 22]

    See also: kernels.barrier, Shared, kernel; docs/guide/python-kernels.md.
    """
    _refuse("shared")


#: {a word that is a function of `here`: its name in numba's rules (rules.py)}.
WORDS: Final[dict[Any, str]] = {
    Here.index: "here_index",
    Here.size: "here_size",
    Here.thread_index: "here_thread_index",
    Here.threads: "here_threads",
    Here.block_index: "here_block_index",
    Here.blocks: "here_blocks",
    Here.thread: "here_thread",
}
