"""Kernels in Python with arrays of structs: fields are read and written in place, with the same results as in NumPy."""

# mypy: ignore-errors

from __future__ import annotations

import numpy as np
import pytest

from helpers.devices import here as devices_here
from helpers.devices import open_or_skip
from offload_args import Device, In, InOut, Kernel, Out, Scratch, errors, kernel, offload, offload_args
from offload_args.kernels import GridStride1D, Linear1D, PerBlock, Tiles, atomic_add, barrier, here, shared
from offload_args.kernels.compilers import Target

BODY = np.dtype(
    [("mass", np.float32), ("place", np.float64), ("speed", np.float64), ("alive", np.bool_), ("z", np.complex64),
     ("half", np.float16), ("kind", np.int16)], align=True,
)  # fmt: skip
PAIR = np.dtype([("x", np.float32), ("y", np.float32)])  # laid out as in C, with or without align
KINDS = [np.float16, np.float32, np.int8, np.uint64, np.bool_, np.complex128]


@pytest.fixture(params=devices_here("host", "sim:0", "cuda:0", "hip:0"))
def device(request: pytest.FixtureRequest) -> str:
    """The name of a device of this machine that runs machine code."""
    name = open_or_skip(request.param)
    if Device(name).model.startswith("double"):
        pytest.skip("device unavailable: the double runs no code that it does not know")
    return name


def bodies(shape: int | tuple[int, ...]) -> np.ndarray:
    rng = np.random.default_rng(3)
    values = np.zeros(shape, BODY)
    for name in BODY.names:
        values[name] = rng.integers(0, 2 if name == "alive" else 100, shape)
    values["z"] += 1j * values["mass"]
    return values


@kernel
def move(step: np.float64, b: InOut[BODY].by(Linear1D())):
    for i in b.mine():
        if b[i].alive:
            b[i].speed += b[i].mass
            b[i].place = b[i].place + step * b[i]["speed"]
            b[i]["half"] *= 0.5
            b[i].z, b[i].kind = b[i].z * 2, b[i].kind + 1


def test_fields_are_read_and_written(device: str) -> None:
    b = bodies(1000)
    expected = b.copy()
    alive = b["alive"]
    expected["speed"][alive] += b["mass"][alive]
    expected["place"][alive] += 0.25 * expected["speed"][alive]
    expected["half"][alive] *= np.float16(0.5)
    expected["z"][alive] *= 2
    expected["kind"][alive] += 1
    offload(move, 0.25, b, device=device)
    np.testing.assert_array_equal(b, expected)


@pytest.mark.later(but="gfx90a")
@pytest.mark.parametrize("target", [Target("cuda", "sm_90"), Target("hip", "gfx90a"), Target("hip", "gfx1100")],
                         ids=lambda target: target.processor)  # fmt: skip
def test_fields_are_compiled_for_gpus(target: Target) -> None:
    assert move._source.compiled(target).data


@kernel
def swap(a: In[PAIR], b: Out[PAIR].by(Tiles(4, 8)), sums: Out[np.float32].by(Tiles(4, 8))):
    for i, j in b.mine():
        b[i, j].x, b[i, j].y = a[j, i].y, a[j, i].x
        sums[i, j] = a[j, i].x + a[j, i]["y"]


@pytest.mark.later
def test_matrices_of_structs_have_rows_and_columns(device: str) -> None:
    a, b, sums = np.zeros((17, 30), PAIR), np.zeros((30, 17), PAIR), np.zeros((30, 17), np.float32)
    a["x"], a["y"] = np.arange(17 * 30).reshape(17, 30), 7
    offload(swap, a, b, sums, device=device)
    np.testing.assert_array_equal(b["y"], a["x"].T)
    np.testing.assert_array_equal(b["x"], a["y"].T)
    np.testing.assert_array_equal(sums, (a["x"] + a["y"]).T)


NUMBERS = np.dtype([("x", np.float32), ("n", np.int64)], align=True)


@kernel
def placed(a: In[NUMBERS], new: NUMBERS, at: np.int32, b: Out[NUMBERS].by(GridStride1D())):
    for i in b.mine():
        if i == at:
            b[i] = new
        else:
            b[i] = a[a.size - 1 - i]


@pytest.mark.later
def test_whole_structs_are_assigned(device: str) -> None:
    a, b = np.zeros(50, NUMBERS), np.zeros(50, NUMBERS)
    a["x"], a["n"] = np.arange(50) / 4, 2**40 + np.arange(50)
    expected = a[::-1].copy()
    expected[7] = (0.5, -1)
    offload(placed, a, (0.5, -1), 7, b, device=device)
    np.testing.assert_array_equal(b, expected)


