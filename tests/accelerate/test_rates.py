"""The measurements of a machine, the number of times that they are made, and the condition for opening a device."""

from __future__ import annotations

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from time import perf_counter, sleep

import numpy as np
import pytest

from offload_args import Device, _core, accelerate, devices, plans, scripts, testing


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "cache"
    monkeypatch.setenv("OFFLOAD_ARGS_CACHE", str(path))
    return path


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The numbers of the devices that were measured, in order."""
    times: list[int] = []
    calibrate = _core.accelerate_calibrate

    def counted(number: int) -> tuple[float, ...]:
        times.append(number)
        return calibrate(number)

    monkeypatch.setattr(_core, "accelerate_calibrate", counted)
    return times


def test_a_machine_is_measured_one_time(device: str, folder: Path, measured: list[int]) -> None:
    rates = plans.rates_of(Device(device))
    assert len(rates) == 12 and all(rate > 0 for rate in rates)
    assert plans.rates_of(Device(device)) == rates
    assert len(measured) == len(os.listdir(folder)) == 1


@pytest.mark.parametrize("first", [b"", b"1", b"0.0", b"NaN", b"1e999", b"\xff\x00", b"null"])
def test_a_damaged_file_is_measured_anew(folder: Path, measured: list[int], first: bytes) -> None:
    plans.rates_of(Device.host())
    (file,) = folder.iterdir()
    file.write_bytes(b"[" + first + b", 1.0" * 11 + b"]" if first else b"")
    rates = plans.rates_of(Device.host())
    assert len(measured) == 2
    assert plans.rates_of(Device.host()) == rates and len(measured) == 2


@pytest.mark.parametrize("change", ["driver", "cpu", "cpus", "cores", "blas", "device", "version"])
def test_another_machine_is_measured_for_itself(
    folder: Path, measured: list[int], monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    plans.rates_of(Device.host())
    here = plans.machine
    if change == "version":
        monkeypatch.setattr(plans, "__version__", "0.0.1")
    else:
        monkeypatch.setattr(plans, "machine", lambda device: {**here(device), change: "another"})
    plans.rates_of(Device.host())
    assert len(measured) == len(os.listdir(folder)) == 2


def test_a_folder_that_cannot_be_written_is_no_hindrance(folder: Path, measured: list[int]) -> None:
    folder.mkdir(mode=0o700)
    folder.chmod(0o500)
    assert plans.rates_of(Device.host())
    os.environ["OFFLOAD_ARGS_CACHE"] = "off"
    assert plans.rates_of(Device.host())
    assert measured


def test_several_write_at_once(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_core, "accelerate_calibrate", lambda number: (1.5,) * 12)

    def keep(i: int) -> tuple[float, ...]:
        if i % 3 == 0:
            for file in folder.glob("[0-9a-f]" * 64):  # only complete files, not those that a thread still writes
                file.write_bytes(b"[1.0")
        return plans.rates_of(Device.host())

    with ThreadPoolExecutor(8) as pool:
        assert set(pool.map(keep, range(60))) == {(1.5,) * 12}


SAVES_LITTLE = """
import sys
import numpy as np
from offload_args import accelerate, devices
A = np.ones((200, 200))
with accelerate("cuda:0") as on:
    for _ in range(20):
        A @ (A + 1)
    assert on.report.calls == 20 and on.report.gone == 0, on.report
assert devices.opened() == (), devices.opened()
with open("/proc/self/maps") as maps:
    loaded = {line.split("/")[-1].strip() for line in maps if "/" in line}
assert not [name for name in loaded if name.startswith(("libcuda", "libcublas", "libnvrtc", "libamdhip"))], loaded
"""


def test_nothing_of_a_gpu_is_opened_by_a_program_that_saves_less_than_a_second() -> None:
    ended = subprocess.run([sys.executable, "-c", SAVES_LITTLE], capture_output=True, text=True, timeout=300)
    assert ended.returncode == 0, ended.stderr


def test_a_device_is_opened_once_calls_would_have_saved_its_price(monkeypatch: pytest.MonkeyPatch) -> None:
    """The double of a GPU is a simulated device that is not opened immediately."""
    monkeypatch.setattr(scripts, "FREE", ())
    A = np.ones((300, 300))

    def product(on: scripts.Accelerated) -> bool:
        A @ (A + 1)
        return on.report.device != ""

    for price, opened in ((1e9, False), (1e-9, True)):
        monkeypatch.setattr(scripts, "PRICE", price)
        name = f"sim:{5 + opened}"
        with accelerate(name, margin=1e-9) as on:
            for _ in range(20):
                product(on)
            ends = perf_counter() + 300  # another thread opens the device
            while opened and not product(on) and perf_counter() < ends:
                sleep(0.001)
        assert (on.report.device == name) is opened
        assert (name in {opened.name for opened in devices.opened()}) is opened
        why = {reason for row in on.report.rows for reason in row.refused}
        assert "device not open" in why, on.report
    assert testing.backend_calls(Device("sim:6")) > 0


SLOW = (1e9, 1e9, 1.0, *(1e12,) * 4, *(1e12,) * 4, 1e12)  # the rates of a device whose calls take a second


def test_lines_of_calls_too_short_for_any_device_are_sampled(monkeypatch: pytest.MonkeyPatch) -> None:
    sim, times, asked = Device("sim:0"), 400, [0]
    A, x, set_site = np.ones((1100, 1100)), np.ones(1100), _core.accelerate_set_site

    def counted(serial: int, site: int) -> None:
        asked[0] += 1
        set_site(serial, site)

    monkeypatch.setattr(_core, "accelerate_set_site", counted)
    with accelerate("sim:0") as on:
        _core.accelerate_use(sim.number, SLOW)
        for _ in range(times):
            A @ x
            np.matmul(A, x)
    rows = on.report.rows
    assert sum(row.calls for row in rows) == on.report.calls == 2 * times and on.report.gone == 0
    assert {reason for row in rows for reason in row.refused} == {"not faster"}
    by_line = [row.calls for row in rows if row.place]
    assert len(by_line) == 2 and min(by_line) > times / 4, on.report
    assert 0 < asked[0] < times, asked


def test_a_plan_knows_the_line_of_each_short_call(tmp_path: Path) -> None:
    A, x, plan = np.ones((1100, 1100)), np.ones(1100), tmp_path / "plan.json"
    for _ in range(2):
        with accelerate("sim:0", plan=str(plan)) as on:
            _core.accelerate_use(Device("sim:0").number, SLOW)
            for i in range(140):
                A @ x
                if i % 5 == 0:
                    np.matmul(A, x)
    assert plan.exists()
    assert sorted(row.calls for row in on.report.rows if row.place) == [28, 140], on.report
