"""How values are shown: lengths of time, money, moments in JSON, tables on a terminal, events in words."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from ledger.cli import output
from ledger.cli.names import machine_of, run_of
from ledger.cli.words import words
from ledger.errors import LedgerError
from ledger.events import KINDS, Event


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (None, "-"),
        (-5, "0 s"),
        (59, "59 s"),
        (60, "1 min"),
        (2700, "45 min"),
        (3600, "1 h 00 min"),
        (7500, "2 h 05 min"),
        (49 * 3600, "2 d 1 h"),
    ],
)
def test_span(seconds: int | None, text: str) -> None:
    assert output.span(seconds if seconds is None else seconds * 1_000_000) == text


@pytest.mark.parametrize(("value", "text"), [(None, "?"), (0, "$0.00"), (11.96, "$11.96"), (1234.5, "$1,234.50")])
def test_dollars(value: float | None, text: str) -> None:
    assert output.dollars(value) == text


def test_moments_are_text_in_json_and_numbers_stay_numbers() -> None:
    value = {"at": 0, "known_at": 1_000_000, "pid": 7, "since": None, "rows": [{"until": 2_000_000}], "billed_at": True}
    assert output.iso_times(value) == {
        "at": "1970-01-01T00:00:00Z",
        "known_at": "1970-01-01T00:00:01Z",
        "pid": 7,
        "since": None,
        "rows": [{"until": "1970-01-01T00:00:02Z"}],
        "billed_at": True,
    }


def test_a_table_on_a_terminal_is_drawn_and_reads_no_markup(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(output, "on_terminal", lambda: True)
    output.table(("run", "$/h"), [("[red]issue-1", "$1.00"), (None, "$10.00")], right=("$/h",))
    out = capsys.readouterr().out
    assert "─" in out
    assert "[red]issue-1" in out


def test_a_table_in_a_pipe_is_aligned_and_cuts_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    output.table(("run", "$/h", "x"), [("i" * 200, "$1.00", ""), ("b", "$10.00", "end")], right=("$/h",))
    head, first, second = capsys.readouterr().out.splitlines()
    assert first.startswith("i" * 200)
    assert head.index("$/h") + 3 == first.index("$1.00") + 5 == second.index("$10.00") + 6
    assert second.endswith("end")


def _event(type_: str, payload: str, schema: int = 1) -> Event:
    return Event(1, "issue-1", 1, "id", type_, schema, 0, 0, "poller", None, None, None, payload, "hash")


@pytest.mark.parametrize("type_", [*KINDS, "LaunchedTwice"])
@pytest.mark.parametrize("payload", ["{}", "[]", "null", "not json", '{"cost_per_hour": "much", "evidence": 3}'])
def test_every_event_has_words_whatever_it_holds(type_: str, payload: str) -> None:
    assert isinstance(words(_event(type_, payload)), str)


def test_an_event_of_another_version_says_so() -> None:
    assert words(_event("LaunchedTwice", "{}")) == "an event that this version does not know"
    assert words(_event("Provisioned", "{}")) == "a payload that this version cannot read"


@pytest.mark.parametrize(
    ("text", "stream"),
    [("1417", "issue-1417"), ("#1417", "issue-1417"), ("0007", "issue-7"), ("923-armb", "issue-923-armb")],
)
def test_names_of_runs(text: str, stream: str) -> None:
    assert run_of(text) == stream


@pytest.mark.parametrize(
    ("call", "text"),
    [
        *((run_of, text) for text in ("", "issue-", "-1", "1417-B", "1417_b", "pod-1417", "1417-" + "x" * 44, "1;2")),
        *((machine_of, text) for text in ("", "gcp:", "gcp:p/z", "gcp:p/us-central1-a/x1", "runpod:a b", "aws:i-1")),
    ],
)
def test_what_names_nothing_is_refused_in_one_line(call: Callable[[str], Any], text: str) -> None:
    with pytest.raises(LedgerError) as caught:
        call(text)
    assert "\n" not in str(caught.value)
    assert repr(text) in str(caught.value)


def test_a_number_is_never_broken_over_two_lines(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(output, "on_terminal", lambda: True)
    monkeypatch.setenv("COLUMNS", "40")
    words = tuple(f"column {n}" for n in range(5))
    output.table((*words, "$/h"), [(*("issue-1417-lane",) * 5, "$1,011.96")], right=("$/h",))
    assert "$1,011.96" in capsys.readouterr().out
