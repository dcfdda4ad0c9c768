"""Odd arguments of communicators are refused by name, and the communicator goes on; copies are refused."""

from __future__ import annotations

import copy
import pickle
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from helpers.launches import LIMIT, by_mpi
from helpers.processes import printed
from helpers.ranks import all_right, on_ranks
from offload_args import ArgumentError, ArgumentTypeError, Communicator, CommunicatorError, offload_args


@pytest.mark.parametrize("function", [copy.copy, copy.deepcopy, pickle.dumps])
def test_a_communicator_can_not_be_copied(function: Callable[[Any], Any]) -> None:
    (communicator,) = Communicator.all(["host"])
    with communicator, pytest.raises(ArgumentTypeError, match="Communicator: it can't be copied or pickled"):
        function(communicator)


def test_colors_and_keys_of_split() -> None:
    (communicator,) = Communicator.all(["host"])
    for arguments, error, text in [
        ((1 << 63,), ArgumentError, "color needs a number from -9223372036854775808 to 9223372036854775807, got 9"),
        ((0, -(1 << 80)), ArgumentError, "key needs a number from"),
        ((0.0,), ArgumentTypeError, r"color needs a whole number, got 0\.0"),
        ((0, None), ArgumentTypeError, "key needs a whole number, got None"),
    ]:
        with pytest.raises(error, match=text):
            communicator.split(*arguments)
    for color in (np.int8(-1), -5, (1 << 63) - 1):
        part = communicator.split(color, np.uint16(3))
        assert part is not None
        part.close()
    communicator.close()


@pytest.mark.parametrize(
    ("timeout", "is_right"), [(np.float32(3), True), (np.int8(5), True), (10**400, True), (np.nan, False), ("1", False)]
)
def test_timeouts(timeout: Any, is_right: bool) -> None:
    if not is_right:
        with pytest.raises(ArgumentError, match="timeout needs seconds, more than 0, or None, got "):
            Communicator.all(["host"], timeout=timeout)
        return
    with Communicator.all(["host"], timeout=timeout)[0] as communicator:
        communicator.barrier()


def test_devices_that_are_no_list() -> None:
    with pytest.raises(ArgumentTypeError, match=r"devices needs a list such as .*, got 3"):
        Communicator.all(3)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    [
        (("0", 1), ArgumentTypeError, "rank needs a rank, a whole number, got '0'"),
        ((2, 2), ArgumentError, "rank needs a rank from 0 to 1, got 2"),
        ((0, None), ArgumentTypeError, "size needs a whole number, got None"),
        ((0, 1 << 40), ArgumentError, "size needs a number from 1 to 1048576, got 1099511627776"),
        ((0, 1, 3), ArgumentTypeError, "exchange needs a function, got 3"),
    ],
)
def test_wrong_arguments_of_join(arguments: Any, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=f"Communicator.join: {text}"):
        Communicator.join(*arguments, *[lambda data: [data]][len(arguments) - 2 :], device="host")


@pytest.mark.parametrize(
    ("exchange", "error", "text"),
    [
        (lambda data: None, ArgumentTypeError, "a list of the 2 ranks' bytes, in rank order, got None"),
        (lambda data: [data, "text"], ArgumentTypeError, "got .*'text'"),
        (lambda data: [data], ArgumentError, "got the bytes of 1 rank$"),
        (lambda data: [b"", data], ArgumentError, "item 0 differs from the bytes that rank 0 passed to it"),
        (lambda data: [data, b"{"], CommunicatorError, "on rank 0: the exchange of .* gave no address of rank 1"),
        (lambda data: [data, b"[1, 2, 3]"], CommunicatorError, "gave no address of rank 1"),
    ],
)
def test_an_exchange_that_returns_something_else(exchange: Any, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        Communicator.join(0, 2, exchange, device="host", timeout=LIMIT)


@pytest.mark.parametrize("address", ["192.0.2.1", "no such name.", 3])
def test_an_address_of_another_machine(address: Any) -> None:
    with pytest.raises(ArgumentError, match="Communicator: this machine can't listen at the address"):
        Communicator.join(0, 2, lambda data: [data] * 2, device="host", address=address)


def test_matrices_without_elements() -> None:
    def main(communicator: Communicator) -> None:
        with offload_args(np.ones((0, 3)), np.ones((3, 0), order="F"), np.ones(0), device="host") as (da, db, dc):
            for pointer in (da, db, dc):
                communicator.all_reduce(pointer)
                communicator.broadcast(pointer, 1)
                communicator.all_gather(pointer, da)
                communicator.reduce_scatter(db, pointer)
                communicator.all_to_all(dc, pointer)

    all_right(on_ranks(main, ["host"] * 2))


@pytest.mark.promise("T82")
def test_a_rank_whose_last_reference_ends_is_lost() -> None:
    first, second = Communicator.all(["host"] * 2)
    errors = []

    def wait() -> None:
        with pytest.raises(CommunicatorError, match="rank 0 has closed its communicator") as error:
            second.barrier()
        errors.append(error.value.ranks)

    thread = threading.Thread(target=wait)
    thread.start()
    del first
    thread.join(LIMIT)
    assert errors == [(0,)]
    second.close()


@pytest.mark.promise("T82")
def test_the_process_ends_after_a_communicator_without_a_reference_is_closed() -> None:
    code = """
import time
from offload_args import Communicator
from offload_args.communicator.memory import MemoryLink
close = MemoryLink.close
def slowly(self):
    time.sleep(0.2)
    close(self)
    print("closed")
MemoryLink.close = slowly
Communicator.all(["host"])
"""
    assert printed(code) == "closed\n"


FUNNELED = """
import mpi4py
mpi4py.rc.thread_level = "funneled"
from mpi4py import MPI
from offload_args import Communicator, CommunicatorError
first, second = (Communicator.from_mpi(MPI.COMM_WORLD, device="host", timeout=300) for _ in range(2))
first.barrier()
if first.rank == 0:
    del first
    second.barrier()
else:
    second.barrier()
    try:
        first.barrier()
    except CommunicatorError as error:
        print(error.ranks)
"""


@pytest.mark.later
@pytest.mark.promise("T82")
def test_mpi_without_threads_closes_unreferenced_communicators_at_the_end(tmp_path: Path) -> None:
    assert by_mpi(["-c", FUNNELED], 2, tmp_path) == ["", "(0,)\n"]


@pytest.mark.later
def test_an_exhausted_system_is_not_taken_for_a_wrong_address() -> None:
    code = """
import errno, os, resource
from offload_args import Communicator
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
files = []
try:
    while True:
        files.append(os.open("/dev/null", os.O_RDONLY))
except OSError:
    pass
try:
    Communicator.join(0, 1, lambda text: [text], device="host")
except OSError as error:
    code = error.errno
for file in files:
    os.close(file)
print(code == errno.EMFILE)
"""
    assert printed(code) == "True\n"
