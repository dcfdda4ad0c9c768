"""Kernels of one line: formulas for each element, and reductions of arrays, their rows or their columns."""

# mypy: ignore-errors

import ast
import itertools
import re

import numpy as np
import pytest

from helpers.arrays import ramp
from offload_args import In, InOut, Out, Scratch, call, errors, fft, kernel, launch, offload, offload_args, testing
from offload_args.kernels import Linear2D, elementwise, reduce

SCALE = 3


@kernel.function
def twice(x):
    return 2 * x


def test_a_formula_is_a_kernel(running_device) -> None:
    axpy = elementwise("y = a * x + y", a=np.float32, x=In[np.float32], y=InOut[np.float32])
    x, y = ramp(1000), ramp(1000)
    offload(axpy, 2.0, x, y, device=running_device)
    np.testing.assert_array_equal(y, 3 * ramp(1000))
    with offload_args(x, y, device=running_device) as (dx, dy):
        launch(axpy, -2.0, dx, dy, block=64)
    np.testing.assert_array_equal(y, ramp(1000))


def test_a_formula_has_variables_functions_and_the_number_of_the_element(running_device) -> None:
    distance = elementwise(
        "d = x - m; s = sqrt(d * d) + twice(SCALE); y = i + s; z = floor(d)", name="distance", m=np.float64,
        x=In[np.float64], y=Out[np.float64], z=Out[np.float64],
    )  # fmt: skip
    x, y, z = np.linspace(-5, 5, 50), np.zeros(50), np.zeros(50)
    offload(distance, 0.5, x, y, z, device=running_device)
    np.testing.assert_array_equal(y, np.arange(50) + (abs(x - 0.5) + 6))
    np.testing.assert_array_equal(z, np.floor(x - 0.5))
    assert distance.name == "distance"


def test_a_chain_of_transforms_and_a_formula_makes_no_round_trip(running_device) -> None:
    multiply = elementwise("a = a * b", a=InOut[np.complex128], b=In[np.complex128])
    x, h, y = np.linspace(-1, 1, 64), ramp(64).astype(float), np.empty(64)
    with testing.counting(running_device) as moved:
        with offload_args(In(x), In(h), Out(y), device=running_device) as (dx, dh, dy):
            transform = fft.rfft(dx)
            multiply(transform, fft.rfft(dh))
            dy.copy_from(fft.irfft(transform, 64))
    assert (moved.bytes_up, moved.bytes_down) == (x.nbytes + h.nbytes, y.nbytes)
    expected = np.array([sum(x[j] * h[i - j] for j in range(64)) for i in range(64)])
    np.testing.assert_allclose(y, expected, rtol=0, atol=1e-11 * abs(expected).max())


@pytest.mark.later
def test_a_partition_of_rows_and_columns_takes_matrices_of_both_orders(running_device) -> None:
    formula = elementwise("y = x * 10 + j", x=In[np.float32], y=Out[np.float32].by(Linear2D()))
    x, y = ramp(35).reshape(5, 7), np.zeros((5, 7), np.float32, "F")
    offload(formula, x, y, device=running_device)
    np.testing.assert_array_equal(y, x * 10 + np.arange(7))


@pytest.mark.later
def test_a_dtype_that_does_not_suit_is_told_with_the_conversion() -> None:
    formula, total = elementwise("y = x", x=In[np.float32], y=Out[np.float32]), reduce("sum", x=np.float32)
    x, y = np.ones(4), np.zeros(4, np.float32)
    words = r"argument 1 \(x\) .* got a pointer to float64; convert it first: x = x\.astype\(np\.float32\)$"
    with pytest.raises(errors.DTypeError, match=words):
        offload(formula, x, y, device="host")
    with pytest.raises(
        errors.DTypeError, match=r"x needs dtype float32, got float64; .* x = x\.astype\(np\.float32\)$"
    ):
        total(x, device="host")
    offload(formula, x.astype(np.float32), y, device="host")
    assert (y == 1).all() and total(x.astype(np.float32), device="host") == 4


