"""The two scripts that existing callers run, under their old names and flags: one JSON document on stdout, always."""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NoReturn, TextIO

from ledger.cli.base import Call
from ledger.cli.output import complain
from ledger.errors import LedgerError

USAGE = 2
NO_LEDGER = "ledger_unavailable"


class _Usage(Exception):
    """The command line cannot be used."""


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise _Usage(f"{message} (`{self.prog} --help`)")


def poll_main(argv: Sequence[str], call: Call | None = None) -> int:
    """`backend_poll.py --issue N [--handle-file PATH]`: one tick of one run, one line. 0 on every handled path."""
    from ledger.poller.line import stalled

    parser = _Parser(prog="backend_poll.py", description="One tick of one run; prints one JSON line.")
    parser.add_argument("--issue", type=int, required=True, metavar="N")
    parser.add_argument("--handle-file", type=Path, metavar="PATH", help="its sidecar: says the lane, where it has one")
    status = 0
    printed = False

    def show(line: dict[str, Any]) -> None:
        nonlocal printed
        printed = True
        out.write(json.dumps(line) + "\n")
        out.flush()

    # What a cloud's library prints must not stand beside the line.
    with _only_ours() as out:
        try:
            asked = parser.parse_args(argv)
            _poll(call, asked.issue, asked.handle_file, show)
        except _Usage as error:
            complain(str(error))
            show(stalled("usage", str(error)))
            status = USAGE
        except LedgerError as error:
            complain(str(error))
            if not printed:
                show(stalled(NO_LEDGER, str(error)))
        except Exception as error:
            complain(f"unexpected {type(error).__name__}: {error}")
            if not printed:
                show(stalled(NO_LEDGER, f"unexpected {type(error).__name__}: {error}"))
    return status


def _poll(call: Call | None, issue: int, file: Path | None, show: Callable[[dict[str, Any]], None]) -> None:
    """Show the line of this run after a tick, then tell what is newly wrong."""
    from ledger.cli.alerts import Said, tell
    from ledger.cli.polling import told
    from ledger.poller.line import missing, stalled
    from ledger.poller.tick import tick

    call, stream = _place(call, issue, file)
    with call.reading() as log:
        known = bool(log.run(stream).version)
    if not known:
        folder = call.folder()
        lying = file if file is not None else folder.path_of(stream) if folder is not None else None
        if lying is None or not lying.exists():
            return show(missing(issue))
        return show(stalled("not_taken_over", f"{lying} is not in the ledger; `ledger import {lying}` takes it over"))
    said = Said()
    with call.edges() as edges:
        edges.say = said
        run = edges.log.run(stream)
        if run.open and not run.driven:
            return show(stalled("not_driven", f"{stream} is on {run.backend}, which the ledger does not drive"))
        report = tick(edges, [stream])
        failed = told(edges, report, [stream])
        if stream in failed:
            show(stalled("describe_failed", failed[stream]))
        else:
            show(report.lines[stream])
        return tell(call, edges.log, said.lines)


def _place(call: Call | None, issue: int, file: Path | None) -> tuple[Call, str]:
    """Which ledger, and which run. The handle file's folder counts before the working directory."""
    from ledger.events import run_stream
    from ledger.projections.handle_file import stream_of
    from ledger.settings import find

    call = call or Call()
    stream = run_stream(issue)
    if file is None:
        return call, stream
    file = file.absolute()
    named = stream_of(file.name)
    if named is not None:
        if named != stream and not named.startswith(f"{stream}-"):
            raise LedgerError(f"{file.name} is not a handle of issue {issue}")
        stream = named
    if find(file.parent) is not None:
        call.cwd = file.parent
    if call.settings().sidecars is None:
        call.use(sidecars=str(file.parent))
    return call, stream


def dispatch_main(argv: Sequence[str], call: Call | None = None) -> int:
    """`dispatch_issue.py launch|finalize`: one JSON object; exit 0, 2, 3, 4 or 75."""
    with _only_ours() as out:
        try:
            status, value = _dispatch(argv, call or Call())
        except _Usage as error:
            status, value = USAGE, {"ok": False, "reason": str(error)}
        except LedgerError as error:
            status, value = error.status, {"ok": False, "reason": str(error)}
        except Exception as error:
            from ledger.cli.dispatch import UNEXPECTED

            status, value = UNEXPECTED, {"ok": False, "reason": f"unexpected {type(error).__name__}: {error}"}
        if not value["ok"]:
            complain(str(value.get("refused") or value["reason"]))
        out.write(json.dumps(value) + "\n")
        out.flush()
    return status


def _dispatch(argv: Sequence[str], call: Call) -> tuple[int, dict[str, Any]]:
    from ledger.cli.dispatch import Asked, launch
    from ledger.cli.ending import finish
    from ledger.events import run_stream

    asked = _parser().parse_args(argv)
    if asked.command == "finalize":
        return finish(call, run_stream(asked.issue), skip_check=asked.skip_confirm_artifacts)
    names = ("intent", "gpus", "workload_cmd", "repo_branch", "time_budget_hours", "boot_disk_gb", "min_ram_gb")
    pins = {name: getattr(asked, name) for name in names} | {"hydra_args": asked.hydra}
    said = {name: pin for name, pin in pins.items() if pin not in (None, "", [])}
    return launch(call, Asked(asked.issue, backend=asked.backend, pins=said))


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="dispatch_issue.py", description="Launch or finalize a run; prints one JSON object.")
    commands = parser.add_subparsers(dest="command", required=True, metavar="launch|finalize")
    launch = commands.add_parser("launch", help="as `ledger dispatch`")
    launch.add_argument("--issue", type=int, required=True, metavar="N")
    launch.add_argument("--intent", required=True, metavar="I")
    launch.add_argument("--backend", choices=("gcp", "runpod", "auto"), default="auto")
    launch.add_argument("--gpus", type=int, metavar="K")
    what = launch.add_mutually_exclusive_group(required=True)
    what.add_argument("--workload-cmd", metavar="C")
    what.add_argument("--hydra", nargs="+", metavar="A")
    launch.add_argument("--repo-branch", metavar="B")
    launch.add_argument("--time-budget-hours", type=float, metavar="H")
    launch.add_argument("--boot-disk-gb", type=int, metavar="G")
    launch.add_argument("--min-ram-gb", type=int, metavar="G")
    launch.add_argument("--execute-workload", action="store_true", help="always so: the poller launches it")
    finalize = commands.add_parser("finalize", help="as `ledger finalize`")
    finalize.add_argument("--issue", type=int, required=True, metavar="N")
    finalize.add_argument("--skip-confirm-artifacts", action="store_true", help="do not ask finalize_check")
    return parser


@contextlib.contextmanager
def _only_ours() -> Iterator[TextIO]:
    """Give stdout, and let everything else that is printed go to stderr."""
    out = sys.stdout
    with contextlib.redirect_stdout(sys.stderr):
        yield out
