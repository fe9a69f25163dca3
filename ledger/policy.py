"""Every threshold of the ledger, with its unit and why it has that value.

A policy is a plain frozen value: rules take it as an argument, the log records it (`LedgerCreated`,
`PolicyChanged`), and an audit as of an earlier time uses the policy of that time. It reads no file; see
`ledger.settings` for where values come from. Units are seconds unless the name says otherwise.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

GCP_FLEX = "gcp:FLEX_START"
GCP_STANDARD = "gcp:STANDARD"
GCP_SPOT = "gcp:SPOT"
RUNPOD = "runpod"
RUNGS = (GCP_FLEX, RUNPOD, GCP_STANDARD, GCP_SPOT)
MODELS = ("STANDARD", "SPOT", "FLEX_START")


@dataclass(frozen=True, slots=True)
class Policy:
    """The thresholds. Shapes and units as named; defaults are the contract's."""

    queue_wait_seconds: float = 600.0
    """A FLEX_START queue entry that has not moved in ten minutes rarely does within the hour."""
    absence_settle_seconds: float = 120.0
    """Lists lag behind creates; an absence younger than this says nothing."""
    launch_confirm_seconds: float = 1800.0
    """A healthy launch takes up to about 1650 s (SSH wait, branch sync, detach, verify)."""
    teardown_confirm_seconds: float = 600.0
    """A delete is seen within minutes; longer means that it did not go through."""
    idle_grace_seconds: float = 900.0
    """An orphan must be seen idle this long before it may be ended."""
    no_port_seconds: float = 900.0
    """A pod that shows no public port by then never does (#664)."""
    wedge_frozen_seconds: float = 900.0
    """A phase that has not moved for this long, with the machine unreachable, may be a wedge."""
    wedge_min_ticks: int = 2
    """One unreachable tick is a blip (#1837)."""
    wedge_min_span_seconds: float = 480.0
    """Two ticks of the same blip are still one blip."""
    boot_death_limit: int = 2
    """Boot deaths in a row on one rung that make a boot loop."""
    boot_death_young_seconds: float = 1500.0
    """An instance that ends younger than this, its workload never seen, died at boot."""
    vanish_unpolled_seconds: float = 1500.0
    """A run that was never polled counts as vanished only while younger than this."""
    done_grace_seconds: float = 5400.0
    """How long a machine is kept after its workload ended, so that results can be fetched."""
    stall_seconds: float = 1800.0
    """No log line for this long, with idle or unknown GPUs, is a stall."""
    stall_budget_factor: float = 2.0
    """Past this many times its time budget a run with a stale log is a stall."""
    blind_seconds: float = 900.0
    """An account with open machines and no complete list for this long is unwatched."""
    create_timeout_seconds: float = 300.0
    """The cap of a create in the foreground (dispatch)."""
    tick_deadline_seconds: float = 100.0
    """A tick ends within this; its callers kill it at 120."""
    poll_interval_seconds: float = 60.0
    """How often `ledger poll --watch` ticks."""
    call_before_seconds: float = 20.0
    """An intent may be sent only this long after it was recorded."""
    fence_hours: float = 168.0
    """Server-side end of life of a machine: a second net, never relied on."""
    on_lost: str = "close"
    """`close`, or `failover`: what follows a machine lost after its workload had run."""
    max_creates_per_run_day: int = 16
    """Create calls of one run within 24 hours; past it, refused as `cap`."""
    max_usd_per_hour: float | None = None
    """What all billed machines may cost together; past it nothing is created."""
    max_teardowns_per_tick: int = 10
    """A tick that would end more than this ends nothing and alerts."""
    max_clock_skew_seconds: float = 120.0
    """A clock further off the clouds' than this ends nothing and alerts."""
    detail_reads_per_minute: int = 600
    """Guest attributes and probes; the most urgent first."""
    ladder: tuple[str, ...] = (GCP_FLEX, RUNPOD, GCP_STANDARD)
    """Rungs in the order in which they are tried."""
    default_provisioning_model: str = "STANDARD"
    """What a GCP dispatch asks for when it names no model."""
    allow_paid_fallback: bool = True
    """False: no `runpod` rung."""
    protect: tuple[str, ...] = ()
    """Machine names that are never touched."""
    name_gcp: str = "eps-issue-{issue}{-lane}"
    """Instance names; `{-lane}` is empty without a lane."""
    name_runpod: str = "pod-{issue}{-lane}"
    """Pod names; `{-lane}` is empty without a lane."""
    paused: bool = False
    """Set by `ledger pause`: no create and no teardown until `ledger resume`."""

    def name(self, backend: str, issue: int, lane: str | None) -> str:
        """The name a machine of this run bears on that backend (`gcp` or `runpod`)."""
        pattern = self.name_gcp if backend == "gcp" else self.name_runpod
        suffix = f"-{lane}" if lane else ""
        return pattern.replace("{issue}", str(issue)).replace("{-lane}", suffix)

    def to_payload(self) -> dict[str, Any]:
        """A JSON object of every field, for `LedgerCreated` and `PolicyChanged`."""
        fields = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        return {k: list(v) if isinstance(v, tuple) else v for k, v in fields.items()}


