"""Whose turn it is to be read in detail, where a tick cannot read all: kept in the database, so that ticks of processes
that come and go take turns too. No evidence, and no part of what was seen."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from ledger.log.rows import keep_readings
from ledger.log.store import Log
from ledger.moments import MICROS

# What was read last before this is due before all else. Some ticks before ten minutes, past which nothing is to wait.
DUE: Final = 8 * 60 * MICROS
_READING: Final = "detail"


def last_read(log: Log) -> dict[str, int]:
    """Machine → when it was last read in a tick that could not read all; others are missing."""
    rows = log.connection.query("SELECT machine, read_at FROM vitals WHERE reading = :reading", {"reading": _READING})
    return dict(rows)


def keep(log: Log, machines: Collection[str], now: int) -> None:
    """They were read at `now`."""
    keep_readings(log, [(machine, now, _READING) for machine in machines])


def order(unsure: bool, read_at: int, now: int) -> tuple[int, int]:
    """Sort key: what is long due, then what is unsure, then the rest; the longest unread of each first."""
    return (0 if now - read_at > DUE else 1 if unsure else 2, read_at)
