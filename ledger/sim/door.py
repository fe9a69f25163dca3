"""The in-process door: the simulated clouds as the port that the ledger speaks to.

Every call goes the same way: another process may go on, this one may stand still, the last moment to send is looked
at, it may die, the call reaches its cloud and is counted, what it does is done, its time passes, it may die, and the
answer is told as the port tells it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable

from ledger.clouds.values import (
    Absent,
    Accepted,
    CreateSpec,
    Guest,
    LaunchSpec,
    Listing,
    Probe,
    Refused,
    Seen,
    Unknown,
    Unresolved,
)
from ledger.moments import MICROS
from ledger.sim import machine as read
from ledger.sim.caller import Caller, Timeline, Who
from ledger.sim.carry import ACCOUNTS, carry_out, delete, shown, zones
from ledger.sim.history import Sight
from ledger.sim.machine import Machine
from ledger.sim.rules import Rules, Ruling
from ledger.sim.schema import OTHER_ACCOUNT, CallRule
from ledger.sim.world import NameTaken, World
from ledger.source import Source

UNSENT = Refused("absent", "the last moment to send had passed", unsent=True)
MESSAGES = {
    "no_capacity": {
        "gcp": "ZONE_RESOURCE_POOL_EXHAUSTED_WITH_DETAILS: the zone does not have enough resources available",
        "runpod": "There are no longer any instances available with the requested specifications.",
    },
    "quota": {"gcp": "QUOTA_EXCEEDED", "runpod": "Your spend limit has been reached."},
}
REFUSALS = {
    "no_capacity": "capacity",
    "quota": "quota",
    "unauthorized": "unauthorized",
    "already_exists": "name_taken",
    "not_found": "invalid",
    "other_account": "unauthorized",
}
HTTP_REFUSALS = {401: "unauthorized", 402: "quota", 403: "unauthorized", 429: "quota"}


class SimCloud:
    """One account of one simulated cloud, as one process of the ledger reaches it: a `ledger.clouds.port.Cloud`."""

    def __init__(
        self, backend: str, world: World, rules: Rules, schedule: Timeline, process: Who, source: Source
    ) -> None:
        self.backend = backend
        self.account = ACCOUNTS[backend]
        self._world = world
        self._rules = rules
        self._schedule = schedule
        self._process = process
        self._source = source
        self._caller = Caller(rules, schedule, process, source)

    def create(self, spec: CreateSpec, *, send_before: float, timeout: float) -> Accepted | Refused | Unresolved:
        """Ask for one machine in one zone (left out: the first of the scenario)."""
        zone = (spec.zone or self._world.scenario.zones[0]) if self.backend == "gcp" else None
        ruling = self._enter("create", spec.name, zone, send_before)
        if ruling is None:
            return UNSENT
        rule = ruling.rule
        self._world.asked(self.backend, spec)
        made = carry_out(self._world, rule, lambda: self._world.create(self.backend, spec, rule))
        if not self._leave(ruling, timeout):
            return Unresolved("timeout", "no answer within the time-out")
        if rule.answer != "ok":
            return self._refused(rule)
        if isinstance(made, NameTaken):
            return Refused("name_taken", f"the resource {spec.name!r} already exists")
        assert made is not None
        return Accepted(self._seen(made))

    def describe(self, machine: str, *, timeout: float) -> Seen | Absent | Unknown:
        """Read one machine."""
        found = self._world.find(machine)
        ruling = self._enter("describe", *self._named(machine))
        assert ruling is not None
        rule = ruling.rule
        found = self._world.find(machine)
        answer: Seen | Absent = self._seen(found) if found else Absent(self.account)
        if not self._leave(ruling, timeout):
            return Unknown("timeout", "no answer within the time-out")
        match rule.answer:
            case "ok":
                return answer
            case "not_found":
                return Absent(self.account)
            case "other_account":
                return Absent(OTHER_ACCOUNT)
            case "error" if rule.http == 404:
                return Absent(self.account)
        return _unknown(rule)

    def list_all(self, *, timeout: float) -> Listing | Unknown:
        """Every machine of the account."""
        ruling = self._enter("list", None, None)
        assert ruling is not None
        rule = ruling.rule
        listing = self._listing(rule)
        if not self._leave(ruling, timeout):
            return Unknown("timeout", "no answer within the time-out")
        if isinstance(listing, Unknown):
            return listing
        answer = listing()
        self._rules.history.dated(self._process.name, self._source.now() - (self._world.start + self._schedule.now))
        if answer.account == self.account:
            shown = frozenset(seen.machine for seen in answer.machines)
            sight = Sight(self._schedule.now, self.backend, answer.complete, rule.answer == "stale", shown)
            self._rules.history.read(self._process.name, sight)
        return answer

    def delete(self, machine: str, *, send_before: float, timeout: float) -> Accepted | Absent | Refused | Unresolved:
        """Ask for the end of a machine."""
        ruling = self._enter("delete", *self._named(machine), send_before)
        if ruling is None:
            return UNSENT
        rule = ruling.rule
        found = delete(self._world, self._rules, self.backend, machine, rule)
        tolerance = round(self._world.scenario.policy.max_clock_skew_seconds * MICROS)
        self._rules.history.sent_delete(self._process.name, self._schedule.now, machine, tolerance)
        if not self._leave(ruling, timeout):
            return Unresolved("timeout", "no answer within the time-out")
        match rule.answer:
            case "ok":
                return Accepted() if found else Absent(self.account)
            case "not_found":
                return Absent(self.account)
            case "other_account":
                return Absent(OTHER_ACCOUNT)
            case "error" if rule.http == 404:
                return Absent(self.account)
        return self._refused(rule)

    def guest(self, machine: str, *, timeout: float) -> Guest | Unknown:
        """The guest attributes of an instance."""
        if self.backend != "gcp":
            return Unknown("unsupported", "a pod has no guest attributes")
        ruling = self._enter("guest_attributes", *self._named(machine))
        assert ruling is not None
        found = self._world.find(machine)
        answer = read.guest(found.state) if found else Unknown("not_found")
        if not self._leave(ruling, timeout):
            return Unknown("timeout", "no answer within the time-out")
        return answer if ruling.rule.answer == "ok" else _unknown(ruling.rule)

    def launch(
        self,
        machine: str,
        spec: LaunchSpec,  # noqa: ARG002  # what runs there is the scenario's to say
        *,
        send_before: float,
        timeout: float,
    ) -> Accepted | Refused | Unresolved:
        """Start the workload over SSH; on an instance its start-up script does that."""
        if self.backend != "runpod":
            return Refused("invalid", "the start-up script of an instance launches")
        ruling = self._enter("launch", *self._named(machine), send_before)
        if ruling is None:
            return UNSENT
        rule = ruling.rule
        reached = carry_out(self._world, rule, lambda: self._world.launch(machine))
        if not self._leave(ruling, timeout):
            return Unresolved("timeout", "no answer within the time-out")
        match rule.answer:
            case "ok":
                return Accepted() if reached else Unresolved("unreachable", "SSH does not reach the pod")
            case "not_found":
                return Unresolved("unreachable", "no such host")
            case "error":
                # SSH knows no status that says for sure that nothing was started.
                return Unresolved(f"http_{rule.http}", _message(rule))
        return self._refused(rule)

    def probe(self, machine: str, spec: LaunchSpec, *, timeout: float) -> Probe | Unknown:  # noqa: ARG002  # as above
        """Look for the workload over SSH."""
        ruling = self._enter("probe", *self._named(machine))
        assert ruling is not None
        now = self._schedule.now
        found = self._world.find(machine)
        answer: Probe | Unknown = Unknown("unreachable", "SSH does not reach the machine")
        if found is not None and read.reachable(found, found.state, now):
            answer = read.probe(found, found.state, now)
        if not self._leave(ruling, timeout):
            return Unknown("timeout", "no answer within the time-out")
        if ruling.rule.answer == "not_found":
            return Unknown("unreachable", "no such host")
        return answer if ruling.rule.answer == "ok" else _unknown(ruling.rule)

    # The way of every call.

    def _enter(self, call: str, name: str | None, zone: str | None, send_before: float | None = None) -> Ruling | None:
        """Up to the moment at which the call has reached its cloud; None: nothing was sent."""
        if not self._caller.sends(self.backend, call, send_before):
            return None
        self._world.advance(self._schedule.now)
        return self._rules.admit(self.backend, call, name, zone, zones(self._world, self.backend), self._schedule.now)

    def _leave(self, ruling: Ruling, timeout: float) -> bool:
        """Let the call's time pass; False: longer than its caller waits."""
        in_time = self._caller.spend(ruling.rule.takes, round(timeout * MICROS))
        self._caller.returned(self.backend, ruling.rule.call, ruling.number)
        return in_time

    def _named(self, machine: str) -> tuple[str | None, str | None]:
        known = self._world.known(machine)
        return (known.name, known.zone) if known else (None, None)

    def _seen(self, machine: Machine) -> Seen:
        return read.seen(machine, machine.state, self._schedule.now, self._world.start)

    def _listing(self, rule: CallRule) -> Unknown | Callable[[], Listing]:
        """What a list reads now; the cloud's `Date` is that of its answer."""
        told = shown(self._world, self.backend, rule)
        if told is None:
            return _unknown(rule)
        machines = tuple(read.seen(machine, state, told.as_of, self._world.start) for machine, state in told.machines)
        return lambda: Listing(
            account=told.account,
            complete=told.complete,
            machines=machines,
            unreachable=told.missing,
            fingerprint=hashlib.sha256(f"key of {told.account}".encode()).hexdigest()[:16],
            server_time=self._world.start + self._schedule.now,
        )

    def _refused(self, rule: CallRule) -> Refused | Unresolved:
        """The answer of a create, delete or launch that did not go well."""
        message = MESSAGES.get(rule.answer, {}).get(self.backend, _message(rule))
        if rule.answer in REFUSALS:
            return Refused(REFUSALS[rule.answer], message)
        if rule.answer != "error":
            return Unresolved(rule.answer, message)
        if rule.http == 409:
            return Refused("name_taken" if rule.call == "create" else "invalid", message)
        if rule.http < 500 and rule.http != 408:
            return Refused(HTTP_REFUSALS.get(rule.http, "invalid"), message)
        return Unresolved(f"http_{rule.http}", message)


def _message(rule: CallRule) -> str:
    return f"the cloud answered {rule.http}" if rule.answer == "error" else f"the cloud answered {rule.answer}"


def _unknown(rule: CallRule) -> Unknown:
    if rule.answer == "error":
        error = "unauthorized" if rule.http in (401, 403) else f"http_{rule.http}"
        return Unknown(error, _message(rule))
    return Unknown(rule.answer, _message(rule))
