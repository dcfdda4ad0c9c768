"""The examples of the libraries' pages, such as docs/guide/cublas.md, run as they stand there, and print their text."""

from __future__ import annotations

import importlib
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from helpers.devices import library_or_skip, open_or_skip
from offload_args import Device
from package.test_guide import code_of, promised

DOCS = Path(__file__).parents[2] / "docs" / "guide"
PAGES = {"cblas": "host", "lapack": "host", "rocblas": "hip:0"}
PAGES |= dict.fromkeys(("cublas", "curand", "cusolver"), "cuda:0")


@pytest.mark.parametrize(("page", "device"), PAGES.items())
def test_the_pages_examples_print_what_they_say(page: str, device: str) -> None:
    open_or_skip(device)
    if page in ("curand", "cusolver"):
        library_or_skip(page, device)
    if page == "lapack" and Device.default().is_gpu:
        library_or_skip("cusolver", str(Device.default()))
    code = code_of((DOCS / f"{page}.md").read_text())
    assert len(promised(code)) >= 2
    clean = {name: value for name, value in os.environ.items() if not name.startswith("OFFLOAD_ARGS_")}
    ran = subprocess.run(
        [sys.executable, "-W", "error", "-W", "ignore::DeprecationWarning", "-c", code],
        capture_output=True,
        text=True,
        env=clean,
        timeout=120,
    )
    assert (ran.returncode, ran.stderr) == (0, "")
    assert ran.stdout.splitlines() == promised(code)


@pytest.mark.parametrize("page", sorted({*PAGES} - {"lapack"}))
def test_the_pages_name_functions_and_constants_that_there_are(page: str) -> None:
    module = importlib.import_module(f"offload_args.{page}")
    named = set(re.findall(rf"\b{page}\.(\w+)", (DOCS / f"{page}.md").read_text())) - {"md"}
    assert len(named) >= 5
    assert sorted(name for name in named if not hasattr(module, name)) == []
