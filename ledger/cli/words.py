"""An event in a few words for a timeline. Total: what this version does not know is shown as it is."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ledger.cli.output import dollars
from ledger.events import Event

Payload = Mapping[str, Any]


def payload_of(event: Event) -> dict[str, Any]:
    """The payload, or an empty one where it is none (another's hand; `ledger verify` says so)."""
    try:
        value = event.data()
    except (ValueError, KeyError, TypeError):
        return {}
    return value if isinstance(value, dict) else {}


def words(event: Event) -> str:
    """What the event says, in a few words; "" where its type says all."""
    payload = payload_of(event)
    describe = _WORDS.get(event.type)
    if describe is None:
        return "" if event.type in _PLAIN else "an event that this version does not know"
    try:
        return describe(payload)
    except (KeyError, TypeError, ValueError, AttributeError):
        return "a payload that this version cannot read"


def _join(*parts: Any) -> str:
    return ", ".join(str(part) for part in parts if part not in (None, "", [], {}))


def _if(condition: Any, text: str) -> str | None:
    return text if condition else None


def _opened(p: Payload) -> str:
    gpus = f"{p['gpus']} x {p.get('gpu_type') or 'GPU'}" if p.get("gpus") else None
    return _join(p["rung"], p.get("intent"), gpus, p.get("workload_cmd") or " ".join(p.get("hydra_args") or []))


def _imported(p: Payload) -> str:
    return _join(f"taken over from {p['path']}", _if(p.get("redacted"), "a secret redacted"), _relaunch(p))


def _relaunch(p: Payload) -> str | None:
    return None if p.get("relaunchable", True) else "cannot be launched again"


def _requested(p: Payload) -> str:
    return _join(f"asks {p['rung']} for {p['name']}", p.get("zone"), f"try {p['try']}" if p.get("try", 1) > 1 else None)


def _provisioned(p: Payload) -> str:
    cost = f"{dollars(p['cost_per_hour'])}/h" if p.get("cost_per_hour") is not None else None
    adopted = f"adopted, found by {p['matched_by']}" if p.get("adopted") else None
    return _join(p["name"], p.get("zone"), p.get("provisioning_model"), p.get("status"), cost, adopted)


def _observed(p: Payload) -> str:
    model = p.get("provisioning_model")
    gpus = p.get("gpus") if p.get("gpus") != "unknown" else None
    log = p.get("log") if p.get("log") != "unknown" else None
    return _join(
        p.get("status"),
        model,
        f"phase {p['phase']}" if p.get("phase") else None,
        f"GPUs {gpus}" if gpus else None,
        f"log {log}" if log else None,
        f"ports {p['ports']}" if p.get("ports") else _if(p.get("ports") == "", "no port"),
        _if(p.get("pid_alive") is False, "its process is gone"),
        f"unreachable, {p['suspect']} in a row" if p.get("suspect") else None,
        f"by {p['source']}",
    )


def _absence(p: Payload) -> str:
    scope = {"describe": "a describe", "full_list": "a complete list", "both": "a describe and a complete list"}
    return f"not found by {scope[p['scope']]} under {p['account'] or 'its account'}"


def _confirmed(p: Payload) -> str:
    log = f"{p['log_bytes']} bytes of log" if p.get("log_bytes") is not None else None
    return _join(f"runs as pid {p['pid']}" if p.get("pid") else "runs", log, f"by {p['source']}")


def _failover(p: Payload) -> str:
    return _join(p["reason"], f"next {p['next_rung']}" if p.get("next_rung") else "no rung left")


def _orphan(p: Payload) -> str:
    cost = f"{dollars(p['cost_per_hour'])}/h" if p.get("cost_per_hour") is not None else None
    use = f"GPUs at {p['gpu_util']} %" if p.get("gpu_util") is not None else None
    return _join(f"{p['name']} is there", p["status"], cost, use, _if(p.get("marker"), "bears our marker"))


def _inventory(p: Payload) -> str:
    quality = "complete" if p["complete"] else "partial"
    missing = f"without {', '.join(p['unreachable'])}" if p.get("unreachable") else None
    return _join(f"{quality} list of {p['backend']} {p['account']}", missing, f"{len(p['machines'])} listed")


def _edited(p: Payload) -> str:
    added, changed = sorted(p.get("added") or {}), sorted(p.get("changed") or {})
    return _join(
        f"keeps {', '.join(added)}" if added else None, f"sets right {', '.join(changed)}" if changed else None
    )


def _policy(p: Payload) -> str:
    return _join(*(f"{name} = {p['policy'].get(name)}" for name in p["changed"]))


_PLAIN = frozenset({"CancelRequested", "HostKeyPinned"})
_WORDS: dict[str, Callable[[Payload], str]] = {
    "RunOpened": _opened,
    "HandleImported": _imported,
    "ProvisionRequested": _requested,
    "ProvisionRefused": lambda p: _join(p["class"], p.get("zone"), p.get("message")),
    "ProvisionUnresolved": lambda p: _join(f"outcome unknown: {p['error_class']}", p.get("message")),
    "Provisioned": _provisioned,
    "MachineObserved": _observed,
    "AbsenceObserved": _absence,
    "ReconnectObserved": lambda p: _join("alive", p.get("status"), p.get("zone"), p.get("provisioning_model")),
    "LaunchRequested": lambda p: f"by {p['method']}",
    "LaunchConfirmed": _confirmed,
    "LaunchFailed": lambda p: _join(p["reason"], p.get("probe") or "never probed"),
    "WorkloadEnded": lambda p: _join(p["outcome"], f"exit {p['exit']}" if p.get("exit") is not None else None),
    "FailoverDecided": _failover,
    "Repointed": lambda p: f"from {p.get('from') or 'no machine'} to {p['to']}",
    "TeardownRequested": lambda p: p["reason"],
    "TeardownFailed": lambda p: _join(p["error_class"], f"{p['count']} times", p.get("message")),
    "TornDown": lambda p: f"seen to be gone, by {p['by']}",
    "OrphanObserved": _orphan,
    "RunClosed": lambda p: _join(p["outcome"], p["reason"], p.get("failure_class")),
    "SidecarEdited": _edited,
    "InventoryRead": _inventory,
    "BreachAcknowledged": lambda p: _join(p["breach"], p.get("note")),
    "PolicyChanged": _policy,
    "LedgerCreated": lambda p: f"ledger {p['ledger']} by version {p['version']}",
}
