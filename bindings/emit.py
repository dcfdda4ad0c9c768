"""Writes what the build compiles and installs: C shims, their header, cffi sources, Python functions and their stubs.

A generated Python module holds, for each function, a *record* that offload_args/_explain.py parses when an argument is
wrong or a scalar is on the device: tokens `kind:name[:dtype[:count]]` in the order of the C parameters, which is that
of the Python ones. Kinds: `enum`, `size` (ld and increments too), `in` `out` `inout` (device arrays), `scalar` (a
number by value; with a count a sequence), `result` (last; a host pointer in C, the `result=` keyword in Python),
`update` and `output` (host in-out and out scalars). Beside `oa_<library>_<name>` there is `oa_<library>_<name>_device`
exactly when the record has a scalar, result, update or output: it takes all of those as device pointers.
"""

from __future__ import annotations

import ast
import contextlib
import io
import re
import textwrap
from collections.abc import Iterable
from pathlib import Path

from .declarations import core_declarations, entries
from .roles import EXTENTS, HANDLE_FUNCTIONS, HANDLE_MODES, Extent, Function, Library, Parameter

C_VALUE = {"f32": "float", "f64": "double", "c64": "float _Complex", "c128": "double _Complex", "i32": "int64_t"}
NUMPY = {name: text for _, name, _, _, text in entries("dtypes")}
PYTHON = {"f32": "float", "f64": "float", "c64": "complex", "c128": "complex", "i32": "int"}
WIDTH = 118


# -- expressions --


def to_c(expression: ast.expr, constants: dict[str, int]) -> str:
    """Writes an expression of a roles file in C. Sums saturate, so that they can't wrap before they are checked."""
    match expression:
        case ast.Name(id=name):
            return str(constants.get(name, name))
        case ast.Constant(value=value):
            return str(value)
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            return f"plus({to_c(left, constants)}, {to_c(right, constants)})"
        case ast.IfExp(test=test, body=body, orelse=orelse):
            return f"({to_c(test, constants)} ? {to_c(body, constants)} : {to_c(orelse, constants)})"
        case ast.Compare(left=left, ops=[ast.Eq()], comparators=[right]):
            return f"{to_c(left, constants)} == {to_c(right, constants)}"
    raise ValueError(f"{ast.unparse(expression)!r} is no expression of a roles file")


def to_name(expression: ast.expr, constants: dict[str, int]) -> str:
    """Writes the C expression for the text that names an expression in messages."""
    if isinstance(expression, ast.IfExp):
        test = to_c(expression.test, constants)
        return f"({test} ? {to_name(expression.body, constants)} : {to_name(expression.orelse, constants)})"
    return f'"{ast.unparse(expression)}"'


def sizes_in_extents(function: Function) -> set[str]:
    """Returns the sizes that are an extent's argument as they stand: oa_begin refuses them when negative."""

    def bare(expression: ast.expr) -> set[str]:
        if isinstance(expression, ast.IfExp):
            return bare(expression.body) | bare(expression.orelse)
        return {expression.id} if isinstance(expression, ast.Name) else set()

    extents = [one.extent for one in function.parameters if one.extent]
    return {name for extent in extents for expression in extent.sizes for name in bare(expression)}


def wrapped(text: str) -> list[str]:
    """Breaks a line of C where it is too long, never inside a string."""
    whole = re.sub(r'"[^"]*"', lambda found: found.group().replace(" ", "\0"), text)
    indent = text[: len(text) - len(text.lstrip())] + "    "
    lines = textwrap.wrap(whole, WIDTH, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)
    return [line.replace("\0", " ") for line in lines]


# -- C: one shim --


def c_parameter(one: Parameter, device: bool) -> str:
    """Declares one parameter of a shim."""
    if one.role == "enum":
        return f"int {one.name}"
    if one.role in ("size", "ld", "inc"):
        return f"int64_t {one.name}"
    if one.role == "array":
        return f"{'const ' if one.direction == 'in' else ''}oa_{one.dtype} *{one.name}"
    if device:
        return f"{'const ' if one.role == 'scalar' else ''}oa_{one.dtype} *{one.name}"
    if one.role == "scalar":
        return f"{C_VALUE[one.dtype]} {one.name}" if one.count == 1 else f"const {C_VALUE[one.dtype]} *{one.name}"
    return f"{C_VALUE[one.dtype]} *{one.name}"


def prototype(library: Library, function: Function, device: bool) -> str:
    """Declares a shim, without the semicolon."""
    suffix = "_device" if device else ""
    parameters = ", ".join(c_parameter(one, device) for one in function.parameters)
    return f"int oa_{library.name}_{function.name}{suffix}({parameters})"


