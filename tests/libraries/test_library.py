"""Vendor libraries are searched in a fixed order, never in the working directory, and errors list every place."""

from __future__ import annotations

import ctypes
import os
import re
import subprocess
import sys
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from helpers.processes import program_or_skip, python
from helpers.vendor import with_32_bit_integers
from offload_args import libraries
from offload_args.errors import LibraryError

CALL = """
import numpy as np
from offload_args import offload_args, {name}, libraries
try:
    with offload_args(np.ones(4, np.float32), device="host") as (dx,):
        {name}.sscal(4, 2.0, dx, 1)
        {name}.sscal(4, 2.0, dx, 1)
    print("loaded", libraries.loaded("{name}"))
except Exception as error:
    print(type(error).__name__, str(error))
"""


def run(folder: Path, name: str = "cblas", code: str = CALL, **environment: str) -> str:
    """Call a function of the library in a new process with the working directory `folder`."""
    result = subprocess.run(
        [sys.executable, "-P", "-c", code.format(name=name)],
        cwd=folder,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert result.returncode == 0, result.stderr
    return result.stdout


@pytest.fixture(scope="module")
def openblas() -> str:
    return libraries.load("cblas").path


def build(folder: Path, name: str, source: str, *options: str | Path) -> Path:
    path = folder / name
    command = [program_or_skip("cc"), "-shared", "-fPIC", "-x", "c", "-", "-o", path, "-x", "none", *options]
    subprocess.run(command, input=source, text=True, check=True)
    return path


def numpys_own() -> str:
    """Return the name of cblas_icamin in NumPy's own library, or "" if the library lacks it, as reference BLAS does."""
    core = sys.modules.get("numpy._core._multiarray_umath") or sys.modules["numpy.core._multiarray_umath"]
    symbols = ctypes.CDLL(core.__file__)
    spelled = (f"{prefix}cblas_icamin{suffix}" for prefix, suffix in product(("", "scipy_"), ("", "64_", "_64")))
    return next((name for name in spelled if hasattr(symbols, name)), "")


def expected_finder() -> str:
    return "NumPy's own" if numpys_own() else "scipy-openblas32"


def test_a_library_says_where_it_is_and_how_it_was_found() -> None:
    actual = libraries.load("cblas")
    assert os.path.isabs(actual.path)
    assert "OpenBLAS" in actual.version
    assert actual.found == expected_finder() or os.environ.get("OFFLOAD_ARGS_CBLAS")
    assert libraries.loaded("cblas") == actual


def test_no_second_blas_is_loaded_beside_numpys_own(tmp_path: Path) -> None:
    code = """
import os
import numpy as np
def found():
    names = {{os.path.realpath(line.split()[-1]) for line in open("/proc/self/maps") if "/lib" in line}}
    return {{name for name in names if name.split("/")[-1].startswith(("libopenblas", "libscipy_", "libmkl"))}}
before = found()
from offload_args import blas, libraries, offload_args
A, x, y = np.ones((300, 400)), np.ones(400), np.zeros(300)
with offload_args(A, x, y, device="host") as (dA, dx, dy):
    blas.gemv(1.0, dA, dx, 0.0, dy)
print(y[0], found() - before)
"""
    others = "set()" if numpys_own() else repr({with_32_bit_integers()})
    assert run(tmp_path, code=code, OFFLOAD_ARGS_CBLAS="") == f"400.0 {others}\n"


LACKING = "float cblas_sasum(int n, const float *x, int incx) { return 0; } void cblas_caxpy(void) {}"
LINKED = "float cblas_sasum(); float use(void) { return cblas_sasum(); }"


@pytest.mark.later
def test_a_blas_of_numpys_that_lacks_a_function_is_passed_over(tmp_path: Path) -> None:
    blas = build(tmp_path, "libblas.so.3", LACKING)
    core = build(tmp_path, "core.so", LINKED, blas)
    code = f"""
import ctypes, sys, types
from offload_args import libraries
core = sys.modules["numpy._core._multiarray_umath"] = types.ModuleType("core")
core.__file__ = {str(core)!r}
ctypes.CDLL(core.__file__)
elsewhere = libraries._in_wheel, libraries._in_system
libraries._in_wheel = libraries._in_system = lambda *_: iter(())
print(libraries.find_and_open("cblas"))
libraries._in_wheel, libraries._in_system = elsewhere
print(libraries.load("cblas").found)
"""
    failure, actual = run(tmp_path, code=code, OFFLOAD_ARGS_CBLAS="").splitlines()
    assert f"{core} (NumPy's own): cblas: {blas} has no symbol cblas_ccopy: it is another library" in failure
    assert actual == "scipy-openblas32"


@pytest.mark.later
def test_a_numpy_whose_extension_has_no_file_is_passed_over(tmp_path: Path) -> None:
    code = """
import sys
from offload_args import libraries
sys.modules["numpy._core._multiarray_umath"] = sys.modules["numpy.core._multiarray_umath"] = None
print("loaded", libraries.load("{name}").found)
"""
    assert run(tmp_path, code=code, OFFLOAD_ARGS_CBLAS="") == "loaded scipy-openblas32\n"


@pytest.mark.later
def test_only_libraries_that_a_loaded_module_is_linked_with_are_shared(tmp_path: Path) -> None:
    core = build(tmp_path, "core.so", LINKED, build(tmp_path, "libblas.so.3", LACKING))
    code = """
import ctypes, os
from offload_args import embedding
core = ctypes.CDLL(embedding.get_library())
core.oa_last_error.restype = ctypes.c_char_p
def share(library, module):
    assert core.oa_library_share(library, module) != 0
    print(core.oa_last_error().decode())
share(b"cblas", b"CORE")
share(b"cblas", b"core.so")
share(b"cblas", None)
share(b"elephant", None)
share(None, None)
"""
    lines = run(tmp_path, code=code.replace("CORE", str(core))).splitlines()
    assert lines[0] == f"cblas: {core} is not loaded in this process"
    assert "is not an absolute path" in lines[1]
    assert lines[2].startswith("cblas: the program has no symbol cblas_caxpy")
    assert lines[3].endswith('needs the name of a library of this build, got "elephant"')
    assert lines[4].endswith('needs the name of a library of this build, got "NULL"')


@pytest.mark.later
def test_two_threads_that_need_the_library_first_share_one(tmp_path: Path) -> None:
    code = """
import numpy as np
from threading import Barrier, Thread
from offload_args import blas, libraries, offload_args
count = 8
barrier, arrays = Barrier(count), [np.ones(3) for _ in range(count)]
def double(x):
    with offload_args(x, device="host") as (dx,):
        barrier.wait()
        blas.scal(2.0, dx)
threads = [Thread(target=double, args=(x,)) for x in arrays]
for thread in threads: thread.start()
for thread in threads: thread.join()
print(np.sum(arrays), libraries.loaded("{name}").found)
"""
    assert run(tmp_path, code=code, OFFLOAD_ARGS_CBLAS="") == f"48.0 {expected_finder()}\n"


@pytest.mark.slow
def test_an_override_with_32_bit_integers_gives_the_same_results() -> None:
    names = "host and short and (amax or dotc or nrm2 or rotm or dgemv or cgemm or dtrsm)"
    file = Path(__file__).parents[1] / "vendor" / "test_routines.py"
    result = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-k", names, file],
        env={**os.environ, "OFFLOAD_ARGS_CBLAS": with_32_bit_integers()},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert result.returncode == 0, result.stdout


WIDE = """
import numpy as np
from offload_args import {name} as cblas, libraries, offload_args
A, x, y = np.arange(3.0), np.ones(1), np.zeros(3)
index = np.zeros(1, np.int32)
with offload_args(A, x, y, index, device="host") as (dA, dx, dy, di):
    for lda in (2**31 + 3, 2**32 + 1):
        try:
            cblas.dgemv(cblas.ColMajor, cblas.NoTrans, 3, 1, 2.0, dA, lda, dx, 1, 0.0, dy, 1)
            print("called")
        except OverflowError as error:
            print(error)
    try:
        cblas.idamax(1, dx, 2**31, result=di)
    except OverflowError as error:
        print(error)
print(y)
"""
TOO_LARGE = "cblas.dgemv: lda is {}, and this library takes at most 2147483647 here; split the call"


@pytest.mark.later
@pytest.mark.promise("T30")
def test_a_leading_dimension_beyond_31_bits_is_taken_by_64_bit_integers_only(tmp_path: Path) -> None:
    narrow = run(tmp_path, code=WIDE, OFFLOAD_ARGS_CBLAS=with_32_bit_integers()).splitlines()
    assert narrow[:2] == [TOO_LARGE.format(2**31 + 3), TOO_LARGE.format(2**32 + 1)]
    assert narrow[3] == "[0. 0. 0.]"
    own = run(tmp_path, code=WIDE, OFFLOAD_ARGS_CBLAS="").splitlines()
    if "64" in numpys_own():
        assert own[:2] == ["called", "called"]
        assert own[3] == "[0. 2. 4.]"
    for lines in (narrow, own):  # the index on the device has 32 bits
        assert lines[2].startswith("cblas.idamax: incx is 2147483648")


@pytest.mark.later(but="int-_64")
@pytest.mark.promise("T30")
@pytest.mark.parametrize("suffix", ["", "64_", "_64"])
@pytest.mark.parametrize("integer", ["int", "long long"])
def test_whether_a_library_has_64_bit_integers_is_tried_out(tmp_path: Path, integer: str, suffix: str) -> None:
    source = f"""
#include <stddef.h>
void cblas_caxpy{suffix}(void) {{}}
size_t cblas_isamax{suffix}({integer} n, const float *x, {integer} incx) {{
  size_t at = 0;
  for ({integer} i = 1; i < n; i++) if (x[i * incx] > x[at * incx]) at = i;
  return at;
}}
void cblas_sscal{suffix}({integer} n, float alpha, float *x, {integer} incx) {{ x[0] = incx; }}
"""
    code = """
import numpy as np
from offload_args import {name} as cblas, offload_args
x = np.ones(1, np.float32)
try:
    with offload_args(x, device="host") as (dx,):
        cblas.sscal(1, 2.0, dx, 5)
        print(dx.live, cblas.isamax(1, dx, 1))
        cblas.sscal(1, 2.0, dx, 2**33)
except OverflowError:
    print("too large")
print(x)
"""
    path = build(tmp_path, "libmine.so", source)
    text = run(tmp_path, code=code, OFFLOAD_ARGS_CBLAS=str(path))
    assert text == ("True 0\ntoo large\n[1.]\n" if integer == "int" else "True 0\n[8.589935e+09]\n")


def test_an_override_is_taken_as_it_is(tmp_path: Path, openblas: str) -> None:
    copy = tmp_path / "libscipy_openblas_mine.so"
    copy.symlink_to(openblas)
    text = run(tmp_path, OFFLOAD_ARGS_CBLAS=str(copy))
    assert text.startswith("loaded")
    assert str(copy) in text
    assert "environment variable OFFLOAD_ARGS_CBLAS" in text


@pytest.mark.promise("T39")
def test_a_missing_library_is_named_and_nothing_else_is_tried(tmp_path: Path) -> None:
    text = run(tmp_path, OFFLOAD_ARGS_CBLAS=str(tmp_path / "libnothing.so"))
    assert text.startswith(("LibraryError cblas.sscal: ", "LibraryError cblas: "))
    assert f"{tmp_path}/libnothing.so (environment variable OFFLOAD_ARGS_CBLAS)" in text
    assert "No such file" in text
    assert "scipy-openblas32:" not in text


@pytest.mark.promise("T39")
def test_a_corrupt_library_is_not_loaded(tmp_path: Path) -> None:
    path = tmp_path / "libopenblas.so.0"
    path.write_bytes(b"\x7fELF" + bytes(100))
    text = run(tmp_path, OFFLOAD_ARGS_CBLAS=str(path))
    assert text.startswith("LibraryError")
    assert str(path) in text


@pytest.mark.later
@pytest.mark.promise("T39")
def test_another_library_or_version_is_not_loaded(tmp_path: Path) -> None:
    path = build(tmp_path, "libopenblas.so.0", "int cblas_of_another_kind(void) { return 0; }")
    text = run(tmp_path, OFFLOAD_ARGS_CBLAS=str(path))
    assert text.startswith("LibraryError")
    assert "has no symbol" in text
    assert "another version" in text


@pytest.mark.promise("T39")
def test_a_relative_override_is_refused(tmp_path: Path, openblas: str) -> None:
    (tmp_path / "libscipy_openblas.so").symlink_to(openblas)
    text = run(tmp_path, OFFLOAD_ARGS_CBLAS="./libscipy_openblas.so")
    assert text.startswith("LibraryError")
    assert "not an absolute path" in text


@pytest.mark.later
@pytest.mark.promise("T39")
def test_a_library_planted_in_the_working_directory_is_not_loaded(tmp_path: Path) -> None:
    planted = "#include <stdlib.h>\n__attribute__((constructor)) static void planted(void) { exit(66); }"
    for name in ("libscipy_openblas.so", "libopenblas.so.0", "libcblas.so.3", "libblas.so.3"):
        build(tmp_path, name, planted)
    assert run(tmp_path).startswith("loaded")
    for name in ("libcublas.so.13", "libcublas.so.12", "libcublas.so", "libcublasLt.so.13", "libcublasLt.so.12"):
        build(tmp_path, name, planted)
    code = """
from offload_args import libraries
try: print("loaded", libraries.load("{name}").path)
except Exception as error: print(type(error).__name__, str(error))
"""
    text = run(tmp_path, "cublas", code)
    assert text.startswith(("loaded /", "LibraryError"))
    assert f"loaded {tmp_path}" not in text


PARTS = "void cublasCaxpy_v2(void) {} int cublasGetProperty(int part, int *value) { return *value = part + 3, 0; }"


@pytest.mark.later
@pytest.mark.parametrize(("source", "version"), [(PARTS, "3.4.5"), (PARTS.replace("0; }", "7; }"), "")])
def test_a_library_is_asked_for_its_version_as_its_roles_file_says(tmp_path: Path, source: str, version: str) -> None:
    path = build(tmp_path, "libmine.so", source)
    code = "from offload_args import libraries; print(tuple(libraries.load('cublas')))"
    answer = run(tmp_path, code=code, OFFLOAD_ARGS_CUBLAS=str(path))
    assert answer == f"{('cublas', str(path), version, 'environment variable OFFLOAD_ARGS_CUBLAS')}\n"


@pytest.mark.promise("T39")
def test_every_place_tried_is_listed(tmp_path: Path) -> None:
    code = """
import sys
sys.modules["cuda.pathfinder"] = None
from offload_args import libraries
def nothing(names, tried):
    tried.append("the system's linker: did not find " + ", ".join(names))
    return iter(())
libraries._in_system = nothing
try: print("loaded", libraries.load("{name}"))
except Exception as error: print(type(error).__name__, str(error))
"""
    text = run(tmp_path, "cublas", code)
    assert text.startswith("LibraryError cublas: not loaded; install offload-args[cuda12] or offload-args[cuda13]")
    assert "OFFLOAD_ARGS_CUBLAS" in text
    assert "cuda-pathfinder: " in text
    assert "the system's linker: did not find libcublas.so.13" in text


@pytest.mark.later
def test_a_library_whose_roles_name_no_file_says_so(tmp_path: Path) -> None:
    code = """
from offload_args import libraries
facts = libraries._FACTS["{name}"]
libraries._FACTS["{name}"] = facts._replace(sonames=(), pathfinder="", folders=("/opt",))
try: print("loaded", libraries.load("{name}"))
except Exception as error: print(type(error).__name__, str(error))
"""
    text = run(tmp_path, "cublas", code)
    assert text.startswith("LibraryError cublas: not loaded; install ")
    assert "Tried: no folder was looked into: [library] of bindings/roles/cublas.toml has no sonames" in text


@pytest.mark.promise("T24")
def test_ctrl_c_while_a_library_is_loaded_is_raised_and_the_next_call_loads_it() -> None:
    code = """
import numpy as np
from offload_args import blas, libraries, offload_args
candidates = libraries._candidates
def interrupted(name, tried):
    libraries._candidates = candidates
    raise KeyboardInterrupt
    yield
libraries._candidates = interrupted
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
    run = python(code)
    assert (run.stdout, run.stderr) == ("interrupted [1. 1. 1.]\n[2. 2. 2.]\n", "")


INTERRUPTED = """
import os, sys
sys.path.insert(0, {tests!r})
import numpy as np
from helpers.interrupts import ctrl_c
from offload_args import blas, libraries, offload_args

def lend_and_scale(x):
    with offload_args(x, device="host") as (dx,):
        blas.scal(2.0, dx)

def attempt(at):
    x, arrived = np.ones(3), False
    with offload_args(x, device="host"):
        pass
    try:
        with ctrl_c(at) as sent:
            lend_and_scale(x)
            for _ in range(1000):
                pass
    except KeyboardInterrupt:
        arrived = True
    if not sent:
        return 2
    if x[0] == 1:
        lend_and_scale(x)
    return 0 if arrived and x.tolist() == [2, 2, 2] and libraries.loaded("cblas").found.startswith("env") else 1

for at in range(1000):
    child = os.fork()  # each loads it for the first time
    if not child:
        os._exit(attempt(at))
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if code:
        break
print(at > 20, code)
"""


@pytest.mark.slow
@pytest.mark.promise("T58")
def test_ctrl_c_at_any_place_of_a_librarys_first_call_is_raised(tmp_path: Path, openblas: str) -> None:
    code = INTERRUPTED.format(tests=str(Path(__file__).parents[1]))
    ran = python(code, OFFLOAD_ARGS_CBLAS=openblas)
    assert (ran.stdout, ran.stderr) == ("True 2\n", "")


@pytest.mark.promise("T60")
@pytest.mark.parametrize("name", ["cblas\0x", "mkl", "", " cblas", "CBLAS", None, 3, b"cblas"])
def test_a_library_is_known_by_its_exact_name_only(openblas: str, name: Any) -> None:
    with pytest.raises(LibraryError, match=re.escape(repr(name)) + ".*there are cublas, .*cblas"):
        libraries.load(name)
    assert libraries.loaded(name) is None
