"""Links between processes by the standard library's TCP sockets. Each pair of ranks has two connections.

The first connection carries arrays, each preceded by its size. The second connection carries the last message of a
rank: a text if the rank leaves on purpose, and nothing if it was killed. So a rank notices the end of any other rank,
even while it waits for a third rank.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import secrets
import select
import socket
import struct
import threading
import time
import weakref
from typing import TYPE_CHECKING, Any

from ..display import shown
from ..errors import ArgumentError
from .link import Link, LostRanksError, remaining

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from .link import Bytes

__all__ = ["SocketLink", "receive_exactly"]

_MAGIC = b"offload_args/1\n"
_HELLO = struct.Struct("<16sII")  # the listener's token, the rank, and 1 for its second connection
_SIZE = struct.Struct("<Q")
_PIECE = 1 << 20  # the most bytes of one system call
_SILENCE = 20  # seconds without an answer of the other machine, after which the system ends a connection


class SocketLink(Link):
    """Carry arrays by TCP."""

    __slots__ = ("__weakref__", "_address", "_closed", "_data", "_leaving", "_lock", "_signs", "_works")

    def __init__(
        self, rank: int, data: dict[int, socket.socket], signs: dict[int, socket.socket], address: str
    ) -> None:
        super().__init__(rank, len(data) + 1)
        self._address = address
        self._closed: dict[int, float] = {}  # {rank that left on purpose: the time at which this rank noticed it}
        self._data = data
        self._signs = signs  # {rank that has not left: its second connection}
        self._lock = threading.Lock()
        self._works = False  # whether a thread uses the connections
        self._leaving = weakref.finalize(self, _leave, [*data.values()], [*signs.values()], b"bye")
        _links.add(self)

    @classmethod
    def make(
        cls, rank: int, size: int, exchange: Callable[[bytes], list[bytes]], address: str, deadline: float | None
    ) -> SocketLink:
        """Connect with all other ranks. `exchange` returns the bytes of all ranks, in the order of the ranks."""
        data: dict[int, socket.socket] = {}
        signs: dict[int, socket.socket] = {}
        token = secrets.token_bytes(16)
        with contextlib.ExitStack() as undo, _listening(address, 2 * size) as listener:
            port = listener.getsockname()[1]
            texts = exchange(json.dumps([address, port, token.hex()]).encode())
            places = [_place(peer, text) for peer, text in enumerate(texts)]
            for peer in range(rank):
                place, its_token = places[peer]
                for kind, sockets in enumerate((data, signs)):
                    sockets[peer] = undo.enter_context(_connected(peer, place, deadline))
                    sockets[peer].sendall(_MAGIC + _HELLO.pack(its_token, rank, kind))
            while len(data) + len(signs) < 2 * (size - 1):
                missing = [peer for peer in range(size) if peer != rank and (peer not in data or peer not in signs)]
                connection = _accepted(listener, missing, deadline)
                greeting = _greeting(connection, token, deadline)
                if greeting is None:
                    connection.close()
                    continue
                peer, kind = greeting
                (signs if kind else data)[peer] = undo.enter_context(connection)
            for connection in signs.values():
                _notice_lost_machines(connection)
            for connection in (*data.values(), *signs.values()):
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                connection.setblocking(False)
            undo.pop_all()
        return cls(rank, data, signs, address)

    def exchange(self, outgoing: Mapping[int, Bytes], incoming: Mapping[int, Bytes], deadline: float | None) -> None:
        """Write to and read from connections that are ready, and watch for ranks that leave."""
        with self._lock:
            if not self._leaving.alive:
                raise LostRanksError([self.rank], "it is closed")
            self._works = True
        try:
            self._exchange(outgoing, incoming, deadline)
        finally:
            with self._lock:
                self._works = False
                if not self._leaving.alive:  # another thread has closed the communicator
                    _close([*self._data.values(), *self._signs.values()])

    def _exchange(self, outgoing: Mapping[int, Bytes], incoming: Mapping[int, Bytes], deadline: float | None) -> None:
        sending = {peer: [memoryview(_SIZE.pack(data.nbytes)), data.data] for peer, data in outgoing.items()}
        receiving = {peer: _Arrival(peer, data) for peer, data in incoming.items()}
        for peer in [*sending]:  # small messages need no wait
            try:
                if _sent(self._data[peer], sending[peer]):
                    del sending[peer]
            except OSError:
                self._lose(peer)
        poll = select.poll()
        peers = {connection.fileno(): (peer, True) for peer, connection in self._signs.items()}
        for file in peers:
            poll.register(file, select.POLLIN)
        for peer in {*sending, *receiving}:
            peers[self._data[peer].fileno()] = peer, False
            poll.register(self._data[peer], _events(peer, sending, receiving))
        while sending or receiving:
            seconds = remaining(deadline)
            ready = poll.poll(None if seconds is None else int(1000 * seconds) + 1)
            if not ready and remaining(deadline) == 0:
                raise LostRanksError({*sending, *receiving}, "")
            # Arrays that came before a rank left are read first.
            for file, _ in sorted(ready, key=lambda event: peers[event[0]][1]):
                peer, is_sign = peers[file]
                if is_sign:
                    self._read_sign(peer)
                    poll.unregister(file)
                    continue
                try:
                    if peer in sending and _sent(self._data[peer], sending[peer]):
                        del sending[peer]
                    if peer in receiving and receiving[peer].read(self._data[peer]):
                        del receiving[peer]
                except OSError:
                    self._lose(peer)
                if peer in sending or peer in receiving:
                    poll.modify(file, _events(peer, sending, receiving))
                else:
                    poll.unregister(file)

    def _read_sign(self, peer: int) -> None:
        """Note that a rank has left; raise LostRanksError if it was killed, or if it reports lost ranks."""
        connection = self._signs.pop(peer)
        try:
            text = connection.recv(1 << 16)
        except OSError:
            text = b""
        connection.close()
        if text != b"bye":
            raise _lost(peer, text)
        self._closed[peer] = time.monotonic()

    def check(self, grace: float) -> None:
        """Read the last messages of ranks that have left."""
        ready = select.select([*self._signs.values()], [], [], 0)[0]
        for peer in [peer for peer, connection in self._signs.items() if connection in ready]:
            self._read_sign(peer)
        for peer, when in self._closed.items():
            if time.monotonic() >= when + grace:
                raise _lost(peer, b"bye")

    def _lose(self, peer: int) -> None:
        """Raise LostRanksError for a rank whose connection has ended."""
        text = b""
        if peer in self._signs:
            connection = self._signs.pop(peer)
            with contextlib.suppress(OSError), connection:
                connection.settimeout(1.0)
                text = connection.recv(1 << 16)
        else:
            text = b"bye"
        raise _lost(peer, text)

    def split(self, color: int | None, key: int, deadline: float | None) -> SocketLink | None:
        """Connect the ranks with this color anew."""
        members = self.members(color, key, deadline)
        if color is None:
            self.share(b"", deadline)
            return None

        def exchange(data: bytes) -> list[bytes]:
            texts = self.share(data, deadline)
            return [texts[member] for member in members]

        return SocketLink.make(members.index(self.rank), len(members), exchange, self._address, deadline)

    def give_up(self, ranks: Iterable[int], reason: str) -> None:
        """Report the lost ranks to the other ranks, and leave. This ends a wait of another thread in `exchange`."""
        self._leave(json.dumps([list(ranks), reason]).encode())

    def close(self) -> None:
        """Report to the other ranks that this rank leaves on purpose, and leave."""
        self._leave(b"bye")

    def _leave(self, text: bytes) -> None:
        with self._lock:
            if self._leaving.detach() is None:
                return
            data, signs = [*self._data.values()], [*self._signs.values()]
            _send(signs, text)
            if self._works:  # the thread that works closes the connections
                for connection in (*data, *signs):
                    with contextlib.suppress(OSError):
                        connection.shutdown(socket.SHUT_RDWR)
            else:
                _close([*data, *signs])

    def abandon(self) -> None:
        """Close the connections in a forked child; the parent's connections stay open."""
        self._leaving.detach()
        _close([*self._data.values(), *self._signs.values()])


