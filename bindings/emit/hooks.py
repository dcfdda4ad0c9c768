"""Writes the hooks that replace BLAS in other modules; csrc/accelerate puts them there.

A routine has four forms of hooks: with the names of CBLAS or of Fortran, and with integers of 32 or of 64 bits. Each
form has several hooks, which differ only in their originals. A hook compares sizes first. If a call is large enough,
the hook passes it on, by columns, with the extents of its arrays from the roles file. The table of all hooks also has
the hooks of LAPACK (lapack_hooks.py).
"""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass

from ..library import Function, Library
from ..parameters import C_NUMBER, Array, EnumValue, Number, Parameter, Size
from .c_text import quoted, to_c, wrapped
from .lapack_hooks import lapack_hook, lapack_routines, lapack_row, loop_routines, loop_row

_FIRST = "cblas"
# {family: (three sizes, the number of multiplications, changes)}. The product of the three sizes is about the number of
# multiplications. The changes turn a call by rows into a call by columns with the same memory; they are exchanges, and
# enums that become their opposites. "conjugated" means that an exchange would need a conjugated vector in a Hermitian
# routine, so that the original routine is called.
_RANK = "uplo trans"
_TRIANGULAR = "side uplo m=n"
_FAMILIES: dict[str, tuple[str, str, str]] = {
    "gemv": ("m n 1", "m * n", "operation:trans m=n"),
    "symv": ("n n 1", "n * n", "uplo conjugated"),
    "ger": ("m n 1", "m * n", "m=n x=y incx=incy conjugated"),
    "trmv": ("n n 1", "n * n / 2", "uplo operation:transa"),
    "syr": ("n n 1", "n * n / 2", "uplo conjugated"),
    "syr2": ("n n 1", "n * n", "uplo conjugated"),
    "gemm": ("m n k", "m * n * k", "transa=transb A=B lda=ldb m=n"),
    "symm": ("m n m|n", "m * n * (side == 141 ? m : n)", _TRIANGULAR),
    "syrk": ("n n k", "n * n * k / 2", _RANK),
    "herk": ("n n k", "n * n * k / 2", _RANK),
    "syr2k": ("n n k", "n * n * k", _RANK),
    "her2k": ("n n k", "n * n * k", _RANK + " alpha"),
    "trmm": ("m n m|n", "m * n * (side == 141 ? m : n) / 2", _TRIANGULAR),
}
_LETTERS = {
    "CBLAS_TRANSPOSE": "operation",
    "CBLAS_UPLO": "fill",
    "CBLAS_DIAG": "diagonal",
    "CBLAS_SIDE": "side",
}


@dataclass(frozen=True)
class _Hooked:
    """One routine: its function of CBLAS, and the constants of CBLAS."""

    function: Function
    constants: dict[str, int]
    number: int

    @property
    def name(self) -> str:
        return self.function.name

    @property
    def parameters(self) -> list[Parameter]:
        """Return the parameters of the portable function, which has no order."""
        return [parameter for parameter in self.function.parameters if not _is_order(parameter)]

    @property
    def arrays(self) -> list[Array]:
        return self.function.arrays

    @property
    def is_hermitian(self) -> bool:
        return self.name[1:3] == "he"

    @property
    def conjugates(self) -> bool:
        """Return whether the routine of level 2 conjugates one of its operands."""
        return self.is_hermitian or self.name.endswith("gerc")


def _is_order(parameter: Parameter) -> bool:
    return isinstance(parameter, EnumValue) and parameter.enum.type == "CBLAS_ORDER"


def _field(parameter: Parameter) -> str:
    if isinstance(parameter, EnumValue):
        return f"int {parameter.name};"
    if isinstance(parameter, Size):
        return f"int64_t {parameter.name};"
    if isinstance(parameter, Number):
        return f"{C_NUMBER[parameter.dtype]} {parameter.name};"
    return f"void *{parameter.name};"


def _declared(parameter: Parameter, by_address: bool) -> str:
    """Return a parameter of a hook, in which INT is the type of integers."""
    const = "" if isinstance(parameter, Array) and parameter.direction != "in" else "const "
    if isinstance(parameter, Array) or (isinstance(parameter, Number) and "_Complex" in C_NUMBER[parameter.dtype]):
        return f"{const}void *{parameter.name}"
    if isinstance(parameter, EnumValue):
        return f"const char *{parameter.name}" if by_address else f"int {parameter.name}"
    kind = "INT" if isinstance(parameter, Size) else C_NUMBER[parameter.dtype]
    return f"const {kind} *{parameter.name}" if by_address else f"{kind} {parameter.name}"


