"""The directives of the reference, which make nodes of the data in _records.py and _headers.py.

They make nodes, and no text to be parsed, because there are some thousands of names.
"""

from __future__ import annotations

import argparse
import re
import textwrap
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path

from _headers import INCLUDE, Unit, is_cpp, part_of
from _records import (
    ROLES,
    Group,
    c_lines,
    constants,
    groups,
    joined,
    letters,
    libraries,
    sections,
    see_also,
    slug,
    vendor_names,
)
from docutils import nodes
from sphinx import addnodes
from sphinx.util.docutils import SphinxDirective

from bindings import roles
from bindings.emit.docs import signature
from bindings.roles import Function, Library
from offload_args import command


def _literals(names: Iterable[str]) -> list[nodes.Node]:
    literals: list[nodes.Node] = []
    for name in names:
        literals += [nodes.Text(", ")] if literals else []
        literals.append(nodes.literal(name, name))
    return literals


def _field(name: str, *content: nodes.Node) -> nodes.field:
    return nodes.field("", nodes.field_name(name, name), nodes.field_body("", *content))


class Routines(SphinxDirective):
    """The entries of a section of a library's routines: `{routines} cublas` with the section's title."""

    required_arguments = 1
    has_content = True

    def run(self) -> list[nodes.Node]:
        library = libraries()[self.arguments[0]]
        self._depends_on(library)
        functions = sections(library)["\n".join(self.content)]
        return [self._entry(library, group) for group in groups(library, functions)]

    def _depends_on(self, library: Library) -> None:
        own = Path(__file__).with_name("_records.py")  # it divides sections into pages
        for path in [*ROLES.glob("*.toml"), roles.HERE / "api" / f"{library.name}.json", own]:
            self.env.note_dependency(str(path))

    def _entry(self, library: Library, group: Group) -> nodes.Node:
        _, said = group[0]
        content = addnodes.desc_content("", nodes.paragraph("", "", *_with_code(said.summary)))
        if said.deprecated:
            text = f"Deprecated: {said.deprecated}"
            content += nodes.paragraph(text, text, classes=["deprecated"])
        content += nodes.field_list("", *self._fields(library, group))
        entry = addnodes.desc("", self._head(library, group), content, domain="py", objtype="function", desctype="")
        entry["classes"] += ["py", "function"]
        return entry

    def _head(self, library: Library, group: Group) -> addnodes.desc_signature:
        """Return the names of the routines with their parameters, as the target of links to each."""
        names = [function.name for function, _ in group]
        shown = ", ".join(names) if len(names) < 3 else f"{names[0]}, … {names[-1]}"
        head = addnodes.desc_signature("", "", _toc_name=shown, _toc_parts=(library.name, names[0]))
        head["classes"] += ["sig", "sig-object", "py"]
        head += addnodes.desc_addname("", f"{library.name}.")
        for name in names:
            head += [addnodes.desc_sig_punctuation("", ", ")] if name != names[0] else []
            head += addnodes.desc_name(name, name)
            anchor = f"offload_args.{library.name}.{name}"
            head["ids"].append(anchor)
            self.env.domains.python_domain.note_object(anchor, "function", anchor, location=head)
        function = group[0][0]
        head += addnodes.desc_sig_punctuation("", "(")
        head += nodes.inline("", signature(library, function), classes=["sig-param"])
        head += addnodes.desc_sig_punctuation("", ")")
        for function, _ in group:
            self._note_vendors(library, function, f"offload_args.{library.name}.{function.name}", head)
        return head

    def _note_vendors(self, library: Library, function: Function, anchor: str, head: nodes.Element) -> None:
        # If several routines call one symbol, the symbol belongs to the first routine.
        domain = self.env.domains.standard_domain
        for symbol, _ in vendor_names(library, function):
            if symbol and ("vendor", symbol) not in domain.objects:
                domain.note_object("vendor", symbol, anchor, location=head)

    def _fields(self, library: Library, group: Group) -> Iterator[nodes.field]:
        said = group[0][1]
        dtypes = letters(group)
        rows = [(letter, [f"{', '.join(column)}, in the order of the names"]) for column, letter in dtypes.items()]
        for at, (names, _) in enumerate(said.parameters):
            rows.append((names, [other.parameters[at][1] for _, other in group]))
        rows += [("handle", [said.handle])] if said.handle else []
        if rows:
            items = nodes.bullet_list("")
            for names, texts in rows:
                text = joined(tuple(texts), dtypes)
                line = [*_literals(names.split(", ")), nodes.Text(f": {text.removesuffix('.')}")]
                items += nodes.list_item("", nodes.paragraph("", "", *line))
            yield _field("Parameters", items)
        if said.needs:
            yield _field("Needs", nodes.paragraph(said.needs, said.needs))
        for at, _ in enumerate(said.returns):
            text = joined(tuple(description.returns[at] for _, description in group), dtypes)
            yield _field("Returns", nodes.paragraph(text, text))
        called: dict[str, list[str]] = {}
        for function, _ in group:
            for symbol, remark in vendor_names(library, function):
                called.setdefault(remark, []).append(symbol)
        for remark, symbols in called.items():
            yield _field(f"Calls {remark}".strip(), nodes.paragraph("", "", *_literals(dict.fromkeys(symbols))))
        in_c = [nodes.Text("; each also with the ending "), nodes.literal("_device", "_device")]
        in_c = in_c if library.has_device_form(group[0][0]) else []
        names = [f"oa_{library.name}_{function.name}" for function, _ in group]
        yield _field("In C", nodes.paragraph("", "", *_literals(names), *in_c))
        yield _field("See also", nodes.paragraph("", "", *self._links(see_also(library, group))))

    def _links(self, names: list[str]) -> Iterator[nodes.Node]:
        """Yield links to functions, and to pages such as docs/guide/blas.md."""
        for name in names:
            page = re.fullmatch(r"docs(/.*)\.md", name)
            link = addnodes.pending_xref(
                "",
                nodes.inline(name, "") if page else nodes.literal(name, name),
                refdoc=self.env.docname,
                refdomain="std" if page else "py",
                reftype="doc" if page else "obj",
                reftarget=page[1] if page else f"offload_args.{name}",
                refexplicit=not page,
                refwarn=True,
            )
            yield from [nodes.Text(", "), link] if name != names[0] else [link]


