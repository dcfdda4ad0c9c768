"""Functions that NumPy's own CBLAS lacks are tested with builds that have them, each build in a separate process."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from helpers.vendor import bound, is_there, with_32_bit_integers
from offload_args import Scratch, _core, cblas, offload_args
from offload_args.errors import LibraryError
from vendor import low

HERE = Path(__file__).parent
DTYPES = {
    "f16": "float16",
    "bf16": "bfloat16",
    "f32": "float32",
    "f64": "float64",
    "c64": "complex64",
    "c128": "complex128",
}
ONLY_IN_THE_WHEEL = [("sdcz", "gemm_batch_strided"), ("sdcz", "gemm_batch"), ("sdcz", "geadd")]
LACKING = [name for name in bound(cblas) if not is_there(name)]


def run_cases(path: str, names: list[str]) -> None:
    """Run the cases of these functions, on the host and on sim, with the library at `path`."""
    test = f"{HERE / 'test_routines.py'}::test_a_routine_agrees_with_higher_precision"
    ids = [f"{test}[short-{device}-{name}]" for device in ("host", "sim:0") for name in names]
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *ids],
        cwd=HERE.parents[1],
        env={**os.environ, "OFFLOAD_ARGS_CBLAS": path},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert ran.returncode == 0, ran.stdout[-4000:]
    assert f"{len(ids)} passed" in ran.stdout


@pytest.mark.slow
def test_functions_that_only_the_wheel_has() -> None:
    strided, batched, added = ([f"{t}{name}" for t in letters] for letters, name in ONLY_IN_THE_WHEEL)
    run_cases(with_32_bit_integers(), [*strided, *batched, *added])


@pytest.mark.slow
def test_functions_of_low_precision_that_no_wheel_has(tmp_path: Path) -> None:
    double = tmp_path / "liblow.so"
    source = HERE.parent / "doubles" / "low_precision.c"
    options = ["-std=gnu11", "-O1", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC"]
    subprocess.run(["gcc", *options, "-o", double, source], check=True)
    run_cases(str(double), sorted(low.CASES))


ODD = """
#include <stdlib.h>
int cblas_isamax(int n, const float *x, int inc) { return (void)n, (void)x, (void)inc, 0; }
void cblas_zgemm_batch_strided(int order, int a, int b, int m, int n, int k, const void *alpha, const double *A,
                               int lda, int stride_a) { if (stride_a > 2) abort(); }
"""
CALLS_THE_ODD = """
import numpy as np
from offload_args import cblas, offload_args
ones = np.ones(9, complex)
with offload_args(ones, ones.copy()) as (a, c):
    cblas.zgemm_batch_strided(102, 111, 111, 1, 1, 1, 1.0, a, 1, 3, a, 1, 3, 0.0, c, 1, 3, 3)
"""


def test_a_version_that_counts_strides_between_complex_matrices_in_a_way_of_its_own_is_refused(tmp_path: Path) -> None:
    (tmp_path / "odd.c").write_text(ODD)
    subprocess.run(["gcc", "-w", "-shared", "-fPIC", "-o", tmp_path / "libodd.so", tmp_path / "odd.c"], check=True)
    environment = {**os.environ, "OFFLOAD_ARGS_CBLAS": str(tmp_path / "libodd.so")}
    ran = subprocess.run([sys.executable, "-c", CALLS_THE_ODD], env=environment, capture_output=True, text=True)
    assert "LibraryVersionError: cblas.zgemm_batch_strided is not called: with strides of 2" in ran.stderr, ran.stderr


def an_argument(kind: str, name: str) -> Any:
    """Return a legal argument for a parameter that is not a pointer."""
    if kind.endswith("*"):
        return []  # no groups
    if kind == "enum":
        return {"order": cblas.ColMajor, "uplo": cblas.Upper}.get(name, cblas.NoTrans)
    return int(name != "group_count") if kind == "size" else 1.0


@pytest.mark.parametrize("name", LACKING)
def test_a_function_that_the_library_lacks_is_refused_by_name(name: str) -> None:
    roles = [row for row in _core.record("cblas", name) if row[0] != "result"]
    arrays = [Scratch((1,), DTYPES[dtype]) for role, _, dtype, *_ in roles if role in ("in", "out", "inout")]
    with offload_args(*arrays, device="host") as lent:
        pointers = iter(lent)
        arguments = [next(pointers) if row[0] in ("in", "out", "inout") else an_argument(*row[:2]) for row in roles]
        wrong = rf"cblas_{name}\w* of \S+ is not called: its version is .*, and .*; load a later one"
        with pytest.raises(LibraryError, match=rf"cblas_{name}\w*: its version is .*; version \S+ has it|{wrong}"):
            getattr(cblas, name)(*arguments)
