"""Every routine of rocBLAS that has a case: against sums in wider precision.

Those of several operands run the case of the routine of one: each call becomes a batch of two, of which the second is
a copy of the first or the other way round.
"""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest

from helpers.devices import HIP
from helpers.vendor import SHARES, Many, Operand, Routine, Vendor, bound, run, vector
from offload_args import In, _core, libraries, offload_args, rocblas
from offload_args.errors import LibraryVersionError
from vendor import batched, level1, level2, level3

CASES = {**level1.CASES, **level2.CASES, **level3.CASES, **batched.CASES}
ONE = [name for name in bound(rocblas) if name in CASES]
FORMS = ("_strided_batched", "_batched")


def parts(name: str) -> tuple[str, str]:
    """Split the name of a routine into that of one operand and the form."""
    form = next((one for one in FORMS if one in name), "")
    return name.replace(form, "") if form else name, form


TWO = [name for name in bound(rocblas) if name not in CASES and parts(name)[0] in CASES]


def twin(operand: Operand) -> Operand:
    """Copy an operand: what is lent is part of the new base, too."""
    made = copy.copy(operand)
    made.base = operand.base.copy(order="K")
    lent, offset = operand.lent, operand.lent.ctypes.data - operand.base.ctypes.data
    made.lent = np.ndarray(lent.shape, lent.dtype, made.base.ravel(order="K"), offset, lent.strides)
    return made


class Pair(Many):
    """An operand and its copy behind each other in one array, for a strided routine."""

    def __init__(self, operands: list[Operand]) -> None:
        super().__init__(operands)
        first = operands[0]
        self.flat = np.concatenate([one.base.ravel(order="K") for one in operands])
        self.stride = first.base.size
        passed = first.lent if first.part is None else first.lent[first.part]
        self.start = (passed.ctypes.data - first.base.ctypes.data) // first.base.itemsize

    @property
    def all_lent(self) -> list[Any]:
        return [self.flat]

    def of(self, *pointers: Any) -> Any:
        return pointers[0][self.start :]

    def take_back(self) -> None:
        """Give the operands what the call left."""
        for one, left in zip(self.operands, np.split(self.flat, 2), strict=True):
            one.base.ravel(order="K")[:] = left  # a view: it has no gaps


class BatchOfTwo(Routine):
    """A routine of several operands in place of that of one."""

    calls = 0

    def __init__(self, vendor: Vendor, name: str, letter: str, share: float) -> None:
        super().__init__(vendor, name, letter, share)
        self.tokens = [token.split(":") for token in _core.record("rocblas", name).split()]
        self.name = parts(name)[0]

    def pair(self, given: Any, as_list: bool) -> Many:
        operand = given if isinstance(given, Operand) else vector(np.array(given, self.dtype))
        both = [operand, twin(operand)][:: 1 if self.calls % 2 else -1]
        return Many(both) if as_list else Pair(both)

    def __call__(self, *arguments: Any, **keywords: Any) -> Any:
        self.calls += 1
        rest, made, passed = iter(arguments), {}, []
        results = None
        stride = 0
        for kind, label, *dtype in self.tokens:
            if label == "results":
                results = vector(np.zeros(2, _dtype(dtype[0])))
                passed.append(results)
            elif label == "batch_count":
                passed.append(2)
            elif kind == "size" and label.startswith("stride"):
                passed.append(stride)
            elif kind.rstrip("*") in ("in", "out", "inout"):
                given = next(rest)
                pair = made.setdefault(id(given), self.pair(given, kind.endswith("*")))
                stride = getattr(pair, "stride", 0)
                passed.append(pair)
            else:
                passed.append(next(rest))
        run(self.function, self.vendor.device, *passed)
        return self.finish(made, results, keywords.get("result"))

    def finish(self, made: dict[int, Many], results: Operand | None, result: Operand | None) -> Any:
        """Check that both of each pair are the same; return the result, as the routine of one would."""
        for pair in made.values():
            if isinstance(pair, Pair):
                pair.take_back()
            first, second = (one.base for one in pair.operands)
            close = 1e-3 if first.dtype.char in "fF" else 1e-9
            np.testing.assert_allclose(first, second, rtol=close, atol=close, err_msg=self.name)
        if results is None:
            return None
        one, other = results.now()
        assert one == other or np.isnan(one), f"{self.name}: {one} and {other} of the same vectors"
        if result is None:
            return one
        result.base[()] = one
        return None


def _dtype(name: str) -> Any:
    return {"f32": "f4", "f64": "f8", "c64": "c8", "c128": "c16", "i32": "i4", "i64": "i8"}[name]


def is_there(name: str) -> bool:
    """Whether the version that is loaded has it: gemmt came with version 4."""
    version = libraries.load("rocblas").version
    return "gemmt" not in name or not version or int(version.split(".")[0]) >= 4


def run_case(routine: Routine, case: Any) -> None:
    if is_there(routine.name):
        case(routine)
        return
    with pytest.raises(LibraryVersionError, match="its version is 2.* has it"):
        case(routine)


@pytest.mark.parametrize("device", [HIP], indirect=True)
@pytest.mark.parametrize("name", ONE)
@SHARES
def test_a_routine_agrees_with_higher_precision(device: str, name: str, share: float) -> None:
    letter, case = CASES[name]
    run_case(Routine(Vendor(device), name, letter, share), case)


@pytest.mark.parametrize("device", [HIP], indirect=True)
@pytest.mark.parametrize("name", TWO)
@SHARES
def test_a_routine_of_several_operands_agrees_with_higher_precision(device: str, name: str, share: float) -> None:
    letter, case = CASES[parts(name)[0]]
    run_case(BatchOfTwo(Vendor(device), name, letter, share), case)


def test_most_routines_have_a_case() -> None:
    assert len(ONE) > 190 and len(TWO) > 320


@pytest.mark.parametrize("device", [HIP], indirect=True)
@pytest.mark.parametrize("transa", "NT")
@pytest.mark.parametrize("transb", "NT")
def test_products_of_halves_are_those_of_numpy(device: str, transa: str, transb: str) -> None:
    m, n, k, ops = 5, 3, 4, {"N": rocblas.operation_none, "T": rocblas.operation_transpose}
    random = np.random.default_rng(7)
    A, B = (random.integers(-4, 5, (2, *shape)).astype("f2") for shape in ((m, k), (k, n)))  # sums are exact
    C = random.integers(-4, 5, (2, m, n)).astype("f2")
    stored = [X if trans == "T" else X.swapaxes(1, 2) for X, trans in ((A, transa), (B, transb), (C, "N"))]
    a, b, c = (np.ascontiguousarray(X) for X in stored)  # as stored by columns, two matrices behind each other
    lda, ldb = a.shape[2], b.shape[2]
    with offload_args(In(a), In(b), c, device=device) as (da, db, dc):
        ta, tb = ops[transa], ops[transb]
        rocblas.hgemm(ta, tb, m, n, k, 2.0, da[0], lda, db[0], ldb, 0.5, dc[0], m)
        np.testing.assert_array_equal(dc[0].to_host().T, 2 * A[0] @ B[0] + C[0] / 2)
        rocblas.hgemm_strided_batched(ta, tb, m, n, k, 1.0, da, lda, m * k, db, ldb, k * n, 0.0, dc, m, m * n, 2)
        rocblas.hgemm_batched(ta, tb, m, n, k, 1.0, [da[1]], lda, [db[1]], ldb, 1.0, [dc[1]], m, 1)
    np.testing.assert_array_equal(c[0].T, A[0] @ B[0])
    np.testing.assert_array_equal(c[1].T, 2 * A[1] @ B[1])
