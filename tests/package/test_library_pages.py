"""The libraries' pages, such as docs/guide/cublas.md, name existing functions; test_pages.py runs their examples."""

from __future__ import annotations

import importlib
import re

import pytest

from helpers.pages import ROOT

PAGES = ("cblas", "cublas", "cublaslt", "cufft", "curand", "cusolver", "nccl", "rocblas", "rocsolver")


@pytest.mark.parametrize("page", PAGES)
def test_the_pages_name_functions_and_constants_that_there_are(page: str) -> None:
    module = importlib.import_module(f"offload_args.{page}")
    text = (ROOT / "docs" / "guide" / f"{page}.md").read_text()
    named = set(re.findall(rf"\b{page}\.(\w+)", text)) - {"md"}
    assert len(named) >= 5
    assert sorted(name for name in named if not hasattr(module, name)) == []
