"""Functions whose dtypes are arguments, and numbers of small dtypes: wrong dtypes are refused with a clear message.

tests/vendor tests the results of these functions.
"""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from offload_args import Device, cublas, offload_args, testing
from offload_args.errors import ArgumentError, ArgumentTypeError, DTypeError, ExtentError, SizeOverflowError

N = cublas.OP_N


def product(A: Any, B: Any, C: Any, **others: Any) -> None:
    """Multiply two 4 x 4 matrices of halves, or of the types in `others`."""
    t = {"alpha": 1.0, "beta": 0.0, "Atype": cublas.CUDA_R_16F, "Btype": cublas.CUDA_R_16F, "Ctype": cublas.CUDA_R_16F}
    t |= {"computeType": cublas.COMPUTE_32F, "algo": cublas.GEMM_DEFAULT, "ldc": 4, **others}
    first = (N, N, 4, 4, 4, t["alpha"], A, t["Atype"], 4, B, t["Btype"], 4, t["beta"], C, t["Ctype"], t["ldc"])
    cublas.gemm_ex(*first, t["computeType"], t["algo"])


def square(dtype: Any) -> Any:
    return np.ones((4, 4), dtype, order="F")


@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    [
        (
            {"Atype": cublas.CUDA_R_32F},
            DTypeError,
            r"A needs a DevicePtr\[float32\], as Atype says, got a DevicePtr\[float16\]; pass np.float16 as Atype, or "
            "lend an array of np.float32",
        ),
        (
            {"Btype": ml_dtypes.bfloat16},
            DTypeError,
            r"B needs a DevicePtr\[bfloat16\], as Btype says, .* lend an array of ml_dtypes.bfloat16",
        ),
        ({"Ctype": cublas.CUDA_R_8F_E4M3}, DTypeError, r"C needs a DevicePtr\[float8_e4m3fn\], as Ctype says"),
        (
            {"Atype": 7},
            ArgumentError,
            r"Atype needs one of CUDA_R_8I \(3\), .*_C_64F \(5\); got 7 \(CUDA_C_8I, which NumPy has no dtype for\)",
        ),
        ({"Atype": 99}, ArgumentError, r"Atype needs one of CUDA_R_8I \(3\), .*; got 99$"),
        ({"Btype": "ham"}, ArgumentTypeError, "Btype needs a constant of .*, or a dtype .*, got the str 'ham'"),
        ({"Btype": None}, ArgumentTypeError, "Btype needs a constant of the library, or a dtype"),
        ({"Btype": np.datetime64}, ArgumentTypeError, "Btype needs a constant of the library, or a dtype"),
        ({"computeType": np.int8}, ArgumentTypeError, "computeType needs a constant of the library, or a dtype"),
        ({"Atype": 2**40}, SizeOverflowError, "Atype needs an integer of at most 31 bits"),
        ({"computeType": 0}, ArgumentError, r"computeType needs one of COMPUTE_16F \(64\), .*; got 0$"),
        ({"algo": 24}, ArgumentError, r"algo needs one of GEMM_DEFAULT \(-1\), GEMM_ALGO0 \(0\), ... or .*, got 24"),
        ({"alpha": 1j}, ArgumentTypeError, "alpha needs a real number"),
        ({"alpha": 1.0, "computeType": cublas.COMPUTE_32I}, ArgumentTypeError, "alpha needs an integer of int32"),
        ({"alpha": 2**31, "computeType": cublas.COMPUTE_32I}, SizeOverflowError, "alpha .* from -2147483648 to "),
    ],
)
def test_a_wrong_dtype_is_named_with_the_argument_that_chose_it(
    device: str, arguments: dict[str, Any], error: type[Exception], text: str
) -> None:
    A, B, C = square(np.float16), square(np.float16), square(np.float16)
    with offload_args(A, B, C, device=device) as (dA, dB, dC):
        with pytest.raises(error, match=rf"cublas\.gemm_ex: {text}"):
            product(dA, dB, dC, **arguments)
    assert (C == 1).all()


def test_a_scalar_on_the_device_has_the_dtype_of_the_sums(device: str) -> None:
    halves = [square(np.float16) for _ in range(3)]
    with offload_args(*halves, np.ones(1, np.float16), np.ones(2, np.float32), device=device) as (dA, dB, dC, dh, ds):
        text = r"alpha needs a DevicePtr\[float32\], as computeType says, got a DevicePtr\[float16\]"
        with pytest.raises(DTypeError, match=rf"cublas\.gemm_ex: {text}; pass np.float16 as computeType"):
            product(dA, dB, dC, alpha=dh)
        with pytest.raises(ExtentError, match=r"cublas\.gemm_ex: beta needs a pointer to 1 element"):
            product(dA, dB, dC, beta=ds)


