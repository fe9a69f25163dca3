"""`ledger doctor`: what is configured, which credentials are found, and whether a poll could do its work."""

from __future__ import annotations

import click

from ledger.cli import output
from ledger.cli.base import Call, Command, pass_call


@click.command(cls=Command)
@pass_call
def doctor(call: Call) -> int:
    """Look at all that a poll needs: settings, database, handle files, credentials, clouds, clocks, SSH.

    Each cloud is asked once, for a list: nothing is made, ended or recorded. A credential is never shown, only where
    it was found and whose it is. One line each: ok, a note (a poll does without), or STOPS (it would stop a poll).
    Exit status: 0, 1 if something would stop a poll.

    \b
    Examples:
      ledger doctor
      ledger doctor --json | jq '.checks[] | select(.state != "ok")'
    """
    from ledger.examine import examine

    checks = examine(call.settings(), call.source, call.env)
    stops = [check for check in checks if check.state == "stops"]
    if call.json:
        output.emit({"ok": not stops, "checks": [check.to_json() for check in checks]})
    else:
        words = {"ok": ("ok   ", "good"), "note": ("note ", None), "stops": ("STOPS", "bad")}
        width = max(len(check.about) for check in checks)
        for check in checks:
            word, style = words[check.state]
            output.say(f"{word}  {check.about:<{width}}  {output.clean(check.said)}", style)
    return 1 if stops else 0
