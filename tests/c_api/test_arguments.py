"""The C API: its functions and the C tests of them, csrc/tests."""

from __future__ import annotations

import re
import subprocess
import sysconfig
from pathlib import Path

import pytest

from helpers.processes import program_or_skip

ROOT = Path(__file__).parents[2]


@pytest.mark.promise("T51")
def test_the_c_tests_give_wrong_arguments_to_every_public_function() -> None:
    header = "".join(path.read_text() for path in sorted((ROOT / "csrc" / "include").rglob("*.h")))
    files = sorted((ROOT / "csrc" / "tests").glob("test_arguments*.c"))
    tests = "".join(path.read_text() for path in files)
    declared = re.findall(r"^(?:(?:const )?\w+ \*|int |int64_t |void )(oa_\w+)\(", header, re.MULTILINE)
    tested = re.findall(r'^    \{"(oa_\w+)", ', tests, re.MULTILINE)
    assert len(declared) > 50
    assert sorted(tested) == sorted(declared)


@pytest.mark.promise("T74")
def test_the_c_tests_call_every_function_twice_with_what_has_ended() -> None:
    """T74: `csrc/tests/test_twice.c` and, for objects, `test_object.c` call each function that takes a handle."""
    include = ROOT / "csrc" / "include" / "offload_args"
    headers = "".join((include / name).read_text() for name in ("core.h", "shim.h", "launch.h"))
    handles = r"(?:oa_any|oa_region|oa_writing|oa_object|oa_module|oa_kernel|oa_call|void) \*\w+"
    declared = re.findall(rf"^int (oa_\w+)\((?:int \w+, )?(?:const )?{handles}[,)]", headers, re.MULTILINE)
    tests = "".join((ROOT / "csrc" / "tests" / name).read_text() for name in ("test_twice.c", "test_object.c"))
    trusted = {"oa_is_host_zero", "oa_is_present", "oa_owner_gone", "oa_owner_kept"}  # these functions take any address
    assert {"oa_update_end", "oa_end", "oa_pinned_free", "oa_kernel_launch", "oa_region_wait"} <= set(declared)
    assert [name for name in declared if name not in trusted and not re.search(rf"\b{name}\(", tests)] == []


@pytest.mark.later
@pytest.mark.parametrize("language", ["c", "c++"])
def test_the_public_headers_compile_alone_and_with_no_extension(language: str, tmp_path: Path) -> None:
    program_or_skip({"c": "gcc", "c++": "g++"}[language])
    source = tmp_path / "program"
    include = ROOT / "csrc" / "include"
    standard = {"c": "-std=c11", "c++": "-std=c++17"}[language]
    for header in ["offload_args.h", *(f"offload_args/{path.name}" for path in (include / "offload_args").glob("*.h"))]:
        source.write_text(
            f'#include "{header}"\n#include "offload_args.h"\n'
            "int main() { oa_counters c = OA_SIZED(oa_counters); return c.size == 0; }\n"
        )
        python = [f"-I{sysconfig.get_path('include')}", "-DOA_LINKED"] if header.endswith("python.h") else []
        options = [*python, standard, "-pedantic", "-Wall", "-Wextra", "-Werror", "-fsyntax-only", f"-I{include}"]
        subprocess.run(["gcc", "-x", language, *options, source], check=True)
