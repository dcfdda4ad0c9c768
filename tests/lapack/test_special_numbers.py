"""Every driver of `lapack` ends for NaN, infinities and denormals, and reports them.

On the host, NaN that a driver reads is in its result, or the driver raises LinAlgError. On GPUs, this depends on the
vendor; the test lists (`pytest -rP`) the calls that lost NaN.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from helpers.processes import output_of
from offload_args import Device, lapack, offload_args


@pytest.mark.later
@pytest.mark.promise("T70")
def test_drivers_end_with_any_number_in_any_place(device: str, tmp_path: Path) -> None:
    script = Path(__file__).with_name("special_numbers.py")
    count, *lost = output_of(sys.executable, script, device, folder=tmp_path, timeout=300).splitlines()
    assert int(count) > 1000
    print(*lost, sep="\n")
    assert not lost or Device(device).is_gpu, "cuSOLVER may lose NaN, LAPACK does not"


@pytest.mark.promise("T70")
@pytest.mark.parametrize("order", "CF")
@pytest.mark.parametrize("gap", [0, 2])
def test_a_matrix_that_is_not_finite_has_no_eigenvalues_and_stays_as_it_was(
    device: str, dtype: str, order: Any, gap: int
) -> None:
    A = np.zeros((4 + gap, 4 + gap), dtype, order=order)[:4, :4]
    A[...] = np.diag([1, 2, 3, 4])
    A[1, 2], A[3, 3] = np.inf, np.finfo(dtype).max  # the sum of the other elements overflows, too
    before, w = A.copy(), np.zeros(4, np.finfo(dtype).dtype)
    refused = r"^lapack\.heevd: A\[1, 2\] is .*inf.*, needs to be finite, .* nothing was changed; look for .*isfinite"
    with offload_args(A, w, device=device) as (dA, dw):
        with pytest.raises(np.linalg.LinAlgError, match=refused):
            lapack.heevd(dA, dw, jobz="N", uplo="U")
        dw.fill(7)
    assert np.array_equal(A, before) and np.all(w == 7)
    with offload_args(A, w, device=device) as (dA, dw):
        lapack.heevd(dA, dw, jobz="N", uplo="L")  # this triangle is finite
    np.testing.assert_allclose(w, np.array([1, 2, 3, np.finfo(dtype).max]), rtol=1e-5)
