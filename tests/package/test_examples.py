"""Every example runs on every device and finds its own result right; so does the code of the README."""

from __future__ import annotations

import re
import runpy
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from offload_args import Device, blas, call
from offload_args.errors import LibraryError, WrongDeviceError

EXAMPLES = sorted((Path(__file__).parents[2] / "examples").glob("*.py"))


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_example_finds_its_own_result_right(
    path: Path, device: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", [str(path), "--device", device])
    if device.startswith("hip") and "Kernel.compile" in path.read_text():  # AMD's compiler is not bound yet
        with pytest.raises(WrongDeviceError, match=f"{device} has no compiler"):
            runpy.run_path(str(path), run_name="__main__")
        return
    if device.startswith("hip") and "lapack" in path.read_text():  # nor its LAPACK
        with pytest.raises(LibraryError, match="rocSOLVER comes later"):
            runpy.run_path(str(path), run_name="__main__")
        return
    runpy.run_path(str(path), run_name="__main__")
    assert capsys.readouterr().out


def test_the_code_in_the_readme_runs() -> None:
    text = (Path(__file__).parents[2] / "README.md").read_text()
    code = "\n".join(re.findall(r"```python\n(.*?)```", text, re.DOTALL))
    if "cuda:0" not in map(str, Device.all()):  # one part says that it is for a GPU
        code = re.sub(r"\n# The vendor's own.*?\n\n", "\n\n", code, flags=re.DOTALL)
    scope: dict[str, Any] = {}
    exec(code, scope)
    A, x, y = scope["A"], np.ones(200), np.empty(300)
    assert scope["x"].shape == (4096, 4096)
    call(blas.gemv, 1.0, A, x, 0.0, y)
    np.testing.assert_allclose(y, A.sum(1), rtol=1e-12, atol=1e-12)
    del scope
    Device.default().release(A)


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_example_is_under_40_lines(path: Path) -> None:
    assert len(path.read_text().splitlines()) < 40
