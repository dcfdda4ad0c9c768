"""Kernels in Python that are refused, with the file, the line, the construct and the remedy, before anything moves."""

# mypy: ignore-errors

import inspect
import math
import random
import re
import sys
import threading
import traceback
from pathlib import Path

import numpy as np
import pytest

from helpers.written import function_of
from offload_args import In, InOut, Out, errors, kernel, offload
from offload_args.kernels import GridStride1D, Linear1D, Linear2D, Tiles, atomic_add, here, shared
from offload_args.kernels.compilers import Target

Line = InOut[np.float32].by(Linear1D())
Matrix = Out[np.float32].by(Tiles(8, 8))
TABLE = np.arange(3)


BALL = np.dtype([("x", np.float32), ("h", np.float16)], align=True)


def field_that_is_not_there(ball: BALL, y: Line):
    for i in y.mine():
        y[i] = ball.z  # refused: ball.z: the struct has no field z: it has x, h


def field_by_name_that_is_not_there(ball: BALL, y: Line):
    for i in y.mine():
        y[i] = ball["z"]  # refused: ball.z: the struct has no field z: it has x, h


def half_in_a_struct(ball: BALL, y: Line):
    for i in y.mine():
        y[i] = ball.h  # refused: ball.h: kernels read no float16 in a struct: make the field a float32


def loop_over_an_array(x: In[np.float32], y: Line):
    for i in y:  # refused: for i in y: .*this thread's elements, write for i in y.mine\(\); .* range\(y.size\)
        y[i] = x[i]


def loop_over_an_array_without_partition(x: In[np.float32], y: Out[np.float32]):
    for i in x:  # refused: for i in y.mine\(\), and declare y with a partition, .*; .* for i in range\(x.size\)
        y[i] = x[i]


def number_of_the_thread_as_in_numba(x: In[np.float32], y: Line):
    i = cuda.grid(1)  # noqa: F821  # refused: the name cuda: .*for i in y.mine\(\) .*here.index\(\)
    y[i] = x[i]


def field_that_is_stored(ball: BALL, y: Line):
    for i in y.mine():
        ball.x = 1  # refused: ball.x is assigned: assign variables and elements of arrays
        y[i] = ball.x


Balls = InOut[BALL].by(Linear1D())


@kernel.function
def first_of(a):
    return a[0]


def no_such_field(x: In[BALL], y: Line):
    for i in y.mine():
        y[i] = x[i].z  # refused: x\[i\].z: the struct has no field z: it has x, h


def no_such_field_stored(balls: Balls):
    for i in balls.mine():
        balls[i].z = 1  # refused: balls\[i\].z: the struct has no field z: it has x, h


def whole_struct(x: In[BALL], y: Line):
    for i in y.mine():
        ball = x[i]  # refused: x\[i\], a struct: read its fields, as x\[i\].x
        y[i] = ball.x


def struct_of_a_number(balls: Balls):
    for i in balls.mine():
        balls[i] = 0  # refused: balls\[i\] is assigned: it is a struct: assign its fields, as balls\[i\].x, or a struct


def column_first(x: In[BALL], y: Line):
    for i in y.mine():
        y[i] = x["x"][i]  # refused: x.x: write x\[i\].x


def field_of_a_neighbour(balls: Balls):
    for i in balls.mine():
        balls[i + 1].x = 0  # refused: balls\[i \+ 1\] is assigned, and this thread need not own that element


def field_of_out(balls: Out[BALL].by(Linear1D())):
    for i in balls.mine():
        balls[i].x += 1  # refused: balls\[i\] is read: balls is Out


def structs_passed_on(x: In[BALL], y: Line):
    for i in y.mine():
        y[i] = first_of(x)  # refused: x is passed to first_of: it is an array of structs: pass the fields


def structs_shared(y: Line):
    part = shared(8, BALL)  # refused: there are no elements of
    for i in y.mine():
        y[i] = part[0].x


def step_on_structs(balls: InOut[BALL]):
    atomic_add(balls, 0, 1)  # refused: balls has elements of .*; there are steps for integers


def neighbour(y: Line):
    for i in y.mine():
        y[i + 1] = 0  # refused: y\[i \+ 1\] is assigned, .* for i in y.mine\(\): y\[i\] = ...


