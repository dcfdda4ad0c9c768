"""The site's reference (docs/reference, docs/_ext) has every public name, and only existing names."""

from __future__ import annotations

import importlib
import inspect
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import offload_args
from helpers.shown import REFERENCE, entries
from offload_args import cublaslt, libraries

ROOT = Path(__file__).parents[2]
MODULES = [
    "blas",
    "embedding",
    "errors",
    "fft",
    "kernels",
    "lapack",
    "libraries",
    "linalg",
    "selftest",
    "sparse",
    "testing",
    "tracing",
]


@pytest.fixture(scope="module")
def extension() -> Iterator[None]:
    """Put docs/_ext on the import path, as Sphinx does."""
    sys.path[:0] = [str(ROOT / "docs" / "_ext"), str(ROOT)]
    yield
    del sys.path[:2]


def public() -> dict[str, Any]:
    """Return every public name of the package, except for names of the vendors' modules."""
    names: dict[str, Any] = {}
    for module in [offload_args, *(importlib.import_module(f"offload_args.{module_name}") for module_name in MODULES)]:
        assert isinstance(module, ModuleType)
        for name in module.__all__:
            if not isinstance(getattr(module, name), ModuleType):
                names[f"{module.__name__}.{name}"] = getattr(module, name)
    return names


def written() -> list[Any]:
    """Return the objects that the pages on Python describe. Fail for a name that does not exist."""
    described = []
    for page, kind, name, thing, members in entries():
        if kind == "module":
            described += [] if members is None else [getattr(thing, key) for key in thing.__all__]
            continue
        described.append(thing)
        for member in members or ():
            annotated = any(member in vars(class_).get("__annotations__", ()) for class_ in thing.__mro__)
            assert hasattr(thing, member) or annotated, f"{page}: {name} has no {member}"
    return described


def test_every_public_name_is_in_the_reference_and_each_once() -> None:
    described = written()
    missing = [name for name, thing in public().items() if not any(other is thing for other in described)]
    assert missing == []
    twice = [thing for at, thing in enumerate(described) if any(other is thing for other in described[:at])]
    assert twice == []


def test_every_page_of_the_reference_is_in_its_index() -> None:
    index = (REFERENCE / "index.md").read_text()
    pages = [path.relative_to(REFERENCE).with_suffix("").as_posix() for path in REFERENCE.glob("[!_]*/*.md")]
    below = "".join(path.read_text() for path in REFERENCE.glob("[!_]*/*.md"))
    assert [
        page for page in sorted(pages) if f"\n{page}\n" not in index and f"\n{Path(page).name}\n" not in below
    ] == []


def docstrings() -> Iterator[tuple[str, Any]]:
    """Yield the public objects, and the public methods and properties of classes among them."""
    for name, thing in public().items():
        if callable(thing):
            yield name, thing
        if isinstance(thing, type) and thing.__module__.startswith("offload_args"):
            for member in vars(thing):
                kind = inspect.getattr_static(thing, member)
                if not member.startswith("_") and (callable(kind) or isinstance(kind, (property, classmethod))):
                    yield f"{name}.{member}", getattr(thing, member)


def test_every_docstring_opens_with_one_sentence() -> None:
    wrong = []
    for name, thing in docstrings():
        said = inspect.getdoc(thing) or ""
        if inspect.isbuiltin(thing):  # the first line is a signature
            said = re.sub(rf"^{thing.__name__}\(.*\n\n", "", said)
        opening = said.partition("\n")[0]
        if not re.fullmatch(r"[A-Z`].*[^.]\.", opening):
            wrong.append(f"{name}: {opening!r}")
    assert wrong == []


def test_each_program_in_a_docstring_is_indented() -> None:
    # ruff format removes the indentation of a program that ends its docstring, which is then prose on its page.
    said = [(name, inspect.getdoc(thing) or "") for name, thing in docstrings()]
    assert [name for name, text in said if re.search(r"^print\(", text, re.MULTILINE)] == []


