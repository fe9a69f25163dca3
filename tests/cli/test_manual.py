"""`ledger confirm`, `adopt`, `pause`, `resume`."""

from __future__ import annotations

import json
from typing import Any

import pytest

from ledger.clouds.values import Unknown
from ledger.policy import Policy
from tests.cli.conftest import POD, Cli, failed_over, types_of

INSTANCE = "gcp:example-gpu-project/us-central1-a/5513402277619834112"


def _sidecar(cli: Cli, stream: str) -> dict[str, Any]:
    value: dict[str, Any] = json.loads((cli.handles / f"{stream}-handle.json").read_text(encoding="utf-8"))
    return value


# confirm


def test_confirm_repoints_the_handle_to_the_machine_in_hand_in_one_append(taken: Cli) -> None:
    attempt, instance = failed_over(taken)
    result = taken("confirm", "1417", "--pid", 4242, "--json")
    assert (result.status, result.json) == (0, {"run": "issue-1417", "machine": POD, "pid": 4242, "written": True})
    confirmed, repointed = taken.events("issue-1417")[-2:]
    assert confirmed.data() == {"pid": 4242, "source": "user"} | {
        k: None for k in confirmed.data() if k not in ("pid", "source")
    }
    assert (confirmed.type, confirmed.actor, confirmed.attempt) == ("LaunchConfirmed", "user", attempt)
    assert (repointed.type, repointed.data()) == ("Repointed", {"from": instance, "to": POD})
    assert confirmed.recorded_at == repointed.recorded_at
    file = _sidecar(taken, "issue-1417")
    assert (file["backend"], file["extra"]["pod_id"]) == ("runpod", POD.partition(":")[2])
    assert (file["extra"]["workload_executed"], file["extra"]["workload_pid"]) == (True, 4242)
    assert taken("audit", "--run", "1417").status == 0


def test_confirm_twice_is_fine_and_changes_nothing(taken: Cli) -> None:
    failed_over(taken)
    taken("confirm", "1417", "--pid", 4242)
    before = taken.events()
    result = taken("confirm", "1417", "--pid", 4242)
    assert result.status == 0
    assert "known already" in result.out
    assert taken.events() == before


def test_confirm_of_the_handles_own_machine_repoints_nothing(taken: Cli) -> None:
    assert taken("confirm", "1417", "--pid", 7).status == 0
    assert types_of(taken.events("issue-1417")) == ["HandleImported", "LaunchConfirmed"]


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (("1417", "--pid", 1, "--machine", "runpod:other1"), "has no machine runpod:other1"),
        (("1417", "--pid", 1, "--machine", INSTANCE), "the run left it (queue_vanish)"),
        (("640", "--pid", 1), "not driven"),
        (("99", "--pid", 1), "issue-99 is not in this ledger"),
        (("1417", "--pid", 0), "--pid"),
        (("1417",), "--pid"),
    ],
)
def test_confirm_refuses_with_2(taken: Cli, args: tuple[object, ...], words: str) -> None:
    failed_over(taken)
    before = taken.events()
    result = taken("confirm", *args)
    assert result.status == 2
    assert words in result.err or "was seen to be gone" in result.err
    assert taken.events() == before


def test_confirm_refuses_a_closed_run(taken: Cli) -> None:
    _close(taken)
    result = taken("confirm", "1417", "--pid", 1)
    assert (result.status, "it is closed" in result.err) == (2, True)


def _close(cli: Cli) -> None:
    cli.append(
        "issue-1417",
        cli.event("TornDown", {"by": "external"}, machine=INSTANCE),
        cli.event("RunClosed", {"outcome": "failed", "reason": "no_compute_available"}),
    )


# adopt