class Shim:
    """Writes one form of one function: host scalars, or (device) scalars on the device."""

    def __init__(self, library: Library, function: Function, index: dict[str, int], device: bool) -> None:
        self.library = library
        self.function = function
        self.index = index
        self.device = device
        self.on_device = device or function.device_only
        self.lines: list[str] = []
        self.title = f'"{library.name}.{function.name}"'
        scalars = function.of("scalar", "result", "returned", "update", "output") if device else []
        self.operands = [*function.of("array"), *scalars]
        # The form with 64-bit sizes writes a 64-bit index; a device pointer for one is of 32 bits.
        index_on_device = device and any(one.dtype == "i32" for one in scalars)
        has_sizes = bool(function.of("size", "ld", "inc"))
        self.wide_symbol = function.wide_symbol if has_sizes and not index_on_device else None
        # Without forms of its own for them, a whole build of the library may have 64-bit sizes.
        self.may_be_ilp64 = library.probe is not None and has_sizes and not index_on_device

    def add(self, text: str) -> None:
        self.lines += wrapped(text)

    def checks(self) -> None:
        for one in self.function.of("enum"):
            assert one.enum
            test = " && ".join(f"{one.name} != {value}" for _, value in one.enum.values)
            names = [f"{name} ({value})" for name, value in one.enum.values]
            allowed = f"{', '.join(names[:-1])} or {names[-1]}"
            self.add(f'  if ({test}) return oa_fail_enum({self.title}, "{one.name}", {one.name}, "{allowed}");')
        checked_by_core = sizes_in_extents(self.function)
        for one in self.function.of("size"):
            if one.may_be_negative:
                self.add(f"  if ({one.name} < 0) {one.name} = 0;")
            elif one.name not in checked_by_core:
                self.add(f'  if ({one.name} < 0) return negative({self.title}, "{one.name}", {one.name});')
        for one in self.function.parameters:
            is_host_pointer = one.role in ("result", "returned", "update", "output") or one.count > 1
            if is_host_pointer and not self.device and one.role != "array":
                self.add(f'  if (!{one.name}) return oa_fail_null({self.title}, "{one.name}");')

    def symbol(self) -> None:
        """Finds the vendor's function: the form with 64-bit sizes when one needs it."""
        sizes = [one.name for one in self.function.of("size", "ld", "inc")]
        wide = " | ".join(f"is_wide({name})" for name in sizes)
        named = ", ".join(f'"{name}", {name}' for name in sizes)
        too_large = f"too_large({self.title}, {named})"
        narrow = self.index[self.function.symbol]
        no_symbol = "OA_ERROR_LIBRARY"
        if self.operands:
            first = self.operands[0].name
            no_symbol = f'no_symbol({self.title}, "{first}", {first})'
        if not sizes:
            self.add(f"  void *symbol = resolve({narrow});")
            self.add(f"  if (!symbol) return {no_symbol};")
        elif self.wide_symbol:
            self.add(f"  const int wide = {wide};")
            self.add(f"  void *symbol = resolve(wide ? {self.index[self.wide_symbol]} : {narrow});")
            self.add(f"  if (!symbol) return wide && resolve({narrow}) ? {too_large} : {no_symbol};")
        else:
            self.add(f"  void *symbol = resolve({narrow});")
            self.add(f"  if (!symbol) return {no_symbol};")
            allowed = "!state.ilp64 && " if self.may_be_ilp64 else ""
            self.add(f"  if ({allowed}({wide})) return {too_large};")

    def as_stored(self, extent: Extent) -> tuple[list[str], list[str]]:
        """Returns the arguments of an extent's macro, and their names, of the matrix that lies there by columns."""
        constants = self.library.constants
        order = self.library.row_major
        ordered = order is not None and any(one.name == order[0] for one in self.function.parameters)
        by_rows = f"{order[0]} == {order[1]}" if order and ordered else ""
        arguments, part = list(extent.arguments), []
        if extent.kind in ("triangle", "band_triangle", "packed"):
            upper = to_c(arguments.pop(0), constants)
            part = [f"({f'({upper}) != ({by_rows})' if by_rows else upper} ? OA_UPPER : 0)"]
            if len(extent.arguments) == EXTENTS[extent.kind][0][-1]:
                part[0] += f" | ({to_c(arguments.pop(), constants)} ? OA_UNIT : 0)"
        values = [to_c(one, constants) for one in arguments]
        names = [to_name(one, constants) for one in arguments]
        if by_rows:
            for a, b in {"matrix": [(0, 1)], "band": [(0, 1), (2, 3)]}.get(extent.kind, []):
                for pair in (values, names):
                    pair[a], pair[b] = f"({by_rows} ? {pair[b]} : {pair[a]})", f"({by_rows} ? {pair[a]} : {pair[b]})"
        return [*part, *values], names

    def extent(self, one: Parameter) -> str:
        """Writes the extent of an array."""
        assert one.extent
        kind = one.extent.kind
        values, names = self.as_stored(one.extent)
        if kind == "elements":
            return f"OA_ELEMENTS({values[0]})"
        if kind in ("band", "band_triangle"):  # messages name its dimensions and the leading one
            names = [*names[: len(one.extent.sizes)], names[-1]]
        kind = "repeatable" if one.repeats else kind
        return f"OA_{kind.upper()}({', '.join([*values, *names])})"

    def leading_dimensions(self) -> None:
        """Raises the leading dimension of what has one column to its rows: it says nothing, but vendors look at it."""
        for one in self.function.of("array"):
            if not one.extent or one.extent.kind not in ("matrix", "band", "band_triangle"):
                continue
            values, _ = self.as_stored(one.extent)
            ld = values[-1]
            match one.extent.kind:
                case "matrix":
                    rows, columns = values[0], values[1]
                case "band":
                    rows, columns = f"plus(plus({values[2]}, {values[3]}), 1)", values[1]
                case _:
                    rows, columns = f"plus({values[2]}, 1)", values[1]
            self.add(f"  {ld} = leading({ld}, {rows}, {columns});")

    def access(self, one: Parameter) -> str:
        if one.role == "scalar" or one.direction == "in":
            access = "OA_READ"
        elif one.role in ("result", "returned") or (one.role == "output" and one.count == 1):
            access = "OA_OVERWRITE"
        elif one.direction == "out" or one.overwrites:
            # With an empty dimension nothing may be written, whatever beta is.
            tests = [self.overwrites(one.overwrites)] if one.overwrites else []
            dimensions = sizes_in_extents(self.function)
            tests += [f"{size.name} > 0" for size in self.function.of("size") if size.name in dimensions]
            access = f"{' && '.join(tests)} ? OA_OVERWRITE : OA_READ_WRITE" if tests else "OA_OVERWRITE"
        else:
            access = "OA_READ_WRITE"
        if one.in_place:  # said of both operands
            access = f"({access}) | OA_IN_PLACE" if " " in access else f"{access} | OA_IN_PLACE"
        return access

    def overwrites(self, test: ast.expr) -> str:
        """Writes when an operand is overwritten. A scalar on the device is known if it was a number of the host's."""
        match test:
            case ast.Compare(left=ast.Name(id=scalar), ops=[ast.Eq()], comparators=[ast.Constant(value=0)]) if (
                self.device
            ):
                return f"oa_is_host_zero({scalar})"
        return to_c(test, self.library.constants)

    def begin(self) -> None:
        self.add("  oa_operand operands[] = {")
        for one in self.operands:
            extent = self.extent(one) if one.extent else f"OA_ELEMENTS({one.count})"
            self.add(
                f'      {{.name = "{one.name}", .pointer = {one.name}, .access = {self.access(one)}, '
                f".dtype = OA_{one.dtype.upper()}, .extent = {extent}}},"
            )
        self.add("  };")
        extra = ", .device_scalars = 1" if self.on_device else ""
        if self.library.handle is None and self.function.of("result", "returned") and not self.device:
            extra += ", .blocking = 1"
        self.add(
            f"  oa_call call = {{.function = {self.title}, .library = &oa_library_{self.library.name}, "
            f".operands = operands, .count = {len(self.operands)}{extra}}};"
        )
        self.add("  const int failed = oa_begin(&call);")
        self.add("  if (failed) return failed;")

    def address(self, one: Parameter) -> str:
        return f"operands[{self.operands.index(one)}].address"

    # -- with a handle: called at once

    def direct(self) -> list[str]:
        """Writes a shim that calls the vendor's function between oa_begin and oa_end."""
        self.add(f"{prototype(self.library, self.function, self.device)} {{")
        self.checks()
        self.leading_dimensions()
        self.symbol()
        results = [] if self.device else self.function.of("result")
        self.begin()
        for one in self.function.of("scalar"):
            if not self.device and one.dtype in ("c64", "c128"):
                # The vendor's complex types ask for more alignment than C's.
                self.add(f"  _Alignas(16) const {C_VALUE[one.dtype]} {one.name}_value = {one.name};")
        if self.wide_symbol:
            self.add("  int status;")
            self.add("  if (wide) {")
            self.call("    ", True, bool(results))
            self.add("  } else {")
            self.call("    ", False, bool(results))
            self.add("  }")
            self.add("  return oa_end(&call, status);")
        else:
            self.call("  const int ", False, bool(results))
            self.add("  return oa_end(&call, status);")
        return [*self.lines, "}", ""]

    def call(self, start: str, wide: bool, host_result: bool) -> None:
        integer = "int64_t" if wide else "int"
        types, values = ["void *"], ["call.handle"]
        indent = start[: len(start) - len(start.lstrip())]
        stored = ""
        for one in self.function.parameters:
            if one.role == "enum":
                types.append("int")
                values.append(one.name)
            elif one.role in ("size", "ld", "inc"):
                types.append(integer)
                values.append(one.name if wide else f"(int){one.name}")
            elif one in self.operands:
                reads = one.role == "scalar" or one.direction == "in"
                types.append("const void *" if reads else "void *")
                values.append(self.address(one))
            elif one.role == "result":
                stored = integer if one.dtype == "i32" else C_VALUE[one.dtype]
                types.append("void *")
                values.append("&value")
            else:
                types.append("const void *")
                plain = one.name if one.count > 1 else f"&{one.name}"
                values.append(f"&{one.name}_value" if one.dtype in ("c64", "c128") else plain)
        if host_result:
            self.add(f"{indent}_Alignas(16) {stored} value;")
        self.add(f"{start}status = ((int (*)({', '.join(types)}))symbol)({', '.join(values)});")
        if host_result:
            self.add(f"{indent}if (!status) *result = value;")

    # -- without a handle: on the CPU, in stream order

    def fields(self) -> list[str]:
        """Returns the C declarations of what a deferred call needs, less the function itself."""
        made: list[str] = []
        for one in self.function.parameters:
            if one.role == "enum":
                made.append(f"int {one.name}")
            elif one.role in ("size", "ld", "inc"):
                made.append(f"int64_t {one.name}")
            elif one.role == "array":
                made.append(f"{'const ' if one.direction == 'in' else ''}void *{one.name}")
            elif one.role == "scalar":
                made.append(f"{C_VALUE[one.dtype]} {one.name}{f'[{one.count}]' if one.count > 1 else ''}")
                made.append(f"const void *{one.name}_address")
            else:
                made.append(f"void *{one.name}")
        return made

    def vendor_call(self, result_type: str, ilp64: bool) -> str:
        """Returns the C expression that calls the vendor's function with the fields of the struct a."""
        types: list[str] = []
        values: list[str] = []
        for one in self.function.parameters:
            if one.role in ("size", "ld", "inc"):
                types.append("int64_t" if ilp64 else "int")
                values.append(f"a->{one.name}" if ilp64 else f"(int)a->{one.name}")
            elif one.role == "enum":
                types.append("int")
                values.append(f"a->{one.name}")
            elif one.role == "scalar" and "*" not in one.c_type:
                types.append(C_VALUE[one.dtype])
                values.append(f"a->{one.name}")
            elif one.role == "scalar":
                types.append("const void *")
                values.append(f"a->{one.name}" if one.count > 1 else f"&a->{one.name}")
            elif one.role != "returned":
                types.append("const void *" if one.direction == "in" else "void *")
                values.append(f"a->{one.name}")
        return f"(({result_type} (*)({', '.join(types)}))a->function)({', '.join(values)})"

    def run(self) -> list[str]:
        """Writes the struct of a deferred call and the functions that make the call from it."""
        name = self.function.name
        returned = next(iter(self.function.of("returned")), None)
        result_type, store = "void", ""
        if returned:
            is_index = returned.dtype == "i32"
            result_type = "size_t" if is_index else C_VALUE[returned.dtype]
            store = f"*({C_VALUE[returned.dtype]} *)a->result = {'(int64_t)' if is_index else ''}"
        self.add(f"struct {name} {{")
        self.add("  void *function;")
        for declaration in self.fields():
            self.add(f"  {declaration};")
        self.add("};")
        self.add(f"static void run_{name}(void *arguments) {{")
        self.add(f"  struct {name} *a = arguments;")
        if self.library.probe and self.function.of("size", "ld", "inc"):
            self.add("  if (state.ilp64)")
            self.add(f"    {store}{self.vendor_call(result_type, True)};")
            self.add("  else")
            self.add(f"    {store}{self.vendor_call(result_type, False)};")
        else:
            self.add(f"  {store}{self.vendor_call(result_type, False)};")
        self.add("}")
        if self.function.has_device_form:
            self.add(f"static void run_{name}_device(void *arguments) {{")
            self.add(f"  struct {name} *a = arguments;")
            for one in self.function.of("scalar"):
                target = f"a->{one.name}" if one.count > 1 else f"&a->{one.name}"
                self.add(f"  memcpy({target}, a->{one.name}_address, sizeof a->{one.name});")
            if returned and returned.dtype == "i32":
                self.add("  int32_t *result = a->result;")
                self.add("  int64_t value;")
                self.add("  a->result = &value;")
                self.add(f"  run_{name}(a);")
                self.add("  *result = (int32_t)value;")
            else:
                self.add(f"  run_{name}(a);")
            self.add("}")
        return self.lines

    def deferred(self) -> list[str]:
        """Writes a shim that packs its arguments and leaves the call to oa_submit."""
        name = self.function.name
        self.add(f"{prototype(self.library, self.function, self.device)} {{")
        self.checks()
        self.leading_dimensions()
        self.symbol()
        if self.operands:
            self.begin()
        self.add(f"  struct {name} arguments = {{.function = symbol}};")
        for one in self.function.parameters:
            if one in self.operands:
                suffix = "_address" if one.role == "scalar" else ""
                self.add(f"  arguments.{one.name}{suffix} = {self.address(one)};")
            elif one.role == "scalar" and one.count > 1:
                self.add(f"  memcpy(arguments.{one.name}, {one.name}, sizeof arguments.{one.name});")
            else:
                self.add(f"  arguments.{one.name} = {one.name};")
        run = f"run_{name}_device" if self.device else f"run_{name}"
        if self.operands:
            self.add(f"  return oa_submit(&call, {run}, &arguments, sizeof arguments);")
        else:
            # Everything is on the host: no device, no order to keep.
            self.add(f"  {run}(&arguments);")
            self.add("  return OA_OK;")
        return [*self.lines, "}", ""]


