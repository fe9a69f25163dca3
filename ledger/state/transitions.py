"""What may follow what. An explicit graph; every edge says why it is there.

Nothing here raises: an event without an edge is still folded, and stands in the state's `odd` list, from which the
audit makes an `illegal-transition`. Stages are a machine's, an intent's and a run's.
"""

from __future__ import annotations

from typing import Final, Literal

Stage = Literal["none", "orphan", "known", "launching", "running", "launch_failed", "ended", "left", "leaving", "gone"]
NONE: Final = "none"

_FACTS_OF_A_MACHINE: Final = {
    "MachineObserved": "an observation may come at any time",
    "AbsenceObserved": "a good read may miss it at any time; gone is what TornDown says",
    "ReconnectObserved": "a re-run found it alive, in whatever stage",
    "HostKeyPinned": "its host key was first seen",
    "Provisioned": "recorded a second time, by a look-up beside the reply",
}

# stage → event → (next stage, why)
MACHINE: Final[dict[str, dict[str, tuple[str, str]]]] = {
    "none": {
        "Provisioned": ("known", "a create was answered, or its marker was found"),
        "HandleImported": ("known", "an old sidecar named it"),
        "OrphanObserved": ("orphan", "a list shows it, and no intent of ours made it"),
    },
    "orphan": {
        "OrphanObserved": ("orphan", "still there; its load may have changed"),
        "MachineObserved": ("orphan", "an observation may come at any time"),
        "AbsenceObserved": ("orphan", "a good read may miss it"),
        "Provisioned": ("known", "a person took it over"),
        "TeardownRequested": ("leaving", "idle long enough, or a person's word"),
        "TornDown": ("gone", "ended by another hand"),
    },
    "known": {
        "LaunchRequested": ("launching", "the launch step is about to be sent"),
        "LaunchConfirmed": ("running", "the start-up script launched it, or a person did"),
        "LaunchFailed": ("launch_failed", "the bound passed with nothing running"),
        "WorkloadEnded": ("ended", "it ran and ended between two looks"),
        "FailoverDecided": ("left", "it vanished, timed out in the queue, or died at boot"),
        "TeardownRequested": ("leaving", "cancelled, superseded, or a second one of one intent"),
        "TornDown": ("gone", "it went by another's hand, or never materialised"),
    },
    "launching": {
        "LaunchRequested": (
            "launching",
            "the outcome was unknown past its deadline; idempotent on the machine",
        ),
        "LaunchConfirmed": ("running", "a live pid and a byte of log were seen"),
        "LaunchFailed": ("launch_failed", "probed, and it does not run"),
        "WorkloadEnded": ("ended", "it ran and ended between two looks"),
        "FailoverDecided": ("left", "no port, or gone while launching"),
        "TeardownRequested": ("leaving", "cancelled while launching"),
        "TornDown": ("gone", "it went by another's hand while launching"),
    },
    "running": {
        "LaunchConfirmed": ("running", "confirmed again, by a second source"),
        "LaunchRequested": ("running", "a launch sent beside a late confirmation; one process all the same"),
        "WorkloadEnded": ("ended", "done, crashed, or finalize failed"),
        "FailoverDecided": ("left", "wedged, crashed, or lost"),
        "TeardownRequested": ("leaving", "cancelled or finalized"),
        "TornDown": ("gone", "it went by another's hand: lost"),
    },
    "launch_failed": {
        "LaunchConfirmed": ("running", "a correction: the channel had failed, the process lives (#1739)"),
        "LaunchFailed": ("launch_failed", "said twice"),
        "FailoverDecided": ("left", "a boot death leaves its rung"),
        "TeardownRequested": ("leaving", "never left billing"),
        "TornDown": ("gone", "it went before it was asked to"),
    },
    "ended": {
        "WorkloadEnded": ("ended", "said twice, or done after a crash was read"),
        "FailoverDecided": ("left", "a crash on GCP goes to another cloud"),
        "TeardownRequested": ("leaving", "the grace is over"),
        "TornDown": ("gone", "it powered itself off and is gone"),
    },
    "left": {
        "TeardownRequested": ("leaving", "it may live: it must be seen to be gone"),
        "TornDown": ("gone", "seen gone, asked or not"),
        "FailoverDecided": ("left", "a later failover of the same run"),
        "WorkloadEnded": ("left", "its workload was seen to end after the run had left"),
        "LaunchConfirmed": ("left", "a late sign of life of a machine that the run has left"),
    },
    "leaving": {
        "TeardownRequested": ("leaving", "asked again after a failure; one obligation"),
        "TeardownFailed": ("leaving", "the delete did not go through; the obligation stays"),
        "TornDown": ("gone", "seen gone"),
        "FailoverDecided": ("leaving", "torn down and left in one breath"),
        "LaunchConfirmed": ("leaving", "a late sign of life"),
        "WorkloadEnded": ("leaving", "its workload was seen to end on the way out"),
        "OrphanObserved": ("leaving", "an orphan on its way out is still there, or another poller had just seen it"),
    },
    "gone": {
        "TornDown": ("gone", "seen gone by two pollers"),
        "TeardownFailed": ("gone", "the reply of a delete that another hand had overtaken"),
        "FailoverDecided": ("gone", "the run leaves a machine that is gone"),
        "WorkloadEnded": ("gone", "its end was read before it went, recorded after"),
        "OrphanObserved": ("orphan", "a look erred: it is there"),
        "TeardownRequested": ("leaving", "a look erred: it is there, and must go"),
    },
}

