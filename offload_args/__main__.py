"""The command line: `python -m offload_args info [--json]`, `... config --cflags --libs`, `... demo` and
`... trace script.py [arguments]`."""

from __future__ import annotations

import argparse
import json
import os
import shlex
import sys
from collections.abc import Sequence
from typing import Any

from . import Device, __version__, libraries
from .errors import LibraryError, OffloadError
from .kernels.compilers import VENDORS
from .kernels.rtc import Vendor


def _device(device: Device) -> dict[str, Any]:
    memory = device.memory
    return {
        "name": device.name,
        "model": device.model,
        "memory_free": memory.free,
        "memory_total": memory.total,
        "driver_version": device.driver_version,
        "driver": libraries.driver(device.backend),
        "compute_capability": ".".join(map(str, device.compute_capability)),
    }


def _library(name: str) -> dict[str, Any]:
    try:
        found = libraries.load(name)
    except LibraryError as error:
        return {"name": name, "error": str(error)}
    return {"name": name, "path": found.path, "version": found.version, "found": found.found}


def _absent(backend: str) -> str:
    """Say why a backend has no device."""
    try:
        return f"{Device(f'{backend}:0')} is there"
    except OffloadError as error:
        return str(error).partition(f'no device "{backend}:0": ')[2] or str(error)


def _compiler(vendor: Vendor) -> dict[str, Any]:
    try:
        return {"name": vendor.title, "path": vendor.path(), "version": vendor.version()}
    except LibraryError as error:
        return {"name": vendor.title, "error": " ".join(str(error).split())}


def collect() -> dict[str, Any]:
    """Collect the version, the devices, the libraries and the compilers of kernels, with paths and versions."""
    found: dict[str, Any] = {"offload_args": __version__}
    try:
        found["devices"] = [_device(device) for device in Device.all()]
        found["default"] = Device.default().name
    except OffloadError as error:
        found["devices"] = [_device(Device.host())]
        found["devices_error"] = str(error)
    there = {device["name"].partition(":")[0] for device in found["devices"]}
    found["absent"] = {backend: _absent(backend) for backend in ("cuda", "hip") if backend not in there}
    found["libraries"] = [_library(name) for name in libraries.NAMES]
    found["compilers"] = [_compiler(vendor) for vendor in VENDORS.values()]
    return found


def _info(as_json: bool) -> int:
    found = collect()
    if as_json:
        print(json.dumps(found, indent=2))
        return 0
    print(f"offload_args {found['offload_args']}")
    for device in found["devices"]:
        total = device["memory_total"] / 2**30
        free = device["memory_free"] / 2**30
        details = f"{device['model']}, {free:.1f} of {total:.1f} GiB free"
        if device["driver_version"]:
            details += f", driver {device['driver_version']}, compute capability {device['compute_capability']}"
            details += f", {device['driver']}" * bool(device["driver"])
        default = " (default)" if device["name"] == found.get("default") else ""
        print(f"device {device['name']}{default}: {details}")
    if "devices_error" in found:
        print(f"devices: {found['devices_error']}")
    for backend, why in found["absent"].items():
        print(f"no device {backend}: {why}")
    for one in found["libraries"]:
        if "error" in one:
            print(f"library {one['error']}")
        else:
            print(
                f"library {one['name']}: {one['path']}, version {one['version'] or 'not said'}, found by {one['found']}"
            )
    for one in found["compilers"]:
        print(f"compiler {one['error'] if 'error' in one else one['version'] + ': ' + one['path']}")
    return 0


def _trace(given: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m offload_args trace",
        description="Run a script, then say what it copied, called and waited for, and what to do about it.",
    )
    parser.add_argument("--save", metavar="FILE", help="write a timeline for ui.perfetto.dev, such as trace.json")
    parser.add_argument("-m", dest="module", action="store_true", help="script is a module's name")
    parser.add_argument("script")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, help="the script's own")
    options = parser.parse_args(given)
    import runpy

    from .tracing import process

    sys.argv = [options.script, *options.arguments]
    if options.module:
        sys.path.insert(0, os.getcwd())
        return process.run(lambda: runpy.run_module(options.script, run_name="__main__", alter_sys=True), options.save)
    if not os.path.exists(options.script):
        parser.error(f"no file {options.script}")
    sys.path.insert(0, os.path.dirname(os.path.abspath(options.script)))
    return process.run(lambda: runpy.run_path(options.script, run_name="__main__"), options.save)


def _config(options: argparse.Namespace) -> int:
    from . import embedding

    places = ("include", "library", "cmake_dir", "pkg_config_dir")
    words = embedding.cflags() if options.cflags else []
    words += embedding.libs() if options.libs else []
    words += [getattr(embedding, f"get_{one}")() for one in places if getattr(options, one)]
    if not words:
        for one in places:
            print(f"{one.replace('_', '-')}: {getattr(embedding, f'get_{one}')()}")
    else:
        print(shlex.join(words))
    return 0


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return the exit status."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    if given[:1] == ["demo"]:  # it has options of its own
        from . import demo

        return demo.main(given[1:])
    if given[:1] == ["trace"]:
        return _trace(given[1:])
    if given[:1] == ["selftest"]:
        from . import selftest

        return selftest.main(given[1:])
    parser = argparse.ArgumentParser(prog="python -m offload_args", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    info = commands.add_parser("info", help="say which devices and libraries are here, and where each was found")
    info.add_argument("--json", action="store_true", help="as JSON")
    config = commands.add_parser("config", help="say how a C program is compiled and linked with the C library")
    config.add_argument("--cflags", action="store_true", help="the options for the compiler")
    config.add_argument("--libs", action="store_true", help="the options for the linker")
    config.add_argument("--include", action="store_true", help="the folder of the headers")
    config.add_argument("--library", action="store_true", help="the file of the library")
    config.add_argument("--cmake-dir", action="store_true", help="the folder for offload_args_DIR of CMake")
    config.add_argument("--pkg-config-dir", action="store_true", help="the folder for PKG_CONFIG_PATH")
    commands.add_parser("demo", help="principal components of a real data set, on the default device")
    commands.add_parser("selftest", help="some hundreds of checks of a device, and a report to paste")
    commands.add_parser("trace", help="run a script, and say what it copied and what to do about it")
    options = parser.parse_args(given)
    return _config(options) if options.command == "config" else _info(options.json)


if __name__ == "__main__":
    sys.exit(main())