def by_number(y: Line):
    y[here.index()] = 0  # refused: this thread need not own that element


def moved(y: Line):
    for i in y.mine():
        i += 1  # refused: i is assigned in its loop over mine\(\): .* use another name
        y[i] = 0


def of_another(y: Line, z: Out[np.float32].by(GridStride1D())):
    for i in y.mine():
        z[i] = 0  # refused: z is divided by GridStride1D\(\), y by Linear1D\(\)


def after_the_loop(y: Line):
    for i in y.mine():
        y[i] = 1
    y[i] = 2  # refused: this thread need not own


def read_of_another(y: Line):
    for i in y.mine():
        y[i] = y[i - 1]  # refused: y\[i - 1\] is read, .* pass the array as In, too


def read_of_out(y: Matrix):
    for i, j in y.mine():
        y[i, j] += 1  # refused: y is Out: declare InOut


def turned(y: Matrix):
    for i, j in y.mine():
        y[j, i] = 1  # refused: y\[j, i\] is assigned


def one_for_two(y: Line):
    for i, j in y.mine():  # refused: Linear1D\(\) gives one number: for i in y.mine\(\)
        y[i] = j


def written_in(x: In[np.float32], y: Line):
    for i in y.mine():
        x[i] = 1  # refused: x is In: declare Out or InOut with a partition


def no_partition(y: Out[np.float32]):
    for i in y.mine():  # refused: y has no partition: declare it with a partition
        y[i] = 1


def stopped(y: Line):
    for i in y.mine():
        if i > 3:
            break  # refused: elements would be left without a value
        y[i] = 1


def left(y: Line):
    for i in y.mine():
        return  # refused: use continue, or if


def two_ranks(x: In[np.float32], y: Line):
    for i in y.mine():
        y[i] = x[i] + x[i, 0]  # refused: x is subscripted by one number and by two


def of_python(y: Line):
    for i in y.mine():
        y[i] = random.random()  # refused: random.random of .*: begin random with @kernel.function


def of_numpy(y: Line):
    for i in y.mine():
        y[i] = np.interp(1, 2, 3)  # refused: np.interp


def outer_array(y: Line):
    for i in y.mine():
        y[i] = TABLE[0]  # refused: the array TABLE: pass it as an argument that is In


def a_list(y: Line):
    for i in y.mine():
        values = [1, 2]  # refused: a list has no fixed size: use a tuple
        y[i] = values[0]


def a_text(y: Line):
    for i in y.mine():
        y[i] = "1"  # refused: there are numbers in kernels, and no strings


def raises(y: Line):
    raise ValueError  # refused: there are no exceptions in kernels


def caught(y: Line):
    try:  # refused: there are no exceptions in kernels
        pass
    except ValueError:
        pass


def sliced(x: In[np.float32], y: Line):
    for i in y.mine():
        y[i] = max(x[:2])  # refused: there are no slices in kernels


def passed_on(y: Line):
    for i in y.mine():
        y[i] = double(y)  # refused: only arrays that are In are passed to functions


def stepped(y: Line):
    atomic_add(y, 0, 1)  # refused: y has to be InOut\[float32\], with no partition


def unknown(y: Line):
    for i in y.mine():
        y[i] = nothing_of_this_name  # noqa: F821 refused: nothing has it


def returned(y: Line):
    return 3  # refused: a kernel returns nothing


def renamed(x: In[np.float32], y: Line):
    z = x  # refused: x without a subscript
    for i in y.mine():
        y[i] = z[i]


def called_itself(y: Line):
    for i in y.mine():
        y[i] = double_without_end(i)


@kernel.function
def double(x):
    return x * 2


@kernel.function
def double_without_end(x):
    return double_without_end(x + 1)


def mixed(x: In[np.complex64], y: Line):
    for i in y.mine():
        y[i] = x[i]  # refused: complex64 does not become float32: take \.real


def compared(x: In[np.complex64], y: Line):
    for i in y.mine():
        y[i] = 1 if x[i] < x[0] else 2  # refused: there is no lt\(complex64, complex64\)


