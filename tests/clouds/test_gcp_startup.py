"""The start-up script, run by a real shell against a metadata server of this machine."""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from ledger.clouds.gcp_startup import startup_script
from ledger.clouds.values import LaunchSpec

HARD = "q\" ' \\ \n{a} $HOME `x` ümläut 日本 %s"


@dataclass
class Metadata:
    url: str = ""
    put: list[tuple[str, str]] = field(default_factory=list)


@pytest.fixture
def metadata() -> Iterator[Metadata]:
    told = Metadata()

    class Handler(BaseHTTPRequestHandler):
        def do_PUT(self) -> None:
            assert self.headers["Metadata-Flavor"] == "Google"
            value = self.rfile.read(int(self.headers["Content-Length"])).decode()
            told.put.append((self.path.removeprefix("/eps/"), value))
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    told.url = f"http://127.0.0.1:{server.server_address[1]}/eps"
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    yield told
    server.shutdown()
    server.server_close()
    thread.join()


def launch(folder: Path, command: str, **changes: object) -> LaunchSpec:
    logs = folder / "work" / "logs"
    values = {"run": "issue-1", "attempt": "att-1", "command": command, **changes}
    return LaunchSpec(log_path=f"{logs}/l.log", pid_file=f"{logs}/l.pid", **values)  # type: ignore[arg-type]


def boot(spec: LaunchSpec | None, metadata: Metadata, setup: str = "") -> subprocess.CompletedProcess[str]:
    script = startup_script(spec, setup, guest=metadata.url, pause=0.02)
    return subprocess.run(["bash", "-s"], input=script, capture_output=True, text=True, timeout=60, check=False)


STARTED = [("phase", "startup"), ("workload_started", "true"), ("phase", "workload")]


def test_a_workload_that_ends_well(tmp_path: Path, metadata: Metadata) -> None:
    spec = launch(tmp_path, 'printf %s "$A" >"$OUT"; echo "$LEDGER_RUN $LEDGER_ATTEMPT"')
    spec.env.update({"A": HARD, "OUT": str(tmp_path / "out")})
    ran = boot(spec, metadata)
    assert ran.returncode == 0, ran.stderr
    assert metadata.put == [*STARTED, ("phase", "done")]
    assert (tmp_path / "out").read_text(encoding="utf-8") == HARD
    log = Path(spec.log_path).read_text(encoding="utf-8")
    assert log == "issue-1 att-1\n[phase=done]\n"


def test_a_command_arrives_unchanged(tmp_path: Path, metadata: Metadata) -> None:
    (tmp_path / "out").mkdir()
    spec = launch(tmp_path, f"cat >{tmp_path}/out/x <<'E'\n{HARD}\nE")
    boot(spec, metadata)
    assert (tmp_path / "out" / "x").read_text(encoding="utf-8") == HARD + "\n"


def test_a_workload_that_fails(tmp_path: Path, metadata: Metadata) -> None:
    boot(launch(tmp_path, "exit 3"), metadata)
    assert metadata.put == [*STARTED, ("phase", "failed")]


def test_a_reboot_starts_nothing_twice(tmp_path: Path, metadata: Metadata) -> None:
    spec = launch(tmp_path, f"echo x >>{tmp_path}/count")
    boot(spec, metadata)
    boot(spec, metadata)
    assert (tmp_path / "count").read_text(encoding="utf-8") == "x\n"
    assert metadata.put == [*STARTED, ("phase", "done"), ("phase", "done")]


def test_a_workload_that_died_with_the_old_boot_has_failed(tmp_path: Path, metadata: Metadata) -> None:
    spec = launch(tmp_path, "true")
    boot(spec, metadata)
    metadata.put.clear()
    run = Path(f"{spec.pid_file}.run")
    attempt, pid, started, _, offset = run.read_text(encoding="utf-8").split()
    run.write_text(f"{attempt} {pid} {started} another-boot {offset}\n", encoding="utf-8")
    Path(f"{spec.pid_file}.exit").unlink()
    assert boot(spec, metadata).returncode == 1
    assert metadata.put == [("phase", "failed")]


def test_the_set_up_comes_first_and_its_exports_reach_the_workload(tmp_path: Path, metadata: Metadata) -> None:
    spec = launch(tmp_path, f'printf %s "$HF_TOKEN" >{tmp_path}/out', secrets=("HF_TOKEN",))
    boot(spec, metadata, "export HF_TOKEN=t0p")
    assert (tmp_path / "out").read_text(encoding="utf-8") == "t0p"
    assert metadata.put == [*STARTED, ("phase", "done")]


@pytest.mark.parametrize(
    ("setup", "words"),
    [
        ("export OTHER=1", "the secret HF_TOKEN is not set"),
        ("false", "the set-up ended with status 1"),
        ("if then", "the set-up ended with status"),
    ],
)
def test_a_set_up_that_does_not_come_through(tmp_path: Path, metadata: Metadata, setup: str, words: str) -> None:
    spec = launch(tmp_path, f"touch {tmp_path}/ran", secrets=("HF_TOKEN",))
    ran = boot(spec, metadata, setup)
    assert ran.returncode == 1
    assert words in ran.stderr
    assert words in Path(spec.log_path).read_text(encoding="utf-8")
    assert metadata.put == [("phase", "startup"), ("phase", "failed")]
    assert not (tmp_path / "ran").exists()


def test_a_secret_is_never_in_the_script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    script = startup_script(launch(tmp_path, "true", secrets=("HF_TOKEN",)))
    assert "hf_secret" not in script


def test_without_a_workload_the_set_up_alone_runs() -> None:
    assert startup_script(None) == ""
    assert startup_script(None, "echo x") == "#!/bin/bash\necho x"
    assert startup_script(None, "#!/bin/sh\necho x") == "#!/bin/sh\necho x"
