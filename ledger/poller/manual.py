"""What a person tells a run: cancel, finalize, end a machine. Each records the wish, and begins it at once."""

from __future__ import annotations

from collections.abc import Callable

from ledger.decide.teardown import current, teardown_draft
from ledger.decide.view import Delete, micros
from ledger.edges import Edges
from ledger.errors import Conflict, LedgerError
from ledger.events import Draft
from ledger.poller.act import act
from ledger.poller.dispatch import frame_of, project
from ledger.poller.tick import drive, record
from ledger.state.model import Run


def cancel(edges: Edges, stream: str) -> Run:
    """The user wants it to end. Twice is fine. Raises LedgerError for a run that there is not."""
    run = _known(edges, stream)
    if not run.open:
        return run

    def wish(state: Run) -> list[Draft]:
        if state.cancel_at is not None or not state.open:
            return []
        return [Draft("CancelRequested", {}, edges.source.now(), actor="user")]

    _decide(edges, stream, wish)
    return _go_on(edges, stream)


def finalize(edges: Edges, stream: str) -> Run:
    """The run is done: tear its machine down, retire its handle. Twice is fine."""
    run = _known(edges, stream)
    if not run.open:
        return run

    def wish(state: Run) -> list[Draft]:
        machine = current(state)
        if not state.open or machine is None or machine.ended_at is not None or machine.launch_failed_at is not None:
            return []
        payload = {"outcome": "done", "evidence": [p for p in (machine.launched_pos,) if p]}
        now = edges.source.now()
        return [Draft("WorkloadEnded", payload, now, actor="user", attempt=machine.attempt, machine=machine.id)]

    _decide(edges, stream, wish)
    run = edges.log.run(stream)
    if current(run) is None and run.cancel_at is None:
        # Nothing runs and nothing is in hand: what is on its way is called off, and the run ends as cancelled.
        _decide(edges, stream, lambda state: _cancel_if_open(edges, state))
    return _go_on(edges, stream, redispatch=True)


def _cancel_if_open(edges: Edges, run: Run) -> list[Draft]:
    if not run.open or run.cancel_at is not None:
        return []
    return [Draft("CancelRequested", {}, edges.source.now(), actor="user")]


def end(edges: Edges, machine_id: str) -> Run:
    """Tear one machine down by hand. Raises LedgerError where the ledger does not hold it."""
    rows = edges.log.connection.query(
        "SELECT stream FROM machines WHERE machine = :machine ORDER BY gone_at IS NOT NULL, known_pos DESC",
        {"machine": machine_id},
    )
    if not rows:
        raise LedgerError(f"the ledger does not know {machine_id}; `ledger status` lists its machines")
    stream = str(rows[0][0])
    run = _known(edges, stream)
    frame = frame_of(edges, run)

    def wish(state: Run) -> list[Draft]:
        machine = state.machines[machine_id]
        if not machine.open:
            return []
        view = frame.view(stream, call_deadline=micros(edges.policy.tick_deadline_seconds))
        return [teardown_draft(machine, view, "by_hand", (machine.known_pos,))]

    started = edges.source.steady()
    if _decide(edges, stream, wish):
        before = started + edges.policy.call_before_seconds
        act(edges, stream, Delete(machine_id), send_before=before, seconds=frame.left())
    return _go_on(edges, stream)


def _known(edges: Edges, stream: str) -> Run:
    run = edges.log.state(stream)
    if not isinstance(run, Run) or not run.version:
        raise LedgerError(f"the ledger has no run {stream}; `ledger status` lists them")
    if not run.driven:
        raise LedgerError(f"{stream} is on {run.backend}, which the ledger does not drive")
    if run.unreadable:
        raise LedgerError(f"{stream} holds an event that this version does not know; install a newer ledger")
    return run


def _decide(edges: Edges, stream: str, wish: Callable[[Run], list[Draft]]) -> bool:
    """Append what `wish` makes of the run, deciding again where the stream moved on. Whether anything was appended."""
    while True:
        run = edges.log.run(stream)
        drafts = wish(run)
        try:
            return bool(edges.log.append(stream, run.version, drafts))
        except Conflict:
            continue


def _go_on(edges: Edges, stream: str, **rest: bool) -> Run:
    """Do now what a tick would do; what is not seen to be gone yet, the next ticks see."""
    for _ in range(2):
        run = edges.log.run(stream)
        if not run.active:
            break
        frame = frame_of(edges, run)
        record(frame, [run])
        drive(frame, stream, **rest)
    project(edges, stream)
    return edges.log.run(stream)
