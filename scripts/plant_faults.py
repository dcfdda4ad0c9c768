#!/usr/bin/env python3
"""Plants faults in a copy of the core, one at a time, and measures the time in which random programs find each.

scripts/plant_faults.py [--seconds 60] [NAME...] plants all faults, or the named faults. If a fault is not found, the
exit status is 1. The script needs the environment of `make ctest`, and works below build/faults.
tests/scripts/test_plant_faults.py checks that the text of each fault is still in the core.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent


@dataclass(frozen=True)
class Fault:
    """A text that the core has once, and the wrong text that replaces it."""

    name: str
    right: str
    wrong: str

    def place(self, tree: Path) -> Path:
        """Return the file with the right text in a tree of sources; raise LookupError unless one file has it."""
        having = [path for path in sorted((tree / "csrc").rglob("*.c")) if self.right in path.read_text()]
        if len(having) != 1 or having[0].read_text().count(self.right) != 1:
            raise LookupError(f"{self.name}: needs {self.right!r} once in csrc/, found it in {[*map(str, having)]}")
        return having[0]


FAULTS: Final = (
    Fault("undefined-comes-down", "if (group->invalid) return false;", ""),
    Fault(
        "discarded-comes-down",
        "      group->invalid = true;\n      if (slot->mapping->kind == OA_MAPS_HOST) add_name(arrays, slot);",
        "      if (slot->mapping->kind == OA_MAPS_HOST) add_name(arrays, slot);",
    ),
    Fault(
        "no-result-passes-outwards",
        "*(outer ? &outer->wrote : &group->committed)",
        "group->committed",
    ),
    Fault("out-stays-out", "  lend_rest_up(region);\n", ""),
    Fault(
        "failed-copy-counts-as-arrived",
        "if (!status) note_arrival(&arrivals[i]);",
        "note_arrival(&arrivals[i]);",
    ),
    Fault(
        "writers-do-not-wait-for-readers",
        "writes && use->read > use->written ? use->read : use->written",
        "use->written",
    ),
    Fault(
        "failed-order-is-dropped",
        "const int status = oa_stream_after(stream, use->stream, ticket);\n    if (status) return status;",
        "oa_stream_after(stream, use->stream, ticket);",
    ),
    Fault(
        "results-on-one-device-are-not-news",
        "mapping->groups[g].writing || mapping->groups[g].dirty ||",
        "mapping->groups[g].writing ||",
    ),
    Fault(
        "overlapping-arrays-apart",
        "if (from == to || oa_lines_disjoint(views[i].lines, views[j].lines)) continue;",
        "if (from == to || views[i].lines.start != views[j].lines.start) continue;",
    ),
    Fault(
        "a-written-part-is-not-noted",
        "for (int64_t i = 0; i < lines.count; i++) append(added",
        "for (int64_t i = 0; i + 1 < lines.count; i++) append(added",
    ),
    Fault(
        "parts-are-lost-when-they-are-merged",
        "j = 0; i < a->count || j < b->count;)",
        "j = 0; i < a->count;)",
    ),
    Fault("parts-reach-beyond-their-end", "high > from ? run->at[low - 1].high :", "high > from ? INT64_MAX :"),
    Fault(
        "a-region-counts-as-nested-across-threads",
        "if (outer->phase != OA_OPEN || !pthread_equal(outer->thread, region->thread)) continue;",
        "if (outer->phase != OA_OPEN) continue;",
    ),
)


def hunt(seconds: float) -> float | None:
    """Run random programs until one gives a wrong result.

    Return the seconds until then, or None if all results are right.
    """
    from helpers.programs import Wrong
    from helpers.writer import (
        BYTES,
        LENGTH,
        any_program,
        program_of_parts,
        program_of_steps_at_once,
        program_short_of_memory,
    )

    kinds: Sequence[Callable[[tuple[str, str], bytes], None]]
    kinds = (any_program, any_program, program_of_parts, program_short_of_memory, program_of_steps_at_once)
    begun, number = time.monotonic(), random.Random(0)
    for kind, devices in zip(cycle(kinds), cycle([("sim:0", "sim:1"), ("sim:0", "host")])):
        if time.monotonic() - begun > seconds:
            return None
        try:
            kind(devices, number.randbytes(LENGTH * BYTES))
        except Wrong as wrong:
            print(wrong, file=sys.stderr)  # main() shows this output if no fault was planted
            return time.monotonic() - begun
    return None


def site(folder: Path) -> Path:
    """Return the packages' folder of an environment below a folder; it has .venv's packages, but a separate core."""
    environment = folder / "environment"
    python = ROOT / ".venv" / "bin" / "python"
    if not environment.exists():
        subprocess.run([python, "-m", "venv", "--without-pip", environment], check=True)
    show = [environment / "bin" / "python", "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"]
    own, shared = (
        subprocess.run([each, *show[1:]], check=True, capture_output=True, text=True).stdout.strip()
        for each in (show[0], python)
    )
    # A folder named in a .pth file is searched, but its own .pth files, such as an editable install's, are not read.
    Path(own, "packages.pth").write_text(shared + "\n")
    return Path(own)


def build(tree: Path, folder: Path) -> None:
    """Build the core and the package of a tree of sources, and install both into a folder."""
    tools = ROOT / ".venv" / "bin"
    cmake = [str(tools / "cmake")]
    make = ["-G", "Ninja", f"-DCMAKE_MAKE_PROGRAM={tools / 'ninja'}", f"-DPython_EXECUTABLE={tools / 'python'}"]
    for command in (
        [*cmake, *make, "-DCMAKE_BUILD_TYPE=Release", "-S", str(tree), "-B", str(folder / "cmake")],
        [*cmake, "--build", str(folder / "cmake")],
        [*cmake, "--install", str(folder / "cmake"), "--prefix", str(site(folder))],
    ):
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=60.0, help="how long each fault is looked for")
    parser.add_argument("--hunt", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("names", nargs="*", metavar="NAME")
    args = parser.parse_args()
    if args.hunt:
        sys.path.insert(0, str(ROOT / "tests"))
        after = hunt(args.seconds)
        print(-1.0 if after is None else after)
        return 0
    folder = ROOT / "build" / "faults"
    tree = folder / "tree"
    for old in (tree, folder / "cmake"):  # copies keep their times, so planted objects would look newer
        shutil.rmtree(old, ignore_errors=True)
    for part in ("csrc", "bindings", "cmake", "offload_args", "scripts", "CMakeLists.txt", "LICENSE", "pyproject.toml"):
        copy = shutil.copytree if (ROOT / part).is_dir() else shutil.copy
        (tree / part).parent.mkdir(parents=True, exist_ok=True)
        copy(ROOT / part, tree / part)
    shutil.copytree(ROOT / "offload_args", site(folder) / "offload_args", dirs_exist_ok=True)
    missed = 0
    for fault in (None, *(fault for fault in FAULTS if not args.names or fault.name in args.names)):
        name = "none" if fault is None else fault.name
        if fault:
            path = fault.place(tree)
            right = path.read_text()
            path.write_text(right.replace(fault.right, fault.wrong, 1))
        build(tree, folder)
        ran = subprocess.run(
            [folder / "environment" / "bin" / "python", __file__, "--hunt", "--seconds", str(args.seconds)],
            env={**os.environ, "PYTHONSAFEPATH": "1", "OPENBLAS_NUM_THREADS": "1"},
            capture_output=True,
            text=True,
        )
        after = float(ran.stdout) if ran.returncode == 0 else None
        outcome = f"found after {after:.1f} s" if after and after > 0 else "not found" if after else "ended the process"
        print(f"{name:45} {outcome}", flush=True)
        if fault is None and outcome != "not found":
            print(ran.stderr)
        missed += (outcome == "not found") == (fault is not None)
        if fault:
            path.write_text(right)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
