"""Random programs of slices, writes, products, systems of equations and threads, with and without a device.

    python tests/helpers/random_programs.py --device sim:0 --count 100000

All numbers are small integers, and products are taken modulo 16, so that each product is exact in any order of
summation, and a single byte that is stale, missing or doubled changes the result. The last digits of LAPACK's results
depend on the library, so weighted sums of these results are compared; the matrices are so well conditioned that one
wrong number changes the sums. Each batch runs without acceleration, and then under accelerate(margin=0), which sends
all possible calls and keeps all possible arrays. On `sim`, backend calls fail now and then. At the end, some of the
batch runs by a plan, with and without resident arrays, and all bits have to be the same.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import tempfile
import threading
import warnings
from collections.abc import Callable
from time import perf_counter
from zlib import crc32

import numpy as np
import scipy.linalg.blas as fortran
from scipy.linalg import lapack

from offload_args import Device, accelerate, testing

N = 132  # a matrix of 136 KiB; the smallest arrays that may stay have 128 KiB
DTYPES = ("f8", "f8", "f4", "c16")
LETTERS = {"f4": "s", "f8": "d", "c16": "z"}
ERRORS = {"f4": 2e-5, "f8": 1e-10, "c16": 1e-10}  # the errors of LAPACK's results, relative to the largest number
Fail = Callable[[], None]


def never() -> None:
    """Let no call of the device fail."""


class Program:
    """One program, which is determined by its seed alone."""

    def __init__(self, seed: int, fail: Fail = never) -> None:
        self.rng = np.random.default_rng(seed)
        self.fail = fail
        self.dtype = DTYPES[seed % len(DTYPES)]
        self.digest = 0
        rows = 2 * N if self.choose(3) == 0 else N
        self.matrices = [self.numbers((rows, N)) for _ in range(2)]
        self.vector = self.numbers((N,))
        self.buffer = np.zeros((N, N), self.dtype, order="F")  # the matrix that LAPACK factors in place
        self.measured: list[tuple[float, np.ndarray, int]] = []

    def choose(self, count: int) -> int:
        return int(self.rng.integers(count))

    def numbers(self, shape: tuple[int, ...]) -> np.ndarray:
        built = self.rng.integers(-4, 4, shape).astype(self.dtype)
        return np.asfortranarray(built) if len(shape) == 2 and self.choose(3) == 0 else built

    def note(self, result: np.ndarray) -> None:
        self.digest = crc32(np.ascontiguousarray(result + 0).tobytes(), self.digest)  # + 0 turns -0.0 into 0.0

    def matrix(self) -> np.ndarray:
        return self.matrices[self.choose(len(self.matrices))]

    def square(self) -> np.ndarray:
        """Return N x N numbers: a whole matrix, a part of a matrix, or the transpose of either."""
        A = self.matrix()
        if A.shape[0] > N:
            first = self.choose(3) * (N // 2)
            A = A[first : first + N]
        return A.T if self.choose(4) == 0 else A

    # -- steps --

    def write(self) -> None:
        """Write some of a matrix, in one of the ways in which programs write."""
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
        """Free a matrix and allocate another one, often in the same memory."""
        at = self.choose(len(self.matrices))
        shape = self.matrices[at].shape
        self.matrices[at] = np.empty(0)
        self.matrices[at] = self.numbers(shape) if self.choose(2) else np.zeros(shape, self.dtype)

    def reduce(self, A: np.ndarray) -> None:
        """Reduce numbers to 0 ... 15, in place."""
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
        """Overwrite a matrix by a product, or add a product to it."""
        A, B = self.square(), self.square()
        if self.choose(2):
            out = self.matrix()[:N]
            np.matmul(A, B, out=out)
        else:
            out = np.asfortranarray(self.matrix()[:N])
            if np.shares_memory(out, A) or np.shares_memory(out, B):  # BLAS does not define the result in this case
                out = out.copy(order="F")
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
        """Make a triangular product and a rank-1 update, whose output is an input."""
        letter, A = LETTERS[self.dtype], np.asfortranarray(self.matrix()[:N])
        self.note(getattr(fortran, letter + "trmv")(A, self.vector, lower=self.choose(2), trans=self.choose(2)))
        ger = getattr(fortran, letter + ("geru" if letter == "z" else "ger"))
        self.matrices[0] = ger(1.0, self.vector, self.vector, a=A, overwrite_a=self.choose(2))
        self.reduce(self.matrices[0])
        self.note(self.matrices[0])

    def on_threads(self) -> None:
        """On each thread, multiply vectors by a matrix that all threads read, and by one that this thread writes."""
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
            for value in result:
                self.note(value)

    # -- LAPACK --

    def measure(self, *results: np.ndarray) -> None:
        """Note the size of results, weighted sums of their columns, and their bits."""
        for result in results:
            sums = np.einsum("i,i...->...", 1 + np.arange(len(result)) % 7 / 8, result)
            size = float(np.abs(result).max()) * len(result)
            self.measured.append((size, sums, crc32(np.ascontiguousarray(result).tobytes())))

    def system(self) -> np.ndarray:
        """Return a matrix with a large diagonal."""
        A = self.square().copy()
        A[np.diag_indices(N)] += 4096
        return A

    def positive(self) -> np.ndarray:
        A = self.square()
        A = A + A.conj().T
        A[np.diag_indices(N)] += 16384
        return A

    def spoil(self, A: np.ndarray) -> np.ndarray:
        """Change one matrix in eight so that LAPACK refuses it, or put NaN into it."""
        way, at = self.choose(24), self.choose(N)
        if way == 0:
            A[at] = 0
        elif way == 1:
            A[at, at] = np.nan if self.choose(2) else np.inf
        elif way == 2:
            A[at, at] = -1
        return A

    def factor(self) -> None:
        """Solve, invert and factor by NumPy's functions, whose memory is new, and often the same."""
        call = [
            lambda: [np.linalg.solve(self.spoil(self.system()), self.square())],
            lambda: [np.linalg.solve(self.spoil(self.system())[::-1], self.vector)],
            lambda: [np.linalg.inv(self.spoil(self.system()).T)],
            lambda: [np.linalg.cholesky(self.spoil(self.positive()))],
            lambda: np.linalg.qr(self.system()[:, : N - self.choose(2) * 40]),
            lambda: [np.linalg.eigvalsh(self.positive())],
            lambda: [self.product(*np.linalg.eigh(self.positive()))],
            lambda: [np.linalg.svd(self.spoil(self.system()), compute_uv=False)],
            lambda: [np.linalg.lstsq(self.system()[:, :40], self.square(), rcond=None)[0]],
        ][self.choose(9)]
        try:
            self.measure(*call())
        except np.linalg.LinAlgError as error:
            self.digest = crc32(str(error).encode(), self.digest)

    @staticmethod
    def product(w: np.ndarray, V: np.ndarray) -> np.ndarray:
        """Return the matrix with these eigenvalues and vectors, because the signs of vectors are arbitrary."""
        return (V * w) @ V.conj().T

    def factor_in_place(self) -> None:
        """Factor the buffer in place, or a part of it, and solve with the factors.

        No matrix of whole numbers is overwritten, because the last bits of LAPACK's results differ between devices.
        """
        letter, n = LETTERS[self.dtype], N - self.choose(2) * 12
        self.buffer[:] = self.spoil(self.positive())
        part, right = self.buffer[:n, :n], np.array(self.square()[:n], order="F")
        if n < N:
            part = np.asfortranarray(part)
        lower = self.choose(2)
        if self.choose(2):
            factors, info = getattr(lapack, letter + "potrf")(part, lower, 0, overwrite_a=1)
            solve = getattr(lapack, letter + "potrs")
            if info == 0:
                self.measure(solve(factors, right, lower, overwrite_b=self.choose(2))[0])
        else:
            factors, pivots, _, info = getattr(lapack, letter + "gesv")(part, right, overwrite_a=1, overwrite_b=1)
            self.digest = crc32(pivots.tobytes(), self.digest)
        self.digest = crc32(bytes([info & 127]), self.digest)
        self.measure(np.asarray(factors))

    def solve_again(self) -> None:
        """Solve with factors that stay on the device, and write to the factors in between."""
        letter, system = LETTERS[self.dtype], self.system()
        factors, pivots, _ = getattr(lapack, letter + "getrf")(system)
        for _ in range(2 + self.choose(6)):
            right = self.vector if self.choose(2) else self.square()
            self.measure(getattr(lapack, letter + "getrs")(factors, pivots, right, self.choose(2))[0])
            if self.choose(4) == 0:
                row = self.choose(N)
                factors[row, row:] *= 2

    def solve_on_threads(self) -> None:
        """Solve on three threads with a shared matrix, and with a matrix of each thread, which the thread writes."""
        shared, x = self.system(), self.vector
        own = [self.system() for _ in range(3)]
        results: list[list[np.ndarray]] = [[] for _ in own]

        def work(at: int) -> None:
            for step in range(2):
                results[at].append(np.linalg.solve(shared, x))
                results[at].append(np.linalg.inv(own[at]))
                own[at][step * 7] += 3

        threads = [threading.Thread(target=work, args=(at,)) for at in range(len(own))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for result in results:
            self.measure(*result)

    def run(self) -> list[tuple[str, int]]:
        """Return the digest after each step, with the step's name."""
        history = []
        steps = (
            [self.multiply_vector] * 6 + [self.write] * 5 + [self.multiply] * 3
            + [self.multiply_into, self.multiply_by_itself, self.in_place, self.replace]
            + [self.factor] * 4 + [self.factor_in_place, self.solve_again] * 2
        )  # fmt: skip
        on_threads = [self.on_threads, self.solve_on_threads]
        for _ in range(5 + self.choose(8)):
            self.fail()
            step = on_threads[self.choose(2)] if self.choose(40) == 0 else steps[self.choose(len(steps))]
            with np.errstate(all="ignore"):
                step()
            history.append((step.__name__, self.digest))
        for A in self.matrices:
            self.note(A)
        return [*history, ("the matrices left", self.digest)]


class Outcome:
    """The notes of a program about each step and about LAPACK."""

    def __init__(self, seed: int, fail: Fail = never) -> None:
        program = Program(seed, fail)
        self.seed, self.dtype = seed, program.dtype
        self.history = program.run()
        self.measured = program.measured

    def compare(self, right: Outcome, name: str, *, bits: bool) -> None:
        """Raise AssertionError unless this outcome is right.

        `bits`: whether LAPACK's results must have the same bits, too.
        """
        names = [step for step, _ in self.history]
        for step, expected in zip(self.history, right.history, strict=True):
            assert step == expected, f"program {self.seed} differs on {name}, in {names}: {step}"
        for at, (now, then) in enumerate(zip(self.measured, right.measured, strict=True)):
            place = f"result {at} of LAPACK in program {self.seed} on {name}, in {names}"
            assert not bits or now[2] == then[2], f"other bits: {place}"
            np.testing.assert_allclose(now[1], then[1], rtol=0, atol=ERRORS[self.dtype] * then[0], err_msg=place)


def check(name: str, first: int, count: int) -> int:
    """Run `count` programs from number `first` on, without and with acceleration; return the number of sent calls."""
    device, chance, seeds = Device(name), np.random.default_rng(first), range(first, first + count)
    expected = [Outcome(seed) for seed in seeds]
    gone = 0

    def fail() -> None:
        testing.fail_call(device, int(chance.integers(1, 60)) if chance.integers(8) == 0 else 0)

    with warnings.catch_warnings(), tempfile.TemporaryDirectory() as folder:
        warnings.simplefilter("ignore")  # warnings about missing pinned memory
        with accelerate(device, margin=0, lines=False) as on:
            for seed, right in zip(seeds, expected, strict=True):
                Outcome(seed, fail if name.startswith("sim") else never).compare(right, name, bits=False)
        gone += on.report.gone
        if name.startswith("sim"):
            testing.fail_call(device, 0)
        plan = os.path.join(folder, "plan.json")
        for by_plan in range(2):
            with testing.residency("off" if by_plan else "explicit"):
                with accelerate(device, margin=0, plan=plan, deterministic=bool(by_plan)) as on:
                    outcomes = [Outcome(seed) for seed in seeds[: count // 4]]
            for now, right in zip(outcomes, expected, strict=False):
                now.compare(right, name, bits=bool(by_plan))
            expected[: len(outcomes)] = outcomes
            gone += on.report.gone
    return gone


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
        f"{options.count} programs on {options.device}: nothing differs; {gone} calls went, "
        f"{now.returns - before.returns} times an array was there already, "
        f"{(now.bytes_spared - before.bytes_spared) >> 20} MiB spared, {perf_counter() - begun:.0f} s"
    )


if __name__ == "__main__":
    main()