def test_arrays_of_a_formula_have_one_shape() -> None:
    formula = elementwise("y = x", x=In[np.float32], y=Out[np.float32])
    with pytest.raises(errors.ArgumentError, match=r"argument 1 \(x\) needs the shape of argument 2 \(y\)"):
        offload(formula, ramp(5), ramp(6), device="host")


@pytest.mark.parametrize(
    ("formula", "parameters", "words"),
    [
        ("y = = x", {}, "invalid syntax: write statements such as"),
        ("y = x[1]", {}, r"x\[1\]: a formula has x without a subscript"),
        (
            "y = nothing(x)",
            {},
            r"<elementwise 'y = nothing\(x\)'>:3: elementwise: the name nothing: nothing has it: "
            "before the kernel, define a function nothing that begins with @kernel.function",
        ),
        (
            "y = x + z",
            {},
            r"the name z: nothing has it: add a parameter, z=In\[np\.float32\] for an array or z=np\.float32 for a",
        ),
        ("y = heaviside(x, 1)", {}, r"kernels do not have this function: write \(x > 0\) \+ h \* \(x == 0\)"),
        ("y = gamma(x)", {}, r"kernels do not have this function: compute its values on the host, as scipy\.special"),
        ("z = x", {}, "does not use the parameter y"),
        ("y = a * xx", {"a": np.float32}, "the parameter x: the formula has xx, and the parameters are .*: rename"),
        ("x = y", {}, r"assigns x: declare x=Out\[np\.float32\]"),
        ("x = y; y = x", {}, r"assigns x: declare x=Out\[np\.float32\]"),
        ("y = 1.0; x += y", {}, r"assigns x: declare x=InOut\[np\.float32\]"),
        ("y += x", {}, "y is Out: declare InOut"),
        ("y = x + i", {"i": np.int32}, "the parameter i: it is an index"),
        (
            "y = x * name",
            {"name": np.float32},
            "name needs a name as in Python, such as 'axpy', got .*: an array or a num",
        ),
        ("y = x", {"name": "1"}, "name needs a name as in Python, such as 'axpy', got '1'$"),
        ("y = x", {"x": "float32"}, r"x needs a type, such as In\[np\.float64\] .*; got 'float32'$"),
        ("y = x", {"y": In[np.float32]}, r"needs an array that it writes: y=Out\[np.float32\]"),
        ("y = x + y", {"y": np.float64}, r"needs an array that it writes: y=InOut\[np.float64\]$"),
        ("y += x", {"y": np.float32}, r"needs an array that it writes: y=InOut\[np.float32\]$"),
        ("y = x; y = y * y", {"y": np.float32}, r"needs an array that it writes: y=Out\[np.float32\]$"),
        (
            "x + y",
            {"y": np.float32},
            r"needs an array that it writes: write 'z = x \+ y', and declare z=Out\[np.float32\]$",
        ),
    ],
)
def test_a_formula_that_is_no_kernel_is_refused(formula, parameters, words) -> None:
    with pytest.raises((errors.KernelError, errors.SignatureError), match=words):
        elementwise(formula, **{"x": In[np.float32], "y": Out[np.float32], **parameters})


OPERATIONS = ("sum", "min", "max", "argmin", "argmax")


@pytest.mark.later
@pytest.mark.parametrize("operation", ["argmax", *(pytest.param(name, marks=pytest.mark.slow)
                                                   for name in ("sum", "min")),
                                       *(pytest.param(name, marks=pytest.mark.exhaustive)
                                         for name in ("max", "argmin"))])  # fmt: skip
def test_a_reduction_is_that_of_numpy(running_device, operation) -> None:
    rng = np.random.default_rng(5)
    of_numpy = getattr(np, operation)
    whole = reduce(operation, x=np.float32)
    for size in (1, 2, 63, 64, 65, 2048, 2049, 70_001):
        x = rng.integers(-9, 9, size).astype(np.float32)
        assert whole(x, device=running_device) == of_numpy(x), size
    for axis in (0, 1):
        by_lines = reduce(operation, axis=axis, A=np.float32)
        for shape in ((1, 1), (70, 3), (3, 300), (65, 129)):
            for order in "CF":
                A = np.array(rng.integers(-9, 9, shape).astype(np.float32), order=order)
                np.testing.assert_array_equal(by_lines(A, device=running_device), of_numpy(A, axis=axis))


