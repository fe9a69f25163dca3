"""The sidecar folder: each active run's file is made equal to the projection of the log, and nothing else is touched.

Whoever writes takes the folder's lock, reads the log under it and only then writes, so that an older projection never
goes over a newer one. Nothing is appended under the lock. Files of no run of ours, of another ledger, of a newer
copy of this one, or of a newer handle that another program put where a closed run's was, are left alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

from ledger import canonical
from ledger.errors import EventError, StorageError
from ledger.events import Draft
from ledger.projections import disk, handle_file, ssh_file
from ledger.projections.disk import Found
from ledger.projections.rows import SidecarRow
from ledger.projections.sidecar import Projection, Tracker, project
from ledger.projections.ssh_config import Login
from ledger.state import imported
from ledger.state.model import Run, State

if TYPE_CHECKING:
    from ledger.log.store import Log
    from ledger.log.tail import Tail

_ROUNDS: Final = 5  # another program that writes without pause is left to the next tick


@dataclass(slots=True)
class Hooks:
    """Where a rehearsal may stop a process. In real use they do nothing."""

    during_projection: Callable[[], None] = lambda: None


@dataclass(frozen=True, slots=True)
class Written:
    """What was done to one run's file. `note` says what a person should know; else it is ""."""

    stream: str
    path: Path
    action: Literal["written", "set right", "retired"]
    note: str = ""


@dataclass(frozen=True, slots=True)
class Difference:
    """How a file is not as the log has it, in one line."""

    stream: str
    path: Path
    kind: Literal["missing", "behind", "edited", "broken", "foreign", "ahead", "retired"]
    detail: str


@dataclass(frozen=True, slots=True)
class _Looked:
    run: Run
    version: int  # of the run, which goes on
    wanted: Projection
    found: Found
    difference: Difference | None

    @property
    def sha(self) -> str | None:
        """SHA-256 of what lies there."""
        same = self.found.raw is not None and self.found.raw == self.wanted.raw
        return self.wanted.sha if same else self.found.sha

    @property
    def mendable(self) -> bool:
        """Whether it differs, and in a way that is the ledger's to mend."""
        if self.difference is None or self.difference.kind in ("foreign", "ahead"):
            return False
        return self.difference.kind != "broken" or self.wanted.text is not None