@pytest.mark.later(but="float16")
@pytest.mark.parametrize("dtype", KINDS, ids=lambda dtype: dtype.__name__)
def test_a_field_of_any_dtype_stays_what_it_was(dtype: type, device: str) -> None:
    struct = np.dtype([("before", np.int8), ("it", dtype), ("after", np.int8)], align=True)

    @kernel
    def copy(a: In[struct], b: InOut[struct].by(Linear1D())):
        for i in b.mine():
            b[i].it = a[i].it

    a, b = np.zeros(9, struct), np.zeros(9, struct)
    a["it"], b["before"], b["after"] = np.arange(9), 3, 4
    offload(copy, a, b, device=device)
    np.testing.assert_array_equal(b["it"], a["it"])
    assert (b["before"] == 3).all() and (b["after"] == 4).all()


@kernel
def sums(a: In[BODY], parts: Out[np.float64].by(PerBlock())):
    part = shared(1, np.float64)
    if here.thread() == 0:
        part[0] = 0
    barrier()
    for i in range(here.index(), a.size, here.size()):
        atomic_add(part, 0, a[i].place)
    barrier()
    for i in parts.mine():
        parts[i] = part[0]


def test_a_region_lends_the_bytes_and_all_checks_count_structs(device: str) -> None:
    b = bodies(40)
    expected = b.copy()
    offload(move, 1.0, expected[:20], device=device)
    as_bytes = b.view((np.uint8, BODY.itemsize))
    with offload_args(as_bytes, Scratch((3, 8), np.uint8), device=device) as (db, dother):
        with pytest.raises(
            errors.DTypeError,
            match=r"bytes of structs \(mass, place, .*\), np.uint8 with a last extent of 40; got uint8 "
            r"of shape \(3, 8\): lend x.view\(\(np.uint8, 40\)\)",
        ):
            move(1.0, dother)
        with pytest.raises(errors.DTypeError, match="bytes of structs"):
            move(1.0, db.T)
        with pytest.raises(errors.CoverageError, match="40"):
            move[1, 32](1.0, db)
        move(1.0, db[:20])
    np.testing.assert_array_equal(b, expected)


@pytest.mark.later
def test_blocks_add_fields_up(device: str) -> None:
    a, parts = bodies(200), np.zeros(3)
    offload(sums, a, parts, block=32, device=device)
    assert parts.sum() == a["place"].sum()


def test_another_struct_of_the_same_size_is_refused(device: str) -> None:
    other = np.dtype([("x", np.float32), ("z", np.float32)])
    a, b, total = np.zeros((3, 3), other), np.zeros((3, 3), PAIR), np.zeros((3, 3), np.float32)
    for argument in (a, In(a)):
        with pytest.raises(errors.DTypeError, match="needs an array of .*'y'.*, got one of .*'z'"):
            offload(swap, argument, b, total, device=device)
    with pytest.raises(
        errors.DTypeError, match=r"or, to a kernel of such structs, their bytes, x.view\(\(np.uint8, 8\)\)"
    ):
        with offload_args(a, device=device):
            pass


@kernel
def far(a: In[PAIR], y: Out[np.float32].by(Linear1D())):
    for i in y.mine():
        y[i] = a[i + 1].x


def test_a_read_out_of_bounds_is_found() -> None:
    with pytest.raises(errors.ExtentError, match=r"element 4 of argument 1 \(a\), which has 4"):
        offload(far, np.zeros(4, PAIR), np.zeros(4, np.float32), device="host")


@pytest.mark.later
def test_a_kernel_in_cpp_takes_them_too() -> None:
    source = """
    #include <offload_args/kernel.h>
    struct Pair { float x, y; };
    OA_KERNEL(turn, oa::In<Pair> a, oa::Out<Pair> b, int n) {
      for (auto element : b.mine(oa::Linear1D(n), here)) *element = Pair{a[element.index()].y, a[element.index()].x};
    }"""
    turn = Kernel.compile(source, "turn", [In[PAIR], Out[PAIR].by(Linear1D()), np.int32], device="host")
    a, b = np.zeros(300, PAIR), np.zeros(300, PAIR)
    a["x"] = np.arange(300)
    offload(turn, a, b, 300, device="host")
    np.testing.assert_array_equal(b["y"], a["x"])
    np.testing.assert_array_equal(b["x"], a["y"])
