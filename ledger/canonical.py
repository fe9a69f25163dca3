"""Canonical JSON (RFC 8785) and the hash chain over it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from typing import Any

import rfc8785

from ledger.errors import EventError

_ENCODER = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))


def dumps(value: Any) -> str:
    """`value` as canonical JSON text. Raises EventError for what JSON cannot hold (NaN, integers over 2^53)."""
    try:
        return rfc8785.dumps(value).decode()
    except (rfc8785.CanonicalizationError, UnicodeEncodeError) as error:
        raise EventError(f"a payload holds a value that JSON cannot carry: {error}") from None


def chain(previous: str, columns: Sequence[Any]) -> str:
    """SHA-256 of the event before it in its stream (hex, "" for the first) and of the event's stored columns.

    The columns are joined as one JSON array, so that no value can pass for two.
    """
    stored = _ENCODER.encode([previous, *columns])
    return hashlib.sha256(stored.encode("utf-8", "surrogatepass")).hexdigest()


def digest(text: str) -> str:
    """SHA-256 of a text, hex."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
