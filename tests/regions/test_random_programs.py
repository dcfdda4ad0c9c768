"""Random programs are compared with the model of the documented rules, helpers/model/: results, errors, host bytes.

Programs nest regions, lend overlapping views, update, assign, fail (also while other work is in flight), keep arrays on
devices, and use two devices and four threads. A program with a wrong outcome is shrunk, and printed as Python code that
runs in tests/.

OFFLOAD_ARGS_MODEL_STEPS is the number of steps, by default 10,000. OFFLOAD_ARGS_MODEL_SEED, a number or "random",
selects other programs than the default ones.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest
from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st
from hypothesis.errors import FlakyFailure

from helpers.processes import printed
from helpers.programs import BASES, Wrong
from helpers.writer import (
    BYTES,
    LENGTH,
    any_program,
    program_of_parts,
    program_of_steps_at_once,
    program_short_of_memory,
)
from offload_args import testing

STEPS: Final = int(os.environ.get("OFFLOAD_ARGS_MODEL_STEPS", "10000"))
SEED: Final = os.environ.get("OFFLOAD_ARGS_MODEL_SEED")


def check(devices: tuple[str, str], steps: int, write: Callable[[tuple[str, str], bytes], None]) -> None:
    """Let Hypothesis make programs with this total number of steps."""
    seen = False

    def repeated(data: bytes) -> None:
        """While a fault is shrunk, try a program several times, because it may depend on the timing of threads."""
        nonlocal seen
        for _ in range(3 if seen else 1):
            try:
                write(devices, data)
            except Wrong:
                seen = True
                raise

    tried = settings(
        max_examples=max(1, 3 * steps // 2 // LENGTH),
        deadline=None,
        database=None,
        derandomize=SEED is None,
        suppress_health_check=list(HealthCheck),
        print_blob=False,
        report_multiple_bugs=False,
    )
    test = tried(given(st.binary(min_size=LENGTH * BYTES, max_size=LENGTH * BYTES))(repeated))
    if SEED is not None:
        test = seed(random.randrange(1 << 32) if SEED == "random" else int(SEED))(test)
    text = ""
    try:
        test()
    except Wrong as wrong:
        text = str(wrong)
    except FlakyFailure as flaky:
        text = "\n# or, run again, well\n".join(str(error) for error in flaky.exceptions if isinstance(error, Wrong))
    if text:
        pytest.fail(text, pytrace=False)


@pytest.mark.later
def test_random_programs_agree_with_the_documents(devices: tuple[str, str]) -> None:
    check(devices, STEPS // 2, any_program)


def test_random_programs_agree_with_the_documents_where_memory_is_short(devices: tuple[str, str]) -> None:
    if devices[0].startswith("sim:"):
        check(devices, STEPS // 20, program_short_of_memory)


@pytest.mark.later
@pytest.mark.parametrize("write", [any_program, program_of_parts, program_of_steps_at_once])
def test_random_programs_agree_with_the_documents_on_coherent_devices(
    write: Callable[[tuple[str, str], bytes], None],
) -> None:
    """The host sees what a coherent device writes before the region ends: such arrays are compared at its end."""
    with testing.coherent():
        check(("sim:0", "sim:1"), STEPS // 10, write)


@pytest.mark.later
@pytest.mark.parametrize("write", [any_program, program_of_parts, program_of_steps_at_once])
def test_random_programs_agree_with_the_documents_where_blocks_go_up_alone(
    devices: tuple[str, str], write: Callable[[tuple[str, str], bytes], None]
) -> None:
    """Usually these arrays are too small: all of an array goes up for the first call that reads some of it."""
    with testing.part_cost():
        check(devices, STEPS // 10, write)


@pytest.mark.later("host")
def test_random_programs_of_parts_agree_with_the_documents(devices: tuple[str, str]) -> None:
    check(devices, STEPS // 20, program_of_parts)


@pytest.mark.later
def test_two_to_four_steps_at_once_come_out_as_one_after_the_other(devices: tuple[str, str]) -> None:
    check(devices, STEPS // 20, program_of_steps_at_once)


@pytest.mark.later(but="R")
@pytest.mark.parametrize("base", [base for base, part in BASES.items() if part.index.nbytes > 8192])
def test_programs_have_arrays_of_pages_that_the_guard_protects(base: str) -> None:
    code = f"""
import time
from helpers.programs import program_on
from offload_args.errors import GuardError
with program_on(("sim:0", "sim:1"), "{base}") as p:
    p.do(p.enter("sim:0", ("by use", "{base}", "")))
    p.do(p.fill(p.operand(1, 0)))
    try:
        p.names["{base}"].sum()
        time.sleep(0)
    except GuardError:
        print("guarded")
"""
    assert printed(code, PYTHONPATH=str(Path(__file__).parents[1]), OFFLOAD_ARGS_GUARD="1") == "guarded\n"