# -- C: files --


def made_from(library: Library) -> str:
    return (
        f"Generated by bindings/emit.py from api/{library.name}.json ({library.header}, {library.title} "
        f"{library.version}) and roles/{library.name}.toml."
    )


def symbols_of(library: Library) -> list[str]:
    """Returns the vendor's symbols that a library's shims use, in the order of its table."""
    names = {one.symbol for one in library.functions}
    names |= {one.wide_symbol for one in library.functions if one.wide_symbol}
    if library.handle:
        names |= {library.handle[key] for key in HANDLE_FUNCTIONS if key in library.handle}
    return sorted(names)


PRELUDE = r"""
static inline void *resolve(int index) {
  void *address = __atomic_load_n(&addresses[index], __ATOMIC_ACQUIRE);
  return address ? address : oa_library_symbol(&oa_library_NAME, index);
}

/* The library lacks the function, or is not there at all, which is told; but first what is wrong with the operand. */
static __attribute__((cold, noinline)) int no_symbol(const char *function, const char *name, const void *pointer) {
  const oa_library *library = &oa_library_NAME;
  oa_saved_error saved;
  oa_error_save(&saved);
  oa_pointer_info info = OA_SIZED(oa_pointer_info);
  oa_device_info device = OA_SIZED(oa_device_info);
  int status = oa_pointer_query(pointer, &info);
  if (!status) status = oa_device_get_info(info.device, &device);
  if (status) return oa_fail_in(status, "%s: %s", function, name);
  if (library->backend ? strcmp(library->backend, device.backend) != 0 : !(device.flags & OA_DEVICE_HOST_CALLS))
    return oa_fail(OA_ERROR_DEVICE, "%s: %s is on %s, needs to be on a %s device; open the region with device=\"%s\"",
                   function, name, device.name, library->backend ? library->backend : "host",
                   library->backend ? library->backend : "host");
  oa_error_restore(&saved);
  return OA_ERROR_LIBRARY;
}

static inline int is_wide(int64_t value) { return value != (int32_t)value; }

/* The leading dimension that the vendor gets: of what has one column it says nothing, and need not be its rows. */
static inline __attribute__((unused)) int64_t leading(int64_t ld, int64_t rows, int64_t columns) {
  return columns <= 1 && ld > 0 && ld < rows ? rows : ld;
}

/* Sums of sizes that were checked to be 0 or more; a sum that does not fit is too large for any array. */
static inline __attribute__((unused)) int64_t plus(int64_t a, int64_t b) {
  int64_t sum;
  return __builtin_add_overflow(a, b, &sum) ? INT64_MAX : sum;
}

static inline __attribute__((cold, unused)) int negative(const char *function, const char *name, int64_t value) {
  return oa_fail(OA_ERROR_ARGUMENT, "%s: %s needs to be at least 0, got %lld", function, name, (long long)value);
}

/* Says which of the (name, value) pairs does not fit the vendor's int; one of them does not. */
static __attribute__((cold, noinline)) int too_large(const char *function, ...) {
  va_list pairs;
  va_start(pairs, function);
  const char *name = va_arg(pairs, const char *);
  int64_t value = va_arg(pairs, int64_t);
  while (!is_wide(value)) {
    name = va_arg(pairs, const char *);
    value = va_arg(pairs, int64_t);
  }
  va_end(pairs);
  return oa_fail_too_large(function, name, value);
}
"""