FIELDS = {f.name: f for f in dataclasses.fields(Policy)}


class PolicyError(ValueError):
    """A policy field has a name or a value that cannot be used; the message says which and why."""


def parse(values: Mapping[str, Any], base: Policy | None = None) -> Policy:
    """`base` (default: the defaults) with `values` over it.

    Raises PolicyError naming the field for an unknown name, a wrong type, a negative number or an unknown rung.
    """
    checked = {name: _checked(name, value) for name, value in values.items()}
    return dataclasses.replace(base or Policy(), **checked)


def lenient(values: Mapping[str, Any], base: Policy | None = None) -> Policy:
    """As `parse`, but what this version cannot use is left out: a recorded policy must always be readable."""
    good: dict[str, Any] = {}
    for name, value in values.items():
        try:
            good[name] = _checked(name, value)
        except PolicyError:
            continue
    return dataclasses.replace(base or Policy(), **good)


def _checked(name: str, value: Any) -> Any:
    if name not in FIELDS:
        raise PolicyError(f"policy has no field {name!r}; allowed: {', '.join(sorted(FIELDS))}")
    default = FIELDS[name].default
    if name == "max_usd_per_hour":
        return None if value is None else _number(name, value)
    if isinstance(default, bool):
        if not isinstance(value, bool):
            raise PolicyError(f"policy {name} must be true or false, not {value!r}")
        return value
    if isinstance(default, int):
        number = _number(name, value)
        if number != int(number):
            raise PolicyError(f"policy {name} must be a whole number, not {value!r}")
        return int(number)
    if isinstance(default, float):
        return _number(name, value)
    if isinstance(default, tuple):
        return _names(name, value)
    return _text(name, value)


def _number(name: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise PolicyError(f"policy {name} must be a number, not {value!r}")
    if not 0 <= value < 1e12:
        raise PolicyError(f"policy {name} must be zero or more, not {value!r}")
    return float(value)


def _names(name: str, value: Any) -> tuple[str, ...]:
    if not isinstance(value, list | tuple) or not all(isinstance(item, str) for item in value):
        raise PolicyError(f"policy {name} must be a list of words, not {value!r}")
    if name == "ladder":
        unknown = [item for item in value if item not in RUNGS]
        if unknown or not value or len(set(value)) != len(value):
            raise PolicyError(f"policy ladder must list rungs once each, of {', '.join(RUNGS)}; not {value!r}")
    return tuple(value)


def _text(name: str, value: Any) -> str:
    allowed = {"on_lost": ("close", "failover"), "default_provisioning_model": MODELS}.get(name)
    if not isinstance(value, str) or (allowed and value not in allowed):
        raise PolicyError(f"policy {name} must be {' or '.join(allowed) if allowed else 'a word'}, not {value!r}")
    if name.startswith("name_") and "{issue}" not in value:
        raise PolicyError(f"policy {name} must contain {{issue}}, or two runs would share a name; not {value!r}")
    return value
