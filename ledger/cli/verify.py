"""`ledger verify`: whether the log is whole, and the projections are what it says."""

from __future__ import annotations

import click

from ledger.cli import output
from ledger.cli.base import Call, Command, pass_call


@click.command(cls=Command)
@click.option("--head", is_flag=True, help="Print a digest over all streams, to be kept elsewhere and compared later.")
@click.option("--projections", is_flag=True, help="Rebuild every table from the events and compare it too.")
@pass_call
def verify(call: Call, head: bool, projections: bool) -> int:
    """Check the log: every hash, version and position, and what was cut off.

    Names each event that does not fit. Exit status: 0 it is whole, 1 it is not.

    \b
    Examples:
      ledger verify
      ledger verify --projections
      ledger verify --head > head-of-$(date +%F)
    """
    from ledger.log.integrity import head as head_of
    from ledger.log.integrity import verify as findings_of

    with call.reading() as log:
        with output.progress("checking", quiet=call.json) as step:
            findings = findings_of(log, projections=projections, progress=step)
        digest = head_of(log) if head else None
        events = int(log.connection.query("SELECT COUNT(*) FROM events")[0][0])
    if call.json:
        extra = {"head": digest} if head else {}
        output.emit({"whole": not findings, "events": events, "findings": [f.to_json() for f in findings], **extra})
    elif findings:
        for finding in findings:
            output.say(str(finding), "bad")
    elif head:
        output.say(str(digest))
    else:
        checked = "the log and its projections are whole" if projections else "the log is whole"
        output.say(f"{output.count(events, 'event')}: {checked}", "good")
    return 1 if findings else 0
