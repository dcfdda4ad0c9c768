"""The recipes of CONTRIBUTING.md, followed exactly on a copy of the sources."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import numpy as np
import pytest

from helpers.core_objects import WARNINGS, compile_all, core_objects
from offload_args import libraries

ROOT = Path(__file__).parents[2]
HERE = Path(__file__).parent


def run(*command: str | Path, folder: Path | None = None, status: int = 0) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=folder)
    assert done.returncode == status, (done.stdout + done.stderr)[:4000]
    return done.stdout


def blocks(language: str) -> str:
    """Return the block of a language on the page about the generator."""
    page = (Path(__file__).parents[2] / "bindings/README.md").read_text()
    (block,) = re.findall(rf"^```{language}\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    return str(block)


class Copy:
    """A copy of the sources that can be changed and built.

    `compiled`: the object files of the core as it is, which serve until a file that they are made of changes.
    """

    def __init__(self, folder: Path, compiled: dict[Path, Path]) -> None:
        self.folder, self._compiled = folder, compiled
        for name in ("csrc", "bindings"):
            shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("tests", "__pycache__"))

    def workshop(self, *arguments: str, status: int = 0) -> str:
        return run(sys.executable, "-m", "bindings", *arguments, folder=self.folder, status=status)

    def core(self) -> list[Path]:
        """Return the object files of the core and of the listed backends, after a change of this list."""
        csrc = self.folder / "csrc"
        listed = re.findall(r"^OA_BACKEND\((\w+)\)", (csrc / "device/backends.def").read_text(), re.M)
        paths = [path.relative_to(csrc) for path in csrc.glob("*/*.c") if path.parent.name != "backends"]
        paths += [Path(f"backends/{name}.c") for name in listed]
        as_before = {
            path: file
            for path, file in self._compiled.items()
            if path in paths
            and "device/backends.def" not in file.with_suffix(".d").read_text()
            and "__has_include" not in (csrc / path).read_text()  # it may find a header that was generated since
        }
        assert len(as_before) > 50
        return [*as_before.values(), *self.objects([csrc / path for path in paths if path not in as_before])]

    def objects(self, sources: list[Path], *options: str) -> list[Path]:
        """Compile C files with the core's headers and the generated headers, and return the object files."""
        include = [f"-I{self.folder / name}" for name in ("csrc", "csrc/include", "generated", "generated/include")]
        pairs = [(path, self.folder / f"{path.parent.name}-{path.stem}.o") for path in sources]
        compile_all(pairs, *include, *options)
        return [file for _, file in pairs]

    def program(self, source: Path, objects: list[Path]) -> Path:
        """Link a C file with object files, and return the program."""
        program = self.folder / source.stem
        run("gcc", "-pthread", "-o", program, *objects, *self.objects([source]), "-ldl", "-lm")
        return program

    def mini(self) -> Path:
        """Add the library of the page about the generator, and return the compiled vendor library."""
        functions = {
            "mini_scale": {"returns": "void", "parameters": [["n", "int"], ["alpha", "double"], ["x", "double *"]]},
            "mini_sum": {"returns": "double", "parameters": [["n", "int"], ["x", "const double *"]]},
        }
        api = {"header": "mini.h", "version": "1", "functions": functions, "enums": {}}
        (self.folder / "bindings/api/mini.json").write_text(json.dumps(api))
        (self.folder / "bindings/roles/mini.toml").write_text(blocks("toml"))
        source, library = self.folder / "mini.c", self.folder / "libmini.so"
        bodies = [
            "void mini_scale(int n, double alpha, double *x) { while (n-- > 0) x[n] *= alpha; }",
            "double mini_sum(int n, const double *x) { double sum = 0; while (n-- > 0) sum += x[n]; return sum; }",
        ]
        source.write_text("\n".join([blocks("c"), *bodies, ""]))
        run("gcc", "-std=gnu11", "-shared", "-fPIC", *WARNINGS, "-o", library, source)
        return library

    def package(self, objects: list[Path]) -> Path:
        """Build the Python package from the objects of the core and its libraries, and return its folder."""
        package = self.folder / "package/offload_args"
        shutil.copytree(Path(libraries.__file__).parent, package, ignore=shutil.ignore_patterns("*.so", "__pycache__"))
        for path in self.folder.glob("generated/*.py"):
            shutil.copy(path, package)
        run("gcc", "-shared", "-pthread", "-o", package / "liboffload_args.so", *objects, "-ldl", "-lm")
        python = f"-I{sysconfig.get_path('include')}"
        extension = self.objects(
            sorted(package.glob("_core/*.c")), python, "-Wno-unused-parameter", '-DOA_PACKAGE_VERSION="0"'
        )
        links = [f"-L{package}", "-loffload_args", "-Wl,-rpath,$ORIGIN"]
        run("gcc", "-shared", "-pthread", "-o", package / "_core.abi3.so", *extension, *links)
        return package.parent


