"""Devices: their names, their figures, and their repr."""

from __future__ import annotations

import pickle
import re
from typing import Any

import numpy as np
import pytest

from offload_args import Device, blas, offload_args, testing
from offload_args.errors import ArgumentError, BackendError, DeviceUnavailableError, OffloadError


@pytest.mark.parametrize("name", ["CUDA:0", "Host", "Sim:1"])
def test_a_device_in_capitals_is_told_its_name(name: str) -> None:
    with pytest.raises(DeviceUnavailableError, match=f'^Device: unknown device "{name}": .*; write "{name.lower()}"$'):
        Device(name)


def test_copies_of_the_default_device_are_counted_without_its_name() -> None:
    x = np.ones(4)
    with testing.counting() as moved, offload_args(x) as (dx,):
        blas.scal(2.0, dx)
    with testing.counting("sim:7") as others, offload_args(x) as (dx,):
        blas.scal(2.0, dx)
    assert (moved.calls, others.calls) == (1, 0)


@pytest.mark.parametrize(
    ("name", "remedy"),
    [
        ("free_memory", "use memory, which has free and total"),
        ("sync", r"use synchronize\(\)"),
        ("synchroniz", r"did you mean synchronize\?"),
        ("counter", r"did you mean counters\?"),
    ],
)
def test_an_attribute_that_a_device_lacks_is_told_where_it_is(name: str, remedy: str) -> None:
    with pytest.raises(AttributeError, match=f"^Device has no attribute '{name}'; {remedy}$"):
        getattr(Device("host"), name)
    assert not hasattr(Device("host"), name)


def test_the_functions_of_testing_take_a_device_or_its_name() -> None:
    sim = testing.sim_device()
    for device in (sim, "sim:0"):
        x = np.ones(4)
        with testing.counting(device) as moved, offload_args(x, device=device) as (dx,):
            blas.scal(2.0, dx)
        assert (moved.copies_up, moved.copies_down) == (1, 1)
        before = testing.backend_calls(device)
        testing.fail_call(device, 1)
        with pytest.raises(BackendError), offload_args(x, device=device) as (dx,):
            blas.scal(2.0, dx)
        assert testing.backend_calls(device) > before
        testing.fail_call(device, 0)
        np.testing.assert_array_equal(x, 2)
    for wrong in ("simm", 3):
        with pytest.raises(OffloadError, match="^Device: "):
            testing.counting(wrong).__enter__()  # type: ignore[arg-type]


def test_a_device_has_a_name_an_index_and_figures(device: str) -> None:
    opened = Device(device)
    assert (opened.name, str(opened)) == (device, device)
    assert opened == Device(device)
    assert hash(opened) == hash(Device(device))
    assert opened != Device("sim:7")
    assert opened.backend == device.partition(":")[0]
    assert opened.index == int(device.partition(":")[2] or 0)
    assert opened.model
    assert 0 < opened.memory.free <= opened.memory.total
    assert pickle.loads(pickle.dumps(opened)) == opened
    opened.synchronize()
    with pytest.raises(AttributeError):
        opened.name = "other"


def test_a_device_shows_the_arrays_lent_to_it(device: str) -> None:
    opened = Device(device)
    start = f'Device("{device}", {opened.model}, '
    assert repr(opened).startswith(start + "0 arrays in 0 regions, ")
    with offload_args(np.zeros(3), np.zeros(4), device=device):
        assert repr(opened).startswith(start + "2 arrays in 1 region, ")
        html = opened._repr_html_()
    assert html is not None and re.search(">regions</td><td [^>]*>1</td>", html) and "&quot;" in html
    if opened.backend == "sim":
        before = testing.backend_calls(opened)
        assert repr(opened) and opened._repr_html_()
        assert testing.backend_calls(opened) == before


def test_the_default_is_the_first_gpu_or_the_host() -> None:
    assert Device.default() == Device.all()[0]
    assert Device.all()[-1] == Device.host()
    assert all(device.backend in ("cuda", "host") for device in Device.all())
    with offload_args(np.zeros(2)) as (dx,):
        assert dx.device == Device.default()


