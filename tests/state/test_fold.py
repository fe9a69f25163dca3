"""The fold is total: any order, subset or repetition of events, and any payload, gives a state."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ledger.events import KINDS, Event
from ledger.state.fold import fold, fold_run, new_state
from ledger.state.model import Account, Run
from ledger.state.transitions import INTENT, MACHINE, RUN, intent_step, machine_step, run_step
from tests import support as s
from tests.strategies import as_events, run_drafts

quick = settings(max_examples=80, deadline=None, suppress_health_check=list(HealthCheck))
drafts = st.lists(st.integers(0, 5000).flatmap(lambda at: run_drafts(s.RUN, float(at))), max_size=25)
streams = st.sampled_from([s.RUN, s.GCP, "ledger"])
junk = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)


@quick
@given(drafts, st.data())
def test_any_order_subset_and_repetition_gives_a_state(made: list[Any], data: st.DataObject) -> None:
    events = as_events(made)
    if events:
        events = data.draw(st.lists(st.sampled_from(events), max_size=40))
    run = fold_run(s.RUN, events)
    assert not run.unreadable
    assert run.active in (True, False)
    assert run.closing in (True, False)


@quick
@given(drafts, st.integers(0, 25))
def test_a_fold_in_two_parts_is_the_fold_of_the_whole(made: list[Any], cut: int) -> None:
    events = as_events(made)
    first = fold(events[:cut], new_state(s.RUN))
    assert fold(events[cut:], first) == fold_run(s.RUN, events)
    assert first == fold_run(s.RUN, events[:cut])


@settings(quick, max_examples=200)
@given(st.data(), streams)
def test_junk_payloads_give_a_state(data: st.DataObject, stream: str) -> None:
    shaped = as_events(data.draw(drafts)) or as_events([s.opened()])
    spoilt: list[Event] = []
    for event in shaped:
        payload = json.loads(event.payload)
        for key in data.draw(st.lists(st.sampled_from([*payload, "other"]), max_size=2)):
            payload[key] = data.draw(junk)
        text = data.draw(st.sampled_from([json.dumps(payload), "{", "[1]", '{"issue": 1e999}', "null"]))
        bare = event._replace(payload=text, stream=stream)
        spoilt.append(data.draw(st.sampled_from([bare, bare._replace(machine=None), bare._replace(attempt=None)])))
    state = fold(spoilt, new_state(stream))
    assert state.version == spoilt[-1].version


def test_an_event_of_another_version_makes_the_stream_unreadable() -> None:
    unknown = as_events([s.opened()])[0]._replace(type="SomethingNewer", position=7)
    newer = as_events([s.opened()])[0]._replace(schema=99, position=8)
    for stream in (s.RUN, s.GCP, "ledger"):
        state = fold([unknown, newer], new_state(stream))
        assert state.unreadable == [(7, "SomethingNewer"), (8, "RunOpened")]


@pytest.mark.parametrize(("table", "name"), [(MACHINE, "machine"), (INTENT, "intent"), (RUN, "run")])
def test_every_edge_says_why_and_leads_somewhere(table: dict[str, dict[str, tuple[str, str]]], name: str) -> None:
    for stage, edges in table.items():
        for type_, (after, why) in edges.items():
            assert type_ in KINDS
            assert after in table, (stage, type_)
            assert len(why) > 3


def test_every_type_of_a_run_has_its_place() -> None:
    tabled = {type_ for table in (MACHINE, INTENT, RUN) for edges in table.values() for type_ in edges}
    facts = {type_ for type_ in KINDS if machine_step("known", type_)[1]}
    own = {"InventoryRead", "PolicyChanged", "LedgerCreated"}
    assert tabled | facts == set(KINDS) - own


def test_what_has_no_edge_changes_no_stage() -> None:
    assert machine_step("none", "LaunchConfirmed") == ("none", False)
    assert intent_step("none", "Provisioned") == ("none", False)
    assert run_step("none", "RunClosed") == ("none", False)


def test_a_teardown_in_an_account_s_stream_is_a_decision() -> None:
    events = as_events(
        [s.orphan(1), s.orphan(1000), s.teardown(1100, s.OTHER_POD, "idle", [1, 2], attempt=None)], s.PODS
    )
    account = fold(events, new_state(s.PODS))
    assert isinstance(account, Account)
    (decision,) = account.decisions
    assert (decision.claim, decision.idle_reads, decision.evidence) == ("orphan", 2, (1, 2))


def test_the_first_difference_from_the_handle_is_kept_while_it_lasts() -> None:
    ports = ["1:22", "1:23", "1:23", "1:22", "1:24"]
    looks = [s.observed(100 + n, ports=port) for n, port in enumerate(ports)]
    events = as_events([s.opened(), s.requested(10), s.provisioned(20), *looks])
    seen = []
    for end in range(4, len(events) + 1):
        run = fold_run(s.RUN, events[:end])
        assert isinstance(run, Run)
        machine = run.machines[s.POD]
        seen.append(machine.stale_pos if machine.stale_at is not None else None)
    assert seen == [None, 5, 5, None, 8]
