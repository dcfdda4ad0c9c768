"""Layouts, searches for algorithms, and products that can be repeated, for offload_args.cublaslt."""

from __future__ import annotations

import re
import threading
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, Final, NoReturn

import numpy as np

from . import _core, cublaslt
from .devices import as_device, by_number, default_number
from .display import shown
from .dtypes import DTYPE_NAMES, code_of
from .errors import ArgumentError, ArgumentTypeError, DTypeError, LibraryError, OffloadError
from .pointers import DevicePtr

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from .cublaslt import MatmulDesc, MatmulPreference, MatrixLayout

__all__ = ["Algo", "Matmul", "heuristics", "layout", "preference"]

_CODES: Final = {
    "int8": cublaslt.CUDA_R_8I,
    "uint8": cublaslt.CUDA_R_8U,
    "int16": cublaslt.CUDA_R_16I,
    "uint16": cublaslt.CUDA_R_16U,
    "int32": cublaslt.CUDA_R_32I,
    "uint32": cublaslt.CUDA_R_32U,
    "int64": cublaslt.CUDA_R_64I,
    "uint64": cublaslt.CUDA_R_64U,
    "float8_e4m3fn": cublaslt.CUDA_R_8F_E4M3,
    "float8_e5m2": cublaslt.CUDA_R_8F_E5M2,
    "float16": cublaslt.CUDA_R_16F,
    "bfloat16": cublaslt.CUDA_R_16BF,
    "float32": cublaslt.CUDA_R_32F,
    "float64": cublaslt.CUDA_R_64F,
    "complex64": cublaslt.CUDA_C_32F,
    "complex128": cublaslt.CUDA_C_64F,
}
# The type of computation, and the dtype of alpha and beta, by the dtype of A.
_COMPUTE: Final = {
    "int8": (cublaslt.COMPUTE_32I, "int32"),
    "float8_e4m3fn": (cublaslt.COMPUTE_32F, "float32"),
    "float8_e5m2": (cublaslt.COMPUTE_32F, "float32"),
    "float16": (cublaslt.COMPUTE_32F, "float32"),
    "bfloat16": (cublaslt.COMPUTE_32F, "float32"),
    "float32": (cublaslt.COMPUTE_32F, "float32"),
    "float64": (cublaslt.COMPUTE_64F, "float64"),
    "complex64": (cublaslt.COMPUTE_32F, "complex64"),
    "complex128": (cublaslt.COMPUTE_64F, "complex128"),
}
_SMALL: Final = ("float8_e4m3fn", "float8_e5m2")
_WORKSPACE: Final = 32 << 20  # bytes: NVIDIA's recommendation for its newest devices
_RESULT: Final = 96  # bytes of a cublasLtMatmulHeuristicResult_t
_AUX, _MASKS, _WRITES_AUX = 128, 2 | 8, 2 | 32  # bits of an epilogue: aux exists; aux is a mask of bits; aux is written
_GRADIENT, _OF_A, _OF_B, _BIAS = 16, 256, 512, 4  # bits: the bias is a gradient of D, of A, of B; the bias is added


@cache
def _service(name: str) -> Any:
    return _core.function("cublaslt", name, cublaslt.__name__)


@cache
def _handle(number: int) -> Any:
    """Return the device's cuBLASLt handle for searches of algorithms."""
    return _service("create")(device=by_number(number))


# -- layouts -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Facts:
    """The layout of a matrix, or of a batch of matrices, in memory; its strides count elements."""

    dtype: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]

    @property
    def batches(self) -> int:
        return self.shape[0] if len(self.shape) == 3 else 1

    @property
    def batch_stride(self) -> int:
        return self.strides[0] if len(self.shape) == 3 else 0

    @property
    def is_by_rows(self) -> bool:
        """Return whether the matrix is stored by rows; a single column or row without gaps counts as both."""
        return self.shape[-1] == 1 or (
            self.strides[-1] == 1 and (self.shape[-2] == 1 or self.strides[-2] >= self.shape[-1])
        )

    @property
    def is_by_columns(self) -> bool:
        return self.shape[-2] == 1 or (
            self.strides[-2] == 1 and (self.shape[-1] == 1 or self.strides[-1] >= self.shape[-2])
        )

    @property
    def transposed(self) -> _Facts:
        shape, strides = ((*lengths[:-2], lengths[-1], lengths[-2]) for lengths in (self.shape, self.strides))
        return _Facts(self.dtype, shape, strides)


