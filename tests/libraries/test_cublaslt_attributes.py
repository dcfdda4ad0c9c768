"""Results of cuBLASLt on a GPU: scales of blocks, separate imaginary parts, orders, preferences, algorithms, masks."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from helpers.devices import library_or_skip
from offload_args import Device, In, InOut, Out, Scratch, cublaslt, offload_args
from offload_args.errors import ArgumentError, DTypeError, ExtentError, LibraryError

BFLOAT16, E4M3 = (np.dtype(getattr(ml_dtypes, name)) for name in ("bfloat16", "float8_e4m3fn"))
SCALES = {
    "SCALAR_32F": (1, 1),
    "OUTER_VEC_32F": (256, 128),
    "VEC128_32F": (256 * 5, 128 * 5),
    "BLK128x128_32F": (2 * 8, 1 * 8),
    "VEC32_UE8M0": (256 * 20, 128 * 20),
    "VEC16_UE4M3": (256 * 40, 128 * 40),
}  # {mode: the numbers of scales for A of 256 x 640 and B of 640 x 128}


@pytest.fixture
def gpu(cuda: str) -> str:
    library_or_skip("cublaslt", cuda)
    return cuda


@pytest.fixture
def searched(gpu: str) -> str:
    """A GPU whose cuBLASLt searches among algorithms, unlike a double, which has one."""
    if "double" in str(Device(gpu).model).lower():
        pytest.skip("device unavailable: no GPU with the real cuBLASLt")
    return gpu


def drawn(shape: tuple[int, ...], dtype: Any, seed: int = 1) -> Any:
    """Return small random numbers that are exact in every dtype."""
    return (np.random.default_rng(seed).integers(-4, 5, shape) / 4).astype(dtype)


def spread(mode: str, scales: Any, lines: int, k: int) -> Any:
    """Return the scale of each element of a matrix by rows, for a mode and 640 columns."""
    if mode == "SCALAR_32F":
        return np.broadcast_to(scales, (lines, k))
    if mode == "OUTER_VEC_32F":
        return np.broadcast_to(scales[:, None], (lines, k))
    if mode == "VEC128_32F":
        return scales.reshape(-1, lines).T.repeat(128, 1)[:, :k]
    return scales.reshape(lines // 128, -1).repeat(128, 0).repeat(128, 1)[:, :k]


def scaled(modes: tuple[str, str]) -> tuple[Any, list[Any]]:
    """Return a descriptor whose A is stored by rows, with modes of scales, and the layouts of A, B and D."""
    desc = cublaslt.matmul_desc_create(cublaslt.COMPUTE_32F, cublaslt.CUDA_R_32F)
    desc.transa = cublaslt.OP_T
    for letter, mode in zip("ab", modes, strict=True):
        setattr(desc, f"{letter}_scale_mode", getattr(cublaslt, f"MATMUL_MATRIX_SCALE_{mode}"))
    layouts = [
        cublaslt.matrix_layout_create(getattr(cublaslt, f"CUDA_R_{dtype}"), rows, columns, rows)
        for dtype, rows, columns in (("8F_E4M3", 640, 256), ("8F_E4M3", 640, 128), ("16BF", 256, 128))
    ]
    return desc, layouts


@pytest.mark.parametrize(
    "modes",
    [
        ("SCALAR_32F", "SCALAR_32F"),
        ("OUTER_VEC_32F", "OUTER_VEC_32F"),
        ("VEC128_32F", "VEC128_32F"),
        ("VEC128_32F", "BLK128x128_32F"),
        ("BLK128x128_32F", "VEC128_32F"),
    ],
    ids="-".join,
)
def test_numbers_of_8_bits_are_scaled_by_lines_and_blocks(gpu: str, modes: tuple[str, str]) -> None:
    if Device(gpu).compute_capability[0] != 9:
        pytest.skip("device unavailable: no GPU of compute capability 9")
    a, b, d = drawn((256, 640), E4M3), drawn((128, 640), E4M3, 2), np.zeros((128, 256), BFLOAT16)
    scales = [
        (2.0 ** np.random.default_rng(i).integers(-3, 4, SCALES[mode][i])).astype(np.float32)
        for i, mode in enumerate(modes)
    ]
    desc, (la, lb, ld) = scaled(modes)
    with offload_args(In(a), In(b), Out(d), *map(In, scales), device=gpu) as (da, db, dd, sa, sb):
        desc.a_scale_pointer, desc.b_scale_pointer = sa, sb
        algo = cublaslt.heuristics(desc, la, lb, ld, ld, count=1, device=gpu)[0]
        cublaslt.matmul(desc, 1, da, la, db, lb, 0, None, ld, dd, ld, algo.algo, None, algo.workspace)
    left, right = (
        np.asarray(array, np.float64) * spread(mode, scale, len(array), 640)
        for array, mode, scale in zip((a, b), modes, scales, strict=True)
    )
    wrong, sums = np.abs(np.asarray(d, np.float64).T - left @ right.T), np.abs(left) @ np.abs(right).T
    assert (wrong <= 2**-8 * np.abs(left @ right.T) + 2**-11 * sums).all(), float((wrong / sums).max())


@pytest.mark.promise("T31")
@pytest.mark.parametrize("which", [0, 1], ids=["A", "B"])
@pytest.mark.parametrize("mode", SCALES)
def test_one_scale_less_is_refused_by_name(gpu: str, mode: str, which: int) -> None:
    """It is refused before the library is called, even for modes of newer GPUs."""
    count = SCALES[mode][which]
    elements = "1 element" if count == 1 else f"{count} elements"
    dtype: Any = np.float32 if mode.endswith("32F") else np.uint8
    desc, (la, lb, ld) = scaled((mode, mode))
    a, b, d = np.zeros((256, 640), E4M3), np.zeros((128, 640), E4M3), np.zeros((128, 256), BFLOAT16)
    full, short = np.ones(max(SCALES[mode]), dtype), np.ones(count, dtype)
    with offload_args(a, b, InOut(d), full, short, device=gpu) as (da, db, dd, df, ds):
        desc.a_scale_pointer = desc.b_scale_pointer = df
        setattr(desc, f"{'ab'[which]}_scale_pointer", ds[1:])
        with pytest.raises(ExtentError, match=rf"{'ab'[which]}_scale_pointer needs {elements} \("):
            cublaslt.matmul(desc, 1, da, la, db, lb, 0, None, ld, dd, ld, None, None, 0)
        if dtype == np.float32:
            setattr(desc, f"{'ab'[which]}_scale_pointer", da)
            with pytest.raises(DTypeError, match=rf"{'ab'[which]}_scale_pointer needs float32, as computeDesc says"):
                cublaslt.matmul(desc, 1, da, la, db, lb, 0, None, ld, dd, ld, None, None, 0)


def test_an_unknown_mode_of_scales_is_refused(gpu: str) -> None:
    desc, (la, lb, ld) = scaled(("SCALAR_32F", "SCALAR_32F"))
    desc.a_scale_mode = 99
    a, b, d = np.zeros((256, 640), E4M3), np.zeros((128, 640), E4M3), np.zeros((128, 256), BFLOAT16)
    with offload_args(a, b, InOut(d), np.ones(1, np.float32), device=gpu) as (da, db, dd, ds):
        desc.a_scale_pointer = ds
        with pytest.raises(ArgumentError, match="computeDesc has the mode 99 for a_scale_pointer, which is unknown"):
            cublaslt.matmul(desc, 1, da, la, db, lb, 0, None, ld, dd, ld, None, None, 0)


# -- imaginary parts apart ---------------------------------------------------------------------------------------------


def planar(dtype: Any, rows: int, columns: int, gap: int = 0) -> Any:
    """Return the layout of a matrix by columns whose imaginary parts are `gap` elements after the real parts."""
    code = cublaslt.CUDA_C_16F if dtype == np.float16 else cublaslt.CUDA_C_32F
    layout = cublaslt.matrix_layout_create(code, rows, columns, rows)
    layout.plane_offset = (rows * columns + gap) * np.dtype(dtype).itemsize
    return layout


def joined(planes: Any) -> Any:
    return (planes[0].astype(np.float64) + 1j * planes[1]).T


def test_imaginary_parts_that_lie_apart_are_multiplied(gpu: str) -> None:
    a, b, d = drawn((2, 32, 64), np.float16), drawn((2, 48, 32), np.float16, 2), np.zeros((2, 48, 64), np.float16)
    la, lb, ld = planar(np.float16, 64, 32), planar(np.float16, 32, 48), planar(np.float16, 64, 48)
    desc = cublaslt.matmul_desc_create(cublaslt.COMPUTE_32F, cublaslt.CUDA_C_32F)
    with offload_args(In(a), In(b), Out(d), device=gpu) as (da, db, dd):
        cublaslt.matmul(desc, 1 - 1j, da, la, db, lb, 0, None, ld, dd, ld, None, None, 1 << 20)
    expected = (1 - 1j) * (joined(a) @ joined(b))
    assert (np.abs(joined(d) - expected) <= 2**-9 * np.abs(expected) + 2**-10).all()


def test_a_transformation_puts_imaginary_parts_apart_and_back(gpu: str) -> None:
    a = (drawn((48, 64), np.float32) + 1j * drawn((48, 64), np.float32, 2)).astype(np.complex64)
    apart, back = np.zeros((2, 48, 64), np.float32), np.zeros_like(a)
    whole, split = cublaslt.matrix_layout_create(cublaslt.CUDA_C_32F, 64, 48, 64), planar(np.float32, 64, 48)
    desc = cublaslt.matrix_transform_desc_create(cublaslt.CUDA_C_32F)
    with offload_args(In(a), InOut(apart), Out(back), device=gpu) as (da, ds, db):
        cublaslt.matrix_transform(desc, 1, da, whole, 0, None, None, ds, split)
        cublaslt.matrix_transform(desc, 2, ds, split, 0, None, None, db, whole)
    np.testing.assert_array_equal(apart, [a.real, a.imag])
    np.testing.assert_array_equal(back, 2 * a)


def test_wrong_planes_are_refused_by_name(gpu: str) -> None:
    desc = cublaslt.matmul_desc_create(cublaslt.COMPUTE_32F, cublaslt.CUDA_C_32F)
    good, real = planar(np.float32, 8, 8), cublaslt.matrix_layout_create(cublaslt.CUDA_R_32F, 8, 8, 8)
    odd, batch, negative = (planar(np.float32, 8, 8) for _ in range(3))
    real.plane_offset, odd.plane_offset, negative.plane_offset, batch.batch_count = 256, 255, -256, 2
    a, short, d, whole = (np.zeros(n, np.float32) for n in (128, 127, 128, 128))
    number = np.zeros(64, np.complex64)
    with offload_args(a, short, InOut(d), whole, number, device=gpu) as (da, ds, dd, dw, dn):
        for pointer, layout, error, words in (
            (ds, good, ExtentError, "A needs 128 elements"),
            (dn, good, DTypeError, "A needs float32, as Adesc says, got a pointer to complex64"),
            (da, real, ArgumentError, "Adesc has a plane_offset, and its type is not complex"),
            (da, odd, ArgumentError, "Adesc needs a plane_offset of 0 or more bytes, in multiples of 4, got 255"),
            (da, negative, ArgumentError, "Adesc needs a plane_offset of 0 or more bytes"),
            (da, batch, ArgumentError, "Adesc has both a plane_offset and a batch_count"),
        ):
            with pytest.raises(error, match=words):
                cublaslt.matmul(desc, 1, pointer, layout, dw, good, 0, None, None, dd, good, None, None, 0)


# -- orders ------------------------------------------------------------------------------------------------------------


def tiled_layout(order: str, rows: int, columns: int) -> tuple[Any, int]:
    """Return the layout of int8 in an order, and the number of its elements."""
    to = {"COL32": 1, "COL4_4R2_8C": 8, "COL32_2R_4R4": 32}.get(order, 1)
    ld = {"ROW": columns, "COL": rows}.get(order, 32 * (-(-rows // to) * to))
    layout = cublaslt.matrix_layout_create(cublaslt.CUDA_R_8I, rows, columns, ld)
    layout.order = getattr(cublaslt, f"ORDER_{order}")
    return layout, rows * columns if order in ("ROW", "COL") else -(-columns // 32) * ld


@pytest.mark.parametrize("order", ["ROW", "COL", "COL32"])
@pytest.mark.parametrize("shape", [(64, 96), (40, 33)], ids=str)
def test_an_order_is_made_and_unmade(searched: str, order: str, shape: tuple[int, int]) -> None:
    a = np.random.default_rng(1).integers(-128, 128, shape).astype(np.int8)
    of_tiled, size = tiled_layout(order, *shape)
    tiled, back, of_a = np.zeros(size, np.int8), np.zeros_like(a), cublaslt.layout(a)
    desc = cublaslt.matrix_transform_desc_create(cublaslt.CUDA_R_32F)
    with offload_args(In(a), InOut(tiled), Out(back), device=searched) as (da, dt, db):
        cublaslt.matrix_transform(desc, 1, da, of_a, 0, None, None, dt, of_tiled)
        cublaslt.matrix_transform(desc, 1, dt, of_tiled, 0, None, None, db, of_a)
        with pytest.raises(ExtentError, match=rf"A needs {size} elements"):
            cublaslt.matrix_transform(desc, 1, dt[1:], of_tiled, 0, None, None, db, of_a)
    np.testing.assert_array_equal(back, a)
    if order == "COL32":
        tiled = tiled.reshape(-1, shape[0], 32).transpose(1, 0, 2).reshape(shape[0], -1)[:, : shape[1]].ravel()
    np.testing.assert_array_equal(tiled, a.ravel("F" if order == "COL" else "C"))


@pytest.mark.parametrize("order", ["COL4_4R2_8C", "COL32_2R_4R4"])
def test_an_order_of_tiles_has_every_element_once(searched: str, order: str) -> None:
    """The library converts to these orders, but not from them."""
    a = np.random.default_rng(1).integers(-128, 128, (64, 96)).astype(np.int8)
    of_tiled, size = tiled_layout(order, 64, 96)
    tiled = np.zeros(size, np.int8)
    desc = cublaslt.matrix_transform_desc_create(cublaslt.CUDA_R_32F)
    with offload_args(In(a), InOut(tiled), device=searched) as (da, dt):
        with pytest.raises(ExtentError, match=rf"C needs {size} elements"):
            cublaslt.matrix_transform(desc, 1, da, cublaslt.layout(a), 0, None, None, dt[1:], of_tiled)
        cublaslt.matrix_transform(desc, 1, da, cublaslt.layout(a), 0, None, None, dt, of_tiled)
    np.testing.assert_array_equal(np.sort(tiled), np.sort(a.ravel()))
    assert not np.array_equal(tiled, a.ravel())
    assert not np.array_equal(tiled, a.ravel("F"))


# -- preferences and algorithms ----------------------------------------------------------------------------------------


def product(gpu: str, **preferences: Any) -> tuple[Any, list[Any], list[Any]]:
    """Return the descriptor, layouts and algorithms of a product of 256 x 1024 by 1024 x 128 in half."""
    desc = cublaslt.matmul_desc_create(cublaslt.COMPUTE_32F, cublaslt.CUDA_R_32F)
    layouts = [
        cublaslt.matrix_layout_create(cublaslt.CUDA_R_16F, rows, columns, rows)
        for rows, columns in ((256, 1024), (1024, 128), (256, 128), (256, 128))
    ]
    wanted = cublaslt.preference()
    for name, value in preferences.items():
        setattr(wanted, name, value)
    return desc, layouts, cublaslt.heuristics(desc, *layouts, preference=wanted, count=32, device=gpu)


def check_product(gpu: str, desc: Any, layouts: list[Any], algos: list[Any]) -> None:
    a, b, d = drawn((1024, 256), np.float16), drawn((128, 1024), np.float16, 2), np.zeros((128, 256), np.float16)
    expected = a.astype(np.float64).T @ b.astype(np.float64).T
    for algo in algos:
        with offload_args(In(a), In(b), Out(d), device=gpu) as (da, db, dd):
            la, lb, lc, ld = layouts
            cublaslt.matmul(desc, 1, da, la, db, lb, 0, None, lc, dd, ld, algo, None, 32 << 20)
        assert (np.abs(d.T - expected) <= 2**-9 * np.abs(expected) + 2**-2).all()


def aligned(algo: Any, name: str) -> Any:
    return algo.capability(getattr(cublaslt, f"ALGO_CAP_MIN_ALIGNMENT_{name.upper()}_BYTES"))


@pytest.mark.parametrize(
    ("preferences", "holds"),
    [
        ({"max_workspace_bytes": 0}, lambda algo: algo.workspace == 0),
        ({"max_workspace_bytes": 1 << 16}, lambda algo: algo.workspace <= 1 << 16),
        ({"search_mode": cublaslt.SEARCH_BEST_FIT}, lambda algo: algo.status == 0),
        ({"reduction_scheme_mask": 0}, lambda algo: algo.setting(cublaslt.ALGO_CONFIG_REDUCTION_SCHEME) == 0),
        ({"max_waves_count": 1.0}, lambda algo: algo.waves <= 1),
        *(
            (
                {f"min_alignment_{letter}_bytes": 2},
                lambda algo, name=letter: aligned(algo, name) <= 2,
            )
            for letter in "abcd"
        ),
    ],
    ids=lambda parameter: next(iter(parameter)) if isinstance(parameter, dict) else "",
)
def test_a_search_keeps_to_its_preferences(searched: str, preferences: dict[str, Any], holds: Any) -> None:
    desc, layouts, results = product(searched, **preferences)
    assert results
    assert all(holds(algo) for algo in results)
    check_product(searched, desc, layouts, [algo.algo for algo in results[:4]])


def test_algorithms_are_made_from_their_numbers(searched: str) -> None:
    """Check their numbers, a new algorithm, its capabilities and settings, and its workspace."""
    desc, layouts, results = product(searched)
    half = cublaslt.CUDA_R_16F
    with offload_args(np.zeros(1), device=searched):
        types = (cublaslt.COMPUTE_32F, cublaslt.CUDA_R_32F, half, half, half, half)
        handle = cublaslt.create(device=searched)
        listed = cublaslt.matmul_algo_get_ids(handle, *types, 64)
    numbers = [int(value) for value in np.ravel(listed[0])[: listed[1]]]
    assert results[0].setting(cublaslt.ALGO_CONFIG_ID) in numbers
    taken = 0
    for number in numbers:
        algo, result = np.zeros(8, np.uint64), np.zeros(96, np.uint8)
        cublaslt.matmul_algo_init(handle, *types, number, algo)
        made_algo = cublaslt.Algo(algo, 0, 0.0, 0)
        assert made_algo.setting(cublaslt.ALGO_CONFIG_ID) == number
        tiles = made_algo.capability(cublaslt.ALGO_CAP_TILE_IDS)
        assert isinstance(tiles, tuple)
        stages = made_algo.capability(cublaslt.ALGO_CAP_STAGES_IDS)
        assert isinstance(stages, tuple)
        for tile in tiles[:3]:
            value = np.array([tile], np.uint32)
            cublaslt.matmul_algo_config_set_attribute(algo, cublaslt.ALGO_CONFIG_TILE_ID, value, 4)
            assert made_algo.setting(cublaslt.ALGO_CONFIG_TILE_ID) == tile
            if stages:
                value = np.array([stages[0]], np.uint32)
                cublaslt.matmul_algo_config_set_attribute(algo, cublaslt.ALGO_CONFIG_STAGES_ID, value, 4)
                assert made_algo.setting(cublaslt.ALGO_CONFIG_STAGES_ID) == stages[0]
            try:
                cublaslt.matmul_algo_check(handle, desc, *layouts, algo, result)
            except LibraryError:
                continue
            check_product(searched, desc, layouts, [algo])
            taken += 1
    assert taken


# -- epilogues ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [np.dtype(np.float16), BFLOAT16], ids=str)
@pytest.mark.parametrize("batches", [1, 3])
def test_relu_leaves_its_mask_for_its_gradient_in_a_batch(gpu: str, dtype: Any, batches: int) -> None:
    a, b = drawn((batches, 64, 32), dtype), drawn((batches, 32, 128), dtype, 2)
    g, v = drawn((batches, 64, 32), dtype, 3), drawn((batches, 32, 128), dtype, 4)
    y, dy = np.zeros((batches, 64, 128), dtype), np.zeros((batches, 64, 128), dtype)
    forward = cublaslt.Matmul(a, b, y, epilogue=cublaslt.EPILOGUE_RELU_AUX, device=gpu)
    backward = cublaslt.Matmul(g, v, dy, epilogue=cublaslt.EPILOGUE_DRELU, device=gpu)
    arrays = (In(a), In(b), Out(y), In(g), In(v), Out(dy), Scratch(forward.aux_shape or 1, forward.aux_dtype))
    with offload_args(*arrays, device=gpu) as (pa, pb, py, pg, pv, pdy, aux):
        forward(pa, pb, py, aux=aux)
        backward(pg, pv, pdy, aux=aux)
    exact = [np.asarray(array, np.float64) for array in (a, b, g, v)]
    before, expected = exact[0] @ exact[1], exact[2] @ exact[3]
    near = float(ml_dtypes.finfo(dtype).eps)
    assert (np.abs(np.asarray(y, np.float64) - np.maximum(before, 0)) <= near * np.abs(before) + 2**-10).all()
    wrong = np.abs(np.asarray(dy, np.float64) - expected * (before > 0))
    assert (wrong <= near * np.abs(expected) + 2**-10)[before != 0].all()  # ReLU has no slope at 0


def test_the_largest_magnitude_of_numbers_of_8_bits_is_told(searched: str) -> None:
    if Device(searched).compute_capability < (8, 9):
        pytest.skip("device unavailable: no GPU with products of 8 bits")
    a, b = drawn((64, 128), E4M3), np.asfortranarray(drawn((128, 32), E4M3, 2))
    d, amax, scale = np.zeros((64, 32), E4M3), np.zeros(1, np.float32), np.array([0.5], np.float32)
    with offload_args(In(a), In(b), Out(d), InOut(amax), In(scale), device=searched) as (da, db, dd, dm, ds):
        cublaslt.Matmul(da, db, dd)(da, db, dd, d_scale=ds, d_amax=dm)
    expected = np.asarray(a, np.float64) @ np.asarray(b, np.float64)
    np.testing.assert_allclose(amax, np.abs(expected).max(), rtol=2**-9)
    np.testing.assert_allclose(np.asarray(d, np.float64), expected / 2, rtol=2**-3, atol=2**-6)
