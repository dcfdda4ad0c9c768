"""Uses the library of desk.c from Python; the argument is the path of the library."""

import gc

import numpy as np

from offload_args import desk, errors, offload_args


def refused(error, words, function, *arguments):
    try:
        function(*arguments)
    except error as raised:
        assert words in str(raised), raised
    else:
        raise AssertionError(f"{function}{arguments} was not refused")


assert "Shape" in dir(desk) and desk.motto(0) == "one thing at a time" and desk.motto(1) is None
shape = desk.create_shape()
assert isinstance(shape, desk.Shape) and shape.device is None and repr(shape) == "<desk.Shape>"
desk.set_shape(shape, 2, columns=3)
assert desk.get_shape(shape) == (2, 3) and desk.elements(shape) == 6
refused(errors.LibraryError, "desk.set_shape: the library returned DESK_BAD_SHAPE (1)", desk.set_shape, shape, -1, 0)
refused(errors.ArgumentTypeError, "desk.elements: shape needs a desk.Shape, got the int 3", desk.elements, 3)

A = np.arange(6, dtype=np.float32).reshape((2, 3), order="F")
with offload_args(A, device="sim:0") as (dA,):
    assert dA.address  # asking for the address copies A up; the library does not use the stream
    desk.mark_matrix(shape, 1, 2, 0.5, 2.0, dA, 6)
    mark = (0, 1, -3.0)
    desk.mark_matrix(shape, *mark, 1, dA, 6)
    mark_matrix = desk.mark_matrix
    refused(
        errors.ExtentError, "desk.mark_matrix: A needs 7 elements (size=7), has 6", mark_matrix, shape, *mark, 1, dA, 7
    )
    refused(errors.ArgumentTypeError, "column needs an integer", mark_matrix, shape, 1, "2", 3, 1, dA, 6)
    refused(errors.SizeOverflowError, "column needs an integer", mark_matrix, shape, 1, 2**40, 3, 1, dA, 6)
    refused(errors.ArgumentTypeError, "mark needs a real number", mark_matrix, shape, 1, 2, "3", 1, dA, 6)
    refused(errors.ArgumentTypeError, "shape needs a desk.Shape, got None", mark_matrix, None, *mark, 1, dA, 6)
    refused(errors.ArgumentTypeError, "by needs a real number", mark_matrix, shape, *mark, "2", dA, 6)
    refused(
        errors.HostPointerError, "A needs a DevicePtr[float32], got a NumPy array", mark_matrix, shape, *mark, 1, A, 6
    )
np.testing.assert_array_equal(A, [[0, -3, 8], [2, 6, 0.5]])

with offload_args(A, device="sim:0") as (dA,):
    desk.destroy_shape(shape)
    refused(errors.StalePointerError, "shape was destroyed", mark_matrix, shape, *mark, 1, dA, 6)
assert desk.live() == 0
with desk.create_shape() as made_shape:
    several = [desk.create_shape() for _ in range(10)]
    assert desk.live() == 11
    del several
    gc.collect()
    assert desk.live() == 1
assert desk.live() == 0
print("fine")
