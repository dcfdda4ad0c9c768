"""Writes the stubs of the Python modules, for static checkers."""

from __future__ import annotations

from ..helper_functions import Given
from ..library import Function, Library
from ..schema import STUB_IMPORTS
from .c_text import made_from
from .docs import takes_handle
from .python_modules import attribute_tables


def _helper(function: Function) -> str:
    """Return the stub of a helper function."""
    taken = ", ".join(
        f"{parameter.name}: {parameter.annotation()}" for parameter in function.parameters if parameter.in_python
    )
    outputs = [parameter.annotation() for parameter in function.parameters if isinstance(parameter, Given)]
    returns = outputs[0] if len(outputs) == 1 else f"tuple[{', '.join(outputs)}]" if outputs else "None"
    return f"def {function.name}({taken}) -> {returns}: ..."


def python_stub(library: Library) -> str:
    """Return <library>.pyi."""
    lines = [f"# {made_from(library)}", STUB_IMPORTS]
    for module, names in library.adds.items():
        lines += [f"from .{module} import {name} as {name}" for name in names]
    lines += [f"{name}: Final = {value}" for name, value in library.constants.items()] + ["raw: Final[Raw]", ""]
    attributes = attribute_tables(library)
    if attributes:
        lines.append("_ATTRIBUTES: Final[dict[str, tuple[str, dict[str, tuple[int, str]]]]]")
    for kind in library.object_kinds:
        facts = attributes.get(kind.name, ("", {}))[1]
        listed = [
            f"    {name}: {'float' if dtype == 'f32' else 'Any' if dtype == 'u64' else 'int'}"
            for name, (_, dtype) in facts.items()
        ]
        lines += ["@final", f"class {kind.name}(LibraryObject):{'' if listed else ' ...'}", *listed]
    for function in library.functions:
        if function.is_helper:
            lines.append(_helper(function))
            continue
        handle = ["handle: object = None"] if takes_handle(function) else []
        result = function.result
        positional = [parameter for parameter in function.parameters if parameter is not result and parameter.in_python]
        given_types = [
            parameter.annotation()
            for parameter in function.parameters
            if parameter is not result and not parameter.in_python
        ]
        if result and library.takes_result(function):
            shown = [f"{parameter.name}: {parameter.annotation()}" for parameter in positional]
            on_host = ", ".join([*shown, *(["*", "result: None = None", *handle])])
            pointer = result.annotation(True)
            on_device = ", ".join([*shown, "*", f"result: {pointer}", *handle])
            lines += ["@overload", f"def {function.name}({on_host}) -> {result.python}: ..."]
            lines += ["@overload", f"def {function.name}({on_device}) -> None: ..."]
        elif function.of("update", "output"):
            inputs = [
                f"{parameter.name}: {parameter.annotation(False)}"
                for parameter in positional
                if parameter.role != "output"
            ]
            outputs = [f"{parameter.name}: None = None" for parameter in positional if parameter.role == "output"]
            values = [number for number in function.numbers if number.role in ("update", "output")]
            kinds = [value.python if value.count == 1 else f"tuple[{value.python}, ...]" for value in values]
            on_device = ", ".join(
                f"{parameter.name}: {parameter.annotation(None if parameter.role == 'scalar' else True)}"
                for parameter in positional
            )
            on_host = ", ".join([*inputs, *outputs])
            lines += ["@overload", f"def {function.name}({on_host}) -> tuple[{', '.join(kinds)}]: ..."]
            lines += ["@overload", f"def {function.name}({on_device}) -> None: ..."]
        else:
            may_be_there = None if library.has_device_form(function) else False
            shown = [f"{parameter.name}: {parameter.annotation(may_be_there)}" for parameter in positional]
            signature = ", ".join([*shown, *(["*", *handle] if handle else [])])
            outputs = [*([result.python] if result else []), *given_types]
            returns = f"tuple[{', '.join(outputs)}]" if len(outputs) > 1 else outputs[0] if outputs else "None"
            lines.append(f"def {function.name}({signature}) -> {returns}: ...")
    return "\n".join(lines) + "\n"
