"""What a sidecar says, event by event."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings

from ledger.projections.handle_file import TOP, sealed
from ledger.projections.sidecar import Projection, Tracker, attempt_name, project
from tests.projections.support import LEDGER, POD, SAMPLES, VM, Story, attempt, stories
from tests.strict_reader import Wrong, read

DRIVEN = [1417, 1418, 1739, 1776, 1777, 777]


def shown(story: Story, *, imported: bool = False) -> dict[str, Any]:
    """The sidecar now, which the strict reader has accepted."""
    projection = project(story.stream, story.events, LEDGER)
    assert projection.text is not None
    read(projection.name, projection.text, imported=imported)
    value: dict[str, Any] = json.loads(projection.text)
    return value


def queued() -> Story:
    return (
        Story()
        .opened()
        .requested(9.4)
        .provisioned(12, status="PENDING")
        .add("MachineObserved", 278.2, None, VM, status="PENDING", provisioning_model="FLEX_START", source="list")
    )


def on_a_pod() -> Story:
    """The #1417 history, healed: gone from the queue, a pod in its place, the workload on it."""
    story = queued().add("AbsenceObserved", 400, None, VM, scope="both", account="example-gpu-project")
    story.add("FailoverDecided", 400, None, VM, reason="queue_vanish", from_=VM, next_rung="runpod")
    return story.requested(2408, 2, "runpod").provisioned(2410, 2, POD, cost_per_hour=9.96)


def test_a_queued_instance() -> None:
    value = shown(queued())
    assert tuple(sorted(value)) == TOP
    assert value["backend"] == "gcp"
    assert value["job_id"] == "5513402277619834112"
    assert value["pod_name"] == "eps-issue-1417"
    extra = value["extra"]
    name = f"att-20260718-001511-{attempt(1)[:6]}"
    assert extra.pop("ledger")["state"] == "queued"
    assert extra == {
        "issue": 1417,
        "workload_cmd": "bash scripts/issue1417_dispatch.sh",
        "hydra_args": [],
        "gpus": 4,
        "gpu_count": 4,
        "requested_gpus": 4,
        "time_budget_hours": 12.0,
        "expected_artifacts": {
            "issue": 1417,
            "sentinel_path": f"/workspace/eps-issue-1417/eval_results/issue_1417/{name}/.completion-sentinel.json",
        },
        "project": "example-gpu-project",
        "zone": "us-central1-a",
        "instance_name": "eps-issue-1417",
        "attempt_id": name,
        "provisioning_model": "FLEX_START",
        "gcp_ladder_rung": "gcp:FLEX_START",
        "gcp_launched_ts": 1784333711.4,
        "reconnected": False,
        "last_phase": "pending",
        "last_phase_change_ts": 1784333714.0,
        "last_phase_incarnation": "5513402277619834112",
    }


def test_all_pins_are_on_it_and_empty_ones_are_left_out() -> None:
    pins: dict[str, Any] = {
        "intent": "ft-7b",
        "repo_branch": "b",
        "boot_disk_gb": 500,
        "min_ram_gb": 0,
        "env_pins": {"A": "1"},
    }
    artifacts = {"git_paths": ["x/"], "wandb_run_path": None, "sentinel_path": "elsewhere"}
    value = shown(Story().opened(expected_artifacts=artifacts, **pins).requested(1))
    extra = value["extra"]
    assert {key: extra.get(key) for key in pins} == {**pins, "min_ram_gb": None}
    assert extra["expected_artifacts"]["git_paths"] == ["x/"]
    assert extra["attempt_id"] in extra["expected_artifacts"]["sentinel_path"]
    bare = shown(Story().opened(gpus=None, time_budget_hours=None).requested(1))["extra"]
    assert bare["gpus"] is None
    assert bare["time_budget_hours"] is None
    assert not {"intent", "repo_branch", "env_pins", "boot_disk_gb", "gpu_count"} & set(bare)


