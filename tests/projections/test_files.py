"""The folder: only what differs is written, whole or not at all, and nothing of anybody's is lost."""

from __future__ import annotations

import errno
import json
import multiprocessing
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings

from ledger import canonical
from ledger.errors import StorageError
from ledger.events import Draft
from ledger.log.open import open_log
from ledger.log.store import Log
from ledger.projections import disk
from ledger.projections.files import Hooks, SidecarFolder
from ledger.projections.handle_file import render
from ledger.projections.sidecar import project
from ledger.source import SystemSource
from tests.projections.support import POD, SAMPLES, VM, Story, new_log, stories
from tests.strict_reader import read

NAME = "issue-1417-handle.json"
DISK, SIDECAR = "ledger.projections.disk", "ledger.projections.sidecar"


class Killed(BaseException):
    """A process died."""


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Log]:
    log = new_log(tmp_path / "ledger.db")
    yield log
    log.connection.close()


@pytest.fixture
def folder(tmp_path: Path) -> SidecarFolder:
    return SidecarFolder(tmp_path / "handles")


def queued(log: Log) -> Story:
    return Story(log=log).opened().requested(9.4).provisioned(12, status="PENDING")


def moved(story: Story) -> Story:
    return story.add("MachineObserved", 100, None, VM, status="STAGING", source="list")


def closed(story: Story) -> Story:
    story.add("TornDown", 200, None, VM, by="external")
    return story.add("RunClosed", 200, outcome="failed", reason="x")


def wanted(log: Log) -> str:
    text = project("issue-1417", log.read("issue-1417"), log.ledger_id()).text
    assert text is not None
    return text


