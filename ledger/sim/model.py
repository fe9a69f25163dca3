"""The saga of one run, explored exhaustively: every outcome of every call, a death at every step, two pollers.

Breadth-first over the pure core (`decide`, `facts`, the fold) and a world of a few values. A node is the log, the
world and what each poller is in the middle of; time moves in ticks. Bounded: a number of steps that go wrong, a
number of ticks. In every reachable node truth 4 holds; from every node, once nothing goes wrong any more, truths 1
and 2 hold within their bounds.
"""

from __future__ import annotations

import pickle
from collections import Counter, deque
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from uuid import UUID, uuid5

from ledger import canonical
from ledger.clouds.values import Absent, Listing, Probe, Seen, Unknown
from ledger.decide import View, decide
from ledger.decide.facts import facts, provisioned
from ledger.decide.view import Action, Create, Delete, Rent
from ledger.events import KINDS, Draft, Event
from ledger.moments import MICROS
from ledger.payloads import validate
from ledger.policy import Policy
from ledger.sim.model_world import ACCOUNT, LEDGER, PROJECT, STREAM, Thing, at, made, probe, seen
from ledger.state.fold import advance
from ledger.state.model import Run

IDS = UUID("0f2d4c4e-6a57-5a0e-9a3c-000000000001")
TICK = 100  # seconds
POLICY = Policy(
    queue_wait_seconds=50,
    absence_settle_seconds=60,
    launch_confirm_seconds=200,
    teardown_confirm_seconds=200,
    tick_deadline_seconds=40,
    ladder=("gcp:FLEX_START", "runpod"),
)
CALM = 14  # ticks in which nothing goes wrong and the bounds of truths 1 and 2 pass
BACKOFF = 600


@dataclass(frozen=True, slots=True)
class Poller:
    """What one poller is in the middle of: the call that its durable intent stands for, sent or not."""

    act: Action | None = None
    since: int = 0


@dataclass(slots=True)
class Node:
    """A reachable state of everything. `faults` is how many things may still go wrong."""

    now: int
    run: Run
    things: tuple[Thing, ...]
    pollers: tuple[Poller, ...]
    faults: int
    made: int = 0
    touched: tuple[str, ...] = ()
    path: tuple[str, ...] = ()

    def key(self) -> bytes:
        """What distinguishes it: everything but how it was reached and the names of what is equal."""
        pollers = sorted(self.pollers, key=repr)  # which of them it is makes no difference
        return repr((self.now, _shape(self.run), self.things, pollers, self.faults, self.touched)).encode()


@dataclass(slots=True)
class Explored:
    """What an exploration found: how many states, how many ends, and the truths that a path breaks."""

    states: int = 0
    ends: int = 0
    deepest: int = 0
    outcomes: Counter[str] = field(default_factory=Counter)
    broken: list[tuple[int, str, tuple[str, ...]]] = field(default_factory=list)


def explore(faults: int = 2, ticks: int = 8, pollers: int = 2, policy: Policy = POLICY) -> Explored:
    """Every state that `faults` mishaps within `ticks` ticks can lead to."""
    model = _Model(policy, ticks)
    found = Explored()
    start = model.start(pollers, faults)
    reached = {start.key()}
    front = deque([start])
    calmed: set[bytes] = set()
    while front:
        node = front.popleft()
        found.states += 1
        found.deepest = max(found.deepest, len(node.path))
        _always(node, found)
        for following in model.steps(node):
            key = following.key()
            if key not in reached:
                reached.add(key)
                front.append(following)
        if node.faults == 0 or node.now >= ticks * TICK:
            _settle(model, node, found, calmed)
    return found


def _always(node: Node, found: Explored) -> None:
    """Truth 4: what is not ours was never touched."""
    ours = {thing.id for thing in node.things if thing.marker is not None}
    for touched in node.touched:
        if touched not in ours:
            found.broken.append((4, f"{touched} was deleted", node.path))