def one_name(x: In[np.float32], y: Line):
    for i in y.mine():
        a = x[i]
        if i > 1:
            a = (1, 2)
        y[i] = a  # refused: a is .*float32.*: give it one type


def stored_nothing(y: Line):
    for i in y.mine():
        y[i] = None  # refused: there is no setitem\(array of float32, int64, none\)


def not_assigned(y: Line):
    for i in y.mine():
        y[i] = count  # noqa: F821 refused: count is read before a value is assigned to it: assign one before
        count = i


def from_the_end(x: In[np.float32], y: Line):
    for i in y.mine():
        y[i] = x[-1]  # refused: x\[-1\]: elements are counted from 0: x\[x.size - 1\] is the last one


def from_the_end_of_a_column(x: In[np.float32], y: Matrix):
    for i, j in y.mine():
        y[i, j] = x[-1, j]  # refused: counted from 0: x.shape\[0\] - 1 is the last index of axis 0


def from_the_end_of_a_line(x: In[np.float32], y: Matrix):
    for i, j in y.mine():
        y[i, j] = x[i, -1]  # refused: counted from 0: x.shape\[1\] - 1 is the last index of axis 1


def step_of_zero(y: Line):
    for i in y.mine():
        for j in range(0, 3, 1 - 1):  # refused: range\(0, 3, 1 - 1\): the step of a range is not 0
            y[i] += j


def range_of_nothing(y: Line):
    for i in y.mine():
        for j in range():  # refused: range\(\): a range has one to three numbers
            y[i] += j


def range_of_a_float(x: In[np.float32], y: Line):
    for i in y.mine():
        for j in range(x[i]):  # refused: a range of float32: its numbers are whole: write int
            y[i] += j


def range_without_a_loop(y: Line):
    for i in y.mine():
        y[i] = range(3)  # refused: range\(3\): use it in a for loop


def axis_in_a_variable(n: In[np.int32], y: Line):
    for i in y.mine():
        y[i] = here.index(i)  # refused: here.index\(i\): the axis is 0, 1 or 2, as a number


def logarithm_of_two_numbers(x: In[np.float32], y: Line):
    for i in y.mine():
        y[i] = math.log(x[i], 2)  # refused: math.log\(x\[i\], 2\): math.log takes one argument in kernels


def least_of_one_number(x: In[np.float32], y: Line):
    for i in y.mine():
        y[i] = np.minimum(x[i])  # refused: np.minimum\(x\[i\]\): np.minimum takes two arguments in kernels


def type_of_nothing(y: Line):
    for i in y.mine():
        y[i] = np.float32()  # refused: np.float32\(\): np.float32 takes one number


def a_list_that_is_called(y: Line):
    for i in y.mine():
        y[i] = LIST(3)  # refused: \[3\] is not a function


LIST = [3]
REFUSED = [
    stored_nothing, not_assigned, from_the_end, from_the_end_of_a_column, from_the_end_of_a_line, step_of_zero,
    range_of_nothing, range_of_a_float, range_without_a_loop,
    axis_in_a_variable, a_list_that_is_called, logarithm_of_two_numbers, least_of_one_number, type_of_nothing,
    neighbour, by_number, moved, of_another, after_the_loop, read_of_another, read_of_out, turned, one_for_two,
    written_in, no_partition, stopped, left, two_ranks, of_python, of_numpy, outer_array, a_list, a_text, raises,
    caught, sliced, passed_on, stepped, unknown, returned, renamed, mixed, compared, one_name,
    field_that_is_not_there, field_by_name_that_is_not_there, half_in_a_struct, field_that_is_stored, no_such_field,
    no_such_field_stored, whole_struct, struct_of_a_number, column_first, field_of_a_neighbour, field_of_out,
    structs_passed_on, structs_shared, step_on_structs, loop_over_an_array, loop_over_an_array_without_partition,
    number_of_the_thread_as_in_numba,
]  # fmt: skip


