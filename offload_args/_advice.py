"""Remedies for objects that were passed to call, launch or offload, and that are used in another way."""

from __future__ import annotations

import inspect
import linecache
import re
import sys
from importlib import import_module
from types import BuiltinFunctionType, FunctionType, ModuleType
from typing import TYPE_CHECKING, Any, Final, NoReturn

import numpy as np

from . import _core
from ._instead import instead_of, of_ufunc
from ._keywords import instead_of_keyword
from .display import described, nearest, plural
from .errors import ArgumentTypeError, OffloadError
from .pointers import DevicePtr

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import FrameType

__all__ = [
    "how_to_run",
    "is_of_signature",
    "note_remedy",
    "of_package",
    "refuse_function",
    "signature_error",
    "title",
    "written_as",
]

#: {function: the end of the message about too many arguments}.
_FORMS: Final = {
    "update": "; for several arrays, with update(x), update(y):",
    "trace": '; its results are saved after it: with trace() as t, and then t.save("trace.json")',
    "offload_args.capture": "; name the pointers: region.capture(x=dx)",
    "Device": '; the number stands in the name, Device("cuda:0")',
}

#: {class: the remedy for a program that calls it}.
_MAKERS: Final = {
    "Graph": "region.capture makes one: write with region.capture(x=dx) as g",
    "Kernel": "Kernel.compile, Module.kernel and kernels.elementwise make one, and so does @kernel: write @kernel "
    "before a function",
    "kernels.PythonKernel": "kernels.elementwise and @kernel make one: write @kernel before a function",
    "kernels.Reduction": 'kernels.reduce makes one: write kernels.reduce("sum", x=np.float64)',
    "recording.Recording": 'record makes one: write with record("file.jsonl.gz")',
    "scripts.Accelerated": "accelerate makes one: write with accelerate() as a",
    "scripts.Report": "accelerate makes one: write with accelerate() as a, and then a.report",
    "sparse.LentMatrix": "sparse.lend makes one: write with sparse.lend(A) as dA",
    "testing.Moved": "testing.counting makes one: write with testing.counting(device) as moved",
    "tracing.Summary": "trace makes one: write with trace() as t, and then t.summary",
    "tracing.Timeline": "trace makes one: write with trace() as t, and then t.timeline",
    "tracing.Trace": "trace makes one: write with trace() as t",
}

#: The modules whose functions take NumPy arrays as well as pointers, and return new arrays.
_DIRECT: Final = ("fft", "linalg", "sparse")


def title(function: Any, subject: Any = None) -> str:
    """Return a function's name in programs, such as "blas.gemv"; the plain name outside this package.

    subject: for a method, the object or the class that has it.
    """
    name = getattr(function, "__name__", type(function).__name__)
    package, _, rest = (getattr(function, "__module__", None) or "").partition(".")
    owner, _, method = getattr(function, "__qualname__", "").rpartition(".")
    if owner and "<" not in owner:
        kind = subject if isinstance(subject, type) else type(subject)
        if subject is not None and hasattr(kind, method):
            owner = kind.__name__
        if method == "__call__":
            return owner.lower()  # an object with this name is called
        name = owner if method in ("__init__", "__new__") else f"{owner}.{method}"
        is_public = owner in sys.modules[__package__].__all__
    else:
        is_public = name in sys.modules[__package__].__all__ and function in _with_inner(name)
    return name if is_public or package != __package__ or not rest else f"{rest.partition('.')[0]}.{name}"


def _with_inner(name: str) -> tuple[Any, Any]:
    public = getattr(sys.modules[__package__], name)
    return public, getattr(public, "__wrapped__", None)


def of_package(name: str, names: Sequence[str]) -> str:
    """Return the remedy for a name that the package lacks, such as NumPy's zeros; `names` are the package's names."""
    if name in ("lend", "region", "Region", "to_device", "device_put"):
        return "; offload_args(x) lends arrays for a block: with offload_args(x) as (dx,)"
    if name in ("synchronize", "sync"):
        return "; leaving a region waits for its calls, and Device.default().synchronize() for all of the device's"
    if name in ("jit", "vectorize", "njit"):
        return "; use kernel, a decorator, or kernels.elementwise(formula, ...)"
    if name == "Stream":
        return (
            "; offload_args(x, stream=theirs) takes a stream of another package, and region.stream is the region's own"
        )
    if name in ("cuda", "hip", "cpu", "gpu", "set_device", "device_count", "get_device"):
        return '; devices have names, such as offload_args(x, device="cuda:0") and device="host"'
    for module in ("linalg", "blas", "lapack", "kernels", "fft", "sparse"):
        if not name.startswith("_") and name in _public(module):
            return f"; {module}.{name} is one, by from offload_args import {module}"
    if name in ("ndarray", "Array", "Tensor", "tensor", "GPUArray", "DeviceArray"):
        return "; arrays are NumPy's: make one by np.array(...), and lend it by offload_args(x)"
    if name in ("array", "asarray", "ascontiguousarray", "asfortranarray", "zeros", "ones", "full", "arange", "eye"):
        return f"; arrays are NumPy's: make one by np.{name}(...), and lend it by offload_args(x)"
    if name in ("zeros_like", "empty_like", "ones_like"):
        return "; arrays are NumPy's: lend one by offload_args(x), or request Scratch(shape, dtype)"
    if name in ("random", "rand", "randn", "default_rng"):
        return "; lend an array of NumPy's generator, or fill one on an NVIDIA GPU by curand"
    if name in ("asnumpy", "to_numpy", "get"):
        return "; lent arrays get their results when the region ends, and pointers have to_host()"
    if hasattr(np, name) and isinstance(getattr(np, name), type):
        return f"; dtypes are NumPy's: np.{name}"
    if hasattr(np, name):
        return f"; {instead_of(name, 'float64').replace('to_host()', f'np.{name} of arrays')}"
    return nearest(name, names)


