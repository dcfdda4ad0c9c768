"""The recipes of CONTRIBUTING.md, followed to the letter on a copy of the sources."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from offload_args import libraries

ROOT = Path(__file__).parents[2]
HERE = Path(__file__).parent
WARNINGS = ["-Wall", "-Wextra", "-Werror"]


def run(*command: str | Path, folder: Path | None = None, status: int = 0) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=folder)
    assert done.returncode == status, (done.stdout + done.stderr)[:4000]
    return done.stdout


class Copy:
    """A copy of the sources that can be changed and built."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for name in ("csrc", "bindings"):
            shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("tests", "__pycache__"))

    def workshop(self, *arguments: str, status: int = 0) -> str:
        return run(sys.executable, "-m", "bindings", *arguments, folder=self.folder, status=status)

    def core(self) -> list[Path]:
        """Return the C sources of the core: all of its folders, and the backends that are listed."""
        listed = re.findall(r"^OA_BACKEND\((\w+)\)", (self.folder / "csrc/device/backends.def").read_text(), re.M)
        sources = [path for path in self.folder.glob("csrc/*/*.c") if path.parent.name != "backends"]
        return sources + [self.folder / f"csrc/backends/{name}.c" for name in listed]

    def program(self, source: Path, others: list[Path]) -> Path:
        """Return the program that a C file and others make, with the core's headers and the generated ones."""
        include = [f"-I{self.folder / name}" for name in ("csrc", "csrc/include", "generated/include")]

        def compiled(path: Path) -> Path:
            out = self.folder / f"{path.parent.name}-{path.stem}.o"
            run("gcc", "-std=gnu11", "-O0", "-pthread", *WARNINGS, *include, "-c", "-o", out, path)
            return out

        with ThreadPoolExecutor(2) as pool:
            objects = list(pool.map(compiled, [*others, source]))
        program = self.folder / source.stem
        run("gcc", "-pthread", "-o", program, *objects, "-ldl", "-lm")
        return program


@pytest.fixture
def copy(tmp_path: Path) -> Copy:
    return Copy(tmp_path)


def test_a_backend_is_one_file_and_one_line(copy: Copy) -> None:
    shutil.copy(HERE / "sample.c", copy.folder / "csrc/backends/sample.c")
    with (copy.folder / "csrc/device/backends.def").open("a") as listed:
        listed.write("OA_BACKEND(sample)\n")

    program = copy.program(HERE / "use_sample.c", copy.core())
    assert run(program) == "5 5 3 4\n"


def test_a_function_is_one_entry_of_the_roles_file(copy: Copy) -> None:
    roles = copy.folder / "bindings/roles/cblas.toml"
    bound = re.search(r"^\[family\.axpby\].*?(?=^\[family\.axpyc\])", roles.read_text(), re.DOTALL | re.MULTILINE)
    assert bound
    without = roles.read_text().replace(bound[0], "")
    roles.write_text(without)
    copy.workshop("--check", status=1)  # cblas_daxpby is in the api file, and nothing says what it is

    roles.write_text(without + (HERE / "axpby.toml").read_text())
    copy.workshop("report")
    copy.workshop("--check")
    copy.workshop("emit", "--out", "generated")
    generated = sorted(copy.folder.glob("generated/*/*.c"))
    program = copy.program(HERE / "use_daxpby.c", [*copy.core(), *generated])
    assert run(program, libraries.load("cblas").path) == "7 14 21\n"
    assert "daxpby" in (copy.folder / "generated/cblas.pyi").read_text()
