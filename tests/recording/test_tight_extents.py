"""Arrays that end with the last touched element are accepted; arrays with one element less are refused with their name.

The same calls are made with the vendor's own library on machines with its devices. There compute-sanitizer reports if
the library touches more elements.
"""

from __future__ import annotations

import pytest

from helpers.devices import open_or_skip
from recording import legal, tight
from recording.bench import Bench
from recording.workers import DEVICES, Turns, Workers, every_family, families, turned

# These functions read places in memory (pivots) from arrays, so they are not called with arbitrary contents.
NOT_CALLED = {("cusolver", family) for family in ("getrs", "laswp", "sytri", "xgetrs", "xsytrs", "xhetrs")}
# These functions are not called because cuDNN compiles them for each combination of data types for up to a minute.
NOT_CALLED |= {("cudnn", f"gnn_mha_gat_{ending}") for ending in ("forward", "backward", "v2_forward", "v2_backward")}
ON_DEVICES = [
    pytest.param(DEVICES[library.backend], name, family, id=f"{DEVICES[library.backend]}-{name}-{family}")
    for name, library in legal.libraries().items()
    if library.backend in DEVICES
    for family in families(name)
    if (name, family) not in NOT_CALLED
]


@pytest.mark.promise("T31")
@every_family(*legal.libraries())
@turned(short=4, long=4, full=25)
def test_the_tightest_arrays_do_and_shorter_ones_are_refused(
    workers: Workers, variant: str, family: str, turns: Turns
) -> None:
    workers[variant].ask("tight", family, turns)


@pytest.mark.promise("T31")
@pytest.mark.parametrize(("device", "library", "family"), ON_DEVICES)
@turned(short=3, long=3, full=15)
def test_the_vendors_library_is_content_with_the_tightest_arrays(
    device: str, library: str, family: str, turns: Turns
) -> None:
    bench = Bench(legal.libraries()[library], open_or_skip(device))
    for function in legal.of_family(library, family, turns.every):
        tight.check(bench, function, turns.count)
