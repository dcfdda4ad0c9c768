"""A program of some 300 lines that calls CBLAS, and the diff with which it runs on a device."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from helpers.processes import output_of
from offload_args import libraries
from offload_args.embedding import cflags, libs

EXAMPLE = Path(__file__).parents[2] / "examples" / "embedding" / "lanczos"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of both built programs: lanczos with CBLAS, and lanczos_device with the patch."""
    folder = shutil.copytree(EXAMPLE, tmp_path_factory.mktemp("lanczos") / "lanczos")
    spec = importlib.util.find_spec("scipy_openblas32")
    assert spec is not None and spec.origin is not None
    blas = next(Path(spec.origin).parent.glob("lib/libscipy_openblas*.so"))
    names = sorted(set(re.findall(r"cblas_d\w+", (folder / "lanczos.c").read_text())))
    declared = [f"-D{name}=scipy_{name}" for name in names]
    (folder / "cblas.h").write_text(CBLAS)
    folders = [f"-I{folder}", f"-Wl,-rpath,{blas.parent}"]
    options = ["-O2", "-Wall", "-Wextra", "-Werror"]
    output_of("gcc", *options, *declared, *folders, "-o", "lanczos", "lanczos.c", blas, "-lm", folder=folder)
    shutil.copy(folder / "lanczos.c", folder / "lanczos_device.c")
    output_of("patch", "-s", "lanczos_device.c", "device.patch", folder=folder)
    output_of("gcc", *options, *cflags(), "-o", "lanczos_device", "lanczos_device.c", *libs(), "-lm", folder=folder)
    return folder


# The declarations that the program needs, as in any cblas.h.
CBLAS = """
enum { CblasColMajor = 102, CblasLower = 122 };
void cblas_dsymv(int, int, int, double, const double *, int, const double *, int, double, double *, int);
void cblas_daxpy(int, double, const double *, int, double *, int);
void cblas_dcopy(int, const double *, int, double *, int);
void cblas_dscal(int, double, double *, int);
double cblas_ddot(int, const double *, int, const double *, int);
double cblas_dnrm2(int, const double *, int);
"""


def numbers(said: str) -> Iterator[float]:
    for line in said.splitlines():
        yield float(line.rpartition(" ")[2])


def test_the_diff_is_at_most_a_tenth_of_the_program() -> None:
    lines = len((EXAMPLE / "lanczos.c").read_text().splitlines())
    changes = [line for line in (EXAMPLE / "device.patch").read_text().splitlines() if line[:3] not in ("+++", "---")]
    added, removed = (sum(line.startswith(sign) for line in changes) for sign in "+-")
    assert 250 <= lines <= 350
    assert added <= lines / 10 and removed <= lines / 10
    assert f"{added} of its {lines} lines" in (EXAMPLE / "README.md").read_text()


@pytest.mark.later
def test_both_find_the_same_eigenvalues(folder: Path, device: str) -> None:
    actual = os.environ.get("OFFLOAD_ARGS_CBLAS", "")
    library = {"cuda": "cublas", "hip": "rocblas"}.get(device.partition(":")[0])
    named = {f"OFFLOAD_ARGS_{library.upper()}": libraries.load(library).path} if library else {}
    *expected, residual = numbers(output_of(folder / "lanczos", 300, 30, 3, folder=folder))
    *values, own_residual = numbers(
        output_of(
            folder / "lanczos_device",
            300,
            30,
            3,
            folder=folder,
            LANCZOS_DEVICE=device,
            OFFLOAD_ARGS_CBLAS=actual,
            **named,
        )
    )
    np.testing.assert_allclose(values, expected, rtol=1e-9)
    assert residual < 1e-6 and own_residual < 1e-6
    i, j = np.indices((300, 300))
    A = np.exp(-abs(i - j) / 30) + 1e-3 * np.eye(300)
    np.testing.assert_allclose(values, np.linalg.eigvalsh(A)[::-1][:3], rtol=1e-8)
