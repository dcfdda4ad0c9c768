"""Advice of a trace on grids that leave most of the device idle."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from helpers.scripts import run
from offload_args.tracing.summary import Event, Place, Summary

SCRIPT = """\
import numpy as np
from offload_args import InOut, Kernel, offload_args, trace

SOURCE = '''
#include <offload_args/kernel.h>
OA_KERNEL(relu, oa::InOut<float> x, int n) {{
  for (auto element : x.mine(oa::GridStride1D(n), here))
    if (*element < 0) *element = 0;
}}'''
relu = Kernel.compile(SOURCE, "relu", [InOut[np.float32], np.int32], device={device!r})
x = np.ones(1000, np.float32)
with trace() as launches:
    with offload_args(x, device={device!r}) as (dx,):
        relu[1, 32](dx, 1000)
        relu[2, 32](dx, 1000)
        relu[500, 32](dx, 1000)
    with offload_args(x, device={device!r}) as (dx,):
        relu[1, 32](dx, 1000)
        relu[500, 32](dx, 1000)
print(relu.info({device!r}).multiprocessors)
for advice in launches.summary.advice:
    print(advice.line, advice)
"""


@pytest.mark.later
def test_a_trace_advises_on_kernels_of_which_most_launches_had_few_blocks(device: str, tmp_path: Path) -> None:
    script = tmp_path / "few.py"
    script.write_text(SCRIPT.format(device=device))
    kept = {name: os.environ[name] for name in ("OFFLOAD_ARGS_CACHE", "OFFLOAD_ARGS_NVRTC") if name in os.environ}
    ran = run(script, OFFLOAD_ARGS_THREADS="8", **kept)
    assert ran.returncode == 0, ran.stderr
    count, *advice = ran.stdout.splitlines()
    if not device.startswith(("cuda", "hip")):
        assert count == "8"
    assert [value for value in advice if "relu" in value] == [
        f"13 relu was launched 3 times, 2 of them with a grid of 1 to 2 blocks: most of the {count} multiprocessors of "
        f"{device} had no block; launch {count} blocks or more, of fewer threads if need be"
    ]


def launches(*blocks: int, name: str = "k", multiprocessors: int = 132, line: int = 7) -> list[Event]:
    place = (Place("f.py", line, "f"),)
    return [
        Event("launch", 0, 1, name, f"grid {n // 2}x2x1 block 32x1x1 shared 0", 0, "cuda:0", 1, 1, place, False, False,
              0, 0, "", multiprocessors)
        for n in blocks
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("events", "advised"),
    [
        ([], 0),
        (launches(64), 1),
        (launches(66), 0),  # half of the multiprocessors
        (launches(10_000), 0),
        (launches(2, 10_000), 0),  # a second launch, as in a reduction
        (launches(2, 2, 10_000), 1),
        (launches(2, line=1) + launches(2, line=2), 2),
        (launches(2, name="a") + launches(2, name="b"), 2),
        (launches(2, multiprocessors=0), 0),  # their number is unknown
        (launches(2)[0:1] * 30, 1),
        ([event for line in range(30) for event in launches(2, line=line)], 10),
    ],
)  # fmt: skip
def test_grids_are_advised_on_by_kernel_and_place(events: list[Event], advised: int) -> None:
    advice = Summary(events, 1.0, 0).advice
    assert len(advice) == advised
    assert all(advice_.file == "f.py" and advice_.seconds == 0 for advice_ in advice)


def test_advice_on_copies_comes_first() -> None:
    up = Event("up", 0, 10**9, "A", "first read", 8, "cuda:0", 1, 1, (Place("g.py", 3, "g"),), True, False, 1, 64, "")
    advice = Summary([*launches(2), up, up], 1.0, 0).advice
    assert [advice_.file for advice_ in advice] == ["g.py", "f.py"]
