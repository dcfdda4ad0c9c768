"""`python -m offload_args demo`."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from offload_args import Device, command, demo
from offload_args.command import demo as demo_command


@pytest.mark.later("sim:0")
def test_demo_agrees_with_numpy(device: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["demo", "--device", device]) == 0
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


@pytest.mark.later
def test_demo_draws_a_picture_where_matplotlib_is_here(tmp_path: Path) -> None:
    path = tmp_path / "components.png"
    plot = ["demo", "--device", "host", "--components", "2", "--plot", str(path)]
    if demo_command.find_spec("matplotlib") is None:
        with pytest.raises(SystemExit):
            command.main(plot)
    else:
        assert command.main(plot) == 0
        assert path.read_bytes().startswith(b"\x89PNG")


def test_demo_says_how_to_get_matplotlib(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(demo_command, "find_spec", lambda name: None)
    with pytest.raises(SystemExit) as failure:
        command.main(["demo", "--plot", "components.png"])
    assert failure.value.code == 2
    assert "pip install 'offload-args[demo]' or, in a checkout, '.[demo]'" in capsys.readouterr().err


@pytest.mark.later
def test_a_picture_that_can_not_be_written_is_named_in_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("matplotlib", reason="device unavailable: no matplotlib")
    assert command.main(["demo", "--device", "host", "--plot", "/nonexistent/x.png"]) == 2
    said = capsys.readouterr().err
    assert said.startswith("demo: /nonexistent/x.png can't be written: ") and said.count("\n") == 1
