"""Families that several libraries share: a roles file extends them, and they have batched forms."""

from __future__ import annotations

import ast
import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Any

from .labelled import Extent
from .parameters import Array, Number, Parameter, PointerArray, Result, Scalar, Size

# {form} in the name of a function stands for one of these keys, whose text is added to the function's summary.
FORMS = {
    "": "",
    "_batched": " The call does so for a batch, whose operands are given by arrays of pointers.",
    "_strided_batched": " The call does so for a batch, whose operands start strides apart.",
}
_TABLES = ("bind", "parameters", "also", "types")


def extended(roles: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Return roles with the families of the files that it extends; its own entry of a family takes precedence."""
    families = dict(roles.get("family", {}))
    for name in roles.get("extends", []):
        shared = tomllib.loads((folder / "roles" / f"{name}.toml").read_text())
        for key, family in shared["family"].items():
            own = families.get(key, {})
            tables = {
                table: {**family.get(table, {}), **own.get(table, {})}
                for table in _TABLES
                if table in family or table in own
            }
            taken = set(family["bind"]) - set(own.get("bind", {}))
            families[key] = {**family, **own, **tables, "shared": taken}
    return {**roles, "family": families}


def _folded(name: str) -> str:
    return name.replace("_", "").casefold()


def label_in_form(form: str, name: str) -> str:
    """Return the role of a parameter that a family's batched form has and its plain form lacks, or ""."""
    if form and _folded(name) == "batchcount":
        return "size"
    return "stride" if form == "_strided_batched" and _folded(name).startswith("stride") else ""


def is_listed(form: str) -> bool:
    """Return whether the arrays of a batched form are passed as arrays of pointers."""
    return form == "_batched"


def plain_name(form: str, name: str) -> str:
    """Return the name of a batched form's parameter in the plain form, such as A for Aarray."""
    return name.removesuffix("array") if is_listed(form) else name


def in_form(form: str, parameters: list[Parameter], on_device: bool) -> tuple[list[Parameter], list[str]]:
    """Return the parameters of one of a family's batched forms, and the arrays that lack a stride.

    A result becomes the device array `results`. A scalar that has a stride becomes a device array, too. `on_device`:
    whether all pointers are to the device, including a result's pointer.
    """
    if not form:
        single = Extent("elements", (ast.Constant(1),))
        return [
            _array(parameter, "out", single) if on_device and isinstance(parameter, Result) else parameter
            for parameter in parameters
        ], []
    sizes = {_folded(parameter.name): parameter.name for parameter in parameters if isinstance(parameter, Size)}
    count = sizes.get("batchcount", "")
    changed: list[Parameter] = []
    lacking: list[str] = []
    for parameter in parameters:
        name = _folded(parameter.name)
        stride = sizes.get(f"stride{name}", "")
        if isinstance(parameter, PointerArray):
            lacking += [] if count else [parameter.name]
            parameter = replace(parameter, extent=replace(parameter.extent, pointers=ast.Name(count)))
        elif isinstance(parameter, Array):
            stride = stride or sizes.get(f"stride{name[0]}", "")  # the stride of AP may be stride_A
            if not stride or not count:
                lacking.append(parameter.name)
            parameter = replace(parameter, extent=replace(parameter.extent, batch=(ast.Name(stride), ast.Name(count))))
        elif isinstance(parameter, Result):
            parameter = replace(_array(parameter, "out", Extent("elements", (ast.Name(count),))), name="results")
        elif isinstance(parameter, Scalar) and stride:
            elements = (ast.Constant(parameter.count),)
            parameter = _array(parameter, "in", Extent("elements", elements, (ast.Name(stride), ast.Name(count))))
        changed.append(parameter)
    return changed, lacking


def _array(number: Number, direction: str, extent: Extent) -> Array:
    return Array(
        name=number.name, c_type=number.c_type, dtype=number.dtype, of=number.of, direction=direction, extent=extent
    )
