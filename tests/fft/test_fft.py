"""`fft` has the results of numpy.fft in double precision, of arrays and of pointers, in any layout."""

from __future__ import annotations

import os
import sys
import threading
from typing import Any

import numpy as np
import pytest
import scipy.fft
from numpy.typing import NDArray

from helpers.devices import HIP, here, library_or_skip, open_or_skip
from offload_args import Device, DevicePtr, In, Out, blas, fft, offload_args, testing
from offload_args.errors import (
    ArgumentError,
    ArgumentTypeError,
    CaptureError,
    DeviceMemoryError,
    DirectionError,
    DTypeError,
    StalePointerError,
    WrongDeviceError,
)
from offload_args.fft import _choice, _library

LIBRARIES = {"cuda": "cufft", "hip": "hipfft"}  # {backend of GPUs: library}
IN_ONE = ("fft", "ifft", "rfft", "irfft", "hfft", "ihfft")
IN_MANY = ("fft2", "ifft2", "fftn", "ifftn", "rfft2", "irfft2", "rfftn", "irfftn", "hfft2", "ihfft2", "hfftn", "ihfftn")
NAMES = IN_ONE + IN_MANY
SHAPE = (3, 5, 4)
NORMS = (None, "backward", "ortho", "forward")
DTYPES = ("float32", "float64", "complex64", "complex128")
LAYOUTS = ("C", "F", "gaps", "backwards", "transposed")


@pytest.fixture(params=here("host", "sim:0", "cuda:0", HIP))
def on(request: pytest.FixtureRequest) -> str:
    """The name of a device that has transforms."""
    device = open_or_skip(request.param)
    backend = device.partition(":")[0]
    if backend in LIBRARIES:
        library_or_skip(LIBRARIES[backend], device)
    return device


@pytest.fixture
def without_scipy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let numpy.fft compute, as if SciPy were not installed."""
    monkeypatch.setitem(sys.modules, "scipy.fft", None)
    transforms = _library.Transforms()
    monkeypatch.setattr(_choice, "adapter_of", lambda function, adapters, device: transforms)


def values(dtype: str, shape: tuple[int, ...] = SHAPE) -> NDArray[Any]:
    random = np.random.default_rng(37)
    numbers: NDArray[Any] = random.standard_normal(shape)
    if np.dtype(dtype).kind == "c":
        numbers = numbers + 1j * random.standard_normal(shape)
    return numbers.astype(dtype)


def laid_out(array: NDArray[Any], layout: str) -> NDArray[Any]:
    """Return an array of these elements in a layout."""
    if layout == "F":
        return np.asfortranarray(array)
    if layout == "gaps":
        roomy = np.zeros([2 * length + 1 for length in array.shape], array.dtype)
        roomy[tuple(slice(1, None, 2) for _ in array.shape)] = array
        return roomy[tuple(slice(1, None, 2) for _ in array.shape)]
    if layout == "backwards":
        return np.ascontiguousarray(array[..., ::-1])[..., ::-1]
    if layout == "transposed":
        return np.ascontiguousarray(array.T).T
    return array


def taken_by(name: str) -> tuple[str, ...]:
    """Return the dtypes that a function takes."""
    return DTYPES[:2] if name.startswith(("rfft", "ihfft")) else DTYPES


def numpys(name: str) -> Any:
    """Return NumPy's function. hfftn and similar functions, which NumPy lacks, transform one axis after the other."""
    if hasattr(np.fft, name):
        return getattr(np.fft, name)
    axes_of_2 = (-2, -1) if name.endswith("2") else None

    def transform(x: Any, s: Any = None, axes: Any = axes_of_2, norm: Any = None) -> Any:
        s = s if s is None or np.iterable(s) else (s,)
        if axes is None:
            axes = range(-(x.ndim if s is None else len(s)), 0)
        axes = axes if np.iterable(axes) else (axes,)
        lengths = [None] * len(axes) if s is None else [None if n == -1 else n for n in s]
        *steps, (n, axis) = zip(lengths, axes, strict=True)
        if name.startswith("i"):
            x = np.fft.ihfft(x, n, axis, norm)
        for n_of_step, axis_of_step in steps:
            x = getattr(np.fft, name[:-1].replace("h", ""))(x, n_of_step, axis_of_step, norm)
        return x if name.startswith("i") else np.fft.hfft(x, n, axis, norm)

    return transform


