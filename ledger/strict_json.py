"""JSON as the standard has it, read with care: what a lenient reader would lose or bend is an error instead.

No NaN, no infinity (nor a number that overflows to it), no key twice in one object, no integer over 64 bits, no
nesting deeper than `MAX_DEPTH`. What passes can be written out again and says the same.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from typing import Any, Final, NoReturn

MAX_DEPTH: Final = 64


class NotJson(ValueError):
    """The text is no JSON of this kind; the message says why, in one line."""


def loads(text: str) -> Any:
    """The value of `text`. Raises NotJson."""
    try:
        value = json.loads(
            text, object_pairs_hook=_object, parse_constant=_constant, parse_float=_float, parse_int=_integer
        )
    except json.JSONDecodeError as error:
        what = error.msg.removesuffix(" at")  # "Unterminated string starting at"
        raise NotJson(f"is no JSON: {what} at line {error.lineno} column {error.colno}") from None
    except RecursionError:
        raise NotJson(f"is nested deeper than {MAX_DEPTH} levels") from None
    if _deeper(value, MAX_DEPTH):
        raise NotJson(f"is nested deeper than {MAX_DEPTH} levels")
    return value


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) != len(pairs):
        twice = next(key for key, count in Counter(key for key, _ in pairs).items() if count > 1)
        raise NotJson(f"has the key {twice!r} twice in one object")
    return value


def _constant(word: str) -> NoReturn:
    raise NotJson(f"holds {word}, which is no JSON number")


def _float(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise NotJson(f"holds a number that is too large: {text[:20]}")
    return number


def _integer(text: str) -> int:
    if len(text) > 20 or abs(int(text)) >= 1 << 64:
        raise NotJson(f"holds a number that is too large: {text[:20]}{'...' if len(text) > 20 else ''}")
    return int(text)


def _deeper(value: Any, limit: int) -> bool:
    level = [value]
    for _ in range(limit + 1):
        level = [
            child
            for node in level
            if isinstance(node, dict | list)
            for child in (node.values() if isinstance(node, dict) else node)
        ]
        if not level:
            return False
    return True
