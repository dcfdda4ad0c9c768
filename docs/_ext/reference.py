"""The reference of the site, made when it is built; CONTRIBUTING.md lists its sources.

Pages on vendors' routines and on C headers are written to docs/reference/_generated, which git ignores.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parents[1])]  # this folder, and the root for `bindings`

import _directives  # noqa: E402
import _docstrings  # noqa: E402
import _headers  # noqa: E402
import _records  # noqa: E402
from sphinx.application import Sphinx  # noqa: E402


def write_pages(app: Sphinx) -> None:
    """Write the generated pages that changed, so that only these are read again."""
    folder = Path(app.srcdir, "reference", "_generated")
    texts = {**dict(_records.pages(Path(app.srcdir, "guide"))), **dict(_headers.pages())}
    for path in folder.rglob("*.md"):
        if path.relative_to(folder).as_posix() not in texts:
            path.unlink()
    for name, text in texts.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.exists() or path.read_text() != text:
            path.write_text(text)


def write_all(app: Sphinx, env: Any) -> list[str]:
    """Have all pages written, because Sphinx's search forgets the words of {index} blocks of pages that stay."""
    return sorted(env.all_docs)


def setup(app: Sphinx) -> dict[str, Any]:
    """Add the directives and the hooks of autodoc."""
    app.setup_extension("sphinx.ext.autodoc")
    app.add_object_type("vendor", "vendor", objname="vendor's function")
    app.add_object_type("vendor-constant", "vendor-constant", objname="vendor's constant")
    app.registry.domain_object_types["std"]["vendor-constant"].attrs["searchprio"] = 2  # below all others
    app.add_directive("routines", _directives.Routines)
    app.add_directive("vendor-constants", _directives.Constants)
    app.add_directive("prototypes", _directives.Prototypes)
    app.add_directive("library-variables", _directives.LibraryVariables)
    app.add_directive("command-line", _directives.CommandLine)
    app.add_object_type("c-name", "c-name", objname="C")
    app.add_directive("c-header", _directives.CHeader)
    app.connect("builder-inited", write_pages)
    app.connect("env-updated", write_all)
    app.connect("autodoc-process-docstring", _docstrings.rewrite)
    app.connect("autodoc-process-signature", _docstrings.sign)
    return {"version": "2", "parallel_read_safe": True, "parallel_write_safe": True}
