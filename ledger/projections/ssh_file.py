"""The file `ssh_config` beside the sidecars: read from the log, and written only where it differs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from ledger.errors import StorageError
from ledger.projections import disk
from ledger.projections.ssh_config import FILE, Host, Login, text

if TYPE_CHECKING:
    from ledger.log.store import Log

_OPEN = """
SELECT m.machine, m.stream, m.name, m.ports, r.handle_machine FROM machines m JOIN runs r ON r.stream = m.stream
WHERE m.gone_at IS NULL AND m.claim <> 'orphan' AND m.ports IS NOT NULL ORDER BY m.stream, m.known_pos
"""
_KEYS = "SELECT machine, payload FROM events WHERE stream = :stream AND type = 'HostKeyPinned' ORDER BY version"


def read(log: Log) -> list[Host]:
    """The open machines of runs that show an address. The handle's bears the run's name, each its own."""
    rows = log.asked(_OPEN)
    keys: dict[tuple[str, str], str] = {}
    for stream in dict.fromkeys(row[1] for row in rows):
        for machine, payload in log.asked(_KEYS, {"stream": stream}):
            key = json.loads(payload).get("key")
            if isinstance(key, str):
                keys[stream, machine] = key
    return [
        Host(
            machine=machine,
            address=address,
            names=(*((stream,) if machine == handle else ()), *((name,) if name and name != stream else ())),
            host_key=keys.get((stream, machine)),
        )
        for machine, stream, name, address, handle in rows
    ]


def write(log: Log, folder: Path, login: Login) -> bool:
    """Make `ssh_config` in `folder` right; whether it had to be written. Raises StorageError."""
    path = folder / FILE
    if _found(path) == text(read(log), login, str(path)):
        return False
    with disk.locked(folder):
        wanted = text(read(log), login, str(path))
        if _found(path) == wanted:
            return False
        disk.replace(path, wanted, lambda: None)
    return True


def _found(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8", errors="surrogateescape")
    except FileNotFoundError:
        return None
    except OSError as error:
        raise StorageError(f"{path}: {error.strerror}; move it away, `ledger project` writes it anew") from error
