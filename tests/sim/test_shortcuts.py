"""What makes a rehearsal fast changes nothing of what comes of it."""

from __future__ import annotations

import os
import tempfile
from dataclasses import dataclass
from pathlib import Path

import pytest

from ledger.sim import rehearse as rehearsal
from ledger.sim.generate import generate
from ledger.sim.program import TheLedger, TheProgram
from ledger.sim.rehearse import events_of, rehearse
from ledger.sim.schema import Scenario
from ledger.source import Source

SEED = 6
SOME = (0, 1, 2, 3, 5, 7, 69)


class Asking(TheLedger):
    """Asks every invariant at the end of each tick, of files that are looked at each time."""

    def watch(self, now: int) -> None:
        self._rows = None
        self._broken |= self.audit(now)


@dataclass(frozen=True, slots=True)
class Program:
    def open(self, folder: Path, source: Source, scenario: Scenario) -> TheLedger:
        return Asking(folder, source, scenario, in_memory=True)


@pytest.mark.parametrize("index", SOME)
def test_memory_and_disk_once_and_again_asked_late_and_at_once(index: int) -> None:
    scenario = generate(SEED, index)
    here = rehearse(scenario, index, TheProgram(in_memory=True))
    there = rehearse(scenario, index, TheProgram())
    asked = rehearse(scenario, index, Program())
    assert here.facts == there.facts == asked.facts
    assert here.truths == there.truths == asked.truths
    assert list(events_of(scenario, index, TheProgram(in_memory=True))) == list(here.facts.events)


def test_the_last_scenario_breaks_an_invariant_by_time_alone_and_mends_it(monkeypatch: pytest.MonkeyPatch) -> None:
    scenario = generate(SEED, SOME[-1])
    asked = rehearse(scenario, SOME[-1], Program()).facts
    monkeypatch.setattr(TheLedger, "_settle_watch", lambda _: None)
    missed = asked.audit_ever - rehearse(scenario, SOME[-1], TheProgram(in_memory=True)).facts.audit_ever
    assert missed == {"queue-overdue"}


@pytest.mark.skipif(not os.access("/dev/shm", os.W_OK), reason="this machine has no folder in memory")
def test_what_is_thrown_away_stays_in_memory_unless_another_folder_was_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tempfile.gettempdir()  # whoever asked for a temporary folder before
    assert rehearsal._scratch() == "/dev/shm"
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    assert rehearsal._scratch() is None
