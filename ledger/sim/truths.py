"""The universal truths: what must hold in every scenario, whatever it scripts. Judged from the world's own record.

Moments are integer microseconds after the scenario's start, as in `ledger.sim.world`; those of events are microseconds
UTC. A truth that bounds a time is judged only where the bound lies before the end of the rehearsal.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Any

from ledger.events import is_run, parse_marker
from ledger.moments import MICROS
from ledger.policy import Policy
from ledger.sim import laws, naming
from ledger.sim import machine as read
from ledger.sim.evidence import Event, Evidence, Proof, Violation, same_events
from ledger.sim.machine import Machine
from ledger.sim.naming import NEVER
from ledger.sim.record import run_of
from ledger.sim.world import STOPPING, stream_of

__all__ = ["Book", "Evidence", "Proof", "Violation", "same_events", "violations"]

BACKOFF = 600 * MICROS  # between two calls of a delete that does not go through
HOUR = 3600 * MICROS
ENDED_PHASES = frozenset({"done", "failed", "wedged", "finalize_failed_artifacts_ok"})


def violations(evidence: Evidence) -> tuple[Violation, ...]:
    """Every universal truth that does not hold, 1 to 7, then every law of the calls (0).

    8 compares two rehearsals: see `same_events`.
    """
    book = Book(evidence)
    rules = (
        book.launched_or_gone,
        book.orphans_gone,
        book.never_double,
        book.files_right,
        book.nothing_foreign,
        book.all_known,
        book.rebuilt,
        book.nothing_missing,
    )
    return (*(found for rule in rules for found in rule()), *laws.broken(evidence))


class Book:
    """The world's record and the log side by side."""

    def __init__(self, evidence: Evidence) -> None:
        self.e = evidence
        self.policy = evidence.scenario.policy
        self.world = evidence.world
        self.end = evidence.end
        self.tick = evidence.scenario.poll.every
        self.intents: dict[tuple[str, int], Event] = {}
        self.known: dict[str, int] = {}  # port id → when the log first named it
        self.imported: dict[str, str] = {}  # port id → run
        self.closed: dict[str, int] = {}
        self.cancelled: dict[str, int] = {}
        self.handles: dict[str, list[tuple[int, str | None]]] = defaultdict(list)
        # When the log learned of a marker that it does not know; a brake that is always on may keep everything.
        self.brake = 0 if self.policy.max_teardowns_per_tick < Policy().max_teardowns_per_tick else NEVER
        self.asked: dict[str, int] = defaultdict(int)  # port id → how often its delete was asked for
        self.said_to_live: set[str] = set()  # port ids
        self.replied: set[str] = set()  # port ids of the machines that the reply to their create named
        self.streams: set[str] = set()
        for event in evidence.events:
            self._note(event)
        self.faults_end = self._faults_end()

    def _note(self, event: Event) -> None:
        when = int(event["recorded_at"]) - self.world.start
        stream, payload, machine = str(event["stream"]), event["payload"], event["machine"]
        if is_run(stream):
            self.streams.add(stream)
        if machine:
            self.known.setdefault(machine, when)
        match event["type"]:
            case "ProvisionRequested":
                self.intents[event["attempt"], payload["try"]] = event
            case "RunOpened":
                self.closed.pop(stream, None)
                self.cancelled.pop(stream, None)
                self.handles[stream].append((when, None))
            case "HandleImported" if machine:
                self.imported[machine] = stream
                self.handles[stream].append((when, machine))
            case "Provisioned":
                if payload["matched_by"] == "reply":
                    self.replied.add(machine)
                if payload["matched_by"] == "import":
                    self.imported[machine] = stream
                if not self.handles[stream] or self.handles[stream][-1][1] is None:
                    self.handles[stream].append((when, machine))
            case "Repointed":
                self.handles[stream].append((when, payload["to"]))
            case "RunClosed":
                self.closed[stream] = when
            case "TeardownRequested":
                self.asked[machine] += 1
            case "LaunchConfirmed" | "WorkloadEnded":
                self.said_to_live.add(machine)
            case "CancelRequested":
                self.cancelled.setdefault(stream, when)
            case "OrphanObserved" if payload.get("marker"):
                self.brake = min(self.brake, when)

    def _faults_end(self) -> int:
        """When the last fault is over, what was scripted of the world among them; NEVER: they do not end."""
        scenario = self.e.scenario
        moments = [self.e.history.faults_end, *(row.at for row in scenario.world)]
        moments += [end for _, end in scenario.poll.off]
        moments += [jump.at for jump in scenario.clocks]
        moments += [row.at for row in scenario.dispatches]
        moments += [row.at for row in (*scenario.cancels, *scenario.finalizes)]
        off = [
            abs(sum(jump.by for jump in scenario.clocks if jump.poller == number))
            for number in range(1, scenario.poll.pollers + 1)
        ]
        if min(off, default=0) > self.policy.max_clock_skew_seconds * MICROS:
            return NEVER
        return max(moments)

    def _billed(self, machine: Machine, since: int, until: int) -> bool:
        """Whether it was billed at some time from `since` on, and still at `until`."""
        if until > self.end:
            return False
        state = machine.as_of(until)
        return state is not None and state.bill and since <= until

    def _since(self, machine: Machine, until: int) -> int:
        """The beginning of the span in which it was billed at `until`."""
        spans = [span for span in machine.billed(self.end) if span[0] <= until]
        return spans[-1][0] if spans else until

    def protected(self, machine: Machine) -> bool:
        """Whether nothing may touch it."""
        if machine.name in self.policy.protect:
            return True
        return machine.keep_running and read.seen(machine, machine.state, self.end, 0).had_runtime

    def clone(self, machine: Machine) -> bool:
        """Whether it bears a marker of ours and cannot have been made by its intent."""
        if machine.key in self.replied:
            return False  # whatever clock its intent was written by
        marker = parse_marker(machine.marker)
        intent = self.intents.get((marker.attempt, marker.attempt_try)) if marker else None
        if intent is None:
            return True
        created = self.world.start + machine.created
        skew = round(self.policy.max_clock_skew_seconds * MICROS)
        within = intent["occurred_at"] - skew <= created <= intent["payload"]["deadline"] + HOUR
        return intent["payload"]["name"] != machine.name or not within

    def own(self) -> Iterator[tuple[str, Machine]]:
        """The machines of our runs, each with its run: clones, protected and orphaned ones are not among them."""
        for machine in self.world.machines:
            run = run_of(self.world, machine)
            if run is None or self.protected(machine):
                continue
            if machine.ours and not self.clone(machine):
                yield run, machine
            elif machine.key in self.imported:
                yield self.imported[machine.key], machine

    # 1

    def _bound(self, machine: Machine, *seconds: float) -> int:
        """A bound of the policy; where a delete of it had to be asked for again, never less than its wait for that."""
        bound = round(sum(seconds) * MICROS)
        return bound if self.asked[machine.key] < 2 else max(bound, BACKOFF + self.tick + 2 * STOPPING)

    def launched_or_gone(self) -> Iterator[Violation]:
        """Truth 1: a machine of ours has had a live workload within its bound, or is gone; once it ended, it goes."""
        policy = self.policy
        if self.brake < NEVER:
            return  # nothing is ended until a person has looked
        for run, machine in self.own():
            taken_over = self.known.get(machine.key, 0) if machine.key in self.imported else 0
            yield from self._unlaunched(machine, taken_over)
            state = machine.state
            died = state.died_at
            if died is not None and self._told(machine):
                since = max(died, self.faults_end)
                until = since + self._bound(machine, policy.done_grace_seconds, policy.teardown_confirm_seconds)
                if self._billed(machine, since, until):
                    yield self._violation(1, "billed after its workload had ended", machine, since, until)
            for what, ends in (("its run was closed", self.closed), ("its run was cancelled", self.cancelled)):
                if run in ends:
                    began = [since for since, _ in machine.billed(self.end)]
                    since = max(ends[run], self.faults_end, taken_over, *began)
                    until = since + self._bound(machine, policy.teardown_confirm_seconds)
                    if self._billed(machine, since, until):
                        yield self._violation(1, f"billed after {what}", machine, since, until)

    def _unlaunched(self, machine: Machine, taken_over: int) -> Iterator[Violation]:
        policy = self.policy
        for begin, _ in machine.billed(self.end):
            since = max(begin, self.faults_end, taken_over)
            if since >= self.end:
                continue
            bound = round(policy.launch_confirm_seconds * MICROS)
            if self.gpus(machine, since + bound) is None:
                bound *= 2
            if machine.key in self.imported and machine.key in self.said_to_live:
                bound += round(
                    policy.done_grace_seconds * MICROS
                )  # its file says that it was launched, or it ran before
            until = since + self._bound(machine, bound / MICROS, policy.teardown_confirm_seconds)
            lived = machine.first_live is not None and machine.first_live <= until
            busy = bool(self.gpus(machine, since + bound))  # something computes: held, and reported
            if (
                not lived
                and not busy
                and not self._contradicted(machine, until)
                and self._billed(machine, since, until)
            ):
                yield self._violation(1, "billed without ever a live workload", machine, begin, until)

    def _contradicted(self, machine: Machine, until: int) -> bool:
        """Whether its guest told of a workload that a row had killed before it began: the guest's word confirms."""
        if machine.cloud != "gcp":
            return False
        told = [state for at, state in zip(machine.times, machine.states, strict=True) if at <= until]
        return any(state.phase == "workload" and state.fixed.get("pid") == "dead" for state in told)

    def gpus(self, machine: Machine, when: int) -> int | None:
        """The GPU use that could be read then; None: it could not."""
        state = machine.as_of(min(when, self.end))
        if state is None:
            return None
        if read.reachable(machine, state, when):
            return read.gpu_util(machine, state)
        return read.seen(machine, state, when, 0).gpu_util

    def _told(self, machine: Machine) -> bool:
        """Whether a read can tell that its workload has ended."""
        state = machine.state
        if read.alive(machine, state):
            return False
        if machine.cloud == "gcp":
            return state.phase in ENDED_PHASES and state.status == "RUNNING"
        return read.reachable(machine, state, self.end) and state.status == "RUNNING"

    def orphans_gone(self) -> Iterator[Violation]:
        """Truth 1: an orphan by the rule, once good reads can show it idle, is gone within its bound."""
        policy = self.policy
        if self.brake < NEVER:
            return
        for machine in self.world.machines:
            run = stream_of(policy, machine.cloud, machine.name)
            if run not in self.streams or machine.marker is not None or self.protected(machine):
                continue
            if machine.key in self.imported or machine.state.gone or machine.state.status != "RUNNING":
                continue
            last_change = machine.times[-1]
            named = self.handles[run][-1] if self.handles[run] else (0, None)
            if named[1] in (None, machine.key) or self.gpus(machine, self.end) != 0:
                continue
            if read.alive(machine, machine.state):
                continue
            since = max(self.faults_end, last_change + read.PORT_AFTER, named[0])
            first = min((s.when for s in self._shows(machine, since)), default=None)
            if first is None:
                continue
            until = first + self._bound(machine, policy.idle_grace_seconds, policy.teardown_confirm_seconds)
            if self._billed(machine, first, until):
                yield self._violation(1, "an idle orphan is left", machine, first, until)

    def _shows(self, machine: Machine, since: int) -> Iterator[Any]:
        for sight in self.e.history.sights:
            if sight.when >= since and not sight.stale and machine.key in sight.machines:
                yield sight

    # 2

    def never_double(self) -> Iterator[Violation]:
        """Truth 2: no two billed machines of one run for longer than the back-off, a tick and a teardown."""
        if self.brake < NEVER:
            return
        bound = BACKOFF + self.tick + STOPPING
        spans: dict[str, list[tuple[int, int, Machine]]] = defaultdict(list)
        for run, machine in self.own():
            for begin, end in machine.billed(self.end):
                spans[run].append((max(begin, self.faults_end), self.end if end is None else end, machine))
        for run, own in spans.items():
            for place, (begin, end, machine) in enumerate(own):
                for other_begin, other_end, other in own[place + 1 :]:
                    since, until = max(begin, other_begin), min(end, other_end)
                    if other is not machine and until - since > bound:
                        who = f"{run}: {machine.key} and {other.key}"
                        yield Violation(2, "two machines of one run billed", who, since / MICROS, until / MICROS)

    # 3

    def files_right(self) -> Iterator[Violation]:
        """Truth 3: the active sidecars are as the log has them, and name no machine that is known to be gone."""
        for when, file, what in self.e.history.files:
            yield Violation(3, f"a sidecar is {what}", file, when / MICROS, when / MICROS)
        yield from naming.wrongly_named(self.e, self.faults_end, self.gpus, braked=self.brake < NEVER)

    # 4

    def nothing_foreign(self) -> Iterator[Violation]:
        """Truth 4: what is not ours, nor an orphan by the rule, is never deleted and never taken over."""
        for when, key in self.e.history.deletes:
            machine = self.world.known(key)
            if machine is None:
                if key not in self.imported:  # an old handle may name one that is long gone
                    yield Violation(4, "a delete of no machine's id", key, when / MICROS, when / MICROS)
                continue
            run = self.imported.get(key) or (run_of(self.world, machine) if machine.ours else None)
            if machine.name in self.policy.protect or self._kept(machine, when):
                yield self._violation(4, "a protected machine was deleted", machine, when, when)
            elif run is not None and (machine.key in self.imported or not self.clone(machine)):
                continue
            elif not self._idle_orphan(machine, when):
                yield self._violation(4, "a foreign machine was deleted", machine, when, when)
        for event in self.e.events:
            if event["type"] != "Provisioned" or event["payload"]["matched_by"] not in ("reply", "marker", "name"):
                continue
            machine = self.world.known(event["machine"])
            marker = parse_marker(machine.marker) if machine else None
            when = event["recorded_at"] - self.world.start
            asked = (event["attempt"], event["payload"]["try"])
            if marker is None or (marker.attempt, marker.attempt_try) != asked or marker.stream != event["stream"]:
                who = f"{event['stream']}: {event['machine']}"
                yield Violation(4, "a foreign machine was taken over", who, when / MICROS, when / MICROS)

    def _kept(self, machine: Machine, when: int) -> bool:
        state = machine.as_of(when)
        return machine.keep_running and state is not None and read.seen(machine, state, when, 0).had_runtime

    def _idle_orphan(self, machine: Machine, when: int) -> bool:
        """Whether the rule lets it be ended: unmarked, of a run's exact name, idle all the grace, not the handle's."""
        run = stream_of(self.policy, machine.cloud, machine.name)
        if run not in self.streams or machine.marker is not None:
            return False
        named = [key for at, key in self.handles[run] if at <= when]
        if named and named[-1] == machine.key:
            return False
        # A clock that is off by less than the clouds' tolerance may see the end of the grace so much too early.
        most = self.policy.max_clock_skew_seconds * MICROS
        early = max((abs(jump.by) for jump in self.e.scenario.clocks if abs(jump.by) <= most), default=0)
        grace = round(self.policy.idle_grace_seconds * MICROS) - early
        busy = [
            state
            for at, until, state in zip(machine.times, [*machine.times[1:], NEVER], machine.states, strict=True)
            if until > when - grace
            and at <= when
            and until - at >= self.tick  # a moment between two ticks shows nothing
            if read.alive(machine, state) or read.gpu_util(machine, state) != 0
        ]
        return not busy and when - machine.created >= grace

    # 5, 6, 7

    def all_known(self) -> Iterator[Violation]:
        """Truth 5: every machine of ours that some good read showed is in the log by its id."""
        shown: dict[str, int] = {}
        for sight in self.e.history.sights:
            for key in sight.machines:
                shown.setdefault(key, sight.when)
        for machine in self.world.machines:
            if machine.ours and machine.key in shown and machine.key not in self.known:
                yield self._violation(5, "shown, and not in the log", machine, shown[machine.key], self.end)

    def rebuilt(self) -> Iterator[Violation]:
        """Truth 6: rebuilding every projection from the log gives the same bytes."""
        for difference in self.e.proof.rebuilt:
            yield Violation(6, "a rebuild differs", difference, until=self.end / MICROS)

    def nothing_missing(self) -> Iterator[Violation]:
        """Truth 7: nothing that was acknowledged is missing from the log; versions have no gap."""
        versions: dict[str, int] = defaultdict(int)
        for event in self.e.events:
            versions[event["stream"]] += 1
            if event["version"] != versions[event["stream"]]:
                yield Violation(7, "a version is missing", f"{event['stream']} {versions[event['stream']]}")
                break
        missing = self.e.proof.acknowledged - {event["event_id"] for event in self.e.events}
        for event_id in sorted(missing):
            yield Violation(7, "an acknowledged event is missing", event_id)

    def _violation(self, truth: int, what: str, machine: Machine, since: int, until: int) -> Violation:
        return Violation(truth, what, f"{machine.label} {machine.key}", since / MICROS, until / MICROS)
