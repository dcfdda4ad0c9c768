"""The reference of the C API: the declarations in the headers of csrc/include, each with the comment above it.

A header is read as this project writes it: a comment is above the declarations that it explains, a blank line or the
next comment ends these, and a comment such as `-- devices ---` begins a section.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from _records import libraries, slug

from bindings.declarations import entries
from bindings.emit.blas_dispatch import portable_header

INCLUDE = Path(__file__).parents[2] / "csrc" / "include"
# The headers that a program includes; graph.h and routine.h serve the package's own extension.
HEADERS = {
    "offload_args/core.h": "Regions, pointers, devices and libraries, for every program in C.",
    "offload_args_blas.h": "The portable BLAS: one name on each device.",
    "offload_args.hpp": "The same for C++17: regions that end by themselves, failures as exceptions.",
    "offload_args/launch.h": "Kernels of the program's own: modules and launches.",
    "offload_args/kernel.h": "Kernels in C and C++ for the host, and one source for GPUs and the CPU.",
    "offload_args/kernel_call.h": "A call of such a kernel; kernel.h includes it.",
    "offload_args/kernel_elements.h": "Elements, shared memory and threads of such a kernel; kernel.h includes it.",
    "offload_args/kernel_partitions.h": "Partitions: each thread's own elements; kernel.h includes it.",
    "offload_args/shim.h": "Calls of a library that offload_args does not know.",
    "offload_args/chain.h": "Captured calls of a region, run again by one launch.",
    "offload_args/accelerate.h": "Calls of BLAS of unmodified programs.",
    "offload_args/testing.h": "Simulated devices and failing calls, for tests.",
    "offload_args/python.h": "Extensions of Python in C, C++ and Cython.",
    "offload_args/pybind11.hpp": "Pointers as arguments of functions that pybind11 wraps.",
    "offload_args/nanobind.hpp": "The same for nanobind.",
}
_BOILERPLATE = re.compile(
    r'#(ifndef|define) OFFLOAD_ARGS\w*(_H|_HPP)$|#include|#pragma|#if|#endif|#else|extern "C" \{|\}$'
)
_DECLARED = re.compile(
    r"^#define (\w+)|^\} (\w+);|^(?:typedef )?(?:struct|enum|union|class) (\w+)(?: : [\w: ]+)? \{"
    r"|^typedef struct \w+ (\w+);|^typedef [^{;]*?\(?\*?\b(oa_\w+)\)?\(|^(?!typedef|#)\w[\w<> *:]*?\b(\w+)\("
    r"|^using (\w+) =|^extern [^;(]*?\b(oa_\w+)[\[;]",
    re.MULTILINE,
)
# The sections of long headers that have pages of their own, by the pages' titles; the first page has the other
# sections.
PARTS = {
    "offload_args/core.h": {
        "regions and pointers": ("Regions", "Pointers", "Residency"),
        "devices, libraries, trace": ("Devices", "Vendor libraries", "The trace"),
    }
}
# Sections of kernel.h whose declarations serve the other sections.
_HIDDEN = {"Compilers", "Elements in memory", "Kernels as they are launched", "Blocks on the CPU"}


@dataclass
class Unit:
    """Some declarations and the comment above them; section: the heading above both, or ""."""

    comment: str = ""
    code: list[str] = field(default_factory=list)
    section: str = ""

    @property
    def names(self) -> list[str]:
        """Return the names that the code declares."""
        actual = (next(filter(None, match.groups())) for match in _DECLARED.finditer("\n".join(self.code)))
        return [name for name in dict.fromkeys(actual) if name not in ("if", "for", "while", "return", "switch")]


def _text(comment: list[str]) -> str:
    """Return a comment's text without its marks."""
    lines = [re.sub(r"^/\*|^ \*(?!/)", "", line) for line in comment]
    lines[-1] = re.sub(r" ?\*/$", "", lines[-1])
    return "\n".join(line.removeprefix(" ").rstrip() for line in lines).strip("\n")


def is_cpp(name: str) -> bool:
    return name.endswith(".hpp") or "/kernel" in name


def _without_bodies(code: list[str]) -> list[str]:
    """Return declarations of C++ without the bodies of functions and the private members of classes."""
    kept: list[str] = []
    hidden = ""
    for line in code:
        indent = line[: len(line) - len(line.lstrip())]
        if hidden:
            if line.startswith(hidden):
                hidden = ""
            continue
        if re.fullmatch(r" *private:", line):
            hidden = indent[:-1] + "}"
        elif line.endswith(") {") or re.search(r"\) (const|noexcept|const noexcept)? ?\{$", line):
            line, hidden = line.removesuffix(" {") + ";", indent + "}"
        kept += [] if "private:" in line else [line]
        if hidden and "private:" in line:
            kept.append(indent[:-1] + "};")
    return kept