def test_before_a_machine_is_known_its_ids_are_empty() -> None:
    story = Story().opened().requested(1).add("ProvisionUnresolved", 300, 1, error_class="timeout")
    value = shown(story)
    assert (value["job_id"], value["pod_name"]) == ("", "eps-issue-1417")
    assert value["extra"]["ledger"]["state"] == "provisioning"
    assert "last_phase" not in value["extra"]
    pod = shown(Story().opened(rung="runpod").requested(1, backend="runpod"))
    assert (pod["backend"], pod["job_id"], pod["pod_name"]) == ("runpod", "", "pod-1417")
    assert "pod_id" not in pod["extra"]


def test_with_every_create_refused_there_is_none() -> None:
    story = Story().opened()
    assert project(story.stream, story.events, LEDGER).text is None
    story.requested(1)
    assert project(story.stream, story.events, LEDGER).text is not None
    story.add("ProvisionRefused", 2, 1, **{"class": "capacity", "zone": "us-central1-a"})
    assert project(story.stream, story.events, LEDGER).text is None
    story.requested(3, try_=2, zone="us-central1-c")
    miss = shown(story)["extra"]["per_zone_attempts"]
    assert miss == [
        {
            "zone": "us-central1-a",
            "returncode": 1,
            "matched_pattern": "capacity",
            "elapsed_s": 1.0,
            "stderr_tail": "",
        }
    ]


def test_a_failover_names_what_it_has_in_hand_and_then_nothing_of_the_old_machine() -> None:
    story = on_a_pod()
    value = shown(story)
    assert value["backend"] == "gcp"
    assert value["extra"]["ledger"]["state"] == "failing_over"
    assert value["extra"]["ledger"]["next"] == POD
    story.add("LaunchConfirmed", 2500, 2, POD, source="probe", pid=2417, log_bytes=1)
    story.add("Repointed", 2500, 2, POD, from_=VM, to=POD)
    value = shown(story)
    assert (value["backend"], value["job_id"], value["pod_name"]) == ("runpod", "", "pod-1417")
    assert value["scratch_dir"] == "/workspace"
    extra = value["extra"]
    assert extra["ledger"]["state"] == "running"
    assert "next" not in extra["ledger"]
    assert extra["pod_id"] == "q7w2exampleid"
    assert extra["workload_executed"] is True
    assert extra["workload_pid"] == 2417
    assert extra["runpod_attempt_id"] == f"rp-20260718T005510Z-{attempt(2)[:4]}"
    assert extra["workload_cmd"] == "bash scripts/issue1417_dispatch.sh"
    assert not [key for key in extra if key.startswith(("last_phase", "gcp_", "zone", "provisioning"))]


def test_next_is_left_out_until_there_is_one() -> None:
    story = queued().add("FailoverDecided", 700, None, VM, reason="queue_timeout", from_=VM)
    assert "next" not in shown(story)["extra"]["ledger"]
    assert "next" not in shown(story.requested(701, 2, "runpod"))["extra"]["ledger"]


def test_a_launch_that_failed_says_so() -> None:
    story = Story().opened(rung="runpod").requested(1, backend="runpod").provisioned(2, 1, POD)
    assert shown(story)["extra"]["workload_executed"] is False
    assert shown(story)["extra"]["ledger"]["state"] == "launching"
    story.add("LaunchFailed", 1900, 1, POD, reason="launch_unconfirmed", probe="x")
    extra = shown(story)["extra"]
    assert (extra["workload_executed"], extra["workload_start_error"]) == (False, "launch_unconfirmed")
    assert extra["ledger"]["state"] == "closing"
    story.add("LaunchConfirmed", 1950, 1, POD, source="probe", pid=7)
    assert "workload_start_error" not in shown(story)["extra"]


def test_a_reconnect_states_what_lives_and_resets_no_clock() -> None:
    before = shown(queued())
    story = queued().add("ReconnectObserved", 360, None, VM, status="PENDING", provisioning_model="FLEX_START")
    after = shown(story)
    assert after["extra"]["reconnected"] is True
    assert after["extra"]["status_at_reconnect"] == "PENDING"
    for key in ("gcp_launched_ts", "last_phase_change_ts", "last_phase", "provisioning_model", "gcp_ladder_rung"):
        assert after["extra"][key] == before["extra"][key]


