"""The suite cannot reach the network: a test that tried would be of another day tomorrow."""

from __future__ import annotations

import socket
import socketserver
import threading

import pytest
from pytest_socket import SocketConnectBlockedError


def test_an_address_of_the_internet_is_refused() -> None:
    with socket.socket() as sock, pytest.warns(match="192.0.2.1"), pytest.raises(SocketConnectBlockedError):
        sock.connect(("192.0.2.1", 80))


def test_loopback_is_open() -> None:
    with socketserver.TCPServer(("127.0.0.1", 0), socketserver.BaseRequestHandler) as server:
        threading.Thread(target=server.handle_request, daemon=True).start()
        with socket.socket() as sock:
            sock.settimeout(5)
            sock.connect(server.server_address)
