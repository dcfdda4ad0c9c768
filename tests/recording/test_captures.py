"""Each function of each library is captured whole, or refused before the library is called (T62)."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from helpers.devices import HIP, open_or_skip
from recording import legal
from recording.workers import Turns, Workers, pairs

DEVICES = {"cuda": "cuda:0", "hip": HIP}
OF_GPUS = [name for name, one in legal.libraries().items() if one.backend]


@pytest.fixture(scope="module")
def on_gpu(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workers]:
    made = Workers(tmp_path_factory.mktemp("captures"), DEVICES)
    yield made
    for one in made.values():
        one.stop()


def families(services: bool) -> set[tuple[str, str]]:
    return {
        (name, one.family)
        for name in OF_GPUS
        for one in legal.library(name).functions
        if bool(one.is_service) == services
    }


@pairs(sorted(families(services=False)))
def test_each_function_is_captured_or_refused(on_gpu: Workers, variant: str, family: str) -> None:
    open_or_skip(DEVICES[legal.libraries()[variant].backend or ""])
    on_gpu[variant].ask("captures", family, Turns(2, every=False))


@pairs(sorted(families(services=True)))
def test_each_service_works_beside_a_capture(on_gpu: Workers, variant: str, family: str) -> None:
    open_or_skip(DEVICES[legal.libraries()[variant].backend or ""])
    on_gpu[variant].ask("services beside captures", family, Turns(1, every=True))
