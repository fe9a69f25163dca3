"""The `Date` of an HTTP answer as a moment."""

from __future__ import annotations

from datetime import UTC
from email.utils import parsedate_to_datetime

from ledger.moments import MICROS


def parse_date(text: str | None) -> int | None:
    """Microseconds UTC of an HTTP date; None where there is none or it is unreadable."""
    if not text:
        return None
    try:
        moment = parsedate_to_datetime(text)
    except (ValueError, TypeError, OverflowError):
        return None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return int(moment.timestamp()) * MICROS