def listed(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def change(path: Path, **extra: Any) -> None:
    """What an old program does: read, change, write."""
    value = json.loads(path.read_text())
    value["extra"] |= extra
    path.write_text(json.dumps(value, sort_keys=True, indent=2))


def quiet(folder: SidecarFolder, log: Log) -> None:
    """A second pass does nothing, and all is as it is to be."""
    before = {name: (folder.path / name).lstat().st_mtime_ns for name in listed(folder.path)}
    events = log.read("issue-1417")
    assert folder.project(log) == []
    assert SidecarFolder(folder.path).project(log) == []
    assert folder.check(log) == []
    assert all(row.wanted == row.found for row in folder.rows(log))
    assert {name: (folder.path / name).lstat().st_mtime_ns for name in listed(folder.path)} == before
    assert log.read("issue-1417") == events


def test_a_file_is_written_once_and_again_only_when_it_changes(log: Log, folder: SidecarFolder) -> None:
    story = queued(log)
    assert [d.kind for d in folder.check(log)] == ["missing"]
    row = folder.rows(log)[0]
    assert (row.stream, row.found, row.since) == ("issue-1417", None, log.read("issue-1417")[-1].recorded_at)
    assert [(w.stream, w.action, w.note) for w in folder.project(log)] == [("issue-1417", "written", "")]
    path = folder.path_of(log.run("issue-1417"))
    assert path == folder.path / NAME
    read(NAME, path.read_text())
    assert path.read_text() == wanted(log)
    quiet(folder, log)
    story.add("MachineObserved", 50, None, VM, status="PENDING", suspect=1, source="list")
    quiet(folder, log)
    moved(story)
    assert [d.kind for d in folder.check(log)] == ["behind"]
    assert [w.action for w in folder.project(log)] == ["written"]
    assert json.loads(path.read_text())["extra"]["last_phase"] == "staging"
    quiet(folder, log)


def test_where_nothing_is_new_nothing_is_made_again(
    log: Log, folder: SidecarFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    story = queued(log)
    folder.project(log)
    folder.project(log)

    def refuse(*_: Any, **__: Any) -> None:
        raise AssertionError("made again")

    with monkeypatch.context() as patch:
        for what in (
            f"{SIDECAR}.render",
            f"{SIDECAR}.content",
            f"{SIDECAR}.advance",
            f"{DISK}.loads",
            f"{DISK}.locked",
        ):
            patch.setattr(what, refuse)
        assert folder.project(log) == []
        assert folder.check(log) == []
        assert [row.wanted == row.found for row in folder.rows(log)] == [True]
        moved(story)
        with pytest.raises(AssertionError, match="made again"):
            folder.project(log)


def test_an_edit_that_keeps_size_and_time_is_seen(log: Log, folder: SidecarFolder) -> None:
    queued(log)
    folder.project(log)
    folder.project(log)
    path = folder.path / NAME
    right, status = path.read_bytes(), path.stat()
    with path.open("r+b") as file:
        file.write(right.replace(b'"pending"', b'"PENDING"'))
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert path.stat().st_size == status.st_size
    assert path.read_bytes() != right
    assert [row.wanted == row.found for row in folder.rows(log)] == [False]
    assert [d.kind for d in folder.check(log)] == ["edited"]
    assert [w.action for w in folder.project(log)] == ["set right"]
    assert [d.kind for d in folder.check(log)] == []
    path.write_bytes(b"{")
    assert [d.kind for d in folder.check(log)] == ["broken"]


def test_only_the_streams_that_were_named(log: Log, folder: SidecarFolder) -> None:
    queued(log)
    Story(31, log=log).opened().requested(1)
    assert [w.stream for w in folder.project(log, ["issue-31", "issue-999"])] == ["issue-31"]
    assert [w.stream for w in folder.project(log)] == ["issue-1417"]


def test_a_closed_runs_file_is_retired_and_an_older_one_makes_way(log: Log, folder: SidecarFolder) -> None:
    story = queued(log)
    folder.project(log)
    closed(story)
    assert [w.action for w in folder.project(log)] == ["retired"]
    assert listed(folder.path) == [".ledger.lock", f"{NAME}.finalized"]
    quiet(folder, log)
    first = (folder.path / f"{NAME}.finalized").read_text()
    version = json.loads(first)["extra"]["ledger"]["version"]
    other = "gcp:example-gpu-project/us-central1-a/99"
    story.opened(300).requested(301, 2).provisioned(302, 2, other)
    folder.project(log)
    story.add("TornDown", 400, None, other, by="ledger").add("RunClosed", 400, outcome="finished", reason="x")
    folder.project(log)
    assert (folder.path / f"{NAME}.finalized.{version}").read_text() == first
    assert json.loads((folder.path / f"{NAME}.finalized").read_text())["job_id"] == "99"
    quiet(folder, log)


def test_with_every_create_refused_the_file_is_retired(log: Log, folder: SidecarFolder) -> None:
    story = Story(log=log).opened().requested(1)
    folder.project(log)
    story.add("ProvisionRefused", 2, 1, **{"class": "absent"})
    assert [w.action for w in folder.project(log)] == ["retired"]
    quiet(folder, log)


def test_unknown_keys_of_another_program_are_kept_and_owned_ones_set_right(log: Log, folder: SidecarFolder) -> None:
    queued(log)
    folder.project(log)
    path = folder.path / NAME
    change(path, provisioning_model="STANDARD", theirs={"kept": True}, wedge_alarm_streak=3)
    assert [d.kind for d in folder.check(log)] == ["edited"]
    row = folder.rows(log)[0]
    assert row.wanted != row.found
    assert row.since == path.stat().st_mtime_ns // 1000
    (written,) = folder.project(log)
    assert written.action == "set right"
    assert "theirs" in written.note
    assert "\n" not in written.note
    event = log.read("issue-1417")[-1]
    assert event.type == "SidecarEdited"
    assert event.data() == {
        "added": {"theirs": {"kept": True}},
        "changed": {"extra.provisioning_model": "STANDARD", "extra.wedge_alarm_streak": 3},
    }
    extra = json.loads(path.read_text())["extra"]
    assert extra["provisioning_model"] == "FLEX_START"
    assert extra["theirs"] == {"kept": True}
    assert "wedge_alarm_streak" not in extra
    quiet(folder, log)


def test_what_the_log_has_learned_since_is_no_edit_of_the_other_program(log: Log, folder: SidecarFolder) -> None:
    story = queued(log)
    folder.project(log)
    change(folder.path / NAME, theirs=1)
    moved(story)
    folder.project(log)
    assert log.read("issue-1417")[-1].data() == {"added": {"theirs": 1}, "changed": {}}
    extra = json.loads((folder.path / NAME).read_text())["extra"]
    assert (extra["theirs"], extra["last_phase"]) == (1, "staging")
    quiet(folder, log)


def test_a_file_that_was_written_over_without_our_block_is_an_edit(log: Log, folder: SidecarFolder) -> None:
    queued(log)
    folder.project(log)
    (folder.path / NAME).write_text((SAMPLES / NAME).read_text().replace('"gpus": 4', '"zz": 5, "gpus": 4'))
    folder.project(log)
    event = log.read("issue-1417")[-1]
    assert event.data()["added"] == {"zz": 5}
    assert "extra.ledger" in event.data()["changed"]
    assert json.loads((folder.path / NAME).read_text())["extra"]["zz"] == 5
    quiet(folder, log)


def test_a_ninth_key_and_a_tampered_seal_are_set_right(log: Log, folder: SidecarFolder) -> None:
    queued(log)
    folder.project(log)
    path = folder.path / NAME
    value = json.loads(path.read_text())
    value["eighth"] = 1
    value["extra"]["ledger"]["state"] = "running"
    path.write_text(json.dumps(value))
    folder.project(log)
    assert set(log.read("issue-1417")[-1].data()["changed"]) == {"eighth", "extra.ledger"}
    assert path.read_text() == wanted(log)
    quiet(folder, log)


def test_a_secret_that_another_program_wrote_never_enters_the_log(log: Log, folder: SidecarFolder) -> None:
    queued(log)
    folder.project(log)
    change(folder.path / NAME, theirs="HF_TOKEN=abc123", my_token="zzz", workload_cmd="X_TOKEN=abc123 run")
    folder.project(log)
    said = log.read("issue-1417")[-1].payload
    assert "abc123" not in said
    assert "zzz" not in said
    quiet(folder, log)


def test_a_value_that_the_log_cannot_carry_is_kept_aside(log: Log, folder: SidecarFolder) -> None:
    queued(log)
    folder.project(log)
    change(folder.path / NAME, big=1 << 60, small=1)
    edited = (folder.path / NAME).read_text()
    (written,) = folder.project(log)
    assert (folder.path / f"{NAME}.edited-1").read_text() == edited
    assert "edited-1" in written.note
    assert log.read("issue-1417")[-1].data()["added"] == {"small": 1}
    quiet(folder, log)


def test_died_between_the_edits_record_and_the_write(log: Log, folder: SidecarFolder) -> None:
    queued(log)
    folder.project(log)
    change(folder.path / NAME, zone="x", theirs=1)

    def die() -> None:
        raise Killed

    with pytest.raises(Killed):
        SidecarFolder(folder.path, Hooks(die)).project(log)
    assert [e.type for e in log.read("issue-1417")].count("SidecarEdited") == 1
    folder.project(log)
    assert [e.type for e in log.read("issue-1417")].count("SidecarEdited") == 1
    quiet(folder, log)


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"{",
        b'{"extra": {"a": NaN}}',
        b"[]",
        b'{"extra": 1}',
        b"\xff\xfe",
        b'{"a":1,"a":2,"extra":{}}',
        b'{"extra":{"a":' + b"[" * 3000 + b"]" * 3000 + b"}}",
        b'{"extra":{"a":' + b"9" * 5000 + b"}}",
        b'{"extra":{"a":"' + b"x" * (1 << 20) + b'"}}',
    ],
)
def test_a_broken_file_is_kept_aside_and_the_right_one_written(log: Log, folder: SidecarFolder, raw: bytes) -> None:
    queued(log)
    folder.project(log)
    (folder.path / NAME).write_bytes(raw)
    assert [d.kind for d in folder.check(log)] == ["broken"]
    (written,) = folder.project(log)
    assert written.action == "set right"
    assert (folder.path / f"{NAME}.broken-1").read_bytes() == raw
    quiet(folder, log)
    (folder.path / NAME).write_bytes(raw)
    folder.project(log)
    assert (folder.path / f"{NAME}.broken-2").read_bytes() == raw


