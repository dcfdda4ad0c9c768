"""The data of the gallery's programs: zips get the files that their programs read, and pages get links to them."""

from __future__ import annotations

import re
import zipfile
from pathlib import Path

__all__ = ["add_data", "files_of"]

_FILE = re.compile(r'"data" / "([^"]+)"')


def files_of(program: Path) -> list[Path]:
    """Return the files that a program of examples/ reads from the folder data beside it, and their source."""
    data = program.parent / "data"
    files = [data / name for name in dict.fromkeys(_FILE.findall(program.read_text()))]
    return [*files, data / "SOURCE.md"] if files else []


def add_data(gallery: Path, examples: Path) -> None:
    """Complete the zips and pages of a gallery that sphinx-gallery wrote; a second call changes nothing."""
    for program in examples.glob("*.py"):
        files, archive, page = files_of(program), gallery / f"{program.stem}.zip", gallery / f"{program.stem}.rst"
        if not files:
            continue
        with zipfile.ZipFile(archive, "a") as target:
            for file in files:
                if f"data/{file.name}" not in target.namelist():
                    target.write(file, f"data/{file.name}")
        text, link = page.read_text(), f":download:`Download zipped: {archive.name} <{archive.name}>`"
        links = ", ".join(f":download:`data/{file.name} </../examples/data/{file.name}>`" for file in files)
        note = f"The program reads a file of the folder ``data`` beside it. The zip has this folder: {links}."
        if note not in text:
            page.write_text(text.replace(link, f"{link}\n\n  {note}"))