@pytest.mark.parametrize(
    ("seen", "asked", "rung", "wanted"),
    [
        ("STANDARD", "FLEX_START", "gcp:FLEX_START", "STANDARD"),
        (None, "SPOT", "gcp:FLEX_START", "SPOT"),
        (None, None, "gcp:FLEX_START", "FLEX_START"),
        (None, None, "gcp", "STANDARD"),
    ],
)
def test_the_model_is_observed_else_asked_else_pinned_else_the_default(
    seen: str | None, asked: str | None, rung: str, wanted: str
) -> None:
    story = Story().opened().requested(1, provisioning_model=asked, rung=rung)
    story.provisioned(2, provisioning_model=seen, status="PENDING")
    assert shown(story)["extra"]["provisioning_model"] == wanted


@pytest.mark.parametrize(
    ("status", "guest", "label"),
    [
        ("PENDING", None, "pending"),
        ("STAGING", None, "staging"),
        ("RUNNING", None, "running"),
        ("RUNNING", "workload", "workload"),
        ("STOPPING", "workload", "stopping"),
        ("TERMINATED", "workload", "terminal_terminated"),
        ("WHATEVER", None, "unknown_whatever"),
    ],
)
def test_phases(status: str, guest: str | None, label: str) -> None:
    story = queued().add("MachineObserved", 600, None, VM, status=status, phase=guest, source="list")
    assert shown(story)["extra"]["last_phase"] == label


def test_clocks_come_from_this_machine_alone() -> None:
    story = queued().add("MachineObserved", 300, None, VM, status="RUNNING", phase="workload", source="list")
    story.add("RunClosed", 900, outcome="failed", reason="x")
    assert project(story.stream, story.events, LEDGER).text is None
    other = "gcp:example-gpu-project/us-central1-a/99"
    story.opened(1000).requested(1001, 2).provisioned(1002, 2, other)
    extra = shown(story)["extra"]
    assert not [key for key in extra if key.startswith("last_phase")]
    story.add("MachineObserved", 1010, None, other, status="PENDING", source="list")
    assert shown(story)["extra"]["last_phase_incarnation"] == "99"


def test_a_lane_has_its_own_file_and_the_issues_paths() -> None:
    story = Story(923, "armb").opened().requested(1)
    value = shown(story)
    assert project(story.stream, story.events, LEDGER).name == "issue-923-armb-handle.json"
    assert value["pod_name"] == "eps-issue-923-armb"
    assert value["log_path"] == "/workspace/logs/issue-923.log"
    assert value["scratch_dir"] == "/workspace/eps-issue-923"


@pytest.mark.parametrize("issue", DRIVEN)
def test_an_imported_file_keeps_its_bytes(issue: int) -> None:
    name = f"issue-{issue}-handle.json"
    story = Story(issue).imported(0, name)
    text = project(story.stream, story.events, LEDGER).text
    assert text is not None
    value = json.loads(text)
    assert sealed(value)
    del value["extra"]["ledger"]
    assert json.dumps(value, sort_keys=True, indent=2) == (SAMPLES / name).read_text().rstrip("\n")


@pytest.mark.parametrize("issue", [1417, 1418, 1739, 1776, 1777, 777])
def test_an_imported_file_is_still_what_its_readers_take(issue: int) -> None:
    if issue == 777:
        story = Story(777).imported(0, "issue-777-handle.json")
        projection = project(story.stream, story.events, LEDGER)
        read(projection.name, projection.text or "", imported=True)
        return
    shown(Story(issue).imported(0, f"issue-{issue}-handle.json"), imported=True)


def test_an_imported_file_takes_in_what_was_learned() -> None:
    machine = "gcp:example-gpu-project/us-central1-c/7740021934501882299"
    story = Story(1777).imported(0, "issue-1777-handle.json")
    story.add("MachineObserved", 5, None, machine, status="PENDING", provisioning_model="FLEX_START", source="list")
    extra = shown(story, imported=True)["extra"]
    assert extra["provisioning_model"] == "FLEX_START"
    assert extra["last_phase"] == "pending"
    assert extra["attempt_id"] == "att-20260730-184102"


