"""Looks at a built site in Chromium: no page is wider than its window, none fails in the console, and search finds.

    python scripts/check_site.py build/docs/html [--pictures FOLDER]

Every page is opened from the file system, at the widths of a phone and of a desktop. --pictures keeps pictures of some
pages, light and dark. It needs the package playwright (pip install playwright) and Chromium on PATH, or where CHROMIUM
says. It downloads neither; where one is missing it says so, and exits with 0.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

WIDTHS = {"phone": 390, "desktop": 1280}
SCHEMES = ("light", "dark")
PICTURED = ("index.html", "start.html", "guide/regions.html", "coming-from/cupy.html", "internals/architecture.html")
SEARCHED = "residency"


def faults_of(page: Any, path: Path, width: int) -> Iterator[str]:
    """Yields the faults of a page in a window of that width."""
    errors: list[str] = []
    page.once("pageerror", lambda error: errors.append(str(error)))
    page.goto(path.as_uri(), wait_until="load")
    wide = page.evaluate("document.documentElement.scrollWidth")
    if wide > width:
        yield f"{path}: {wide} pixels wide in a window of {width}"
    yield from (f"{path}: {error}" for error in errors)


def look(browser: Any, folder: Path, pictures: Path | None) -> list[str]:
    faults = []
    for name, width in WIDTHS.items():
        for scheme in SCHEMES:
            page = browser.new_page(viewport={"width": width, "height": 844}, color_scheme=scheme)
            every = scheme == SCHEMES[0]
            for path in sorted(folder.rglob("*.html")) if every else map(folder.joinpath, PICTURED):
                faults += faults_of(page, path, width)
                place = str(path.relative_to(folder))
                if pictures and place in PICTURED:
                    page.screenshot(path=pictures / f"{place.replace('/', '-')[:-5]}-{name}-{scheme}.png")
            page.close()
    page = browser.new_page()
    page.goto(f"{(folder / 'search.html').as_uri()}?q={SEARCHED}")
    try:
        page.wait_for_selector("ul.search li", timeout=20_000)
    except Exception as error:  # playwright's own
        faults.append(f"search for {SEARCHED!r} finds nothing: {error}")
    return faults


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("site", type=Path)
    parser.add_argument("--pictures", type=Path)
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
        faults = look(browser, folder, options.pictures)
        browser.close()
    print("\n".join(faults) or f"{sum(1 for _ in folder.rglob('*.html'))} pages fit, and search finds")
    return bool(faults)


if __name__ == "__main__":
    sys.exit(main())
