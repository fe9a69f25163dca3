"""What every database must hold of the log. A database's own test is a subclass that says how to open one."""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from ledger.errors import Conflict, EventError, SchemaError, StorageError
from ledger.events import Draft, Event
from ledger.log.integrity import head, verify
from ledger.log.open import SCHEMA, create_log, open_log
from ledger.log.store import Log
from ledger.policy import Policy
from ledger.source import SystemSource
from tests.log import processes
from tests.support import (
    POD,
    RUN,
    FakeSource,
    cancelled,
    clock,
    observed,
    opened,
    provisioned,
    requested,
    us,
    write,
)

OTHER = "issue-1418"
START = [opened(), requested(10), provisioned(20)]
INSERT = f"""INSERT INTO events SELECT {{position}}, '{RUN}', {{version}}, 'x', type, schema, occurred_at, recorded_at,
    actor, correlation_id, attempt, machine, payload, hash FROM events WHERE position = 2"""
STREAMS: tuple[str, dict[str, object]] = ("SELECT stream, version FROM streams ORDER BY stream", {})


def fixed(draft: Draft, event_id: str) -> Draft:
    return Draft(
        draft.type, draft.payload, draft.occurred_at, draft.actor, draft.attempt, draft.machine, event_id=event_id
    )


class LogContract:
    """Subclass it, with the fixture `url`: that of a ledger which was just born."""

    @pytest.fixture
    def url(self) -> str:
        raise NotImplementedError

    @pytest.fixture
    def log(self, url: str) -> Iterator[Log]:
        made = open_log(url, FakeSource(seed=1))
        yield made
        made.connection.close()

    @contextmanager
    def another(self, url: str) -> Iterator[Log]:
        """A second process's view of the same ledger."""
        made = open_log(url, FakeSource(seed=2))
        try:
            yield made
        finally:
            made.connection.close()

    def change_past_the_triggers(self, log: Log, sql: str) -> None:
        """Run `sql` with the protection of `events` off, as somebody with the file in his hands could."""
        raise NotImplementedError

    # appending

    def test_versions_count_from_one_and_positions_increase(self, log: Log) -> None:
        events = write(log, [*START, (OTHER, opened(30, 1418))])
        assert [e.version for e in events] == [1, 2, 3, 1]
        assert [e.position for e in events] == sorted({e.position for e in events})

    def test_a_wrong_version_is_a_conflict_that_changes_nothing(self, log: Log) -> None:
        write(log, START)
        before = list(log.read_all())
        with pytest.raises(Conflict) as raised:
            log.append(RUN, 2, [observed(30)])
        assert (raised.value.stream, raised.value.expected, raised.value.actual) == (RUN, 2, 3)
        with pytest.raises(Conflict):
            log.append(RUN, 4, [observed(30)])
        assert list(log.read_all()) == before

    def test_another_process_s_append_is_a_conflict_and_is_seen(self, log: Log, url: str) -> None:
        write(log, START)
        with self.another(url) as other:
            write(other, [observed(30)])
        with pytest.raises(Conflict):
            log.append(RUN, 3, [observed(31)])
        assert log.state(RUN).version == 4
        assert log.append(RUN, 4, [observed(31)])[0].version == 5

    def test_what_is_asked_again_is_what_stands_now(self, log: Log, url: str) -> None:
        write(log, START)
        count = "SELECT COUNT(*) FROM events WHERE stream = :stream"
        before, held = log.head(), log.run(RUN)
        assert (held.version, log.asked(count, {"stream": RUN}), log.active_streams()) == (3, [(3,)], [RUN])
        with self.another(url) as other:
            write(other, [observed(30), (OTHER, opened(25, 1418))])
            with log.at_once():
                assert log.head() > before
                assert (log.run(RUN).version, log.active_streams()) == (4, [RUN, OTHER])
                write(other, [observed(31)])
                with log.at_once():
                    assert log.run(RUN).version == 4  # asked once
            assert log.asked(count, {"stream": RUN}) == [(5,)]
        assert (log.run(RUN).version, log.run(OTHER).version) == (5, 1)
        assert log.append(RUN, 5, [observed(32)])[0].version == 6
        assert (log.asked(count, {"stream": RUN}), log.run(RUN).version) == ([(6,)], 6)
        assert held.version == 3  # what was given out is not changed

    def test_all_or_nothing(self, log: Log) -> None:
        write(log, START)
        with pytest.raises(EventError):
            log.append(RUN, 3, [observed(30), observed(31, nonsense=1)])
        assert log.state(RUN).version == 3

    def test_the_same_event_twice_is_a_success_that_changes_nothing(self, log: Log, url: str) -> None:
        write(log, START)
        draft = fixed(observed(30), "01890000-0000-7000-8000-000000000001")
        stored = log.append(RUN, 3, [draft])
        assert log.append(RUN, 3, [draft]) == stored
        with self.another(url) as other:
            assert other.append(RUN, 3, [draft]) == stored
        assert log.state(RUN).version == 4

    @pytest.mark.parametrize(
        ("stream", "draft"), [(RUN, observed(30, gpus="busy")), (RUN, observed(31)), (OTHER, observed(30))]
    )
    def test_the_same_id_with_other_content_is_an_error(self, log: Log, stream: str, draft: Draft) -> None:
        write(log, [*START, (OTHER, opened(25, 1418))])
        one = "01890000-0000-7000-8000-000000000001"
        log.append(RUN, 3, [fixed(observed(30), one)])
        with pytest.raises(EventError, match="in the log already"):
            log.append(stream, log.state(stream).version, [fixed(draft, one)])

    def test_append_seen_leaves_out_the_streams_that_moved(self, log: Log) -> None:
        write(log, [*START, (OTHER, opened(25, 1418))])
        seen = log.append_seen([(RUN, 2, [observed(30)]), (OTHER, 1, [observed(30), observed(31)])])
        assert seen.moved == [RUN]
        assert [e.version for e in seen.stood[OTHER]] == [2, 3]
        assert (log.state(RUN).version, log.state(OTHER).version) == (3, 3)

    def test_append_seen_takes_no_decision(self, log: Log) -> None:
        write(log, START)
        with pytest.raises(EventError, match="is a decision"):
            log.append_seen([(RUN, 3, [observed(30), cancelled(30)])])

    def test_facts_are_appended_on_whatever_version(self, log: Log, url: str) -> None:
        write(log, START)
        with self.another(url) as other:
            write(other, [observed(30)])
        assert log.append_facts(RUN, lambda _state: [observed(31)])[0].version == 5

    def test_recorded_at_never_goes_back_when_the_clock_does(self, log: Log) -> None:
        write(log, START)
        clock(log).micros = us(-3600)
        (event,) = log.append(RUN, 3, [observed(30)])
        assert event.recorded_at == us(20)

    # reading

    def test_reads_are_in_order_and_after_a_place(self, log: Log) -> None:
        write(log, [START[0], (OTHER, opened(5, 1418)), *START[1:]])
        everything = list(log.read_all())
        assert [e.position for e in everything] == sorted(e.position for e in everything)
        assert [e.version for e in log.read(RUN)] == [1, 2, 3]
        assert log.read(RUN, after=2) == [e for e in everything if e.stream == RUN and e.version > 2]
        assert list(log.read_all(after=everything[1].position)) == everything[2:]
        assert list(log.read_all(until=us(5))) == [e for e in everything if e.recorded_at <= us(5)]

    def test_a_reader_s_transaction_stands_still(self, log: Log, url: str) -> None:
        write(log, START)
        with self.another(url) as other, log.connection.read():
            assert log.connection.query(*STREAMS)[0] == (RUN, 3)
            write(other, [observed(30)])
            assert log.connection.query(*STREAMS)[0] == (RUN, 3)

    def test_a_follower_goes_on_from_where_it_was(self, log: Log) -> None:
        write(log, [START[0], (OTHER, opened(5, 1418)), *START[1:]])
        everything = list(log.read_all())
        until(lambda: list(log.follow()) == everything)
        assert list(log.follow(everything[1].position)) == everything[2:]

    @pytest.mark.slow
    def test_ten_writers_and_a_reader_that_never_misses_an_event(self, log: Log, url: str) -> None:
        """It follows while they write; what it was told at any moment is a beginning of what there is at the end."""
        before = [event.position for event in log.read_all()]
        context = multiprocessing.get_context("spawn")
        pipes, writers = [], []
        for worker in range(10):
            here, there = context.Pipe(duplex=False)
            writers.append(context.Process(target=processes.append_slowly, args=(url, worker, 30, there)))
            writers[-1].start()
            there.close()
            pipes.append(here)
        told: list[int] = []
        looks = 0
        while any(writer.is_alive() for writer in writers):
            told += [event.position for event in log.follow(told[-1] if told else 0)]
            looks += 1
        acknowledged = sorted(position for here in pipes for position in here.recv())
        told += [event.position for event in log.follow(told[-1])]
        assert told == [*before, *acknowledged]
        assert told == [event.position for event in log.read_all()]
        assert looks > 20
        assert verify(log, projections=True) == []
        for writer, here in zip(writers, pipes, strict=True):
            writer.join()
            writer.close()
            here.close()

    def test_waiting_ends_when_another_appends(self, log: Log, url: str) -> None:
        write(log, START)
        naps: list[float] = []
        while log.connection.wait(0.001, naps.append):
            pass
        with self.another(url) as other:
            write(other, [observed(30)])
        assert log.connection.wait(30, naps.append)

    # schemas

    def pretend_schema(self, log: Log, version: int) -> None:
        """Let the database say that it has another schema."""
        raise NotImplementedError

    def test_an_older_version_refuses_a_newer_schema_and_changes_nothing(self, log: Log, url: str) -> None:
        """One that starts then, and one that was at work already."""
        write(log, START)
        before = list(log.read_all())
        self.pretend_schema(log, SCHEMA + 1)
        words = rf"has schema {SCHEMA + 1}; this version of ledger knows {SCHEMA}: install a newer one$"
        for open_it in (
            lambda: open_log(url, FakeSource()),
            lambda: open_log(url, FakeSource(), write=True),
            lambda: create_log(url, FakeSource(), Policy(), "test"),
            lambda: log.append(RUN, 3, [observed(30)]),
            lambda: log.append_seen([(RUN, 3, [observed(30)])]),
        ):
            with pytest.raises(SchemaError, match=words) as raised:
                open_it()
            assert "\n" not in str(raised.value)
        assert log.connection.schema_version() == SCHEMA + 1
        assert list(log.read_all()) == before
        self.pretend_schema(log, SCHEMA)
        assert verify(log, projections=True) == []
        assert log.append(RUN, 3, [observed(30)])

    # protection and integrity

    @pytest.mark.parametrize(
        "sql",
        [
            "UPDATE events SET payload = '{}'",
            "UPDATE events SET hash = '' WHERE position = 2",
            "DELETE FROM events",
            "DELETE FROM events WHERE position = 4",
            INSERT.format(position=99, version=99),
            INSERT.format(position=0, version=4),
        ],
    )
    def test_an_event_is_never_changed_from_any_connection(self, log: Log, url: str, sql: str) -> None:
        write(log, START)
        before = list(log.read_all())
        with self.another(url) as other, pytest.raises(StorageError, match="append-only"):
            other.connection.execute(sql)
        assert list(log.read_all()) == before

    def test_a_whole_log_has_no_finding(self, log: Log) -> None:
        write(log, [*START, (OTHER, opened(30, 1418))])
        told: list[int] = []
        assert verify(log, projections=True, progress=told.append) == []
        assert told == [5]

    @pytest.mark.parametrize(
        ("sql", "named"),
        [
            ("UPDATE events SET payload = '{\"a\":1}' WHERE position = 3", [(3, RUN, 2, "hash does not fit")]),
            ("UPDATE events SET actor = 'user' WHERE position = 3", [(3, RUN, 2, "hash does not fit")]),
            ("UPDATE events SET machine = 'runpod:other' WHERE position = 4", [(4, RUN, 3, "hash does not fit")]),
            ("UPDATE events SET hash = 'x' WHERE position = 2", [(2, RUN, 1, "hash"), (3, RUN, 2, "hash")]),
            (
                "UPDATE events SET payload = 'nonsense' WHERE position = 3",
                [(3, RUN, 2, "hash does not fit"), (3, RUN, 2, "no JSON")],
            ),
            (
                "UPDATE events SET payload = '[]' WHERE position = 3",
                [(3, RUN, 2, "hash"), (3, RUN, 2, "no JSON object")],
            ),
            ("DELETE FROM events WHERE position = 3", [(4, RUN, 3, "1 event(s) of the stream before it are missing")]),
            ("DELETE FROM events WHERE position >= 3 AND position < 5", [(4, RUN, 3, "2 event(s) are missing")]),
            (f"DELETE FROM events WHERE stream = '{OTHER}'", [(5, OTHER, 1, "missing from the log")]),
            (
                "UPDATE events SET recorded_at = recorded_at - 3600000000 WHERE position = 4",
                [(4, RUN, 3, "hash"), (4, RUN, 3, "recorded before")],
            ),
            (f"DELETE FROM streams WHERE stream = '{OTHER}'", [(5, OTHER, 1, "do not know the stream")]),
        ],
    )
    def test_a_change_past_the_triggers_is_found_and_named(
        self, log: Log, sql: str, named: list[tuple[int, str, int, str]]
    ) -> None:
        write(log, [*START, (OTHER, opened(30, 1418))])
        self.change_past_the_triggers(log, sql)
        found = verify(log)
        assert [(f.position, f.stream, f.version) for f in found] == [name[:3] for name in named]
        for finding, (*_, words) in zip(found, named, strict=True):
            assert words in finding.problem
            assert str(finding.version) in str(finding)
            assert finding.to_json()["problem"] == finding.problem

    def test_two_events_that_changed_places_are_found(self, log: Log) -> None:
        write(log, [*START, observed(30), observed(40)])
        for step in (
            "version = 99 WHERE position = 5",
            "version = 4 WHERE position = 6",
            "version = 5 WHERE position = 5",
        ):
            self.change_past_the_triggers(log, f"UPDATE events SET {step}")
        assert {f.position for f in verify(log)} >= {5, 6}

    @pytest.mark.parametrize(
        ("sql", "words"),
        [
            (
                "UPDATE machines SET cost_per_hour = 0.5",
                f"machines {POD}/{RUN}: cost_per_hour is 0.5, the log says 4.0",
            ),
            ("DELETE FROM machines", f"machines {POD}/{RUN}: the row is missing"),
            ("INSERT INTO acks VALUES ('x', 9)", "acks x/9: the row follows from no event"),
        ],
    )
    def test_a_read_model_that_differs_is_named(self, log: Log, sql: str, words: str) -> None:
        write(log, START)
        log.connection.execute(sql)
        assert verify(log) == []
        assert [str(finding) for finding in verify(log, projections=True)] == [words]

    def test_a_payload_that_nothing_can_hold_is_a_finding(self, log: Log) -> None:
        write(log, START)
        self.change_past_the_triggers(log, 'UPDATE events SET payload = \'{"issue":{"a":1}}\' WHERE position = 2')
        assert any(finding.table for finding in verify(log, projections=True))

    def test_the_head_stands_still_and_any_deletion_moves_it(self, log: Log) -> None:
        write(log, [*START, (OTHER, opened(30, 1418))])
        before = head(log)
        assert head(log) == before
        self.change_past_the_triggers(log, f"DELETE FROM streams WHERE stream = '{OTHER}'")
        assert head(log) == before
        self.change_past_the_triggers(log, f"DELETE FROM events WHERE stream = '{OTHER}'")
        assert head(log) != before
        assert verify(log) == []

    # processes

    @pytest.mark.slow
    def test_eight_processes_append_to_one_ledger(self, log: Log, url: str) -> None:
        told = spawned([(processes.append_many, (url, worker, 40)) for worker in range(8)])
        assert [error for _, _, error in told if error] == [], told
        acknowledged = [position for positions, _, _ in told for position in positions]
        assert len(acknowledged) == len(set(acknowledged)) == 8 * 40
        events = list(log.read_all())
        assert {e.position for e in events if e.type == "MachineObserved"} == set(acknowledged)
        assert [e.version for e in log.read(RUN)] == list(range(1, 8 * 20 + 1))
        assert verify(log, projections=True) == []

    @pytest.mark.parametrize("rounds", [15, pytest.param(50, marks=pytest.mark.slow)])
    def test_what_was_acknowledged_survives_a_kill(self, log: Log, url: str, rounds: int) -> None:
        (acknowledged,) = spawned([(processes.kill_rounds, (url, rounds, rounds))])
        events: list[Event] = list(log.read_all())
        assert len(acknowledged) >= 2 * rounds
        assert set(acknowledged) <= {e.position for e in events}
        assert len(log.read(RUN)) % 2 == 0, "an append of two is both or neither"
        assert verify(log, projections=True) == []
        log.source = SystemSource()
        assert log.append(RUN, log.state(RUN).version, [observed(10)])


def until(holds: Callable[[], bool]) -> None:
    """Until it holds: another database on the server may have a transaction under way. Raises where it never does."""
    for _ in range(200):
        if holds():
            return
        time.sleep(0.02)
    raise AssertionError


def spawned(jobs: list[tuple[Callable[..., None], tuple[object, ...]]]) -> list[Any]:
    """What each job, run in a process of its own, told at its end."""
    context = multiprocessing.get_context("spawn")
    running = []
    for job, arguments in jobs:
        here, there = context.Pipe(duplex=False)
        process = context.Process(target=job, args=(*arguments, there))
        process.start()
        there.close()
        running.append((process, here))
    told = [here.recv() for _, here in running]
    for process, here in running:
        process.join()
        process.close()
        here.close()
    return told
