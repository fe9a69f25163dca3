"""`ledger init`, `ledger db`, `ledger verify`."""

from __future__ import annotations

import sqlite3

from ledger.log.open import SCHEMA
from tests.cli.conftest import Cli


def test_init_makes_a_ledger_and_says_what_to_do_next(bare: Cli) -> None:
    result = bare("init", bare.folder / "new")
    assert result.status == 0
    for words in ("ledger.toml", "ledger.db", "handles", "ledger import", "ledger audit"):
        assert words in result.out
    bare.folder = bare.folder / "new"
    assert bare("status").status == 0
    assert [e.type for e in bare.events()] == ["LedgerCreated"]


def test_a_second_init_says_so_and_changes_nothing(cli: Cli) -> None:
    before = cli.events()
    result = cli("init", cli.folder)
    assert (result.status, "ledger.toml" in result.err) == (2, True)
    assert cli.events() == before


def test_init_as_json(bare: Cli) -> None:
    value = bare("init", bare.folder, "--json").json
    assert value["database"] == str(bare.database)
    assert value["sidecars"] == str(bare.handles)


def test_db_says_which_schema_it_has(cli: Cli) -> None:
    assert cli("db", "check").status == 0
    assert cli("db", "current", "--json").json == {
        "database": str(cli.database),
        "schema": SCHEMA,
        "newest": SCHEMA,
    }
    with sqlite3.connect(cli.database) as raw:
        raw.execute(f"PRAGMA user_version = {SCHEMA + 1}")
    raw.close()
    newer = cli("db", "check", "--json")
    assert (newer.status, newer.json["ok"]) == (1, False)
    assert cli("db", "upgrade").status == 2


def test_db_upgrade_makes_one_and_twice_is_fine(bare: Cli) -> None:
    url = f"sqlite:///{bare.folder / 'own.db'}"
    first = bare("db", "upgrade", "--db", url, "--json")
    assert (first.status, first.json) == (0, {"from": 0, "to": SCHEMA})
    assert bare("--db", url, "db", "upgrade", "--json").json == {"from": SCHEMA, "to": SCHEMA}
    assert bare("db", "--db", url, "check").status == 0


def test_the_common_options_count_before_and_after_the_command(taken: Cli) -> None:
    outside = taken.folder / "elsewhere"
    outside.mkdir()
    taken.folder = outside
    database = outside.parent / "ledger.db"
    assert taken("status").status in (0, 2)
    before = taken("--db", database, "--json", "log")
    after = taken("log", "--db", database, "--json")
    assert before.status == after.status == 0
    assert before.out == after.out != ""


def test_verify_is_0_for_a_whole_log_and_names_what_is_not(taken: Cli) -> None:
    assert taken("verify").out.endswith("the log is whole\n")
    whole = taken("verify", "--projections", "--json")
    assert (whole.status, whole.json["whole"], whole.json["findings"]) == (0, True, [])
    [event] = taken.events("issue-1417")
    with sqlite3.connect(taken.database) as raw:
        for (name,) in raw.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'").fetchall():
            raw.execute(f"DROP TRIGGER {name}")
        raw.execute("UPDATE events SET payload = '{}' WHERE position = ?", (event.position,))
    raw.close()
    broken = taken("verify", "--json")
    assert broken.status == 1
    assert broken.json["findings"][0]["position"] == event.position
    assert "issue-1417 version 1 HandleImported" in taken("verify").out


def test_verify_head_is_one_line_that_changes_with_the_log(taken: Cli) -> None:
    first = taken("verify", "--head").out
    assert len(first.strip()) == 64
    assert taken("verify", "--head", "--json").json["head"] == first.strip()
    taken("pause")
    assert taken("verify", "--head").out != first
