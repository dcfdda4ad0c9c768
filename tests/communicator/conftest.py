"""A port for the first rank of processes."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest


@pytest.fixture
def port() -> Iterator[int]:
    """A port that no other process gets while this process holds it; rank 0 may listen at it even so."""
    with socket.socket() as holder:
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        holder.bind(("127.0.0.1", 0))
        yield holder.getsockname()[1]
