"""The one source of time, ids and chance. Everything that is not a pure function of its input comes from here,
so that a rehearsal with the same seed is exact.

Units: `now` is integer microseconds since the epoch, UTC; `steady` is seconds on a clock that goes on while the
machine sleeps and never jumps.
"""

from __future__ import annotations

import os
import time
import uuid
from datetime import UTC, datetime
from typing import Protocol

MICROS = 1_000_000
LEDGER_NAMESPACE = uuid.UUID("6b0a2c0e-5d0e-5c61-9f0f-7a8f3a1d9a11")


class Source(Protocol):
    """What a process may know of the world outside its arguments."""

    def now(self) -> int:
        """Wall clock, microseconds UTC."""

    def steady(self) -> float:
        """Seconds on a clock that counts suspended time and cannot be set."""

    def random_bytes(self, n: int) -> bytes:
        """`n` bytes of chance."""


class SystemSource:
    """The real clock and the real chance."""

    def now(self) -> int:
        return time.time_ns() // 1000

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
    value = (millis << 80) | (chance & ((1 << 80) - 1))
    value = (value & ~(0xF << 76)) | (0x7 << 76)
    value = (value & ~(0x3 << 62)) | (0x2 << 62)
    return str(uuid.UUID(int=value))


def uuid4(source: Source) -> str:
    """A random UUID (version 4) from the source's chance."""
    return str(uuid.UUID(bytes=source.random_bytes(16), version=4))


def request_id(ledger_id: str, attempt: str, attempt_try: int) -> str:
    """UUIDv5 of ledger, attempt and try: the same create always bears the same request id."""
    return str(uuid.uuid5(LEDGER_NAMESPACE, f"{ledger_id}/{attempt}/{attempt_try}"))


def iso(micros: int) -> str:
    """`2026-07-18T00:15:02Z`, with the fraction only where there is one."""
    moment = datetime.fromtimestamp(micros // MICROS, UTC)
    fraction = micros % MICROS
    text = moment.strftime("%Y-%m-%dT%H:%M:%S")
    return f"{text}.{fraction:06d}Z" if fraction else f"{text}Z"


def parse_time(text: str) -> int:
    """Microseconds UTC of an ISO 8601 time; a time without a zone is taken as UTC. Raises ValueError."""
    moment = datetime.fromisoformat(text.strip())
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    delta = moment - datetime(1970, 1, 1, tzinfo=UTC)
    return (delta.days * 86400 + delta.seconds) * MICROS + delta.microseconds
