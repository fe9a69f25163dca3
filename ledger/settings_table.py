"""A table of `ledger.toml`: typed values, and one line that says which file and key cannot be used."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ledger.errors import LedgerError


class Table:
    """A table of the file: reads typed values and, at its close, refuses what nobody asked for."""

    def __init__(self, file: Path | None, values: Mapping[str, Any], name: str = "") -> None:
        self.file, self.values, self.name = file, values, name
        self._asked: set[str] = set()

    def wrong(self, key: str, what: str) -> LedgerError:
        place = f"[{self.name}] {key}" if self.name else key
        return LedgerError(f"{self.file or 'the built-in settings'}: {place} {what}")

    def section(self, key: str) -> Table:
        value = self._get(key, {})
        if not isinstance(value, dict):
            raise self.wrong(key, "must be a table")
        return Table(self.file, value, f"{self.name}.{key}" if self.name else key)

    def text(self, key: str, sources: dict[str, str] | None = None) -> str | None:
        value = self._get(key, None)
        if value is not None and not isinstance(value, str):
            raise self.wrong(key, f"must be a text, not {value!r}")
        if value and sources is not None:
            sources[key] = str(self.file)
        return value or None

    def word(self, key: str, allowed: tuple[str, ...]) -> str | None:
        value = self.text(key)
        if value is not None and value not in allowed:
            raise self.wrong(key, f"must be {' or '.join(allowed)}, not {value!r}")
        return value

    def words(self, key: str) -> tuple[str, ...]:
        value = self._get(key, [])
        if not isinstance(value, list) or not all(isinstance(item, str) and item for item in value):
            raise self.wrong(key, f"must be a list of texts, not {value!r}")
        return tuple(value)

    def count(self, key: str, default: int) -> int:
        value = self._get(key, default)
        if isinstance(value, bool) or not isinstance(value, int) or value < 0:
            raise self.wrong(key, f"must be a whole number, zero or more, not {value!r}")
        return value

    def dollars(self, key: str) -> float:
        value = self._get(key, 0)
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < float("inf"):
            raise self.wrong(key, f"must be dollars an hour, zero or more, not {value!r}")
        return float(value)

    def take_all(self) -> None:
        self._asked |= set(self.values)

    def close(self) -> None:
        unknown = sorted(set(self.values) - self._asked)
        if unknown:
            raise self.wrong(unknown[0], f"is not known; allowed: {', '.join(sorted(self._asked))}")

    def _get(self, key: str, default: Any) -> Any:
        self._asked.add(key)
        return self.values.get(key, default)
