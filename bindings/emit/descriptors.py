"""Writes the bodies of functions whose descriptors determine the extents; they call csrc/body/descriptor.h.

Such a body queries the descriptors first, declares an operand for each passed array, and opens the call. Then it
queries the bytes that the call needs, and takes a workspace from the device if the caller passed no workspace.
"""

from __future__ import annotations

import ast
import re

from ..descriptors import MOST_DIMENSIONS, Bytes, Elements, Factor, GivenPlace, Integers, Query, Room
from ..expressions import names_in
from ..helper_functions import Integer, Object
from ..labelled import Enum, ObjectKind
from ..library import Function, Library
from ..parameters import Array, EnumValue, Parameter, Scalar, Size
from .bodies import Body
from .c_text import quoted, to_c

KNOWN = "OA_AT_"  # followed by a symbol, the name of the symbol's place in the library's table


def has_descriptors(library: Library, function: Function) -> bool:
    """Return whether a function needs a body of this module; only functions of GPU libraries do."""
    if library.backend is None or function.written:
        return False
    arrays = function.arrays
    lists = [parameter for parameter in function.parameters if isinstance(parameter, Integers)]
    plain = all(array.extent.kind not in ("described", "bytes") for array in arrays)
    factors = any(isinstance(number, Factor) for number in function.numbers)
    return bool(arrays) and (not plain or bool(lists) or factors or bool(_subscripted(function)))


def dtype_enum(library: Library, c_type: str) -> Enum:
    """Return the enum of dtypes whose C type is this type."""
    for dtype_enum in library.dtype_enums:
        if dtype_enum.type == c_type:
            return dtype_enum
    raise ValueError(f"no table of [enums] has the dtypes of {c_type}")


def _enum_type(function: Function, name: str) -> str:
    """Return the C type of a parameter that is an enum, or an output that is an enum."""
    argument = next(argument for argument in function.arguments if argument.name == name)
    return argument.c_type.removesuffix("*").strip()


def enums_used(library: Library) -> list[Enum]:
    """Return the enums of dtypes that bodies look up."""
    enums: dict[str, Enum] = {}
    for function in library.functions:
        for parameter in function.parameters:
            if isinstance(parameter, (Elements, Bytes)) and parameter.type_of:
                enum = dtype_enum(library, _enum_type(function, parameter.type_of))
                enums[enum.label] = enum
    for kind in library.object_kinds:
        if kind.describes[0]:
            enum = dtype_enum(library, _dtype_type(library, kind))
            enums[enum.label] = enum
    return list(enums.values())


def _dtype_type(library: Library, kind: ObjectKind) -> str:
    if kind.describes[1] == "attributes":
        return "cudaDataType"
    parameters = library.api["functions"][kind.describes[0]]["parameters"]
    at = kind.describes[1].split().index("dtype")
    return str(parameters[at + 1][1]).removesuffix("*").strip()


def asked_symbols(library: Library) -> list[str]:
    """Return the functions that bodies query, in addition to the bound function of each body."""
    symbols = {called for kind in library.object_kinds for called in (kind.describes[0], kind.describes[2]) if called}
    for function in library.functions:
        symbols |= {array.query.symbol for array in function.arrays if isinstance(array, Room) and array.query}
        symbols |= set(function.asks)
    return sorted(symbols)


# -- queries of descriptors --------------------------------------------------------------------------------------------


