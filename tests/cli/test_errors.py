"""What a person can do wrong: one line on stderr says what, where and what to do; the right status; nothing lost."""

from __future__ import annotations

import errno
import os
import shlex
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ledger.cli.base import Call
from ledger.cli.main import run
from ledger.log.open import SCHEMA
from tests.cli.conftest import SAMPLES, Cli

ROOT = Path(__file__).resolve().parents[2]


def _one_line(result: Any, *words: str) -> None:
    assert result.status == 2, result
    assert result.err.count("\n") == 1, result.err
    assert result.err.startswith("ledger: ")
    for word in words:
        assert word in result.err


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["audti"], ["'audti'", "'audit'"]),
        (["frobnicate"], ["there is no command 'frobnicate'", "status"]),
        (["db", "downgrade"], ["there is no command 'downgrade'"]),
        (["audit", "--olny", "x"], ["--olny", "ledger audit --help"]),
        (["audit", "--only", "unlaunched"], ["there is no invariant 'unlaunched'", "unlaunched-machine", "log-broken"]),
        (["audit", "--as-of", "yesterday"], ["'yesterday' is no time", "2h"]),
        (["audit", "--as-of", "2099-01-01T00:00:00Z"], ["still to come"]),
        (["audit", "--as-of", "1h", "--history"], ["not both"]),
        (["audit", "--run", "nonsense!"], ["'nonsense!' names no run", "1417"]),
        (["audit", "--run", "99"], ["issue-99 is not in this ledger"]),
        (["log", "--since", "99999999999999d"], ["is no time"]),
        (["log", "--type", "Lunched"], ["there is no event type 'Lunched'", "LaunchConfirmed"]),
        (["log", "--limit", "0"], ["--limit"]),
        (["log", "account-gcp-none"], ["account-gcp-none is not in this ledger"]),
        (["show", "99"], ["issue-99 is not in this ledger"]),
        (["show", "1417", "--as-of", "1970-01-01"], ["was not in the ledger at 1970-01-01"]),
        (["show"], ["ISSUE"]),
        (["ack", "thin-evidence@999"], ["no breach 'thin-evidence@999' is open", "ledger audit"]),
        (["project", "99"], ["issue-99 is not in this ledger"]),
        (["adopt", "my pod", "--run", "1417"], ["'my pod' names no machine", "gcp:PROJECT/ZONE/NUMERIC-ID"]),
        (["import"], ["PATH"]),
    ],
    ids=lambda value: " ".join(value)[:40],
)
def test_wrong_words(taken: Cli, args: list[str], words: list[str]) -> None:
    before = taken.events()
    _one_line(taken(*args), *words)
    assert taken.events() == before


def test_no_ledger_here(bare: Cli) -> None:
    for args in (["audit"], ["status"], ["import", str(SAMPLES)], ["db", "check"], ["verify"]):
        _one_line(bare(*args), "no ledger here", "`ledger init` makes one")


def test_a_path_to_import_that_is_not_there(cli: Cli) -> None:
    result = cli("import", cli.folder / "nowhere")
    assert result.status in (1, 2)
    assert "nowhere" in result.out + result.err


def _newer(cli: Cli) -> None:
    with sqlite3.connect(cli.database) as raw:
        raw.execute(f"PRAGMA user_version = {SCHEMA + 6}")
    raw.close()


def _garbage(cli: Cli) -> None:
    _remove(cli)
    cli.database.write_bytes(b"this is no database at all, and it is long enough to be read as one" * 20)


def _foreign(cli: Cli) -> None:
    _remove(cli)
    with sqlite3.connect(cli.database) as raw:
        raw.execute("CREATE TABLE songs (title TEXT)")
    raw.close()


def _remove(cli: Cli) -> None:
    for path in cli.folder.glob("ledger.db*"):
        path.unlink()


def _folder(cli: Cli) -> None:
    _remove(cli)
    cli.database.mkdir()


