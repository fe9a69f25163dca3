"""The deliberate faults of scripts/mutate can be put in, and one of each kind is caught at once."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.sim.faults import FAULTS, Fault
from tests.sim.mutants import ROOT, hunt, mutate


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_a_fault_can_be_put_in(fault: Fault, tmp_path: Path) -> None:
    for name in {name for name, _, _ in fault.edits}:
        (tmp_path / "ledger" / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / "ledger" / name, tmp_path / "ledger" / name)
    mutate(tmp_path, fault)
    for name in {name for name, _, _ in fault.edits}:
        compile((tmp_path / "ledger" / name).read_text(encoding="utf-8"), name, "exec")


@pytest.mark.parametrize(
    "name", ["intent-after-the-call", "absent-by-a-describe-alone", "left-and-forgotten", "a-file-written-in-place"]
)
def test_a_fault_is_caught(name: str) -> None:
    fault = next(fault for fault in FAULTS if fault.name == name)
    caught = hunt(fault, limit=40)
    assert caught.scenarios is not None
    assert "the program raised" not in caught.by  # a fault that only falls over proves nothing of the laws


def test_what_is_no_fault_is_not_caught() -> None:
    assert hunt(Fault("none", ()), limit=5).scenarios is None
