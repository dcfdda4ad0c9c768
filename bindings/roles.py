"""Reads api/<library>.json and roles/<library>.toml, and joins them into functions whose every parameter has a role.

The roles file says, for families of functions, what a header can't:

    [family.gemv.bind]
    "{t}gemv" = ["sdcz", "Multiplies a matrix by a vector: y = alpha op(A) x + beta y."]
    [family.gemv.parameters]
    trans = "operation"                                          an enum of the file's [enums]
    m = "size"                                                   or "ld", "inc", "stride"; "length": a size that may be
                                                                 negative, which is none, as in level 1; "value": any
    stridea = "tried stride"                                     of complex numbers some versions count it in real ones:
                                                                 a first call, of two products of one element, tells
    alpha = "scalar"                                             a number on the host or the device; "scalar[5]": five
    A = "in matrix(m, n, lda)"                                   a device array: in, out or inout, and its extent
    y = "inout vector(m if trans == OP_N else n, incy); overwrites if beta == 0"
    C = "out matrix(m, n, ldc); may be B"                        in place: the same memory as B is fine
    result = "result"                                            the function's value ("returned": C's return value)
    info = "host result"                                         likewise, on the host whatever the pointer mode is;
                                                                 "returned on the host"
    m_array = "size list(groups)"                                a host array of so many; "ld list", "scalar list", or
                                                                 "operation list" of an enum
    a = "update"                                                 a scalar that is read and written; "output": written

    Btype = "data_type"                                          an enum that stands for dtypes; then, of a void *:
    B = "in matrix(k, n, ldb) of Btype"                          its dtype is the one that the argument Btype says
    beta = "scalar of computeType; complex as C"                 likewise; complex if the dtype of C is
    beta_array = "scalar list(groups) of computeType"            likewise

An enum has a list of `constants`, or a pattern that they fit. It stands for dtypes if it has a table of them instead.
A constant of the header that is not in the table stands for no dtype of NumPy's, and is refused:

    [enums.data_type]
    type = "cudaDataType"
    dtypes = { CUDA_R_16F = "f16", CUDA_R_32F = "f32" }

`out` means that every element of the extent is written and none read. "despite const": the header's const is wrong.
"becomes matrix(...)", of an inout array: the call leaves a matrix of another shape in its memory.
"may repeat", of a vector: its increment may be 0, and then all are one element. "may be B" stands with both operands.
"optional", beside arrays of pointers: there may be no such array. "optional if jobu == JOB_N": if this holds.
"reads despite no const", of an "in" array or a scalar: the header's lack of a const is wrong.

Extents say which elements are touched, and no others. `upper` and `unit` are tests, such as uplo == UPPER; a unit
diagonal is not touched, unless there is nothing else. Rows and columns are those of the matrix: for functions with an
order the generator turns them into those stored.

    vector(n, inc)                                               n elements, inc apart
    elements(n)                                                  n elements
    matrix(rows, columns, ld)                                    all of a matrix
    triangle(upper, n, ld[, unit])                               one triangle of a square matrix
    band(rows, columns, below, above, ld)                        the diagonals of a band matrix, one a row
    band_triangle(upper, n, k, ld[, unit])                       one triangle of a square band matrix
    packed(upper, n[, unit])                                     one triangle without gaps
    strided(matrix(...), stride, count)                          count of any of these, the starts stride apart
    pointers(matrix(...), count)                                 count of any of these, behind an array of pointers
    grouped(matrix(...), groups, size)                           an array of pointers to groups of these, each group
                                                                 with its own values of the names that are lists

Of an array of pointers Python takes a list of DevicePtrs or one whose first axis counts the arrays, and C an array
of handles. The addresses go to the device as an array.

Functions that have no array and no number make, set, ask, name or destroy; they are *services*. Their parameters:

    handle = "object tensor"                                     an object that the library made: [object.tensor]
    handle = "new tensor"                                        the function makes one, and returns it in Python
    handle = "ended tensor"                                      the function destroys it; its only parameter
    count = "integer"                                            an integer that means what the manual says
    name = "text"                                                a string; "text or none"
    streamId = "sets stream"                                     a stream of the caller's, for the object before it
    mode = "gives math_mode"                                     an output, which Python returns: an enum, "gives
                                                                 integer", "gives text", "gives stream"
    memory = "keeps bytes(n)"                                    device memory that the object before it keeps alive;
                                                                 "keeps elements(1)"; "gives kept" asks for it
    version = "returned integer"                                 the function's value; "returned text"

A function with arrays may have objects and integers, too, and arrays of the host beside those of the device:

    x = "host in vector(n, incx)"                                an array of the host that is read; "host out ..."
    place = "struct"                                             a struct by value, which [raw] defines
    graph = "fields"                                             a struct behind a pointer, which [raw] defines: each
                                                                 of its fields is a parameter with a label of its own
    elemSize = "itemsize"                                        the bytes of an element of each `void *` array

Of libraries whose objects describe memory:

    [object.tensor.describes]
    call = "xGetTensorDescriptor"                                the function that says what one describes
    gives = "8 dtype rank shape strides"                         what each of its parameters after the object is:
                                                                 a number that it takes; `dtype` (a type of [enums] with
                                                                 dtypes), `rank`, `shape`, `strides`, `shape[0]` alone;
                                                                 `layout[1]`: for that layout there are only as many as
                                                                 `lengths`, a list of `count`, sum up to; `unused`;
                                                                 `none`: NULL
    bytes = "xGetTensorSizeInBytes"                              the function that says how many bytes

    x = "in described(xDesc)"                                    its dtype and extent are those that xDesc describes
    alpha = "factor of yDesc"                                    a number of the host: a double if yDesc describes
                                                                 doubles, else a float; "number of yDesc": of its dtype
    labels = "in elements(xDesc[1])"                             the size of a dimension that it describes; "in
                                                                 elements(xDesc[1]) typed by xDesc": of its dtype
    reserve = "inout bytes(size); at least xGetReserveSize(xDesc)"   so many bytes of any dtype; not fewer than that
                                                                 function says: its handle, what is in the brackets,
                                                                 and an output, such as xGetSizes(xDesc).reserveSize
    room = "workspace(size) by xGetWorkspaceSize(xDesc)"         likewise; if the caller has none, the device's pool;
                                                                 xGetSizes(xDesc, nbytes=reserve).size: its output
                                                                 nbytes is NULL in calls that have no array `reserve`
    grid = "in all()"                                            all that the pointer has
    z = "in described(zDesc); optional"                          there may be no such array

and for the functions that set and ask them, beside the roles of services. The core remembers the extents of an object
until a service or a function with an output has it, so that only these may change one:

    zDesc = "object tensor or none"                              "holds tensor": the first object uses it from now on
    coef = "real"                                                a number by value; "gives real"
    dims = "integers(n)"                                         a list of at least n; "integers": of any length. In
                                                                 lengths, sum(lengths) is the sum of another list
    shape = "gives integers(n)"                                  "gives text(n)", "gives structs(n)", of [raw]
    fill = "number of dataType"                                  behind a pointer, in the dtype that an enum says;
                                                                 "gives number of dataType"
    values = "host in elements(n) of dataType"                   a NumPy array of that dtype; "host out ..."
    buf = "host in bytes(size) of attribute"                     bytes of a NumPy array of the dtype of an attribute, or
                                                                 without `of` of any; "host out ..."; "... or none"
    place = "gives place in weights"                             an address inside an array: bytes from its start
    graph = "address"                                            an object of another library; "gives address"
    tag = "nothing"                                              always NULL

Expressions are names of sizes and enums, constants, whole numbers, `a + b`, `a - b`, `a * b`, `a // b`, `a % b`,
`min(a, b)`, `a == b`, `a in (b, c)` and `a if test else b`. A division by less than 1 gives 0.

Functions whose body is written by hand, in csrc/call/, since their descriptors say more than these words can:

    [family.matmul]
    written = "oa_lt_matmul"                                     the C function; its parameters have roles all the same
    asks = "xGetAttribute xSetAttribute"                         the functions of the library that it calls, in order
    alpha = "weight"                                             a number, real or complex, of a descriptor's dtype
    hides = "operationDesc"                                      of a service: meanwhile, this object has no handles of
                                                                 the core in it, but addresses that look alike

Objects whose settings say the dtypes of later calls, and can't be asked: the core notes it at the first object.

    [family.set_precision]
    notes = "precision"                                          of a service: an enum that stands for a dtype, and a
                                                                 list of at most 4 sizes: "precision sizes"
    A = "in matrix(n, n, lda) noted by params"                   its dtype is the one that `params` notes; a call with
                                                                 an object that notes none is refused
    grid = "in elements(2 * params[0]) noted by params"          a size that `params` notes

A family may have `requires = ["m >= n"]`, comparisons of sizes by ==, <= or >= that its functions need: a call in
which one does not hold is refused. It may have `also = { A = "AP" }`, for functions whose header names a parameter
otherwise, and a file [also], for all its families; `types`, which count before those of the file; `pointer_mode =
"device"`, if all its pointers are to the device; and `optional = true`, if a library that lacks it is whole: so it is
with extensions of one vendor.

Enums have the header's constants, those of types that their parameter allows: `[enums.fill]` has `type` and `constants`
(and `complex`: those for complex types); `flags`, constants that may be added to them; or, for an enum of a header that
is not read, `values = { NAME = 1 }` instead.

The kinds of objects that the library makes and the caller owns. One whose type is that of [handle] is the library's
handle: it belongs to a device, has a stream, and calls take it as `handle=`. If [handle] has no `create`, since that
takes settings, each call needs one:

    [object.tensor]
    type = "xTensorDescriptor_t"
    class = "TensorDescriptor"                                   its name in Python
    destroy = "xDestroyTensorDescriptor"
    attributes = "tensor_attribute of tensor"                    attributes of its class: those of an enum with dtypes,
                                                                 by the functions tensor_get_attribute and _set_

How Python finds the library, and what to install if it is missing:

    [find]
    pathfinder = "cublas"                                        its name for cuda-pathfinder
    shared_with = { NumPy = ["module", ...] }                    loaded modules that are linked with it: it is theirs
    wheels = { name-on-the-index = "module/lib/libx*.so" }       wheels that carry it: a pattern in a module's folder
    folders = ["$X_HOME/lib", "/opt/x/lib"]                      folders that its vendor installs into
    version = { call = "xGetProperty", gives = "parts" }         the function that tells its version; VERSION_GIVES
    install = "install x"                                        the remedy, in messages

The types that the header's functions take, for the signatures of <library>.raw. Enums are known already. A function
with a type that is not known is left out there:

    [raw]
    cublasHandle_t = "struct cublasContext *"
    cuComplex = "struct { float x, y; }"
    "struct rocblas_device_malloc_base" = "opaque"               pointers to it are all that a caller has

Functions that only <library>.raw has, which checks nothing but their number, and why:

    [[only_raw]]
    names = "rocblas_device_malloc_\\w+"                         a pattern, as in [[not_bound]]
    reason = "..."

Families that several libraries have stand in a file of their own, such as roles/blas.toml, and a library takes over
those that its header has:

    extends = ["blas"]                                           at the top; the library's own families come first
    [words]
    UPPER = "CUBLAS_FILL_MODE_UPPER"                             its constant for a word of the shared tests

A family of the library with the name of a shared one states only what differs: a label, a name under `also`, a bound
template. {form} in a name stands for "" and for the batched forms that the header has ("_batched" with arrays of
pointers, and "_strided_batched"). Those have the family's parameters and extents, each once for every one of a batch.

Where an older version of the library differs, both headers are read, and the loaded version decides:

    [older]
    api = "rocblas-2"                                            api/rocblas-2.json, of the older header
    before = "4.0"                                               the first version that has all of api/rocblas.json
    [family.trmm.older]
    "{t}trmm{form}" = "{t}trmm_outofplace{form}"                 the same function, under the name that it had before

Where a function is wrong or another one in older versions of the library, calls are refused with LibraryVersionError:

    [family.gemm_batch.since]
    version = "0.3.34"                                           the first version that is called; one that does not say
    why = "earlier ones crash in it"                             its version is, too

Functions of one of the headers only need nothing. A function whose types differ needs an entry under `older`. A call
of a function that the loaded version lacks raises LibraryVersionError.

The header's own names for C's integers, in parameters and [raw]:

    [integers]
    rocblas_int = "int"

The memory that a function uses for itself while it runs, which callers don't pass:

    work = "workspace"                                           on the device, as much as <function>_bufferSize says:
                                                                 elements, or of a void * bytes
    lwork = "workspace size"                                     how much that is
    bufferOnHost = "host workspace"                              on the host; its size is "host workspace size"

    [library]
    workspace = "_bufferSize"                                    the end of such queries' names. They have parameters of
                                                                 the function, and pointers to what they tell

There is no default: a parameter with no role, a role for no parameter, and a role that its C type contradicts are
errors.
"""