def _read(parameter: Parameter, by_address: bool) -> str:
    """Return the initializer of the field for a parameter."""
    if isinstance(parameter, EnumValue) and by_address:
        return f"oa_letter_{_LETTERS[parameter.enum.type]}({parameter.name})"
    if isinstance(parameter, Array):
        return f"(void *)(uintptr_t){parameter.name}"
    if isinstance(parameter, Number) and "_Complex" in C_NUMBER[parameter.dtype]:
        return f"*(const {C_NUMBER[parameter.dtype]} *){parameter.name}"
    return f"*{parameter.name}" if by_address else parameter.name


def _by_columns(hooked: _Hooked) -> list[str]:
    """Return the statements that turn arguments by rows into arguments by columns."""
    lines = []
    has = {parameter.name for parameter in hooked.parameters}
    for word in _FAMILIES[hooked.function.family][2].split():
        left, _, right = word.partition("=")
        kind, _, operation = word.partition(":")
        if operation:  # a conjugate transpose by rows would be a conjugate by columns; the original makes such calls
            conjugate = "111" if hooked.name[0] in "sd" else "0"
            flipped = f"a.{operation} == 111 ? 112 : a.{operation} == 112 ? 111"
            lines += [f"a.{operation} = {flipped} : a.{operation} == 113 ? {conjugate} : 0;"]
        elif word == "conjugated":
            lines += [f"a.{hooked.parameters[0].name} = 0; /* is refused */"] if hooked.conjugates else []
        elif right:
            kind = "int" if left.startswith("trans") else "void *" if left in ("A", "x") else "int64_t"
            kind += "" if kind.endswith("*") else " "
            lines += [f"{kind}{left}_ = a.{left};", f"a.{left} = a.{right};", f"a.{right} = {left}_;"]
        elif left == "trans":  # read by columns, the memory of A is its transpose B, and A A^T is B^T B
            other = 113 if hooked.is_hermitian else 112
            back = f"a.trans == {other}" + (" || a.trans == 113" if hooked.name[0] in "sd" else "")
            lines += [f"a.trans = a.trans == 111 ? {other} : {back} ? 111 : 0;"]
        elif left == "alpha":
            lines += ["a.alpha = OA_CONJUGATE(a.alpha);"]
        elif left in has:
            lines += [f"a.{left} = {283 if left == 'side' else 243} - a.{left};"]
    return lines


def _definition(hooked: _Hooked) -> list[str]:
    """Return the text that all hooks of a routine share."""
    name, number = hooked.name, hooked.number
    _, work, _ = _FAMILIES[hooked.function.family]
    lines = [f"/* {name} */", f"typedef struct {name}_arguments {{"]
    lines += [f"  {_field(parameter)}" for parameter in hooked.parameters] + [f"}} {name}_arguments;", ""]
    passed = []
    for parameter in hooked.parameters:
        if isinstance(parameter, Array):
            const = "const " if parameter.direction == "in" else ""
            passed.append(f"({const}oa_{parameter.dtype} *)p[{hooked.arrays.index(parameter)}]")
        else:
            passed.append(f"a->{parameter.name}")
    lines += [f"static int {name}_make(const void *arguments, oa_any *const *p) {{"]
    lines += [f"  const {name}_arguments *a = arguments;"]
    lines += [*wrapped(f"  return oa_blas_{name}({', '.join(passed)});"), "}", ""]
    # The expressions of the roles file refer to the fields by name.
    shapes = [text for array in hooked.arrays for text in _shape(hooked, array)]
    overwritten = [array for array in hooked.arrays if array.extent.kind in ("matrix", "vector")]
    texts = [*shapes, work, *(ast.unparse(array.overwrites) for array in overwritten if array.overwrites)]
    used = {word for text in texts for word in re.findall(r"[a-z]\w*", text)}
    lines += [f"static bool {name}_try(const {name}_arguments *a, oa_program_call *call) {{"]
    for parameter in hooked.parameters:
        if parameter.name in used and not isinstance(parameter, Array):
            lines += [f"  const {_field(parameter).rpartition(' ')[0]} {parameter.name} = a->{parameter.name};"]
    lines += ["  const oa_program_operand operands[] = {"]
    for array in hooked.arrays:
        rows, columns = _shape(hooked, array)
        direction = "OA_IN" if array.direction == "in" else "OA_INOUT"
        if array.overwrites and array.extent.kind in ("matrix", "vector"):
            direction = f"{to_c(array.overwrites, hooked.constants)} ? OA_OUT : OA_INOUT"
        ld = ast.unparse(array.extent.arguments[-1 if array.extent.kind == "vector" else 2])
        lines += wrapped(f'      {{"{array.name}", a->{array.name}, {rows}, {columns}, a->{ld}, {direction}, 0, 0}},')
    lines += ["  };"]
    enums = [parameter for parameter in hooked.parameters if isinstance(parameter, EnumValue)]
    tests = [" || ".join(f"a->{enum.name} == {value}" for _, value in enum.enum.values) for enum in enums]
    third = {"k": "a->k"}.get(_FAMILIES[hooked.function.family][0].split()[2], "0")
    first = "a->m" if any(parameter.name == "m" for parameter in hooked.parameters) else "a->n"
    lines += [f"  call->routine = &routines[{number}];"]
    lines += [f"  call->m = {first};", "  call->n = a->n;", f"  call->k = {third};"]
    factor = 8 if hooked.name[0] in "cz" else 2
    work = work.replace("m * n", "(double)m * (double)n").replace("n * n", "(double)n * (double)n")
    work = work.replace("* k", "* (double)k").replace("? m : n", "? (double)m : (double)n")
    lines += [f"  call->operations = {factor}.0 * ({work});"]
    lines += wrapped(f"  const bool valid = {' && '.join(f'({test})' for test in tests) or 'true'};")
    lines += [f"  return oa_program_try(call, a, {name}_make, valid, operands, {len(hooked.arrays)});", "}", ""]
    return lines


