"""`python -m offload_args info`: the devices, the libraries and the compilers that are here."""

from __future__ import annotations

import argparse
import json
from typing import Any

from .. import Device, __version__, libraries
from ..errors import LibraryError, OffloadError
from ..kernels.compilers import VENDORS
from ..kernels.rtc import Vendor

HELP = "say which devices, libraries and compilers are here, and where each was found"
DESCRIPTION = """Print the devices with their memory and drivers, the vendors' libraries with their paths and versions,
and the compilers of kernels. If one is not here, say which places were tried."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print it as JSON")


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


def run(options: argparse.Namespace) -> int:
    found = collect()
    if options.json:
        print(json.dumps(found, indent=2))
        return 0
    print(f"offload_args {found['offload_args']}")
    for device in found["devices"]:
        total = device["memory_total"] / 2**30
        free = device["memory_free"] / 2**30
        details = f"{device['model']}, {f'{free:.1f} of {total:.1f} GiB free' if total else 'memory not known'}"
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
