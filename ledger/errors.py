"""The errors that a person can meet. Each is one line: what, where, what to do.

LedgerError            exit 2   something that was asked cannot be done
├── Conflict           (internal) the stream moved on; facts are appended again, decisions decided again
├── SchemaError        exit 2   the database is newer, older or no ledger at all
├── StorageError       exit 2   the disk or the database server refused
│   ├── Taken          (internal) another process wrote what this one would have written; it is tried again
│   └── Unsure         (internal) the connection broke at the commit; the log is asked whether it stands
└── EventError         exit 2   an event that the vocabulary does not allow
"""

from __future__ import annotations


class LedgerError(Exception):
    """One line for a person. `status` is the exit status that it leads to."""

    status = 2


class Conflict(LedgerError):
    """The stream is not at the expected version. `actual` is where it is."""

    def __init__(self, stream: str, expected: int, actual: int) -> None:
        super().__init__(f"{stream} is at version {actual}, not {expected}: another process wrote first; read again")
        self.stream = stream
        self.expected = expected
        self.actual = actual


class SchemaError(LedgerError):
    """The database's schema is not the one that this version works with."""


class StorageError(LedgerError):
    """The database could not be opened, read or written."""


class Taken(StorageError):
    """Another process wrote first, which showed only when this one wrote: nothing of it stands."""


class Unsure(StorageError):
    """Nobody said whether what was written stands."""


class EventError(LedgerError):
    """An event or its payload is not of the vocabulary."""