from __future__ import annotations

import ast
import keyword
import re
import tomllib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from . import described, expressions, schema, shared
from .lines import extended_by, located
from .older import ApiError, Older, fault, read_api
from .parameters import (
    C_NUMBER,
    EXTENTS,
    NUMBERS,
    ROUNDED,
    SHORT,
    SIZE_TYPES,
    Array,
    DataType,
    Enum,
    EnumValue,
    Extent,
    Handle,
    HostList,
    Number,
    Parameter,
    PointerArray,
    Result,
    Size,
    Stream,
    Workspace,
    WorkspaceSize,
    name_fault,
)
from .services import DeviceNumber, Given, Labels, ObjectKind, ServiceParameter, struct_fields

HERE = Path(__file__).parent
BODIES = HERE.parent / "csrc" / "call" / "matmul.h"  # which generated code includes
LETTERS = {"s": "f32", "d": "f64", "c": "c64", "z": "c128"}
REAL = {"s": "s", "d": "d", "c": "s", "z": "d"}
# The keys of [find] with their defaults: how a library is found and asked for its version.
FIND: dict[str, Any] = {"install": "install it", "pathfinder": "", "shared_with": {}, "wheels": {}, "folders": []}
VERSION_GIVES = ("text", "parts", "number", "buffer")
# How a library receives the stream: through its handle; as an argument; or not at all.
STREAMS = ("handle", "argument", "none")
# Where its functions take scalars and results: on the host or the device, as the handle's pointer mode says; through
# pointers to the host only; by value.
SCALARS = ("pointer mode", "host", "by value")
MOST_PARAMETERS = 36  # OA_MOST_VALUES of csrc/call/routine.h
MOST_HELD = 2  # OA_MOST_HELD of csrc/call/object.h
MOST_NUMBERS = 8  # of one parameter: OA_MOST_SLOTS has room for one such
# The functions of [handle]: whether they take a pointer to the handle's type, and how many parameters follow.
HANDLE_FUNCTIONS = {
    "create": (True, 0),
    "destroy": (False, 0),
    **dict.fromkeys(("set_stream", "get_stream", "set_pointer_mode", "get_pointer_mode"), (False, 1)),
}
HANDLE_MODES = ("host_mode", "device_mode")


HOST_LIST = re.compile(r"(?P<role>\w+) list\((?P<length>\w+)\)(?: of (?P<of>\w+))?")
NUMBER = re.compile(
    r"(?P<role>scalar|result|returned|update|output)(?:\[(?P<count>\d+)\])?"
    r"(?: of (?P<of>\w+)(?:; complex as (?P<as>\w+))?)?(?P<anyhow>; reads despite no const)?"
)


class RolesError(ValueError):
    """The faults of a roles file, each on a line of its own."""

    def __init__(self, faults: list[str]) -> None:
        super().__init__("\n".join(faults))
        self.faults = faults


@dataclass(frozen=True)
class Binding:
    """One function that a family of the roles file binds, before the header is looked at."""

    family: str
    name: str
    letter: str
    form: str
    summary: str
    older: str  # the name that it had in older versions; "" if that is the same
    may_lack: bool  # the header need not have it


