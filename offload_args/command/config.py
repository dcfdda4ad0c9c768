"""`python -m offload_args config`: the options that compile and link a C program with the C library."""

from __future__ import annotations

import argparse
import shlex

HELP = "say how a C program is compiled and linked with the C library"
DESCRIPTION = """Print the options for a compiler, or the folders for a build system. Without options, print all of the
folders. A single folder or file is printed as it is. Other words are quoted for the shell: where a path has spaces,
`eval "cc program.c $(python -m offload_args config --cflags --libs)"`."""

PLACES = {
    "include": "the folder of the headers",
    "library": "the file of the library",
    "cmake_dir": "the folder for offload_args_DIR of CMake",
    "pkg_config_dir": "the folder for PKG_CONFIG_PATH",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--cflags", action="store_true", help="the options for the compiler")
    parser.add_argument("--libs", action="store_true", help="the options for the linker")
    parser.add_argument("--fortran", action="store_true", help="the file of the module for Fortran")
    for name, words in PLACES.items():
        parser.add_argument(f"--{name.replace('_', '-')}", action="store_true", help=words)


def run(options: argparse.Namespace) -> int:
    from .. import embedding

    places = {name: getattr(embedding, f"get_{name}")() for name in PLACES}
    requested = [place for name, place in places.items() if getattr(options, name)]
    if options.fortran:
        requested.append(embedding.get_fortran_module())
    if len(requested) == 1 and not (options.cflags or options.libs):
        print(requested[0])  # without quotes, because programs use it as "$(...)"
        return 0
    words = embedding.cflags() if options.cflags else []
    words += embedding.libs() if options.libs else []
    words += requested
    if words:
        print(shlex.join(words))
    else:
        for name, place in places.items():
            print(f"{name.replace('_', '-')}: {place}")
    return 0
