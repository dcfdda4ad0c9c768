"""Public functions of the portable modules and of kernels describe their parameters; all examples run.

Every other function, class and method that a page of the reference shows has an example, too.
"""

from __future__ import annotations

import ast
import contextlib
import importlib
import inspect
import io
import linecache
import os
import pydoc
import re
import textwrap
import types
import typing
from collections.abc import Callable
from functools import partial
from pathlib import Path
from threading import Thread
from typing import Any

import cffi
import numpy as np
import pytest
import scipy.sparse

import offload_args
from helpers.devices import has_symbol, library_or_skip
from helpers.pages import promised
from helpers.shown import shown
from offload_args import blas, cblas, embedding, fft, kernels, lapack, libraries, linalg, selftest, sparse, testing
from offload_args.errors import LibraryError, LibraryVersionError

ROOT = Path(__file__).parents[2]
VENDORS = {
    "blas": {"cblas", "cublas", "rocblas"},
    "fft": {"cufft", "hipfft"},
    "lapack": {"lapacke", "cusolver", "cublas", "rocsolver"},
}
FUNCTIONS = {f"blas.{name}": getattr(blas, name) for name in blas.__all__}
FUNCTIONS |= {f"lapack.{name}": getattr(lapack, name) for name in lapack.__all__ if name[0].islower()}
FUNCTIONS |= {f"linalg.{name}": getattr(linalg, name) for name in linalg.__all__ if name[0].islower()}
FUNCTIONS |= {f"fft.{name}": getattr(fft, name) for name in fft.__all__}
FUNCTIONS |= {f"sparse.{name}": getattr(sparse, name) for name in sparse.__all__ if name[0].islower()}
FUNCTIONS |= {
    f"kernels.{name}": getattr(kernels, name) for name in kernels.__all__ if name[0].islower() and name != "here"
}
LACKING = ("lapack.geev", "lapack.hetrf", "lapack.hetrs", "lapack.sytrf", "lapack.sytrs")  # AMD lacks some
CLASSES = {f"kernels.{name}": getattr(kernels, name) for name in kernels.__all__ if name[0].isupper()}
TOP = ("Communicator", "In", "InOut", "Out", "Scratch", "accelerate", "record", "trace")
CLASSES |= {name: getattr(offload_args, name) for name in TOP}
COMPILED = sorted({name for name in FUNCTIONS | CLASSES if name.startswith("kernels.")} - {"kernels.launch"})
NAMES = (*TOP, "Kernel", "Module", "Shared", "blas", "kernel", "kernels", "lapack")
ABOVE = {id(thing) for thing in (FUNCTIONS | CLASSES).values()}
OTHERS = {name: thing for name, thing in shown() if id(thing) not in ABOVE}
# {name without its own example: the name whose example shows it}.
ELSEWHERE = {
    "Module.load": "kernels.Module",
    "Module.unload": "kernels.variables.Variables.variable",
    "Module.variable": "kernels.variables.Variables.variable",
    "graphs.Capture": "offload_args.capture",
    "kernels.variables.Variables": "kernels.variables.Variables.variable",
    "kernels.variables.Variables.unload": "kernels.variables.Variables.variable",
    "recording.Recording.flush": "recording.Recording",
    "recording.Recording.start": "recording.Recording",
    "recording.Recording.stop": "recording.Recording",
    "regions.Update": "update",
    "scripts.Accelerated": "accelerate",
    "scripts.Report": "accelerate",
    "tracing.Timeline": "tracing.Trace.save",
    "tracing.Summary": "tracing.Trace",
}
CALLED = ("__call__", "__getitem__")  # operators that a page may name
NOT_RUN = {
    "Communicator.from_mpi": "mpi4py starts MPI for the whole process",
    "objects.LibraryObject": "it takes a GPU",
    "regions.Stream": "it takes a GPU and PyTorch",
    "testing.library": "a process takes one double of a library",
}


def paragraphs(thing: Callable[..., Any]) -> list[str]:
    return re.split(r"\n\s*\n", inspect.getdoc(thing) or "")


