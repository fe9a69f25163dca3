"""What a rehearsal remembers beside the world's own record: faults that were served, what lists showed, deletes.

Moments are integer microseconds after the scenario's start.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from ledger.sim.schema import CallRule

# Answers of a create that are no fault of anything: the cloud says no, and nothing exists.
PLAIN_REFUSALS = frozenset({"no_capacity", "quota", "unauthorized", "already_exists", "not_found"})


@dataclass(frozen=True, slots=True)
class Sight:
    """A list that answered its process under the right account; `machines` are the port ids that it showed."""

    when: int
    backend: str
    complete: bool
    stale: bool
    machines: frozenset[str]


@dataclass(slots=True)
class History:
    """Fills up while a rehearsal runs.

    `faults_end` is when the last fault that was served is over. `deletes` are (when, port id). `sights` are the
    lists of processes that lived to record them. `files` are (when, file, what is wrong) at the ends of ticks.
    `named` are (when, file, port id, state) of the sidecars that at the end of a tick named a machine that was gone.
    `misdated` are (when, port id) of the deletes that a process sent though its clock was off by more than the policy
    allows when a list told it the time.
    `counts` says how often each fault, death and pause occurred. `lies` are (when, cloud, call) of the answers that
    were healthy and untrue: a describe that finds nothing, a list that lacks what is there.
    """

    faults_end: int = 0
    deletes: list[tuple[int, str]] = field(default_factory=list)
    sights: list[Sight] = field(default_factory=list)
    files: list[tuple[int, str, str]] = field(default_factory=list)
    named: list[tuple[int, str, str, str]] = field(default_factory=list)
    misdated: list[tuple[int, str]] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    lies: list[tuple[int, str, str]] = field(default_factory=list)
    _unrecorded: dict[str, list[Sight]] = field(default_factory=dict)
    _off: dict[str, int] = field(default_factory=dict)  # process → its clock less the time that a list told it

    def fault(self, over_at: int, what: str) -> None:
        """A fault was served that is over at that moment."""
        self.faults_end = max(self.faults_end, over_at)
        self.counts[what] += 1

    def served(self, rule: CallRule, now: int) -> None:
        """A rule answered a call."""
        effect = {0: "", 1: "+done", 2: "+twice"}[min(rule.effect.times, 2)]
        if rule.effect.late:
            effect = "+late"
        slow = "+slow" if rule.takes else ""
        what = f"{rule.cloud} {rule.call} {rule.answer}{effect}{slow}"
        no_such = rule.answer == "not_found" or (rule.answer == "error" and rule.http == 404)
        if (rule.call == "describe" and no_such) or (rule.call == "list" and rule.answer in ("empty", "stale")):
            self.lies.append((now, rule.cloud, rule.call))
        plain = rule.call == "create" and rule.answer in PLAIN_REFUSALS and not rule.effect.times
        if rule.takes or (rule.answer != "ok" and not plain):
            self.fault(now + rule.takes + rule.effect.late, what)
        elif rule.answer != "ok" or rule.status or rule.provisioning_model:
            self.counts[what] += 1

    def read(self, process: str, sight: Sight) -> None:
        """A list answered a process, which has yet to record it."""
        self._unrecorded.setdefault(process, []).append(sight)

    def dated(self, process: str, off: int) -> None:
        """A list told a process the time, by which its clock is so much ahead."""
        self._off[process] = max(off, self._off.get(process, off), key=abs)

    def sent_delete(self, process: str, when: int, machine: str, tolerance: int) -> None:
        """A delete was sent; `tolerance` is how far its clock may be off."""
        if abs(self._off.get(process, 0)) > tolerance:
            self.misdated.append((when, machine))

    def ended(self, process: str, *, well: bool) -> None:
        """A tick or command of that process came to its end; what a dead one had read is lost."""
        self._off.pop(process, None)
        read = self._unrecorded.pop(process, [])
        if well:
            self.sights += read