def quoted(text: str | None) -> str:
    """Writes a C string, or NULL for none."""
    return f'"{text}"' if text else "NULL"


def shims(library: Library) -> str:
    """Returns shims/<library>.c."""
    names = symbols_of(library)
    index = {name: position for position, name in enumerate(names)}
    label = f"oa_library_{library.name}"
    lines = [f"/* {made_from(library)} */", f'#include "offload_args_{library.name}.h"', ""]
    lines += ['#include "library/library.h"', '#include "offload_args/shim.h"', ""]
    lines += ["#include <stdarg.h>", "#include <string.h>", ""]
    lines += ["static const char *const symbols[] = {", *(f'    "{name}",' for name in names), "};"]
    lines += [f"static void *addresses[{len(names)}];", "static oa_library_state state;", ""]
    lines += ["static const oa_code_name codes[] = {"]
    lines += [f'    {{{code}, "{name}"}},' for code, name in library.status_codes] + ["    {0, NULL}};", ""]
    spelling = {"sonames": library.sonames, "prefixes": library.prefixes, "suffixes": library.suffixes}
    for key, texts in spelling.items():
        listed = "".join(f'"{text}", ' for text in texts)
        lines += [f"static const char *const {key}[] = {{{listed}NULL}};"]
    handle = library.handle or {}
    version, gives = library.find["version"]
    fields = {
        "name": quoted(library.name),
        "title": quoted(library.title),
        "backend": quoted(library.backend),
        **{key: key for key in spelling},
        "probe": quoted(library.probe),
        "version": quoted(version),
        "version_kind": f"OA_VERSION_{(gives or 'none').upper()}",
        "symbols": "symbols",
        "symbol_count": str(len(names)),
        "code_names": "codes",
        "success": str(library.success),
        **{key: str(index[handle[key]] if key in handle else -1) for key in HANDLE_FUNCTIONS},
        **{key: str(handle.get(key, 0)) for key in HANDLE_MODES},
        "takes_stream": str(int(library.stream == "argument")),
        "addresses": "addresses",
        "state": "&state",
    }
    lines += ["", f"extern const oa_library {label};", f"const oa_library {label} = {{"]
    lines += [*(f"    .{key} = {value}," for key, value in fields.items()), "};", PRELUDE.replace("NAME", library.name)]
    for function in library.functions:
        forms = [False, True] if function.has_device_form else [False]
        if not handle:
            lines += Shim(library, function, index, False).run()
        for device in forms:
            shim = Shim(library, function, index, device)
            lines += shim.direct() if handle else shim.deferred()
    return "\n".join(lines)


