"""Reads random mutations of good modules. Each mutation has to be a module, or to raise ModuleError, within a second.

    PYTHONPATH=tests python scripts/fuzz_modules.py [--inputs 1000000] [--seed 0]

The good modules come from tests/kernels/images.py. A fault is printed with the seed of its input, and the mutated bytes
are written to the current directory. The script exits with 1 after the first fault.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from pathlib import Path

from kernels.images import FORMATS
from kernels.mutations import mutated
from offload_args import Module, errors

SLOW = 1.0  # seconds after which a reading counts as too slow


def fault_of(data: bytes) -> str:
    """Return the fault in the reading of the bytes; "" if there is none."""
    begun = time.perf_counter()
    try:
        module = Module.load(data)
        for name, facts in module.kernels.items():
            repr(facts), name.encode("utf-8", "surrogatepass")
    except errors.ModuleError:
        pass
    except BaseException as error:
        return f"{type(error).__name__}: {error}"
    took = time.perf_counter() - begun
    return f"took {took:.1f} s" if took > SLOW else ""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--inputs", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    images = {name: make() for name, make in FORMATS.items()}
    names = list(images)
    modules = 0
    for number in range(arguments.inputs):
        seed = arguments.seed + number
        name = names[number % len(names)]
        data = mutated(images[name], random.Random(seed))
        fault = fault_of(data)
        if fault:
            path = Path(f"fault-{seed}.bin")
            path.write_bytes(data)
            print(f"seed {seed}, a mutation of {name}: {fault}; written to {path}")
            return 1
        modules += 1
        if modules % 100_000 == 0:
            print(f"{modules} inputs", flush=True)
    print(f"{modules} inputs, no fault")
    return 0


if __name__ == "__main__":
    sys.exit(main())