def _public(module: str) -> Sequence[str]:
    names: Sequence[str] = import_module(f".{module}", __package__).__all__
    return names


def refuse_function(function: Any) -> NoReturn:
    """Refuse a function of linalg or fft, or an object that is no function, in `call`. The extension calls this."""
    name = title(function)
    if not callable(function):
        raise ArgumentTypeError(
            f"call: function needs a function, got {described(function)}; write call(blas.scal, 2.0, x)"
        )
    raise ArgumentTypeError(
        f"call: function needs one that writes into its arrays, got {name}, which returns new ones; call it directly: "
        f"result = {name}(...) takes NumPy arrays and device="
    )


def note_remedy(region: Any, error: ValueError | TypeError) -> None:
    """Add the remedy to an error of NumPy or Python that leaves a region. The extension calls this function."""
    if isinstance(error, OffloadError):
        return
    if "must be a cdata pointer, not DevicePtr" in str(error):
        error.add_note("offload_args: pass dx.cdata(ffi), or arrays by call(function, ...)")
    elif isinstance(error, TypeError):
        _note_signature(error)
    elif "read-only" in str(error):
        _note_read_only(region, error)


def _note_signature(error: TypeError) -> None:
    """Add the remedy to an error about the arguments of a pointer's method: `telling` would delay right calls.

    This error begins with the method's name, and was raised before the method began.
    """
    name = re.match(r"DevicePtr\.([a-z]\w*)\(\) (missing|takes|got) ", str(error))
    method = vars(DevicePtr).get(name[1]) if name else None
    note = f"offload_args: {str(signature_error(method, error)).rpartition('; ')[2]}" if method else ""
    if note and note not in getattr(error, "__notes__", ()):  # an inner region may have added it
        error.add_note(note)


def _note_read_only(region: Any, error: ValueError) -> None:
    """Add a note to NumPy's error about a write to an array that this region, or one that is still open, lends."""
    regions: list[Any] = [region, *_core.open_regions()]
    lent = [getattr(argument, "array", argument) for each in regions for argument in each._arguments]
    names: list[str] = []
    trace = error.__traceback__
    while trace is not None:  # the innermost function that has such an array is the last one
        line = linecache.getline(trace.tb_frame.f_code.co_filename, trace.tb_lineno)
        here = [
            name
            for name, value in _values_of(trace.tb_frame, line).items()
            if isinstance(value, np.ndarray) and any(value is array or value.base is array for array in lent)
        ]
        if line:
            here = [name for name in here if re.search(rf"\b{re.escape(name)}\b", line)]
        names = here or names
        trace = trace.tb_next
    note = (
        f"offload_args: the region lends {' and '.join(names)}, which the host can't write until the region ends: "
        f"write inside `with update({names[0] if names else ''}):`, or after the region"
    )
    if names and note not in getattr(error, "__notes__", ()):  # an inner region may have added it
        error.add_note(note)


def _values_of(frame: FrameType, line: str) -> dict[str, Any]:
    """Return the values by name that a line of a function can mean: variables, globals, and attributes of these."""
    used = [name for name in frame.f_code.co_names if name in frame.f_globals]
    values = {name: frame.f_globals[name] for name in used} | frame.f_locals
    for owner, attribute in re.findall(r"\b(\w+)\.(\w+)", line):
        if owner in values:  # no property of the program runs here
            values[f"{owner}.{attribute}"] = inspect.getattr_static(values[owner], attribute, None)
    return values


def _kernel_of(function: np.ufunc) -> str:
    """Return the remedy for a universal function where a kernel is needed."""
    from .kernels.python.formulas import known_names

    name = function.__name__
    call = of_ufunc(name)
    if call is None and name in known_names():
        arrays, result = (("x", "y"), "z") if function.nargs == 3 else (("x",), "y")
        declared = ", ".join(f"{array}=In[np.float64]" for array in arrays)
        call = f'kernels.elementwise("{result} = {name}({", ".join(arrays)})", {declared}, {result}=Out[np.float64])'
    if call is None:
        return f"formulas have no {name}: write it with operators and functions of math, for kernels.elementwise"
    return f"{call} makes one"


