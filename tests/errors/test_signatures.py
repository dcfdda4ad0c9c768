"""Every public function, class and method names itself, the wrong argument and the remedy in an error of its signature.

The tests find the callables themselves, so a new one is tested, too. The vendors' functions have tests of their own
(tests/libraries/test_functions.py).
"""

from __future__ import annotations

import _thread
import importlib
import inspect
import sys
import threading
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np
import pytest

import offload_args as package
from offload_args import (
    Device,
    Graph,
    In,
    InOut,
    Scratch,
    accelerate,
    blas,
    call,
    kernel,
    kernels,
    launch,
    offload,
    offload_args,
)
from offload_args.errors import ArgumentError, ArgumentTypeError, SignatureError

MODULES = [
    "blas",
    "communicator",
    "embedding",
    "errors",
    "fft",
    "kernels",
    "lapack",
    "libraries",
    "linalg",
    "recording",
    "scripts",
    "selftest",
    "sparse",
    "testing",
    "tracing",
]
# The collector of events calls these methods.
HOOKS = ("tracing.Trace.entering", "tracing.Trace.left", "tracing.Trace.take")


class Thing(NamedTuple):
    name: str  # as programs write it
    function: Callable[..., Any]
    subject: tuple[Any, ...]  # the object that has the method, if Python needs one


def public() -> Iterator[Thing]:
    """Yield each function and class of the package and its portable modules, and each method of these classes."""
    known: list[Any] = []
    for prefix in ("", *MODULES):
        module = importlib.import_module(f"offload_args.{prefix}") if prefix else package
        for key in module.__all__:
            thing = getattr(module, key)
            is_known = any(thing is other for other in known)
            if isinstance(thing, ModuleType) or is_known or not callable(thing) or is_record(thing):
                continue
            known.append(thing)
            name = f"{prefix}.{key}" if prefix else key
            yield Thing(name, thing, ())
            for method in dir(thing) if inspect.isclass(thing) else ():
                static = inspect.getattr_static(thing, method)
                if method[0] != "_" and callable(getattr(thing, method)) and f"{name}.{method}" not in HOOKS:
                    is_plain = inspect.isfunction(static) or inspect.ismethoddescriptor(static)
                    is_of_class = isinstance(static, (classmethod, staticmethod))
                    subject = (subject_of(thing),) if is_plain and not is_of_class else ()
                    yield Thing(f"{name}.{method}", getattr(thing, method), subject)


def is_record(thing: Any) -> bool:
    """Return whether a class is an exception or a named tuple, whose constructor only the package calls."""
    return inspect.isclass(thing) and issubclass(thing, (BaseException, tuple))


def subject_of(thing: type) -> Any:
    """Return an object for a method. Methods in Python are called with any object: the error precedes its use."""
    return offload_args(np.ones(1)) if thing is offload_args else Graph() if thing is Graph else object()


def error_of(thing: Thing, *arguments: Any, **keywords: Any) -> str:
    """Return the complaint about an error without the remedy; "" if the error is as it should be."""
    try:
        with offload_args(np.ones(2), device="host") as (dx,):
            subject = (dx,) if thing.name.startswith("DevicePtr.") else thing.subject
            thing.function(*subject, *arguments, **keywords)
    except Exception as error:
        text = "\n".join([str(error), *getattr(error, "__notes__", ())])
        is_ours = isinstance(error, (ArgumentTypeError, ArgumentError, SignatureError)) or subject == (dx,)
        says = "write " in text
        names = thing.name.rpartition(".")[2] in text
        return "" if is_ours and says and names else f"{thing.name}: {type(error).__name__}: {text}"
    return f"{thing.name}: no error"


def parameters(thing: Thing) -> list[inspect.Parameter]:
    try:
        return list(inspect.signature(thing.function).parameters.values())[len(thing.subject) :]
    except ValueError:  # a method in C without arguments
        return []


def unknown(thing: Thing) -> str:
    takes_any = any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters(thing))
    return "" if takes_any else error_of(thing, unknown_=None)


def too_many(thing: Thing) -> str:
    takes_any = any(parameter.kind is parameter.VAR_POSITIONAL for parameter in parameters(thing))
    return "" if takes_any else error_of(thing, *[None] * 70)


