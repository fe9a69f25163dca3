"""The audit: every invariant asked, now or as of a moment, what is broken told worst money first.

`audit` reads the read models; `as_of` and `from_log` ask the same queries of read models that were made anew from
the log. Times are microseconds UTC.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator
from dataclasses import asdict, dataclass, replace
from typing import Any

from ledger.errors import LedgerError
from ledger.events import is_run
from ledger.invariants import handles
from ledger.invariants.base import Invariant, Kind, params
from ledger.invariants.registry import ALL, of_kind
from ledger.log.connection import Connection
from ledger.log.reader import POLICY, policy_of
from ledger.log.store import Log
from ledger.moments import MICROS, iso
from ledger.projections.rows import SidecarRow

_HOUR = 3600 * MICROS


@dataclass(frozen=True, slots=True)
class Breach:
    """What is or was broken. `began`: when the condition began; `since`: when that became a breach; `until`: its end.

    `age_seconds` is from `since`; `usd_at_risk` is the cost per hour over the time from `began` (0 where nothing is
    billed, None where what is billed is not known).
    """

    id: str
    invariant: str
    kind: Kind
    status: str  # open, past or acknowledged
    run: str | None
    attempt: str | None
    machine: str | None
    began: int
    since: int
    until: int | None
    age_seconds: float
    evidence: tuple[int, ...]
    cost_per_hour: float | None
    usd_at_risk: float | None
    detail: str
    advice: str
    about: str

    def to_json(self) -> dict[str, Any]:
        """A JSON object of every field, times as ISO 8601."""
        times = {name: None if value is None else iso(value) for name, value in self._times().items()}
        return {**asdict(self), "evidence": list(self.evidence), **times}

    def _times(self) -> dict[str, int | None]:
        return {"began": self.began, "since": self.since, "until": self.until}

    def ended(self, until: int, status: str = "past") -> Breach:
        """The same breach, over since `until`."""
        return replace(
            self,
            status=status,
            until=until,
            age_seconds=max(0, until - self.since) / MICROS,
            usd_at_risk=_money(self.cost_per_hour, until - self.began),
        )


def audit(
    log: Log,
    now: int,
    files: Iterable[SidecarRow] | None = None,
    only: Collection[str] | None = None,
    run: str | None = None,
) -> list[Breach]:
    """What is broken at `now`, worst money first.

    `files`: the sidecars; without them the log alone is asked. `only`: ids of invariants; `run`: one stream.
    Raises LedgerError for an id that no invariant has.
    """
    return ask(log.connection, now, files, only, run)


def as_of(log: Log, at: int, only: Collection[str] | None = None, run: str | None = None) -> list[Breach]:
    """What was broken at `at` by what the log had recorded by then, under the policy of then.

    The whole log up to then is read into memory. Raises as `audit` does.
    """
    from ledger.projections.rebuild import rebuild

    check(only)
    with log.connection.read():
        connection = rebuild(log.read_all(until=at))
    try:
        return ask(connection, at, None, only, run)
    finally:
        connection.close()


def from_log(log: Log, now: int, only: Collection[str] | None = None, run: str | None = None) -> list[Breach]:
    """As `audit` without files, from the events alone instead of the read models."""
    from ledger.projections.rebuild import rebuild

    check(only)
    with log.connection.read():
        connection = rebuild(log.read_all())
    try:
        return ask(connection, now, None, only, run)
    finally:
        connection.close()


def check(only: Collection[str] | None) -> None:
    """Raises LedgerError for an id that no invariant has."""
    unknown = next((name for name in only or () if name not in ALL), None)
    if unknown is not None:
        raise LedgerError(f"there is no invariant {unknown!r}; there are {', '.join(ALL)}")


def ask(
    connection: Connection,
    now: int,
    files: Iterable[SidecarRow] | None = None,
    only: Collection[str] | None = None,
    run: str | None = None,
) -> list[Breach]:
    """The open breaches in the read models of `connection`, in one read transaction."""
    check(only)
    look_for_files(connection, files)
    with connection.read():
        found = [*state_breaches(connection, now, files is None, only), *_conduct(connection, now, only)]
    return sorted((b for b in found if run is None or b.run == run), key=worst_first)


def worst_first(breach: Breach) -> tuple[int, float, int, str]:
    """Sort key: the most money, then money unknown, then none; the oldest of equals first."""
    usd = breach.usd_at_risk
    return (1 if usd is None else 0 if usd > 0 else 2, -(usd or 0.0), breach.since, breach.id)


def look_for_files(connection: Connection, files: Iterable[SidecarRow] | None) -> None:
    """Make the temporary table that `lossy-projection` looks at, with these files in it."""
    connection.execute(handles.FILES)
    connection.execute(handles.NO_FILES)
    if files is not None:
        connection.execute_many(handles.ADD_FILE, [row._asdict() for row in files])


def state_breaches(
    connection: Connection, now: int, from_the_log: bool, only: Collection[str] | None = None
) -> Iterator[Breach]:
    """The state invariants asked. `from_the_log`: no files were given. In the caller's transaction."""
    bounds = params(policy_of(connection.query(POLICY)), now)
    for invariant in of_kind("state"):
        if only is not None and invariant.id not in only:
            continue
        if from_the_log and invariant.id in ("stale-fact", "lossy-projection"):
            connection.execute(handles.NO_FILES)
            connection.execute(handles.FILES_OF_LOG)
        for row in connection.query(invariant.sql, bounds):
            yield _breach(invariant, row, now)


