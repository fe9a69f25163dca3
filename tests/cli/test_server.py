"""A ledger on a server through the command line: every command works there as on a file."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from ledger.log.open import open_log
from tests.cli.conftest import SAMPLES, Cli
from tests.support import FakeSource, cancelled


@pytest.fixture
def team(bare: Cli, empty: str) -> Cli:
    """A ledger on a server, which has taken over two runs."""
    bare.env = {**bare.env, "LEDGER_DATABASE_URL": empty, "LEDGER_SIDECAR_DIR": str(bare.folder / "handles")}
    assert bare("import", *(SAMPLES / f"issue-{n}-handle.json" for n in (1417, 1418))).status == 0
    return bare


@pytest.mark.parametrize(
    ("url", "told"),
    [("postgresql://x@127.0.0.1:1/y", "the server cannot be reached"), ("x.db", "no PostgreSQL server")],
)
def test_a_rehearsal_on_no_server_is_no_finding(bare: Cli, url: str, told: str) -> None:
    done = bare("rehearse", "--random", "1", "--server", url)
    assert (done.status, done.out) == (2, "")
    assert told in done.err
    assert not list(bare.folder.glob("found-*"))


def test_the_commands_that_read(team: Cli) -> None:
    told = team("status", "--json")
    assert told.status == 0, told.err
    assert {run["run"] for run in told.json["runs"]} == {"issue-1417", "issue-1418"}
    assert team("show", "1417").status == 0
    assert team("audit", "--json").status in (0, 1)
    assert team("audit", "--history", "--json").status in (0, 1)
    assert team("audit", "--as-of", "2026-07-18T00:00:00Z").status in (0, 1)
    assert team("log", "--limit", "1", "--json").json["type"] == "HandleImported"
    assert team("verify", "--projections").status == 0
    assert team("verify", "--head").status == 0
    assert team("project", "--check").status == 0
    shown = team("db", "current")
    assert shown.status == 0
    assert "postgresql://" in shown.out
    assert team("db", "check").status == 0
    assert team("db", "upgrade").status == 0


def test_a_ledger_is_copied_from_its_file(taken: Cli, empty: str) -> None:
    file = taken.database
    told = taken("db", "copy", file, empty, "--json").json
    assert told["events"] == 4
    old = taken("log", "--limit", "1")
    assert old.status == 0
    assert "as it was then: this ledger has moved to postgresql://" in old.err
    assert taken("cancel", "1417").status == 2
    assert taken("--db", empty, "verify", "--projections").status == 0
    assert taken("verify", "--head").out == taken("--db", empty, "verify", "--head").out
    for wrong in ((empty, file), (file, file), (taken.folder / "none.db", empty)):
        assert taken("db", "copy", *wrong).status == 2
    again = taken("db", "copy", file, empty)
    assert again.status == 2
    assert "has moved to" in again.err


def test_the_roles_are_printed(cli: Cli) -> None:
    told = cli("db", "roles", "--poller", "p", "--reader", "r")
    assert told.status == 0
    assert "GRANT INSERT ON events TO p;" in told.out
    assert cli("db", "roles", "--poller", "p; DROP TABLE x").status == 2


@pytest.mark.slow
def test_a_host_that_does_not_poll_follows(team: Cli, empty: str, tmp_path: Path) -> None:
    """`ledger project --follow` and `ledger log --follow` tell what another process appends, without being asked."""
    other = tmp_path / "other-host"
    env = {**os.environ, "LEDGER_DATABASE_URL": empty, "LEDGER_SIDECAR_DIR": str(other)}
    command = [sys.executable, "-m", "ledger"]
    with (
        subprocess.Popen([*command, "project", "--follow"], env=env, stdout=subprocess.PIPE) as projects,
        subprocess.Popen([*command, "log", "--follow", "--json"], env=env, stdout=subprocess.PIPE) as logs,
    ):
        try:
            assert logs.stdout is not None
            for _ in range(3):
                logs.stdout.readline()
            waited((other / "issue-1417-handle.json").exists)
            log = open_log(empty, FakeSource())
            log.append("issue-1417", log.state("issue-1417").version, [cancelled(0)])
            assert json.loads(logs.stdout.readline())["type"] == "CancelRequested"
            version = log.state("issue-1417").version
            waited(lambda: _version(other) == version)
            log.connection.close()
        finally:
            projects.terminate()
            logs.terminate()


def _version(folder: Path) -> int:
    text = (folder / "issue-1417-handle.json").read_text(encoding="utf-8")
    return int(json.loads(text)["extra"]["ledger"]["version"])


def waited(holds: object) -> None:
    assert callable(holds)
    for _ in range(500):
        if holds():
            return
        time.sleep(0.02)
    raise AssertionError
