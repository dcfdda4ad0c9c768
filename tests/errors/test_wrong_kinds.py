"""Operands of a wrong kind, such as sparse matrices, regions and None, and options as SciPy writes them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from offload_args import (
    Communicator,
    Device,
    In,
    InOut,
    Kernel,
    Out,
    accelerate,
    blas,
    call,
    fft,
    kernel,
    kernels,
    lapack,
    linalg,
    offload_args,
    record,
    selftest,
    sparse,
    testing,
    trace,
)
from offload_args.errors import (
    ArgumentError,
    ArgumentTypeError,
    DTypeError,
    HostAccessError,
    HostAttributeError,
    HostPointerError,
    SignatureError,
)

scipy_sparse = pytest.importorskip("scipy.sparse")

A = np.array([[4.0, 1.0], [1.0, 3.0]])
B = np.array([1.0, 2.0])
S = scipy_sparse.csr_array(A)

DENSE: dict[str, Callable[[object], object]] = {
    "inv": linalg.inv,
    "matmul": lambda a: linalg.matmul(a, A),
    "solve": lambda a: linalg.solve(A, a),
    "fft": fft.fft,
}


@pytest.mark.parametrize("name", DENSE)
def test_dense_functions_refuse_other_kinds(device: str, name: str) -> None:
    function = DENSE[name]
    with pytest.raises(ArgumentTypeError, match=r"needs an array, got a csr_array; sparse\.matmul .* A\.toarray\(\)"):
        function(S)
    function(S.toarray())
    with pytest.raises(ArgumentTypeError, match=r"needs an array, got None; pass an array"):
        function(None)
    with pytest.raises(ArgumentTypeError, match=r"needs an array, got a str; pass an array"):
        function("A")
    region = offload_args(A, device=device)
    with pytest.raises(ArgumentTypeError, match=r"needs an array, got an offload_args; a region gives its pointers"):
        function(region)
    with region as pointers, pytest.raises(ArgumentTypeError, match=r"got a tuple; `as` gives a tuple, .*; unpack it"):
        function(pointers)


def test_sparse_matrices_on_a_device_name_the_functions_that_take_them(device: str) -> None:
    y = np.zeros(2)
    with sparse.lend(S, device=device) as dA, offload_args(B, y, device=device) as (dx, dy):
        for wrong in (lambda: blas.gemv(1.0, dA, dx, 0.0, dy), lambda: linalg.solve(dA, dx)):
            with pytest.raises(HostPointerError, match=r"sparse\.matmul multiplies by a sparse matrix, sparse"):
                wrong()
        np.testing.assert_allclose(sparse.matmul(dA, dx).to_host(), A @ B)
        with pytest.raises(HostAttributeError, match=r"Matrix\.toarray: .*; to_host\(\)\.toarray\(\) makes"):
            dA.toarray()
        np.testing.assert_array_equal(dA.to_host().toarray(), A)
        with pytest.raises(HostAttributeError, match=r"Matrix\.dot: .*; use sparse\.matmul\(A, x\), or A @ x"):
            dA.dot(dx)
        with pytest.raises(HostAttributeError, match=r"Matrix\.tocsc: .*; use sparse\.convert\(A, format\)"):
            dA.tocsc()
        assert sparse.convert(dA, "csc").format == "csc"
        with pytest.raises(AttributeError, match=r"^sparse\.Matrix has no attribute 'shap'; did you mean shape\?$"):
            dA.shap  # noqa: B018
        with pytest.raises(HostAccessError, match=r"^sparse\.Matrix: the solvers of scipy\.sparse\.linalg run on the"):
            pytest.importorskip("scipy.sparse.linalg").cg(dA, B)
        assert not hasattr(dA, "__dlpack__")


def test_exchanged_operands_of_a_sparse_product_are_told_in_their_order() -> None:
    X = np.array([[1.0, 2.0], [0.0, 5.0]])
    with pytest.raises(ArgumentTypeError, match=r"got ndarray, and x is a sparse matrix: write sparse\.matmul\(x, A\)"):
        sparse.matmul(X, S)
    np.testing.assert_allclose(sparse.matmul(S, X), S @ X)
    np.testing.assert_allclose(sparse.matmul(S, X.T, trans="T").T, X @ S)


def test_numbers_of_scipys_options_are_told_as_letters(device: str) -> None:
    matrix, right, x = np.asfortranarray(A), np.asfortranarray(A), B.copy()
    with offload_args(matrix, right, x, device=device) as (dA, dR, dx):
        wrong: list[tuple[Callable[[], object], str]] = [
            (lambda: blas.trsm(1.0, dA, dR, side=0), 'side="L"'),  # type: ignore[arg-type]
            (lambda: blas.trsm(1.0, dA, dR, side=1), 'side="R"'),  # type: ignore[arg-type]
            (lambda: blas.trsv(dA, dx, uplo=1), 'uplo="L"'),  # type: ignore[arg-type]
            (lambda: blas.trsv(dA, dx, uplo=False), 'uplo="U"'),  # type: ignore[arg-type]
            (lambda: blas.trsv(dA, dx, diag=True), 'diag="U"'),  # type: ignore[arg-type]
            (lambda: blas.trsv(dA, dx, trans=2), 'trans="C"'),  # type: ignore[arg-type]
            (lambda: lapack.syevd(dA, dx, jobz=True), 'jobz="V"'),  # type: ignore[arg-type]
        ]
        for call, remedy in wrong:
            with pytest.raises(ArgumentError, match=rf"; write {remedy}$"):
                call()
        with pytest.raises(ArgumentError, match=r"got 7$"):
            blas.trsm(1.0, dA, dR, side=7)  # type: ignore[arg-type]


def test_transforms_of_several_axes_have_their_functions() -> None:
    with pytest.raises(ArgumentError, match=r"fft\.fft2: axes needs axes of x, .*; fft\.fft transforms one axis$"):
        fft.fft2(B)
    with pytest.raises(ArgumentTypeError, match=r"; fft\.fftn transforms several axes: write fft\.fftn\(x, axes=\("):
        fft.fft(A, axis=(0, 1))  # type: ignore[arg-type]
    np.testing.assert_allclose(fft.fftn(A, axes=(0, 1)), np.fft.fftn(A, axes=(0, 1)))


def saved(write: Callable[[Any], object]) -> Callable[[], object]:
    """Return a call that passes the number of an open file, into which open() would write."""
    return lambda: write(1)


def with_graph(use: Callable[[Any], object]) -> None:
    region = offload_args(B.copy(), device="host")
    with region as (dx,):
        with region.capture() as g:
            blas.scal(2.0, dx)
        use(g)


TWICE = kernels.elementwise("x = 2.0 * x", x=InOut[np.float64])
VALUES: dict[str, tuple[Callable[[], object], str]] = {
    "record": (saved(record), "record: file needs a path, such as .*, got 1$"),
    "Trace.save": (saved(trace().save), "Trace.save: file needs a path"),
    "Kernel.save": (saved(Kernel.save.__get__(TWICE)), "Kernel.save: path needs a path"),
    "PythonKernel.save": (saved(TWICE.save), "PythonKernel.save: path needs a path"),
    "Graph.draw": (lambda: with_graph(lambda g: g.draw(1)), "Graph.draw: file needs a path"),
    "a plan": (lambda: accelerate(plan=1), "accelerate: plan needs a path"),  # type: ignore[arg-type]
    "functions": (
        lambda: accelerate(functions=3),  # type: ignore[arg-type]
        r'accelerate: functions needs families, such as \["gemm", "syrk"\], got 3$',
    ),
    "a function of kernels": (lambda: kernel.function(3), "kernel.function: function needs a function, got 3$"),
    "Communicator.run": (lambda: Communicator.run(3), "Communicator.run: function needs a function, got 3$"),
    "a kernel's name": (
        lambda: kernels.elementwise("x = 2", name="a b", x=InOut[np.float64]),
        "elementwise: name needs a name as in Python, such as 'axpy', got 'a b'$",
    ),
    "a parameter": (lambda: In["flot"], r"In\[dtype\]: dtype needs a dtype of NumPy, such as np.float32, got 'flot'$"),
    "a parameter as In": (lambda: In[np.float32](B), r"In\[float32\] is the parameter .*: write In\(x\)$"),
    "reduce": (lambda: kernels.reduce("sum", x="flot"), "reduce: x needs a dtype of NumPy, such as .*, got 'flot'$"),
    "reduce's dtype": (
        lambda: kernels.reduce("sum", dtype="flot", x=np.float64),
        "reduce: dtype needs a dtype of NumPy, such as np.float32, got 'flot'$",
    ),
    "sim_device": (lambda: testing.sim_device("1 GiB"), "sim_device: capacity needs a whole number, got '1 GiB'$"),
    "fail_call": (lambda: testing.fail_call("sim:0", "2"), "fail_call: k needs a whole number, got '2'$"),
    "part_cost": (
        lambda: testing.part_cost(-1).__enter__(),
        rf"part_cost: nbytes needs 0 to {2**63 - 1}, got -1$",
    ),
    "an index of a region": (
        lambda: offload_args(B)[0],
        "offload_args: a region gives its pointers when it is entered",
    ),  # type: ignore[index]
}


@pytest.mark.later(but="record")
@pytest.mark.parametrize("name", VALUES)
def test_a_value_of_another_kind_is_told_by_function_and_argument(name: str) -> None:
    mistake, text = VALUES[name]
    with pytest.raises((ArgumentError, ArgumentTypeError, SignatureError), match=f"^{text}"):
        mistake()


@pytest.mark.slow
def test_a_device_may_be_named_in_a_selftest() -> None:
    assert selftest.run("host", every=1000)["failures"] == []


def test_what_is_no_array_is_refused_without_a_conversion_that_can_not_work(device: str) -> None:
    A, total = scipy_sparse.csr_array(np.eye(3)), kernels.reduce("sum", x=np.float64)
    functions: list[tuple[Callable[[Any], object], str]] = [
        (lambda x: sparse.matmul(A, x, device=device), r"sparse\.matmul: x needs an array, got "),
        (lambda b: sparse.spsolve(A, b, device=device), r"sparse\.spsolve: b needs an array, got "),
        (lambda a: linalg.inv(a, device=device), r"linalg\.inv: a needs an array, got "),
        (lambda x: fft.fft(x, device=device), r"fft\.fft: x needs an array, got "),
        (lambda x: total(x, device=device), r"sum: x needs an array, got "),
        (lambda x: blas.gemm(1.0, x, np.eye(3), 0.0, np.eye(3), devices=[device]), r"A needs a NumPy array, got \w+$"),
    ]
    for wrong in (None, "abc", b"abc", {}, print, Device(device), (i for i in range(3))):
        for function, words in functions:
            with pytest.raises(ArgumentTypeError, match=words):
                function(wrong)
    with pytest.raises(ArgumentTypeError, match=r"^sum: x is a masked array, whose mask would be lost"):
        total(np.ma.masked_array(np.ones(3), [0, 1, 0]), device=device)
    for dtype, remedy in ((np.clongdouble, r"b\.astype\(np\.complex128\)"), ("M8[D]", "pass an array of numbers")):
        with pytest.raises(DTypeError, match=f"{remedy}$"):
            sparse.spsolve(A, np.zeros(3, dtype), device=device)
        with pytest.raises(DTypeError, match=f"{remedy}$"):
            linalg.solve(np.eye(3), np.zeros(3, dtype), device=device)
    with pytest.raises(ArgumentTypeError, match=r"got csr_array; .* A\.toarray\(\) is dense$"):
        blas.gemm(1.0, A, np.eye(3), 0.0, np.eye(3), devices=[device])
    for nothing in (None, "abc"):
        with pytest.raises(ArgumentTypeError, match=r"argument 1 is .*, not an array: pass an array, or leave it out$"):
            offload_args(nothing, device=device).open()  # type: ignore[call-overload]
    with pytest.raises(ArgumentTypeError, match=r"not an array: pass an array$"):
        offload_args(print, device=device).open()  # type: ignore[call-overload]


def test_a_tuple_or_an_array_in_the_place_of_a_function_or_a_type_is_refused(device: str) -> None:
    x = np.ones(3)
    with pytest.raises(ArgumentTypeError, match=r"^call: function needs a function, got a tuple; write call\("):
        call((x,), x, device=device)  # type: ignore[arg-type]
    wrong: Any
    for wrong in (x, np.ones((2, 2)), None, 3, [1.0, 2.0]):
        with pytest.raises(SignatureError, match=r"^reduce: operation needs one of sum, prod, .*; got "):
            kernels.reduce(wrong, x=np.float64)
        with pytest.raises(SignatureError, match=r"^elementwise: x needs a type, such as In\[np\.float64\] "):
            kernels.elementwise("y = x", x=wrong, y=Out[np.float64])


def test_devices_of_ranks_are_refused_by_their_place() -> None:
    wrong: Any
    for wrong in (3, None, "host", b"host", np.array(1.0), [], {}):
        with pytest.raises(ArgumentTypeError, match=r"^Communicator\.all: devices needs a list such as "):
            Communicator.all(wrong)
    for wrong in (["host", 1.0], ("host", None), np.ones(2)):
        with pytest.raises(ArgumentError, match=r"^Communicator\.all: devices\[\d\] needs a string such as "):
            Communicator.all(wrong)
    wrong = (name for name in ["host"])
    for rank in Communicator.all(wrong):
        rank.close()


def test_a_stream_that_is_none_names_what_is_needed() -> None:
    with pytest.raises(ArgumentTypeError, match=r"got int; pass an object whose method __cuda_stream__ returns \(0, "):
        offload_args(np.ones(3), device="host", stream=1).open()
    with pytest.raises(ArgumentTypeError, match=r"got str; leave it out: the region has a stream of its own$"):
        offload_args(np.ones(3), device="host", stream="mine").open()
