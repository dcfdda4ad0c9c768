"""The words of kernels in Python that are not Python's own. In a kernel they stand for code; elsewhere they refuse."""

from __future__ import annotations

from typing import Any, Final, NoReturn

from ...errors import ArgumentTypeError

__all__ = ["WORDS", "Here", "atomic_add", "atomic_max", "atomic_min", "here"]


def _refuse(name: str) -> NoReturn:
    raise ArgumentTypeError(f"{name} is for kernels: call it in a function that @kernel begins")


class Here:
    """The thread that runs, as a kernel in Python sees it: `here`. An axis is 0, 1 or 2: x, y or z."""

    def index(self, axis: int = 0) -> int:
        """Return the thread's number in the grid along an axis."""
        _refuse("here.index")

    def size(self, axis: int = 0) -> int:
        """Return the number of threads of the grid along an axis."""
        _refuse("here.size")

    def thread_index(self, axis: int = 0) -> int:
        """Return the thread's number in its block along an axis."""
        _refuse("here.thread_index")

    def threads(self, axis: int = 0) -> int:
        """Return the number of threads of a block along an axis."""
        _refuse("here.threads")

    def block_index(self, axis: int = 0) -> int:
        """Return the number of the thread's block along an axis."""
        _refuse("here.block_index")

    def blocks(self, axis: int = 0) -> int:
        """Return the number of blocks along an axis."""
        _refuse("here.blocks")

    def thread(self) -> int:
        """Return the thread's number in its block along x, then y, then z."""
        _refuse("here.thread")

    def __repr__(self) -> str:
        return "<the thread of a kernel>"


here: Final = Here()


def atomic_add(array: Any, i: Any, value: Any) -> Any:
    """Add to an element in one step, in a kernel; return the value before.

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

    See also: kernels.atomic_max, kernels.atomic_min, kernel; docs/guide/kernels.md.
    """
    _refuse("atomic_add")


def atomic_min(array: Any, i: Any, value: Any) -> Any:
    """Lower an element to a value in one step, in a kernel; return the value before.

    array: InOut without a partition, of integers or floating-point numbers of 4 or 8 bytes.
    i: the element, or a pair of row and column.
    value: the element becomes it if it is more.

        @kernel
        def least(x: In[np.float32], y: InOut[np.float32]):
            for i in range(kernels.here.index(), x.size, kernels.here.size()):
                kernels.atomic_min(y, 0, x[i])

        x, y = np.array([3, 1, 2], np.float32), np.array([9], np.float32)
        offload(least, x, y)
        print(y)  # [1.]

    See also: kernels.atomic_add, kernels.atomic_max, kernel; docs/guide/kernels.md.
    """
    _refuse("atomic_min")


def atomic_max(array: Any, i: Any, value: Any) -> Any:
    """Raise an element to a value in one step, in a kernel; return the value before.

    array: InOut without a partition, of integers or floating-point numbers of 4 or 8 bytes.
    i: the element, or a pair of row and column.
    value: the element becomes it if it is less.

        @kernel
        def most(x: In[np.float32], y: InOut[np.float32]):
            for i in range(kernels.here.index(), x.size, kernels.here.size()):
                kernels.atomic_max(y, 0, x[i])

        x, y = np.array([3, 1, 2], np.float32), np.zeros(1, np.float32)
        offload(most, x, y)
        print(y)  # [3.]

    See also: kernels.atomic_add, kernels.atomic_min, kernel; docs/guide/kernels.md.
    """
    _refuse("atomic_max")


#: The words that are functions of `here`, and the name of each in numba's rules (rules.py).
WORDS: Final[dict[Any, str]] = {
    Here.index: "here_index",
    Here.size: "here_size",
    Here.thread_index: "here_thread_index",
    Here.threads: "here_threads",
    Here.block_index: "here_block_index",
    Here.blocks: "here_blocks",
    Here.thread: "here_thread",
}