def missing(thing: Thing) -> str:
    required = [
        parameter
        for parameter in parameters(thing)
        if parameter.default is parameter.empty
        and parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
    ]
    return error_of(thing) if required else ""


def twice(thing: Thing) -> str:
    first = [parameter for parameter in parameters(thing) if parameter.kind is parameter.POSITIONAL_OR_KEYWORD][:1]
    return error_of(thing, None, **{first[0].name: None}) if first else ""


@pytest.mark.promise("T86")
@pytest.mark.parametrize("mistake", [unknown, too_many, missing, twice])
def test_an_error_of_a_signature_has_the_remedy(mistake: Callable[[Thing], str]) -> None:
    things = list(public())
    assert len(things) > 250
    assert [complaint for thing in things if (complaint := mistake(thing))] == []


TWICE = kernels.elementwise("x = 2.0 * x", x=InOut[np.float64])
TOTAL = kernels.reduce("sum", x=np.float64)
X = np.ones(3)
MISTAKES: dict[str, tuple[Callable[[], object], str]] = {
    "a region's keyword": (
        lambda: offload_args(X, devise="host"),  # type: ignore[call-overload]
        "offload_args() got an unexpected keyword argument 'devise'; arrays stand by position, and the keywords are "
        'device, stream, on_error, resident and guard: write offload_args(x, device="host")',
    ),
    "open": (
        lambda: offload_args(X).open("host"),  # type: ignore[call-arg]
        "offload_args.open() takes no arguments, got 1; arrays and options stand before: write "
        'region = offload_args(x, device="host"), and then region.open()',
    ),
    "Device": (
        lambda: Device(),  # type: ignore[call-arg]
        "Device() missing 1 required positional argument: 'name'; write Device(name)",
    ),
    "In": (
        lambda: In(),  # type: ignore[call-arg]
        "In() missing 1 required positional argument: 'array'; write In(array)",
    ),
    "Scratch": (
        lambda: Scratch(3, dtyp=np.float32),  # type: ignore[call-arg]
        "Scratch() got an unexpected keyword argument 'dtyp'; did you mean dtype?; write Scratch(shape, "
        "dtype=np.float64, order='C')",
    ),
    "call": (
        lambda: call(),  # type: ignore[call-arg]
        "call() missing 1 required positional argument: 'function'; write call(blas.scal, 2.0, x)",
    ),
    "offload": (
        lambda: offload(TWICE, X, blocks=64),  # type: ignore[call-arg]
        "offload() got an unexpected keyword argument 'blocks'; did you mean block?; a kernel takes its arguments by "
        "position: write offload(kernel, x, block=...); the keywords are grid, block, shared_bytes, stream, "
        "cooperative, cluster, device, on_error",
    ),
    "launch": (
        lambda: launch(TWICE, X, device="host"),  # type: ignore[call-arg]
        "launch() got an unexpected keyword argument 'device'; it runs on the device of its pointers: write "
        "offload(kernel, x, device=...) for arrays; the keywords are grid, block, shared_bytes, stream, cooperative, "
        "cluster",
    ),
    "a kernel": (
        lambda: TWICE(X, n=3),  # type: ignore[call-arg]
        "launch() got an unexpected keyword argument 'n'; a kernel takes its arguments by position: "
        "write launch(kernel, x, block=...); the keywords are grid, block, shared_bytes, stream, cooperative, cluster",
    ),
    "no kernel": (
        lambda: launch(),  # type: ignore[call-arg]
        "launch() missing 1 required positional argument: 'kernel'; write launch(kernel, x, y)",
    ),
    "@kernel": (
        lambda: kernel(device="host"),  # type: ignore[call-overload]
        "kernel() got an unexpected keyword argument 'device'; a kernel runs on the device of its arguments: pass "
        "device= to offload",
    ),
    "a reduction": (
        lambda: TOTAL(X, out=X),  # type: ignore[call-arg]
        "reduction() got an unexpected keyword argument 'out'; the result stands after the arrays: total(x, result); "
        "write reduction(*arguments, device=None, scratch=None)",
    ),
    "accelerate": (
        lambda: accelerate(devise="host"),  # type: ignore[call-arg]
        "accelerate() got an unexpected keyword argument 'devise'; did you mean device?; write accelerate(device=None, "
        "margin=1.25, functions=None, lines=True, only_count=False, plan=None, deterministic=False)",
    ),
    "Graph": (
        lambda: Graph(3),  # type: ignore[call-arg]
        "Graph: a program does not call this class; region.capture makes one: write with region.capture(x=dx) as g",
    ),
}


