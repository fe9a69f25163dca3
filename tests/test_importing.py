"""Old sidecars into the log: taken over once, whole, or refused with a reason."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ledger.importing import Report, import_paths
from ledger.log.open import open_log
from ledger.log.store import Log
from ledger.policy import Policy
from ledger.projections.files import SidecarFolder
from tests.projections.support import SAMPLES, VM, FakeSource, Story, new_log
from tests.strict_reader import read

TAKEN = ["1417", "1418", "1739", "1776", "1777", "640", "777", "923-armb"]
REFUSED = {
    "1001": "is no JSON: Unterminated string starting at line 1 column 47",
    "1002": "lacks scratch_dir, log_path",
    "1003": "is named for issue 1003, and the issue inside it is 1004",
}
NAME = "issue-1417-handle.json"


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Log]:
    log = new_log(tmp_path / "ledger.db")
    yield log
    log.connection.close()


@pytest.fixture
def folder(tmp_path: Path) -> SidecarFolder:
    (tmp_path / "handles").mkdir()
    return SidecarFolder(tmp_path / "handles")


def take(log: Log, folder: SidecarFolder | None, *paths: Path, **policy: Any) -> Report:
    report = import_paths(log, folder, log.source, Policy(**policy), paths)
    for _, reason in report.refused:
        assert "\n" not in reason
    return report


def sample(**changes: Any) -> dict[str, Any]:
    value: dict[str, Any] = json.loads((SAMPLES / NAME).read_text())
    value["extra"] |= changes.pop("extra", {})
    return value | changes


def refusal(log: Log, folder: SidecarFolder, name: str, raw: bytes | str | dict[str, Any]) -> str:
    """Why the file of this name and content is refused; it and the log are as they were."""
    path = folder.path / name
    content = json.dumps(raw).encode() if isinstance(raw, dict) else raw.encode() if isinstance(raw, str) else raw
    path.write_bytes(content)
    before = list(log.read_all())
    report = take(log, folder, path)
    assert (report.taken, report.left) == ([], [])
    assert path.read_bytes() == content
    assert list(log.read_all()) == before
    ((where, reason),) = report.refused
    assert where == path
    return reason


def test_the_eleven_samples(log: Log, folder: SidecarFolder) -> None:
    for file in SAMPLES.glob("*.json"):
        shutil.copy(file, folder.path)
    told: list[tuple[int, int]] = []
    report = import_paths(log, folder, log.source, Policy(), [folder.path], lambda *n: told.append(n))
    assert [path.name for path in report.taken] == [f"issue-{n}-handle.json" for n in sorted(TAKEN)]
    assert {path.name: reason for path, reason in report.refused}.keys() == {f"issue-{n}-handle.json" for n in REFUSED}
    for path, reason in report.refused:
        assert REFUSED[path.name.split("-")[1]] in reason
    assert told[-1] == (11, 11)
    for path in report.taken:
        text = path.read_text()
        read(path.name, text, imported=True)
        value = json.loads(text)
        assert value["extra"].pop("ledger")["id"] == log.ledger_id()
        assert json.dumps(value, sort_keys=True, indent=2) == (SAMPLES / path.name).read_text().rstrip("\n")
    for path, _ in report.refused:
        assert path.read_bytes() == (SAMPLES / path.name).read_bytes()
    _second_time(log, folder)


def _second_time(log: Log, folder: SidecarFolder) -> None:
    before = {path: path.stat().st_mtime_ns for path in folder.path.iterdir()}
    events = list(log.read_all())
    report = take(log, folder, folder.path)
    assert report.taken == []
    assert len(report.left) == 8
    assert len(report.refused) == 3
    assert list(log.read_all()) == events
    assert {path: path.stat().st_mtime_ns for path in folder.path.iterdir()} == before
    assert folder.project(log) == []
    assert folder.check(log) == []


def test_what_the_event_says(log: Log, folder: SidecarFolder) -> None:
    shutil.copy(SAMPLES / NAME, folder.path)
    mtime = (folder.path / NAME).stat().st_mtime_ns // 1000
    take(log, folder, folder.path / NAME, ladder=("gcp:STANDARD", "runpod"))
    (event,) = log.read("issue-1417")
    data = event.data()
    assert (event.type, event.actor, event.machine) == ("HandleImported", "import", VM)
    assert event.attempt
    assert data["file"] == (SAMPLES / NAME).read_text()
    assert (data["path"], data["mtime"], data["relaunchable"], data["redacted"]) == (NAME, mtime, True, False)
    assert data["ladder"] == ["gcp:STANDARD", "runpod"]
    run = log.run("issue-1417")
    assert run.handle == VM
    assert run.machines[VM].queued


@pytest.mark.parametrize(
    ("issue", "relaunchable"),
    [("1417", True), ("1418", True), ("640", False), ("777", False), ("923-armb", True)],
)
def test_which_can_be_launched_again(log: Log, folder: SidecarFolder, issue: str, relaunchable: bool) -> None:
    take(log, folder, SAMPLES / f"issue-{issue}-handle.json")
    assert log.read(f"issue-{issue}")[0].data()["relaunchable"] is relaunchable


def test_a_file_from_elsewhere_stays_and_its_projection_goes_into_the_folder(log: Log, folder: SidecarFolder) -> None:
    before = (SAMPLES / NAME).read_bytes()
    take(log, folder, SAMPLES / NAME)
    assert (SAMPLES / NAME).read_bytes() == before
    read(NAME, (folder.path / NAME).read_text(), imported=True)
    assert log.read("issue-1417")[0].data()["path"] == str(SAMPLES / NAME)
    assert take(log, folder, SAMPLES / NAME, folder.path / NAME).left == [SAMPLES / NAME, folder.path / NAME]


def test_without_a_folder_nothing_is_written(log: Log) -> None:
    assert take(log, None, SAMPLES / NAME).taken == [SAMPLES / NAME]


@pytest.mark.parametrize(
    ("extra", "hidden"),
    [
        ({"env_pins": {"HF_TOKEN": "abc123", "A": "b"}}, "abc123"),
        ({"workload_cmd": "HF_TOKEN=abc123 bash run.sh"}, "abc123"),
        ({"unknown": ["https://me:abc123@h/x"]}, "abc123"),
    ],
)
def test_a_secret_is_redacted_and_the_run_not_relaunchable(
    log: Log, folder: SidecarFolder, extra: dict[str, Any], hidden: str
) -> None:
    (folder.path / NAME).write_text(json.dumps(sample(extra=extra)))
    report = take(log, folder, folder.path)
    assert report.taken == report.redacted == [folder.path / NAME]
    (event,) = log.read("issue-1417")
    assert hidden not in event.payload
    assert (event.data()["relaunchable"], event.data()["redacted"]) == (False, True)
    assert len(log.read("issue-1417")) == 1
    assert hidden not in (folder.path / NAME).read_text()
    assert take(log, folder, folder.path).left == [folder.path / NAME]


@pytest.mark.parametrize(
    ("name", "raw", "reason"),
    [
        (NAME, b"", "is no JSON"),
        (NAME, b"\x00\x01\x02", "is no JSON"),
        (NAME, b"\x80\x81", "is no UTF-8 text"),
        (NAME, b"\xef\xbb\xbf{}", "is no JSON"),
        (NAME, b"[]", "is no handle"),
        (NAME, b"{}", "is no handle"),
        (NAME, b'{"extra":{"a":NaN}}', "NaN"),
        (NAME, b'{"extra":{"a":-Infinity}}', "Infinity"),
        (NAME, b'{"extra":{"a":1e999}}', "too large"),
        (NAME, b'{"extra":{"a":' + b"9" * 6000 + b"}}", "too large"),
        (NAME, b'{"extra":{"a":1,"a":2}}', "'a' twice"),
        (NAME, b'{"extra":{"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}}", "nested deeper"),
        (NAME, b'{"extra":{"a":' + b"[" * 80 + b"]" * 80 + b"}}", "nested deeper"),
        (NAME, b'{"extra":{"a":"' + b"x" * (1 << 20) + b'"}}', "larger than"),
        (NAME, sample(eighth=1), "eighth: is no key"),
        (NAME, sample(job_id=5513402277619834112), "job_id: "),
        (NAME, sample(backend=""), "backend: "),
        (NAME, sample(extra={"issue": "1417"}), "extra.issue: "),
        (NAME, sample(extra={"issue": True}), "extra.issue: "),
        (NAME, sample(extra={"hydra_args": "a=b"}), "extra.hydra_args: "),
        (NAME, sample(extra={"env_pins": {"A": 1}}), "extra.env_pins.A: "),
        (NAME, sample(extra={"gcp_launched_ts": "soon"}), "extra.gcp_launched_ts: "),
        (NAME, sample(pod_name="eps-issue-1418"), "is of issue 1418"),
        (NAME, sample(pod_name="eps-issue-1417-b"), "is of another"),
        ("issue-1417-b-handle.json", sample(), "is of another"),
        ("issue-1417-handle.json.finalized", sample(), "is a retired handle"),
        ("handle.json", sample(), "is not named"),
        ("issue-01417-handle.json", sample(), "is not named"),
        ("issue-1417-B-handle.json", sample(), "is not named"),
        (NAME, sample(extra={"ledger": {"id": "another"}}), "belongs to the ledger another"),
        (NAME, sample(extra={"ledger": 5}), "no ledger wrote"),
    ],
)
def test_what_is_refused(log: Log, folder: SidecarFolder, name: str, raw: bytes | dict[str, Any], reason: str) -> None:
    assert reason in refusal(log, folder, name, raw)


def test_this_ledgers_own_file_of_a_run_that_its_log_lacks(log: Log, folder: SidecarFolder) -> None:
    block = {"id": log.ledger_id(), "stream": "issue-1417", "version": 3}
    assert "restored" in refusal(log, folder, NAME, sample(extra={"ledger": block}))


def test_a_machine_of_another_run(log: Log, folder: SidecarFolder) -> None:
    take(log, folder, SAMPLES / NAME)
    value = json.loads(json.dumps(sample()).replace("1417", "1500").replace(VM.rsplit("/", 1)[1], "X"))
    value["job_id"] = VM.rsplit("/", 1)[1]
    assert "that of issue-1417" in refusal(log, folder, "issue-1500-handle.json", value)


def test_another_handle_in_the_sidecar_folder_goes_first(log: Log, folder: SidecarFolder) -> None:
    live = json.dumps(sample(job_id="99"))
    (folder.path / NAME).write_text(live)
    report = take(log, folder, SAMPLES / NAME)
    assert "take over that one" in report.refused[0][1]
    assert (folder.path / NAME).read_text() == live


def test_links_missing_files_and_folders(log: Log, folder: SidecarFolder, tmp_path: Path) -> None:
    (folder.path / NAME).symlink_to(NAME)
    (folder.path / "issue-5-handle.json").mkdir()
    (folder.path / "issue-6-handle.json").symlink_to("nowhere")
    (folder.path / "issue-7-handle.json.finalized").write_text("{}")
    report = take(log, folder, folder.path, tmp_path / "issue-9-handle.json", tmp_path / "no-folder")
    assert [(path.name, reason) for path, reason in report.refused] == [
        (NAME, "is a link that leads to itself"),
        ("issue-5-handle.json", "is no regular file"),
        ("issue-6-handle.json", "is a link that leads nowhere"),
        ("issue-9-handle.json", "is not there"),
        ("no-folder", "is not named issue-<N>-handle.json or issue-<N>-<lane>-handle.json"),
    ]
    assert take(log, folder, folder.path / "issue-7-handle.json.finalized").refused[0][1].startswith("is a retired")


def test_a_run_that_the_log_has_is_left_alone(log: Log, folder: SidecarFolder) -> None:
    story = Story(log=log).opened().requested(1)
    folder.project(log)
    before = (folder.path / NAME).read_bytes()
    assert take(log, folder, SAMPLES / NAME, folder.path).left == [SAMPLES / NAME, folder.path / NAME]
    assert (folder.path / NAME).read_bytes() == before
    assert len(story.events) == len(log.read("issue-1417"))


def test_after_a_run_was_closed_a_new_handle_is_a_new_generation_and_an_old_one_is_not(
    log: Log, folder: SidecarFolder
) -> None:
    take(log, folder, SAMPLES / NAME)
    story = Story(log=log)
    story.events = log.read("issue-1417")
    story.add("TornDown", 1, None, VM, by="external").add("RunClosed", 2, outcome="failed", reason="x")
    folder.project(log)
    assert take(log, folder, SAMPLES / NAME, folder.path).left == [SAMPLES / NAME]
    (folder.path / NAME).write_text(json.dumps(sample(job_id="99")))
    assert take(log, folder, folder.path).taken == [folder.path / NAME]
    assert log.run("issue-1417").generation == 2
    assert json.loads((folder.path / NAME).read_text())["extra"]["ledger"]["state"] == "provisioning"


def test_another_process_takes_it_over_at_the_same_moment(log: Log, folder: SidecarFolder, tmp_path: Path) -> None:
    from ledger.log.open import open_log

    other = open_log(log.connection.where, FakeSource(7), write=True)
    done: list[Report] = []

    def first() -> None:
        log.hooks.before_append = lambda: None
        other.source.random_bytes(1)
        done.append(import_paths(other, folder, _Later(), Policy(), [SAMPLES / NAME]))

    other.source = _Later()
    log.hooks.before_append = first
    assert take(log, folder, SAMPLES / NAME).left == [SAMPLES / NAME]
    assert done[0].taken == [SAMPLES / NAME]
    assert len(log.read("issue-1417")) == 1
    other.connection.close()


class _Later(FakeSource):
    """Another process's chance."""

    def random_bytes(self, n: int) -> bytes:
        return bytes(255 - byte for byte in super().random_bytes(n))