@pytest.mark.parametrize("what", ["folder", "fifo", "loop", "dangling"])
def test_what_is_no_file_is_moved_aside(log: Log, folder: SidecarFolder, what: str) -> None:
    queued(log)
    folder.path.mkdir()
    path = folder.path / NAME
    if what == "folder":
        path.mkdir()
        (path / "x").write_text("kept")
    elif what == "fifo":
        os.mkfifo(path)
    else:
        path.symlink_to(NAME if what == "loop" else "nowhere")
    folder.project(log)
    assert os.path.lexists(folder.path / f"{NAME}.broken-1")
    assert path.read_text() == wanted(log)
    quiet(folder, log)


def test_files_of_no_run_of_ours_are_left_alone(log: Log, folder: SidecarFolder) -> None:
    folder.path.mkdir()
    for name in (NAME, "issue-5-handle.json", "notes.json"):
        (folder.path / name).write_text((SAMPLES / NAME).read_text())
    before = {name: (folder.path / name).read_bytes() for name in listed(folder.path)}
    assert folder.project(log) == []
    assert {name: (folder.path / name).read_bytes() for name in listed(folder.path)} == before
    assert folder.rows(log) == []


def test_another_ledgers_file_is_left_alone_and_told(log: Log, folder: SidecarFolder) -> None:
    queued(log)
    text = project("issue-1417", log.read("issue-1417"), "another").text
    folder.path.mkdir()
    (folder.path / NAME).write_text(text or "")
    assert folder.project(log) == []
    assert (folder.path / NAME).read_text() == text
    assert [d.kind for d in folder.check(log)] == ["foreign"]
    row = folder.rows(log)[0]
    assert row.found is not None
    assert row.found != row.wanted


