"""The gallery: runs the programs of examples/ when the site is built, and writes a page of each with its output.

They run on the default device of the machine, or on the device that OFFLOAD_ARGS_GALLERY names.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from _gallery_data import add_data
from sphinx.application import Sphinx
from sphinx.errors import ExtensionError

from offload_args import testing

EXAMPLES = Path(__file__).parents[2] / "examples"
# The order of the pages; an example that is not here comes last.
ORDER = (
    "hello_gemv vendor_call power_iteration principal_components least_squares poisson_cg cg_on_device "
    "implicit_heat gaussian_process kalman_filter spectral_clustering image_svd picture_convolution wing_wake "
    "vector_add relu_chain block_sum stencil mandelbrot lenet_digits matmul_cubin out_of_core"
).split()


# {program: the bytes of the simulated device on which it runs}
MEMORY = {"out_of_core": 24 << 20}


class Order:
    """Sort the examples of a folder."""

    def __init__(self, folder: str) -> None:
        pass

    def __call__(self, file: str) -> tuple[int, str]:
        name = Path(file).stem
        return ORDER.index(name) if name in ORDER else len(ORDER), name


def arguments(settings: dict[str, Any], script: dict[str, Any]) -> list[str]:
    """Return the command line of an example."""
    stem = Path(script["src_file"]).stem
    device = os.environ.get("OFFLOAD_ARGS_GALLERY")
    if stem in MEMORY:
        device = testing.sim_device(capacity=MEMORY[stem]).name
    chosen = ["--device", device] if device else []
    draws = '"--plot"' in Path(script["src_file"]).read_text()
    return chosen + (["--plot", os.devnull] if draws else [])


def complete(app: Sphinx) -> None:
    add_data(Path(app.srcdir) / "gallery", EXAMPLES)


def setup(app: Sphinx) -> dict[str, Any]:
    for name in ORDER:
        if not (EXAMPLES / f"{name}.py").exists():
            raise ExtensionError(f"docs/_ext/gallery.py: ORDER has {name}, which is not in {EXAMPLES}")
    app.setup_extension("sphinx_gallery.gen_gallery")
    app.config.sphinx_gallery_conf = {
        "examples_dirs": str(EXAMPLES),
        "gallery_dirs": "gallery",
        "filename_pattern": "",
        "within_subsection_order": "gallery.Order",
        "reset_argv": "gallery.arguments",
        "capture_repr": (),
        "abort_on_example_error": True,
        "notebook_extensions": set(),  # the programs read their command lines
        "download_all_examples": False,
        "default_thumb_file": str(Path(app.confdir) / "_static" / "program.svg"),
        "remove_config_comments": True,
        "min_reported_time": float("inf"),
        "show_memory": False,
        "show_signature": False,
        "write_computation_times": False,
    }
    app.connect("builder-inited", complete, priority=900)  # after sphinx-gallery has written the pages
    app.add_css_file("gallery.css")
    return {"parallel_read_safe": True}
