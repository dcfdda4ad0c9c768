"""Each function of each library is captured completely, or refused before the library is called (T62)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import Path

import pytest

from helpers.devices import HIP, open_or_skip
from recording import captures, legal
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


def functions_without_graphs() -> dict[str, tuple[list[str], bool]]:
    """Return {library: (patterns in the guide's table, whether the patterns are the exceptions)}."""
    rows = {}
    for line in (Path(__file__).parents[2] / "docs" / "guide" / "graphs.md").read_text().splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        names = re.findall(r"`([a-z]+)`", cells[0])
        if line.startswith("| `") and len(cells) == 3 and names[0] in OF_GPUS:
            assert (cells[1] == "none") == (cells[2] == ""), f"{names}: a row has functions and a reason, or neither"
            rows |= dict.fromkeys(names, (re.findall("`([^`]+)`", cells[1]), cells[1].startswith("all")))
    return rows


def test_the_guide_names_the_functions_that_no_graph_has() -> None:
    rows = functions_without_graphs()
    for name in OF_GPUS:
        library = legal.library(name)
        functions = [function for function in library.functions if not function.is_helper]
        if not functions:
            continue
        patterns, all_but = rows.pop(name)
        unused = {*patterns}
        for function in functions:
            stem = re.sub("^[sdcz]", "", function.name)
            matching = {
                pattern for pattern in patterns if fnmatchcase(function.name, pattern) or fnmatchcase(stem, pattern)
            }
            unused -= matching
            assert captures.is_refused(library, function) == (bool(matching) != all_but), f"{name}.{function.name}"
        assert not unused, name
    assert not rows


@pairs(sorted(families(helpers=True)))
def test_each_helper_function_works_beside_a_capture(on_gpu: Workers, variant: str, family: str) -> None:
    open_or_skip(DEVICES[legal.libraries()[variant].backend or ""])
    on_gpu[variant].ask("helper functions beside captures", family, Turns(1, every=True))
