"""The installed C library: its names and exports, and its use by build systems and by programs without Python."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from helpers.processes import program_of_python_or_skip
from offload_args import __version__, get_cmake_dir, get_include, get_library, libraries
from offload_args.embedding import cflags, get_pkg_config_dir, libs

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples" / "embedding"
EIGENVALUE = "4.615471737948\n"
NUMBER = __version__.partition(".dev")[0]  # C has only the number, without the commit
VERSION_NUMBER = sum(int(part) * 100**place for place, part in enumerate(reversed(NUMBER.split("."))))


def run(*command: object, folder: Path | None = None, status: int = 0, timeout: float = 300, **environment: str) -> str:
    """Run a command with little of this environment, and return its output, or, if it has to fail, its errors."""
    plain = {name: os.environ[name] for name in ("PATH", "HOME", "PYTHONPATH") if name in os.environ}
    ran = subprocess.run(
        [str(argument) for argument in command],
        cwd=folder,
        env=plain | environment,
        capture_output=True,
        text=True,
        timeout=timeout,
    )
    assert ran.returncode == status, ran.stdout + ran.stderr
    return ran.stderr if status else ran.stdout


def cmake(*arguments: object, **options: Any) -> str:
    return run(program_of_python_or_skip("cmake"), *arguments, **options)


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The C example, linked with the options of `config`."""
    path = tmp_path_factory.mktemp("program") / "power"
    options = run(sys.executable, "-m", "offload_args", "config", "--cflags", "--libs").split()
    run("gcc", "-Wall", "-Wextra", "-Werror", "-o", path, EXAMPLES / "c_cmake" / "power.c", *options, "-lm")
    return path


def test_the_library_exports_what_its_list_and_the_generated_headers_say_and_nothing_else() -> None:
    listed = [line for line in (ROOT / "csrc/exports.txt").read_text().splitlines() if not line.startswith("#")]
    generated = {
        name
        for path in Path(get_include()).glob("offload_args_*.h")
        for name in re.findall(r"^(?:int )(oa_\w+)\(", path.read_text(), re.MULTILINE)
    }
    exported = {line.split()[-1] for line in run("nm", "-D", "--defined-only", get_library()).splitlines()}
    assert len(generated) > 1000 and len(listed) == len(set(listed))
    assert exported - generated == set(listed), "csrc/exports.txt has a line for each exported name"
    assert generated <= exported


def test_the_file_of_the_library_has_its_soname_and_the_versions_of_its_abi() -> None:
    major, minor, _ = NUMBER.split(".")
    name = f"liboffload_args.so.{f'0.{minor}' if major == '0' else major}"
    assert Path(get_library()).name == name
    assert re.findall(r"soname: \[(.*)\]", run("readelf", "-d", get_library())) == [name]


def test_the_library_needs_neither_python_nor_a_vendor() -> None:
    needed = re.findall(r"NEEDED.*\[(.*)\]", run("readelf", "-d", get_library()))
    assert {re.sub(r"\.so.*", "", name) for name in needed} <= {
        "libc",
        "libm",
        "libdl",
        "libpthread",
        "ld-linux-x86-64",
    }


@pytest.mark.later
def test_a_program_without_python_finds_a_blas_beside_the_library(program: Path) -> None:
    assert run(program, "host", 20, 20) == EIGENVALUE
    assert run(program, "sim:0", 20, 20) == EIGENVALUE


@pytest.mark.later
def test_the_environment_names_the_library_of_a_program_without_python(program: Path, tmp_path: Path) -> None:
    (tmp_path / "libblas.so").write_text("no library")
    assert "needs an absolute path" in run(program, "host", 4, 4, status=1, OFFLOAD_ARGS_CBLAS="libblas.so")
    wrong = run(program, "host", 4, 4, status=1, OFFLOAD_ARGS_CBLAS=str(tmp_path / "libblas.so"))
    assert f"cblas: {tmp_path}/libblas.so" in wrong and "environment variable OFFLOAD_ARGS_CBLAS" in wrong


def test_the_library_alone_names_every_place_where_it_looked_for_a_blas(program: Path, tmp_path: Path) -> None:
    shutil.copy(get_library(), tmp_path)
    source = tmp_path / "open.c"
    source.write_text(
        "#include <offload_args.h>\n#include <stdio.h>\n"
        'int main(void) { void *f; int status = oa_library_address("cblas", "cblas_dgemm", &f);'
        ' puts(status ? oa_last_error() : oa_library_path("cblas")); return 0; }\n'
    )
    library = tmp_path / Path(get_library()).name
    run("gcc", "-o", tmp_path / "open", source, *cflags(), library, f"-Wl,-rpath,{tmp_path}")
    said = run(tmp_path / "open")
    assert "libopenblas.so.0" in said or said.startswith("lib")
    assert "/offload_args" not in said  # no file of the package is next to it


