"""`python -m offload_args info`: the devices, the libraries and the compilers of this machine."""

from __future__ import annotations

import argparse
import json
import platform
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from .. import Device, __version__, libraries
from ..errors import LibraryError, OffloadError

if TYPE_CHECKING:
    from ..kernels.rtc import Vendor

HELP = "say which devices, libraries and compilers are here, and where each was found"
DESCRIPTION = """Print a line for each device, vendor's library and compiler of kernels, with its version, or with the
remedy if it is not here."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--verbose", action="store_true", help="add paths, and the places that were tried")
    parser.add_argument("--json", action="store_true", help="print all of it as JSON")


def _device(device: Device) -> dict[str, Any]:
    memory = device.memory
    return {
        "name": device.name,
        "model": device.model,
        "coherent": device.coherent,
        "memory_free": memory.free,
        "memory_total": memory.total,
        "driver_version": device.driver_version,
        "driver": libraries.driver(device.backend),
        # The model of an AMD GPU already has the name of the processor for which code is compiled, such as gfx90a.
        "compute_capability": "" if device.backend == "hip" else ".".join(map(str, device.compute_capability)),
    }


def _library(name: str) -> dict[str, Any]:
    try:
        library = libraries.load(name)
    except LibraryError as error:
        return {"name": name, "error": str(error)}
    return {"name": name, "path": library.path, "version": library.version, "found": library.found}


def _absent(backend: str) -> str:
    """Return the reason why a backend has no device."""
    try:
        return f"{Device(f'{backend}:0')} is there"
    except OffloadError as error:
        return str(error).partition(f'no device "{backend}:0": ')[2] or str(error)


def _compiler(vendor: Vendor) -> dict[str, Any]:
    try:
        return {"name": vendor.title, "path": vendor.path(), "version": vendor.version()}
    except LibraryError as error:
        return {"name": vendor.title, "error": " ".join(str(error).split())}


def _installed(package: str) -> str:
    import importlib.metadata

    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return ""


def collect() -> dict[str, Any]:
    """Collect the versions of the package and of Python, the devices, the libraries and the compilers of kernels."""
    from ..kernels.compilers import VENDORS

    facts: dict[str, Any] = {"offload_args": __version__}
    facts["python"] = f"{platform.python_implementation()} {platform.python_version()}"
    facts["packages"] = {name: _installed(name) for name in ("NumPy", "SciPy")}
    try:
        facts["devices"] = [_device(device) for device in Device.all()]
        facts["default"] = Device.default().name
    except OffloadError as error:
        facts["devices"] = [_device(Device.host())]
        facts["devices_error"] = str(error)
    present = {device["name"].partition(":")[0] for device in facts["devices"]}
    facts["absent"] = {backend: _absent(backend) for backend in ("cuda", "hip") if backend not in present}
    facts["simulated"] = _device(Device("sim:0"))
    facts["libraries"] = [_library(name) for name in libraries.NAMES]
    facts["compilers"] = [_compiler(vendor) for vendor in VENDORS.values()]
    return facts


def _device_line(device: dict[str, Any], verbose: bool) -> str:
    total = device["memory_total"] / 2**30
    free = device["memory_free"] / 2**30
    details = f"{device['model']}, {f'{free:.1f} of {total:.1f} GiB free' if total else 'memory not known'}"
    if device["coherent"]:
        details += ", coherent: arrays are lent without copies"
    if device["driver_version"]:
        details += f", driver {device['driver_version']}"
        details += f", compute capability {device['compute_capability']}" * bool(device["compute_capability"])
        details += f", {device['driver']}" * bool(verbose and device["driver"])
    return details


def _library_line(library: dict[str, Any], verbose: bool) -> str:
    name = library["name"]
    if "error" in library:
        error: str = library["error"]
        if verbose:
            return error
        remedy, _, tried = error.partition(" Tried: ")
        return (
            f"{name}: not loaded: {tried}" if libraries.chosen(name) else remedy.partition(", or set OFFLOAD_ARGS_")[0]
        )
    version = library["version"] or "not said"
    if verbose:
        return f"{name}: {library['path']}, version {version}, found by {library['found']}"
    number = re.match(r"\S*( \S*)??\d\S*", version)  # OpenBLAS's options follow its number
    return f"{name}: version {number[0] if number else version}, found by {library['found']}"


def _compiler_line(compiler: dict[str, Any], verbose: bool) -> str:
    if "error" in compiler:
        error: str = compiler["error"]
        whole = verbose or libraries.chosen(compiler["name"])
        reason = error.removeprefix("Kernel.compile: ")
        return error if whole else re.split(r" \((?!in a checkout)|, or set OFFLOAD_ARGS_", reason)[0]
    return f"{compiler['version']}: {compiler['path']}" if verbose else str(compiler["version"])


def lines(facts: dict[str, Any], verbose: bool) -> Iterator[str]:
    """Yield a line for each device, library and compiler. `verbose` adds paths, and the places that were tried."""
    yield f"offload_args {facts['offload_args']}"
    packages = [f"{name} {version}" if version else f"no {name}" for name, version in facts["packages"].items()]
    yield ", ".join([facts["python"], *packages])
    for device in facts["devices"]:
        default = " (default)" if device["name"] == facts.get("default") else ""
        yield f"device {device['name']}{default}: {_device_line(device, verbose)}"
    simulated = facts["simulated"]
    yield f"device {simulated['name']}: {_device_line(simulated, verbose)}; the default only by OFFLOAD_ARGS_DEVICE"
    if "devices_error" in facts:
        yield f"devices: {facts['devices_error']}"
    for backend, reason in facts["absent"].items():
        yield f"no device {backend}: {reason if verbose else reason.partition(' (')[0]}"
    yield from (f"library {_library_line(library, verbose)}" for library in facts["libraries"])
    yield from (f"compiler {_compiler_line(compiler, verbose)}" for compiler in facts["compilers"])
    if not verbose:
        yield "--verbose adds paths, and the places that were tried"


def run(options: argparse.Namespace) -> int:
    facts = collect()
    if options.json:
        print(json.dumps(facts, indent=2))
        return 0
    for line in lines(facts, options.verbose):
        print(" ".join(line.split()))
    return 0