class Constants(Routines):
    """The constants of a library's module, by the vendor's type: `{vendor-constants} cublas`."""

    has_content = False

    def run(self) -> list[nodes.Node]:
        library = libraries()[self.arguments[0]]
        self._depends_on(library)
        actual = nodes.definition_list("")
        for kind, values in constants(library).items():
            anchor = f"{library.name}-{nodes.make_id(kind)}"
            term = nodes.term("", "", nodes.literal(kind, kind), ids=[anchor])
            words: list[nodes.Node] = []
            for vendor, (name, value) in values.items():
                self._note(library, vendor, name, anchor, term)
                words += [nodes.Text(", " if words else ""), nodes.literal(name, name), nodes.Text(f" {value}")]
            text = nodes.paragraph("", "", *words)
            actual += nodes.definition_list_item("", term, nodes.definition("", text))
        return [actual]

    def _note(self, library: Library, vendor: str, name: str, anchor: str, term: nodes.Element) -> None:
        full = f"offload_args.{library.name}.{name}"
        python, standard = self.env.domains.python_domain, self.env.domains.standard_domain
        if full not in python.objects:  # an alias can be referred to, and is not in the search's index
            python.note_object(full, "data", anchor, aliased=True, location=term)
        if ("vendor-constant", vendor) not in standard.objects:
            standard.note_object("vendor-constant", vendor, anchor, location=term)


class Prototypes(Routines):
    """The functions of a library's header in C: `{prototypes} cublas` with the titles of sections, one a line."""

    def run(self) -> list[nodes.Node]:
        library = libraries()[self.arguments[0]]
        self._depends_on(library)
        results: list[nodes.Node] = []
        for title, functions in ((title, sections(library)[title]) for title in self.content):
            text = "\n".join(c_lines(library, functions))
            block = nodes.literal_block(text, text, language="text", classes=["prototypes"])
            section = nodes.section("", nodes.title(title, title), block, ids=[f"{library.name}-{slug(title)}"])
            results.append(section)
        return results


class LibraryVariables(SphinxDirective):
    """The environment variables that name the file of each library: `{library-variables}`."""

    def run(self) -> list[nodes.Node]:
        actual = nodes.bullet_list("")
        for name, library in libraries().items():
            variable = f"OFFLOAD_ARGS_{name.upper()}"
            item = nodes.list_item("", ids=[f"envvar-{variable}"])
            item += nodes.paragraph("", "", nodes.literal(variable, variable), nodes.Text(f": {library.title}"))
            self.env.domains.standard_domain.note_object("envvar", variable, f"envvar-{variable}", location=item)
            actual += item
        return [actual]


