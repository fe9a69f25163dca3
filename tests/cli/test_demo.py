"""`ledger demo`: the story that it tells is the one that happened, and it leaves nothing behind."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import pytest

from ledger.demo.healed import replays
from ledger.demo.stage import SIDECARS
from tests.cli.conftest import POD, SAMPLES, Cli


@pytest.fixture
def told(bare: Cli) -> Any:
    result = bare("demo", "--json")
    assert result.status == 0
    return result.json


def _at(told: Any, moment: str) -> Any:
    return next(m for m in told["moments"] if m["at"] == moment)


def _open(moment: Any) -> dict[str, Any]:
    return {breach["invariant"]: breach for breach in moment["open"]}


def test_1417_is_found_half_an_hour_into_the_bill(told: Any) -> None:
    for quiet in ("2026-07-18T00:20:00Z", "2026-07-18T00:26:00Z", "2026-07-18T00:41:00Z"):
        assert _open(_at(told, quiet)) == {}
    bound = _open(_at(told, "2026-07-18T00:57:00Z"))
    assert list(bound) == ["unlaunched-machine"]
    assert bound["unlaunched-machine"]["machine"] == POD
    assert bound["unlaunched-machine"]["since"] == "2026-07-18T00:56:00Z"
    noticed = _at(told, "2026-07-18T01:11:00Z")
    assert {"unlaunched-machine", "dangling-handle", "failover-overdue"} <= set(_open(noticed))
    assert noticed["usd"] == pytest.approx(11.96 * 0.75)
    assert _open(noticed)["unlaunched-machine"]["usd_at_risk"] == pytest.approx(11.96 * 0.75)
    assert noticed["old_files"]["issue-1417"] == "gcp, pending, FLEX_START"
    assert POD in noticed["handles"]["issue-1417"]
    assert _open(_at(told, "2026-07-18T01:12:00Z")) == {}


def test_1776_is_found_when_the_queue_is_overdue_whatever_the_file_says(told: Any) -> None:
    looked = _at(told, "2026-07-30T18:49:00Z")
    assert looked["old_files"] == {"issue-1776": "gcp, pending, no model", "issue-1777": "gcp, pending, STANDARD"}
    overdue = _at(told, "2026-07-30T18:54:00Z")["open"]
    assert {b["run"] for b in overdue if b["invariant"] == "queue-overdue"} == {"issue-1776", "issue-1777"}
    assert {b["since"] for b in overdue if b["invariant"] == "queue-overdue"} == {"2026-07-30T18:53:02Z"}
    assert told["moments"][-1]["open"] == []


def test_what_is_past_is_kept(told: Any) -> None:
    past = {(b["invariant"], b["run"]) for b in told["past"]}
    assert {("unlaunched-machine", "issue-1417"), ("queue-overdue", "issue-1776")} <= past


def test_with_the_ledger_the_same_nights_end_well(told: Any) -> None:
    healed, hopeless, reconnected = told["with_the_ledger"]
    assert all(replay["held"] for replay in told["with_the_ledger"])
    assert [replay["breaches_open"] for replay in told["with_the_ledger"]] == [[], [], []]
    assert healed["handle"] == "runpod, pod-1417, running"
    assert healed["seconds_with_nothing_on_it"] <= 150
    assert healed["events"][-1]["type"] == "Repointed"
    assert hopeless["events"][-1]["type"] == "RunClosed"
    assert hopeless["seconds_with_nothing_on_it"] <= 1920
    assert hopeless["usd_with_nothing_on_it"] == pytest.approx(11.96 * hopeless["seconds_with_nothing_on_it"] / 3600)
    assert reconnected["handle"] == "runpod, pod-1776, running"


def test_piped_it_is_plain_text_that_fits_a_terminal(bare: Cli) -> None:
    out = bare("demo").out
    assert "\x1b" not in out
    for words in ("#1417", "#1776", "unlaunched-machine", "$8.97 at risk", "no breach open", "ledger init"):
        assert words in out
    assert max(map(len, out.splitlines())) <= 120


def test_it_leaves_nothing_behind_and_is_the_same_each_time(
    bare: Cli, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    first = bare("demo", "--json").out
    assert list(tmp_path.iterdir()) == []
    assert bare("demo", "--json").out == first


def test_its_sidecars_are_the_samples() -> None:
    for file in SIDECARS.glob("*.json"):
        assert file.read_bytes() == (SAMPLES / file.name).read_bytes()


def test_over_the_wire_the_ledger_does_the_same() -> None:
    [wired], [plain] = replays("#1776", wire=True), replays("#1776")
    assert [(event.type, event.occurred_at) for event in wired.events] == [
        (event.type, event.occurred_at) for event in plain.events
    ]
    assert (wired.held, wired.handle, wired.usd) == (True, plain.handle, plain.usd)
