"""Calls side by side on threads, with a deadline: what has not returned by then taught nothing."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from queue import Empty, SimpleQueue
from threading import Event, Thread
from typing import TypeVar

from ledger.clouds.values import Unknown

T = TypeVar("T")
WORKERS = 32


def threads(calls: Sequence[Callable[[], T | Unknown]], seconds: float) -> list[T | Unknown]:
    """The answers in the order of the calls; `Unknown("timeout")` for one that is still out after `seconds`.

    A call that never returns holds nobody up, not even the end of the process. Raises what a call raised.
    """
    todo: SimpleQueue[int] = SimpleQueue()
    done: SimpleQueue[tuple[int, T | Unknown | Exception]] = SimpleQueue()
    over = Event()

    def work() -> None:
        while not over.is_set():
            try:
                place = todo.get_nowait()
            except Empty:
                return
            try:
                done.put((place, calls[place]()))
            except Exception as error:
                done.put((place, error))

    for place in range(len(calls)):
        todo.put(place)
    for _ in range(min(WORKERS, len(calls))):
        Thread(target=work, daemon=True).start()
    answers: list[T | Unknown] = [Unknown("timeout", "no answer in time") for _ in calls]
    deadline = time.monotonic() + seconds
    try:
        for _ in calls:
            place, answer = done.get(timeout=max(deadline - time.monotonic(), 0.0))
            if isinstance(answer, Exception):
                raise answer
            answers[place] = answer
    except Empty:
        pass
    finally:
        over.set()
    return answers
