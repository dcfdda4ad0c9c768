"""Kernels in a recording: their signatures, and, if requested, their machine code."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Final

from .. import _core
from ..arguments import In, InOut, Out, Parameter
from ..devices import Device
from ..errors import OffloadError
from ..kernels import partitions
from ..kernels.binary import Image, read
from ..kernels.compilers import Target
from ..kernels.kernel_type import Kernel, Shape
from ..kernels.loaded import Loaded, Source
from ..kernels.python.decorated import PythonSource
from .layout import dtype_named
from .twins import NoTwinError

__all__ = ["Kernels", "described", "image_on", "images_of", "parameter_names"]

_ACCESSES: Final = {0: "value", _core.OA_READ: "in", _core.OA_OVERWRITE: "out", _core.OA_READ_WRITE: "inout"}
_DECLARED: Final = {"in": In, "out": Out, "inout": InOut}
_PARTITIONS: Final = {kind.__name__: kind for kind in partitions.Partition.__subclasses__()}
_PORTABLE: Final = Target("cuda", "sm_75")  # PTX for this target runs on later GPUs, too


def _is_checked(kernel: Kernel, device: Device) -> bool:
    return kernel._checked is not None and (kernel._always_checked or not device.is_gpu)


def image_on(kernel: Kernel, device: Device) -> Image:
    """Return the module that a launch on a device runs. Raises OffloadError if there is no such module."""
    if kernel._checked is not None and _is_checked(kernel, device):
        kernel = kernel._checked[device.is_gpu]
    return kernel._loaded.image_for(device)


def images_of(kernel: Kernel, device: Device) -> Iterator[Image]:
    """Yield the modules of a kernel, without checks of accesses: first for a device, then for other devices for which
    this machine can compile."""
    for on in (device, Device.host()):
        with contextlib.suppress(OffloadError):
            yield kernel._loaded.image_for(on)
    if isinstance(kernel._loaded, PythonSource):
        with contextlib.suppress(OffloadError):
            yield kernel._loaded.compiled(_PORTABLE)


def described(kernel: Kernel, device: Device) -> dict[str, Any]:
    """Return the signature of a kernel in JSON's form."""
    rows = []
    for formal in kernel._formals:
        row = {"access": _ACCESSES[formal.access]}
        if formal.dtype is not None:
            row["dtype"] = "struct" if formal.dtype.names is not None else formal.dtype.name
        if formal.partition is not None:
            row["by"] = repr(formal.partition)
        rows.append(row)
    return {
        "name": kernel.name,
        "signature": rows,
        "shapes": [list(shape) for shape in getattr(kernel, "_shapes", ())],
        "facts": kernel.facts is not None,
        "checked": _is_checked(kernel, device),
    }


def parameter_names(kernel: Kernel) -> list[str]:
    """Return the names of a kernel's parameters; an empty list if neither its signature nor its source has them."""
    count = len(kernel._formals)
    names = [re.search(r"\((\w+)\)$", formal.name) for formal in kernel._formals]
    if all(names):
        return [match[1] for match in names if match is not None]
    text = kernel._loaded.text if isinstance(kernel._loaded, Source) else ""
    for start in re.finditer(rf"\b{re.escape(kernel.name.partition('<')[0])}\s*[(,]", text):
        words = _names_until_bracket(text[start.end() :])
        if len(words) == count:
            return words
    return []


def _names_until_bracket(text: str) -> list[str]:
    """Return the last word of each parameter in a list that ends with a bracket."""
    parts, depth = [""], 0
    for letter in text:
        if letter == ")" and depth == 0:
            break
        depth += (letter in "(<[") - (letter in ")>]")
        if letter == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += letter
    words = [re.search(r"(\w+)\s*(\[\w*\]\s*)?$", part) for part in parts]
    return [match[1] for match in words if match is not None]


class Kernels:
    """The kernels of a recording, which are made from its images."""

    def __init__(self) -> None:
        self._images: dict[str, bytes] = {}
        self._rows: dict[int, dict[str, Any]] = {}
        self._kernels: dict[tuple[int, int], Kernel] = {}  # by the kernel's number and the device's number

    def note_image(self, digest: str, data: bytes) -> None:
        self._images[digest] = data

    def note_kernel(self, event: dict[str, Any]) -> None:
        self._rows[event["kernel"]] = event

    def check(self, event: dict[str, Any]) -> None:
        """Raise NoTwinError for a launch that can't be made again on any device."""
        name, row = event["launch"], self._rows[event["kernel"]]
        if event.get("unsafe"):
            raise NoTwinError(f"kernel {name}: a launch by offload_unsafe is not made again")
        if row["checked"] and "error" in event:
            raise NoTwinError(f"kernel {name}: its checks failed, and the recording has it without them")
        if any(formal.get("dtype") == "struct" for formal in row["signature"]):
            raise NoTwinError(f"kernel {name}: it takes a struct, whose values a recording does not have")

    def launch(self, event: dict[str, Any], arguments: list[Any], device: Device) -> None:
        """Launch the kernel of an event. Raises NoTwinError if the recording has no such kernel for the device."""
        kernel = self._kernel(event["kernel"], self._rows[event["kernel"]], device)
        shape = tuple(event["grid"]), tuple(event["block"]), event["shared_bytes"]
        cluster = tuple(event["cluster"]) if "cluster" in event else None
        kernel._launcher(*shape, None, bool(event.get("cooperative")), cluster)(*arguments)

    def _kernel(self, number: int, row: dict[str, Any], device: Device) -> Kernel:
        kernel = self._kernels.get((number, device.number))
        if kernel is not None:
            return kernel
        signature = [_declaration(formal) for formal in row["signature"]]
        shapes = tuple(Shape(*shape) for shape in row["shapes"])
        refusal = f"the recording has no machine code for {device}"
        for image_row in row["images"]:
            image = read(row["name"], self._images[image_row["image"]])
            loaded = Loaded(replace(image, symbols={row["name"]: image_row["symbol"]}))
            if not loaded.suits(device):
                continue
            facts = image.kernels.get(image_row["symbol"]) if row["facts"] else None
            try:
                kernel = Kernel(loaded, row["name"], signature, facts, shapes)
                kernel.info(device)
            except OffloadError as error:
                refusal = str(error)
                continue
            self._kernels[number, device.number] = kernel
            return kernel
        raise NoTwinError(f"kernel {row['name']}: {refusal}")


def _declaration(row: dict[str, Any]) -> Any:
    """Return the declaration of a parameter from its row."""
    if row["access"] == "value":
        return dtype_named(row["dtype"])
    if "dtype" not in row:
        return _DECLARED[row["access"]]
    partition = None
    if "by" in row:
        kind, _, sizes = row["by"].partition("(")
        partition = _PARTITIONS[kind](*map(int, re.findall(r"\d+", sizes)))
    return Parameter(_DECLARED[row["access"]], dtype_named(row["dtype"]), partition)
