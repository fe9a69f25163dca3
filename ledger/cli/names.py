"""What a person may write for a run, a machine or a moment, and what it means in the log."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import click

from ledger.cli.base import Call
from ledger.errors import LedgerError
from ledger.events import ACCOUNT_PREFIX, LEDGER_STREAM, run_stream
from ledger.moments import MICROS, iso, parse_time

if TYPE_CHECKING:
    from ledger.log.store import Log

_RUN = re.compile(r"^(?:issue-|#)?([0-9]{1,15})(?:-([a-z0-9-]{1,43}))?$")
_MACHINE = re.compile(r"^(?:gcp:([a-z0-9.:-]+)/([a-z][a-z0-9-]*)/\d+|runpod:[A-Za-z0-9_-]+)$")
_AGO = re.compile(r"^(\d+(?:\.\d+)?)\s*(s|m|min|h|d|w)$")
_UNITS = {"s": 1, "m": 60, "min": 60, "h": 3600, "d": 86400, "w": 7 * 86400}


def run_of(text: str) -> str:
    """The stream of a run: `1417`, `#1417`, `issue-1417`, or with a lane `1417-b`. Raises LedgerError."""
    match = _RUN.match(text.strip())
    if match is None:
        raise LedgerError(f"{text!r} names no run; write 1417, issue-1417, or 1417-b for lane b")
    return run_stream(int(match[1]), match[2])


def stream_of(text: str) -> str:
    """The stream of a run, an account (`account-gcp-my-project`), or the ledger itself (`ledger`)."""
    return text if text == LEDGER_STREAM or text.startswith(ACCOUNT_PREFIX) else run_of(text)


def known(log: Log, stream: str) -> str:
    """`stream`, if the log has it. Raises LedgerError."""
    if log.connection.query("SELECT 1 FROM streams WHERE stream = :stream", {"stream": stream}):
        return stream
    raise LedgerError(f"{stream} is not in this ledger ({log.connection.where}); `ledger log` shows what is")


def known_runs(log: Log, names: tuple[str, ...]) -> list[str]:
    """The streams of these runs, each once; each must be in the log."""
    return [known(log, stream) for stream in dict.fromkeys(map(run_of, names))]


def machine_of(text: str) -> tuple[str, str, str | None, str]:
    """(machine id, backend, zone, account) of a machine as its cloud names it. Raises LedgerError.

    A pod's account is not in its id: "".
    """
    match = _MACHINE.match(text)
    if match is None:
        raise LedgerError(
            f"{text!r} names no machine; write gcp:PROJECT/ZONE/NUMERIC-ID or runpod:POD-ID (the cloud's own id, "
            "never a name or an address)"
        )
    if text.startswith("runpod:"):
        return text, "runpod", None, ""
    return text, "gcp", match[2], match[1]


class Moment(click.ParamType[int]):
    """A time: ISO 8601, or how long ago (`2h`, `30min`, `1.5d`). Gives integer microseconds UTC."""

    name = "TIME"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if isinstance(value, int):
            return value
        assert ctx is not None
        now = ctx.ensure_object(Call).source.now()
        ago = _AGO.match(value.strip())
        try:
            moment = now - round(float(ago[1]) * _UNITS[ago[2]] * MICROS) if ago else parse_time(value)
            iso(moment)
        except (ValueError, OverflowError, OSError):
            self.fail(f"{value!r} is no time; write 2026-07-18T00:30:00Z, or 2h for two hours ago", param, ctx)
        return moment


class Past(Moment):
    """A moment that is not to come."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        moment = super().convert(value, param, ctx)
        assert ctx is not None
        if moment > ctx.ensure_object(Call).source.now():
            self.fail(f"{value!r} is still to come; the log knows only what was", param, ctx)
        return moment
