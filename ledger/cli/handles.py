"""`ledger import` and `ledger project`: handle files into the log, and out of it again."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ledger.cli import output
from ledger.cli.base import Call, Command, pass_call
from ledger.cli.breaches import open_breaches
from ledger.cli.names import known_runs, run_of
from ledger.cli.output import complain
from ledger.errors import LedgerError, StorageError

if TYPE_CHECKING:
    from ledger.importing import Report
    from ledger.log.store import Log
    from ledger.projections.files import Difference, SidecarFolder

FOLLOW_SECONDS = 1.0
LOOK_SECONDS = 30.0  # another program's edit, or a news that was lost


@click.command("import", cls=Command)
@click.argument("paths", nargs=-1, required=True, metavar="PATH...", type=click.Path(path_type=Path))
@pass_call
def import_(call: Call, paths: tuple[Path, ...]) -> int:
    """Take over old handle files (files or folders) into the log.

    A file that was taken over already is left alone. A run of a backend that the ledger does not drive (a SLURM
    cluster) is kept and shown, never polled. Exit status: 0; 1 some files were refused, each with its reason, and
    the rest imported.

    \b
    Examples:
      ledger import .claude/cache
      ledger import old/issue-1417-handle.json
    """
    from ledger.importing import import_paths

    settings = call.settings()
    with call.writing(create=True) as log:
        with output.progress("importing", quiet=call.json) as step:
            report = import_paths(log, call.folder(), call.source, log.policy(), paths, step, settings.gcp.project)
        value = _report(log, report)
        value["breaches"] = len(open_breaches(call, log, call.source.now()))
    if call.json:
        output.emit(value)
    else:
        _show(value, settings.sidecars)
    return 1 if value["refused"] else 0


def _report(log: Log, report: Report) -> dict[str, Any]:
    taken = []
    for path in report.taken:
        run = log.run(run_of(path.name.removesuffix("-handle.json")))
        taken.append(
            {
                "path": str(path),
                "run": run.stream,
                "backend": run.backend,
                "driven": run.driven,
                "machine": run.handle,
                "relaunchable": run.relaunchable,
                "redacted": path in report.redacted,
            }
        )
    refused = [{"path": str(path), "reason": reason} for path, reason in report.refused]
    return {"taken": taken, "left": [str(path) for path in report.left], "refused": refused}


def _show(value: dict[str, Any], sidecars: Path | None) -> None:
    rows: list[tuple[Any, ...]] = [("taken over", t["run"], _about(t)) for t in value["taken"]]
    rows += [("left alone", Path(left).name, "the log has its run already") for left in value["left"]]
    rows += [("REFUSED", Path(r["path"]).name, r["reason"]) for r in value["refused"]]
    if rows:
        output.table(("", "run or file", "what"), rows)
    else:
        output.say("no handle file there (issue-N-handle.json)")
    if value["taken"] and sidecars is not None:
        output.say(f"their handle files are projections of the log now: {sidecars}")
    if value["breaches"]:
        number = output.count(value["breaches"], "breach", "breaches")
        output.say(f"{number} open: `ledger audit` says what and why", "bad")
    else:
        output.say("no breach open", "good")


def _about(taken: dict[str, Any]) -> str:
    parts = [taken["backend"]]
    if not taken["driven"]:
        return f"{taken['backend']}, not driven"
    parts.append(taken["machine"] or "machine unknown")
    if taken["redacted"]:
        parts.append("held a secret: redacted, cannot be launched again")
    elif not taken["relaunchable"]:
        parts.append("cannot be launched again")
    return ", ".join(parts)


@click.command(cls=Command)
@click.argument("issues", nargs=-1, metavar="[ISSUE]...")
@click.option("--check", is_flag=True, help="Only compare; write nothing.")
@click.option("--follow", "-f", is_flag=True, help="Go on as the log grows, until Ctrl-C.")
@pass_call
def project(call: Call, issues: tuple[str, ...], check: bool, follow: bool) -> int:
    """Write the handle files from the log: of all runs, or of these alone.

    A file whose content is right is not touched. Exit status: 0; 1 where a file still differs: with --check any,
    else one that is not this log's to write (another ledger's, or one that knows a newer log).

    --follow keeps the folder of a host current that does not poll: it writes what the team's pollers record, a moment
    later, and needs no cloud.

    \b
    Examples:
      ledger project
      ledger project 1417 --check
      ledger project --follow
    """
    folder = call.folder()
    if folder is None:
        raise LedgerError("no folder of handle files is configured; name it with --sidecars DIR or in ledger.toml")
    if follow:
        if check:
            raise click.UsageError("--follow writes: give it without --check.")
        return _follow(call, folder, issues)
    if check:
        with call.reading() as log:
            streams = known_runs(log, issues) or None
            differences = folder.check(log, streams)
        return _differences(call, differences)
    with call.writing() as log:
        streams = known_runs(log, issues) or None
        written = folder.project(log, streams)
        left = folder.check(log, streams)
    if call.json:
        rows = [{"run": w.stream, "path": str(w.path), "action": w.action, "note": w.note} for w in written]
        output.emit({"written": rows, "differs": _rows(left)})
    elif written:
        output.table(("run", "what", "file"), [(w.stream, w.action, w.note or w.path) for w in written])
    elif not left:
        output.say("every handle file is as the log says")
    if left and not call.json:
        output.say(f"{output.count(len(left), 'file')} left as it lies there, for a person to see to", "bad")
        output.table(("run", "how", "file"), [(d.stream, d.kind, d.detail) for d in left])
    return 1 if left else 0


def _follow(call: Call, folder: SidecarFolder, issues: tuple[str, ...]) -> int:
    """Write what changes, for ever. A database or a disk that fails for a while is told once, and tried again."""
    failed = ""
    with call.reading() as log:
        streams = known_runs(log, issues) or None
        looked = None
        while True:
            try:
                news = looked is None or log.connection.wait(FOLLOW_SECONDS, call.sleep)
                if looked is not None and not news and call.source.steady() - looked < LOOK_SECONDS:
                    continue
                for w in folder.project(log, streams):
                    if call.json:
                        output.emit_line({"run": w.stream, "path": str(w.path), "action": w.action, "note": w.note})
                    else:
                        output.say(f"{w.stream}: {w.action} {w.note or w.path}")
                failed = ""
            except StorageError as error:
                if str(error) != failed:
                    failed = str(error)
                    complain(f"{error}; it is tried again")
                call.sleep(FOLLOW_SECONDS)
            looked = call.source.steady()


def _rows(differences: list[Difference]) -> list[dict[str, Any]]:
    return [{"run": d.stream, "path": str(d.path), "kind": d.kind, "detail": d.detail} for d in differences]


def _differences(call: Call, differences: list[Difference]) -> int:
    if call.json:
        output.emit({"differs": _rows(differences)})
    elif differences:
        output.table(("run", "how", "file"), [(d.stream, d.kind, d.detail) for d in differences])
    else:
        output.say("every handle file is as the log says", "good")
    return 1 if differences else 0