def test_a_file_that_knows_more_than_the_log_is_left_alone_and_told(log: Log, folder: SidecarFolder) -> None:
    queued(log)
    value = json.loads(wanted(log))
    for key in ("version", "position", "checksum"):
        del value["extra"]["ledger"][key]
    folder.path.mkdir()
    text = render(value, 99, 999)
    (folder.path / NAME).write_text(text)
    assert folder.project(log) == []
    assert (folder.path / NAME).read_text() == text
    assert [d.kind for d in folder.check(log)] == ["ahead"]


def test_a_newer_handle_where_a_closed_runs_was_is_not_retired(log: Log, folder: SidecarFolder) -> None:
    closed(queued(log))
    folder.path.mkdir()
    text = (SAMPLES / NAME).read_text().replace("5513402277619834112", "77")
    (folder.path / NAME).write_text(text)
    assert folder.project(log) == []
    assert (folder.path / NAME).read_text() == text
    (folder.path / NAME).write_text((SAMPLES / NAME).read_text())  # the machine that the run had
    assert [w.action for w in folder.project(log)] == ["retired"]
    (folder.path / NAME).write_text("{")
    assert folder.project(log) == []
    assert [d.kind for d in folder.check(log)] == ["broken"]


def test_an_unreadable_run_is_left_alone(log: Log, folder: SidecarFolder) -> None:
    queued(log)
    folder.project(log)
    insert = "INSERT INTO events SELECT position + 1, stream, version + 1, 'x', 'FromTheFuture', 1, occurred_at, "
    rest = "recorded_at, actor, NULL, NULL, NULL, payload, 'h' FROM events ORDER BY position DESC LIMIT 1"
    log.connection.execute(insert + rest)
    (folder.path / NAME).write_text("{}")
    assert SidecarFolder(folder.path).project(log) == []
    assert (folder.path / NAME).read_text() == "{}"


