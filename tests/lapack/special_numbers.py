"""Runs every driver of `lapack` with NaN, infinities and a denormal in each place of its input, on one device.

    python special_numbers.py sim:0         # prints how many calls it made, then a line for each that lost NaN

tests/lapack/test_special_numbers.py runs this program in a separate process, and kills the process if a driver does not
end.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from offload_args import In, Scratch, lapack, offload_args

Arrays = list[NDArray[Any]]

SHAPES: dict[str, list[tuple[int, ...]]] = {  # {driver: the shapes of the arrays that it reads, for n = 4}
    "gels": [(6, 4), (6, 2)], "geqrf": [(6, 4)], "gesv": [(4, 4), (4, 2)], "gesvd": [(6, 4)],
    "gesvd of values": [(6, 4)], "getrf": [(6, 4)], "getrs": [(4, 4), (4, 2)], "heevd": [(4, 4)],
    "heevd of values": [(4, 4)],
    "ormqr": [(6, 4), (4,), (6, 2)], "posv": [(4, 4), (4, 2)], "potrf": [(4, 4)], "potrs": [(4, 4), (4, 2)],
    "trtrs": [(4, 4), (4, 2)],
}  # fmt: skip
# {function that iterates: NumPy's function with the same result}.
ITERATIVE: dict[str, Callable[[Any], Any]] = {
    "gesvd": lambda A: np.linalg.svd(A, compute_uv=False),
    "gesvd of values": lambda A: np.linalg.svd(A, compute_uv=False),
    "heevd": lambda A: np.linalg.eigvalsh(A, UPLO="U"),
    "heevd of values": lambda A: np.linalg.eigvalsh(A, UPLO="U"),
}


def run(name: str, device: str, arrays: Arrays) -> NDArray[Any]:
    """Call a driver on these arrays, which it changes, and return its result, which is one of them or a new one."""
    A, (m, n) = arrays[0], arrays[0].shape
    k, real = min(m, n), np.finfo(A.dtype).dtype
    if name in ITERATIVE:
        actual, driver = np.zeros(k, real), name.partition(" of ")[0]
        jobs: Any = [Scratch((m, m), A.dtype), Scratch((n, n), A.dtype)] if name == "gesvd" else []
        with offload_args(A, actual, *jobs, device=device) as (dA, d, *rest):
            if driver == "gesvd":
                options: Any = {} if rest else {"jobu": "N", "jobvt": "N"}
                lapack.gesvd(dA, d, *(array.T for array in rest), **options)
            else:
                lapack.heevd(dA, d, jobz="N" if " " in name else "V")
        return actual
    if name in ("getrf", "geqrf"):
        with offload_args(A, Scratch((k,), np.int32 if name == "getrf" else A.dtype), device=device) as (dA, d):
            getattr(lapack, name)(dA, d)
        return A
    with offload_args(*map(In, arrays[:-1]), arrays[-1], Scratch((n, m), A.dtype), device=device) as lent:
        *read, last, copy = lent
        if name in ("potrf", "gels", "gesv", "posv"):  # these functions write A
            A_on_device = copy.T
            A_on_device.copy_from(read[0] if read else last)
        if name == "potrf":
            lapack.potrf(A_on_device)
        elif name == "gesv":
            with offload_args(Scratch((n,), np.int32), device=device) as (pivots,):
                lapack.gesv(A_on_device, pivots, last)
        elif name in ("gels", "posv"):
            getattr(lapack, name)(A_on_device, last)
        elif name == "getrs":
            with offload_args(np.arange(1, n + 1, dtype=np.int32), device=device) as (pivots,):
                lapack.getrs(read[0], pivots, last)
        else:  # potrs, trtrs, ormqr
            getattr(lapack, name)(*read, last)
    return arrays[-1]


def clean(name: str, dtype: str, n: int = 4, noise: float = 0.1) -> Arrays:
    """Return arrays. The first is definite, or of full rank if it is not square; without noise, it is diagonal."""
    random = np.random.default_rng(len(name))
    arrays: Arrays = []
    for shape in SHAPES[name]:
        values = random.standard_normal(tuple(max(size - 4 + n, 0) if size > 2 else size for size in shape))
        if not arrays:
            values = np.diag([3.0, 4, 5, 6, 7, 8])[: len(values), : values.shape[1]] + noise * (
                values + (values.T if shape == (4, 4) else 0)
            )
        arrays.append(np.array(values, dtype, order="F"))
    return arrays


def is_read(name: str, which: int, place: tuple[int, ...]) -> bool:
    """Return whether the driver reads the element at `place` of its array with the number `which`."""
    triangle = name.partition(" of ")[0] in ("heevd", "potrf", "posv", "potrs", "trtrs")
    if which == 0 and name == "ormqr":
        return place[0] > place[1]
    return not (which == 0 and triangle and place[0] > place[1])


def check(
    name: str, device: str, dtype: str, n: int, noise: float, which: int, place: tuple[int, ...], value: float
) -> bool:
    """Call a driver with a number at a place; fail if the result is not the documented one.

    Return whether a NaN that the driver reads is in its result, or the driver reports that there is no result.
    """
    arrays = clean(name, dtype, n, noise)
    arrays[which][place] = value
    values, read = [array.copy(order="K") for array in arrays], is_read(name, which, place)
    try:
        with np.errstate(all="ignore"):
            completed = run(name, device, arrays)
    except np.linalg.LinAlgError as error:
        assert read, f"{name} refuses {place}, which it does not read: {error}"
        if name in ITERATIVE:
            assert not np.isfinite(value) and f"is {np.dtype(dtype).type(value)}, needs to be finite" in str(error)
        assert all(np.array_equal(a, b, equal_nan=True) for a, b in zip(arrays, values, strict=True))
        return True
    if name in ITERATIVE:
        assert np.isfinite(value) or not read, f"{name} takes {value} in {place}"
        np.testing.assert_allclose(
            completed, ITERATIVE[name](np.triu(values[0]) if "heevd" in name else values[0]), atol=1e-5
        )
    elif np.isnan(value) and read:
        return not np.all(np.isfinite(completed))
    elif not read and name != "potrf":  # potrf does not change the other triangle
        assert np.all(np.isfinite(completed))
    return True


def cases() -> Iterator[tuple[str, str, int, float, int, tuple[int, ...], float]]:
    for name, shapes in SHAPES.items():
        for dtype in ("float32", "complex128"):
            tiny = float(np.finfo(dtype).smallest_subnormal)
            for n, noise, which in product((1, 4), (0, 0.1), range(len(shapes))):
                for place in np.ndindex(clean(name, dtype, n)[which].shape):
                    for value in (np.nan, np.inf, -np.inf, tiny):
                        yield name, dtype, n, noise, which, place, value


def main(device: str) -> None:
    count, lost = 0, []
    for name, dtype, n, noise, which, place, value in cases():
        if not check(name, device, dtype, n, noise, which, place, value):
            lost.append(f"{name} of {dtype}, n={n}, noise={noise}: NaN in {place} of array {which + 1}")
        count += 1
    for name in SHAPES:
        run(name, device, clean(name, "float64", 0))
    print("\n".join([str(count), *lost]))


if __name__ == "__main__":
    main(sys.argv[1])
