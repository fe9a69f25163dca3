"""Deliberate faults, one at a time, in a copy of the ledger: how many random scenarios until one is caught.

`python -m tests.sim.mutants [LIMIT] [NAME...]`, or scripts/mutate. A table; exit 1 where one was not caught.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from tests.sim.faults import FAULTS, Fault

ROOT = Path(__file__).parents[2]
LIMIT = 400
SEED = 1

# Runs in the copy: prints how many scenarios it took and what was found, or nothing.
_HUNT = """
import sys
from ledger.sim.generate import document
from ledger.sim.search import judged
seed, limit = map(int, sys.argv[1:])
for index in range(limit):
    _, broken = judged(document(seed, index), index, twice=False)
    if broken:
        print(index + 1, broken[0], sep="\\t")
        break
"""


@dataclass(frozen=True, slots=True)
class Caught:
    """After how many scenarios a fault was found (None: not within the limit), by what, and in how many seconds."""

    fault: Fault
    scenarios: int | None
    by: str
    seconds: float


def mutate(root: Path, fault: Fault) -> None:
    """Put the fault into the copy at `root`. Raises ValueError where its text is not there exactly once."""
    for name, old, new in fault.edits:
        file = root / "ledger" / name
        text = file.read_text(encoding="utf-8")
        if text.count(old) != 1:
            raise ValueError(f"{fault.name}: its text stands {text.count(old)} times in ledger/{name}")
        file.write_text(text.replace(old, new), encoding="utf-8")


def hunt(fault: Fault, limit: int = LIMIT, seed: int = SEED) -> Caught:
    """Rehearse random scenarios with the fault until one breaks a truth."""
    with tempfile.TemporaryDirectory(prefix="mutant-") as name:
        root = Path(name)
        for package in ("ledger", "migrations"):
            shutil.copytree(ROOT / package, root / package, ignore=shutil.ignore_patterns("__pycache__"))
        mutate(root, fault)
        began = time.perf_counter()
        done = subprocess.run(
            [sys.executable, "-c", _HUNT, str(seed), str(limit)],
            cwd=root,
            env={**os.environ, "PYTHONPATH": str(root)},
            capture_output=True,
            text=True,
            check=False,
        )
        took = time.perf_counter() - began
    if done.returncode:
        raise RuntimeError(f"{fault.name}: {done.stderr.strip().splitlines()[-1]}")
    number, _, by = done.stdout.strip().partition("\t")
    return Caught(fault, int(number) if number else None, by, took)


def main(arguments: Sequence[str]) -> int:
    limit = int(arguments[0]) if arguments else LIMIT
    chosen = [fault for fault in FAULTS if not arguments[1:] or fault.name in arguments[1:]]
    unknown = set(arguments[1:]) - {fault.name for fault in FAULTS}
    if unknown:
        print(f"no such fault: {', '.join(sorted(unknown))}; there are {', '.join(f.name for f in FAULTS)}")
        return 2
    missed = 0
    print(f"{'fault':34} {'scenarios':>9} {'seconds':>8}  caught by")
    with ThreadPoolExecutor(max_workers=os.cpu_count() or 1) as pool:
        for caught in pool.map(lambda fault: hunt(fault, limit), chosen):
            missed += caught.scenarios is None
            number = "-" if caught.scenarios is None else str(caught.scenarios)
            by = caught.by or f"not within {limit}"
            print(f"{caught.fault.name:34} {number:>9} {caught.seconds:8.1f}  {by}", flush=True)
    print(f"{len(chosen) - missed} of {len(chosen)} faults caught (seed {SEED})")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
