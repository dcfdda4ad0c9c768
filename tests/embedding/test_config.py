"""`python -m offload_args config` for a package in a folder whose path has spaces."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from helpers.processes import program_or_skip
from offload_args.embedding import get_cmake_dir, get_include, get_library, get_pkg_config_dir

PROGRAM = """
#include <offload_args.h>
int main(void) { return oa_check_version(OA_VERSION); }
"""


@pytest.fixture
def moved(tmp_path: Path) -> Path:
    """A folder with a space that has the files of the package for programs."""
    package = Path(get_library()).parent
    there = tmp_path / "my packages" / "offload_args"
    for folder in (get_include(), get_cmake_dir(), get_pkg_config_dir()):
        shutil.copytree(folder, there / Path(folder).name)
    for path in package.glob("liboffload_args.so*"):
        shutil.copy(path, there)
    (tmp_path / "program.c").write_text(PROGRAM)
    return there


def config(there: Path, *options: str) -> str:
    code = (
        "import sys, pathlib\nfrom offload_args import embedding\nfrom offload_args.__main__ import main\n"
        f"embedding._FOLDER = pathlib.Path({str(there)!r})\nsys.exit(main())"
    )
    command = [sys.executable, "-c", code, "config", *options]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def test_one_folder_is_printed_as_it_is(moved: Path) -> None:
    assert config(moved, "--include") == f"{moved}/include\n"
    assert config(moved, "--fortran") == f"{moved}/include/offload_args.f90\n"


@pytest.mark.later
def test_options_for_a_compiler_are_quoted_for_the_shell(moved: Path, tmp_path: Path) -> None:
    words = config(moved, "--cflags", "--libs").strip()
    subprocess.run(
        ["sh", "-c", 'eval "cc -o program program.c $1" && ./program', "sh", words], cwd=tmp_path, check=True
    )


@pytest.mark.later
def test_pkg_config_escapes_them(moved: Path, tmp_path: Path) -> None:
    program_or_skip("pkg-config")
    actual = os.environ | {"PKG_CONFIG_PATH": config(moved, "--pkg-config-dir").strip()}
    line = 'eval "cc -o program program.c $(pkg-config --cflags --libs offload_args)" && ./program'
    subprocess.run(["sh", "-c", line], cwd=tmp_path, env=actual, check=True)