@pytest.mark.later
def test_a_reduction_of_lent_arrays_writes_its_result(running_device) -> None:
    A, sums, total = ramp(70 * 100).reshape(70, 100), np.zeros(70, np.float32), np.zeros((), np.float32)
    by_rows, whole = reduce("sum", axis=1, A=np.float32), reduce("sum", x=np.float32)
    with offload_args(A, Out(sums), total.reshape(1), device=running_device) as (dA, dsums, dtotal):
        by_rows(dA, dsums)
        whole(dsums, dtotal)
    np.testing.assert_array_equal(sums, A.sum(1))
    assert total == A.sum()
    call(by_rows, A, sums, device=running_device)
    np.testing.assert_array_equal(sums, A.sum(1))


@pytest.mark.later
@pytest.mark.parametrize("operation", ["sum", pytest.param("argmax", marks=pytest.mark.slow)])
def test_a_captured_reduction_has_its_memory_from_the_region(running_device, operation) -> None:
    rng = np.random.default_rng(8)
    x, y, of_numpy = *rng.permutation(10_000).reshape(2, 5000).astype(np.float32), getattr(np, operation)
    reduction = reduce(operation, x=np.float32)
    result = np.zeros(1, reduction.dtype)
    region = offload_args(x, result, *reduction.scratch(x.shape), device=running_device)
    with region as (dx, dresult, *memory):
        with region.capture(x=dx) as g:
            reduction(dx, dresult, scratch=memory)
            with pytest.raises(errors.CaptureError, match=r"lend \*reduction.scratch\(\(5000,\)\) with the arrays"):
                reduction(dx, dresult)
        g.replay()
        assert dresult.to_host() == of_numpy(x)
        g.replay(x=y)
        assert dresult.to_host() == of_numpy(y)


@pytest.mark.later
def test_the_memory_of_a_reduction_follows_from_the_shape(running_device) -> None:
    total, places = reduce("sum", axis=0, A=np.float32), reduce("argmin", x=np.float32)
    assert total.scratch((64, 7)) == ()
    assert [memory.shape for memory in total.scratch((65, 7))] == [(2 * 7,)]
    assert [memory.dtype for memory in places.scratch((65,))] == [np.float32, np.int64]
    A, sums = ramp(65 * 7).reshape(65, 7), np.zeros(7, np.float32)
    with offload_args(A, sums, *total.scratch((500, 7)), device=running_device) as (dA, dsums, dmemory):
        total(dA, dsums, scratch=dmemory)  # the memory may be larger
    np.testing.assert_array_equal(sums, A.sum(0))


def test_memory_that_a_reduction_can_not_use_is_named() -> None:
    total, x, result = reduce("sum", x=np.float32), ramp(100), np.zeros(1, np.float32)
    with offload_args(x, result, x[:1].astype(float), device="host") as (dx, dresult, dother):
        for memory in [(), dother, (dresult, dresult), (result,)]:
            with pytest.raises(errors.ArgumentError, match="sum: scratch needs 2 elements of float32, as"):
                total(dx, dresult, scratch=memory)
    with pytest.raises(errors.ArgumentError, match="sum: scratch is for lent arrays"):
        total(x, scratch=())


def test_a_formula_is_reduced(running_device) -> None:
    dot = reduce("sum", "x * y", x=np.float64, y=np.float64)
    x, y = np.random.default_rng(6).random((2, 5000))
    np.testing.assert_allclose(dot(x, y, device=running_device), x @ y, rtol=1e-14)
    assert dot(x, y, device=running_device) == dot(x, y, device="host")


@pytest.mark.later
@pytest.mark.parametrize("dtype", ["float16", "int8", *(pytest.param(dtype, marks=pytest.mark.slow)
                                                       for dtype in ("bool", "uint16", "complex64"))])  # fmt: skip
def test_sums_have_the_dtype_of_numpy(running_device, dtype) -> None:
    x = np.random.default_rng(6).integers(0, 2, 1000).astype(dtype)
    result = reduce("sum", x=dtype)(x, device=running_device)
    assert result == x.sum() and result.dtype == x.sum().dtype


