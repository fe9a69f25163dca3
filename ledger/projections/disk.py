"""The sidecar folder as a disk: looking at a file, and putting one in its place so that no reader sees half of it."""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import hashlib
import os
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ledger.canonical import digest
from ledger.errors import StorageError
from ledger.projections.handle_file import File
from ledger.strict_json import NotJson, loads

if TYPE_CHECKING:
    from filelock import BaseFileLock

LARGEST: Final = 1 << 20  # a handle has a few kilobytes
_LOCK: Final = ".ledger.lock"
_LOCK_SECONDS: Final = 30.0
_LEFTOVER_SECONDS: Final = 3600.0


@dataclass(frozen=True, slots=True)
class Found:
    """What lies at a sidecar's path. `raw` None: nothing, or no regular file; `broken` says why it is no sidecar."""

    raw: bytes | None = None
    file: File | None = None
    broken: str | None = None
    mtime: int | None = None  # microseconds

    @property
    def nothing(self) -> bool:
        """Whether nothing lies there."""
        return self.raw is None and self.broken is None

    @property
    def sha(self) -> str | None:
        """SHA-256 of what lies there; of the reason, where it is no file."""
        if self.nothing:
            return None
        return digest(self.broken or "") if self.raw is None else hashlib.sha256(self.raw).hexdigest()

    def same(self, other: Found) -> bool:
        """Whether both looks saw the same."""
        return (self.raw, self.broken) == (other.raw, other.broken)


def look(path: Path, known: Found | None = None, wanted: bytes | None = None) -> Found:
    """What lies at `path`, followed where it is a link. What cannot be read is broken, and says why.

    `known`: what an earlier look found there; the same bytes are not read through again, nor are those that are
    `wanted`, whose `file` is left out.
    """
    try:
        status = path.stat()
        if not stat.S_ISREG(status.st_mode):
            return Found(broken="is no regular file")
        mtime = status.st_mtime_ns // 1000
        if status.st_size > LARGEST:
            return Found(broken=f"is larger than {LARGEST} bytes", mtime=mtime)
        raw = _bytes(path)
        if known is not None and known.raw == raw:
            return known if known.mtime == mtime else dataclasses.replace(known, mtime=mtime)
        if wanted is not None and raw == wanted:
            return Found(raw, mtime=mtime)
    except FileNotFoundError:
        return Found(broken="is a link that leads nowhere") if path.is_symlink() else Found()
    except OSError as error:
        if error.errno == errno.ELOOP:
            return Found(broken="is a link that leads to itself")
        return Found(broken=f"cannot be read: {error.strerror or error}")
    try:
        value = loads(raw.decode("utf-8"))
    except UnicodeDecodeError:
        return Found(raw, broken="is no UTF-8 text", mtime=mtime)
    except NotJson as error:
        return Found(raw, broken=str(error), mtime=mtime)
    if not isinstance(value, dict) or not isinstance(value.get("extra"), dict):
        return Found(raw, broken="is no handle: no object with an `extra` object", mtime=mtime)
    return Found(raw, value, mtime=mtime)


def _bytes(path: Path) -> bytes:
    """The bytes of a regular file. (Some three times as fast as `read_bytes`, and each tick reads every handle.)"""
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        parts = []
        while part := os.read(handle, LARGEST):
            parts.append(part)
        return b"".join(parts)
    finally:
        os.close(handle)


def replace(path: Path, text: str, before_rename: Callable[[], None]) -> None:
    """Put `text` at `path`: a temporary file of its own beside it, fsync, rename, fsync of the folder.

    A reader sees the old file or the new one. Raises StorageError; the old file then stands as it was.
    """
    beside = path.with_name(f".{path.name}.{os.getpid()}-{os.urandom(4).hex()}.tmp")
    try:
        # Created with the caller's umask: other users' readers must be able to read it.
        with open(os.open(beside, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666), "wb") as file:  # noqa: PTH123
            with contextlib.suppress(OSError):
                os.fchmod(file.fileno(), stat.S_IMODE(path.stat().st_mode))
            file.write(text.encode())
            file.flush()
            os.fsync(file.fileno())
        before_rename()
        beside.replace(path)
        sync(path.parent)
    except OSError as error:
        with contextlib.suppress(OSError):
            beside.unlink()
        raise for_people(error, path) from error


def rename(path: Path, to: Path) -> None:
    """Rename, durably. Raises StorageError."""
    try:
        path.rename(to)
        sync(path.parent)
    except OSError as error:
        raise for_people(error, path) from error


def keep_aside(path: Path, word: str) -> Path:
    """Keep what lies at `path` as `<name>.<word>-<n>` too, so that nothing is lost when it is replaced."""
    n = 1
    while os.path.lexists(aside := path.with_name(f"{path.name}.{word}-{n}")):
        n += 1
    try:
        # A second name, so that there is no moment without a sidecar.
        os.link(path, aside, follow_symlinks=False)
    except OSError:
        # A folder has no second name, nor has anything on some disks.
        rename(path, aside)
    return aside


def sync(folder: Path) -> None:
    """Make a rename in `folder` durable."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """One writer at a time in `folder`, which is made where there is none. Raises StorageError."""
    from filelock import Timeout

    lock = _lock(folder / _LOCK)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock.acquire()
    except Timeout:
        raise StorageError(
            f"{folder}: another process has been writing sidecars for {_LOCK_SECONDS:.0f} s; run `ledger project` later"
        ) from None
    except OSError as error:
        raise for_people(error, folder) from error
    try:
        yield
    finally:
        lock.release()


@lru_cache(maxsize=16)
def _lock(path: Path) -> BaseFileLock:
    from filelock import FileLock

    return FileLock(path, timeout=_LOCK_SECONDS, mode=0o666)


def names(folder: Path) -> list[str]:
    """The names in `folder`, sorted; none where there is no folder. Raises StorageError."""
    try:
        return sorted(os.listdir(folder))  # noqa: PTH208 - names are all that is wanted
    except FileNotFoundError:
        return []
    except OSError as error:
        raise for_people(error, folder) from error


def sweep(folder: Path, listed: list[str]) -> None:
    """Take away temporary files of processes that died an hour ago or longer."""
    for name in listed:
        if name.startswith(".issue-") and name.endswith(".tmp"):
            with contextlib.suppress(OSError):
                # The disk's own clock on both sides: a rehearsal's virtual one says nothing of a file.
                if time.time() - (folder / name).stat().st_mtime > _LEFTOVER_SECONDS:
                    (folder / name).unlink()


def for_people(error: OSError, path: Path) -> StorageError:
    """An operating system's error as one line that says what, where and what to do."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return StorageError(f"{path}: the disk is full; what was there stands; free some space, then `ledger project`")
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return StorageError(f"{path} cannot be read or written; check who owns it and its folder")
    if error.errno in (errno.ENOTDIR, errno.EEXIST):
        return StorageError(f"{path}: {error.strerror}; the sidecar folder must be a folder, name another")
    return StorageError(f"{path}: {error.strerror or error}")
