"""Canonical JSON (RFC 8785) and the hash chain over it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from ledger.errors import EventError

# Between these, the shortest digits of a number are written alike in Python and in RFC 8785.
_SMALL, _LARGE = 1e-4, 1e16
_EXACT: Final = 2**53 - 1


def dumps(value: Any) -> str:
    """`value` as canonical JSON text. Raises EventError for what JSON cannot hold (NaN, integers over 2^53)."""
    import orjson

    try:
        return orjson.dumps(_plain(value), option=orjson.OPT_SORT_KEYS).decode()
    except (_Strange, TypeError, RecursionError):
        pass  # what is seldom stored is written by the library that knows every rule
    import rfc8785

    try:
        return rfc8785.dumps(value).decode()
    except (rfc8785.CanonicalizationError, UnicodeEncodeError) as error:
        raise EventError(f"a payload holds a value that JSON cannot carry: {error}") from None


class _Strange(Exception):
    """A value that the fast writer may write otherwise than RFC 8785 has it."""


def _plain(value: Any) -> Any:
    """The value as it is or, where its number has no fraction, as the integer that RFC 8785 writes."""
    kind = type(value)
    if kind is dict:
        return _plain_object(value)
    if kind is list or kind is tuple:
        return [_plain(item) for item in value]
    if kind is str or value is None or kind is bool:
        return value
    return _number(value)


def _plain_object(values: dict[Any, Any]) -> dict[str, Any]:
    made = {}
    for key, value in values.items():
        if type(key) is not str or not key.isascii():
            raise _Strange  # RFC 8785 sorts by UTF-16
        kind = type(value)
        made[key] = value if kind is str or value is None or kind is bool else _plain(value)
    return made


def _number(value: Any) -> int | float:
    kind = type(value)
    if kind is int and -_EXACT <= value <= _EXACT:
        return int(value)
    if kind is float:
        if value.is_integer() and -_EXACT <= value <= _EXACT:
            return int(value)
        if _SMALL <= abs(value) < _LARGE and not value.is_integer():
            return float(value)
    raise _Strange


def loads() -> Callable[[str], Any]:
    """What reads JSON where there is much of it. Raises ValueError."""
    import orjson

    return orjson.loads


def writer() -> Callable[[Any], bytes]:
    """What `chain` writes with. Raises TypeError for what it cannot write, where `chain` goes another way."""
    import orjson

    return orjson.dumps


def chain(previous: str, columns: Sequence[Any]) -> str:
    """SHA-256 of the event before it in its stream (hex, "" for the first) and of the event's stored columns.

    The columns are joined as one JSON array, so that no value can pass for two.
    """
    import hashlib

    import orjson

    try:
        stored = orjson.dumps((previous, *columns))
    except TypeError:  # a lone surrogate, or a number that no append stores: another's hand
        import json

        text = json.dumps([previous, *columns], ensure_ascii=False, separators=(",", ":"))
        stored = text.encode("utf-8", "surrogatepass")
    return hashlib.sha256(stored).hexdigest()


def digest(text: str) -> str:
    """SHA-256 of a text, hex."""
    import hashlib

    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
