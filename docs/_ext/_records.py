"""The reference of the vendors' routines as data: its pages, and the entries of each, from the generator's records.

A section of a roles file begins at a line such as `# -- level 2 ---`. A page has the families of one section, or a
part of these families. Routines that differ in dtypes only share an entry.
"""

from __future__ import annotations

import importlib
import inspect
import re
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import offload_args
from bindings import roles
from bindings.emit.c_text import wrapped
from bindings.emit.docs import HELPER_RAISES, RAISES, Description, describe, signature
from bindings.emit.wrappers import forms, prototype
from bindings.parameters import NUMPY
from bindings.roles import Function, Library
from offload_args import errors

ROLES = roles.HERE / "roles"
DTYPES = re.compile(rf"\b(?:{'|'.join(sorted(set(NUMPY.values()), key=len, reverse=True))})\b")
Group = list[tuple[Function, Description]]


@cache
def libraries() -> dict[str, Library]:
    """Return every library that is bound, by name."""
    return {library.name: library for library in roles.load()}


_read = cache(roles.read_roles)


@cache
def _headings(file: str) -> dict[str, str]:
    """Return the heading above each family of a roles file."""
    headings: dict[str, str] = {}
    heading = ""
    for line in (ROLES / f"{file}.toml").read_text().splitlines():
        if title := re.match(r"# -- (.*?)(?::.*)? -+$", line):
            heading = title[1][0].upper() + title[1][1:]
        elif heading and (family := re.match(r"\[family\.(\w+)", line)):
            headings.setdefault(family[1], heading)
    return headings


# The subjects of headings that have too many functions for a page, each with the names that it takes, in this order.
SUBJECTS = {
    "Level 1": (("Level 1 reductions", r"bf|\w*(dot|asum|nrm2)|i[sdcz]am"),),
    "Level 2": (("Level 2 on band and packed matrices", r"[sdcz][ghst][bp](mv|sv|r2?)(_|$)"),),
    "Level 3": (("Level 3 on triangles", r"[sdcz](sy|he|tr)"),),
    "Solvers in mixed precision": (("Least squares in mixed precision", r"\w+gels$"),),
    "Lower and mixed precision": (("Vectors in lower and mixed precision", r"(\w*amax|\w*amin|[a-z]+)_ex$"),),
    "Iterative refinement with settings": (("Settings of iterative refinement", r"irs_(params|infos)"),),
    "The 64-bit interface": (("Eigenvalues by the 64-bit interface", r"x(sy[eg]v|geev|stedc)"),),
    "Functions on arrays": (
        ("Causal convolutions", r"\w*causal"),
        ("Convolutions", r"\w*(conv|filter|im2col)"),
        ("Normalization", r"\w*(norm|lrn)"),
        ("Recurrent networks, attention, CTC loss", r"\w*(rnn|attn|ctc)"),
    ),
    "Settings, and queries of the library and of its objects": (
        ("Settings of recurrent networks, attention, CTC loss", r"\w*(rnn|attn|ctc|seq_data)"),
        ("Settings of convolutions", r"\w*conv(?!\w*_get_buffer)"),
        ("Settings of normalization", r"\w*(norm|lrn|_bn_)"),
        ("Settings of tensors and filters", r"\w*(tensor|filter|transform|reduction)"),
    ),
}
# The most entries of a page, which then has some 15,000 pixels. A heading with more entries is divided by subjects,
# then by forms.
MOST = 20
FORMS = {"": "", "_batched": ", batches", "_strided_batched": ", strided batches"}


def _divided(library: Library, title: str, functions: list[Function]) -> Iterator[tuple[str, list[Function]]]:
    """Yield a heading's functions as pages with their titles."""
    if len(groups(library, functions)) <= MOST:
        yield title, functions
        return
    actual: dict[str, list[Function]] = {title: []}
    for function in functions:
        fitting = (subject for subject, names in SUBJECTS.get(title, ()) if re.match(names, function.name))
        actual.setdefault(next(fitting, title), []).append(function)
    for subject, part in actual.items():
        if len(groups(library, part)) <= MOST:
            yield subject, part
            continue
        for form, words in FORMS.items():
            of_form = [function for function in part if (function.form if function.form in FORMS else "") == form]
            yield subject + words, of_form