def test_of_two_runs_that_name_one_machine_and_are_taken_over_at_once_one_is_refused(
    log: Log, folder: SidecarFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = tmp_path / NAME, tmp_path / "issue-2417-handle.json"
    first.write_text(json.dumps(sample()))
    second.write_text(json.dumps(sample(pod_name="mine", extra={"issue": 2417})))
    other = open_log(log.connection.where, log.source)
    real, raced = Log.append, list[int]()

    def append(on: Log, *args: Any, **more: Any) -> Any:
        if not raced:
            raced.append(1)
            assert take(other, None, second).taken == [second]
        return real(on, *args, **more)

    monkeypatch.setattr(Log, "append", append)
    report = take(log, folder, first)
    other.connection.close()
    assert (report.taken, [path for path, _ in report.refused]) == ([], [first])
    assert "which is that of issue-2417" in report.refused[0][1]


@pytest.mark.parametrize(
    "changes",
    [
        {"job_id": "../../x"},
        {"job_id": "eps-issue-1417"},
        {"extra": {"zone": "../../etc"}},
        {"extra": {"zone": "us central"}},
        {"extra": {"project": "a/b"}},
        {"backend": "runpod", "pod_name": "pod-1417", "extra": {"pod_id": "a/b c"}},
    ],
    ids=str,
)
def test_what_no_cloud_calls_a_machine_is_a_machine_unknown(
    log: Log, folder: SidecarFolder, tmp_path: Path, changes: dict[str, Any]
) -> None:
    path = tmp_path / NAME
    path.write_text(json.dumps(sample(**changes)))
    assert take(log, folder, path).taken == [path]
    assert log.run("issue-1417").machines == {}
