"""`python -m offload_args info`."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import offload_args as package


def info(*options: str, **environment: str) -> str:
    run = subprocess.run(
        [sys.executable, "-m", "offload_args", "info", *options],
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, **environment},
    )
    assert run.returncode == 0, run.stderr
    return run.stdout


def test_info_names_devices_libraries_and_compilers() -> None:
    text = info("--verbose")
    assert text.startswith(f"offload_args {package.__version__}\n")
    assert "device host" in text
    assert "library cblas: /" in text
    results: dict[str, Any] = json.loads(info("--json"))
    assert results["devices"][-1]["name"] == "host"
    cblas = next(library for library in results["libraries"] if library["name"] == "cblas")
    assert cblas["path"].startswith("/")
    assert "OpenBLAS" in cblas["version"]
    assert cblas["found"]
    assert [compiler["name"] for compiler in results["compilers"]] == ["NVRTC", "hiprtc"]
    for compiler in results["compilers"]:
        words = f"compiler {compiler['error'] if 'error' in compiler else compiler['version'] + ': /'}"
        assert words in text and (compiler.get("path", "/").startswith("/"))


@pytest.mark.later
def test_info_says_where_a_driver_is_or_why_a_vendor_has_no_device() -> None:
    text, results = info("--verbose"), json.loads(info("--json"))
    there = {library["name"].partition(":")[0]: library for library in results["devices"]}
    for backend, library in (("cuda", "libcuda.so"), ("hip", "libamdhip64.so")):
        if backend in there:
            assert library in there[backend]["driver"] and there[backend]["driver"] in text
        else:
            assert library in results["absent"][backend] or "Init" in results["absent"][backend]
            assert f"no device {backend}: {results['absent'][backend]}" in text


@pytest.mark.later
def test_info_is_a_short_line_a_device_library_and_compiler() -> None:
    results: dict[str, Any] = json.loads(info("--json"))
    short = info().splitlines()
    assert max(map(len, short)) <= 130
    things = ["devices", "absent", "libraries", "compilers"]
    # There is one line each for the package, Python, the simulated device, and the hint at further facts.
    assert len(short) == sum(len(results[thing]) for thing in things) + 4
    assert short[1].startswith(
        f"{platform.python_implementation()} {platform.python_version()}, NumPy {np.__version__}"
    )
    assert "SciPy" in short[1]
    assert any(line.startswith("device sim:0: ") for line in short)
    assert "--verbose" in short[-1]
    for library in results["libraries"]:
        (line,) = (line for line in short if line.startswith(f"library {library['name']}: "))
        assert ("install" in line and "tried" not in line) if "error" in library else library["found"] in line
    cblas = next(library for library in results["libraries"] if library["name"] == "cblas")
    assert cblas["path"] not in "".join(short)


@pytest.mark.later
@pytest.mark.parametrize("name", ["CUBLAS", "CBLAS", "NVRTC", "HIPRTC"])
def test_info_tells_in_its_line_what_is_wrong_with_a_library_that_was_chosen(name: str, tmp_path: Path) -> None:
    path = tmp_path / "libother.so"
    path.write_text("")
    (line,) = (line for line in info(**{f"OFFLOAD_ARGS_{name}": str(path)}).splitlines() if str(path) in line)
    assert line.startswith(("library ", "compiler ")) and "file too short" in line
