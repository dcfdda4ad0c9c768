"""Kernels in Python whose threads share memory and wait for each other; every device computes NumPy's bits."""

# mypy: ignore-errors

import inspect

import numpy as np
import pytest

from helpers.arrays import ramp
from helpers.devices import here as devices_here
from helpers.devices import open_or_skip
from offload_args import Device, In, InOut, Module, Out, Shared, errors, kernel, offload
from offload_args.kernels import (
    GridStride1D,
    Linear1D,
    PerBlock,
    RowBlocks,
    Tiles,
    atomic_add,
    barrier,
    here,
    shared,
)
from offload_args.kernels.compilers import Target

GPUS = [Target("cuda", "sm_90"), Target("hip", "gfx90a")]


@pytest.fixture(params=devices_here("host", "sim:0", "cuda:0", "hip:0", "hip:1"))
def device(request: pytest.FixtureRequest) -> str:
    """The name of a device of this machine that runs machine code."""
    name = open_or_skip(request.param)
    if Device(name).model.startswith("double"):
        pytest.skip("device unavailable: the double runs no code that it does not know")
    return name


@kernel
def sums(x: In[np.float32], y: Out[np.float32].by(PerBlock())):
    part = shared(256, np.float32)
    k, step = here.thread(), here.threads() // 2
    part[k] = x[here.index()] if here.index() < x.size else np.float32(0)
    barrier()
    while step > 0:
        if k < step:
            part[k] += part[k + step]
        barrier()
        step //= 2
    for i in y.mine():
        y[i] = part[0]


