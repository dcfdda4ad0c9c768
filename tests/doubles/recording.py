"""Writes a double of a vendor's library in C that records its arguments, instead of computing.

    python tests/doubles/recording.py cublas > cublas.c
    gcc -shared -fPIC -pthread -o libcublas.so cublas.c

It has every function of bindings/api/<library>.json, with the same prototype. Each function notes the width and value
of every argument, in order, and returns the value that the test has set. It reads at a pointer only as many bytes
as the test sets, so it never reads at a device pointer. tests/recording/recorder.py reads the notes.

    python tests/doubles/recording.py cublas --compare > cublas.c
    gcc -fsyntax-only -Werror -I FOLDER cublas.c

compiles if the vendor's header has the same prototypes.
"""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path

import numpy as np

ROOT = Path(__file__).parents[2]
sys.path.append(str(ROOT))  # last, so that the installed offload_args is imported, not its sources

from bindings import roles  # noqa: E402
from bindings.helper_functions import struct_fields  # noqa: E402
from bindings.labelled import ObjectKind  # noqa: E402
from bindings.parameters import WorkspaceSize  # noqa: E402

MOST_ARGUMENTS, MOST_RECORDS, MOST_BYTES, MOST_VALUE = 40, 64, 256, 128

PRELUDE = f"""
#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum {{ MOST_ARGUMENTS = {MOST_ARGUMENTS}, MOST_RECORDS = {MOST_RECORDS}, MOST_BYTES = {MOST_BYTES} }};
enum {{ MOST_VALUE = {MOST_VALUE} }}; /* the bytes of a struct by value */
"""

# The recorder's functions use this text, and the test uses it by ctypes.
MACHINE = """
/* An argument as it came: so many bytes, its value, and the bytes at it if it is a pointer into the host. */
struct argument {
  int32_t width, peeked;
  unsigned char value[MOST_VALUE];
  unsigned char behind[MOST_BYTES];
};
struct record {
  int32_t function, count;
  struct argument arguments[MOST_ARGUMENTS];
};
/* The test's wishes for an argument: how many bytes at its address are noted, then how many are written there. */
struct wish {
  int32_t peek, poke;
  unsigned char bytes[MOST_BYTES];
};
struct recorder {
  int32_t count;              /* of records, also of those that found no room */
  unsigned char returned[16]; /* what every function returns */
  void (*wait)(void);         /* for the device, before bytes are written; NULL does not wait */
  struct wish wishes[MOST_ARGUMENTS];
  struct record records[MOST_RECORDS];
};
struct held { /* a handle */
  void *stream;
  int64_t mode;
};

__attribute__((visibility("default"))) struct recorder recorder = {.returned = {RETURNED_AT_FIRST}};
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static struct argument *note(struct record *record, const void *value, size_t width) {
  const int at = record->count++;
  struct argument *argument = &record->arguments[at];
  argument->width = (int32_t)width;
  argument->peeked = 0;
  memset(argument->value, 0, sizeof argument->value);
  memcpy(argument->value, value, width < sizeof argument->value ? width : sizeof argument->value);
  return argument;
}
static void note_pointer(struct record *record, const void *pointer) {
  const struct wish *wish = &recorder.wishes[record->count];
  struct argument *argument = note(record, &pointer, sizeof pointer);
  argument->peeked = pointer ? wish->peek : 0;
  if (argument->peeked) memcpy(argument->behind, pointer, (size_t)argument->peeked);
  if (pointer && wish->poke && recorder.wait) recorder.wait();
  if (pointer && wish->poke) memcpy((void *)(uintptr_t)pointer, wish->bytes, (size_t)wish->poke);
}
/* Behind a handle are its stream and its mode. */
__attribute__((unused)) static void note_handle(struct record *record, const void *handle) {
  struct argument *argument = note(record, &handle, sizeof handle);
  argument->peeked = handle ? (int32_t)sizeof(struct held) : 0;
  if (handle) memcpy(argument->behind, handle, sizeof(struct held));
}
static struct record *begin(int32_t function) {
  static struct record lost;
  pthread_mutex_lock(&lock);
  struct record *record = recorder.count < MOST_RECORDS ? &recorder.records[recorder.count] : &lost;
  recorder.count++;
  record->function = function;
  record->count = 0;
  return record;
}
static void end(void *returned, size_t width) {
  if (width) memcpy(returned, recorder.returned, width);
  pthread_mutex_unlock(&lock);
}
"""