def libraries_file(libraries: Iterable[Library]) -> str:
    """Returns shims/libraries.c: the table of every library of this build."""
    labels = [f"oa_library_{one.name}" for one in libraries]
    lines = ["/* Generated by bindings/emit.py: every library that has an api file and a roles file. */"]
    lines += ['#include "offload_args/shim.h"', "", *(f"extern const oa_library {label};" for label in labels)]
    table = ", ".join(f"&{label}" for label in labels)
    return "\n".join([*lines, f"const oa_library *const oa_libraries[] = {{{table}, NULL}};", ""])


def prototypes(library: Library) -> list[str]:
    """Returns the declarations of every shim of a library."""
    lines: list[str] = []
    for function in library.functions:
        forms = [False, True] if function.has_device_form else [False]
        lines += [f"{prototype(library, function, device)};" for device in forms]
    return lines


def header(library: Library) -> str:
    """Returns include/offload_args_<library>.h, for users in C."""
    guard = f"OFFLOAD_ARGS_{library.name.upper()}_H"
    lines = [f"/* {made_from(library)}", " *"]
    lines += [
        f" * {library.title} on lent arrays. Sizes are int64_t; numbers are passed by value and results come through"
    ]
    lines += [" * the last parameter. The forms that end in _device take numbers and results as device pointers. Each"]
    lines += [" * returns an oa_status; the text is in oa_last_error(). */"]
    lines += [f"#ifndef {guard}", f"#define {guard}", "", '#include "offload_args.h"', ""]
    lines += ["#ifdef __cplusplus", 'extern "C" {', "#endif", "#pragma GCC visibility push(default)", ""]
    constants = [f"  OA_{library.name.upper()}_{name} = {value}," for name, value in library.constants.items()]
    lines += ["enum {", *constants, "};", ""]
    for one in prototypes(library):
        lines += wrapped(one)
    lines += ["", "#pragma GCC visibility pop", "#ifdef __cplusplus", "}", "#endif", "#endif", ""]
    return "\n".join(lines)


