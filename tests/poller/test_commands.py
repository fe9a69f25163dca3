"""The commands that speak to the clouds: exit statuses, JSON, words for people, and what a person can do wrong."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest

from tests.poller.conftest import MakeScene
from tests.poller.scene import ROOT, Result

VANISHES = "world: [{at: 300, cloud: gcp, name: eps-issue-1417, becomes: gone}]\n"
DISPATCH = ("dispatch", "--issue", 1417, "--intent", "ft-7b", "--workload-cmd", "bash run.sh")
SCENARIOS = ROOT / "tests" / "scenarios"
LAUNCHED = {
    "ok",
    "issue",
    "chosen_kind",
    "requested_kind",
    "reason",
    "cluster",
    "handle_sidecar_path",
    "pod_name",
    "job_id",
    "workload_executed",
    "workload_pid",
    "log_path",
    "reconnected",
    "workload_dispatched",
}


def _one_line(result: Result, *words: str) -> None:
    assert result.status == 2, result
    assert result.err.count("\n") == 1, result.err
    assert result.err.startswith("ledger: ")
    for word in words:
        assert word in result.err


# dispatch


def test_dispatch_prints_the_object_that_callers_read(make_scene: MakeScene) -> None:
    scene = make_scene()
    done = scene(*DISPATCH, "--json")
    value = done.json
    assert (done.status, set(value)) == (0, LAUNCHED)
    assert (value["ok"], value["chosen_kind"], value["requested_kind"]) == (True, "gcp", "auto")
    assert (value["pod_name"], value["log_path"]) == ("eps-issue-1417", "/workspace/logs/issue-1417.log")
    assert value["job_id"].isdigit()
    assert Path(value["handle_sidecar_path"]).is_file()
    again = scene(*DISPATCH, "--gpus", 8)
    assert again.status == 0
    assert again.out.startswith("#1417: reconnected to gcp eps-issue-1417")
    assert "ignored: gpus" in again.err


def test_dispatch_pins_every_wish(make_scene: MakeScene) -> None:
    scene = make_scene()
    wishes = (
        *("--lane", "b", "--backend", "gcp", "--provisioning-model", "SPOT", "--zone", "europe-west4-a"),
        *("--gpu-type", "H200", "--gpus", 8, "--hydra", "a=1", "--hydra", "b=2", "--env-pin", "A=x=y"),
        *("--time-budget-hours", 2.5, "--repo-branch", "main", "--no-paid-fallback", "--secret", "HF_TOKEN"),
        *("--boot-disk-gb", 300, "--min-ram-gb", 64),
    )
    assert scene("dispatch", "--issue", 7, *wishes).status == 0
    log = scene.log()
    opened = log.run("issue-7-b").opened
    log.connection.close()
    wanted = {
        "lane": "b",
        "rung": "gcp:SPOT",
        "zone": "europe-west4-a",
        "gpu_type": "H200",
        "gpus": 8,
        "hydra_args": ["a=1", "b=2"],
        "env_pins": {"A": "x=y"},
        "time_budget_hours": 2.5,
        "repo_branch": "main",
        "allow_paid_fallback": False,
        "secrets": ["HF_TOKEN"],
        "boot_disk_gb": 300,
        "min_ram_gb": 64,
    }
    assert {name: opened[name] for name in wanted} == wanted


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (("--issue", "x"), ["--issue"]),
        (("--issue", 1), ["say what to rent", "--intent", "lora-7b"]),
        (("--issue", 1, "--intent", "nope"), ["there is no intent 'nope'", "ft-7b"]),
        (("--issue", 1, "--intent", "ft-7b", "--lane", "B!"), ["--lane"]),
        (("--issue", 1, "--intent", "ft-7b", "--backend", "aws"), ["'aws'", "runpod"]),
        (("--issue", 1, "--intent", "ft-7b", "--provisioning-model", "FLEX"), ["'FLEX'", "FLEX_START"]),
        (("--issue", 1, "--intent", "ft-7b", "--env-pin", "A"), ["NAME=VALUE"]),
        (("--issue", 1, "--intent", "ft-7b", "--workload-cmd", "x", "--hydra", "y"), ["not both"]),
        (("--issue", 1, "--intent", "ft-7b", "--backend", "runpod", "--provisioning-model", "SPOT"), ["an instance"]),
        (("--issue", 1, "--intent", "ft-7b", "--env-pin", "T=hf_" + "a" * 34), ["a secret (Hugging Face token in T)"]),
        (("--issue", 1, "--gpu-type", "H100"), ["say what to rent"]),
    ],
    ids=lambda value: " ".join(map(str, value))[-40:],
)
def test_what_cannot_be_dispatched(args: tuple[object, ...], words: list[str], make_scene: MakeScene) -> None:
    scene = make_scene()
    refused = scene("dispatch", *args)
    _one_line(refused, *words)
    assert "hf_aaa" not in refused.err
    assert scene.host.report()["created"] == {"gcp": 0, "runpod": 0}


def test_a_secret_given_as_the_name_of_one_is_not_shown(make_scene: MakeScene) -> None:
    refused = make_scene()(*DISPATCH, "--secret", "hf-abcdef")
    _one_line(refused, "the name of a variable")
    assert "abcdef" not in refused.err


def test_dispatch_says_no_and_waits_and_fails(make_scene: MakeScene) -> None:
    none = make_scene(
        "calls: [{cloud: gcp, call: create, answer: quota}, {cloud: runpod, call: create, answer: quota}]"
    )
    refused = none(*DISPATCH)
    assert (refused.status, refused.out) == (2, "#1417: no_compute_available\n")
    slow = make_scene("calls: [{cloud: gcp, call: create, takes: 300, answer: timeout, effect: done}]")
    waiting = slow(*DISPATCH)
    assert waiting.status == 75
    assert "run the same command again" in waiting.out
    broken = make_scene()
    (broken.folder / "handles").rmdir()
    (broken.folder / "handles").write_text("a file", encoding="utf-8")
    failed = broken(*DISPATCH, "--json")
    assert (failed.status, failed.json["ok"]) == (4, False)
    assert "what was done by then is in the log" in failed.json["reason"]


def test_nothing_is_rented_under_the_brake(make_scene: MakeScene) -> None:
    scene = make_scene()
    scene("pause")
    _one_line(scene(*DISPATCH), "paused", "ledger resume")


# poll


def test_poll_prints_one_line_of_json_a_run(make_scene: MakeScene) -> None:
    scene = make_scene(VANISHES)
    scene(*DISPATCH)
    scene("dispatch", "--issue", 7, "--intent", "ft-7b", "--workload-cmd", "x")
    scene.host.advance(60)
    polled = scene("poll")
    assert polled.status == 0
    assert [json.loads(line)["current_phase"] for line in polled.out.splitlines()] == ["pending", "pending"]
    assert len(scene("poll", 1417).out.splitlines()) == 1
    _one_line(scene("poll", 99), "issue-99 is not in this ledger")


def test_a_dry_run_says_what_it_would_do_and_does_nothing(make_scene: MakeScene) -> None:
    scene = make_scene(VANISHES)
    scene(*DISPATCH)
    scene.host.advance(60)
    scene("poll")
    scene.host.advance(300)
    before, handle = scene.types("issue-1417"), scene.handle()
    dry = scene("poll", "--dry-run")
    assert dry.status == 0
    assert dry.err.splitlines() == [
        "ledger: issue-1417: would do: queue_vanish",
        "ledger: issue-1417: would do: create on runpod",
    ]
    assert json.loads(dry.out)["current_phase"] == "gcp_queue_vanish_failover_runpod"
    assert (scene.types("issue-1417"), scene.handle()) == (before, handle)
    assert scene.host.report()["created"] == {"gcp": 1, "runpod": 0}


def test_a_run_that_cannot_be_read_is_1_and_stops_no_other(make_scene: MakeScene) -> None:
    scene = make_scene()
    scene(*DISPATCH)
    scene("dispatch", "--issue", 7, "--intent", "ft-7b", "--workload-cmd", "x")
    log = scene.log()
    event = log.read("issue-7")[-1]
    # What a newer version would have written.
    row = {**event._asdict(), "position": 10**6, "version": event.version + 1, "event_id": "x", "type": "Teleported"}
    columns = ", ".join(row)
    with log.connection.write():
        log.connection.execute(f"INSERT INTO events ({columns}) VALUES ({', '.join(':' + c for c in row)})", row)
    log.connection.close()
    scene.host.advance(60)
    polled = scene("poll")
    assert polled.status == 1
    assert len(polled.out.splitlines()) == 1
    assert "issue-7 could not be polled: event 1000000 (Teleported)" in polled.err


def test_a_new_breach_is_told_once_and_told_again_when_it_comes_back(make_scene: MakeScene, tmp_path: Path) -> None:
    alerts = tmp_path / "alerts"
    scene = make_scene(
        f"{VANISHES}workloads: [{{cloud: runpod, does: never_starts}}]\n"
        "calls: [{cloud: runpod, call: delete, answer: error, http: 500}]",
        policy=["launch_confirm_seconds = 300", "teardown_confirm_seconds = 60"],
        top=f'alert_command = "cat >> {alerts}; echo >> {alerts}"',
    )
    scene(*DISPATCH)
    told = []
    for _ in range(16):
        scene.host.advance(60)
        told += [line for line in scene("poll").err.splitlines() if "new breach" in line]
    assert any("teardown-unconfirmed@" in line for line in told), told
    assert len(told) == len(set(told))
    values = [json.loads(line) for line in alerts.read_text(encoding="utf-8").splitlines()]
    assert len(values) == len(told)
    assert any(value["invariant"] == "teardown-unconfirmed" and value["usd_at_risk"] > 0 for value in values)


@pytest.mark.parametrize(
    ("command", "words"),
    [("exit 9", "alert_command exited 9"), ("echo no mail >&2; exit 1", "alert_command exited 1: no mail")],
)
def test_an_alert_that_does_not_go_out_is_told_and_tried_again(command: str, words: str, make_scene: MakeScene) -> None:
    scene = make_scene(top=f'alert_command = "{command}"')
    scene(*DISPATCH)
    (scene.folder / "handles" / "issue-1417-handle.json").unlink()
    scene.host.advance(2000)
    for _ in range(2):
        polled = scene("poll")  # the line of a clock or a breach: whatever is open here
        assert polled.status == 0
    scene("pause")
    scene.host.advance(2000)
    for _ in range(2):
        polled = scene("poll")
        assert polled.status == 0
        assert words in polled.err


def test_watching_goes_on_until_it_is_told_to_end(make_scene: MakeScene) -> None:
    scene = make_scene()
    scene(*DISPATCH)
    slept: list[float] = []

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        scene.host.advance(seconds)
        if len(slept) == 3:
            os.kill(os.getpid(), signal.SIGTERM)

    scene.sleep = sleep
    before = signal.getsignal(signal.SIGTERM)
    watched = scene("poll", "--watch")
    assert (watched.status, slept) == (0, [60.0] * 3)
    assert len(watched.out.splitlines()) == 3
    assert signal.getsignal(signal.SIGTERM) is before


def test_a_tick_that_fails_does_not_end_the_watch(make_scene: MakeScene) -> None:
    scene = make_scene()
    scene(*DISPATCH)
    handles, away = scene.folder / "handles", scene.folder / "away"
    slept: list[float] = []

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        if len(slept) == 1:
            handles.rename(away)
            handles.write_text("a file", encoding="utf-8")
        elif len(slept) == 2:
            handles.unlink()
            away.rename(handles)
        elif len(slept) == 3:
            os.kill(os.getpid(), signal.SIGINT)

    scene.sleep = sleep
    watched = scene("poll", "--watch")
    assert (watched.status, len(slept)) == (0, 3)
    assert str(handles) in watched.err


# ending


def test_cancel_and_finalize_and_end(make_scene: MakeScene) -> None:
    scene = make_scene()
    scene(*DISPATCH, "--backend", "runpod")
    [machine] = [m["machine"] for m in scene("status", "--json").json["machines"]]
    ended = scene("end", machine, "--json")
    assert (ended.status, ended.json["machine"]) == (0, machine)
    assert scene.live() == []
    assert scene("end", machine).status == 0
    scene("dispatch", "--issue", 7, "--intent", "ft-7b", "--workload-cmd", "x")
    cancelled = scene("cancel", 7, "--json")
    assert (cancelled.status, cancelled.json["run"]) == (0, "issue-7")
    scene.host.advance(200)
    scene("poll")
    again = scene("cancel", 7)
    assert (again.status, again.out) == (0, "issue-7 is closed: cancelled (cancelled)\n")
    assert scene("finalize", 7).status == 0


def test_the_gate_of_finalize(make_scene: MakeScene) -> None:
    scene = make_scene(top='finalize_check = "exit 1"')
    scene(*DISPATCH, "--backend", "runpod")
    refused = scene("finalize", 1417)
    assert (refused.status, scene.live()) == (3, ["runpod/pod-1417"])
    assert "nothing was torn down" in refused.out
    assert scene("finalize", 1417, "--json").json["ok"] is False
    assert scene("finalize", 1417, "--skip-check").status == 0
    assert scene.live() == []
    assert scene("finalize", 1417).status == 0  # closed: nobody is asked


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (("cancel", 99), ["issue-99 is not in this ledger"]),
        (("cancel", "what"), ["names no run"]),
        (("finalize", 99), ["issue-99 is not in this ledger"]),
        (("end", "pod-1417"), ["names no machine", "runpod:POD-ID"]),
        (("end", "runpod:none"), ["does not know runpod:none"]),
        (("end",), ["MACHINE"]),
    ],
)
def test_what_cannot_be_ended(args: tuple[object, ...], words: list[str], make_scene: MakeScene) -> None:
    _one_line(make_scene()(*args), *words)


# reconcile


def test_reconcile_tells_what_differs_and_changes_nothing(make_scene: MakeScene) -> None:
    scene = make_scene(
        "machines: [{cloud: runpod, name: someone-else, id: se1, created: -100, status: RUNNING},"
        " {cloud: gcp, name: eps-issue-1417, id: '77', zone: us-central1-b, created: -100, status: RUNNING}]\n"
        "world: [{at: 300, cloud: gcp, name: eps-issue-7, becomes: RUNNING},"
        " {at: 300, cloud: gcp, name: eps-issue-8, becomes: gone}]"
    )
    scene(*DISPATCH)
    for issue in (7, 8):
        scene("dispatch", "--issue", issue, "--intent", "ft-7b", "--workload-cmd", "x")
    scene.host.advance(200)
    scene("poll")
    scene.host.advance(140)
    before = scene.types("issue-7")
    found = scene("reconcile", "--json")
    assert found.status == 1
    assert [(f["kind"], f["run"]) for f in found.json["findings"]] == [
        ("differs", "issue-7"),
        ("gone", "issue-8"),
        ("orphan", "issue-1417"),
    ]
    assert [(a["backend"], a["read"], a["foreign"]) for a in found.json["accounts"]] == [
        ("gcp", "whole", 0),
        ("runpod", "whole", 1),
    ]
    assert scene.types("issue-7") == before
    told = scene("reconcile")
    assert "status PENDING in the log, RUNNING there" in told.out


def test_reconcile_is_clean_or_says_what_it_could_not_read(make_scene: MakeScene) -> None:
    clean = make_scene()
    clean(*DISPATCH)
    assert clean("reconcile").status == 0
    blind = make_scene("calls: [{cloud: runpod, call: list, answer: other_account}]")
    told = blind("reconcile", "--json")
    assert (told.status, told.json["findings"]) == (1, [])
    assert [account["read"] for account in told.json["accounts"]] == ["whole", "no"]


# rehearse


def test_rehearse_holds_names_the_line_that_does_not_and_keeps(make_scene: MakeScene, tmp_path: Path) -> None:
    scene = make_scene()
    good = SCENARIOS / "one-blip-is-no-wedge.yaml"
    held = scene("rehearse", good)
    assert (held.status, held.err) == (0, "")
    assert held.out.startswith("held      one-blip-is-no-wedge  (13 ticks")
    text = good.read_text(encoding="utf-8").partition("expect:")[0] + "expect:\n  run: cancelled\n"
    bad = tmp_path / "bad.yaml"
    bad.write_text(text, encoding="utf-8")
    failed = scene("rehearse", bad, "--keep", tmp_path / "kept")
    assert failed.status == 1
    line = text.count("\n")
    assert f'{bad}:{line}: run: expected "cancelled", actual' in failed.out
    assert {path.name for path in (tmp_path / "kept").iterdir()} >= {"ledger.db", "handles", "world.json"}
    _one_line(scene("rehearse", bad, "--keep", tmp_path / "kept"), "is not empty")
    value = scene("rehearse", bad, "--json")
    assert (value.status, value.json["held"], value.json["failures"][0]["key"]) == (1, False, "run")


def test_rehearse_takes_a_folder_and_says_what_it_cannot_read(make_scene: MakeScene, tmp_path: Path) -> None:
    scene = make_scene()
    for name in ("a", "b"):
        text = (SCENARIOS / "one-blip-is-no-wedge.yaml").read_text(encoding="utf-8")
        (tmp_path / f"{name}.yaml").write_text(text.replace("scenario: one", f"scenario: {name}"), encoding="utf-8")
    held = scene("rehearse", tmp_path, "--seed", 3, "--json")
    assert [json.loads(line)["held"] for line in held.out.splitlines()] == [True, True]
    (tmp_path / "c.yaml").write_text("scenario: c\nexpekt: {}\n", encoding="utf-8")
    _one_line(scene("rehearse", tmp_path), "c.yaml:2", "expekt", "allowed: scenario")
    _one_line(scene("rehearse", tmp_path / "none.yaml"), "none.yaml")
    empty = tmp_path / "empty"
    empty.mkdir()
    _one_line(scene("rehearse", empty), "holds no *.yaml")
    _one_line(scene("rehearse"), "FILE")
    _one_line(scene("rehearse", tmp_path, "--runpod-api", "rest_v2"), "give --wire too")
    wired = scene("rehearse", SCENARIOS / "one-blip-is-no-wedge.yaml", "--wire", "--runpod-api", "rest_v2", "--json")
    assert (wired.status, wired.json["held"]) == (0, True)
    _one_line(scene("rehearse", tmp_path, "--random", 5), "neither FILE nor --wire")
    found = json.loads(scene("rehearse", "--random", 3, "--seed", 5, "--json").out)
    assert (found["scenarios"], found["seed"], found["held"], found["failures"]) == (3, 5, True, [])


# the world


@pytest.mark.parametrize("address", ["nonsense", "/nowhere/socket#00", "127.0.0.1:9#00", "#"])
def test_a_world_that_is_not_there(address: str, make_scene: MakeScene) -> None:
    scene = make_scene()
    scene.env["LEDGER_SIM"] = address
    ended = scene.wait(scene.start("poll"))
    _one_line(ended, "LEDGER_SIM")


def test_a_host_of_its_own(make_scene: MakeScene) -> None:
    import subprocess
    import sys

    from ledger.clouds.configured import open_source

    file = SCENARIOS / "one-blip-is-no-wedge.yaml"
    host = subprocess.Popen(
        [sys.executable, "-m", "ledger.sim.host", str(file)],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert host.stdout is not None
    source = open_source({"LEDGER_SIM": host.stdout.readline().strip()})
    before = source.steady()
    source.world.ask("advance", 60.0)  # type: ignore[attr-defined]
    assert source.steady() - before == 60.0
    assert source.world.ask("report")["live"] == []  # type: ignore[attr-defined]
    host.communicate(timeout=30)
    assert host.returncode == 0
