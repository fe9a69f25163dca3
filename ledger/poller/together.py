"""Calls side by side on threads, with a deadline: what has not returned by then taught nothing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from typing import TypeVar

from ledger.clouds.values import Unknown

T = TypeVar("T")
WORKERS = 32


def threads(calls: Sequence[Callable[[], T | Unknown]], seconds: float) -> list[T | Unknown]:
    """The answers in the order of the calls; `Unknown("timeout")` for one that is still out after `seconds`."""
    pool = ThreadPoolExecutor(max_workers=min(WORKERS, max(len(calls), 1)))
    try:
        futures = [pool.submit(call) for call in calls]
        wait(futures, timeout=max(seconds, 0.0))
        return [f.result() if f.done() else Unknown("timeout", "no answer in time") for f in futures]
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