class SidecarFolder:
    """The folder in which the sidecars lie. Not to be shared between threads.

    `login`: as whom machines are entered; with it, `ssh_config` is kept there too.
    """

    def __init__(self, path: str | Path, hooks: Hooks | None = None, login: Login | None = None) -> None:
        self.path = Path(path).absolute()
        self.hooks = hooks or Hooks()
        self.login = login
        self._trackers: dict[tuple[str, str], Tracker] = {}
        self._followed: dict[str, tuple[int, Tail]] = {}  # ledger id → the head up to which the trackers are told
        self._looked: dict[str, _Looked] = {}  # what the last look at each stream's file said
        self._paths: dict[str, Path] = {}

    def path_of(self, run: Run | str) -> Path:
        """Where the sidecar of a run (or of its stream) lies."""
        stream = run if isinstance(run, str) else run.stream
        path = self._paths.get(stream)
        if path is None:
            path = self._paths[stream] = self.path / handle_file.file_name(stream)
        return path

    def project(self, log: Log, streams: Iterable[str] | None = None) -> list[Written]:
        """Make the files of `streams` (default: of all active runs, and of closed ones whose file lies there) right.

        Only a file whose content differs is written; a second time nothing is done. Raises StorageError, one line,
        where a file could not be written: the old one stands, and the others were done first.
        """
        done: list[Written] = []
        failed: StorageError | None = None
        fresh = True  # whether what was looked at first is still how it is
        for stream, looked in self._look_at_all(log, streams).items():
            if fresh and (looked is None or not looked.mendable):
                continue
            fresh = False
            try:
                done += self._settle(log, stream)
            except StorageError as error:
                failed = failed or error
        if failed is not None:
            raise failed
        if self.login is not None:
            ssh_file.write(log, self.path, self.login)
        return done

    def check(self, log: Log, streams: Iterable[str] | None = None) -> list[Difference]:
        """Where the files are not as the log has them. Changes nothing. Raises StorageError."""
        looked = self._look_twice(log, streams)
        return [one.difference for one in looked if one.difference is not None]

    def rows(self, log: Log) -> list[SidecarRow]:
        """What the audit compares, of every run whose file is to lie there or does. Raises StorageError."""
        rows = []
        for one in self._look_twice(log, None):
            if one.wanted.text is None and one.difference is None:
                continue
            edited = one.difference is not None and one.difference.kind in ("edited", "broken", "foreign")
            since = one.found.mtime if edited and one.found.mtime is not None else one.wanted.since
            rows.append(SidecarRow(one.run.stream, one.wanted.sha, one.sha, since))
        return rows

    def _streams(self, log: Log, streams: Iterable[str] | None) -> list[str]:
        if streams is not None:
            return sorted(stream for stream in set(streams) if handle_file.stream_of(handle_file.file_name(stream)))
        listed = disk.names(self.path)
        lying = {stream for name in listed if (stream := handle_file.stream_of(name)) is not None}
        active = set(log.active_streams())
        known = {stream for stream in lying - active if _known(log, stream)}
        return sorted(stream for stream in active | known if handle_file.stream_of(handle_file.file_name(stream)))

    def _tracker(self, log: Log, stream: str) -> Tracker:
        ledger_id, head = log.ledger_id(), log.head()
        followed = self._followed.get(ledger_id)
        if followed is None:
            self._followed[ledger_id] = head, log.tail()
        elif followed[0] != head:
            self._followed[ledger_id] = head, followed[1]
            for event in followed[1].news(log.connection):
                tracker = self._trackers.get((ledger_id, event.stream))
                if tracker is not None and event.version > tracker.run.version:
                    tracker.follow([event])
        tracker = self._trackers.get((ledger_id, stream))
        if tracker is None:
            tracker = Tracker(stream, ledger_id).follow(log.read(stream))
            self._trackers[ledger_id, stream] = tracker
        return tracker

    def _look(self, log: Log, stream: str) -> _Looked | None:
        """None: the log has no such run, or holds an event of it that this version does not know."""
        tracker = self._tracker(log, stream)
        run = tracker.run
        if not run.version or run.unreadable:
            return None
        wanted, path, before = tracker.projection(), self.path_of(stream), self._looked.get(stream)
        known = before.found if before is not None else None
        if known is not None and known.file is None and known.raw != wanted.raw:
            known = None  # it was not read through while it was what was wanted
        found = disk.look(path, known, wanted.raw)
        same = before is not None and before.run is run and before.version == run.version
        if before is not None and same and before.wanted == wanted and before.found == found:
            return before
        compared = _compare(run, wanted, found, log.ledger_id())
        difference = Difference(stream, path, *compared) if compared else None
        looked = self._looked[stream] = _Looked(run, run.version, wanted, found, difference)
        return looked

    def _look_at_all(self, log: Log, streams: Iterable[str] | None) -> dict[str, _Looked | None]:
        """A look at each file; the log is asked once for all of them."""
        with log.at_once():
            return {stream: self._look(log, stream) for stream in self._streams(log, streams)}

    def _look_twice(self, log: Log, streams: Iterable[str] | None) -> Iterator[_Looked]:
        """A look at each file; one that differs is looked at again, for another process may just have written it."""
        for stream, first in self._look_at_all(log, streams).items():
            looked = self._look(log, stream) if first is not None and first.difference is not None else first
            if looked is not None:
                yield looked

    def _settle(self, log: Log, stream: str) -> list[Written]:
        told: list[Written] = []
        for _ in range(_ROUNDS):
            looked = self._look(log, stream)
            if looked is None or not looked.mendable:
                break
            note = self._record_edit(log, looked)
            with disk.locked(self.path):
                now = self._look(log, stream)
                if now is None or not now.mendable:
                    break
                if not now.found.same(looked.found):
                    continue  # another program wrote in between: look at what it wrote
                told.append(self._put(now, note))
            break
        return told

    def _put(self, looked: _Looked, note: str) -> Written:
        path, stream, text = self.path_of(looked.run), looked.run.stream, looked.wanted.text
        disk.sweep(self.path, disk.names(self.path))
        if text is None:
            disk.rename(path, _retired(path))
            return Written(stream, path, "retired", note)
        if looked.found.broken is not None:
            aside = disk.keep_aside(path, "broken")
            note = f"{path.name} {looked.found.broken}; it is kept as {aside.name}, and the right one was written"
        disk.replace(path, text, self.hooks.during_projection)
        return Written(stream, path, "set right" if note else "written", note)

    def _record_edit(self, log: Log, looked: _Looked) -> str:
        """Append what another program changed, before it is set right. The note for it, "" where there is none."""
        assert looked.difference is not None
        if looked.difference.kind != "edited" or looked.wanted.text is None or looked.found.file is None:
            return ""
        run, path = looked.run, self.path_of(looked.run)
        was = _as_it_was(log, looked)
        added, changed = handle_file.edits(looked.found.file, was, driven=run.driven)
        kept = {key: value for key, value in added.items() if _keepable(key, value)}
        aside = disk.keep_aside(path, "edited") if len(kept) < len(added) else None
        lost = {f"extra.{key}": "(a value that the log cannot carry)" for key in added if key not in kept}
        stated = {k: v if _keepable(k, v) else "(a value that the log cannot carry)" for k, v in changed.items()}
        from ledger import secrets

        payload = {"added": secrets.redact_all(kept), "changed": secrets.redact_all({**stated, **lost})}

        def draft(state: State) -> list[Draft]:
            assert isinstance(state, Run)
            if _said_already(state, payload["added"], payload["changed"]):
                return []
            return [Draft("SidecarEdited", payload, log.source.now())]

        log.append_facts(run.stream, draft)
        what = ", ".join([*sorted(added), *sorted(changed)]) or "its layout"
        beside = f"; the edited one is kept as {aside.name}" if aside else ""
        return f"{path.name} was changed by another program ({what}): unknown keys are kept, the rest is right{beside}"


