"""Programs that once had wrong results, compared with the model of the documented rules."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from helpers.model import OVERWRITES, Outcome
from helpers.processes import printed
from helpers.programs import Program, Step, program_on


def reads_while_another_device_leaves(p: Program, first: str, other: str) -> None:
    p.do(p.enter(first, ("by use", "a", "")))
    p.do(p.scal(2.0, p.operand(1, 0)))
    p.do_at_once(p.leave(1, "well"), p.call(other, "asum", ("by use", "a", "")))


def enters_while_another_device_writes(p: Program, first: str, other: str) -> None:
    p.do(p.enter(first, ("by use", "A", "")))
    p.do_at_once(p.assign(p.operand(1, 0, "[::2, ::2]")), p.enter(other, ("by use", "A", "")))


def raises_while_another_region_writes_a_part(p: Program, first: str, other: str) -> None:
    p.do(p.enter(first, ("by use", "A", "")))
    p.do(p.enter(first, ("by use", "A", "")))
    p.do(p.scal(2.0, p.operand(1, 0, "[0]")))
    p.do_at_once(p.assign(p.operand(2, 0, "[::2, ::2]")), p.leave(1, "discard"))


def writes_what_another_device_holds_in_part(p: Program, first: str, other: str) -> None:
    p.do(p.enter(first, ("by use", "A", "")))
    p.do(p.enter(other, ("by use", "A", "[1:3]")))
    p.do(p.held(p.operand(2, 0)))
    p.do(p.write_lent("A", ""))


def writes_what_another_device_holds_packed(p: Program, first: str, other: str) -> None:
    p.do(p.enter(first, ("by use", "A", "")))
    p.do(p.enter(other, ("by use", "A", "[::2, ::2]")))
    p.do(p.held(p.operand(2, 0)))
    p.do(p.write_lent("A", ""))


def raises_after_another_region_left_well(p: Program, first: str, other: str) -> None:
    p.do(p.enter(first, ("by use", "a", "")))
    p.do(p.enter(first, ("In", "a", "")))
    p.do(p.scal(2.0, p.operand(1, 0)))
    p.do(p.leave(1, "well"))
    p.do(p.leave(2, "discard"))


def raises_around_a_region_that_left_well(p: Program, first: str, other: str) -> None:
    p.do(p.enter(first, ("by use", "a", "")))
    p.do(p.enter(first, ("by use", "a", "")))
    p.do(p.scal(2.0, p.operand(2, 0)))
    p.do(p.leave(2, "well"))
    p.do(p.leave(1, "discard"))


def assigns_to_an_irregular_slice_beside_gaps(p: Program, first: str, other: str) -> None:
    p.do(p.enter(first, ("by use", "A", "[:, :3]")))
    p.do(p.assign(p.operand(1, 0, "[::2, ::2]")))


def assigns_to_two_irregular_slices_at_once(p: Program, first: str, other: str) -> None:
    p.do(p.enter(first, ("by use", "A", "")))
    p.do_at_once(p.assign(p.operand(1, 0, "[::2, ::2]")), p.assign(p.operand(1, 0, "[1::2, ::2]")))


def gives_the_address_of_a_panel_away_and_updates_the_other(p: Program, first: str, other: str) -> None:
    p.do(p.enter(first, ("by use", "A", "[:, :3]"), ("by use", "A", "[:, 3:]")))
    p.do(p.address(p.operand(1, 0)))
    p.do(p.update("A", "[:, 3:]"))


def fails_to_give_the_address_of_an_out_away(p: Program, first: str, other: str) -> None:
    p.do(p.enter(first, ("Out", "a", "")))
    if first.startswith("sim:"):
        p.do_failing(p.address(p.operand(1, 0)), first, 1)


def enters_while_another_device_is_sent_what_it_writes(p: Program, first: str, other: str) -> None:
    p.do(p.new("L"))
    p.do(p.enter(first, ("by use", "L", "")))
    p.do_at_once(p.scal(2.0, p.operand(1, 0)), p.enter(other, ("by use", "L", "")))


def raises_while_another_region_sends_a_part(p: Program, first: str, other: str) -> None:
    p.do(p.new("L"))
    p.do(p.enter(first, ("by use", "L", "")))
    p.do(p.enter(first, ("by use", "L", "")))
    p.do(p.fill(p.operand(1, 0)))
    x = p.operand(2, 0, "[1:]")
    values = np.arange(1.0, x.part.index.size + 1)
    p.do(Step(f"v = np.arange(1.0, {values.size + 1})", (lambda world, _: Outcome(),), expression=False))
    assign = p.routine(f"{x.text}.assign(v)", [(x, OVERWRITES)], lambda _: ((values,), None))
    p.do_at_once(assign, p.leave(1, "discard"))
    p.do(p.asum(p.operand(2, 0, "[:4]")))


def updates_two_arrays_that_overlap_and_raises(p: Program, first: str, other: str) -> None:
    for _ in range(2):
        p.do(p.enter(first, ("by use", "a", "[:8]"), ("by use", "a", "[4:]")))
    p.do(p.scal(2.0, p.operand(2, 0)))
    p.do(p.update("a", ""))
    p.do(p.leave(2, "discard"))
    p.do(p.asum(p.operand(1, 0)))


def takes_the_address_of_an_out_that_a_call_left_undefined(p: Program, first: str, other: str) -> None:
    p.do(p.enter(first, ("Out", "a", "")))
    if first.startswith("sim:"):
        p.do_failing(p.fill(p.operand(1, 0)), first, 3)  # the call fails after a part was filled
        p.do(p.asum(p.operand(1, 0)))
    p.do(p.address(p.operand(1, 0)))


def overwrites_one_of_two_outs_that_overlap(p: Program, first: str, other: str) -> None:
    p.do(p.enter(first, ("Out", "a", ""), ("Out", "a", "[4:]")))
    p.do(p.fill(p.operand(1, 1)))


def overwrites_an_out_within_an_array_that_is_lent(p: Program, first: str, other: str) -> None:
    p.do(p.enter(first, ("by use", "a", "")))
    p.do(p.enter(first, ("Out", "a", "[2:6]")))
    p.do(p.fill(p.operand(2, 0)))


def reads_on_the_host_what_another_device_has_left(p: Program, first: str, other: str) -> None:
    p.do(p.enter(other, ("In", "A", "[::2]")))
    p.do(p.enter(first, ("In", "A", "[:, :3]"), ("In", "A", "[:, 3:]")))
    p.do(p.leave(1, "well"))
    p.do(p.to_host(p.operand(2, 1)))
    p.do(p.write_lent("A", "[1::2, ::2]"))  # no device has a part of A


def updates_an_array_that_one_lent_for_reading_crosses(p: Program, first: str, other: str) -> None:
    p.do(p.enter(first, ("by use", "A", "[:, :3]"), ("In", "A", "[::2]")))
    p.do(p.address(p.operand(1, 0)))
    p.do(p.update("A", "[:, :3]"))
    p.do(p.scal(2.0, p.operand(1, 0, "[0]")))
    p.do(p.update("A", "[:, 2:]"))
    p.do(p.write_lent("A", "[:, :2]"))


def lends_columns_apart_and_then_together(p: Program, first: str, other: str) -> None:
    p.do(p.enter(first, ("by use", "A", "[:, :3]")))
    p.do(p.enter(other, ("by use", "A", "[:, 3:]")))
    p.do(p.scal(2.0, p.operand(1, 0, "[0]")))
    p.do(p.scal(3.0, p.operand(2, 0, "[1]")))
    p.do(p.leave(2, "well"))
    p.do(p.enter(first, ("by use", "A", "[:, 3:]"), ("by use", "A", "[:, :3]")))
    p.do(p.scal(5.0, p.operand(3, 0, "[:, 1]")))
    p.do(p.leave(1, "discard"))
    p.do(p.fill(p.operand(3, 1)))


@pytest.mark.later("enters_while_another_device_is_sent_what_it_writes", "raises_while_another_region_sends_a_part")
@pytest.mark.parametrize(
    "write",
    [
        reads_while_another_device_leaves,
        enters_while_another_device_writes,
        raises_while_another_region_writes_a_part,
        writes_what_another_device_holds_in_part,
        writes_what_another_device_holds_packed,
        raises_after_another_region_left_well,
        raises_around_a_region_that_left_well,
        assigns_to_an_irregular_slice_beside_gaps,
        assigns_to_two_irregular_slices_at_once,
        gives_the_address_of_a_panel_away_and_updates_the_other,
        fails_to_give_the_address_of_an_out_away,
        enters_while_another_device_is_sent_what_it_writes,
        raises_while_another_region_sends_a_part,
        updates_two_arrays_that_overlap_and_raises,
        takes_the_address_of_an_out_that_a_call_left_undefined,
        overwrites_one_of_two_outs_that_overlap,
        overwrites_an_out_within_an_array_that_is_lent,
        reads_on_the_host_what_another_device_has_left,
        updates_an_array_that_one_lent_for_reading_crosses,
        lends_columns_apart_and_then_together,
    ],
)
def test_a_program_agrees_with_the_documents_that(
    devices: tuple[str, str], write: Callable[[Program, str, str], None]
) -> None:
    for _ in range(3):  # the first run also searches for libraries, which shifts the moment
        with program_on(devices, "aA") as program:
            write(program, *devices)
            large = "L" in program.world.bases
            program.end(look=not large)
        if large:
            break


@pytest.mark.copies
@pytest.mark.later
def test_a_program_is_not_told_of_the_pinned_memory_that_the_one_before_it_lacked() -> None:
    code = """
from helpers.programs import program_on
devices = "sim:0", "sim:1"
with program_on(devices, "a") as p:
    for k in range(1, 15):  # one of these backend calls pins memory
        p.do(p.enter("sim:0", ("by use", "a", "")))
        p.do_failing(p.scal(2.0, p.operand(k, 0)), "sim:0", k)
        p.do(p.leave(k, "discard"))
with program_on(devices, "a") as p:
    p.do(p.enter("sim:0", ("by use", "a", "")))
    p.do(p.leave(1, "well"))
print("done")
"""
    assert printed(code, PYTHONPATH=str(Path(__file__).parents[1])) == "done\n"
