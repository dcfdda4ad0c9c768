"""Writes the bodies of services: functions that work on no array. csrc/body/helper_function.h has what they use."""

from __future__ import annotations

from ..descriptors import Integers
from ..expressions import names_in
from ..helper_functions import Ended, Given, Integer, Kept, ServiceParameter
from ..library import Function, Library
from ..parameters import DataType, EnumValue, Handle, Size
from .bodies import Body
from .c_text import to_c
from .descriptors import DescribedBody, dtype_enum, is_described, list_checks, list_locals
from .grouped import GroupedBody


def body_of(library: Library, function: Function) -> Body:
    """Return the writer of a function's body."""
    kind = ServiceBody if function.is_service else GroupedBody if function.lists else Body
    if is_described(library, function):
        kind = DescribedBody
    if function.written:
        kind = WrittenBody
    structs = [one.field_of for one in function.arguments if one.field_of]
    if structs and kind in (ServiceBody, GroupedBody):
        raise ValueError(f"{structs[0]}: the fields of a struct are for functions with arrays, and without lists")
    if kind in (Body, GroupedBody):
        _need_sizes(function)
    return kind(library, function)


def _need_sizes(function: Function) -> None:
    """Raise ValueError for extents of functions with descriptors, and for those that depend on an integer: no size."""
    used = [expression for one in function.arrays for expression in one.expressions]
    needed = set().union(*map(names_in, [*used, *function.requires]))
    for given in function.parameters:
        if isinstance(given, Integer) and given.name in needed:
            raise ValueError(f"{given.name}: an extent depends on it, so it has to be labelled size or length")


class ServiceBody(Body):
    """Writes the body of one helper function. It is called at once, on a GPU and on the CPU."""

    def text(self, name: str) -> str:
        """Return the body, called `name`."""
        self.lines = []
        self.is_late = False
        if any(isinstance(one, Ended) for one in self.function.parameters):
            self.add(f"static int {name}(const oa_routine *routine, oa_value *values, int device) {{")
            self.add("  return oa_helper_destroy(routine, values, device);")
            self.lines.append("}")
            return "\n".join(self.lines)
        self.add(f"static int {name}(const oa_routine *routine, oa_value *values, int device) {{")
        self.add("  (void)device;")
        self.locals()
        list_locals(self)
        self.checks()
        list_checks(self)
        self.symbol()
        if self.function.hides:
            symbols = ", ".join(f"OA_AT_{one}" for one in self.function.asks)
            self.add(f"  static const int asks[] = {{{symbols}}};")
            self.add("  if (!oa_lt_ready(routine, asks)) return OA_ERROR_LIBRARY;")
        self.begin()
        self.call()
        self.lines.append("}")
        return "\n".join(self.lines)

    def begin(self) -> None:
        """Take the objects, and makes their device current."""
        self.add("  oa_helper_call call;")
        self.add("  const int failed = oa_helper_begin(&call, routine, values);")
        self.add("  if (failed) return failed;")

    def keep(self) -> None:
        """Has the object keep the memory that it gets."""
        kept = [one for one in self.function.parameters if isinstance(one, Kept)]
        if kept and (len(kept) > 1 or not self.function.of("object")):
            raise ValueError(f"{kept[0].name}: one object keeps one piece of memory")
        for one in kept:
            size = to_c(one.size, self.library.constants)
            called = f'oa_helper_keep(&call, values, {self.at[one.name]}, "{one.name}", {size})'
            self.add(f"  const int kept = {called};")
            self.add("  if (kept) return kept;")

    def call(self) -> None:
        """Call the vendor's function, and end the helper function."""
        self.keep()
        if self.function.notes:
            dtype, *shape = self.function.notes.split()
            lists = [one for one in self.function.parameters if isinstance(one, Integers) and one.name in shape]
            facts = [f"values[{self.at[one.name]}].pointer, {to_c(one.length, {})}" for one in lists if one.length]
            one = next(one for one in self.function.parameters if one.name == dtype)
            coded = f"oa_dtype_of_code(types_{dtype_enum(self.library, one.c_type).label}, {dtype})"
            noted = f"dtypes[{self.at[dtype]}]" if isinstance(one, DataType) else coded
            self.add(f"  call.note = oa_note_of({noted}, {(facts or ['NULL, 0'])[0]});")
        given = next((one for one in self.function.parameters if isinstance(one, Given) and one.returned), None)
        called = self.vendor_call(False)
        if given:
            member = "pointer" if given.what in ("text", "stream") else "integer"
            cast = "(int64_t)" if member == "integer" else ""
            self.add(f"  values[{self.at[given.name]}].{member} = {cast}{called};")
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
            self.add("  return oa_helper_end(&call, values, status);")

    def vendor_call(self, wide: bool) -> str:
        """Return the C expression that calls the vendor's function."""
        types: list[str] = []
        values: list[str] = []
        returns = "void" if self.function.returns == "void" else "int"
        for one in self.function.arguments:
            if isinstance(one, Given) and one.returned:
                returns = one.c_value.strip()
            elif isinstance(one, ServiceParameter):
                if one.passed:
                    c_type, value = one.vendor(self.at.get(one.name, -1))
                    types.append(c_type)
                    values.append(value)
            elif isinstance(one, EnumValue):
                types.append("int")
                values.append(f"(int){one.name}")
            elif isinstance(one, Size):
                types.append("int" if one.is_narrow and not wide else "int64_t")
                values.append(f"(int){one.name}" if one.is_narrow and not wide else one.name)
            elif isinstance(one, Handle):
                raise ValueError(f"{one.name}: a service has no handle of the core's; label it as an object")
            else:
                raise ValueError(f"{one.name}: a service can't have a parameter that is {one.role}")
        return f"(({returns} (*)({', '.join(types) or 'void'}))symbol)({', '.join(values)})"


class WrittenBody(Body):
    """Writes the body of a function that is written by hand, in csrc/body/."""

    def text(self, name: str) -> str:
        """Return the body, called `name`."""
        self.lines = []
        self.is_late = False
        inner = f"{name}_with_objects"
        symbols = ", ".join(f"OA_AT_{one}" for one in self.function.asks)
        self.add(f"static int {inner}(const oa_routine *routine, oa_value *values, int device) {{")
        self.add("  (void)device;")
        self.add(f"  static const int asks[] = {{{symbols}}};")
        self.add(f"  return {self.function.written}(routine, values, asks, types_data_type);")
        self.lines.append("}")
        self.with_objects(name, inner)
        return "\n".join(self.lines)
