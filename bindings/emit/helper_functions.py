"""Writes the bodies of helper functions, which take no device array; the bodies use csrc/body/helper_function.h."""

from __future__ import annotations

from ..descriptors import Integers
from ..expressions import names_in
from ..helper_functions import Ended, Given, HelperParameter, Integer, Kept
from ..library import Function, Library
from ..parameters import DataType, EnumValue, Handle, Size
from .bodies import Body
from .c_text import to_c
from .descriptors import DescriptorBody, dtype_enum, has_descriptors, list_checks, list_locals
from .grouped import GroupedBody


def body_of(library: Library, function: Function) -> Body:
    """Return the writer of a function's body."""
    kind = HelperBody if function.is_helper else GroupedBody if function.lists else Body
    if has_descriptors(library, function):
        kind = DescriptorBody
    if function.written:
        kind = WrittenBody
    structs = [argument.field_of for argument in function.arguments if argument.field_of]
    if structs and kind in (HelperBody, GroupedBody):
        raise ValueError(f"{structs[0]}: the fields of a struct are for functions with arrays, and without lists")
    if kind in (Body, GroupedBody):
        _need_sizes(function)
    return kind(library, function)


def _need_sizes(function: Function) -> None:
    """Raise ValueError for extents of functions with descriptors, and for extents that depend on a plain integer."""
    used = [expression for array in function.arrays for expression in array.expressions]
    needed = set().union(*map(names_in, [*used, *function.requires]))
    for parameter in function.parameters:
        if isinstance(parameter, Integer) and parameter.name in needed:
            raise ValueError(f"{parameter.name}: an extent depends on it, so it has to be labelled size or length")


