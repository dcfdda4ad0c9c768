"""The tests of NumPy, SciPy and other packages, without and with acceleration.

    python tests/helpers/suites.py --device host --device sim:0 numpy.linalg
    python tests/helpers/suites.py scipy.linalg.tests.test_decomp -k "not test_orth"

The tests run by pytest, and then by `offload_args run --margin 0 -m pytest`, so that every call of BLAS and LAPACK that
can go to the device goes there. For each run, the command prints the number of each outcome and of the calls that went,
and then each test whose outcome differs.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import sysconfig
import tempfile
import xml.etree.ElementTree as xml
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple


class Run(NamedTuple):
    """A run of tests."""

    outcomes: dict[str, str]  #: {test: "passed", "failed", "error" or "skipped"}
    calls: int  #: calls that the hooks counted
    gone: int  #: calls that went to the device
    text: str  #: the output
    seconds: float  #: of the CPU

    def count(self, outcome: str) -> int:
        return sum(outcome == each for each in self.outcomes.values())


def run(folder: Path, words: Sequence[str], device: str | None) -> Run:
    """Run tests without acceleration, or with every possible call on a device. `words` are arguments of pytest."""
    results, report = folder / "results.xml", folder / "report.json"
    by_run = ["-m", "offload_args", "run", "--margin", "0", "--json", str(report), "--device", device or ""]
    command = [sys.executable, *(by_run if device else []), "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    begun = os.times()
    ended = subprocess.run(
        [
            *command,
            *("-p", "no:xdist"),
            f"--junitxml={results}",
            f"--rootdir={sysconfig.get_path('purelib')}",
            "--pyargs",
            *words,
        ],
        cwd=folder,
        env=os.environ | {"OPENBLAS_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        errors="replace",
    )
    text = ended.stdout + ended.stderr
    if not results.exists():
        raise RuntimeError(f"pytest ended with status {ended.returncode} and no results: {text[-4000:]}")
    outcomes: dict[str, str] = {}
    names: Counter[str] = Counter()
    for case in xml.parse(results).iter("testcase"):
        name = f"{case.get('classname')}::{case.get('name')}"
        names[name] += 1  # tests of the same name get numbers
        kinds = {child.tag for child in case}
        outcome = "error" if "error" in kinds else "failed" if "failure" in kinds else "passed"
        outcomes[f"{name} {names[name]}" if names[name] > 1 else name] = "skipped" if "skipped" in kinds else outcome
    results.unlink()
    counts = json.loads(report.read_text()) if device else {"calls": 0, "gone": 0}
    now = os.times()
    seconds = now.children_user + now.children_system - begun.children_user - begun.children_system
    return Run(outcomes, counts["calls"], counts["gone"], text, seconds)


def differences(plain: Run, gone: Run) -> list[str]:
    """Return a line for each test whose outcome differs."""
    return [
        f"{test}: {plain.outcomes.get(test, 'missing')}, on the device {gone.outcomes.get(test, 'missing')}"
        for test in sorted(plain.outcomes.keys() | gone.outcomes.keys())
        if plain.outcomes.get(test) != gone.outcomes.get(test)
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--device", action="append", default=[])
    options, words = parser.parse_known_args()
    plain: Run | None = None
    for device in (None, *(options.device or ["sim:0"])):
        with tempfile.TemporaryDirectory() as folder:
            now = run(Path(folder), words, device)
        counts = ", ".join(f"{count} {word}" for word, count in Counter(now.outcomes.values()).most_common())
        went = f"; {now.gone} of {now.calls} calls went" if device else ""
        print(f"{device or 'without acceleration'}: {counts}{went}; {now.seconds:.0f} s of the CPU", flush=True)
        plain = plain or now
        for line in differences(plain, now):
            print(f"  {line}", flush=True)


if __name__ == "__main__":
    main()