def _settle(model: _Model, node: Node, found: Explored, calmed: set[bytes]) -> None:
    """Truths 1 and 2 from here on, when all goes well."""
    began = node.now
    both: int | None = None
    while node.now < began + CALM * TICK:
        key = node.key()
        if both is None and key in calmed:
            return
        calmed.add(key)
        node = model.calm(node)
        billed = [thing for thing in node.things if thing.marker is not None and thing.billed]
        both = None if len(billed) < 2 else node.now if both is None else both
        if both is not None and node.now - both > BACKOFF + TICK:
            found.broken.append((2, "two machines billed", node.path))
            return
        for thing in billed:
            since = max(began, thing.born)
            bound = max(POLICY.launch_confirm_seconds + POLICY.teardown_confirm_seconds, BACKOFF + TICK)
            if thing.work != "alive" and node.now - since > bound:
                found.broken.append((1, f"{thing.id} billed in vain", node.path))
                return
        _always(node, found)
    found.ends += 1
    found.outcomes[node.run.reason or ("running" if any(t.work == "alive" for t in node.things) else "open")] += 1


def _shape(run: Run) -> object:
    """The state without what only says how it was reached: positions, hashes, decisions."""
    machines = tuple(
        (
            *(m.id, m.stage, m.claim, m.status, m.queue_since, m.bound_began, m.launched_at, m.launch_failed_at),
            *(m.ended_at, m.left_at, m.absent_at, m.gone_at, m.late, m.known_at, m.portless_since, m.past_pending_at),
            m.launch and (m.launch.requested_at, m.launch.count),
            m.teardown and (m.teardown.requested_at, m.teardown.count),
            m.teardown_failed_at,
        )
        for m in run.machines.values()
    )
    intents = tuple((i.rung, i.stage, i.requested_at, i.replied_at, i.cls, i.sent) for i in run.intents.values())
    failover = run.failover and (run.failover.reason, run.failover.next_rung, run.failover.decided_at)
    return run.stage, machines, intents, run.handle, failover, run.outcome, run.reason