def test_the_elements_of_an_operand_are_counted_in_its_own_dtype(cuda: str) -> None:
    A, B, C = square(np.float16), square(np.float16), square(np.float32)
    with offload_args(A, B, C, device=cuda) as (dA, dB, dC):
        with pytest.raises(ExtentError, match=r"gemm_ex: C needs 19 elements \(m=4, n=4, ldc=5\), has 16"):
            product(dA, dB, dC, Ctype=np.float32, ldc=5)
        product(dA, dB, dC, Ctype=np.float32)
    assert (C == 4).all()


def test_zero_of_any_dtype_overwrites_without_a_copy_up(cuda: str) -> None:
    for dtype, compute, zero in [
        (np.float16, cublas.COMPUTE_16F, 0.0),
        (np.float16, cublas.COMPUTE_16F, -0.0),
        (np.float32, cublas.COMPUTE_32F, 0),
        (np.complex64, cublas.COMPUTE_32F, 0j),
        (np.int8, cublas.COMPUTE_32I, 0),
    ]:
        A, B, C = square(dtype), square(dtype), square(np.int32 if dtype is np.int8 else dtype)
        types = {"Atype": dtype, "Btype": dtype, "Ctype": C.dtype, "computeType": compute, "alpha": 1, "beta": zero}
        with testing.counting(Device(cuda)) as moved:
            with offload_args(A, B, C, device=cuda) as (dA, dB, dC):
                product(dA, dB, dC, **types)
        assert (moved.bytes_up, moved.bytes_down) == (A.nbytes + B.nbytes, C.nbytes)
        assert (C == 4).all()


@pytest.mark.parametrize(
    ("value", "half"), [(2049, 2048), (2051, 2052), (65519, 65504), (1 + 2**-11 + 2**-40, 1 + 2**-10), (np.inf, np.inf)]
)
def test_a_half_is_rounded_once_from_the_callers_number(cuda: str, value: float, half: float) -> None:
    assert np.float16(value) == half  # the same bits as in NumPy
    A, B, C = (np.ones((1, 1), np.float16) for _ in range(3))
    with offload_args(A, B, C, device=cuda) as (dA, dB, dC):
        cublas.hgemm(N, N, 1, 1, 1, value, dA, 1, dB, 1, 0.0, dC, 1)
    assert C[0, 0] == half


def test_a_number_that_no_half_holds_is_refused(cuda: str) -> None:
    A, B, C = (np.ones((1, 1), np.float16) for _ in range(3))
    with (
        offload_args(A, B, C, device=cuda) as (dA, dB, dC),
        pytest.raises(SizeOverflowError, match="hgemm: alpha .* got the float 1000000.0; float16 holds no number"),
    ):
        cublas.hgemm(N, N, 1, 1, 1, 1e6, dA, 1, dB, 1, 0.0, dC, 1)
    assert C[0, 0] == 1


def test_a_half_on_the_host_goes_with_one_on_the_device(cuda: str) -> None:
    A, B, C = square(np.float16), square(np.float16), square(np.float16)
    with offload_args(A, B, C, np.float16([2]), device=cuda) as (dA, dB, dC, d_alpha):
        cublas.hgemm(N, N, 4, 4, 4, d_alpha, dA, 4, dB, 4, 0.5, dC, 4)
    assert (C == 8.5).all()


def test_the_raw_function_reads_scalars_of_the_dtype_that_its_arguments_say(cuda: str) -> None:
    raw = cublas.raw
    A, B, C = square(np.float16), square(np.float16), square(np.float32)
    alpha, beta, half, single = raw.ffi.new("float *", 3), raw.ffi.new("float *", 2), raw.CUDA_R_16F, raw.CUDA_R_32F
    with offload_args(A, B, C, device=cuda) as (dA, dB, dC):
        first = (None, N, N, 4, 4, 4, alpha, dA, half, 4, dB, half, 4, beta, dC, single, 4)
        assert raw.cublasGemmEx(*first, raw.CUBLAS_COMPUTE_32F, raw.CUBLAS_GEMM_DEFAULT) == 0
    assert (C == 14).all()