class HelperBody(Body):
    """Writes the body of one helper function. The function is called immediately, on a GPU and on the CPU."""

    def text(self, name: str) -> str:
        """Return the body, called `name`."""
        self.lines = []
        self.is_late = False
        if any(isinstance(parameter, Ended) for parameter in self.function.parameters):
            self.add(f"int {name}(const oa_routine *routine, oa_value *values, int device) {{")
            if self.function.outside_groups:
                self.add("  if (oa_refuse_in_group(routine)) return OA_ERROR_ARGUMENT;")
            self.add(f"  return oa_helper_{'abort' if self.function.aborts else 'destroy'}(routine, values, device);")
            self.lines.append("}")
            return "\n".join(self.lines)
        self.add(f"int {name}(const oa_routine *routine, oa_value *values, int device) {{")
        self.add("  (void)device;")
        if self.function.outside_groups:
            self.add("  if (oa_refuse_in_group(routine)) return OA_ERROR_ARGUMENT;")
        self.locals()
        list_locals(self)
        self.checks()
        list_checks(self)
        self.symbol()
        if self.function.hides:
            symbols = ", ".join(f"OA_AT_{ask}" for ask in self.function.asks)
            self.add(f"  static const int asks[] = {{{symbols}}};")
            self.add("  if (!oa_lt_ready(routine, asks)) return OA_ERROR_LIBRARY;")
        self.begin()
        if self.function.outside_graphs:
            self.add("  if (oa_helper_refuse_graphs(&call)) return OA_ERROR_CAPTURE;")
        self.call()
        self.lines.append("}")
        return "\n".join(self.lines)

    def begin(self) -> None:
        """Take the objects, and make their device current."""
        self.add("  oa_helper_call call;")
        self.add("  const int failed = oa_helper_begin(&call, routine, values);")
        self.add("  if (failed) return failed;")
        if self.function.noted_by:
            self.add(f"  const int unfit_plan = {self.function.noted_by}(&call, values);")
            self.add("  if (unfit_plan) return unfit_plan;")

    def keep(self) -> None:
        """Make the object keep the memory that the function passes to it."""
        kept = [parameter for parameter in self.function.parameters if isinstance(parameter, Kept)]
        if kept and (len(kept) > 1 or not self.function.of("object")):
            raise ValueError(f"{kept[0].name}: one object keeps one piece of memory")
        for object_ in kept:
            size = to_c(object_.size, self.library.constants)
            called = f'oa_helper_keep(&call, values, {self.at[object_.name]}, "{object_.name}", {size})'
            self.add(f"  const int kept = {called};")
            self.add("  if (kept) return kept;")

    def call(self) -> None:
        """Call the vendor's function, and end the helper function."""
        self.keep()
        if self.function.notes:
            dtype, *shape = self.function.notes.split()
            lists = [
                parameter
                for parameter in self.function.parameters
                if isinstance(parameter, Integers) and parameter.name in shape
            ]
            facts = [
                f"values[{self.at[list_.name]}].pointer, {to_c(list_.length, {})}" for list_ in lists if list_.length
            ]
            parameter = next(parameter for parameter in self.function.parameters if parameter.name == dtype)
            coded = f"oa_dtype_of_code(types_{dtype_enum(self.library, parameter.c_type).label}, {dtype})"
            noted = f"dtypes[{self.at[dtype]}]" if isinstance(parameter, DataType) else coded
            self.add(f"  call.note = oa_note_of({noted}, {(facts or ['NULL, 0'])[0]});")
        outputs = (parameter for parameter in self.function.parameters if isinstance(parameter, Given))
        returned = next((output for output in outputs if output.returned), None)
        called = self.vendor_call(False)
        if returned:
            member = "pointer" if returned.value_kind in ("text", "stream") else "integer"
            cast = "(int64_t)" if member == "integer" else ""
            self.add(f"  values[{self.at[returned.name]}].{member} = {cast}{called};")
            self.add("  return oa_helper_end(&call, values, routine->library->success);")
        elif self.function.returns == "void":
            self.add(f"  {called};")
            self.add("  return oa_helper_end(&call, values, routine->library->success);")
        else:
            if self.function.hides:
                self.add("  oa_lt_hidden hidden;")
                self.add(f"  oa_lt_hide(routine, asks, values[{self.at[self.function.hides]}].pointer, &hidden);")
            self.add(f"  const int status = {called};")
            if self.function.hides:
                self.add("  oa_lt_show(&hidden);")
            if self.function.group:
                self.add(f"  return oa_group_{self.function.group}(&call, values, status);")
            else:
                self.add("  return oa_helper_end(&call, values, status);")

    def vendor_call(self, wide: bool) -> str:
        """Return the C expression that calls the vendor's function."""
        types: list[str] = []
        values: list[str] = []
        returns = "void" if self.function.returns == "void" else "int"
        for argument in self.function.arguments:
            if isinstance(argument, Given) and argument.returned:
                returns = argument.c_value.strip()
            elif isinstance(argument, HelperParameter):
                if argument.passed:
                    c_type, value = argument.vendor(self.at.get(argument.name, -1))
                    types.append(c_type)
                    values.append(value)
            elif isinstance(argument, EnumValue):
                types.append("int")
                values.append(f"(int){argument.name}")
            elif isinstance(argument, Size):
                types.append("int" if argument.is_narrow and not wide else "int64_t")
                values.append(f"(int){argument.name}" if argument.is_narrow and not wide else argument.name)
            elif isinstance(argument, Handle):
                raise ValueError(
                    f"{argument.name}: a helper function has no handle of the core's; label it as an object"
                )
            else:
                raise ValueError(f"{argument.name}: a helper function can't have a parameter that is {argument.role}")
        return f"(({returns} (*)({', '.join(types) or 'void'}))symbol)({', '.join(values)})"


class WrittenBody(Body):
    """Writes the body of a function that is written by hand, in csrc/body/."""

    def text(self, name: str) -> str:
        """Return the body, called `name`."""
        self.lines = []
        self.is_late = False
        inner = f"{name}_with_objects"
        symbols = ", ".join(f"OA_AT_{ask}" for ask in self.function.asks)
        self.add(f"static int {inner}(const oa_routine *routine, oa_value *values, int device) {{")
        self.add("  (void)device;")
        for parameter in self.function.of("enum"):
            self.add(f"  const int64_t {parameter.name} = values[{self.at[parameter.name]}].integer;")
        self.enum_checks()
        self.add(f"  static const int asks[] = {{{symbols}}};")
        types = "types_data_type" if any(enum.label == "data_type" for enum in self.library.dtype_enums) else "NULL"
        self.add(f"  return {self.function.written}(routine, values, asks, {types});")
        self.lines.append("}")
        self.with_objects(name, inner)
        return "\n".join(self.lines)
