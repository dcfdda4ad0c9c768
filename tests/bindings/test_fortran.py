"""offload_args.f90, the generated module of Fortran: its structs have the layout of C, and it has every function."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from helpers.processes import program_or_skip
from offload_args.embedding import get_fortran_module, get_include, libs

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def module() -> str:
    return Path(get_fortran_module()).read_text()


def test_structs_that_know_their_size_have_that_of_c(module: str) -> None:
    recorded = dict(
        re.findall(r"^(oa_\w+): (\d+) bytes$", (ROOT / "tests/c_api/layouts.txt").read_text(), re.MULTILINE)
    )
    sizes = dict(re.findall(r":: (oa_\w+)\n    integer\(c_size_t\) :: size = (\d+)\n", module))
    assert {"oa_pointer_layout", "oa_region_options", "oa_counters", "oa_device_info"} <= set(sizes)
    assert sizes == {name: recorded[name] for name in sizes}


def test_every_function_of_the_headers_is_in_the_module(module: str) -> None:
    declared: set[str] = set()
    for header in ("offload_args/core.h", "offload_args_blas.h"):
        text = (Path(get_include()) / header).read_text()
        declared |= set(re.findall(r"^(?:const \w+ \*|int |int64_t |void \*?)(oa_\w+)\(", text, re.MULTILINE))
    names = set(re.findall(r"^    .*(?:function|subroutine) (oa_\w+)\(", module, re.MULTILINE))
    assert len(declared) > 100
    # The argument of these functions is a function.
    assert declared - names == {"oa_guard_set_report", "oa_library_set_loader", "oa_driver_set_finder"}


def test_a_strict_compiler_takes_the_module(module: str, tmp_path: Path) -> None:
    compiler = program_or_skip("gfortran")
    check = tmp_path / "check.f90"
    check.write_text(
        "program check\n  use offload_args\n  implicit none\n  type(oa_array) :: array\n"
        "  if (c_sizeof(array) /= 72) error stop 1\n"
        "  if (oa_check_version(OA_VERSION_CONSTANT) == OA_OK) print '(a)', 'right'\n"
        "  if (oa_check_version(1) /= OA_ERROR_VERSION) error stop 2\n  print '(a)', oa_text()\nend program\n"
    )
    options = ["-std=f2018", "-Wall", "-Werror", "-fcheck=all", get_fortran_module(), check, *libs()]
    subprocess.run([compiler, "-o", "check", *options], cwd=tmp_path, check=True)
    said = subprocess.run([tmp_path / "check"], capture_output=True, text=True, check=True).stdout
    assert said.startswith("right\noa_check_version: the library is version")


def test_a_compiler_that_is_missing_skips_by_its_name_and_fails_where_it_is_required(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("OFFLOAD_ARGS_REQUIRE", raising=False)
    with pytest.raises(pytest.skip.Exception, match=r"^device unavailable: no gfortran$"):
        program_or_skip("gfortran")
    monkeypatch.setenv("OFFLOAD_ARGS_REQUIRE", "cuda,gfortran")
    with pytest.raises(pytest.fail.Exception, match=r"^OFFLOAD_ARGS_REQUIRE needs gfortran$"):
        program_or_skip("gfortran")


def test_all_tests_that_need_a_program_skip_by_its_name() -> None:
    """pytest's skipif does not obey OFFLOAD_ARGS_REQUIRE."""
    own = re.compile(r"skipif\(.*which\(|pytest\.skip\(.*no (nvcc|NVRTC|compiler|mpirun|clang)")
    assert [path for path in Path(__file__).parents[1].rglob("*.py") if own.search(path.read_text())] == []
