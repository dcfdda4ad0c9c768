"""Writes the bodies of routines. A body is a C function that checks, moves and calls, for all routines that are alike.

A body is the same for all types of a family, because names, dtypes and symbols are in the routine's row. Routines with
equal bodies share one body. Bodies call csrc/body/body.h.

The vendor's function is called in one of two ways. If the library runs on a GPU, the body itself calls the function,
with the library's handle or stream. If the library runs on the CPU, the function is called later, in the order of a
stream: the body packs the values, and a *caller*, such as `call_v_iillfrlrlfpl`, unpacks them. There is one caller for
each machine signature, whose letters LETTERS and RETURNS explain.
"""

from __future__ import annotations

import ast
import zlib
from collections.abc import Callable

from ..expressions import names_in
from ..helper_functions import Given, HelperParameter, HostArray, Integer, Object
from ..labelled import EXTENTS, Extent
from ..library import Function, Library
from ..parameters import (
    C_NUMBER,
    MEMBER,
    NARROW,
    Array,
    DataType,
    EnumValue,
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
)
from .c_text import to_c, to_name, wrapped

# {letter: (C type, expression for the value in slot {at})}, with which a caller passes one value.
LETTERS = {
    "i": ("int", "(int)values[{at}].integer"),
    "l": ("{size}", "({size})values[{at}].integer"),  # int or int64_t, depending on the library
    "L": ("int64_t", "values[{at}].integer"),
    "p": ("void *", "(void *)values[{at}].pointer"),
    "r": ("const void *", "values[{at}].pointer"),
    "a": ("const void *", "&values[{at}]"),  # a number that stays in its slots
    "f": ("float", "values[{at}].single"),
    "d": ("double", "values[{at}].real"),
    "h": ("uint16_t", "values[{at}].half"),
}
# {letter: (C type, statement that stores {value})}, for a caller's return value.
RETURNS = {
    "v": ("void", "{value}"),
    "i": ("int", "return {value}"),
    "f": ("float", "values[{at}].single = {value}"),
    "d": ("double", "values[{at}].real = {value}"),
    "z": ("size_t", "values[{at}].integer = (int64_t){value}"),
    "l": ("{size}", "values[{at}].integer = (int64_t){value}"),
}
BY_VALUE = {"f32": "f", "f64": "d", "i32": "z", "f16": "h", "bf16": "h"}


def bare_sizes(function: Function) -> set[str]:
    """Return the sizes that alone form an extent's argument; oa_begin refuses negative values of these."""

    def bare(expression: ast.expr) -> set[str]:
        if isinstance(expression, ast.IfExp):
            return bare(expression.body) | bare(expression.orelse)
        return {expression.id} if isinstance(expression, ast.Name) else set()

    sizes = [size for array in function.arrays for extent in array.extents for size in extent.sizes]
    return {name for expression in sizes for name in bare(expression)}


