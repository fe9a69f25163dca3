"""The entry point: `ledger` and what its errors look like. A person sees one line, never a traceback."""

from __future__ import annotations

import contextlib
import errno
import os
import sys
from collections.abc import Sequence

import click

import ledger
from ledger.cli.base import Call, Entry, LazyGroup, common
from ledger.cli.output import complain
from ledger.errors import LedgerError

_RUN, _LOOK, _TAKE = "Rent, watch, end", "See what is", "Take over, write"
_HAND, _KEEP = "By hand", "Keep the ledger"
COMMANDS = {
    "dispatch": Entry("ledger.cli.dispatch", "Rent a machine for a run and start it, or reconnect to its own.", _RUN),
    "poll": Entry("ledger.cli.polling", "One tick, or many: look, decide, act, and tell what is wrong.", _RUN),
    "cancel": Entry("ledger.cli.ending", "Stop a run.", _RUN),
    "finalize": Entry("ledger.cli.ending", "A run is done: tear its machine down, retire its handle.", _RUN),
    "status": Entry("ledger.cli.reading", "Active runs, their machines and what they cost per hour.", _LOOK),
    "audit": Entry("ledger.cli.audit", "What must never be, and is: breaches, with the money at risk.", _LOOK),
    "show": Entry("ledger.cli.show", "One run: state, machines, timeline, evidence.", _LOOK),
    "log": Entry("ledger.cli.reading", "The events, oldest first.", _LOOK),
    "logs": Entry("ledger.cli.machines", "What a run's workload prints, from its machine.", _LOOK),
    "ssh": Entry("ledger.cli.machines", "A shell on the machine of a run.", _LOOK),
    "reconcile": Entry("ledger.cli.reconcile", "What the clouds have against what the log has.", _LOOK),
    "rehearse": Entry("ledger.cli.rehearse", "Scenario files against simulated clouds.", _LOOK),
    "sim": Entry("ledger.cli.sim", "The simulated clouds on loopback ports, for real clients.", _LOOK),
    "demo": Entry("ledger.cli.demo", "Two incidents that really happened, in a temporary ledger.", _LOOK),
    "import": Entry("ledger.cli.handles", "Take over old handle files.", _TAKE, "import_"),
    "project": Entry("ledger.cli.handles", "Write the handle files from the log, or compare them.", _TAKE),
    "confirm": Entry("ledger.cli.manual", "A launch that was done by hand.", _HAND),
    "adopt": Entry("ledger.cli.manual", "Take a machine over into a run.", _HAND),
    "end": Entry("ledger.cli.ending", "Tear one machine down by hand.", _HAND),
    "ack": Entry("ledger.cli.audit", "Say that a breach has been seen.", _HAND),
    "pause": Entry("ledger.cli.manual", "The brake: no create and no teardown until resume.", _HAND),
    "resume": Entry("ledger.cli.manual", "Let go of the brake.", _HAND),
    "init": Entry("ledger.cli.setup", "Make a ledger here.", _KEEP),
    "doctor": Entry("ledger.cli.doctor", "What is configured, which credentials are found, who answers.", _KEEP),
    "verify": Entry("ledger.cli.verify", "Whether the log is whole and the projections are what it says.", _KEEP),
    "db": Entry("ledger.cli.setup", "Migrations of the database; a ledger's move to a server.", _KEEP),
}


@click.group(
    cls=LazyGroup,
    lazy=COMMANDS,
    name="ledger",
    params=common(),
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(ledger.__version__, message="%(version)s")
def cli() -> None:
    """The ledger of the machines on which GPU jobs run: what happened, what is, and what must never be.

    \b
    Start:
      ledger init                       # a ledger in this folder
      ledger import path/to/handles     # take over old handle files
      ledger audit                      # what is wrong, and what it costs
    """


def run(argv: Sequence[str], call: Call | None = None) -> int:
    """Run one command line and give its exit status. Every error ends here, as one line on stderr."""
    try:
        with cli.make_context("ledger", list(argv), obj=call) as context:
            status = cli.invoke(context)
        sys.stdout.flush()
    except click.exceptions.Exit as done:
        return done.exit_code
    except click.UsageError as error:
        return _usage(error)
    except (KeyboardInterrupt, click.Abort):
        return 130
    except BrokenPipeError:
        _drop_output()
        return 141
    except LedgerError as error:
        _debug()
        complain(str(error))
        return error.status
    except click.ClickException as error:
        complain(error.format_message())
        return 2
    except OSError as error:
        _debug()
        complain(_os_words(error))
        _drop_output()
        return 2
    except Exception as error:
        _debug()
        complain(f"unexpected {type(error).__name__}: {error} (set LEDGER_DEBUG=1 to see where, and report it)")
        return 2
    return status if isinstance(status, int) else 0


def _usage(error: click.UsageError) -> int:
    if isinstance(error, click.exceptions.NoArgsIsHelpError):
        error.show()
        return 2
    path = error.ctx.command_path if error.ctx is not None else "ledger"
    complain(f"{error.format_message()} (`{path} --help`)")
    return 2


def _os_words(error: OSError) -> str:
    where = f"{error.filename}: " if error.filename else ""
    what = error.strerror or str(error)
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return f"{where}the disk is full ({what}); free some space and run it again"
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return f"{where}{what}; check who owns it and whether its folder may be written"
    return f"{where}{what}"


def _drop_output() -> None:
    """Nobody can take what is still buffered: let the interpreter's own flush at its end go nowhere."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _debug() -> None:
    if os.environ.get("LEDGER_DEBUG") == "1":
        import traceback

        traceback.print_exc()


def main() -> None:
    """The console script."""
    # Started with a closed stream, Python has None in its place.
    sys.stdout = sys.stdout or open(os.devnull, "w", encoding="utf-8")  # noqa: PTH123, SIM115 - kept to the end
    sys.stderr = sys.stderr or open(os.devnull, "w", encoding="utf-8")  # noqa: PTH123, SIM115
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(AttributeError, OSError):
            stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr] # a name that the terminal cannot show
    if "_LEDGER_COMPLETE" in os.environ:
        cli.main(prog_name="ledger")
    sys.exit(run(sys.argv[1:]))