def test_devices_that_are_not_here_are_refused() -> None:
    for name in ("cuda:99", "sim:8", "vax:0", ""):
        with pytest.raises(DeviceUnavailableError):
            Device(name)
    with pytest.raises(DeviceUnavailableError):
        Device.from_index(99)
    with pytest.raises(ArgumentError, match="name"):
        Device(3)  # type: ignore[arg-type]


def test_counting_reads_differences_while_it_counts_and_after() -> None:
    sim = testing.sim_device()
    x = np.arange(4.0)
    with testing.counting(sim) as moved:
        with offload_args(x, device=sim) as (dx,):
            blas.scal(2.0, dx)
            assert (moved.calls, moved.mappings, moved.regions, moved.copies_down) == (1, 1, 1, 0)
        assert moved.mappings == 0
    with offload_args(x, device=sim) as (dx,):
        blas.scal(2.0, dx)
    assert (moved.calls, moved.bytes_up, moved.bytes_down) == (1, 32, 32)
    assert "bytes_up=32" in repr(moved)
    with pytest.raises(AttributeError):
        _ = moved.elephants


def test_no_mappings_left_names_the_device_that_has_some() -> None:
    with offload_args(np.zeros(2), device="sim:3"):
        with pytest.raises(AssertionError, match="sim:3: 1 mappings, 1 regions"):
            testing.no_mappings_left()
    testing.no_mappings_left()


def test_wrong_settings_of_a_simulated_device_are_refused() -> None:
    sim = testing.sim_device()
    for function in (lambda: testing.fail_call(sim, -1), lambda: testing.sim_device(capacity=-1)):
        with pytest.raises(ValueError, match="needs 0 to"):
            function()
    with pytest.raises(ValueError, match="host"):
        testing.fail_call(Device.host(), 1)


NO_NAMES = [
    "sim:0\0x",
    "sim\0:0",
    "\0",
    "",
    " sim:0",
    "sim:0 ",
    "sim: 0",
    "sim:01",
    "sim:00",
    "sim:+1",
    "sim:-1",
    "sim:1.0",
    "sim:0x1",
    "sim:٣",
    "sim:",
    "sim:0:0",
    "sim:0\n",
    "sim:9999999",
    "sim:18446744073709551616",
    "SIM:0",
    "sim:\ud800",
    "host:00",
    None,
    3,
    b"sim:0",
]


@pytest.mark.promise("T60")
@pytest.mark.parametrize("name", NO_NAMES)
def test_a_device_is_known_by_its_exact_name_only(name: Any) -> None:
    shown = f'"{name}"' if isinstance(name, str) and all(" " <= letter <= "٣" for letter in name) else repr(name)
    for function in (Device, lambda name: offload_args(np.ones(2), device=name)):
        if name is None and function is not Device:
            continue
        with pytest.raises(OffloadError, match=re.escape(shown)):
            function(name)


@pytest.mark.promise("T60")
def test_settings_that_do_not_fit_are_refused_by_name() -> None:
    sim = testing.sim_device()
    with pytest.raises(ArgumentError, match=f"k needs.*{2**70}"):
        testing.fail_call(sim, 2**70)
    for name in ("capacity", "delay_us"):
        with pytest.raises(ArgumentError, match=f"{name} needs.*{2**70}"):
            testing.sim_device(**{name: 2**70})
    for index in (-1, 2**70, "0 ", True):
        with pytest.raises(OffloadError, match=f"sim:{index}"):
            testing.sim_device(index=index)  # type: ignore[arg-type]


class Stream:
    def __init__(self, answer: Any) -> None:
        self.__cuda_stream__ = answer


@pytest.mark.promise("T60")
@pytest.mark.parametrize(
    "answer", [None, 3, (0,), (0, None), ("0", 1), (0, 1.5), (1, 7), (0, 2**70), (0, -1)], ids=repr
)
def test_an_object_that_is_no_stream_is_refused_by_its_value(answer: Any) -> None:
    with pytest.raises(OffloadError, match="stream"):
        offload_args(np.ones(2), stream=Stream(answer))