@dataclass(frozen=True)
class Function:
    """One bound function."""

    name: str
    symbol: str
    wide_symbol: str | None
    returns: str
    arguments: tuple[Parameter, ...]  # all, in the vendor's order; a result that is returned is last
    summary: str
    family: str
    form: str  # "", or one of FORMS
    optional: bool  # a library that has all others is whole
    device_only: bool  # its pointers are to the device whatever they are to
    query: str = ""  # the symbol that tells how much workspace it needs
    asked: tuple[tuple[Parameter, str], ...] = ()  # the query's parameters, each with its C type
    requires: tuple[ast.expr, ...] = ()  # comparisons of sizes that have to hold
    written: str = ""  # the C function that is its body, by hand
    asks: tuple[str, ...] = ()  # the symbols that this one calls
    hides: str = ""  # the object that has no handles of the core's in it meanwhile
    notes: str = ""  # the DataType whose dtype the first object notes
    since: tuple[str, str] | None = None  # the first version of the library that is called, and why
    declared: tuple[tuple[str, str], ...] = ()  # names and C types of the header, with fields in place of their struct

    @cached_property
    def parameters(self) -> tuple[Parameter, ...]:
        """Returns those that the caller passes: without the handle and the stream, and with the result last."""
        passed = [one for one in self.arguments if one.in_record]
        return tuple(sorted(passed, key=lambda one: one.last))

    def of(self, *roles: str) -> list[Parameter]:
        """Returns the parameters that have one of these roles."""
        return [one for one in self.parameters if one.role in roles]

    @property
    def arrays(self) -> list[Array]:
        return [one for one in self.parameters if isinstance(one, Array)]

    @property
    def sizes(self) -> list[Size]:
        return [one for one in self.parameters if isinstance(one, Size)]

    @property
    def lists(self) -> list[HostList]:
        return [one for one in self.parameters if isinstance(one, HostList)]

    @property
    def numbers(self) -> list[Number]:
        return [one for one in self.parameters if isinstance(one, Number)]

    @property
    def types(self) -> list[DataType]:
        """Returns the parameters that say dtypes."""
        return [one for one in self.parameters if isinstance(one, DataType)]

    @property
    def is_service(self) -> bool:
        """Returns whether it works on no array and no number of BLAS."""
        return not self.arrays and not self.numbers

    @property
    def result(self) -> Result | None:
        """Returns the parameter that is the function's value, if it has one."""
        return next((one for one in self.parameters if isinstance(one, Result)), None)


@dataclass
class Library:
    """One vendor library: its settings, constants and bound functions."""

    name: str
    title: str
    source: str
    backend: str | None
    sonames: list[str]
    stream: str  # one of STREAMS
    scalars: str  # one of SCALARS
    success: int
    also_done: list[int]  # other statuses, of calls that did their work
    only_asked: list[int]  # of calls that wrote nothing
    prefixes: list[str]
    suffixes: list[str]
    probe: str | None
    header: str
    version: str
    status_codes: list[tuple[int, str]]
    handle: dict[str, Any] | None
    row_major: tuple[str, int] | None
    constants: dict[str, int]
    functions: list[Function]
    find: dict[str, Any]
    api: dict[str, Any]
    older: Older | None = None
    names_here: dict[str, str] = field(default_factory=dict)  # those of constants, by the vendor's
    status: str = ""  # the type that its functions return; "" if they return none
    integers: dict[str, str] = field(default_factory=dict)  # C's names for the header's own
    raw: dict[str, str] = field(default_factory=dict)  # the C definition of types that the api only names
    object_kinds: list[ObjectKind] = field(default_factory=list)
    dtype_enums: list[Enum] = field(default_factory=list)
    adds: dict[str, list[str]] = field(default_factory=dict)  # names of its Python module, by the file that has them
    not_bound: dict[str, list[str]] = field(default_factory=dict)
    only_raw: dict[str, list[str]] = field(default_factory=dict)  # functions that only <library>.raw has, by the reason
    twins: list[str] = field(default_factory=list)  # other symbols of functions that are bound
    api_count: int = 0

    def has_device_form(self, function: Function) -> bool:
        """Returns whether the numbers of a function may be on the device."""
        return any(one.role != "value" for one in function.numbers) and self.scalars != "host"


def _pointee(c_type: str) -> tuple[str, bool]:
    """Returns what a pointer type points to, and whether that is const; ("", False) for any other type."""
    found = re.fullmatch(r"(const )?([\w ]+?) ?(?:\*|\[\])", c_type)
    return (found.group(2), found.group(1) is not None) if found else ("", False)


def _listed(c_type: str) -> tuple[str, bool]:
    """Returns what the pointers of an array point to, and whether that is const; ("", False) for any other type."""
    found = re.fullmatch(r"(const )?([\w ]+?) ?\*(?:const)? ?(?:\*|\[\])", c_type)
    return (found.group(2), found.group(1) is not None) if found else ("", False)