@pytest.mark.parametrize("start", ["nothing", "older"])
def test_killed_between_the_temporary_file_and_the_rename(log: Log, tmp_path: Path, start: str) -> None:
    story = queued(log)
    plain = SidecarFolder(tmp_path / "handles")
    if start == "older":
        plain.project(log)
        moved(story)
    before = (plain.path / NAME).read_text() if start == "older" else None

    def die() -> None:
        raise Killed

    with pytest.raises(Killed):
        SidecarFolder(plain.path, Hooks(die)).project(log)
    assert ((plain.path / NAME).read_text() if (plain.path / NAME).exists() else None) == before
    left = [name for name in listed(plain.path) if name.endswith(".tmp")]
    assert len(left) == 1
    os.utime(plain.path / left[0], (time.time() - 7200,) * 2)
    assert [w.action for w in plain.project(log)] == ["written"]
    assert (plain.path / NAME).read_text() == wanted(log)
    assert [name for name in listed(plain.path) if name.endswith(".tmp")] == []
    quiet(plain, log)


@pytest.mark.parametrize("call", ["fsync", "rename", "write"])
@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EROFS, errno.EIO])
def test_the_disk_refuses(
    log: Log, folder: SidecarFolder, monkeypatch: pytest.MonkeyPatch, call: str, number: int
) -> None:
    story = queued(log)
    folder.project(log)
    before = (folder.path / NAME).read_bytes()
    moved(story)

    def refuse(*_: Any, **__: Any) -> None:
        raise OSError(number, os.strerror(number))

    with monkeypatch.context() as patch:
        if call == "rename":
            patch.setattr(Path, "replace", refuse)
        else:
            patch.setattr(os, "fsync" if call == "fsync" else "open", refuse)
        with pytest.raises(StorageError) as told:
            SidecarFolder(folder.path).project(log)
    assert "\n" not in str(told.value)
    assert str(folder.path) in str(told.value)
    assert (folder.path / NAME).read_bytes() == before
    assert [name for name in listed(folder.path) if name.endswith(".tmp")] == []
    assert [w.action for w in folder.project(log)] == ["written"]
    quiet(folder, log)