@pytest.mark.parametrize(
    ("harm", "words"),
    [
        (_newer, [f"has schema {SCHEMA + 6}", "install a newer one"]),
        (_garbage, ["is not a ledger database", "--db"]),
        (_foreign, ["is no ledger database"]),
        (_folder, ["ledger.db"]),
        (_remove, ["no ledger database at", "`ledger init`"]),
    ],
    ids=["newer schema", "not a database", "another's database", "a folder", "gone"],
)
@pytest.mark.parametrize(
    "command", [["audit"], ["status"], ["verify"], ["confirm", "1417", "--pid", "1"]], ids=" ".join
)
def test_a_database_that_is_not_a_ledgers(
    cli: Cli, harm: Callable[[Cli], None], words: list[str], command: list[str]
) -> None:
    harm(cli)
    _one_line(cli(*command), str(cli.database), *words)


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("mysql://host/ledger", ["no driver serves mysql://"]),
        ("sqlite:///:memory:", ["names no file"]),
        ("sqlite:////nowhere/at/all/ledger.db", ["/nowhere/at/all"]),
    ],
)
def test_a_url_that_cannot_be_served(bare: Cli, url: str, words: list[str]) -> None:
    _one_line(bare("--db", url, "status"), *words)
    _one_line(bare("import", SAMPLES / "issue-1417-handle.json", "--db", url), *words)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[policy\n", ["ledger.toml"]),
        ("[policy]\nqueue_wait = 5\n", ["ledger.toml", "queue_wait"]),
        ("[policy]\nqueue_wait_seconds = 'long'\n", ["ledger.toml", "queue_wait_seconds"]),
        ("[policy]\nladder = ['aws']\n", ["ledger.toml", "ladder", "runpod"]),
        ("bananas = 1\n", ["ledger.toml", "bananas"]),
    ],
)
def test_settings_that_cannot_be_used(cli: Cli, text: str, words: list[str]) -> None:
    (cli.folder / "ledger.toml").write_text(text, encoding="utf-8")
    _one_line(cli("audit"), *words)


def test_a_broken_sidecar_is_refused_by_name_and_the_rest_imported(cli: Cli) -> None:
    bad = cli.folder / "issue-7-handle.json"
    bad.write_bytes(b"\xff\xfe{")
    result = cli("import", bad, SAMPLES / "issue-1417-handle.json", "--json")
    assert result.status == 1
    assert [t["run"] for t in result.json["taken"]] == ["issue-1417"]
    [refused] = result.json["refused"]
    assert refused["path"].endswith("issue-7-handle.json")
    assert "\n" not in refused["reason"]


def test_a_file_in_the_place_of_the_sidecar_folder(cli: Cli) -> None:
    cli.handles.rmdir()
    cli.handles.write_text("not a folder", encoding="utf-8")
    _one_line(cli("import", SAMPLES / "issue-1417-handle.json"), str(cli.handles))
    cli("import", SAMPLES / "issue-1417-handle.json", "--sidecars", cli.folder / "other")
    _one_line(cli("confirm", "1417", "--pid", "1"), str(cli.handles), "is recorded, `ledger project` writes the file")
    assert cli.events("issue-1417")[-1].type == "LaunchConfirmed"
    cli.handles.unlink()
    assert cli("project").status == 0, "what was recorded is projected later"
    assert (cli.handles / "issue-1417-handle.json").is_file()


def test_a_full_disk_under_the_database(taken: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    from ledger.log.sqlite import SqliteConnection

    def full(connection: SqliteConnection, sql: str, rows: object) -> None:
        connection._fail(sqlite3.OperationalError("database or disk is full"))

    before = taken.events()
    monkeypatch.setattr(SqliteConnection, "execute_many", full)
    _one_line(taken("confirm", "1417", "--pid", "1"), "the disk is full", str(taken.database))
    monkeypatch.undo()
    assert taken.events() == before


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EACCES, errno.EROFS, errno.EIO])
def test_an_error_of_the_system(number: int, bare: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_call: Call) -> None:
        raise OSError(number, os.strerror(number), "/some/file")

    monkeypatch.setattr(Call, "settings", fail)
    _one_line(bare("status"), "/some/file", os.strerror(number))


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full here")
def test_an_output_that_is_full(taken: Cli) -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "ledger", "--db", str(taken.database), "log"],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
            cwd=ROOT,
        )
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert "the disk is full" in done.stderr


def test_a_reader_that_goes_away(taken: Cli) -> None:
    read, write = os.pipe()
    os.close(read)
    with os.fdopen(write, "w") as gone:
        done = subprocess.run(
            [sys.executable, "-m", "ledger", "--db", str(taken.database), "log"],
            stdout=gone,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
            cwd=ROOT,
        )
    assert (done.returncode, done.stderr) == (141, "")


