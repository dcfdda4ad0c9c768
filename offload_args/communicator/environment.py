"""Ranks that a launcher such as torchrun describes by environment variables; all other ranks connect to rank 0."""

from __future__ import annotations

import json
import os
import socket
import struct
import time
from types import TracebackType
from typing import Final, Self

from ..display import shown
from ..errors import ArgumentError
from .link import LostRanksError, remaining
from .sockets import receive_exactly

__all__ = ["Meeting", "Ranks", "ranks_of_environment"]

_MAGIC: Final = b"offload_args/0\n"
_LENGTH: Final = struct.Struct("<I")
_LOOPBACK: Final = "127.0.0.1"


class Ranks:
    """The values of the variables: rank, size, rank on its machine, and the address and port of rank 0."""

    def __init__(self, rank: int, size: int, local_rank: int, address: str, port: int) -> None:
        self.rank = rank
        self.size = size
        self.local_rank = local_rank
        self.address = address
        self.port = port


def ranks_of_environment() -> Ranks:
    """Read RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR and MASTER_PORT; without WORLD_SIZE there is one rank."""
    size = _number("WORLD_SIZE", 1)
    rank = _number("RANK", 0 if size == 1 else None)
    if size < 1 or not 0 <= rank < size:
        raise ArgumentError(
            f"Communicator.from_environment: RANK needs a number from 0 to WORLD_SIZE - 1, got {rank} of {size}"
        )
    port = _number("MASTER_PORT", 0 if size == 1 else None)
    # If this variable is set, torchrun itself listens at the port, and rank 0 listens at the next port.
    if os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True":
        port += 1
    return Ranks(rank, size, _number("LOCAL_RANK", rank), os.environ.get("MASTER_ADDR") or _LOOPBACK, port)


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
                self._accept() if ranks.rank == 0 else self._connect()
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

    def _accept(self) -> None:
        address, port, size = self._ranks.address, self._ranks.port, self._ranks.size
        family = socket.getaddrinfo(address, port, type=socket.SOCK_STREAM)[0][0]
        try:
            listener = socket.create_server((address, port), family=family, backlog=max(size, 128))
        except OSError as error:
            raise LostRanksError([0], f"rank 0 can't listen at {address}:{port}: {error}; set MASTER_PORT") from None
        with listener:
            while len(self._others) < size - 1:
                listener.settimeout(max(remaining(self._deadline) or 0, 0.001))
                try:
                    connection = listener.accept()[0]
                except TimeoutError:
                    raise LostRanksError({*range(1, size)} - {*self._others}, "") from None
                connection.settimeout(5.0)
                try:
                    greeting = receive_exactly(connection, len(_MAGIC) + _LENGTH.size)
                except OSError:
                    greeting = b""
                if len(greeting) == len(_MAGIC) + _LENGTH.size and greeting.startswith(_MAGIC):
                    self._others[_LENGTH.unpack(greeting[len(_MAGIC) :])[0]] = connection
                else:  # the connection does not come from a rank
                    connection.close()

    def _connect(self) -> None:
        place = self._ranks.address, self._ranks.port
        while True:
            try:
                connection = socket.create_connection(place, max(remaining(self._deadline) or 0, 0.001))
                break
            except OSError as error:  # perhaps rank 0 does not listen yet
                if time.monotonic() >= self._deadline:
                    raise LostRanksError([0], f"rank 0 can't be reached at {place[0]}:{place[1]}: {error}") from None
                time.sleep(0.02)
        self._others[0] = connection
        connection.sendall(_MAGIC + _LENGTH.pack(self._ranks.rank))

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
