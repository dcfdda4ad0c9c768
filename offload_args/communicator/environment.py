"""Ranks that a launcher such as torchrun describes by environment variables; all other ranks connect to rank 0."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import selectors
import socket
import struct
import time
from collections.abc import Sequence
from contextlib import suppress
from types import TracebackType
from typing import Any, Final, Self

from ..display import shown
from ..errors import ArgumentError
from .link import LostRanksError, remaining
from .sockets import receive_exactly

__all__ = ["Meeting", "Ranks", "ranks_of_environment"]

_MAGIC: Final = b"offload_args/2\n"
_GREETING: Final = struct.Struct("<16sI")  # the program's identity, and the rank
_WELCOME: Final = b"w"  # rank 0's answers to a greeting
_OTHER_PROGRAM: Final = b"o"
_TWICE: Final = b"t"
_COMPLETE: Final = b"c"  # rank 0's second answer, once all ranks have come
_MISSING: Final = b"m"  # the other second answer, before a list of the ranks that have not come in time
_GRACE: Final = 1.0  # seconds after its deadline for which a rank waits for the second answer
_LENGTH: Final = struct.Struct("<I")
_LOOPBACK: Final = "127.0.0.1"
_PORTS: Final = 8  # ports beside torchrun's own that rank 0 tries
_LAST_PORT: Final = (1 << 16) - 1
_PATIENCE: Final = 5.0  # seconds for which rank 0 waits for a port, and another rank for an answer


class Ranks:
    """The values of the variables: rank, size, rank on its machine, the address of rank 0 and its possible ports.

    `identity` is the same for all ranks of one program, and differs from other programs of torchrun.
    """

    def __init__(
        self, rank: int, size: int, local_rank: int, address: str, ports: Sequence[int], program: str = ""
    ) -> None:
        self.rank = rank
        self.size = size
        self.local_rank = local_rank
        self.address = address
        self.ports = tuple(ports)
        self.identity = hashlib.sha256(f"{size} {program}".encode()).digest()[:16]


def ranks_of_environment() -> Ranks:
    """Read RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR and MASTER_PORT; without WORLD_SIZE there is one rank."""
    size = _number("WORLD_SIZE", 1)
    rank = _number("RANK", 0 if size == 1 else None)
    if size < 1 or not 0 <= rank < size:
        raise ArgumentError(
            f"Communicator.from_environment: RANK needs a number from 0 to WORLD_SIZE - 1, got {rank} of {size}"
        )
    port = _number("MASTER_PORT", 0 if size == 1 else None)
    if size > 1 and not 0 < port <= _LAST_PORT:
        raise ArgumentError(
            f"Communicator.from_environment: MASTER_PORT needs a number from 1 to {_LAST_PORT}, got {port}"
        )
    ports = [port]
    # If this variable is set, torchrun itself listens at the port, and rank 0 listens at one of the next ports.
    if os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True":
        last = min(port + _PORTS, _LAST_PORT)
        ports = [next_port for next_port in range(last - _PORTS, last + 1) if next_port != port]
    # The number of the restart is no part of the identity, because torchrun counts it on each machine separately.
    program = os.environ.get("TORCHELASTIC_RUN_ID", "")
    address = os.environ.get("MASTER_ADDR") or _LOOPBACK
    return Ranks(rank, size, _number("LOCAL_RANK", rank), address, ports, program)


def _number(name: str, default: int | None) -> int:
    text = os.environ.get(name, "")
    if not text and default is not None:
        return default
    if not text.isdecimal():
        raise ArgumentError(
            f"Communicator.from_environment: the variable {name} needs a number, got {shown(text)}; torchrun sets it, "
            "together with RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT"
        )
    return int(text)


class Meeting:
    """Let all ranks exchange bytes through rank 0, while they set up a communicator."""

    def __init__(self, ranks: Ranks, deadline: float) -> None:
        self._ranks = ranks
        self._deadline = deadline
        self._others: dict[int, socket.socket] = {}  # by rank: all other ranks on rank 0; rank 0 on other ranks
        try:
            if ranks.size > 1:
                if ranks.rank == 0:
                    self._others = _Reception(ranks, deadline).others
                else:
                    self._connect()
        except BaseException:
            self.close()
            raise

    @property
    def address(self) -> str:
        """The address at which other ranks reach this rank."""
        if self._ranks.rank == 0 or self._ranks.size == 1:
            return self._ranks.address
        host: str = self._others[0].getsockname()[0]
        return host

    def exchange(self, data: bytes) -> list[bytes]:
        """Return the bytes of all ranks, in the order of the ranks."""
        if self._ranks.size == 1:
            return [data]
        if self._ranks.rank:
            self._write(0, data)
            return [bytes.fromhex(text) for text in json.loads(self._read(0))]
        texts = [data, *(self._read(peer) for peer in range(1, self._ranks.size))]
        answer = json.dumps([text.hex() for text in texts]).encode()
        for peer in self._others:
            self._write(peer, answer)
        return texts

    def close(self) -> None:
        """End the connections."""
        for connection in self._others.values():
            connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def _connect(self) -> None:
        """Try the ports in turn until rank 0 answers. Perhaps it does not listen yet."""
        ranks, stranger = self._ranks, ""
        while True:
            refused = ""
            for port in ranks.ports:
                place = f"{ranks.address}:{port}"
                try:
                    connection = socket.create_connection((ranks.address, port), self._patience())
                except OSError as error:
                    refused = refused or f"rank 0 can't be reached at {place}: {error}"
                    continue
                try:
                    answer = self._answer(connection)
                    if answer == _WELCOME and self._is_complete(connection):
                        self._others[0] = connection
                        return
                finally:
                    if 0 not in self._others:
                        connection.close()
                if answer == _WELCOME:
                    stranger, refused = "", f"rank 0 at {place} has ended, or waits for other ranks"
                elif answer == _TWICE:
                    raise LostRanksError([ranks.rank], f"another process is rank {ranks.rank}, too: see RANK")
                else:
                    stranger = f"another program listens at {place}; set MASTER_PORT"
            if time.monotonic() >= self._deadline:
                raise LostRanksError([0], stranger or refused)
            time.sleep(0.02)

    def _answer(self, connection: socket.socket) -> bytes:
        """Greet the process at the other end, and return its answer, or nothing."""
        try:
            connection.settimeout(self._patience())
            connection.sendall(_MAGIC + _GREETING.pack(self._ranks.identity, self._ranks.rank))
            return connection.recv(1)
        except OSError:
            return b""

    def _is_complete(self, connection: socket.socket) -> bool:
        """Wait until all ranks are connected to rank 0; return False if rank 0 ends before that.

        Raises LostRanksError with the ranks that have not come in time.
        """
        try:
            connection.settimeout((remaining(self._deadline) or 0) + _GRACE)
            answer = connection.recv(1)
            if answer == _MISSING:
                raise LostRanksError(json.loads(receive_exactly(connection, 1 << 20)), "")
            return answer == _COMPLETE
        except (OSError, ValueError):
            return False

    def _patience(self) -> float:
        return min(max(remaining(self._deadline) or 0, 0.001), _PATIENCE)

    def _write(self, peer: int, data: bytes) -> None:
        connection = self._others[peer]
        connection.settimeout(max(remaining(self._deadline) or 0, 0.001))
        try:
            connection.sendall(_LENGTH.pack(len(data)) + data)
        except OSError as error:
            raise LostRanksError([peer], f"rank {peer} left before all had met: {error}") from None

    def _read(self, peer: int) -> bytes:
        connection = self._others[peer]
        connection.settimeout(max(remaining(self._deadline) or 0, 0.001))
        try:
            head = receive_exactly(connection, _LENGTH.size)
            length = _LENGTH.unpack(head)[0] if len(head) == _LENGTH.size else 0
            data = receive_exactly(connection, length)
        except OSError as error:
            raise LostRanksError([peer], f"rank {peer} left before all had met: {error}") from None
        if len(head) < _LENGTH.size or len(data) < length:
            raise LostRanksError([peer], f"rank {peer} left before all had met")
        return data


class _Reception:
    """Accept the connections of all other ranks on rank 0. A rank that ends before all have come may come again."""

    def __init__(self, ranks: Ranks, deadline: float) -> None:
        self.others: dict[int, socket.socket] = {}
        self._ranks = ranks
        self._arriving: dict[socket.socket, bytes] = {}  # {connection without a rank yet: the bytes that it sent}
        try:
            with _listening(ranks, deadline) as listener, selectors.DefaultSelector() as selector:
                self._selector = selector
                selector.register(listener, selectors.EVENT_READ)
                while missing := {*range(1, ranks.size)} - {*self.others}:
                    seconds = remaining(deadline)
                    if seconds == 0:
                        self._tell(_MISSING + json.dumps([*missing]).encode())
                        raise LostRanksError(missing, "")
                    for key, _ in selector.select(seconds):
                        self._take(listener) if key.fileobj is listener else self._look_at(key.fileobj)
            self._tell(_COMPLETE)
        except BaseException:
            for connection in self.others.values():
                connection.close()
            raise
        finally:
            for connection in self._arriving:
                connection.close()

    def _tell(self, answer: bytes) -> None:
        for connection in self.others.values():
            with suppress(OSError):  # the exchange reports a rank that has ended
                connection.send(answer)

    def _take(self, listener: socket.socket) -> None:
        try:
            connection = listener.accept()[0]
        except OSError:  # the connection has ended already
            return
        connection.setblocking(False)
        self._selector.register(connection, selectors.EVENT_READ)
        self._arriving[connection] = b""

    def _look_at(self, connection: Any) -> None:
        if connection in self._arriving:
            if self._is_stranger(connection):
                del self._arriving[connection]
                self._drop(connection)
            return
        for rank, other in [*self.others.items()]:
            if other is connection:  # it sends nothing before it is told that all ranks have come, so it has ended
                del self.others[rank]
                self._drop(connection)

    def _drop(self, connection: socket.socket) -> None:
        if connection.fileno() in self._selector.get_map():
            self._selector.unregister(connection)
        connection.close()

    def _is_stranger(self, connection: socket.socket) -> bool:
        """Read from a connection; return whether it has ended, or does not come from a rank that is missing."""
        length = len(_MAGIC) + _GREETING.size
        try:
            piece = connection.recv(length - len(self._arriving[connection]))
        except BlockingIOError:
            return False
        except OSError:
            return True
        greeting = self._arriving[connection] = self._arriving[connection] + piece
        if not piece or greeting[: len(_MAGIC)] != _MAGIC[: len(greeting)]:
            return True
        if len(greeting) < length:
            return False
        identity, rank = _GREETING.unpack(greeting[len(_MAGIC) :])
        answer = _WELCOME
        if identity != self._ranks.identity or not 0 < rank < self._ranks.size:
            answer = _OTHER_PROGRAM
        elif rank in self.others:
            if _has_ended(self.others[rank]):
                self._drop(self.others.pop(rank))
            else:
                answer = _TWICE
        try:
            connection.send(answer)
        except OSError:
            return True
        if answer != _WELCOME:
            return True
        del self._arriving[connection]
        self.others[rank] = connection
        return False


def _listening(ranks: Ranks, deadline: float) -> socket.socket:
    """Return a socket that listens at the first free port. A program that ended lately may still hold a port."""
    address, ports = ranks.address, ranks.ports
    patience = min(deadline, time.monotonic() + _PATIENCE)
    while True:
        for port in ports:
            try:
                family = socket.getaddrinfo(address, port, type=socket.SOCK_STREAM)[0][0]
                listener = socket.create_server((address, port), family=family, backlog=max(ranks.size, 128))
                listener.setblocking(False)
                return listener
            except OSError as error:
                if error.errno != errno.EADDRINUSE or (port == ports[-1] and time.monotonic() >= patience):
                    place = f"{address}:{ports[0]}" + f" to {ports[-1]}" * (len(ports) > 1)
                    raise LostRanksError(
                        [0], f"rank 0 can't listen at {place}: {error}; set MASTER_PORT to a free port"
                    ) from None
        time.sleep(0.02)


def _has_ended(connection: socket.socket) -> bool:
    try:
        return not connection.recv(1, socket.MSG_PEEK)
    except BlockingIOError:
        return False
    except OSError:
        return True
