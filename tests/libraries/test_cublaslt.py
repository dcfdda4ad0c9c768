"""cuBLASLt on a GPU, against sums in float64: dtypes, orders, gaps, batches, epilogues forward and backward, scales."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from offload_args import Device, In, InOut, Out, Scratch, cublaslt, offload_args
from offload_args.errors import (
    AliasError,
    ArgumentError,
    DirectionError,
    DTypeError,
    ExtentError,
    SizeOverflowError,
    StalePointerError,
)

LIBRARY = "cublaslt"

BFLOAT16, E4M3, E5M2 = (np.dtype(getattr(ml_dtypes, name)) for name in ("bfloat16", "float8_e4m3fn", "float8_e5m2"))
FLOATS = [np.dtype(name) for name in (np.float64, np.float32, np.float16, np.complex64, np.complex128)] + [BFLOAT16]


def drawn(shape: tuple[int, ...], dtype: Any, seed: int = 1) -> Any:
    """Return small random numbers that are exact in every dtype."""
    random = np.random.default_rng(seed)
    numbers = random.integers(-4, 5, shape) / 4
    if np.dtype(dtype).kind == "c":
        return (numbers + 1j * random.integers(-4, 5, shape) / 4).astype(dtype)
    return numbers.astype(dtype)


def placed(array: Any, order: str) -> Any:
    """Return an array by rows ("C") or by columns ("F"); "C+" and "F+" have gaps between rows or columns."""
    if "F" in order:
        return placed(array.swapaxes(-1, -2), order.replace("F", "C")).swapaxes(-1, -2)
    gap = 16 if "+" in order else 0
    built = np.zeros((*array.shape[:-1], array.shape[-1] + gap), array.dtype)
    built[..., : array.shape[-1]] = array
    return built[..., : array.shape[-1]]


def exact(array: Any) -> Any:
    return np.asarray(array, np.complex128 if np.asarray(array).dtype.kind == "c" else np.float64)


def step(dtype: Any) -> float:
    """Return the distance from 1 to the next number of a dtype."""
    dtype = np.dtype(dtype)
    return 0.0 if dtype.kind == "i" else float(ml_dtypes.finfo(dtype).eps)


def close(actual: Any, expected: Any, a: Any, b: Any, compute: Any = np.float32) -> None:
    """Compare with sums in float64.

    A sum of k products, each rounded once to the compute dtype, is off by at most k of its steps; the result is rounded
    again.
    """
    k = a.shape[-1]
    sums = np.abs(exact(a)) @ np.abs(exact(b))
    bound = k * step(compute) * sums + step(actual.dtype) * np.abs(expected) + step(actual.dtype) * 2**-6
    wrong = np.abs(exact(actual) - expected)
    assert (wrong <= bound).all(), (float(wrong.max()), float(bound.min()))


def computed(dtype: Any) -> Any:
    return np.float64 if np.dtype(dtype) in (np.dtype(np.float64), np.dtype(np.complex128)) else np.float32


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("orders", ["CCC", "FFF", "CFC", "FCF", "FFC", "CCF"])
@pytest.mark.parametrize("shape", [(40, 24, 32), (8, 72, 16)])
def test_products_in_any_order_are_as_sums_in_float64(gpu: str, dtype: Any, orders: str, shape: Any) -> None:
    m, n, k = shape
    a, b = placed(drawn((m, k), dtype), orders[0]), placed(drawn((k, n), dtype, 2), orders[1])
    d = placed(np.zeros((m, n), dtype), orders[2])
    with offload_args(In(a), In(b), Out(d), device=gpu) as (da, db, dd):
        cublaslt.Matmul(da, db, dd)(da, db, dd, alpha=0.5)
    close(d, 0.5 * exact(a) @ exact(b), a, b, computed(dtype))


@pytest.mark.parametrize("order", ["C+", "F+"])
def test_gaps_between_rows_or_columns_are_left_alone(gpu: str, order: str) -> None:
    a, b = placed(drawn((40, 32), np.float32), order), placed(drawn((32, 24), np.float32, 2), order)
    d = placed(np.zeros((40, 24), np.float32), order)
    d.base[...] = 7
    with offload_args(In(a), In(b), InOut(d), device=gpu) as (da, db, dd):
        cublaslt.Matmul(da, db, dd)(da, db, dd)
    close(d, exact(a) @ exact(b), a, b)
    assert (d.base == 7).sum() == d.base.size - d.size


@pytest.mark.parametrize("dtype", [np.dtype(np.float32), np.dtype(np.float16)], ids=str)
@pytest.mark.parametrize("shared", ["none", "A", "B"])
def test_a_batch_is_multiplied_one_by_one(gpu: str, dtype: Any, shared: str) -> None:
    a, b = drawn((3, 40, 32), dtype), drawn((3, 32, 24), dtype, 2)
    a, b = (a[0] if shared == "A" else a), (b[0] if shared == "B" else b)
    d = np.zeros((3, 40, 24), dtype)
    with offload_args(In(a), In(b), Out(d), device=gpu) as (da, db, dd):
        cublaslt.Matmul(da, db, dd)(da, db, dd)
    close(d, exact(a) @ exact(b), a, b)


def test_c_is_added_apart_and_in_place(gpu: str) -> None:
    a, b, c = drawn((40, 32), np.float32), drawn((32, 24), np.float32, 2), drawn((40, 24), np.float32, 3)
    d, e = np.zeros_like(c), c.copy()
    with offload_args(In(a), In(b), In(c), Out(d), InOut(e), device=gpu) as (da, db, dc, dd, de):
        product = cublaslt.Matmul(da, db, dd, dc)
        product(da, db, dd, dc, beta=2.0)
        product(da, db, de, de, beta=2.0)
    expected = exact(a) @ exact(b) + 2 * exact(c)
    close(d, expected, a, b)
    close(e, expected, a, b)


def test_tf32_is_less_exact_and_int8_is_exact(gpu: str) -> None:
    random = np.random.default_rng(1)
    a, b = (random.standard_normal(shape, np.float32) for shape in ((128, 256), (256, 64)))
    d = np.zeros((128, 64), np.float32)
    i, j = (random.integers(-100, 100, shape).astype(np.int8) for shape in ((64, 128), (128, 32)))
    e = np.zeros((64, 32), np.int32)
    j = np.asfortranarray(j)
    with offload_args(In(a), In(b), Out(d), In(i), In(j), Out(e), device=gpu) as (da, db, dd, di, dj, de):
        cublaslt.Matmul(da, db, dd, compute=cublaslt.COMPUTE_32F_FAST_TF32)(da, db, dd)
        cublaslt.Matmul(di, dj, de)(di, dj, de)
    rounded = 2 * 2**-11 * (np.abs(exact(a)) @ np.abs(exact(b)))  # numbers of 10 fractional bits
    assert (np.abs(d - exact(a) @ exact(b)) <= rounded).all()
    np.testing.assert_array_equal(e, i.astype(np.int64) @ j.astype(np.int64))


@pytest.mark.parametrize("out", [BFLOAT16, np.dtype(np.float16), np.dtype(np.float32), E4M3], ids=str)
@pytest.mark.parametrize("types", [(E4M3, E4M3), (E4M3, E5M2)], ids=str)
def test_numbers_of_8_bits_are_scaled(gpu: str, types: Any, out: Any) -> None:
    if Device(gpu).compute_capability < (8, 9):
        pytest.skip("device unavailable: no GPU with products of 8 bits")
    a, b = drawn((64, 128), types[0]), np.asfortranarray(drawn((128, 32), types[1], 2))
    d, scales = np.zeros((64, 32), out), [np.array([value], np.float32) for value in (2.0, 0.5, 0.125)]
    more: dict[str, Any] = {}
    with offload_args(In(a), In(b), Out(d), *map(In, scales), device=gpu) as (da, db, dd, sa, sb, sd):
        product = cublaslt.Matmul(da, db, dd)
        if out == E4M3:
            more["d_scale"] = sd
        product(da, db, dd, a_scale=sa, b_scale=sb, **more)
    expected = exact(a) @ exact(b) * (0.125 if more else 1)
    wrong, scale = np.abs(exact(d) - expected), np.abs(exact(a)) @ np.abs(exact(b))
    assert (wrong <= step(out) * np.abs(expected) + 2**-11 * scale + step(out) * 2**-6).all()


# -- epilogues ---------------------------------------------------------------------------------------------------------


def gelu(x: Any) -> Any:
    return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


def gelu_slope(x: Any) -> Any:
    inner = math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)
    slope = math.sqrt(2 / math.pi) * (1 + 3 * 0.044715 * x**2)
    return 0.5 * (1 + np.tanh(inner)) + 0.5 * x * (1 - np.tanh(inner) ** 2) * slope


FORWARD = {
    "EPILOGUE_BIAS": lambda x: x,
    "EPILOGUE_RELU": lambda x: np.maximum(x, 0),
    "EPILOGUE_RELU_BIAS": lambda x: np.maximum(x, 0),
    "EPILOGUE_GELU": gelu,
    "EPILOGUE_GELU_BIAS": gelu,
    "EPILOGUE_RELU_AUX": lambda x: np.maximum(x, 0),
    "EPILOGUE_RELU_AUX_BIAS": lambda x: np.maximum(x, 0),
    "EPILOGUE_GELU_AUX": gelu,
    "EPILOGUE_GELU_AUX_BIAS": gelu,
}


@pytest.mark.parametrize("name", FORWARD)
@pytest.mark.parametrize("dtype", [np.dtype(np.float16), BFLOAT16, np.dtype(np.float32)], ids=str)
@pytest.mark.parametrize("order", "CF")
def test_epilogues_are_applied(gpu: str, name: str, dtype: Any, order: str) -> None:
    a, b = placed(drawn((64, 32), dtype), order), placed(drawn((32, 48), dtype, 2), order)
    d, bias = placed(np.zeros((64, 48), dtype), order), drawn((48 if order == "C" else 64,), dtype, 3)
    with offload_args(In(a), In(b), Out(d), In(bias), device=gpu) as (da, db, dd, dbias):
        product = cublaslt.Matmul(da, db, dd, epilogue=getattr(cublaslt, name))
        arguments: dict[str, Any] = {"bias": dbias} if "BIAS" in name else {}
        with offload_args(Scratch(product.aux_shape or 1, product.aux_dtype or dtype), device=gpu) as (daux,):
            product(da, db, dd, **arguments, **({"aux": daux} if product.aux_shape else {}))
    before = exact(a) @ exact(b)
    if arguments:
        before = before + (exact(bias) if order == "C" else exact(bias)[:, None])
    expected = FORWARD[name](before)
    bound = step(dtype) * np.abs(expected) + 32 * step(np.float32) * 64 + ("GELU" in name) * max(step(dtype), 2**-10)
    assert (np.abs(exact(d) - expected) <= bound).all(), float(np.abs(exact(d) - expected).max())


@pytest.mark.parametrize("kind", ["RELU", "GELU"])
@pytest.mark.parametrize("order", "CF")
def test_gradients_pass_through_relu_and_gelu_with_those_of_the_bias(gpu: str, kind: str, order: str) -> None:
    dtype = np.dtype(np.float16)
    x, w, bias = (
        placed(drawn((64, 32), dtype), order),
        placed(drawn((32, 128), dtype, 2), order),
        drawn((128,), dtype, 3),
    )
    v, dy = placed(drawn((128, 64), dtype, 4), order), placed(drawn((64, 64), dtype, 5), order)  # y = f(x w + bias) v
    if order == "F":
        bias = drawn((64,), dtype, 3)
    bias += dtype.type(1 / 32)  # so that no input of ReLU is 0, because ReLU has no slope at 0
    h, dh = (placed(np.zeros((64, 128), dtype), order) for _ in range(2))
    dbias = np.zeros_like(bias)
    vt = v.T
    arrays = (In(x), In(w), In(bias), Out(h), In(vt), In(dy), Out(dh), Out(dbias))
    with offload_args(*arrays, device=gpu) as (px, pw, pb, ph, pv, pdy, pdh, pdb):
        forward = cublaslt.Matmul(px, pw, ph, epilogue=getattr(cublaslt, f"EPILOGUE_{kind}_AUX_BIAS"))
        backward = cublaslt.Matmul(pdy, pv, pdh, epilogue=getattr(cublaslt, f"EPILOGUE_D{kind}_BGRAD"))
        assert forward.aux_shape == backward.aux_shape and forward.aux_dtype == backward.aux_dtype
        with offload_args(Scratch(forward.aux_shape or 1, forward.aux_dtype), device=gpu) as (paux,):
            forward(px, pw, ph, bias=pb, aux=paux)
            backward(pdy, pv, pdh, aux=paux, bias=pdb)
    before = exact(x) @ exact(w) + (exact(bias) if order == "C" else exact(bias)[:, None])
    slope = (before > 0).astype(float) if kind == "RELU" else gelu_slope(before)
    expected = exact(dy) @ exact(v).T * slope
    sums = np.abs(exact(dy)) @ np.abs(exact(v)).T
    rough = 2**-9 if kind == "GELU" else 0.0  # the error of the slope at a rounded input
    bound = step(dtype) * np.abs(expected) + (64 * step(np.float32) + rough) * sums + step(dtype) * 2**-6
    assert (np.abs(exact(dh) - expected) <= bound).all(), float(np.abs(exact(dh) - expected).max())
    along = 0 if order == "C" else 1
    wrong = np.abs(exact(dbias) - expected.sum(along))
    assert (wrong <= bound.sum(along) + step(dtype) * np.abs(expected.sum(along))).all(), float(wrong.max())


@pytest.mark.parametrize("name", ["EPILOGUE_BGRADA", "EPILOGUE_BGRADB"])
def test_sums_of_a_or_b_are_gradients_of_the_bias(gpu: str, name: str) -> None:
    dtype = np.dtype(np.float16)
    a, b, d = (
        np.asfortranarray(array) for array in (drawn((64, 32), dtype), drawn((32, 48), dtype, 2), np.zeros((64, 48)))
    )
    d = d.astype(dtype)
    if name.endswith("B"):  # the library sums along B's columns if B is stored by rows
        b = np.ascontiguousarray(b)
    sums = np.zeros(64 if name.endswith("A") else 48, dtype)
    with offload_args(In(a), In(b), Out(d), Out(sums), device=gpu) as (da, db, dd, ds):
        cublaslt.Matmul(da, db, dd, epilogue=getattr(cublaslt, name))(da, db, dd, bias=ds)
    close(d, exact(a) @ exact(b), a, b)
    expected = exact(a).sum(1) if name.endswith("A") else exact(b).sum(0)
    assert (np.abs(exact(sums) - expected) <= step(dtype) * 32).all()


def test_a_transformation_changes_the_order_and_adds(gpu: str) -> None:
    a, b = np.asfortranarray(drawn((5, 7), np.float64)), drawn((5, 7), np.float64, 2)
    c = np.zeros((5, 7))
    transform = cublaslt.matrix_transform_desc_create(cublaslt.CUDA_R_64F)
    with offload_args(In(a), In(b), Out(c), device=gpu) as (da, db, dc):
        layouts = [cublaslt.layout(array) for array in (da, db, dc)]
        cublaslt.matrix_transform(transform, 2.0, da, layouts[0], 3.0, db, layouts[1], dc, layouts[2])
    np.testing.assert_array_equal(c, 2 * a + 3 * b)


# -- refusals ----------------------------------------------------------------------------------------------------------


@pytest.mark.promise("T31")
@pytest.mark.parametrize("short", ["A", "B", "C", "D", "bias"])
def test_one_element_less_is_refused_by_name(gpu: str, short: str) -> None:
    sizes = {"A": 8 * 16, "B": 16 * 8, "C": 8 * 8, "D": 8 * 8, "bias": 8}
    arrays = {name: np.ones(size - (name == short), np.float32) for name, size in sizes.items()}
    desc = cublaslt.matmul_desc_create(cublaslt.COMPUTE_32F, cublaslt.CUDA_R_32F)
    desc.epilogue = cublaslt.EPILOGUE_BIAS
    la = cublaslt.layout(np.zeros((8, 16), np.float32, order="F"))
    lb = cublaslt.layout(np.zeros((16, 8), np.float32, order="F"))
    ld = cublaslt.layout(np.zeros((8, 8), np.float32, order="F"))
    with offload_args(*arrays.values(), device=gpu) as pointers:
        p = dict(zip(arrays, pointers, strict=True))
        desc.bias_pointer = p["bias"]
        named = "bias_pointer" if short == "bias" else short
        with pytest.raises(ExtentError, match=rf"^cublaslt\.matmul: {named} needs {sizes[short]} elements"):
            cublaslt.matmul(desc, 1, p["A"], la, p["B"], lb, 1, p["C"], ld, p["D"], ld, None, None, 0)


def test_wrong_arrays_descriptors_and_workspaces_are_refused_by_name(gpu: str) -> None:
    a, b, d = drawn((64, 32), np.float16), drawn((32, 48), np.float16, 2), np.zeros((64, 48), np.float16)
    e, f = np.zeros((64, 32), np.int16), np.asfortranarray(a)
    small, half = np.zeros(16, np.uint8), np.zeros(48, np.float32)
    arrays = (a, b, InOut(d), e, f, InOut(small), half)
    with offload_args(*arrays, device=gpu) as (da, db, dd, de, df, ds, dh):
        product = cublaslt.Matmul(da, db, dd)
        biased = cublaslt.Matmul(da, db, dd, epilogue=cublaslt.EPILOGUE_BIAS)
        kept = partial(cublaslt.Matmul, epilogue=cublaslt.EPILOGUE_BIAS)
        for call, error, words in (
            (lambda: product(de, db, dd), DTypeError, "A needs float16, as Adesc says, got a pointer to int16"),
            (lambda: product(df, db, dd), ArgumentError, "A needs the shape .* as the product was made for"),
            (lambda: product(db, da, dd), ArgumentError, "A needs the shape"),
            (lambda: product(da, db, dd, beta=1), ArgumentError, "C needs a DevicePtr, as beta is not 0"),
            (lambda: product(da, db, dd, alpha=1j), DTypeError, "alpha needs a number of float32, as computeDesc says"),
            (lambda: product(da, db, dd, alpha=1e300), SizeOverflowError, "got 1e.300; it holds none as large"),
            (lambda: biased(da, db, dd), ArgumentError, "the epilogue needs bias, got none"),
            (lambda: biased(da, db, dd, bias=dh), DTypeError, "bias_pointer needs float16, as computeDesc says"),
            (lambda: biased(da, db, dd, bias=da[0]), ExtentError, "bias_pointer needs 48 elements"),
            (lambda: biased(da, db, dd, bias=dd[0]), AliasError, "D .*overlaps bias_pointer"),
            (lambda: product(da, db, dd, dummy=ds), TypeError, "there is no argument dummy"),
            (lambda: kept(da, db, dd, bias_dtype=">f4"), ArgumentError, "bias_dtype is of >f4, and cuBLASLt has"),
            (lambda: kept(da, db, dd, bias_dtype=object), ArgumentError, "bias_dtype is of object, and cuBLASLt has"),
            (lambda: cublaslt.Matmul(da, da, dd), ArgumentError, "B needs 32 rows, as many as A has columns, has 64"),
            (lambda: cublaslt.Matmul(da, db, db), ArgumentError, r"D needs the shape \(64, 48\) of A B"),
        ):
            with pytest.raises(error, match=words):
                call()
        if product.algo.workspace > 16:
            with pytest.raises(ExtentError, match="workspace needs .* bytes, as cublasLtMatmulAlgoCheck says"):
                product(da, db, dd, workspace=ds)
        product(da, db, dd)
        stale = da
    with pytest.raises(StalePointerError, match="A"), offload_args(In(b), Out(d), device=gpu) as (db, dd):
        product(stale, db, dd)
    with pytest.raises(DirectionError, match="D"), offload_args(In(a), In(b), In(d), device=gpu) as (da, db, dd):
        product(da, db, dd)


def test_a_slice_that_is_not_aligned_is_refused_or_multiplied(gpu: str) -> None:
    a, b, d = drawn((65, 32), np.float16).ravel(), drawn((32, 48), np.float16, 2), np.zeros((64, 48), np.float16)
    with offload_args(In(a), In(b), Out(d), device=gpu) as (da, db, dd):
        odd = da[1:2049].reshape(64, 32)
        product = cublaslt.Matmul(odd, db, dd)
        try:
            product(odd, db, dd)
        except ArgumentError as error:
            assert "A starts at 2 bytes after a multiple of" in str(error)
            assert "min_alignment_*_bytes" in str(error)
        cublaslt.Matmul(odd, db, dd, alignment=2)(odd, db, dd)
    close(d, exact(a[1:2049].reshape(64, 32)) @ exact(b), a[1:2049].reshape(64, 32), b)


def test_a_kept_product_is_called_again_and_again_in_other_regions(gpu: str) -> None:
    a, b = drawn((64, 32), np.float16), drawn((32, 48), np.float16, 2)
    d, bias = np.zeros((64, 48), np.float16), drawn((48,), np.float16, 3)
    product = cublaslt.Matmul(a, b, d, epilogue=cublaslt.EPILOGUE_BIAS, device=gpu)
    for factor in (1, 2, 3):
        with offload_args(In(a), In(b), Out(d), In(bias), device=gpu) as (da, db, dd, dbias):
            for _ in range(3):
                product(da, db, dd, bias=dbias, alpha=factor)
        close(d, factor * (exact(a) @ exact(b)) + exact(bias), a, b)


def test_algorithms_say_what_they_need_and_can(gpu: str) -> None:
    a, b, d = (np.zeros(shape, np.float16) for shape in ((256, 512), (512, 128), (256, 128)))
    layouts = [cublaslt.layout(array) for array in (a, b, d, d)]
    desc = cublaslt.matmul_desc_create(cublaslt.COMPUTE_32F, cublaslt.CUDA_R_32F)
    results = cublaslt.heuristics(desc, *layouts, preference=cublaslt.preference(workspace=1 << 20), device=gpu)
    assert 1 <= len(results) <= 8
    for algo in results:
        assert algo.status == cublaslt.STATUS_SUCCESS and 0 <= algo.workspace <= 1 << 20 and algo.waves > 0
        assert algo.setting(cublaslt.ALGO_CONFIG_ID) >= 0
        assert algo.capability(cublaslt.ALGO_CAP_STRIDED_BATCH_SUPPORT) in (0, 1)
        assert isinstance(algo.capability(cublaslt.ALGO_CAP_TILE_IDS), tuple)


def test_a_graph_owns_the_workspaces_of_its_products(gpu: str) -> None:
    """The graph keeps its workspaces while it lives, so that no other call or graph, and no trim, gets them."""
    a, b, c = drawn((40, 32), np.float32), drawn((32, 24), np.float32, 2), drawn((40, 24), np.float32, 3)
    d = np.zeros_like(c)
    region = offload_args(In(a), In(b), In(c), Out(d), device=gpu)
    with region as (da, db, dc, dd):
        product = cublaslt.Matmul(da, db, dd, dc)
        with region.capture() as first:
            product(da, db, dd, dc, beta=2.0)
        with region.capture() as second:
            product(da, db, dd, dc)
        del product
        Device(gpu).trim()
        for beta, graph in [(2, first), (0, second), (2, first)]:
            cublaslt.Matmul(da, db, dd, dc)(da, db, dd, dc, beta=3.0)
            graph.replay()
            close(dd.to_host(), exact(a) @ exact(b) + beta * exact(c), a, b)
        del first
        second.replay()
    close(d, exact(a) @ exact(b), a, b)
