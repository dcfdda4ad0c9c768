"""The checks of `make lint` find the faults that they are meant to find."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
sys.path.append(str(ROOT / "scripts"))

import check_floors as floors  # noqa: E402
import check_paths as paths  # noqa: E402
import check_words as words  # noqa: E402


def uses_of(files: dict[str, str]) -> set[floors.Edge]:
    return floors.c_edges(files)[1]


def test_a_folder_that_includes_one_above_it_is_a_fault() -> None:
    files = {"base/error.c": '#include "call/call.h"\n', "call/call.h": "", "call/call.c": '#include "base/error.h"\n'}
    includes, uses = floors.c_edges(files)
    assert list(floors.floor_faults(includes, uses)) == [("base/error", "call/call")]


def test_a_function_of_a_folder_above_is_a_fault_even_if_no_include_shows_it() -> None:
    files = {
        "base/error.c": "int oa_call(int x);\nint oa_fail(void) { return oa_call(1); }\n",
        "call/call.c": "int oa_call(int x) {\n  return x;\n}\n",
    }
    assert uses_of(files) == {("base/error", "call/call")}


def test_names_in_comments_and_strings_are_no_use_of_them() -> None:
    files = {
        "base/error.c": 'int oa_fail(void) { return puts("oa_call"); } /* as oa_call does */\n',
        "call/call.c": "int oa_call(int x) {\n  return x;\n}\n",
    }
    assert uses_of(files) == set()


def test_an_inline_function_of_a_header_uses_what_its_body_names_and_a_declaration_nothing() -> None:
    files = {
        "base/error.h": "int oa_call(int);\nstatic inline int oa_fail(void) {\n  if (1) {}\n  return oa_call(1);\n}\n",
        "base/lines.h": "int oa_call(int x);\nstatic inline int oa_span(void) { return 1; }\nint oa_call(int x);\n",
        "call/call.c": "int oa_call(int x) {\n  return x;\n}\n",
    }
    assert uses_of(files) == {("base/error", "call/call")}


def test_two_files_of_one_name_are_a_fault() -> None:
    assert list(floors.same_names({"base/core", "include/offload_args/core", "call/call"})) == [
        ("base/core", "include/offload_args/core")
    ]


def test_a_backend_includes_its_contract_only() -> None:
    files = {"backends/cuda.c": '#include "device/backend.h"\n#include "cuda.def"\n#include "device/stream.h"\n'}
    includes, uses = floors.c_edges(files)
    assert list(floors.floor_faults(includes, uses)) == [("backends/cuda.c", "device/stream.h")]


def test_the_extension_includes_public_headers_only() -> None:
    files = {
        "_core/a.c": '#include "module.h"\n#include "offload_args/core.h"\n#include "base/error.h"\n',
        "_core/module.h": "",
    }
    assert list(floors.bridge_faults(floors.c_edges(files)[0], files)) == [("_core/a.c", "base/error.h")]


def test_files_that_use_each_other_are_a_circle() -> None:
    assert floors.circles({("a", "b"), ("b", "c"), ("c", "b"), ("c", "d")}) == [["b", "c"]]
    assert floors.circles({("a", "b"), ("b", "c"), ("a", "c")}) == []


def test_imports_inside_functions_and_for_type_checkers_count(tmp_path: Path) -> None:
    package = tmp_path / "package"
    package.mkdir()
    (package / "__init__.py").write_text("from .one import f\n")
    (package / "one.py").write_text("def f():\n    from . import two\n")
    (package / "two.py").write_text("import typing\nif typing.TYPE_CHECKING:\n    from .one import f\n")
    edges = floors.python_edges(package)
    assert edges == {("package", "package.one"), ("package.one", "package.two"), ("package.two", "package.one")}
    assert floors.circles(edges) == [["package.one", "package.two"]]


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("a.md", "The columns lie one\nbehind the other.\n"),
        ("a.c", "/* Returns the slot; for want\n * of memory NULL. */\n"),
        ("a.c", 'int f(void) { return fail("handed back %s"); }\n'),
        ("a.c", 'int f(void) { return fail("%s is given back"); }\n'),
        ("a.py", '"""Read once more."""\n'),
        ("a.py", "x = f(x)  # as ever\n"),
        ("a.toml", "# Given back to the pool.\n"),
        ("a.md", "x" * 121 + "\n"),
        ("a.py", "found = 1\n"),
        ("a.py", "f = lambda one: 1\n"),
        ("a.c", "static int given;\n"),
    ],
)
def test_a_phrase_name_or_line_that_is_ruled_out_is_found(path: str, text: str) -> None:
    assert len(list(words.faults_of(path, text))) == 1


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("a.md", "```\nonce more\n```\nThere is no such device, and `as ever` is code.\n\n## What it costs\n"),
        ("a.c", "int give_back = as_ever(once_more);\n"),
        ("a.py", "gave_back = [page for page in behind]  # no longer empty\n"),
        ("a.py", "y" * 120 + "\n"),
        ("a.py", "from hypothesis import given\nx = np.where(y, found=1)\n"),
        ("a.c", "const float one = 1; /* given */\nif (a.found) puts(error.what());\n"),
    ],
)
def test_code_and_names_of_others_may_have_any_words(path: str, text: str) -> None:
    assert list(words.faults_of(path, text)) == []


def test_new_files_are_read_before_their_commit_and_ignored_ones_are_not(tmp_path: Path) -> None:
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    (tmp_path / ".gitignore").write_text("made.md\n")
    for name in ("added.md", "made.md", "new.md"):
        (tmp_path / name).touch()
    subprocess.run(["git", "add", "added.md"], cwd=tmp_path, check=True)
    assert sorted(words.files_of(tmp_path, "*.md")) == ["added.md", "new.md"]


def test_pages_name_paths_as_links_and_as_code() -> None:
    page = "See [the guide](docs/index.md), `csrc/call/call.c` and `x / y`; `roles/<library>.toml`, `Device.trim`.\n"
    assert list(paths.named(page)) == ["docs/index.md", "csrc/call/call.c", "roles/<library>.toml"]
    assert paths.exists("roles/<library>.toml", ROOT / "bindings/report.md")
    assert not paths.exists("csrc/call/gone.c", ROOT / "ARCHITECTURE.md")
    assert list(paths.c_names("`oa_begin(call)` and OA_IN, `OA_OUT`")) == ["oa_begin", "OA_OUT"]
