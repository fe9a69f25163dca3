"""The one source of time, ids and chance. Everything that is not a pure function of its input comes from here,
so that a rehearsal with the same seed is exact.

Units: `now` is integer microseconds since the epoch, UTC; `steady` is seconds on a clock that goes on while the
machine sleeps and never jumps.
"""

from __future__ import annotations

import os
import time
from typing import Protocol


class Source(Protocol):
    """What a process may know of the world outside its arguments."""

    def now(self) -> int:
        """Wall clock, microseconds UTC."""

    def steady(self) -> float:
        """Seconds on a clock that counts suspended time and cannot be set."""

    def random_bytes(self, n: int) -> bytes:
        """`n` bytes of chance."""


class SystemSource:
    """The real clock and the real chance.

    `ahead`: microseconds by which the clock of the ledger's server is ahead of this machine's. A team's pollers decide
    by the server's, however wrong their own are.
    """

    ahead = 0

    def now(self) -> int:
        return time.time_ns() // 1000 + self.ahead

    def steady(self) -> float:
        # CLOCK_BOOTTIME counts the hours in which a laptop slept; CLOCK_MONOTONIC does not (Linux).
        clock = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
        return time.clock_gettime(clock)

    def random_bytes(self, n: int) -> bytes:
        return os.urandom(n)


def uuid7(source: Source) -> str:
    """A UUIDv7 (RFC 9562): 48 bits of milliseconds, then chance."""
    millis = (source.now() // 1000) & ((1 << 48) - 1)
    chance = int.from_bytes(source.random_bytes(10), "big")
    return _uuid((millis << 80) | (chance & ((1 << 80) - 1)), 7)


def uuid4(source: Source) -> str:
    """A random UUID (version 4) from the source's chance."""
    return _uuid(int.from_bytes(source.random_bytes(16), "big"), 4)


def _uuid(value: int, version: int) -> str:
    """Its text. Not by the library, which takes longer to load than most commands have to do."""
    value = (value & ~(0xF << 76)) | (version << 76)
    value = (value & ~(0x3 << 62)) | (0x2 << 62)
    text = f"{value:032x}"
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"
