"""The rehearsal as a whole, with a ledger that is a few lines long."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from ledger.clouds.values import Absent, Accepted, Listing
from ledger.moments import MICROS
from ledger.sim.rehearse import Bench, Ledger, Outcome, Program, rehearse
from ledger.sim.schema import Dispatch, Scenario
from ledger.source import Source, uuid4, uuid7
from tests.sim.making import LATE, LAUNCH, pod, scenario, spec


@dataclass
class Small:
    """A ledger that creates what is dispatched, launches what it lists, and writes down what it does."""

    sidecars: Path
    ledger_id: str
    log: list[dict[str, Any]] = field(default_factory=list)
    closed: bool = False
    broken: set[str] = field(default_factory=set)
    seen: set[str] = field(default_factory=set)

    def edges(self, bench: Bench) -> Bench:
        bench.say("begins")
        return bench

    def append(self, edges: Bench, *types: str, **payload: Any) -> None:
        edges.hooks.before_append()
        for event_type in types:
            self.log.append(
                {
                    "position": len(self.log) + 1,
                    "type": event_type,
                    "payload": payload,
                    "event_id": uuid7(edges.source),
                    "at": (edges.source.now(), edges.source.steady()),
                    "holder": edges.holder,
                }
            )
        edges.hooks.after_event(*types)

    def import_sidecars(self, edges: Bench, files: Sequence[Path]) -> None:
        for path in files:
            self.append(edges, "HandleImported", file=path.name, mtime=path.stat().st_mtime)

    def dispatch(self, edges: Bench, row: Dispatch) -> int:
        cloud = edges.clouds[0 if row.backend == "gcp" else 1]
        asked = pod(f"pod-{row.issue}") if row.backend == "runpod" else spec(f"eps-issue-{row.issue}")
        self.append(edges, "ProvisionRequested", backend=row.backend)
        answer = cloud.create(asked, send_before=LATE, timeout=300)
        if not isinstance(answer, Accepted) or answer.seen is None:
            self.append(edges, "ProvisionUnresolved")
            return 75
        self.append(edges, "Provisioned", machine=answer.seen.machine)
        self.write(edges, row.issue, answer.seen.machine)
        return 0

    def write(self, edges: Bench, issue: int, machine: str) -> None:
        path = self.sidecars / f"issue-{issue}-handle.json"
        temporary = path.with_suffix(".new")
        gcp = machine.startswith("gcp")
        content = {
            "backend": "gcp" if gcp else "runpod",
            "job_id": machine.rpartition("/")[2] if gcp else "",
            "extra": {"issue": issue, **({} if gcp else {"pod_id": machine.partition(":")[2]})},
        }
        temporary.write_text(json.dumps(content))
        edges.hooks.during_projection()
        temporary.rename(path)

    def cancel(self, edges: Bench, issue: int, lane: str | None) -> int:
        return self.end(edges, issue, "CancelRequested")

    def finalize(self, edges: Bench, issue: int, lane: str | None) -> int:
        return self.end(edges, issue, "RunClosed")

    def end(self, edges: Bench, issue: int, event_type: str) -> int:
        self.append(edges, event_type, issue=issue)
        for event in list(self.log):
            if event["type"] == "Provisioned":
                machine = event["payload"]["machine"]
                cloud = edges.clouds[0 if machine.startswith("gcp") else 1]
                answer = cloud.delete(machine, send_before=LATE, timeout=30)
                assert isinstance(answer, Accepted | Absent)
        (self.sidecars / f"issue-{issue}-handle.json").unlink(missing_ok=True)
        return 0

    def tick(self, edges: Bench) -> Sequence[tuple[str, Mapping[str, Any]]]:
        self.append(edges, "InventoryRead")
        listings = edges.together([partial(cloud.list_all, timeout=30) for cloud in edges.clouds], 60)
        lines = []
        for listing in listings:
            for seen in listing.machines if isinstance(listing, Listing) else ():
                if seen.backend == "runpod" and seen.ports:
                    edges.clouds[1].launch(seen.machine, LAUNCH, send_before=LATE, timeout=30)
                lines.append(("issue-1", {"status": "running", "current_phase": seen.status.lower()}))
        return lines

    def audit(self, now: int) -> set[str]:
        return self.broken | ({"unwatched"} if now % (120 * MICROS) else set())

    def watch(self, now: int) -> None:
        self.seen |= self.audit(now)

    def watched(self) -> set[str]:
        return self.seen

    def events(self) -> Sequence[Mapping[str, Any]]:
        return self.log

    def runs(self) -> Mapping[str, tuple[str, str | None]]:
        return {"issue-1": ("active", None)}

    def wrong_files(self) -> Mapping[str, str]:
        return {}

    def proof(self) -> None:
        return None

    def close(self) -> None:
        self.closed = True


@dataclass
class SmallProgram:
    opened: list[Small] = field(default_factory=list)

    def open(self, folder: Path, source: Source, scenario: Scenario) -> Ledger[Bench]:
        (folder / "sidecars").mkdir()
        self.opened.append(Small(folder / "sidecars", uuid4(source)))
        return self.opened[-1]


def play(text: str, expect: str = "{}", seed: int = 0, keep: Path | None = None) -> Outcome:
    program: Program[Bench] = SmallProgram()
    return rehearse(scenario(text, expect), seed, program, keep)


def log(outcome: Outcome) -> list[tuple[float, str, str]]:
    start = scenario().start
    return [((e["at"][0] - start) / MICROS, e["holder"], e["type"]) for e in outcome.facts.events]


POD = "dispatches: [{at: 0, issue: 1, backend: runpod, gpu_type: H100, gpus: 1, workload_cmd: x}]\n"


def test_a_rehearsal_from_dispatch_to_verdict(tmp_path: Path) -> None:
    outcome = play(
        POD + "poll: {until: 240}\n",
        "\n  live: [runpod/pod-1]\n  created: {runpod: 1}\n  max_unlaunched_seconds: 80\n  exits: [0]\n"
        "  poll: {status: running}\n  audit: {open: [], ever: [unwatched]}\n  handle: {backend: runpod}\n"
        "  run: active\n",
        keep=tmp_path / "kept",
    )
    assert outcome.failures == ()
    told = json.loads(json.dumps(outcome.to_json()))
    assert set(told) == {
        "scenario",
        "held",
        "failures",
        "events",
        "handles",
        "world",
        "audit",
        "ticks",
        "wall_seconds",
    }
    assert (told["ticks"], told["held"], told["audit"]) == (4, True, {"open": [], "ever": ["unwatched"]})
    assert told["handles"]["issue-1"]["backend"] == "runpod"
    assert told["world"]["max_unlaunched_seconds"] == 80
    assert json.loads((tmp_path / "kept" / "world.json").read_text()) == told["world"]
    assert ("begins") in {text for _, _, text in outcome.said}


def test_what_does_not_hold_is_told_with_its_line() -> None:
    outcome = play(POD + "poll: {until: 60}", "\n  live: []\n  max_unlaunched_seconds: 59\n")
    assert [(f.key, f.line, f.actual) for f in outcome.failures] == [
        ("live", 3, ["runpod/pod-1"]),
        ("max_unlaunched_seconds", 4, 60.0),
    ]
    assert not outcome.held


def test_ticks_go_up_to_and_including_the_end_and_not_while_nobody_polls() -> None:
    outcome = play("poll: {every: 60, until: 360, off: [[120, 240]]}")
    assert [when for when, _, _ in log(outcome)] == [60, 240, 300, 360]


def test_order_at_one_second_is_world_dispatches_cancels_finalizes_ticks() -> None:
    outcome = play(
        "poll: {every: 60, until: 60}\nfinalizes: [{at: 60, issue: 9}]\ncancels: [{at: 60, issue: 8}]\n"
        "machines: [{cloud: runpod, name: pod-7, id: a}]\nworld: [{at: 60, cloud: runpod, id: a, becomes: gone}]\n"
        + POD.replace("at: 0", "at: 60")
    )
    assert [what for _, _, what in log(outcome)] == [
        "ProvisionRequested",
        "Provisioned",
        "CancelRequested",
        "RunClosed",
        "InventoryRead",
    ]
    assert outcome.facts.deleted == {"runpod/pod-1": 2}


def test_what_falls_due_while_a_tick_takes_its_time_runs_right_after_it_once() -> None:
    outcome = play("poll: {every: 60, until: 400}\ncalls: [{cloud: gcp, call: list, nth: 1, takes: 250}]")
    # The call takes no longer than its time-out of 30 s, so nothing is late.
    assert [when for when, _, _ in log(outcome)] == [60, 120, 180, 240, 300, 360]
    outcome = play("poll: {every: 10, until: 60}\ncalls: [{cloud: gcp, call: list, nth: 1, takes: 25}]")
    assert [when for when, _, _ in log(outcome)] == [10, 35, 40, 50, 60]
    assert outcome.ticks == 5


def test_the_world_and_the_others_go_on_during_a_call() -> None:
    outcome = play(
        "poll: {every: 60, until: 400}\n" + POD + "calls: [{cloud: runpod, call: create, nth: 1, takes: 300}]",
    )
    steps = log(outcome)
    assert (300, "dispatch-1", "Provisioned") in steps
    assert [when for when, _, what in steps if what == "InventoryRead"] == [60, 120, 180, 240, 300, 360]
    assert outcome.facts.max_unlaunched_seconds == 80


def test_a_dispatch_that_dies_has_no_status_and_a_poller_that_dies_comes_back_anew() -> None:
    outcome = play(
        "poll: {every: 60, until: 180}\n"
        + POD
        + "crashes: [{after: event, type: Provisioned}, {after: event, type: InventoryRead, nth: 2}]",
        "{exits: [null], handle: null}",
    )
    assert outcome.held
    assert {holder for _, holder, _ in log(outcome)} == {"dispatch-1", "poller-1-1", "poller-1-2"}
    assert outcome.ticks == 3


def test_a_death_between_file_and_rename() -> None:
    outcome = play(POD + "poll: {until: 0}\ncrashes: [{during: projection}]", "{handle: null, exits: []}")
    assert outcome.held


def test_stale_sidecars_are_measured_at_tick_ends() -> None:
    outcome = play(POD + "poll: {until: 200}\nworld: [{at: 100, cloud: runpod, name: pod-1, becomes: gone}]")
    assert outcome.facts.max_stale_seconds == 80


SIDECAR = (
    "sidecars: [{backend: runpod, cluster: null, job_id: '', pod_name: pod-1, scratch_dir: /w, log_path: /l,"
    " extra: {issue: 1, pod_id: px1}}]\n"
)


def test_legacy_files_are_imported_first_and_are_the_same_each_time() -> None:
    outcome = play(SIDECAR + POD + "poll: {until: 60}\nmachines: [{cloud: runpod, name: pod-1, id: px1}]")
    assert outcome.facts.events[0]["type"] == "HandleImported"
    assert outcome.facts.events[0]["payload"]["mtime"] * MICROS == scenario().start
    assert outcome.facts.max_double_seconds == 60


def test_clocks_jump_for_their_poller_only() -> None:
    outcome = play(
        "poll: {until: 120, pollers: 2}\nclocks: [{at: 100, poller: 2, by: 86400}]\n",
    )
    assert sorted(log(outcome)) == [
        (60, "poller-1-1", "InventoryRead"),
        (60, "poller-2-1", "InventoryRead"),
        (120, "poller-1-1", "InventoryRead"),
        (86520, "poller-2-1", "InventoryRead"),
    ]
    assert {event["at"][1] for event in outcome.facts.events} == {60.0, 120.0}


TWO = POD + "poll: {until: 600, pollers: 2}\ncrashes: [{after: call, cloud: runpod, call: list, nth: 3}]"


def test_a_second_run_with_the_same_seed_is_the_same() -> None:
    def told(seed: int) -> Any:
        outcome = play(TWO, seed=seed)
        return [dict(event) for event in outcome.facts.events]

    assert [told(seed) for seed in range(5)] == [told(seed) for seed in range(5)]
    orders = {tuple(event["holder"] for event in told(seed)) for seed in range(8)}
    assert len(orders) > 2


def test_what_the_program_raises_is_raised_and_nothing_is_left(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    program = SmallProgram()
    monkeypatch.setattr(Small, "tick", lambda self, edges: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        rehearse(scenario("poll: {until: 60}"), 0, program)
    assert program.opened[0].closed
    assert list(tmp_path.iterdir()) == []


def test_a_paused_poller_goes_on_in_ignorance_and_the_other_does_not_wait() -> None:
    outcome = play(
        "poll: {every: 60, until: 300, pollers: 2}\n"
        "pauses: [{poller: 1, before: call, cloud: gcp, call: list, nth: 1, for: 150}]",
        seed=next(s for s in range(20) if _first_lister(s) == "poller-1-1"),
    )
    mine = [when for when, holder, _ in log(outcome) if holder.startswith("poller-1")]
    others = [when for when, holder, _ in log(outcome) if holder.startswith("poller-2")]
    assert mine == [60, 210, 240, 300]
    assert others == [60, 120, 180, 240, 300]


def _first_lister(seed: int) -> str:
    """Who makes the first list of instances under that seed; the pause is of poller 1 only if it is the first."""
    outcome = play(
        "poll: {every: 60, until: 60, pollers: 2}\ncrashes: [{after: call, cloud: gcp, call: list, nth: 1}]"
        "\nworkloads: []",
        seed=seed,
    )
    ended = {holder for _, holder, text in outcome.said if text == "begins"}
    assert ended == {"poller-1-1", "poller-2-1"}
    again = play(
        "poll: {every: 60, until: 120, pollers: 2}\ncrashes: [{before: call, cloud: gcp, call: list}]", seed=seed
    )
    lives = {holder for _, holder, _ in log(again)}
    return "poller-1-1" if "poller-1-2" in lives else "poller-2-1"
