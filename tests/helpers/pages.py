"""Pages of Markdown: their blocks of code, the programs that these make, and the output that they promise."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Block:
    """A fenced block: the word after the fence, the words that follow, and the text."""

    language: str
    words: tuple[str, ...]
    text: str

    @property
    def needs(self) -> frozenset[str]:
        """The devices, libraries and packages that the block needs, as in `needs=cuda:0,cupy`."""
        said = [word.partition("=")[2].split(",") for word in self.words if word.startswith("needs=")]
        return frozenset(said[0] if said else ())

    @property
    def is_run(self) -> bool:
        return self.language == "python" and "not-run" not in self.words


def blocks(text: str) -> list[Block]:
    """Return the fenced blocks of a page, in order."""
    actual = re.findall(r"^ *(```+)([^\n`]*)\n(.*?)^ *\1 *$", text, re.DOTALL | re.MULTILINE)
    return [Block((words.split() or [""])[0], tuple(words.split()[1:]), body) for _, words, body in actual]


def programs(text: str) -> dict[tuple[str, ...], str]:
    """Return {needs: program} of a page; a program consists of the blocks that need no more than its needs."""
    run = [block for block in blocks(text) if block.is_run]
    return {
        tuple(sorted(needs)): "\n".join(block.text for block in run if block.needs <= needs)
        for needs in sorted({block.needs for block in run}, key=sorted)
    }


def promised(code: str) -> list[str]:
    """Return the text of the comments after `print`, and of comments alone on the following lines."""
    lines: list[str] = []
    printing = False
    for line in code.splitlines():
        before, comment, text = line.partition("# ")
        if "print(" in before:
            printing = True
        elif before.strip() or not comment:
            printing = False
        if printing and comment:
            lines.append(text)
    return lines


def tables(text: str) -> list[list[list[str]]]:
    """Return the tables of a page: the cells of each row, without the line below the heading."""
    results = re.findall(r"(?:^\|.*\|\n)+", text, re.MULTILINE)
    rows = [[line for line in table.splitlines() if not re.fullmatch(r"[|\s:-]+", line)] for table in results]
    return [[[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in table] for table in rows]