_links: weakref.WeakSet[SocketLink] = weakref.WeakSet()


def _abandon_all() -> None:
    """Close all connections in a forked child, so that the other ranks notice the end of the parent."""
    for link in [*_links]:
        link.abandon()


os.register_at_fork(after_in_child=_abandon_all)


class _Arrival:
    """An array that is being received, after its size."""

    def __init__(self, peer: int, data: Bytes) -> None:
        self.peer = peer
        self.size = bytearray(_SIZE.size)
        self.rest = [memoryview(self.size), data.data]
        self.nbytes = data.nbytes
        self.is_checked = False  # whether the size was read

    def read(self, connection: socket.socket) -> bool:
        """Read the bytes that have arrived; return whether the message is complete."""
        while self.rest:
            try:
                count = connection.recvmsg_into([part[:_PIECE] for part in self.rest])[0]
            except BlockingIOError:
                return False
            if count == 0:
                raise ConnectionResetError
            _advance(self.rest, count)
            if len(self.rest) < 2 and not self.is_checked:
                self.is_checked = True
                (size,) = _SIZE.unpack(self.size)
                if size != self.nbytes:
                    raise LostRanksError(
                        [self.peer], f"rank {self.peer} sent {size} bytes, and this rank needs {self.nbytes}"
                    )
        return True


