"""Recordings: files with a program's regions, copies and calls, which can run again anywhere; docs/guide/recordings.md.

The modules of this package are only imported when a recording begins or is replayed:
    stream.py    the file: compressed lines of JSON, each written when it is made
    recorder.py  Recording: turns the extension's reports of calls into lines
    process.py   recordings of a whole process: by OFFLOAD_ARGS_RECORD, and by `python -m offload_args record`
    replay.py    runs the lines of a file again
    contents.py  values for arrays whose contents were not recorded
    shrink.py    the fewest calls and the least sizes with which a fault shows
    images.py    signatures and machine code of kernels
    predicate.py a user's own predicate of a fault
    script.py    a recording as a Python script
    compare.py   the same call on the host, and the allowed distance between the results
    order.py     calls that give other results unless each call is waited for
    layout.py    an array's dtype, and the places of its elements in memory
    twins.py     a vendor's call for another vendor's library
    solvers.py   a vendor's call of LAPACK for another vendor's library
    solved.py    whether a call of LAPACK solved its problem
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from .._signatures import telling
from ..display import listing, nearest, no_name

if TYPE_CHECKING:
    import os

    from .recorder import Recording

__all__ = ["Recording", "record"]


@telling
def record(
    file: str | os.PathLike[str],
    *,
    contents: Literal["none", "hash", "inputs"] = "hash",
    calls: int | None = None,
    sync: bool = False,
    images: bool = False,
) -> Recording:
    """Record every region, copy and call of a block in a file: `with record("bug.jsonl.gz"): ...`.

    `python -m offload_args replay bug.jsonl.gz` runs them again, on any device.

    contents: the part of arrays' contents that is recorded: with "hash", only checksums, by which a replay detects
    changes; with "none", neither checksums nor values; with "inputs", the values of operands and of results. The
    numbers that are passed to calls, and the names of arrays and source files, are always in the file. calls: the most
    calls to record. sync: whether each call is also written to the file before it is made, so that the file has a call
    that ends the process. images: whether the machine code of kernels is written, so that `replay --images` can launch
    them again.

    Raises ArgumentError for a wrong argument, and OSError if the file can't be written.

        x = np.array([3.0, 4.0])
        with record("norm.jsonl.gz"), offload_args(x) as (dx,):
            print(blas.nrm2(dx))  # 5.0
        print(os.path.exists("norm.jsonl.gz"))  # True

    See also: trace; docs/guide/recordings.md.
    """
    from .recorder import Recording

    return Recording(file, contents, calls, sync, images)


if not TYPE_CHECKING:  # static checkers read all names

    def __getattr__(name):
        if name == "Recording":
            from .recorder import Recording

            return Recording
        raise no_name(__name__, name, nearest(name, __all__))

    __dir__ = listing(__all__)
