"""Every example runs on every device and finds its own result right; so does the code of the README."""

from __future__ import annotations

import re
import runpy
import shutil
import struct
import sys
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from helpers.devices import library_or_skip
from offload_args import Device, blas, call
from offload_args.errors import LibraryError, ModuleError

EXAMPLES = sorted((Path(__file__).parents[2] / "examples").glob("*.py"))


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_example_finds_its_own_result_right(
    path: Path, device: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", [str(path), "--device", device])
    monkeypatch.chdir(tmp_path)
    if device.startswith("hip") and "lapack" in path.read_text():  # rocSOLVER is not bound yet
        with pytest.raises(LibraryError, match="rocSOLVER comes later"):
            runpy.run_path(str(path), run_name="__main__")
        return
    if device.startswith("cuda") and "lapack" in path.read_text():
        library_or_skip("cusolver", device)
    if path.stem == "matmul_cubin" and shutil.which("nvcc") and Device(device).model.startswith("double of a GPU"):
        with pytest.raises(ModuleError, match="refuses it"):  # a double runs no machine code
            runpy.run_path(str(path), run_name="__main__")
        return
    if path.stem == "lenet_digits" and Device(device).backend == "cuda":
        library_or_skip("cudnn", device)
    runpy.run_path(str(path), run_name="__main__")
    assert capsys.readouterr().out


def test_the_mandelbrot_example_writes_a_png_of_its_image(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = next(path for path in EXAMPLES if path.stem == "mandelbrot")
    monkeypatch.setattr(sys, "argv", [str(path), "--device", "host"])
    monkeypatch.chdir(tmp_path)
    image = runpy.run_path(str(path), run_name="__main__")["image"]
    data = (tmp_path / "mandelbrot.png").read_bytes()
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    chunks, at = {}, 8
    while at < len(data):
        length, kind = struct.unpack(">I4s", data[at : at + 8])
        chunks[kind] = data[at + 8 : at + 8 + length]
        assert zlib.crc32(data[at + 4 : at + 8 + length]) == int.from_bytes(data[at + 8 + length : at + 12 + length])
        at += length + 12
    assert list(chunks) == [b"IHDR", b"IDAT", b"IEND"]
    assert struct.unpack(">2I5B", chunks[b"IHDR"]) == (640, 480, 8, 0, 0, 0, 0)
    rows = np.frombuffer(zlib.decompress(chunks[b"IDAT"]), np.uint8).reshape(480, 641)
    assert not rows[:, 0].any()  # no filters
    np.testing.assert_array_equal(rows[:, 1:], image)
    assert np.count_nonzero(image == 240) > 50_000  # the set itself


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
def test_example_fits_a_screen(path: Path) -> None:
    lines = path.read_text().splitlines()
    most = 62 if path.stem == "lenet_digits" else 45  # which trains one net in two ways
    assert len(lines) <= most and max(map(len, lines)) <= 120