@pytest.mark.later
def test_a_nan_is_the_greatest_and_of_equal_elements_the_first_counts(running_device) -> None:
    x = np.array([1, 5, np.nan, 5, np.nan] * 40, np.float32)
    argmax = reduce("argmax", x=np.float32)
    assert argmax(x, device=running_device) == np.argmax(x) == 2
    assert argmax(x[:2].repeat(80), device=running_device) == 80


@pytest.mark.later
def test_a_sum_of_nothing_is_0_and_a_least_element_of_nothing_is_refused() -> None:
    for shape in ((0,), (0, 2), (2, 0)):
        assert reduce("sum", x=np.float32)(np.zeros(shape, np.float32), device="host") == 0
    with pytest.raises(errors.ArgumentError, match=r"min: x has no elements along the axis: \(0,\)"):
        reduce("min", x=np.float32)(np.zeros(0, np.float32), device="host")


@pytest.mark.parametrize(
    ("operation", "options", "words"),
    [
        (
            "sum(x * x)",
            {"x": np.float32},
            r"got .sum\(x \* x\).; the formula is an argument of its own: kernels\.reduce\(.sum., .x \* x., \.\.\.\)$",
        ),
        ("mean", {"x": np.float32}, "operation needs one of sum, prod, min, max, argmin, argmax; got 'mean'"),
        ("sum", {}, "needs the dtype of each array"),
        (
            "sum",
            {"x": np.float32, "axis": 2},
            "axis needs 0 or 1 of a matrix .-2 or -1., or None, which reduces all .*; got 2",
        ),
        ("sum", {"x": np.float32, "axis": (0, 1)}, r"axis needs 0 or 1 .*; got \(0, 1\)"),
        (
            "sum",
            {"x": np.float32, "formula": "z * z"},
            "does not use the parameter x: the formula has z, and the param",
        ),
        ("sum", {"x": np.float32, "y": np.float32, "formula": "x"}, "does not use the parameter y: leave it out"),
        ("sum", {"x": np.float32, "y": np.float32}, "sum of several arrays needs a formula"),
        ("sum", {"keepdims": True, "x": np.float32}, "keepdims is no keyword of reduce: reshape the result"),
        ("sum", {"x": np.float32, "initial": 1.0}, "initial is no keyword of reduce: combine it with the result"),
        ("sum", {"x": np.float32, "where": True, "formula": "x"}, "where is no keyword of reduce: write the condition"),
        ("max", {"x": np.complex64}, "complex numbers have no order"),
    ],
)
def test_a_reduction_that_is_none_is_refused(operation, options, words) -> None:
    with pytest.raises(errors.SignatureError, match=words):
        reduce(operation, options.pop("formula", ""), **options)


@pytest.mark.later
def test_a_formula_of_integers_has_integers_unless_the_dtype_says_so(running_device) -> None:
    x = np.array([5, 7, 0], np.uint8)
    assert reduce("sum", "x - 1", x=np.uint8)(x, device=running_device) == np.sum(x - np.uint8(1))  # 0 becomes 255
    assert reduce("argmax", "x / 8", x=np.uint8, dtype=np.float64)(x, device=running_device) == 1
    assert reduce("max", "x / 2", x=np.uint8, dtype=np.float64)(x, device=running_device) == 3.5
    assert reduce("max", "x / 2", x=np.uint8, dtype=np.uint8)(x, device=running_device) == 3
    assert reduce("sum", "x > 4", x=np.uint8)(x, device=running_device) == 2
    for operation, formula in [("argmax", "x / 4"), ("sum", "np.sqrt(x)")]:
        with pytest.raises(errors.KernelError, match="value is float64, and the arrays are integers: pass dtype=np"):
            reduce(operation, formula, x=np.uint8)(x, device=running_device)