@cache
def _sections(name: str) -> dict[str, list[Function]]:
    library = libraries()[name]
    divided = (_divided(library, title, functions) for title, functions in headings(library).items())
    return {title: functions for parts in divided for title, functions in parts if functions}


def sections(library: Library) -> dict[str, list[Function]]:
    """Return the functions of each page of a library: the functions below a heading, or a part of them."""
    return _sections(library.name)


def _files(library: Library) -> list[str]:
    """Return the roles files of a library: the files that it extends first, its own last."""
    return [library.name, *_read(library.name).get("extends", [])][::-1]


@cache
def _order_of(name: str) -> list[str]:
    return [family for file in _files(libraries()[name]) for family in _headings(file)]


def headings(library: Library) -> dict[str, list[Function]]:
    """Return the functions below each heading of a library's roles file, and of the files that it extends."""
    files = _files(library)
    headings = {family: title for file in files for family, title in _headings(file).items()}
    actual: dict[str, list[Function]] = {title: [] for file in files for title in _headings(file).values()}
    for function in library.functions:
        actual.setdefault(headings.get(function.family, "Functions"), []).append(function)
    return {title: functions for title, functions in actual.items() if functions}


def constants(library: Library) -> dict[str, dict[str, tuple[str, int]]]:
    """Return the constants of a library's module, by the vendor's type and name: the name here, and the value."""
    types = {kind: dict(values) for kind, values in library.api["enums"].items()}
    for enum in _read(library.name).get("enums", {}).values():
        types.setdefault(enum["type"], {}).update(enum.get("values", {}))
    known = library.names_here
    actual = {
        kind: {vendor: (known[vendor], value) for vendor, value in values.items() if vendor in known}
        for kind, values in types.items()
    }
    return {kind: values for kind, values in actual.items() if values}


def vendor_names(library: Library, function: Function) -> Iterator[tuple[str, str]]:
    """Yield the vendor's functions of a routine, with a remark to each."""
    older = library.older
    is_old = older is not None and function.symbol in older.only
    yield function.symbol, f"in versions before {older.before} only" if older and is_old else ""
    if function.wide_symbol:
        yield function.wide_symbol, "for sizes of 64 bits"
    if older and function.symbol in older.instead:
        yield older.instead[function.symbol], f"in versions before {older.before}"
    if function.query:
        yield function.query, "for the size of the workspace"


def slug(title: str) -> str:
    """Return a title as the name of a file."""
    return re.sub(r"[^a-z0-9]+", "-", title.casefold()).strip("-")


def groups(library: Library, functions: Iterable[Function]) -> list[Group]:
    """Return the functions in groups that differ in dtypes only."""
    results: dict[tuple[object, ...], Group] = {}
    for function in functions:
        said = describe(library, function)
        texts = (*(f"{names}: {text}" for names, text in said.parameters), *said.returns)
        key = (function.family, function.form, signature(library, function), said.summary, said.deprecated, said.needs)
        key += (said.handle, said.raises, *(DTYPES.sub("dtype", text) for text in texts))
        results.setdefault(key, []).append((function, said))
    order = {letter: place for place, letter in enumerate("sdcz")}
    for group in results.values():
        group.sort(key=lambda pair: (order.get(pair[0].name.lstrip("i")[0], 9), pair[0].name))
    return list(results.values())


def letters(group: Group) -> dict[tuple[str, ...], str]:
    """Return a letter (T, R, U, V) for each tuple of dtypes, one a function, at one place in a group's texts."""
    if len(group) == 1:
        return {}
    said = [description for _, description in group]
    rows = zip(
        *([text for _, text in description.parameters] + description.returns for description in said), strict=True
    )
    columns = dict.fromkeys(column for texts in rows for column in zip(*map(DTYPES.findall, texts), strict=True))
    return {column: letter for column, letter in zip(columns, "TRUV", strict=False) if len(set(column)) > 1}


def joined(texts: tuple[str, ...], letters: dict[tuple[str, ...], str]) -> str:
    """Return texts that differ in dtypes only as one text, with letters in the places of the dtypes."""
    columns = zip(*map(DTYPES.findall, texts), strict=True)
    words = iter([letters.get(column, " / ".join(dict.fromkeys(column))) for column in columns])
    return DTYPES.sub(lambda _: next(words), texts[0])