# -- cffi --


def cffi_sources(libraries: Iterable[Library], out: Path) -> None:
    """Writes _native.c and one _<library>.c each, for cp311-abi3."""
    from cffi import FFI  # the build's own dependency; not needed to check

    core = FFI()
    core.cdef(core_declarations())
    core.set_source("offload_args._native", '#include "offload_args/testing.h"', py_limited_api=True)
    modules = [(core, out / "_native.c")]
    for library in libraries:
        own = FFI()
        own.include(core)
        own.cdef("\n".join(prototypes(library)))
        source = f'#include "offload_args_{library.name}.h"'
        own.set_source(f"offload_args._{library.name}", source, py_limited_api=True)
        modules.append((own, out / f"_{library.name}.c"))
    for ffi, path in modules:
        path.unlink(missing_ok=True)
        with contextlib.redirect_stdout(io.StringIO()):
            ffi.emit_c_code(str(path))


# -- Python --


def record(function: Function) -> str:
    """Returns a function's record; the head of this file says what it is."""
    tokens: list[str] = []
    for one in function.parameters:
        if one.role == "enum":
            tokens.append(f"enum:{one.name}")
        elif one.role in ("size", "ld", "inc"):
            tokens.append(f"size:{one.name}")
        else:
            kind = {"array": one.direction, "returned": "result"}.get(one.role, one.role)
            count = f":{one.count}" if one.count > 1 else ""
            tokens.append(f"{kind}:{one.name}:{one.dtype}{count}")
    return " ".join(tokens)


def _in_words(extent: Extent, library: Library, function: Function) -> str:
    words = [f"({text})" if " if " in text else text for text in map(ast.unparse, extent.arguments)]
    order = library.row_major
    ordered = order is not None and any(one.name == order[0] for one in function.parameters)
    lines = "rows or columns" if ordered else "columns"
    unit = f", without its diagonal if {words[-1]}" if len(words) == EXTENTS[extent.kind][0][-1] else ""
    match extent.kind:
        case "vector":
            return f"{words[0]} elements, {words[1]} apart"
        case "matrix":
            return f"{words[0]} by {words[1]}, {lines} {words[2]} apart"
        case "triangle":
            return f"one triangle of order {words[1]}, {lines} {words[2]} apart{unit}"
        case "band":
            diagonals = f"{words[2]} + {words[3]} + 1 diagonals"
            return f"{diagonals} of {words[0]} by {words[1]}, {lines} {words[4]} apart"
        case "band_triangle":
            return f"one triangle of order {words[1]} of {words[2]} + 1 diagonals, {lines} {words[3]} apart{unit}"
        case "packed":
            return f"a packed triangle of order {words[1]}{unit}"
    return "1 element" if words[0] == "1" else f"{words[0]} elements"


RAISES = (
    "Raises HostPointerError, DTypeError (TypeErrors), ArgumentError, ExtentError, WrongDeviceError, DirectionError, "
    "AliasError (ValueErrors), SizeOverflowError (OverflowError), StalePointerError or LibraryError (RuntimeErrors)."
)