def _paragraphs(text: str) -> Iterator[nodes.Node]:
    """Yield a comment as paragraphs, and its programs as blocks."""
    parts: list[list[str]] = [[]]
    for line in text.splitlines():
        is_program = line.startswith("  ")
        goes_on = parts[-1] and parts[-1][0].startswith("  ") == is_program
        is_item = re.match(r"\d\. ", line) or (is_program and parts[-1] and re.match(r"\d\. ", parts[-1][0]))
        if not line or (is_item and not is_program) or not (goes_on or is_item):
            parts.append([])
        parts[-1] += [line] if line else []
    for part in filter(None, parts):
        if part[0].startswith("  "):
            code = textwrap.dedent("\n".join(part))
            yield nodes.literal_block(code, code, language="text")
            continue
        actual = nodes.paragraph()
        for at, piece in enumerate(re.split(r"`([^`]+)`", " ".join(line.strip() for line in part))):
            actual += nodes.literal(piece, piece) if at % 2 else nodes.Text(piece)
        yield actual


class CHeader(SphinxDirective):
    """The declarations of a public header, or of the part that the content names: `{c-header} offload_args/core.h`."""

    required_arguments = 1
    has_content = True

    def run(self) -> list[nodes.Node]:
        name = self.arguments[0]
        if (INCLUDE / name).exists():
            self.env.note_dependency(str(INCLUDE / name))
        results: list[nodes.Node] = []
        section = ""
        for unit in part_of(name, "".join(self.content)):
            if unit.section != section:
                section = unit.section
                results.append(nodes.section("", nodes.title(section, section), ids=[nodes.make_id(section)]))
            into = results[-1] if section else results
            into += self._unit(name, unit)
        return results

    def _unit(self, name: str, unit: Unit) -> list[nodes.Node]:
        built: list[nodes.Node] = []
        if unit.code:
            code = "\n".join(unit.code)
            language = "cpp" if is_cpp(name) else "c"
            block = nodes.literal_block(code, code, language=language, force=True)
            anchors = nodes.container("", block, ids=[])
            for name_ in unit.names:
                self._note(name, name_, anchors)
            built.append(anchors)
        return [*(_paragraphs(unit.comment) if unit.comment else []), *built]

    def _note(self, file: str, name: str, node: nodes.Element) -> None:
        domain = self.env.domains.standard_domain
        if ("c-name", name) not in domain.objects and (name.lower().startswith("oa_") or is_cpp(file)):
            node["ids"].append(f"c-{name}")
            domain.note_object("c-name", name, f"c-{name}", location=node)


def _with_code(text: str) -> Iterator[nodes.Node]:
    """Yield a text with its words in backticks, the names of parameters, as code."""
    for at, piece in enumerate(text.split("`")):
        yield nodes.literal(piece, piece) if at % 2 else nodes.Text(piece)


def _with_options(text: str) -> Iterator[nodes.Node]:
    """Yield a text with its words in backticks and its options, such as --json, as code, so that hyphens stay so."""
    for node in _with_code(text):
        if isinstance(node, nodes.literal):
            yield node
            continue
        for at, piece in enumerate(re.split(r"(?<!\S)(--?(?:[a-z][\w-]*)?)(?!\w)", node.astext())):
            yield nodes.literal(piece, piece) if at % 2 else nodes.Text(piece)


class CommandLine(SphinxDirective):
    """The commands of `python -m offload_args` with their options: `{command-line}`."""

    def run(self) -> list[nodes.Node]:
        self.env.note_dependency(command.__file__ or "")
        whole = command.parser()
        (commands,) = (action.choices for action in whole._actions if isinstance(action, argparse._SubParsersAction))
        return [self._section(name, parser) for name, parser in commands.items()]

    def _section(self, name: str, parser: argparse.ArgumentParser) -> nodes.Node:
        text = " ".join((parser.description or "").split())
        described = nodes.paragraph("", "", *_with_options(text))
        section = nodes.section("", nodes.title(name, name), described, ids=[f"command-{name}"])
        parser.formatter_class = partial(argparse.HelpFormatter, width=72)
        usage = "\n    ".join(line.strip() for line in parser.format_usage().removeprefix("usage: ").splitlines())
        section += nodes.literal_block(usage, usage, language="text")
        options = nodes.definition_list("")
        for action in parser._actions:
            if isinstance(action, argparse._HelpAction):  # each command has it
                continue
            named = action.option_strings or [action.metavar or action.dest]
            value = f" {action.metavar or action.dest.upper()}" if action.option_strings and action.nargs != 0 else ""
            term = nodes.term("", "", *_literals(f"{text}{value}" for text in map(str, named)))
            said = parser._get_formatter()._expand_help(action) if action.help else ""
            options += nodes.definition_list_item(
                "", term, nodes.definition("", nodes.paragraph("", "", *_with_options(said)))
            )
        section += options
        return section