@pytest.mark.later
@pytest.mark.parametrize("function", REFUSED, ids=lambda function: function.__name__)
def test_a_refusal_names_the_file_the_line_and_the_remedy(function) -> None:
    lines, first = inspect.getsourcelines(function)
    (number,) = (i for i, line in enumerate(lines) if "refused: " in line)
    words = lines[number].partition("refused: ")[2].strip()
    with pytest.raises(errors.KernelError, match=words) as caught:
        built = kernel(function)
        shape = (3, 3) if "j" in function.__code__.co_varnames else 3
        arrays = [np.zeros(shape, annotation.dtype) for annotation in inspect.get_annotations(function).values()]
        offload(built, *arrays, device="host")
    assert f"{__file__}:{first + number}: {function.__name__}: " in str(caught.value)
    assert isinstance(caught.value, TypeError)


@kernel.function
def positive(x):
    if x > 0:
        return x


@kernel.function
def nothing(x):
    if x > 0:
        return x
    return


@kernel.function
def forever(x):
    while True:
        if x > 3:
            return x
        x += 1


@kernel.function
def one_of_two(x):
    if x > 3:
        return x
    else:
        return x + 1


def calls_positive(y: Line):
    for i in y.mine():
        y[i] = positive(y[i])


def calls_nothing(y: Line):
    for i in y.mine():
        y[i] = nothing(y[i])


def calls_with_a_number(y: Line):
    for i in y.mine():
        y[i] = first_of(y[i])


def calls_those_that_return(y: Line):
    for i in y.mine():
        y[i] = forever(y[i]) + one_of_two(y[i])


@pytest.mark.later
def test_a_function_returns_a_value_on_each_path() -> None:
    line = inspect.getsourcelines(positive.function)[1] + 2
    with pytest.raises(errors.KernelError, match=rf"{__file__}:{line}: positive: positive may end without a value: "):
        kernel(calls_positive)
    with pytest.raises(errors.KernelError, match="nothing: return: a function of kernels returns a value: write it"):
        kernel(calls_nothing)
    y = np.array([1, 7], np.float32)
    offload(kernel(calls_those_that_return), y, device="host")
    assert y.tolist() == [6, 14]


@kernel.function
def after_an_inner_loop(x):
    while True:
        for _ in range(3):
            while x < 1:
                x += 1
                break
            if x > 1:
                break
        if x > 3:
            return x
        x += 1


@kernel.function
def while_one(x):
    while 1:
        if x > 3:
            return x
        x += 1


@kernel.function
def of_two_signs(x):
    if x >= 0:
        return x
    elif x < 0:
        return -x
    assert False  # noqa: B011, PT015


@kernel.function
def never_negative(x):
    if x >= 0:
        return x
    else:
        assert 0  # noqa: PT015


@kernel.function
def until_it_breaks(x):
    while True:
        for _ in range(3):
            x += 1
        if x > 3:
            break


def calls_functions_with_loops(y: Line):
    for i in y.mine():
        y[i] = after_an_inner_loop(y[i]) + 10 * while_one(y[i]) + 100 * of_two_signs(y[i]) + 1000 * never_negative(y[i])


def calls_until_it_breaks(y: Line):
    for i in y.mine():
        y[i] = until_it_breaks(y[i])


@pytest.mark.later
def test_a_loop_without_end_and_an_assert_of_false_need_no_return() -> None:
    y = np.array([1, 7], np.float32)
    for device in ("host", "sim"):
        y[:] = 1, 7
        offload(kernel(calls_functions_with_loops), y, device=device)
        assert y.tolist() == [1144, 7777]
        with pytest.raises(errors.ExtentError, match="ended early: .*, or a function reached assert False"):
            offload(kernel(calls_functions_with_loops), -y, device=device)
    line = inspect.getsourcelines(until_it_breaks.function)[1] + 2
    with pytest.raises(errors.KernelError, match=rf":{line}: until_it_breaks: until_it_breaks may end without a value"):
        kernel(calls_until_it_breaks)


@pytest.mark.later
def test_an_assert_of_false_compiles_for_gpus() -> None:
    written = kernel(calls_functions_with_loops)
    for target in (Target("cuda", "sm_90"), Target("hip", "gfx942")):
        assert len(written._source.compiled(target).data) > 0


