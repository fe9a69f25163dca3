"""A dry run: what a tick would append and do, folded in memory. Nothing is written and nothing is sent."""

from __future__ import annotations

from collections.abc import Sequence

from ledger import canonical
from ledger.decide import View, decide
from ledger.decide.facts import facts
from ledger.events import KINDS, Draft, Event
from ledger.policy import Policy
from ledger.source import Source, uuid4
from ledger.state.fold import fold
from ledger.state.model import Run

MAX_STEPS = 64


def plan(run: Run, view: View, policy: Policy, source: Source) -> tuple[Run, list[str]]:
    """The run as a tick with these readings would have it, and what it would do, up to its first call to a cloud.

    What that call would bring nobody knows. Raises EventError as an append would.
    """
    if run.unreadable or not run.driven:
        return run, []
    run = _as_if(run, facts(run, view, policy))
    told = []
    for _ in range(MAX_STEPS):
        step = decide(run, view, policy, uuid4(source))
        if step is None:
            break
        told.append(step.why)
        run = _as_if(run, step.drafts)
        if step.act is not None:
            break
    return run, told


def _as_if(run: Run, drafts: Sequence[Draft]) -> Run:
    """The run with these appended."""
    from ledger.payloads import validate

    events = [
        Event(
            position=run.position + number,
            stream=run.stream,
            version=run.version + number,
            event_id="",
            type=draft.type,
            schema=KINDS[draft.type].schema,
            occurred_at=draft.occurred_at,
            recorded_at=draft.occurred_at,
            actor=draft.actor,
            correlation_id=draft.correlation_id,
            attempt=draft.attempt,
            machine=draft.machine,
            payload=canonical.dumps(validate(draft)),
            hash="",
        )
        for number, draft in enumerate(drafts, 1)
    ]
    after = fold(events, run)
    assert isinstance(after, Run)
    return after