def agree(result: Any, array: NDArray[Any], name: str, *arguments: Any) -> None:
    """Check a result by numpy.fft in double precision."""
    double = array.astype(np.complex128 if array.dtype.kind == "c" else np.float64)
    with np.errstate(all="raise"):
        expected = numpys(name)(double, *arguments)
    single = array.dtype in (np.float32, np.complex64)
    assert isinstance(result, np.ndarray) and result.shape == expected.shape
    assert result.dtype.kind == expected.dtype.kind
    assert result.dtype.itemsize == expected.dtype.itemsize // (2 if single else 1)
    largest = np.abs(expected).max(initial=1.0)
    assert np.abs(result - expected).max(initial=0.0) <= (1e-5 if single else 1e-13) * largest


def test_arrays_of_each_dtype_have_numpys_results(on: str) -> None:
    for name, dtype in [(each, dtype) for each in NAMES for dtype in taken_by(each)]:
        array = values(dtype)
        before = array.copy()
        result = getattr(fft, name)(array, device=on)
        agree(result, array, name)
        assert result.flags.c_contiguous and np.array_equal(array, before)


@pytest.mark.parametrize("name", NAMES)
def test_arrays_of_any_layout_have_numpys_results(on: str, name: str) -> None:
    for layout in LAYOUTS:
        array = laid_out(values(taken_by(name)[-1]), layout)
        agree(getattr(fft, name)(array, device=on), array, name)


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("name", NAMES)
def test_pointers_of_any_strides_have_numpys_results(on: str, name: str, order: str) -> None:
    array = laid_out(values(taken_by(name)[-1], (4, 5, 6)), order)
    with offload_args(In(array), device=on) as (pointer,):
        for part, elements in (
            (pointer, array),
            (pointer.T, array.T),
            (pointer[::2, 1:, ::3], array[::2, 1:, ::3]),
            (pointer[3], array[3]),
            (pointer[:, 2], array[:, 2]),
        ):
            transformed = getattr(fft, name)(part)
            assert isinstance(transformed, DevicePtr)
            agree(transformed.to_host(), elements, name)


@pytest.mark.parametrize("name", IN_ONE)
def test_each_length_axis_and_norm_of_one_axis(on: str, name: str) -> None:
    array = values(taken_by(name)[-1])
    for axis in (0, 1, -1, np.int64(-3)):
        for n in (None, 1, 2, 5, np.int32(8), 9):
            agree(getattr(fft, name)(array, n, axis, device=on), array, name, n, axis)
    for norm in NORMS:
        for n in (4, 7):
            agree(getattr(fft, name)(array, n, 1, norm, device=on), array, name, n, 1, norm)


@pytest.mark.parametrize("name", IN_MANY)
def test_each_length_axis_and_norm_of_several_axes(on: str, name: str) -> None:
    array = values(taken_by(name)[-1])
    for axes in ((0, 1), (2, 0), (-1,), (1, -1), (0, 2, 1)):
        for s in (None, (4, 3, 7)[: len(axes)], (1, 6, 2)[: len(axes)]):
            agree(getattr(fft, name)(array, s, axes, device=on), array, name, s, axes)
    for norm in NORMS:
        agree(getattr(fft, name)(array, (4, 7), (2, 0), norm, device=on), array, name, (4, 7), (2, 0), norm)
    agree(getattr(fft, name)(array, (2, 6), None, device=on), array, name, (2, 6), (1, 2))
    agree(getattr(fft, name)(array, (-1, 6), (0, 1), device=on), array, name, (3, 6), (0, 1))
    agree(getattr(fft, name)(array, 6, 1, device=on), array, name, (6,), (1,))  # SciPy takes numbers, too


