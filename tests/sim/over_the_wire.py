"""Every scenario over the wire, by both of RunPod's APIs, as a table: `python -m tests.sim.over_the_wire [FILE...]`.

A cell says `held`, or what did not hold; `differs` where the events are not those of the rehearsal in process (but for
the host keys, which only SSH has). Exit 1 unless all held and none differs.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from ledger.sim.program import TheProgram
from ledger.sim.rehearse import Outcome, rehearse
from ledger.sim.scenario import load
from ledger.sim.wire.rehearsed import APIS, Wire

FOLDER = Path(__file__).parent.parent / "scenarios"


def course(outcome: Outcome) -> list[tuple[object, ...]]:
    """What happened to whom and when, by any door."""
    return [
        (event["stream"], event["type"], event["occurred_at"], event["machine"] is None)
        for event in outcome.facts.events
        if event["type"] != "HostKeyPinned"
    ]


def difference(outcome: Outcome, other: Outcome) -> str | None:
    """The first event that the two do not share."""
    wired, plain = course(outcome), course(other)
    for number, (here, there) in enumerate(zip(wired, plain, strict=False)):
        if here != there:
            return f"event {number}: {here} and not {there}"
    return None if len(wired) == len(plain) else f"{len(wired)} events and not {len(plain)}"


def row(path: Path) -> list[str]:
    """The cells of one file."""
    scenario = load(path)
    plain = rehearse(scenario, 0, TheProgram())
    cells = []
    for api in APIS:
        outcome = rehearse(scenario, 0, TheProgram(), door=Wire(api))
        wrong = [f"{f.key} is {f.actual!r}" for f in outcome.failures] + [str(truth) for truth in outcome.truths]
        other = difference(outcome, plain)
        said = f"NOT HELD: {'; '.join(wrong)}" if wrong else "held" if other is None else f"differs: {other}"
        cells.append(f"{said} ({outcome.wall_seconds:.1f} s)")
    return cells


def main(arguments: Sequence[str]) -> int:
    """Print the table; the exit status."""
    paths = [Path(argument) for argument in arguments] or sorted(FOLDER.rglob("*.yaml"))
    good = 0
    print(f"{'scenario':<60} {APIS[0]:<16} {APIS[1]}")
    with ProcessPoolExecutor(max_workers=min(len(paths), os.cpu_count() or 1)) as pool:
        for path, cells in zip(paths, pool.map(row, paths), strict=True):
            held = all(cell.startswith("held") for cell in cells)
            good += held
            name = path.resolve().relative_to(FOLDER) if path.resolve().is_relative_to(FOLDER) else path
            print(f"{name!s:<60} {cells[0]:<16} {cells[1]}", flush=True)
    print(f"{good} of {len(paths)} held by both")
    return 0 if good == len(paths) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