@pytest.mark.promise("T86")
@pytest.mark.later(but="offload")
@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_told_in_full(name: str) -> None:
    mistake, text = MISTAKES[name]
    with pytest.raises(ArgumentTypeError) as error:
        mistake()
    assert str(error.value) == text


def test_contents_of_a_replay_stand_by_their_names(device: str) -> None:
    region = offload_args(X.copy(), device=device)
    with region as (dx,):
        with region.capture(x=dx) as g:
            blas.scal(2.0, dx)
        with pytest.raises(
            ArgumentTypeError, match=r"^Graph\.replay: .* got 1 by position; write g\.replay\(x=\.\.\.\)"
        ):
            g.replay(X)  # type: ignore[arg-type]
        with pytest.raises(ArgumentError, match=r"^Graph\.replay: nothing was captured as 'y'; known names: x$"):
            g.replay(y=X)
        g.replay(x=X)
        assert dx.to_host().tolist() == [2.0, 2.0, 2.0]


@pytest.mark.promise("T86")
def test_an_error_of_a_pointers_method_has_the_remedy_as_a_note_of_its_region() -> None:
    def fill(x: np.ndarray[Any, Any]) -> None:
        with offload_args(x) as (dx,), offload_args(x):
            dx.fill()  # type: ignore[call-arg]

    with pytest.raises(
        TypeError, match=r"^DevicePtr\.fill\(\) missing 1 required positional argument: 'value'"
    ) as error:
        fill(X.copy())
    assert error.value.__notes__ == ["offload_args: write DevicePtr.fill(value)"]  # once, although two regions ended


def test_another_type_error_gets_no_note() -> None:
    with pytest.raises(TypeError) as error, offload_args(X.copy()):
        raise TypeError("DevicePtr.fill: took too long")
    assert not hasattr(error.value, "__notes__")


@pytest.mark.promise("T86")
@pytest.mark.later(but="cublas")
@pytest.mark.parametrize("module", ["", *MODULES, "cublas", "cblas"])
def test_an_import_of_a_misspelled_name_names_the_right_one(module: str) -> None:
    path = f"offload_args.{module}".rstrip(".")
    name = max(importlib.import_module(path).__all__, key=len)
    with pytest.raises(ImportError) as error:
        exec(f"from {path} import {name}_")
    assert str(error.value).startswith(f"cannot import name '{name}_' from '{path}'; did you mean ")
    assert name in str(error.value)
    assert not hasattr(importlib.import_module(path), f"{name}_")
    with pytest.raises(AttributeError, match=rf"^module '{path}' has no attribute '{name}_'; did you mean "):
        getattr(importlib.import_module(path), f"{name}_")


def test_a_module_that_is_being_imported_may_be_imported_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """Python looks for such a module in sys.modules, after an AttributeError."""
    monkeypatch.setitem(sys.modules, "offload_args.fft.later", ModuleType("later"))
    names: dict[str, Any] = {}
    exec("from offload_args.fft import later", names)
    assert names["later"] is sys.modules["offload_args.fft.later"]


def test_a_name_that_no_function_in_python_reads_is_an_attribute(monkeypatch: pytest.MonkeyPatch) -> None:
    """The thread's function is in C, as the function of a C program that embeds Python."""
    errors: list[Any] = []
    ended = threading.Event()
    monkeypatch.setattr(sys, "unraisablehook", lambda failure: (errors.append(failure.exc_value), ended.set()))
    _thread.start_new_thread(getattr, (importlib.import_module("offload_args.fft"), "ftt"))
    assert ended.wait(60)
    assert isinstance(errors[0], AttributeError)
