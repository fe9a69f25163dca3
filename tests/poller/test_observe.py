"""What a tick makes of the lists themselves: the clock at each answer, and an account that is told late."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from ledger.clouds.values import Listing, Unknown
from ledger.decide.view import Rent
from ledger.edges import Edges
from ledger.log.open import create_log
from ledger.moments import MICROS
from ledger.policy import Policy
from ledger.poller.observe import read_lists
from ledger.poller.specs import create_spec, launch_spec
from ledger.settings import load
from tests import support as s
from tests.decide.making import run_of


class Clock:
    """A clock that the test moves."""

    micros = 1_800_000_000 * MICROS

    def now(self) -> int:
        return self.micros

    def steady(self) -> float:
        return self.micros / MICROS

    def random_bytes(self, count: int) -> bytes:
        return bytes(count)


class Cloud:
    """A cloud whose list takes its time, by a clock that is `ahead` of it."""

    def __init__(self, clock: Clock, backend: str, account: str, takes: int = 0, ahead: int = 0) -> None:
        self.clock, self.backend, self.account = clock, backend, account
        self.takes, self.ahead = takes, ahead

    def list_all(self, *, timeout: float) -> Listing | Unknown:
        self.clock.micros += self.takes * MICROS
        told = self.clock.micros - self.ahead * MICROS
        return Listing(self.account, True, (), fingerprint="f", server_time=told)


def one_by_one(calls: Sequence[Any], seconds: float) -> list[Any]:
    return [call() for call in calls]


def edges(tmp_path: Path, clock: Clock, clouds: list[Cloud], rent: Rent | None = None) -> Edges:
    log = create_log(f"sqlite:///{tmp_path / 'l.db'}", clock, Policy(), "test")
    return Edges(clock, log, clouds, None, Policy(), rent or Rent(), {}, one_by_one, "me", print)  # type: ignore[arg-type]


@pytest.mark.parametrize(("ahead", "skew"), [(0, 0), (300, 300), (-300, -300)])
def test_a_slow_list_makes_no_clock_wrong(tmp_path: Path, ahead: int, skew: int) -> None:
    clock = Clock()
    clouds = [Cloud(clock, "gcp", "p", ahead=ahead), Cloud(clock, "runpod", "r", takes=29)]
    it = edges(tmp_path, clock, clouds)
    try:
        observation = read_lists(it, 60.0, [("gcp", "p"), ("runpod", "r")])
        assert observation.skew == skew * MICROS
        assert observation.at == clock.micros
    finally:
        it.log.connection.close()


@pytest.mark.parametrize(("known", "then"), [("", "user-7"), ("user-1", "user-1"), (None, None)])
def test_an_account_that_is_told_late_is_whose_the_next_creates_are(
    tmp_path: Path, known: str | None, then: str | None
) -> None:
    clock = Clock()
    it = edges(tmp_path, clock, [Cloud(clock, "runpod", "user-7")], Rent(runpod_account=known))
    try:
        read_lists(it, 60.0, [("runpod", "user-7")])
        assert it.rent.account("runpod") == then
    finally:
        it.log.connection.close()


def test_hydra_arguments_are_given_to_what_the_settings_say(tmp_path: Path) -> None:
    (tmp_path / "ledger.toml").write_text('hydra_command = "uv run python -m trainer"')
    settings = load(cwd=tmp_path, env={})
    run = run_of(
        s.opened(0, rung="runpod", workload_cmd="", hydra_args=["lr=1", "name=a b"]), s.requested(0), s.provisioned(0)
    )
    machine = next(iter(run.machines.values()))
    assert launch_spec(run, machine).command == "python train.py lr=1 'name=a b'"
    wanted = "uv run python -m trainer lr=1 'name=a b'"
    assert launch_spec(run, machine, settings.hydra_command).command == wanted
    intent = next(iter(run.intents.values()))
    spec = create_spec(run, intent, "ledger", Policy(), {}, settings.hydra_command)
    assert spec.workload == wanted
    assert spec.launch is not None
    assert spec.launch.command == wanted
