"""`python -m offload_args selftest`."""

from __future__ import annotations

import json
from typing import Any

import pytest

from offload_args import Device, blas, command, selftest
from offload_args.selftest import behaviour


def few(device: Device) -> Any:
    """Yield a check of each kind; none takes long."""
    yield from list(behaviour.transfers(device))[:5]
    yield from behaviour.errors(device)
    yield from list(selftest.routines.checks(device))[::50]


@pytest.mark.slow
def test_every_check_passes_on_every_device(device: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["selftest", "--device", device]) == 0, capsys.readouterr().out
    assert " passed, 0 failed, " in capsys.readouterr().out


@pytest.mark.later("host")
def test_the_report_names_versions_device_library_and_counts(
    device: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(selftest, "GROUPS", {"few": few})
    assert command.main(["selftest", "--device", device, "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["device"].startswith(f"{device}, ") and report["python"] and report["system"]
    assert "/" in report["library"] and report["seconds"] > 0
    assert report["checks"]["few"]["passed"] > 25 and report["checks"]["few"]["failed"] == 0
    assert report["failures"] == []
    assert command.main(["selftest", "--device", device]) == 0
    text = capsys.readouterr().out
    assert "--- the report ---" in text and "record it" not in text and " passed, 0 failed, 0 not run, in " in text


def test_every_third_check_of_each_kind_is_made_for_slow_devices(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    built: list[str] = []
    names = [f"check {number}" for number in range(8)]
    monkeypatch.setattr(
        selftest, "GROUPS", {"one": lambda device: [(name, lambda n=name: built.append(n)) for name in names]}
    )
    assert command.main(["selftest", "--device", "host", "--every", "3"]) == 0
    assert built == ["check 0", "check 3", "check 6"]
    assert "3 passed, 0 failed, 0 not run" in capsys.readouterr().out
    with pytest.raises(SystemExit):
        command.main(["selftest", "--every", "0"])
    assert "--every: needs a whole number above 0" in capsys.readouterr().err


@pytest.mark.later("host")
def test_a_failing_check_is_named_and_makes_the_exit_code_1(
    device: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    right = blas.axpy
    monkeypatch.setattr(blas, "axpy", lambda alpha, x, y: right(alpha + 0.001, x, y))
    monkeypatch.setattr(selftest, "GROUPS", {"blas": lambda device: list(selftest.routines.checks(device))[:4]})
    assert command.main(["selftest", "--device", device]) == 1
    text = capsys.readouterr().out
    assert "blas: 3 passed, 1 failed" in text
    assert "FAILED       blas: axpy float32 C order: operand 2 is off by " in text
    command_line = f"python -m offload_args record --sync -m offload_args selftest --device {device}"
    assert text.endswith(f"record it    {command_line}\n")


def test_a_device_that_is_not_there_makes_the_exit_code_2(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        command.main(["selftest", "--device", "cuda:77"])
    assert left.value.code == 2
    assert 'selftest: error: argument --device: Device: no device "cuda:77"' in capsys.readouterr().err


def test_a_check_that_can_not_run_is_counted_with_its_reason(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def not_here() -> None:
        raise behaviour.NotRunError("there is no compiler")

    monkeypatch.setattr(selftest, "GROUPS", {"kernels": lambda device: [("a kernel", not_here)]})
    assert command.main(["selftest", "--device", "host"]) == 0
    text = capsys.readouterr().out
    assert "0 passed, 0 failed, 1 not run" in text and "not run      kernels: a kernel: there is no compiler" in text


def test_an_interrupt_ends_it_in_one_line(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(selftest, "run", interrupted)
    assert command.main(["selftest", "--device", "host"]) == 130
    assert capsys.readouterr().err == "python -m offload_args selftest: interrupted\n"
