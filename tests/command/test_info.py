"""`python -m offload_args info`."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import offload_args as package


def info(*options: str) -> str:
    run = subprocess.run(
        [sys.executable, "-m", "offload_args", "info", *options], capture_output=True, text=True, timeout=120
    )
    assert run.returncode == 0, run.stderr
    return run.stdout


def test_info_names_devices_libraries_and_compilers() -> None:
    text = info()
    assert text.startswith(f"offload_args {package.__version__}\n")
    assert "device host" in text
    assert "library cblas: /" in text
    found: dict[str, Any] = json.loads(info("--json"))
    assert found["devices"][-1]["name"] == "host"
    cblas = next(one for one in found["libraries"] if one["name"] == "cblas")
    assert cblas["path"].startswith("/")
    assert "OpenBLAS" in cblas["version"]
    assert cblas["found"]
    assert [one["name"] for one in found["compilers"]] == ["NVRTC", "hiprtc"]
    for one in found["compilers"]:
        words = f"compiler {one['error'] if 'error' in one else one['version'] + ': /'}"
        assert words in text and (one.get("path", "/").startswith("/"))


def test_info_says_where_a_driver_is_or_why_a_vendor_has_no_device() -> None:
    text, found = info(), json.loads(info("--json"))
    there = {one["name"].partition(":")[0]: one for one in found["devices"]}
    for backend, library in (("cuda", "libcuda.so"), ("hip", "libamdhip64.so")):
        if backend in there:
            assert library in there[backend]["driver"] and there[backend]["driver"] in text
        else:
            assert library in found["absent"][backend] or "Init" in found["absent"][backend]
            assert f"no device {backend}: {found['absent'][backend]}" in text
