"""Types of the extension module; none of it is public."""

from collections.abc import Callable, Sequence
from types import CodeType, ModuleType, TracebackType
from typing import Any, Final, Generic, Literal, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray
from typing_extensions import TypeVar

from .devices import Device
from .kernels.shared_memory import Shared
from .kernels.undeclared import UndeclaredKernel
from .pointers import DevicePtr
from .regions import offload_args

Sizes = int | tuple[int, ...]
# A region's pointers, as `as` binds them.
_Pointers_co = TypeVar(
    "_Pointers_co", bound=tuple[DevicePtr[Any], ...], default=tuple[DevicePtr[Any], ...], covariant=True
)
_Result = TypeVar("_Result")

VERSION: str
_C_API: object  # a capsule for extensions; csrc/include/offload_args/python.h describes it

# From numbers.c: the numbers and names of the core, by their names in C.
DTYPES: Final[tuple[tuple[str, str, int, str], ...]]  # NumPy's name, the C type's name, bytes, NumPy's kind or ""
STATUSES: Final[tuple[str, ...]]
TRACE_KINDS: Final[tuple[str, ...]]
RESIDENCY_MODES: Final[tuple[str, ...]]  # the index is an oa_residency_mode
USUAL_PRICE: Final[float]  # seconds that calls would have saved before accelerate() opens a device
OA_BY_USE: Final[int]
OA_IN: Final[int]
OA_OUT: Final[int]
OA_INOUT: Final[int]
OA_SCRATCH: Final[int]
OA_READ_ONLY: Final[int]
OA_BORROWED: Final[int]
OA_RESIDENT: Final[int]
OA_OWNED: Final[int]
OA_REUSED: Final[int]
OA_COMMIT: Final[int]
OA_DISCARD: Final[int]
OA_KEEP: Final[int]
OA_RESIDENCY_OFF: Final[int]
OA_RESIDENCY_EXPLICIT: Final[int]
OA_RESIDENCY_AUTO: Final[int]
OA_DEVICE_GPU: Final[int]
OA_DEVICE_HOST_CALLS: Final[int]
OA_DEVICE_SIMULATED: Final[int]
OA_LEAST_POLAR: Final[int]
OA_MOST_POLAR_SINGLE: Final[int]
OA_TRACE_ON: Final[int]
OA_TRACE_CHECKSUMS: Final[int]
OA_TRACE_UNDER_WAY: Final[int]
OA_ANY: Final[int]
OA_BOOL: Final[int]
OA_I8: Final[int]
OA_I16: Final[int]
OA_I32: Final[int]
OA_I64: Final[int]
OA_U8: Final[int]
OA_U16: Final[int]
OA_U32: Final[int]
OA_U64: Final[int]
OA_F16: Final[int]
OA_BF16: Final[int]
OA_F32: Final[int]
OA_F64: Final[int]
OA_C64: Final[int]
OA_C128: Final[int]
OA_F8E4M3: Final[int]
OA_F8E5M2: Final[int]
OA_OK: Final[int]
OA_ERROR_ARGUMENT: Final[int]
OA_ERROR_TYPE: Final[int]
OA_ERROR_NOT_HANDLE: Final[int]
OA_ERROR_STALE: Final[int]
OA_ERROR_EXTENT: Final[int]
OA_ERROR_OVERFLOW: Final[int]
OA_ERROR_DEVICE: Final[int]
OA_ERROR_DIRECTION: Final[int]
OA_ERROR_ALIAS: Final[int]
OA_ERROR_PRESENT: Final[int]
OA_ERROR_INVALID: Final[int]
OA_ERROR_MEMORY: Final[int]
OA_ERROR_BACKEND: Final[int]
OA_ERROR_LIBRARY: Final[int]
OA_ERROR_UNAVAILABLE: Final[int]
OA_ERROR_LOST: Final[int]
OA_ERROR_CAPTURE: Final[int]
OA_ERROR_FORKED: Final[int]
OA_ERROR_TORN: Final[int]
OA_ERROR_MODULE: Final[int]
OA_ERROR_SIGNATURE: Final[int]
OA_ERROR_VERSION: Final[int]
OA_TRACE_ENTER: Final[int]
OA_TRACE_LEAVE: Final[int]
OA_TRACE_UP: Final[int]
OA_TRACE_DOWN: Final[int]
OA_TRACE_CALL: Final[int]
OA_TRACE_WAIT: Final[int]
OA_TRACE_ALLOCATE: Final[int]
OA_TRACE_RELEASE: Final[int]
OA_TRACE_ACCESS: Final[int]
OA_TRACE_LAUNCH: Final[int]
OA_TRACE_PEER: Final[int]
OA_READ: Final[int]
OA_OVERWRITE: Final[int]
OA_READ_WRITE: Final[int]
OA_MOST_PARAMETERS: Final[int]
OA_MOST_PARAMETER_BYTES: Final[int]

