"""`ledger audit` and `ledger ack`."""

from __future__ import annotations

import pytest

from tests.cli.conftest import POD, Cli, failed_over, types_of


@pytest.fixture
def broken(taken: Cli) -> Cli:
    """#1417 with a pod that has billed for an hour with nothing on it."""
    failed_over(taken)
    taken.set_clock("2026-07-18T01:20:00Z")
    return taken


def test_nothing_open_is_0(cli: Cli) -> None:
    result = cli("audit")
    assert (result.status, result.out) == (0, "no breach open\n")
    assert cli("audit", "--json").json["open"] == []


def test_open_breaches_are_1_with_evidence_money_and_advice(broken: Cli) -> None:
    result = broken("audit", "--json")
    assert result.status == 1
    value = result.json
    breach = next(b for b in value["open"] if b["invariant"] == "unlaunched-machine")
    assert breach["run"] == "issue-1417"
    assert breach["machine"] == POD
    assert breach["since"] == "2026-07-18T00:50:00Z"
    assert breach["usd_at_risk"] == pytest.approx(11.96)
    assert breach["advice"]
    assert types_of([e for e in broken.events() if e.position in breach["evidence"]]) == ["Provisioned"]
    assert value["usd_per_hour"] == pytest.approx(11.96), "a machine in several breaches is billed once"
    text = broken("audit").out
    assert breach["id"] in text
    assert f"{breach['evidence'][0]} Provisioned" in text
    assert breach["advice"] in text
    assert "$11.96 an hour at risk" in text


def test_it_can_be_narrowed_to_an_invariant_and_a_run(broken: Cli) -> None:
    only = broken("audit", "--only", "unlaunched-machine", "--run", "1417", "--json")
    assert only.status == 1
    assert [(b["invariant"], b["run"]) for b in only.json["open"]] == [("unlaunched-machine", "issue-1417")]
    assert broken("audit", "--only", "double-billing", "--run", "1417").status == 0


def test_as_of_says_what_was_broken_then(broken: Cli) -> None:
    args = ("audit", "--only", "unlaunched-machine", "--as-of")
    assert broken(*args, "2026-07-18T00:49:59Z").status == 0
    at = broken(*args, "2026-07-18T00:50:00Z", "--json")
    assert at.status == 1
    assert at.json["at"] == "2026-07-18T00:50:00Z"
    assert broken(*args, "30min").status == 1


def test_from_the_log_alone_says_the_same(broken: Cli) -> None:
    args = ("audit", "--run", "1417", "--json")
    kept = [b["id"] for b in broken(*args).json["open"] if b["invariant"] != "lossy-projection"]
    assert [b["id"] for b in broken(*args, "--from-log").json["open"]] == kept


def test_history_keeps_what_is_past(broken: Cli) -> None:
    assert broken("confirm", 1417, "--pid", 4242).status == 0
    value = broken("audit", "--history", "--run", "1417", "--json").json
    past = {b["invariant"]: b for b in value["past"]}
    assert past["unlaunched-machine"]["until"] == "2026-07-18T01:20:00Z"
    assert "unlaunched-machine" not in [b["invariant"] for b in value["open"]]
    assert "past" in broken("audit", "--history", "--run", "1417").out


def _thin(cli: Cli) -> str:
    """A decision that rests on nothing: a breach of conduct. Gives its id."""
    log = cli.log()
    machine = next(iter(log.run("issue-1418").machines.values()))
    log.connection.close()
    payload = {"reason": "wedged", "from": machine.id, "evidence": []}
    cli.append("issue-1418", cli.event("FailoverDecided", payload, attempt=machine.attempt, machine=machine.id))
    found = [b["id"] for b in cli("audit", "--only", "thin-evidence", "--json").json["open"]]
    assert len(found) == 1
    return str(found[0])


def test_conduct_is_acknowledged_once_in_the_runs_stream(taken: Cli) -> None:
    breach = _thin(taken)
    result = taken("ack", breach, "--note", "seen", "--json")
    assert (result.status, result.json["written"]) == (0, True)
    event = taken.events("issue-1418")[-1]
    assert (event.type, event.actor, event.data()) == ("BreachAcknowledged", "user", {"breach": breach, "note": "seen"})
    assert taken("audit", "--only", "thin-evidence").status == 0
    again = taken("ack", breach, "--json")
    assert (again.status, again.json["written"]) == (0, False)
    assert taken.events("issue-1418")[-1] == event


def test_a_note_does_not_carry_a_secret_into_the_log(taken: Cli) -> None:
    secret = "hf_" + "a1B2" * 9
    taken("ack", _thin(taken), "--note", f"used {secret}")
    assert secret not in taken.events("issue-1418")[-1].payload


def test_a_state_cannot_be_acknowledged_and_says_what_closes_it(broken: Cli) -> None:
    breach = next(b for b in broken("audit", "--json").json["open"] if b["invariant"] == "unlaunched-machine")
    result = broken("ack", breach["id"])
    assert result.status == 2
    assert "closes by itself" in result.err
    assert breach["advice"].split(";")[0] in result.err


def test_a_machine_with_our_marker_can_be_acknowledged(cli: Cli) -> None:
    seen = {
        "backend": "runpod",
        "account": "example",
        "name": "pod-9",
        "status": "RUNNING",
        "marker": "ours.issue-9.attempt.1",
    }
    cli.append("account-runpod-example", cli.event("OrphanObserved", seen, machine="runpod:orphan9"))
    [breach] = [b["id"] for b in cli("audit", "--only", "log-broken", "--json").json["open"]]
    assert cli("ack", breach).status == 0
    assert cli.events("ledger")[-1].data()["breach"] == breach
    assert cli("audit", "--only", "log-broken").status == 0
