"""What is newly wrong, told once: a line on stderr, and JSON to the settings' `alert_command`.

What was told is kept in the database (the row `alerts` of `vitals`), so that one-shot ticks tell it once too. A breach
that closed and opens again is told again.
"""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ledger.cli import output
from ledger.cli.output import complain
from ledger.errors import LedgerError

if TYPE_CHECKING:
    from ledger.cli.base import Call
    from ledger.invariants.audit import Breach
    from ledger.log.store import Log

ROW = "alerts"
COMMAND_SECONDS = 10.0
ALL_SECONDS = 15.0  # one tick and its alerts stay under the 120 s at which callers kill them


@dataclass(slots=True)
class Said:
    """The lines that a tick says to a person: shown at once, and alerts too (a brake that holds is one)."""

    lines: list[str] = field(default_factory=list)

    def __call__(self, text: str) -> None:
        self.lines.append(text)
        complain(text)


def tell(call: Call, log: Log, said: Sequence[str] = ()) -> None:
    """Tell what is new. Never raises for what cannot be asked or told: that is a line on stderr."""
    from ledger.cli.breaches import open_breaches

    try:
        breaches = open_breaches(call, log, call.source.now())
        told = _told(log)
        command = call.settings().alert_command
        deadline = call.source.steady() + ALL_SECONDS
        now: set[str] = set()
        for id_, line, value in (*map(_of_breach, breaches), *map(_of_line, said)):
            if id_ in told:
                now.add(id_)
                continue
            if line is not None:
                complain(line)
            if command is None or _run(command, value, deadline - call.source.steady()):
                now.add(id_)
        if now != told:
            _keep(log, now)
    except LedgerError as error:
        complain(f"the audit after the tick: {error}")


def _of_breach(breach: Breach) -> tuple[str, str | None, dict[str, Any]]:
    cost = f", {output.dollars(breach.usd_at_risk)} at risk" if breach.cost_per_hour else ""
    where = breach.machine or breach.run or "the ledger"
    line = f"new breach {breach.id}: {where}: {breach.detail or breach.about}{cost}; {breach.advice}"
    return breach.id, line, breach.to_json()


def _of_line(text: str) -> tuple[str, str | None, dict[str, Any]]:
    """A line is the same alert whatever its numbers; it has been shown already."""
    return "said:" + re.sub(r"\d+(?:\.\d+)?", "#", text), None, {"alert": text}


def _run(command: str, value: dict[str, Any], seconds: float) -> bool:
    """Whether the command took it. One that did not gets it again at the next tick."""
    if seconds <= 0:
        complain("alert_command takes too long; what is left goes out at the next tick")
        return False
    try:
        done = subprocess.run(
            ["/bin/sh", "-c", command],
            input=json.dumps(value, ensure_ascii=False).encode(),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            timeout=min(COMMAND_SECONDS, seconds),
            check=False,
        )
    except subprocess.TimeoutExpired:
        complain(f"alert_command took longer than {min(COMMAND_SECONDS, seconds):.0f} s and was stopped")
        return False
    except OSError as error:
        complain(f"alert_command could not be run: {error.strerror}")
        return False
    if done.returncode != 0:
        last = done.stderr.decode(errors="replace").strip().splitlines()[-1:]
        complain(f"alert_command exited {done.returncode}{': ' + last[0] if last else ''}")
        return False
    return True


def _told(log: Log) -> set[str]:
    rows = log.connection.query("SELECT reading FROM vitals WHERE machine = :row", {"row": ROW})
    return set(json.loads(rows[0][0])) if rows else set()


def _keep(log: Log, ids: set[str]) -> None:
    from ledger.log.rows import keep_readings

    keep_readings(log, [(ROW, log.source.now(), json.dumps(sorted(ids)))])
