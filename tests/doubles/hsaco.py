"""Packs a shared object of kernels into an HSACO, for the double of hiprtc: hsaco.py SHARED_OBJECT HSACO PROCESSOR."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from kernels.images import Kernels, made_hsaco
from offload_args.kernels.elf import Elf
from offload_args.kernels.shared_object import read
from offload_args.kernels.types import SYMBOL


def described(data: bytes) -> Kernels:
    """Return the places of the parameters of each kernel in C's layout."""
    kernels: Kernels = {}
    for name, facts in read("source", data)[1].items():
        places, end = [], 0
        for parameter in facts.parameters or ():
            alignment = min(parameter.nbytes & -parameter.nbytes, 8)
            start = -(-end // alignment) * alignment
            places.append((start, parameter.nbytes, parameter.kind == "pointer"))
            end = start + parameter.nbytes
        kernels[name] = tuple(places)
    return kernels


def main() -> None:
    built, hsaco, processor = sys.argv[1:]
    data = Path(built).read_bytes()
    elf = Elf("source", data)
    symbols = (symbol for section in elf.sections if section.type == 11 for symbol in elf.symbols(section))
    types = {symbol.name: bytes(elf.bytes_of(symbol)) for symbol in symbols if symbol.name.startswith(SYMBOL)}
    Path(hsaco).write_bytes(made_hsaco(processor, described(data), code=data, variables=types))


if __name__ == "__main__":
    main()
