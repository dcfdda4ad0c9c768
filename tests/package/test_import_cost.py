"""Importing the package is cheap: besides NumPy, it imports only small modules of its own, and each of them is used."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

# Modules of Python and of other packages that the import may load, besides NumPy and all modules that NumPy imports.
# Finders of editable installs import importlib and pathlib.
CHEAP = {"__future__", "atexit", "collections", "contextlib", "enum", "functools", "gc", "math", "operator", "types"}

# The package's modules that are needed to lend an array; all other modules are imported when first used.
AT_START = {
    "",
    "._core",
    "._signatures",
    "._table",
    ".arguments",
    ".devices",
    ".display",
    ".dtypes",
    ".errors",
    ".memory",
    ".pointers",
    ".regions",
    ".tracing",
}

COUNT = """
import sys
import numpy, pathlib, importlib.util
before = set(sys.modules)
import {module}
print(*sorted(set(sys.modules) - before), sep="\\n")
"""


def imported_by(module: str) -> tuple[set[str], set[str]]:
    """Return the names of the package's modules that an import loads, and the names of other packages' modules."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("OFFLOAD_ARGS_")}
    run = subprocess.run(
        [sys.executable, "-c", COUNT.format(module=module)], capture_output=True, text=True, check=True, env=clean
    )
    results = {name for name in run.stdout.split() if not name.startswith("importlib.")}
    own = {name for name in results if name.partition(".")[0] == "offload_args"}
    return {name.removeprefix("offload_args") for name in own}, results - own


def test_importing_the_package_imports_only_modules_that_every_region_needs() -> None:
    own, others = imported_by("offload_args")
    assert own == AT_START
    assert others <= CHEAP


@pytest.mark.later(but="blas")
@pytest.mark.parametrize("module", ["blas", "cblas", "cublas", "libraries", "testing"])
def test_importing_a_module_imports_no_heavy_module_of_python(module: str) -> None:
    own, others = imported_by(f"offload_args.{module}")
    assert f".{module}" in own
    assert others <= CHEAP


@pytest.mark.later
def test_a_trace_is_imported_when_one_begins() -> None:
    own, others = imported_by("offload_args.tracing")
    assert own == AT_START
    own, others = imported_by("offload_args.tracing.recording")
    assert {".tracing.collect", ".tracing.summary"} <= own
    assert ".tracing.timeline" not in own and "json" not in others


def test_a_process_that_only_imported_the_package_may_fork() -> None:
    code = "import os, offload_args as oa; os.fork() or os._exit(oa.Device.host().counters.calls); print(os.wait()[1])"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (run.stdout, run.stderr) == ("0\n", "")
