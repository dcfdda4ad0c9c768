"""Random programs of slices, writes, products and threads, whose results must be the same bits on a device.

    python tests/helpers/random_programs.py --device sim:0 --count 100000

All numbers are small integers, and products are taken modulo 16, so that each is exact in whatever order it is summed:
one byte that is stale, missing or twice there shows. Each batch runs as it is, and then under accelerate(margin=0), by
which all goes that can, and all stays that may. On `sim` backend calls fail now and then.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import threading
import warnings
from collections.abc import Callable
from time import perf_counter
from zlib import crc32

import numpy as np
import scipy.linalg.blas as fortran

from offload_args import Device, accelerate, testing

N = 132  # a matrix of 136 KiB: the smallest that may stay have 128
DTYPES = ("f8", "f8", "f4", "c16")
LETTERS = {"f4": "s", "f8": "d", "c16": "z"}
Fail = Callable[[], None]


def never() -> None:
    """Let no call of the device fail."""


class Program:
    """One program: what it does follows from its seed alone."""

    def __init__(self, seed: int, fail: Fail = never) -> None:
        self.rng = np.random.default_rng(seed)
        self.fail = fail
        self.dtype = DTYPES[seed % len(DTYPES)]
        self.digest = 0
        rows = 2 * N if self.choose(3) == 0 else N
        self.matrices = [self.numbers((rows, N)) for _ in range(2)]
        self.vector = self.numbers((N,))

    def choose(self, count: int) -> int:
        return int(self.rng.integers(count))

    def numbers(self, shape: tuple[int, ...]) -> np.ndarray:
        built = self.rng.integers(-4, 4, shape).astype(self.dtype)
        return np.asfortranarray(built) if len(shape) == 2 and self.choose(3) == 0 else built

    def note(self, result: np.ndarray) -> None:
        self.digest = crc32(np.ascontiguousarray(result + 0).tobytes(), self.digest)  # + 0: -0.0 is 0.0

    def matrix(self) -> np.ndarray:
        return self.matrices[self.choose(len(self.matrices))]

    def square(self) -> np.ndarray:
        """Return N x N numbers: a whole matrix, a part of one, or the transpose of that."""
        A = self.matrix()
        if A.shape[0] > N:
            first = self.choose(3) * (N // 2)
            A = A[first : first + N]
        return A.T if self.choose(4) == 0 else A

    # -- steps --

    def write(self) -> None:
        """Write some of a matrix, in one of the ways in which programs do."""
        A, way = self.matrix(), self.choose(11)
        row, column = self.choose(A.shape[0]), self.choose(N)
        if way == 0:
            A[row, column] = self.choose(4)
        elif way == 1:
            A[row] = self.choose(4)
        elif way == 2:
            A[:, column] = self.choose(4)
        elif way == 3:
            A.fill(self.choose(4))
        elif way == 4:
            np.negative(A, out=A)
        elif way == 5:
            A[row:, ::3] += 1
            self.reduce(A)
        elif way == 6:
            ctypes.memset(A.ctypes.data + 4096, 0, 1000)
        elif way == 7:
            ends = os.pipe()
            os.write(ends[1], bytes(512))
            flat = memoryview(A.T if A.flags.f_contiguous else A).cast("B")
            at = self.choose(A.nbytes // 512) * 512
            os.readv(ends[0], [flat[at : at + 512]])
            for end in ends:
                os.close(end)
        elif way == 8:
            thread = threading.Thread(target=A[row].fill, args=(self.choose(4),))
            thread.start()
            thread.join()
        elif way == 9:
            np.copyto(A, A[::-1].copy())
        else:
            values = A.T[column]
            values[:] = values[::-1].copy()

    def replace(self) -> None:
        """Free a matrix and take memory anew, often the same."""
        at = self.choose(len(self.matrices))
        shape = self.matrices[at].shape
        self.matrices[at] = np.empty(0)
        self.matrices[at] = self.numbers(shape) if self.choose(2) else np.zeros(shape, self.dtype)

    def reduce(self, A: np.ndarray) -> None:
        """Bring numbers back to 0 ... 15, in place."""
        parts = A.view(self.dtype.replace("c16", "f8")) if A.flags.c_contiguous else None
        if parts is not None:
            np.remainder(parts, 16, out=parts)
        elif self.dtype == "c16":
            A[:] = np.remainder(A.real, 16) + 1j * np.remainder(A.imag, 16)
        else:
            np.remainder(A, 16, out=A)

    def multiply_vector(self) -> None:
        A, x = self.square(), self.vector
        for _ in range(2 + self.choose(6)):
            result = A @ x if self.choose(3) else x @ A
            self.note(result)
        if self.choose(4) == 0:
            self.vector = result
            self.reduce(self.vector)

    def multiply(self) -> None:
        A, B = self.square(), self.square()
        C = A @ B
        self.note(C)
        self.reduce(C)
        if self.choose(2):
            self.note(C @ self.vector)
            self.note(A @ C)
        if self.choose(4) == 0:
            self.matrices.append(C)
        if len(self.matrices) > 4:
            del self.matrices[self.choose(2)]

    def multiply_into(self) -> None:
        """Overwrite a matrix by a product, or add one to it."""
        A, B = self.square(), self.square()
        if self.choose(2):
            out = self.matrix()[:N]
            np.matmul(A, B, out=out)
        else:
            out = np.asfortranarray(self.matrix()[:N])
            gemm = getattr(fortran, LETTERS[self.dtype] + "gemm")
            out = gemm(1.0, A, B, beta=1.0, c=out, overwrite_c=self.choose(2))
            self.matrices[0] = out
        self.note(out)
        self.reduce(out)

    def multiply_by_itself(self) -> None:
        A = self.square()
        C = A @ A.T
        self.note(C)

    def in_place(self) -> None:
        """A triangular product, and a rank-1 update: the output is an input."""
        letter, A = LETTERS[self.dtype], np.asfortranarray(self.matrix()[:N])
        self.note(getattr(fortran, letter + "trmv")(A, self.vector, lower=self.choose(2), trans=self.choose(2)))
        ger = getattr(fortran, letter + ("geru" if letter == "z" else "ger"))
        self.matrices[0] = ger(1.0, self.vector, self.vector, a=A, overwrite_a=self.choose(2))
        self.reduce(self.matrices[0])
        self.note(self.matrices[0])

    def on_threads(self) -> None:
        """Multiply a matrix that all threads read by vectors, and matrices of their own, which they write."""
        shared, x, values = self.square(), self.vector, [self.choose(4) for _ in range(3)]
        own = [self.numbers((N, N)) for _ in values]
        results: list[list[np.ndarray]] = [[] for _ in values]

        def work(at: int) -> None:
            for step in range(3):
                results[at].append(shared @ x)
                results[at].append(own[at] @ x)
                own[at][step * 7] = values[at]

        threads = [threading.Thread(target=work, args=(at,)) for at in range(len(values))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for result in results:
            for program in result:
                self.note(program)

    def run(self) -> list[tuple[str, int]]:
        """Return the digest after each step, with the step's name."""
        history = []
        steps = (
            [self.multiply_vector] * 6 + [self.write] * 5 + [self.multiply] * 3
            + [self.multiply_into, self.multiply_by_itself, self.in_place, self.replace]
        )  # fmt: skip
        for _ in range(5 + self.choose(8)):
            self.fail()
            step = self.on_threads if self.choose(40) == 0 else steps[self.choose(len(steps))]
            step()
            history.append((step.__name__, self.digest))
        for A in self.matrices:
            self.note(A)
        return [*history, ("the matrices left", self.digest)]


