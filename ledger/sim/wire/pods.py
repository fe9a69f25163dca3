"""Both of RunPod's APIs over the one simulated world: what a call does, and what a pod shows, in neither's words."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from ledger.clouds.pods import GPU_IDS
from ledger.clouds.values import CreateSpec, Seen
from ledger.moments import MICROS
from ledger.sim import machine as read
from ledger.sim.carry import carry_out, delete, shown
from ledger.sim.machine import Machine, State
from ledger.sim.rules import Ruling
from ledger.sim.schema import ACCOUNT_RUNPOD, OTHER_ACCOUNT, CallRule, Effect
from ledger.sim.wire.gate import Gate
from ledger.sim.wire.server import Reply, Request
from ledger.sim.world import NameTaken

GPU_TYPES: Final[Mapping[str, str]] = {gpu: name for name, ids in GPU_IDS.items() for gpu in ids}
NO_CAPACITY = (
    "There are no longer any instances available with the requested specifications. Please refresh and try again."
)
NO_MONEY = "Your spend limit has been reached."
NAME_TAKEN = "A pod of that name already exists."
FAULT = "Something went wrong. Please try again later or contact support."
HTML = b"<html><body><h1>Bad Gateway</h1></body></html>"


@dataclass(frozen=True, slots=True)
class Pod:
    """A pod as both APIs tell it. `up`: seconds since it runs; `runtime`: whether its container has begun."""

    seen: Seen
    gpu: str | None
    env: Mapping[str, str]
    image: str
    up: int | None
    runtime: bool

    @property
    def id(self) -> str:
        """RunPod's own id."""
        return self.seen.machine.removeprefix("runpod:")

    @property
    def ssh(self) -> tuple[str, int] | None:
        """Where the container's port 22 is reached."""
        host, _, port = (self.seen.ports or "").rpartition(":")
        return (host, int(port)) if host else None


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a create asks for. `gpu` is RunPod's id, None: a CPU pod."""

    name: str
    env: Mapping[str, str]
    image: str
    gpu: str | None = None
    gpus: int = 0

    def spec(self) -> CreateSpec:
        """As the world takes it."""
        return CreateSpec(
            name=self.name,
            rung="runpod",
            zone=None,
            provisioning_model=None,
            gpu_type=GPU_TYPES.get(self.gpu, self.gpu) if self.gpu else None,
            gpus=self.gpus,
            marker=self.env.get("LEDGER_MARKER") or "",
            request_id="",
            env=dict(self.env),
        )


@dataclass(slots=True)
class PodSite:
    """The pods of a rehearsal. Everything is called under the gate's lock."""

    gate: Gate
    _made: dict[str, Wanted] = field(default_factory=dict)
    _elsewhere: set[str] = field(default_factory=set)
    _creates: dict[str, CallRule] = field(default_factory=dict)

    def admit(self, call: str, name: str | None, token: str | None) -> Ruling:
        """A request that is a call of that kind; a part of another call is answered as the world is."""
        ruling = self.gate.admit("runpod", call, name, None, token)
        if ruling is None:
            # A create that asks for another id of its GPU is the same call still, and is answered as that was.
            again = self._creates.get(token or "") if call == "create" else None
            return Ruling(0, replace(again, effect=Effect(), takes=0) if again else CallRule("runpod", call))
        if token is not None and call == "create":
            self._creates[token] = ruling.rule
        if token is not None and ruling.rule.answer == "other_account":
            self._elsewhere.add(token)
        return ruling

    def account(self, token: str | None) -> str:
        """Whose the key is that this request bears: another's throughout a call that was ruled so."""
        return OTHER_ACCOUNT if token in self._elsewhere else ACCOUNT_RUNPOD

    def create(self, wanted: Wanted, rule: CallRule) -> Pod | None:
        """Carry out a create; None: its rule makes nothing at once that could be answered."""
        world, spec = self.gate.world, wanted.spec()
        if spec.marker:
            world.asked("runpod", spec)

        def make() -> Machine:
            made = world.create("runpod", spec, rule)
            assert not isinstance(made, NameTaken)  # pods share names
            if not spec.marker:
                made.marker = None
            self._made[made.key] = wanted
            return made

        made = carry_out(world, rule, make)
        return None if made is None else self._view(made, made.state, world.now)

    def delete(self, key: str, rule: CallRule) -> bool:
        """Carry out a delete; False: there is no such pod."""
        return delete(self.gate.world, self.gate.rules, "runpod", key, rule)

    def one(self, key: str) -> Pod | None:
        """A pod as it is now; None: there is none."""
        found = self.gate.world.find(key)
        return self._view(found, found.state, self.gate.world.now) if found and found.cloud == "runpod" else None

    def name(self, key: str) -> str | None:
        """The name that a pod has, or had."""
        known = self.gate.world.known(key)
        return known.name if known else None

    def listed(self, rule: CallRule) -> list[Pod]:
        """The pods of a list under its rule."""
        told = shown(self.gate.world, "runpod", rule)
        return [self._view(machine, state, told.as_of) for machine, state in told.machines] if told else []

    def _view(self, machine: Machine, state: State, when: int) -> Pod:
        seen = read.seen(machine, state, when, self.gate.world.start)
        wanted = self._made.get(machine.key)
        marker = {"LEDGER_MARKER": machine.marker} if machine.marker else {}
        return Pod(
            seen=seen,
            gpu=gpu_id(machine.gpu_type) if machine.gpus else None,
            env=wanted.env if wanted else marker,
            image=wanted.image if wanted else "an/image",
            up=None if state.up_since is None else max(0, when - state.up_since) // MICROS,
            runtime=state.status == "RUNNING" and (seen.had_runtime or "gpu_util" in state.fixed),
        )


def gpu_id(gpu_type: str | None) -> str | None:
    """RunPod's id of a GPU type of a scenario."""
    ids = GPU_IDS.get((gpu_type or "").upper())
    return ids[0] if ids else gpu_type


def authorized(request: Request) -> bool:
    """Whether it bears a key, in a header or, as old clients have it, in the address."""
    in_header = any(name.lower() == "authorization" and value for name, value in request.headers.items())
    return in_header or bool(request.query.get("api_key"))


def sent(reply: Reply, rule: CallRule) -> Reply:
    """`reply` with the time that it takes under its rule, or cut off as that says."""
    return Reply(
        reply.status,
        reply.body,
        reply.headers,
        reply.content_type,
        cut=rule.answer == "reset",
        takes=rule.takes,
        lost=rule.answer == "timeout",
    )


def html(status: int) -> Reply:
    """What stands in the way of a cloud answers so."""
    return Reply(status, HTML, content_type="text/html")


def problem(status: int, detail: str, errors: tuple[str, ...] = ()) -> Reply:
    """An RFC 9457 problem."""
    titles = {
        400: "Bad Request",
        401: "Unauthorized",
        402: "Payment Required",
        403: "Forbidden",
        404: "Not Found",
        405: "Method Not Allowed",
        408: "Request Timeout",
        409: "Conflict",
        410: "Gone",
        412: "Precondition Failed",
        422: "Unprocessable Entity",
        429: "Too Many Requests",
    }
    body = {"title": titles.get(status, "Error"), "status": status, "detail": detail}
    if errors:
        body["errors"] = list(errors)
    headers = {"Retry-After": "7"} if status == 429 else {}
    return Reply.of(body, status, headers=headers, content_type="application/problem+json")