@pytest.mark.parametrize("on", here("host", "sim:0"), indirect=True)
@pytest.mark.parametrize("name", NAMES)
def test_without_scipy_numpy_transforms(on: str, name: str, without_scipy: None) -> None:
    for dtype in taken_by(name):
        array = values(dtype)
        agree(getattr(fft, name)(array, device=on), array, name)
        with offload_args(In(array), device=on) as (pointer,):
            agree(getattr(fft, name)(pointer).to_host(), array, name)


@pytest.mark.parametrize("name", NAMES)
def test_float16_becomes_float32_as_in_scipy(on: str, name: str) -> None:
    half = values("float64").astype(np.float16)
    agree(getattr(fft, name)(half, device=on), half.astype(np.float32), name)


def test_lists_integers_subclasses_and_other_byte_orders_are_taken() -> None:
    agree(fft.fft([1, 2, 3]), np.array([1.0, 2.0, 3.0]), "fft")
    agree(fft.rfft(np.array([True, False, True])), np.array([1.0, 0.0, 1.0]), "rfft")
    agree(fft.fft2(values("float64").view(np.recarray)), values("float64"), "fft2")
    swapped = values("float64").astype(">f8")
    agree(fft.fftn(swapped), values("float64"), "fftn")


@pytest.mark.parametrize("shape", [(0, 4), (4, 0, 3)])
def test_no_elements_have_a_transform_without_any(on: str, shape: tuple[int, ...]) -> None:
    array = np.zeros(shape)
    assert fft.fft(array, device=on).shape == shape
    assert fft.rfft(array, device=on).shape == (*shape[:-1], shape[-1] // 2 + 1)
    with offload_args(array, device=on) as (pointer,):
        assert fft.irfft(pointer)._shape == (*shape[:-1], 2 * (shape[-1] - 1))


def test_an_axis_of_no_elements_is_filled_with_zeros(on: str) -> None:
    assert np.array_equal(fft.fft(np.zeros((2, 0)), 3, device=on), np.zeros((2, 3)))


def test_no_axes_leave_the_elements_as_they_are(on: str) -> None:
    assert np.array_equal(fft.fftn(np.arange(3.0), axes=(), device=on), np.arange(3.0))


@pytest.mark.parametrize("name", ["fftn", "ifftn"])
@pytest.mark.parametrize("dtype", [np.float32, np.complex128])
def test_a_0d_array_is_its_own_transform(on: str, name: str, dtype: Any) -> None:
    transform = getattr(fft, name)(np.array(2, dtype), device=on)
    assert transform.shape == ()
    assert transform == 2


def test_the_arguments_of_scipy_that_change_nothing_are_taken(on: str) -> None:
    array = values("complex128")
    before = array.copy()
    agree(fft.fft(array, None, -1, None, True, 2, device=on), array, "fft")
    agree(fft.fftn(array, overwrite_x=True, workers=-1, device=on), array, "fftn")
    assert np.array_equal(array, before)


def test_workers_that_scipy_refuses_are_refused(on: str) -> None:
    few = -(os.cpu_count() or 1)
    array = values("complex128")
    agree(fft.fft(array, workers=few, device=on), array, "fft")
    for workers in (0, few - 1):
        with pytest.raises(
            ArgumentError, match=rf"^fft\.fft: workers needs 1 at least, or {few} to -1, got {workers};"
        ):
            fft.fft(array, workers=workers, device=on)
    with pytest.raises(ArgumentTypeError, match=r"^fft\.irfft2: workers needs a whole number, got 1\.5"):
        fft.irfft2(array, workers=1.5, device=on)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["irfftn", "hfftn", "irfft2", "hfft2"])
def test_minus_one_is_the_length_of_x_in_transforms_to_real_numbers(on: str, name: str) -> None:
    array = values("complex128", (3, 5))
    expected = getattr(scipy.fft, name)(array, (4, -1))
    assert expected.shape == (4, 5)
    result = getattr(fft, name)(array, (4, -1), device=on)
    assert result.shape == (4, 5) and np.allclose(result, expected, rtol=0, atol=1e-13)
    with offload_args(array, device=on) as (pointer,):
        assert np.allclose(getattr(fft, name)(pointer, (4, -1)).to_host(), expected, rtol=0, atol=1e-13)


