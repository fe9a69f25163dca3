"""scripts/bootstrap.py where it can be tried without a network: pip from an index, the stamp, the pins."""

from __future__ import annotations

import base64
import hashlib
import importlib.util
import json
import re
import threading
import tomllib
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parent.parent
WHEEL = b"as good as a wheel"
NAME = "pip-99.1-py3-none-any.whl"
SHA256 = hashlib.sha256(WHEEL).hexdigest()


class Index:
    """A package index on loopback. `pages` is path → content type and body; `asked` what it was asked."""

    def __init__(self) -> None:
        self.pages: dict[str, tuple[str, bytes]] = {f"/files/{NAME}": ("application/octet-stream", WHEEL)}
        self.asked: list[tuple[str, str | None]] = []
        index = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                index.asked.append((self.path, self.headers.get("Authorization")))
                kind, body = index.pages.get(self.path, ("", b""))
                self.send_response(200 if kind else 404)
                self.send_header("Content-Type", kind)
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: Any) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.address = f"127.0.0.1:{self.server.server_port}"

    def serve_json(self, sha256: str = SHA256) -> None:
        page = {"files": [{"filename": NAME, "url": f"../../files/{NAME}", "hashes": {"sha256": sha256}}]}
        self.pages["/simple/pip/"] = ("application/vnd.pypi.simple.v1+json", json.dumps(page).encode())

    def serve_html(self) -> None:
        page = f'<!DOCTYPE html><a href="/files/{NAME}#sha256={SHA256}" data-requires-python="&gt;=3.10">{NAME}</a>'
        self.pages["/simple/pip/"] = ("text/html; charset=utf-8", page.encode())


@pytest.fixture
def index(monkeypatch: pytest.MonkeyPatch) -> Iterator[Index]:
    index = Index()
    threading.Thread(target=index.server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
    monkeypatch.setenv("PIP_INDEX_URL", f"http://{index.address}/simple")
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    yield index
    index.server.shutdown()
    index.server.server_close()


@pytest.fixture
def bootstrap(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The script, at work on a checkout in tmp_path."""
    spec = importlib.util.spec_from_file_location("bootstrap", ROOT / "scripts" / "bootstrap.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    (tmp_path / "constraints.txt").write_text("pip==99.1\n", encoding="utf-8")
    (tmp_path / "pyproject.toml").write_text("[project]\n", encoding="utf-8")
    for name, path in {"ROOT": "", "VENV": ".venv", "STAMP": ".venv/.ledger-stamp", "LOG": ".venv/install.log"}.items():
        monkeypatch.setattr(module, name, tmp_path / path)
    return module


def test_pip_comes_from_a_json_index(bootstrap: ModuleType, index: Index, tmp_path: Path) -> None:
    index.serve_json()
    assert bootstrap.fetch_pip(tmp_path / "wheel").read_bytes() == WHEEL


def test_pip_comes_from_an_index_that_has_only_html(bootstrap: ModuleType, index: Index, tmp_path: Path) -> None:
    index.serve_html()
    assert bootstrap.fetch_pip(tmp_path / "wheel").read_bytes() == WHEEL


def test_a_wheel_with_another_hash_is_refused(bootstrap: ModuleType, index: Index, tmp_path: Path) -> None:
    index.serve_json(sha256="0" * 64)
    with pytest.raises(bootstrap.BootstrapError, match="sha256"):
        bootstrap.fetch_pip(tmp_path / "wheel")
    assert not (tmp_path / "wheel").exists()


def test_a_wheel_without_a_hash_is_refused(bootstrap: ModuleType, index: Index, tmp_path: Path) -> None:
    index.serve_json(sha256="")
    with pytest.raises(bootstrap.BootstrapError, match="sha256"):
        bootstrap.fetch_pip(tmp_path / "wheel")


def test_credentials_of_the_index_are_sent_to_it_and_never_shown(
    bootstrap: ModuleType, index: Index, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PIP_INDEX_URL", f"http://me:s%40cret@{index.address}/simple")
    index.serve_json()
    bootstrap.fetch_pip(tmp_path / "wheel")
    sent = "Basic " + base64.b64encode(b"me:s@cret").decode()
    assert index.asked == [("/simple/pip/", sent), (f"/files/{NAME}", sent)]

    index.pages.clear()
    with pytest.raises(bootstrap.BootstrapError) as caught:
        bootstrap.fetch_pip(tmp_path / "again")
    assert "cret" not in str(caught.value)


def test_an_index_that_does_not_answer_is_one_line(
    bootstrap: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    with pytest.raises(bootstrap.BootstrapError, match="apt install python3-venv") as caught:
        bootstrap.fetch_pip(tmp_path / "wheel")
    assert "\n" not in str(caught.value)


def test_the_index_of_a_pip_configuration_is_found(
    bootstrap: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = tmp_path / "pip.conf"
    config.write_text("[global]\nindex-url = https://mirror.invalid/100%/simple\n", encoding="utf-8")
    monkeypatch.setenv("PIP_CONFIG_FILE", str(config))
    assert bootstrap.pip_config("index-url") == "https://mirror.invalid/100%/simple"


def test_only_a_finished_stamp_of_the_same_content_is_complete(bootstrap: ModuleType, tmp_path: Path) -> None:
    bootstrap.VENV.mkdir()
    assert not bootstrap.complete("runtime")
    bootstrap.STAMP.write_text("unfinished", encoding="utf-8")
    assert not bootstrap.complete("runtime")
    bootstrap.STAMP.write_text(f"runtime {bootstrap.wanted()} {tmp_path}\n", encoding="utf-8")
    assert bootstrap.complete("runtime")
    assert not bootstrap.complete("dev")
    bootstrap.STAMP.write_text(f"dev {bootstrap.wanted()} {tmp_path}\n", encoding="utf-8")
    assert bootstrap.complete("runtime")
    assert bootstrap.complete("dev")
    (tmp_path / "constraints.txt").write_text("pip==99.2\n", encoding="utf-8")
    assert not bootstrap.complete("runtime")


def test_a_venv_that_was_moved_with_its_checkout_is_made_anew(bootstrap: ModuleType) -> None:
    bootstrap.VENV.mkdir()
    bootstrap.STAMP.write_text(f"dev {bootstrap.wanted()} /where/it/was\n", encoding="utf-8")
    assert not bootstrap.complete("runtime")
    assert not bootstrap.usable(bootstrap.VENV / "bin" / "python")


def test_a_broken_venv_of_another_tool_is_left_alone(bootstrap: ModuleType, tmp_path: Path) -> None:
    (tmp_path / ".venv" / "bin").mkdir(parents=True)
    (tmp_path / ".venv" / "precious").write_text("mine", encoding="utf-8")
    with pytest.raises(bootstrap.BootstrapError, match="move it away"):
        bootstrap.make("runtime")
    assert (tmp_path / ".venv" / "precious").read_text(encoding="utf-8") == "mine"


def test_every_requirement_is_pinned() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    required = [*project["build-system"]["requires"], *project["project"]["dependencies"]]
    for extra in project["project"]["optional-dependencies"].values():
        required += extra
    pins = (ROOT / "constraints.txt").read_text(encoding="utf-8")
    pinned = {_plain(name) for name in re.findall(r"^([\w.-]+)==\S+$", pins, re.MULTILINE)}
    names = {_plain(found[0]) for found in (re.match(r"[\w.-]+", line) for line in required) if found}
    assert names - pinned == set()


def _plain(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()
