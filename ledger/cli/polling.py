"""`ledger poll`: ticks, one line a run; and what is newly wrong after each."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import click

from ledger.cli import output
from ledger.cli.alerts import Said, tell
from ledger.cli.base import Call, Command, pass_call
from ledger.cli.names import known_runs
from ledger.cli.output import complain
from ledger.errors import LedgerError

if TYPE_CHECKING:
    from ledger.edges import Edges
    from ledger.poller.tick import Report

SIGNALS = (signal.SIGINT, signal.SIGTERM)


@click.command(cls=Command)
@click.argument("issues", nargs=-1, metavar="[ISSUE]...")
@click.option(
    "--watch", is_flag=True, help="Tick again and again, poll_interval_seconds apart, until it is told to end."
)
@click.option("--dry-run", is_flag=True, help="Look and decide, print, and do nothing.")
@pass_call
def poll(call: Call, issues: tuple[str, ...], watch: bool, dry_run: bool) -> int:
    """One tick: look at the clouds, record, decide, act, write the handle files; for all active runs, or these.

    Prints one line of JSON a run on stdout. What is newly wrong is a line on stderr each, and goes to the settings'
    alert_command. SIGINT and SIGTERM end --watch after the tick that is under way. Exit status: 0; 1 if a run could
    not be polled at all.

    \b
    Examples:
      ledger poll
      ledger poll 1417 --dry-run
      ledger poll --watch
    """
    said = Said()
    with call.edges(write=not dry_run) as edges:
        edges.say = said
        streams = known_runs(edges.log, issues) if issues else None
        if not watch:
            return _once(call, edges, said, streams, dry_run=dry_run)
        with _until_told() as until:
            while not until.over:
                try:
                    _once(call, edges, said, streams, dry_run=dry_run)
                except LedgerError as error:
                    complain(f"this tick failed, the next one tries again: {error}")
                until.sleep(call, edges.policy.poll_interval_seconds)
    return 0


def _once(call: Call, edges: Edges, said: Said, streams: Sequence[str] | None, *, dry_run: bool) -> int:
    from ledger.poller.tick import tick

    said.lines.clear()
    report = tick(edges, streams, dry_run=dry_run)
    failed = told(edges, report, streams)
    for line in report.lines.values():
        output.emit_line(line)
    for account, why in report.unread.items():
        complain(f"{account} could not be read ({why}): nothing is concluded from that")
    for stream, why in report.planned:
        complain(f"{stream}: would do: {why}")
    for stream, why in failed.items():
        complain(f"{stream} could not be polled: {why}")
    if not dry_run:
        tell(call, edges.log, said.lines)
    return 1 if failed else 0


def told(edges: Edges, report: Report, streams: Sequence[str] | None) -> dict[str, str]:
    """Add the lines of named runs that are closed; give the runs that could not be polled at all, with why."""
    from ledger.decide.view import View
    from ledger.poller.line import tick_line

    for stream in streams or ():
        run = edges.log.run(stream)
        if stream not in report.lines and stream not in report.failed and run.version and not run.unreadable:
            report.lines[stream] = tick_line(run, View(now=edges.source.now()))
    failed = dict(report.failed)
    reached = {cloud.backend for cloud in edges.clouds}
    for stream in report.lines:
        run = edges.log.run(stream)
        open_ones = [m.backend for m in run.machines.values() if m.owed and m.claim != "orphan"]
        open_ones += [intent.backend for intent in run.intents.values() if intent.open]
        missing = sorted(set(open_ones) - reached)
        if missing and run.driven:
            failed[stream] = f"{missing[0]} is not configured here"
    return failed


class _Woken(BaseException):
    """The sleep between two ticks is over: it is time to end."""


class _Until:
    """Whether it has been told to end. A tick under way is not torn apart; asked a second time, it is."""

    def __init__(self) -> None:
        self.over = False
        self._asleep = False

    def __call__(self, *_: Any) -> None:
        if self.over and not self._asleep:
            raise KeyboardInterrupt
        self.over = True
        if self._asleep:
            raise _Woken

    def sleep(self, call: Call, seconds: float) -> None:
        let_pass = getattr(call.source, "let_pass", None)  # the clock of a simulated world may stand
        with contextlib.suppress(_Woken):
            self._asleep = True
            if not self.over and not (let_pass is not None and let_pass(seconds)):
                call.sleep(seconds)
            self._asleep = False  # in here, so that no signal finds it asleep outside
        self._asleep = False


@contextlib.contextmanager
def _until_told() -> Iterator[_Until]:
    until = _Until()
    before = {number: signal.signal(number, until) for number in SIGNALS}
    try:
        yield until
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