@pytest.fixture
def copy(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Copy:
    return Copy(tmp_path, core_objects(tmp_path_factory))


@pytest.mark.slow
def test_a_backend_is_one_file_and_one_line(copy: Copy) -> None:
    shutil.copy(HERE / "sample.c", copy.folder / "csrc/backends/sample.c")
    with (copy.folder / "csrc/device/backends.def").open("a") as listed:
        listed.write("OA_BACKEND(sample)\n")

    program = copy.program(HERE / "use_sample.c", copy.core())
    assert run(program) == "5 5 3 4\n"


@pytest.mark.exhaustive
def test_a_function_is_one_entry_of_the_roles_file(copy: Copy) -> None:
    roles = copy.folder / "bindings/roles/cblas.toml"
    bound = re.search(r"^\[family\.axpby\].*?(?=^\[family\.axpyc\])", roles.read_text(), re.DOTALL | re.MULTILINE)
    assert bound
    without = roles.read_text().replace(bound[0], "")
    roles.write_text(without)
    copy.workshop("--check", status=1)  # the api file has cblas_daxpby, and no roles file describes it

    roles.write_text(without + (HERE / "axpby.toml").read_text())
    copy.workshop("report")
    copy.workshop("--check")
    copy.workshop("emit", "--out", "generated")
    generated = copy.objects(sorted(copy.folder.glob("generated/*/*.c")))
    program = copy.program(HERE / "use_daxpby.c", [*copy.core(), *generated])
    assert run(program, libraries.load("cblas").path) == "7 14 21\n"
    assert "daxpby" in (copy.folder / "generated/cblas.pyi").read_text()


DESK = {
    "desk_create_shape": [["shape", "desk_shape_t *"]],
    "desk_destroy_shape": [["shape", "desk_shape_t"]],
    "desk_set_shape": [["shape", "desk_shape_t"], ["rows", "int"], ["columns", "int"]],
    "desk_get_shape": [["shape", "desk_shape_t"], ["rows", "int *"], ["columns", "int *"]],
    "desk_elements": [["shape", "desk_shape_t"]],
    "desk_motto": [["line", "int"]],
    "desk_live": [],
    "desk_mark_matrix": [
        ["shape", "desk_shape_t"],
        ["row", "int"],
        ["column", "int"],
        ["mark", "double"],
        ["by", "float"],
        ["A", "float *"],
        ["size", "size_t"],
        ["stream", "void *"],
    ],
}
RETURNS = {"desk_elements": "size_t", "desk_motto": "const char *", "desk_live": "int"}


@pytest.mark.slow
def test_a_library_of_descriptors_is_two_files(copy: Copy) -> None:
    for path in [*copy.folder.glob("bindings/roles/*.toml"), *copy.folder.glob("bindings/api/*.json")]:
        path.unlink()  # fewer files to compile
    functions = {name: {"returns": RETURNS.get(name, "desk_status"), "parameters": DESK[name]} for name in DESK}
    enums = {"desk_status": {"DESK_FINE": 0, "DESK_BAD_SHAPE": 1, "DESK_NO_STREAM": 2, "DESK_OUTSIDE": 3}}
    api = {"header": "desk.h", "version": "1", "functions": functions, "enums": enums}
    (copy.folder / "bindings/api/desk.json").write_text(json.dumps(api))
    shutil.copy(HERE / "desk.toml", copy.folder / "bindings/roles/desk.toml")
    mini = copy.mini()  # also the library of the page
    copy.workshop("report")
    copy.workshop("--check")
    copy.workshop("emit", "--out", "generated")

    library = copy.folder / "libdesk.so"
    run("gcc", "-std=gnu11", "-shared", "-fPIC", *WARNINGS, "-o", library, HERE / "desk.c")
    objects = [*copy.core(), *copy.objects(sorted(copy.folder.glob("generated/*/*.c")))]
    assert run(copy.program(HERE / "use_desk.c", objects), library) == "2 8 0.5\n"

    paths = f"{copy.package(objects)}:{Path(np.__file__).parents[1]}"
    environment = {**os.environ, "PYTHONPATH": paths, "OFFLOAD_ARGS_DESK": str(library)}
    command = [sys.executable, "-S", "-P", str(HERE / "use_desk.py")]  # -S hides the installed offload_args
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert (done.stdout, done.stderr) == ("fine\n", "")

    (copy.folder / "session").write_text(blocks("pycon"))
    code = "import doctest, sys; print(doctest.testfile(sys.argv[1], module_relative=False))"
    command = [sys.executable, "-S", "-P", "-c", code, str(copy.folder / "session")]
    environment["OFFLOAD_ARGS_MINI"] = str(mini)
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert (done.stdout, done.stderr) == ("TestResults(failed=0, attempted=4)\n", "")
