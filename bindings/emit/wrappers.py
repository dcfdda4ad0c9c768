"""Writes the typed C functions, oa_<library>_<name>, and their header.

Each function packs its arguments and runs a routine.

If numbers may be on the device, the function `oa_<library>_<name>_device` takes all numbers as device pointers.
"""

from __future__ import annotations

from ..descriptors import GivenList
from ..helper_functions import Given, GivenBytes
from ..library import Function, Library
from ..parameters import Number
from .c_text import BEGIN_C, END_C, made_from, wrapped


def forms(library: Library, function: Function) -> list[bool]:
    """Return the forms of a function: False for numbers on the host, True for numbers on the device."""
    return [False, True] if library.has_device_form(function) else [False]


def prototype(library: Library, function: Function, device: bool) -> str:
    """Declare a typed function, without the semicolon."""
    suffix = "_device" if device else ""
    parameters = ", ".join(parameter.declaration(device) for parameter in function.parameters) or "void"
    return f"int oa_{library.name}_{function.name}{suffix}({parameters})"


def prototypes(library: Library) -> list[str]:
    """Return the declarations of every typed function of a library."""
    return [
        f"{prototype(library, function, device)};"
        for function in library.functions
        for device in forms(library, function)
    ]


def library_rows(library: Library) -> str:
    """Return the name of a library's table of routines in C."""
    return f"oa_routines_{library.name}"


def _definition(library: Library, function: Function, device: bool, row: int) -> list[str]:
    lines = wrapped(f"{prototype(library, function, device)} {{")
    for parameter in function.parameters:
        if parameter.is_host_address(device):
            failure = f'oa_fail_null("{library.name}.{function.name}", "{parameter.name}")'
            lines += wrapped(f"  if (!{parameter.name}) return {failure};")
    lines += [f"  {parameter.preparation()}" for parameter in function.parameters if parameter.preparation()]
    lines += [f"  oa_value values[{max(1, len(function.parameters))}];"]
    for position, parameter in enumerate(
        function.parameters
    ):  # each value separately, because compilers would first clear a whole list
        lines += wrapped(f"  values[{position}] = (oa_value){parameter.initializer(device)};")
    at = {parameter.name: position for position, parameter in enumerate(function.parameters)}
    void = [] if device else [number for number in function.numbers if number.is_void]
    if void:
        lines += [f"  unsigned char dtypes[{len(function.parameters)}];"]
        lines += [f"  const int typed = oa_routine_dtypes(&{library_rows(library)}[{row}], values, dtypes);"]
        lines += ["  if (typed) return typed;"]
    for parameter in void:
        place = at[parameter.name]
        if parameter.role in ("scalar", "update"):
            lines += [f"  memcpy(values[{place}].bytes, {parameter.name}, (size_t)oa_itemsize(dtypes[{place}]));"]
    back = [
        parameter
        for parameter in function.parameters
        if isinstance(parameter, Number) and parameter.comes_back and parameter.count == 1
    ]
    outputs = [
        parameter
        for parameter in function.parameters
        if isinstance(parameter, Given) and not isinstance(parameter, (GivenBytes, GivenList))
    ]
    back += outputs  # type: ignore[arg-type]
    if device or not back:
        return [*lines, f"  return run({row}, values, {int(device)});", "}", ""]
    lines += [f"  const int ran = run({row}, values, 0);", "  if (ran) return ran;"]
    for parameter in back:
        size = (
            f"(size_t)oa_itemsize(dtypes[{at[parameter.name]}])" if parameter in void else f"sizeof *{parameter.name}"
        )
        lines += [f"  memcpy({parameter.name}, values[{at[parameter.name]}].bytes, {size});"]
    return [*lines, "  return OA_OK;", "}", ""]


def wrappers_file(library: Library) -> str:
    """Return <library>_api.c."""
    rows = library_rows(library)
    lines = [f"/* {made_from(library)} */", f'#include "offload_args_{library.name}.h"', ""]
    lines += ['#include "offload_args/routine.h"', "", "#include <string.h>", ""]
    lines += [f"extern const oa_routine {rows}[];", ""]
    lines += ["static inline int run(int row, oa_value *values, int device) {"]
    lines += [f"  return {rows}[row].run(&{rows}[row], values, device);", "}", ""]
    for row, function in enumerate(library.functions):
        for device in forms(library, function):
            lines += _definition(library, function, device, row)
    return "\n".join(lines)


def through_python(names: list[str]) -> list[str]:
    """Return the end of a header, by which an extension of Python calls its functions through offload_args/python.h."""
    lines = ["", "#define OA_DECLARED", "#ifdef OA_THROUGH"]
    return [*lines, *(f"#define {name} OA_THROUGH({name})" for name in names), "#endif"]


def header(library: Library) -> str:
    """Return include/offload_args_<library>.h, for users in C."""
    guard = f"OFFLOAD_ARGS_{library.name.upper()}_H"
    lines = [f"/* {made_from(library)}", " *"]
    lines += [
        f" * {library.title} on lent arrays. Sizes are int64_t; numbers are passed by value and results come through",
        " * the last parameter. The forms that end in _device take numbers and results as device pointers. Each",
        " * returns an oa_status; the text is in oa_last_error(). */",
    ]
    lines += [f"#ifndef {guard}", f"#define {guard}", "", '#include "offload_args.h"', ""]
    lines += BEGIN_C
    constants = [f"  OA_{library.name.upper()}_{name} = {value}," for name, value in library.constants.items()]
    if constants:
        lines += ["enum {", *constants, "};", ""]
    for prototype in prototypes(library):
        lines += wrapped(prototype)
    lines += END_C
    names = [f"oa_{library.name}_{function.name}" for function in library.functions]
    suffixed = zip(library.functions, names, strict=True)
    device_forms = [f"{name}_device" for function, name in suffixed if library.has_device_form(function)]
    return "\n".join([*lines, *through_python(names + device_forms), "#endif", ""])
