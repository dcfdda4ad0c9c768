"""Every example and the code of the README run on every device and confirm their own results."""

from __future__ import annotations

import os
import re
import runpy
import shutil
import subprocess
import sys
import zipfile
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from helpers.devices import HIP, library_or_skip
from offload_args import Device
from offload_args.errors import ModuleError

EXAMPLES = sorted((Path(__file__).parents[2] / "examples").glob("*.py"))
IN_PYTHON = [path for path in EXAMPLES if "\n@kernel\n" in path.read_text()]  # their kernels take seconds to compile


@pytest.mark.later(but=("hello_gemv", "vector_add"))
@pytest.mark.parametrize(
    "device", ["host", pytest.param("sim:0", marks=pytest.mark.slow), "cuda:0", HIP], indirect=True
)
@pytest.mark.parametrize(
    "path",
    [pytest.param(path, marks=pytest.mark.slow) if path in IN_PYTHON else path for path in EXAMPLES],
    ids=lambda path: path.stem,
)
def test_example_finds_its_own_result_right(
    path: Path, device: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", [str(path), "--device", device])
    monkeypatch.chdir(tmp_path)
    if device.startswith(("cuda", "hip")) and "lapack" in path.read_text():
        library_or_skip("cusolver" if device.startswith("cuda") else "rocsolver", device)
    if path.stem == "matmul_cubin" and shutil.which("nvcc") and Device(device).model.startswith("double of a GPU"):
        with pytest.raises(ModuleError, match="refuses it"):  # a double can't run machine code
            runpy.run_path(str(path), run_name="__main__")
        return
    if path in IN_PYTHON and Device(device).model.startswith("double"):
        pytest.skip("device unavailable: the double runs no code of kernels in Python")
    if path.stem == "lenet_digits" and Device(device).backend == "cuda":
        library_or_skip("cudnn", device)
    draws = device == "host" and '"--plot"' in path.read_text() and find_spec("matplotlib") is not None
    if draws:
        monkeypatch.setattr(sys, "argv", [*sys.argv, "--plot", "picture.png"])
    runpy.run_path(str(path), run_name="__main__")
    assert capsys.readouterr().out
    if draws:
        from matplotlib import pyplot

        pyplot.close("all")
        assert (tmp_path / "picture.png").read_bytes().startswith(b"\x89PNG")


READING = [path for path in EXAMPLES if '"data" /' in path.read_text()]


@pytest.mark.parametrize("path", READING, ids=lambda path: path.stem)
def test_a_download_of_the_gallery_has_the_data_that_its_program_reads(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(path.parents[1] / "docs" / "_ext"))
    from _gallery_data import add_data  # type: ignore[import-not-found]

    for program in READING:  # as sphinx-gallery writes them
        name = f"{program.stem}.zip"
        (tmp_path / f"{program.stem}.rst").write_text(f"  :download:`Download zipped: {name} <{name}>`\n")
        with zipfile.ZipFile(tmp_path / name, "w") as archive:
            archive.write(program, program.name)
    add_data(tmp_path, path.parent)
    page = (tmp_path / f"{path.stem}.rst").read_text()
    add_data(tmp_path, path.parent)
    assert (tmp_path / f"{path.stem}.rst").read_text() == page
    with zipfile.ZipFile(tmp_path / f"{path.stem}.zip") as archive:
        assert len(archive.namelist()) == len(set(archive.namelist()))
        archive.extractall(tmp_path / "unpacked")
    for link in re.findall(r"<(/\.\./examples/data/[^>]+)>", page):
        assert (path.parents[1] / "docs" / link[1:]).is_file()
    monkeypatch.setattr(sys, "argv", [str(tmp_path / "unpacked" / path.name), "--device", "host"])
    runpy.run_path(sys.argv[0], run_name="__main__")


@pytest.mark.slow
@pytest.mark.parametrize("device", ["host", "sim:0"])
def test_out_of_core_goes_on_where_a_region_is_too_large(device: str) -> None:
    program = next(path for path in EXAMPLES if path.stem == "out_of_core")
    variables = os.environ | {"OFFLOAD_ARGS_MEMORY_LIMIT": "24MiB"}
    command = [sys.executable, str(program), "--device", device]
    lines = subprocess.run(command, env=variables, capture_output=True, text=True, check=True).stdout.splitlines()
    assert [line for line in lines if "region" in line] == [
        *(f"{size:3} MiB in a region: right" for size in (3, 12, 18)),
        *(f"{size:3} MiB in a region: too large" for size in (27, 48)),
    ]
    assert all(line.endswith("by parts: right") for line in lines[1::2])


def test_the_code_in_the_readme_runs() -> None:
    text = (Path(__file__).parents[2] / "README.md").read_text()
    (code,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    assert len(code.splitlines()) <= 12
    scope: dict[str, Any] = {}
    exec(code, scope)
    np.testing.assert_allclose(scope["y"], scope["A"].sum(1), rtol=1e-12, atol=1e-12)


def test_the_readme_is_short() -> None:
    text = (Path(__file__).parents[2] / "README.md").read_bytes()
    assert 70 <= len(text.splitlines()) <= 90 and len(text) <= 5_500


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_example_fits_a_screen(path: Path) -> None:
    lines = path.read_text().splitlines()
    most = 85 if path.stem == "lenet_digits" else 63  # lenet_digits trains one net in two ways
    assert len(lines) <= most and max(map(len, lines)) <= 120


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_each_card_of_the_gallery_has_a_picture_of_its_own(path: Path) -> None:
    text = path.read_text()
    if '"--plot"' not in text:
        (picture,) = re.findall(r'^# sphinx_gallery_thumbnail_path = "(.*)"$', text, re.MULTILINE)
        assert path.stem in picture and (path.parents[1] / "docs" / picture).is_file()
