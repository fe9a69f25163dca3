"""`ledger log`, `ledger show`, `ledger status`."""

from __future__ import annotations

import json

import pytest

from tests.cli.conftest import POD, Cli, failed_over

INSTANCE = "gcp:example-gpu-project/us-central1-a/5513402277619834112"


def _lines(text: str) -> list[dict[str, object]]:
    return [json.loads(line) for line in text.splitlines()]


def test_the_log_is_one_line_an_event_oldest_first(taken: Cli) -> None:
    result = taken("log")
    assert result.status == 0
    lines = result.out.splitlines()
    assert "LedgerCreated" in lines[0]
    assert "issue-1417" in lines[1]
    assert INSTANCE in lines[1]
    assert [int(line.split()[0]) for line in lines] == sorted(e.position for e in taken.events())


def test_the_log_as_json_lines_is_the_events_as_stored(taken: Cli) -> None:
    stored = taken.events("issue-1417")
    assert _lines(taken("log", "1417", "--json").out) == [e.to_json() for e in stored]


@pytest.mark.parametrize("name", ["1417", "#1417", "issue-1417"])
def test_a_run_may_be_named_in_several_ways(taken: Cli, name: str) -> None:
    assert {line["stream"] for line in _lines(taken("log", name, "--json").out)} == {"issue-1417"}


@pytest.mark.parametrize(
    ("args", "types"),
    [
        (["ledger"], ["LedgerCreated"]),
        (["--type", "HandleImported"], ["HandleImported"] * 3),
        (["--type", "LedgerCreated", "--type", "PolicyChanged"], ["LedgerCreated"]),
        (["--limit", "1"], ["HandleImported"]),
        (["--since", "30s"], ["HandleImported"] * 3),
        (["--since", "2026-07-18T01:00:00Z"], []),
    ],
)
def test_the_log_can_be_narrowed(cli: Cli, args: list[str], types: list[str]) -> None:
    from tests.cli.conftest import SAMPLES

    cli.set_clock("2026-07-18T00:25:00Z")
    cli("import", *(SAMPLES / f"issue-{n}-handle.json" for n in (1417, 1418, 640)))
    result = cli("log", *args, "--json")
    assert result.status == 0
    assert [line["type"] for line in _lines(result.out)] == types


def test_follow_goes_on_with_what_is_appended_until_interrupted(taken: Cli) -> None:
    naps = []

    def sleep(seconds: float) -> None:
        naps.append(seconds)
        if len(naps) == 3:
            raise KeyboardInterrupt
        if len(naps) == 2:
            taken.append("issue-1418", taken.event("CancelRequested", {}))

    taken.sleep = sleep
    result = taken("log", "--follow", "--limit", "1", "--json")
    assert result.status == 130
    assert result.err == ""
    assert [line["type"] for line in _lines(result.out)] == ["HandleImported", "CancelRequested"]


def test_status_shows_runs_machines_money_accounts_and_what_is_wrong(taken: Cli) -> None:
    failed_over(taken)
    taken.set_clock("2026-07-18T01:20:00Z")
    value = taken("status", "--json").json
    runs = {run["run"]: run for run in value["runs"]}
    assert runs["issue-1417"]["state"] == "failing_over"
    assert runs["issue-1417"]["next"] == POD
    assert runs["issue-1417"]["usd_per_hour"] == pytest.approx(11.96)
    assert runs["issue-1418"]["state"] == "running"
    assert runs["issue-1418"]["usd_per_hour"] is None
    assert runs["issue-640"]["driven"] is False
    machines = {machine["machine"]: machine for machine in value["machines"]}
    assert machines[POD]["usd"] == pytest.approx(11.96)
    assert machines[POD]["billed_since"] == "2026-07-18T00:20:00Z"
    assert value["usd_per_hour"] == pytest.approx(11.96)
    assert value["billed_without_a_price"] == 1  # the pod of issue-1418: no file says what it costs
    assert value["breaches"]["unlaunched-machine"] == 1
    assert value["paused"] is False
    text = taken("status").out
    assert "not driven" in text
    assert "failing over" in text
    assert "$11.96 an hour and 1 machine of unknown price" in text
    assert POD in text


def test_status_says_that_the_brake_is_on(cli: Cli) -> None:
    cli("pause")
    assert cli("status").out.startswith("PAUSED")
    assert cli("status", "--json").json["paused"] is True


def test_show_tells_all_of_one_run(taken: Cli) -> None:
    failed_over(taken)
    taken.set_clock("2026-07-18T01:20:00Z")
    value = taken("show", "1417", "--json").json
    assert value["state"] == "failing_over"
    assert value["handle"] == INSTANCE
    assert value["failover"]["machine"] == POD
    assert value["pins"]["workload_cmd"] == "bash scripts/issue1417_dispatch.sh"
    assert [m["machine"] for m in value["machines"]] == [INSTANCE, POD]
    assert "unlaunched-machine" in [breach["invariant"] for breach in value["breaches"]]
    assert value["sidecar"]["path"].endswith("issue-1417-handle.json")
    assert value["sidecar"]["right"] is False
    assert [e["type"] for e in value["events"]][-2:] == ["ProvisionRequested", "Provisioned"]
    text = taken("show", "1417").out
    for words in ("failing over", "timeline", "$11.96/h", "unlaunched-machine@", "queue_vanish, next runpod"):
        assert words in text


def test_show_as_of_is_the_run_as_it_stood_then(taken: Cli) -> None:
    taken.set_clock("2026-07-18T00:26:00Z")
    failed_over(taken)
    taken.set_clock("2026-07-18T01:20:00Z")
    value = taken("show", "1417", "--as-of", "2026-07-18T00:21:00Z", "--json").json
    assert value["state"] == "queued"
    assert [m["machine"] for m in value["machines"]] == [INSTANCE]
    early = taken("show", "1417", "--as-of", "2026-07-17T00:00:00Z")
    assert early.status == 2
    assert "was not in the ledger" in early.err


def test_piped_output_is_plain_and_cuts_nothing(taken: Cli) -> None:
    failed_over(taken)
    for command in (["status"], ["show", "1417"], ["audit"], ["log"]):
        out = taken(*command).out
        assert "\x1b" not in out
        assert not set("─│┌━┃") & set(out)
        assert INSTANCE in out
        assert all(line == line.rstrip() for line in out.splitlines())
