"""`ledger ssh` and `ledger logs`, with the real ssh against a server on the loopback, and the file `ssh_config`."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import asyncssh
import pytest

from tests.cli.conftest import Cli
from tests.clouds.sshd import Sshd

RUN = "issue-1418"


@pytest.fixture
def sshd(tmp_path: Path) -> Iterator[Sshd]:
    key = asyncssh.generate_private_key("ssh-ed25519")
    key.write_private_key(str(tmp_path / "id"))
    (tmp_path / "id").chmod(0o600)
    folder = tmp_path / "machine"
    folder.mkdir()
    server = Sshd(folder, asyncssh.generate_private_key("ssh-ed25519"), key.convert_to_public())
    yield server
    server.close()


@pytest.fixture
def up(taken: Cli, sshd: Sshd, tmp_path: Path) -> Cli:
    """issue-1418 on a machine that is reached over the loopback, its host key pinned."""
    settings = taken.folder / "ledger.toml"
    lines = [line for line in settings.read_text().splitlines() if not line.strip("# ").startswith(("key =", "user ="))]
    text = "\n".join(lines)
    assert "[ssh]" in text
    settings.write_text(text.replace("[ssh]", f'[ssh]\nuser = "root"\nkey = "{tmp_path / "id"}"'))
    taken.env["PATH"] = os.environ["PATH"]
    at(taken, f"127.0.0.1:{sshd.port}")
    pin(taken, public(sshd.key))
    assert taken("project").status == 0
    return taken


def public(key: asyncssh.SSHKey) -> str:
    return " ".join(key.export_public_key("openssh").decode().split()[:2])


def machine(cli: Cli) -> Any:
    log = cli.log()
    try:
        return next(iter(log.run(RUN).machines.values()))
    finally:
        log.connection.close()


def at(cli: Cli, ports: str) -> None:
    here = machine(cli)
    seen = {"status": "RUNNING", "ports": ports, "source": "list"}
    cli.append(RUN, cli.event("MachineObserved", seen, attempt=here.attempt, machine=here.id))


def pin(cli: Cli, key: str) -> None:
    here = machine(cli)
    cli.append(RUN, cli.event("HostKeyPinned", {"key": key}, attempt=here.attempt, machine=here.id))


def run(cli: Cli, *args: str) -> subprocess.CompletedProcess[str]:
    """A command as a process of its own: it becomes ssh."""
    return subprocess.run(
        [sys.executable, "-m", "ledger", *args],
        cwd=cli.folder,
        env={"PATH": os.environ["PATH"], "PYTHONPATH": os.pathsep.join(sys.path), "HOME": str(cli.folder)},
        capture_output=True,
        text=True,
        check=False,
        stdin=subprocess.DEVNULL,
        timeout=30,
    )


needs_ssh = pytest.mark.skipif(shutil.which("ssh") is None, reason="there is no ssh here")


@needs_ssh
def test_a_command_runs_on_the_machine_and_its_exit_is_told(up: Cli) -> None:
    given = run(up, "ssh", "1418", "--", "echo", "here;", "exit", "7")
    assert (given.stdout, given.returncode) == ("here\n", 7), given.stderr


@needs_ssh
def test_a_machine_with_another_key_than_the_pinned_one_is_not_entered(up: Cli, sshd: Sshd) -> None:
    sshd.key = asyncssh.generate_private_key("ssh-ed25519")
    sshd.open(sshd.port)
    given = run(up, "ssh", "1418", "--", "echo", "here")
    assert (given.stdout, given.returncode) == ("", 255)
    assert sshd.commands == []


@needs_ssh
def test_the_config_file_enters_it_by_the_name_of_the_run(up: Cli) -> None:
    words = ["ssh", "-F", str(up.handles / "ssh_config"), "issue-1418", "echo here"]
    given = subprocess.run(words, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL, timeout=30)
    assert (given.stdout, given.returncode) == ("here\n", 0), given.stderr


@needs_ssh
def test_logs_are_read_on_the_machine(up: Cli, sshd: Sshd) -> None:
    tools = sshd.folder / "bin"
    tools.mkdir()
    (tools / "tail").write_text('#!/bin/sh\nprintf "%s|" "$@"; echo\necho step\n')
    (tools / "tail").chmod(0o700)
    sshd.path = f"{tools}:{sshd.path}"
    given = run(up, "logs", "1418", "-n", "3")
    assert (given.stdout, given.returncode) == ("-n|3|/workspace/logs/issue-1418.log|\nstep\n", 0), given.stderr
    told = up("logs", "1418", "--json")
    assert told.json["lines"] == ["-n|200|/workspace/logs/issue-1418.log|", "step"]
    assert told.json["machine"] == machine(up).id
    assert run(up, "logs", "1418", "-f").stdout.startswith("-n|200|-F|/workspace")
    assert up("logs", "1418", "-f", "--json").status == 2


def test_the_command_line_that_would_be_run(up: Cli, sshd: Sshd) -> None:
    told = up("ssh", "1418", "--json").json
    options = dict(word.split("=", 1) for word in told["command"] if "=" in word)
    assert told["command"][1] == "-t"
    assert (options["HostName"], options["Port"], options["User"]) == ("127.0.0.1", str(sshd.port), "root")
    assert options["StrictHostKeyChecking"] == "yes"
    assert options["KnownHostsCommand"].endswith(public(sshd.key))


def test_a_machine_whose_key_is_not_pinned_yet_is_taken_as_it_is_found(taken: Cli) -> None:
    taken.env["PATH"] = os.environ["PATH"]
    at(taken, "198.51.100.7:22")
    words = taken("ssh", "1418", "--json").json["command"]
    assert "StrictHostKeyChecking=accept-new" in words
    assert any(word.startswith("HostKeyAlias=runpod-") for word in words)


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (("ssh", "1418"), "shows no address for SSH"),
        (("logs", "1418"), "shows no address for SSH"),
        (("ssh", "9"), "is not in this ledger"),
        (("ssh", "1418", "--machine", "runpod:other"), "has no machine runpod:other"),
    ],
)
def test_what_cannot_be_entered_is_told(taken: Cli, args: tuple[str, ...], words: str) -> None:
    at(taken, "")
    result = taken(*args)
    assert (result.status, result.err.count("\n")) == (2, 1)
    assert words in result.err


def test_an_address_that_is_none_is_told_and_left_out_of_the_file(taken: Cli) -> None:
    at(taken, "-oProxyCommand=x:1")
    taken.env["PATH"] = os.environ["PATH"]
    result = taken("ssh", "1418")
    assert (result.status, "is no address" in result.err) == (2, True)
    taken("project")
    assert "Host " not in (taken.handles / "ssh_config").read_text()


def test_without_ssh_it_says_so(up: Cli) -> None:
    up.env["PATH"] = str(up.folder)
    result = up("ssh", "1418")
    assert (result.status, "install OpenSSH" in result.err) == (2, True)


def test_the_config_file_is_written_only_when_it_changes(up: Cli) -> None:
    path = up.handles / "ssh_config"
    before = path.stat()
    os.utime(path, (1, 1))
    up("project")
    assert path.stat().st_mtime == 1
    assert path.stat().st_ino == before.st_ino
    at(up, "127.0.0.1:9")
    up("project")
    assert "  Port 9\n" in path.read_text()
    here = machine(up)
    up.append(RUN, up.event("TornDown", {"by": "external"}, attempt=here.attempt, machine=here.id))
    up("project")
    assert "Host " not in path.read_text()


def test_a_host_key_that_changed_is_pinned_by_a_person_and_by_its_fingerprint(up: Cli, sshd: Sshd) -> None:
    old = sshd.key
    sshd.key = asyncssh.generate_private_key("ssh-ed25519")
    sshd.open(sshd.port)
    shown = sshd.key.get_fingerprint()
    before = up("ssh", "1418", "--pin", "--json").json
    assert (before["shown"], before["pinned"]) == (shown, old.get_fingerprint())
    assert f"--pin {shown}" in up("ssh", "1418", "--pin").out
    wrong = up("ssh", "1418", "--pin", old.get_fingerprint())
    assert (wrong.status, "nothing is pinned" in wrong.err) == (2, True)
    assert pinned(up) == public(old)

    assert up("ssh", "1418", "--pin", shown, "--json").json["written"]
    assert not up("ssh", "1418", "--pin", shown, "--json").json["written"]
    assert pinned(up) == public(sshd.key)
    assert public(sshd.key) in (up.handles / "ssh_config").read_text()
    told = [event for event in up.events() if event.type == "HostKeyPinned"]
    assert [event.actor for event in told][1:] == ["user"]
    assert sshd.commands == []
    assert up("verify", "--projections").status == 0
    if shutil.which("ssh"):
        assert run(up, "ssh", "1418", "--", "echo", "here").stdout == "here\n"


def test_a_key_that_cannot_be_looked_at_is_not_pinned(up: Cli, sshd: Sshd) -> None:
    sshd.shut()
    result = up("ssh", "1418", "--pin")
    assert (result.status, result.err.count("\n")) == (2, 1)
    assert "shows no host key: " in result.err


def pinned(cli: Cli) -> str:
    log = cli.log()
    try:
        return log.run(RUN).host_keys[machine(cli).id]
    finally:
        log.connection.close()
