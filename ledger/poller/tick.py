"""One tick: observe, record, decide, act, project, tell.

A wait is never a sleep: the tick returns, and the next one goes on.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ledger.clouds.values import Listing, Seen, Unknown
from ledger.decide import View, decide
from ledger.decide.facts import clones, facts, orphan_draft
from ledger.decide.teardown import due_again, protected, unwanted
from ledger.decide.view import micros
from ledger.edges import Edges
from ledger.errors import Conflict, StorageError
from ledger.events import Draft, account_stream, is_run, parse_marker
from ledger.log.reader import POLICY, policy_of
from ledger.policy import Policy
from ledger.poller import host_keys
from ledger.poller.act import act
from ledger.poller.dry import plan
from ledger.poller.line import tick_line
from ledger.poller.observe import Observation, accounts, read_details, read_lists
from ledger.source import uuid4
from ledger.state.model import Account, Run, State

# What a tick keeps back for the last append, the sidecars and the lines.
RESERVE_SECONDS = 5.0
MAX_STEPS = 64
INVENTORY_SECONDS = 300.0
# How far from the newest event a clock may be that no cloud confirms.
UNDATED_SECONDS = 3600.0


@dataclass(slots=True)
class Report:
    """What a tick did: one line a run (stream → line), and what it would have done (`dry_run`)."""

    lines: dict[str, dict[str, Any]] = field(default_factory=dict)
    planned: list[tuple[str, str]] = field(default_factory=list)  # (stream, why)
    failed: dict[str, str] = field(default_factory=dict)  # runs that could not be polled at all
    unread: dict[str, str] = field(default_factory=dict)  # clouds whose list did not come (`gcp my-project` → why)


@dataclass(slots=True)
class Tick:
    """The frame of one tick: its deadline, its brakes, what it read."""

    edges: Edges
    policy: Policy
    ends_at: float  # on the steady clock
    observation: Observation
    may_end: bool = True
    steady_clock: bool = True
    unbelievable: bool = False  # this clock may be far off, and no cloud says the time: nothing can be dated
    clock_error: int = 0  # what this clock is ahead of the clouds', where that is too much to be believed
    call_cap: float = float("inf")  # seconds that one call may take at most
    _views: dict[str, tuple[tuple[Any, ...], View]] = field(default_factory=dict)  # stream → the last, and of what

    def left(self) -> float:
        """Seconds that are left for calls."""
        return self.ends_at - RESERVE_SECONDS - self.edges.source.steady()

    def now(self) -> int:
        """The moment of what is recorded now: this clock's, or the clouds' where this one cannot be believed."""
        return self.edges.source.now() - self.clock_error

    def view(self, stream: str, **rest: Any) -> View:
        """What a decision on one run may see now."""
        if "call_deadline" not in rest:
            rest["call_deadline"] = micros(self.policy.tick_deadline_seconds)
        usd = 0.0 if self.policy.max_usd_per_hour is None else usd_per_hour(self.edges)
        braked, may_call = self.policy.paused, self.left() > 0
        asked = (self.now(), usd, may_call, self.may_end, self.steady_clock, self.observation, rest)
        known = self._views.get(stream)
        if known is None or known[0] != asked:
            view = self.observation.view(
                stream,
                now=asked[0],
                ledger_id=self.edges.log.ledger_id(),
                holder=self.edges.holder,
                rent=self.edges.rent,
                usd_per_hour=usd,
                may_create=not braked,
                may_call=may_call,
                may_end=self.may_end and not braked,
                steady_clock=self.steady_clock,
                call_before=micros(self.policy.call_before_seconds),
                **rest,
            )
            known = self._views[stream] = asked, view
        return known[1]


def policy_now(edges: Edges) -> Policy:
    """The policy of this process, paused or not as the log has it by now: a brake is pulled while a watch goes on."""
    paused = policy_of(edges.log.asked(POLICY)).paused
    return edges.policy if edges.policy.paused == paused else replace(edges.policy, paused=paused)


def usd_per_hour(edges: Edges) -> float:
    """What all billed machines cost together, as far as their cost is known."""
    rows = edges.log.asked(
        "SELECT coalesce(sum(cost_per_hour), 0) FROM machines"
        " WHERE gone_at IS NULL AND billed_since IS NOT NULL AND billed_until IS NULL"
    )
    return float(rows[0][0])


def tick(edges: Edges, streams: Sequence[str] | None = None, *, dry_run: bool = False) -> Report:
    """One tick over all active runs, or those named. Ends within the policy's `tick_deadline_seconds`."""
    edges.log.keep_time()
    with edges.log.at_once():
        policy = policy_now(edges)
        wanted = accounts(edges)
    began = edges.source.steady()
    frame = Tick(edges, policy, began + policy.tick_deadline_seconds, Observation(at=edges.source.now()))
    frame.observation = read_lists(edges, frame.left() / 2, wanted)
    report = Report(unread=unread(frame.observation))
    with edges.log.at_once():
        polled = _streams(edges, frame.observation, streams)
        runs = _runs(edges, polled, report)
    host_keys.learn(edges, runs)
    read_details(edges, frame.observation, runs, frame.left() / 2, remember=not dry_run)
    mind_the_clock(frame)
    if not dry_run:
        record(frame, runs)
    with edges.log.at_once():
        mind_the_markers(frame)
        runs = _runs(edges, polled, report)
        _mind_the_teardowns(frame, runs)
    reasons: dict[str, list[str]] = {}
    for run in runs:
        if dry_run:
            view = frame.view(run.stream)
            run_then, planned = plan(run, view, policy, edges.source)
            report.planned += [(run.stream, why) for why in planned]
            if run_then.active or planned:
                report.lines[run.stream] = tick_line(run_then, view)
        else:
            reasons[run.stream] = drive(frame, run.stream)
    if dry_run:
        return report
    _project(edges)
    with edges.log.at_once():
        for stream in polled:
            if stream in report.failed:
                continue
            run = edges.log.run(stream)
            if run.version and (run.active or reasons.get(stream)):
                report.lines[stream] = tick_line(run, frame.view(stream))
    return report


