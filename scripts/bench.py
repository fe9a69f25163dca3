#!/usr/bin/env python3
"""How fast, beside floors and peers: `scripts/bench.py [SECTION…] [--quick] [--json]`.

The peers are the extra `bench`: `pip install -c constraints.txt -e '.[bench]'`. dstack, whose packages may not agree
with the ledger's, is taken from PATH or from $LEDGER_BENCH_DSTACK, else installed into a venv of its own.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks import appending, auditing, reading, starting, ticking, together
from benchmarks.harness import Bound, Result, Row, Setting, told

README = Path(__file__).resolve().parent.parent / "README.md"
TABLE = re.compile(r"(?<=<!-- bench -->\n).*?(?=<!-- /bench -->)", re.DOTALL)
SECTIONS = {
    "append": appending.append,
    "batch": appending.batch,
    "audit": auditing.audit,
    "verify": reading.verify,
    "rebuild": reading.rebuild,
    "asof": reading.asof,
    "start": starting.start,
    "tick": ticking.tick,
    "eight": together.eight,
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("section", nargs="*", metavar="SECTION", help=f"{', '.join(SECTIONS)}; all of them")
    parser.add_argument("--quick", action="store_true", help="less of everything: about a minute")
    parser.add_argument("--json", action="store_true", help="all that was measured as one JSON object")
    parser.add_argument("--readme", action="store_true", help="put the table of what is wanted into README.md")
    parser.add_argument("--told", nargs="+", metavar="FILE", help="measure nothing: take what --json wrote there")
    parser.add_argument("--logs", metavar="FOLDER", help="keep the long logs there, and take those that lie there")
    options = parser.parse_args()
    unknown = [name for name in options.section if name not in SECTIONS]
    if unknown:
        parser.error(f"there is no section {unknown[0]}; there are {', '.join(SECTIONS)}")
    result = _told(options.told) if options.told else _measured(options)
    if options.readme:
        text = README.read_text(encoding="utf-8")
        README.write_text(TABLE.sub(lambda _: f"{wanted(result)}\n", text), encoding="utf-8")
    print(json.dumps(result.to_json(), indent=2) if options.json else table(result))
    return 0


def _measured(options: argparse.Namespace) -> Result:
    result = Result()
    folder = Path(tempfile.mkdtemp(prefix="ledger-bench-"))
    logs = Path(options.logs or folder)
    try:
        for name in options.section or SECTIONS:
            place = folder / name
            place.mkdir()
            with told(name):
                SECTIONS[name](Setting(place, options.quick, logs), result)
            shutil.rmtree(place)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return result


def _told(files: list[str]) -> Result:
    result = Result()
    for file in files:
        given = json.loads(Path(file).read_text(encoding="utf-8"))
        for bound in given["bounds"]:
            del bound["met"]
        result.rows += [Row(**row) for row in given["rows"]]
        result.bounds += [Bound(**bound) for bound in given["bounds"]]
        result.notes += given["notes"]
    return result


def table(result: Result) -> str:
    """What was measured, and beside it what is wanted."""
    lines = ["| section | what | measured | of the floor | |", "|---|---|---|---|---|"]
    for row in result.rows:
        share = "" if row.ratio is None else f"{row.ratio:.2f}"
        lines.append(f"| {row.section} | {row.what} | {row.value:.4g} {row.unit} | {share} | {row.note} |")
    return "\n".join([*lines, "", wanted(result), *result.notes])


def wanted(result: Result) -> str:
    """What is wanted, and whether it was met."""
    lines = ["| section | what | wanted | measured | met |", "|---|---|---|---|---|"]
    for bound in result.bounds:
        unit = "" if bound.unit == "x" else f" {bound.unit}"
        lines.append(
            f"| {bound.section} | {bound.what} | {bound.kind} {bound.wanted:g}{unit} | {bound.value:.3g}{unit} |"
            f" {'yes' if bound.met else '**no**'} |"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
