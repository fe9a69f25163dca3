"""A hard limit on a call, whatever hangs in it: a name look-up, a handshake, a server that sends a byte a minute."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")


def within(seconds: float, call: Callable[[], T]) -> T:
    """What `call` gives or raises, if it ends within `seconds`; else TimeoutError.

    A call that has not ended is left behind in its thread, and what comes of it is nobody's: the libraries' own
    time-outs are per read and none of them bounds a name look-up.
    """
    box: list[Any] = []

    def run() -> None:
        try:
            box.append((call(), None))
        except BaseException as error:
            box.append((None, error))

    thread = threading.Thread(target=run, name="ledger-call", daemon=True)
    thread.start()
    thread.join(max(0.0, seconds))
    if not box:
        raise TimeoutError(f"no answer within {seconds:g} s")
    value, error = box[0]
    if error is not None:
        raise error
    result: T = value
    return result
