"""Every example runs on every device and finds its own result right; so does the demo, with the trips it promises."""

from __future__ import annotations

import re
import runpy
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from offload_args import Device, blas, call, demo

EXAMPLES = sorted((Path(__file__).parents[2] / "examples").glob("*.py"))


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_example_finds_its_own_result_right(
    path: Path, device: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", [str(path), "--device", device])
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


def test_demo_agrees_with_numpy(device: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert demo.main(["--device", device]) == 0
    output = capsys.readouterr().out
    assert f"device      {device}" in output
    assert "up          1 copy, 920,064 bytes" in output
    assert "down        1 copy, 3,072 bytes" in output


def test_demo_components_are_orthonormal_eigenvectors(device: str) -> None:
    data = demo.load_digits()
    eigenvalues, components, _ = demo.principal_components(data, 4, Device(device))
    np.testing.assert_allclose(components @ components.T, np.eye(4), atol=1e-12)
    covariance = data.T @ data / (len(data) - 1)
    np.testing.assert_allclose(covariance @ components.T, components.T * eigenvalues, atol=1e-4)


def test_demo_draws_a_picture_where_matplotlib_is_here(tmp_path: Path) -> None:
    path = tmp_path / "components.png"
    plot = ["--device", "host", "--components", "2", "--plot", str(path)]
    if demo.find_spec("matplotlib") is None:
        with pytest.raises(SystemExit):
            demo.main(plot)
    else:
        assert demo.main(plot) == 0
        assert path.read_bytes().startswith(b"\x89PNG")


def test_demo_says_how_to_get_matplotlib(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(demo, "find_spec", lambda name: None)
    with pytest.raises(SystemExit) as failure:
        demo.main(["--plot", "components.png"])
    assert failure.value.code == 2
    assert "pip install 'offload-args[demo]'" in capsys.readouterr().err