@pytest.mark.parametrize(
    ("statements", "message"),
    [
        (["x[0] = 1"], r"x\[0\] is assigned: a function of kernels returns values, and only a kernel stores"),
        (["if x > 0:", "    return x", "raise ValueError"], "there are no exceptions in kernels: use assert"),
        (["match x:", "    case 0:", "        return 1", "    case _:", "        return 2"], "use if and elif"),
        (["try:", "    return x", "except ValueError:", "    return 0"], "there are no exceptions in kernels: test"),
        (["print(x)"], r"print of builtins: "),
        (["atomic_add(x, 0, 1)"], r"atomic_add\(x, 0, 1\): write atomic_add\(array, i, value\), with an array among"),
        (["x + 1"], r"x \+ 1: a value that nothing uses: assign it"),
        (["y = x"], "without_value may end without a value"),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else None,
)  # fmt: skip
def test_a_statement_that_kernels_lack_is_refused_before_a_lacking_value(statements: list[str], message: str) -> None:
    source = "".join(f"{line}\n" for line in ["def without_value(x):", *(f"    {line}" for line in statements)])
    lacking = kernel.function(function_of(source, f"<{'; '.join(statements)}>", {"atomic_add": atomic_add}))
    calls = "def calls(y: Line):\n    for i in y.mine():\n        y[i] = lacking(y[i])\n"
    names = {"Line": Line, "lacking": lacking}
    with pytest.raises(errors.KernelError, match=message):
        kernel(function_of(calls, f"<calls {'; '.join(statements)}>", names))


def test_a_refusal_shows_no_frames_of_the_reader() -> None:
    def shift(x: In[np.float32], y: Line):
        for i in y.mine():
            y[i] = abs(x[i] + y[i - 1])

    with pytest.raises(errors.KernelError, match=r"y\[i - 1\] is read") as raised:
        kernel(shift)
    files = [Path(frame.filename) for frame in traceback.extract_tb(raised.value.__traceback__)]
    assert files[0] == Path(__file__)
    assert not {"statements.py", "expressions.py", "names.py"} & {file.name for file in files}


def test_an_error_in_a_function_names_the_line_of_the_function() -> None:
    line = inspect.getsourcelines(first_of.function)[1] + 2
    with pytest.raises(errors.KernelError, match=rf"{__file__}:{line}: first_of: there is no getitem\(float32"):
        offload(kernel(calls_with_a_number), np.zeros(3, np.float32), device="host")


@kernel.function
def of_many(x):
    return 2 * x + 1


@pytest.mark.later
def test_threads_read_one_function_at_the_same_time() -> None:
    source = "def made(y: Line):\n    for i in y.mine():\n        y[i] = of_many(y[i])\n"
    begin, results = threading.Barrier(8), []

    def read(number: int) -> None:
        begin.wait()
        try:
            results.append(kernel(function_of(source, f"<of thread {number}>", {"Line": Line, "of_many": of_many})))
        except errors.KernelError as error:
            results.append(error)

    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for _ in range(20):
            of_many._written = None
            threads = [threading.Thread(target=read, args=(number,)) for number in range(8)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
    finally:
        sys.setswitchinterval(before)
    assert [str(result) for result in results if isinstance(result, Exception)] == []
    y = np.zeros(3, np.float32)
    offload(results[0], y, device="host")
    assert y.tolist() == [1, 1, 1]


def test_a_function_that_calls_itself_is_refused() -> None:
    with pytest.raises(errors.KernelError, match="double_without_end calls itself: write a loop"):
        offload(kernel(called_itself), np.zeros(3, np.float32), device="host")


def undeclared(y):
    pass


def without_dtype(x: In, y: Line):
    pass


def with_default(y: Line, n: np.int32 = 3):
    pass


def with_int(n: int, y: Line):
    for i in y.mine():
        y[i] = n


def never_written(x: In[np.float32], y: Out[np.float32].by(Linear2D())):
    pass


def no_array(n: np.int32):
    pass


NESTED = np.dtype([("ball", BALL), ("n", np.int32)], align=True)
WITH_TABLE = np.dtype([("at", np.float32, (3,)), ("n", np.int32)])
PACKED = np.dtype([("n", np.int8), ("x", np.float64)])
WITH_OBJECT = np.dtype([("x", np.float64), ("it", object)])


def structs_in_structs(balls: In[NESTED], y: Line):
    pass


def tables_in_structs(balls: In[WITH_TABLE], y: Line):
    pass


def packed_structs(balls: In[PACKED], y: Line):
    for i in y.mine():
        y[i] = balls[i].n


def objects_in_structs(balls: In[WITH_OBJECT], y: Line):
    for i in y.mine():
        y[i] = balls[i].x


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (undeclared, r"the parameter y: declare its type: y: In\[np.float32\] is an array, y: np.float32 a number"),
        (without_dtype, r"the parameter x: name the dtype of its elements: In\[np.float32\]"),
        (with_default, "give it plain ones, without defaults"),
        (with_int, "is declared as int, which has no one size in C: use np.int32"),
        (never_written, r"y is Out and never written: for i in y.mine\(\)"),
        (no_array, "a kernel needs a pointer parameter"),
        (structs_in_structs, r"the parameter balls: the field ball of its structs is a struct: make it several fields"),
        (
            tables_in_structs,
            r"the field at of its structs is a table, .*\(3,\).*: make it several fields, or pass it as",
        ),
        (packed_structs, r"argument 1 is not laid out as in C: make its dtype with np.dtype\(..., align=True\)"),
        (objects_in_structs, "argument 1 has a field of object, which devices can't hold"),
    ],
)
def test_a_signature_that_says_too_little_is_refused(function, words: str) -> None:
    place = re.escape(f"{__file__}:{function.__code__.co_firstlineno}: {function.__name__}: ")
    with pytest.raises((errors.KernelError, errors.SignatureError), match=f"^{place}.*{words}"):
        kernel(function)