# From records.c: named tuples. For each tuple, a table in C defines the fields and their docs.
class BackendInfo(NamedTuple):
    name: str
    flags: int
    dlpack_type: int

class DeviceInfo(NamedTuple):
    name: str
    backend: str
    model: str
    index: int  # type: ignore[assignment]  # hides tuple.index
    flags: int
    memory_free: int
    memory_total: int
    driver_version: int
    compute_major: int
    compute_minor: int
    dlpack_type: int
    reads_host: int
    coherent: bool

class Counters(NamedTuple):
    copies_up: int
    bytes_up: int
    copies_down: int
    bytes_down: int
    allocations: int
    frees: int
    mappings: int
    regions: int
    calls: int
    memory_used: int
    memory_peak: int
    pinned_bytes: int
    copies_peer: int
    bytes_peer: int
    bytes_former: int

class ResidencyFields(NamedTuple):
    mode: Literal["off", "explicit", "auto"]
    tracking: bool
    kept: int
    kept_bytes: int
    returns: int
    bytes_spared: int
    bytes_resent: int
    pages_armed: int
    pages_written: int
    dropped: int
    promoted: int
    demoted: int

class PointerInfo(NamedTuple):
    readable: bool
    writable: bool
    borrowed: bool
    escaped: bool
    nbytes: int
    scratch: bool
    valid: bool
    written: bool
    captured: bool
    lacking: int
    in_parts: bool
    host_writes: bool
    packed: bool
    shared: bool

class TraceEvent(NamedTuple):
    kind: int
    begun: int
    ended: int
    nbytes: int
    tag: int
    region: int
    address: int
    checksum: int
    device: int
    thread: int
    status: int
    batch: int
    packed: bool
    name: str
    why: str

class Pointer:
    _shape: tuple[int, ...]
    _strides: tuple[int, ...]
    _dtype_code: int
    _device: int
    @property
    def address(self) -> int: ...

class Object: ...

class Region(Generic[_Pointers_co]):
    def __init__(
        self,
        *arrays: Any,
        device: Device | str | None = None,
        stream: object = None,
        on_error: Literal["discard", "keep"] = "discard",
        resident: bool = False,
        guard: bool = False,
    ) -> None: ...
    @property
    def _arguments(self) -> tuple[Any, ...]: ...
    @property
    def _device(self) -> int: ...
    def __enter__(self) -> _Pointers_co: ...
    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
        /,
    ) -> Literal[False]: ...
    def open(self) -> _Pointers_co: ...
    def close(self) -> None: ...
    def discard(self) -> None: ...
    def _around(self) -> offload_args | None: ...
    def _place(self) -> tuple[CodeType, int] | None: ...
    def _pointers(self) -> tuple[DevicePtr[Any], ...] | None: ...
    def _capture(self) -> object: ...
    def _drop_capture(self) -> None: ...
    def _calls_to(self) -> int: ...

class Kernel:
    def __new__(
        cls,
        name: str,
        parameters: tuple[tuple[int, int, int, int, int], ...],
        partitions: tuple[Any, ...],
        shapes: tuple[tuple[int, int, int, int], ...],
        /,
    ) -> Self: ...
    @property
    def name(self) -> str: ...
    @property
    def _parameters(
        self,
    ) -> tuple[tuple[int, int, int, int, int], ...]: ...  # (access, dtype, offset, nbytes, struct_bytes)
    def __getitem__(self, key: Any) -> Launcher: ...
    def __call__(
        self,
        *arguments: Any,
        grid: Sizes | None = None,
        block: Sizes | None = None,
        shared_bytes: int | Shared = 0,
        stream: object = None,
        cooperative: bool = False,
        cluster: Sizes | None = None,
    ) -> None: ...

