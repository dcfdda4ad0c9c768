"""Every public function, class and method has a signature, which help() and editors show."""

from __future__ import annotations

import importlib
import inspect
import warnings
from collections.abc import Iterator

import pytest

import offload_args as package

# The modules of vendors' libraries have hundreds of functions, which are all made in the same way.
OWN = ["", "blas", "embedding", "errors", "fft", "kernels", "lapack", "libraries", "linalg", "sparse", "testing"]
VENDORS = "cblas cublas cublaslt cudnn cufft curand cusolver hipfft lapacke nccl rccl rocblas rocsolver".split()


def callables(module: str) -> Iterator[tuple[str, object]]:
    """Yield each public function, class and method of a module with its name."""
    home = importlib.import_module(f"offload_args.{module}".rstrip("."))
    for name in getattr(home, "__all__", None) or [name for name in dir(home) if not name.startswith("_")]:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # of functions that their vendor deprecates
            thing = getattr(home, name)
        if callable(thing):
            yield name, thing
        if isinstance(thing, type):
            classes = [base for base in thing.__mro__ if base.__module__.startswith("offload_args")]
            for member in {member for base in classes for member in vars(base) if not member.startswith("_")}:
                if callable(method := getattr(thing, member)):
                    yield f"{name}.{member}", method


def without_signature(module: str) -> list[str]:
    wrong = []
    for name, thing in callables(module):
        try:
            parameters = inspect.signature(thing).parameters  # type: ignore[arg-type]
        except ValueError:
            wrong.append(name)
        else:
            kinds = [parameter.kind for parameter in parameters.values()]
            tells_nothing = kinds == [inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD]
            if tells_nothing and "_" not in parameters:  # classes that programs do not call take *_ and **__
                wrong.append(name)
    return wrong


@pytest.mark.parametrize("module", OWN)
def test_each_public_callable_has_a_signature(module: str) -> None:
    assert without_signature(module) == []


@pytest.mark.later
@pytest.mark.parametrize("module", VENDORS)
def test_each_function_of_a_library_has_a_signature(module: str) -> None:
    assert without_signature(module) == []


def test_the_region_and_errors_tell_their_arguments() -> None:
    assert str(inspect.signature(package.offload_args.open)) == "(self, /)"
    assert str(inspect.signature(package.DTypeError)) == "(*arguments: 'object') -> 'None'"
