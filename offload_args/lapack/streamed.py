"""Cholesky and LU factors of host arrays by tiles, and solutions with them: arrays may be larger than a device."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from .. import _core
from .._operands import letter_of, need_option
from ..arguments import Scratch
from ..blas.gemm import gemm
from ..blas.level3 import herk, trsm
from ..blas.streamed import check_arrays, devices_of, refuse_shared, triangular
from ..blas.tiles import (
    THREADS,
    Places,
    Sides,
    Step,
    Task,
    Tile,
    compute,
    cuts,
    finish,
    order_of,
    places_for,
    sides_for,
    space_for,
)
from ..dtypes import refuse_masked
from ..errors import ArgumentError, ArgumentTypeError, DirectionError, DTypeError, PresentError
from ..pointers import DevicePtr
from ..regions import offload_args
from ._checks import first_zero
from ._vendors import vendor_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from numpy.typing import NDArray

    from ..devices import Device

__all__ = ["factor_definite", "factor_general", "solve_definite", "solve_general"]

Range = tuple[int, int]

_INDEFINITE: Final = "A is not positive definite: its leading minor of order {info} (pivot {info}) is not"
_SINGULAR: Final = "A is singular: pivot {info} of its factor U is zero; gelsd and linalg.lstsq take singular matrices"
# Notes on errors.
_UNDEFINED: Final = "A and ipiv are undefined"
_FACTORED: Final = "A has its factors, B is as it was"
# Columns of the narrowest panel that is factored on a device.
_NARROWEST: Final = 8
# Wider panels have at most an eighth of the columns.
_WIDE: Final = 512
# Panels that fit into the memory: if each is computed alone, and if unfinished ones stay there.
_PANELS: Final = THREADS
_IN_PLACES: Final = 16
# Columns of the narrowest panel that stays unfinished: with fewer, the device would compute more slowly than bytes
# move.
_NARROWEST_IN_PLACES: Final = 128


def _refused(name: str, text: str, info: int) -> np.linalg.LinAlgError:
    error = np.linalg.LinAlgError(f"{name}: {text.format(info=info)}")
    error.info = info  # type: ignore[attr-defined]
    return error


@contextmanager
def _noting(name: str, state: list[str]) -> Iterator[None]:
    """Add the last note of `state` to an exception that has no note, such as Ctrl-C between two computations."""
    try:
        yield
    except BaseException as error:
        if state and not any(other.startswith(f"{name}: ") for other in getattr(error, "__notes__", ())):
            error.add_note(f"{name}: {state[-1]}")
        raise


def _need_square(name: str, A: NDArray[Any], B: NDArray[Any] | None = None) -> None:
    if A.shape[0] != A.shape[1]:
        raise ArgumentError(f"{name}: A has shape {A.shape}, needs as many rows as columns")
    if B is not None and len(B) != len(A):
        raise ArgumentError(f"{name}: B has shape {B.shape}, needs {len(A)} rows for A of that order")


def _need_no_info(name: str, info: object) -> None:
    if info is not None:
        raise ArgumentError(f"{name}: info is for pointers, and has no use with devices; leave it out")


def _columns(B: NDArray[Any]) -> NDArray[Any]:
    """Return right sides as a matrix."""
    return B[:, None] if B.ndim == 1 else B


# -- Cholesky ----------------------------------------------------------------------------------------------------------


def factor_definite(
    name: str,
    potrf: Callable[..., None],
    A: Any,
    B: Any,
    uplo: str,
    info: object,
    devices: Sequence[Device | str],
) -> None:
    """Do the work of lapack.potrf, or of lapack.posv with the right sides B, with `devices`.

    potrf: the function for pointers. B: None for potrf.
    """
    _run_definite(name, A, B, uplo, info, devices, potrf)


def solve_definite(name: str, A: Any, B: Any, uplo: str, devices: Sequence[Device | str]) -> None:
    """Do the work of lapack.potrs with `devices`."""
    _run_definite(name, A, B, uplo, None, devices, None)


def _run_definite(
    name: str,
    A: Any,
    B: Any,
    uplo: str,
    info: object,
    devices: Sequence[Device | str],
    potrf: Callable[..., None] | None,
) -> None:
    used = devices_of(name, devices)
    arrays = {"A": A} if B is None else {"A": A, "B": B}
    check_arrays(name, vectors=("B",), written=1 if B is None or potrf is None else 2, **arrays)
    need_option(name, "uplo", uplo, ("U", "L"))
    _need_square(name, A, B)
    _need_no_info(name, info)
    if not len(A):
        return
    sides = sides_for(name, used, A.itemsize, len(A))
    # Few right sides are solved while the factors are there; B is not written before A is known to be definite. Of a
    # lent B, the device may have newer elements than the host, from which the copy of B is made.
    solves = potrf is not None and B is not None and B.nbytes <= sides.nbytes / 16 and not _core.is_lent_in_part(B)
    reserved = B.nbytes if B is not None and solves else 0
    places = places_for(sides, used, A.itemsize, A.nbytes / 2, reserved) if potrf else None
    if places and places.count < 1.5 * len(cuts(len(A), places.sides.side)):  # less than two columns
        places = None
    sides = places.sides if places else sides
    rows = cuts(len(A), sides.side)
    tasks: list[Task] = []
    right_sides = 0 if B is None else _columns(B).shape[1]
    if potrf:
        tasks += _cholesky(name, potrf, rows, uplo, places, right_sides if places and solves else 0)
    if places and solves:
        arrays["Y"] = np.array(B, order=order_of(B))  # type: ignore[call-overload]
        tasks += _backward(rows, right_sides, uplo)
    elif B is not None:
        sizes = rows, cuts(right_sides, sides.side)
        after = (Tile("A", *rows[-1], *rows[-1]),)  # no later task can find that A is not definite
        for trans in ("C", "N") if uplo == "U" else ("N", "C"):
            tasks += triangular(
                trsm, gemm, True, 1.0, ("A", "B"), sizes, after, side="L", uplo=uplo, trans=trans, diag="N"
            )
    compute(name, arrays, tasks, used, sides, A.dtype.kind == "c", hidden="Y")


class _Cholesky(NamedTuple):
    """The tasks of a Cholesky factorization, on tiles (i, j) of L, or on their mirror images in U."""

    name: str
    potrf: Callable[..., None]
    uplo: str

    @property
    def _ops(self) -> tuple[str, str]:
        return ("C", "N") if self.uplo == "U" else ("N", "C")

    def at(self, i: Range, j: Range) -> Tile:
        return Tile("A", *j, *i) if self.uplo == "U" else Tile("A", *i, *j)

    def _update(self, i: Range, j: Range, k: Range) -> Step:
        """Return the step that subtracts the product of the tiles (i, k) and (j, k) from tile (i, j)."""
        trans_a, trans_b = self._ops

        def update(c: DevicePtr, a: DevicePtr) -> None:
            herk(-1.0, a, 1.0, c, uplo=self.uplo, trans=trans_a)

        def multiply(c: DevicePtr, a: DevicePtr, b: DevicePtr) -> None:
            gemm(-1.0, a, b, 1.0, c, trans_a=trans_a, trans_b=trans_b)

        if i == j:
            return Step(update, (self.at(j, k),))
        return Step(multiply, (self.at(j, k), self.at(i, k)) if self.uplo == "U" else (self.at(i, k), self.at(j, k)))

    def task(self, i: Range, j: Range, before: list[Range]) -> Task:
        """Return the task that computes tile (i, j). before: the columns of tiles before j."""

        def factor(c: DevicePtr) -> None:
            try:
                self.potrf(c, uplo=self.uplo)
            except np.linalg.LinAlgError as error:
                raise _refused(self.name, _INDEFINITE, j[0] + error.info) from None  # type: ignore[attr-defined]

        def solve(c: DevicePtr, a: DevicePtr) -> None:
            trsm(1.0, a, c, side="L" if self.uplo == "U" else "R", uplo=self.uplo, trans="C")

        steps = [self._update(i, j, k) for k in before]
        if i == j:
            return Task(self.at(j, j), [*steps, Step(factor)], uplo=self.uplo)
        return Task(self.at(i, j), [*steps, Step(solve, (self.at(j, j),))])

    def forward(self, i: Range, j: Range, columns: Range) -> Task:
        """Return the task of tile (i, j) in the solution of L Y = B, which Y has first: a product or a solution."""

        def solve(y: DevicePtr, a: DevicePtr) -> None:
            trsm(1.0, a, y, uplo=self.uplo, trans=self._ops[0])

        def multiply(y: DevicePtr, a: DevicePtr, b: DevicePtr) -> None:
            gemm(-1.0, a, b, 1.0, y, trans_a=self._ops[0])

        tile, of_a = Tile("Y", *i, *columns), self.at(i, j)
        if i == j:
            return Task(tile, [Step(solve, (of_a,))])
        return Task(tile, [Step(multiply, (of_a, Tile("Y", *j, *columns)))], stores=False)


def _cholesky(
    name: str,
    potrf: Callable[..., None],
    rows: list[Range],
    uplo: str,
    places: Places | None = None,
    right_sides: int = 0,
) -> list[Task]:
    """Return the tasks of potrf: column by column of tiles of L, or row by row of tiles of U.

    right_sides: the number of columns of Y, which has B, and gets the solution of L Y = B or U^H Y = B.
    """
    call = _Cholesky(name, potrf, uplo)
    columns = [[(i, j) for i in rows if i >= j] for j in rows]
    if not places:
        return [call.task(i, j, [k for k in rows if k < j]) for column in columns for i, j in column]
    tasks = []
    while columns:
        chunk = columns.pop(0)
        while columns and len(chunk) + len(columns[0]) <= places.count:
            chunk += columns.pop(0)
        tasks += places.together([call.task(i, j, [k for k in rows if k < j]) for i, j in chunk])
        if right_sides:
            tasks += [call.forward(i, j, (0, right_sides)) for i, j in chunk]
    return tasks


def _backward(rows: list[Range], right_sides: int, uplo: str) -> list[Task]:
    """Return the tasks that solve L^H X = Y or U X = Y, and write X to B."""
    sizes, trans = (rows, [(0, right_sides)]), "N" if uplo == "U" else "C"
    tasks = triangular(trsm, gemm, True, 1.0, ("A", "B"), sizes, side="L", uplo=uplo, trans=trans, diag="N")
    return [
        task._replace(steps=[Step(_copy, (task.tile._replace(name="Y"),)), *task.steps], loads=False) for task in tasks
    ]


def _copy(target: DevicePtr, source: DevicePtr) -> None:
    target.copy_from(source)


# -- LU ----------------------------------------------------------------------------------------------------------------


def factor_general(
    name: str,
    getrf: Callable[..., None],
    A: Any,
    ipiv: Any,
    B: Any,
    singular: str,
    info: object,
    devices: Sequence[Device | str],
) -> None:
    """Do the work of lapack.getrf, or of lapack.gesv with the right sides B, with `devices`.

    getrf: the function for pointers. B: None for getrf.
    """
    used = devices_of(name, devices)
    arrays = {"A": A} if B is None else {"A": A, "B": B}
    check_arrays(name, vectors=("B",), written=len(arrays), **arrays)
    need_option(name, "singular", singular, ("raise", "keep"))
    if B is not None:
        _need_square(name, A, B)
    _need_pivots(name, min(A.shape), len(arrays) + 1, **arrays, ipiv=ipiv)
    _need_no_info(name, info)
    if not A.size:
        return
    # The tiles of the solution have to fit before anything is written; then some memory may not be free again yet.
    sides = None if B is None else sides_for(name, used, A.itemsize, len(A))
    # In C order the factors are of A^T, as for pointers.
    state: list[str] = []
    with _noting(name, state):
        place = _factor_panels(name, getrf, A if _by_columns(A) else A.T, ipiv, used, state)
        state.append(_FACTORED if sides else "A has its factors")
        if sides and not (place and singular == "raise"):
            _solve_factored(name, A, ipiv, B, "N", used, sides, state)
    if place and singular == "raise":
        raise _refused(name, _SINGULAR, place)


def solve_general(name: str, A: Any, ipiv: Any, B: Any, trans: str, devices: Sequence[Device | str]) -> None:
    """Do the work of lapack.getrs with `devices`."""
    used = devices_of(name, devices)
    check_arrays(name, vectors=("B",), A=A, B=B)
    need_option(name, "trans", trans, ("N", "T", "C"))
    _need_square(name, A, B)
    _need_pivots(name, len(A), 1, A=A, ipiv=ipiv, B=B)
    _need_rows(name, ipiv, len(A), 0, len(A))
    if trans == "C" and A.dtype.kind == "c" and not _by_columns(A):
        raise ArgumentError(
            f'{name}: a complex A with trans="C" needs Fortran order, got strides {A.strides}; factor '
            f"A = np.asfortranarray(A)"
        )
    _solve_factored(name, A, ipiv, B, trans, used, sides_for(name, used, A.itemsize, len(A)), [])


def _by_columns(A: NDArray[Any]) -> bool:
    """Return whether the factors are the factors of A, and not of A^T. A row or column may be in both orders."""
    return order_of(A) == "F" or len(A) == 1 or (A.shape[1] == 1 and A.strides[0] == A.itemsize)


def _need_pivots(name: str, size: int, written: int, **arrays: Any) -> None:
    """Check ipiv; check also that the host can use ipiv and the written arrays, which are the last ones."""
    ipiv = arrays["ipiv"]
    refuse_masked(f"{name}: ipiv", ipiv)
    if not isinstance(ipiv, np.ndarray):
        raise ArgumentTypeError(
            f"{name}: with devices, ipiv needs a NumPy array, got {type(ipiv).__name__}; pass an array of int32"
        )
    if ipiv.dtype != np.int32:
        raise DTypeError(f"{name}: ipiv needs int32, got {ipiv.dtype}")
    if ipiv.shape != (size,):
        raise ArgumentError(f"{name}: ipiv has shape {ipiv.shape}, needs ({size},) for A of that shape")
    refuse_shared(name, arrays, written)
    results = [*arrays][-written:]
    for operand in ["ipiv", *results]:
        if _core.is_lent_in_part(arrays[operand]):
            raise PresentError(f"{name}: {operand} is lent, or a part of it; leave that region first")
    for operand in results:
        if not arrays[operand].flags.writeable:
            raise DirectionError(f"{name}: {operand} is read-only; pass a writable array")


def _need_rows(name: str, ipiv: NDArray[np.int32], rows: int, first: int, last: int) -> None:
    """Raise an error if a pivot from `first` to before `last` is not a row of its own or a later one."""
    wrong = np.flatnonzero((ipiv[first:last] <= np.arange(first, last)) | (ipiv[first:last] > rows))
    if len(wrong):
        i = first + int(wrong[0])
        raise ArgumentError(
            f"{name}: ipiv[{i}] is {ipiv[i]}, needs to be from {i + 1} to {rows}: pivots count from 1, as getrf "
            f"returns them"
        )


def _factor_panels(
    name: str,
    getrf: Callable[..., None],
    A: NDArray[Any],
    ipiv: NDArray[np.int32],
    devices: list[Device],
    state: list[str],
) -> int:
    """Factor A, in Fortran order, panel by panel of columns; return the place of the first zero on U's diagonal, or 0.

    state: as in _noting.

    A panel is updated by all panels to its left, and then factored, while no other part of A changes. At the end the
    rows of each panel are exchanged as later panels require it.
    """
    m, n = A.shape
    size = min(m, n)
    sides, places = _panels_for(name, A, devices)
    width = sides.side
    panels = [*cuts(size, width), *((size + a, size + b) for a, b in cuts(n - size, width))]
    call = _LU(name, getrf, m, size, ipiv, [], state)
    if places:
        tasks = []
        for first in range(0, len(panels), places.count):
            group = panels[first : first + places.count]
            tasks += places.together([call.task(panel, panels, group[0]) for panel in group])
    else:
        # The number of panels that may change at the same time: each also needs memory for a part of an earlier panel.
        at_once = max(1, int(min(sides.nbytes / (2 * A.itemsize * m * width), THREADS)))
        tasks = [
            call.task(panel, panels, panel, after=panels[: max(i + 1 - at_once, 0)]) for i, panel in enumerate(panels)
        ]
    compute(name, {"A": A}, tasks, devices, sides, note=_UNDEFINED)
    # Only the rows below a panel's own rows are exchanged.
    exchanges = [
        Task(Tile("A", panel[1], m, *panel), [Step(call.last(panel))])
        for panel in panels
        if panel[1] < size and call.moves_rows(panel[1], size)
    ]
    compute(name, {"A": A}, exchanges, devices, sides, note=_UNDEFINED)
    return min(call.zeros, default=0)


def _panels_for(name: str, A: NDArray[Any], devices: list[Device]) -> tuple[Sides, Places | None]:
    """Return the width of panels with their memory, and the places for unfinished ones if A exceeds the only device."""
    m, n = A.shape
    of_column = A.itemsize * m
    space = space_for(name, "the narrowest panels", _PANELS * of_column * min(_NARROWEST, n), devices)
    # A panel and a part of an earlier one; at the end each thread has a panel whose rows it exchanges.
    width = int(min(space / (_PANELS * of_column), max(_WIDE, -(-n // 8)), n))
    in_places = int(min(space / (_IN_PLACES * of_column), max(_WIDE, -(-n // 8))))
    if len(devices) > 1 or A.nbytes <= space or in_places < _NARROWEST_IN_PLACES:
        return Sides(width, space), None
    sides = Sides(in_places, space)
    return sides, Places(sides, int(space / (of_column * in_places)) - THREADS - 1)


class _LU(NamedTuple):
    """The tasks of an LU factorization on panels of columns of a matrix in Fortran order."""

    name: str
    getrf: Callable[..., None]
    m: int
    size: int
    ipiv: NDArray[np.int32]
    zeros: list[int]  # the place of the first zero in each panel that has one
    state: list[str]  # as in _noting

    def tile(self, panel: Range, top: int = 0) -> Tile:
        return Tile("A", top, self.m, *panel)

    def task(self, own: Range, panels: list[Range], present: Range, after: Sequence[Range] = ()) -> Task:
        """Return the task of a panel. present: the first panel that is read with all its rows.

        after: panels that come first.
        """
        left = [panel for panel in panels if panel < own and panel[1] <= self.size]
        steps = [self._update(panel, 0 if panel >= present else panel[0]) for panel in left]
        if own[1] <= self.size:
            steps.append(Step(self._factor(own)))
        # Steps read all rows of the panels from `present` on, which then come first by themselves.
        earlier = {*(panel for panel in left if panel < present), *after}
        return Task(self.tile(own), steps, after=tuple(map(self.tile, earlier)))

    def moves_rows(self, first: int, last: int) -> bool:
        return bool((self.ipiv[first:last] != np.arange(first + 1, last + 1)).any())

    def _exchange(self, panel: DevicePtr, first: int, last: int, top: int = 0) -> None:
        """Exchange row i with row ipiv[i] - 1, for i from `first` to before `last`; `panel` has all rows from `top`."""
        if not self.moves_rows(first, last):
            return
        with offload_args(Scratch(last - top, np.int32), device=panel.device) as (pivots,):
            pivots[first - top :].assign(self.ipiv[first:last] - np.int32(top))  # laswp reads no earlier ones
            letter, (height, width) = letter_of(self.name, "A", panel), panel.shape
            vendor = vendor_of(self.name, panel)
            vendor.laswp(letter, width, panel, height, first - top + 1, last - top, pivots, 1)

    def _update(self, left: Range, top: int) -> Step:
        """Return the step that updates a panel by one to its left, whose rows from `top` on are read."""
        begin, end = left

        def update(panel: DevicePtr, factor: DevicePtr) -> None:
            self._exchange(panel, begin, end)
            rows = panel[begin:end]
            trsm(1.0, factor[begin - top : end - top], rows, uplo="L", diag="U")
            if end < self.m:
                gemm(-1.0, factor[end - top :], rows, 1.0, panel[end:])

        return Step(update, (self.tile(left, top),))

    def _factor(self, own: Range) -> Callable[[DevicePtr], None]:
        begin, end = own

        def factor(panel: DevicePtr) -> None:
            self.state.append(_UNDEFINED)
            with offload_args(Scratch(end - begin, np.int32), device=panel.device) as (places,):
                self.getrf(panel[begin:], places, singular="keep")
                zero = first_zero(panel[begin:end])
                self.ipiv[begin:end] = places.to_host() + begin
            _need_rows(self.name, self.ipiv, self.m, begin, end)  # vendors do not check the rows that they exchange
            if zero:
                self.zeros.append(begin + zero)

        return factor

    def last(self, own: Range) -> Callable[[DevicePtr], None]:
        """Return the step that exchanges the rows of a panel below its own as later panels require it."""
        return lambda rows: self._exchange(rows, own[1], self.size, top=own[1])


def _solve_factored(
    name: str,
    A: NDArray[Any],
    ipiv: NDArray[np.int32],
    B: NDArray[Any],
    trans: str,
    devices: list[Device],
    sides: Sides,
    state: list[str],
) -> None:
    """Solve op(A) X = B with the factors that getrf left. state: as in _noting."""
    if not B.size:
        return
    if not _by_columns(A):  # the factors are of A^T
        A, trans = A.T, "T" if trans == "N" else "N"
    rows = np.arange(len(A))
    for i, pivot in enumerate(ipiv.tolist()):
        rows[i], rows[pivot - 1] = rows[pivot - 1], rows[i]
    X = _columns(B[rows] if trans == "N" else B.copy())
    arrays = {"A": A, "B": X}
    sizes = cuts(len(A), sides.side), cuts(X.shape[1], sides.side)
    tasks: list[Task] = []
    for uplo, diag in (("L", "U"), ("U", "N")) if trans == "N" else (("U", "N"), ("L", "U")):
        tasks += triangular(trsm, gemm, True, 1.0, ("A", "B"), sizes, side="L", uplo=uplo, trans=trans, diag=diag)
    compute(name, arrays, tasks, devices, sides, one_order=trans == "C", note=_FACTORED)

    def bring_back() -> tuple[None, None]:
        _columns(B)[... if trans == "N" else rows] = X
        state.append("A has its factors, B has the solution")
        return None, None

    finish(name, bring_back)