def _money(cost_per_hour: float | None, time: int) -> float | None:
    return None if cost_per_hour is None else cost_per_hour * max(0, time) / _HOUR


def _breach(invariant: Invariant, row: tuple[Any, ...], now: int) -> Breach:
    key, stream, _generation, attempt, machine, began, since, cost, detail, *positions = row
    run = stream if is_run(stream) else None
    return Breach(
        id=f"{invariant.id}@{key}",
        invariant=invariant.id,
        kind=invariant.kind,
        status="open",
        run=run,
        attempt=attempt,
        machine=machine,
        began=round(began),
        since=round(since),
        until=None,
        age_seconds=max(0, now - round(since)) / MICROS,
        evidence=tuple(sorted({position for position in positions if position})),
        cost_per_hour=None if cost is None else float(cost),
        usd_at_risk=_money(cost, now - round(began)),
        detail=detail.removesuffix("; "),
        advice=_advise(invariant, run, machine),
        about=invariant.about,
    )


def _advise(invariant: Invariant, run: str | None, machine: str | None) -> str:
    words = invariant.advice.replace("{run}", run or "").replace("{machine}", machine or "")
    return " ".join(words.split()).rstrip(" :")


# A breach of conduct is over when its run was closed after it or dispatched again; what closed the run wrongly stays.
_OVER = "(r.stream IS NOT NULL AND (r.generation > b.generation OR COALESCE(r.closed_pos, 0) > b.position))"
CONDUCT = f"""
    SELECT b.invariant, b.position, b.stream, b.generation, b.attempt, b.machine, b.began, b.since,
        CASE WHEN m.machine IS NOT NULL AND m.billed_since IS NOT NULL AND m.billed_until IS NULL
            AND m.gone_at IS NULL THEN m.cost_per_hour ELSE 0 END,
        b.detail, b.evidence, a.position, CASE WHEN {_OVER} THEN 1 ELSE 0 END
    FROM breaches b LEFT JOIN runs r ON r.stream = b.stream
        LEFT JOIN (SELECT breach, MIN(position) AS position FROM acks GROUP BY breach) a ON a.breach = b.breach
        LEFT JOIN machines m ON m.machine = b.machine AND m.stream = b.stream
"""
_OPEN = f"WHERE a.breach IS NULL AND NOT {_OVER}"


def _conduct(connection: Connection, now: int, only: Collection[str] | None) -> Iterator[Breach]:
    for row in connection.query(CONDUCT + _OPEN):
        if only is None or row[0] in only:
            yield conduct_breach(row, now)


def conduct_breach(row: tuple[Any, ...], now: int) -> Breach:
    """One row of `CONDUCT` as a breach that is open."""
    invariant, position, stream, generation, attempt, machine, began, since, cost, detail, evidence, *_ = row
    values = (str(position), stream, generation, attempt, machine, began, since, cost, detail, *json.loads(evidence))
    return _breach(ALL[invariant], values, now)