def halved(x: np.ndarray) -> np.ndarray:
    """Return the sums of rows, added in the order of the kernel."""
    while x.shape[1] > 1:
        x = x[:, : x.shape[1] // 2] + x[:, x.shape[1] // 2 :]
    return x[:, 0]


@pytest.mark.parametrize(("block", "size"), [(256, 1000), (64, 1000), (1, 9), ((8, 4, 2), 8)])
def test_a_block_adds_its_elements(device: str, block: int | tuple[int, int, int], size: int) -> None:
    x = np.random.default_rng(3).standard_normal(size).astype(np.float32)
    threads = block if isinstance(block, int) else block[0]  # the first row of threads has all elements
    rows = np.zeros((-(-size // threads), threads), np.float32)
    rows.reshape(-1)[:size] = x
    y = np.zeros(len(rows), np.float32)
    offload(sums, x, y, block=block, device=device)
    np.testing.assert_array_equal(y, halved(rows))


@kernel
def transpose(a: In[np.float64], b: Out[np.float64].by(Tiles(16, 8))):
    tile = shared((8, 17), np.float64)
    row, column, rows, columns = b.box()
    for k in range(here.thread(), rows * columns, here.threads()):
        tile[k // rows, k % rows] = a[column + k // rows, row + k % rows]
    barrier()
    for i, j in b.mine():
        b[i, j] = tile[j - column, i - row]


@pytest.mark.later
@pytest.mark.parametrize("order", ["C", "F"])
def test_a_matrix_is_transposed_tile_by_tile(device: str, order: str) -> None:
    a = np.arange(35 * 50.0).reshape(35, 50)
    b = np.zeros((50, 35), order="C")
    offload(transpose, np.array(a, order=order), b, block=(8, 4), device=device)
    np.testing.assert_array_equal(b, a.T)


@kernel
def blurred(x: In[np.float32], y: Out[np.float32].by(Linear1D())):
    near = shared(130, np.float32)
    first = here.block_index() * here.threads() - 1
    for k in range(here.thread(), here.threads() + 2, here.threads()):
        near[k] = x[min(max(first + k, 0), x.size - 1)]
    barrier()
    for i in y.mine():
        k = i - first
        y[i] = near[k - 1] + near[k] + near[k + 1]


@pytest.mark.later
def test_a_stencil_reads_its_neighbours_from_the_block(device: str) -> None:
    x, y = np.random.default_rng(4).standard_normal(1000).astype(np.float32), np.zeros(1000, np.float32)
    offload(blurred, x, y, block=128, device=device)
    edged = np.concatenate([x[:1], x, x[-1:]])
    np.testing.assert_array_equal(y, edged[:-2] + edged[1:-1] + edged[2:])


@kernel
def histogram(own: Shared[np.int32], x: In[np.uint8], counts: InOut[np.int32]):
    for i in range(here.thread(), own.size, here.threads()):
        own[i] = 0
    barrier()
    for i in range(here.index(), x.size, here.size()):
        atomic_add(own, x[i], 1)
    barrier()
    for i in range(here.thread(), len(own), here.threads()):
        atomic_add(counts, i, own[i])


def test_blocks_count_for_themselves_first(device: str) -> None:
    x = np.random.default_rng(5).integers(0, 256, 10_000).astype(np.uint8)
    counts = np.zeros(256, np.int32)
    offload(histogram, x, counts, grid=7, block=96, shared_bytes=Shared(256, np.int32), device=device)
    np.testing.assert_array_equal(counts, np.bincount(x, minlength=256))


@kernel
def neighbours_sums(times: np.int32, x: In[np.int64], y: Out[np.int64].by(RowBlocks(1))):
    left = shared(32, np.int64)
    right = shared((2, 32), np.uint8)
    k = here.thread()
    row, _, _, columns = y.box()
    own = x[row * columns + k]
    right[1, k] = (k + 1) % here.threads()
    for n in range(times):
        if n == 2:
            continue
        left[k] = own
        barrier()
        own += left[right[1, k]]
        barrier()
        if n == x[0]:
            break
    left[k] = own
    barrier()
    for i, j in y.mine():
        y[i, j] = left[j]


@pytest.mark.later
@pytest.mark.parametrize("times", [0, 1, 5, 9])
def test_what_a_thread_knows_outlives_a_barrier(device: str, times: int) -> None:
    x = np.random.default_rng(6).integers(0, 100, (5, 32))
    x[0, 0] = 7
    y = np.zeros((5, 32), np.int64)
    offload(neighbours_sums, times, x.reshape(-1), y, block=32, device=device)
    expected = x.copy()
    for n in range(times):
        if n != 2:
            expected += np.roll(expected, -1, 1)
        if n == 7:
            break
    np.testing.assert_array_equal(y, expected)


# -- machine code of GPUs ----------------------------------------------------------------------------------------------


@pytest.mark.later
def test_modules_for_gpus_have_barriers_and_shared_memory() -> None:
    texts = {kernel_.name: kernel_._source.compiled(GPUS[0]).data.decode() for kernel_ in (sums, histogram)}
    assert ".shared .align 16 .b8 oa_own_memory[1024];" in texts["sums"]
    assert "st.shared" in texts["sums"] and texts["sums"].count("bar.sync") == 2
    assert ".extern .shared .align 16 .b8 oa_shared_memory[];" in texts["histogram"]
    assert "%dynamic_smem_size" in texts["histogram"]
    assert "atom.shared.add" in texts["histogram"] or "red.shared.add" in texts["histogram"]
    for kernel_, nbytes in ((sums, 1024), (histogram, 0)):
        image = kernel_._source.compiled(GPUS[1])
        (facts,) = image.kernels.values()
        assert facts.shared_bytes == nbytes
        declared = [*kernel_._written.declared, *[np.int64] * (4 * len(kernel_._shapes))]
        Module.load(image.data).kernel(kernel_.name, *declared)


@pytest.mark.parametrize("name", ["cuda:0", "hip:0", "hip:1"])
def test_a_gpu_loads_kernels_of_blocks_and_takes_their_launches(name: str) -> None:
    open_or_skip(name)
    x, y, counts = ramp(1000), np.zeros(4, np.float32), np.zeros(256, np.int32)
    offload(sums, x, y, block=256, device=name)
    offload(histogram, x.astype(np.uint8), counts, grid=4, block=64, shared_bytes=1024, device=name)
    if not Device(name).model.startswith("double"):
        assert counts.sum() == 1000
    assert sums.info(name).fixed_shared_bytes in (0, 1024)  # doubles do not report it


# -- checked accesses --------------------------------------------------------------------------------------------------


@kernel(debug=True)
def beyond(y: Out[np.float32].by(PerBlock()), own: Shared[np.float32]):
    part = shared((2, 8), np.float32)
    if here.thread() == 3 and y.size == 1:
        part[2, 1] = 0
    if y.size == 2:
        own[here.thread()] = 0
    barrier()
    for i in y.mine():
        y[i] = 7


def test_an_access_beyond_shared_memory_is_an_error_with_its_name(device: str) -> None:
    words = r"beyond: thread \(3, 0, 0\) of block \(0, 0, 0\) reads or writes element 17 of the shared array part, "
    with pytest.raises(errors.ExtentError, match=words + "which has 16"):
        offload(beyond, np.zeros(1, np.float32), block=8, device=device)
    with pytest.raises(errors.ExtentError, match=r"element \d of the shared array own, which has 4"):
        offload(beyond, np.zeros(2, np.float32), block=8, shared_bytes=Shared(4, np.float32), device=device)


# -- refusals ----------------------------------------------------------------------------------------------------------

Blocks = Out[np.float32].by(PerBlock())


def in_a_condition(y: Blocks):
    if here.thread() < 3:
        barrier()  # refused: barrier\(\) that the threads of a block need not all reach, by line


def in_a_loop(y: Blocks):
    for k in range(here.thread(), 100, here.threads()):
        barrier()  # refused: move it out of conditions and loops that differ


def over_mine(y: Blocks):
    for i in y.mine():
        barrier()  # refused: need not all reach
        y[i] = 0


def by_a_variable(y: Blocks):
    n = 3
    k = here.index()
    if k > 5:
        n = 4
    while n > 0:
        barrier()  # refused: need not all reach
        n -= 1


def by_shared_memory(y: Blocks):
    part = shared(8, np.int32)
    part[here.thread()] = here.thread()
    if part[0] > 0:
        barrier()  # refused: need not all reach


def after_a_return(y: Blocks):
    if here.index() > 100:
        return
    barrier()  # refused: need not all reach


def after_a_continue(y: Blocks):
    for k in range(3):
        if here.index() > k:
            continue
        barrier()  # refused: need not all reach


def before_a_break(y: Blocks):
    for k in range(3):
        barrier()  # refused: need not all reach
        if here.index() > k:
            break


def after_a_return_in_a_loop(y: Blocks):
    for k in range(3):
        for m in range(2):
            if here.index() > k:
                return
    barrier()  # refused: need not all reach


def with_a_value(y: Blocks):
    k = barrier()  # refused: barrier\(\) is a statement of its own


@kernel.function
def waits(x):
    barrier()
    return x


def in_a_function(y: Blocks):
    for i in y.mine():
        y[i] = waits(i)


def shared_in_a_loop(y: Blocks):
    for k in range(3):
        part = shared(8, np.int32)  # refused: outside of conditions and loops
        part[k] = 0


def of_a_size_that_varies(n: np.int32, y: Blocks):
    part = shared(n, np.float32)  # refused: use numbers, or a parameter of type Shared\[dtype\]
    part[0] = 0


def too_large(y: Blocks):
    part = shared((128, 128), np.float32)  # refused: have 65536 bytes, and may have 49152
    part[0, 0] = 0


def of_three_axes(y: Blocks):
    part = shared((2, 2, 2), np.float32)  # refused: the shape has one or two numbers
    part[0, 0] = 0


def of_no_dtype(y: Blocks):
    part = shared(8, "nothing")  # refused: needs the dtype of its elements
    part[0] = 0


def of_other_rank(y: Blocks):
    part = shared(8, np.float32)
    part[0, 1] = 0  # refused: part is subscripted by one number and by two


def assigned_twice(y: Blocks):
    part = shared(8, np.float32)  # refused: part is assigned twice
    part = 3
    part[0] = 0


def two_of_the_launch(a: Shared[np.float32], b: Shared[np.float32], y: Blocks):  # refused: a launch has one size
    pass


REFUSED = [
    in_a_condition, in_a_loop, over_mine, by_a_variable, by_shared_memory, after_a_return, after_a_continue,
    before_a_break, after_a_return_in_a_loop, with_a_value, shared_in_a_loop, of_a_size_that_varies, too_large,
    of_three_axes, of_no_dtype, of_other_rank, assigned_twice, two_of_the_launch,
]  # fmt: skip


@pytest.mark.parametrize("function", REFUSED, ids=lambda function: function.__name__)
def test_a_barrier_that_threads_miss_is_refused_with_its_line(function) -> None:
    lines, first = inspect.getsourcelines(function)
    (number,) = (i for i, line in enumerate(lines) if "refused: " in line)
    words = lines[number].partition("refused: ")[2].strip()
    with pytest.raises(errors.KernelError, match=words) as caught:
        kernel(function)
    assert f"{__file__}:{first + number}: {function.__name__}: " in str(caught.value)


def test_a_barrier_in_a_function_is_refused_with_its_line() -> None:
    line = waits.function.__code__.co_firstlineno + 2
    with pytest.raises(errors.KernelError, match=rf":{line}: waits: barrier\(\): only a kernel has barriers"):
        kernel(in_a_function)


@pytest.mark.later
def test_a_barrier_that_all_threads_reach_is_not_refused() -> None:
    @kernel
    def reached(n: np.int32, x: In[np.int32], y: InOut[np.float32].by(GridStride1D())):
        if n > 3 and x[here.block_index()] < y.size:
            return
        for k in range(n):
            if k == x[k]:
                continue
            barrier()
            if x[k] > 5:
                break
        while here.blocks() < n:
            barrier()
            n -= 1
        for i in y.mine():
            y[i] = 1

    y = np.zeros(5, np.float32)
    offload(reached, 2, np.arange(5, dtype=np.int32), y, device="host")
    assert (y == 1).all()
