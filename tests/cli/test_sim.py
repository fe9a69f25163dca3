"""`ledger sim serve` and what is pointed at it: `ledger doctor`, dispatch, poll."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ledger.sim.scenario import loads
from ledger.sim.schema import ACCOUNT_RUNPOD, PROJECT
from ledger.sim.wire.serve import Serving, empty
from tests.cli.conftest import Cli

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def served(cli: Cli) -> Iterator[Serving]:
    """The simulated clouds, and a ledger whose settings and environment lead there."""
    with_project(cli)
    serving = Serving(empty(), cli.source)
    cli.env |= serving.environment()
    yield serving
    serving.close()


def with_project(cli: Cli) -> None:
    file = cli.folder / "ledger.toml"
    text = file.read_text(encoding="utf-8")
    file.write_text(text.replace('project = ""', f'project = "{PROJECT}"'), encoding="utf-8")


def dispatched(cli: Cli, issue: int, backend: str) -> int:
    what = ("--intent", "eval", "--workload-cmd", "true")
    return cli("dispatch", "--issue", issue, "--backend", backend, *what).status


def states(cli: Cli) -> dict[str, Any]:
    return {check["about"]: check["state"] for check in cli("doctor", "--json").json["checks"]}


def said(cli: Cli, about: str) -> str:
    checks = {check["about"]: check["said"] for check in cli("doctor", "--json").json["checks"]}
    return str(checks[about])


@pytest.mark.parametrize("api", ["graphql", "rest_v2"])
def test_the_doctor_finds_all_well(cli: Cli, served: Serving, api: str) -> None:
    cli.env["LEDGER_RUNPOD_API"] = api
    result = cli("doctor")
    assert result.status == 0, result.out
    assert "STOPS" not in result.out
    assert f"account {PROJECT} answers, with 0 machines" in result.out
    assert f"account {ACCOUNT_RUNPOD} answers, with 0 machines" in result.out
    assert f"a key in RUNPOD_API_KEY; {api}, asked at {served.runpod.url}" in result.out
    assert cli.env["RUNPOD_API_KEY"] not in result.out
    assert [event.type for event in cli.events()] == ["LedgerCreated"]


def test_the_doctor_names_what_stops_a_poll(cli: Cli, served: Serving) -> None:
    cli.env["LEDGER_GCE_ENDPOINT"] = "http://127.0.0.1:9"
    del cli.env["RUNPOD_API_KEY"]
    result = cli("doctor")
    assert result.status == 1
    assert states(cli) | {"gcp": "stops", "runpod credentials": "note"} == states(cli)
    assert "RUNPOD_API_KEY is not set and" in said(cli, "runpod credentials")


def test_a_cloud_that_holds_a_machine_of_ours_must_be_reached(cli: Cli, served: Serving) -> None:
    assert (
        cli("dispatch", "--issue", 7, "--backend", "runpod", "--intent", "eval", "--workload-cmd", "true").status == 0
    )
    assert served.books()["created"] == {"gcp": 0, "runpod": 1}
    del cli.env["RUNPOD_API_KEY"]
    assert states(cli)["runpod credentials"] == "stops"


@pytest.mark.parametrize("api", ["graphql", "rest_v2"])
def test_a_wrong_key_is_one_line_that_says_which(cli: Cli, api: str) -> None:
    text = b"scenario: s\nexpect: {}\ncalls: [{cloud: runpod, call: list, answer: unauthorized}]\n"
    serving = Serving(loads(text, "s"), cli.source)
    try:
        cli.env |= serving.environment() | {"LEDGER_RUNPOD_API": api}
        assert dispatched(cli, 7, "runpod") == 0
        [line] = [line for line in cli("poll").err.splitlines() if "could not be read" in line]
    finally:
        serving.close()
    assert f"runpod {ACCOUNT_RUNPOD} could not be read (unauthorized: HTTP 401" in line
    assert "the key in RUNPOD_API_KEY was sent" in line
    assert cli.env["RUNPOD_API_KEY"] not in line


def test_without_any_cloud_there_is_no_poll(cli: Cli) -> None:
    assert cli("doctor").status == 1
    assert states(cli)["runpod credentials"] == "stops"
    assert states(cli)["gcp credentials"] == "stops"


def test_the_doctor_looks_at_clock_key_and_folder(cli: Cli, served: Serving) -> None:
    cli.source.micros += 500_000_000
    cli.handles.rmdir()
    cli.handles.write_text("", encoding="utf-8")
    file = cli.folder / "ledger.toml"
    text = file.read_text(encoding="utf-8")
    file.write_text(text.replace('# key = "~/.ssh/id_ed25519"', 'key = "nokey"'), encoding="utf-8")
    assert states(cli) | {"clock": "stops", "ssh": "stops", "handle files": "stops"} == states(cli)
    assert "+500" in said(cli, "clock") or "+499" in said(cli, "clock")


def test_a_database_that_is_none_stops_and_the_rest_is_looked_at(cli: Cli, served: Serving) -> None:
    cli.database.write_text("no database", encoding="utf-8")
    assert states(cli) | {"database": "stops", "gcp": "ok"} == states(cli)


def test_a_run_goes_over_the_served_clouds(cli: Cli, served: Serving) -> None:
    assert (
        cli("dispatch", "--issue", 7, "--backend", "runpod", "--intent", "eval", "--workload-cmd", "true").status == 0
    )
    assert dispatched(cli, 8, "gcp") == 0
    cli.source.micros += 1_000_000
    assert cli("poll").status == 0
    books = served.books()
    assert books["created"] == {"gcp": 1, "runpod": 1}
    assert books["live"] == ["runpod/pod-7"]  # the instance does not run yet


def test_a_machine_of_the_scenario_has_an_address_that_is_there(cli: Cli) -> None:
    text = b"scenario: s\nexpect: {}\nmachines: [{cloud: runpod, name: pod-1, id: p}, {cloud: gcp, name: x, id: '7'}]\n"
    serving = Serving(loads(text, "s"), cli.source)
    try:
        pod, vm = (machine.reached_at or "" for machine in serving.gate.world.machines)
        assert pod.startswith("127.0.0.1:")
        assert vm in ("", f"127.1.0.2:{serving.environment()['LEDGER_GCE_SSH_PORT']}")
    finally:
        serving.close()


def test_serve_prints_where_it_is_and_at_the_end_the_books(tmp_path: Path) -> None:
    books = tmp_path / "books.json"
    command = [sys.executable, "-m", "ledger", "sim", "serve", "--json", "--books", str(books)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT) as process:
        assert process.stdout is not None
        told = json.loads(process.stdout.readline())
        process.send_signal(signal.SIGINT)
        rest = process.stdout.read()
    assert process.returncode == 0
    assert set(told["environment"]) == {
        "LEDGER_GCE_ENDPOINT",
        "LEDGER_GCE_SSH_PORT",
        "RUNPOD_API_BASE_URL",
        "LEDGER_RUNPOD_V2_ENDPOINT",
        "RUNPOD_API_KEY",
    }
    kept = json.loads(books.read_text(encoding="utf-8"))
    assert json.loads(rest) == {"books": kept}
    assert kept["created"] == {"gcp": 0, "runpod": 0}


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["nothing.yaml"], "nothing.yaml"),
        (["--books", "no/where/books.json"], "there is no folder"),
    ],
)
def test_serve_refuses_what_it_cannot_use(bare: Cli, arguments: list[str], words: str) -> None:
    result = bare("sim", "serve", *arguments)
    assert result.status == 2
    assert words in result.err
    assert result.err.count("\n") == 1
