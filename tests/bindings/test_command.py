"""The generator's command line: `extract` reports what is missing, and `emit` writes only files that change."""

from __future__ import annotations

import os
import pickle
import pickletools
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
sys.path.append(str(ROOT))  # last, so that the installed offload_args is imported, not its sources

from bindings import emit, roles  # noqa: E402
from bindings.emit import kept  # noqa: E402
from bindings.emit.docs import docstring  # noqa: E402
from recording import legal  # noqa: E402


def extract(*arguments: str, before: str = "") -> str:
    """Run extract, which has to fail, and return its one line."""
    code = f"import sys; {before}; from bindings.__main__ import main; sys.exit(main(sys.argv[1:]))"
    command = [sys.executable, "-c", code, "extract", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.count("\n") == 1, done.stderr
    return done.stderr


def test_extract_without_libclang_names_the_remedy() -> None:
    text = extract("--library", "curand", "--header", "x.h", before="sys.modules['clang'] = None")
    assert "has no libclang; run make .venv/dev and use .venv/bin/python, or install libclang==" in text


@pytest.mark.later
@pytest.mark.parametrize(
    ("arguments", "fault"),
    [
        (["--library", "curand", "--header", "nowhere.h"], "extract: --header nowhere.h: there is no such file"),
        (["--library", "nothing", "--header", "README.md"], "nothing.toml: there is no such file in "),
        (["--library", "curand", "--header", "README.md", "--older"], "curand.toml: there is no [older], which"),
    ],
)
def test_extract_names_the_file_that_it_lacks(arguments: list[str], fault: str) -> None:
    stand_in = "import types; sys.modules |= dict.fromkeys(['clang', 'clang.cindex'], types.ModuleType('clang')); "
    stand_in += "sys.modules['clang'].cindex = types.SimpleNamespace(Type=0, TranslationUnit=0, Cursor=0)"
    assert extract(*arguments, before=stand_in).startswith(fault)


def test_emit_leaves_files_alone_whose_text_does_not_change(tmp_path: Path) -> None:
    emit.emit([roles.read("curand")], tmp_path)
    paths = [path for path in tmp_path.rglob("*") if path.is_file()]
    for path in paths:
        os.utime(path, ns=(1, 1))
    changed = tmp_path / "libraries" / "curand.c"
    changed.write_text("changed")
    emit.emit([roles.read("curand")], tmp_path)
    assert len(paths) > 8
    assert [path for path in paths if path.stat().st_mtime_ns != 1] == [changed]
    assert changed.read_text() != "changed"


def test_emit_writes_only_a_library_that_changed_or_lacks_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written: list[str] = []
    texts = emit.library_texts

    def noted(library: roles.Library, files: list[str], out: Path) -> dict[str, str]:
        written.append(library.name)
        return texts(library, files, out)

    def emitted(title: str) -> list[str]:
        """Emit two libraries, which are read again; the first library has this title."""
        written.clear()
        cufft, curand = (roles.read(name) for name in ("cufft", "curand"))
        emit.emit([replace(cufft, title=title), curand], tmp_path)
        return written

    monkeypatch.setattr(emit, "library_texts", noted)
    assert emitted("cuFFT") == ["cufft", "curand"]
    assert emitted("cuFFT") == []
    (tmp_path / "curand.pyi").unlink()
    assert emitted("cuFFT") == ["curand"]
    assert (tmp_path / "curand.pyi").exists()
    module = (tmp_path / "cufft.py").read_bytes()
    assert emitted("another title") == ["cufft"]
    assert (tmp_path / "cufft.py").read_bytes() != module
    monkeypatch.setattr(kept, "generator_digest", lambda: b"another generator")
    assert emitted("another title") == ["cufft", "curand"]


def test_a_build_reads_and_writes_the_libraries_whose_files_changed_and_no_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, out = tmp_path / "bindings", tmp_path / "out"
    for name in ("roles/cufft.toml", "roles/hipfft.toml", "roles/fft.toml", "roles/curand.toml", "api/cufft.json",
                 "api/hipfft.json", "api/curand.json"):  # fmt: skip
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(roles.HERE / name, folder / name)
    read: list[str] = []
    from_files = roles.read

    def noted(name: str, folder: Path) -> roles.Library:
        read.append(name)
        return from_files(name, folder)

    def built() -> tuple[list[str], set[str]]:
        """Return the libraries that a build reads, and the files that it writes."""
        read.clear()
        before = {path: path.stat().st_mtime_ns for path in out.rglob("*.*")}
        in_folder = emit.Kept(out)
        emit.emit(roles.load(folder, in_folder.read), out, in_folder.origins)
        paths = [path for path in out.rglob("*.*") if path.suffix not in (".key", ".kept", ".signatures")]
        return read, {path.name for path in paths if before.get(path) != path.stat().st_mtime_ns}

    def replaced(name: str, before: str, after: str) -> None:
        text = (folder / name).read_text()
        assert before in text
        (folder / name).write_text(text.replace(before, after, 1))

    monkeypatch.setattr(roles, "read", noted)
    libraries, files = built()
    assert libraries == ["cufft", "curand", "hipfft"] and len(files) > 30
    assert built() == ([], set())
    replaced("roles/curand.toml", 'title = "cuRAND"', 'title = "another"')
    libraries, files = built()
    assert libraries == ["curand"] and {name for name in files if "curand" not in name} == {"_table.py"}
    assert '.title = "another"' in (out / "libraries" / "curand.c").read_text()
    replaced("roles/fft.toml", "[family.", "# a comment\n[family.")
    assert built() == (["cufft", "hipfft"], set())
    replaced("api/curand.json", '"version": "', '"version": "1')
    libraries, files = built()
    assert libraries == ["cufft", "curand", "hipfft"] and files and all("curand" in name for name in files)
    replaced("roles/hipfft.toml", 'extends = ["fft"]', 'extends = [\n    "fft",\n]')  # as a formatter may write it
    libraries, files = built()
    assert libraries == ["hipfft"] and files == set()
    replaced("roles/fft.toml", "[family.", "# another comment\n[family.")
    assert built() == (["cufft", "hipfft"], set())
    stale = out / "libraries" / "hipfft.kept"
    stale.write_bytes(stale.read_bytes()[:-1])
    assert built() == (["hipfft"], set())
    (out / "libraries" / "curand_api.c").unlink()
    assert built() == ([], {"curand_api.c"})


@pytest.mark.later
def test_what_emit_compares_has_no_set_whose_order_each_process_chooses() -> None:
    for name in ("curand", "rocblas"):
        codes = {code.name for code, _, _ in pickletools.genops(pickle.dumps(roles.read(name)))}
        assert not codes & {"FROZENSET", "EMPTY_SET", "ADDITEMS"}, name


@pytest.mark.later("cublas", "rocblas")
@pytest.mark.parametrize("name", roles.names())
def test_docstrings_have_the_parameters_in_the_order_of_the_signature(name: str) -> None:
    library = legal.libraries()[name]
    for function in library.functions:
        order = [parameter.name for parameter in function.parameters]
        lines = [line.partition(": ")[0] for line in docstring(library, function).split("\n") if ": " in line]
        firsts = [named.split(", ")[0] for named in lines]
        places = [order.index(first) for first in firsts if first in order]
        assert places == sorted(places), function.name
