"""What other processes do to a log in the tests: append side by side, or be killed in the middle of it."""

from __future__ import annotations

import os
import random
import signal
from collections.abc import Iterator
from multiprocessing.connection import Connection

from ledger.errors import Conflict
from ledger.events import Draft
from ledger.log.open import create_log, open_log
from ledger.log.store import Log
from ledger.policy import Policy
from ledger.source import SystemSource
from tests.support import POD, RUN, observed


def _look(log: Log, n: int) -> Draft:
    return observed(n, POD, source=f"look {n} of {os.getpid()}")


def make(url: str, told: Connection) -> None:
    """Make the ledger, or find it made; tell its id, or the error."""
    try:
        log = create_log(url, SystemSource(), Policy(), "test")
    except Exception as error:
        told.send(repr(error))
        return
    told.send(log.ledger_id())
    log.connection.close()


def append_many(url: str, worker: int, count: int, told: Connection) -> None:
    """Append `count` facts, every other one to the stream that all share; tell the acknowledged positions."""
    log = open_log(url, SystemSource())
    own = f"issue-{2000 + worker}"
    acknowledged: list[int] = []
    conflicts = 0
    try:
        for n in range(count):
            stream = RUN if n % 2 else own
            while True:
                try:
                    version = log.state(stream).version
                    acknowledged += [e.position for e in log.append(stream, version, [_look(log, n)])]
                    break
                except Conflict:
                    conflicts += 1
        told.send((acknowledged, conflicts, None))
    except Exception as error:
        told.send((acknowledged, conflicts, repr(error)))
    finally:
        log.connection.close()


def append_slowly(url: str, worker: int, count: int, told: Connection) -> None:
    """Append `count` facts to a stream of one's own, each held back for a while between its positions and its end."""
    log = open_log(url, SystemSource())
    chance = random.Random(worker)
    take = log.connection.take

    def slow(n: int, now: int | None) -> tuple[int, int]:
        taken = take(n, now)
        for _ in range(chance.randrange(40000)):
            pass
        return taken

    log.connection.take = slow  # type: ignore[method-assign]
    stream = f"issue-{3000 + worker}"
    acknowledged = [
        event.position
        for n in range(count)
        for event in log.append(stream, log.state(stream).version, [_look(log, n)] * chance.randrange(1, 4))
    ]
    told.send(acknowledged)
    log.connection.close()


def kill_rounds(url: str, rounds: int, seed: int, told: Connection) -> None:
    """`rounds` times: a child appends and tells each acknowledged position; it is killed at a random moment.

    Tells the positions that were acknowledged. The moment is a number of acknowledgements and of turns of a loop.
    """
    import ledger.log.statements
    import ledger.payloads  # noqa: F401 - loaded before the fork, else each child spends its life on it

    chance = random.Random(seed)
    acknowledged: list[int] = []
    for _ in range(rounds):
        reader, writer = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(reader)
            _append_for_ever(url, writer)
        os.close(writer)
        wanted, turns = chance.randrange(1, 6), chance.randrange(20000)
        with os.fdopen(reader, "rb") as lines:
            got = [int(line) for line, _ in zip(iter(lines.readline, b""), range(wanted), strict=False)]
            for _turn in range(turns):
                pass
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            acknowledged += got + list(_whole(lines.read()))
    told.send(acknowledged)


def _whole(text: bytes) -> Iterator[int]:
    """The positions of the lines that were written to their end."""
    return (int(line) for line in text.split(b"\n")[:-1] if line)


def _append_for_ever(url: str, writer: int) -> None:
    log = open_log(url, SystemSource())
    n = 0
    while True:
        n += 1
        events = log.append(RUN, log.state(RUN).version, [_look(log, n), _look(log, n)])
        os.write(writer, b"".join(b"%d\n" % event.position for event in events))