class _Reader:
    def __init__(self, name: str, api: dict[str, Any], roles: dict[str, Any]) -> None:
        self.name = name
        self.api = api
        self.roles = roles
        self.settings = roles.get("library", {})
        self.enums = roles.get("enums", {})
        self.enums_made: dict[tuple[str, bool], Enum] = {}
        self.own_types: dict[str, str] = {}  # of the family that is read
        self.form = ""  # likewise
        self.order: list[str] = []  # the names of the function's parameters in the record
        self.enums_given: set[str] = set()  # those of its parameters that are enums
        self.folded = {one.replace("_", "").casefold(): one for one in api["functions"]}  # of cudnnRNNForward_v8
        self.folded |= {one.casefold(): one for one in api["functions"]}  # of cublasHSHgemvBatched and its like
        self.words: dict[str, str] = {}
        self.on_device = False  # all pointers of the family that is read are to the device
        older = api.get("older")
        before = roles.get("older", {}).get("before", "")
        self.older = Older(older["version"], before, only=frozenset(older["only"])) if older else None
        self.faults = schema.disagreements(name, api, roles)
        self.object_kinds = self.read_object_kinds()
        self.integers = roles.get("integers", {})
        self.all_constants = {key: value for one in api["enums"].values() for key, value in one.items()}
        for one in self.enums.values():  # an enum of a header that is not read
            self.all_constants |= one.get("values", {})
        used = {key for one in self.enums.values() for key in [*self.constants_of(one), *one.get("flags", [])]}
        for key in sorted(used - self.all_constants.keys()):
            self.faults.append(f"{name}.toml: [enums]: the header has no constant {key}")
        for label, one in self.enums.items():
            if isinstance(one.get("constants"), str) and not self.constants_of(one):
                pattern = one["constants"]
                self.faults.append(f"{name}.toml: [enums.{label}] constants: {pattern!r} fits none of {one['type']}")
        for word, key in roles.get("words", {}).items():
            self.words[word] = self.stripped(key)
            if key not in used:
                self.faults.append(f"{name}.toml: [words] {word}: none of [enums] has a constant {key}")
        self.names_here = {key: self.stripped(key) for key in self.all_constants if key in used}
        self.constants = {name: self.all_constants[key] for key, name in self.names_here.items()}

    def read_object_kinds(self) -> dict[str, ObjectKind]:
        """Returns the [object] tables."""
        found: dict[str, ObjectKind] = {}
        handle = self.roles.get("handle", {}).get("type")
        for key, table in self.roles.get("object", {}).items():
            where = f"{self.name}.toml: [object.{key}]"
            destroy = table["destroy"]
            if destroy not in self.api["functions"]:
                self.faults.append(f"{where} destroy: the header has no {destroy}")
            elif table["type"] not in (c_type for _, c_type in self.api["functions"][destroy]["parameters"]):
                self.faults.append(f"{where} destroy: {destroy} takes no {table['type']}")
            if table["class"] in schema.OF_STUBS:
                self.faults.append(f"{where} class: {table['class']!r} is a name that the stubs need")
            elif not table["class"].isidentifier() or keyword.iskeyword(table["class"]):
                self.faults.append(f"{where} class: {table['class']!r} is not a name of Python's")
            describes = table.get("describes", {})
            asked = (describes.get("call", ""), describes.get("gives", ""), describes.get("bytes", ""))
            for called in filter(None, (asked[0], asked[2])):
                if called not in self.api["functions"]:
                    self.faults.append(f"{where} describes: the header has no {called}")
            label, _, stem = table.get("attributes", "").partition(" of ")
            if label and (label not in self.enums or not stem):
                self.faults.append(f"{where} attributes: {label!r} is none of [enums], or no function is named")
            is_handle = table["type"] == handle
            kind = ObjectKind(key, table["type"], table["class"], destroy, is_handle, asked, (label, stem))
            found[key] = kind
        return found

    def stripped(self, key: str) -> str:
        """Returns a constant's name without the vendor's prefix, unless only that makes it a name."""
        short = key
        for prefix in self.settings.get("strip", "").split():
            short = short.removeprefix(prefix)
        return short if short.isidentifier() else key

    def constants_of(self, enum: dict[str, Any]) -> list[str]:
        """Returns the names of an enum's constants: as they are listed, or those of the header's that fit a pattern."""
        listed = next(enum[key] for key in ("dtypes", "values", "constants") if key in enum)
        if isinstance(listed, str):
            return [one for one in self.api["enums"].get(enum["type"], {}) if re.fullmatch(listed, one)]
        return list(listed)

    def enum(self, key: str, letter: str) -> Enum:
        is_complex = letter in ("c", "z")
        if (key, is_complex) not in self.enums_made:
            self.enums_made[key, is_complex] = self.make_enum(key, is_complex)
        return self.enums_made[key, is_complex]

    def make_enum(self, key: str, is_complex: bool) -> Enum:
        entry = self.enums[key]
        names = self.constants_of(entry)
        if is_complex:
            names = entry.get("complex", names)
        values, flags = (
            tuple((self.stripped(one), self.all_constants.get(one, 0)) for one in listed)
            for listed in (names, entry.get("flags", []))
        )
        if "dtypes" not in entry:
            return Enum(entry["type"], values, key, flags=flags)
        dtypes = {self.all_constants.get(one, 0): dtype for one, dtype in entry["dtypes"].items()}
        of_header: dict[str, int] = next((one for one in self.api["enums"].values() if names[0] in one), {})
        others = {value: (self.stripped(one), value, "") for one, value in reversed(of_header.items())}
        others = {value: one for value, one in others.items() if value not in dtypes}
        known = tuple((name, value, dtypes[value]) for name, value in values)
        return Enum(entry["type"], values, key, (*known, *(others[value] for value in sorted(others))))

    def dtype(self, pointee: str, letter: str) -> str:
        named = str((self.roles.get("types", {}) | self.own_types).get(pointee, ""))
        return LETTERS.get(letter, "") if named == "letter" else named

    def parse(self, text: str, where: str) -> ast.expr | None:
        try:
            return shared.in_words(ast.parse(text.strip(), mode="eval").body, self.words)
        except SyntaxError:
            self.faults.append(f"{where}: {text!r} is not an expression")
            return None

    def extent(self, text: str, where: str) -> Extent | None:
        call = self.parse(text, where)
        if call is None:
            return None
        if not (isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and not call.keywords):
            self.faults.append(f"{where}: {text!r} is not an extent")
            return None
        batch, pointers, groups = None, None, ""
        outer = call.func.id
        if outer == "pointers" and len(call.args) == 2 and isinstance(call.args[0], ast.Call):
            pointers = call.args[1]
            call = call.args[0]
        elif outer == "grouped" and len(call.args) == 3 and isinstance(call.args[0], ast.Call):
            groups, pointers = ast.unparse(call.args[1]), call.args[2]
            call = call.args[0]
        elif shared.is_listed(self.form):
            pointers = ast.Name("batch count")  # in_form says which
        elif outer == "strided" and len(call.args) == 3 and isinstance(call.args[0], ast.Call):
            batch = (call.args[1], call.args[2])
            call = call.args[0]
        kind = call.func.id if isinstance(call.func, ast.Name) else ""
        if kind not in EXTENTS or len(call.args) not in EXTENTS[kind][0]:
            self.faults.append(f"{where}: {text!r} is not an extent; there are {', '.join(EXTENTS)}")
            return None
        return Extent(kind, tuple(call.args), batch, pointers, groups)

    def array(self, name: str, c_type: str, label: str, letter: str, where: str) -> Array | None:
        head, *clauses = (part.strip() for part in label.split(";"))
        direction, _, extent_text = head.partition(" ")
        extent_text, _, noted_by = extent_text.partition(" noted by ")
        extent_text, _, typed_by = extent_text.partition(" typed by ")
        extent_text, _, of = extent_text.partition(" of ")
        extent = self.extent(extent_text, where)
        if extent is None:
            return None
        pointers = extent.pointers
        said = self.clauses(clauses, direction, extent, where)
        despite_const = said.pop("despite_const", False)
        pointee, const = _listed(c_type) if pointers else _pointee(c_type)
        if pointers and of and not pointee:  # of one library void * means void **, too
            pointee, const = _pointee(c_type)
        dtype = self.dtype(pointee, letter)
        if of or noted_by or typed_by or extent.kind in ("described", "bytes"):
            dtype = "any" if pointee == "void" else ""
        if not pointee or not dtype:
            kind_of = "pointers" if pointers else "an array"
            self.faults.append(f"{where}: labelled {kind_of}, but its type is {c_type}")
        elif direction != "in" and const != despite_const:
            self.faults.append(f"{where}: labelled {direction}, but its type is {c_type}")
        elif direction == "in" and const == despite_const:
            self.faults.append(f"{where}: labelled in, but its type is {c_type}, not const")
        if extent.kind == "bytes":
            return described.Room(name=name, c_type=c_type, dtype=dtype, direction=direction, extent=extent, **said)
        return (PointerArray if pointers else Array)(
            name=name,
            c_type=c_type,
            dtype=dtype,
            of=of,
            direction=direction,
            extent=extent,
            noted_by=noted_by,
            typed_by=typed_by,
            **said,
        )

    def clauses(self, clauses: list[str], direction: str, extent: Extent, where: str) -> dict[str, Any]:
        """Returns what the clauses after an array's extent say, by the name of its field."""
        said: dict[str, Any] = {}
        for clause in clauses:
            if clause == ("reads despite no const" if direction == "in" else "despite const"):
                said["despite_const"] = True
            elif clause == "optional" and not extent.pointers:
                said["optional"] = True
            elif extent.kind == "bytes":
                said["query"] = described.query_from(clause.removeprefix("at least "))
                if not clause.startswith("at least ") or said["query"] is None:
                    self.faults.append(f"{where}: {clause!r} is not understood")
            elif clause.startswith("overwrites if ") and direction == "inout":
                said["overwrites"] = self.parse(clause.removeprefix("overwrites if "), where)
            elif clause.startswith("may be "):
                said["in_place"] = clause.removeprefix("may be ")
            elif clause.startswith("becomes ") and direction == "inout":
                said["becomes"] = self.extent(clause.removeprefix("becomes "), where)
            elif clause == "may repeat" and extent.kind == "vector":
                said["repeats"] = True
            elif clause.startswith("optional if ") and not extent.pointers:
                said["optional_if"] = self.parse(clause.removeprefix("optional if "), where)
            else:
                self.faults.append(f"{where}: {clause!r} is not understood")
        return said

    def number(self, name: str, c_type: str, label: str, letter: str, where: str) -> Number:
        found = NUMBER.fullmatch(label)
        assert found
        role, count, of, complex_as = found["role"], int(found["count"] or 1), found["of"] or "", found["as"] or ""
        if not 0 < count <= MOST_NUMBERS:
            self.faults.append(f"{where}: {label!r}: a number of 1 to {MOST_NUMBERS} is needed")
        pointee, const = _pointee(c_type)
        dtype = self.dtype(pointee or c_type.removeprefix("enum "), letter)
        if of:
            dtype = "any" if pointee == "void" and role != "returned" else ""
        by_value = role == "returned" or (role == "scalar" and not pointee and count == 1)
        on_gpu = by_value and self.settings.get("backend") is not None
        right = not pointee if by_value else bool(pointee) and (const != bool(found["anyhow"])) == (role == "scalar")
        takes_rounded = role == "scalar" and not on_gpu and count == 1 or role == "result" and self.on_device
        if not right or not dtype or (dtype == "i32" and role not in ("result", "returned")):
            self.faults.append(f"{where}: labelled {label}, but its type is {c_type}")
        elif not of and (dtype not in C_NUMBER or (dtype in ROUNDED and not takes_rounded)):
            self.faults.append(f"{where}: labelled {label}, and there are no such numbers of {dtype} yet")
        if role in ("result", "returned"):
            name = "result"
            return Result(name=name, c_type=c_type, dtype=dtype, count=count, of=of, returned=role == "returned")
        return NUMBERS[role](name=name, c_type=c_type, dtype=dtype, count=count, of=of, complex_as=complex_as)

    def service(self, name: str, c_type: str, label: str, labels: Labels) -> Parameter | str | None:
        """Returns a parameter of a service, a fault, or None for a label of another kind."""
        try:
            found = described.Reader(labels, self.order).read(name, c_type, label)
            return labels.read(name, c_type, label) if found is None else found
        except SyntaxError:
            return f"{label!r} is not an expression"

    def parameter(self, name: str, c_type: str, label: str, letter: str, where: str) -> Parameter | None:
        plain = c_type.removeprefix("enum ")
        if label in ("size", "length", "ld", "inc", "stride", "value", "itemsize"):
            if plain not in SIZE_TYPES and not (label == "value" and plain in SHORT):
                self.faults.append(f"{where}: labelled {label}, but its type is {c_type}")
            is_length = label == "length"
            return Size(name=name, c_type=c_type, label="size" if is_length else label, may_be_negative=is_length)
        if label.split(" ")[0] in ("in", "out", "inout"):
            return self.array(name, c_type, label, letter, where)
        if label == "tried stride":
            if plain not in SIZE_TYPES or self.settings.get("backend"):
                self.faults.append(f"{where}: labelled {label}, but its type is {c_type}, or the library has a backend")
            return Size(name=name, c_type=c_type, label="stride", is_tried=letter in ("c", "z"))
        if label in self.enums:
            enum = self.enum(label, letter)
            if plain != enum.type:
                self.faults.append(f"{where}: labelled {label} ({enum.type}), but its type is {c_type}")
            return (DataType if enum.dtypes else EnumValue)(name=name, c_type=c_type, enum=enum)
        listed = HOST_LIST.fullmatch(label)
        if listed:
            return self.host_list(name, c_type, listed, letter, where)
        if label in ("host result", "returned on the host"):
            return self.host_result(name, c_type, label, letter, where)
        found = re.fullmatch(r"(factor|number) of (\w+)", label)
        if found and found[2] not in self.enums_given and c_type in ("const void *", "void *"):
            made = described.Factor(name=name, c_type=c_type, dtype="f64", by=found[2], is_element=found[1] == "number")
            return made
        found = re.fullmatch(r"workspace\((\w+)\) by (.+)", label)
        if found and c_type == "void *":
            return self.workspace(name, c_type, found[1], found[2], where)
        labels = Labels(
            library=self.name,
            kinds=self.object_kinds,
            enums={key: self.enum(key, letter) for key in self.enums},
            named=dict.fromkeys(self.api["enums"], "int") | self.roles.get("raw", {}),
        )
        service = self.service(name, c_type, label, labels)
        if isinstance(service, str):
            self.faults.append(f"{where}: {service}")
        if service is not None:
            return None if isinstance(service, str) else service
        counted = NUMBER.fullmatch(label)
        if counted and counted["role"] == "scalar" and shared.is_listed(self.form) and _listed(c_type)[0]:
            return self.array(name, c_type, f"in elements({counted['count'] or 1})", letter, where)
        if counted:
            return self.number(name, c_type, label, letter, where)
        if label == "stream":
            if self.settings.get("stream") not in ("argument", "handle") or plain in SIZE_TYPES:
                self.faults.append(
                    f'{where}: labelled stream, but [library] stream is not "argument" or "handle", or it is a number'
                )
            return Stream(name=name, c_type=c_type)
        if label.removesuffix(" size") in ("workspace", "host workspace"):
            return self.own_memory(name, c_type, label, letter, where)
        self.faults.append(f"{where}: {label!r} is not a role")
        return None

    def host_result(self, name: str, c_type: str, label: str, letter: str, where: str) -> Result:
        """Returns the parameter of a value that is on the host whatever the pointer mode is."""
        returned = label != "host result"
        pointee, const = (c_type, False) if returned else _pointee(c_type)
        dtype = "i32" if pointee == "int64_t" else self.dtype(pointee, letter)  # an index, as wide as it gets
        if const or dtype not in C_NUMBER:
            self.faults.append(f"{where}: labelled {label}, but its type is {c_type}")
        return Result(name=name, c_type=c_type, dtype=dtype, on_host=True, returned=returned)

    def own_memory(self, name: str, c_type: str, label: str, letter: str, where: str) -> Parameter:
        """Returns the parameter of a label about memory that callers don't pass."""
        on_host, is_size = label.startswith("host"), label.endswith(" size")
        dtype = "" if is_size else self.dtype(_pointee(c_type)[0], letter)
        right = c_type in SIZE_TYPES if is_size else c_type.endswith("*") and self.query_end
        if not right or (on_host and dtype):
            self.faults.append(f"{where}: labelled {label}, but its type is {c_type}, or [library] has no workspace")
        kind = WorkspaceSize if is_size else Workspace
        return kind(name=name, c_type=c_type, dtype=dtype, on_host=on_host)

    def asked(self, symbol: str, parameters: list[Parameter], where: str) -> tuple[tuple[Parameter, str], ...]:
        """Returns the parameters of a query: those of its function, and where it tells sizes."""
        entry = self.api["functions"].get(symbol)
        if entry is None:
            self.faults.append(f"{where}: the header has no {symbol}, which would tell its workspace")
            return ()
        ours = {one.name.casefold(): one for one in parameters}
        also = {one.casefold(): name.casefold() for one, name in self.roles.get("also", {}).items()}
        found: list[tuple[Parameter, str]] = []
        for given, c_type in ((one, self.integer(c_type)) for one, c_type in entry["parameters"]):
            one = ours.get(given.casefold()) or ours.get(also.get(given.casefold(), ""))
            if c_type == self.roles.get("handle", {}).get("type"):
                one = ours["handle"]
            if one is None and c_type in ("int *", "size_t *"):
                one = WorkspaceSize(name=given, c_type=c_type)
            if one is None:
                self.faults.append(f"{where}: {symbol} has a parameter {given} that its function lacks")
            else:
                found.append((one, c_type))
        return tuple(found)

    @property
    def query_end(self) -> str:
        """Returns how the names of queries end; "" if the library has none."""
        return str(self.settings.get("workspace", ""))

    def workspace(self, name: str, c_type: str, size: str, asked: str, where: str) -> Parameter | None:
        query = described.query_from(asked)
        if query is None or query.symbol not in self.api["functions"]:
            self.faults.append(f"{where}: {asked!r} is not a function of the header, with its arguments")
            return None
        extent = Extent("bytes", (ast.Name(size),))
        return described.Room(
            name=name,
            c_type=c_type,
            dtype="any",
            direction="out",
            extent=extent,
            optional=True,
            query=query,
            is_workspace=True,
        )

    def host_list(self, name: str, c_type: str, listed: re.Match[str], letter: str, where: str) -> HostList:
        found = re.fullmatch(r"const (.+?) ?(?:\*|\[\])", c_type)
        element = found[1] if found else ""
        label, of = listed["role"], listed["of"] or ""
        dtype, enum = "", None
        if label in self.enums:
            label, enum = "enum", self.enum(label, letter)
            right = element.removeprefix("enum ") == enum.type and not of
        elif label == "scalar":
            dtype = "any" if of else self.dtype(element, letter)
            right = element == "void" if of else dtype in C_NUMBER and dtype != "i32"
        else:
            right = label in ("size", "ld") and element in SIZE_TYPES and not of
        if not right:
            self.faults.append(f"{where}: labelled {label} list, but its type is {c_type}")
        return HostList(name=name, c_type=c_type, dtype=dtype, of=of, label=label, length=listed["length"], enum=enum)

    def integer(self, c_type: str) -> str:
        """Returns a type with C's own name of an integer for the header's."""
        if not self.integers:
            return c_type
        return re.sub(r"\w+", lambda found: str(self.integers.get(found[0], found[0])), c_type)

    def function(self, bound: Binding, symbol: str) -> Function:
        name, key, form = bound.name, bound.family, bound.form
        family = self.roles["family"][key]
        self.own_types, self.form = family.get("types", {}), form
        self.on_device = family.get("pointer_mode") == "device"
        entry = self.api["functions"][symbol]
        labels = {one.casefold(): (one, label) for one, label in family["parameters"].items()}
        everywhere = {one: ours for one, ours in self.roles.get("also", {}).items() if ours.casefold() in labels}
        also = {one.casefold(): ours for one, ours in {**everywhere, **family.get("also", {})}.items()}
        also = {one: ours for one, ours in also.items() if one not in labels}
        where = f"{self.name}.toml: [family.{key}] {symbol}"
        declared, structs = self.with_fields(entry["parameters"], labels, where)
        self.order = [
            ours
            for given, _ in declared
            if (ours := labels.get(also.get(given.casefold(), given).casefold(), ("", "nothing"))[0])
            and not labels[ours.casefold()][1].startswith(("gives", "new", "returned", "nothing", "stream"))
        ]
        self.enums_given = {ours for ours, label in labels.values() if label in self.enums}
        self.enums_given |= {ours for ours, label in labels.values() if label.startswith("gives ")}
        plain = self.labelled(bound, symbol, declared, structs, labels, also, where)
        parameters, lacking = shared.in_form(form, plain, self.on_device)
        self.faults += [f"{where}: {one} has no stride, or no batch count" for one in lacking]
        self.check_names(parameters, where)
        requires = tuple(filter(None, (self.parse(one, where) for one in family.get("requires", []))))
        names = expressions.Names(parameters, self.constants)
        self.faults += [f"{where}: requires: {fault}" for one in requires for fault in names.requirement(one)]
        self.check_whole(symbol, parameters, where)
        device_only = self.on_device or sum(isinstance(one, Array) for one in parameters) > sum(
            isinstance(one, Array) for one in plain
        )
        query = symbol + self.query_end if any(isinstance(one, Workspace) for one in parameters) else ""
        # The form with 64-bit sizes writes 64-bit indices: to arrays of another dtype, so it is another function.
        has_sizes = any(isinstance(one, Size) and one.is_narrow for one in parameters)
        has_indices = any(one.dtype == "i32" and one.direction != "in" for one in parameters if isinstance(one, Array))
        return Function(
            name=name,
            symbol=symbol,
            wide_symbol=self.wide(symbol, where) if has_sizes and not has_indices else None,
            returns=self.integer(entry["returns"]),
            arguments=tuple(parameters),
            summary=bound.summary,
            family=key,
            form=form,
            optional=bool(family.get("optional", False)),
            device_only=device_only,
            query=query,
            asked=self.asked(query, parameters, where) if query else (),
            requires=requires,
            written=self.body(family, where),
            asks=self.called(family, where),
            hides=str(family.get("hides", "")),
            notes=str(family.get("notes", "")),
            since=(family["since"]["version"], family["since"]["why"]) if "since" in family else None,
            declared=declared,
        )

    def labelled(
        self,
        bound: Binding,
        symbol: str,
        declared: tuple[tuple[str, str], ...],
        structs: dict[str, str],
        labels: dict[str, tuple[str, str]],
        also: dict[str, str],
        where: str,
    ) -> list[Parameter]:
        """Returns the parameters of a function in the header's order, each with the role that its label says."""
        letter, form = bound.letter, bound.form
        handle = self.roles.get("handle", {}).get("type")
        parameters: list[Parameter] = []
        returned = self.integer(self.api["functions"][symbol]["returns"])
        used: set[str] = set()
        for given, c_type in ((one, self.integer(c_type)) for one, c_type in declared):
            if handle and c_type == handle and given.casefold() not in labels:
                parameters.append(Handle(name="handle", c_type=c_type))
                continue
            looked_up = also.get(given.casefold(), given).casefold()
            if looked_up not in labels:
                looked_up = shared.plain_name(form, looked_up)
            if looked_up not in labels:
                labelled = shared.label_in_form(form, given)
                ours = self.roles.get("also", {}).get(given, given)
                if labelled and (made := self.parameter(ours, c_type, labelled, letter, f"{where}: {given}")):
                    parameters.append(made)
                    continue
                self.faults.append(f"{where}: {given} ({c_type}) has no role")
                continue
            ours, label = labels[looked_up]
            used.add(looked_up)
            made = self.parameter(ours, c_type, label, letter, f"{where}: {given}")
            if made:
                parameters.append(replace(made, field_of=structs.get(given, "")))
        if any(isinstance(one, Given) and one.object_kind and one.object_kind.is_handle for one in parameters):
            parameters.append(DeviceNumber(name="device", c_type="int"))
        for folded, (ours, label) in labels.items():
            if label.split(" ")[0] == "returned":
                made = self.parameter(ours, returned, label, letter, f"{where}: return value")
                if made:
                    parameters.append(made)
            elif folded not in used and label != "fields":
                self.faults.append(f"{where}: the role {ours} names no parameter")
        return parameters

    def check_names(self, parameters: list[Parameter], where: str) -> None:
        """Notes which parameters refer to others that are not there, or have names that can't be used."""
        types = {one.name for one in parameters if isinstance(one, DataType)}
        arrays = {one.name for one in parameters if isinstance(one, Array)}
        objects = {one.name for one in parameters if one.role == "object"}
        for one in parameters:
            if isinstance(one, HostList) and one.length not in {other.name for other in parameters}:
                self.faults.append(f"{where}: {one.name}: {one.length} is not a parameter")
            if one.of and one.of not in types:
                self.faults.append(f"{where}: {one.name}: {one.of} is not an argument that stands for dtypes")
            said_by = (one.noted_by or one.typed_by) if isinstance(one, Array) else ""
            if said_by and said_by not in objects:
                self.faults.append(f"{where}: {one.name}: {said_by} is not an object")
            if one.complex_as and one.complex_as not in arrays:
                self.faults.append(f"{where}: {one.name}: {one.complex_as} is not an array")
            wrong = name_fault(one.name) if one.in_record and not isinstance(one, ServiceParameter) else ""
            if wrong:
                self.faults.append(f"{where}: {one.name}: it {wrong}; name it otherwise under `also`")
        self.faults += [f"{where}: {fault}" for fault in expressions.faults(parameters, self.constants)]

    def check_whole(self, symbol: str, parameters: list[Parameter], where: str) -> None:
        """Notes what is wrong with the parameters of a function together, and with its return value."""
        if sum(isinstance(one, described.HeldObject) for one in parameters) > MOST_HELD:
            self.faults.append(f"{where}: an object holds at most {MOST_HELD} others")
        rooms = [one for one in parameters if isinstance(one, (Workspace, WorkspaceSize))]
        for one in rooms:
            if isinstance(one, Workspace) and not one.on_host:
                continue  # some functions know how much they need
            if not any(one.on_host == other.on_host and type(other) is not type(one) for other in rooms):
                missed = "workspace of that size" if isinstance(one, WorkspaceSize) else "size of that workspace"
                self.faults.append(f"{where}: {one.name}: there is no {'host ' * one.on_host}{missed}")
        changed = described.unnoticed_change(symbol, parameters)
        self.faults += [f"{where}: {changed}"] if changed else []
        passed = sum(one.in_record for one in parameters)
        if passed > MOST_PARAMETERS:
            self.faults.append(f"{where}: has {passed} parameters, and a routine at most {MOST_PARAMETERS}")
        status = self.settings.get("status")
        entry = self.api["functions"][symbol]
        if entry["returns"] not in (status, "void") and not any(one.role == "returned" for one in parameters):
            self.faults.append(f"{where}: the return value ({entry['returns']}) has no role")

    def with_fields(
        self, parameters: list[list[str]], labels: dict[str, tuple[str, str]], where: str
    ) -> tuple[tuple[tuple[str, str], ...], dict[str, str]]:
        """Returns names and types of a header's parameters, with the fields in place of structs that are labelled so.

        And the struct of each field, by the field's name.
        """
        declared: list[tuple[str, str]] = []
        structs: dict[str, str] = {}
        for given, c_type in parameters:
            if labels.get(given.casefold(), ("", ""))[1] != "fields":
                declared.append((given, c_type))
                continue
            pointee, const = _pointee(c_type)
            fields = struct_fields(self.roles.get("raw", {}).get(pointee, ""))
            if not const or not fields or not self.settings.get("backend"):
                needs = "a const pointer to a struct that [raw] defines, of a library with a backend"
                self.faults.append(f"{where}: {given}: labelled fields, but its type is {c_type}: it needs {needs}")
            if wrong := name_fault(given):
                self.faults.append(f"{where}: {given}: it {wrong}")
            declared += fields
            structs |= dict.fromkeys((name for name, _ in fields), given)
        folded = [one.casefold() for one, _ in declared]
        twice = sorted({one for one in structs if folded.count(one.casefold()) > 1})
        self.faults += [f"{where}: {one}: another parameter, or field, has the name of this field" for one in twice]
        return tuple(declared), structs

    def called(self, family: dict[str, Any], where: str) -> tuple[str, ...]:
        """Returns the functions of the header that a body written by hand calls."""
        asks = tuple(family.get("asks", "").split())
        self.faults += [f"{where}: the header has no {one}" for one in asks if one not in self.api["functions"]]
        return asks

    def body(self, family: dict[str, Any], where: str) -> str:
        """Returns the C function that a family says is its body, once csrc/call/ is known to have it; "" if none."""
        written = str(family.get("written", ""))
        if written and not re.search(rf"\bint {re.escape(written)}\(const oa_routine \*", BODIES.read_text()):
            self.faults.append(f"{where}: written: csrc/call/{BODIES.name} has no {written}")
        return written

    def wide(self, symbol: str, where: str) -> str | None:
        """Returns the name of the form with 64-bit sizes, once it is known to be the same function."""
        suffix = self.settings.get("wide")
        wide = self.api["functions"].get(f"{symbol}{suffix}") if suffix else None
        if wide is None:
            return None
        narrow, wider = (
            [(given, self.integer(c_type)) for given, c_type in one["parameters"]]
            for one in (self.api["functions"][symbol], wide)
        )
        same = len(narrow) == len(wider) and all(
            a == b or (a[0] == b[0] and b[1] == re.sub(r"\bint\b", "int64_t", a[1]))
            for a, b in zip(narrow, wider, strict=True)
        )
        if not same:
            self.faults.append(f"{where}: {symbol}{suffix} differs in more than its sizes")
        return f"{symbol}{suffix}"

    def named(self) -> Iterator[Binding]:
        """Yields each function that is to be bound; a library's own families come first."""
        families = self.roles.get("family", {})
        listed = [
            (key, one, one in family.get("shared", ())) for key, family in families.items() for one in family["bind"]
        ]
        for key, template, is_shared in sorted(listed, key=lambda one: one[2]):
            bound = families[key]["bind"][template]
            older = families[key].get("older", {}).get(template, "")
            # Without letters: one function, whose types say all.
            letters, summary = ([""], bound) if isinstance(bound, str) else bound
            for letter in letters:
                forms = []
                for form, text in shared.FORMS.items() if "{form}" in template else [("", "")]:
                    words = {"t": letter, "r": REAL.get(letter, ""), "form": form}
                    name, before = template.format(**words), older.format(**words)
                    forms.append(Binding(key, name, letter, form, summary + text, before, is_shared))
                yield from [one for one in forms if self.symbol(one.name)[0]] or forms[:1]

    def symbol(self, name: str) -> tuple[str | None, list[str]]:
        """Returns the vendor's symbol for a name, or None, and the symbols that were looked for."""
        camel = "".join(word[:1].upper() + word[1:] for word in name.split("_"))
        candidates = [one.format(name=name, Name=camel) for one in self.settings.get("symbols", ["{name}"])]
        exact = next((one for one in candidates if one in self.api["functions"]), None)
        if exact:
            return exact, candidates
        folded = (one.casefold() for one in candidates)
        return next((self.folded[one] for one in folded if one in self.folded), None), candidates

    def functions(self) -> list[Function]:
        found: dict[str, Function] = {}
        for bound in self.named():
            where = f"{self.name}.toml: [family.{bound.family}] {bound.name}"
            symbol, candidates = self.symbol(bound.name)
            if symbol is None:
                if not bound.may_lack:
                    self.faults.append(f"{where}: the header has none of {', '.join(candidates)}")
            elif bound.name not in found:
                found[bound.name] = self.function(bound, symbol)
                self.in_older_version(bound, symbol, where)
            elif not bound.may_lack:
                self.faults.append(f"{where}: bound twice")
        return [found[name] for name in sorted(found)]

    def in_older_version(self, bound: Binding, symbol: str, where: str) -> None:
        """Notes under which name older versions of the library have a function, once it is known to be the same."""
        instead = (self.symbol(bound.older)[0] or bound.older) if bound.older else ""
        wrong = fault(self.api, symbol, instead)
        if wrong:
            self.faults.append(f"{where}: {wrong}")
        elif instead and self.older:
            self.older.instead[symbol] = instead

    def twins(self, functions: list[Function]) -> list[str]:
        """Returns the symbols of bound functions that are not called, since the header has another one for the name."""
        twins = {symbol for one in functions for symbol in self.symbol(one.name)[1]} - {one.symbol for one in functions}
        return sorted(twins & self.api["functions"].keys())

    def left_over(self, functions: list[Function]) -> tuple[dict[str, list[str]], dict[str, list[str]]]:
        """Returns the functions that are not bound, by the reason, and those that only <library>.raw has."""
        bound = {name for one in functions for name in (one.symbol, one.wide_symbol, one.query)}
        bound |= set(self.twins(functions))
        used = {str(one) for one in self.roles.get("handle", {}).values()}  # by the core
        used |= {self.roles.get("find", {}).get("version", {}).get("call", "")}
        left = [symbol for symbol in self.api["functions"] if symbol not in bound]
        found: list[dict[str, list[str]]] = []
        for table in ("not_bound", "only_raw"):
            rules = self.roles.get(table, [])
            groups: dict[str, list[str]] = {one["reason"]: [] for one in rules}
            for symbol in tuple(left):
                rule = next((one for one in rules if re.fullmatch(one["names"], symbol)), None)
                if rule:
                    groups[rule["reason"]].append(symbol)
                    left.remove(symbol)
            self.faults += [
                f"{self.name}.toml: [{table}] {reason!r}: no function is left for this reason"
                for reason, symbols in groups.items()
                if not symbols
            ]
            found.append(groups)
        self.faults += [
            f"{self.name}.toml: {symbol} is neither bound nor under [[not_bound]]"
            for symbol in left
            if symbol not in used
        ]
        return found[0], found[1]

    def find(self) -> dict[str, Any]:
        """Returns how Python finds the library, with a value for every key."""
        given = dict(self.roles.get("find", {}))
        version = given.pop("version", {"call": "", "gives": ""})
        if version["gives"] not in ("", *VERSION_GIVES):
            known = ", ".join(VERSION_GIVES)
            self.faults.append(f"{self.name}.toml: [find] version: gives is one of {known}, not {version['gives']!r}")
        return FIND | given | {"version": (version["call"], version["gives"])}

    def setting(self, table: str, key: str, allowed: Iterable[str], default: str | None = None) -> str:
        """Returns a setting that has to be one of a few words."""
        value = self.roles[table].get(key, default)
        if value not in allowed:
            self.faults.append(f"{self.name}.toml: [{table}] {key}: {value!r} is none of {', '.join(allowed)}")
        return str(value)

    def handle(self) -> dict[str, Any] | None:
        """Returns the [handle] table, with the values of its modes."""
        if "handle" not in self.roles:
            return None
        handle = dict(self.roles["handle"])
        for key, value in handle.items():
            if key in HANDLE_MODES:
                handle[key] = self.all_constants.get(value, 0)
            if key in HANDLE_MODES and value not in self.all_constants:
                self.faults.append(f"{self.name}.toml: [handle] {key}: the header has no {value}")
            elif key in HANDLE_FUNCTIONS and value not in self.api["functions"]:
                self.faults.append(f"{self.name}.toml: [handle] {key}: the header has no {value}")
            elif key in HANDLE_FUNCTIONS:
                self.faults += self.wrong_handle_function(key, value)
            elif key not in ("type", *HANDLE_MODES):
                self.faults.append(f"{self.name}.toml: [handle] {key}: there is no such setting")
        if "type" not in handle:
            self.faults.append(f"{self.name}.toml: [handle] has no type")
        if "create" not in handle and not any(one.is_handle for one in self.object_kinds.values()):
            self.faults.append(f"{self.name}.toml: [handle] has no create, and no [object] has its type")
        return handle

    def wrong_handle_function(self, key: str, symbol: str) -> list[str]:
        """Returns what is wrong with the types of a function of [handle]: the core calls it with those it expects."""
        makes, more = HANDLE_FUNCTIONS[key]
        first = f"{self.roles['handle'].get('type', '')}{' *' * makes}"
        types = [c_type for _, c_type in self.api["functions"][symbol]["parameters"]]
        others = [one for one in types[1:] if one.endswith("*") or not key.startswith("get_")]
        if types[:1] == [first] and len(types) - 1 == len(others) == more:
            return []
        needed = f"{first}{(' and a pointer' if key.startswith('get_') else ' and one more') * more}"
        return [f"{self.name}.toml: [handle] {key}: {symbol} takes {', '.join(types)}, and needs to take {needed}"]

    def policies(self, handle: dict[str, Any] | None) -> tuple[str, str]:
        """Returns how the stream is passed and where scalars are taken, once they agree with the handle's functions."""
        has = handle or {}
        modes = "pointer mode" if "set_pointer_mode" in has else "host"
        stream = self.setting("library", "stream", STREAMS, "handle" if "set_stream" in has else "none")
        scalars = self.setting("library", "scalars", SCALARS, modes if self.settings.get("backend") else "by value")
        where = f"{self.name}.toml: [library]"
        if stream == "handle" and "set_stream" not in has:
            self.faults.append(f'{where} stream = "handle": [handle] has no set_stream')
        if scalars == "pointer mode" and not {"set_pointer_mode", *HANDLE_MODES} <= has.keys():
            self.faults.append(f'{where} scalars = "pointer mode": [handle] has no set_pointer_mode, or not its modes')
        if not self.settings.get("backend") and (stream, handle) != ("none", None):
            self.faults.append(f"{where}: a library without a backend runs on the CPU, and has no stream and no handle")
        return stream, scalars

    def library(self) -> Library:
        settings = self.settings
        functions = self.functions()
        handle = self.handle()
        stream, scalars = self.policies(handle)
        if stream == "argument" and not any(isinstance(one, Stream) for made in functions for one in made.arguments):
            self.faults.append(f'{self.name}.toml: [library] stream = "argument": no function has a parameter "stream"')
        probe = settings.get("probe")
        if probe is not None and probe not in self.api["functions"]:
            self.faults.append(f"{self.name}.toml: [library] probe: the header has no {probe}")
        status = settings.get("status")
        codes = sorted((value, key) for key, value in self.api["enums"].get(status, {}).items()) if status else []
        success = settings.get("success")
        if success is not None and success not in self.all_constants:
            self.faults.append(f"{self.name}.toml: [library] success: the header has no {success}")
        others = {key: settings.get(key, []) for key in ("also_done", "only_asked")}
        for key, name in ((key, one) for key, names in others.items() for one in names):
            if name not in self.all_constants:
                self.faults.append(f"{self.name}.toml: [library] {key}: the header has no {name}")
        row_major = settings.get("row_major")
        if row_major and row_major["value"] not in self.all_constants:
            self.faults.append(f"{self.name}.toml: [library] row_major: the header has no {row_major['value']}")
        not_bound, only_raw = self.left_over(functions)
        find = self.find()
        if settings.get("name", self.name) != self.name:
            self.faults.append(f"{self.name}.toml: [library] name: {settings['name']!r} is not the name of the file")
        if self.faults:
            raise RolesError(self.faults)
        return Library(
            name=self.name,
            title=settings["title"],
            source=settings.get("source", f"{settings['title']} manual"),
            backend=settings.get("backend"),
            sonames=settings.get("sonames", []),
            stream=stream,
            scalars=scalars,
            success=self.all_constants[success] if success else 0,
            also_done=[self.all_constants[one] for one in others["also_done"]],
            only_asked=[self.all_constants[one] for one in others["only_asked"]],
            prefixes=settings.get("prefixes", [""]),
            suffixes=settings.get("suffixes", [""]),
            probe=probe,
            header=self.api["header"],
            version=self.api["version"],
            status_codes=codes,
            handle=handle,
            row_major=(row_major["parameter"], self.all_constants[row_major["value"]]) if row_major else None,
            constants=dict(sorted(self.constants.items(), key=lambda item: item[0])),
            names_here=self.names_here,
            functions=functions,
            find=find,
            api=self.api,
            older=self.older,
            status=status or "",
            integers=self.integers,
            raw=self.roles.get("raw", {}),
            object_kinds=list(self.object_kinds.values()),
            dtype_enums=[self.enum(key, "") for key, one in self.enums.items() if "dtypes" in one],
            adds=settings.get("adds", {}),
            not_bound=not_bound,
            only_raw=only_raw,
            twins=self.twins(functions),
            api_count=len(self.api["functions"]),
        )