def _known(log: Log, stream: str) -> bool:
    return bool(log.asked("SELECT 1 FROM streams WHERE stream = :stream", {"stream": stream}))


def _compare(run: Run, wanted: Projection, found: Found, ledger_id: str) -> tuple[Any, str] | None:
    """How the file differs: (kind, one line); None where it is as it is to be, or is no business of this run."""
    name, file = wanted.name, found.file
    if wanted.text is None:
        if found.broken is not None:
            # Perhaps a new handle that another program is about to write: it is not moved under its hands.
            return "broken", f"{name} {found.broken}, and its run has no handle: move it away"
        if file is None or not _of_this_run(run, file, ledger_id):
            return None
        return "retired", f"{name} lies there though its run has no handle: `ledger project` retires it"
    if found.nothing:
        return "missing", f"{name} is missing: `ledger project` writes it"
    if found.raw == wanted.raw:
        return None
    if file is None:
        return "broken", f"{name} {found.broken}: `ledger project` keeps it aside and writes the right one"
    block = handle_file.block_of(file)
    if block is not None and block["id"] != ledger_id:
        return "foreign", f"{name} is of another ledger ({block['id']}): move one of the two to another folder"
    if block is not None and handle_file.sealed(file):
        version = block.get("version")
        if isinstance(version, int) and version > run.version:
            return "ahead", f"{name} knows version {version}, the log only {run.version}: was the log restored?"
        return "behind", f"{name} is older than the log: `ledger project` writes it"
    if block is None and run.import_sha is not None and found.sha == run.import_sha:
        return "behind", f"{name} was taken over and not yet written: `ledger project` writes it"
    return "edited", f"{name} was changed by another program: `ledger project` sets it right"


def _of_this_run(run: Run, file: dict[str, Any], ledger_id: str) -> bool:
    """Whether the file tells of this run's past, and not of what another program has started since."""
    block = handle_file.block_of(file)
    if block is not None:
        return bool(block["id"] == ledger_id and block.get("stream") == run.stream)
    return imported.read(file).machine in run.machines


def _as_it_was(log: Log, looked: _Looked) -> dict[str, Any]:
    """The projection that the other program found and changed; today's where the file does not say which it was."""
    file, wanted = looked.found.file, looked.wanted
    assert file is not None
    block = handle_file.block_of(file)
    version = block.get("version") if block is not None else None
    text = wanted.text
    if isinstance(version, int) and 0 < version < looked.run.version:
        past = [event for event in log.read(looked.run.stream) if event.version <= version]
        text = project(looked.run.stream, past, log.ledger_id()).text or text
    return handle_file.parse(text or "")


def _said_already(run: Run, added: dict[str, Any], changed: dict[str, Any]) -> bool:
    """Whether the newest event of the run says just that (a process died between the append and the write)."""
    kept = all(key in run.kept and run.kept[key] == value for key, value in added.items())
    newest = run.edited_pos == run.position and run.edited == tuple(sorted(changed))
    return kept and (newest or not changed)


def _keepable(key: str, value: Any) -> bool:
    try:
        canonical.dumps({key: value})
    except EventError:
        return False
    return True


def _retired(path: Path) -> Path:
    """`<name>.finalized`; an older file of that name makes way, as `<name>.finalized.<its version>`."""
    final = path.with_name(f"{path.name}.finalized")
    if disk.look(final).nothing:
        return final
    old = disk.look(final).file
    block = handle_file.block_of(old) if old is not None else None
    stem = f"{final.name}.{block.get('version') if block is not None else 0}"
    to, n = final.with_name(stem), 1
    while not disk.look(to).nothing:
        n += 1
        to = final.with_name(f"{stem}-{n}")
    disk.rename(final, to)
    return final
