"""Checks that each file uses only the files below it, in C and in Python.

    python scripts/check_floors.py

A file uses another file if it includes or imports that file, or names a function or variable that it defines. A header
uses the files that define the names in the bodies of its inline functions. The rules are:

- A folder of csrc uses only itself and its folders in FLOORS. The core includes nothing of Python, and the extension
  includes only the public headers of the core.
- No files use each other in a circle. A C source and the header of its name count as one file.
- No two files of csrc have one name, the public headers included.

It prints one line for each fault and exits with 1, or prints nothing.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]

# {folder of csrc: the folders that it may use in addition to itself}. All folders may use the public headers.
FLOORS: dict[str, tuple[str, ...]] = {
    "base": (),
    "device": ("base",),
    "backends": ("base", "device"),
    "transfer": ("base", "device"),
    "library": ("base", "device"),
    "region": ("base", "device", "transfer", "library"),
    "call": ("base", "device", "transfer", "library", "region"),
    "kernel": ("base", "device", "transfer", "library", "region", "call"),
    "body": ("base", "device", "transfer", "library", "region", "call"),
    "graph": ("base", "device", "region", "call"),
    "accelerate": ("base", "device", "library", "region", "call"),
}
# A backend includes only these files, its own .def and the files that backends share (.inc).
BACKENDS_INCLUDE = {"device/backend.h", "base/error.h", "base/here.h"}
# {Python package: the packages of the project that it must not import}.
APART = {"offload_args": ("bindings", "tests"), "bindings": ("offload_args", "tests")}

Edge = tuple[str, str]


def code_of(text: str) -> str:
    """Return C code without its comments and the contents of its strings."""
    return re.sub(r'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"', lambda match: '""' if match[0][0] == '"' else " ", text,
                  flags=re.DOTALL)  # fmt: skip


def defined_in(code: str) -> Iterator[str]:
    """Yield the functions and variables with external linkage that C code defines, by the prefix oa_."""
    outside = r"^(?!static|extern|typedef|struct \w+ \{|enum|#|\s)"
    for match in re.finditer(outside + r"[^;{}()=]*?\b(oa_\w+)\s*\([^;{}]*\)\s*\{", code, re.MULTILINE):
        yield match[1]
    for match in re.finditer(outside + r"[\w \*]*?[ \*](oa_\w+)(?:\[[^\]]*\])*\s*(?:=|;)", code, re.MULTILINE):
        yield match[1]
    for match in re.finditer(outside + r"[\w \*]*\(\*[\w ]*\b(oa_\w+)\)\([^;{}]*\)\s*(?:=|;)", code, re.MULTILINE):
        yield match[1]


def bodies_in(code: str) -> str:
    """Return the bodies of the inline functions of a header."""
    starts = re.finditer(r"^static [^;{}]*\([^;{}]*\)\s*\{", code, re.MULTILINE)
    return "".join(code[start.end() : block_end(code, start.end())] for start in starts)


def block_end(code: str, position: int) -> int:
    """Return the end of the block that is open at a position."""
    depth = 1
    for brace in re.finditer(r"[{}]", code[position:]):
        depth += 1 if brace[0] == "{" else -1
        if not depth:
            return position + brace.start()
    return len(code)


def c_files(folder: Path, names: Iterable[str]) -> dict[str, str]:
    """Return {path from the folder: text} of the C files in these subfolders."""
    paths = (path for name in names for path in sorted((folder / name).glob("*")))
    return {str(path.relative_to(folder)): path.read_text() for path in paths if path.suffix in {".c", ".h", ".inc"}}


def unit_of(path: str) -> str:
    return path.rpartition(".")[0]


def c_edges(files: dict[str, str]) -> tuple[set[Edge], set[Edge]]:
    """Return the files that each file includes, and the units that each unit uses."""
    includes: set[Edge] = set()
    uses: set[Edge] = set()
    for path, text in files.items():
        for target in re.findall(r'^#include "([^"]+)"', text, re.MULTILINE):
            beside = path.rpartition("/")[0] + "/" + target
            target = target if target in files or beside not in files else beside
            includes.add((path, target))
            if target in files:
                uses.add((unit_of(path), unit_of(target)))
    code = {path: code_of(text) for path, text in files.items()}
    homes = {name: unit_of(path) for path in files if path.endswith(".c") for name in defined_in(code[path])}
    for path in files:
        used = bodies_in(code[path]) if path.endswith(".h") else code[path]  # a header uses only these names
        for name in set(re.findall(r"(?<!struct )\boa_\w+", used)) & homes.keys():
            uses.add((unit_of(path), homes[name]))
    return includes, {edge for edge in uses if edge[0] != edge[1]}


def floor_faults(includes: set[Edge], uses: set[Edge]) -> Iterator[Edge]:
    """Yield the uses of a folder of csrc that is not below the using folder."""
    for path, target in includes:
        own = "/" not in target or target.startswith("offload_args/") or target in BACKENDS_INCLUDE
        if path.startswith("backends/") and target.endswith(".h") and not own:
            yield path, target
    for user, used in uses:
        above, below = user.partition("/")[0], used.partition("/")[0]
        if above != below and below not in FLOORS[above]:
            yield user, used


def same_names(units: Iterable[str]) -> Iterator[Edge]:
    """Yield the pairs of files that have the same name in two folders."""
    first: dict[str, str] = {}
    for unit in sorted(units):
        other = first.setdefault(unit.rpartition("/")[2], unit)
        if other != unit:
            yield other, unit


def bridge_faults(includes: set[Edge], files: dict[str, str]) -> Iterator[Edge]:
    """Yield the core's own headers that the extension includes."""
    for path, target in includes:
        if target not in files and not target.startswith("offload_args"):
            yield path, target