@pytest.mark.later
@pytest.mark.usefixtures("extension")
@pytest.mark.parametrize("name", libraries.NAMES)
def test_every_name_of_a_vendors_module_has_an_entry_and_no_other(name: str) -> None:
    records = importlib.import_module("_records")
    library = records.libraries()[name]
    pages = dict(records.pages(ROOT / "docs" / "guide"))
    entries = [function.name for functions in records.sections(library).values() for function in functions]
    for title, functions in records.sections(library).items():
        assert f"```{{routines}} {name}\n{title}\n```" in pages[f"{name}/{records.slug(title)}.md"]
        assert sorted(function.name for group in records.groups(library, functions) for function, _ in group) == sorted(
            function.name for function in functions
        )
    entries += {here for values in records.constants(library).values() for here, _ in values.values()}
    entries += re.findall(
        rf"^\.\. (?:py:class|py:data|auto\w+):: (?:offload_args\.{name}\.)?(\w+)$", pages[f"{name}/index.md"], re.M
    )
    assert sorted(entries) == sorted(importlib.import_module(f"offload_args.{name}").__all__)


@pytest.mark.later
@pytest.mark.usefixtures("extension")
def test_no_page_of_routines_has_more_than_a_page_holds() -> None:
    records = importlib.import_module("_records")
    for library in records.libraries().values():
        for title, functions in records.sections(library).items():
            helpers = all(function.is_helper for function in functions)  # the entries of helpers are short
            most = 45 if helpers else records.MOST
            assert len(records.groups(library, functions)) <= most, f"{library.name}: {title}"


@pytest.mark.parametrize("name", libraries.NAMES)
def test_no_constant_only_counts_the_others(name: str) -> None:
    api = json.loads((ROOT / "bindings" / "api" / f"{name}.json").read_text())
    here = importlib.import_module(f"offload_args.{name}").__all__
    for constants in api["enums"].values():
        for vendor, value in constants.items():
            if vendor.endswith(("_COUNT", "_COUNTS")) and value == len(constants) - 1:
                assert vendor.partition("_")[2] not in here, vendor


@pytest.mark.later
@pytest.mark.usefixtures("extension")
def test_an_entry_has_each_vendors_name_and_says_what_differs_between_its_functions() -> None:
    records = importlib.import_module("_records")
    library = records.libraries()["cublas"]
    (group,) = (
        group
        for functions in records.sections(library).values()
        for group in records.groups(library, functions)
        if group[0][0].name == "scasum" or group[0][0].name == "sgemm"
        if len(group) == 4
    )
    assert [function.name for function, _ in group] == ["sgemm", "dgemm", "cgemm", "zgemm"]
    assert list(records.vendor_names(library, group[0][0])) == [
        ("cublasSgemm_v2", ""),
        ("cublasSgemm_v2_64", "for sizes of 64 bits"),
    ]
    letters = records.letters(group)
    assert letters == {("float32", "float64", "complex64", "complex128"): "T"}
    alpha = tuple(dict(said.parameters)["alpha"] for _, said in group)
    assert records.joined(alpha, letters) == "a number or a DevicePtr of 1 T."


@pytest.mark.later
@pytest.mark.usefixtures("extension")
def test_an_entry_names_the_portable_function_other_libraries_other_forms_and_the_guide() -> None:
    records = importlib.import_module("_records")
    vendors = records.libraries()
    neighbours: dict[str, list[str]] = {}
    for library in vendors.values():
        for functions in records.sections(library).values():
            for group in records.groups(library, functions):
                *names, page = records.see_also(library, group)
                assert (ROOT / page).is_file()
                assert 1 <= len(names) <= 10, f"{library.name}.{group[0][0].name}: {names}"
                assert not {f"{library.name}.{function.name}" for function, _ in group} & {*names}
                for vendor, _, name in (full.rpartition(".") for full in names):
                    known = importlib.import_module(f"offload_args.{vendor}") if vendor.islower() else offload_args
                    assert name in known.__all__ or hasattr(offload_args.Communicator, name)
                neighbours |= {f"{library.name}.{function.name}": names for function, _ in group}
    assert neighbours["cublas.dgemm"] == [
        "blas.gemm",
        "cblas.sgemm",
        "rocblas.sgemm",
        "cublas.sgemm_batched",
        "cublas.sgemm_strided_batched",
        "cublas.gemm_ex",
    ]
    assert neighbours["cudnn.get_convolution_forward_workspace_size"] == ["cudnn.convolution_forward"]
    assert neighbours["cublas.get_status_name"] == ["cublas.get_status_string"]
    assert neighbours["cublas.stpttr"] == ["cublas.strttp", "cublas.uint8gemm_bias"]
    assert neighbours["hipfft.exec_r2c"][-1] == "cufft.exec_r2c" and "fft.rfft" in neighbours["hipfft.exec_r2c"]
    assert neighbours["cublas.set_math_mode"] == ["cublas.get_math_mode"]
    for vendors_name, portable in records._portable().items():
        assert {*portable} <= {*neighbours[vendors_name]}, vendors_name