def unread(observation: Observation) -> dict[str, str]:
    """The accounts of which nothing could be read, and why."""
    found = {}
    for (backend, account), answer in observation.lists.items():
        if isinstance(answer, Unknown):
            found[f"{backend} {account}"] = f"{answer.error}: {answer.message}".rstrip(": ")
        elif answer.account != account:
            found[f"{backend} {account}"] = f"the credentials are of {answer.account}"
    return found


def _project(edges: Edges) -> None:
    """Write the sidecars. Where one cannot be written, what was done stands in the log, and the lines are told."""
    if edges.sidecars is None:
        return
    try:
        edges.sidecars.project(edges.log, streams=None)
    except StorageError as error:
        edges.say(f"{error}; the log has it all, the next tick or `ledger project` writes the file")


def _streams(edges: Edges, observation: Observation, named: Sequence[str] | None) -> list[str]:
    """The runs of this tick: those named, or the active ones and those of which a list shows something."""
    if named is not None:
        return list(named)
    found = dict.fromkeys(edges.log.active_streams())
    for stream in (*observation.marked, *observation.named):
        if is_run(stream):
            found.setdefault(stream)
    open_orphans = edges.log.asked("SELECT DISTINCT stream FROM machines WHERE gone_at IS NULL AND claim = 'orphan'")
    found.update(dict.fromkeys(row[0] for row in open_orphans if is_run(row[0])))
    return sorted(found)


def _runs(edges: Edges, streams: Sequence[str], report: Report) -> list[Run]:
    """Their states; a run that cannot be read never stops another."""
    runs = []
    for stream in streams:
        state = edges.log.state(stream)
        if isinstance(state, Run) and state.version:
            if state.unreadable:
                position, type_ = state.unreadable[0]
                report.failed[stream] = f"event {position} ({type_}) is not known to this version; not acted on"
            runs.append(state)
    return runs


