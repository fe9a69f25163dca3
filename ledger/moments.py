"""Moments and ids as pure values: integer microseconds UTC to text and back, and the id of a create request."""

from __future__ import annotations

from datetime import UTC, datetime

MICROS = 1_000_000
LEDGER_NAMESPACE = "6b0a2c0e-5d0e-5c61-9f0f-7a8f3a1d9a11"


def request_id(ledger_id: str, attempt: str, attempt_try: int) -> str:
    """UUIDv5 of ledger, attempt and try: the same create always bears the same request id."""
    from uuid import UUID, uuid5

    return str(uuid5(UUID(LEDGER_NAMESPACE), f"{ledger_id}/{attempt}/{attempt_try}"))


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
