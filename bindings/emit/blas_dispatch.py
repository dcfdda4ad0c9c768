"""Writes the portable BLAS of C, oa_blas_*; each function calls the vendor's function for the device of its arrays.

A function is written if its typed C functions of all libraries agree. Names of parameters, the order of CBLAS (always
by columns) and enums may differ. In the portable function, enums have CBLAS's values.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from ..library import Function, Library
from ..parameters import Array, EnumValue, Parameter
from .c_text import BEGIN_C, END_C, wrapped
from .wrappers import through_python

# {type of an enum of CBLAS: (its first value, the names of the portable constants, {library: its constants})}.
_ENUMS: dict[str, tuple[int, tuple[str, ...], dict[str, tuple[str, ...]]]] = {
    "CBLAS_TRANSPOSE": (111, ("NO_TRANS", "TRANS", "CONJ_TRANS"), {"cublas": ("OP_N", "OP_T", "OP_C")}),
    "CBLAS_UPLO": (121, ("UPPER", "LOWER"), {"cublas": ("FILL_MODE_UPPER", "FILL_MODE_LOWER")}),
    "CBLAS_DIAG": (131, ("NON_UNIT", "UNIT"), {"cublas": ("DIAG_NON_UNIT", "DIAG_UNIT")}),
    "CBLAS_SIDE": (141, ("LEFT", "RIGHT"), {"cublas": ("SIDE_LEFT", "SIDE_RIGHT")}),
}
_FIRST = "cblas"  # the library whose parameters the portable functions have


class _Portable(NamedTuple):
    """One portable function: CBLAS's function without its order, and the function of each other library."""

    name: str
    parameters: list[Parameter]
    of: list[tuple[Library, Function]]


def _types(parameters: Iterable[Parameter]) -> list[str]:
    return [parameter.declaration(False).rpartition(parameter.name)[0] for parameter in parameters]


def _without_order(function: Function) -> list[Parameter]:
    return [
        parameter
        for parameter in function.parameters
        if not (isinstance(parameter, EnumValue) and parameter.enum.type == "CBLAS_ORDER")
    ]


def _agrees(parameters: list[Parameter], function: Function) -> bool:
    """Return whether a library's function takes the same parameters; a separate result, C and ldc, may be added."""
    own = _types(function.parameters)
    if own == _types(parameters):
        return True
    return [parameter.name for parameter in function.parameters[-2:]] == ["C", "ldc"] and own[:-4] == _types(
        parameters[:-2]
    )


def _functions(libraries: list[Library]) -> list[_Portable]:
    first = next((library for library in libraries if library.name == _FIRST), None)
    others = [library for library in libraries if library.name in ("cublas", "rocblas")]
    if first is None or not others:
        return []
    by_name = [(other, {function.name: function for function in other.functions}) for other in others]
    functions = []
    for function in first.functions:
        parameters = _without_order(function)
        pairs = [(other, named[function.name]) for other, named in by_name if function.name in named]
        if len(pairs) == len(others) and all(_agrees(parameters, named) for _, named in pairs):
            functions.append(_Portable(function.name, parameters, [(first, function), *pairs]))
    return functions


def _prototype(portable: _Portable) -> str:
    return (
        f"int oa_blas_{portable.name}({', '.join(parameter.declaration(False) for parameter in portable.parameters)})"
    )


def portable_prototypes(libraries: list[Library]) -> list[str]:
    """Return the declarations of the portable functions."""
    return [f"{_prototype(function)};" for function in _functions(libraries)]


def _argument(library: Library, parameter: Parameter) -> str:
    if not isinstance(parameter, EnumValue):
        return parameter.name
    kind = parameter.enum.type
    return f"{kind.removeprefix('CBLAS_').lower()}_of_{library.name}[{parameter.name} - {_ENUMS[kind][0]}]"


def _call(library: Library, function: Function, portable: _Portable) -> str:
    arguments = [_argument(library, parameter) for parameter in portable.parameters]
    if len(function.parameters) > len(_without_order(function)):
        arguments.insert(0, str(library.constants["ColMajor"]))
    elif len(function.parameters) > len(portable.parameters):  # the library's function has a separate result
        arguments += arguments[-2:]
    return f"oa_{library.name}_{function.name}({', '.join(arguments)})"


