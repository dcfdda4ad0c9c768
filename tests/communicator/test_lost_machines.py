"""A machine that loses its network: the system ends the connections to it, and the other ranks raise."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from helpers.launches import LIMIT
from helpers.processes import program_or_skip

# The network of the processes of a new namespace is the loopback device. Without the device, nothing arrives, and the
# system of a sender gets no answer, as if the other machine had lost its power.
PROGRAM = """
import fcntl, json, socket, struct, sys
sys.path.insert(0, FOLDER)
from helpers.launches import end, launched

def network(flags):
    with socket.socket() as any_socket:
        fcntl.ioctl(any_socket, 0x8914, struct.pack("16sh22x", b"lo", flags))  # SIOCSIFFLAGS

network(1)
processes = launched(["-c", RANK, WORK], 3, 29500)
for process in processes:
    assert process.stdout.readline() == "ready\\n"
network(0)
for process in processes[:2]:
    process.stdin.write("lost\\n")
    process.stdin.flush()
print(json.dumps(end(processes)))
"""
RANK = """
import sys
import numpy as np
from offload_args import Communicator, CommunicatorError, offload_args
from offload_args.communicator import sockets

sockets._SILENCE = 4  # instead of 20 seconds
communicator = Communicator.from_environment(device="host")
x = np.ones(8_000_000 if sys.argv[1] == "send" else 10)  # more than a connection keeps
communicator.barrier()
print("ready", flush=True)
if communicator.rank == 2:
    sys.stdin.read()  # to the end of the other ranks
    sys.exit()
if sys.argv[1] == "send":
    sys.stdin.readline()  # until the network is lost
try:
    with offload_args(x, device="host") as (dx,):
        dx.fill(2.0)
        if sys.argv[1] == "receive":
            communicator.recv(dx, 2)
        else:
            communicator.send(dx, 2)
except CommunicatorError as error:
    print((x == 1).all(), str(error).partition("of 3: ")[2])
"""


@pytest.mark.promise("T82", "T84")
@pytest.mark.later
@pytest.mark.parametrize("work", ["receive", "send"])
def test_a_rank_on_a_machine_without_network_is_lost(work: str) -> None:
    """Without a timeout: a rank that only receives sends nothing itself, so the system has to test its connections."""
    command = [program_or_skip("unshare"), "--map-root-user", "--net"]
    if subprocess.run([*command, "true"], capture_output=True, check=False).returncode:
        pytest.skip("device unavailable: no namespaces of networks")
    folder = __file__.rpartition("/communicator/")[0]
    program = PROGRAM.replace("FOLDER", repr(folder)).replace("RANK", repr(RANK)).replace("WORK", repr(work))
    ran = subprocess.run([*command, sys.executable, "-c", program], capture_output=True, text=True, timeout=LIMIT)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    for status, out, errors in json.loads(ran.stdout)[:2]:
        assert (status, errors) == (0, "")
        assert "True rank" in out and "has ended without closing its communicator" in out, out