def declared(c_type: str, name: str) -> str:
    """Return the declaration of a parameter."""
    if c_type == "...":
        return c_type
    if c_type.endswith("[]"):
        return f"{c_type.removesuffix('[]')} *{name}"
    return f"{c_type}{'' if c_type.endswith('*') else ' '}{name}"


def is_pointer(c_type: str) -> bool:
    """Return whether the spelling of a parameter's type shows that it is a pointer."""
    return c_type.endswith(("*", "]"))


def own_types(library: roles.Library, wide: bool) -> list[str]:
    """Return definitions of the header's types: enums are int, and other types are as in [raw] of the roles file."""
    lines = []
    known = library.raw | library.integers | {"blasint": "int64_t" if wide else "int"}
    known |= {"openblas_complex_float": "float _Complex", "openblas_complex_double": "double _Complex"}
    words = {
        word
        for function in library.api["functions"].values()
        for c_type in [function["returns"], *(kind for _, kind in function["parameters"])]
        for word in re.findall(r"(?:enum |struct )?\w+", c_type)
    }
    words |= {c_type for inside in fields(library).values() for _, c_type in inside if c_type in library.api["enums"]}
    for word in sorted(words):
        if word.startswith("enum "):
            lines.append(f"{word} {{ {word[5:]}_ZERO, {word[5:]}_LARGE = 1 << 30 }};")
        elif word.startswith("struct "):
            lines.append(f"{word};")
        elif word in known:
            lines.append(f"typedef {known[word]} {word};")
        elif word in library.api["enums"]:
            lines.append(f"typedef int {word};")
    return lines


def handle_functions(library: roles.Library) -> dict[str, str]:
    """Return {name: body} of the functions that the core calls for handles; these functions do real work."""
    if not library.handle:
        return {}
    bodies = {
        "create": "*{0} = calloc(1, sizeof(struct held));",
        "destroy": "free({0});",
        "set_stream": "((struct held *){0})->stream = {1};",
        "get_stream": "*{1} = ((struct held *){0})->stream;",
        "set_pointer_mode": "((struct held *){0})->mode = (int64_t){1};",
        "get_pointer_mode": "memset({1}, 0, sizeof *{1}); *(int *){1} = (int)((struct held *){0})->mode;",
    }
    working = {library.handle[key]: body for key, body in bodies.items() if key in library.handle}
    for kind in library.object_kinds if "create" not in library.handle else []:
        if kind.is_handle:  # functions that take settings can make one, too
            working[kind.destroy] = bodies["destroy"]
            for name, entry in library.api["functions"].items():
                if entry["parameters"] and entry["parameters"][0][1] == f"{kind.type} *":
                    working[name] = bodies["create"]
    return working


WORKSPACE, HOST_WORKSPACE = 24, 40  # every query returns these numbers of bytes


def queries(library: roles.Library) -> dict[str, str]:
    """Return {name: body} of the functions that return the sizes of workspaces."""
    sizes = {False: WORKSPACE, True: HOST_WORKSPACE}
    return {
        function.query: " ".join(
            f"*{{{at}}} = {sizes[parameter.on_host]};"
            for at, (parameter, _) in enumerate(function.asked)
            if isinstance(parameter, WorkspaceSize)
        )
        for function in library.functions
        if function.query
    }


def version_function(library: roles.Library) -> dict[str, str]:
    """Return the body of the function that returns the version of the header, or the version of the newest function."""
    name, gives = library.find["version"]
    versions = [library.version, *(function.since[0] for function in library.functions if function.since)]
    version = max(versions, key=lambda version: [int(part) for part in re.findall(r"\d+", version)])
    parts = [*re.findall(r"\d+", version), "0", "0"][:3]
    body = {
        "parts": f"static const int parts[] = {{{{{', '.join(parts)}}}}}; *{{1}} = parts[{{0}}];",
        "buffer": f'strncpy({{0}}, "{version}", {{1}});',
        "number": f"*{{0}} = {parts[0]};",
    }
    return {name: body[gives]} if gives in body else {}


# Each descriptor of a double describes ELEMENTS elements of float, and queries return NEEDED bytes. The six numbers are
# the padding, strides and dilation of a convolution.
SHAPES = {4: (2, 3, 4, 5), 3: (2, 3, 20), 6: (1, 1, 1, 1, 1, 1)}
ELEMENTS, NEEDED = 120, 64
# Each layout describes 30 matrices of 2 by 2.
LAYOUT = (0, 0, 2, 2, 2, 30, 4)


