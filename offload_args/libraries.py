"""Vendor libraries: how they are found and loaded.

A library is found in this order, and never in the working directory:
1. the absolute path in the environment variable OFFLOAD_ARGS_<NAME>, such as OFFLOAD_ARGS_CUBLAS; if the variable is
   set, no other place is tried;
2. the library that another package is linked with, if the library has all functions that are not optional. This package
   uses NumPy's CBLAS in this way, so that both packages share one pool of threads, and limits for NumPy's threads
   (OPENBLAS_NUM_THREADS, threadpoolctl) also hold for this package;
3. the packages of this Python: NVIDIA's wheels (through cuda-pathfinder, which also searches conda, a toolkit's folder
   and the libraries that are already loaded), AMD's (through AMD's finders), and wheels that carry the library, such
   as scipy-openblas32;
4. the folders into which its vendor installs it, such as $ROCM_PATH/lib and /opt/rocm/core-X.Y/lib, the newest first;
5. the system: absolute folders of LD_LIBRARY_PATH, then the linker's places.

A library's roles file in bindings/roles lists the places and the file names of the library.
"""

from __future__ import annotations

import importlib
import os
import re
import sys
from contextlib import closing
from typing import TYPE_CHECKING, Final, NamedTuple

from . import _core
from ._signatures import telling
from ._table import LIBRARIES
from .display import listing, missing, shown
from .errors import LibraryError

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator, Mapping, Sequence

__all__ = ["NAMES", "Library", "load", "loaded"]


class _Facts(NamedTuple):
    """The facts for finding one library, from its roles file."""

    title: str
    backend: str | None  # the backend of its devices; None if it runs on the CPU
    install: str  # the remedy if the library is not found
    sonames: tuple[str, ...]  # names of its file, in the order of preference
    pathfinder: str  # its name for cuda-pathfinder; "" if cuda-pathfinder lacks it
    rocm: str  # its name for AMD's finders; "" if they lack it
    shared_with: Mapping[str, Sequence[str]]  # {package: its modules that are linked with the library}
    wheels: Mapping[str, str]  # {package: "module/pattern" of the library's file, inside that module's folder}
    folders: Sequence[str]  # absolute patterns, or patterns that begin with an environment variable: $ROCM_PATH/lib


_FACTS: Final = {name: _Facts(**facts) for name, facts in LIBRARIES.items()}
NAMES: Final = tuple(_FACTS)  #: every library of this build; libraries of GPUs come first


class Library(NamedTuple):
    """A loaded vendor library."""

    name: str  #: such as "cublas"
    path: str  #: the absolute path of its file
    version: str  #: "" if the library does not report it
    found: str  #: the way in which it was found


class _Candidate(NamedTuple):
    path: str
    found: str
    shared: bool = False  # whether path is a loaded module that is linked with the library


_MAJOR: Final = re.compile(r"\.so\.(\d+)[^/]*$")  # the major version in the name of a library's file


def chosen(name: str) -> str:
    """Return the path that the environment sets for a library or a compiler; "" if the environment sets no path."""
    return os.environ.get(f"OFFLOAD_ARGS_{name.upper()}", "")


# {library: the way in which it was found}.
_found: dict[str, str] = {}


def _candidates(name: str, tried: list[str]) -> Generator[_Candidate, None, None]:
    """Yield the possible places of a library; append to `tried` the places that do not exist."""
    variable = f"OFFLOAD_ARGS_{name.upper()}"
    if override := chosen(name):
        if not os.path.isabs(override):
            tried.append(f"{variable}={override}: not an absolute path")
        else:
            yield _Candidate(override, f"environment variable {variable}")
        return
    facts = _FACTS[name]
    for package, modules in facts.shared_with.items():
        yield from _in_loaded_module(package, modules, tried)
    if facts.pathfinder:
        yield from _in_nvidia_packages(facts.pathfinder, tried)
    if facts.rocm:
        yield from _in_rocm_packages(facts.rocm, tried)
    for package, pattern in facts.wheels.items():
        yield from _in_wheel(package, pattern, tried)
    if not facts.sonames:
        tried.append(f"no folder was looked into: [library] of bindings/roles/{name}.toml has no sonames")
        return
    for folder in facts.folders:
        for place in _newest_first(os.path.expandvars(folder)):
            yield from _in_folder(place, facts.sonames, folder, tried)
    for folder in filter(os.path.isabs, os.environ.get("LD_LIBRARY_PATH", "").split(os.pathsep)):
        yield from _in_folder(folder, facts.sonames, "LD_LIBRARY_PATH", tried)
    yield from _in_system(facts.sonames, tried)


def _in_loaded_module(package: str, modules: Sequence[str], tried: list[str]) -> Iterator[_Candidate]:
    for name in modules:
        path = getattr(sys.modules.get(name), "__file__", None)
        if path:
            yield _Candidate(os.path.abspath(path), f"{package}'s own", shared=True)
            return
    tried.append(f"{package}'s own: its extension module has no file")