def _definition(portable: _Portable) -> list[str]:
    arrays = [parameter for parameter in portable.parameters if isinstance(parameter, Array)]
    counts = portable.name.startswith("i")  # an index counts from 0, but from 1 in vendors' GPU libraries
    function = f'"blas.{portable.name}"'
    lines = [*wrapped(f"{_prototype(portable)} {{"), "  int place;"]
    name = arrays[0].name
    lines += [f'  OA_TRY(oa_dispatch_library({function}, "{name}", {name}, blas_libraries, &place));']
    for parameter in portable.parameters:
        if isinstance(parameter, EnumValue):
            label = parameter.enum.type.removeprefix("CBLAS_").lower()
            lines += [f'  OA_TRY(oa_dispatch_check({function}, "{parameter.name}", &enum_{label}, {parameter.name}));']
    for place, (library, own) in enumerate(portable.of):
        call = _call(library, own, portable)
        last = place == len(portable.of) - 1
        if counts and library.name != _FIRST:
            indent = "  " if last else "    "
            body = [f"{indent}OA_TRY({call});", f"{indent}if (*result > 0) --*result;", f"{indent}return OA_OK;"]
            lines += body if last else [f"  if (place == {place}) {{", *body, "  }"]
        else:
            lines += wrapped(f"  {'' if last else f'if (place == {place}) '}return {call};")
    return [*lines, "}", ""]


def portable_constants() -> list[str]:
    """Return the names of the constants without the prefix OA_BLAS_."""
    return [name for _, names, _ in _ENUMS.values() for name in names]


def portable_file(libraries: list[Library]) -> str:
    """Return blas_api.c."""
    functions = _functions(libraries)
    lines = ["/* Generated by bindings/emit/blas_dispatch.py: the portable BLAS, from what vendors share. */"]
    lines += ['#include "offload_args_blas.h"', '#include "body/blas_dispatch.h"', ""]
    if not functions:
        return "\n".join(lines)
    used = [library for library, _ in functions[0].of]
    lines += [f'#include "offload_args_{library.name}.h"' for library in used] + [""]
    lines += [f"extern const oa_library oa_library_{library.name};" for library in used]
    listed = ", ".join(f"&oa_library_{library.name}" for library in used)
    lines += [f"static const oa_library *const blas_libraries[] = {{{listed}, NULL}};", ""]
    for kind, (first, names, own) in _ENUMS.items():
        label = kind.removeprefix("CBLAS_").lower()
        described = [f"OA_BLAS_{name} ({first + at})" for at, name in enumerate(names)]
        text = f"{', '.join(described[:-1])} or {described[-1]}"
        lines += wrapped(f'static const oa_dispatch_enum enum_{label} = {{{first}, {len(names)}, "{text}"}};')
        for library in used:
            known = library.name in own
            values = [library.constants[name] for name in own[library.name]] if known else range(first, first + 9)
            listed = ", ".join(str(value) for value, _ in zip(values, names, strict=False))
            lines += [f"static const int {label}_of_{library.name}[] = {{{listed}}};"]
    lines += [""]
    for function in functions:
        lines += _definition(function)
    return "\n".join(lines)


def portable_header(libraries: list[Library]) -> str:
    """Return include/offload_args_blas.h, for users in C."""
    lines = ["/* Generated by bindings/emit/blas_dispatch.py.", " *"]
    lines += [
        " * The portable BLAS on lent arrays: each function calls the BLAS of the device that its first array is on",
        " * (CBLAS on the CPU, cuBLAS, rocBLAS). Matrices are stored by columns. Constants have CBLAS's numbers, and",
        " * an index counts from 0, as CBLAS's does. Sizes are int64_t; numbers are passed by value and results come",
        " * through the last parameter. Triangular products (trmm) are in place. Each returns an oa_status; the text",
        " * is in oa_last_error(). */",
        "#ifndef OFFLOAD_ARGS_BLAS_H",
        "#define OFFLOAD_ARGS_BLAS_H",
        "",
        '#include "offload_args.h"',
        "",
        *BEGIN_C,
        "enum {",
    ]
    for first, names, _ in _ENUMS.values():
        lines += [f"  OA_BLAS_{name} = {first + at}," for at, name in enumerate(names)]
    lines += ["};", ""]
    for portable_prototype in portable_prototypes(libraries):
        lines += wrapped(portable_prototype)
    lines += END_C
    return "\n".join(
        [*lines, *through_python([f"oa_blas_{function.name}" for function in _functions(libraries)]), "#endif", ""]
    )
