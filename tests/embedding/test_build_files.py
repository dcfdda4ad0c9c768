"""The build files of the guide's extension: each builds the module `mine` of the guide's page."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from helpers.processes import output_of, program_of_python_or_skip, program_or_skip

PAGE = (Path(__file__).parents[2] / "docs/guide/embedding.md").read_text()
USE = """
import numpy as np, mine
from offload_args import errors, offload_args
x = np.ones(4)
with offload_args(x, device="sim:0") as (dx,):
    mine.scale(dx)
    mine.scale(dx[::2])
try:
    mine.scale(x)
except errors.HostPointerError:
    print(x)
"""


def block(language: str, holds: str) -> str:
    (text,) = [text for text in re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL) if holds in text]
    return str(text)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    source = block("c", "PyMODINIT_FUNC PyInit_mine")
    table = (
        'static PyMethodDef methods[] = {{"scale", scale, METH_O, NULL}, {NULL, NULL, 0, NULL}};\n'
        'static struct PyModuleDef mine = {PyModuleDef_HEAD_INIT, .m_name = "mine", .m_methods = methods};\n'
    )
    source = source.replace("PyMODINIT_FUNC", table + "PyMODINIT_FUNC").replace("...", "return PyModule_Create(&mine);")
    (tmp_path / "mine.c").write_text(source)
    return tmp_path


def used(project: Path, folder: Path) -> None:
    assert output_of(sys.executable, "-c", USE, folder=project, PYTHONPATH=str(folder)) == "[4. 2. 4. 2.]\n"


@pytest.mark.slow
def test_the_guides_program_in_fortran_runs(tmp_path: Path) -> None:
    gfortran = program_or_skip("gfortran")
    program = block("fortran", "program product")
    (tmp_path / "program.f90").write_text(program)
    module = output_of(sys.executable, "-m", "offload_args", "config", "--fortran", folder=tmp_path).strip()
    libraries = output_of(sys.executable, "-m", "offload_args", "config", "--libs", folder=tmp_path).split()
    output_of(gfortran, "-o", "product", module, "program.f90", *libraries, folder=tmp_path)
    assert output_of("./product", folder=tmp_path) == " 3.0 7.0\n"
    assert "print '(2f4.1)', y ! 3.0 7.0" in program


@pytest.mark.slow
def test_the_guides_setup_py_builds_an_extension(project: Path) -> None:
    (project / "setup.py").write_text(block("python not-run", "from setuptools"))
    (project / "pyproject.toml").write_text(block("toml", "setuptools"))
    output_of(sys.executable, "setup.py", "build_ext", "--inplace", folder=project)
    used(project, project)


@pytest.mark.slow
def test_the_guides_lists_of_cmake_build_an_extension(project: Path) -> None:
    (project / "CMakeLists.txt").write_text(block("cmake", "python_add_library"))
    cmake = program_of_python_or_skip("cmake")
    output_of(cmake, "-S", ".", "-B", "build", f"-DPython_EXECUTABLE={sys.executable}", folder=project)
    output_of(cmake, "--build", "build", folder=project)
    output_of(cmake, "--install", "build", "--prefix", project / "installed", folder=project)
    used(project, project / "installed")


@pytest.mark.slow
def test_the_guides_build_file_of_meson_builds_an_extension(project: Path) -> None:
    meson = program_or_skip("meson")
    (project / "meson.build").write_text(block("text", "extension_module"))
    (project / "native.ini").write_text(f"[binaries]\npython = {sys.executable!r}\n")
    output_of(meson, "setup", "build", "--native-file", "native.ini", folder=project)
    output_of(meson, "compile", "-C", "build", folder=project)
    used(project, project / "build")