def neighbours(thing: Any) -> list[list[str]]:
    """Return the names and the page in the "See also" of a docstring, in groups; [] without one."""
    said = re.search(r"^See also: (.*?)\.?\s*\Z", inspect.getdoc(thing) or "", re.DOTALL | re.MULTILINE)
    return [" ".join(group.split()).split(", ") for group in said[1].split(";")] if said else []


@cache
def _portable() -> dict[str, list[str]]:
    """Return the portable functions and methods whose docstrings name a vendor's function, by that name."""
    things = {f"{module}.{name}": thing for module in ("blas", "lapack", "fft") for name, thing in _functions(module)}
    things |= {f"Communicator.{name}": thing for name, thing in vars(offload_args.Communicator).items()}
    results: dict[str, list[str]] = {}
    for name, thing in things.items():
        for vendors_name in (vendors_name for group in neighbours(thing)[1:-1] for vendors_name in group):
            results.setdefault(vendors_name, []).append(name)
    return results


def _functions(module: str) -> list[tuple[str, Any]]:
    actual = importlib.import_module(f"offload_args.{module}")
    return [(name, getattr(actual, name)) for name in actual.__all__ if name[0].islower()]


@cache
def _named(name: str) -> dict[str, Function]:
    return {function.name: function for function in libraries()[name].functions}


# Names of functions that belong together differ in these parts.
_COUNTERPARTS = (("get_", "set_"), ("create", "destroy"), ("start", "stop"), ("start", "end"))
# Libraries that share the names of all their functions, and the guide's pages on libraries without a page.
_TWINS = ({"cufft", "hipfft"}, {"nccl", "rccl"})
_GUIDES = {"hipfft": "cufft", "lapacke": "lapack", "rccl": "nccl"}
_GUIDES |= dict.fromkeys(("cudss", "cusparse", "hipsparse"), "sparse")
_MORE = {
    "cublaslt.matmul": ("cublaslt.Matmul", "blas.gemm"),
    "cudnn.convolution_forward": ("cudnn.Graph",),
    "cudnn.multi_head_attn_forward": ("cudnn.Graph",),
}


def _base(name: str) -> str:
    """Return a function's name without the endings for batches: "gemm" for "gemm_strided_batched"."""
    return name.removesuffix("_batched").removesuffix("_strided")


def _related(library: Library, function: Function) -> Iterator[str]:
    """Yield possible names of functions that belong to a function: its other forms, its counterparts."""
    name = function.name
    base = _base(name)
    yield from (f"{base}{form}" for form in FORMS)
    yield f"{base[1:]}_ex"
    if plain := base.removesuffix("_ex") if base.endswith("_ex") else "":
        yield from (plain, f"s{plain}", f"is{plain[1:]}")
    # the index of the largest element; the sum of absolute values
    yield from (f"i{name}", f"i{name[1:]}", re.sub(r"(max|min|sum)$", r"a\1", name))
    # cuSOLVER's functions that take dtypes as arguments, and its expert interface of mixed precision
    yield from (f"x{base[1:]}", f"d{base[1:]}" if base[0] == "x" else "", f"irs_x{base[2:]}")
    for pair in _COUNTERPARTS:
        for old, new in (pair, pair[::-1]):
            yield name.replace(old, new, 1) if old in name else ""
    if query := re.match(r"(?:get|find)_(.*)", name):  # get_convolution_forward_workspace_size: convolution_forward
        yield from sorted((other for other in _named(library.name) if query[1].startswith(f"{other}_")), key=len)[-1:]
    elif passes := re.match(r"(\w+?)_(?:forward|backward)", name):
        yield from (other for other in _named(library.name) if re.match(rf"{passes[1]}_(forward|backward)", other))


# Words of names that do not state a subject, and the most functions that are listed by words, and by place.
_COMMON_WORDS = set(
    "get set find is create destroy size descriptor for of to in ex nd batched strided 64 v7 v8".split()
)
_MOST_BY_WORDS = 4
_MOST_BESIDE = 2


def _subject(function: Function) -> str:
    """Return the name that states the subject of a function: of its family, because other names have types, too."""
    return function.name if function.is_helper else function.family


