"""Random kernels in Python, with the same statements for whole arrays in NumPy; both have to compute the same bits.

A kernel reads arrays of several dtypes, at its own elements and at other elements, computes in loops and under
conditions, and writes one or two arrays of one partition. Its seed alone determines the kernel. Each operation has a
type: both operands have this type, or an operand is a number of Python, which may be an item of a tuple. The result is
rounded or wrapped to the type, as in NumPy.

    cd tests && python -m helpers.random_kernels --device host sim:0 cuda:0 --count 500
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np

from helpers.written import function_of
from offload_args import In, InOut, Out, kernel, kernels, offload

FLOATS = ("float32", "float64")
INTEGERS = ("int8", "uint8", "int16", "int32", "uint32", "int64")
STORED = (*FLOATS, *INTEGERS, "float16")
BY_ELEMENTS = ("Linear1D()", "GridStride1D()", "PerBlock()")
BY_PAIRS = ("Linear2D()", "Rows()", "RowBlocks(2)", "Tiles(3, 4)", "Tiles(8, 16)")
Code = tuple[str, str]  # an expression as code in the kernel, and as code for arrays in NumPy


class RandomKernel:
    """One kernel: its source, the statements in NumPy, its arrays."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.rank = 1 + self.below(2)
        self.partition = self.one_of(BY_PAIRS if self.rank == 2 else BY_ELEMENTS)
        self.inputs = {f"x{k}": self.one_of(STORED) for k in range(1 + self.below(3))}
        self.outputs = {f"y{k}": self.one_of(STORED) for k in range(1 + self.below(2))}
        self.is_read = {name: self.below(2) == 0 for name in self.outputs}
        self.value = self.one_of((*FLOATS, "int32", "int64"))
        self.variables: dict[str, str] = {}
        self.lines: list[Code] = []
        for _ in range(2 + self.below(2)):
            self.statement(1 + self.below(2))
        index = "i, j" if self.rank == 2 else "i"
        for name, dtype in self.outputs.items():
            mine, whole = self.expression(computed(dtype), 2)
            if self.is_read[name] and self.below(2):
                operator = self.one_of(("+", "-", "*"))
                mine, whole = f"{name}[{index}] {operator} {mine}", f"{name} {operator} {whole}"
            elif self.is_read[name]:
                mine = f"{mine} if {name}[{index}] > {name}[{index}] else {mine}"
            self.lines.append((f"{name}[{index}] = {mine}", f"{name}[...] = cast({whole}, '{dtype}')"))
        self.inputs = {
            name: dtype for name, dtype in self.inputs.items() if any(name in code for code, _ in self.lines)
        }
        parameters = [f"{name}: In[np.{dtype}]" for name, dtype in self.inputs.items()]
        for name, dtype in self.outputs.items():
            parameters.append(f"{name}: {'InOut' if self.is_read[name] else 'Out'}[np.{dtype}].by({self.partition})")
        head = f"def generated({', '.join(parameters)}, v: np.{self.value}, n: np.int64):"
        loop = f"    for {index} in {next(iter(self.outputs))}.mine():"
        self.source = "\n".join([head, loop, *(f"        {mine}" for mine, _ in self.lines), ""])
        self.reference = "\n".join(whole for _, whole in self.lines)
        self.file = f"<kernel {seed}>"
        self.kernel: Any = None

    def below(self, count: int) -> int:
        return int(self.rng.integers(count))

    def one_of(self, choices: Any) -> Any:
        return choices[self.below(len(choices))]

    # -- expressions ---------------------------------------------------------------------------------------------------

    def expression(self, dtype: str, depth: int) -> Code:
        if depth == 0 or self.below(6) == 0:
            return self.leaf(dtype)
        choice = self.below(8)
        if choice == 0:
            (test, test_of_all), (a, a_of_all), (b, b_of_all) = (
                self.condition(depth - 1), self.expression(dtype, depth - 1), self.expression(dtype, depth - 1)
            )  # fmt: skip
            return f"({a} if {test} else {b})", f"np.where({test_of_all}, {a_of_all}, {b_of_all})"
        if choice == 1:
            other = self.one_of(
                [candidate for candidate in (*FLOATS, *INTEGERS) if candidate != dtype and fits(candidate, dtype)]
                or [dtype]
            )
            a, whole = self.expression(other, depth - 1)
            return f"np.{dtype}({a})", f"cast({whole}, '{dtype}')"
        a, a_of_all = self.expression(dtype, depth - 1)
        if choice == 2:
            forms = ("abs({0})",) if dtype in FLOATS else ("({0} >> 2)", "({0} % 7)", "({0} // 5)", "~{0}")
            form = self.one_of((*forms, "np.floor({0})", "np.sqrt(abs({0}))") if dtype in FLOATS else forms)
            return cast(dtype, form.format(a)), f"cast({form.format(a_of_all)}, '{dtype}')"
        b, b_of_all = self.operand(dtype, depth - 1)
        if choice == 3:
            name = self.one_of(("minimum", "maximum"))
            return cast(dtype, f"np.{name}({a}, {b})"), f"np.{name}({a_of_all}, {b_of_all})"
        operator = self.one_of(("+", "-", "*", "/") if dtype in FLOATS else ("+", "-", "*", "&", "|", "^"))
        return cast(dtype, f"({a} {operator} {b})"), f"cast({a_of_all} {operator} {b_of_all}, '{dtype}')"

    def condition(self, depth: int) -> Code:
        dtype = self.one_of((*FLOATS, *INTEGERS))
        a, a_of_all = self.expression(dtype, depth)
        if self.below(6) == 0:
            items = f"{self.literal(dtype)}, {self.literal(dtype)}"
            return f"({a} in ({items}))", f"np.isin({a_of_all}, np.array([{items}], '{dtype}'))"
        b, b_of_all = self.operand(dtype, depth)
        operator = self.one_of(("<", "<=", ">", ">=", "==", "!="))
        return f"({a} {operator} {b})", f"({a_of_all} {operator} {b_of_all})"

    def leaf(self, dtype: str) -> Code:
        known = [name for name, kind in self.variables.items() if kind == dtype]
        if known and self.below(2):
            return (name := self.one_of(known)), name
        read = [name for name, stored in self.inputs.items() if fits(stored, dtype)]
        choice = self.below(4)
        if read and choice:
            name = self.one_of(read)
            mine, whole = self.element(name)
            return cast(dtype, mine), f"cast({whole}, '{dtype}')"
        if choice == 0 and fits(self.value, dtype):
            return f"np.{dtype}(v)", f"cast(v, '{dtype}')"
        text = f"np.{dtype}({self.literal(dtype)})"
        return text, text

    def literal(self, dtype: str) -> str:
        """Return a number of Python that the dtype has, or that becomes another number of a float32."""
        number = self.below(100) - (0 if dtype.startswith("u") else 50)
        return f"{number / self.one_of((8, 10))}" if dtype in FLOATS else f"{number}"

    def operand(self, dtype: str, depth: int) -> Code:
        """Return an expression, or a number of Python, which takes the type of the other operand."""
        return (text := self.literal(dtype), text) if self.below(4) == 0 else self.expression(dtype, depth)

    def element(self, name: str) -> Code:
        """Return an element of an input: the thread's own element, or another one, counted around the end."""
        shift = self.below(4)
        if self.rank == 1:
            return (f"{name}[(i + {shift}) % n]", f"np.roll({name}, {-shift})") if shift else (f"{name}[i]", name)
        if shift:
            axis = self.below(2)
            row = f"(i + {shift}) % {name}.shape[0]" if axis == 0 else "i"
            column = f"(j + {shift}) % {name}.shape[1]" if axis == 1 else "j"
            return f"{name}[{row}, {column}]", f"np.roll({name}, {-shift}, {axis})"
        return f"{name}[i, j]", name

    # -- statements ----------------------------------------------------------------------------------------------------

    def statement(self, depth: int) -> None:
        choice = self.below(5)
        if choice == 0 and self.variables:
            name = self.one_of(list(self.variables))
            dtype = self.variables[name]
            (test, test_of_all), (a, whole) = self.condition(1), self.expression(dtype, depth)
            self.lines.append((f"if {test}:", f"oa_test = {test_of_all}"))
            self.lines.append((f"    {name} = {a}", f"{name} = np.where(oa_test, {whole}, {name})"))
        elif choice == 1 and self.variables:
            name = self.one_of(list(self.variables))
            dtype = self.variables[name]
            count = self.one_of(("3", "5", "n % 7"))
            (a, whole), (step, step_of_all) = self.expression(dtype, 1), (f"np.{dtype}(k)", f"np.{dtype}(k)")
            operator = self.one_of(("+", "-"))
            body = cast(dtype, f"({name} {operator} {cast(dtype, f'({a} * {step})')})")
            of_all = f"cast({name} {operator} cast({whole} * {step_of_all}, '{dtype}'), '{dtype}')"
            self.lines.append((f"for k in range({count}):", f"for k in range({count}):"))
            self.lines.append((f"    {name} = {body}", f"    {name} = {of_all}"))
        elif choice == 2 and self.variables:
            name = self.one_of(list(self.variables))
            dtype, tuple_name, item = self.variables[name], f"t{len(self.lines)}", f"w{len(self.lines)}"
            items = ", ".join(self.literal(dtype) for _ in range(3))
            a, whole = self.expression(dtype, 1)
            operators = self.one_of(("+", "-")), self.one_of(("+", "-", "*"))
            step, step_of_all = (f"({text} {operators[1]} {tuple_name}[1])" for text in (a, whole))
            self.lines.append((f"{tuple_name} = ({items})",) * 2)
            self.lines.append((f"for {item} in {tuple_name}:",) * 2)
            body = cast(dtype, f"({cast(dtype, f'({name} {operators[0]} {item})')} - {cast(dtype, step)})")
            of_all = f"cast({name} {operators[0]} {item}, '{dtype}') - cast({step_of_all}, '{dtype}')"
            self.lines.append((f"    {name} = {body}", f"    {name} = cast({of_all}, '{dtype}')"))
        else:
            dtype = self.one_of((*FLOATS, *INTEGERS))
            a, whole = self.expression(dtype, depth)
            name = f"a{len(self.variables)}"
            self.lines.append((f"{name} = {a}", f"{name} = {whole}"))
            self.variables[name] = dtype

    # -- the check -----------------------------------------------------------------------------------------------------

    def numbers(self, dtype: str, shape: tuple[int, ...]) -> np.ndarray:
        values = self.rng.integers(0 if dtype.startswith("u") else -60, 61, shape).astype(np.float64)
        values = (values / 8 if dtype.startswith("float") else values).astype(dtype)
        return np.asfortranarray(values) if self.rank == 2 and self.below(3) == 0 else values

    def check(self, device: str) -> None:
        """Run the kernel on a device and in NumPy.

        Raise AssertionError with the source if the bits of the results differ.
        """
        if self.kernel is None:
            names = {name: getattr(kernels, name) for name in kernels.__all__} | {"np": np, "In": In, "Out": Out}
            function = function_of(self.source, self.file, {**names, "InOut": InOut})
            self.kernel = kernel(function, debug=False)
        for shape in ((1, 1), (5, 9), (17, 33)) if self.rank == 2 else ((1,), (10,), (257,)):
            arrays = {name: self.numbers(dtype, shape) for name, dtype in {**self.inputs, **self.outputs}.items()}
            value, n = np.dtype(self.value).type(self.below(9)), arrays["y0"].size
            expected = {name: array.copy("K") for name, array in arrays.items()}
            with np.errstate(all="ignore"):
                exec(self.reference, {"np": np, "cast": casted, "v": value, "n": n, **expected})
            block = None if self.partition == "PerBlock()" else self.one_of((None, 1, 32, (4, 2)))
            offload(self.kernel, *arrays.values(), value, n, block=block, device=device)
            for name in self.outputs:
                np.testing.assert_array_equal(
                    arrays[name], expected[name], err_msg=f"{name}, {shape}\n{self.source}\n{self.reference}"
                )


def casted(value: Any, dtype: str) -> Any:
    return np.asarray(value).astype(dtype)


def computed(dtype: str) -> str:
    """Return the dtype in which kernels compute."""
    return "float32" if dtype == "float16" else dtype


def fits(dtype: str, other: str) -> bool:
    """Return whether a conversion has a defined result, as from an integer to any dtype, or from a float to a float."""
    return not dtype.startswith("float") or other.startswith("float")


def cast(dtype: str, text: str) -> str:
    return f"np.{dtype}({text})"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--device", nargs="+", default=["host", "sim:0"])
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--count", type=int, default=500)
    options = parser.parse_args()
    for seed in range(options.first, options.first + options.count):
        generated = RandomKernel(seed)
        for device in options.device:
            generated.check(device)
    print(f"{options.count} kernels on {', '.join(options.device)}: nothing differs")


if __name__ == "__main__":
    main()
