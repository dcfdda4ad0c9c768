"""Compiles the core's C files once in a run, for all tests that link them with C files of their own."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from helpers.processes import output_of

CSRC = Path(__file__).parents[2] / "csrc"
WARNINGS = ("-Wall", "-Wextra", "-Werror")
OPTIONS = ("-std=gnu11", "-O0", "-fPIC", "-pthread", *WARNINGS)


def compile_all(sources: Iterable[tuple[Path, Path]], *options: str) -> None:
    """Compile C files, two at once; `sources` are pairs of a C file and its object file."""

    def compile_it(pair: tuple[Path, Path]) -> None:
        output_of("gcc", *OPTIONS, *options, "-c", "-o", pair[1], pair[0], folder=pair[1].parent)

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(compile_it, sources))


def core_objects(factory: pytest.TempPathFactory) -> dict[Path, Path]:
    """Return {C file of the core and of all backends, relative to csrc: its object file}.

    A file with the suffix .d beside the object file lists the headers. All processes of pytest-xdist share the files.
    """
    base = factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "core"
    folder.mkdir(exist_ok=True)
    sources = sorted(path for path in CSRC.glob("*/*.c") if path.parent.name != "tests")
    objects = {path.relative_to(CSRC): folder / f"{path.parent.name}-{path.stem}.o" for path in sources}
    done = folder / "done"
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not done.exists():
            pairs = [(CSRC / path, target) for path, target in objects.items()]
            compile_all(pairs, "-MMD", f"-I{CSRC}", f"-I{CSRC / 'include'}")
            done.touch()
    return objects