INTENT: Final[dict[str, dict[str, tuple[str, str]]]] = {
    "none": {"ProvisionRequested": ("requested", "the intent, before the call")},
    "requested": {
        "Provisioned": ("provisioned", "the reply, or its marker was found"),
        "ProvisionRefused": ("refused", "the cloud said no, or good reads found nothing"),
        "ProvisionUnresolved": ("unresolved", "nobody knows"),
    },
    "unresolved": {
        "Provisioned": ("provisioned", "found by its marker"),
        "ProvisionRefused": ("refused", "good reads found nothing after the settle time"),
        "ProvisionUnresolved": ("unresolved", "said twice"),
    },
    "provisioned": {
        "Provisioned": ("provisioned", "a second machine of the same intent, or the same one said twice"),
        "ProvisionUnresolved": ("provisioned", "the reply timed out after a look-up had found it"),
        "ProvisionRefused": (
            "provisioned",
            "the reply said no after a look-up had found it; what was seen stands",
        ),
    },
    "refused": {
        "Provisioned": ("provisioned", "a late effect: what was seen stands, and it is torn down"),
        "ProvisionRefused": ("refused", "concluded by reads, then said by the reply"),
        "ProvisionUnresolved": ("refused", "concluded by reads, then the reply timed out"),
    },
}

RUN: Final[dict[str, dict[str, tuple[str, str]]]] = {
    "none": {
        "RunOpened": ("open", "a run was asked for"),
        "HandleImported": ("open", "an old sidecar was taken over"),
    },
    "open": {
        "FailoverDecided": ("open", "leave this machine"),
        "Repointed": ("open", "the handle names the new machine"),
        "CancelRequested": ("open", "the user wants it to end"),
        "RunClosed": ("closed", "every intent resolved, every machine gone"),
        "SidecarEdited": ("open", "another program changed the file"),
        "BreachAcknowledged": ("open", "a person has seen it"),
    },
    "closed": {
        "RunOpened": ("open", "dispatched again: a new generation"),
        "HandleImported": ("open", "an old sidecar of a later run was taken over"),
        "SidecarEdited": ("closed", "another program changed the retired file"),
        "BreachAcknowledged": ("closed", "a person has seen it"),
        "CancelRequested": ("closed", "cancelled twice is fine"),
        "RunClosed": ("closed", "a machine that came back was ended again"),
    },
}


def machine_step(stage: str, type_: str) -> tuple[str, bool]:
    """The stage after the event, and whether the table allows it."""
    edge = MACHINE.get(stage, {}).get(type_)
    if edge is not None:
        return edge[0], True
    return stage, type_ in _FACTS_OF_A_MACHINE and stage != NONE


def intent_step(stage: str, type_: str) -> tuple[str, bool]:
    """The intent's stage after the event, and whether the table allows it."""
    edge = INTENT.get(stage, {}).get(type_)
    return (edge[0], True) if edge is not None else (stage, False)


def run_step(stage: str, type_: str) -> tuple[str, bool]:
    """The run's stage after the event, and whether the table allows it."""
    edge = RUN.get(stage, {}).get(type_)
    return (edge[0], True) if edge is not None else (stage, False)