def _near(library: Library, group: Group) -> list[str]:
    """Return the functions whose names share most words with an entry, or else the families beside it."""
    function, own = group[0][0], {_subject(function) for function, _ in group}
    others: dict[str, Function] = {}
    for other in sorted(library.functions, key=lambda it: (it.form != function.form, it.name[0] != function.name[0])):
        if _subject(other) not in own:
            others.setdefault(_subject(other), other)
    order = {family: place for place, family in enumerate(_order_of(library.name))}
    place = order.get(function.family, 0)
    subjects = sorted(others, key=lambda subject: abs(order.get(others[subject].family, 0) - place))
    words = {subject: {*subject.split("_")} - _COMMON_WORDS for subject in [*subjects, _subject(function)]}
    mine = words[_subject(function)]
    shares = {subject: len(mine & words[subject]) / max(1, len(mine | words[subject])) for subject in subjects}
    similar = sorted((key for key in subjects if shares[key] >= 1 / 3), key=lambda key: -shares[key])
    pages = ({other.name for other in functions} for functions in headings(library).values())
    page = next(names for names in pages if function.name in names)
    beside = [key for key in subjects if others[key].name in page] or subjects
    return [others[key].name for key in similar[:_MOST_BY_WORDS] or beside[:_MOST_BESIDE]]


def see_also(library: Library, group: Group) -> list[str]:
    """Return the neighbours of an entry, and the page of the guide.

    They are the portable functions, the functions of the same name in other libraries, the other forms, and
    counterparts such as get_ and set_. An entry without any of these has the functions of similar names, or the
    functions beside it.
    """
    own = [function.name for function, _ in group]
    function, name = group[0][0], own[0]
    twins = next((twins for twins in _TWINS if library.name in twins), set() if function.is_helper else {*libraries()})
    family = [
        other.name for other in library.functions if (other.family, other.form) == (function.family, function.form)
    ]
    portable: list[str] = []
    for names in (own, family, [*map(_base, own)]):  # the docstring of a portable function names one dtype
        keys = [f"{key}.{name_}" for key in (library.name, *sorted(twins)) for name_ in names]
        portable = portable or [known for key in keys for known in _portable().get(key, ())]
    same = [f"{other}.{name}" for other in libraries() if other in twins - {library.name} and name in _named(other)]
    related = [other for other in _related(library, function) if other in _named(library.name) and other not in own]
    if not any((portable, same, related)):
        related = _near(library, group)
    listed = [*portable, *_MORE.get(f"{library.name}.{name}", ()), *same, *(f"{library.name}.{key}" for key in related)]
    return [*dict.fromkeys(listed), f"docs/guide/{_GUIDES.get(library.name, library.name)}.md"]


def _linked(text: str) -> str:
    """Return a text with links to the exceptions that it names."""
    return re.sub(rf"\b({'|'.join(errors.__all__)})\b", r"{py:exc}`~offload_args.\1`", text)


LIBRARIES = """# The vendors' libraries

Each entry is a function with the arguments of the vendor's manual without its handle. The search finds a function by
the vendor's name, too, such as `cublasSgemm_v2`. Functions that differ in dtypes only share an entry, in which T stands
for the dtype of each, and R for another one.

An extent, such as *m by n, columns lda apart*, is the set of elements that a call touches. It is checked before the
call. *read* brings the array up; *overwritten* does not.

```{{toctree}}
:maxdepth: 2

{pages}
```
"""
LIBRARY = """# {name}: {title}

`offload_args.{name}` has {count} functions of {title}{wide}, as {declared}.
{guide}

```{{toctree}}
:maxdepth: 1

{pages}
```

```{{eval-rst}}
.. py:module:: offload_args.{name}

{names}

.. py:data:: raw
   :no-contents-entry:

   The functions with the vendor's exact signatures, through cffi: a :py:class:`~offload_args._raw.Raw`.
```
"""
SECTION = """# {name}: {section}

{raises}

```{{routines}} {name}
{section}
```
"""
CONSTANTS = """# {name}: constants

By their types in the header of {title}.

```{{vendor-constants}} {name}
```
"""
HEADER = """# offload_args_{name}.h{part}

Each function returns an `oa_status`. Sizes are `int64_t`; numbers are passed by value, and results come through the
last parameter. The forms that end in `_device` take numbers and results as device pointers.

```{{prototypes}} {name}
{titles}
```
"""
# The most lines of a page of prototypes, unless one section has more.
MOST_LINES = 600