def shape_of(kind: ObjectKind) -> tuple[int, ...]:
    """Return the shape that an object of a kind has."""
    return SHAPES[len(re.findall(r"shape\[\d\]", kind.describes[1])) or 4]


def asked_functions(library: roles.Library) -> dict[str, str]:
    """Return {name: body} of the functions that the core queries for extents; all descriptors report the same."""
    bodies: dict[str, str] = {}
    for kind in library.object_kinds:
        called, words, size = kind.describes
        if words == "attributes":  # dtype, order, rows, columns, ld, batches and their stride
            facts = f"static const int64_t facts[9] = {{{{{', '.join(map(str, LAYOUT))}}}}};"
            copied = "if ({2} && {1} < 9) memcpy({2}, &facts[{1}], {3});"
            bodies[called] = f"{facts} {copied} if ({{4}}) *{{4}} = {{3}};"
            continue
        lines = []
        shape = shape_of(kind)
        strides = [ELEMENTS // int(np.prod(shape[: at + 1])) for at in range(len(shape))]
        for at, word in enumerate(words.split(), 1):
            place = re.fullmatch(r"shape\[(\d)\]", word)
            values = {"shape": shape, "strides": strides, "rank": (len(shape),), "dtype": (0,)}.get(word, ())
            values = (shape[int(place[1])],) if place else (0,) if word.startswith("layout") else values
            lines += [f"((int *){{{at}}})[{i}] = {value};" for i, value in enumerate(values)]
        if called:
            bodies[called] = " ".join(lines)
        if size:
            bodies[size] = f"*{{1}} = {4 * ELEMENTS};"
    for function in library.functions:
        for query in filter(None, (getattr(array, "query", None) for array in function.arrays)):
            parameters = library.api["functions"][query.symbol]["parameters"]
            outputs = [at for at, (_, c_type) in enumerate(parameters) if c_type == "size_t *"]
            bodies[query.symbol] = "".join(f"\n  if ({{{at}}}) *{{{at}}} = {NEEDED};" for at in outputs)
    return bodies


def tried_functions(library: roles.Library) -> dict[str, str]:
    """Return {name: body} of the functions whose unit of strides a first call shows; that call is not noted."""
    bodies = {}
    for function in library.functions:
        if any(size.is_tried for size in function.sizes):
            at = {parameter.name: f"{{{place}}}" for place, parameter in enumerate(function.arguments)}
            c_type = {"c64": "float _Complex", "c128": "double _Complex"}[function.arrays[0].dtype]
            A, B, C = (f"(({c_type} *){at[name]})[b * {at[f'stride{name.lower()}']}]" for name in ("A", "B", "C"))
            is_first = " && ".join(f"{at[name]} == {n}" for name, n in (("m", 1), ("n", 1), ("k", 1), ("stridea", 2)))
            loop = f"for (int b = 0; b < {at['group_size']}; b++) {C} = {A} * {B};"
            bodies[function.symbol] = f"if ({is_first}) {{{{ {loop} recorder.count--; }}}}"
    return bodies


def object_functions(library: roles.Library) -> dict[str, str]:
    """Return the bodies of the functions that make and destroy objects, by name."""
    numbered = {kind.key for kind in library.object_kinds if library.raw.get(kind.type) == "int"}
    object_functions = {
        kind.destroy: "" if kind.key in numbered else "free((void *){0});" for kind in library.object_kinds
    }
    for function in library.functions:
        for parameter in function.parameters:
            if getattr(parameter, "object_kind", None) and parameter.role == "gives":
                types = [c_type for _, c_type in library.api["functions"][function.symbol]["parameters"]]
                new = "(void *)calloc(1, 8)" if parameter.object_kind.key not in numbered else "recorder.count + 7"
                object_functions[function.symbol] = f"*{{{types.index(parameter.c_type)}}} = {new};"
    return object_functions


# {name in [object.<name>.tells]: the number that every object reports}.
TOLD = {"ranks": 3, "rank": 1}


def told_functions(library: roles.Library) -> dict[str, str]:
    """Return {name: body} of the functions that return numbers of objects."""
    told = (pair for kind in library.object_kinds for pair in kind.tells)
    return {symbol: f"*{{1}} = {TOLD[name]};" for name, symbol in told}


def working(library: roles.Library) -> dict[str, str]:
    """Return {name: body} of all functions that do more than note their arguments."""
    built = object_functions(library) | handle_functions(library)
    built |= told_functions(library)
    return built | version_function(library) | asked_functions(library) | queries(library)


def fields(library: roles.Library) -> dict[str, list[tuple[str, str]]]:
    """Return name and C type of each field of the structs whose fields are parameters, by the function and the struct.

    The double reads such a struct behind its pointer, and notes the fields instead of the struct.
    """
    fields: dict[str, list[tuple[str, str]]] = {}
    for function in library.functions:
        for name, c_type in library.api["functions"][function.symbol]["parameters"]:
            if any(other.field_of == name for other in function.arguments):
                pointee = c_type.removeprefix("const ").removesuffix("*").strip()
                fields[f"{function.symbol} {name}"] = struct_fields(library.raw[pointee])
    return fields


def notes(expression: str, c_type: str) -> str:
    """Return the statement that notes a value."""
    if is_pointer(c_type):
        return f"  note_pointer(record, (const void *){expression});"
    return f"  note(record, &{expression}, sizeof {expression});"


def function(
    library: roles.Library, index: int, name: str, values: dict[str, str], structs: dict[str, list[tuple[str, str]]]
) -> str:
    """Return the C text of one function.

    `values` has the bodies of functions that do real work, by name; `structs` is from `fields`.
    """
    entry = library.api["functions"][name]
    parameters = [(label or f"p{at}", kind) for at, (label, kind) in enumerate(entry["parameters"])]
    labels = [label for label, _ in parameters]
    listed = ", ".join(declared(kind, label) for label, kind in parameters) or "void"
    returns = entry["returns"]
    lines = [f"{declared(returns, name)}({listed}) {{"]
    lines.append(f"  struct record *record = begin({index});\n  (void)record;")
    handle = library.handle["type"] if library.handle else None
    for label, kind in parameters:
        if kind == "...":
            break
        if kind == handle:
            lines.append(f"  note_handle(record, {label});")
        elif f"{name} {label}" in structs:
            lines += [notes(f"{label}->{field}", c_type) for field, c_type in structs[f"{name} {label}"]]
        else:
            lines.append(notes(label, kind))
    if name in values:
        lines += [f"  {values[name].format(*labels)}", "  end(NULL, 0);"]
        return "\n".join([*lines, *([] if returns == "void" else [f"  return ({returns}){library.success};"]), "}"])
    if returns == "void":
        return "\n".join([*lines, "  end(NULL, 0);", "}"])
    return "\n".join([*lines, f"  {declared(returns, 'returned')};", "  end((void *)&returned, sizeof returned);"]) + (
        "\n  return returned;\n}"
    )


def text(library: roles.Library, wide: bool = False) -> str:
    """Return the C text of a library's double; with `wide`, the integers of a library with two builds have 64 bits."""
    # Before the test begins, the core may call the function that shows the size of the library's integers.
    at_first = "0" if wide or not library.probe else "2"
    arguments, structs = working(library) | tried_functions(library), fields(library)
    functions = (
        function(library, index, name, arguments, structs) for index, name in enumerate(library.api["functions"])
    )
    machine = MACHINE.replace("RETURNED_AT_FIRST", at_first)
    return "\n".join([PRELUDE, *own_types(library, wide), machine, *functions, ""])


def comparison(library: roles.Library, older: bool = False) -> str:
    """Return C or C++ that compiles if the vendor's header has every function with the prototype of the api file.

    `older`: whether the header belongs to the older version of the api file.
    """
    api = library.api["older"] if older else library.api
    prefix = roles.read_roles(library.name)["header"].get("prefix", "")
    lines = [f"#include <{library.api['header']}>", ""]
    for index, (name, entry) in enumerate(api["functions"].items()):
        if older or name not in library.api.get("older", {}).get("only", ()):
            types = ", ".join(kind.replace("[]", "*") for _, kind in entry["parameters"]) or "void"
            pointer = declared(entry["returns"], f"(*const at_{index})")
            lines.append(f"__attribute__((unused)) static {pointer}({types}) = {prefix}{name};")
    return "\n".join([*lines, ""])


def main() -> None:
    """Write the double that the command line requests to standard output."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("library")
    parser.add_argument("--wide", action="store_true", help="integers of 64 bits, where the library has such builds")
    parser.add_argument("--compare", action="store_true", help="write what compares the api file with the header")
    parser.add_argument("--older", action="store_true", help="compare the header of the older version")
    args = parser.parse_args()
    library = next((library for library in roles.load() if library.name == args.library), None)
    if library is None:
        parser.error(f"there is no library {args.library}")
    sys.stdout.write(comparison(library, args.older) if args.compare else text(library, args.wide))


if __name__ == "__main__":
    main()