@pytest.mark.later
@pytest.mark.usefixtures("extension")
def test_every_exported_function_of_the_core_is_on_a_headers_page() -> None:
    headers = importlib.import_module("_headers")
    declared = {name for header in headers.HEADERS for unit in headers.header(header) for name in unit.names}
    exported = re.findall(r"^oa_\w+", (ROOT / "csrc" / "exports.txt").read_text(), re.MULTILINE)
    internal = {
        name
        for path in ("graph.h", "routine.h")
        for unit in headers.units((headers.INCLUDE / "offload_args" / path).read_text())
        for name in unit.names
    }
    assert [function for function in exported if function not in declared | internal] == []


@pytest.mark.later
@pytest.mark.usefixtures("extension")
def test_a_headers_page_shows_whole_conditions_and_no_settings_of_compilers() -> None:
    headers = importlib.import_module("_headers")
    for name in headers.HEADERS:
        for unit in headers.header(name):
            begun, ended = ([line for line in unit.code if line.lstrip().startswith(at)] for at in ("#if", "#endif"))
            assert len(begun) == len(ended), (name, unit.code)
            assert "shall not warn" not in unit.comment, name


@pytest.mark.usefixtures("extension")
def test_the_parameters_of_several_paragraphs_are_one_list() -> None:
    docstrings = importlib.import_module("_docstrings")
    lines = ["Add.", "", "a: the first.", "", "b: the second. c:", "the third.", "", "Returns the sum."]
    items = ["  * ``a``: the first.", "  * ``b``: the second.", "  * ``c``: the third."]
    assert docstrings.rewritten(lines, {"a", "b", "c"}) == [
        "Add.",
        "",
        ":Parameters:",
        *items,
        "",
        "Returns the sum.",
        "",
    ]


@pytest.mark.usefixtures("extension")
@pytest.mark.parametrize(("kind", "name"), [("function", "preference"), ("class", "Matmul")])
def test_signatures_show_the_value_of_a_private_constant(kind: str, name: str) -> None:
    docstrings = importlib.import_module("_docstrings")
    thing = getattr(cublaslt, name)
    shown = (
        "(*, workspace: int = _WORKSPACE, alignment: int = 256)"  # as Sphinx shows it with autodoc_preserve_defaults
    )
    signed = docstrings.sign(None, kind, f"offload_args.cublaslt.{name}", thing, None, shown, "Any")
    assert signed == ("(*, workspace: int = 33554432, alignment: int = 256)", "Any")


@pytest.mark.later
@pytest.mark.usefixtures("extension")
def test_a_librarys_page_names_its_header_and_its_guide() -> None:
    records = importlib.import_module("_records")
    pages = dict(records.pages(ROOT / "docs" / "guide"))
    assert "as its header declares them." in pages["lapacke/index.md"]
    assert "as the header of version 2.21.5 declares them." in pages["rccl/index.md"]
    assert "(/guide/nccl.md)" in pages["rccl/index.md"] and "(/guide/sparse.md)" in pages["cusparse/index.md"]


