"""offload_args.hpp in C++ programs: regions that move and end, and pointers that a wrong function does not take."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from helpers.processes import program_or_skip
from offload_args.embedding import cflags, libs

SOURCE = Path(__file__).with_name("regions.cpp")
COMMAND = ["-std=c++17", "-Wall", "-Wextra", "-Wpedantic", "-Wconversion", "-Wshadow", "-Werror", *cflags(), SOURCE]


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("cpp") / "regions"
    sanitizers = ["-fsanitize=undefined", "-fno-sanitize-recover=all"]
    subprocess.run([program_or_skip("g++"), *COMMAND, *sanitizers, "-o", path, *libs()], check=True)
    return path


@pytest.mark.later
def test_regions_move_end_with_their_objects_and_throw(program: Path, device: str) -> None:
    ran = subprocess.run([program, device], capture_output=True, text=True, timeout=300)
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "right\n", "")


@pytest.mark.later
@pytest.mark.parametrize("compiler", ["g++", "clang++-19"])
def test_the_headers_give_a_strict_compiler_nothing_to_say(compiler: str) -> None:
    subprocess.run([program_or_skip(compiler), *COMMAND, "-fsyntax-only"], check=True)


@pytest.mark.later
def test_a_pointer_or_array_that_is_misused_does_not_compile(tmp_path: Path) -> None:
    misused = [
        "oa_blas_dscal(4, 2.0, readable, 1);",
        "oa_blas_dasum(4, single, 1, nullptr);",
        "(void)(readable + 1);",
        "oa::Pointer<double> host(&constant[0]);",
        "oa::Region region(device, oa::in(constant.data(), 4)); auto other = region;",
        "oa::out(constant.data(), 4);",
    ]
    mark = "  // test_cpp.py writes here what must not compile\n"
    before, after = SOURCE.read_text().split(mark)
    wrong = tmp_path / "wrong.cpp"
    wrong.write_text(before + "\n".join(misused) + after)
    command = ["g++", "-std=c++17", *cflags(), "-fsyntax-only", wrong]
    ran = subprocess.run(command, capture_output=True, text=True)
    first = before.count("\n") + 1
    refused = {int(number) - first for number in re.findall(r"wrong\.cpp:(\d+):\d+: error", ran.stderr)}
    assert refused == set(range(5))
    assert "oa::out needs an array that may be written" in ran.stderr


@pytest.mark.later
@pytest.mark.parametrize("debug", [[], ["-DOA_DEBUG=1"]])
def test_both_cpp_headers_are_in_one_program_and_in_one_file(debug: list[str], tmp_path: Path) -> None:
    kernel, region = "#include <offload_args/kernel.h>\n", "#include <offload_args.hpp>\n"
    files = {
        "kernels.cpp": kernel + "OA_KERNEL(twice, oa::Out<double> x, int n) {\n"
        "  for (auto element : x.mine(oa::Linear1D(n), here)) *element = 2;\n}\n",
        "both.cpp": kernel + region,
        "main.cpp": region + kernel + "int main() {\n"
        "  double x[4] = {};\n"
        '  oa::Region region("host", oa::inout(x, 4));\n'
        "  region.close();\n}\n",
    }
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    strict = [option for option in COMMAND if option != SOURCE]
    # Across the files, the linker compares types of one name.
    subprocess.run(
        [
            "g++",
            *strict,
            *debug,
            "-flto",
            "-Wodr",
            *(tmp_path / name for name in files),
            "-o",
            tmp_path / "program",
            *libs(),
        ],
        check=True,
    )
    subprocess.run([tmp_path / "program"], check=True, timeout=300)
