"""Random scenarios: always the same ones, over the whole language, and the truths hold in each."""

from __future__ import annotations

from collections import Counter

import pytest
import yaml

from ledger.events import KINDS
from ledger.sim import schema
from ledger.sim.generate import document, generate, scenario_of, text_of
from ledger.sim.scenario import loads
from ledger.sim.schema import Scenario
from ledger.sim.search import search
from ledger.sim.shrink import shrink
from ledger.sim.universe import told

N = 500
SEED = 1
# What no poller or command of a rehearsal ever appends.
BY_HAND = {"HostKeyPinned", "BreachAcknowledged", "PolicyChanged", "SidecarEdited"}
REFUSALS = {"capacity", "quota", "unauthorized", "invalid", "name_taken", "cap", "absent"}


def test_a_scenario_is_the_same_whenever_it_is_made() -> None:
    assert [document(3, index) for index in range(20)] == [document(3, index) for index in range(20)]
    assert document(3, 0) != document(4, 0)


def test_a_scenario_survives_its_file() -> None:
    for index in range(30):
        made = document(5, index)
        assert yaml.safe_load(text_of(made)) == made
        assert scenario_of(made) == generate(5, index) == loads(text_of(made).encode(), made["scenario"])


def _words(scenario: Scenario) -> set[str]:
    """Every word of the language that a scenario uses."""
    words = {f"{rule.cloud} {rule.call}" for rule in scenario.calls}
    words |= {f"{rule.call} {rule.answer}" for rule in scenario.calls}
    words |= {f"effect {rule.effect.times} {bool(rule.effect.late)}" for rule in scenario.calls}
    words |= {f"becomes {row.becomes}" for row in scenario.world}
    words |= {f"sets {key}" for row in scenario.world for key in row.changes.fields}
    words |= {f"marker {row.marker}" for row in scenario.machines}
    words |= {f"marker {row.appears.marker}" for row in scenario.world if row.appears}
    words |= {f"dies {crash.point} {crash.call or ''}".strip() for crash in scenario.crashes}
    words |= {f"does {rule.does}" for rule in scenario.workloads}
    words |= {f"pollers {scenario.poll.pollers}", f"zones {len(scenario.zones)}"}
    words |= {f"{row.backend} {row.provisioning_model}" for row in scenario.dispatches}
    words |= {f"lane {row.lane}" for row in scenario.dispatches}
    for section in ("cancels", "finalizes", "sidecars", "pauses", "clocks"):
        if getattr(scenario, section):
            words.add(section)
    if scenario.poll.off:
        words.add("off")
    return words


def test_the_whole_language_is_spoken() -> None:
    said: set[str] = set()
    for index in range(600):
        said |= _words(generate(0, index))
    wanted = {f"{cloud} {call}" for cloud in schema.CLOUDS for call in schema.CALLS_OF[cloud]}
    wanted |= {
        f"list {answer}" for answer in schema.ANSWERS if answer not in ("no_capacity", "quota", "already_exists")
    }
    wanted |= {f"create {answer}" for answer in schema.ANSWERS if answer not in schema.LIST_ANSWERS}
    wanted |= {"effect 0 False", "effect 1 False", "effect 1 True", "effect 2 False"}
    wanted |= {f"becomes {status}" for status in ("gone", "RUNNING", "EXITED", "TERMINATED", "STOPPED", "REPAIRING")}
    wanted |= {
        f"sets {key}" for key in ("phase", "workload_started", "gpu_util", "log_age", "ports", "pid", "reachable")
    }
    wanted |= {f"marker {marker}" for marker in schema.MARKERS}
    wanted |= {f"dies before-call {call}" for call in schema.CALLS} | {
        f"dies after-call {call}" for call in schema.CALLS
    }
    wanted |= {"dies after-event", "dies during-projection", "does starts", "does never_starts"}
    wanted |= {"pollers 1", "pollers 2", "pollers 3", "zones 1", "zones 2", "zones 3"}
    wanted |= {*(f"gcp {model}" for model in (*schema.MODELS, None)), "runpod None", "lane b", "lane None"}
    wanted |= {"cancels", "finalizes", "sidecars", "pauses", "clocks", "off"}
    assert wanted - said == set()


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_truths_hold_in_random_scenarios_that_reach_everything() -> None:
    report = search(N, SEED, twice=10)
    assert [str(failure) for failure in report.failures] == []
    assert set(KINDS) - BY_HAND - set(report.counts["event"]) == set()
    assert REFUSALS - set(report.counts["refusal"]) == set()
    reasons = {"queue_timeout", "queue_vanish", "workload_failed", "boot_death", "no_port", "taken", "lost", "wedged"}
    assert reasons - set(report.counts["FailoverDecided"]) == set()
    assert {"ledger", "external"} - set(report.counts["TornDown"]) == set()
    assert {"0", "2", "75", "killed"} - set(report.counts["exit"]) == set()
    deaths = report.counts["death"]
    for point in ("before-call", "after-call", "after-event", "during-projection"):
        assert any(word.startswith(point) for word in deaths), point


def test_a_failure_is_shrunk_to_what_matters() -> None:
    made = next(
        document(0, index)
        for index in range(100)
        if len(document(0, index).get("calls", ())) > 2 and len(document(0, index).get("world", ())) > 1
    )
    kept = made["calls"][1]

    def fails(candidate: dict[str, object]) -> bool:
        scenario_of(candidate)
        calls = candidate.get("calls")
        return isinstance(calls, list) and any(row["answer"] == kept["answer"] for row in calls)

    small = shrink(made, fails)
    assert len(small["calls"]) == 1
    assert not small.get("world")
    assert small["policy"] == {}


def test_no_two_rows_set_one_machine_at_one_moment() -> None:
    for index in range(300):
        moments = [(row["name"], row["at"]) for row in document(6, index).get("world", ()) if "becomes" in row]
        assert len(moments) == len(set(moments))


def test_what_never_occurred_is_told() -> None:
    counts = told({"refusal": Counter({"capacity": 2})})
    assert counts["refusal"]["capacity"] == 2
    assert counts["refusal"]["name_taken"] == 0
    assert "after-event TornDown" in counts["death"]
    assert "gcp create no_capacity" in counts["answer"]
    assert "gcp list no_capacity" not in counts["answer"]