def test_objects_that_are_no_numbers_are_named_before_their_axes(on: str) -> None:
    for other in (None, "ab"):
        with pytest.raises(ArgumentTypeError, match=r"^fft\.fft: x needs an array, got (None|a str); pass"):
            fft.fft(other, device=on)
    with pytest.raises(DTypeError, match=r"^fft\.fft: array type .* of x is unsupported in fft; convert it first"):
        fft.fft([None, None], device=on)
    with pytest.raises(ArgumentError, match=r"^fft\.fftn: x needs an array, or lists that NumPy can convert"):
        fft.fftn([[1.0], [1.0, 2.0]], device=on)


def test_a_result_that_no_memory_can_have_is_named(on: str) -> None:
    array = values("complex128", (0, 3))
    with pytest.raises(ArgumentError, match=r"^fft\.fft: n needs a result of \d+ bytes at most, got \(10{20},\) for x"):
        fft.fft(array, 10**20, device=on)
    with offload_args(np.ones((3, 2)), device=on) as (pointer,):
        with pytest.raises(
            ArgumentError, match=r"^fft\.irfftn: s needs a result of \d+ bytes at most, got \(3, 1152921"
        ):
            fft.irfftn(pointer, (3, 2**60))


def test_arrays_are_computed_on_the_default_device_unless_one_is_named() -> None:
    open_or_skip("sim:0")
    names = (Device.default().name, "sim:0")
    fft.fft(np.ones(4))  # the plan exists from now on
    before = [Device(name).counters.allocations for name in names]
    fft.fft(np.ones(4))
    fft.fft(np.ones(4), device="sim:0")
    fft.fft(np.ones(4))
    after = [Device(name).counters.allocations for name in names]
    assert after[0] >= before[0] + 2 and after[1] == before[1] + 1


def test_a_chain_of_transforms_and_calls_of_blas(on: str) -> None:
    signal, result = values("complex128", (64,)), np.zeros(64, complex)
    with offload_args(In(signal), Out(result), device=on) as (dx, dy):
        transformed = fft.fft(dx)
        blas.scal(2.0, transformed[:3])
        back = fft.ifft(transformed)
        dy.copy_from(back)
    expected = np.fft.fft(signal)
    expected[:3] *= 2
    assert np.allclose(result, np.fft.ifft(expected), rtol=0, atol=1e-13)


def test_earlier_calls_are_seen(on: str) -> None:
    array = np.ones(16)
    with offload_args(array, device=on) as (dx,):
        blas.scal(3.0, dx)
        assert fft.fft(dx).to_host()[0] == 48
        assert fft.fft(array, device=on)[0] == 48  # the array is lent, so the device's elements are transformed
        dx.fill(0.5)
        assert fft.rfft(dx).to_host()[0] == 8
    assert np.array_equal(array, np.full(16, 0.5))


def test_memory_ends_with_the_last_pointer(on: str) -> None:
    array = np.ones(64)
    with offload_args(array, device=on) as (dx,):
        used = Device(on).counters.memory_used
        transformed = fft.fft(dx)
        assert Device(on).counters.memory_used >= used + 64 * 16
        del transformed
        blas.scal(1.0, dx)
        assert Device(on).counters.memory_used <= used + array.nbytes