def _shape(hooked: _Hooked, array: Array) -> tuple[str, str]:
    if array.extent.kind == "vector":  # a matrix of one row, whose ld is the increment
        return "1", to_c(array.extent.arguments[0], hooked.constants)
    if array.extent.kind == "matrix":
        rows, columns = array.extent.arguments[:2]
    else:  # triangle(upper, n, ld)
        rows = columns = array.extent.arguments[1]
    return to_c(rows, hooked.constants), to_c(columns, hooked.constants)


def _sizes(hooked: _Hooked, by_address: bool) -> str:
    """Return the three sizes by which small calls are recognized."""
    words = []
    for word in _FAMILIES[hooked.function.family][0].split():
        left, _, right = word.partition("|")
        star = "*" if by_address and not left.isdecimal() else ""
        words.append(f"{star}{left} > {star}{right} ? {star}{left} : {star}{right}" if right else f"{star}{left}")
    return ", ".join(words)


def _hook(hooked: _Hooked, by_address: bool) -> list[str]:
    """Return one form of a routine's hooks, as a macro of the type of integers, its width and the variant."""
    name = hooked.name
    form = "fortran" if by_address else "cblas"
    chosen = hooked.parameters if by_address else list(hooked.function.parameters)
    declared = [_declared(parameter, by_address) for parameter in chosen]
    passed = [parameter.name for parameter in chosen]
    if by_address:  # the lengths of Fortran's texts follow, except in calls from C
        lengths = [f"length_{parameter.name}" for parameter in chosen if isinstance(parameter, EnumValue)]
        declared += [f"size_t {length}" for length in lengths]
        passed += lengths
    order = next((parameter.name for parameter in chosen if _is_order(parameter)), "")
    values = ", ".join(f".{parameter.name} = {_read(parameter, by_address)}" for parameter in hooked.parameters)
    body = [f"static void {form}_{name}_##W##_##V({', '.join(declared)}) {{"]
    body += [f"  typedef void function({', '.join(declared)});"]
    body += [f"  function *original = (function *)OA_ORIGINAL({form}_{name}_originals_##W, V);"]
    body += [f"  if (oa_program_is_small({_sizes(hooked, by_address)})) {{"]
    body += [f"    original({', '.join(passed)});", "    return;", "  }"]
    body += [f"  {form}_{name}_##W({', '.join([*passed, 'original'])});", "}"]
    large = [
        f"static OA_LARGE void {form}_{name}_##W({', '.join(declared)}, void (*original)({', '.join(declared)})) {{"
    ]
    large += [f"  {name}_arguments a = {{{values}}};", "  oa_program_call call;"]
    if order:
        large += [f"  if ({order} == 101) {{", *(f"    {line}" for line in _by_columns(hooked)), "  }"]
        large += [f"  if ({order} != 101 && {order} != 102) a.{hooked.parameters[0].name} = 0; /* is refused */"]
    large += [f"  if ({name}_try(&a, &call)) return;", f"  original({', '.join(passed)});"]
    large += ["  oa_program_by_host(&call);", "}"]
    lines = [f"#define {form.upper()}_{name}(INT, W)", *large]
    lines += [f"#define {form.upper()}_{name}_VARIANT(INT, W, V)", *body]
    return _macros(lines)


def _macros(lines: list[str]) -> list[str]:
    """Return the lines with a backslash at the end of each but the last line of a macro."""
    broken = [piece for line in lines for piece in wrapped(line)]
    return [f"{line} \\" if at + 1 < len(broken) and not broken[at + 1].startswith("#define") else line
            for at, line in enumerate(broken)]  # fmt: skip


