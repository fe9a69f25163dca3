"""GCE's REST API over the simulated world: what google-cloud-compute and gcloud say to an endpoint of their own.

Instances are reached by numeric id or by name, as GCE has it; an insert answers at once with an operation, whose
error tells a want of capacity; a queued instance's operation runs for as long as it is PENDING.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from ledger.sim import carry
from ledger.sim import machine as read
from ledger.sim.door import MESSAGES
from ledger.sim.machine import Machine
from ledger.sim.rules import Ruling
from ledger.sim.schema import OTHER_ACCOUNT, PROJECT, CallRule
from ledger.sim.wire.gate import Gate
from ledger.sim.wire.gce_json import Links, Operation, aggregated, asked, error, instance, not_found, zonal
from ledger.sim.wire.server import LoopbackServer, Reply, Request
from ledger.sim.world import NameTaken

PAGE = 500
NAME = re.compile(r"[a-z](?:[-a-z0-9]{0,61}[a-z0-9])?")
ZONE = r"/compute/v1/projects/(?P<project>[^/]+)/zones/(?P<zone>[^/]+)"
RETRY_AFTER = {"Retry-After": "30"}
NO_FILTER = "Invalid value for field 'filter': the simulation knows none"


class GceServer:
    """GCE on a loopback port. `page_size` bounds a page of a list, whatever its caller asks for."""

    def __init__(
        self,
        gate: Gate,
        port: int = 0,
        page_size: int = PAGE,
        seen: Callable[[Request, Reply], None] | None = None,
    ) -> None:
        self._gate = gate
        self._world = gate.world
        self._page_size = page_size
        self._operations: dict[str, Operation] = {}
        self._by_request: dict[str, Operation] = {}
        self._bodies: dict[str, dict[str, Any]] = {}
        self._pages: dict[str, Callable[[int], dict[str, Any]]] = {}
        self._count = 0
        self._routes: tuple[tuple[str, re.Pattern[str], Callable[..., Reply]], ...] = tuple(
            (method, re.compile(pattern), route)
            for method, pattern, route in (
                ("GET", r"/compute/v1/projects/(?P<project>[^/]+)/aggregated/instances", self._list),
                ("GET", ZONE + "/instances", self._list_zone),
                ("POST", ZONE + "/instances", self._insert),
                ("GET", ZONE + "/instances/(?P<ref>[^/]+)", self._get),
                ("DELETE", ZONE + "/instances/(?P<ref>[^/]+)", self._delete),
                ("GET", ZONE + "/instances/(?P<ref>[^/]+)/getGuestAttributes", self._guest),
                ("GET", ZONE + "/operations/(?P<ref>[^/]+)", self._operation),
                ("POST", ZONE + "/operations/(?P<ref>[^/]+)/wait", self._operation),
            )
        )
        self._server = LoopbackServer(gate, self._serve, port, seen)
        self._links = Links(self._server.url)
        self.url = self._server.url
        self.close = self._server.close

    def _serve(self, request: Request) -> Reply:
        for method, pattern, route in self._routes:
            match = pattern.fullmatch(request.path)
            if match and method == request.method:
                self._world.advance(self._gate.now())
                return route(request, **match.groupdict())
        return Reply.of(error(404, f"The requested URL {request.path} was not found"), 404)

    # The calls.

    def _insert(self, request: Request, project: str, zone: str) -> Reply:
        number = request.query.get("requestId")
        try:
            body = request.json()
            spec = asked(body, zone, number or f"{self._next():032x}")
        except (ValueError, KeyError, TypeError, AttributeError) as wrong:
            return Reply.of(error(400, f"Invalid value: {wrong}"), 400)
        if project != PROJECT:
            return Reply.of(error(404, f"The resource 'projects/{project}' was not found"), 404)
        if not NAME.fullmatch(spec.name):
            return Reply.of(error(400, f"Invalid value for field 'resource.name': '{spec.name}'"), 400)
        ruling = self._gate.admit("gcp", "create", spec.name, zone, request.call)
        rule = ruling.rule if ruling else CallRule("gcp", "create")
        if spec.marker:
            self._world.asked("gcp", spec)

        def make() -> Machine | NameTaken:
            made = self._world.create("gcp", spec, rule)
            if isinstance(made, Machine):
                self._bodies.setdefault(made.key, body)
                made.ours = bool(spec.marker)
            return made

        made = carry.carry_out(self._world, rule, make)
        if rule.answer == "no_capacity":
            # Google finds out later: the insert goes well, its operation does not.
            code, _, message = MESSAGES["no_capacity"]["gcp"].partition(": ")
            failed = self._new("insert", zone, spec.name, str(self._next()), failed=(code, message, 503))
            return self._said(failed, False, rule)
        if rule.answer != "ok":
            said = f"projects/{PROJECT}/zones/{zone}/machineTypes/{str(body['machineType']).rpartition('/')[2]}"
            return self._otherwise(rule, error(404, f"The resource '{said}' was not found"))
        if isinstance(made, NameTaken):
            path = f"projects/{PROJECT}/zones/{zone}/instances/{spec.name}"
            return self._timed(rule, error(409, f"The resource '{path}' already exists", "alreadyExists"), 409)
        assert made is not None
        operation = self._by_request.get(spec.request_id)
        if operation is None or operation.target_id != made.id:
            operation = self._by_request[spec.request_id] = self._new("insert", zone, made.name, made.id)
        return self._said(operation, False, rule)

    def _get(self, request: Request, project: str, zone: str, ref: str) -> Reply:
        machine, rule = self._admitted(request, "describe", zone, ref)
        absent = not_found(zone, ref, OTHER_ACCOUNT if rule.answer == "other_account" else project)
        if rule.answer != "ok":
            return self._otherwise(rule, absent)
        if machine is None or project != PROJECT:
            return self._timed(rule, absent, 404)
        return self._timed(rule, self._shown(machine, machine.state, self._world.now))

    def _delete(self, request: Request, project: str, zone: str, ref: str) -> Reply:
        machine, rule = self._admitted(request, "delete", zone, ref)
        key = machine.key if machine else f"gcp:{project}/{zone}/{ref}"
        found = carry.delete(self._world, self._gate.rules, "gcp", key, rule)
        absent = not_found(zone, ref, OTHER_ACCOUNT if rule.answer == "other_account" else project)
        if rule.answer != "ok":
            return self._otherwise(rule, absent)
        if not found or machine is None:
            return self._timed(rule, absent, 404)
        return self._said(self._new("delete", zone, machine.name, machine.id), False, rule)

    def _guest(self, request: Request, project: str, zone: str, ref: str) -> Reply:
        machine, rule = self._admitted(request, "guest_attributes", zone, ref)
        absent = not_found(zone, ref, OTHER_ACCOUNT if rule.answer == "other_account" else project)
        if rule.answer != "ok":
            return self._otherwise(rule, absent)
        if machine is None:
            return self._timed(rule, absent, 404)
        path = request.query.get("queryPath", "")
        told = read.guest(machine.state)
        values = {
            "phase": told.phase,
            "workload_started": None if told.workload_started is None else told.workload_started,
        }
        items = [
            {"namespace": "eps", "key": key, "value": str(value).lower() if isinstance(value, bool) else value}
            for key, value in values.items()
            if value is not None and path in ("eps/", f"eps/{key}")
        ]
        if not items:
            return self._timed(rule, error(404, f"The resource '{path}' of type 'Guest Attribute' was not found."), 404)
        link = self._links.of(f"zones/{zone}/instances/{machine.name}/getGuestAttributes")
        value = {"kind": "compute#guestAttributes", "queryPath": path, "queryValue": {"items": items}, "selfLink": link}
        return self._timed(rule, value)

    def _operation(self, request: Request, project: str, zone: str, ref: str) -> Reply:  # noqa: ARG002
        operation = self._operations.get(ref)
        if operation is None or operation.zone != zone:
            path = f"projects/{project}/zones/{zone}/operations/{ref}"
            return Reply.of(error(404, f"The resource '{path}' was not found"), 404)
        known = self._world.known(f"gcp:{PROJECT}/{zone}/{operation.target_id}")
        goes_on = known is not None and not known.state.gone
        if operation.kind == "insert":
            goes_on = goes_on and known is not None and known.state.status == "PENDING"
        return self._said(operation, not goes_on, CallRule("gcp", "create"))

    def _list(self, request: Request, project: str) -> Reply:
        if request.query.get("filter"):
            return Reply.of(error(400, NO_FILTER), 400)
        size = min(int(request.query.get("maxResults") or PAGE), self._page_size)
        token = request.query.get("pageToken")
        if token:
            page = self._pages.pop(token, None)
            return Reply.of(page(size)) if page else Reply.of(error(400, "Invalid value for field 'pageToken'"), 400)
        ruling = self._gate.admit("gcp", "list", None, None, request.call)
        rule = ruling.rule if ruling else CallRule("gcp", "list")
        told = carry.shown(self._world, "gcp", rule)
        if told is None or project != PROJECT:
            missing = error(404, f"The resource 'projects/{project}' was not found")
            return self._otherwise(rule, missing) if told is None else Reply.of(missing, 404)
        rows = [(str(m.zone), self._shown(m, state, told.as_of)) for m, state in told.machines]
        zones = carry.zones(self._world, "gcp")
        return self._timed(rule, self._cut(rows, zones, told.account, told.missing, size))

    def _list_zone(self, request: Request, project: str, zone: str) -> Reply:
        """One zone's instances, on one page. The ledger never asks for it; gcloud does (`--zones`)."""
        if request.query.get("filter"):
            return Reply.of(error(400, NO_FILTER), 400)
        if project != PROJECT or zone not in carry.zones(self._world, "gcp"):
            return Reply.of(error(404, f"The resource 'projects/{project}/zones/{zone}' was not found"), 404)
        held = [pair for pair in self._world.existing("gcp", self._world.now) if pair[0].zone == zone]
        return Reply.of(zonal(self._links, zone, [self._shown(m, state, self._world.now) for m, state in held]))

    def _cut(
        self, rows: list[tuple[str, dict[str, Any]]], zones: tuple[str, ...], account: str, missing: Any, size: int
    ) -> dict[str, Any]:
        """A page; what does not fit on it waits under a token of its own. Zones that miss are told on the first."""
        following = None
        if rows[size:]:
            following = f"page-{self._next()}"
            self._pages[following] = lambda size: self._cut(rows[len(here) :], zones, account, (), size)
        here = rows[:size]
        return aggregated(self._links, zones, here, account, following, missing)

    # What they share.

    def _admitted(self, request: Request, kind: str, zone: str, ref: str) -> tuple[Machine | None, CallRule]:
        """The instance of a path, gone ones left out, and the rule of this call on it."""
        machine = self._find(zone, ref)
        known = self._world.known(f"gcp:{PROJECT}/{zone}/{ref}") or machine
        name, where = (known.name, known.zone) if known else (None, None)
        ruling: Ruling | None = self._gate.admit("gcp", kind, name, where, request.call)
        return machine, ruling.rule if ruling else CallRule("gcp", kind)

    def _find(self, zone: str, ref: str) -> Machine | None:
        if ref.isdigit():
            return self._world.find(f"gcp:{PROJECT}/{zone}/{ref}")
        bearers = [m for m, _ in self._world.existing("gcp", self._world.now) if (m.name, m.zone) == (ref, zone)]
        return bearers[-1] if bearers else None

    def _shown(self, machine: Machine, state: Any, when: int) -> dict[str, Any]:
        body = self._bodies.get(machine.key, {})
        return instance(self._links, machine, state, when, self._world.start, body)

    def _new(self, kind: str, zone: str, target: str, target_id: str, failed: Any = None) -> Operation:
        number = self._next()
        name = f"operation-{number}"
        self._operations[name] = Operation(name, number, kind, zone, target, target_id, self._world.now, failed)
        return self._operations[name]

    def _next(self) -> int:
        self._count += 1
        return self._count

    def _said(self, operation: Operation, done: bool, rule: CallRule) -> Reply:
        return self._timed(rule, operation.body(self._links, self._world.start, done))

    def _timed(self, rule: CallRule, value: Any, status: int = 200) -> Reply:
        return Reply.of(value, status, takes=rule.takes)

    def _otherwise(self, rule: CallRule, absent: dict[str, Any]) -> Reply:
        """The answer of a call that does not go well; `absent` is the 404 of what it is about."""
        match rule.answer:
            case "timeout":
                return Reply(takes=rule.takes, lost=True)
            case "reset":
                return Reply(takes=rule.takes, cut=True)
            case "malformed":
                return Reply(body=b'{"kind": "compute#inst', takes=rule.takes)
            case "no_capacity":
                return self._timed(rule, error(503, MESSAGES["no_capacity"]["gcp"], "resourcePoolExhausted"), 503)
            case "quota":
                return self._timed(rule, error(403, "Quota 'GPUS_ALL_REGIONS' exceeded.", "quotaExceeded"), 403)
            case "already_exists":
                return self._timed(rule, error(409, "The resource already exists", "alreadyExists"), 409)
            case "unauthorized":
                return self._timed(rule, error(403, "Required permission is missing"), 403)
            case "other_account" if rule.call == "create":
                return self._timed(
                    rule, error(403, f"Required permission is missing for 'projects/{OTHER_ACCOUNT}'"), 403
                )
            case "not_found" | "other_account":
                return self._timed(rule, absent, 404)
        if rule.http == 404:
            return self._timed(rule, absent, 404)
        reason = "alreadyExists" if rule.http == 409 and rule.call == "create" else None
        value = error(rule.http, f"the cloud answered {rule.http}", reason)
        headers = RETRY_AFTER if rule.http == 429 else {}
        return Reply.of(value, rule.http, headers=headers, takes=rule.takes)
