"""Checks a built site in Chromium: pages and lines of code fit, no page has errors, and search finds.

    python scripts/check_site.py build/docs/html [--pictures FOLDER] [--every]

Chromium opens every page from the file system, at the widths of a phone, a tablet and three desktops. It types the
queries of check_search.py into the search field. --pictures keeps pictures of some pages, light and dark; with --every,
of all pages. The script needs the package playwright (pip install playwright) and Chromium on PATH, or at CHROMIUM.
It downloads neither: if one is missing, it reports that and exits with 0.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from check_search import FIRST, QUERIES

WIDTHS = {"phone": 390, "tablet": 820, "small": 1100, "desktop": 1280, "large": 1366}
SCHEMES = ("light", "dark")
LONGEST = 15_000  # pixels, at the width of a desktop
PICTURED = ("index.html", "start.html", "guide/regions.html", "coming-from/cupy.html", "internals/architecture.html")
# The parts of a page that a reader would have to scroll sideways: code, and tables on a phone. On a phone also words
# that break within a table.
UNSEEN = """(is_phone) => {
  const wide = (list) => [...list].filter((element) => element.scrollWidth > element.clientWidth + 1);
  const code = "article .highlight pre";
  const faults = wide(document.querySelectorAll(is_phone ? code + ", .table-wrapper" : code))
    .map((element) => "scrolls sideways: " + element.textContent.trim().slice(0, 60));
  if (!is_phone) return faults;
  for (const cell of document.querySelectorAll("article td, article th")) {
    const texts = document.createTreeWalker(cell, NodeFilter.SHOW_TEXT);
    while (texts.nextNode())
      for (const word of texts.currentNode.data.matchAll(/[A-Za-z]+/g)) {
        const range = document.createRange();
        range.setStart(texts.currentNode, word.index);
        range.setEnd(texts.currentNode, word.index + word[0].length);
        if (new Set([...range.getClientRects()].map((box) => Math.round(box.top))).size > 1)
          faults.push("breaks the word " + word[0]);
      }
  }
  return faults;
}"""
SHOWN = "[...document.querySelectorAll('ul.search > li')].map((item) => item.querySelector('a').getAttribute('href'))"


def faults_of(page: Any, path: Path, width: int) -> Iterator[str]:
    """Yield the faults of a page in a window of that width."""
    errors: list[str] = []
    page.once("pageerror", lambda error: errors.append(str(error)))
    page.goto(path.as_uri(), wait_until="load")
    wide = page.evaluate("document.documentElement.scrollWidth")
    if wide > width:
        yield f"{path}: {wide} pixels wide in a window of {width}"
    tall = page.evaluate("document.documentElement.scrollHeight")
    if width == WIDTHS["desktop"] and tall > LONGEST:
        yield f"{path}: {tall} pixels long, more than {LONGEST}"
    unseen = page.evaluate(UNSEEN, width == WIDTHS["phone"])
    yield from (f"{path} in a window of {width}: {fault}" for fault in unseen)
    yield from (f"{path}: {error}" for error in errors)


def search(browser: Any, folder: Path) -> Iterator[str]:
    """Yield the queries of check_search.py that do not show their page among the first results."""
    page = browser.new_page()
    page.set_default_timeout(0)
    for query, wanted in QUERIES.items():
        page.goto((folder / "index.html").as_uri())
        page.locator("input[name=q]").first.fill(query)
        page.locator("input[name=q]").first.press("Enter")
        page.wait_for_function("/found|did not match/.test(document.querySelector('p.search-summary')?.textContent)")
        links = [link.partition("#")[0].partition("?")[0] for link in page.evaluate(SHOWN)]
        first = list(dict.fromkeys(links))[:FIRST]
        if not {f"{name}.html" for name in wanted} & set(first):
            yield f'"{query}" shows {", ".join(first) or "nothing"}, and not {" or ".join(wanted)}'
    page.close()


def look(browser: Any, folder: Path, pictures: Path | None, every: bool) -> list[str]:
    """Return the faults of all pages, and keep pictures of them."""
    faults = []
    for name, width in WIDTHS.items():
        for scheme in SCHEMES:
            page = browser.new_page(viewport={"width": width, "height": 844}, color_scheme=scheme)
            page.set_default_timeout(0)  # no limit, because a busy machine is slow
            pages = sorted(folder.rglob("*.html")) if scheme == SCHEMES[0] else map(folder.joinpath, PICTURED)
            for path in pages:
                faults += faults_of(page, path, width)
                place = str(path.relative_to(folder))
                if pictures and (every or place in PICTURED):
                    picture = pictures / f"{place.replace('/', '-')[:-5]}-{name}-{scheme}.png"
                    page.screenshot(path=picture, full_page=every)
            page.close()
    return [*faults, *search(browser, folder)]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("site", type=Path)
    parser.add_argument("--pictures", type=Path)
    parser.add_argument("--every", action="store_true")
    options = parser.parse_args()
    chromium = os.environ.get("CHROMIUM") or shutil.which("chromium")
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        chromium = None
    if chromium is None:
        print("check_site: the site was not looked at: it takes playwright (pip install playwright) and Chromium")
        return 0
    folder = options.site.resolve()
    if options.pictures:
        options.pictures.mkdir(parents=True, exist_ok=True)
    with sync_playwright() as started:
        browser = started.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        faults = look(browser, folder, options.pictures, options.every)
        browser.close()
    print("\n".join(faults) or f"{sum(1 for _ in folder.rglob('*.html'))} pages fit, {len(QUERIES)} queries find")
    return bool(faults)


if __name__ == "__main__":
    sys.exit(main())
