"""Random kernels in Python whose threads share memory: the CPU runs them in phases, or each thread as a coroutine.

Both ways have to compute the same bits. A kernel has variables of threads and of the block, loops and conditions with
barriers in them, exchanges between neighbours, trees of halves, atomic counts, and loops over elements by the number of
threads. Its seed alone determines the kernel. No thread reads what another one stores without a barrier between them.

    cd tests && python -m helpers.random_blocks --count 500
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np

from helpers.random_kernels import FLOATS, INTEGERS, Code, RandomKernel, cast, fits
from helpers.written import function_of
from offload_args import Device, In, InOut, Out, kernel, kernels, offload
from offload_args.kernels.compilers import target_of

THREADS = 64  # at most, of a block


class RandomBlocks(RandomKernel):
    """One kernel: its source, and two kernels of it, one in phases and one by coroutines."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.rank = 1
        self.inputs = {f"x{k}": self.one_of((*FLOATS, *INTEGERS)) for k in range(1 + self.below(3))}
        self.value = self.one_of((*FLOATS, "int32", "int64"))
        self.variables: dict[str, str] = {}
        self.uniform = 0
        self.shared = {f"s{k}": self.one_of((*FLOATS, *INTEGERS)) for k in range(2)}
        self.output = self.one_of((*FLOATS, *INTEGERS))
        self.code: list[str] = [f"{name} = shared({THREADS}, np.{dtype})" for name, dtype in self.shared.items()]
        self.code += ["counts = shared(4, np.int32)", "t = here.thread()", "counts[t % 4] = 0"]
        self.declare()
        self.declare()
        for _ in range(2 + self.below(4)):
            self.part(2)
        self.code += ["barrier()", "if t < 4 and here.block_index() == 0:", "    atomic_add(total, t, counts[t])"]
        a, _ = self.expression(self.output, 1)
        self.code += ["for i in y.mine():", f"    y[i] = {a}"]
        inputs = [f"{name}: In[np.{dtype}]" for name, dtype in self.inputs.items()]
        arrays = [*inputs, f"y: Out[np.{self.output}].by(Linear1D())", "total: InOut[np.int32]"]
        head = f"def generated({', '.join(arrays)}, v: np.{self.value}, n: np.int64):"
        self.source = "\n".join([head, *(f"    {line}" for line in self.code), ""])
        names = {name: getattr(kernels, name) for name in kernels.__all__}
        names |= {"np": np, "In": In, "Out": Out, "InOut": InOut}
        function = function_of(self.source, f"<blocks {seed}>", names)
        make: Any = kernel
        self.ways = make(function, debug=False), make(function, debug=False)
        self.ways[1]._written.by_phases = False

    def element(self, name: str) -> Code:
        return f"{name}[(t + {self.below(4)}) % {name}.size]", ""

    def add(self, *lines: str, within: str = "") -> None:
        self.code += [within + line for line in lines]

    def declare(self, within: str = "") -> None:
        dtype = self.one_of((*FLOATS, *INTEGERS))
        name = f"a{len(self.variables)}"
        # A number of Python takes the type of the values with which it is joined.
        first = self.literal(dtype) if self.below(4) == 0 else self.expression(dtype, 2)[0]
        self.add(f"{name} = {first}", f"{name} = {self.expression(dtype, 1)[0]}", within=within)
        self.variables[name] = dtype

    def assign(self, within: str) -> None:
        name = self.one_of(list(self.variables))
        dtype = self.variables[name]
        a, b = self.expression(dtype, 2)[0], self.expression(dtype, 1)[0]
        choice = self.below(5)
        if choice == 0:
            self.add(f"if {self.condition(1)[0]}:", f"    {name} = {a}", within=within)
        elif choice == 1:
            self.add(f"for k in range(t % {2 + self.below(3)}):", f"    {name} = {cast(dtype, f'({name} + {b})')}",
                     f"    if {self.condition(1)[0]}:", f"        {self.one_of(('break', 'continue'))}",
                     f"    {name} = {a}", within=within)  # fmt: skip
        elif choice == 2:
            other = self.one_of(list(self.variables))
            b = self.expression(self.variables[other], 1)[0]
            self.add(f"{name}, {other} = {a}, {b}" if other != name else f"{name} = {a}", within=within)
        elif choice == 3:
            self.add("if t < n % 50:", f"    {name} = {a}", within=within)
        else:
            self.add(f"{name} = {a}", within=within)

    def elements(self, within: str) -> None:
        """Loop over an array by the number of threads, from the thread's number."""
        source, name = self.one_of(list(self.inputs)), self.one_of(list(self.variables))
        dtype = self.variables[name]
        start, step = self.one_of((("here.index()", "here.size()"), ("t", "here.threads()"),
                                   ("here.thread_index()", "here.threads()"), ("t + 1", "here.threads()"),
                                   ("t", "3")))  # fmt: skip
        end = self.one_of((f"{source}.size", f"len({source})", "n", "n // 3"))
        value = f"{source}[i % {source}.size]" if end.startswith("n") else f"{source}[i]"
        value = cast(dtype, value) if fits(self.inputs[source], dtype) else f"np.{dtype}(i)"
        operator = self.one_of(("+", "-", "*"))
        self.add(f"for i in range({start}, {end}, {step}):", within=within)
        if self.below(3) == 0:
            less = cast(dtype, f"({name} - i)")
            self.add(f"    if {self.condition(1)[0]}:", f"        {name} = {less}", within=within)
        self.add(f"    {name} = {cast(dtype, f'({name} {operator} {value})')}", within=within)
        if self.below(4) == 0:
            self.add(f"    {name} = min({name}, {value})", within=within)

    def exchange(self, within: str) -> None:
        own, dtype = self.one_of(list(self.shared.items()))
        name = self.one_of(list(self.variables))
        kind = self.variables[name]
        value = name if fits(kind, dtype) else self.expression(dtype, 1)[0]
        self.add("barrier()", f"{own}[t] = {value}", within=within)
        if self.below(2):
            self.assign(within)
        self.add("barrier()", within=within)
        if self.below(2):
            step = f"u{self.uniform}"
            self.uniform += 1
            self.add(f"{step} = here.threads() // 2", f"while {step} > 0:", f"    if t < {step}:",
                     f"        {own}[t] = {own}[t] {self.one_of('+-*')} {own}[t + {step}]", "    barrier()",
                     f"    {step} //= 2", within=within)  # fmt: skip
        if fits(dtype, kind):
            other = cast(kind, f"{own}[(t + {self.below(5)}) % here.threads()]")
            self.add(f"{name} = {cast(kind, f'({name} + {other})')}", within=within)

    def loop(self, within: str, depth: int) -> None:
        count = f"u{self.uniform}"
        self.uniform += 1
        self.add(f"{count} = {self.one_of(('3', 'n % 4', 'here.block_index() % 3'))}", within=within)
        if self.below(2):
            self.add(f"for {count}_ in range({count}):", within=within)
        else:
            self.add(f"while {count} > 0:", f"    {count} = {count} - 1", within=within)
        self.add("    barrier()", within=within)
        self.part(depth - 1, within + "    ")
        if self.below(3) == 0:
            leave = self.one_of(("break", "continue"))
            self.add(f"    if {count} == n % 3:", f"        {leave}", within=within)
        self.part(depth - 1, within + "    ")

    def part(self, depth: int, within: str = "") -> None:
        choice = self.below(7)
        if choice == 0 and depth:
            self.loop(within, depth)
        elif choice == 1 and depth:
            self.add(f"if n % {2 + self.below(3)} == {self.below(2)}:", "    barrier()", within=within)
            self.part(depth - 1, within + "    ")
            if self.below(2):
                self.add("else:", within=within)
                self.part(depth - 1, within + "    ")
        elif choice == 2:
            self.elements(within)
        elif choice == 3:
            self.exchange(within)
        elif choice == 4 and not within:
            self.declare()
        elif choice == 5:
            self.add("barrier()", "atomic_add(counts, t % 4, 1)", within=within)
        else:
            self.assign(within)

    def numbers(self, dtype: str, shape: tuple[int, ...]) -> np.ndarray:
        values = super().numbers(dtype, shape)
        if dtype.startswith("float"):
            values[self.rng.random(shape) < 0.1] = -0.0
            values[self.rng.random(shape) < 0.03] = np.nan
            values[self.rng.random(shape) < 0.02] = np.inf
        return values

    def check(self, device: str) -> None:
        """Run the kernel in both ways. Raise AssertionError with the source if the bits of the results differ."""
        for size, block in ((1, 1), (1, 32), (7, 64), (65, 8), (200, 64), (300, (8, 4, 2)), (333, 50)):
            arrays = {name: self.numbers(dtype, (size,)) for name, dtype in self.inputs.items()}
            value, n = np.dtype(self.value).type(self.below(9)), size + self.below(5)
            results: list[tuple[np.ndarray, np.ndarray]] = []
            for way in self.ways:
                y, total = np.zeros(size, self.output), np.zeros(4, np.int32)
                offload(way, *arrays.values(), y, total, value, n, block=block, device=device)
                results.append((y, total))
            for mine, theirs in zip(*results, strict=True):
                assert equal(mine, theirs), f"{size} elements in blocks of {block}\n{self.source}"


def equal(a: Any, b: Any) -> bool:
    """Return whether arrays have the same bits; one NaN is as good as another."""
    if a.dtype.kind == "f":
        same = np.isnan(a) & np.isnan(b)
        a, b = (np.where(same, 0, array).astype(array.dtype) for array in (a, b))
    return a.tobytes() == b.tobytes()


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--count", type=int, default=500)
    options = parser.parse_args()
    divided = 0
    for seed in range(options.first, options.first + options.count):
        generated = RandomBlocks(seed)
        generated.check("host")
        divided += in_phases(generated.ways[0])
    print(f"{options.count} kernels, {divided} of them in phases: nothing differs")


def in_phases(way: Any) -> bool:
    """Return whether a kernel's machine code for the host runs in phases: coroutines need memory of malloc."""
    code: bytes = way._source.compiled(target_of(Device.host())).data
    return b"malloc" not in code


if __name__ == "__main__":
    main()