def _in_nvidia_packages(name: str, tried: list[str]) -> Iterator[_Candidate]:
    try:
        from cuda.pathfinder import DynamicLibNotFoundError, load_nvidia_dynamic_lib
    except ImportError as error:
        tried.append(f"cuda-pathfinder: {error}")
        return
    try:
        loaded = load_nvidia_dynamic_lib(name)
    except (DynamicLibNotFoundError, RuntimeError, OSError) as error:
        tried.append(f"cuda-pathfinder: {' '.join(str(error).split())}")
        return
    if loaded.abs_path is None:
        tried.append(f"cuda-pathfinder: found {name} and did not say where")
    elif loaded.was_already_loaded_from_elsewhere:
        yield _Candidate(loaded.abs_path, "already loaded in this process")
    else:
        yield _Candidate(loaded.abs_path, f"cuda-pathfinder, {loaded.found_via}")


def _in_rocm(name: str, tried: list[str]) -> Iterator[_Candidate]:
    """Search for a library of ROCm's core, such as "amdhip64", by AMD's finders, and then in its wheel."""
    yield from _in_rocm_packages(name, tried)
    yield from _in_wheel("rocm-sdk-core", f"_rocm_sdk_core*/lib/lib{name}.so.[567]*", tried)


def rocm_files(name: str, tried: list[str]) -> Iterator[str]:
    """Yield the possible files of a library of ROCm's core, in the same order as for HIP's runtime.

    Files in the folder of a loaded runtime come first. The last items are names without a folder, for which the system
    searches. Append to `tried` the places that do not exist.
    """
    names = [f"lib{name}.so{version}" for version in ("", ".7", ".6", ".5")]
    if runtime := driver("hip"):
        yield from (candidate.path for candidate in _in_folder(os.path.dirname(runtime), names, runtime, tried))
    yield from (candidate.path for candidate in _in_rocm(name, tried))
    for folder in _FACTS["rocblas"].folders if "rocblas" in _FACTS else ():
        for place in _newest_first(os.path.expandvars(folder)):
            yield from (candidate.path for candidate in _in_folder(place, names, folder, tried))
    tried.append("where the system looks")
    yield from names


def _in_rocm_packages(name: str, tried: list[str]) -> Iterator[_Candidate]:
    """Search by AMD's finders, which find the ROCm packages of this Python."""
    for module, finder in (("rocm.bindings.util.paths", "get_library_path"), ("rocm_sdk", "find_libraries")):
        try:
            location = getattr(importlib.import_module(module), finder)(name)
            path = os.fsdecode(location[0] if isinstance(location, list | tuple) else location)
        except Exception as error:  # AMD's modules may raise any exception
            tried.append(f"{module}.{finder}: {' '.join(str(error).split()) or type(error).__name__}")
            continue
        if os.path.isabs(path):
            yield _Candidate(path, f"{module}.{finder}")
        else:
            tried.append(f"{module}.{finder}: knows no file of {name}")


def _newest_first(pattern: str) -> list[str]:
    """Return the folders that match a pattern, the highest version first; the pattern itself if no folder matches."""
    from glob import glob

    if "*" not in pattern or not os.path.isabs(pattern):
        return [pattern]
    folders = glob(pattern)
    folders.sort(key=lambda folder: [int(number) for number in re.findall(r"\d+", folder)], reverse=True)
    return folders or [pattern]


def _in_wheel(package: str, pattern: str, tried: list[str]) -> Iterator[_Candidate]:
    # The module is not imported, because an import could load the library for the whole process; only its folder is
    # needed.
    from importlib.util import find_spec
    from pathlib import Path

    module, _, inside = pattern.partition("/")
    if "*" in module:
        here = os.path.realpath(os.getcwd())  # this folder is never searched, although it may be in sys.path
        # The folders of installed packages, without the working directory, which may be the first place of sys.path.
        folders = [path for path in sys.path if os.path.isabs(path) and os.path.realpath(path) != here]
        matches = [path for folder in folders for path in sorted(Path(folder).glob(pattern))]
        if not matches:
            tried.append(f"{package}: no {pattern} among this Python's packages")
        yield from (_Candidate(str(path), package) for path in matches)
        return
    spec = find_spec(module)
    if spec is None or spec.origin is None:
        tried.append(f"{package}: not installed")
        return
    folder = Path(spec.origin).resolve().parent
    paths = sorted(folder.glob(inside))
    if not paths:
        tried.append(f"{package}: no {inside} in {folder}")
    for path in paths:
        yield _Candidate(str(path), package)


def _in_folder(folder: str, names: Sequence[str], place: str, tried: list[str]) -> Iterator[_Candidate]:
    paths = [os.path.join(folder, name) for name in names if os.path.isabs(folder)]
    there = [path for path in paths if os.path.isfile(path)]
    if not there:
        tried.append(f"{place}: no {names[0]}" if os.path.isabs(folder) else f"{place}: is not set")
    for path in there:
        yield _Candidate(path, place)


