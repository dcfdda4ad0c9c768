"""Checks that arrays which end with the last touched element are accepted, and shorter arrays are refused."""

from __future__ import annotations

import zlib
from typing import Any

import numpy as np
import pytest

from offload_args.errors import ExtentError, InvalidDataError, LibraryError
from recording import legal
from recording.bench import Bench, DoubleBench, Form, naming
from recording.legal import Call, roles


def check_short(bench: Bench, call: Call, name: str, pointers: dict[str, Any]) -> None:
    """Fail unless the call is refused with the name of an array that lacks its last element, for each of its arrays."""
    pointers_ = pointers[name]
    at = max(i for i, part in enumerate(pointers_) if part.size) if name in call.many else 0
    pointer = pointers_[at] if name in call.many else pointers_
    short = pointer[:-1] if pointer.ndim else pointer.reshape(1)[:0]
    place = rf"\[{at}\]" if name in call.many else ""
    message = rf"{bench.library.name}\.{call.function.name}: {name}{place} needs"
    needs = rf"{message} {pointer.size} elements? .*has {pointer.size - 1}$"
    if name not in call.touched:
        needs = f"{message} .*"
    before = bench.counts()
    with pytest.raises(ExtentError, match=f"^{needs}"):
        changed = [*pointers_[:at], short, *pointers_[at + 1 :]] if name in call.many else short
        bench.by_python(call, pointers, **{name: changed})
    assert bench.counts() == before


def may_be_refused(bench: Bench, call: Call) -> bool:
    """Return whether the vendor's library may refuse some legal calls, such as unsupported combinations of dtypes."""
    return bool(call.function.types) or bench.library.name in ("curand", "cusolver") or "gels" in call.function.name


def check_arrays(bench: Bench, call: Call, form: Form) -> None:
    """Make a call with the smallest legal arrays; then make it with each array one element shorter."""
    arrays = bench.arrays(call, form)
    with naming(call, form), bench.lent(arrays) as pointers:
        for name, array in arrays.items():
            if sum(part.size for part in array) if isinstance(array, list) else array.size:
                check_short(bench, call, name, pointers)
        bench.by_python(call, pointers)


def check(bench: Bench, function: roles.Function, turns: int) -> None:
    """Call a function `turns` times with the smallest legal arrays, and with each array one element shorter."""
    random = np.random.default_rng(zlib.crc32(f"tight {function.name}".encode()))
    forms = [form for form in bench.forms(function) if not form.staged]
    for turn in range(turns):
        call, form = legal.draw(bench.library, function, random), forms[turn % len(forms)]
        if isinstance(bench, DoubleBench):
            bench.recorder.reset({}, bench.library.success.to_bytes(8, "little", signed=True))
        try:
            check_arrays(bench, call, form)
        except (LibraryError, InvalidDataError):
            if isinstance(bench, DoubleBench) or not may_be_refused(bench, call):
                raise
        if isinstance(bench, DoubleBench):
            with naming(call, form):
                assert bench.recorder.count == (call.reaches_the_vendor or (form.on_device and not call.writes_nothing))
