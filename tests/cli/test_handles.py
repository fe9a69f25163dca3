"""`ledger import` and `ledger project`."""

from __future__ import annotations

import json

from tests.cli.conftest import SAMPLES, Cli


def test_import_takes_over_what_is_whole_and_refuses_the_rest_with_reasons(cli: Cli) -> None:
    result = cli("import", SAMPLES, "--json")
    assert result.status == 1
    value = result.json
    assert len(value["taken"]) == 8
    assert sorted(r["path"].rsplit("/", 1)[-1] for r in value["refused"]) == [
        f"issue-{n}-handle.json" for n in (1001, 1002, 1003)
    ]
    assert all(r["reason"] for r in value["refused"])
    assert {t["run"]: t["driven"] for t in value["taken"]}["issue-640"] is False
    assert sorted(p.name for p in cli.handles.glob("*-handle.json")) == sorted(
        f"{t['run']}-handle.json" for t in value["taken"]
    )


def test_import_again_leaves_alone(taken: Cli) -> None:
    before = taken.events()
    stamps = {p: p.stat().st_mtime_ns for p in taken.handles.iterdir()}
    result = taken("import", SAMPLES / "issue-1417-handle.json")
    assert result.status == 0
    assert "left alone" in result.out
    assert taken.events() == before
    assert {p: p.stat().st_mtime_ns for p in taken.handles.iterdir()} == stamps


def test_import_says_what_it_did_and_what_the_audit_found(cli: Cli) -> None:
    cli.set_clock("2026-07-18T02:00:00Z")
    text = cli("import", SAMPLES).out
    for words in ("taken over", "REFUSED", "not driven", "breach", "`ledger audit`"):
        assert words in text


def test_import_into_a_database_that_is_not_there_yet_makes_it(bare: Cli) -> None:
    url = f"sqlite:///{bare.folder / 'new.db'}"
    result = bare("import", SAMPLES / "issue-1417-handle.json", "--db", url, "--json")
    assert (result.status, [t["run"] for t in result.json["taken"]]) == (0, ["issue-1417"])
    assert bare("log", "--db", url).status == 0


def test_project_writes_what_is_missing_and_check_only_says(taken: Cli) -> None:
    file = taken.handles / "issue-1417-handle.json"
    wanted = file.read_text(encoding="utf-8")
    assert taken("project", "--check").status == 0
    file.unlink()
    check = taken("project", "--check", "--json")
    assert (check.status, [d["run"] for d in check.json["differs"]]) == (1, ["issue-1417"])
    assert not file.exists()
    assert taken("project", "1418", "--check").status == 0
    done = taken("project", "--json")
    assert (done.status, [w["run"] for w in done.json["written"]]) == (0, ["issue-1417"])
    assert file.read_text(encoding="utf-8") == wanted
    assert "as the log says" in taken("project").out


def test_a_foreign_edit_is_kept_where_unknown_and_set_right_where_owned(taken: Cli) -> None:
    file = taken.handles / "issue-1417-handle.json"
    value = json.loads(file.read_text(encoding="utf-8"))
    value["extra"]["a_note"] = "mine"
    value["extra"]["provisioning_model"] = "STANDARD"
    file.write_text(json.dumps(value), encoding="utf-8")
    assert "lossy-projection" in taken("audit").out
    assert taken("project", "1417").status == 0
    extra = json.loads(file.read_text(encoding="utf-8"))["extra"]
    assert (extra["a_note"], extra["provisioning_model"]) == ("mine", "FLEX_START")
    assert taken("audit", "--only", "lossy-projection").status == 0


def test_every_issue_number_that_a_file_may_bear_can_be_named(cli: Cli) -> None:
    number = 10**15 - 1
    old = json.loads((SAMPLES / "issue-1417-handle.json").read_text(encoding="utf-8"))
    old["extra"]["issue"] = number
    path = cli.folder / f"issue-{number}-handle.json"
    path.write_text(json.dumps(old | {"pod_name": "mine"}), encoding="utf-8")
    result = cli("import", path, "--json")
    assert (result.status, [t["run"] for t in result.json["taken"]]) == (0, [f"issue-{number}"])
    assert cli("show", number).status == 0


def test_project_says_which_file_it_left_alone(taken: Cli) -> None:
    path = taken.handles / "issue-1417-handle.json"
    file = json.loads(path.read_text(encoding="utf-8"))
    file["extra"]["ledger"]["id"] = "another"
    path.write_text(json.dumps(file), encoding="utf-8")
    result = taken("project")
    assert result.status == 1
    assert "issue-1417-handle.json is of another ledger (another)" in result.out
    assert "is as the log says" not in result.out
    result = taken("project", "--json")
    assert (result.status, [d["kind"] for d in result.json["differs"]]) == (1, ["foreign"])