@pytest.mark.later
def test_complex_values_are_not_made_real(running_device) -> None:
    z, x = np.array([3 + 4j, 1j]), np.zeros(2)
    assert reduce("max", "abs(z)", z=np.complex128, dtype=np.float64)(z, device=running_device) == 5
    offload(elementwise("x = z.imag", z=In[np.complex128], x=Out[np.float64]), z, x, device=running_device)
    assert x.tolist() == [4, 1]
    with pytest.raises(errors.KernelError, match=r"complex128 does not become float64: take \.real"):
        reduce("sum", z=np.complex128, dtype=np.float64)(z, device=running_device)
    with pytest.raises(errors.KernelError, match=r"complex128 does not become float64: take \.real"):
        offload(elementwise("x = z", z=In[np.complex128], x=Out[np.float64]), z, x, device=running_device)


def test_arrays_that_a_reduction_does_not_take_are_named() -> None:
    total, rows = reduce("sum", x=np.float32), reduce("sum", axis=1, A=np.float32)
    x = np.zeros((4, 6), np.float32)
    argument, dtype = errors.ArgumentError, errors.DTypeError
    for reduction, arguments, error, words in [
        (total, [x.astype(float)], dtype, "sum: x needs dtype float32, got float64"),
        (rows, [x[0]], argument, "sum: A needs a matrix for axis=1, got shape (6,): leave axis out"),
        (rows, [x[None]], argument, "got shape (1, 4, 6): reshape it to a matrix, such as x.reshape(-1, x.shape[-1])"),
        (rows, [x, [0.0] * 4], argument, "sum: the result needs a NumPy array, got [0.0, 0.0, 0.0, 0.0]"),
        (rows, [x, np.zeros(3, np.float32)], argument, "sum: the result needs 4 elements of float32, got 3 of float32"),
        (rows, [x, np.zeros(4)], dtype, "sum: the result needs 4 elements of float32, got 4 of float64"),
        (rows, [], argument, "sum: needs 2 arguments, A and the result; got 0"),
    ]:
        with pytest.raises(error, match=re.escape(words)):
            reduction(*arguments, device="host")


def test_pointers_to_elements_with_gaps_are_refused_with_a_copy(running_device) -> None:
    total, x, result = reduce("sum", x=np.float32), ramp(24).reshape(4, 6), np.zeros(1, np.float32)
    with offload_args(x, result, Scratch((3,), np.float32), device=running_device) as (dx, dresult, dc):
        with pytest.raises(
            errors.ArgumentError, match=r"got shape \(4, 3\) .*: reduce along an axis first, or copy it"
        ):
            total(dx[:, :3], dresult)
        words = (
            r"C order without gaps, .*\(24,\): copy it: lend Scratch\(\(3,\), np\.float32\) as dc, and dc\.copy_from"
        )
        with pytest.raises(errors.ArgumentError, match=words):
            total(dx[:3, 1], dresult)
        dc.copy_from(dx[:3, 1])
        total(dc, dresult)
    assert result == x[:3, 1].sum()


@pytest.mark.filterwarnings("ignore:.*has strides that a copy can't keep:offload_args.errors.PerformanceWarning")
@pytest.mark.parametrize("axis", [None, pytest.param(-1, marks=pytest.mark.slow), -2])
def test_arrays_of_any_order_and_strides_are_reduced(running_device, axis) -> None:
    A, weights = ramp(35).reshape(5, 7), np.linspace(1, 2, 35).astype(np.float32).reshape(7, 5)
    places = reduce("argmax", "A * w", axis=axis, A=np.float32, w=np.float32)
    for view in (A, np.asfortranarray(A), A[::-1], A[:, ::-2], A[::2, 1:5], np.broadcast_to(A[:1], (5, 7))):
        w = weights.T[: view.shape[0], : view.shape[1]]
        expected = np.argmax(view * w, axis=axis)
        np.testing.assert_array_equal(places(view, w, device=running_device), expected)
    if axis is None:
        cube = np.asfortranarray(A.reshape(5, 7, 1)[:4].repeat(2, 2))
        ones = np.ones_like(cube)
        for view in (cube, cube.transpose(2, 0, 1), A[0, ::-1]):
            expected = np.argmax(view)
            assert places(view, ones if view is cube else np.ones_like(view), device=running_device) == expected


def test_the_newest_elements_of_a_lent_array_in_fortran_order_are_reduced(running_device) -> None:
    A = np.asfortranarray(ramp(6).reshape(2, 3))
    with offload_args(A, device=running_device) as (dA,):
        dA.fill(2)
        assert reduce("sum", x=np.float32)(A, device=running_device) == 12


