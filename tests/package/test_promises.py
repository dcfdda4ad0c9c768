"""docs/internals/promises.md and the tests link to each other."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "internals" / "promises.md"
ID = r"T\d\d+"


def marked_in_python() -> Iterator[tuple[str, str]]:
    """Yield (id, file::name) for each promise that a marker names."""
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        text = path.read_text()
        for node in ast.walk(ast.parse(text)) if "mark.promise" in text else ():
            for marker in node.decorator_list if isinstance(node, ast.FunctionDef) else ():
                if isinstance(marker, ast.Call) and ast.unparse(marker.func) == "pytest.mark.promise":
                    for arg in marker.args:
                        yield ast.literal_eval(arg), f"{path.relative_to(ROOT)}::{node.name}"


def marked_in_c() -> Iterator[tuple[str, str]]:
    """Yield (id, file::name) for each promise that a comment above a function names."""
    for path in sorted((ROOT / "csrc" / "tests").glob("*.c")):
        for match in re.finditer(rf"^/\* Promise ({ID}(?:, {ID})*)\.", path.read_text(), re.MULTILINE):
            following = path.read_text()[match.end() :]
            name = re.match(r"(?:(?!\*/).)*\*/\s*static \w+ \*?(\w+)\(", following, re.DOTALL)
            assert name, f"{path.name}: {match[0]} stands above no function"
            for number in match[1].split(", "):
                yield number, f"{path.relative_to(ROOT)}::{name[1]}"


def listed() -> Iterator[tuple[str, str | None]]:
    """Yield (id, file::name) for each test on the page, and (id, None) for each promise."""
    promise = None
    tested = PAGE.read_text().partition("\n## Not yet\n")[0]
    for line in tested.splitlines():
        if match := re.match(rf"\*\*({ID})\*\* ", line):
            promise = match[1]
            yield promise, None
        elif match := re.fullmatch(r"- \[(\S+)\](::\w+)", line):
            assert promise, line
            yield promise, match[1] + match[2]


def test_each_promise_has_tests_and_each_of_them_says_so() -> None:
    marked = [*marked_in_python(), *marked_in_c()]
    on_page = [(promise, test) for promise, test in listed() if test]
    promises = [promise for promise, test in listed() if test is None]
    assert len(promises) == len(set(promises)) > 40
    assert sorted(promises) == sorted({promise for promise, _ in on_page})
    assert sorted(set(marked) - set(on_page)) == [], "add these to docs/internals/promises.md, under their promise"
    assert sorted(set(on_page) - set(marked)) == [], "these are in docs/internals/promises.md, and no such test says so"
    assert len(on_page) == len(set(on_page))


def test_a_promise_without_a_test_is_under_not_yet_only() -> None:
    tested, _, later = PAGE.read_text().partition("\n## Not yet\n")
    waiting = re.findall(rf"^- \*\*({ID})\*\* ", later, re.MULTILINE)
    assert len(waiting) == len(set(waiting))
    assert not {promise for promise, _ in listed()} & {*waiting}


def test_the_links_of_the_page_lead_to_files() -> None:
    text = PAGE.read_text()
    used = {*re.findall(r"\[(\S+?\.(?:py|c))\]", text)}
    targets = dict(re.findall(r"^\[(\S+)\]: (\S+)$", text, re.MULTILINE))
    assert used == {*targets}
    for name, target in targets.items():
        assert (PAGE.parent / target).resolve() == ROOT / name and (ROOT / name).is_file()