def test_pkg_config_names_the_headers_and_the_library(tmp_path: Path) -> None:
    tree = shutil.copytree(EXAMPLES, tmp_path / "examples")
    run("make", folder=tree / "c_pkgconfig", PKG_CONFIG_PATH=get_pkg_config_dir())
    assert run(tree / "c_pkgconfig" / "power", "host", 20, 20) == EIGENVALUE
    assert run("pkg-config", "--modversion", "offload_args", PKG_CONFIG_PATH=get_pkg_config_dir()).strip() == NUMBER


@pytest.mark.slow
def test_cmake_finds_the_package_also_after_it_was_moved(tmp_path: Path) -> None:
    moved = shutil.copytree(Path(get_library()).parent, tmp_path / "elsewhere/offload_args")
    source = EXAMPLES / "c_cmake"
    for name, option in {
        "dir": f"-Doffload_args_DIR={get_cmake_dir()}",
        "prefix": f"-DCMAKE_PREFIX_PATH={moved.parent}",
    }.items():
        cmake("-S", source, "-B", tmp_path / name, option)
    cmake("--build", tmp_path / "prefix")
    assert str(moved) in run("ldd", tmp_path / "prefix/power")
    too_new = tmp_path / "too_new"
    shutil.copytree(source, too_new)
    lists = too_new / "CMakeLists.txt"
    lists.write_text(lists.read_text().replace("offload_args 0.3 ", "offload_args 0.4 "))
    assert "0.3" in cmake("-S", too_new, "-B", tmp_path / "new", f"-Doffload_args_DIR={get_cmake_dir()}", status=1)


def test_the_library_of_a_wheel_is_loaded_by_its_path_or_by_its_name_with_the_version(tmp_path: Path) -> None:
    program = "import ctypes, sys; print(ctypes.CDLL(sys.argv[1]).oa_version())"
    library = Path(get_library())
    assert run(sys.executable, "-c", program, library) == f"{VERSION_NUMBER}\n"
    assert run(sys.executable, "-c", "import offload_args\n" + program, library.name) == f"{VERSION_NUMBER}\n"
    named = library.with_name("liboffload_args.so").read_text()  # for -loffload_args
    assert f"INPUT({library.name})" in named and "get_library()" in named


@pytest.mark.exhaustive
def test_the_sources_install_a_library_that_programs_use_without_python(tmp_path: Path) -> None:
    build, prefix = tmp_path / "build", tmp_path / "prefix"
    fast = "-DCMAKE_C_FLAGS_RELEASE=-O0"  # to compile
    cmake("-S", ROOT, "-B", build, "-DOA_PYTHON=OFF", f"-DPython_EXECUTABLE={sys.executable}", fast)
    cmake("--build", build, "--parallel", "2", timeout=600)
    cmake("--install", build, "--prefix", prefix)
    assert not [path for path in prefix.rglob("*") if path.suffix in (".py", ".pyi", ".pxd")]
    (licence,) = prefix.rglob("LICENSE")
    assert licence.read_bytes() == (ROOT / "LICENSE").read_bytes()
    assert [path.parent.name for path in prefix.rglob("offload_args.f90")] == ["include"]
    (library,) = prefix.rglob("liboffload_args.so.*")
    link = library.with_name("liboffload_args.so")
    assert link.is_symlink() and os.readlink(link) == library.name
    program = "import ctypes; print(ctypes.CDLL('liboffload_args.so').oa_version())"  # dlopen searches for this name
    assert run(sys.executable, "-c", program, LD_LIBRARY_PATH=str(library.parent)) == f"{VERSION_NUMBER}\n"
    tree = shutil.copytree(EXAMPLES, tmp_path / "examples")
    cmake("-S", tree / "c_cmake", "-B", tree / "c_cmake", f"-DCMAKE_PREFIX_PATH={prefix}")
    cmake("--build", tree / "c_cmake")
    run("make", folder=tree / "c_pkgconfig", PKG_CONFIG_PATH=str(library.parent / "pkgconfig"))
    blas = libraries.load("cblas").path
    for program in (tree / "c_cmake/power", tree / "c_pkgconfig/power"):
        assert str(prefix) in run("ldd", program)
        for device in ("host", "sim:0"):
            assert run(program, device, 20, 20, PATH="", OFFLOAD_ARGS_CBLAS=blas) == EIGENVALUE


@pytest.mark.later
def test_the_folders_and_options_are_those_that_the_command_prints() -> None:
    def config(*options: str) -> str:
        return run(sys.executable, "-m", "offload_args", "config", *options).strip()

    assert config("--include") == get_include() and Path(get_include(), "offload_args.h").is_file()
    assert config("--library") == get_library() and Path(get_library()).is_file()
    assert config("--cmake-dir") == get_cmake_dir() and Path(get_cmake_dir(), "offload_args-config.cmake").is_file()
    assert config("--pkg-config-dir") == get_pkg_config_dir()
    assert config("--cflags", "--libs").split() == [*cflags(), *libs()]
    assert get_library() in config()