def describing(library: Library, kind: ObjectKind) -> list[str]:
    """Return the C function that queries the memory that a descriptor describes."""
    called, words, size = kind.describes
    parameters = library.api["functions"][called]["parameters"][1:]
    types, values, dims, layout = ["const void *"], ["object"], 0, ""
    for (_, c_type), word in zip(parameters, words.split(), strict=True):
        scalar = "size_t" if c_type == "size_t" else "int"
        at = re.fullmatch(r"shape\[(\d)\]", word)
        packed = re.fullmatch(r"layout\[(\d)\]", word)
        if word.isdigit():
            types.append(scalar)
            values.append(word)
            continue
        types.append(scalar if word == "count" else "void *")
        dims = max(dims, int(at[1]) + 1 if at else 0)
        named = {"none": "NULL", "dtype": "&code", "unused": "unused", "count": "count", "lengths": "lengths"}
        named |= {"rank": "&rank", "shape": "shape", "strides": "strides"}
        values.append(f"&shape[{at[1]}]" if at else "&layout" if packed else named[word])
        layout = packed[1] if packed else layout
    has = set(words.split())
    lines = [f"static int describe_{kind.key}(const oa_routine *routine, const char *name, const oa_value *value,"]
    lines += ["    oa_description *description) {", "  const void *object = value->pointer;"]
    lines += ["  const uint64_t stamp = oa_stamp_of(value);"]
    lines += [f"  int code = 0, rank = {dims}, shape[{MOST_DIMENSIONS}] = {{0}};"]
    lines += [f"  int strides[{MOST_DIMENSIONS}] = {{0}};"] if "strides" in has else []
    if "lengths" in has:
        lines += ["  int layout = 0, *lengths = NULL;", f"  {scalar_of(parameters, words)} count = 0;"]
    lines += [f"  unsigned char unused[{8 * MOST_DIMENSIONS}];"] if "unused" in has else []
    lines += [f"  if (!object) return oa_fail_description(routine, name, {quoted(called)}, NULL, 0);"]
    lines += ["  if (oa_answer_find(&stamp, 1, 1, description, sizeof *description)) return OA_OK;"]
    lines += [f"  void *symbol = oa_asked(routine, {KNOWN}{called});", "  if (!symbol) return OA_ERROR_LIBRARY;"]
    call = f"((int (*)({', '.join(types)}))symbol)({', '.join(values)})"
    lines += [f"  int status = {call};"]
    failure = f"return oa_fail_description(routine, name, {quoted(called)}, object, status);"
    lines += [f"  if (status != routine->library->success) {failure}"]
    if "lengths" in has:
        lines += [f"  if (layout == {layout}) {{", "    count = shape[1];"]
        lines += ["    if (!(lengths = oa_lengths_start(routine, count))) return OA_ERROR_MEMORY;"]
        lines += [f"    status = {call};", "    shape[0] = oa_lengths_end(lengths, count);", "    shape[1] = 1;"]
        lines += [f"    if (status != routine->library->success) {failure}", "  }"]
    lines += ["  size_t nbytes = 0;"]
    if size:
        lines += [f"  void *sized = oa_asked(routine, {KNOWN}{size});", "  if (!sized) return OA_ERROR_LIBRARY;"]
        lines += ["  status = ((int (*)(const void *, size_t *))sized)(object, &nbytes);"]
        lines += [f"  if (status != routine->library->success) {failure.replace(quoted(called), quoted(size))}"]
    label = dtype_enum(library, _dtype_type(library, kind)).label
    strides = "strides" if "strides" in has else "NULL"
    facts = f"types_{label}, code, rank, shape, {strides}, nbytes"
    lines += [f"  status = oa_description_set(routine, name, description, {facts});"]
    lines += ["  if (!status) oa_answer_keep(&stamp, 1, 1, description, sizeof *description);", "  return status;"]
    return [*lines, "}", ""]


def scalar_of(parameters: list[list[str]], words: str) -> str:
    """Return the C type of the parameter that is a count."""
    return next(c_type for (_, c_type), word in zip(parameters, words.split(), strict=True) if word == "count")


def describing_functions(library: Library) -> dict[str, list[str]]:
    """Return the C text of all such functions that bodies use, by name."""
    used = {name for function in library.functions for name in _descriptors(library, function).values()}
    kinds = [kind for kind in library.object_kinds if kind.describes[0] and kind.key in used]
    return {f"describe_{kind.key}": describing(library, kind) for kind in kinds}


def known_symbols(library: Library, index: dict[str, int]) -> list[str]:
    """Return the C constants of the symbols that bodies look up. `index`: the places of the library's symbols."""
    asked = asked_symbols(library)
    return ["enum {", *(f"  {KNOWN}{symbol} = {index[symbol]}," for symbol in asked), "};", ""] if asked else []


def _subscripted(function: Function) -> set[str]:
    """Return the descriptors whose dimensions are in expressions."""
    expressions = [x for array in function.arrays for x in array.expressions]
    expressions += [
        parameter.length for parameter in function.parameters if isinstance(parameter, Integers) and parameter.length
    ]
    nodes = [node for expression in expressions for node in ast.walk(expression)]
    return {node.value.id for node in nodes if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name)}


