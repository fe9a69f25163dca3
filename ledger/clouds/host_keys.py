"""The host keys that a process knows: those of the log, and those that it has pinned since and must still append."""

from __future__ import annotations

import threading
from collections.abc import Mapping


class HostKeys:
    """`pinned` and `pin` for a `Shell`, for several threads at once. The log is read before and written after by who
    owns it: a connection to a database belongs to one thread.
    """

    def __init__(self, known: Mapping[str, str] | None = None) -> None:
        self._keys = dict(known or {})
        self._new: dict[str, str] = {}
        self._lock = threading.Lock()

    def learn(self, known: Mapping[str, str]) -> None:
        """What the log says goes over what this process has, and is new no more."""
        with self._lock:
            self._keys.update(known)
            for machine in known:
                self._new.pop(machine, None)

    def pinned(self, machine: str) -> str | None:
        """The key that is kept for a machine."""
        with self._lock:
            return self._keys.get(machine)

    def pin(self, machine: str, key: str) -> None:
        """Keep a key, unless one is kept already."""
        with self._lock:
            if machine not in self._keys:
                self._keys[machine] = self._new[machine] = key

    def new(self) -> dict[str, str]:
        """Machine to key, of what was pinned and the log has not: one `HostKeyPinned` each, until it is learnt."""
        with self._lock:
            return dict(self._new)
