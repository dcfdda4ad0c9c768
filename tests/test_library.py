"""Finding vendor libraries: in a fixed order, never in the working directory, and every place tried is listed (T39)."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from offload_args import library
from offload_args.errors import LibraryError

CALL = """
import numpy as np
from offload_args import offload_args, {name}, library
try:
    with offload_args(np.ones(4, np.float32), device="host") as (dx,):
        {name}.sscal(4, 2.0, dx, 1)
        {name}.sscal(4, 2.0, dx, 1)
    print("loaded", library.loaded("{name}"))
except Exception as error:
    print(type(error).__name__, str(error))
"""


def run(folder: Path, name: str = "cblas", code: str = CALL, **environment: str) -> str:
    """Call a function of the library in a process of its own, whose working directory is folder."""
    result = subprocess.run(
        [sys.executable, "-P", "-c", code.format(name=name)],
        cwd=folder,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert result.returncode == 0, result.stderr
    return result.stdout


@pytest.fixture(scope="module")
def openblas() -> str:
    return library.load("cblas").path


def build(folder: Path, name: str, source: str) -> Path:
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.fail("a C compiler is needed")
    path = folder / name
    subprocess.run([compiler, "-shared", "-fPIC", "-x", "c", "-", "-o", path], input=source, text=True, check=True)
    return path


def test_a_library_says_where_it_is_and_how_it_was_found() -> None:
    found = library.load("cblas")
    assert os.path.isabs(found.path)
    assert "OpenBLAS" in found.version
    assert found.found == "scipy-openblas32" or os.environ.get("OFFLOAD_ARGS_CBLAS")
    assert library.loaded("cblas") == found


def test_an_override_is_taken_as_it_is(tmp_path: Path, openblas: str) -> None:
    copy = tmp_path / "libscipy_openblas_mine.so"
    copy.symlink_to(openblas)
    text = run(tmp_path, OFFLOAD_ARGS_CBLAS=str(copy))
    assert text.startswith("loaded")
    assert str(copy) in text
    assert "environment variable OFFLOAD_ARGS_CBLAS" in text


def test_t39_a_missing_library_is_named_and_nothing_else_is_tried(tmp_path: Path) -> None:
    text = run(tmp_path, OFFLOAD_ARGS_CBLAS=str(tmp_path / "libnothing.so"))
    assert text.startswith(("LibraryError cblas.sscal: ", "LibraryError cblas: "))
    assert f"{tmp_path}/libnothing.so (environment variable OFFLOAD_ARGS_CBLAS)" in text
    assert "No such file" in text
    assert "scipy-openblas32:" not in text


def test_t39_a_corrupt_library_is_not_loaded(tmp_path: Path) -> None:
    path = tmp_path / "libopenblas.so.0"
    path.write_bytes(b"\x7fELF" + bytes(100))
    text = run(tmp_path, OFFLOAD_ARGS_CBLAS=str(path))
    assert text.startswith("LibraryError")
    assert str(path) in text


def test_t39_another_library_or_version_is_not_loaded(tmp_path: Path) -> None:
    path = build(tmp_path, "libopenblas.so.0", "int cblas_of_another_kind(void) { return 0; }")
    text = run(tmp_path, OFFLOAD_ARGS_CBLAS=str(path))
    assert text.startswith("LibraryError")
    assert "has no symbol" in text
    assert "another version" in text


def test_t39_a_relative_override_is_refused(tmp_path: Path, openblas: str) -> None:
    (tmp_path / "libscipy_openblas.so").symlink_to(openblas)
    text = run(tmp_path, OFFLOAD_ARGS_CBLAS="./libscipy_openblas.so")
    assert text.startswith("LibraryError")
    assert "not an absolute path" in text


def test_t39_a_library_planted_in_the_working_directory_is_not_loaded(tmp_path: Path) -> None:
    planted = "#include <stdlib.h>\n__attribute__((constructor)) static void planted(void) { exit(66); }"
    for name in ("libscipy_openblas.so", "libopenblas.so.0", "libcblas.so.3", "libblas.so.3"):
        build(tmp_path, name, planted)
    assert run(tmp_path).startswith("loaded")
    for name in ("libcublas.so.13", "libcublas.so.12", "libcublas.so", "libcublasLt.so.13", "libcublasLt.so.12"):
        build(tmp_path, name, planted)
    code = """
from offload_args import library
try: print("loaded", library.load("{name}").path)
except Exception as error: print(type(error).__name__, str(error))
"""
    text = run(tmp_path, "cublas", code)
    assert text.startswith(("loaded /", "LibraryError"))
    assert f"loaded {tmp_path}" not in text


def test_t39_every_place_tried_is_listed(tmp_path: Path) -> None:
    code = """
import sys
sys.modules["cuda.pathfinder"] = None
from offload_args import library
library._in_system = lambda names, tried: tried.append("the system's linker: knows no " + ", ".join(names)) or iter(())
try: print("loaded", library.load("{name}"))
except Exception as error: print(type(error).__name__, str(error))
"""
    text = run(tmp_path, "cublas", code)
    assert text.startswith("LibraryError cublas: not loaded; install offload-args[cuda12] or offload-args[cuda13]")
    assert "OFFLOAD_ARGS_CUBLAS" in text
    assert "cuda-pathfinder: " in text
    assert "the system's linker: knows no libcublas.so.13" in text


def test_a_library_that_there_is_not_is_refused() -> None:
    with pytest.raises(LibraryError, match="there are cublas, cblas"):
        library.load("mkl")


def test_t24_ctrl_c_while_a_library_is_loaded_is_raised_and_the_next_call_loads_it() -> None:
    code = """
import numpy as np
from offload_args import blas, library, offload_args
find = library._find_and_open
def interrupted(name):
    library._find_and_open = find
    raise KeyboardInterrupt
library._find_and_open = interrupted
x = np.ones(3)
try:
    with offload_args(x, device="host") as (dx,):
        blas.scal(2.0, dx)
except KeyboardInterrupt:
    print("interrupted", x)
with offload_args(x, device="host") as (dx,):
    blas.scal(2.0, dx)
print(x)
"""
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert (run.stdout, run.stderr) == ("interrupted [1. 1. 1.]\n[2. 2. 2.]\n", "")
