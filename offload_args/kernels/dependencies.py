"""The files that a compilation reads. A cached result is valid while these files are unchanged.

The host's compiler lists these files itself. NVRTC and hiprtc do not list them, so this module searches the source for
the names of headers, also in branches that are not compiled. The search finds every file that is read, and some that
are not. Missing headers are recorded, too: if one is added later to a folder that is searched early, the compiler reads
it instead of the present header.
"""

from __future__ import annotations

import os
import platform
import re
import shlex
import subprocess
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

from ..cache import key_of

__all__ = ["Files", "command_line", "environment", "file_mark", "listed_by", "processor", "scanned"]

# The variables that compilers read, except variables for the language of messages.
_VARIABLES: Final = re.compile(
    r"CPATH|C(PLUS)?_INCLUDE_PATH|LIBRARY_PATH|COMPILER_PATH|LD_RUN_PATH|SOURCE_DATE_EPOCH|SDKROOT|LDEMULATION|"
    r"(GCC|CCC|NIX|NVCC|NVRTC|HIPRTC|AMD_COMGR|ICX|PE|CRAY\w*)_\w+|(ROCM|HIP|LLVM|HIP_DEVICE_LIB|CUDA)_(PATH|HOME)"
)
_PROCESSOR: Final = re.compile(
    r"^(?:vendor_id|cpu family|model|stepping|flags|Features|CPU (?:implementer|architecture|variant|part))\s*:.*", re.M
)
_INCLUDE: Final = re.compile(
    r"""^[ \t]*\#[ \t]*(?:include|include_next|import|embed)\b[ \t]*
        (?:"(?P<quoted>[^"\n]+)"|<(?P<angled>[^>\n]+)>|(?P<other>.+))
    |__has_(?:include|include_next|embed)[ \t]*\([ \t]*(?:["<](?P<asked>[^">\n]+)|(?P<computed>\w+))""",
    re.M | re.X,
)
# If a source has one of these words, its result also depends on the time, or on files that the assembler reads.
_MORE: Final = re.compile(r"__(?:TIME|DATE|TIMESTAMP)__|incbin|\.include\b")
_SOURCE: Final = re.compile(r"[^-].*\.(?:c|cc|cp|cpp|cxx|c\+\+|C|CPP|cu|hip|s|S|ii|i|m|mm)")
_FOLDER: Final = re.compile(r"-I|--include-path|-isystem|-iquote|-idirafter")
_FILE: Final = re.compile(r"-include|--pre-include|-imacros")
_SYSTEM: Final = ("/usr/local/include", f"/usr/include/{platform.machine()}-linux-gnu", "/usr/include")


@dataclass(frozen=True)
class Files:
    """Files that were read, and paths at which there was no file. Relative paths start at the working directory."""

    read: tuple[str, ...]
    absent: tuple[str, ...]

    def key(self, first: str) -> str | None:
        """Return the name of a result that depends on the files' present contents; None if a file was added or
        removed."""
        if any(map(os.path.lexists, self.absent)):
            return None
        try:
            contents = [part for path in self.read for part in (path, Path(path).read_bytes())]
        except OSError:
            return None
        return key_of(first, *contents)

    def changed_since(self, moment: int) -> bool:
        """Return whether a file was changed after this moment (of CLOCK_REALTIME, in ns)."""
        try:
            return any(os.stat(path).st_ctime_ns > moment for path in self.read)
        except OSError:
            return True


def environment() -> list[str]:
    """Return the variables that affect compilers, each with its value."""
    return [f"{name}={value}" for name, value in sorted(os.environ.items()) if _VARIABLES.fullmatch(name)]


@cache
def processor() -> str:
    """Return the model and features of this machine's CPU, for which -march=native compiles."""
    try:
        with open("/proc/cpuinfo") as file:
            first = "".join(iter(file.readline, "\n"))
    except OSError:
        first = ""
    return "\n".join([os.uname().machine, *_PROCESSOR.findall(first)])


# -- as the host's compiler lists them ---------------------------------------------------------------------------------


def _first_rule(text: str) -> list[str]:
    """Return the prerequisites of the first rule of a makefile."""
    rule = text.replace("\\\n", " ").partition("\n")[0].partition(": ")[2]
    names = re.findall(r"(?:\\.|\$\$|[^\s\\])+", rule)
    return [re.sub(r"\\(.)", r"\1", name).replace("$$", "$") for name in names]


def _searched(command: Sequence[str], options: Sequence[str]) -> list[str]:
    """Return the folders that a compiler searches for headers, in order.

    The compiler's messages are in the language C.
    """
    words = [*command, *options, "-E", "-v", "-x", "c++", os.devnull, "-o", os.devnull]
    done = subprocess.run(words, capture_output=True, check=False, env={**os.environ, "LC_ALL": "C"})
    text = done.stderr.decode(errors="surrogateescape")
    part = re.search(r'#include ".*?" search starts here:\n(.*?)End of search list', text, re.S)
    lines = part[1].splitlines() if part else []
    return [line.strip() for line in lines if line.startswith(" ")]


