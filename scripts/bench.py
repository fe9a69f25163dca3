#!/usr/bin/env python3
"""How fast, beside floors and peers: `scripts/bench.py [SECTION…] [--quick] [--json]`."""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks import appending, reading
from benchmarks.harness import Result, Setting, told
from benchmarks.history import Made

SECTIONS = {
    "append": appending.append,
    "batch": appending.batch,
    "verify": reading.verify,
    "rebuild": reading.rebuild,
    "asof": reading.asof,
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("section", nargs="*", metavar="SECTION", help=f"{', '.join(SECTIONS)}; all of them")
    parser.add_argument("--quick", action="store_true", help="less of everything: about a minute")
    parser.add_argument("--json", action="store_true", help="all that was measured as one JSON object")
    parser.add_argument("--folder", help="where to work; a temporary one")
    options = parser.parse_args()
    unknown = [name for name in options.section if name not in SECTIONS]
    if unknown:
        parser.error(f"there is no section {unknown[0]}; there are {', '.join(SECTIONS)}")
    result = Result()
    logs: dict[tuple[int, int | None], Made] = {}
    folder = Path(tempfile.mkdtemp(prefix="ledger-bench-", dir=options.folder))
    try:
        for name in options.section or SECTIONS:
            place = folder / name
            place.mkdir()
            with told(name):
                SECTIONS[name](Setting(place, options.quick, logs), result)
            shutil.rmtree(place)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    print(json.dumps(result.to_json(), indent=2) if options.json else table(result))
    return 0


def table(result: Result) -> str:
    """What was measured, and beside it what is wanted."""
    lines = ["| section | what | measured | of the floor | |", "|---|---|---|---|---|"]
    for row in result.rows:
        share = "" if row.ratio is None else f"{row.ratio:.2f}"
        lines.append(f"| {row.section} | {row.what} | {row.value:.4g} {row.unit} | {share} | {row.note} |")
    lines += ["", "| section | wanted | bound | measured | met |", "|---|---|---|---|---|"]
    for bound in result.bounds:
        wanted = f"{bound.kind} {bound.wanted:g} {bound.unit}"
        lines.append(
            f"| {bound.section} | {bound.what} | {wanted} | {bound.value:.3g} {bound.unit} |"
            f" {'yes' if bound.met else 'no'} |"
        )
    return "\n".join([*lines, *result.notes])


if __name__ == "__main__":
    sys.exit(main())