class Launcher:
    @property
    def kernel(self) -> Any: ...
    @property
    def _shape(self) -> tuple[tuple[int, int, int], tuple[int, int, int], int]: ...
    def __call__(self, *arguments: Any) -> None: ...

def launcher(
    kernel: Kernel,
    grid: tuple[int, int, int],
    block: tuple[int, int, int],
    shared_bytes: int,
    stream: int | None,
    cooperative: bool,
    cluster: tuple[int, int, int],
    /,
) -> Launcher: ...
def launcher_of(launcher: Launcher, kernel: Kernel, /) -> Launcher: ...
def launch(
    kernel: Kernel | UndeclaredKernel,
    /,
    *arguments: Any,
    grid: Sizes | None = None,
    block: Sizes | None = None,
    shared_bytes: int | Shared = 0,
    stream: object = None,
    cooperative: bool = False,
    cluster: Sizes | None = None,
) -> None: ...
def offload(
    kernel: Kernel | UndeclaredKernel,
    /,
    *arguments: Any,
    grid: Sizes | None = None,
    block: Sizes | None = None,
    shared_bytes: int | Shared = 0,
    stream: object = None,
    device: Device | str | None = None,
    on_error: Literal["discard", "keep"] = "discard",
    cooperative: bool = False,
    cluster: Sizes | None = None,
) -> None: ...
def offload_unsafe(
    kernel: Kernel | UndeclaredKernel,
    /,
    *arguments: Any,
    grid: Sizes | None = None,
    block: Sizes | None = None,
    shared_bytes: int | Shared = 0,
    stream: object = None,
    device: Device | str | None = None,
    on_error: Literal["discard", "keep"] = "discard",
    cooperative: bool = False,
    cluster: Sizes | None = None,
) -> None: ...
def hsaco_read(
    name: str, image: bytes, /
) -> list[
    tuple[int, int, str, list[tuple[str, int, int, int, list[tuple[int, int, Literal["pointer", "value", ""]]]]]]
]: ...
def module_load(device: int, name: str, image: bytes, /) -> object: ...
def module_unload(module: object, /) -> None: ...
def module_variable(module: object, name: str, /) -> tuple[int, int]: ...
def module_use(module: object, pointer: int, region: Region[Any], /) -> None: ...
def kernel_get(module: object, kernel: Kernel, names: tuple[str, ...], symbol: str, /) -> int: ...
def kernel_info(kernel: int, /) -> tuple[Any, ...]: ...
def call(
    function: Callable[..., _Result],
    /,
    *arguments: Any,
    device: Device | str | None = None,
    stream: object = None,
    on_error: Literal["discard", "keep"] = "discard",
    **keywords: Any,
) -> _Result: ...
def setup(
    *,
    pointer: type[Pointer],
    declared: tuple[type, type, type, type],
    errors: ModuleType,
    resolve: Callable[[Any, int, int], Any],
    refuse: Callable[[NDArray[Any], int], object],
    is_array: Callable[[Any], bool],
    load: Callable[[str], str],
    find_driver: Callable[[str], str],
    default_device: Callable[[], int],
    region: type[Region],
    device: type[Device],
    read_options: Callable[[Device | str | None, object, str], tuple[int, int | None, bool]],
    inside: Callable[[offload_args, int], None],
    collected: Callable[[tuple[CodeType, int] | None], None],
    entering_codes: list[CodeType],
    guarding: Callable[[offload_args], tuple[bytes, tuple[bytes, ...]]],
) -> None: ...
def take_touch() -> str: ...
def chain_end(chain: object, /) -> None: ...
def chain_check(chain: object, /) -> bool: ...
def chain_replay(chain: object, /) -> None: ...
def chain_info(chain: object, /) -> tuple[int, int, int, int]: ...
def chain_call(chain: object, number: int, /) -> tuple[str, list[tuple[int, str, bool, bool]]]: ...
def chain_loop(chain: object, until: Pointer, at_most: int, /) -> int: ...
def chain_release(chain: object, /) -> None: ...
def open_regions() -> list[offload_args]: ...
def view(pointer: Pointer, offset: int, shape: tuple[int, ...], strides: tuple[int, ...], /) -> Any: ...
def scratch(
    pointers: tuple[Pointer, ...],
    dtype: int,
    shape: tuple[int, ...],
    strides: tuple[int, ...],
    of_graph: bool = False,
    /,
) -> Any: ...
def alive(pointer: Pointer, /) -> bool: ...
def query(pointer: Pointer, /) -> PointerInfo: ...
def export(pointer: Pointer, /) -> int: ...
def stage(pointer: Pointer, value: NDArray[Any], /) -> Any: ...
def assign(pointer: Pointer, values: NDArray[Any], /) -> None: ...
def fill(pointer: Pointer, value: NDArray[Any], /) -> None: ...
def copy(pointer: Pointer, source: Pointer, /) -> None: ...
def compute(name: str, function: Callable[[bytes], NDArray[Any]], x: Pointer, y: Pointer, /) -> None: ...
def read(pointer: Pointer, values: NDArray[Any], /) -> None: ...
def assign_strided(pointer: Pointer, values: NDArray[Any], /) -> None: ...
def read_strided(pointer: Pointer, values: NDArray[Any], /) -> None: ...
def invalidate(pointer: Pointer, /) -> None: ...
def dlpack(
    pointer: Pointer,
    versioned: bool,
    read_only: bool,
    device_type: int,
    device_id: int,
    type_code: int,
    bits: int,
    /,
) -> Any: ...
def update_from(array: NDArray[Any], device: int, /) -> None: ...
def update_newest(array: NDArray[Any], /) -> None: ...
def update_to(array: NDArray[Any], device: int, /) -> None: ...
def update_begin(array: NDArray[Any], device: int, /) -> object: ...
def is_lent(array: np.ndarray[Any, Any], /) -> bool: ...
def is_lent_in_part(array: np.ndarray[Any, Any], /) -> bool: ...
def lock_if_lent(array: np.ndarray[Any, Any], /) -> bool: ...
def keep(array: NDArray[Any], device: int, /) -> None: ...
def release(array: NDArray[Any], device: int, /) -> None: ...
def pinned(device: int, nbytes: int, /) -> Any: ...  # a writable buffer
def handle(pointer: Pointer, /) -> int: ...
def origin(pointer: Pointer, /) -> tuple[int, int]: ...
def overlaps(written: Pointer, read: Pointer, /) -> bool: ...
def recording_set(
    function: Callable[[str, Any, tuple[Any, ...], tuple[str, ...] | None, Any, Any], object], when: int, /
) -> None: ...
def recording_lines(written: int, /) -> tuple[bytes, int]: ...
def recording_directly(pointers: dict[int, tuple[int, int]] | None, calls: int, /) -> tuple[bytes, int]: ...
def recording_is_inside() -> bool: ...
def library_open(library: str, path: bytes, shared: bool, /) -> str: ...
def library_double(library: str, path: bytes, backend: str, /) -> None: ...
def library_loaded(library: str, /) -> tuple[str, str]: ...
def library_address(library: str, symbol: str, /) -> int: ...
def library_integer_bits(library: str, /) -> int: ...
def function(library: str, name: str, module: str, /) -> Any: ...
def record(library: str, name: str, /) -> tuple[tuple[str, str, str, str, int], ...]: ...
def routine_dtypes(library: str, name: str, values: tuple[Any, ...], /) -> bytes: ...

