"""The C API: its functions and the C tests of them, csrc/tests."""

from __future__ import annotations

import re
import shutil
import subprocess
import sysconfig
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.promise("T51")
def test_the_c_tests_give_wrong_arguments_to_every_public_function() -> None:
    header = "".join(path.read_text() for path in sorted((ROOT / "csrc" / "include").rglob("*.h")))
    tests = (ROOT / "csrc" / "tests" / "test_arguments.c").read_text()
    declared = re.findall(r"^(?:const \w+ \*|int |int64_t |void \*?)(oa_\w+)\(", header, re.MULTILINE)
    tested = re.findall(r'^    \{"(oa_\w+)", ', tests, re.MULTILINE)
    assert len(declared) > 50
    assert sorted(tested) == sorted(declared)


@pytest.mark.parametrize("language", ["c", *(["c++"] if shutil.which("g++") else [])])
def test_the_public_headers_compile_alone_and_with_no_extension(language: str, tmp_path: Path) -> None:
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
