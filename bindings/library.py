"""A library in the form for the generator: its settings, constants and functions, with a role for every parameter."""

from __future__ import annotations

import ast
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from .labelled import Enum, ObjectKind
from .older import Older
from .parameters import Array, DataType, HostList, Number, Parameter, Result, Size


class RolesError(ValueError):
    """The faults of a roles file, each on a separate line."""

    def __init__(self, faults: list[str]) -> None:
        super().__init__("\n".join(faults))
        self.faults = faults


@dataclass(frozen=True)
class Function:
    """One bound function."""

    name: str
    symbol: str
    wide_symbol: str | None
    returns: str
    arguments: tuple[Parameter, ...]  # all arguments in the vendor's order; a returned result is last
    summary: str
    family: str
    form: str  # "", or one of FORMS
    optional: bool  # whether a complete library may lack it
    device_only: bool  # whether all its pointers are to the device
    query: str = ""  # the symbol that returns the bytes of its workspace
    asked: tuple[tuple[Parameter, str], ...] = ()  # the query's parameters, each with its C type
    requires: tuple[ast.expr, ...] = ()  # comparisons of sizes that have to be true
    written: str = ""  # the hand-written C function that is its body
    called_by: str = ""  # the hand-written C function that calls it in stream order
    asks: tuple[str, ...] = ()  # the symbols that this function calls
    captured: bool = False  # whether the core's own graphs can contain it
    hides: str = ""  # the object that has no handles of the core during the call
    notes: str = ""  # the DataType whose dtype the first object notes
    group: str = ""  # "begins" or "ends", if it begins or ends a group of calls
    outside_groups: bool = False  # whether it is refused in a group
    outside_graphs: bool = False  # whether it is refused while a graph has calls of its first object
    aborts: bool = False  # whether it destroys its object while other threads may use the object
    noted_by: str = ""  # the hand-written C function that computes the notes of its object
    since: tuple[str, str] | None = None  # the first version of the library whose function is called, and the reason
    declared: tuple[tuple[str, str], ...] = ()  # names and C types of parameters; fields replace structs

    @cached_property
    def parameters(self) -> tuple[Parameter, ...]:
        """Return the parameters that the caller passes, without the handle and the stream; the result is last."""
        passed = [argument for argument in self.arguments if argument.in_record]
        return tuple(sorted(passed, key=lambda parameter: parameter.last))

    def of(self, *roles: str) -> list[Parameter]:
        """Return the parameters with one of these roles."""
        return [parameter for parameter in self.parameters if parameter.role in roles]

    @cached_property
    def arrays(self) -> list[Array]:
        return [parameter for parameter in self.parameters if isinstance(parameter, Array)]

    @cached_property
    def sizes(self) -> list[Size]:
        return [parameter for parameter in self.parameters if isinstance(parameter, Size)]

    @cached_property
    def lists(self) -> list[HostList]:
        return [parameter for parameter in self.parameters if isinstance(parameter, HostList)]

    @cached_property
    def numbers(self) -> list[Number]:
        return [parameter for parameter in self.parameters if isinstance(parameter, Number)]

    @cached_property
    def types(self) -> list[DataType]:
        """Return the parameters that determine dtypes."""
        return [parameter for parameter in self.parameters if isinstance(parameter, DataType)]

    @property
    def is_helper(self) -> bool:
        """Return whether the function takes no device array and no number of BLAS."""
        return not self.arrays and not self.numbers

    @property
    def result(self) -> Result | None:
        """Return the parameter that is the function's value, or None."""
        return next((parameter for parameter in self.parameters if isinstance(parameter, Result)), None)


@dataclass
class Library:
    """One vendor library: its settings, constants and bound functions."""

    name: str
    title: str
    source: str
    backend: str | None
    sonames: list[str]
    stream: str  # one of STREAMS
    last_error: str | None  # the function that describes the last failure
    uncaptured: str | None  # "reason; remedy" if a graph of CUDA or HIP can't have its calls
    scalars: str  # one of SCALARS
    fetches_results: bool  # the core fetches results for the host
    success: int
    also_done: list[int]  # further statuses of calls that did their work
    only_asked: list[int]  # statuses of calls that wrote nothing
    prefixes: list[str]
    suffixes: list[str]
    probe: str | None
    header: str
    version: str
    status_codes: list[tuple[int, str]]
    handle: dict[str, Any] | None
    row_major: tuple[str, int] | None
    constants: dict[str, int]
    functions: list[Function]
    find: dict[str, Any]
    api: dict[str, Any]
    older: Older | None = None
    names_here: dict[str, str] = field(default_factory=dict)  # {the vendor's name of a constant: the package's name}
    status: str = ""  # the type of the statuses that its functions return; "" if they return no status
    integers: dict[str, str] = field(default_factory=dict)  # {the header's name of an integer type: C's name}
    raw: dict[str, str] = field(default_factory=dict)  # {type that the api only names: its C definition}
    object_kinds: list[ObjectKind] = field(default_factory=list)
    dtype_enums: list[Enum] = field(default_factory=list)
    adds: dict[str, list[str]] = field(default_factory=dict)  # {file: names in it that the library's Python module has}
    not_bound: dict[str, list[str]] = field(default_factory=dict)
    only_raw: dict[str, list[str]] = field(default_factory=dict)  # {reason: functions that only <library>.raw has}
    twins: list[str] = field(default_factory=list)  # other symbols of bound functions
    api_count: int = 0

    def takes_result(self, function: Function) -> bool:
        """Return whether the function in Python takes `result=`, a place on the device for its result."""
        result = function.result
        return result is not None and (not result.on_host or self.has_device_form(function))

    @property
    def has_groups(self) -> bool:
        """Return whether calls may be in groups, which are issued at a group's end."""
        return any(function.group for function in self.functions)

    def has_device_form(self, function: Function) -> bool:
        """Return whether the numbers of a function may be on the device."""
        numbers = function.numbers
        if self.scalars == "host":  # a function of the CPU with arrays that returns an integer, such as info
            return (
                self.backend is None and bool(function.arrays) and [number.role for number in numbers] == ["returned"]
            )
        return any(number.role != "value" for number in numbers)