def test_what_nobody_foresaw_is_one_line_and_a_traceback_only_on_request(
    bare: Cli, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(_call: Call) -> None:
        raise KeyError("surprise\nin two lines")

    monkeypatch.setattr(Call, "settings", fail)
    monkeypatch.delenv("LEDGER_DEBUG", raising=False)
    _one_line(bare("status"), "unexpected KeyError", "LEDGER_DEBUG=1")
    monkeypatch.setenv("LEDGER_DEBUG", "1")
    assert run(["status"], Call(source=bare.source)) == 2
    assert "Traceback" in capsys.readouterr().err


def test_an_interrupt_is_quiet(bare: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(_call: Call) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Call, "settings", interrupt)
    result = bare("status")
    assert (result.status, result.out, result.err) == (130, "", "")


def test_control_characters_of_a_file_do_not_reach_the_terminal(cli: Cli) -> None:
    seen = {"backend": "runpod", "account": "a", "name": "pod\x1b[2J\nx", "status": "RUNNING", "cost_per_hour": 1.0}
    cli.append("account-runpod-a", cli.event("OrphanObserved", seen, machine="runpod:evil"))
    for command in ("status", "log", "audit"):
        out = cli(command).out
        assert "\x1b" not in out
        assert "runpod:evil" in out


def test_a_ledger_where_nothing_can_be_written_is_read(taken: Cli) -> None:
    """On a read-only or full disk, or in a foreign folder, SQLite cannot make the two files that it keeps beside it."""
    beside = Path(f"{taken.database}-shm")
    beside.symlink_to(taken.folder / "nowhere" / "shm")  # even root cannot make that
    for args in (["status"], ["audit"], ["show", "1417"], ["log"], ["verify", "--projections"], ["project", "--check"]):
        result = taken(*args)
        assert (result.status, result.err) == (0, ""), result
    assert taken("db", "check").status == 0
    _one_line(taken("pause"), str(taken.database), "cannot be opened")


def test_what_is_not_yet_checkpointed_is_never_read_without_it(taken: Cli) -> None:
    """Another process has it open: the file alone is not the whole log."""
    Path(f"{taken.database}-shm").symlink_to(taken.folder / "nowhere" / "shm")
    Path(f"{taken.database}-wal").write_bytes(b"something that is to come into the file")
    _one_line(taken("status"), str(taken.database), "cannot be opened")


def test_a_database_that_was_never_begun_says_how_it_is(cli: Cli) -> None:
    """As a full disk leaves it after `ledger init`."""
    _remove(cli)
    cli.database.touch()
    _one_line(cli("status"), "has no ledger in it yet", "`ledger db upgrade` makes one there")
    assert cli("db", "check").status == 1
    assert cli("db", "upgrade").status == 0
    assert cli("status").status == 0


def test_another_programs_database_cannot_be_upgraded(cli: Cli) -> None:
    _foreign(cli)
    for command in ("check", "current", "upgrade"):
        _one_line(cli("db", command), "is no ledger database")


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["log", "--limit", str(10**20)], ["--limit", "range"]),
        (["confirm", "1418", "--pid", str(10**20)], ["--pid", "range"]),
        (["adopt", "runpod:x", "--run", "1418", "--cost-per-hour", "inf"], ["--cost-per-hour", "range"]),
        (["status", "--db", "~nobody-of-that-name/x.db"], ["~nobody-of-that-name/x.db", "home folder"]),
    ],
    ids=lambda value: " ".join(value)[:40],
)
def test_values_that_nothing_can_hold(taken: Cli, args: list[str], words: list[str]) -> None:
    before = taken.events()
    _one_line(taken(*args), *words)
    assert taken.events() == before


def test_settings_that_nest_without_end(cli: Cli) -> None:
    (cli.folder / "ledger.toml").write_text("a = " + "[" * 5000 + "]" * 5000, encoding="utf-8")
    _one_line(cli("status"), "ledger.toml", "nested too deeply")


def test_a_key_that_nobody_knows_is_told_with_all_that_there_are(cli: Cli) -> None:
    (cli.folder / "ledger.toml").write_text("colour = 1\n", encoding="utf-8")
    _one_line(cli("status"), "colour is not known", "intents", "policy")


def test_a_closed_stdout_is_no_fault(cli: Cli) -> None:
    command = f"exec {shlex.quote(sys.executable)} -m ledger --db {cli.database} status >&-"
    done = subprocess.run(["sh", "-c", command], cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_init_in_a_folder_that_is_gone(tmp_path: Path) -> None:
    command = f"mkdir gone && cd gone && rmdir ../gone && exec {shlex.quote(sys.executable)} -m ledger init"
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(["sh", "-c", command], cwd=tmp_path, capture_output=True, text=True, check=False, env=env)
    assert done.returncode == 2
    assert "cannot be made a ledger's" in done.stderr