def example_of(thing: Callable[..., Any]) -> str:
    """Return the program in a docstring, which is the indented paragraphs."""
    return "\n".join(textwrap.dedent(paragraph) for paragraph in paragraphs(thing) if paragraph.startswith("    "))


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_function_says_what_each_parameter_is(name: str) -> None:
    thing = FUNCTIONS[name]
    names = list(inspect.signature(thing).parameters)
    said = [re.findall(r"^((?:\w+, )*\w+): \S", paragraph, re.MULTILINE) for paragraph in paragraphs(thing)[1:]]
    described = [name for groups in said for group in groups for name in group.split(", ")]
    described = [name for name in described if name != "Source"]
    assert sorted(described) == sorted(names)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_help_has_the_type_of_each_parameter_and_of_the_result(name: str) -> None:
    thing = FUNCTIONS[name]
    header, _, text = pydoc.plain(pydoc.render_doc(thing)).partition("\n\n")[2].partition("\n")
    typed = text.partition("\n")[0].strip() if inspect.isbuiltin(thing) else header
    (definition,) = ast.parse(f"def {typed}: ...").body
    assert isinstance(definition, ast.FunctionDef)
    arguments = definition.args
    every = [*arguments.posonlyargs, *arguments.args, arguments.vararg, *arguments.kwonlyargs, arguments.kwarg]
    parameters = [parameter for parameter in every if parameter is not None]
    assert [parameter.arg for parameter in parameters] == list(inspect.signature(thing).parameters)
    assert all(parameter.annotation is not None for parameter in parameters)
    assert definition.returns is not None


@pytest.mark.parametrize("name", ["launch", "offload", "offload_unsafe"])
def test_the_types_in_the_help_of_launches_are_those_of_the_stub(name: str) -> None:
    stub = ast.parse(Path(offload_args.__file__).with_name("_core.pyi").read_text())
    (declared,) = (
        statement for statement in stub.body if isinstance(statement, ast.FunctionDef) and statement.name == name
    )
    (sizes,) = (
        statement.value
        for statement in stub.body
        if isinstance(statement, ast.Assign) and ast.unparse(statement.targets[0]) == "Sizes"
    )
    expected = re.sub(r"\bSizes\b", ast.unparse(sizes), ast.unparse(declared))
    opening = (getattr(kernels, name).__doc__ or "").partition("\n")[0]
    assert ast.unparse(ast.parse(f"def {opening}: ...")) == expected


@pytest.mark.parametrize("name", [name_ for name_ in FUNCTIONS if name_.startswith("lapack.")])
def test_the_types_of_a_function_are_resolved_at_run_time(name: str) -> None:
    hints = typing.get_type_hints(FUNCTIONS[name]).values()
    assert offload_args.DevicePtr in {part for hint in hints for part in (hint, *typing.get_args(hint))}


