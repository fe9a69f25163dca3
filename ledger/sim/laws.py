"""What the log owes the world beside the universal truths: a call its intent, a verdict what was so.

Held in every rehearsal, as number 0: they are the ledger's own conduct, judged from the world's record. What needs the
moments of both is held where no poller's clock jumps. An answer that was healthy and untrue excuses who believed it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from ledger.events import parse_marker
from ledger.moments import MICROS
from ledger.policy import Policy
from ledger.sim import machine as read
from ledger.sim.evidence import Event, Evidence, Violation
from ledger.sim.machine import Machine

Key = tuple[str, int]
SURE = frozenset({"capacity", "quota", "unauthorized", "invalid"})


def broken(evidence: Evidence) -> tuple[Violation, ...]:
    """Every law that does not hold."""
    record = _Record(evidence)
    laws = [record.deletes_asked, record.creates_asked, record.refused_is_refused, record.taken_over, record.dated]
    if not evidence.scenario.clocks:
        laws += [
            record.in_time,
            record.gone_is_gone,
            record.nothing_is_nothing,
            record.settled,
            record.bound_kept,
            record.dead_is_dead,
            record.queue_left,
            record.few_at_once,
        ]
    return tuple(found for law in laws for found in law())


class _Record:
    """The world's record and the log side by side. Moments are microseconds after the scenario's start."""

    def __init__(self, evidence: Evidence) -> None:
        self.e = evidence
        self.policy = evidence.scenario.policy
        self.start = evidence.world.start
        self.intents: dict[Key, Event] = {}
        self.replied: dict[Key, int] = {}
        self.teardowns: dict[str, list[Event]] = {}
        self.braked = False
        for event in evidence.events:
            match event["type"]:
                case "ProvisionRequested":
                    self.intents[_key(event)] = event
                case "ProvisionUnresolved":
                    self.replied.setdefault(_key(event), self._when(event))
                case "TeardownRequested":
                    self.teardowns.setdefault(event["machine"], []).append(event)
                case "OrphanObserved" if event["payload"].get("marker"):
                    self.braked = True  # nothing is ended until a person has looked
        self.braked |= evidence.scenario.policy.max_teardowns_per_tick < Policy().max_teardowns_per_tick
        self.made: dict[Key, list[Machine]] = {}
        for machine in evidence.world.machines:
            key = _borne(machine.marker) if machine.by_call else None
            if key is not None:
                self.made.setdefault(key, []).append(machine)
        # How old may be what a process believes: a tick, and as long as it may have stood still.
        stood = max((pause.lasts for pause in evidence.scenario.pauses), default=0)
        self.window = self._micros(self.policy.tick_deadline_seconds) + stood + MICROS

    def _micros(self, seconds: float) -> int:
        return round(seconds * MICROS)

    def _when(self, event: Event) -> int:
        return int(event["recorded_at"]) - self.start

    def _lied_to(self, cloud: str, call: str, when: int) -> bool:
        lies = self.e.history.lies
        return any((c, w) == (cloud, call) and when - self.window <= at <= when for at, c, w in lies)

    # Calls.

    def creates_asked(self) -> Iterator[Violation]:
        """A create that reached a cloud has its intent in the log."""
        for when, marker in self.e.world.creates:
            if _borne(marker) not in self.intents:
                yield _violation("a create was sent without its intent", marker, when)

    def deletes_asked(self) -> Iterator[Violation]:
        """A delete that reached a cloud has its intent in the log."""
        for when, machine in self.e.history.deletes:
            if machine not in self.teardowns:
                yield _violation("a delete was sent without its intent", machine, when)

    def in_time(self) -> Iterator[Violation]:
        """What was sent was sent after its intent and not past its `call_before`."""
        for when, marker in self.e.world.creates:
            key = _borne(marker)
            if key in self.intents:
                yield from self._in_time([self.intents[key]], "create", marker, when)
        for when, machine in self.e.history.deletes:
            yield from self._in_time(self.teardowns.get(machine, []), "delete", machine, when)

    def _in_time(self, intents: list[Event], call: str, who: str, when: int) -> Iterator[Violation]:
        before = [intent for intent in intents if self._when(intent) <= when]
        if intents and not before:
            yield _violation(f"a {call} was sent before its intent", who, when)
        elif before and all(when > intent["payload"]["call_before"] - self.start for intent in before):
            yield _violation(f"a {call} was sent past its call_before", who, when)

    def dated(self) -> Iterator[Violation]:
        """Whose clock is off, and was told so by a list, ends nothing."""
        for when, machine in self.e.history.misdated:
            yield _violation("a delete was sent by a clock that is off", machine, when)

    def few_at_once(self) -> Iterator[Violation]:
        """No tick asks for more ends than the policy allows. Judged where a tick takes no time."""
        scenario = self.e.scenario
        if scenario.pauses or any(rule.takes for rule in scenario.calls):
            return
        asked: Counter[tuple[str, int]] = Counter()
        for machine, events in self.teardowns.items():
            for event in events:
                asked[event["payload"]["holder"], self._when(event)] += 1
                if asked[event["payload"]["holder"], self._when(event)] == self.policy.max_teardowns_per_tick + 1:
                    yield _violation("a tick asked for more ends than it may", machine, self._when(event))

    # Verdicts.

    def refused_is_refused(self) -> Iterator[Violation]:
        """A create that the cloud is said to have refused made nothing."""
        for event in self.e.events:
            payload = event["payload"]
            if event["type"] == "ProvisionRefused" and payload["sent"] and payload["class"] in SURE:
                for machine in self.made.get(_key(event), ()):
                    yield _violation("a create is said to be refused, and it made one", machine.key, self._when(event))

    def taken_over(self) -> Iterator[Violation]:
        """By its name alone a machine is taken over for an old handle, and for nothing else."""
        handled = {event["stream"] for event in self.e.events if event["type"] == "HandleImported"}
        for event in self.e.events:
            by_name = event["type"] == "Provisioned" and event["payload"]["matched_by"] == "import"
            if by_name and event["stream"] not in handled:
                yield _violation("a machine was taken over by its name", event["machine"], self._when(event))

    def nothing_is_nothing(self) -> Iterator[Violation]:
        """A create is said to have made nothing once its time is over, and while nothing of it is there."""
        settle = self._micros(self.policy.absence_settle_seconds)
        for event in self.e.events:
            if event["type"] != "ProvisionRefused" or event["payload"]["class"] != "absent":
                continue
            key, when = _key(event), self._when(event)
            intent = self.intents.get(key)
            if intent is None or not event["payload"].get("evidence"):
                continue  # it was never sent, and its sender said so
            deadline = intent["payload"]["deadline"] - self.start
            if when < min(deadline, self.replied.get(key, deadline)) + settle - MICROS:
                yield _violation("a create was given up before its time was over", event["attempt"], when)
            for machine in self.made.get(key, ()):
                there = machine.as_of(when - self.window)
                if there is not None and not _gone(machine, when) and not self._lied_to(machine.cloud, "list", when):
                    yield _violation("a create is said to have made nothing", machine.key, when)

    def gone_is_gone(self) -> Iterator[Violation]:
        """What is said to be gone is gone."""
        for event in self.e.events:
            if event["type"] not in ("TornDown", "AbsenceObserved"):
                continue
            machine, when = self.e.world.known(event["machine"]), self._when(event)
            if machine is None or _gone(machine, when):
                continue
            lists = self._lied_to(machine.cloud, "list", when)
            described = self._lied_to(machine.cloud, "describe", when)
            # A stranger of no run is closed by the list alone.
            if not (lists and (described or event["stream"].startswith("account"))):
                yield _violation("a machine is said to be gone, and it is there", machine.key, when)

    def settled(self) -> Iterator[Violation]:
        """No absence is believed of what was asked for only now."""
        settle = self._micros(self.policy.absence_settle_seconds)
        for event in self.e.events:
            machine = self.e.world.known(event["machine"]) if event["type"] == "AbsenceObserved" else None
            intent = self.intents.get(_borne(machine.marker) or ("", 0)) if machine else None
            if intent is not None and self._when(event) - self._when(intent) < settle - MICROS:
                yield _violation("an absence was believed too early", event["machine"], self._when(event))

    def bound_kept(self) -> Iterator[Violation]:
        """No launch is given up before its bound, which begins when the machine leaves the queue."""
        bound = self._micros(self.policy.launch_confirm_seconds)
        for event in self.e.events:
            machine = self.e.world.known(event["machine"]) if event["type"] == "LaunchFailed" else None
            if machine is None or not machine.by_call:
                continue
            left = [at for at, s in zip(machine.times, machine.states, strict=True) if s.status != "PENDING"]
            if left and self._when(event) - left[0] < bound - MICROS:
                yield _violation("a launch was given up before its bound", machine.key, self._when(event))

    def dead_is_dead(self) -> Iterator[Violation]:
        """A workload on a pod that is said to have crashed does not live."""
        for event in self.e.events:
            if event["type"] != "WorkloadEnded" or event["payload"]["outcome"] != "crashed":
                continue
            machine, when = self.e.world.known(event["machine"]), self._when(event)
            state = machine.as_of(when) if machine else None
            if machine is not None and machine.cloud == "runpod" and state is not None and read.alive(machine, state):
                yield _violation("a workload is said to have crashed, and it lives", machine.key, when)

    def queue_left(self) -> Iterator[Violation]:
        """An entry of the queue is given up when its wait is over, counted from its create, whoever looked between."""
        # More ends at once than a tick may have are none (max_teardowns_per_tick).
        if self.braked or len(self.e.world.machines) > self.policy.max_teardowns_per_tick:
            return
        scenario, poll = self.e.scenario, self.e.scenario.poll
        quiet = max([self.e.history.faults_end, *(end for _, end in poll.off)])
        slack = 3 * poll.every + self._micros(self.policy.tick_deadline_seconds)
        for machine in self.e.world.machines:
            if not machine.by_call or machine.cloud != "gcp" or machine.name in scenario.policy.protect:
                continue
            due = machine.created + self._micros(self.policy.queue_wait_seconds)
            until = max(due, quiet) + slack
            state = machine.as_of(until)
            left = any(self._when(event) <= until for event in self.teardowns.get(machine.key, ()))
            if until <= self.e.end and state is not None and state.status == "PENDING" and not state.gone and not left:
                yield _violation("a queue entry was kept past its wait", machine.key, until)


def _key(event: Event) -> Key:
    return event["attempt"], event["payload"]["try"]


def _borne(text: str | None) -> Key | None:
    marker = parse_marker(text)
    return (marker.attempt, marker.attempt_try) if marker else None


def _gone(machine: Machine, when: int) -> bool:
    state = machine.as_of(when)
    return state is None or state.gone


def _violation(what: str, who: str, when: int) -> Violation:
    return Violation(0, what, who, when / MICROS, when / MICROS)
