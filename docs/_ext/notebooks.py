"""The notebooks of docs/notebooks: each runs when the site is built, and an exception in one fails the build."""

from __future__ import annotations

from typing import Any

from sphinx.application import Sphinx


def setup(app: Sphinx) -> dict[str, Any]:
    app.config.nb_execution_mode = "force"
    app.config.nb_execution_raise_on_error = True
    app.config.nb_execution_timeout = 600  # seconds, of a cell, on a busy machine too
    app.config.nb_merge_streams = True
    app.config.nb_ipywidgets_js = {}  # no notebook has widgets
    app.add_css_file("notebooks.css")
    return {"parallel_read_safe": True}