def mind_the_clock(frame: Tick) -> None:
    """A clock that is off the clouds' `Date` by too much decides and ends nothing."""
    skew = frame.observation.skew
    if skew is None and frame.observation.lists:
        _without_a_date(frame)
    if skew is None or abs(skew) <= micros(frame.policy.max_clock_skew_seconds):
        return
    frame.steady_clock = False
    frame.may_end = False
    frame.clock_error = skew
    frame.edges.say(
        f"this clock is {skew / 1e6:+.0f} s off the clouds' (max_clock_skew_seconds"
        f" {frame.policy.max_clock_skew_seconds:.0f}): nothing is decided or ended; set the clock"
    )


def _without_a_date(frame: Tick) -> None:
    """No list answered, so no cloud said the time: a clock is believed that is not far from the newest event."""
    rows = frame.edges.log.connection.query("SELECT occurred_at FROM events ORDER BY position DESC LIMIT 1")
    if not rows or abs(frame.edges.source.now() - rows[0][0]) <= micros(UNDATED_SECONDS):
        return
    frame.steady_clock = frame.may_end = False
    frame.unbelievable = True
    frame.edges.say(
        "no list says the time, and this clock is far from the newest event: nothing is recorded, decided or ended"
        " until a list answers"
    )


_STRANGE = """
SELECT m.machine, m.stream, m.marker, m.known_pos FROM machines m
WHERE m.gone_at IS NULL AND m.claim = 'orphan' AND m.marker IS NOT NULL
    AND NOT EXISTS (SELECT 1 FROM acks k WHERE k.breach = 'log-broken@' || CAST(m.known_pos AS TEXT))
ORDER BY m.known_pos"""
_INTENT = "SELECT 1 FROM intents WHERE stream = :stream AND attempt = :attempt AND attempt_try = :attempt_try LIMIT 1"


def mind_the_markers(frame: Tick) -> None:
    """A machine with a marker of ours that the log does not know: the log is older than the world, so nothing ends."""
    log = frame.edges.log
    for machine, _, text, position in log.asked(_STRANGE):
        marker = parse_marker(text)
        if marker is None or marker.ledger != log.ledger_id():
            continue
        known = {"stream": marker.stream, "attempt": marker.attempt, "attempt_try": marker.attempt_try}
        if log.asked(_INTENT, known):
            continue
        frame.may_end = False
        frame.edges.say(
            f"{machine} bears this ledger's marker, and its log does not know it (restored, or two copies in use?):"
            f" nothing is ended until `ledger ack log-broken@{position}`"
        )
        return


def _mind_the_teardowns(frame: Tick, runs: Sequence[Run]) -> None:
    """More ends in one tick than the policy allows look like a mistake: none of them, and an alert."""
    driven = [run for run in runs if run.driven and not run.unreadable]
    # A run counts for its open machines at most, and for one where it has none: few runs need not be decided twice.
    most = sum(max(1, sum(machine.open for machine in run.machines.values())) for run in driven)
    if most <= frame.policy.max_teardowns_per_tick:
        return
    count = 0
    for run in driven:
        view = frame.view(run.stream)
        due = [machine for machine, _, _ in unwanted(run, view, frame.policy)]
        due += [machine for machine in run.machines.values() if due_again(machine, view)]
        step = decide(run, view, frame.policy, "-")
        leaving = step is not None and any(d.type == "TeardownRequested" for d in step.drafts)
        count += max(sum(not protected(m, view, frame.policy) for m in due), int(leaving))
    if count > frame.policy.max_teardowns_per_tick:
        frame.may_end = False
        frame.edges.say(
            f"{count} machines would be ended in this tick (max_teardowns_per_tick"
            f" {frame.policy.max_teardowns_per_tick}): none is; see `ledger status`, then raise it or cancel by hand"
        )