def _dtype_name(function: str, name: str, code: int, like: Any) -> str:
    """Return a dtype's name; refuse dtypes that cuBLASLt lacks.

    `code` is the dtype's number, or -1 if devices can't hold the dtype.
    """
    dtype = DTYPE_NAMES[code] if code >= 0 else str(getattr(like, "dtype", like))
    if dtype not in _CODES:
        raise ArgumentError(f"{function}: {name} is of {dtype}, and cuBLASLt has {', '.join(_CODES)}")
    return dtype


def _facts(function: str, name: str, like: Any) -> _Facts:
    """Return the facts of a pointer or an array; refuse shapes and strides that a layout can't describe."""
    if not isinstance(like, (DevicePtr, np.ndarray)):
        raise ArgumentTypeError(f"{function}: {name} needs a DevicePtr or a NumPy array, got {shown(like)}")
    dtype = _dtype_name(function, name, like._dtype_code if isinstance(like, DevicePtr) else code_of(like.dtype), like)
    if len(like.shape) not in (2, 3):
        raise ArgumentError(f"{function}: {name} needs 2 axes, or 3 of a batch, has {len(like.shape)}")
    itemsize = like.dtype.itemsize
    if any(stride < 0 or stride % itemsize for stride in like.strides):
        raise ArgumentError(f"{function}: {name} needs strides of 0 or more whole elements, got {like.strides}")
    facts = _Facts(dtype, tuple(like.shape), tuple(stride // itemsize for stride in like.strides))
    if not (facts.is_by_rows or facts.is_by_columns):
        raise ArgumentError(
            f"{function}: {name} needs rows or columns without gaps between their elements, got strides of "
            f"{like.strides} bytes; pass a copy"
        )
    return facts


def _layout(facts: _Facts, by_rows: bool) -> MatrixLayout:
    """Make the layout of a matrix that is stored by rows, or by columns."""
    rows, columns = facts.shape[-2:]
    lines, elements = (rows, columns) if by_rows else (columns, rows)
    stride = facts.strides[-2 if by_rows else -1]
    ld = max(elements, 1) if lines <= 1 else stride
    layout: MatrixLayout = _service("matrix_layout_create")(_CODES[facts.dtype], rows, columns, ld)
    layout.order = cublaslt.ORDER_ROW if by_rows else cublaslt.ORDER_COL
    if len(facts.shape) == 3:
        layout.batch_count = facts.batches
        layout.strided_batch_offset = facts.batch_stride
    return layout


def layout(like: Any) -> MatrixLayout:
    """Make the layout of a matrix from the dtype, shape, order and leading dimension of a pointer.

    like: a DevicePtr, or an array that will be lent. If there are 3 axes, the first one counts the matrices of a batch,
    and the layout has the batch's stride. The order is ORDER_COL for a matrix that is stored by columns, and ORDER_ROW
    for other matrices. The layout is destroyed when no object refers to it any more.

    Raises ArgumentError if rows and columns both have gaps.
    """
    facts = _facts("cublaslt.layout", "like", like)
    return _layout(
        facts, by_rows=facts.is_by_rows and not (facts.is_by_columns and facts.strides[-2] == 1 < facts.shape[-2])
    )


# -- algorithms --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Algo:
    """An algorithm for a product."""

    algo: NDArray[np.uint64]  #: cuBLASLt's own cublasLtMatmulAlgo_t, for matmul
    workspace: int  #: bytes of device memory that the algorithm needs
    waves: float  #: how many times the product fills the device; just above a whole number, the last wave is small
    status: int  #: STATUS_SUCCESS, or the reason why the algorithm can't compute the product

    def capability(self, attribute: int) -> int | tuple[int, ...]:
        """Return the capability with a constant cublaslt.ALGO_CAP_*; a list is returned as a tuple."""
        is_list = attribute in (cublaslt.ALGO_CAP_TILE_IDS, cublaslt.ALGO_CAP_STAGES_IDS)
        return self._asked("matmul_algo_cap_get_attribute", attribute, is_list)

    def setting(self, attribute: int) -> int | tuple[int, ...]:
        """Return the setting with a constant cublaslt.ALGO_CONFIG_*."""
        return self._asked("matmul_algo_config_get_attribute", attribute, is_list=False)

    def _asked(self, function: str, attribute: int, is_list: bool) -> int | tuple[int, ...]:
        nbytes = _service(function)(self.algo, attribute, None, 0)
        kind = {2: np.uint16, 8: np.uint64}.get(nbytes, np.uint32) if not is_list else np.uint32
        signed = {2: np.uint16, 8: np.uint64}.get(nbytes, np.int32)
        for dtype in (kind, signed):
            values = np.zeros(nbytes // np.dtype(dtype).itemsize, dtype)
            try:
                _service(function)(self.algo, attribute, values, values.nbytes)
            except DTypeError:
                continue
            return tuple(values.tolist()) if is_list else int(values[0])
        raise AssertionError(attribute)


def preference(*, workspace: int = _WORKSPACE, alignment: int = 256) -> MatmulPreference:
    """Make the preferences of a search: the most bytes of workspace, and the alignment of matrices.

    workspace: in bytes; the default is NVIDIA's recommendation for its newest devices. alignment: in bytes. Lent arrays
    start at multiples of 256 bytes, but their slices may start at other addresses.

    Other preferences are set as attributes of the result.
    """
    result: MatmulPreference = _service("matmul_preference_create")()
    result.max_workspace_bytes = workspace
    for letter in "abcd":
        setattr(result, f"min_alignment_{letter}_bytes", alignment)
    return result


def heuristics(
    desc: MatmulDesc,
    a: MatrixLayout,
    b: MatrixLayout,
    c: MatrixLayout,
    d: MatrixLayout,
    *,
    preference: MatmulPreference | None = None,
    count: int = 8,
    device: Any = None,
) -> list[Algo]:
    """Find at most `count` algorithms for a product; the first is the fastest by cuBLASLt's estimate.

    preference: by default, it allows at most 32 MiB of workspace. device: a Device or its name; None is the default
    device.

    Raises LibraryError if there is no algorithm.
    """
    number = default_number() if device is None else as_device(device).number
    if count < 1:
        raise ArgumentError(f"cublaslt.heuristics: count needs to be at least 1, got {count}")
    results = np.zeros((count, _RESULT), np.uint8)
    preferred = preference if preference is not None else globals()["preference"]()
    written = _service("matmul_algo_get_heuristic")(_handle(number), desc, a, b, c, d, preferred, count, results)
    return [_algo(result) for result in results[:written]]


def _algo(result: NDArray[np.uint8]) -> Algo:
    numbers = result[:72].copy().view(np.uint64)
    status, waves = int(result[72:76].view(np.int32)[0]), float(result[76:80].view(np.float32)[0])
    return Algo(numbers[:8], int(numbers[8]), waves, status)


# -- products ----------------------------------------------------------------------------------------------------------


def _rounded(size: int, to: int) -> int:
    return (size + to - 1) // to * to


class Matmul:
    """A product that can be repeated: descriptor, layouts and algorithm, for D = epilogue(alpha A B + beta C).

        product = cublaslt.Matmul(dA, dB, dD, epilogue=cublaslt.EPILOGUE_RELU_BIAS)
        product(dA, dB, dD, bias=db)

    A, B, D and C: DevicePtrs, or arrays that will be lent; only their dtypes, shapes and strides are used. Each matrix
    is stored by rows or by columns. If there are 3 axes, the first one counts the matrices of a batch. A matrix of 2
    axes is used for the whole batch. C and D have the same order.

    If D is stored by rows, the bias has one element for each column, as in NumPy's addition. If D is stored by columns,
    the bias has one element for each row. The gradients of EPILOGUE_BGRADA and EPILOGUE_BGRADB are the sums of A's rows
    and of B's columns. aux_shape and aux_dtype describe the array that aux needs.

    epilogue: cublaslt.EPILOGUE_*. compute: cublaslt.COMPUTE_*. By default, the product is computed in A's dtype, or in
    float32 if A's dtype is narrower; cublaslt.COMPUTE_32F_FAST_TF32 is faster and less exact. bias_dtype: the dtype of
    the bias, by default D's.
    workspace: the most bytes that a call takes from the device's pool. alignment: in bytes. Lent arrays start at
    multiples of 256 bytes, but their slices may start at other addresses. algo: an Algo; by default the first one that
    cuBLASLt proposes.

    Raises ArgumentError for shapes that do not fit, and LibraryError if cuBLASLt has no algorithm for the product.
    """

    desc: MatmulDesc  #: cuBLASLt's descriptor
    algo: Algo
    aux_shape: tuple[int, ...] | None  #: the shape of aux in C order, with a row for each line of D; None without aux
    aux_dtype: Any

    def __init__(
        self,
        A: Any,
        B: Any,
        D: Any,
        C: Any = None,
        *,
        epilogue: int = cublaslt.EPILOGUE_DEFAULT,
        compute: int | None = None,
        bias_dtype: Any = None,
        workspace: int = _WORKSPACE,
        alignment: int = 256,
        algo: Algo | None = None,
        device: Any = None,
    ) -> None:
        subject = "cublaslt.Matmul"
        a, b, d = (_facts(subject, name, pointer) for name, pointer in (("A", A), ("B", B), ("D", D)))
        c = _facts(subject, "C", C) if C is not None else None
        operands = (A, B, D, C if C is not None else D)
        self._given = tuple((operand.shape, operand.strides) for operand in operands)
        _check_shapes(subject, a, b, d, c)
        self._swapped = d.is_by_rows
        self._epilogue = epilogue
        self._make_desc(a, compute, d)
        self._make_layouts(a, b, d, c)
        self._make_epilogue(d, bias_dtype)
        at = A.device if device is None and isinstance(A, DevicePtr) else device
        preferred = preference(workspace=workspace, alignment=alignment)
        if algo is None:
            algorithms = heuristics(self.desc, *self._layouts, preference=preferred, count=1, device=at)
            if not algorithms:
                raise LibraryError(f"{subject}: cuBLASLt has no algorithm for this product")
            algo = algorithms[0]
        self.algo = algo
        self._lock = threading.Lock()
        self._last: tuple[Any, ...] = (None,) * 4
        self._bytes = algo.algo.tobytes()  # bytes are faster to pass
        self._arrays: dict[str, Any] = {}  # the arrays to which the descriptor refers
        self._needed = [name for name, bits in _USES.items() if epilogue & bits]
        self._matmul = _service("matmul")

    def _make_desc(self, a: _Facts, compute: int | None, d: _Facts) -> None:
        if a.dtype not in _COMPUTE:
            raise ArgumentError(f"cublaslt.Matmul: A is of {a.dtype}, and there are products of {', '.join(_COMPUTE)}")
        sums, scale = _COMPUTE[a.dtype]
        if a.dtype == "int8" and d.dtype != "int32":
            scale = "float32"
        if compute in (cublaslt.COMPUTE_16F, cublaslt.COMPUTE_16F_PEDANTIC):
            scale = "float16"
        self._scale = scale
        self.desc = _service("matmul_desc_create")(sums if compute is None else compute, _CODES[scale])

    def _make_layouts(self, a: _Facts, b: _Facts, d: _Facts, c: _Facts | None) -> None:
        """Make column-major layouts; if D is row-major, the layouts describe D^T = B^T A^T."""
        c = c if c is not None else _Facts(_c_dtype(d.dtype), d.shape, d.strides)
        if self._swapped:
            a, b, c, d = b.transposed, a.transposed, c.transposed, d.transposed
        layouts = []
        for matrix, transposes in ((a, "transa"), (b, "transb")):
            by_rows = not matrix.is_by_columns
            setattr(self.desc, transposes, cublaslt.OP_T if by_rows else cublaslt.OP_N)
            layouts.append(_layout(_batched(matrix.transposed if by_rows else matrix, d), by_rows=False))
        of_d = _layout(d, by_rows=False)
        self._layouts = (*layouts, of_d if c == d else _layout(_batched(c, d), by_rows=False), of_d)

    def _make_epilogue(self, d: _Facts, bias_dtype: Any) -> None:
        """Set the attributes of the epilogue, with stand-ins for the addresses."""
        epilogue, line = self._epilogue, d.shape[-1] if self._swapped else d.shape[-2]
        lines = d.shape[-2] if self._swapped else d.shape[-1]
        if self._swapped and epilogue in (_OF_A, _OF_B):
            epilogue ^= _OF_A | _OF_B
        self.desc.epilogue = epilogue
        self.aux_shape = self.aux_dtype = None
        if epilogue & (_BIAS | _GRADIENT | _OF_A | _OF_B):
            self.desc.bias_pointer = 256
            if bias_dtype is not None:
                dtype = np.dtype(bias_dtype)
                name = _dtype_name("cublaslt.Matmul", "bias_dtype", code_of(dtype), dtype)
                self.desc.bias_data_type = _CODES[name]
        if epilogue & _AUX:
            is_mask = bool(epilogue & _MASKS)
            ld = _rounded(line, 128 if is_mask else 8)
            size = ld // 8 if is_mask else ld
            self.aux_shape = (*d.shape[:-2], lines, size)
            self.aux_dtype = np.dtype(np.uint8) if is_mask else _dtype_named(d.dtype)
            self.desc.epilogue_aux_pointer = 256
            self.desc.epilogue_aux_ld = ld
            if len(d.shape) == 3:
                self.desc.epilogue_aux_batch_stride = ld * lines
        if epilogue & _GRADIENT and len(d.shape) == 3:
            self.desc.bias_batch_stride = line

    def __call__(
        self,
        A: DevicePtr[Any],
        B: DevicePtr[Any],
        D: DevicePtr[Any],
        C: DevicePtr[Any] | None = None,
        *,
        alpha: complex = 1.0,
        beta: complex = 0.0,
        workspace: DevicePtr[Any] | None = None,
        **arrays: DevicePtr[Any] | None,
    ) -> None:
        """Compute the product.

        arrays: bias, aux, and DevicePtrs to one float32 each: the factors a_scale, b_scale, c_scale, d_scale,
        aux_scale, and the results d_amax, aux_amax.

        Raises the errors that any call of a library's function may raise. Raises ArgumentError if the product was made
        for another shape or other strides of an array.
        """
        last = self._last
        if A is not last[0] or B is not last[1] or D is not last[2] or C is not last[3]:
            self._check((A, B, D, C))
            self._last = (A, B, D, C)
        a, b, c, d = self._layouts
        if self._swapped:
            A, B = B, A
        size = self.algo.workspace if workspace is None else workspace.nbytes
        try:
            if not arrays and not self._arrays and not self._needed:
                self._matmul(self.desc, alpha, A, a, B, b, beta, C, c, D, d, self._bytes, workspace, size)
                return
            with self._lock:
                self._set_all(arrays)
                self._matmul(self.desc, alpha, A, a, B, b, beta, C, c, D, d, self._bytes, workspace, size)
        except OffloadError as error:
            if not self._swapped:
                raise
            raise _with_names_swapped(error) from None

    def _set_all(self, arrays: dict[str, DevicePtr[Any] | None]) -> None:
        """Make the descriptor refer to exactly these arrays."""
        for name, array in arrays.items():
            if self._arrays.get(name) is not array:
                self._set(name, array)
        for name in [name_ for name_ in self._arrays if name_ not in arrays]:
            self._set(name, None)
            del self._arrays[name]
        for name in self._needed:
            if self._arrays.get(name) is None:
                raise ArgumentError(f"cublaslt.Matmul: the epilogue needs {name}, got none")

    def _set(self, name: str, array: DevicePtr[Any] | None) -> None:
        if name not in _ARRAYS:
            raise ArgumentTypeError(f"cublaslt.Matmul: there is no argument {name}; there are {', '.join(_ARRAYS)}")
        if array is not None and not isinstance(array, DevicePtr):
            raise ArgumentTypeError(f"cublaslt.Matmul: {name} needs a DevicePtr, got {shown(array)}")
        setattr(self.desc, _ARRAYS[name], array)
        self._arrays[name] = array

    def _check(self, operands: Sequence[Any]) -> None:
        """Refuse arrays if the product was made for other shapes or strides."""
        for name, operand, (shape, strides) in zip("ABDC", operands, self._given, strict=True):
            if operand is None and name == "C":
                continue
            if not isinstance(operand, DevicePtr):
                raise ArgumentTypeError(f"cublaslt.Matmul: {name} needs a DevicePtr, got {shown(operand)}")
            if operand.shape != shape or operand.strides != strides:
                raise ArgumentError(
                    f"cublaslt.Matmul: {name} needs the shape {shape} and strides of {strides} bytes, as the product "
                    f"was made for; got {operand.shape} and {operand.strides}"
                )

    def __reduce__(self) -> NoReturn:
        raise ArgumentTypeError(
            "cublaslt.Matmul: can't be copied or pickled: it has descriptors of this process; make another from arrays "
            "of the same shapes"
        )

    def __repr__(self) -> str:
        a, b, d = (shape for shape, _ in self._given[:3])
        return f"<cublaslt.Matmul {a} x {b} -> {d}, workspace of {self.algo.workspace} bytes>"


_ARRAYS: Final = {
    "bias": "bias_pointer",
    "aux": "epilogue_aux_pointer",
    "a_scale": "a_scale_pointer",
    "b_scale": "b_scale_pointer",
    "c_scale": "c_scale_pointer",
    "d_scale": "d_scale_pointer",
    "d_amax": "amax_d_pointer",
    "aux_scale": "epilogue_aux_scale_pointer",
    "aux_amax": "epilogue_aux_amax_pointer",
}


_USES: Final = {"bias": _BIAS | _GRADIENT | _OF_A | _OF_B, "aux": _AUX}


def _with_names_swapped(error: OffloadError) -> OffloadError:
    """Return an error with the names A and B exchanged, because the library's A is the caller's B."""
    names = {"A": "B", "B": "A", "Adesc": "Bdesc", "Bdesc": "Adesc"}
    text = re.sub(r"\b(A|B|Adesc|Bdesc)\b", lambda match: names[match[0]], str(error))
    return type(error)(text)


def _c_dtype(dtype: str) -> str:
    """Return the dtype with which a missing C is described, because the library accepts no float8 dtype for C."""
    return "bfloat16" if dtype in _SMALL else dtype


def _dtype_named(name: str) -> Any:
    from .dtypes import dtype_of

    return dtype_of(DTYPE_NAMES.index(name))


def _batched(facts: _Facts, d: _Facts) -> _Facts:
    """Return a matrix repeated for each matrix of D's batch."""
    if len(facts.shape) == len(d.shape):
        return facts
    return _Facts(facts.dtype, (d.batches, *facts.shape), (0, *facts.strides))


def _check_shapes(subject: str, a: _Facts, b: _Facts, d: _Facts, c: _Facts | None) -> None:
    """Raise ArgumentError if a matrix does not fit; the error names this matrix."""
    (m, k), (inner, n) = a.shape[-2:], b.shape[-2:]
    if k != inner:
        raise ArgumentError(f"{subject}: B needs {k} rows, as many as A has columns, has {inner}")
    if d.shape[-2:] != (m, n):
        raise ArgumentError(f"{subject}: D needs the shape {(m, n)} of A B, has {d.shape[-2:]}")
    for name, matrix in (("A", a), ("B", b), ("C", c)):
        if matrix is not None and len(matrix.shape) == 3 and matrix.shape[0] != d.batches:
            raise ArgumentError(f"{subject}: {name} needs a batch of {d.batches}, as D has, has {matrix.shape[0]}")
        if matrix is not None and len(matrix.shape) > len(d.shape):
            raise ArgumentError(f"{subject}: D needs 3 axes, as {name} has a batch; it has 2")
    if c is not None and (
        c.shape[-2:] != d.shape[-2:] or (c.is_by_rows, c.is_by_columns) != (d.is_by_rows, d.is_by_columns)
    ):
        raise ArgumentError(f"{subject}: C needs the shape {d.shape[-2:]} and the order of D, has {c.shape[-2:]}")
