"""Truth 3's second half: no sidecar names a machine that is known to be gone, but while a failover says so in time.

Moments are integer microseconds after the scenario's start.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator

from ledger.moments import MICROS
from ledger.sim.evidence import Evidence, Violation
from ledger.sim.machine import Machine
from ledger.sim.record import named_by

NEVER = 1 << 62
STEPS = ("FailoverDecided", "ProvisionRequested", "Provisioned")
SIGHTS = ("TornDown", "MachineObserved", "Provisioned")
Gpus = Callable[[Machine, int], int | None]


def wrongly_named(evidence: Evidence, faults_end: int, gpus: Gpus, *, braked: bool) -> Iterator[Violation]:
    """Each sidecar that at the end of a tick, or of the rehearsal, named what the log knew to be gone.

    `gpus`: the use of a machine's GPUs that could be read at a moment. `braked`: nothing is ended, so that a
    failover may take for ever.
    """
    world, end = evidence.world, evidence.end
    gone: dict[tuple[str, str], list[tuple[int, bool]]] = defaultdict(list)
    steps: dict[str, list[tuple[int, str | None]]] = defaultdict(list)
    for event in evidence.events:
        stream, when = str(event["stream"]), int(event["recorded_at"]) - world.start
        if event["type"] in STEPS:
            steps[stream].append((when, event["machine"] if event["type"] == "Provisioned" else None))
        if event["type"] in SIGHTS:
            gone[stream, event["machine"]].append((when, event["type"] == "TornDown"))
    at_last = [(file, named_by(content, world)) for file, content in evidence.handles.items()]
    for when, file, key, state in [*evidence.history.named, *((end, f, *it) for f, it in at_last if it is not None)]:
        stream = file.removesuffix("-handle.json")
        told = [it for it in gone[stream, key] if it[0] <= when]
        if not told or not told[-1][1] or state == "closing" or _undecided(evidence, when):
            continue
        since: int | None = told[-1][0]
        if state == "failing_over":
            before = [step for step in steps[stream] if step[0] <= when]
            since = None if braked or not before else _overdue(evidence, before[-1], faults_end, gpus)
        if since is not None and since <= when:
            yield Violation(3, "a sidecar names a machine that is gone", file, since / MICROS, when / MICROS)


def _undecided(evidence: Evidence, when: int) -> bool:
    """Whether a poller's clock was off by so much that it records what it sees and decides nothing."""
    off: Counter[int] = Counter()
    for jump in evidence.scenario.clocks:
        if jump.at <= when:
            off[jump.poller] += jump.by
    return any(abs(by) > evidence.scenario.policy.max_clock_skew_seconds * MICROS for by in off.values())


def _overdue(evidence: Evidence, step: tuple[int, str | None], faults_end: int, gpus: Gpus) -> int | None:
    """When a failover whose newest step that is was past its bound, the queue not counted; None: it is held."""
    policy = evidence.scenario.policy
    since, bound = max(faults_end, step[0]), round(policy.launch_confirm_seconds * MICROS)
    machine = evidence.world.known(step[1]) if step[1] else None
    if machine is not None:
        queued = [at for at, state in zip(machine.times, machine.states, strict=True) if state.status == "PENDING"]
        if queued:
            since = max(since, next((at for at in machine.times if at > queued[-1]), NEVER))
        use = gpus(machine, since + bound)
        if use:
            return None  # something computes: held, and reported
        bound *= 2 if use is None else 1
    return since + bound + round(policy.teardown_confirm_seconds * MICROS)
