"""Print the number of lines of each file of csrc that the C tests ran, from `gcov --json-format --stdout`."""

from __future__ import annotations

import json
import os
import sys
from collections import defaultdict


def lines_run(reports: str) -> dict[str, dict[int, bool]]:
    """Return, for each file of csrc but its tests, whether each line with code was run."""
    files: dict[str, dict[int, bool]] = defaultdict(dict)
    for text in reports.splitlines():
        report = json.loads(text)
        for file in report["files"]:
            path = os.path.relpath(os.path.join(report["current_working_directory"], file["file"]))
            if path.startswith("csrc/") and not path.startswith("csrc/tests/"):
                for line in file["lines"]:
                    number = line["line_number"]
                    files[path][number] = files[path].get(number, False) or line["count"] > 0
    return files


def main() -> int:
    files = lines_run(sys.stdin.read())
    if not files:
        print("c_coverage: gcov wrote nothing of csrc", file=sys.stderr)
        return 1
    width = max(map(len, files))
    print(f"{'file':{width}}  lines  missed  run")
    rows = [(path, len(lines), sum(not line for line in lines.values())) for path, lines in sorted(files.items())]
    total = sum(count for _, count, _ in rows), sum(missed for *_, missed in rows)
    for path, count, missed in [*rows, ("all", *total)]:
        print(f"{path:{width}}  {count:5}  {missed:6}  {1 - missed / count:4.0%}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