@pytest.mark.parametrize(
    ("name", "arguments", "words"),
    [
        ("fft", {"axis": 3}, r"fft\.fft: axis needs axes of x, which has shape \(3, 5, 4\), got 3"),
        ("fft", {"n": 0}, r"fft\.fft: n needs 1 at least along axis 2, got 0$"),
        ("ifft", {"n": -1}, r"fft\.ifft: n needs 1 at least along axis 2, got -1$"),
        ("irfft", {"n": 0, "axis": 0}, r"fft\.irfft: n needs 1 at least along axis 0, got 0$"),
        ("fft", {"norm": "unit"}, r"fft\.fft: norm must be .backward. or .ortho. or .forward., got 'unit'$"),
        ("fftn", {"axes": (0, -3)}, r"fft\.fftn: axes needs each axis once, got \(0, -3\)"),
        ("fftn", {"axes": (0, 4)}, r"fft\.fftn: axes needs axes of x, which has shape \(3, 5, 4\), got 4"),
        ("fftn", {"s": (1, 2, 3, 4)}, r"fft\.fftn: s has 4 lengths, and x of shape \(3, 5, 4\) has 3 axes"),
        ("ifft2", {"s": (2,)}, r"fft\.ifft2: s needs a length for each of 2 axes, got 1"),
        ("fft2", {"s": (2, -2)}, r"fft\.fft2: s needs 1 at least along axis 2, got -2"),
        ("rfftn", {"axes": ()}, r"fft\.rfftn: axes needs one axis at least, got none"),
        ("irfftn", {"s": ()}, r"fft\.irfftn: axes needs one axis at least, got none"),
    ],
)
def test_wrong_arguments_are_named(on: str, name: str, arguments: dict[str, Any], words: str) -> None:
    array = values("float64")
    with pytest.raises(ArgumentError, match=words):
        getattr(fft, name)(array, **arguments, device=on)
    with offload_args(array, device=on) as (pointer,):
        with pytest.raises(ArgumentError, match=words):
            getattr(fft, name)(pointer, **arguments)


def test_the_length_of_one_element_that_is_half_of_a_transform_is_needed(on: str) -> None:
    with pytest.raises(ArgumentError, match=r"irfft: n needs 1 at least along axis 1, got 0; pass n for x of shape"):
        fft.irfft(np.ones((3, 1)), device=on)
    agree(fft.irfft(np.ones((3, 1)), 1, device=on), np.ones((3, 1)), "irfft", 1)


def test_other_kinds_of_arguments_are_named() -> None:
    with pytest.raises(ArgumentTypeError, match=r"^fft\.fft: n needs a whole number, got 2\.5"):
        fft.fft(np.ones(4), 2.5)  # type: ignore[arg-type]
    with pytest.raises(ArgumentTypeError, match=r"^fft\.fft: axis needs a whole number, got None"):
        fft.fft(np.ones(4), axis=None)  # type: ignore[arg-type]
    with pytest.raises(ArgumentTypeError, match=r"^fft\.fftn: axes\[0\] needs a whole number, got 'x'"):
        fft.fftn(np.ones(4), axes=("x",))  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match=r"^fft\.fft: axis needs axes of x, which has shape \(\), got -1"):
        fft.fft(3.0)
    with pytest.raises(DTypeError, match=r"^fft\.fft: array type \w+ of x is unsupported in fft; convert it first"):
        fft.fft(np.ones(4, np.longdouble))
    with pytest.raises(DTypeError, match=r"^fft\.rfft: x needs real numbers, got complex128; call fft\.fft"):
        fft.rfft(np.ones(4, complex))
    with pytest.raises(DTypeError, match=r"^fft\.rfftn: x needs real numbers, got complex64; call fft\.fftn"):
        fft.rfftn(np.ones(4, np.complex64))
    with pytest.raises(ArgumentTypeError, match=r"^fft\.fft: x is a masked array"):
        fft.fft(np.ma.masked_array(np.ones(4)))


def test_pointers_that_have_no_elements_to_read_are_named(on: str) -> None:
    integers = np.ones(4, np.int32)
    with offload_args(Out(np.ones(4)), integers, device=on) as (dx, di):
        with pytest.raises(DirectionError, match=r"^fft\.fft: x was lent as Out and would be read before it is writt"):
            fft.fft(dx)
        with pytest.raises(DTypeError, match=r"^fft\.fft: x needs .*float64.*, got int32"):
            fft.fft(di)
        other = "host" if on != "host" else "sim:0"
        with pytest.raises(WrongDeviceError, match=rf"^fft\.fft: x is on {on}, got device='{other}'"):
            fft.fft(dx, device=other)
        dx.fill(1)
    with pytest.raises(StalePointerError, match=r"^fft\.fft: x belongs to a region that has ended"):
        fft.fft(dx)


