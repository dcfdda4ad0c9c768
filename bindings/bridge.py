"""Writes the rows of routines. Each calls its shims, until the rows have bodies of their own."""

from __future__ import annotations

import json
from collections.abc import Iterable

from . import emit
from .roles import Function, Library, Parameter


def signature(library: Library, function: Function) -> str:
    """Returns the parameters of a builtin as Python writes them."""
    result = function.of("result", "returned")
    positional = [one for one in function.parameters if one not in result]
    shown = [f"{one.name}=None" if one.role == "output" else one.name for one in positional]
    keywords = [*(["result=None"] if result else []), *(["handle=None"] if library.handle else [])]
    return ", ".join([*shown, *(["*", *keywords] if keywords else [])])


def argument(one: Parameter, index: int, device: bool) -> str:
    """Writes the argument of a shim that a value is."""
    value = f"values[{index}]"
    kind = emit.C_VALUE.get(one.dtype, "")
    if one.role == "enum":
        return f"(int){value}.integer"
    if one.role in ("size", "ld", "inc"):
        return f"{value}.integer"
    if one.role == "array" or device:
        return f"(void *){value}.pointer"
    if one.count > 1:
        return f"(void *){value}.pointer"
    if one.role == "scalar":
        return f"*({kind} *){value}.bytes"
    return f"({kind} *){value}.bytes"


def rows(libraries: Iterable[Library]) -> str:
    """Returns shims/bridge.c: a row for each routine of each library, and the two functions that find one."""
    lines = ['#include "offload_args.h"', '#include "offload_args/routine.h"', '#include "base/error.h"']
    lines += ["#include <string.h>"]
    lines += [f'#include "offload_args_{one.name}.h"' for one in libraries]
    for library in libraries:
        made = []
        for function in library.functions:
            forms = [True, False] if function.has_device_form else [False]
            name = f"{library.name}_{function.name}"
            lines.append(f"static int run_{name}(const oa_routine *r, oa_value *values, int device) {{")
            lines.append("  (void)r; (void)device;")
            for device in forms:
                passed = ", ".join(argument(one, i, device) for i, one in enumerate(function.parameters))
                name = f"oa_{library.name}_{function.name}{'_device' if device else ''}"
                lines.append(f"  {'if (device) ' if device else ''}return {name}({passed});")
            lines.append("}")
            doc = f"{function.name}({signature(library, function)})\n--\n\n{emit.docstring(library, function)}"
            made.append(
                f'  {{.function = "{library.name}.{function.name}", .record = "{emit.record(function)}", '
                f".doc = {json.dumps(doc)}, .run = run_{library.name}_{function.name}, "
                f".count = {len(function.parameters)}, .has_device_form = {len(forms) - 1}}},"
            )
        lines += [f"static const oa_routine {library.name}_rows[] = {{", *made, "};"]
    lines += ["int oa_library_routines(const char *library, const oa_routine **routines, int *count) {"]
    for one in libraries:
        lines.append(f'  if (strcmp(library, "{one.name}") == 0)')
        lines.append(f"    return *routines = {one.name}_rows, *count = {len(one.functions)}, OA_OK;")
    lines += ['  return oa_fail(OA_ERROR_ARGUMENT, "no library %s", library);', "}"]
    lines += [
        """const oa_routine *oa_routine_find(const char *library, const char *name) {
  const oa_routine *rows;
  int count;
  if (oa_library_routines(library, &rows, &count)) return NULL;
  for (int i = 0; i < count; i++) if (strcmp(strchr(rows[i].function, '.') + 1, name) == 0) return &rows[i];
  return NULL;
}"""
    ]
    return "\n".join(lines) + "\n"