def record(frame: Tick, runs: Sequence[Run]) -> None:
    """Append what this tick saw, in one transaction; a stream that moved on is asked again."""
    if frame.unbelievable:
        return
    log = frame.edges.log
    makers: dict[str, Callable[[State], Sequence[Draft]]] = {}
    for run in runs:
        if run.driven and not run.unreadable:
            view = frame.view(run.stream)
            makers[run.stream] = lambda state, view=view: [  # type: ignore[misc]
                *facts(state, view, frame.policy),
                *host_keys.pinned(frame.edges, state, view.now),
            ]
    for key, answer in frame.observation.lists.items():
        makers[account_stream(*key)] = lambda state, key=key, answer=answer: _inventory(  # type: ignore[misc]
            frame, state, key, answer, runs
        )
    batches = []
    with log.at_once():
        for stream, make in makers.items():
            state = log.state(stream)
            batches.append((stream, state.version, make(state)))
    for stream in log.append_seen(batches).moved:
        log.append_facts(stream, makers[stream])


def _inventory(
    frame: Tick, state: State, key: tuple[str, str], answer: Listing | Unknown, runs: Sequence[Run]
) -> list[Draft]:
    """What an account's list says: itself, when it changed or is due; and marked machines that are clones."""
    assert isinstance(state, Account)
    backend, account = key
    good = isinstance(answer, Listing) and answer.account == account
    listing = answer if isinstance(answer, Listing) and good else None
    complete = listing is not None and listing.complete
    machines = sorted(seen.machine for seen in listing.machines) if listing else []
    drafts = []
    now = frame.observation.at - frame.clock_error
    due = state.read_at is None or now - state.read_at >= micros(INVENTORY_SECONDS)
    changed = complete != state.complete or (complete and tuple(machines) != state.machines)
    if due or changed:
        payload = {
            "backend": backend,
            "account": account,
            "complete": complete,
            "unreachable": list(listing.unreachable) if listing else [],
            "machines": machines if complete else list(state.machines),
            "fingerprint": listing.fingerprint if listing else None,
        }
        drafts.append(Draft("InventoryRead", payload, now))
    if listing is not None:
        drafts += _strangers(frame, state, backend, listing, runs)
    return drafts


def _strangers(frame: Tick, state: Account, backend: str, listing: Listing, runs: Sequence[Run]) -> list[Draft]:
    """Marked machines that no intent of ours can have made, and those of them that went."""
    view = frame.view(state.stream)
    shown: dict[str, Seen] = {}
    for run in runs:
        for seen in clones(run, frame.view(run.stream), frame.policy):
            if seen.backend == backend and seen.account == listing.account:
                shown[seen.machine] = seen
    known = {run.stream for run in runs}
    for stream, marked in frame.observation.marked.items():
        if stream not in known and not frame.edges.log.state(stream).version:
            shown.update({s.machine: s for s in marked if s.backend == backend and s.account == listing.account})
    drafts = []
    for seen in shown.values():
        orphan = state.orphans.get(seen.machine)
        if orphan is None or not orphan.open or orphan.status != seen.status:
            drafts.append(orphan_draft(seen, view, workload=None))
    listed = {seen.machine for seen in listing.machines}
    for orphan in state.orphans.values():
        if orphan.open and listing.complete and orphan.id not in listed:
            drafts.append(Draft("TornDown", {"by": "external"}, view.now, machine=orphan.id))
    return drafts


def drive(frame: Tick, stream: str, **rest: Any) -> list[str]:
    """Decide and act on one run until nothing more is due in this tick. Returns why it did what it did."""
    edges, log = frame.edges, frame.edges.log
    why: list[str] = []
    for _ in range(MAX_STEPS):
        run = log.run(stream)
        view = frame.view(stream, **rest)
        # A process that stood still must not act on what it read before: past its end the tick is over.
        if edges.source.steady() > frame.ends_at:
            break
        started = edges.source.steady()
        step = decide(run, view, frame.policy, uuid4(edges.source))
        if step is None:
            break
        why.append(step.why)
        try:
            log.append(stream, run.version, step.drafts)
        except Conflict:
            why.pop()
            continue  # another poller was first; decide again on what it left
        if step.act is not None:
            send_before = started + frame.policy.call_before_seconds
            act(edges, stream, step.act, send_before=send_before, seconds=max(min(frame.left(), frame.call_cap), 0.0))
            host_keys.keep(edges, stream, frame.now())
    return why


def print_line(line: dict[str, Any]) -> str:
    """One tick line as its readers expect it: one JSON object on one line."""
    return json.dumps(line, sort_keys=False)
