"""Automatic residency: when arrays are kept, and how the mode is chosen."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest

from helpers.residency import PAGE, N, ramp, sent
from offload_args import Device, blas, offload_args, testing
from offload_args.devices import Residency
from offload_args.errors import (
    ArgumentError,
)


def test_auto_keeps_an_array_that_is_read_for_the_third_time(device: str, tracked: None) -> None:
    with testing.residency("auto"):
        x = ramp(1 << 19)
        assert [sent(x, device) for _ in range(6)] == [x.nbytes] * 3 + [0] * 3
        x[7] = -1
        assert sent(x, device) == PAGE
        before = Device(device).residency
        x[:] = 2
        assert sent(x, device) == x.nbytes
        now = Device(device).residency
        assert now.demoted == before.demoted + 1 and now.kept == 0 and now.pages_armed == 0
        assert now.pages_written - before.pages_written >= 500
        assert now.estimated_cost > before.estimated_cost
        del x
        assert not Device(device).residency.kept


@pytest.mark.later("host")
def test_auto_keeps_a_large_array_that_is_read_for_the_second_time(device: str, tracked: None) -> None:
    with testing.residency("auto"):
        x = ramp(1 << 22)
        assert [sent(x, device) for _ in range(4)] == [x.nbytes] * 2 + [0] * 2
        x[1 << 21] = -1
        assert sent(x, device) == PAGE


def test_auto_leaves_small_and_foreign_arrays_alone(device: str) -> None:
    with testing.residency("auto"):
        for x in (ramp(1000), np.frombuffer(bytearray(8 * N), np.float32)):
            assert [sent(x, device) for _ in range(6)] == [x.nbytes] * 6
        assert Device(device).residency.kept == 0


def test_auto_gives_up_arrays_that_the_device_writes(device: str) -> None:
    with testing.residency("auto"):
        x = np.ones(1 << 19, np.float32)
        before = Device(device).residency
        for _ in range(20):
            with offload_args(x, device=device) as (dx,):
                blas.scal(1.0, dx)
        now = Device(device).residency
        assert now.promoted == before.promoted and now.pages_armed == 0


@pytest.mark.later("host")
def test_auto_backs_off_from_arrays_that_are_rewritten(device: str, tracked: None) -> None:
    with testing.residency("auto"):
        x = np.empty(1 << 19, np.float32)
        before = Device(device).residency
        for i in range(40):
            x[:] = i
            assert sent(x, device) == x.nbytes
        now = Device(device).residency
        assert now.promoted == before.promoted
        assert now.pages_written - before.pages_written <= 16 * 5


def test_auto_follows_new_arrays_at_the_same_address(device: str) -> None:
    with testing.residency("auto"):
        for i in range(12):
            x = np.full(1 << 19, i, np.float32)
            sent(x, device)
            sent(x, device)
            del x


def test_off_keeps_nothing(device: str) -> None:
    with testing.residency("off"):
        x = ramp()
        Device(device).keep(x)
        assert [sent(x, device, resident=True) for _ in range(3)] == [x.nbytes] * 3
        assert Device(device).residency.kept == 0


SCRIPT = """
import numpy as np
from offload_args import Device, offload_args, blas
x = np.ones(1 << 19, np.float32)
for _ in range(5):
    with offload_args(x, device="host", **OPTIONS) as (dx,):
        blas.asum(dx)
print(Device("host").residency.mode, Device("host").counters.bytes_up // x.nbytes)
"""


@pytest.mark.later(but="off")
@pytest.mark.parametrize(
    ("value", "options", "expected"),
    [("", "{}", "explicit 5"), ("off", "{'resident': True}", "off 5"), ("auto", "{}", "auto 3"),
     ("explicit", "{'resident': True}", "explicit 1")],
)  # fmt: skip
def test_the_mode_comes_from_the_environment(tracked: None, value: str, options: str, expected: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT.replace("OPTIONS", options)],
        env={**os.environ, "OFFLOAD_ARGS_RESIDENCY": value},
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stderr, done.stdout.strip()) == (0, "", expected)


def test_an_unknown_mode_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OFFLOAD_ARGS_RESIDENCY", "yes")
    with pytest.raises(ArgumentError, match='OFFLOAD_ARGS_RESIDENCY needs "auto", "explicit" or "off", is "yes"'):
        with testing.residency():
            pass
    with pytest.raises(ArgumentError, match="OFFLOAD_ARGS_RESIDENCY"), offload_args(ramp(), device="host"):
        pass
    monkeypatch.delenv("OFFLOAD_ARGS_RESIDENCY")


def test_the_figures_have_names() -> None:
    figures = Device("host").residency
    assert isinstance(figures, Residency)
    assert figures.mode == "explicit"
