"""`ledger dispatch`: rent a machine for a run and start it, or reconnect to the one that it has."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import click

from ledger.cli import output
from ledger.cli.base import Call, Command, pass_call
from ledger.errors import LedgerError, StorageError

if TYPE_CHECKING:
    from ledger.edges import Edges
    from ledger.poller.dispatch import Request, Result

UNEXPECTED = 4
_LANE = re.compile(r"[a-z0-9-]{1,43}")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_NOTE = "the create passed its cap and the machine may exist; run the same command again: it reconnects"


@dataclass(frozen=True, slots=True)
class Asked:
    """What a command line asks for; what is None or empty was not said."""

    issue: int
    lane: str | None = None
    backend: str | None = None
    provisioning_model: str | None = None
    paid_fallback: bool | None = None
    secrets: tuple[str, ...] = ()
    pins: dict[str, Any] = field(default_factory=dict)


@click.command(cls=Command)
@click.option("--issue", type=click.IntRange(min=0), required=True, metavar="N", help="The run's issue.")
@click.option("--lane", metavar="NAME", help="A second run of the same issue: a-z, 0-9 and -.")
@click.option("--backend", type=click.Choice(["gcp", "runpod", "auto"]), help="Where to begin; auto: the ladder's top.")
@click.option("--provisioning-model", type=click.Choice(["FLEX_START", "STANDARD", "SPOT"]), help="Of an instance.")
@click.option("--zone", metavar="ZONE", help="The zone that is tried first.")
@click.option("--intent", metavar="NAME", help="What to rent, by its name in ledger.toml.")
@click.option("--gpu-type", metavar="TYPE", help="What to rent: H100, A100, ...; over what the intent says.")
@click.option("--gpus", type=click.IntRange(min=0), metavar="K", help="How many of them; 0: a CPU machine.")
@click.option("--workload-cmd", metavar="COMMAND", help="What to run. Without it the machine is only provided.")
@click.option(
    "--hydra",
    multiple=True,
    metavar="ARG",
    help="An argument of hydra_command (ledger.toml), in the place of a command.",
)
@click.option("--env-pin", multiple=True, metavar="K=V", help="A variable of the workload's environment.")
@click.option("--secret", multiple=True, metavar="NAME", help="A variable that the launch reads from its environment.")
@click.option(
    "--time-budget-hours", type=click.FloatRange(min=0, min_open=True), metavar="H", help="How long it may run."
)
@click.option("--repo-branch", metavar="BRANCH", help="The branch that is checked out first.")
@click.option("--boot-disk-gb", type=click.IntRange(min=1), metavar="G", help="The size of the boot disk.")
@click.option("--min-ram-gb", type=click.IntRange(min=1), metavar="G", help="The least memory.")
@click.option("--no-paid-fallback", is_flag=True, help="No RunPod rung, even if all others refuse.")
@pass_call
def dispatch(call: Call, /, **asked: Any) -> int:
    """Rent a machine for a run and start its workload, or reconnect to the one that it has.

    A run that is open is not rented for again: what its machine says now is recorded, and what was pinned at the
    first dispatch stays. Exit status: 0 a machine is known, queued or running, and its handle is written; the poller
    takes it from here. 2 refused (usage, or every rung said no). 4 an unexpected failure. 75 the create passed its
    cap: the machine may exist, run the same command again.

    \b
    Examples:
      ledger dispatch --issue 1417 --intent lora-7b --workload-cmd "bash scripts/run.sh"
      ledger dispatch --issue 1417 --lane b --backend gcp --provisioning-model FLEX_START \\
          --gpu-type H100 --gpus 4 --workload-cmd "bash scripts/run.sh" --env-pin WANDB_PROJECT=eps
    """
    if asked["workload_cmd"] and asked["hydra"]:
        raise click.UsageError("give --workload-cmd or --hydra, not both")
    pins = {
        "workload_cmd": asked["workload_cmd"],
        "hydra_args": list(asked["hydra"]),
        "env_pins": _env(asked["env_pin"]),
        **{
            name: asked[name]
            for name in (
                "zone",
                "intent",
                "gpu_type",
                "gpus",
                "time_budget_hours",
                "repo_branch",
                "boot_disk_gb",
                "min_ram_gb",
            )
        },
    }
    status, value = launch(
        call,
        Asked(
            issue=asked["issue"],
            lane=asked["lane"],
            backend=asked["backend"],
            provisioning_model=asked["provisioning_model"],
            paid_fallback=False if asked["no_paid_fallback"] else None,
            secrets=asked["secret"],
            pins={name: pin for name, pin in pins.items() if pin not in (None, "", [], {})},
        ),
    )
    if call.json:
        output.emit(value)
    else:
        output.say(_words(value), None if status == 0 else "bad")
    return status


def launch(call: Call, asked: Asked) -> tuple[int, dict[str, Any]]:
    """Dispatch, and give the exit status and the object that existing callers read. Raises LedgerError for a refusal.

    Whatever goes wrong once the ledger is open is an unexpected failure: a machine may have been made by then.
    """
    from ledger.poller.dispatch import dispatch as run_dispatch

    request = _request(call, asked)
    with call.edges(create=True) as edges:
        _refuse(call, edges, request)
        try:
            result = run_dispatch(edges, request)
        except StorageError as error:
            return UNEXPECTED, _failed(request, f"{error}; what was done by then is in the log, see `ledger status`")
        except LedgerError:
            raise
        except Exception as error:
            return UNEXPECTED, _failed(request, f"unexpected {type(error).__name__}: {error}")
    return result.status, _value(call, request, result)


def _request(call: Call, asked: Asked) -> Request:
    from ledger.poller.dispatch import Request

    settings = call.settings()
    if asked.lane is not None and not _LANE.fullmatch(asked.lane):
        raise LedgerError(f"--lane must be 1 to 43 of a-z, 0-9 and -, not {asked.lane!r}")
    if "intent" in asked.pins:
        settings.intent(asked.pins["intent"])
    wrong = next((name for name in asked.secrets if not _NAME.fullmatch(name)), None)
    if wrong is not None:
        # Never shown: whoever writes the secret itself there must not find it in a log of this command.
        raise LedgerError("--secret takes the name of a variable of the environment, never the secret itself")
    if asked.backend == "runpod" and asked.provisioning_model:
        raise LedgerError("--provisioning-model is of an instance; leave it out with --backend runpod")
    return Request(
        issue=asked.issue,
        lane=asked.lane,
        backend=asked.backend,
        provisioning_model=asked.provisioning_model,
        allow_paid_fallback=asked.paid_fallback,
        secrets=tuple(dict.fromkeys((*settings.secrets, *asked.secrets))),
        asked=asked.pins,
    )


def _env(pairs: tuple[str, ...]) -> dict[str, str]:
    pins = {}
    for pair in pairs:
        name, separator, value = pair.partition("=")
        if not separator or not _NAME.fullmatch(name):
            # What stands there may be a secret: only the name is shown.
            raise click.UsageError(f"--env-pin takes NAME=VALUE; {name!r} is no name of a variable, or has no value")
        pins[name] = value
    return pins


def _refuse(call: Call, edges: Edges, request: Request) -> None:
    """Raises LedgerError where a first dispatch cannot be: the brake is pulled, or it does not say what to rent."""
    from ledger.events import run_stream

    stream = run_stream(request.issue, request.lane)
    if edges.log.run(stream).open:
        return
    if edges.log.policy().paused:
        raise LedgerError(f"{stream}: the ledger is paused, nothing is created; `ledger resume` lets go of the brake")
    said = request.asked
    if not said.get("intent") and said.get("gpus") != 0 and not (said.get("gpu_type") and said.get("gpus")):
        names = ", ".join(sorted(call.settings().intents))
        raise LedgerError(
            f"{stream}: say what to rent: --intent ({names}), or --gpu-type and --gpus (0: a CPU machine)"
        )


def _failed(request: Request, reason: str) -> dict[str, Any]:
    return {"ok": False, "issue": request.issue, "requested_kind": request.backend or "auto", "reason": reason}


def _value(call: Call, request: Request, result: Result) -> dict[str, Any]:
    """The object of SIDECARS' launch: of a dispatch, of one that still waits, or of a refusal."""
    from ledger.decide.launch import has_command
    from ledger.state.places import log_path

    run, machine = result.run, result.machine
    if result.status == 75:
        tries = run.tries()
        return {
            "ok": False,
            "still_waiting": True,
            "rerun": True,
            "reason": result.reason,
            "instance_name": machine.name if machine else tries[-1].name if tries else None,
            "instance_status": machine.status if machine else None,
            "note": _NOTE,
        }
    if result.status != 0 or machine is None:
        return _failed(request, result.reason)
    folder = call.folder()
    return {
        "ok": True,
        "issue": run.issue,
        "chosen_kind": machine.backend,
        "requested_kind": request.backend or "auto",
        "reason": result.reason,
        "cluster": None,
        "handle_sidecar_path": str(folder.path_of(run)) if folder is not None else None,
        "pod_name": machine.name,
        "job_id": machine.id.rpartition("/")[2] if machine.backend == "gcp" else "",
        "workload_executed": machine.launched_at is not None,
        "workload_pid": machine.pid,
        "log_path": log_path(run.issue),
        "reconnected": result.reconnected,
        "workload_dispatched": has_command(run),
    }


def _words(value: dict[str, Any]) -> str:
    if value["ok"]:
        how = "reconnected to" if value["reconnected"] else "dispatched to"
        number = f" ({value['job_id']})" if value["job_id"] else ""
        return f"#{value['issue']}: {how} {value['chosen_kind']} {value['pod_name']}{number}; the poller goes on"
    if value.get("still_waiting"):
        state = f" ({value['instance_status']})" if value["instance_status"] else ""
        return f"{value['instance_name'] or 'the run'}{state}: still waiting; {value['note']}"
    return f"#{value['issue']}: {value['reason']}"