@pytest.mark.parametrize("name", NAMES)
def test_captured_transforms_run_at_each_replay(on: str, name: str) -> None:
    dtype = taken_by(name)[-1]
    x = values(dtype, (4, 6, 8))
    region = offload_args(x, device=on)
    with region as (dx,):
        with region.capture(x=dx) as g:
            first = getattr(fft, name)(dx)
            last = getattr(fft, name)(dx[::-1].T, norm="ortho")
        for seed in range(2):
            new = np.random.default_rng(seed).standard_normal(x.shape).astype(dtype)
            g.replay(x=new)
            agree(first.to_host(), new, name)
            expected = numpys(name)(new[::-1].T, norm="ortho")
            np.testing.assert_allclose(last.to_host(), expected, rtol=0, atol=1e-13 * np.abs(expected).max())


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("length", [2, 3, 8, 15, 31, 37, 97, 106])
def test_captured_transforms_of_each_length_and_dtype(on: str, name: str, length: int) -> None:
    """Lines are cut or filled with zeros. The lengths have small and large factors."""
    for dtype in taken_by(name):
        if on.partition(":")[0] in LIBRARIES and name in _library.TO_REAL and dtype.startswith("float"):
            continue  # the host would convert
        x = values(dtype, (3, 20, 2))
        arguments: dict[str, Any] = {"n": length, "axis": 1} if name in IN_ONE else {"s": (2, length), "axes": (0, 1)}
        region = offload_args(x, device=on)
        with region as (dx,):
            with region.capture() as g:
                result = getattr(fft, name)(dx, **arguments)
            g.replay()
            double = x.astype(np.complex128 if x.dtype.kind == "c" else np.float64)
            expected = numpys(name)(double, **arguments)
            tolerance = (1e-5 if x.dtype in (np.float32, np.complex64) else 1e-12) * np.abs(expected).max()
            np.testing.assert_allclose(result.to_host(), expected, rtol=0, atol=tolerance)


def test_a_captured_transform_along_no_axis_is_a_copy(on: str) -> None:
    x = values("complex128")
    region = offload_args(x, device=on)
    with region as (dx,):
        with region.capture() as g:
            result = fft.fftn(dx, axes=())
        g.replay()
        assert np.array_equal(result.to_host(), x)


