"""A loopback HTTP/1.1 server for the simulated clouds: the standard library's, because a scenario needs the socket.

A framework would bring a dozen distributions and hide what is wanted here: an answer that never comes, a connection
cut in the middle. Binds 127.0.0.1 only.
"""

from __future__ import annotations

import contextlib
import email.utils
import json
import select
import socket
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from ledger.moments import MICROS
from ledger.sim.wire.gate import HEADER, Gate

JSON = "application/json; charset=UTF-8"
BLINK = 0.2  # how soon a server that is closed lets go of who waits for an answer that never comes


@dataclass(frozen=True, slots=True)
class Request:
    """One request. `call` names the call of the port that it is of; None: a client on the real clock."""

    method: str
    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    body: bytes
    call: str | None = None

    def json(self) -> Any:
        """The body as JSON. Raises ValueError."""
        return json.loads(self.body)


@dataclass(frozen=True, slots=True)
class Reply:
    """One answer. `cut`: the connection is closed instead. `takes` microseconds; `lost`: it never comes."""

    status: int = 200
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)
    content_type: str = JSON
    cut: bool = False
    takes: int = 0
    lost: bool = False

    @classmethod
    def of(cls, value: Any, status: int = 200, **rest: Any) -> Reply:
        """A JSON answer."""
        return cls(status, json.dumps(value).encode(), **rest)


class LoopbackServer:
    """Serves `handle` on a port of its own until it is closed. `seen` is told each exchange (tests hold it)."""

    def __init__(
        self,
        gate: Gate,
        handle: Callable[[Request], Reply],
        port: int = 0,
        seen: Callable[[Request, Reply], None] | None = None,
    ) -> None:
        self._gate = gate
        self._handle = handle
        self._seen = seen
        self._closing = threading.Event()
        self._sockets: set[socket.socket] = set()
        self._server = ThreadingHTTPServer(("127.0.0.1", port), self._handler())
        self._server.daemon_threads = True
        self._server.block_on_close = False
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        """`http://127.0.0.1:PORT`."""
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def close(self) -> None:
        """Stop serving; connections that are open are closed."""
        self._closing.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
        for held in list(self._sockets):
            _cut(held)

    def _answer(self, request: Request) -> Reply:
        with self._gate.lock:
            reply = self._handle(request)
            if self._seen is not None:
                self._seen(request, reply)
            if request.call is not None:
                self._gate.note(request.call, reply.takes, reply.lost)
        return reply

    def _really_wait(self, reply: Reply, connection: socket.socket) -> None:
        """On the real clock an answer takes its time; one that never comes is waited for until somebody leaves."""
        if not reply.lost:
            self._closing.wait(reply.takes / MICROS)
            return
        while not self._closing.is_set():
            if select.select([connection], [], [], BLINK)[0]:
                return

    def _date(self, late: int = 0) -> str:
        return email.utils.formatdate((self._gate.world.start + self._gate.now() + late) / MICROS, usegmt=True)

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True  # two small writes cost 40 ms a request otherwise
            wbufsize = 65536
            late = 0

            def setup(self) -> None:
                outer._sockets.add(self.request)
                super().setup()

            def finish(self) -> None:
                outer._sockets.discard(self.request)
                with contextlib.suppress(OSError):
                    super().finish()

            def log_message(self, *_: Any) -> None:
                """A simulated cloud is silent."""

            def date_time_string(self, timestamp: float | None = None) -> str:
                # On the virtual clock the time that the answer takes is still to pass.
                return outer._date(self.late) if timestamp is None else super().date_time_string(timestamp)

            def handle_one_request(self) -> None:
                try:
                    super().handle_one_request()
                except OSError:
                    self.close_connection = True  # the client has left

            def _serve(self) -> None:
                parts = urlsplit(self.path)
                size = int(self.headers.get("Content-Length") or 0)
                request = Request(
                    method=self.command,
                    path=parts.path,
                    query=dict(parse_qsl(parts.query, keep_blank_values=True)),
                    headers=dict(self.headers),
                    body=self.rfile.read(size) if size else b"",
                    call=self.headers.get(HEADER),
                )
                reply = outer._answer(request)
                if request.call is None:
                    outer._really_wait(reply, self.connection)
                self.late = 0 if request.call is None else reply.takes
                if reply.cut or reply.lost:
                    self.close_connection = True
                    _cut(self.connection)
                    return
                self.send_response(reply.status)
                for name, value in {"Content-Type": reply.content_type, **reply.headers}.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(reply.body)))
                if self.close_connection:  # asked for: else a client takes the connection for one that it may keep
                    self.send_header("Connection", "close")
                self.end_headers()
                self.wfile.write(reply.body)

            do_GET = do_POST = do_DELETE = do_PATCH = do_PUT = _serve  # noqa: N815  # the names that the library looks for

        return Handler


def _cut(held: socket.socket) -> None:
    with contextlib.suppress(OSError):
        held.shutdown(socket.SHUT_RDWR)