def _file(name: str, folder: Path) -> dict[str, Any]:
    try:
        return tomllib.loads((folder / "roles" / f"{name}.toml").read_text())
    except tomllib.TOMLDecodeError as error:
        raise RolesError([f"{name}.toml: {error}"]) from None


def read_roles(name: str, folder: Path = HERE) -> dict[str, Any]:
    """Reads roles/<name>.toml, with the families that it shares; raises RolesError if their structure is wrong."""
    roles = _file(name, folder)
    wrong = schema.faults(name, roles)
    for other in roles.get("extends", []) if not wrong else []:
        if (folder / "roles" / f"{other}.toml").exists():
            wrong += schema.faults(other, _file(other, folder))
        else:
            wrong.append(f"{name}.toml: extends: there is no roles/{other}.toml")
    if not wrong:
        roles = shared.extended(roles, folder)
        wrong = schema.incomplete(name, roles)
    if wrong:
        raise RolesError(wrong)
    return roles


def names(folder: Path = HERE) -> list[str]:
    """Returns the libraries: the files in roles, but for those that others extend."""
    paths = sorted((folder / "roles").glob("*.toml"))
    extended = {one for path in paths for one in extended_by(path.read_text())}
    return [path.stem for path in paths if path.stem not in extended]


def join(name: str, api: dict[str, Any], roles: dict[str, Any]) -> Library:
    """Joins an api and its roles; raises RolesError with every fault found."""
    return _Reader(name, api, roles).library()


def load(folder: Path = HERE) -> list[Library]:
    """Reads every library that has both an api file and a roles file; raises RolesError with every fault found."""
    libraries: list[Library] = []
    faults: list[str] = []
    for name in names(folder):
        source = folder / "api" / f"{name}.json"
        if not source.exists():
            faults.append(f"{name}.toml: there is no api/{source.name}; run python -m bindings extract")
            continue
        try:
            labels = read_roles(name, folder)
            libraries.append(join(name, read_api(name, labels, folder), labels))
        except RolesError as error:
            faults += [located(fault, folder) for fault in error.faults]
        except ApiError as error:
            faults += error.faults
    if faults:
        raise RolesError(faults)
    return libraries
