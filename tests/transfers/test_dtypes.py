"""Arrays of every supported dtype come back from devices bit for bit; other dtypes are refused."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from helpers.arrays import lend, ramp
from offload_args import Device, In, Out, offload_args, testing
from offload_args.errors import (
    DTypeError,
)

HELD = "bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 float16 float32 float64 complex64 complex128".split()


@pytest.mark.promise("T28")
@pytest.mark.parametrize("name", [*HELD, "bfloat16", "float8_e4m3fn", "float8_e5m2"])
def test_every_dtype_that_devices_hold_comes_back_bit_for_bit(device: str, name: str) -> None:
    dtype = np.dtype(name if name in HELD else getattr(ml_dtypes, name))
    x, new = ramp(5).astype(dtype), (ramp(5) > 2).astype(dtype)
    with offload_args(x, device=device) as (dx,):
        assert dx.dtype == dtype
        assert dx.nbytes == x.nbytes
        assert f"DevicePtr({name}, " in repr(dx)
        dx[1:4].assign(new[1:4])
    expected = ramp(5).astype(dtype)
    expected[1:4] = new[1:4]
    assert x.tobytes() == expected.tobytes()


REFUSED: dict[str, tuple[Any, str]] = {
    "object": (np.array([1, None]), "object.*astype"),
    "str": (np.array(["a"]), "<U1.*astype"),
    "bytes": (np.array([b"a"]), "S1"),
    "datetime64": (np.array(["2026-01-01"], "M8[D]"), r"datetime64.*view\(np.int64\)"),
    "timedelta64": (np.array([1], "m8[s]"), r"timedelta64.*view\(np.int64\)"),
    "structured": (np.zeros(2, [("a", "f4"), ("b", "i4")]), "one field"),
    "void": (np.zeros(2, "V8"), "V8"),
    "void of two bytes": (np.zeros(2, "V2"), "V2"),
    "big-endian": (np.zeros(2, ">f4"), "other order.*newbyteorder"),
    "big-endian integers": (np.zeros(2, ">i8"), "newbyteorder"),
    "longdouble": (np.zeros(2, np.longdouble), r"astype\(np.float64\)"),
    "clongdouble": (np.zeros(2, np.clongdouble), r"astype\(np.complex128\)"),
}


@pytest.mark.promise("T28")
@pytest.mark.parametrize("name", REFUSED)
@pytest.mark.parametrize("declared", [None, In, Out])
def test_a_dtype_that_devices_can_not_hold_is_refused_before_anything_moves(
    device: str, name: str, declared: Any
) -> None:
    bad, text = REFUSED[name]
    good = ramp(3)
    with testing.counting(Device(device)) as moved:
        with pytest.raises(DTypeError, match=f"argument 2.*{text}"):
            lend(good, bad if declared is None else declared(bad), device=device)
    assert (moved.allocations, moved.copies_up) == (0, 0)
    assert good.flags.writeable


@pytest.mark.promise("T28")
def test_a_masked_array_is_refused_for_its_mask(device: str) -> None:
    masked = np.ma.masked_array(ramp(3), mask=[0, 1, 0])
    for argument in (masked, In(masked)):
        with pytest.raises(TypeError, match=r"argument 1.*mask would be lost.*filled"):
            lend(argument, device=device)
