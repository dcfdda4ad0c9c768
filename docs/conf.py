"""The site's settings; `make docs` builds it. Every file of docs/_ext is loaded as an extension of Sphinx."""

import sys
from importlib.metadata import version as version_of
from pathlib import Path

from pygments.lexers.shell import BashLexer
from sphinx.application import Sphinx

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE / "_ext"))

project = "offload_args"
copyright = "offload_args developers"
version = release = version_of("offload-args")

extensions = ["myst_nb", "sphinx_copybutton", *sorted(path.stem for path in (HERE / "_ext").glob("[!_]*.py"))]
exclude_patterns = ["_ext", "internals/promises.md"]  # the promises link to sources, which are not here
highlight_language = "text"
myst_heading_anchors = 3
copybutton_exclude = ".linenos, .gp, .go"

add_module_names = False
autodoc_member_order = "bysource"
autodoc_preserve_defaults = True
python_use_unqualified_type_names = True
python_maximum_signature_line_length = 100

html_theme = "furo"
html_title = f"offload_args {version.partition('+')[0]}"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_js_files = ["breaks.js"]
html_logo = html_favicon = "_static/logo.svg"
html_copy_source = False


def setup(app: Sphinx) -> None:
    """Read commands without a prompt as the shell does, so that their comments are comments on the page."""
    app.add_lexer("console", BashLexer)