def how_to_run(function: str, kernel: Any) -> str:
    """Return the remedy for an object that is not a kernel; `function` is launch, offload or offload_unsafe."""
    from .kernels.module import Module
    from .kernels.python.reductions import Reduction

    if isinstance(kernel, Reduction):
        arrays = ", ".join(kernel.parameters)
        return f"call the reduction itself, with arrays or with pointers: total({arrays}), or total({arrays}, out)"
    name = title(kernel)
    module, _, _ = name.rpartition(".")
    if module in _DIRECT:
        return f"call it directly: result = {name}(...) takes NumPy arrays and device="
    if module and isinstance(kernel, (BuiltinFunctionType, FunctionType)):
        return f"{name} is a library's function: " + (
            f"call it with the pointers, {name}(...)" if function == "launch" else f"write call({name}, ...)"
        )
    if isinstance(kernel, np.ufunc):
        return _kernel_of(kernel)
    if isinstance(kernel, (np.ndarray, DevicePtr)):
        return f"the kernel is the first argument: {function}(kernel, ...)"
    if isinstance(kernel, str):
        return "kernels.elementwise(formula, ...) makes one of a formula, Module.load(file).kernel(name, ...) of a file"
    if isinstance(kernel, (Module, ModuleType)):
        return "take one of its kernels: module.kernel(name, ...)"
    if isinstance(kernel, FunctionType):
        return "decorate the function with @kernel, which compiles it"
    return "@kernel, kernels.elementwise and Module.kernel make one"


def written_as(function: Any, options: Sequence[str] | None = None, name: str = "") -> str:
    """Return the remedy with a function's arguments, such as "write blas.gemv(alpha, A, x, beta, y, ...)".

    options: the keywords to list with their defaults; without any, "..." stands for all of them. name: the function's
    name, if it is not its title.
    """
    code, defaults = function.__code__, dict(function.__kwdefaults__ or {})
    positional = code.co_varnames[: code.co_argcount]
    values = function.__defaults__ or ()
    optional = dict(zip(positional[len(positional) - len(values) :], values, strict=True))
    order = [name for name in positional if name not in ("self", "cls", *optional)]
    options, defaults = [*optional, *options] if options else options, defaults | optional
    rest = code.co_varnames[code.co_argcount + code.co_kwonlyargcount :][: bool(code.co_flags & inspect.CO_VARARGS)]
    order += [f"*{name}" for name in rest if name != "wrong"]
    if options:
        order += [f"{name}={_written(defaults[name])}" if name in defaults else f"{name}=" for name in options]
    elif code.co_kwonlyargcount or optional:
        order.append("...")
    return f"write {name or title(function)}({', '.join(order)})"


def _written(default: object) -> str:
    """Return a parameter's default as a program writes it."""
    return f"np.{default.__name__}" if isinstance(default, type) and issubclass(default, np.generic) else repr(default)


def _positional(count: str) -> str:
    return f"positional {plural('argument', int(count))}"


def is_of_signature(error: TypeError) -> bool:
    """Return whether Python raised an error before a function began, because its signature lacks these arguments.

    The error is caught in the frame that calls the function.
    """
    return error.__traceback__ is not None and error.__traceback__.tb_next is None


def signature_error(function: Any, error: TypeError, subject: Any = None) -> ArgumentTypeError:
    """Return the error of arguments that do not fit a function's signature; `error` is Python's own.

    subject: the first argument, which is the object or the class if the function is a method.
    """
    code, name = function.__code__, title(function, subject)
    if name in _MAKERS and function.__name__ in ("__init__", "__new__"):
        return ArgumentTypeError(f"{name}: a program does not call this class; {_MAKERS[name]}")
    names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    text = str(error).removeprefix(function.__qualname__).partition(". Did you mean")[0]
    count = code.co_argcount
    if names[:1] in (("self",), ("cls",)):  # Python counts this argument, too
        names, count = names[1:], count - 1
        counts = r"\d+(?= positional arguments? but)|(?<=from )\d+|(?<=but )\d+"
        text = re.sub(counts, lambda number: str(int(number[0]) - 1), text)
        text = re.sub(r"takes (\d+) positional arguments?", lambda m: f"takes {m[1]} {_positional(m[1])}", text)
        text = text.replace("but 1 were", "but 1 was")
    return ArgumentTypeError(f"{name}{text}{_remedy(function, name, text, names, count)}")


def _remedy(function: Any, name: str, text: str, names: Sequence[str], count: int) -> str:
    """Return the end of a message, such as "; write blas.gemv(...)".

    names: the function's parameters, of which the first `count` may stand by position.
    """
    unknown = next(iter(re.findall(r"unexpected keyword argument '(\w+)'", text)), "")
    instead = instead_of_keyword(name, unknown, names) if unknown else ""
    if unknown in ("device", "devices") and instead:
        return instead
    too_many = " given" in text
    options = names[count:] if too_many or unknown or "keyword-only" in text else ()
    remedy = f"{instead}; {written_as(function, options, name)}"
    if too_many and name.partition(".")[0] in ("blas", "lapack"):
        remedy += ": sizes, leading dimensions and increments come from the pointers"
    return remedy + (_FORMS.get(name, "") if too_many else "")