def _descriptors(library: Library, function: Function) -> dict[str, str]:
    """Return the descriptors that a body queries: the parameter, and the key of its kind."""
    if not has_descriptors(library, function):
        return {}
    names = {array.by for array in function.arrays} | _subscripted(function)
    names |= {number.by for number in function.numbers if isinstance(number, Factor)}
    objects = [parameter for parameter in function.parameters if isinstance(parameter, Object)]
    return {object_.name: object_.object_kind.key for object_ in objects if object_.name in names}


# -- lists and numbers, of helper functions as well -------------------------------------------------------------------


def list_locals(body: Body) -> None:
    """Write the locals to which lengths of lists refer."""
    lists = [parameter for parameter in body.function.parameters if isinstance(parameter, Integers)]
    used = {name for list_ in lists if list_.length for name in names_in(list_.length)}
    used |= {name for array in body.function.arrays for x in array.expressions for name in names_in(x)}
    elements = [parameter for parameter in body.function.parameters if isinstance(parameter, (Bytes, Elements))]
    used |= {name for element in elements for name in names_in(element.expressions[0])}
    for parameter in body.function.parameters:
        if isinstance(parameter, Integer) and parameter.name in used:
            body.add(f"  const int64_t {parameter.name} = values[{body.at[parameter.name]}].integer;")
        elif isinstance(parameter, Integers) and parameter.name in used:
            body.add(f"  const oa_number_list *{parameter.name} = values[{body.at[parameter.name]}].pointer;")


def list_checks(body: Body) -> None:
    """Write the checks of lists, of numbers passed by pointer, and of host arrays whose dtype an enum determines."""
    function, constants = body.function, body.library.constants
    checks = []
    for parameter in function.parameters:
        at = body.at[parameter.name]
        if isinstance(parameter, Integers) and parameter.length:
            needed = to_c(parameter.length, constants)
            facts = f'"{parameter.name}", values[{at}].pointer, {needed}, "{ast.unparse(parameter.length)}"'
            checked = f"oa_check_list(routine, {facts})"
            checks.append(f"values[{at}].pointer ? {checked} : OA_OK" if parameter.optional else checked)
        elif isinstance(parameter, Factor):
            name, by = parameter.name, parameter.by
            body.add(f"  oa_value {name};")
            facts = f'routine, "{name}", values[{at}].real, {by}_description.dtype, "{by}", &{name}'
            checks.append(f"oa_factor_for({facts})")
        elif isinstance(parameter, Elements):
            label = dtype_enum(body.library, _enum_type(function, parameter.type_of)).label
            count = to_c(parameter.extent.arguments[0], constants)
            code = f'"{parameter.type_of}", types_{label}, {parameter.type_of}'
            facts = f'"{parameter.name}", &values[{at}], {count}, {code}, {int(parameter.writes)}'
            checks.append(f"oa_check_elements(routine, {facts})")
        elif isinstance(parameter, Bytes):
            count = to_c(parameter.extent.arguments[0], constants)
            code = "NULL, NULL, 0"
            if parameter.type_of:
                label = dtype_enum(body.library, _enum_type(function, parameter.type_of)).label
                code = f'"{parameter.type_of}", types_{label}, {parameter.type_of}'
            facts = f'"{parameter.name}", &values[{at}], {count}, {code}, {int(parameter.writes)}'
            checks.append(f"oa_check_bytes(routine, {facts})")
    if checks:
        body.add("  int unfit;")
    for check in checks:
        body.add(f"  if ((unfit = {check})) return unfit;")


# -- bodies ------------------------------------------------------------------------------------------------------------