def test_threads_replay_captured_transforms(on: str) -> None:
    x = values("complex128", (64,))
    region = offload_args(x, device=on)
    with region as (dx,):
        with region.capture() as g:
            result = fft.fft(dx)
        threads = [threading.Thread(target=g.replay) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        agree(result.to_host(), x, "fft")


def test_a_captured_transform_refuses_what_the_host_converts(on: str) -> None:
    if on.partition(":")[0] not in LIBRARIES:
        return  # the CPU converts in a graph, too
    region = offload_args(np.ones((4, 1)), device=on)
    with region as (dx,):
        for name in ("rfft", "irfft2"):
            with pytest.raises(CaptureError, match=rf"^fft\.{name}: .* converts between real and complex"):
                with region.capture():
                    getattr(fft, name)(dx, *([(4, 2)] if name == "irfft2" else []))


def test_a_device_that_is_full_is_named() -> None:
    testing.sim_device(index=0, capacity=1024)
    with offload_args(np.ones(64), device="sim:0") as (dx,):
        with pytest.raises(DeviceMemoryError, match=r"^fft\.fft: "):
            fft.fft(dx)


@pytest.mark.parametrize("start", [1, 2, 3])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_real_numbers_that_begin_anywhere_in_an_array(on: str, dtype: Any, start: int) -> None:
    x = np.random.default_rng(start).standard_normal(24).astype(dtype)
    with offload_args(x, device=on) as (dx,):
        for n in (8, 9):
            half = fft.rfft(dx[start : start + n])
            np.testing.assert_allclose(half.to_host(), np.fft.rfft(x[start : start + n]), atol=1e-5)
            np.testing.assert_allclose(fft.irfft(half, n).to_host(), x[start : start + n], atol=1e-5)


@pytest.mark.parametrize("shape", [(3, 7, 3), (2, 9, 5), (5, 3, 2), (4, 4, 4), (1, 5, 3), (3, 5, 1)])
def test_real_numbers_along_an_axis_in_the_middle(on: str, shape: tuple[int, ...]) -> None:
    x = np.random.default_rng(1).standard_normal(shape)
    with offload_args(x, device=on) as (dx,):
        half = fft.rfft(dx, axis=1)
        back = fft.irfft(half, shape[1], axis=1)
        np.testing.assert_allclose(half.to_host(), np.fft.rfft(x, axis=1), atol=1e-13)
        np.testing.assert_allclose(back.to_host(), x, atol=1e-13)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("norm", NORMS)
def test_later_transforms_of_a_kind_have_the_results_of_the_first(on: str, name: str, norm: str | None) -> None:
    dtype, shape = taken_by(name)[-1], (4, 6, 8)
    stacked = np.random.default_rng(5).standard_normal((3, *shape)).astype(dtype)
    with offload_args(In(stacked), device=on) as (dx,):
        results = [getattr(fft, name)(dx[i], norm=norm) for i in range(3)]  # all are kept
        for i, result in enumerate(results):
            expected = numpys(name)(stacked[i], norm=norm)
            np.testing.assert_allclose(result.to_host(), expected, rtol=0, atol=1e-12 * np.abs(expected).max())


def test_later_transforms_of_a_kind_refuse_the_same(on: str) -> None:
    array = np.ones(8, np.complex64)
    with offload_args(array, device=on) as (dx,):
        for _ in range(2):
            fft.fft(dx, 8)
        with pytest.raises(ArgumentTypeError, match=r"^fft\.fft: n needs a whole number, got 8\.0"):
            fft.fft(dx, 8.0)
        with pytest.raises(ArgumentError, match=r"^fft\.fft: norm must be .* or .forward., got \[\]"):
            fft.fft(dx, 8, norm=[])
    with pytest.raises(StalePointerError, match=r"^fft\.fft: x belongs to a region that has ended"):
        fft.fft(dx, 8)
    region = offload_args(Out(array), device=on)
    with region as (dx,):
        with pytest.raises(DirectionError, match=r"^fft\.fft: x was lent as Out and would be read before it is writt"):
            fft.fft(dx, 8)
        dx.fill(1)
        with region.capture() as g:
            transform = fft.fft(dx, 8)
        g.replay()
        assert np.allclose(transform.to_host(), np.fft.fft(np.ones(8)))
        fft.fft(dx, 8)


def test_a_later_transform_of_real_numbers_may_begin_anywhere(on: str) -> None:
    x = np.random.default_rng(2).standard_normal(24).astype(np.float32)
    with offload_args(x, device=on) as (dx,):
        for start in (0, 2, 1, 3, 0):
            half = fft.rfft(dx[start : start + 8])
            np.testing.assert_allclose(half.to_host(), np.fft.rfft(x[start : start + 8]), atol=1e-5)


@pytest.mark.parametrize("name", ["fft", "rfft"])
@pytest.mark.parametrize("view", [np.s_[::2], np.s_[::-1], np.s_[5:1:-2]], ids=str)
def test_a_view_of_a_lent_array_has_the_elements_of_the_device(on: str, name: str, view: slice) -> None:
    transform, x = getattr(fft, name), np.arange(1.0, 9.0)
    with offload_args(x, device=on) as (dx,):
        blas.scal(10.0, dx)
        result = transform(x[view], device=on)
    np.testing.assert_allclose(result, getattr(np.fft, name)(x[view]), rtol=1e-12, atol=1e-12)
    assert x[0] == 10
