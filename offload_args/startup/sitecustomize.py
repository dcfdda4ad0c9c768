"""Accelerate this process, as a child of `offload_args run --children`, once it imports NumPy.

The parent put this folder at the beginning of PYTHONPATH, so that Python imports this module when it starts. This
module then imports the module sitecustomize that it hides. The process may run in another environment, without
offload_args.
"""

import os
import sys
from importlib import import_module
from importlib.machinery import ModuleSpec
from types import ModuleType


class _AtNumPy:
    """Start after the import of NumPy, so that a process that does not use NumPy has no cost."""

    @classmethod
    def find_spec(cls, name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        if name != "numpy":
            return None
        from importlib.util import find_spec

        sys.meta_path.remove(cls)
        spec = find_spec(name)
        if spec is not None and spec.loader is not None:
            first = spec.loader.exec_module

            def exec_module(module: ModuleType) -> None:
                first(module)
                try:
                    from offload_args.children import start
                except ImportError:
                    return
                start()

            spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


def _import_hidden() -> None:
    here = os.path.dirname(os.path.abspath(__file__))
    own, path = sys.modules.pop("sitecustomize", None), sys.path.copy()
    sys.path[:] = [folder for folder in path if os.path.abspath(folder) != here]
    try:
        import_module("sitecustomize")
    except ImportError as error:
        if error.name != "sitecustomize":
            raise
        if own is not None:
            sys.modules["sitecustomize"] = own


if os.environ.get("OFFLOAD_ARGS_RUN"):
    sys.meta_path.insert(0, _AtNumPy)
_import_hidden()
