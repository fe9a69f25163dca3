"""Act: send the one call that an intent stands for, and append what came of it as facts, on whatever version."""

from __future__ import annotations

from collections.abc import Sequence

from ledger.clouds.values import Accepted, Listing, Refused, Seen, Unresolved
from ledger.decide.facts import provisioned
from ledger.decide.view import Action, Create, Delete, Launch
from ledger.edges import Edges
from ledger.events import Draft, parse_marker
from ledger.poller.specs import create_spec, launch_spec
from ledger.secrets import redact
from ledger.state.model import Intent, Machine, Run, State

CALL_SECONDS = 30.0


def act(edges: Edges, stream: str, action: Action, *, send_before: float, seconds: float) -> None:
    """Carry out `action` of a run, whose intent is durable. `seconds`: what is left for the call."""
    run = edges.log.run(stream)
    if isinstance(action, Create):
        _create(edges, run, run.intents[(action.attempt, action.attempt_try)], send_before, seconds)
    elif isinstance(action, Delete):
        _delete(edges, run.stream, run.machines[action.machine], send_before, min(seconds, CALL_SECONDS))
    else:
        _launch(edges, run, action, send_before, min(seconds, CALL_SECONDS))


def _create(edges: Edges, run: Run, intent: Intent, send_before: float, seconds: float) -> None:
    cloud = edges.cloud(intent.backend, intent.account)
    if cloud is None:
        answer: Accepted | Refused | Unresolved = Refused("invalid", f"{intent.backend} is not configured here", True)
    else:
        spec = create_spec(run, intent, edges.log.ledger_id(), edges.policy, edges.kinds, edges.hydra_command)
        answer = cloud.create(spec, send_before=send_before, timeout=seconds)
    now = edges.source.now()
    drafts: list[Draft] = []
    if isinstance(answer, Accepted) and answer.seen is not None:
        seen = answer.seen
        drafts = [provisioned(seen, now, intent.attempt, intent.attempt_try, intent.model, matched_by="reply")]
    elif isinstance(answer, Accepted):
        drafts = [_unresolved(intent, now, Unresolved("no_id", "accepted, and no id was given"))]
    elif isinstance(answer, Unresolved):
        drafts = [_unresolved(intent, now, answer)]
    elif answer.cls == "name_taken":
        drafts = _name_taken(edges, intent, answer)
    else:
        drafts = [_refused(intent, now, answer)]
        if answer.cls in ("unauthorized", "invalid"):
            edges.say(
                f"{run.stream}: {intent.rung} refused the create as {answer.cls}: {redact(answer.message)}; mend it"
            )

    def news(state: State) -> Sequence[Draft]:
        assert isinstance(state, Run)
        return [d for d in drafts if d.type != "Provisioned" or d.machine not in state.machines]

    edges.log.append_facts(run.stream, news)


def _unresolved(intent: Intent, now: int, answer: Unresolved) -> Draft:
    payload = {
        "error_class": answer.error,
        "message": redact(answer.message),
        "operation": answer.operation,
        "try": intent.attempt_try,
    }
    return Draft("ProvisionUnresolved", payload, now, attempt=intent.attempt, correlation_id=intent.failover)


def _refused(intent: Intent, now: int, answer: Refused) -> Draft:
    payload = {
        "class": answer.cls,
        "message": redact(answer.message),
        "zone": intent.zone,
        "try": intent.attempt_try,
        "sent": not answer.unsent,
    }
    return Draft("ProvisionRefused", payload, now, attempt=intent.attempt, correlation_id=intent.failover)


def _name_taken(edges: Edges, intent: Intent, answer: Refused) -> list[Draft]:
    """Borne by this attempt: adopted. Whose it is otherwise, the next decision sees; unread, nobody knows."""
    cloud = edges.cloud(intent.backend, intent.account)
    listing = cloud.list_all(timeout=CALL_SECONDS) if cloud is not None else None
    now = edges.source.now()
    if not isinstance(listing, Listing) or listing.account != intent.account:
        return [_unresolved(intent, now, Unresolved("name_taken", "whose the name is could not be read"))]
    for seen in listing.machines:
        if seen.name == intent.name and seen.zone == intent.zone and _bears(seen, intent):
            return [provisioned(seen, now, intent.attempt, intent.attempt_try, intent.model, matched_by="marker")]
    return [_refused(intent, now, answer)]


def _bears(seen: Seen, intent: Intent) -> bool:
    marker = parse_marker(seen.marker)
    return marker is not None and (marker.attempt, marker.attempt_try) == (intent.attempt, intent.attempt_try)


def _delete(edges: Edges, stream: str, machine: Machine, send_before: float, seconds: float) -> None:
    cloud = edges.cloud(machine.backend, machine.account)
    if cloud is None:
        answer: object = Refused("invalid", f"{machine.backend} is not configured here")
    else:
        answer = cloud.delete(machine.id, send_before=send_before, timeout=seconds)
    if not isinstance(answer, Refused | Unresolved) or (isinstance(answer, Refused) and answer.unsent):
        return  # accepted or absent: it is gone when it was seen to be
    error = answer.cls if isinstance(answer, Refused) else answer.error
    now = edges.source.now()

    def news(state: State) -> Sequence[Draft]:
        assert isinstance(state, Run)
        known = state.machines[machine.id]
        count = known.teardown.count if known.teardown else 1
        if known.teardown_error == error and count < 2 * known.teardown_failures:
            return []
        payload = {"error_class": error, "count": count, "message": redact(answer.message)}
        return [Draft("TeardownFailed", payload, now, attempt=machine.attempt, machine=machine.id)]

    edges.log.append_facts(stream, news)


def _launch(edges: Edges, run: Run, action: Launch, send_before: float, seconds: float) -> None:
    """Whatever the answer, the probe of the next tick says whether it runs; a refusal is a person's to mend."""
    machine = run.machines[action.machine]
    cloud = edges.cloud(machine.backend, machine.account)
    if cloud is None:
        return
    spec = launch_spec(run, machine, edges.hydra_command)
    answer = cloud.launch(machine.id, spec, send_before=send_before, timeout=seconds)
    if isinstance(answer, Refused) and not answer.unsent:
        edges.say(
            f"{run.stream}: the launch on {machine.id} was refused as {answer.cls}: {redact(answer.message)}; mend it"
        )