def _instances(name: str, forms: tuple[str, ...], variants: int) -> list[str]:
    lines = []
    for form in forms:
        for integer, width in (("int32_t", 32), ("int64_t", 64)):
            label = f"{form}_{name}"
            lines += [f"static _Atomic(void *) {label}_originals_{width}[OA_HOOK_VARIANTS];"]
            lines += [f"{form.upper()}_{name}({integer}, {width})"]
            lines += [f"{form.upper()}_{name}_VARIANT({integer}, {width}, {v})" for v in range(variants)]
            hooks = ", ".join(f"(void *){label}_{width}_{v}" for v in range(variants))
            lines += wrapped(f"static void *const {label}_hooks_{width}[OA_HOOK_VARIANTS] = {{{hooks}}};")
    return [*lines, ""]


def hooks_file(libraries: list[Library]) -> str:
    """Return hooks.c, with the hooks of LAPACK and of all routines of the portable BLAS of C."""
    variants = 4  # OA_HOOK_VARIANTS
    library = next((library for library in libraries if library.name == _FIRST), None)
    functions = [function for function in library.functions if function.family in _FAMILIES] if library else []
    functions = [function for function in functions if function.name[0] in "sdcz" and function.form == ""]
    lines = ["/* Generated by bindings/emit/hooks.py from api/cblas.json and roles/cblas.toml. */"]
    lines += [
        '#include "accelerate/lapack.h"',
        '#include "accelerate/program_call.h"',
        '#include "offload_args_blas.h"',
        "",
    ]
    lines += ["#define OA_LARGE __attribute__((noinline, cold))"]
    lines += ["#define OA_ORIGINAL(originals, V) atomic_load_explicit(&originals[V], memory_order_relaxed)"]
    lines += [
        "#define OA_CONJUGATE(z) _Generic((z), float _Complex: __builtin_conjf, double _Complex: __builtin_conj)(z)"
    ]
    lines += ['#pragma GCC diagnostic ignored "-Wpedantic"', ""]
    lapack = lapack_routines() if functions else []
    loops = loop_routines() if functions else {}
    names = sorted([*lapack, *loops, *(function.name for function in functions)])
    numbers = {name: at for at, name in enumerate(names)}
    routines = [_Hooked(function, library.constants, numbers[function.name]) for function in
                sorted(functions, key=lambda function: function.name)] if library else []  # fmt: skip
    count = len(numbers)
    lines += [f"static const oa_hooked routines[{count + 1}];", ""]
    for hooked in routines:
        lines += _definition(hooked) + _hook(hooked, False) + _hook(hooked, True) + [""]
        lines += _instances(hooked.name, ("cblas", "fortran"), variants)
    for name in lapack:
        lines += [*_macros(lapack_hook(name, numbers[name])), "", *_instances(name, ("fortran",), variants)]
    families = sorted({name[1:] for name in numbers if name not in loops})
    lines += wrapped(f"static const char *const families[] = {{{', '.join([*map(quoted, families), 'NULL'])}}};")
    lines += [f"static const oa_hooked routines[{count + 1}] = {{"]
    rows = {name: lapack_row(name, numbers[name], families.index(name[1:])) for name in lapack}
    rows |= {name: loop_row(name, numbers[name], families.index(family)) for name, family in loops.items()}
    for hooked in routines:
        name = hooked.name
        dtype = next(array.dtype for array in hooked.arrays).upper()
        hooks, originals = ("{" + ", ".join("{" + ", ".join(f"{form}_{name}_{table}_{w}" for w in (32, 64)) + "}"
                            for form in ("cblas", "fortran")) + "}" for table in ("hooks", "originals"))  # fmt: skip
        family = families.index(name[1:])
        rows[name] = wrapped(f'    {{"{name}", {family}, OA_{dtype}, {hooked.number}, {hooks}, {originals}}},')
    for name in numbers:
        lines += rows[name]
    lines += ["    {0},", "};"]
    products = [f"{name}_square" if name in numbers else "NULL" for name in ("sgemm", "dgemm")]
    for name, handle in (("sgemm", "oa_f32 *"), ("dgemm", "oa_f64 *")):
        if name in numbers:
            lines += [f"static int {name}_square(int64_t n, oa_any *A, oa_any *C) {{"]
            lines += [f"  return oa_blas_{name}(OA_BLAS_NO_TRANS, OA_BLAS_NO_TRANS, n, n, n, 1, ({handle})A, n,"]
            lines += [f"                       ({handle})A, n, 0, ({handle})C, n);", "}"]
    lines += [f"const oa_hook_table oa_hooks = {{routines, {count}, families, {{{', '.join(products)}}}}};"]
    return "\n".join([*lines, ""])
