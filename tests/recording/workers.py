"""Builds each library's double and the callers in C, and starts the process that loads the double."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from recording import legal
from recording.recorder import build

HERE = Path(__file__).parent

# {variant: (library, whether the double's integers have 64 bits)}.
VARIANTS = {name: (name, False) for name in legal.libraries()}
VARIANTS |= {f"{name}-ilp64": (name, True) for name, library in legal.libraries().items() if library.probe}
# Only CI tests the other variants, because each double takes seconds to compile.
QUICK = ("cblas", "nccl")


class Turns(NamedTuple):
    """The tries of a function, and whether every function is tried, or one of each group that differs in types."""

    count: int
    every: bool
    is_short: bool = False


class Worker:
    """The process that loads one double. It is started at its first request, and again after a crash."""

    def __init__(self, variant: str, folder: Path, device: str) -> None:
        library, wide = VARIANTS[variant]
        self._library = library
        self._double = build(legal.libraries()[library], folder / f"{variant}.so", wide=wide)
        settings = {"library": library, "device": device, "double": str(self._double)}
        settings |= {"typed": str(folder / f"{variant}-typed.so"), "integer_bits": 64 if wide else 32}
        self._command = [sys.executable, "-W", "error", str(HERE / "worker.py"), json.dumps(settings)]
        self._process: subprocess.Popen[str] | None = None

    def ask(self, check: str, family: str, turns: Turns) -> None:
        """Let the process check functions of a family. Fail if the check fails or the process dies."""
        names = [function.name for function in legal.of_family(self._library, family, turns.every)]
        if self._process is None:
            self._process = subprocess.Popen(self._command, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        process = self._process
        assert process.stdin and process.stdout
        try:
            process.stdin.write(json.dumps({"check": check, "functions": names, "turns": turns.count}) + "\n")
            process.stdin.flush()
            answer = process.stdout.readline()
        except BrokenPipeError:
            answer = ""
        if not answer:
            self._process = None
            process.communicate()
            pytest.fail(f"the process of {check} of {family} ended with status {process.wait()}")
        failures = json.loads(answer)["failures"]
        if failures:
            pytest.fail("\n".join(failures[:3]), pytrace=False)

    def stop(self) -> None:
        if self._process is not None:
            self._process.communicate(timeout=300)


class Workers(dict[str, Worker]):
    """{variant: worker}.

    A worker is made when it is first needed. `devices` has the device of each backend; other backends have a simulated
    device.
    """

    def __init__(self, folder: Path, devices: dict[str, str] | None = None) -> None:
        super().__init__()
        self._folder, self._devices = folder, devices or {}

    def __missing__(self, variant: str) -> Worker:
        backend = legal.libraries()[VARIANTS[variant][0]].backend
        self[variant] = Worker(variant, self._folder, self._devices.get(backend or "", "sim:0"))
        return self[variant]


# The device of each kind of backend, for tests of the vendor's own library.
DEVICES = {"cuda": "cuda:0"}


def families(library: str) -> list[str]:
    """Return the families of a library's bound functions."""
    return sorted({function.family for function in legal.functions(library).values()})


def every_family(*variants: str) -> Any:
    """Parametrize a test over (variant, family): every family of bound functions of these variants.

    The default run has only the families of small libraries; CI has all.
    """
    return pairs((variant, family) for variant in variants for family in families(VARIANTS[variant][0]))


def every_family_of(chosen: Callable[[str], dict[str, legal.roles.Function]]) -> Any:
    """Parametrize a test over (variant, family), with every family of the chosen functions of each library."""
    return pairs((name, function.family) for name in legal.libraries() for function in chosen(name).values())


def pairs(of: Iterable[tuple[str, str]]) -> Any:
    """Parametrize a test over (variant, family), marked slow except for the small libraries."""
    parameters = [pytest.param(*pair, marks=[] if pair[0] in QUICK else [pytest.mark.slow]) for pair in of]
    return pytest.mark.parametrize(("variant", "family"), parameters)


def turned(short: int, full: int, long: int | None = None, every: bool = False) -> Any:
    """Parametrize a test over its turns in the short form, in CI's form and in the exhaustive form.

    long: None if the short form is CI's form, too. every: the short form has all functions, as the others have.
    """
    turns = [pytest.param(Turns(short, every, is_short=long is not None), id="short")]
    if long is not None:
        turns.append(pytest.param(Turns(long, every=True), id="long", marks=pytest.mark.slow))
    turns.append(pytest.param(Turns(full, every=True), id="full", marks=pytest.mark.exhaustive))
    return pytest.mark.parametrize("turns", turns)