def test_adopt_makes_a_machine_the_runs_and_confirm_moves_the_handle(taken: Cli) -> None:
    result = taken("adopt", POD, "--run", "1417", "--cost-per-hour", 11.96, "--json")
    assert (result.status, result.json["written"], result.json["handle"]) == (0, True, False)
    event = taken.events("issue-1417")[-1]
    facts = event.data()
    assert (event.type, event.actor, event.machine) == ("Provisioned", "user", POD)
    assert (facts["adopted"], facts["matched_by"]) == (True, "user")
    assert (facts["name"], facts["cost_per_hour"]) == ("pod-1417", 11.96)
    assert taken("confirm", "1417", "--pid", 9, "--machine", POD).status == 0
    assert _sidecar(taken, "issue-1417")["extra"]["pod_id"] == POD.partition(":")[2]


def test_adopt_twice_is_fine_and_says_so(taken: Cli) -> None:
    taken("adopt", POD, "--run", "1417")
    before = taken.events()
    result = taken("adopt", POD, "--run", "issue-1417")
    assert result.status == 0
    assert "issue-1417's already" in result.out
    assert taken.events() == before


def test_adopt_gives_a_run_without_a_machine_its_handle(cli: Cli) -> None:
    opened = {"issue": 5, "ladder": ["runpod"], "rung": "runpod", "workload_cmd": "true"}
    cli.append("issue-5", cli.event("RunOpened", opened))
    assert cli("adopt", POD, "--run", "5", "--json").json["handle"] is True
    assert _sidecar(cli, "issue-5")["extra"]["pod_id"] == POD.partition(":")[2]


@pytest.mark.parametrize(
    ("configured", "told", "recorded"),
    [("default", "user-7", "user-7"), ("default", "", ""), ("team-3", "", "team-3")],
)
def test_adopt_records_whose_the_pod_is_as_the_cloud_tells_it(
    taken: Cli, monkeypatch: pytest.MonkeyPatch, configured: str, told: str, recorded: str
) -> None:
    from ledger.clouds.runpod import RunPodCloud

    monkeypatch.setattr(RunPodCloud, "_ask_account", lambda *_: told or Unknown("timeout"))
    settings = taken.folder / "ledger.toml"
    text = settings.read_text(encoding="utf-8")
    settings.write_text(text.replace('account = "default"', f'account = "{configured}"'), encoding="utf-8")
    taken.env["RUNPOD_API_KEY"] = "a-key"
    assert taken("adopt", POD, "--run", "1417").status == 0
    assert taken.events("issue-1417")[-1].data()["account"] == recorded


def test_adopt_without_a_key_records_that_the_account_is_not_known(taken: Cli) -> None:
    assert taken("adopt", POD, "--run", "1417").status == 0
    assert taken.events("issue-1417")[-1].data()["account"] == ""


def test_adopt_takes_what_was_seen_of_an_orphan(taken: Cli) -> None:
    seen = {"backend": "runpod", "account": "example", "name": "pod-x", "status": "RUNNING", "cost_per_hour": 2.5}
    taken.append("account-runpod-example", taken.event("OrphanObserved", seen, machine="runpod:orphan1"))
    assert taken("audit", "--only", "unledgered-machine").status == 1
    assert taken("adopt", "runpod:orphan1", "--run", "1417").status == 0
    facts = taken.events("issue-1417")[-1].data()
    assert (facts["name"], facts["account"], facts["cost_per_hour"]) == ("pod-x", "example", 2.5)
    assert taken("audit", "--only", "unledgered-machine").status == 0


@pytest.mark.parametrize(
    ("machine", "run", "words"),
    [
        (INSTANCE, "1418", f"issue-1417 holds {INSTANCE}"),
        ("eps-issue-1417", "1417", "names no machine"),
        ("gcp:p/us-central1-a/eps-issue-1417", "1417", "names no machine"),
        ("runpod:", "1417", "names no machine"),
        (POD, "99", "issue-99 is not in this ledger"),
        (POD, "640", "not driven"),
    ],
)
def test_adopt_refuses_with_2(taken: Cli, machine: str, run: str, words: str) -> None:
    before = taken.events()
    result = taken("adopt", machine, "--run", run)
    assert (result.status, words in result.err) == (2, True), result.err
    assert taken.events() == before