@pytest.mark.slow
def test_a_result_in_any_order_is_written() -> None:
    A, result = ramp(24).reshape(6, 4), np.zeros((2, 3), np.float32, "F")
    reduce("sum", axis=1, A=np.float32)(A, result, device="host")
    np.testing.assert_array_equal(result, A.sum(1).reshape(2, 3))


def test_wrong_formulas_and_operations_are_told_with_the_right_form() -> None:
    x, result = np.ones(3), np.empty(2)
    wrong = (
        (
            lambda: elementwise(np.exp, x=In[np.float64], y=Out[np.float64]),
            "needs a string, such as 'y = exp.x.', got <uf",
        ),
        (lambda: elementwise("exp(x)", x=In[np.float64], y=Out[np.float64]), r"parameter y: write 'y = exp\(x\)'$"),
        (lambda: reduce("mean", x=np.float64), r"got 'mean'; for a mean, divide the sum by x\.size$"),
        (lambda: reduce(np.sum, x=np.float64), "; write 'sum'$"),
        (
            lambda: reduce("sum", x=In[np.float64]),
            r"x needs a dtype, got In\[float64\]: write x=np\.float64, and pass the",
        ),
        (lambda: reduce("sum", x=x), r"x needs a dtype, got an ndarray: write x=np\.float64"),
    )
    for make, words in wrong:
        with pytest.raises(errors.SignatureError, match=words):
            make()
    total = reduce("sum", x=np.float64)
    with offload_args(x, result) as (dx, dresult):
        with pytest.raises(
            errors.ArgumentError, match="got 1; with pointers, the result is one, too; NumPy arrays need n"
        ):
            total(dx)
        with pytest.raises(
            errors.ArgumentError, match=r"needs 1 element of float64, got 2 .*= np\.empty\(1, np\.float64\)$"
        ):
            total(dx, dresult)


def test_integers_in_arrays_are_the_newest(running_device: str) -> None:
    shift = elementwise("y = x + n", x=In[np.float64], y=Out[np.float64], n=np.int64)
    number, x, y = np.array(1), np.zeros(2), np.zeros(2)
    with offload_args(number, x, y, device=running_device) as (dnumber, dx, dy):
        dnumber.fill(7)
        launch(shift, dx, dy, number)
    assert y.tolist() == [7, 7]


def test_own_names_in_formulas_are_refused() -> None:
    for make in (
        lambda: reduce("sum", "x * oa__own_k", x=np.float64),
        lambda: reduce("sum", "oa__own_k", oa__own_k=np.float64),
        lambda: elementwise("oa__k = x; y = oa__k", x=In[np.float64], y=Out[np.float64]),
    ):
        with pytest.raises(
            errors.KernelError, match=r"the name oa__\w*k: names that begin with oa__ are the package's"
        ):
            make()


def names_in_templates() -> set[str]:
    """Return the names in the kernels of reductions, as the texts of these kernels have them."""
    names = {"min", "np", "pi", "elementwise"}
    for operation, axis in itertools.product(("sum", "max", "argmin"), (None, 0, 1)):
        reduction = reduce(operation, axis=axis, x=np.float64)
        for is_first, is_last in itertools.product((False, True), (False, True)):
            tree, values, annotations = reduction._template(is_first, is_last)
            in_tree = {getattr(node, "id", getattr(node, "arg", "")) for node in ast.walk(tree)} - {""}
            assert all(name.startswith("oa__own_") for name in {*in_tree, *values, *annotations} - {"x"})
            names |= {tree.name, *(name.removeprefix("oa__own_") for name in in_tree)}
    return names - {"x"}


@pytest.mark.parametrize("axis", [None, pytest.param(0, marks=pytest.mark.slow)])
def test_a_formula_may_have_some_names_of_the_loops_around_it(axis) -> None:
    place = {"reduce": reduce, "float64": np.float64, "a": 2.0, "k": 3.0, "step": 5.0, "min": 7.0}
    total = eval(f"reduce('sum', '(i - a * k) * step + run * min', axis={axis}, i=float64, run=float64)", place)
    x = np.arange(1.0, 201.0).reshape(20, 10)
    expected = ((x - 6) * 5 + 2 * x * 7).sum(axis)
    np.testing.assert_array_equal(total(x, 2 * x, device="host"), expected)