def units(text: str, cpp: bool = False) -> Iterator[Unit]:
    """Yield the parts of a header: first its own comment, then its declarations."""
    unit, section = Unit(), ""
    comment: list[str] | None = None
    for line in [*text.splitlines(), ""]:
        if comment is not None:
            comment.append(line)
        elif line.startswith("/*"):
            comment = [line]
            yield unit
            unit = Unit(section=section)
        if comment is not None:
            if line.rstrip().endswith("*/"):
                text = _text(comment)
                title = re.fullmatch(r"-- (.*?) -+", text)
                section = title[1][0].upper() + title[1][1:] if title else section
                unit = Unit("" if title else text, section=section)
                comment = None
        elif line.strip():
            unit.code.append(line)
        elif not (cpp and unit.code and unit.code[-1].startswith(" ")):  # within a class of C++
            yield unit
            unit = Unit(section=section)


def _without_boilerplate(code: list[str]) -> list[str]:
    """Return the lines from the first declaration to the last one, with the conditions around these."""
    opened: list[int] = []
    around: set[int] = set()  # the lines of conditions that begin and end here and have declarations
    declared = [number for number, line in enumerate(code) if not _BOILERPLATE.match(line)]
    for number, line in enumerate(code):
        if line.startswith("#if"):
            opened.append(number)
        elif line.startswith("#endif") and opened:
            begin = opened.pop()
            if any(begin < place < number for place in declared):
                around |= {begin, number}
    shown = {*declared, *around}
    return code[min(shown) : max(shown) + 1] if shown else []


def _expanded(text: str) -> str:
    """Return a header with the lines that it makes from a .def file."""
    listed = r'^#define (OA_\w+)\((.*)\) (.*)\n#include "offload_args/(\w+)\.def"\n#undef \1\n'

    def lines(match: re.Match[str]) -> str:
        built = []
        for entry in entries(match[4]):
            line = match[3]
            for name, value in zip(match[2].split(", "), entry, strict=False):
                line = re.sub(rf"(##)?\b{name}\b(##)?", value, line)
            built.append(line)
        return "\n".join(f"  {line_}" if line_.endswith(",") else line_ for line_ in built) + "\n"

    return re.sub(listed, lines, text, flags=re.MULTILINE)


def _portable() -> str:
    """Return the header of the portable BLAS without its origin, and without the macros of C++ at its end."""
    text = portable_header(list(libraries().values())).partition("#define OA_DECLARED\n")[0]
    return re.sub(r"^/\* Generated by .*\n", "/*\n", text)


def header(name: str) -> list[Unit]:
    """Return the parts of a public header, by its name in an #include."""
    text = _portable() if name == "offload_args_blas.h" else (INCLUDE / name).read_text()
    results = list(units(_expanded(text), is_cpp(name)))
    for entry in results:
        code = _without_boilerplate(entry.code)
        if any(line.startswith("#pragma") for line in entry.code) and not code:
            entry.comment = ""  # it is about the compiler's warnings
        entry.code = _without_bodies(code)
        entry.comment = "" if re.match(r"\[?cffi ", entry.comment) else entry.comment
    return [
        entry
        for entry in results
        if entry.section not in _HIDDEN and (entry.comment or (entry.code and not is_cpp(name)))
    ]


def part_of(name: str, title: str) -> list[Unit]:
    """Return a page's part of a header; title: a part's title, or "" for the first page."""
    parts = PARTS.get(name, {})
    elsewhere = {section for sections in parts.values() for section in sections}
    return [unit for unit in header(name) if (unit.section in parts[title] if title else unit.section not in elsewhere)]


INDEX = """# The C API

One page a header, and more for a long one. The {{doc}}`guide </guide/embedding>` shows how a
program includes and links them.

{listed}

```{{toctree}}
:hidden:

{pages}
```
"""


PAGE = """# {title}

```{{c-header}} {name}
{part}
```
"""


def pages() -> Iterator[tuple[str, str]]:
    """Yield the name and the text of each page."""
    listed: list[str] = []
    texts: dict[str, str] = {}
    for name, text in HEADERS.items():
        file = re.sub(r"\W", "-", Path(name).name)
        shown = name.replace("/", "/\u200b")  # a line may break after a slash
        texts[file] = PAGE.format(title=shown, name=name, part="")
        listed.append(f"- [{name}]({file}.md): {text}")
        for part in PARTS.get(name, {}):
            of_part = f"{file}-{slug(part)}"
            texts[of_part] = PAGE.format(title=f"{shown}: {part}", name=name, part=part)
            listed.append(f"- [{name}: {part}]({of_part}.md)")
    for name, library in libraries().items():
        listed.append(f"- [offload_args_{name}.h](../{name}/c.md): the functions of {library.title}.")
    yield "c/index.md", INDEX.format(listed="\n".join(listed), pages="\n".join(texts))
    for file, text in texts.items():
        yield f"c/{file}.md", text
