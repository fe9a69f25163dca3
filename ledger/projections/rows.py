"""What the audit's `lossy-projection` compares: one row a sidecar that was looked at."""

from __future__ import annotations

from typing import NamedTuple


class SidecarRow(NamedTuple):
    """`wanted` and `found` are SHA-256 of the texts, hex. `wanted` None: none is to lie there; `found` None: none does.

    `since` (microseconds): when the log came to want what is wanted, or, of an edited file, when it was last written.
    """

    stream: str
    wanted: str | None
    found: str | None
    since: int | None = None
