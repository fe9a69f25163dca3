"""What the reports on #1417 and #1776 asked to be pinned, through the scripts that existing callers run."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.poller.conftest import MakeScene, make_scene, memory
from tests.poller.scene import ROOT, Scene

__all__ = ["make_scene", "memory"]

VANISHES = "world: [{at: 300, cloud: gcp, name: eps-issue-1417, becomes: gone}]\n"
LAUNCH = ("launch", "--issue", 1417, "--intent", "ft-7b", "--workload-cmd", "bash run.sh")


def _launch(scene: Scene, *more: object, status: int = 0) -> dict[str, Any]:
    launched = scene.dispatch_issue(*LAUNCH, *more)
    assert launched.status == status, launched
    return launched.line


def _poll(scene: Scene, ticks: int, every: float = 60.0) -> list[dict[str, Any]]:
    lines = []
    for _ in range(ticks):
        scene.host.advance(every)
        polled = scene.backend_poll(1417)
        assert polled.status == 0, polled
        lines.append(polled.line)
    return lines


def _ever(scene: Scene) -> set[str]:
    audit = scene("audit", "--history", "--json").json
    return {breach["invariant"] for breach in (*audit["open"], *audit["past"])}


def test_a_queue_vanish_failover_re_points_the_handle_to_runpod(make_scene: MakeScene) -> None:
    """a queue-vanish failover re-points the handle to runpod"""
    scene = make_scene(VANISHES)
    launched = _launch(scene)
    assert (launched["ok"], launched["chosen_kind"], launched["workload_dispatched"]) == (True, "gcp", True)
    lines = _poll(scene, 8)
    assert [line["current_phase"] for line in lines] == [
        *["pending"] * 4,
        *["gcp_queue_vanish_failover_runpod"] * 2,
        *["workload"] * 2,
    ]
    handle = scene.handle()
    assert handle is not None
    assert (handle["backend"], handle["pod_name"], handle["job_id"]) == ("runpod", "pod-1417", "")
    assert handle["extra"]["workload_executed"] is True
    assert not {"zone", "provisioning_model", "last_phase"} & set(handle["extra"])
    assert scene.live() == ["runpod/pod-1417"]
    assert scene.types("issue-1417")[-2:] == ["LaunchConfirmed", "Repointed"]
    assert scene("audit").status == 0


def test_a_failover_whose_launch_is_unconfirmed_tears_the_pod_down(make_scene: MakeScene) -> None:
    """a failover whose launch is unconfirmed tears the pod down"""
    scene = make_scene(
        f"{VANISHES}workloads: [{{cloud: runpod, does: never_starts}}]", policy=["launch_confirm_seconds = 600"]
    )
    _launch(scene)
    lines = _poll(scene, 18)
    dead = next(line for line in lines if line["status"] == "dead")
    assert dead["current_phase"] == "terminal_runpod_workload_start_failed"
    assert (dead["reason"], dead["failure_class"], dead["issue"]) == ("runpod_workload_start_failed", "infra", 1417)
    assert scene.live() == []
    assert scene.host.report()["deleted"]["runpod/pod-1417"] == 1
    assert scene.handle() is None
    types = scene.types("issue-1417")
    assert types[types.index("LaunchFailed") :] == [
        "LaunchFailed",
        "TeardownRequested",
        "AbsenceObserved",
        "TornDown",
        "RunClosed",
    ]


def test_an_idle_pod_with_a_stale_gcp_handle_is_detected_as_an_orphan(make_scene: MakeScene) -> None:
    """an idle pod with a stale gcp handle is detected as an orphan"""
    orphan = "{cloud: runpod, name: pod-1417, id: old1, created: -3600, status: RUNNING, gpu_util: 0}"
    scene = make_scene(f"{VANISHES}machines: [{orphan}]")
    _launch(scene)
    _poll(scene, 6)
    audit = scene("audit", "--json")
    assert audit.status == 1
    [breach] = [b for b in audit.json["open"] if b["invariant"] == "unledgered-machine"]
    assert (breach["machine"], breach["run"]) == ("runpod:old1", "issue-1417")
    assert breach["cost_per_hour"] > 0
    reconciled = scene("reconcile", "--json")
    assert reconciled.status == 1
    assert [(f["kind"], f["machine"]) for f in reconciled.json["findings"]] == [("orphan", "runpod:old1")]
    _poll(scene, 20)
    assert scene.live() == ["runpod/pod-1417"]  # the run's own; the orphan was idle for its grace, and is gone
    assert scene.host.report()["deleted"] == {"runpod/pod-1417": 1}
    assert scene("audit").status == 0


def test_a_reconnect_to_a_flex_start_instance_writes_flex_start_and_the_queue_timeout_gate_is_armed(
    make_scene: MakeScene,
) -> None:
    """a reconnect to a FLEX_START instance writes FLEX_START and the queue-timeout gate is armed"""
    scene = make_scene("calls: [{cloud: gcp, call: create, nth: 1, takes: 300, answer: timeout, effect: done}]")
    waiting = _launch(scene, status=75)
    assert set(waiting) == {"ok", "still_waiting", "rerun", "reason", "instance_name", "instance_status", "note"}
    assert (waiting["ok"], waiting["still_waiting"], waiting["rerun"]) == (False, True, True)
    assert waiting["reason"] == "gcloud_create_timeout_still_provisioning"
    scene.host.advance(20)
    again = _launch(scene, "--backend", "gcp")  # a bare re-run: the default model is STANDARD
    assert (again["ok"], again["reconnected"], again["chosen_kind"]) == (True, True, "gcp")
    handle = scene.handle()
    assert handle is not None
    assert handle["extra"]["provisioning_model"] == "FLEX_START"
    assert handle["extra"]["reconnected"] is True
    assert handle["extra"]["status_at_reconnect"] == "PENDING"
    lines = _poll(scene, 6)  # 600 s after the first request the queue's time is over, whatever was run again since
    assert [line["current_phase"] for line in lines[:4]] == ["pending"] * 4
    assert lines[5]["current_phase"] == "gcp_queue_timeout_failover_runpod"
    assert scene.host.report()["deleted"]["gcp/eps-issue-1417"] == 1


def test_no_sidecar(make_scene: MakeScene) -> None:
    line = make_scene().backend_poll(1417).line
    assert (line["status"], line["current_phase"], line["reason"]) == (
        "dead",
        "missing-sidecar",
        "missing_handle_sidecar",
    )


def test_a_sidecar_that_was_not_taken_over(make_scene: MakeScene) -> None:
    scene = make_scene()
    sample = (ROOT / "tests" / "sidecars" / "issue-1417-handle.json").read_text(encoding="utf-8")
    path = scene.folder / "handles" / "issue-1417-handle.json"
    path.write_text(sample, encoding="utf-8")
    line = scene.backend_poll(1417).line
    assert line["status"] == "stalled"
    assert "ledger import" in line["stall_reason"]
    assert scene("import", path).status == 0
    assert scene.backend_poll(1417, "--handle-file", path).line["status"] in ("running", "stalled", "dead")


def test_a_handle_file_says_the_lane_and_the_folder(make_scene: MakeScene) -> None:
    scene = make_scene()
    scene("dispatch", "--issue", 1417, "--lane", "b", "--intent", "ft-7b", "--workload-cmd", "x")
    path = scene.folder / "handles" / "issue-1417-b-handle.json"
    elsewhere = Scene(scene.folder.parent, scene.host, scene.source, scene.capsys)
    assert elsewhere.backend_poll(1417, "--handle-file", path).line["current_phase"] == "pending"
    wrong = elsewhere.backend_poll(1418, "--handle-file", path).line
    assert (wrong["status"], wrong["stall_reason"]) == (
        "stalled",
        "issue-1417-b-handle.json is not a handle of issue 1418",
    )


def test_a_run_that_is_closed_says_so_for_ever(make_scene: MakeScene) -> None:
    scene = make_scene()
    _launch(scene)
    scene("cancel", 1417)
    lines = _poll(scene, 5)
    assert {line["status"] for line in lines} == {"dead"}
    assert [line["current_phase"] for line in lines[-2:]] == ["terminal_cancelled"] * 2


@pytest.mark.parametrize(
    ("harm", "word"),
    [
        ("no ledger", "ledger init"),
        ("no database", "ledger init"),
        ("garbage", "not a ledger database"),
        ("bad settings", "ledger.toml"),
        ("a world that is gone", "does not answer"),
        ("usage", "--issue"),
    ],
)
def test_whatever_is_wrong_there_is_one_line(harm: str, word: str, make_scene: MakeScene) -> None:
    scene = make_scene()
    database, argv = scene.folder / "ledger.db", ["--issue", "1417"]
    env: dict[str, str] = {}
    if harm == "no ledger":
        (scene.folder / "ledger.toml").unlink()
    elif harm == "no database":
        database.unlink()
    elif harm == "garbage":
        for path in scene.folder.glob("ledger.db*"):
            path.unlink()
        database.write_bytes(b"no database at all, and long enough to be read as one" * 40)
    elif harm == "bad settings":
        (scene.folder / "ledger.toml").write_text("[policy]\nqueue_wait_seconds = 'soon'\n", encoding="utf-8")
    elif harm == "a world that is gone":
        _launch(scene)
        env["LEDGER_SIM"] = f"{scene.folder}/nothing#00"
    else:
        argv = ["--isue", "1417"]
    scene.env.update(env)
    polled = scene.wait(scene.start(*argv, script="backend_poll.py"))
    assert polled.status == (2 if harm == "usage" else 0), polled
    line = polled.line
    assert line["status"] == "stalled"
    assert word in line["stall_reason"]
    assert polled.err.startswith("ledger: ")


def test_finalize_under_its_old_name(make_scene: MakeScene) -> None:
    scene = make_scene(
        top='finalize_check = "echo no artifacts; test \\"$LEDGER_BACKEND$LEDGER_ISSUE\\" = runpod1417 && exit 7"'
    )
    _launch(scene, "--backend", "runpod")
    _poll(scene, 3)
    refused = scene.dispatch_issue("finalize", "--issue", 1417)
    assert (refused.status, refused.line["ok"], scene.live()) == (3, False, ["runpod/pod-1417"])
    assert "exited 7; nothing was torn down" in refused.line["refused"]
    assert "finalize_check: no artifacts" in refused.err
    done = scene.dispatch_issue("finalize", "--issue", 1417, "--skip-confirm-artifacts")
    assert done.status == 0, done
    assert (done.status, done.line["ok"], done.line["outcome"], scene.live()) == (0, True, "finished", [])
    assert scene.dispatch_issue("finalize", "--issue", 1417).status == 0  # twice is a quiet success


@pytest.mark.parametrize(
    ("argv", "word"),
    [
        (("launch", "--issue", 1), "--intent"),
        (("launch", "--issue", 1, "--intent", "ft-7b"), "--workload-cmd"),
        (("launch", "--issue", 1, "--intent", "ft-7b", "--workload-cmd", "x", "--hydra", "a=1"), "not allowed"),
        (("launch", "--issue", 1, "--intent", "nope", "--workload-cmd", "x"), "there is no intent 'nope'"),
        (("launch", "--issue", 1, "--intent", "ft-7b", "--workload-cmd", "HF_TOKEN=hf_" + "a" * 34 + " run"), "secret"),
        (("finalize", "--issue", 99), "issue-99 is not in this ledger"),
        (("start",), "invalid choice"),
    ],
    ids=lambda value: str(value)[:30],
)
def test_what_is_refused_is_one_object_and_2(argv: tuple[object, ...], word: str, make_scene: MakeScene) -> None:
    refused = make_scene().dispatch_issue(*argv)
    assert (refused.status, refused.line["ok"]) == (2, False)
    assert word in refused.line["reason"]
    assert "hf_aaa" not in refused.out + refused.err


def test_no_compute_is_2_and_may_be_dispatched_again(make_scene: MakeScene) -> None:
    scene = make_scene(
        "calls: [{cloud: gcp, call: create, to: 60, answer: no_capacity}, {cloud: runpod, call: create, answer: quota}]"
    )
    assert _launch(scene, status=2)["reason"] == "no_compute_available"
    scene.host.advance(120)
    assert _launch(scene)["chosen_kind"] == "gcp"
    assert json.dumps(scene.handle())