def listed_by(command: Sequence[str], options: Sequence[str], source: str, rule: str) -> Files | None:
    """Return the files of a compilation by the host's compiler, which wrote `rule` for a makefile.

    The rule lacks the headers whose existence the source tests (__has_include), so the source is searched for their
    names. Return None if the name of a header is computed, or if the result depends on more than files.
    """
    if _MORE.search("\n".join(options)) or any(map(_SOURCE.fullmatch, options)):  # another source reads other headers
        return None
    read = [name for name in _first_rule(rule) if name not in ("-", os.devnull) and os.path.exists(name)]
    own = {path for path in read if not path.startswith("/usr/")}  # the system's headers test only for system headers
    for option in options:  # the files that options name, such as options of the linker
        tails = (option, option[1:], option[2:], option.partition("=")[2])
        read += [path for path in tails if path not in read and os.path.isfile(path)]
    folders = ["", *_searched(command, options), *_libraries(options)]
    absent: dict[str, None] = {}
    near = {os.path.dirname(path) for path in own}
    for path in read:
        inside = [folder for folder in folders if folder and path.startswith(f"{folder}/")]
        folder = max(inside, key=len, default="")
        name = path[len(folder) + 1 :] if folder else path
        if not os.path.isabs(name):
            before = (*folders[: folders.index(folder)], *near)
            absent |= dict.fromkeys(place for folder in before if (place := os.path.join(folder, name)) not in read)
    texts = [("", source)]
    texts += [(os.path.dirname(path), Path(path).read_text(errors="replace")) for path in read if path in own]
    for near_by, text in texts:
        if _MORE.search(text):
            return None
        for match in _INCLUDE.finditer(text.replace("\\\n", "")):
            if match["computed"]:
                return None
            if match["asked"]:
                paths = [os.path.join(place, match["asked"]) for place in (near_by, *folders)]
                read += [path for path in paths if os.path.isfile(path) and path not in read]
                absent |= dict.fromkeys(path for path in paths if path not in read)
    for name in re.findall(r"^-l:?(.+)", "\n".join(options), re.M):
        for place in _libraries(options):
            paths = [os.path.join(place, file) for file in (name, f"lib{name}.so", f"lib{name}.a")]
            read += [path for path in paths if os.path.isfile(path) and path not in read]
            absent |= dict.fromkeys(path for path in paths if path not in read)
    return _files(read, absent)


def _libraries(options: Sequence[str]) -> list[str]:
    """Return the folders that the linker searches first."""
    joined = "\n".join(options)
    return [*re.findall(r"^-L\n?(.+)", joined, re.M), *filter(None, os.environ.get("LIBRARY_PATH", "").split(":"))]


# -- as a search of the source finds them ------------------------------------------------------------------------------


def _given(options: Sequence[str], kind: re.Pattern[str]) -> Iterator[str]:
    """Yield the paths of options: -Ipath, -I path, --include-path=path."""
    for i, option in enumerate(options):
        match = kind.match(option)
        if match and match.end() == len(option):
            yield from options[i + 1 : i + 2]
        elif match:
            yield option[match.end() :].removeprefix("=")


def scanned(source: str, options: Sequence[str]) -> Files | None:
    """Return the files that a source may include; None if a name is computed, or if the result has other inputs."""
    if _MORE.search("\n".join(options)):
        return None
    variables = (os.environ.get(name, "") for name in ("CPATH", "C_INCLUDE_PATH", "CPLUS_INCLUDE_PATH"))
    folders = [*_given(options, _FOLDER), *(folder for value in variables for folder in value.split(":")), *_SYSTEM]
    read: dict[str, None] = {}
    absent: dict[str, None] = {}
    texts = [("", source)]
    texts += [("", f'#include "{path}"') for path in _given(options, _FILE)]
    while texts:
        folder, text = texts.pop()
        if _MORE.search(text):
            return None
        for match in _INCLUDE.finditer(text.replace("\\\n", "")):
            if match["other"] or match["computed"]:
                return None
            name = match["quoted"] or match["angled"] or match["asked"]
            for place in (folder, "", *folders):
                path = os.path.join(place, name)
                if not os.path.isfile(path):
                    absent[path] = None
                    continue
                if path not in read:
                    read[path] = None
                    texts.append((os.path.dirname(path), Path(path).read_text(errors="replace")))
                break
    return _files(read, absent)


def _files(read: Iterable[str], absent: Iterable[str]) -> Files:
    return Files(tuple(read), tuple(path for path in absent if not os.path.lexists(path)))


def command_line(command: Sequence[str]) -> str:
    """Return a command with marks of its programs; a later version of a program at the same path has another mark."""
    parts = [shlex.join(command)]
    for word in command:
        path = next((program for program in _programs(word) if os.path.isfile(program)), None)
        if path is not None:
            parts.append(file_mark(path))
    return "\n".join(parts)


def _programs(word: str) -> Iterator[str]:
    yield word
    if os.sep not in word:
        yield from (os.path.join(folder, word) for folder in os.get_exec_path())


def file_mark(path: str) -> str:
    """Return the identity of a large file: its real path, size and time."""
    try:
        status = os.stat(path)
    except OSError:
        return path
    return f"{os.path.realpath(path)} {status.st_size} {status.st_mtime_ns}"