def test_one_file_that_cannot_be_written_stops_no_other(
    log: Log, folder: SidecarFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    Story(31, log=log).opened().requested(1)
    queued(log)
    Story(777, log=log).opened().requested(1)
    replace = Path.replace

    def refuse(self: Path, target: Path) -> Path:
        if target.name == NAME:
            raise OSError(errno.EACCES, "no")
        return replace(self, target)

    monkeypatch.setattr(Path, "replace", refuse)
    with pytest.raises(StorageError):
        folder.project(log)
    assert [n for n in listed(folder.path) if n[0] != "."] == [
        "issue-31-handle.json",
        "issue-777-handle.json",
    ]


def test_a_file_that_cannot_be_read_stops_no_audit_and_is_moved_aside(
    log: Log, folder: SidecarFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    queued(log)
    folder.project(log)

    def refuse(*_: Any, **__: Any) -> bytes:
        raise OSError(errno.EACCES, "Permission denied")

    with monkeypatch.context() as patch:
        patch.setattr(os, "read", refuse)
        patch.setattr(os, "link", refuse)  # as where the file is another user's
        assert [row.wanted == row.found for row in folder.rows(log)] == [False]
        assert "cannot be read: Permission denied" in folder.check(log)[0].detail
        assert [w.action for w in folder.project(log)] == ["set right"]
    assert (folder.path / f"{NAME}.broken-1").is_file()
    quiet(folder, log)


def test_a_folder_that_is_none(log: Log, tmp_path: Path) -> None:
    queued(log)
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError):
        SidecarFolder(tmp_path / "file").project(log)
    assert SidecarFolder(tmp_path / "not" / "there").rows(log)[0].found is None


def test_the_working_directory_plays_no_part(log: Log, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    queued(log)
    monkeypatch.chdir(tmp_path)
    folder = SidecarFolder("handles")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    folder.project(log)
    assert (tmp_path / "handles" / NAME).is_file()


def test_its_mode_is_kept(log: Log, folder: SidecarFolder) -> None:
    story = queued(log)
    folder.project(log)
    assert (folder.path / NAME).stat().st_mode & 0o444
    (folder.path / NAME).chmod(0o640)
    moved(story)
    folder.project(log)
    assert (folder.path / NAME).stat().st_mode & 0o777 == 0o640


def test_a_writer_with_an_older_look_never_goes_over_a_newer_file(log: Log, tmp_path: Path) -> None:
    """While one process stands between its look and the lock, the log moves on and another writes."""
    story = queued(log)
    first, second = SidecarFolder(tmp_path / "handles"), SidecarFolder(tmp_path / "handles")
    locked = disk.locked

    def late(folder: Path) -> Any:
        disk.locked = locked
        moved(story)
        second.project(log)
        return locked(folder)

    disk.locked = late
    try:
        first.project(log)
    finally:
        disk.locked = locked
    assert json.loads((tmp_path / "handles" / NAME).read_text())["extra"]["last_phase"] == "staging"
    quiet(first, log)


def _writer(url: str, path: str, n: int) -> None:
    log = open_log(url, SystemSource(), write=True)
    folder = SidecarFolder(path)
    for count in range(15):
        log.append_facts("issue-1417", lambda _state, count=count: [_seen(n, count)])  # type: ignore[misc]
        folder.project(log)
    log.connection.close()


def _seen(n: int, count: int) -> Draft:
    payload = {"status": ("PROVISIONING", "STAGING")[(n + count) % 2], "source": "list"}
    return Draft("MachineObserved", payload, 1784333802 * 10**6 + count, machine=VM)


def test_two_writers_and_a_reader_that_never_sees_half_a_file(log: Log, folder: SidecarFolder) -> None:
    queued(log)
    folder.project(log)
    context = multiprocessing.get_context("spawn")
    writers = [context.Process(target=_writer, args=(log.connection.where, str(folder.path), n)) for n in range(2)]
    for writer in writers:
        writer.start()
    newest = 0
    while any(writer.is_alive() for writer in writers):
        time.sleep(0.002)  # two cores: the writers are to have them
        handle = read(NAME, (folder.path / NAME).read_text())
        version = handle.extra["ledger"]["version"]
        assert version >= newest
        newest = version
    for writer in writers:
        writer.join()
        assert writer.exitcode == 0
    assert "SidecarEdited" not in [event.type for event in log.read("issue-1417")]
    assert (folder.path / NAME).read_text() == wanted(log)
    quiet(folder, log)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(stories(start=("open",), longest=12))
def test_whatever_happened_the_file_is_the_projection(tmp_path_factory: pytest.TempPathFactory, story: Story) -> None:
    tmp_path = tmp_path_factory.mktemp("random")
    log = new_log(tmp_path / "ledger.db")
    folder = SidecarFolder(tmp_path / "handles")
    for event in story.events:
        at = len(log.read(event.stream))
        draft = Draft(
            event.type, json.loads(event.payload), event.occurred_at, attempt=event.attempt, machine=event.machine
        )
        log.append(event.stream, at, [draft])
        folder.project(log)
        text = project(event.stream, log.read(event.stream), log.ledger_id()).text
        path = folder.path_of(event.stream)
        assert (path.read_text() if path.exists() else None) == text
        assert folder.project(log) == []
    rows = folder.rows(log)
    assert all(row.wanted == row.found for row in rows)
    assert [r.wanted for r in rows] in ([], [canonical.digest(text or "")])
    log.connection.close()


def test_a_moved_pod_is_projected_through_a_fresh_folder(log: Log, folder: SidecarFolder) -> None:
    story = queued(log)
    folder.project(log)
    story.add("FailoverDecided", 700, None, VM, reason="queue_timeout", from_=VM)
    story.requested(701, 2, "runpod").provisioned(702, 2, POD)
    story.add("LaunchConfirmed", 800, 2, POD, source="probe", pid=1).add("Repointed", 800, 2, POD, from_=VM, to=POD)
    SidecarFolder(folder.path).project(log)
    assert json.loads((folder.path / NAME).read_text())["extra"]["pod_id"] == "q7w2exampleid"
    quiet(folder, log)