class _Model:
    def __init__(self, policy: Policy, ticks: int) -> None:
        self.policy = policy
        self.ticks = ticks

    def start(self, pollers: int, faults: int) -> Node:
        """A run that was just opened, beside a machine of somebody else that bears its name."""
        foreign = Thing("runpod:theirs", "runpod", "pod-1", None, "RUNNING", -10_000)
        node = Node(0, Run(STREAM), (foreign,), (Poller(),) * pollers, faults)
        opened = {"issue": 1, "workload_cmd": "x", "ladder": list(self.policy.ladder), "rung": "gcp:FLEX_START"}
        return self._append(node, (Draft("RunOpened", opened, 0, actor="user"),), "opened")

    # Moves.

    def steps(self, node: Node) -> Iterator[Node]:
        """Every node that may follow. Time moves once nobody has anything to do, or, as a mishap, all the same."""
        busy = False
        for number, poller in enumerate(node.pollers):
            if poller.act is not None:
                busy = True
                yield from self._call(node, number, poller.act)
            else:
                decided = self._decided(node, number)
                if decided is not None:
                    busy = True
                    yield decided
                    if node.faults:
                        yield self._dead(decided, number, "died after the intent")
        if node.now >= self.ticks * TICK:
            return
        if not busy:
            yield from self._time(node)
        elif node.faults:
            slow = replace_node(node, faults=node.faults - 1, path=(*node.path, f"{node.now}: all stand still"))
            yield from self._time(slow)

    def calm(self, node: Node) -> Node:
        """A tick in which nothing goes wrong: calls are carried out and answered, everything is read well."""
        for number, poller in enumerate(node.pollers):
            if poller.act is not None:
                node = self._dead(node, number, "its call is lost")
        node = self._later(replace_node(node, now=node.now + TICK))
        node = self._observe(node, blind=False)
        for _ in range(16):
            decided = self._decided(node, 0)
            if decided is None:
                break
            act = decided.pollers[0].act
            node = decided if act is None else self._carried(decided, 0, act, answered=True)
        return node

    def _time(self, node: Node) -> Iterator[Node]:
        """The next tick; what happens by itself, and what the reads then show."""
        later = self._later(replace_node(node, now=node.now + TICK))
        yield self._observe(later, blind=False)
        if not node.faults:
            return
        worse = replace_node(later, faults=node.faults - 1)
        yield replace_node(worse, path=(*node.path, f"{worse.now}: nothing could be read"))
        for place, thing in enumerate(later.things):
            if thing.gone or thing.marker is None:
                continue
            gone = replace(thing, gone=True, work="none")
            taken = _with(worse, place, gone, f"{thing.id} was taken")
            yield self._observe(taken, blind=False)
            if thing.status == "PENDING":
                started = replace(thing, status="RUNNING", work="alive")
                yield self._observe(_with(worse, place, started, f"{thing.id} came to RUNNING"), blind=False)

    def _later(self, node: Node) -> Node:
        """A launch that was carried out has started by now."""
        things = tuple(replace(t, work="alive") if t.work == "sent" else t for t in node.things)
        return replace_node(node, things=things)

    def _observe(self, node: Node, *, blind: bool) -> Node:
        view = self._view(node, blind=blind)
        drafts = facts(node.run, view, self.policy)
        return self._append(node, tuple(drafts), "observed") if drafts else node

    def _decided(self, node: Node, number: int) -> Node | None:
        view = self._view(node, blind=False)
        ident = str(uuid5(IDS, f"{node.run.version}"))
        step = decide(node.run, view, self.policy, ident)
        if step is None:
            return None
        node = self._append(node, step.drafts, f"{node.now}: {step.why}")
        pollers = list(node.pollers)
        pollers[number] = Poller(step.act, node.now)
        return replace_node(node, pollers=tuple(pollers))

    def _call(self, node: Node, number: int, act: Action) -> Iterator[Node]:
        """Every outcome of one call."""
        yield self._carried(node, number, act, answered=True)
        if not node.faults:
            return
        worse = replace_node(node, faults=node.faults - 1)
        yield self._dead(node, number, "died before the call")
        yield self._dead(self._carried(worse, number, act, answered=False), number, "died after the call", spend=False)
        yield self._unanswered(self._carried(worse, number, act, answered=False), number, act)
        yield self._unanswered(worse, number, act)
        if isinstance(act, Create):
            yield self._refused(node, number, act)
            twice = self._carried(worse, number, act, answered=False)
            yield self._unanswered(self._carried(twice, number, act, answered=False), number, act)

    # Outcomes.

    def _dead(self, node: Node, number: int, how: str, *, spend: bool = True) -> Node:
        """The poller is a new process now, which knows only the log."""
        pollers = list(node.pollers)
        pollers[number] = Poller()
        left = node.faults - 1 if spend and node.faults else node.faults
        path = (*node.path, f"{node.now}: poller {number + 1} {how}")
        return replace_node(node, pollers=tuple(pollers), faults=left, path=path)

    def _idle(self, node: Node, number: int) -> Node:
        pollers = list(node.pollers)
        pollers[number] = Poller()
        return replace_node(node, pollers=tuple(pollers))

    def _carried(self, node: Node, number: int, act: Action, *, answered: bool) -> Node:
        """The call does what it asks for; with its answer the poller goes on."""
        if isinstance(act, Create):
            intent = node.run.intents[act.attempt, act.attempt_try]
            thing = made(node.made + 1, intent, node.now)
            node = replace_node(node, things=(*node.things, thing), made=node.made + 1)
            node = replace_node(node, path=(*node.path, f"{node.now}: {thing.id} was made"))
            if answered and thing.id not in node.run.machines:
                draft = provisioned(
                    seen(thing, node.now), at(node.now), act.attempt, act.attempt_try, intent.model, matched_by="reply"
                )
                node = self._append(node, (draft,), "replied")
            return self._idle(node, number) if answered else node
        place = next(place for place, thing in enumerate(node.things) if thing.id == act.machine)
        thing = node.things[place]
        if isinstance(act, Delete):
            node = _with(node, place, replace(thing, gone=True), f"{thing.id} was deleted")
            node = replace_node(node, touched=(*node.touched, thing.id))
        elif not thing.gone and thing.work == "none":
            node = _with(node, place, replace(thing, work="sent"), f"{thing.id} was launched")
        return self._idle(node, number) if answered else node

    def _unanswered(self, node: Node, number: int, act: Action) -> Node:
        """The caller learns nothing but that."""
        node = replace_node(node, path=(*node.path, f"{node.now}: no answer"))
        if isinstance(act, Create):
            intent = node.run.intents[act.attempt, act.attempt_try]
            payload = {"error_class": "timeout", "try": act.attempt_try}
            draft = Draft("ProvisionUnresolved", payload, at(node.now), attempt=intent.attempt)
            node = self._append(node, (draft,), "unresolved")
        elif isinstance(act, Delete):
            machine = node.run.machines[act.machine]
            count = machine.teardown.count if machine.teardown else 1
            payload = {"error_class": "timeout", "count": count}
            draft = Draft("TeardownFailed", payload, at(node.now), attempt=machine.attempt, machine=machine.id)
            node = self._append(node, (draft,), "teardown failed")
        return self._idle(node, number)

    def _refused(self, node: Node, number: int, act: Create) -> Node:
        intent = node.run.intents[act.attempt, act.attempt_try]
        payload = {"class": "capacity", "try": act.attempt_try, "zone": intent.zone}
        draft = Draft("ProvisionRefused", payload, at(node.now), attempt=intent.attempt)
        return self._idle(self._append(node, (draft,), f"{node.now}: refused"), number)

    # The core's own shapes.

    def _view(self, node: Node, *, blind: bool) -> View:
        shown = [] if blind else [seen(thing, node.now) for thing in node.things if not thing.gone]
        listings = {
            (backend, account): Listing(account, True, tuple(s for s in shown if s.backend == backend))
            for backend, account in (("gcp", PROJECT), ("runpod", ACCOUNT))
        }
        described: dict[str, Seen | Absent | Unknown] = {
            machine.id: Absent(machine.account)
            for machine in node.run.machines.values()
            if machine.open and all(s.machine != machine.id for s in shown)
        }
        probes: dict[str, Probe | Unknown] = {
            thing.id: probe(thing) for thing in node.things if not thing.gone and thing.status == "RUNNING"
        }
        return View(
            now=at(node.now),
            ledger_id=LEDGER,
            holder="model",
            listings={} if blind else listings,
            seen={s.machine: s for s in shown},
            described={} if blind else described,
            probes={} if blind else probes,
            marked=[s for s in shown if s.marker],
            named=[s for s in shown if not s.marker],
            rent=Rent(("z",), PROJECT, ACCOUNT),
            call_deadline=round(self.policy.tick_deadline_seconds * MICROS),
        )

    def _append(self, node: Node, drafts: tuple[Draft, ...], word: str) -> Node:
        run: Run = pickle.loads(pickle.dumps(node.run, pickle.HIGHEST_PROTOCOL))
        for draft in drafts:
            payload = canonical.dumps(validate(draft))
            version = run.version + 1
            event = Event(
                version,
                STREAM,
                version,
                f"e{version}",
                draft.type,
                KINDS[draft.type].schema,
                draft.occurred_at,
                draft.occurred_at,
                draft.actor,
                draft.correlation_id,
                draft.attempt,
                draft.machine,
                payload,
                "",
            )
            advance(run, event)
        return replace_node(node, run=run, path=(*node.path, word))


def replace_node(node: Node, **changes: object) -> Node:
    """The node with some of it changed."""
    return replace(node, **changes)  # type: ignore[arg-type]  # the names are those of its fields


def _with(node: Node, place: int, thing: Thing, word: str) -> Node:
    things = (*node.things[:place], thing, *node.things[place + 1 :])
    return replace_node(node, things=things, path=(*node.path, f"{node.now}: {word}"))