def test_only_functions_with_a_source_become_kernels() -> None:
    with pytest.raises(errors.SignatureError, match="kernel: needs a function, got 3"):
        kernel(3)
    with pytest.raises(errors.KernelError, match="its source can't be read: write kernels in a file or in a notebook"):
        names = {"Line": Line}
        exec("def made(y: Line):\n    pass", names)
        kernel(names["made"])


def test_words_of_kernels_are_refused_outside() -> None:
    with pytest.raises(
        errors.ArgumentTypeError, match=r"here.index is for kernels: call it in a function that @kernel"
    ):
        here.index()
    assert math.isfinite(double(3))


@pytest.mark.parametrize(
    ("statement", "message"),
    [
        ("print(y[i])", "kernels print nothing: write the value into an array"),
        ("y[i] = np.sum(x)", r"x without a subscript: .*for a sum or maximum, write the loop, or use kernels\.reduce$"),
        ("y[i] = x.mean()", r"x\.mean: an array has size, .* use kernels\.reduce$"),
        ("y[i] = np.sqrt", r"np\.sqrt: it is a function: call it, as in np\.sqrt\(\.\.\.\)$"),
        ("y[i] = exp(x[i])", r"the name exp: nothing has it: write math\.exp$"),
        ("y[i] = sign(x[i])", r"the name sign: kernels do not have this function: write \(x > 0\) - \(x < 0\)"),
        ("y[i] = maximum(x[i], 0)", r"the name maximum: nothing has it: write np\.maximum$"),
        (
            "y[i] = scaled(x[i])",
            r"nothing has it: before the kernel, define a function scaled that .*; did you mean scale\?$",
        ),
        ("y[i] = np.erf(x[i])", r"numpy has no erf; write math\.erf$"),
        ("y[i] = np.where(x[i] > 0, x[i], 0)", r"np\.where: .*: write a if condition else b$"),
        ("y[i] = np.clip(x[i], 0, 1)", r"np\.clip: .*: write min\(max\(x, least\), most\)$"),
    ],
)
def test_functions_of_numpy_that_kernels_lack_name_those_that_they_have(statement: str, message: str) -> None:
    source = f"def f(x: X, y: Line):\n    for i in y.mine():\n        {statement}\n"
    names = {"X": In[np.float32], "Line": Line, "np": np, "scale": 2}
    with pytest.raises(errors.KernelError, match=message):
        offload(kernel(function_of(source, f"<f {statement}>", names)), np.ones(4, np.float32), np.ones(4, np.float32))
