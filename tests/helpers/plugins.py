"""Other packages' own tests, which a plugin of tests/suites lets compute by offload_args, in a separate process."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from helpers.devices import open_or_skip
from helpers.processes import output_of

SUITES = Path(__file__).parents[1] / "suites"


def output_with(plugin: str, device: str, *tests: object, folder: Path) -> str:
    """Run tests with a plugin, such as "scipy_fft_suite", on a device, or skip; return the output of pytest."""
    options = f"-q -W ignore -p no:cacheprovider -p no:xdist -p {plugin} --rootdir={folder}"
    return output_of(
        *(sys.executable, "-m", "pytest", *options.split(), *tests),
        folder=folder,
        timeout=1800,
        OFFLOAD_ARGS_DEVICE=open_or_skip(device),
        PYTHONPATH=os.pathsep.join([str(SUITES), os.environ.get("PYTHONPATH", "")]),
    )
