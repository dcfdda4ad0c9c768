"""Checks the links of a built site: each file that a page links to exists, and has the anchor that the link names.

    python scripts/check_links.py build/docs/html

It reads the HTML of every page, and opens no address outside of the site. It prints one line for each fault and exits
with 1, or prints the number of links.
"""

from __future__ import annotations

import sys
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit


class Page(HTMLParser):
    """The links and the anchors of a page."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.links: set[str] = set()
        self.anchors = {"", "top"}
        self.feed(path.read_text())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if name in ("href", "src") and value is not None:
                self.links.add(value)
            elif name == "id" or (name == "name" and tag == "a"):
                self.anchors.add(value or "")


page_of = cache(Page)


def fault_of(link: str, page: Path) -> str | None:
    """Return the fault of a link of a page; None if the link has no fault."""
    parts = urlsplit(link)
    if parts.scheme or parts.netloc:
        return None
    target = (page.parent / unquote(parts.path)).resolve() if parts.path else page
    if target.is_dir():
        return f"{link} is a folder, which a browser doesn't open as a page from the file system"
    if not target.exists():
        return f"{link}: there is no such file"
    if target.suffix == ".html" and unquote(parts.fragment) not in page_of(target).anchors:
        return f"{link}: that page has no such anchor"
    return None


def main(folder: Path) -> int:
    pages = sorted(folder.resolve().rglob("*.html"))
    links = [(page, link) for page in pages for link in sorted(page_of(page).links)]
    faults = [f"{page}: {fault}" for page, link in links if (fault := fault_of(link, page))]
    print("\n".join(faults) or f"{len(links)} links on {len(pages)} pages lead somewhere")
    return bool(faults) or not pages


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
