"""Streams of other packages: objects with `__cuda_stream__`."""

from __future__ import annotations

import operator
from typing import Protocol, runtime_checkable

from .errors import ArgumentError, ArgumentTypeError, SizeOverflowError

__all__ = ["SupportsStream", "stream_handle"]


@runtime_checkable
class SupportsStream(Protocol):
    """An object that returns its stream as (0, cudaStream_t)."""

    def __cuda_stream__(self) -> tuple[int, int]: ...


def stream_handle(subject: str, stream: object) -> int:
    """Return the handle of a stream; `subject` names the function and the argument, such as "cublas.set_stream:
    streamId".

    Raises ArgumentTypeError if the object has no `__cuda_stream__`, or if this method does not return two integers.
    Raises ArgumentError for another version of the protocol.
    """
    protocol = getattr(stream, "__cuda_stream__", None)
    if protocol is None:
        remedy = "; leave it out: the region has a stream of its own"
        if isinstance(stream, int) or hasattr(stream, "ptr") or hasattr(stream, "handle"):
            remedy = "; pass an object whose method __cuda_stream__ returns (0, the stream's address)"
        raise ArgumentTypeError(f"{subject} needs an object with __cuda_stream__, got {type(stream).__name__}{remedy}")
    pair = protocol() if callable(protocol) else protocol
    try:
        version, handle = map(operator.index, pair)
    except (TypeError, ValueError):
        function = subject.partition(":")[0]
        raise ArgumentTypeError(f"{function}: __cuda_stream__ needs to give two integers, got {pair!r}") from None
    if version != 0:
        raise ArgumentError(f"{subject} speaks version {version} of __cuda_stream__, 0 is known")
    if not 0 <= handle < 2**64:
        raise SizeOverflowError(f"{subject} needs a handle of 64 bits, got {handle}")
    return handle