def _sent(connection: socket.socket, rest: list[memoryview]) -> bool:
    """Write as many bytes as fit; return whether the message is complete. A small message is one packet."""
    while rest:
        try:
            count = connection.sendmsg([part[:_PIECE] for part in rest])
        except BlockingIOError:
            return False
        _advance(rest, count)
    return True


def _advance(rest: list[memoryview], count: int) -> None:
    """Remove bytes from the front of a list of parts."""
    while rest and count >= rest[0].nbytes:
        count -= rest.pop(0).nbytes
    if rest:
        rest[0] = rest[0][count:]


def _events(peer: int, sending: Mapping[int, Any], receiving: Mapping[int, Any]) -> int:
    return (select.POLLOUT if peer in sending else 0) | (select.POLLIN if peer in receiving else 0)


def _lost(peer: int, text: bytes) -> LostRanksError:
    """Return the error for the text with which a rank left."""
    if text == b"bye":
        return LostRanksError([peer], f"rank {peer} has closed its communicator")
    try:
        ranks, reason = json.loads(text)
    except ValueError:
        return LostRanksError([peer], f"rank {peer} has ended without closing its communicator")
    return LostRanksError(ranks, reason)


def _leave(data: Iterable[socket.socket], signs: Iterable[socket.socket], text: bytes) -> None:
    """Send the text with which this rank leaves, and close the connections."""
    _send(signs, text)
    _close([*signs, *data])


def _send(signs: Iterable[socket.socket], text: bytes) -> None:
    for connection in signs:
        with contextlib.suppress(OSError):
            connection.send(text)


def _close(connections: Iterable[socket.socket]) -> None:
    for connection in connections:
        connection.close()


def _notice_lost_machines(connection: socket.socket) -> None:
    """Let the system test a connection, so that it also ends if the other machine lost its power or its network.

    Connections for arrays are not tested: the system would also end a connection whose other end reads nothing for so
    long, and a rank reads nothing while it computes.
    """
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, _SILENCE // 4)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, _SILENCE // 4)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 1000 * _SILENCE)


def _listening(address: str, backlog: int) -> socket.socket:
    """Return a socket that listens on a free port of an address."""
    try:
        family = socket.getaddrinfo(address, 0, type=socket.SOCK_STREAM)[0][0]
        return socket.create_server((address, 0), family=family, backlog=max(backlog, 128))
    except (OSError, TypeError, UnicodeError) as error:
        if isinstance(error, OSError) and not isinstance(error, socket.gaierror) and error.errno != errno.EADDRNOTAVAIL:
            raise  # such as too many open files, which another address would not mend
        raise ArgumentError(
            f"Communicator: this machine can't listen at the address {shown(address)}: {error}; pass one of this "
            "machine's own addresses"
        ) from None


def _place(peer: int, text: bytes) -> tuple[tuple[str, int], bytes]:
    """Return the address at which a rank listens, and its token."""
    try:
        host, port, token = json.loads(text)
        return (str(host), int(port)), bytes.fromhex(token)
    except (ValueError, TypeError):
        raise LostRanksError([peer], f"the exchange of the ranks' addresses gave no address of rank {peer}") from None


def _connected(peer: int, place: tuple[str, int], deadline: float | None) -> socket.socket:
    try:
        return socket.create_connection(place, remaining(deadline))
    except OSError as error:
        raise LostRanksError([peer], f"rank {peer} can't be reached at {place[0]}:{place[1]}: {error}") from None


def _accepted(listener: socket.socket, missing: Iterable[int], deadline: float | None) -> socket.socket:
    listener.settimeout(remaining(deadline) if deadline is None or time.monotonic() < deadline else 0.001)
    try:
        return listener.accept()[0]
    except TimeoutError:
        raise LostRanksError(missing, "") from None


def receive_exactly(connection: socket.socket, count: int) -> bytes:
    """Return `count` bytes, or fewer if the connection ends."""
    data = b""
    while len(data) < count and (piece := connection.recv(count - len(data))):
        data += piece
    return data


def _greeting(connection: socket.socket, token: bytes, deadline: float | None) -> tuple[int, int] | None:
    """Return the rank and the kind of a connection; None if it lacks the token."""
    connection.settimeout(min(5.0, remaining(deadline) or 5.0))
    try:
        data = receive_exactly(connection, len(_MAGIC) + _HELLO.size)
    except OSError:
        return None
    if len(data) < len(_MAGIC) + _HELLO.size or not data.startswith(_MAGIC):
        return None
    its_token, rank, kind = _HELLO.unpack(data[len(_MAGIC) :])
    return (rank, kind) if secrets.compare_digest(its_token, token) else None
