"""Rewrites this project's docstrings in the form that autodoc reads. They are plain text with `code`, indented programs
and the parameters as lines `name: text`.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import re
import textwrap
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import offload_args
from offload_args import errors

if TYPE_CHECKING:
    from sphinx.application import Sphinx

RAISED = re.compile(rf"(?<![`\w.])({'|'.join(errors.__all__)})\b")
NAME = re.compile(r"(?:^|(?<=[.:] ))((?:\w+, )*\w+):\s", re.MULTILINE)


def _names(thing: Any) -> set[str]:
    """Return the names of the parameters of a function or a class."""
    try:
        return set(inspect.signature(thing).parameters)
    except (TypeError, ValueError):
        return set()


def _linked(text: str) -> str:
    """Return a text with its code as reStructuredText has it, and with links to the exceptions and to pages."""
    pieces = re.split(r"(`+[^`]+`+)", text)
    for at, piece in enumerate(pieces):
        if piece.startswith("`"):
            pieces[at] = f"``{piece.strip('`')}``"
        else:
            piece = re.sub(r"([*|\\_])", r"\\\1", piece)
            piece = RAISED.sub(r":py:exc:`~offload_args.errors.\1`", piece)
            pieces[at] = re.sub(r"\bdocs/([\w/-]+)\.md\b", r":doc:`/\1`", piece)
    return "".join(pieces)


def _parameters(paragraph: str, names: set[str]) -> list[str]:
    """Return a paragraph about parameters as a list, one item each; [] if it is about none."""
    starts = [match for match in NAME.finditer(paragraph) if set(match[1].split(", ")) <= names]
    if not starts or starts[0].start():
        return []
    ends = [start.start() for start in starts[1:]] + [len(paragraph)]
    lines = []
    for start, end in zip(starts, ends, strict=True):
        code = ", ".join(f"``{name_}``" for name_ in start[1].split(", "))
        text = " ".join(paragraph[start.end() : end].split())
        lines.append(f"* {code}: {_linked(text)}")
    return lines


def _see_also(text: str) -> str:
    """Return the functions and the page of the guide in a docstring's last line, as links."""
    groups = text.removeprefix("See also:").strip().removesuffix(".").split(";")
    pieces = []
    for group in groups:
        links = []
        for name in (name_.strip() for name_ in group.split(",")):
            page = re.fullmatch(r"docs/(.*)\.md", name)
            target = name.replace("kernels.here.", "kernels.python.words.Here.")  # the class of `here` has its methods
            links.append(f":doc:`/{page[1]}`" if page else f":py:obj:`{name} <offload_args.{target}>`")
        pieces.append(", ".join(links))
    return f":See also: {'; '.join(pieces)}"


def _program(paragraph: str) -> list[str]:
    """Return an indented paragraph as a block, which is coloured if it is Python."""
    try:
        ast.parse(textwrap.dedent(paragraph))
    except SyntaxError:
        return ["::", "", *paragraph.splitlines(), ""]
    return [".. code-block:: python", "", *paragraph.splitlines(), ""]


def rewritten(lines: list[str], names: set[str]) -> list[str]:
    """Return a docstring's lines as reStructuredText; names: the names of the parameters."""
    results: list[str] = []
    text = re.sub(r"(?<=\S)\n(?=1\. )", "\n\n", "\n".join(lines).strip("\n"))  # a list
    listed = False
    for paragraph in re.split(r"\n\s*\n", text):
        items = _parameters(paragraph, names)
        if items and listed:  # one list for all parameters
            results.pop()
            results += [*(f"  {item}" for item in items), ""]
            continue
        listed = bool(items)
        if paragraph.startswith(" "):  # a program
            results += _program(paragraph)
        elif paragraph.startswith("See also: "):
            results += [_see_also(" ".join(paragraph.split())), ""]
        elif items:
            results += [":Parameters:", *(f"  {item}" for item in items), ""]
        else:
            results += [*_linked(paragraph).splitlines(), ""]
    return results


# Programs get objects of these classes from other objects, and make none themselves.
_GIVEN = set(
    "Kernel LibraryObject Module Moved Plan Raw Stream Summary SupportsStream Tensor Timeline Trace Update".split()
)


def rewrite(app: Sphinx, kind: str, name: str, thing: Any, options: Any, lines: list[str]) -> None:
    """Rewrite the docstring that autodoc reads of an object of the package."""
    if lines and lines[0].startswith("Alias for field number"):  # a named tuple's field without a comment
        lines[:] = []
    if name.startswith("offload_args"):
        lines[:] = rewritten(lines, _names(thing))


@cache
def _declared(path: Path) -> dict[str, ast.AST]:
    """Return the functions, classes and methods that a source or stub declares, by name."""
    tree = ast.parse(path.read_text())
    results: dict[str, ast.AST] = {}
    for node in tree.body:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            results[node.name] = node
            for inner in node.body:
                if isinstance(inner, ast.FunctionDef):
                    results[f"{node.name}.{inner.name}"] = inner
    return results


def typed(thing: Any, names: list[str]) -> tuple[str, str | None] | None:
    """Return the signature, with types, of the first of these names in the extension's stub; None if none is in it."""
    if getattr(thing, "__module__", None) != "offload_args._core":
        return None
    stub = _declared(Path(offload_args.__file__).with_name("_core.pyi"))
    declared = next((stub[name] for name in names if name in stub), None)
    if not isinstance(declared, ast.FunctionDef):
        return None
    arguments = declared.args
    if arguments.args and arguments.args[0].arg == "self":
        arguments = ast.arguments(
            arguments.posonlyargs,
            arguments.args[1:],
            arguments.vararg,
            arguments.kwonlyargs,
            arguments.kw_defaults,
            arguments.kwarg,
            arguments.defaults,
        )
    returns = ast.unparse(declared.returns) if declared.returns and not isinstance(thing, type) else None
    return f"({ast.unparse(arguments)})", returns


def _evaluated(thing: Any, signature: str) -> str:
    """Return a signature with the values of private constants in the places of their names."""

    def value(constant: re.Match[str]) -> str:
        return repr(getattr(importlib.import_module(thing.__module__), constant[0]))

    return re.sub(r"(?<== )_[A-Z]\w*", value, signature)


def sign(
    app: Sphinx, kind: str, name: str, thing: Any, options: Any, signature: str | None, returns: str | None
) -> tuple[str, str | None] | None:
    """Return an object's signature: from the extension's stub if it is written in C, else with evaluated constants."""
    if kind == "class" and (thing.__name__ in _GIVEN or issubclass(thing, tuple)):
        return "", None
    if kind == "class" and any(name.startswith("_") for name in _names(thing)):  # private fields of a dataclass
        from sphinx.util.inspect import stringify_signature  # tests read this file without Sphinx

        results = inspect.signature(thing)
        public = [parameter for parameter in results.parameters.values() if not parameter.name.startswith("_")]
        results = results.replace(parameters=public, return_annotation=inspect.Signature.empty)
        return stringify_signature(results, unqualified_typehints=True), None
    if kind == "class":
        owner = next((class_ for class_ in thing.__mro__ if class_.__module__ == "offload_args._core"), thing)
        signed = typed(owner, [f"{class_.__name__}.__init__" for class_ in thing.__mro__])
        if signed:
            return signed[0], None
    elif signed := typed(thing, [getattr(thing, "__qualname__", "")]):
        return signed
    return (_evaluated(thing, signature), returns) if signature else None
