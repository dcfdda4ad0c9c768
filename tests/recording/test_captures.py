"""Each function of each library is captured whole, or refused before the library is called (T62)."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from helpers.devices import HIP, open_or_skip
from recording import legal
from recording.workers import Turns, Workers, pairs

DEVICES = {"cuda": "cuda:0", "hip": HIP}
OF_GPUS = [name for name, library in legal.libraries().items() if library.backend]


@pytest.fixture(scope="module")
def on_gpu(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workers]:
    workers = Workers(tmp_path_factory.mktemp("captures"), DEVICES)
    yield workers
    for worker in workers.values():
        worker.stop()


def families(helpers: bool) -> set[tuple[str, str]]:
    return {
        (name, function.family)
        for name in OF_GPUS
        for function in legal.library(name).functions
        if bool(function.is_helper) == helpers
    }


@pairs(sorted(families(helpers=False)))
def test_each_function_is_captured_or_refused(on_gpu: Workers, variant: str, family: str) -> None:
    open_or_skip(DEVICES[legal.libraries()[variant].backend or ""])
    on_gpu[variant].ask("captures", family, Turns(2, every=False))


@pairs(sorted(families(helpers=True)))
def test_each_helper_function_works_beside_a_capture(on_gpu: Workers, variant: str, family: str) -> None:
    open_or_skip(DEVICES[legal.libraries()[variant].backend or ""])
    on_gpu[variant].ask("helper functions beside captures", family, Turns(1, every=True))
