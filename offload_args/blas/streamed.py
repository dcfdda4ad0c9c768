"""Level 3 for host arrays by parts: with overlapped transfers, on several devices, and larger than a device."""

from __future__ import annotations

import re
from itertools import product as pairs
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from .._names import rename
from .._operands import LETTERS, need_option, of_sparse
from ..arguments import In, InOut, Out
from ..devices import as_device
from ..display import shown
from ..dtypes import code_of, converted, copied, refuse_masked, spelled
from ..errors import AliasError, ArgumentError, ArgumentTypeError, DTypeError, HostAccessError, OffloadError
from ..pointers import DevicePtr
from ..regions import offload_args
from .tiles import (
    THREADS,
    Access,
    Sides,
    Step,
    Task,
    Tile,
    check_lent,
    compute,
    cuts,
    free_space,
    note_of,
    places_for,
    share_out,
    sides_for,
    span,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from numpy.typing import NDArray

    from ..devices import Device

__all__ = ["check_arrays", "check_number", "devices_of", "multiply", "refuse_shared", "stream", "triangular"]

# A panel has this many elements of C, which is enough work for all processors of a GPU. Panels of fewer than _LEAST
# rows make a product slower.
_PART: Final = 1 << 22
_LEAST: Final = 512
_UNIT: Final = 128

# The name that messages have for an argument of a region of this module.
_OWN_ARGUMENT: Final = re.compile(r"^offload_args: argument (\d)")


class _Product(NamedTuple):
    """The product C = alpha op(A) op(B) + beta C of arrays."""

    gemm: Callable[..., None]
    alpha: complex
    A: NDArray[Any]
    B: NDArray[Any]
    beta: complex
    C: NDArray[Any]
    trans_a: str
    trans_b: str

    @property
    def depth(self) -> int:
        """The number of terms of each sum."""
        depth: int = self.A.shape[self.trans_a == "N"]
        return depth

    def of_a(self, rows: slice, terms: slice = slice(None)) -> NDArray[Any]:
        """Return the part of A for some rows of C."""
        return self.A[rows, terms] if self.trans_a == "N" else self.A[terms, rows]

    def of_b(self, columns: slice, terms: slice = slice(None)) -> NDArray[Any]:
        """Return the part of B for some columns of C."""
        return self.B[terms, columns] if self.trans_b == "N" else self.B[columns, terms]

    def compute(self, A: DevicePtr, B: DevicePtr, beta: complex, C: DevicePtr) -> None:
        self.gemm(self.alpha, A, B, beta, C, trans_a=self.trans_a, trans_b=self.trans_b)


def multiply(
    gemm: Callable[..., None],
    alpha: Any,
    A: Any,
    B: Any,
    beta: Any,
    C: Any,
    trans_a: str,
    trans_b: str,
    devices: Sequence[Device | str],
) -> None:
    """Check the arguments, and do the work of blas.gemm with `devices`. `gemm` is blas.gemm for pointers."""
    name = "blas.gemm"
    used = devices_of(name, devices)
    check_arrays(name, A=A, B=B, C=C)
    for scalar, number in (("alpha", alpha), ("beta", beta)):
        check_number(name, scalar, number, A.dtype)
    need_option(name, "trans_a", trans_a, ("N", "T", "C"))
    need_option(name, "trans_b", trans_b, ("N", "T", "C"))
    m, k = A.shape if trans_a == "N" else A.shape[::-1]
    k_b, n = B.shape if trans_b == "N" else B.shape[::-1]
    if k != k_b or C.shape != (m, n):
        raise ArgumentError(
            f"{name}: A of shape {A.shape}, B of shape {B.shape} and C of shape {C.shape} do not fit with "
            f'trans_a="{trans_a}" and trans_b="{trans_b}"'
        )
    if not C.size:
        return
    work = _Product(gemm, alpha, A, B, beta, C, trans_a, trans_b)
    space = free_space(used)
    conjugates = C.dtype.kind == "c" and "C" in trans_a + trans_b
    if space >= _in_panels(work, _LEAST) and _lend_panels(work, conjugates):
        if np.may_share_memory(A, B) and not _are_in_one_place(A, B):
            # Otherwise, parts of A and B might overlap partly.
            work = work._replace(B=copied(B, B.dtype, always=True))
        _by_panels(work, used, space)
    else:
        arrays = {"A": A, "B": B, "C": C}
        sides = sides_for(name, used, C.itemsize, max(m, n, k), depth=0.25)
        places = places_for(sides, used, C.itemsize, sum(array.nbytes for array in arrays.values()))
        if places:
            sides = places.sides
            tasks = places.in_blocks(_gemm_tasks(work, sides, sides.side))
        else:
            tasks = _gemm_tasks(work, sides, sides.side // 4)
        compute(name, arrays, tasks, used, sides, conjugates)


# -- arguments ---------------------------------------------------------------------------------------------------------


def devices_of(name: str, devices: Sequence[Device | str]) -> list[Device]:
    """Check the argument `devices` of a function."""
    if isinstance(devices, str) or not np.iterable(devices):
        raise ArgumentTypeError(f"{name}: devices needs a list of devices, got {shown(devices)}; write [{devices!r}]")
    used = [as_device(device) for device in devices]
    if not used:
        raise ArgumentError(f"{name}: devices needs one device at least, got none; leave it out for pointers")
    if len(set(used)) < len(used):
        raise ArgumentError(f"{name}: devices needs each device once, got {shown([str(device) for device in used])}")
    return used


def check_arrays(name: str, *, vectors: tuple[str, ...] = (), written: int = 1, **arrays: Any) -> None:
    """Raise the error of the first wrong array, before anything is computed.

    written: the number of the last arrays that are written. vectors: the arrays that may also have one dimension.
    """
    first = ""
    for operand, array in arrays.items():
        if isinstance(array, DevicePtr):
            others = [each for each in arrays.values() if not isinstance(each, DevicePtr)]
            lent = "pass the lent array itself; tiles read its elements on the device"
            remedy = lent if others else "leave devices out"
            raise HostAccessError(f"{name}: with devices, {operand} needs a NumPy array, got a DevicePtr; {remedy}")
        refuse_masked(f"{name}: {operand}", array)
        if isinstance(array, (In, Out, InOut)):
            raise ArgumentTypeError(
                f"{name}: with devices, {operand} needs a NumPy array, got {type(array).__name__}; pass the array "
                f"itself: its parts are sent and brought back as {name} reads and writes them"
            )
        if not isinstance(array, np.ndarray):
            remedy = of_sparse(array)
            if not remedy and (isinstance(array, (list, tuple)) or hasattr(array, "__array__")):
                remedy = f"make it an array, {operand} = np.asarray({operand}, dtype)"
            raise ArgumentTypeError(
                f"{name}: {operand} needs a NumPy array, got {type(array).__name__}{'; ' * bool(remedy)}{remedy}"
            )
        if array.ndim != 2 and not (array.ndim == 1 and operand in vectors):
            needed = "1 or 2 dimensions" if operand in vectors else "2 dimensions"
            raise ArgumentError(f"{name}: {operand} has shape {array.shape}, needs {needed}")
        if not first:
            first = operand
            if code_of(array.dtype) not in LETTERS:
                raise DTypeError(
                    f"{name}: {operand} needs float32, float64, complex64 or complex128, got {array.dtype}; "
                    f"{converted(operand, 'float64')}"
                )
        elif array.dtype != arrays[first].dtype:
            raise DTypeError(
                f"{name}: {operand} needs {spelled(arrays[first].dtype.name)} as {first} has, got {array.dtype}; "
                f"{converted(operand, arrays[first].dtype.name)}"
            )
    refuse_shared(name, arrays, written)


def refuse_shared(name: str, arrays: dict[str, NDArray[Any]], written: int) -> None:
    """Raise an error if an element of the last `written` arrays is also another element."""
    names = [*arrays]
    for i, result in enumerate(names[-written:], len(names) - written):
        if _overlaps_itself(arrays[result]):
            raise AliasError(
                f"{name}: two indices of {result} name the same element, with strides {arrays[result].strides}; pass a "
                f"copy"
            )
        for other in names[:i]:
            if np.may_share_memory(arrays[other], arrays[result]) and np.shares_memory(arrays[other], arrays[result]):
                raise AliasError(
                    f"{name}: {result} shares memory with {other}, which later parts read; pass another array for "
                    f"{result}"
                )


def _overlaps_itself(array: NDArray[Any]) -> bool:
    """Return whether two indices reach, or may reach, the same byte."""
    inner = array.itemsize  # the bytes of the axes so far
    for stride, extent in sorted(zip(map(abs, array.strides), array.shape, strict=True)):
        if extent > 1 and stride < inner:
            return bool(array.size)
        inner += stride * (extent - 1)
    return False


def check_number(name: str, scalar: str, number: Any, dtype: np.dtype[Any]) -> None:
    """Raise the error of a wrong alpha or beta; dtype: the matrices', or the real dtype for a real number."""
    if isinstance(number, DevicePtr) or not isinstance(number, (int, float, complex, np.number)):
        raise ArgumentTypeError(f"{name}: with devices, {scalar} needs a number, got {shown(number)}")
    if isinstance(number, (complex, np.complexfloating)) and dtype.kind == "f":
        raise DTypeError(f"{name}: {scalar} needs a real number for {dtype}, got {shown(number)}")


# -- parts -------------------------------------------------------------------------------------------------------------


def _by_rows(work: _Product) -> bool:
    """Return whether parts of C are rows, because C is stored by rows; otherwise parts are columns."""
    return work.C.strides[0] >= work.C.strides[1]


def _panels(work: _Product, part: slice) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return the rows of op(A) and the same rows of C as a pair, or the columns of op(B) and the same columns of C."""
    return (work.of_a(part), work.C[part]) if _by_rows(work) else (work.of_b(part), work.C[:, part])


def _whole(work: _Product) -> NDArray[Any]:
    """Return the operand that all parts need."""
    return work.B if _by_rows(work) else work.A


def _in_panels(work: _Product, rows: int) -> float:
    """Return the bytes that each device needs while it computes parts of `rows` rows or columns."""
    whole, panels = span(_whole(work)), _panels(work, slice(rows))
    return whole + THREADS * sum(map(span, panels))


def _lend_panels(work: _Product, conjugates: bool) -> bool:
    """Return whether panels can be lent without packing, and all arrays have one order if it `conjugates`.

    Other arrays are computed by tiles, which are packed in one order. Regions pack arrays that have gaps along both
    axes, are reversed in memory, or are not aligned.
    """
    arrays = work.A, work.B, work.C
    if any(min(array.strides) < 0 or not array.flags.aligned for array in arrays):
        return False
    axes = {array.strides.index(array.itemsize) if array.itemsize in array.strides else -1 for array in arrays}
    return -1 not in axes and not (conjugates and len(axes) > 1)


def _are_in_one_place(A: NDArray[Any], B: NDArray[Any]) -> bool:
    """Return whether two arrays without gaps have the same memory, as an array and its transpose do."""
    flags = [array.flags.c_contiguous or array.flags.f_contiguous for array in (A, B)]
    return all(flags) and A.ctypes.data == B.ctypes.data and A.nbytes == B.nbytes


def _lent_parts(work: _Product, parts: Sequence[slice], result: Access) -> Iterator[tuple[Tile, Access]]:
    """Yield the parts of the arrays that _by_panels lends."""
    (m, n), all_terms = work.C.shape, (0, work.depth)
    by_rows = _by_rows(work)
    yield _block("B", all_terms, (0, n), work.trans_b) if by_rows else _block("A", (0, m), all_terms, work.trans_a), In
    for part in parts:
        own = part.start, part.stop
        yield _block("A", own, all_terms, work.trans_a) if by_rows else _block("B", all_terms, own, work.trans_b), In
        yield _block("C", own, (0, n)) if by_rows else _block("C", (0, m), own), result


def _by_panels(work: _Product, devices: Sequence[Device], space: float) -> None:
    """Compute panels of C: rows from rows of op(A) and op(B), or columns from op(A) and columns of op(B)."""
    along, across = work.C.shape if _by_rows(work) else work.C.shape[::-1]
    rows = max(_LEAST, -(-_PART // across // _UNIT) * _UNIT)
    while rows > _LEAST and _in_panels(work, rows) > space:
        rows //= 2
    by_rows = _by_rows(work)
    alone = [device.backend for device in devices] == ["host"]  # no transfer overlaps a product there
    if alone and span(_whole(work)) + sum(map(span, _panels(work, slice(along)))) <= space:
        rows = along
    starts = range(0, along, min(rows, -(-along // len(devices))))
    parts = [slice(start, min(start + starts.step, along)) for start in starts]
    result: Access = Out if work.beta == 0 and work.depth else InOut

    check_lent("blas.gemm", {"A": work.A, "B": work.B, "C": work.C}, _lent_parts(work, parts, result), devices)

    def panels(device: Device, following: Callable[[], int | None]) -> None:
        with offload_args(In(_whole(work)), device=device) as (whole,):
            while (number := following()) is not None:
                panel, c = _panels(work, parts[number])
                with offload_args(In(panel), result(c), device=device) as (some, dc):
                    a, b = (some, whole) if by_rows else (whole, some)
                    work.compute(a, b, work.beta, dc)

    def part_of(number: int) -> str:
        text = f"{parts[number].start}:{parts[number].stop}"
        return f"C[{text}, :]" if by_rows else f"C[:, {text}]"

    try:
        share_out("blas.gemm", [()] * len(parts), devices, panels, lambda done: note_of([*map(part_of, done)]))
    except OffloadError as error:
        rename(error, _OWN_ARGUMENT, lambda match: "blas.gemm: C" if match[1] == "2" else "blas.gemm: an operand")
        raise


# -- tiles -------------------------------------------------------------------------------------------------------------

Range = tuple[int, int]


def _block(name: str, rows: Range, columns: Range, trans: str = "N") -> Tile:
    """Return the stored tile for rows and columns of op(a matrix)."""
    return Tile(name, *rows, *columns) if trans == "N" else Tile(name, *columns, *rows)


def _terms(alpha: Any, depth: int, most: int) -> list[Range]:
    """Return the terms of each step of a sum. With no term, C is only scaled: libraries differ for an alpha of 0."""
    return (cuts(depth, max(most, 1)) if alpha else []) or [(0, 0)]


def _gemm_tasks(work: _Product, sides: Sides, most: int) -> list[Task]:
    """Return the tasks of gemm; `most`: the terms of a step."""
    (m, n), depth = work.C.shape, work.depth
    terms = _terms(work.alpha, depth, most)
    tasks = []
    for i, j in pairs(cuts(m, sides.side), cuts(n, sides.side)):
        steps = [
            Step(
                _product(work.gemm, work.alpha, work.beta if k is terms[0] else 1.0, work.trans_a, work.trans_b),
                (_block("A", i, k, work.trans_a), _block("B", k, j, work.trans_b)),
            )
            for k in terms
        ]
        tasks.append(Task(Tile("C", *i, *j), steps, loads=work.beta != 0))
    return tasks


def _product(gemm: Callable[..., None], alpha: Any, beta: Any, trans_a: str, trans_b: str) -> Callable[..., None]:
    return lambda c, a, b: gemm(alpha, a, b, beta, c, trans_a=trans_a, trans_b=trans_b)


class _Call(NamedTuple):
    """A call of a function of level 3 with arrays: its own function for pointers, gemm, and all arguments by name."""

    name: str
    function: Callable[..., None]
    gemm: Callable[..., None]
    alpha: Any
    beta: Any
    options: dict[str, str]
    arrays: dict[str, NDArray[Any]]

    @property
    def transposes(self) -> str:
        """The operation that makes one triangle of the matrix from the other triangle."""
        return "C" if self.name.startswith("he") else "T"

    def product(self, alpha: Any, beta: Any, trans_a: str = "N", trans_b: str = "N") -> Callable[..., None]:
        return _product(self.gemm, alpha, beta, trans_a, trans_b)


def _symmetric_tasks(call: _Call, sides: Sides, in_places: bool) -> list[Task]:
    """Return the tasks of symm and hemm: products with stored tiles of A, and with mirrored tiles."""
    (m, n), is_left, uplo = call.arrays["C"].shape, call.options["side"] == "L", call.options["uplo"]
    rows, columns = cuts(m, sides.side), cuts(n, sides.side)
    tasks = []
    for i, j in pairs(rows, columns):
        steps: list[Step] = []
        if not call.alpha:
            none = (0, 0)
            reads = (
                (_block("A", i, none), _block("B", none, j))
                if is_left
                else (_block("B", i, none), _block("A", none, j))
            )
            steps.append(Step(call.product(0.0, call.beta), reads))
        for k in (rows if is_left else columns) if call.alpha else ():
            beta = 1.0 if steps else call.beta
            other = _block("B", k, j) if is_left else _block("B", i, k)
            row, column = (i, k) if is_left else (k, j)
            op = "N" if (row < column) == (uplo == "U") else call.transposes
            reads = _block("A", row, column, op), other
            if row == column:
                steps.append(Step(_symmetric(call, beta), (_block("A", row, row), other)))
            elif is_left:
                steps.append(Step(call.product(call.alpha, beta, trans_a=op), reads))
            else:
                steps.append(Step(call.product(call.alpha, beta, trans_b=op), reads[::-1]))
        tasks.append(Task(Tile("C", *i, *j), steps, loads=call.beta != 0))
    return tasks


def _symmetric(call: _Call, beta: Any) -> Callable[..., None]:
    return lambda c, a, b: call.function(call.alpha, a, b, beta, c, **call.options)


def _rank_tasks(call: _Call, sides: Sides, in_places: bool) -> list[Task]:
    """Return the tasks of syrk, herk, syr2k and her2k: the tiles of a triangle of C."""
    trans, uplo, is_second = call.options["trans"], call.options["uplo"], "B" in call.arrays
    n, depth = call.arrays["C"].shape[0], call.arrays["A"].shape[trans == "N"]
    terms = _terms(call.alpha, depth, sides.side if in_places else sides.side // 4)
    ops = ("N", call.transposes) if trans == "N" else (call.transposes, "N")
    alphas = call.alpha, np.conj(call.alpha) if call.transposes == "C" else call.alpha
    tasks = []
    for i, j in pairs(cuts(n, sides.side), repeat=2):
        if i != j and (i < j) != (uplo == "U"):
            continue
        steps: list[Step] = []
        for k in terms:
            beta = 1.0 if steps else call.beta
            ks = {(key, at): _block(key, at, k, trans) for key in "AB" for at in (i, j)}
            if i == j:
                reads = (ks["A", i], ks["B", i]) if is_second else (ks["A", i],)
                steps.append(Step(_rank(call, beta), reads))
                continue
            steps.append(Step(call.product(alphas[0], beta, *ops), (ks["A", i], ks["B" if is_second else "A", j])))
            if is_second:
                steps.append(Step(call.product(alphas[1], 1.0, *ops), (ks["B", i], ks["A", j])))
        is_square = i == j
        loads = call.beta != 0 or is_square
        tasks.append(Task(Tile("C", *i, *j), steps, loads=loads, uplo=uplo if is_square else ""))
    return tasks


def _rank(call: _Call, beta: Any) -> Callable[..., None]:
    return lambda c, *operands: call.function(call.alpha, *operands, beta, c, **call.options)


def _triangular_tasks(call: _Call, sides: Sides, in_places: bool) -> list[Task]:
    m, n = call.arrays["B"].shape
    sizes = cuts(m, sides.side), cuts(n, sides.side)
    solves = call.name == "trsm"
    return triangular(call.function, call.gemm, solves, call.alpha, ("A", "B"), sizes, (), **call.options)


def triangular(
    function: Callable[..., None],
    gemm: Callable[..., None],
    solves: bool,
    alpha: Any,
    names: tuple[str, str],
    sizes: tuple[list[Range], list[Range]],
    after: tuple[Tile, ...] = (),
    *,
    side: str,
    uplo: str,
    trans: str,
    diag: str,
) -> list[Task]:
    """Return the tasks of trmm, or of trsm if it `solves`.

    function: the function for pointers. names: the names of the triangular matrix and of B. sizes: the rows and columns
    of B's tiles. after: as in Task.
    """
    A, B = names
    is_left = side == "L"
    along, across = sizes if is_left else sizes[::-1]
    options = {"side": side, "uplo": uplo, "trans": trans, "diag": diag}
    is_upper = (uplo == "U") == (trans == "N")
    # For tile i of B, op(A) has tiles that are multiplied with tile k of B: for k > i if `later`, otherwise for k < i.
    later = is_upper == is_left
    order = along if later != solves else along[::-1]
    last = 1.0 if solves else alpha
    ops = {"trans_a": trans} if is_left else {"trans_b": trans}

    def own(factor: Any) -> Callable[..., None]:
        return lambda b, a: function(factor, a, b, **options)

    tasks = []
    for i, j in pairs(order, across):
        steps: list[Step] = []
        diagonal = _block(A, i, i)
        if not solves:
            steps.append(Step(own(alpha), (diagonal,)))
        for k in along[::-1] if later and solves else along:  # the tiles that are solved last come last
            if k == i or (k > i) != later or alpha == 0:
                continue
            tile = _block(B, k, j) if is_left else _block(B, j, k)
            of_a = _block(A, i, k, trans) if is_left else _block(A, k, i, trans)
            beta = alpha if solves and not steps else 1.0
            step = _product(gemm, -1.0 if solves else last, beta, ops.get("trans_a", "N"), ops.get("trans_b", "N"))
            steps.append(Step(step, (of_a, tile) if is_left else (tile, of_a)))
        if solves:
            steps.append(Step(own(1.0 if steps else alpha), (diagonal,)))
        tasks.append(Task(_block(B, i, j) if is_left else _block(B, j, i), steps, after=after))
    return tasks


class _Kind(NamedTuple):
    """Functions of level 3: their tasks, the shapes of the operands, and the options.

    operands: as in planned(): "A:mm/nn@side" has shape (m, m) for the first letter of `side`, (n, n) for the other one.
    depth: as in sides_for. one_order: whether all operands need one order, even if they are real.
    """

    tasks: Callable[[_Call, Sides, bool], list[Task]]
    operands: str
    options: dict[str, tuple[str, ...]]
    depth: float = 1.0
    one_order: bool = False


_UPLO: Final = ("U", "L")
_SIDE: Final = ("L", "R")
_SYMMETRIC: Final = _Kind(
    _symmetric_tasks, "A:mm/nn@side B:mn/mn@side C:mn/mn@side", {"side": _SIDE, "uplo": _UPLO}, one_order=True
)
_RANK: Final = _Kind(_rank_tasks, "A:nk/kn@trans C:nn/nn@trans", {"uplo": _UPLO, "trans": ("N", "T", "C")}, 0.25)
_RANK_2: Final = _RANK._replace(operands="A:nk/kn@trans B:nk/kn@trans C:nn/nn@trans", one_order=True)
_TRIANGULAR: Final = _Kind(
    _triangular_tasks,
    "A:mm/nn@side B:mn/mn@side",
    {"side": _SIDE, "uplo": _UPLO, "trans": ("N", "T", "C"), "diag": ("N", "U")},
)
_KINDS: Final = {
    "symm": _SYMMETRIC,
    "hemm": _SYMMETRIC,
    "syrk": _RANK,
    "herk": _RANK,
    "syr2k": _RANK_2,
    "her2k": _RANK_2,
    "trmm": _TRIANGULAR,
    "trsm": _TRIANGULAR,
}


def stream(
    function: Callable[..., None],
    gemm: Callable[..., None],
    alpha: Any,
    beta: Any,
    devices: Sequence[Device | str],
    *operands: Any,
    **options: str,
) -> None:
    """Check the arguments, and do the work of a function of level 3 with `devices`.

    function, gemm: the functions for pointers. operands: A, B and C, as far as the function has them.
    """
    kind, routine = _KINDS[function.__name__], function.__name__
    name = f"blas.{routine}"
    used = devices_of(name, devices)
    shapes = [text.partition(":")[::2] for text in kind.operands.split()]
    arrays = dict(zip((operand for operand, _ in shapes), operands, strict=True))
    check_arrays(name, **arrays)
    dtype = operands[0].dtype
    for option, value in options.items():
        known = kind.options[option]
        if option == "trans" and dtype.kind == "c" and kind.tasks is _rank_tasks:
            known = ("N", "C" if routine.startswith("he") else "T")
        need_option(name, option, value, known)
    real = np.empty(0, dtype).real.dtype
    check_number(name, "alpha", alpha, real if routine == "herk" else dtype)
    if beta is not None:
        check_number(name, "beta", beta, real if routine.startswith("her") else dtype)
    _check_shapes(name, shapes, arrays, options)
    result = operands[-1]
    if not result.size:
        return
    longest = max(max(array.shape) for array in operands)
    sides = sides_for(name, used, dtype.itemsize, longest, kind.depth)
    call = _Call(routine, function, gemm, alpha, beta, options, arrays)
    places = places_for(sides, used, dtype.itemsize, sum(array.nbytes for array in operands))
    if places:
        sides = places.sides
        tasks = places.in_blocks(kind.tasks(call, sides, True), in_place=routine == "trmm")
    else:
        tasks = kind.tasks(call, sides, False)
    compute(name, arrays, tasks, used, sides, kind.one_order or dtype.kind == "c")


def _check_shapes(
    name: str, shapes: list[tuple[str, str]], arrays: dict[str, NDArray[Any]], options: dict[str, str]
) -> None:
    """Raise an error for the first array that does not fit the last array, or A."""
    result, layout = shapes[-1]
    m, n = arrays[result].shape
    sizes = {"m": m, "n": n}
    if layout.startswith("nn"):
        if m != n:
            raise ArgumentError(f"{name}: {result} has shape {arrays[result].shape}, needs as many rows as columns")
        at = 1 if options["trans"] == "N" else 0
        sizes["k"] = arrays["A"].shape[at]
    for operand, text in shapes[:-1]:
        letters, _, option = text.partition("@")
        first, _, second = letters.partition("/")
        value = options[option]
        needed = tuple(sizes[letter] for letter in (first if value in ("L", "N") else second))
        if arrays[operand].shape != needed:
            raise ArgumentError(
                f"{name}: {operand} has shape {arrays[operand].shape}, needs {needed} for {result} of shape "
                f'{(m, n)} and {option}="{value}"'
            )
