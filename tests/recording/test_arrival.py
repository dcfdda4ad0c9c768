"""Each argument of every bound function arrives at the vendor's function in the right place, width and value.

The vendor's library is a double with the prototypes of the api file. It records the arguments of calls.
"""

from __future__ import annotations

import importlib
import inspect
from pathlib import Path

import pytest
import scipy_openblas32

from doubles.recording import comparison
from recording import legal
from recording.recorder import run
from recording.workers import VARIANTS, Turns, Workers, every_family, every_family_of, turned


@pytest.mark.promise("T30", "T71")
@every_family(*VARIANTS)
@turned(short=1, full=5, every=True)
def test_every_argument_arrives(workers: Workers, variant: str, family: str, turns: Turns) -> None:
    workers[variant].ask("arrival", family, turns)


@every_family_of(legal.helper_functions)
def test_every_argument_of_a_helper_function_arrives(workers: Workers, variant: str, family: str) -> None:
    workers[variant].ask("helper functions", family, Turns(3, every=True))


@every_family_of(legal.copies)
def test_every_argument_of_a_copy_arrives(workers: Workers, variant: str, family: str) -> None:
    workers[variant].ask("copies", family, Turns(3, every=True))


@pytest.mark.promise("T31")
@every_family_of(legal.with_descriptors)
def test_a_function_with_descriptors_gets_its_arguments_and_refuses_unfit_arrays(
    workers: Workers, variant: str, family: str
) -> None:
    workers[variant].ask("descriptors", family, Turns(2, every=True))


@pytest.mark.promise("T30", "T31")
@every_family_of(legal.with_layouts)
def test_a_function_with_layouts_gets_its_arguments_and_refuses_arrays_that_do_not_fit(
    workers: Workers, variant: str, family: str
) -> None:
    workers[variant].ask("products", family, Turns(2, every=True))


@pytest.mark.promise("T30", "T31")
@every_family_of(legal.executions)
def test_an_execution_of_a_plan_gets_its_arguments_and_refuses_arrays_that_do_not_fit(
    workers: Workers, variant: str, family: str
) -> None:
    workers[variant].ask("plans", family, Turns(2, every=True))


@pytest.mark.parametrize("library", legal.libraries())
def test_every_bound_function_is_called(library: str) -> None:
    called = {
        *legal.functions(library),
        *legal.helper_functions(library),
        *legal.copies(library),
        *legal.with_descriptors(library),
    }
    called |= set(legal.written(library))
    module = importlib.import_module(f"offload_args.{library}")
    added = {name for names in legal.libraries()[library].adds.values() for name in names}
    assert called == {name for name in module.__all__ if inspect.isroutine(getattr(module, name))} - added
    assert library in VARIANTS


def test_the_api_file_has_the_prototypes_of_the_vendors_header(tmp_path: Path) -> None:
    source, folder = tmp_path / "cblas.c", Path(scipy_openblas32.__file__).parent / "include"
    source.write_text(comparison(legal.libraries()["cblas"]))
    run("gcc", "-std=gnu11", "-fsyntax-only", "-Wall", "-Wextra", "-Werror", f"-I{folder}", source)
    wrong = source.read_text().replace("blasint", "short", 1)
    source.write_text(wrong)
    with pytest.raises(AssertionError, match="initialization of|incompatible"):
        run("gcc", "-std=gnu11", "-fsyntax-only", "-Wall", "-Wextra", "-Werror", f"-I{folder}", source)