# {function: bits, one for each argument that it reads many times; -1 if `call` refuses it}
reused: dict[Callable[..., Any], int]

def planned(
    function: Callable[..., Any],
    name: str,
    text: str,
    module: str,
    choose: Callable[..., Any],
    note: Callable[..., None] | None,
    routine: Any,
    strided: Any,
    operands: tuple[Any, ...],
    names: tuple[str, ...],
    options: tuple[Any, ...],
    sizes: tuple[tuple[int, ...], ...],
    flags: tuple[bool, ...],
    /,
) -> Any: ...
def geometry(pointer: Pointer, /) -> tuple[Any, ...]: ...
def layout(dimensions: str, routine: Any, /, *pointers: Pointer) -> tuple[Any, ...]: ...
def repeat(
    function: Any, times: int, steps: tuple[int | Sequence[Any], ...], names: str, /, *arguments: Any
) -> Any: ...

class Checking:  # a block whose first call is checked, and not made
    def __enter__(self) -> None: ...
    def __exit__(self, *error: object) -> bool: ...

def routine_names(library: str, /) -> list[str]: ...
def object_kinds(library: str, /) -> list[str]: ...
def graph_run(
    function: str,
    library: str,
    names: tuple[object, ...],
    plan: Object,
    tensors: tuple[tuple[object, ...], ...],
    pointers: tuple[Pointer, ...],
    workspace: int,
    /,
) -> None: ...
def library_call(
    function: str,
    library: str,
    operands: tuple[tuple[str, Pointer, int, int, int, int], ...],
    work: Callable[..., int],
    /,
) -> None: ...
def object_address(object: Object, /) -> int: ...
def object_device(object: Object, /) -> int: ...
def object_handle(object: Object, /) -> int: ...
def object_destroy(object: Object, /) -> None: ...
def object_stream(object: Object, /) -> object | None: ...
def take_postponed() -> BaseException | None: ...
def backends() -> tuple[BackendInfo, ...]: ...
def device_open(name: str, /) -> int: ...
def device_count(backend: str, /) -> int: ...
def device_info(device: int, /) -> DeviceInfo: ...
def device_counters(device: int, /) -> Counters: ...
def device_residency(device: int, /) -> ResidencyFields: ...
def residency_configure(mode: int, tracking: int, /) -> None: ...
def coherent_configure(coherence: int, /) -> None: ...
def part_cost_configure(bytes: int, /) -> None: ...
def panels_configure(rows: int, /) -> None: ...
def finish(
    work: Callable[[], tuple[str | None, BaseException | None]], stop: Callable[[], object], /
) -> BaseException | None: ...
def device_synchronize(device: int, /) -> None: ...
def device_trim(device: int, /) -> None: ...
def sim_configure(device: int, capacity: int, fail_after: int, delay_us: int, /) -> None: ...
def sim_order(device: int, ordered: bool, /) -> None: ...
def sim_backend_calls(device: int, /) -> int: ...
def trace_set(
    listening: bool,
    flags: int,
    entering: Callable[[Region], tuple[int, tuple[bytes, ...]]],
    left: Callable[[int], object],
    /,
) -> None: ...
def trace_exclusively(function: Callable[[], object], /) -> bool: ...
def trace_read() -> tuple[list[TraceEvent], int]: ...
def trace_under_way() -> list[tuple[int, int, int, int, int, str]]: ...
def last_error() -> str: ...
def status_name(status: int, /) -> str: ...
def after_fork() -> None: ...
def at_exit() -> None: ...
def accelerate_start(
    margin: float, families: int, only_count: bool, sites: bool, price: float, planned: int, patience: float, /
) -> None: ...
def accelerate_stop() -> None: ...
def accelerate_loops(functions: dict[str, Any], capsule: object, hooked: bool, /) -> None: ...
def accelerate_query() -> tuple[int, int]: ...
def accelerate_use(device: int, rates: tuple[float, ...] | None, /) -> None: ...
def accelerate_use_lapack(device: int, /) -> None: ...
def accelerate_calibrate(device: int, /) -> tuple[float, ...]: ...
def accelerate_nominal() -> tuple[float, ...]: ...
def accelerate_wait() -> tuple[int, int, int]: ...
def accelerate_set_site(serial: int, site: int, /) -> None: ...
def accelerate_set_finder(function: Callable[[], int], /) -> None: ...
def accelerate_read() -> tuple[list[tuple[Any, ...]], int]: ...
def accelerate_plan(rows: list[tuple[str, int, int, int, int, int]], /) -> None: ...
def accelerate_families() -> list[str]: ...
def accelerate_reasons() -> list[str]: ...
def accelerate_failure() -> str: ...