@pytest.mark.later("sim:0", *COMPILED)
@pytest.mark.parametrize("name", FUNCTIONS | CLASSES)
def test_the_example_in_a_docstring_prints_the_text_beside_it(
    name: str, device: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = example_of((FUNCTIONS | CLASSES)[name])
    assert re.search(rf"\b{name.removeprefix('kernels.')}\b", code) and promised(code)
    in_python = re.search(r"@kernel|\b(elementwise|reduce)\(", code)
    if in_python and offload_args.Device(device).model.startswith("double"):
        pytest.skip("device unavailable: the double runs no code of kernels in Python")
    monkeypatch.chdir(tmp_path)
    by_lapack = name.startswith(("lapack.", "linalg.")) and name not in ("linalg.matmul", "linalg.matrix_power")
    if by_lapack and device.startswith(("cuda", "hip")):
        library_or_skip("cusolver" if device.startswith("cuda") else "rocsolver", device)
    names = {public: getattr(offload_args, public) for public in NAMES} | {"np": np, "os": os}
    for public in ("offload_args", "offload", "offload_unsafe"):
        names[public] = partial(getattr(offload_args, public), device=device)
    of_linalg = {key: partial(getattr(linalg, key), device=device) for key in linalg.__all__ if key[0].islower()}
    names["linalg"] = types.SimpleNamespace(**of_linalg)
    names["fft"] = types.SimpleNamespace(**{key: partial(getattr(fft, key), device=device) for key in fft.__all__})
    of_sparse = {key: partial(getattr(sparse, key), device=device) for key in sparse.__all__ if key[0].islower()}
    of_sparse["convert"] = sparse.convert  # takes pointers only, whose device is known
    names |= {"sparse": types.SimpleNamespace(**of_sparse), "scipy": scipy}
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        if name.startswith("fft.") and device.startswith(("cuda", "hip")):
            library_or_skip("cufft" if device.startswith("cuda") else "hipfft", device)
        if name.startswith("sparse.") and device.startswith("cuda"):
            library_or_skip("cudss" if name == "sparse.spsolve" else "cusparse", device)
        if name.startswith("sparse.") and device.startswith("hip"):
            library_or_skip("hipsparse", device)
        if name in ("sparse.spsolve", "sparse.convert") and device.startswith("hip"):
            with pytest.raises(LibraryError, match="factors no matrices|calls no conversions"):
                exec(code, names)
            return
        if name in LACKING and device.startswith("hip"):
            with pytest.raises(LibraryError, match="rocSOLVER"):
                exec(code, names)
            return
        of_cusolver = name in ("lapack.hetrf", "lapack.hetrs") and device.startswith("cuda")
        if of_cusolver and not has_symbol("cusolver", "cusolverDnXhetrf"):
            with pytest.raises(LibraryVersionError, match="has no cusolverDnXhetrf"):
                exec(code, names)
            return
        place = f"<the example of {name}>"  # kernels in Python read their source from this file
        linecache.cache[place] = (len(code), None, code.splitlines(keepends=True), place)
        exec(compile(code, place, "exec"), names | {"launch": offload_args.launch})
    assert printed.getvalue().splitlines() == promised(code)


@pytest.mark.parametrize("name", OTHERS)
def test_each_function_class_and_method_of_the_reference_has_an_example(name: str) -> None:
    if name.startswith("kernels.python.words.Here."):
        name = "kernels.python.words.Here"  # this example is for all words
    place = ELSEWHERE.get(name, name)
    code = example_of(OTHERS.get(place) or CLASSES[place])
    assert code and (promised(code) or name in NOT_RUN)
    is_named = re.search(rf"\b{name.rpartition('.')[2]}\b", code)
    assert is_named or name in ELSEWHERE or name.endswith("__") or isinstance(OTHERS[name], type)


OWN = [name for name in OTHERS if name not in ELSEWHERE and not name.startswith("kernels.python.words.Here.")]
# The functions of these names compile kernels.
SLOW = [name for name in OWN if name.startswith(("kernels.", "Kernel", "Module", "selftest"))]


@pytest.mark.later(*SLOW)
@pytest.mark.parametrize("name", OWN)
def test_the_examples_of_the_reference_print_the_text_beside_them(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = example_of(OTHERS[name])
    place = f"<the example of {name}>"
    program = compile(code, place, "exec")
    if name in NOT_RUN:
        return
    monkeypatch.chdir(tmp_path)
    names = {public: getattr(offload_args, public) for public in offload_args.__all__}
    modules = (blas, cblas, embedding, kernels, libraries, linalg, selftest, sparse, testing)
    names |= {module.__name__.rpartition(".")[2]: module for module in modules}
    names |= {"Thread": Thread, "cffi": cffi, "here": kernels.here, "np": np, "os": os, "scipy": scipy}
    linecache.cache[place] = (len(code), None, code.splitlines(keepends=True), place)
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        exec(program, names)
    assert printed.getvalue().splitlines() == promised(code)


def named(name: str) -> Any:
    """Return the object with a name within the package, each part of which is public; fails if there is none."""
    home, _, rest = name.partition(".")
    thing: Any = offload_args
    if home not in offload_args.__all__:  # a module that a program imports
        thing, name = importlib.import_module(f"offload_args.{home}"), rest
    for part in name.split("."):
        is_public = part in thing.__all__ if hasattr(thing, "__all__") else part[0] != "_" or part in CALLED
        assert is_public, f"{name}: {part} is not public"
        thing = getattr(thing, part)
    return thing


@pytest.mark.parametrize("name", OTHERS)
def test_each_name_of_the_reference_names_its_neighbours_and_a_page(name: str) -> None:
    (said,) = (paragraph for paragraph in paragraphs(OTHERS[name]) if paragraph.startswith("See also: "))
    *groups, page = " ".join(said.split()).removeprefix("See also: ").removesuffix(".").split("; ")
    assert groups and (ROOT / page).is_file()
    for neighbour in ", ".join(groups).split(", "):
        assert named(neighbour) is not OTHERS[name], neighbour


@pytest.mark.parametrize("name", FUNCTIONS | CLASSES)
def test_a_docstring_names_others_like_it_the_vendors_and_the_guide(name: str) -> None:
    (said,) = (paragraph for paragraph in paragraphs((FUNCTIONS | CLASSES)[name]) if paragraph.startswith("See also: "))
    *groups, guide = " ".join(said.split()).removeprefix("See also: ").removesuffix(".").split("; ")
    home = name.partition(".")[0]
    assert len(groups) == 1 + (home in VENDORS)  # kernels have no functions of a vendor
    for name_ in ", ".join(groups).split(", "):
        assert named(name_)
        assert name_ not in (name, name.removeprefix("kernels."))
    assert all(name.partition(".")[0] in VENDORS[home] for group in groups[1:] for name in group.split(", "))
    assert (ROOT / guide).is_file()