def test_adopt_refuses_a_closed_run_and_a_machine_that_is_gone(taken: Cli) -> None:
    _close(taken)
    assert "it is closed" in taken("adopt", POD, "--run", "1417").err
    assert "held" in taken("adopt", INSTANCE, "--run", "1418").err


# pause, resume


def test_the_brake_is_recorded_once(cli: Cli) -> None:
    for command, paused, words in (
        ("pause", True, "paused"),
        ("pause", True, "so already"),
        ("resume", False, "not paused"),
        ("resume", False, "so already"),
    ):
        result = cli(command)
        assert result.status == 0
        assert words in result.out
        log = cli.log()
        assert log.policy() == Policy(paused=paused)
        log.connection.close()
    assert [e.data()["changed"] for e in cli.events("ledger")[1:]] == [["paused"], ["paused"]]


def test_a_changed_setting_is_recorded_by_the_next_command_that_writes_and_leaves_the_brake(taken: Cli) -> None:
    taken("pause")
    taken.env["LEDGER_QUEUE_WAIT_SECONDS"] = "300"
    taken("audit")
    assert types_of(taken.events("ledger")) == ["LedgerCreated", "PolicyChanged"], "a reader records nothing"
    taken("confirm", "1417", "--pid", 1)
    assert taken.events("ledger")[-1].data()["changed"] == ["queue_wait_seconds"]
    log = taken.log()
    assert log.policy() == Policy(paused=True, queue_wait_seconds=300.0)
    log.connection.close()


def test_a_conflict_is_decided_again(taken: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another process appends between the look and the append: the command looks again."""
    from ledger.log.store import Log

    real = Log.append
    raced: list[int] = []

    def append(log: Log, stream: str, version: int, drafts: Any) -> Any:
        if stream == "issue-1417" and not raced:
            raced.append(1)
            edited = {"added": {"note": 1}, "changed": {}}
            real(log, stream, version, [taken.event("SidecarEdited", edited)])
        return real(log, stream, version, drafts)

    monkeypatch.setattr(Log, "append", append)
    assert taken("confirm", "1417", "--pid", 1).status == 0
    assert types_of(taken.events("issue-1417")) == ["HandleImported", "SidecarEdited", "LaunchConfirmed"]


def test_a_default_of_this_process_is_no_wish_for_a_ledger_elsewhere(cli: Cli) -> None:
    """`--db` from a folder without that ledger's settings records what is stated there, and nothing else."""
    (cli.folder / "ledger.toml").write_text("[policy]\nqueue_wait_seconds = 300\n", encoding="utf-8")
    assert cli("resume").status == 0
    elsewhere = cli.folder / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "ledger.toml").write_text("[policy]\nblind_seconds = 60\n", encoding="utf-8")
    cli.folder, database = elsewhere, cli.database
    assert cli("pause", "--db", database).status == 0
    cli.folder = elsewhere.parent
    log = cli.log()
    assert log.policy() == Policy(paused=True, queue_wait_seconds=300.0, blind_seconds=60.0)
    log.connection.close()


def test_of_two_runs_that_adopt_one_machine_at_once_one_is_refused(taken: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    """The other takes it after this one has looked, and before it appends."""
    from ledger.log.store import Log

    real = Log.append
    raced: list[int] = []

    def append(log: Log, stream: str, version: int, drafts: Any, **more: Any) -> Any:
        if stream == "issue-1417" and not raced:
            raced.append(1)
            assert taken("adopt", POD, "--run", "1418").status == 0
        return real(log, stream, version, drafts, **more)

    monkeypatch.setattr(Log, "append", append)
    result = taken("adopt", POD, "--run", "1417")
    assert (result.status, f"issue-1418 holds {POD}" in result.err) == (2, True), result
    assert [e.stream for e in taken.events() if e.type == "Provisioned"] == ["issue-1418"]