@pytest.mark.slow
@pytest.mark.usefixtures("extension")
def test_parameters_have_their_articles_and_units() -> None:
    records = importlib.import_module("_records")
    documents = importlib.import_module("bindings.emit.docs")
    said = {
        f"{library.name}.{function.symbol} {names}": text
        for library in records.libraries().values()
        for function in library.functions
        for names, text in documents.describe(library, function).parameters
    }
    assert said["cudnn.cudnnSetRNNDescriptor_v8 rnnDesc"] == "an RNNDescriptor."
    assert said["cudnn.cudnnActivationForward activationDesc"] == "an ActivationDescriptor."
    assert said["cudnn.cudnnActivationForward yDesc"] == "a TensorDescriptor."
    assert said["cublas.cublasSetWorkspace_v2 workspaceSizeInBytes"] == "an integer, in bytes."
    assert [name for name, text in said.items() if re.match(r"a [AEIO]|.*\bof 1 elements", text)] == []
    assert said["rocblas.rocblas_set_workspace size"] == "an integer, in bytes."
    assert [name for name, text in said.items() if "InBytes" in name and "in elements" in text] == []


@pytest.mark.usefixtures("extension")
@pytest.mark.parametrize("step", [41, pytest.param(1, marks=pytest.mark.slow)])
def test_integers_of_one_meaning_share_a_line_at_the_place_of_the_first(step: int) -> None:
    records = importlib.import_module("_records")
    documents = importlib.import_module("bindings.emit.docs")
    for library in records.libraries().values():
        for function in library.functions[::step]:
            order = [parameter.partition("=")[0] for parameter in documents.positional(function)]
            lines = [(names.split(", "), text) for names, text in documents.describe(library, function).parameters]
            assert {name for names, _ in lines for name in names} == set(order)
            assert [names[0] for names, _ in lines] == sorted((names[0] for names, _ in lines), key=order.index)
            integers = [re.sub(r"\ban? |s\b", "", text) for _, text in lines if re.match("an integer|integers", text)]
            assert len(integers) == len(set(integers)), function.symbol
    gemm = next(
        function for function in records.libraries()["cublas"].functions if function.name == "sgemm_strided_batched"
    )
    lines = dict(documents.describe(records.libraries()["cublas"], gemm).parameters)
    assert lines["m, n, k"] == "integers, the sizes in elements."
    assert lines["lda, ldb, ldc"] == "integers, the leading dimensions in elements."
    assert lines["strideA, strideB, strideC"] == "integers, the strides in elements."
    assert lines["batchCount"] == "an integer, the size of the batch."
    swaps = next(function for function in records.libraries()["cusolver"].functions if function.name == "slaswp")
    lines = dict(documents.describe(records.libraries()["cusolver"], swaps).parameters)
    assert lines["n"] == "an integer, the size in elements."
    assert lines["k1, k2"] == "integers."  # the first and the last row, which are no sizes


def test_every_environment_variable_that_is_read_is_on_its_page() -> None:
    page = (REFERENCE / "environment.md").read_text()
    assert "```{library-variables}" in page
    of_libraries = {f"OFFLOAD_ARGS_{name.upper()}" for name in libraries.NAMES}
    read = {"OFFLOAD_ARGS_TRACE", "OFFLOAD_ARGS_INFO", "OFFLOAD_ARGS_NVTX", "OFFLOAD_ARGS_NVRTC", "OFFLOAD_ARGS_HIPRTC"}
    built = set()  # the files that build names of variables from parts
    package = Path(offload_args.__file__).parent
    paths = [*ROOT.glob("csrc/*/*.[ch]"), *ROOT.glob("csrc/*/*.inc"), *package.glob("**/*.py")]
    for path in (path for path in paths if path.parent.name != "tests"):
        text = path.read_text()
        read |= set(re.findall(r"[\"'](OFFLOAD_ARGS_[A-Z0-9_]+)[\"']", text))
        if re.search("[\"']OFFLOAD_ARGS_[%{]", text):
            built.add(path.relative_to(package.parent if path.is_relative_to(package) else ROOT).as_posix())
    assert built == {
        "csrc/library/find.c",
        *(f"offload_args/{name}.py" for name in ("__init__", "kernels/rtc", "libraries")),
    }
    assert len(read) > 8
    assert [name for name in sorted(read - of_libraries) if f"{{envvar}} {name}\n" not in page] == []
    assert [name for name in re.findall(r"\{envvar\} (\w+)", page) if name not in read] == []
