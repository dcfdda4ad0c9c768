"""A separate process for one library's double, because a process loads a library only once.

The process reads one request from each line, and writes the failures that it found:

    {"check": "arrival", "functions": ["sgemv"], "turns": 2}
    {"failures": []}                                         or the traceback of each function that failed
"""

from __future__ import annotations

import json
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
sys.path += [str(ROOT / "tests"), str(ROOT)]  # at the end, so that the installed offload_args is imported

import offload_args  # noqa: E402
from offload_args import testing  # noqa: E402
from recording import (  # noqa: E402
    arrival,
    captures,
    copies,
    descriptors,
    helper_functions,
    legal,
    movement,
    overlap,
    plans,
    products,
    tight,
    wrong,
)
from recording.bench import DoubleBench  # noqa: E402
from recording.recorder import Typed  # noqa: E402

CHECKS: dict[str, Callable[[DoubleBench, legal.roles.Function, int], None]] = {
    "arrival": arrival.check,
    "captures": captures.check,
    "copies": copies.check,
    "descriptors": descriptors.check,
    "movement": movement.check,
    "overlap": overlap.check,
    "plans": plans.check,
    "products": products.check,
    "helper functions": helper_functions.check,
    "helper functions beside captures": captures.check_helper_function,
    "tight": tight.check,
    "wrong": wrong.check,
}


def main() -> None:
    """Answer requests until there are no more."""
    settings: dict[str, Any] = json.loads(sys.argv[1])
    library = legal.library(settings["library"])
    package = Path(offload_args.__file__).parent
    if not (package / "include").exists():  # an editable install has compiled files in another folder
        package = Path(offload_args._core.__file__).parent
    typed = Typed(package, library.name, Path(settings["typed"]))
    bench = DoubleBench(library, settings["device"], Path(settings["double"]), typed, settings["integer_bits"])
    functions = {function.name: function for function in library.functions}
    for line in sys.stdin:
        request = json.loads(line)
        failures = []
        for name in request["functions"]:
            function = functions[name]
            try:
                CHECKS[request["check"]](bench, function, request["turns"])
                testing.no_mappings_left()
            except Exception:
                failures.append(f"{function.symbol}\n{traceback.format_exc()}")
        print(json.dumps({"failures": failures}), flush=True)


if __name__ == "__main__":
    main()