# The slow run has all names as arrays, half of them at once, in one of the reductions.
@pytest.mark.parametrize(
    ("operation", "axis", "kind"),
    [
        pytest.param(
            *(operation, axis, kind),
            marks=pytest.mark.slow if kind == "numbers" or operation == "argmin" else pytest.mark.exhaustive,
        )
        for (operation, axis), kind in itertools.product(
            [("sum", None), ("max", 0), ("argmin", 1)], ["numbers", "arrays", "other arrays"]
        )
    ],
)
def test_a_formula_may_have_all_names_of_the_loops_around_it(operation, axis, kind) -> None:
    names = sorted(names_in_templates())
    assert {"a", "b", "i", "k", "run", "end", "extent", "step", "out", "line", "reduce_sum", "type"} <= {*names}
    names = names[{"arrays": 1}.get(kind, 0) :: 1 if kind == "numbers" else 2]  # a kernel takes fewer arrays
    numbers = {name: float(2 + at) for at, name in enumerate(names)}
    formula = " + ".join(f"{at % 5 + 1} * {name}" for at, name in enumerate(names))
    value, of_numpy = eval(formula, {}, numbers), getattr(np, operation)
    x = np.arange(1.0, 201.0).reshape(20, 10)[:, ::-1].copy()
    if kind == "numbers":
        place = {"reduce": reduce, "float64": np.float64, **numbers}
        reduction = eval(f"reduce({operation!r}, '(x - ({formula}))**2', axis={axis}, x=float64)", place)
        np.testing.assert_array_equal(reduction(x, device="host"), of_numpy((x - value) ** 2, axis=axis))
    else:
        reduction = reduce(operation, formula, axis=axis, **dict.fromkeys(names, np.float64))
        arrays = [x * number for number in numbers.values()]
        np.testing.assert_array_equal(reduction(*arrays, device="host"), of_numpy(x * value, axis=axis))


def test_a_formula_of_elements_may_have_the_kernels_name() -> None:
    place = {"make": elementwise, "elementwise": 3.0, "In": In[np.float64], "Out": Out[np.float64]}
    y = np.zeros(2)
    offload(eval("make('y = x * elementwise', x=In, y=Out)", place), np.ones(2), y, device="host")
    assert y.tolist() == [3, 3]


def test_messages_of_reductions_have_no_names_of_the_package() -> None:
    x = np.ones(3)
    with pytest.raises(errors.KernelError, match=r"reduce_sum: \(y := x\[k\]\): assign in a line of its own$"):
        reduce("sum", "(y := x) + y", x=np.float64)(x)
    with pytest.raises(errors.KernelError, match=r"^reduce: x\[0\]: a formula has x without a subscript"):
        reduce("sum", "x[0]", x=np.float64)(x)
    with offload_args(np.zeros((2, 2))) as (dresults,):
        with pytest.raises(errors.ArgumentError, match=r"argument 2 \(out\) .* np\.ascontiguousarray\(out\)"):
            reduce("sum", A=np.float64, axis=1)(dresults, dresults[:, 1])


def test_results_with_strides_are_written(running_device: str) -> None:
    A, results = np.arange(12.0).reshape(4, 3), np.full((4, 2), 7.0)
    reduce("sum", A=np.float64, axis=1)(A, results[::-1, 0], device=running_device)
    np.testing.assert_array_equal(results, np.stack([A.sum(axis=1)[::-1], np.full(4, 7.0)], axis=1))


def test_a_reduction_of_a_pointer_and_an_array_says_how_to_lend_the_array(device: str) -> None:
    total, out = reduce("sum", x=np.float64), np.zeros(1)
    with offload_args(np.ones(5), device=device) as (dx,):
        for wrong, name in ((lambda: total(dx, out), "out"), (lambda: total(np.ones(5), dx[:1]), "x")):
            with pytest.raises(
                errors.HostPointerError, match=rf"^sum: {name} needs a device pointer.*with offload_args\(x, out\) as"
            ):
                wrong()