def python_edges(folder: Path) -> set[Edge]:
    """Return the modules that each module of a package imports, also inside functions and for type checkers."""
    package = folder.name
    modules = {}
    for path in sorted(folder.rglob("*.py")):
        parts = (package, *path.relative_to(folder).with_suffix("").parts)
        modules[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    edges: set[Edge] = set()
    for module, path in modules.items():
        here = module if path.name == "__init__.py" else module.rpartition(".")[0]
        for node in ast.walk(ast.parse(path.read_text(), str(path))):
            if isinstance(node, ast.Import):
                targets = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                start = ".".join(here.split(".")[: len(here.split(".")) - node.level + 1]) if node.level else ""
                base = ".".join(filter(None, (start, node.module)))
                inside = [f"{base}.{alias.name}" for alias in node.names]
                # `from . import errors` imports a module of the package, or else the package itself.
                targets = [name if name in modules or compiled(folder, name) else base for name in inside]
            else:
                continue
            edges.update((module, target) for target in targets)
    for module, target in sorted(edges):
        if target.partition(".")[0] in APART.get(package, ()):
            raise SystemExit(f"{module} imports {target}: the two are apart")
    return {(module, target) for module, target in edges if target in modules and target != module}


def compiled(folder: Path, name: str) -> bool:
    """Return whether a module of the package is made by the build, as an extension or a generated module."""
    last = name.rpartition(".")[2]
    generated = {path.stem for path in (ROOT / "bindings/api").glob("*.json")}
    return name.count(".") == 1 and (last.startswith("_") or last in generated) and not (folder / f"{last}.py").exists()


def circles(edges: set[Edge]) -> list[list[str]]:
    """Return the sets of nodes that reach each other: Tarjan's strongly connected components of more than one node."""
    below: dict[str, list[str]] = {}
    for user, used in sorted(edges):
        below.setdefault(user, []).append(used)
        below.setdefault(used, [])
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    circles: list[list[str]] = []

    def visit(node: str) -> None:
        index[node] = low[node] = len(index)
        stack.append(node)
        for other in below[node]:
            if other not in index:
                visit(other)
                low[node] = min(low[node], low[other])
            elif other in stack:
                low[node] = min(low[node], index[other])
        if low[node] == index[node]:
            start = stack.index(node)
            if len(stack) - start > 1:
                circles.append(sorted(stack[start:]))
            del stack[start:]

    for node in below:
        if node not in index:
            visit(node)
    return circles


def main() -> int:
    faults = []
    core = c_files(ROOT / "csrc", FLOORS)
    faults += [f"csrc/{path} includes Python.h" for path, text in core.items() if "#include <Python.h>" in text]
    includes, uses = c_edges(core)
    for user, used in sorted(set(floor_faults(includes, uses))):
        faults.append(f"csrc: {user} uses {used}, which is not below it")
    units = {unit_of(path) for path in (*core, *c_files(ROOT / "csrc", ["include/offload_args"]))}
    faults += [f"csrc: {unit} and {other} have one name" for unit, other in same_names(units)]
    files = c_files(ROOT / "offload_args", ["_core"])
    included, extension = c_edges(files)
    faults += [f"{user} includes {used}, which is not public" for user, used in sorted(bridge_faults(included, files))]
    graphs = {
        "csrc": uses,
        "offload_args/_core": extension,
        "offload_args": python_edges(ROOT / "offload_args"),
        "bindings": python_edges(ROOT / "bindings"),
    }
    for place, edges in graphs.items():
        for circle in circles(edges):
            inside = sorted(f"{user} -> {used}" for user, used in edges if user in circle and used in circle)
            faults.append(f"{place}: a circle of {', '.join(circle)}: {'; '.join(inside)}")
    print("\n".join(faults), end="\n" if faults else "")
    return bool(faults)


if __name__ == "__main__":
    sys.exit(main())
