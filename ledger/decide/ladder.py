"""The ladder: which rung comes next, and where on it. Pure readings of a run's intents."""

from __future__ import annotations

from ledger.decide.view import Rent
from ledger.policy import GCP_FLEX, RUNPOD, Policy
from ledger.state.model import Intent, Run


def backend_of(rung: str) -> str:
    """`gcp` or `runpod`."""
    return "runpod" if rung == RUNPOD else "gcp"


def model_of(rung: str) -> str | None:
    """The provisioning model that a GCP rung asks for."""
    return rung.split(":", 1)[1] if rung.startswith("gcp:") else None


def order(run: Run, policy: Policy) -> tuple[str, ...]:
    """The rungs of this dispatch in the order in which they are walked: from the one dispatched to, round the end.

    A run that was dispatched to a rung which is not on its ladder starts there, then takes the ladder from its top.
    """
    ladder = run.ladder or tuple(r for r in policy.ladder if policy.allow_paid_fallback or r != RUNPOD)
    start = run.start_rung or (ladder[0] if ladder else GCP_FLEX)
    if start not in ladder:
        return (start, *ladder)
    at = ladder.index(start)
    return ladder[at:] + ladder[:at]


def tried(run: Run) -> set[str]:
    """The rungs that this dispatch has tried or was refused. An imported machine's rung counts."""
    rungs = {intent.rung for intent in run.tries()}
    rungs.update(m.rung for m in run.mine() if m.rung is not None and m.claim == "import")
    return rungs


def _left(run: Run, policy: Policy) -> list[str]:
    walked = order(run, policy)
    done = tried(run)
    last = run.tries()[-1].rung if run.tries() else (run.start_rung if run.start_rung in done else None)
    at = walked.index(last) + 1 if last in walked else 0
    turned = walked[at:] + walked[:at]
    return [rung for rung in turned if rung not in done]


def after_refusal(run: Run, policy: Policy) -> str | None:
    """The next rung after a refusal, or where the machine was taken."""
    left = _left(run, policy)
    return left[0] if left else None


def after_queue(run: Run, policy: Policy, backend: str) -> str | None:
    """After a queue timeout or vanish: another cloud; if there is none, the next that is not FLEX_START."""
    left = _left(run, policy)
    other = [rung for rung in left if backend_of(rung) != backend]
    rest = [rung for rung in left if rung != GCP_FLEX]
    return next(iter(other or rest), None)


def after_failure(run: Run, policy: Policy, backend: str) -> str | None:
    """After a workload failure, a wedge or a boot loop: another cloud, or nothing."""
    return next((rung for rung in _left(run, policy) if backend_of(rung) != backend), None)


def zones_of(run: Run, rung: str, rent: Rent) -> tuple[str | None, ...]:
    """The zones of a rung in the order in which they are tried; a pod has one, unnamed."""
    if backend_of(rung) == "runpod":
        return (None,)
    zones = rent.zones
    pinned = run.opened.get("zone")
    if isinstance(pinned, str) and pinned:
        zones = (pinned, *(zone for zone in zones if zone != pinned))
    return zones


def next_zone(run: Run, last: Intent, rent: Rent) -> str | None:
    """The zone after the last intent's, on the same rung and attempt; None: there is none."""
    zones = zones_of(run, last.rung, rent)
    used = {i.zone for i in run.tries() if i.attempt == last.attempt}
    return next((zone for zone in zones if zone is not None and zone not in used), None)