def docstring(library: Library, function: Function) -> str:
    """Returns the text of a function's docstring."""
    lines = [function.summary, ""]
    for one in function.parameters:
        dtype = NUMPY.get(one.dtype, "")
        if one.role == "enum":
            assert one.enum
            names = [name for name, _ in one.enum.values]
            lines.append(f"{one.name}: {', '.join(names[:-1])} or {names[-1]}.")
        elif one.role == "array":
            assert one.extent
            does = {"in": "read", "out": "overwritten", "inout": "read and written"}[one.direction]
            if one.overwrites:
                does += f", overwritten if {ast.unparse(one.overwrites)}"
            if one.in_place and one.direction != "in":
                does += f", may be {one.in_place}"
            lines.append(f"{one.name}: DevicePtr of {dtype}, {_in_words(one.extent, library, function)}; {does}.")
        elif one.role == "scalar":
            what = "a number" if one.count == 1 else f"{one.count} numbers"
            lines.append(f"{one.name}: {what} or a DevicePtr of {one.count} {dtype}.")
        elif one.role in ("update", "output"):
            what = "a number" if one.role == "update" else "None"
            lines.append(f"{one.name}: {what}, or a DevicePtr of {one.count} {dtype}.")
    sizes = [one.name for one in function.of("size", "ld", "inc")]
    if sizes:
        lines.append(f"{', '.join(sizes)}: in elements.")
        if any(one.may_be_negative for one in function.parameters):
            lines[-1] += " With n of 0 or less nothing is touched."
        if any(one.repeats for one in function.parameters):
            lines[-1] += " An increment of 0 repeats one element."
    lines.append("")
    if function.of("result", "returned"):
        dtype = NUMPY[function.parameters[-1].dtype]
        lines.append(f"Returns a number; with result, a DevicePtr of one {dtype}, writes it there and returns None.")
    elif function.of("update"):
        changed = ", ".join(one.name for one in function.of("update", "output"))
        lines.append(f"Returns the new ({changed}); with DevicePtrs for all of them writes there and returns None.")
    if library.handle:
        lines.append("handle: a library handle of your own, whose stream is used.")
    lines += [RAISES, f"Source: {library.source}, {function.symbol}."]
    wrapped_lines: list[str] = []
    for line in lines:
        wrapped_lines += textwrap.wrap(line, 104, subsequent_indent="    ", break_long_words=False) or [""]
    return "\n".join(wrapped_lines)


def python_function(library: Library, function: Function) -> list[str]:
    """Writes one Python function."""
    name = function.name
    with_handle = library.handle is not None
    result = function.of("result", "returned")
    positional = [one for one in function.parameters if one not in result]
    plain = [one.name for one in positional]
    shown = [f"{one.name}=None" if one.role == "output" else one.name for one in positional]
    keywords = [*(["result=None"] if result else []), *(["handle=None"] if with_handle else [])]
    signature = ", ".join([*shown, *(["*", *keywords] if keywords else [])])
    arguments = f"({', '.join(plain)}{',' if len(plain) == 1 else ''})"
    lines = [f"def {name}({signature}):"]
    doc = docstring(library, function).split("\n")
    lines += [f'    """{doc[0]}', *(f"    {line}".rstrip() for line in doc[1:]), '    """']
    if function.of("update", "output"):
        return [*lines, f'    return _binding.in_out("{name}", {arguments})', "", ""]
    if with_handle:
        lines.append("    if handle is not None:")
        extra = ", result" if result else ""
        lines.append(f"        return _binding.with_handle(handle, {name}, {arguments}{extra})")
    if result:
        lines.append("    if result is not None:")
        lines.append(f'        return _binding.on_device("{name}", ({", ".join([*plain, "result"])}))')
        lines.append(f"    value = _new_{result[0].dtype}()")
    lines.append("    try:")
    passed: list[str] = []
    for one in positional:
        if one.role == "array":
            passed.append(f"{one.name}._cd")
        elif one.count > 1:
            parts = ", ".join(f"{one.name}{number}" for number in range(one.count))
            lines.append(f"        {parts} = {one.name}")
            passed.append(f"({parts})")
        else:
            passed.append(one.name)
    passed += ["value"] if result else []
    lines.append(f"        status = _{name}({', '.join(passed)})")
    lines.append("    except _WRONG as error:")
    lines.append(f'        return _binding.explain("{name}", {arguments}, error)')
    lines += ["    if status:", "        raise_status(status)"]
    if result:
        lines.append("    return value[0]")
    return [*lines, "", ""]


def python_module(library: Library) -> str:
    """Returns <library>.py."""
    name = library.name
    dtypes = sorted({one.dtype for f in library.functions for one in f.of("result", "returned")})
    lines = [f'"""Calls {library.title} on lent arrays: one function each, arguments in the vendor\'s order.', ""]
    lines += [*textwrap.wrap(made_from(library), 104), '"""', ""]
    lines += ["from functools import partial", ""]
    lines += [
        "from ._explain import Binding",
        f"from ._{name} import ffi, lib",
        "from .errors import raise_status",
        "",
    ]
    lines += [f"{constant} = {value}" for constant, value in library.constants.items()] + [""]
    lines += ["_RECORDS = {", *(f'    "{one.name}": "{record(one)}",' for one in library.functions), "}"]
    lines += [f'_binding = Binding("{name}", ffi, lib, _RECORDS)']
    lines += ["_WRONG = (AttributeError, TypeError, OverflowError, ValueError)"]
    lines += [f'_new_{dtype} = partial(ffi.new, ffi.typeof("{C_VALUE[dtype]} *"))' for dtype in dtypes]
    # All at import: that takes less than 1 µs each, and cffi (2.1.1) aborts in a function with a complex argument
    # unless the first function of the module that has one was looked up before.
    called = [one.name for one in library.functions if not one.of("update", "output")]
    lines += [f"_{one} = lib.oa_{name}_{one}" for one in called]
    lines += ["", ""]
    for function in library.functions:
        lines += python_function(library, function)
    return "\n".join(lines).rstrip() + "\n"