def check(name: str, first: int, count: int) -> int:
    """Run programs first ... first + count - 1 as they are and accelerated; return how many calls went."""
    expected = [Program(seed).run() for seed in range(first, first + count)]
    device, chance = Device(name), np.random.default_rng(first)

    def fail() -> None:
        testing.fail_call(device, int(chance.integers(1, 60)) if chance.integers(8) == 0 else 0)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of pinned memory that can't be had
        with accelerate(device, margin=0, lines=False) as on:
            for seed in range(first, first + count):
                history = Program(seed, fail if name.startswith("sim") else never).run()
                for step, right in zip(history, expected[seed - first], strict=True):
                    assert step == right, (
                        f"program {seed} differs on {name}, in {[name for name, _ in history]}: {step}"
                    )
        if name.startswith("sim"):
            testing.fail_call(device, 0)
    return on.report.gone


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--device", default="sim:0")
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--count", type=int, default=1000)
    options = parser.parse_args()
    begun, gone, batch = perf_counter(), 0, 100
    before = Device(options.device).residency
    for first in range(options.first, options.first + options.count, batch):
        gone += check(options.device, first, min(batch, options.first + options.count - first))
    now = Device(options.device).residency
    print(
        f"{options.count} programs on {options.device}: no bit differs; {gone} calls went, "
        f"{now.returns - before.returns} times an array was there already, "
        f"{(now.bytes_spared - before.bytes_spared) >> 20} MiB spared, {perf_counter() - begun:.0f} s"
    )


if __name__ == "__main__":
    main()
