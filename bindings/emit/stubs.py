"""Writes the stubs of the Python modules, for static checkers."""

from __future__ import annotations

from ..parameters import PYTHON
from ..roles import Library
from .c_text import made_from


def python_stub(library: Library) -> str:
    """Returns <library>.pyi."""
    lines = [f"# {made_from(library)}", "from collections.abc import Sequence"]
    lines += ["from typing import Final, overload", "", "import numpy as np", ""]
    lines += ["from ._raw import Raw", "from .pointers import DevicePtr", ""]
    lines += [f"{name}: Final = {value}" for name, value in library.constants.items()] + ["raw: Final[Raw]", ""]
    handle = ["handle: object = None"] if library.handle else []
    for function in library.functions:
        result = function.result
        positional = [one for one in function.parameters if one is not result]
        if result and not result.on_host:
            shown = [f"{one.name}: {one.annotation()}" for one in positional]
            on_host = ", ".join([*shown, *(["*", "result: None = None", *handle])])
            pointer = result.annotation(True)
            on_device = ", ".join([*shown, "*", f"result: {pointer}", *handle])
            lines += ["@overload", f"def {function.name}({on_host}) -> {PYTHON[result.dtype]}: ..."]
            lines += ["@overload", f"def {function.name}({on_device}) -> None: ..."]
        elif function.of("update", "output"):
            inputs = [f"{one.name}: {one.annotation(False)}" for one in positional if one.role != "output"]
            outputs = [f"{one.name}: None = None" for one in positional if one.role == "output"]
            values = [one for one in positional if one.role in ("update", "output")]
            kinds = [PYTHON[one.dtype] if one.count == 1 else f"tuple[{PYTHON[one.dtype]}, ...]" for one in values]
            on_device = ", ".join(
                f"{one.name}: {one.annotation(None if one.role == 'scalar' else True)}" for one in positional
            )
            on_host = ", ".join([*inputs, *outputs])
            lines += ["@overload", f"def {function.name}({on_host}) -> tuple[{', '.join(kinds)}]: ..."]
            lines += ["@overload", f"def {function.name}({on_device}) -> None: ..."]
        else:
            shown = [f"{one.name}: {one.annotation()}" for one in positional]
            signature = ", ".join([*shown, *(["*", *handle] if handle else [])])
            returns = PYTHON[result.dtype] if result else "None"
            lines.append(f"def {function.name}({signature}) -> {returns}: ...")
    return "\n".join(lines) + "\n"