class Body:
    """Writes the body of one function, and notes which fields of the function's row it needs."""

    def __init__(self, library: Library, function: Function) -> None:
        self.library = library
        self.function = function
        self.lines: list[str] = []
        self.at = {parameter.name: position for position, parameter in enumerate(function.parameters)}
        self.device_form = library.has_device_form(function)
        self.is_late = library.backend is None
        self.numbers = [number for number in function.numbers if number.role != "value"] if self.device_form else []
        # A form with 64-bit sizes writes 64-bit indices, but a device pointer to an index points to 32 bits.
        self.index_on_device = any(number.dtype == "i32" for number in self.numbers)
        self.is_typed = bool(function.of("type"))  # arguments determine some dtypes
        self.noted = [array for array in function.arrays if array.noted_by]
        self.dtypes = "dtypes" if self.is_typed or self.noted else "routine->dtypes"
        self.sizes = [size for size in function.sizes if size.is_narrow]
        self.wide_symbol = function.wide_symbol if self.sizes else None
        returned = function.result is not None and function.result.returned
        self.has_status = function.returns != "void" and not returned
        self.fetches = bool(library.fetches_results and self.device_form and function.result and function.arrays)
        self.slots = len(function.parameters)  # a late call has more slots if numbers have a count
        self.signature = ""

    def add(self, text: str) -> None:
        self.lines += wrapped(text)

    def text(self, name: str) -> str:
        """Return the body, called `name`."""
        self.lines = []
        has_objects = bool(self.function.of("object"))
        inner = f"{name}_with_objects" if has_objects else name
        self.add(
            f"{'static ' if has_objects else ''}int {inner}(const oa_routine *routine, oa_value *values, int device) {{"
        )
        if not self.device_form:
            self.add("  (void)device;")
        self.locals()
        self.checks()
        self.leading_dimensions()
        self.symbol()
        if self.is_late:
            self.late()
        else:
            self.begin()
            self.call()
        self.lines.append("}")
        if has_objects:
            self.with_objects(name, inner)
        return "\n".join(self.lines)

    def with_objects(self, name: str, inner: str) -> None:
        """Write the function that runs the function `inner` with the vendor's own objects."""
        kinds = [object_kind.key for object_kind in self.library.object_kinds]
        objects = [parameter for parameter in self.function.parameters if isinstance(parameter, Object)]
        self.add(f"int {name}(const oa_routine *routine, oa_value *values, int device) {{")
        changes = int(any(isinstance(parameter, Given) for parameter in self.function.parameters))
        self.add("  static const oa_object_place places[] = {")
        for object_ in objects:
            kind, optional = kinds.index(object_.object_kind.key), int(object_.kind != "object")
            self.add(f'    {{"{object_.name}", {self.at[object_.name]}, {kind}, {optional}, {changes}}},')
        self.add("  };")
        self.add(f"  return oa_with_objects(routine, values, device, places, {len(objects)}, {inner});")
        self.lines.append("}")

    # -- before the call --

    def locals(self) -> None:
        for parameter in self.function.parameters:
            if isinstance(parameter, (EnumValue, Size)):
                const = "const " if isinstance(parameter, EnumValue) else ""
                self.add(f"  {const}int64_t {parameter.name} = values[{self.at[parameter.name]}].integer;")
            elif isinstance(parameter, Result) and parameter.on_host:
                test = "if (!device) " if self.device_form else ""
                self.add(f"  {test}values[{self.at[parameter.name]}] = (oa_value){{0}};")
        for object_ in self.telling:
            self.told(object_)

    @property
    def telling(self) -> list[Object]:
        """Return the objects whose numbers are in the expressions of arrays."""
        nodes = (node for array in self.function.arrays for x in array.expressions for node in ast.walk(x))
        names = {
            node.value.id for node in nodes if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name)
        }
        return [
            object_ for object_ in self.function.parameters if isinstance(object_, Object) and object_.name in names
        ]

    def told(self, object_: Object) -> None:
        """Write the locals for the numbers of an object."""
        name = object_.name
        nodes = (node for array in self.function.arrays for x in array.expressions for node in ast.walk(x))
        used = {node.attr for node in nodes if isinstance(node, ast.Attribute)}
        facts = f'oa_told(routine, "{name}", &values[{self.at[name]}])'
        self.add(f"  const int *const {name}_told = {facts};")
        self.add(f"  if (!{name}_told) return OA_ERROR_LIBRARY;")
        for place, (told, _) in enumerate(object_.object_kind.tells):
            if told in used:
                self.add(f"  const int64_t {name}_{told} = {name}_told[{place}];")

    def checks(self) -> None:
        if self.is_typed and self.is_late:
            raise ValueError("a function of the CPU can't take its dtypes from arguments")
        if self.is_typed:
            self.add(f"  unsigned char dtypes[{len(self.function.parameters)}];")
            self.add("  const int typed = oa_routine_dtypes(routine, values, dtypes);")
            self.add("  if (typed) return typed;")
        elif self.noted:
            self.add(f"  unsigned char dtypes[{len(self.function.parameters)}];")
            self.add("  memcpy(dtypes, routine->dtypes, sizeof dtypes);")
        for array in self.noted:
            facts = f'"{array.noted_by}", &values[{self.at[array.noted_by]}], &dtypes[{self.at[array.name]}]'
            self.add(f"  if (oa_noted_dtype(routine, {facts})) return OA_ERROR_ARGUMENT;")
        self.enum_checks()
        # If an object's size is in a product, this code refuses negative sizes. Otherwise the core would refuse the
        # product as too large, before it refused the negative size.
        checked_by_core = set() if self.telling else bare_sizes(self.function)
        for size in self.function.sizes:
            if size.is_short:
                failure = f'oa_fail_too_large(routine->function, "{size.name}", {size.name})'
                self.add(f"  if (oa_is_wide({size.name})) return {failure};")
            if size.label != "size":
                continue
            if size.may_be_negative:
                self.add(f"  if ({size.name} < 0) {size.name} = values[{self.at[size.name]}].integer = 0;")
            elif size.name not in checked_by_core:
                self.add(f'  if ({size.name} < 0) return oa_fail_negative(routine, "{size.name}", {size.name});')
        for requirement in self.function.requires:
            names = [size.name for size in self.function.sizes if size.name in names_in(requirement)]
            failure = f'oa_fail_requirement(routine, "{ast.unparse(requirement)}", "{" ".join(names)}", '
            failure += f"(const int64_t[]){{{', '.join(names)}}})"
            self.add(f"  if (!({to_c(requirement, self.library.constants)})) return {failure};")

    def enum_checks(self) -> None:
        """Refuse values for which an enum has no constant."""
        for parameter in self.function.parameters:
            if isinstance(parameter, EnumValue) and not isinstance(parameter, DataType):
                plain = f"({parameter.name} & ~{parameter.enum.mask})" if parameter.enum.mask else parameter.name
                test = " && ".join(f"{plain} != {value}" for _, value in parameter.enum.values)
                name, choices = parameter.name, parameter.enum.names_and_values
                failure = f'oa_fail_enum(routine->function, "{name}", {name}, "{choices}")'
                self.add(f"  if ({test}) return {failure};")

    def leading_dimensions(self) -> None:
        """Raise the leading dimension of a matrix of one column to its number of rows.

        It has no effect, but vendors check it.
        """
        extents = [extent for array in self.function.arrays for extent in array.extents]
        for extent in [*extents, *(host_array.extent for host_array in self.host_arrays)]:
            if extent.kind not in ("matrix", "band", "band_triangle"):
                continue
            values, _ = self.as_stored(extent)
            ld = values[-1]
            match extent.kind:
                case "matrix":
                    rows, columns = values[0], values[1]
                case "band":
                    rows, columns = f"oa_plus(oa_plus({values[2]}, {values[3]}), 1)", values[1]
                case _:
                    rows, columns = f"oa_plus({values[2]}, 1)", values[1]
            self.add(f"  {ld} = oa_leading({ld}, {rows}, {columns});")

    def wide_test(self) -> str:
        """Write the test whether a size does not fit 32 bits."""
        return " | ".join(f"oa_is_wide({size.name})" for size in self.sizes)

    def symbol(self) -> None:
        """Find the vendor's function, and the function for its workspace's size."""
        self.own_symbol()
        if self.function.query:
            self.add("  void *query = oa_routine_symbol(routine, 2);")
            self.add("  if (!query) return oa_fail_symbol(routine, values, 0, device);")

    def own_symbol(self) -> None:
        """Find the vendor's function: the form with 64-bit sizes if a size needs it."""
        wide = self.wide_test()
        failure = "oa_fail_symbol(routine, values, {wide}, device)"
        if not self.sizes:
            self.add("  void *symbol = oa_routine_symbol(routine, 0);")
            self.add(f"  if (!symbol) return {failure.format(wide=0)};")
            return
        self.add(f"  const int wide = {wide};")
        if self.wide_symbol:
            symbol = "oa_routine_symbol(routine, wide)"
            if self.index_on_device:
                symbol = f"wide && device ? NULL : {symbol}"
            self.add(f"  void *symbol = {symbol};")
            self.add(f"  if (!symbol) return {failure.format(wide='wide')};")
            return
        refused = "wide"
        if self.library.probe:  # a whole build of the library may have 64-bit sizes
            refused = "wide && !oa_routine_is_ilp64(routine)"
            if self.index_on_device:
                refused = "wide && (device || !oa_routine_is_ilp64(routine))"
        self.add("  void *symbol = oa_routine_symbol(routine, 0);")
        self.add(f"  if (!symbol || ({refused})) return {failure.format(wide='wide')};")

    # -- operands --

    @property
    def operands(self) -> list[Array]:
        """Return the array of each operand; an array that changes its shape counts as two operands."""
        return [array for array in self.function.arrays for _ in array.extents]

    def as_stored(self, extent: Extent) -> tuple[list[str], list[str]]:
        """Return the arguments of an extent's macro, and their names, for a matrix stored by columns."""
        constants = self.library.constants
        order = self.library.row_major
        by_rows = f"{order[0]} == {order[1]}" if order and order[0] in self.at else ""
        arguments, part = list(extent.arguments), []
        if extent.kind in ("triangle", "band_triangle", "packed"):
            upper = to_c(arguments.pop(0), constants)
            part = [f"({f'({upper}) != ({by_rows})' if by_rows else upper} ? OA_UPPER : 0)"]
            if extent.leaves_out_the_diagonal:
                unit = to_c(arguments.pop(), constants)
                # cuBLAS reads even a matrix of order 1, for which an empty extent would have no address. So the extent
                # of a matrix that consists of its diagonal has all elements, although their values have no effect.
                others = [f"{to_c(arguments[0], constants)} > 1"]
                if extent.kind == "band_triangle":
                    others.append(f"{to_c(arguments[1], constants)} > 0")
                part[0] += f" | (!({unit}) ? 0 : {' && '.join(others)} ? OA_UNIT : OA_UNUSED)"
        values = [to_c(argument, constants) for argument in arguments]
        names = [to_name(argument, constants) for argument in arguments]
        if by_rows:
            for a, b in {"matrix": [(0, 1)], "band": [(0, 1), (2, 3)]}.get(extent.kind, []):
                for pair in (values, names):
                    pair[a], pair[b] = f"({by_rows} ? {pair[b]} : {pair[a]})", f"({by_rows} ? {pair[a]} : {pair[b]})"
        return [*part, *values], names

    def extent(self, extent: Extent, repeats: bool) -> str:
        """Write an extent. `repeats`: whether it is a vector whose increment may be 0."""
        constants = self.library.constants
        if extent.pointers:
            count, name = to_c(extent.pointers, constants), to_name(extent.pointers, constants)
            return f"oa_listed({self.extent_of_one(extent, repeats)}, {count}, {name})"
        if not extent.batch:
            return self.extent_of_one(extent, repeats)
        stride, count = (to_c(expression, constants) for expression in extent.batch)
        stride_name, count_name = (to_name(expression, constants) for expression in extent.batch)
        return f"oa_strided({self.extent_of_one(extent, repeats)}, {count}, {stride}, {count_name}, {stride_name})"

    def extent_of_one(self, extent: Extent, repeats: bool) -> str:
        kind = extent.kind
        values, names = self.as_stored(extent)
        if kind == "elements":
            if isinstance(extent.arguments[0], ast.Constant):
                return f"OA_ELEMENTS({values[0]})"
            return f'OA_EXTENT(OA_EXTENT_VECTOR, 0, {values[0]}, 1, 1, {names[0]}, "", "")'
        if kind in ("band", "band_triangle"):  # messages contain its dimensions and its leading dimension
            names = [*names[: len(EXTENTS[kind][1])], names[-1]]
        kind = "repeatable" if repeats else kind
        return f"OA_{kind.upper()}({', '.join([*values, *names])})"

    def access(self, array: Array) -> str:
        """Write the access of a call to an array."""
        if array.direction == "in":
            access = "OA_READ"
        elif array.direction == "out" or array.overwrites:
            # If a dimension is 0, nothing may be written, for any beta. An inner dimension of 0 is different: the
            # product of matrices is then 0, and BLAS applies beta. Only a product with a vector writes nothing then.
            tests = [self.overwrites(array.overwrites)] if array.overwrites else []
            dimensions = bare_sizes(self.function)
            if self.zero_tested(array.overwrites) and all(extent.kind == "matrix" for extent in array.extents):
                dimensions &= {name for extent in array.extents for size in extent.sizes for name in names_in(size)}
            sizes = [*self.function.of("size"), *(size for size in self.function.lists if size.label == "size")]
            tests += [f"{size.name} > 0" for size in sizes if size.name in dimensions]
            access = f"{' && '.join(tests)} ? OA_OVERWRITE : OA_READ_WRITE" if tests else "OA_OVERWRITE"
        else:
            access = "OA_READ_WRITE"
        if array.in_place:  # both operands have the flag
            access = f"({access}) | OA_IN_PLACE" if " " in access else f"{access} | OA_IN_PLACE"
            if array.in_place_if:
                access = access.replace("OA_IN_PLACE", f"({self.overwrites(array.in_place_if)} ? OA_IN_PLACE : 0)")
        return access

    def overwrites(self, test: ast.expr) -> str:
        """Write the test whether an operand is overwritten. The value of a scalar on the device is only known if the
        caller passed it as a host number."""
        scalar = self.zero_tested(test)
        if scalar:
            at, device = self.at[scalar], "device" if self.device_form else "0"
            return f"oa_is_zero(&values[{at}], {self.dtypes}[{at}], {device})"
        return to_c(test, self.library.constants)

    def zero_tested(self, test: ast.expr | None) -> str:
        """Return the scalar of the test `scalar == 0`; "" for another test."""
        numbers = {number.name for number in self.function.numbers}
        match test:
            case ast.Compare(left=ast.Name(id=scalar), ops=[ast.Eq()], comparators=[ast.Constant(value=0)]) if (
                scalar in numbers
            ):
                return scalar
        return ""

    def operand(self, parameter: Parameter, access: str, extent: str) -> str:
        at = self.at[parameter.name]
        return f'oa_operand_of("{parameter.name}", values[{at}].pointer, {access}, {self.dtypes}[{at}], {extent})'

    def start(self, count: str, **fields: str) -> None:
        """Declare the call, with values for these of its fields."""
        self.add(f"  oa_call call = oa_call_of(routine->function, routine->library, operands, {count});")
        for name, value in fields.items():
            self.add(f"  call.{name} = {value};")

    def begin(self) -> None:
        """Declare the operands, which include numbers on the device, and open the call."""
        arrays = self.operands
        count = len(arrays) + len(self.numbers)
        self.host_checks()
        self.add(f"  oa_operand operands[{count}];")
        for position, array in enumerate(arrays):
            again = position > 0 and arrays[position - 1] is array  # the same array again, with its new shape
            access = "OA_READ_WRITE | OA_RESHAPED" if again else self.access(array)
            extent = self.extent(array.extents[-1 if again else 0], array.repeats)
            if array.in_place_at:
                extent = f"oa_inside({extent}, {to_c(array.in_place_at, self.library.constants)})"
            if array.optional:
                extent = f"oa_optional({extent})"
            elif array.optional_if:
                extent = f"oa_optional_if({to_c(array.optional_if, self.library.constants)}, {extent})"
            self.add(f"  operands[{position}] = {self.operand(array, access, extent)};")
        if self.numbers and arrays:
            self.add("  if (device) {")
        indent = "    " if arrays else "  "
        for position, number in enumerate(self.numbers, len(arrays)):
            access = "OA_READ" if number.is_read_only else "OA_READ_WRITE"
            if number.role in ("result", "returned") or (number.role == "output" and number.count == 1):
                access = "OA_OVERWRITE"
            operand = self.operand(number, access, f"OA_ELEMENTS({number.count})")
            self.add(f"{indent}operands[{position}] = {operand};")
        if self.numbers and arrays:
            self.add("  }")
        fields = {}
        if self.function.device_only:
            fields["device_scalars"] = "1"
        elif self.numbers:
            fields["device_scalars"] = "1" if self.fetches else "device"
        if self.is_late and (self.has_status or self.function.of("object")):  # an object may be destroyed first
            fields["blocking"] = "1"
        elif self.is_late and self.function.result:
            fields["blocking"] = "!device"
        optional = any(array.optional for array in arrays)
        has_lists = any(isinstance(array, PointerArray) or array.optional_if for array in arrays)
        begins_lists = has_lists or (optional and not self.is_late)
        special = [*self.special, *(["OA_ENDS_UNWRITTEN"] if begins_lists and self.ends_unwritten else [])]
        special += ["OA_KEEPS_VALUES"] if self.function.captured else []
        if special:
            fields["special"] = " | ".join(special)
        if self.uncaptured:
            fields["uncaptured"] = self.uncaptured
        placed = [
            parameter
            for parameter in self.function.parameters
            if isinstance(parameter, Object) and parameter.object_kind.placed
        ]
        if placed:
            fields["only"] = f"oa_device_of_object(&values[{self.at[placed[0].name]}])"
        self.start(f"device ? {count} : {len(arrays)}" if self.numbers and arrays else str(count), **fields)
        if begins_lists:
            self.add("  const int failed = oa_begin_lists(&call);")
            self.add("  if (failed || !call.open) return failed;")
            self.do_nothing("")
            return
        if optional:
            raise ValueError("an array is optional beside arrays of pointers only")
        begin = "oa_late_begin" if self.is_late else "oa_begin"
        self.add(f"  const int failed = {begin}(&call);")
        self.add("  if (failed) return failed;")
        written = [position for position, array in enumerate(arrays) if self.access(array) != "OA_READ"]
        if written:
            self.do_nothing(f"OA_UNLIKELY(!operands[{written[0]}].touched) && ")

    def do_nothing(self, first: str) -> None:
        """Make no call if all arrays to be written are empty, because some libraries refuse such arrays."""
        if self.ends_unwritten:
            self.add(f"  if ({first}oa_call_writes_nothing(&call)) return oa_end(&call, call.vendor_status);")

    @property
    def ends_unwritten(self) -> bool:
        """Return whether the call is left out if no element of a device array would be written."""
        if any(isinstance(parameter, Object) and parameter.object_kind.tells for parameter in self.function.parameters):
            return False  # other ranks may write elements, and wait for this rank
        results = any(not number.is_read_only for number in self.function.numbers) or any(
            host_array.writes for host_array in self.host_arrays
        )
        return not results and any(self.access(operand) != "OA_READ" for operand in self.operands)

    @property
    def host_arrays(self) -> list[HostArray]:
        return [parameter for parameter in self.function.parameters if isinstance(parameter, HostArray)]

    @property
    def special(self) -> list[str]:
        """Return the flags by which the function differs from a function that has a handle."""
        arguments = self.function.arguments
        if not self.library.handle or any(isinstance(argument, Handle) for argument in arguments):
            return ["OA_ON_HOST_MEMORY"] if self.host_arrays else []
        has_stream = any(isinstance(argument, Stream) for argument in arguments)
        also = "OA_ON_HOST_MEMORY" if has_stream else "OA_ON_DEFAULT_STREAM"
        return ["OA_WITHOUT_HANDLE", *([also] if self.host_arrays or not has_stream else [])]

    @property
    def uncaptured(self) -> str:
        """Return the C expression of the reason why a graph can't contain the call, or ""."""
        if self.is_late:  # graphs can't contain calls on the CPU
            return ""
        if self.function.query:
            return "OA_NEEDS_WORKSPACE"
        if any(not number.is_read_only for number in self.function.numbers):
            return "device ? NULL : OA_RESULT_ON_HOST" if self.device_form else "OA_RESULT_ON_HOST"
        return ""

    def host_checks(self) -> None:
        """Check host arrays, and sizes of elements, against the dtype of the first device array."""
        sizes = [size for size in self.function.sizes if size.label == "itemsize"]
        if not (self.host_arrays or sizes):
            return
        if self.is_late or not self.function.arrays:
            raise ValueError("arrays of the host, and itemsizes, stand beside an array of a GPU")
        first = self.function.arrays[0]
        there = f"values[{self.at[first.name]}].pointer"
        self.add("  int wrong;")
        for size in sizes:
            for array in self.function.arrays:
                pointer = f"values[{self.at[array.name]}].pointer"
                called = f'oa_check_itemsize(routine, "{size.name}", {size.name}, "{array.name}", {pointer})'
                self.add(f"  if ((wrong = {called})) return wrong;")
        for host in self.host_arrays:
            self.add(f"  const oa_extent extent_{host.name} = {self.extent(host.extent, False)};")
            value = f"&values[{self.at[host.name]}], &extent_{host.name}"
            called = f'oa_check_host(routine, "{host.name}", {value}, {there}, {int(host.writes)})'
            self.add(f"  if ((wrong = {called})) return wrong;")

    def position(self, parameter: Parameter) -> int:
        """Return an operand's place among the operands."""
        return [*self.operands, *self.numbers].index(parameter)

    # -- on a GPU: called at once

    def call(self) -> None:
        for number in self.function.numbers:
            if not number.is_pointer and number in self.numbers:
                raise ValueError(f"{number.name}: it is passed by value, and could not be on the device")
            if not number.is_pointer:
                continue
            const = "const " if number.is_read_only else ""
            at = self.at[number.name]
            own = f"values[{at}].pointer" if number.count > 1 else f"&values[{at}]"
            there = f"operands[{self.position(number)}].address" if number in self.numbers else ""
            chosen = f"device ? {there} : {own}" if there else own
            if self.fetches and number is self.function.result:
                self.add("  oa_result under_way = {NULL, 0};")
                self.add(f"  void *{number.name} = device ? {there} : NULL;")
                placed = f"oa_result_place(&under_way, &call, {own}, &{number.name})"
                self.add(f"  const int lacking = device ? OA_OK : {placed};")
                self.add("  if (lacking) return lacking;")
                continue
            cast = "" if number.is_read_only else "(void *)"
            self.add(
                f"  {const}void *{number.name} = {cast}({chosen});"
                if cast
                else f"  {const}void *{number.name} = {chosen};"
            )
        self.vendor_calls()

    def structs(self) -> None:
        """Fill the structs whose fields are parameters."""
        fields: dict[str, list[Parameter]] = {}
        for argument in self.function.arguments:
            if argument.field_of:
                fields.setdefault(argument.field_of, []).append(argument)
        if fields and self.wide_symbol:
            raise ValueError("a function with a form of 64-bit sizes can't have a struct of fields")
        for name, inside in fields.items():
            passed = [(field, *self.passed(field, False)) for field in inside]
            members = " ".join(f"{c_type} {field.name};" for field, c_type, _ in passed)
            self.add(f"  const struct {{ {members} }} {name} = {{")
            self.lines += [f"      {value}," for *_, value in passed]
            self.add("  };")

    def vendor_calls(self) -> None:
        """Call the vendor's function, and end the call."""
        self.structs()
        if self.function.query:
            self.call_with_workspace()
        elif self.wide_symbol:
            self.add("  int status;")
            self.add("  if (wide)")
            self.add(f"    status = {self.vendor_call(True)};")
            self.add("  else")
            self.add(f"    status = {self.vendor_call(False)};")
        else:
            self.add(f"  const int status = {self.vendor_call(False)};")
        if self.fetches:
            self.add("  const int fetched = oa_result_fetch(&under_way, &call, status);")
        self.widen("  ")
        if self.fetches:
            self.add("  const int ended = oa_end(&call, status);")
            self.add("  return ended ? ended : fetched;")
        else:
            objects = self.function.of("object")
            if self.library.has_groups and objects:
                self.add(f"  return oa_end_in_group(&call, &values[{self.at[objects[0].name]}], status);")
            else:
                self.add("  return oa_end(&call, status);")

    def widen(self, indent: str) -> None:
        """Widen an index of 32 bits, which the vendor's function wrote, to 64 bits."""
        result = self.function.result
        if result and result.dtype == "i32" and not result.c_type.startswith("int64_t"):
            narrow = " && !wide" if self.wide_symbol else ""
            self.add(f"{indent}if (!device{narrow}) oa_widen(&values[{self.at[result.name]}]);")

    def vendor_call(self, wide: bool) -> str:
        """Return the C expression that calls the vendor's function."""
        passed = {
            argument.field_of or argument.name: ("const void *", f"&{argument.field_of}")
            if argument.field_of
            else self.passed(argument, wide)
            for argument in self.function.arguments
        }
        types, values = (", ".join(texts) for texts in zip(*passed.values(), strict=True))
        return f"((int (*)({types}))symbol)({values})"

    def call_with_workspace(self) -> None:
        """Query the size of the function's workspace, take a workspace, and call the function."""
        passed, sizes = [], {}
        for parameter, c_type in self.function.asked:
            if isinstance(parameter, WorkspaceSize):
                pointee = c_type.removesuffix("*").strip()
                sizes[parameter.on_host] = f"{'host' if parameter.on_host else 'device'}_size"
                self.add(f"  {pointee} {sizes[parameter.on_host]} = 0;")
                passed.append((f"{pointee} *", f"&{sizes[parameter.on_host]}"))
            else:
                passed.append(("void *", "NULL") if isinstance(parameter, Workspace) else self.passed(parameter, False))
        types, values = (", ".join(texts) for texts in zip(*passed, strict=True))
        own = next(
            argument for argument in self.function.arguments if isinstance(argument, Workspace) and not argument.on_host
        )
        like = [array for array in self.function.arrays if own.dtype and array.dtype == own.dtype]
        itemsize = f" * (size_t)oa_itemsize(routine->dtypes[{self.at[like[0].name]}])" if like else ""
        self.add(f"  int status = ((int (*)({types}))query)({values});")
        self.add("  if (status == routine->library->success) {")
        self.add("    oa_workspaces taken;")
        nbytes = f"(size_t){sizes[False]}{itemsize}, {f'(size_t){sizes[True]}' if True in sizes else '0'}"
        self.add(f"    const int refused = oa_workspaces_take(&taken, &call, {nbytes});")
        self.add("    if (refused) return refused;")
        self.add(f"    status = {self.vendor_call(False)};")
        self.widen("    ")
        self.add("    return oa_workspaces_end(&taken, &call, status);")
        self.add("  }")

    def passed(self, parameter: Parameter, wide: bool) -> tuple[str, str]:
        """Return the C type and value of an argument of the vendor's function."""
        match parameter:
            case Handle():
                return "void *", "call.handle"
            case Stream():
                return "void *", "call.native_stream"
            case EnumValue():
                return "int", f"(int){parameter.name}"
            case Size() if parameter.is_short or (parameter.is_narrow and not wide):
                return "int", f"(int){parameter.name}"
            case Size():
                return "int64_t", parameter.name
            case Array():
                return (
                    "const void *" if parameter.is_read_only else "void *",
                    f"operands[{self.position(parameter)}].address",
                )
            case HelperParameter() if parameter.passed:
                c_type, value = parameter.vendor(self.at.get(parameter.name, -1))
                return c_type, value
            case Result(returned=True):
                raise ValueError(f"{parameter.name}: a function of a GPU can't return its result")
            case Number() if parameter.is_pointer:
                return "const void *" if parameter.is_read_only else "void *", parameter.name
            case Number():
                return C_NUMBER[parameter.dtype], f"values[{self.at[parameter.name]}].{MEMBER[parameter.dtype]}"
            case Workspace():
                return "void *", "taken.host" if parameter.on_host else "taken.device"
            case WorkspaceSize():
                value = f"{'host' if parameter.on_host else 'device'}_size"
                return (value_type := "int" if parameter.c_type in NARROW else "size_t"), f"({value_type}){value}"
        raise ValueError(f"{parameter.name}: no body passes a {type(parameter).__name__}")

    # -- on the CPU: called later, in stream order

    def tried(self, parameter: Parameter) -> str:
        """Return the letter of the type that oa_stride_unit passes for a parameter."""
        extents = [extent for array in self.function.arrays for extent in array.extents]
        counts = {ast.unparse(extent.batch[1]) for extent in extents if extent.batch}
        match parameter:
            case EnumValue():
                return "e"
            case Size():
                return "2" if parameter.label == "stride" or parameter.name in counts else "1"
            case Array():
                return "r" if parameter.direction == "in" else "w"
            case Number() if parameter.role == "scalar":
                return "n"
        raise ValueError(f"{parameter.name}: a function with tried strides can't have a {type(parameter).__name__}")

    def stride_unit(self) -> None:
        """Find the unit of strides by a first call."""
        strides = [size for size in self.function.sizes if size.is_tried]
        if not strides:
            return
        letters = "".join(map(self.tried, self.function.parameters))
        self.add(f'  const int unit = oa_stride_unit(routine, symbol, values, "{letters}");')
        self.add("  if (!unit) return OA_ERROR_VERSION;")
        for stride in strides:
            product = f"oa_times({stride.name}, unit)"
            failure = f'oa_fail_too_large(routine->function, "{stride.name} in real numbers", {product})'
            self.add(f"  if (oa_is_wide({product}) && !oa_routine_is_ilp64(routine)) return {failure};")

    def late(self) -> None:
        """Pack the values, and leave the call to oa_submit; without operands, make the call immediately."""
        arrays = self.function.arrays
        self.stride_unit()
        if not arrays:  # all values are on the host, so there is no device, and no order to keep
            self.add("  if (!device) {")
            self.pack("    ", on_device=False)
            self.add("    return oa_late_now(&late);")
            self.add("  }")
            self.begin()
            self.pack("  ", on_device=True)
        else:
            self.begin()
            self.pack("  ", on_device=None)
        self.add("  return oa_late_submit(&late, &call);")

    def pack(self, indent: str, on_device: bool | None) -> None:
        """Fill the late call. If `on_device` is None, the body tests whether numbers are on the device."""
        self.slots = len(self.function.parameters)
        self.add(f"{indent}oa_late late;")
        self.add(f"{indent}oa_late_start(&late, routine, symbol, values, device);")
        if self.has_status:
            self.add(f"{indent}late.has_status = 1;")
        for parameter in self.function.parameters:
            at = self.at[parameter.name]
            if isinstance(parameter, Size) and parameter.label == "ld":
                self.add(f"{indent}late.values[{at}].integer = {parameter.name};")
            elif isinstance(parameter, Size) and parameter.is_tried:
                self.add(f"{indent}late.values[{at}].integer = oa_times({parameter.name}, unit);")
            elif isinstance(parameter, Array):
                self.add(f"{indent}late.values[{at}].pointer = operands[{self.position(parameter)}].address;")
        loads = ""
        here: list[str] = []
        there: list[str] = []
        for parameter in self.function.numbers:
            at, slot = self.at[parameter.name], self.at[parameter.name]
            if self.device_form:
                there.append(f"late.values[{at}].pointer = operands[{self.position(parameter)}].address;")
            if parameter.is_read_only and parameter.count > 1:
                slot = self.slots
                self.slots += parameter.count  # a slot has room for the widest number
                nbytes = f"{parameter.count} * (size_t)oa_itemsize(routine->dtypes[{at}])"
                here.append(f"memcpy(&late.values[{slot}], values[{at}].pointer, {nbytes});")
            elif not parameter.is_read_only and parameter.count == 1:
                here.append(f"late.values[{at}].pointer = &values[{at}];")
            if parameter.is_read_only:
                loads += f"\\{at + 1:o}\\{slot:o}\\{parameter.count:o}"
            elif isinstance(parameter, Result) and parameter.returned:
                self.add(f"{indent}late.returned = {at + 1};")
        if loads:
            self.add(f'{indent}late.loads = "{loads}";')
        if on_device is None and here and there:
            self.branches(indent, there, here)
        else:
            lines = there if on_device or (on_device is None and not here) else here
            for line in lines:
                guard = "if (device) " if on_device is None and self.device_form else ""
                self.add(f"{indent}{guard}{line}")
        if self.slots > len(self.function.parameters):
            self.add(f"{indent}late.count = {self.slots};")

    def branches(self, indent: str, there: list[str], here: list[str]) -> None:
        self.add(f"{indent}if (device) {{")
        for line in there:
            self.add(f"{indent}  {line}")
        self.add(f"{indent}}} else {{")
        for line in here:
            self.add(f"{indent}  {line}")
        self.add(f"{indent}}}")

    def caller(self) -> str:
        """Return the function that makes a late call. Its name ends with its signature."""
        letters: list[tuple[str, int]] = []
        slot = len(self.function.parameters)
        for argument in self.function.arguments:
            at = self.at[argument.name]
            match argument:
                case EnumValue():
                    letters.append(("i", at))
                case Size():
                    letters.append(("l" if argument.is_narrow else "L", at))
                case Array():
                    letters.append(("r" if argument.is_read_only else "p", at))
                case HostList():
                    letters.append(("r", at))
                case Object():
                    letters.append(("r", at))
                case Integer():
                    letters.append(("i" if argument.dtype in ("i32", "u32") else "L", at))
                case HelperParameter():
                    raise ValueError(
                        f"{argument.name}: a function of the CPU can't have a parameter that is {argument.role}"
                    )
                case Result(returned=True):
                    pass
                case Number() if not argument.is_read_only:
                    letters.append(("p", at))
                case Number() if argument.count > 1:
                    letters.append(("a", slot))
                    slot += argument.count
                case Number() if argument.is_pointer:
                    letters.append(("a", at))
                case Number():
                    letters.append((BY_VALUE[argument.dtype], at))
        result = self.function.result
        returned = result is not None and result.returned
        letter = BY_VALUE[result.dtype] if result and returned else "i" if self.has_status else "v"
        if letter == "z" and self.function.returns in NARROW:
            letter = "l"
        places = [position for _, position in letters]
        odd = "" if places == list(range(len(places))) else "_" + "_".join(map(str, places))
        self.signature = f"{self.library.name}_call_{letter}_{''.join(letter for letter, _ in letters)}{odd}"
        c_type, store = RETURNS[letter]
        at = len(self.function.parameters) - 1

        def line(size: str) -> str:
            types = ", ".join(LETTERS[letter][0].format(size=size) for letter, _ in letters)
            passed = ", ".join(LETTERS[letter][1].format(size=size, at=position) for letter, position in letters)
            called = f"(({c_type.format(size=size)} (*)({types}))symbol)({passed})"
            return store.format(value=called, at=at) + ";"

        self.lines = []
        self.add(f"int {self.signature}(void *symbol, oa_value *values, int ilp64) {{")
        has_sizes = any(letter == "l" for letter, _ in letters)
        if self.library.probe and has_sizes:
            self.add("  if (ilp64)")
            self.add(f"    {line('int64_t')}")
            self.add("  else")
            self.add(f"    {line('int')}")
        else:
            self.add("  (void)ilp64;")
            self.add(f"  {line('int')}")
        if letter != "i":
            self.add("  return 0;")
        self.lines.append("}")
        return "\n".join(self.lines)