def _annotation(one: Parameter, on_device: bool | None = None) -> str:
    if one.role in ("enum", "size", "ld", "inc"):
        return "int"
    pointer = f"DevicePtr[np.{NUMPY[one.dtype]}]"
    if one.role == "array" or on_device:
        return pointer
    number = PYTHON[one.dtype] if one.count == 1 else f"Sequence[{PYTHON[one.dtype]}]"
    return f"{number} | {pointer}" if on_device is None else number


def python_stub(library: Library) -> str:
    """Returns <library>.pyi."""
    lines = [f"# {made_from(library)}", "from collections.abc import Sequence"]
    lines += ["from typing import Final, overload", "", "import numpy as np", "", "from .pointers import DevicePtr", ""]
    lines += [f"{name}: Final = {value}" for name, value in library.constants.items()] + [""]
    handle = ["handle: object = None"] if library.handle else []
    for function in library.functions:
        result = function.of("result", "returned")
        positional = [one for one in function.parameters if one not in result]
        if result:
            shown = [f"{one.name}: {_annotation(one)}" for one in positional]
            on_host = ", ".join([*shown, *(["*", "result: None = None", *handle])])
            pointer = _annotation(result[0], True)
            on_device = ", ".join([*shown, "*", f"result: {pointer}", *handle])
            lines += ["@overload", f"def {function.name}({on_host}) -> {PYTHON[result[0].dtype]}: ..."]
            lines += ["@overload", f"def {function.name}({on_device}) -> None: ..."]
        elif function.of("update", "output"):
            inputs = [f"{one.name}: {_annotation(one, False)}" for one in positional if one.role != "output"]
            outputs = [f"{one.name}: None = None" for one in positional if one.role == "output"]
            values = [one for one in positional if one.role in ("update", "output")]
            kinds = [PYTHON[one.dtype] if one.count == 1 else f"tuple[{PYTHON[one.dtype]}, ...]" for one in values]
            on_device = ", ".join(
                f"{one.name}: {_annotation(one, None if one.role == 'scalar' else True)}" for one in positional
            )
            on_host = ", ".join([*inputs, *outputs])
            lines += ["@overload", f"def {function.name}({on_host}) -> tuple[{', '.join(kinds)}]: ..."]
            lines += ["@overload", f"def {function.name}({on_device}) -> None: ..."]
        else:
            shown = [f"{one.name}: {_annotation(one)}" for one in positional]
            signature = ", ".join([*shown, *(["*", *handle] if handle else [])])
            lines.append(f"def {function.name}({signature}) -> None: ...")
    return "\n".join(lines) + "\n"


def python_table(libraries: Iterable[Library]) -> str:
    """Returns _table.py: how each library is found and asked for its version, those of GPUs first."""
    lines = ['"""Generated by bindings/emit.py: every library that has an api file and a roles file."""', ""]
    lines += ["from typing import Any, Final", "", "LIBRARIES: Final[dict[str, dict[str, Any]]] = {"]
    for one in sorted(libraries, key=lambda library: (library.backend is None, library.name)):
        facts = {"title": one.title, "backend": one.backend, "sonames": tuple(one.sonames), **one.find}
        facts |= {"prefixes": tuple(one.prefixes), "suffixes": tuple(one.suffixes)}
        lines.append(f"    {one.name!r}: {{")
        lines += [f"        {key!r}: {value!r}," for key, value in facts.items()] + ["    },"]
    return "\n".join([*lines, "}", ""])


# -- all of it --


def emit(libraries: list[Library], out: Path) -> None:
    """Writes everything the build needs under `out`."""
    for folder in ("shims", "include"):
        (out / folder).mkdir(parents=True, exist_ok=True)
    (out / "shims" / "libraries.c").write_text(libraries_file(libraries))
    for library in libraries:
        (out / "shims" / f"{library.name}.c").write_text(shims(library))
        (out / "include" / f"offload_args_{library.name}.h").write_text(header(library))
        (out / f"{library.name}.py").write_text(python_module(library))
        (out / f"{library.name}.pyi").write_text(python_stub(library))
    (out / "_table.py").write_text(python_table(libraries))
    cffi_sources(libraries, out)


def report(libraries: Iterable[Library]) -> str:
    """Returns report.md: what is bound, what isn't and why."""
    lines = ["<!-- Generated by `python -m bindings report`; checked by `python -m bindings --check`. -->", ""]
    lines += ["# What is bound", ""]
    for library in libraries:
        wide = sum(1 for one in library.functions if one.wide_symbol)
        lines += [f"## {library.title} ({library.header}, {library.version})", ""]
        lines.append(f"{len(library.functions)} of its functions")
        if wide:
            lines[-1] += f", {wide} of them with their form for 64-bit sizes behind the same name"
        lines[-1] += f"; the header declares {library.api_count} in all."
        lines += ["", "| family | functions |", "|---|---|"]
        families: dict[str, list[str]] = {}
        for function in library.functions:
            families.setdefault(function.family, []).append(function.name)
        lines += [f"| {key} | {' '.join(names)} |" for key, names in sorted(families.items())]
        lines += ["", "Not bound:", "", "| why | count | functions |", "|---|---|---|"]
        for reason, names in library.not_bound.items():
            lines.append(f"| {reason} | {len(names)} | {' '.join(names)} |")
        lines.append("")
    return "\n".join(lines)