class DescriptorBody(Body):
    """Writes the body of one function with descriptors."""

    def locals(self) -> None:
        super().locals()
        list_locals(self)

    def symbol(self) -> None:
        super().symbol()
        for name, key in _descriptors(self.library, self.function).items():
            object_ = next(
                parameter
                for parameter in self.function.parameters
                if isinstance(parameter, Object) and parameter.name == name
            )
            optional = object_.kind == "object?"
            at = self.at[name]
            self.add(f"  oa_description {name}_description = {{.rank = 0}};")
            arrays = [array for array in self.function.arrays if array.by == name]
            there = " || ".join(f"values[{self.at[array.name]}].pointer" for array in arrays)
            function = f"describe_{key}" if object_.object_kind.describes[0] else "oa_noted_description"
            asked = f'{function}(routine, "{name}", &values[{at}], &{name}_description)'
            if optional:
                asked = f"values[{at}].pointer{f' || {there}' if there else ''} ? {asked} : OA_OK"
            self.add(f"  const int {name}_unknown = {asked};")
            self.add(f"  if ({name}_unknown) return {name}_unknown;")
        list_checks(self)

    def place(self, array: Array) -> str:
        """Return the C expression for an operand's place among the operands."""
        return f"{array.name}_at"

    def may_lack(self, array: Array) -> bool:
        return array.optional

    def extent_text(self, array: Array) -> str:
        constants = self.library.constants
        pointer = f"values[{self.at[array.name]}].pointer"
        if array.extent.kind == "bytes":
            size = array.extent.arguments[0]
            return f'oa_extent_of_bytes({pointer}, {to_c(size, constants)}, "{ast.unparse(size)}")'
        return self.extent(array.extent, array.repeats)

    def begin(self) -> None:
        arrays = self.function.arrays
        self.add(f"  oa_operand operands[{len(arrays)}];")
        self.add("  int count = 0;")
        for array in arrays:
            pointer = f"values[{self.at[array.name]}].pointer"
            there = f"{pointer} ? count++ : -1" if self.may_lack(array) else "count++"
            self.add(f"  const int {self.place(array)} = {there};")
            guard = f"  if ({self.place(array)} >= 0) " if self.may_lack(array) else "  "
            access = self.access(array)
            if array.by:
                facts = f'&{array.by}_description, "the size of {array.by}"'
                operand = f'oa_operand_of_description("{array.name}", {pointer}, {access}, {facts})'
            else:
                operand = self.operand(array, access, self.extent_text(array))
            self.add(f"{guard}operands[{self.place(array)}] = {operand};")
        self.start("count", **({"special": " | ".join(self.special)} if self.special else {}))
        self.add("  const int failed = count ? oa_begin(&call) : oa_fail_no_array(routine);")
        self.add("  if (failed) return oa_fail_operands(routine, &call, failed);")

    @property
    def special(self) -> list[str]:
        lists = any(isinstance(parameter, Integers) for parameter in self.function.parameters)
        return [*super().special, *["OA_ON_HOST_MEMORY"] * lists]

    def query(self, query: Query) -> None:
        """Write the call of a query, which stores the number of needed bytes in `needed`, and returns a status."""
        arguments = list(query.arguments)
        types: list[str] = []
        values: list[str] = []
        beside = {name: f"{self.is_there(array)} ? &other : NULL" for name, array in query.beside}
        for name, c_type in self.library.api["functions"][query.symbol]["parameters"]:
            if c_type == (self.library.handle or {}).get("type"):
                types.append("void *")
                values.append("call.handle")
            elif c_type == "size_t *":
                types.append("size_t *")
                values.append("&needed" if query.output in ("", name) else beside.get(name, "&other"))
            else:
                c, value = self.asked(ast.unparse(arguments.pop(0)))
                types.append(c)
                values.append(value)
        if arguments:
            raise ValueError(f"{query.text}: too many arguments")
        if any("&other" in value for value in values):
            self.add("    size_t other;")
        stamps, rest = self.key(query)
        words = [*stamps, f"{KNOWN}{query.symbol}", "(uintptr_t)call.handle", "(uintptr_t)call.device", *rest]
        self.add(f"    const uint64_t key[] = {{{', '.join(words)}}};")
        self.add("    int answer = routine->library->success;")
        facts = f"key, {len(stamps)}, {len(words)}, &needed, sizeof needed"
        self.add(f"    if (!oa_answer_find({facts})) {{")
        self.add(f"      void *asked = oa_asked(routine, {KNOWN}{query.symbol});")
        self.add(f"      answer = asked ? ((int (*)({', '.join(types)}))asked)({', '.join(values)}) : -1;")
        self.add(f"      if (answer == routine->library->success) oa_answer_keep({facts});")
        self.add("    }")

    def is_there(self, array: str) -> str:
        """Return the C expression that tests whether the caller passed an array."""
        return f"values[{self.at[array]}].pointer != NULL"

    def key(self, query: Query) -> tuple[list[str], list[str]]:
        """Return stamps of the objects on which a query's result depends ("0": it may change), and other words."""
        stamps, rest = [], []
        for argument in query.arguments:
            name = ast.unparse(argument)
            parameter = next((parameter for parameter in self.function.parameters if parameter.name == name), None)
            if isinstance(parameter, Object):
                stamps.append(f"oa_stamp_of(&values[{self.at[name]}])")
            elif isinstance(parameter, Integers):
                stamps.append("0")
            else:
                rest.append(f"(uint64_t){self.asked(name)[1]}")
        rest += [f"(uint64_t)({self.is_there(array)})" for _, array in query.beside]
        outputs = [name for name, _ in self.library.api["functions"][query.symbol]["parameters"]]
        return stamps, [*rest, str(outputs.index(query.output))] if query.output else rest

    def asked(self, name: str) -> tuple[str, str]:
        """Return the C type and value of an argument of a query."""
        if name.isdigit():
            return "int", name
        parameter = next((parameter for parameter in self.function.parameters if parameter.name == name), None)
        if isinstance(parameter, Object):
            return "const void *", f"values[{self.at[name]}].pointer"
        if isinstance(parameter, (EnumValue, Size)):
            return "int", f"(int){name}"
        if isinstance(parameter, (Integer, Integers)):
            return parameter.vendor(self.at[name])
        raise ValueError(f"{name} is neither an object, an enum nor a size of the function")

    def rooms(self) -> None:
        """Check the memory that the library needs, and take a workspace."""
        for array in self.function.arrays:
            if not isinstance(array, Room) or not array.query:
                continue
            size = ast.unparse(array.extent.arguments[0])
            if array.is_workspace:
                self.add("  oa_workspace workspace = {0};")
            self.add("  {")
            self.add("    size_t needed = 0;")
            self.query(array.query)
            is_given = f"{self.place(array)} >= 0"
            facts = f'"{array.name}", {size}, "{size}", needed, answer, "{array.query.text}"'
            if array.is_workspace:
                address = f"{is_given} ? operands[{self.place(array)}].address : NULL"
                self.add(f"    const int lacks = oa_workspace_take(&call, &workspace, {address}, {facts});")
            else:
                test = f"{is_given} ? " if array.optional else ""
                otherwise = " : OA_OK" if array.optional else ""
                self.add(f"    const int lacks = {test}oa_room_check(&call, {facts}){otherwise};")
            self.add("    if (lacks) return lacks;")
            self.add("  }")

    @property
    def workspace(self) -> Room | None:
        return next((array for array in self.function.arrays if isinstance(array, Room) and array.is_workspace), None)

    def call(self) -> None:
        self.rooms()
        for number in self.function.numbers:
            at = self.at[number.name]
            if number.is_pointer and not isinstance(number, Factor):
                self.add(f"  const void *{number.name} = &values[{at}];")
        self.structs()
        self.add(f"  const int status = {self.vendor_call(False)};")
        for parameter in self.function.parameters:
            if isinstance(parameter, GivenPlace):
                inside = next(other for other in self.function.arrays if other.name == parameter.inside)
                self.add(
                    f"  oa_place_inside(&values[{self.at[parameter.name]}], operands[{self.place(inside)}].address);"
                )
        ended = "oa_workspace_end(&call, &workspace, status)" if self.workspace else "oa_end(&call, status)"
        self.add(f"  return {ended};")

    def passed(self, parameter: Parameter, wide: bool) -> tuple[str, str]:
        room = self.workspace
        match parameter:
            case Factor():
                return "const void *", f"&{parameter.name}"
            case Room() if parameter is room:
                return "void *", "workspace.address"
            case Size() if room and parameter.name == ast.unparse(room.extent.arguments[0]):
                return "size_t", "workspace.nbytes"
            case Array():
                address = f"operands[{self.place(parameter)}].address"
                if self.may_lack(parameter):
                    address = f"{self.place(parameter)} >= 0 ? {address} : NULL"
                return "const void *" if parameter.is_read_only else "void *", address
            case Scalar() if not parameter.is_pointer:
                return super().passed(parameter, wide)
        return super().passed(parameter, wide)