class Bodies:
    """The bodies of a library, each written once, and the body of each function.

    `body_of` makes the writer of a function's body.
    """

    def __init__(self, library: Library, body_of: Callable[[Library, Function], Body]) -> None:
        self.texts: dict[str, str] = {}  # {name: text of the body}
        self.of: dict[str, tuple[str, str]] = {}  # {function: (body, caller or "")}
        self.users: dict[str, list[str]] = {}
        self.callers: set[str] = set()
        names: dict[str, str] = {}  # by the text of a body, with NAME as its name
        taken: dict[str, int] = {}
        for function in library.functions:
            body = body_of(library, function)
            text = body.text("NAME")
            if text not in names:
                family = f"{library.name}_run_{function.family}"
                taken[family] = taken.get(family, 0) + 1
                names[text] = family if taken[family] == 1 else f"{family}_{taken[family]}"
                self.texts[names[text]] = body.text(names[text])
            caller = ""
            if body.is_late and function.called_by:
                caller = function.called_by
            elif body.is_late:
                caller_text = body.caller()
                caller = body.signature
                self.callers.add(caller)
                assert self.texts.setdefault(caller, caller_text) == caller_text, caller
            self.of[function.name] = (names[text], caller)
            for name in filter(None, (names[text], "" if function.called_by else caller)):
                self.users.setdefault(name, []).append(function.name)

    def prototypes(self) -> list[str]:
        """Return the declarations of all bodies and callers."""
        first = {True: "void *symbol", False: "const oa_routine *routine"}
        return [f"int {name}({first[name in self.callers]}, oa_value *values, int);" for name in self.texts]

    def part(self, number: int, parts: int) -> list[str]:
        """Return the C text of a part of the bodies. A body's name alone determines the part that has it."""
        lines: list[str] = []
        for name, text in self.texts.items():
            if zlib.crc32(name.encode()) % parts != number:
                continue
            users = " ".join(self.users[name])
            lines += [f"/* {users} */" if len(users) < 110 else f"/* {users[:100].rsplit(' ', 1)[0]} ... */", text, ""]
        return lines
