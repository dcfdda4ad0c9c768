"""The trace of a whole process, its log, and NVTX."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import offload_args as package
from helpers.scripts import LOOP, data, run, slices, solve
from offload_args import offload_args, trace
from offload_args.tracing import collect, listeners, recording


@pytest.mark.later("host")
def test_environment_writes_the_whole_process(device: str, tmp_path: Path) -> None:
    script = tmp_path / "cg.py"
    script.write_text(LOOP.format(device=device) + "import sys, os\nos.chdir('/')\nsys.exit(3)\n")
    ran = run(script, OFFLOAD_ARGS_TRACE="out-%p.json")
    assert (ran.returncode, ran.stderr) == (3, "")
    (file,) = tmp_path.glob("out-*.json")
    results = slices(file)
    regions = [event for event in results if event["cat"] == "region"]
    assert len(regions) == 10 and regions[0]["name"] == "region cg.py:16"
    assert regions[0]["args"]["arrays"] == "A, x, y"
    assert sum(event["args"]["bytes"] for event in results if event["cat"] == "up") == 10 * (64 * 32 + 32) * 8


@pytest.mark.later
def test_environment_with_a_fork_a_thread_and_an_open_region_ends_quietly(tmp_path: Path) -> None:
    script = tmp_path / "cg.py"
    script.write_text(
        LOOP.format(device="host") + "import os\n"
        "left = offload_args(A, device='sim:0')\nleft.__enter__()\n"
        "child = os.fork()\n"
        "if not child:\n"
        "    raise SystemExit(0)\n"
        "assert os.waitpid(child, 0)[1] == 0\n"
    )
    # Python 3.12 warns about every fork of a process with threads.
    ran = run(script, "-W", "ignore::DeprecationWarning", OFFLOAD_ARGS_TRACE="out.json", OFFLOAD_ARGS_INFO="0")
    assert (ran.returncode, ran.stderr) == (0, "")
    assert sum(event["cat"] == "region" for event in slices(tmp_path / "out.json")) == 11


@pytest.mark.later
def test_environment_says_where_it_can_not_write(tmp_path: Path) -> None:
    script = tmp_path / "cg.py"
    script.write_text(LOOP.format(device="host") + "import sys\nprint('the loop ended', file=sys.stderr)\n")
    ran = run(script, OFFLOAD_ARGS_TRACE=str(tmp_path / "no" / "such.json"))
    assert ran.returncode == 0 and "Traceback" not in ran.stderr
    before, _, after = ran.stderr.partition("the loop ended\n")
    assert "OFFLOAD_ARGS_TRACE: [Errno 2]" in before and "the trace is lost at exit" in before
    assert "OFFLOAD_ARGS_TRACE: [Errno 2]" in after


@pytest.mark.later("host")
def test_information_is_logged_as_text(device: str, tmp_path: Path) -> None:
    script = tmp_path / "cg.py"
    script.write_text(LOOP.format(device=device))
    ran = run(script, OFFLOAD_ARGS_INFO="1")
    assert f"offload_args: region 1 cg.py:16 on {device}: A, x, y" in ran.stderr
    assert "offload_args: up A: 16 KiB in " in ran.stderr and "first read by" in ran.stderr
    configured = run(tmp_path / "cg.py", OFFLOAD_ARGS_INFO="0")
    assert configured.stderr == ""


@pytest.fixture
def info() -> Iterator[None]:
    log = listeners.Log()
    collect.collector.add(log)
    yield
    collect.collector.remove(log)


def test_information_goes_to_the_programs_own_logging(
    info: None, device: str, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    A, x, y = data()
    with caplog.at_level(logging.INFO, "offload_args"):
        solve(device, A, x, y)
    assert any("up A: 9.38 KiB in" in record.getMessage() for record in caplog.records)
    assert {record.name for record in caplog.records} == {"offload_args"}
    assert capsys.readouterr().err == ""


def test_nvtx_has_a_range_for_each_region(device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    ranges: list[tuple[str, Any]] = []

    def start_range(*, message: str, domain: str) -> int:
        ranges.append((domain, message))
        return len(ranges)

    fake = SimpleNamespace(start_range=start_range, end_range=lambda number: ranges.append(("end", number)))
    monkeypatch.setitem(sys.modules, "nvtx", fake)
    monkeypatch.setattr(recording, "nvtx_ranges", listeners.NvtxRanges())
    with trace(), trace():
        solve(device, *data())
        with pytest.raises(package.DTypeError), offload_args(np.array(["no"]), device=device):
            pass
    assert [range_[0] for range_ in ranges] == ["offload_args", "end", "offload_args", "end"]
    assert f"{Path(solve.__code__.co_filename).name}:" in ranges[0][1] and ranges[0][1].endswith(": A, x, y")
    assert ranges[3] == ("end", 3)


def test_without_nvtx_nothing_is_missing(device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "nvtx", None)
    monkeypatch.setattr(recording, "nvtx_ranges", listeners.NvtxRanges())
    with trace() as built:
        solve(device, *data())
    assert built.summary.regions == 1
