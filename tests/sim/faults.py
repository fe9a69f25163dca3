"""The deliberate faults of `tests.sim.mutants`: what each is, and the edits that make it. A file is under `ledger/`."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Fault:
    """One mistake that somebody could make. `edits` are (file, text that stands there once, text instead)."""

    name: str
    edits: tuple[tuple[str, str, str], ...]


def _one(name: str, file: str, old: str, new: str) -> Fault:
    return Fault(name, ((file, old, new),))


_APPEND_FIRST = """        try:
            log.append(stream, run.version, step.drafts)
        except Conflict:
"""
_EARLY = """CALL_SECONDS = 30.0
EARLY = {}


def send_early(edges, run, step, seconds):
    from ledger.poller.dry import _as_if

    if isinstance(step.act, Create):
        intent = _as_if(run, step.drafts).intents[(step.act.attempt, step.act.attempt_try)]
        cloud = edges.cloud(intent.backend, intent.account)
        spec = create_spec(_as_if(run, step.drafts), intent, edges.log.ledger_id(), edges.policy, edges.kinds)
        EARLY[step.act] = cloud.create(spec, send_before=edges.source.steady() + 20, timeout=seconds)
"""

FAULTS = (
    Fault(
        "intent-after-the-call",
        (
            (
                "poller/tick.py",
                _APPEND_FIRST,
                "        from ledger.poller.act import send_early\n"
                "        send_early(edges, run, step, max(min(frame.left(), frame.call_cap), 0.0))\n" + _APPEND_FIRST,
            ),
            ("poller/act.py", "CALL_SECONDS = 30.0\n", _EARLY),
            (
                "poller/act.py",
                "answer = cloud.create(spec, send_before=send_before, timeout=seconds)",
                "answer = EARLY.pop(Create(intent.attempt, intent.attempt_try))",
            ),
        ),
    ),
    _one(
        "partial-list-taken-as-complete",
        "decide/view.py",
        "and listing.complete and listing.account == name",
        "and listing.account == name",
    ),
    Fault(
        "absent-by-a-list-alone",
        (
            (
                "decide/view.py",
                "if listing is None or not isinstance(answer, Absent) or machine in self.seen:",
                "if listing is None or machine in self.seen:",
            ),
            (
                "decide/view.py",
                'if listing.account != answer.account or account not in ("", answer.account):',
                'if isinstance(answer, Absent) and account not in ("", answer.account):',
            ),
        ),
    ),
    Fault(
        "absent-by-a-describe-alone",
        (
            (
                "decide/view.py",
                "if listing is None or not isinstance(answer, Absent) or machine in self.seen:",
                "if not isinstance(answer, Absent):",
            ),
            (
                "decide/view.py",
                'if listing.account != answer.account or account not in ("", answer.account):',
                'if account not in ("", answer.account):',
            ),
            ("decide/view.py", "return all(seen.machine != machine for seen in listing.machines)", "return True"),
        ),
    ),
    _one(
        "repointed-without-a-launch",
        "decide/launch.py",
        "    return tuple(drafts)\n",
        '    return tuple(d for d in drafts if d.type != "LaunchConfirmed" or run.failover is None)\n',
    ),
    _one(
        "running-read-as-launched",
        "decide/launch.py",
        "    payload = _evidence_of_life(machine, view)\n",
        '    payload = _evidence_of_life(machine, view) or {"source": "guest"}\n',
    ),
    _one(
        "clock-restarted-by-a-reconnect",
        "state/machines.py",
        "    machine.observed = True\n    machine.reconnected = True\n",
        "    machine.observed = True\n    machine.reconnected = True\n"
        "    machine.queue_since = event.occurred_at\n"
        "    machine.bound_began = event.occurred_at if machine.bound_began else None\n",
    ),
    Fault(
        "adopted-by-name-alone",
        (
            (
                "decide/facts.py",
                "if not run.open or run.imported is None or run.mine() or run.tries() or len(view.named) != 1",
                "if not run.open or run.mine() or len(view.named) != 1",
            ),
            ("decide/facts.py", 'run.imported.get("job_id")', '(run.imported or {}).get("job_id")'),
            ("decide/facts.py", "if seen.backend != run.backend or (", "if seen.backend not in ('gcp', 'runpod') or ("),
        ),
    ),
    _one(
        "call-before-ignored",
        "poller/tick.py",
        "send_before = started + frame.policy.call_before_seconds",
        "send_before = started + 1e9",
    ),
    _one(
        "deleted-by-name",
        "poller/act.py",
        "answer = cloud.delete(machine.id, send_before",
        "named = [s for s in getattr(cloud.list_all(timeout=seconds), 'machines', ()) if s.name == machine.name]\n"
        "        answer = cloud.delete(named[-1].machine if named else machine.id, send_before",
    ),
    _one(
        "bound-counted-from-the-queue",
        "decide/launch.py",
        "    began = machine.bound_began if machine.bound_began is not None else machine.known_at\n",
        "    began = machine.known_at\n",
    ),
    _one(
        "failed-probe-read-as-dead",
        "decide/launch.py",
        "    probe = view.probes.get(machine.id)\n"
        '    if outcome is None and machine.backend == "runpod" and isinstance(probe, Probe):\n',
        "    probe = view.probes.get(machine.id)\n"
        "    if isinstance(probe, Unknown) and machine.launched_at is not None:\n"
        "        probe = Probe(machine.pid, False, 1, 0.0, False, None)\n"
        '    if outcome is None and machine.backend == "runpod" and isinstance(probe, Probe):\n',
    ),
    _one(
        "no-settle-before-absence",
        "decide/facts.py",
        "    if age < policy.absence_settle_seconds:\n        return []\n",
        "",
    ),
    _one(
        "a-create-concluded-too-early",
        "decide/provision.py",
        "if view.now < base + micros(policy.absence_settle_seconds):",
        "if view.now < intent.requested_at:",
    ),
    _one(
        "timeout-read-as-a-refusal",
        "poller/act.py",
        "        drafts = [_unresolved(intent, now, answer)]\n    elif answer.cls",
        '        drafts = [_refused(intent, now, Refused("capacity", answer.message))]\n    elif answer.cls',
    ),
    _one(
        "gone-once-the-delete-was-accepted",
        "poller/act.py",
        "        return  # accepted or absent: it is gone when it was seen to be\n",
        '        gone = {"by": "ledger"}\n'
        '        draft = Draft("TornDown", gone, edges.source.now(), attempt=machine.attempt, machine=machine.id)\n'
        "        edges.log.append_facts(stream, lambda _: [draft])\n"
        "        return\n",
    ),
    _one(
        "a-delete-asked-once",
        "decide/teardown.py",
        "    if step is None or not machine.open or machine.absent_at is not None:\n        return False\n",
        "    return False\n",
    ),
    _one(
        "second-machine-left-alone",
        "decide/teardown.py",
        "    if machine is not here and not by_hand:\n",
        "    if machine is not here and not by_hand and False:\n",
    ),
    Fault(
        "orphan-ended-at-first-sight",
        (
            ("decide/teardown.py", "or len(machine.idles) < 2:", "or not machine.idles:"),
            (
                "decide/teardown.py",
                "    return machine.idles[-1][1] - machine.idles[0][1] >= micros(policy.idle_grace_seconds)\n",
                "    return True\n",
            ),
        ),
    ),
    Fault(
        "unknown-gpus-read-as-idle",
        (
            (
                "decide/facts.py",
                'idle = draft.payload["gpu_util"] == 0 and',
                'idle = draft.payload["gpu_util"] in (0, None) and',
            ),
            ("state/machines.py", 'if payload.get("gpu_util") == 0 and', 'if payload.get("gpu_util") in (0, None) and'),
        ),
    ),
    _one(
        "a-lost-race-acts-all-the-same",
        "poller/tick.py",
        "            why.pop()\n            continue  # another poller was first; decide again on what it left\n",
        "            log.state(stream)\n",
    ),
    Fault(
        "left-and-forgotten",
        (
            (
                "decide/leave.py",
                'return _away(machine, view, policy, "queue_timeout", rung, evidence, new_id, delete=True)',
                'return _away(machine, view, policy, "queue_timeout", rung, evidence, new_id, delete=False)',
            ),
            (
                "decide/teardown.py",
                '        return machine.left_reason or "left", (machine.left_pos,)\n',
                "        return None\n",
            ),
        ),
    ),
    _one(
        "a-name-that-is-taken-is-ours",
        "poller/act.py",
        "if seen.name == intent.name and seen.zone == intent.zone and _bears(seen, intent):",
        "if seen.name == intent.name and seen.zone == intent.zone:",
    ),
    _one(
        "closed-with-a-create-open",
        "decide/__init__.py",
        "    if any(intent.open for intent in run.intents.values()):\n        return None\n",
        "",
    ),
    _one(
        "a-wrong-clock-obeyed",
        "poller/tick.py",
        "    if skew is None or abs(skew) <= micros(frame.policy.max_clock_skew_seconds):\n        return\n",
        "    return\n",
    ),
    _one(
        "a-file-written-in-place",
        "projections/disk.py",
        "        before_rename()\n        beside.replace(path)\n",
        "        path.write_bytes(text.encode()[:40])\n        before_rename()\n        beside.replace(path)\n",
    ),
    _one(
        "a-row-of-a-machine-forgotten",
        "projections/tables.py",
        "    names = {event.machine for event in events if event.machine}\n",
        "    names = {event.machine for event in events if event.machine and event.type != 'TornDown'}\n",
    ),
)