def test_an_imported_clock_keeps_its_digits_until_the_phase_moves() -> None:
    text = (SAMPLES / "issue-1417-handle.json").read_text().replace("1784333980.2", "1784333980.2345678")
    story = Story().imported_text(0, text)
    story.add("MachineObserved", 300, None, VM, status="PENDING", source="list")
    assert shown(story)["extra"]["last_phase_change_ts"] == 1784333980.2345678
    story.add("MachineObserved", 330, None, VM, status="STAGING", source="list")
    assert shown(story)["extra"]["last_phase_change_ts"] == 1784334032.0


def test_a_repointed_import_keeps_its_pins_and_nothing_of_the_old_machine() -> None:
    text = (SAMPLES / "issue-1417-handle.json").read_text().replace('"gpus": 4', '"zz_unknown": [1], "gpus": 4')
    story = Story().imported_text(0, text)
    story.add("FailoverDecided", 10, None, VM, reason="queue_vanish", from_=VM)
    story.requested(11, 2, "runpod").provisioned(12, 2, POD)
    story.add("LaunchConfirmed", 50, 2, POD, source="probe", pid=3)
    story.add("Repointed", 50, 2, POD, from_=VM, to=POD)
    extra = shown(story)["extra"]
    old = json.loads(text)["extra"]
    for key in ("workload_cmd", "intent", "gpus", "time_budget_hours", "repo_branch", "zz_unknown"):
        assert extra[key] == old[key]
    assert extra["expected_artifacts"]["git_paths"] == ["eval_results/issue_1417/"]
    assert not [key for key in extra if key.startswith(("last_phase", "gcp_", "zone", "gcloud", "machine_type"))]


def test_a_slurm_handle_is_kept_as_it_is() -> None:
    story = Story(640).imported(0, "issue-640-handle.json")
    value = shown(story)
    old = json.loads((SAMPLES / "issue-640-handle.json").read_text())
    assert value["extra"].pop("ledger")["state"] == "not_driven"
    assert value == old


def test_unknown_keys_are_kept_and_owned_ones_are_not_believed() -> None:
    story = queued().add("SidecarEdited", 300, added={"mine": [1], "last_phase": "lie", "pod_id": "x"}, changed={})
    extra = shown(story)["extra"]
    assert extra["mine"] == [1]
    assert extra["last_phase"] == "pending"
    assert "pod_id" not in extra


def test_bytes_stand_still_where_nothing_changed() -> None:
    story = queued()
    before = project(story.stream, story.events, LEDGER)
    story.add("MachineObserved", 400, None, VM, status="PENDING", suspect=1, gpus="idle", source="list")
    story.add("AbsenceObserved", 401, None, VM, scope="describe", account="a")
    after = project(story.stream, story.events, LEDGER)
    assert after == before
    assert before.version == 3
    assert before.position == 103


def test_a_time_beyond_the_calendar_still_gives_a_name() -> None:
    assert attempt_name("gcp", attempt(1), 10**18 * 10**6).startswith("att-9999")
    assert attempt_name("runpod", attempt(1), -5).startswith("rp-19700101T000000Z-")


@settings(max_examples=150, deadline=None)
@given(stories())
def test_every_state_is_what_the_strict_reader_takes(story: Story) -> None:
    tracker = Tracker(story.stream, LEDGER)
    texts: list[Projection] = []
    for event in story.events:
        texts.append(tracker.follow([event]).projection())
        if texts[-1].text is not None:
            read(texts[-1].name, texts[-1].text, imported=tracker.run.imported is not None)
    assert texts[-1] == project(story.stream, story.events, LEDGER)


def test_the_strict_reader_is_strict() -> None:
    text = project("issue-1417", queued().events, LEDGER).text
    assert text is not None
    good = json.loads(text)
    for spoil in ({"eighth": 1}, {"job_id": 5}, {"extra": {**good["extra"], "zone": None}}):
        with pytest.raises((Wrong, TypeError)):
            read("issue-1417-handle.json", json.dumps({**good, **spoil}, sort_keys=True, indent=2))
    with pytest.raises(Wrong):
        read("issue-1418-handle.json", text)