def _in_system(names: Sequence[str], tried: list[str]) -> Iterator[_Candidate]:
    import subprocess

    try:
        listing = subprocess.run(
            ["/sbin/ldconfig", "-p"], capture_output=True, text=True, check=True, cwd="/", env={"LC_ALL": "C"}
        ).stdout
    except (OSError, subprocess.CalledProcessError) as error:
        tried.append(f"the system's linker: {error}")
        return
    known = [line.split() for line in listing.splitlines() if " => " in line]
    paths = [fields[-1] for name in names for fields in known if fields[0] == name]
    if not paths:
        tried.append(f"the system's linker: did not find {', '.join(names)}")
    for path in dict.fromkeys(paths):
        yield _Candidate(path, "system")


def _unknown_version(name: str, candidate: _Candidate) -> str:
    """Return the reason to refuse a GPU's library of an unknown major version; "" if it may be loaded.

    The functions of such a library might take other arguments than the functions of known versions. A path that the
    user set is used without this check.
    """
    variable = f"OFFLOAD_ARGS_{name.upper()}"
    facts = _FACTS[name]
    known = {match[1] for soname in facts.sonames if (match := _MAJOR.search(soname))}
    major = _MAJOR.search(os.path.realpath(candidate.path))
    if not facts.backend or candidate.found.endswith(variable) or not known or not major or major[1] in known:
        return ""
    return (
        f"{candidate.path} ({candidate.found}): has major version {major[1]}, and this package knows "
        f"{', '.join(sorted(known, key=int))}; set {variable} to this path to take it all the same"
    )


def find_and_open(name: str) -> str:
    """Load a library and return ""; if that fails, return every place that was tried, with the reason.

    The core calls this function, through _core, when a call first needs the library. That call raises the exceptions of
    this function.
    """
    tried: list[str] = []
    with closing(_candidates(name, tried)) as candidates:  # Ctrl-C is lost while an unfinished generator is destroyed
        for candidate in candidates:
            if unknown := _unknown_version(name, candidate):
                tried.append(unknown)
                continue
            path = os.fsencode(candidate.path)
            _found[name] = candidate.found  # stored first, because Ctrl-C may come between these lines
            failure = _core.library_open(name, path, candidate.shared)
            if not failure:
                return ""
            tried.append(f"{candidate.path} ({candidate.found}): {failure}")
    return (
        f"not loaded; {_FACTS[name].install}, or set OFFLOAD_ARGS_{name.upper()} to the absolute path of the library. "
        "Tried: " + "; ".join(tried)
    )


def driver_places(backend: str) -> str:
    """Return a line for each file that may be HIP's runtime, and for each place of Python's packages without it.

    The core calls this function, through _core, at the first request for devices of HIP. The core itself searches other
    places.
    """
    tried: list[str] = []
    paths: list[str] = []
    if backend == "hip" and not driver("hip"):
        paths += (candidate.path for candidate in _in_rocm("amdhip64", tried))
    return "\n".join(os.fsencode(line).decode(errors="replace") for line in paths + tried)


def driver(backend: str) -> str:
    """Return the path of a backend's driver that this process has loaded; "" if it has none."""
    name = {"cuda": "libcuda.so", "hip": "libamdhip64.so"}.get(backend)
    try:
        with open("/proc/self/maps") as maps:
            paths = (line.split(maxsplit=5)[5].rstrip() for line in maps if name and name in line)
            return next((path for path in paths if os.path.basename(path).startswith(name or "")), "")
    except OSError:  # there is no /proc
        return ""


@telling
def loaded(name: str) -> Library | None:
    """Return a library if it is loaded.

        libraries.load("cblas")
        print(libraries.loaded("cblas").name)  # cblas

    See also: libraries.load; docs/guide/devices.md.
    """
    if name not in NAMES:  # C code would read "cublas\0x" as "cublas"
        return None
    path, version = _core.library_loaded(name)
    version = version.rstrip(".")  # rocBLAS's version ends in a build number, which may be empty
    return Library(name, path, version, _found.get(name, "oa_library_open")) if path else None


@telling
def load(name: str) -> Library:
    """Load a library, such as "cublas", now rather than at its first call.

    Raises a LibraryError that lists all places that were tried.

        print(libraries.load("cblas").name)  # cblas

    See also: libraries.loaded, testing.library; docs/guide/devices.md.
    """
    if name not in NAMES:
        raise LibraryError(f"load: no library is called {shown(name)}; there are {', '.join(NAMES)}")
    library = loaded(name)
    if library is None:
        failure = find_and_open(name)
        library = loaded(name)
        if library is None:
            raise LibraryError(f"{name}: {failure}")
    return library


if not TYPE_CHECKING:  # static checkers read all names
    __getattr__ = missing(__name__, __all__)
    __dir__ = listing(__all__)
