"""The block that lends a sparse matrix, and the lent matrix."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn, final

from .._operands import need_bool
from .._signatures import telling
from ..display import answering
from ..errors import HostAccessError, RegionError
from ..regions import ENTERING_CODES
from .matrix import LentMatrix, lent
from .products import matmul

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from ..devices import Device
    from ..linalg._call import Result
    from ..pointers import DevicePtr

__all__ = ["Matrix", "lend"]


@final
class Matrix(LentMatrix):
    """Describe a sparse matrix on a device: its format, and the pointers to its arrays.

    `lend` makes a Matrix. Its elements can't be read on the host. `dA @ dx` is sparse.matmul(dA, dx). A kernel takes a
    Matrix as the three pointers to its arrays: the values and both arrays of indices, in the order of `arrays`.

        A = scipy.sparse.csr_array([[2.0, 0.0], [1.0, 3.0]])
        with sparse.lend(A) as dA, offload_args(np.ones(2)) as (dx,):
            print(dA.format, dA.shape, dA.nnz)  # csr (2, 2) 3
            blas.scal(10.0, dA.data)  # the values alone
            print((dA @ dx).to_host())  # [20. 40.]

    See also: sparse.lend, sparse.matmul; docs/guide/sparse.md.
    """

    __slots__ = ()

    def __matmul__(self, x: DevicePtr[Any] | LentMatrix) -> Result:
        """Return the product in new memory of the region: a pointer, or a Matrix if x is a Matrix."""
        return matmul(self, x)


@answering(
    {
        name: f"the matrix after `as`, which has {name}: with sparse.lend(A) as dA"
        for name in dir(Matrix)
        if not name.startswith("_")
    }
)
@final
class Lending:
    """Lend a sparse matrix within a `with` block, once."""

    __slots__ = ("_block", "_entered")
    __array_ufunc__ = None

    def __init__(self, block: AbstractContextManager[Matrix]) -> None:
        self._block, self._entered = block, False

    def __enter__(self) -> Matrix:
        if self._entered:
            raise RegionError("sparse.lend: the block was entered before; call sparse.lend(A) again")
        self._entered = True
        return self._block.__enter__()

    def __exit__(self, *error: Any) -> bool | None:
        if not self._entered:
            raise RegionError("sparse.lend: the block was not entered; write with sparse.lend(A) as dA")
        return self._block.__exit__(*error)

    def __matmul__(self, x: object) -> NoReturn:
        raise HostAccessError("sparse.lend: the matrix stands after `as`: with sparse.lend(A) as dA, and then dA @ dx")

    def __rmatmul__(self, x: object) -> NoReturn:
        raise HostAccessError(
            "sparse.lend: a lent matrix stands on the left: with sparse.lend(A.T) as dA, and then dA @ dx, for x @ A"
        )

    def __repr__(self) -> str:
        return "<with sparse.lend(A) as dA>"


ENTERING_CODES.extend([Lending.__enter__.__code__, lent.__wrapped__.__code__])  # type: ignore[attr-defined]


@telling
def lend(
    A: Any,
    *,
    check: bool = True,
    device: Device | str | None = None,
    stream: object = None,
    resident: bool = False,
) -> AbstractContextManager[Matrix]:
    """Lend a sparse matrix of SciPy to a device within a block, and return it as a Matrix.

    A: a csr, csc, coo or bsr array or matrix. The arrays of A itself are lent: the values by use, so that they come
    down if a call wrote them, and the indices as In. The indices must not change within the block.
    check: whether every index is checked on the host first. With False, a wrong index is not detected, and a call may
    read beyond an array.
    device, stream: as for offload_args.
    resident: whether the arrays become resident, and stay on the device at the end of the block. When A is lent again,
    only the pages that the host has written since then are sent. So new values are sent, and an unchanged structure is
    not.

        A = scipy.sparse.csr_array([[2.0, 0.0], [1.0, 3.0]])
        with sparse.lend(A) as dA, offload_args(np.ones(2)) as (dx,):
            print((dA @ dx).to_host())  # [2. 4.]

    Raises ArgumentTypeError for another format, DTypeError for another dtype, ExtentError for an index out of bounds,
    ArgumentError for indices of a row that do not ascend, and the errors of offload_args.

    See also: sparse.matmul, sparse.spsolve, offload_args; docs/guide/sparse.md.
    """
    need_bool("sparse.lend", "check", check)
    return Lending(lent("sparse.lend", A, check, Matrix, device=device, stream=stream, resident=resident))
