"""The examples of README and of the site run unchanged, and print the output that the pages show.

The blocks of a page are one program, from top to bottom. `needs=cuda:0,cupy` after the fence names requirements of a
block. The block runs only on machines that meet them, together with the page's blocks that need no more. A comment
after a `print` is its output.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import sysconfig
import tomllib
from pathlib import Path

import pytest

from helpers.devices import has_symbol, library_or_skip, open_or_skip
from helpers.pages import ROOT, Block, blocks, programs, promised, tables
from offload_args import Device, errors, get_include

PAGES = {
    str(path.relative_to(ROOT)): path.read_text()
    for path in sorted([ROOT / "README.md", *(ROOT / "docs").rglob("*.md")])
    if not {"internals", "_generated"} & set(path.parts)
}
PROGRAMS = {
    f"{page.removeprefix('docs/')}[{','.join(needs)}]": (page, needs, code)
    for page, text in PAGES.items()
    if page != "README.md"  # test_examples.py runs the README
    for needs, code in programs(text).items()
    if needs or "/coming-from/" not in page  # test_our_side_of_each_row_runs tests these pages
}
DEVICES = ("cuda:0", "cuda:1", "hip:0")
LIBRARIES = dict.fromkeys(("cublaslt", "cufft", "curand", "cusolver", "cudnn", "nccl"), "cuda:0")
LIBRARIES |= {"rocsolver": "hip:0"}
# {page with Python code that no test runs: the reason}.
NOT_RUN = {"docs/guide/embedding.md": "a setup.py: tests/embedding/test_build_files.py builds with it"}
# Languages of blocks that are not Python: commands, output and sources.
OTHERS = {"console", "none", "text", "c", "cpp", "cmake", "cython", "fortran", "julia", "toml"}


def skip_without(needs: tuple[str, ...]) -> None:
    for need in needs:
        if need in DEVICES:
            open_or_skip(need)
    for need in needs:
        if need in LIBRARIES:
            library_or_skip(need, LIBRARIES[need])
        elif need == "cudnn_gnn":
            library_or_skip("cudnn", "cuda:0")
            if not has_symbol("cudnn", "cudnnGnnAggSimpleForward"):
                pytest.skip("device unavailable: this version of cudnn has no functions on graphs")
        elif need == "lapack":
            if Device.default().is_gpu:
                library = "cusolver" if Device.default().backend == "cuda" else "rocsolver"
                library_or_skip(library, str(Device.default()))
        elif need not in DEVICES:
            pytest.importorskip(need, reason=f"device unavailable: no {need}")


def build(sources: list[Block], folder: Path) -> None:
    """Write the C sources of a page, and compile each with the command in its first line."""
    for block in sources:
        command = re.match(r"/\*.*?\b(cc -[^*]*?)(?: \*/)?\n", block.text)
        if block.language == "c" and command:
            name = re.search(r"\w+\.c\b", command[1])
            assert name is not None
            (folder / name[0]).write_text(block.text)
            path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
            subprocess.run(command[1], shell=True, cwd=folder, check=True, env=os.environ | {"PATH": path})


def run(code: str, folder: Path) -> subprocess.CompletedProcess[str]:
    (folder / "example.py").write_text(code)
    files = {f"OFFLOAD_ARGS_{name.upper()}" for name in LIBRARIES}  # of the libraries that skip_without considered
    clean = {name: value for name, value in os.environ.items() if name in files or not name.startswith("OFFLOAD_ARGS_")}
    # Python 3.12 warns about every fork of a process with threads.
    return subprocess.run(
        [sys.executable, "-W", "error", "-W", "ignore::DeprecationWarning", "example.py"],
        cwd=folder,
        capture_output=True,
        text=True,
        env=clean | {"OFFLOAD_ARGS_CACHE": str(folder / "cache")},
        timeout=300,
    )


@pytest.mark.later(but=("index.md[", "start.md[", "guide/regions.md[", "guide/blas.md["))
@pytest.mark.parametrize("program", PROGRAMS)
def test_the_examples_of_a_page_print_the_text_beside_them(program: str, tmp_path: Path) -> None:
    page, needs, code = PROGRAMS[program]
    skip_without(needs)
    build(blocks(PAGES[page]), tmp_path)
    ran = run(code, tmp_path)
    assert (ran.returncode, ran.stderr) == (0, "")
    assert ran.stdout.splitlines() == promised(code)
    assert promised(code), "an example prints what it did"


def test_no_block_of_code_escapes_the_tests() -> None:
    assert len(PROGRAMS) >= 20
    for page, text in PAGES.items():
        assert len(re.findall(r"^ *```", text, re.MULTILINE)) == 2 * len(blocks(text)), page
        for block in blocks(text):
            directive = (
                block.language.startswith("{") and "code" not in block.language and "code-block" not in block.text
            )  # MyST's own names
            plain = not block.language and "import " not in block.text
            assert block.language in {"python", *OTHERS} or directive or plain, (
                f"{page}: name the language of {block.text!r}"
            )
            if block.language == "python":
                known = (word == "not-run" or re.fullmatch(r"needs=[\w:,]+", word) for word in block.words)
                assert all(known), f"{page}: {block.words}"
    left_out = {page for page, text in PAGES.items() for block in blocks(text) if "not-run" in block.words}
    assert left_out == NOT_RUN.keys()


def test_the_entry_that_binds_a_function_is_that_of_the_recipe() -> None:
    (entry,) = (block.text for block in blocks(PAGES["docs/guide/binding.md"]) if block.language == "toml")
    assert entry.strip() == (ROOT / "tests" / "recipes" / "axpby.toml").read_text().strip()


# {fragment that does not compile alone: the lines to add before and after it}.
AROUND = {
    ("docs/guide/embedding.md", "cpp"): (
        "#include <offload_args.hpp>\n#include <offload_args_blas.h>\n#include <vector>\n"
        "void multiply(int64_t n, std::vector<double> &A, std::vector<double> &x, std::vector<double> &y) {\n",
        "}\n",
    ),
    ("docs/guide/kernels.md", "cpp"): ("#include <offload_args/kernel.h>\n", ""),
}
SOURCES = {
    f"{page.removeprefix('docs/')}, block {i}": (page, block)
    for page, text in PAGES.items()
    for i, block in enumerate(blocks(text))
    if block.language in ("c", "cpp")
}


@pytest.mark.later("guide/embedding.md, block 4", "guide/kernels.md, block 20")
@pytest.mark.parametrize("source", SOURCES)
def test_the_c_and_cpp_of_a_page_compile(source: str) -> None:
    page, block = SOURCES[source]
    before, after = AROUND.get((page, block.language), ("", ""))
    text = before + block.text.replace("  ...\n", "  return NULL;\n") + after
    command = ["cc", "-xc", "-std=gnu11"] if block.language == "c" else ["c++", "-xc++", "-std=c++17"]
    includes = [f"-I{get_include()}", f"-I{sysconfig.get_path('include')}"]
    subprocess.run([*command, "-Wall", "-fsyntax-only", *includes, "-"], input=text, text=True, check=True)


def test_the_blocks_fit_a_screen() -> None:
    for page, text in PAGES.items():
        for block in blocks(text):
            assert max(map(len, block.text.splitlines()), default=0) <= 120, page
            if block.language == "python":
                assert len(block.text.splitlines()) <= 40, page


def test_the_commands_of_the_pages_are_there() -> None:
    commands = subprocess.run([sys.executable, "-m", "offload_args", "--help"], capture_output=True, text=True).stdout
    for page, text in PAGES.items():
        for command in re.findall(r"python3? -m offload_args +([a-z]+)", text):
            assert re.search(rf"\b{command}\b", commands), f"{page}: python -m offload_args {command}"


def test_each_exception_has_an_entry() -> None:
    entries = re.findall(r"^### (\w+) \(([\w, ]+)\)$", PAGES["docs/guide/errors.md"], re.MULTILINE)
    assert sorted(name for name, _ in entries) == sorted({*errors.__all__, "HostAttributeError"})
    for name, bases in entries:
        said = [base.strip() for base in bases.split(",")]
        derived = [base.__name__ for base in getattr(errors, name).__bases__]
        assert [base for base in derived if base != "OffloadError" or len(derived) == 1] == said, name


COMING_FROM = sorted(page for page in PAGES if page.startswith("docs/coming-from/") and not page.endswith("index.md"))


@pytest.mark.later
@pytest.mark.parametrize("page", COMING_FROM)
def test_our_side_of_each_row_runs(page: str, tmp_path: Path) -> None:
    """Run the page's program, and then each row with a copy of the program's names. Rows that need a GPU are marked."""
    (table,) = (table for table in tables(PAGES[page]) if table[0][1] == "offload_args")
    rows = {theirs: re.findall(r"`([^`]+)`", ours) for theirs, ours, _ in table[1:]}
    assert len(rows) >= 8 and all(rows.values())
    gpu = "cuda:0" in map(str, Device.all())
    here = ["\n".join(rows[theirs]) for theirs, _, note in table[1:] if gpu or "on a GPU" not in note]
    assert len(here) >= 6
    code = programs(PAGES[page])[()]
    for line in here:
        code += f"\nexec({line + chr(10) + '    pass' if line.endswith(':') else line!r}, dict(globals()))"
    ran = run(code, tmp_path)
    assert (ran.returncode, ran.stderr) == (0, "")
    assert ran.stdout.splitlines() == promised(code)


def test_each_message_that_names_an_extra_names_it_for_a_checkout() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    sources = [*(ROOT / "offload_args").rglob("*.py"), *(ROOT / "bindings" / "roles").glob("*.toml")]
    named = {path.name for path in sources if "offload-args[" in path.read_text()}
    assert {"rtc.py", "demo.py", "cublas.toml", "cublaslt.toml"} <= named
    for path in sources:
        text = path.read_text()
        for name in re.findall(r"offload-args\[(\w+)\]", text):
            assert name in extras, path
            assert name == "cuda12" or f"'.[{name}]'" in text, path  # the text names cuda12 with cuda13


def test_each_page_that_names_an_extra_names_it_for_a_checkout() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    for page, text in PAGES.items():
        assert not re.search(rf"offload_args\[(?:{'|'.join(extras)})\]", text), f"{page}: pip says offload-args[...]"
        for name in re.findall(r"offload-args\[(\w+)\]", text):
            assert name in extras, page
            assert re.search(r"'\.\[[\w,]+\]'", text), f"{page}: name the form for a checkout: '.[{name}]'"