def c_lines(library: Library, functions: list[Function]) -> list[str]:
    """Return the prototypes of functions, in lines."""
    prototypes = (
        f"{prototype(library, function, form)};" for function in functions for form in forms(library, function)
    )
    return [line for text in prototypes for line in wrapped(text)]


def c_pages(library: Library) -> dict[str, list[str]]:
    """Return the pages of a library's prototypes: their names, and the titles of the sections on each."""
    c_pages: dict[str, list[str]] = {}
    count = MOST_LINES
    for title, functions in sections(library).items():
        lines = len(c_lines(library, functions))
        count += lines
        if count > MOST_LINES:
            c_pages[f"c-{len(c_pages) + 1}" if c_pages else "c"] = []
            count = lines
        c_pages[list(c_pages)[-1]].append(title)
    return c_pages


def _classes(library: Library) -> Iterator[str]:
    """Yield the entries of a library's module beside its functions and constants."""
    for kind in library.object_kinds:
        built = f"a ``{kind.type}``, which ``{kind.destroy}`` ends."
        text = f"A :py:class:`~offload_args.objects.LibraryObject`: {built}"
        yield f".. py:class:: {kind.name}\n   :no-contents-entry:\n\n   {text}\n"
    for module, name in ((module, name) for module, names in library.adds.items() for name in names):
        kind, options = ("class", "\n   :members:") if name[0].isupper() else ("function", "")
        having = [other.name for other in libraries().values() if name in other.adds.get(module, ())]
        if library.name != min(having):  # the index has one entry of a name that libraries share
            options += "\n   :no-index:"
        yield f".. auto{kind}:: offload_args.{library.name}.{name}{options}\n"


def _library_page(library: Library, guide: str) -> str:
    """Return the page of a library: its sections, its constants and classes, and the functions that are not bound."""
    wide = sum(1 for function in library.functions if function.wide_symbol)
    listed = [*map(slug, sections(library)), *(["constants"] if library.constants else []), *c_pages(library)]
    text = LIBRARY.format(
        name=library.name,
        title=library.title,
        declared=f"the header of version {library.version} declares them"
        if library.version
        else "its header declares them",
        count=len(library.functions),
        wide=f", {wide} of them with the form for 64-bit sizes under the same name" if wide else "",
        guide=f"The guide has [a page on it](/guide/{guide}.md)." if guide else "",
        pages="\n".join(listed),
        names="\n".join(_classes(library)),
    )
    left = [f"- {why}: {', '.join(f'`{name}`' for name in names)}" for why, names in library.not_bound.items()]
    return text + ("\n".join(["\n```{rubric} Not bound\n```\n", *left, ""]) if left else "")


def _section_page(library: Library, title: str, functions: list[Function]) -> str:
    raises = [
        _linked(error)
        for error in dict.fromkeys(HELPER_RAISES if function.is_helper else RAISES for function in functions)
    ]
    if len(raises) > 1:
        raises = [f"Those that take arrays: {_linked(RAISES)}", f"The others: {_linked(HELPER_RAISES)}"]
    return SECTION.format(name=library.name, section=title, raises="\n\n".join(raises))


def pages(guide: Path) -> Iterator[tuple[str, str]]:
    """Yield the name and the text of each page; guide: the folder that may have a page on a library."""
    yield "libraries.md", LIBRARIES.format(pages="\n".join(f"{name}/index" for name in libraries()))
    for library in libraries().values():
        words = {"name": library.name, "title": library.title}
        in_guide = _GUIDES.get(library.name, library.name)
        has_guide = (guide / f"{in_guide}.md").exists()
        yield f"{library.name}/index.md", _library_page(library, in_guide if has_guide else "")
        for page, titles in c_pages(library).items():
            part = f": {titles[0]}" if len(c_pages(library)) > 1 else ""
            yield f"{library.name}/{page}.md", HEADER.format(**words, part=part, titles="\n".join(titles))
        if library.constants:
            yield f"{library.name}/constants.md", CONSTANTS.format(**words)
        for title, functions in sections(library).items():
            yield f"{library.name}/{slug(title)}.md", _section_page(library, title, functions)
