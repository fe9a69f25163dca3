"""The shell against a real SSH server with a real shell: what a launch starts, and what a probe says of it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import asyncssh
import pytest

from ledger.clouds import remote
from ledger.clouds.host_keys import HostKeys
from ledger.clouds.shell import Shell
from ledger.clouds.values import Accepted, LaunchSpec, Probe, Refused, Unknown, Unresolved
from tests.clouds.sshd import MACHINE, Sshd, shell, spec

LATE = float("inf")
AWKWARD = "a'b\"c\\d $HOME `id` %s {x}\nnext\tline é 漢 🙂 "


class Place:
    """A machine, and a shell that reaches it."""

    def __init__(self, sshd: Sshd, key_path: Path) -> None:
        self.sshd = sshd
        self.folder = sshd.folder
        self.key_path = key_path
        self.keys = HostKeys()
        self.said: list[str] = []
        self.shell = self.a_shell()

    def a_shell(self, **environment: str) -> Shell:
        return shell(self.key_path, self.keys, self.said, **environment)

    def launch(self, asked: LaunchSpec, by: Shell | None = None, timeout: float = 20, late: float = LATE) -> Any:
        return (by or self.shell).launch(MACHINE, self.sshd.endpoint, asked, send_before=late, timeout=timeout)

    def probe(self, asked: LaunchSpec, by: Shell | None = None, timeout: float = 20) -> Any:
        return (by or self.shell).probe(MACHINE, self.sshd.endpoint, asked, timeout=timeout)

    def seen(self, asked: LaunchSpec, until: Callable[[Probe], bool]) -> Probe:
        """The first probe that fits. Each look is a round trip, which is all that it waits for."""
        for _ in range(400):
            probe = self.probe(asked)
            assert isinstance(probe, Probe), probe
            if until(probe):
                return probe
        raise AssertionError(f"not seen; the last: {probe}")

    def ended(self, asked: LaunchSpec) -> Probe:
        return self.seen(asked, lambda probe: probe.pid is not None and not probe.pid_alive)

    def log(self) -> str:
        return (self.folder / "w/logs/issue-7.log").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, asyncssh.SSHKey, asyncssh.SSHKey]:
    key = asyncssh.generate_private_key("ssh-ed25519")
    path = tmp_path_factory.mktemp("keys") / "id"
    key.write_private_key(str(path))
    return path, key, asyncssh.generate_private_key("ssh-ed25519")


@pytest.fixture
def place(tmp_path: Path, keys: tuple[Path, asyncssh.SSHKey, asyncssh.SSHKey]) -> Iterator[Place]:
    path, key, host = keys
    sshd = Sshd(tmp_path, host, key.convert_to_public())
    yield Place(sshd, path)
    sshd.close()


# What a launch starts.


def test_a_workload_runs_to_its_end(place: Place) -> None:
    asked = spec(place.folder, "echo hello; read line < go; echo $line")
    os.mkfifo(_work(place) / "go")
    assert place.probe(asked) == Probe(None, False, 0, None, False, None)
    assert place.launch(asked) == Accepted()
    running = place.seen(asked, lambda probe: bool(probe.log_bytes))
    assert (running.pid_alive, running.done, running.exit, running.excerpt) == (True, False, None, "hello")
    assert running.pid == int((place.folder / "w/logs/issue-7.pid").read_text())
    assert running.log_age is not None
    assert 0 <= running.log_age < 60
    (_work(place) / "go").write_text("bye\n")
    ended = place.ended(asked)
    assert (ended.pid, ended.done, ended.exit) == (running.pid, True, 0)
    assert place.log() == "hello\nbye\n[phase=done]\n"


def test_a_crash_tells_its_exit_and_is_not_done(place: Place) -> None:
    asked = spec(place.folder, "echo Traceback >&2; exit 3")
    assert place.launch(asked) == Accepted()
    ended = place.ended(asked)
    assert (ended.done, ended.exit, ended.excerpt) == (False, 3, "Traceback")


def test_an_end_without_a_last_line_break_still_says_done_on_a_line_of_its_own(place: Place) -> None:
    asked = spec(place.folder, "printf half")
    place.launch(asked)
    place.ended(asked)
    assert place.log() == "half\n[phase=done]\n"


def test_a_workload_that_is_killed_is_not_done(place: Place) -> None:
    asked = spec(place.folder, "echo up; sleep 600")
    place.launch(asked)
    running = place.seen(asked, lambda probe: bool(probe.log_bytes))
    assert running.pid is not None
    os.killpg(running.pid, signal.SIGKILL)
    ended = place.ended(asked)
    assert (ended.done, ended.exit) == (False, None)


def test_one_that_is_asked_to_end_takes_its_children_along_and_tells_its_exit(place: Place) -> None:
    asked = spec(place.folder, "echo up; sleep 600; echo never")
    place.launch(asked)
    running = place.seen(asked, lambda probe: bool(probe.log_bytes))
    assert running.pid is not None
    os.kill(running.pid, signal.SIGTERM)
    ended = place.ended(asked)
    assert (ended.done, ended.exit) == (False, 128 + signal.SIGTERM)
    assert _group(running.pid) == []


def test_asked_again_nothing_is_started(place: Place) -> None:
    asked = spec(place.folder, "echo once; sleep 600")
    assert [place.launch(asked) for _ in range(3)] == [Accepted()] * 3
    place.seen(asked, lambda probe: bool(probe.log_bytes))
    assert place.log() == "once\n"


def test_an_attempt_that_has_ended_is_not_started_again(place: Place) -> None:
    asked = spec(place.folder, "echo once")
    place.launch(asked)
    before = place.ended(asked)
    assert place.launch(asked) == Accepted()
    assert place.ended(asked).pid == before.pid
    assert place.log() == "once\n[phase=done]\n"


def test_asked_by_many_at_once_it_is_one_process(place: Place) -> None:
    asked = spec(place.folder, "echo once; sleep 600")
    answers: list[Any] = []
    together = threading.Barrier(6)

    def ask() -> None:
        together.wait()
        answers.append(place.launch(asked))

    threads = [threading.Thread(target=ask) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert answers == [Accepted()] * 6
    place.seen(asked, lambda probe: bool(probe.log_bytes))
    assert place.log() == "once\n"


def test_the_lock_outlives_a_launch_that_died_half_way(place: Place) -> None:
    # The first launch is killed right after it started the launcher, which is held up before it has recorded itself.
    work = _work(place)
    os.mkfifo(work / "hold")
    slow = place.folder / "bin"
    slow.mkdir()
    (slow / "nohup").write_text(f'#!/bin/sh\nkill -9 $(cat {work}/first) 2>/dev/null; read x <{work}/hold\nexec "$@"\n')
    (slow / "nohup").chmod(0o700)
    place.sshd.path = f"{slow}:{place.sshd.path}"
    asked = spec(place.folder, "echo once; sleep 600")
    script = remote.launch_script(asked, {}).replace(b"main() {", f"echo $$ >{work}/first\nmain() {{".encode())
    died = subprocess.run(["/bin/sh", "-s"], input=script, env={"PATH": place.sshd.path}, check=False)
    assert died.returncode == -signal.SIGKILL
    second = threading.Thread(target=lambda: answers.append(place.launch(asked)))
    answers: list[Any] = []
    second.start()
    (work / "hold").write_text("go\n")
    second.join()
    assert answers == [Accepted()]
    place.seen(asked, lambda probe: bool(probe.log_bytes))
    assert place.log() == "once\n"


def test_another_attempt_is_not_started_beside_one_that_lives(place: Place) -> None:
    first, second = (spec(place.folder, "echo up; sleep 600", attempt) for attempt in ("a1", "a2"))
    place.launch(first)
    running = place.seen(first, lambda probe: bool(probe.log_bytes))
    answer = place.launch(second)
    assert isinstance(answer, Refused)
    assert (answer.cls, str(running.pid) in answer.message) == ("invalid", True)
    assert place.probe(second) == Probe(None, False, 0, None, False, None)


def test_what_an_earlier_attempt_left_says_nothing_of_the_next(place: Place) -> None:
    first, second = (spec(place.folder, command, n) for command, n in (("echo one", "a1"), ("exit 4", "a2")))
    place.launch(first)
    assert place.ended(first).done
    assert place.launch(second) == Accepted()
    ended = place.ended(second)
    assert (ended.done, ended.exit, ended.log_bytes, ended.log_age) == (False, 4, 0, None)
    assert place.log() == "one\n[phase=done]\n"


def test_a_pid_that_is_another_process_by_now_is_not_taken_for_the_workload(place: Place) -> None:
    asked = spec(place.folder, "true")
    place.launch(asked)
    place.ended(asked)
    record = place.folder / "w/logs/issue-7.pid.run"
    attempt, _, started, *rest = record.read_text().split()
    record.write_text(" ".join([attempt, str(os.getpid()), str(int(started) - 1), *rest]) + "\n")
    (place.folder / "w/logs/issue-7.pid").write_text(f"{os.getpid()}\n")
    assert place.probe(asked).pid_alive is False


def test_a_zombie_is_dead(place: Place) -> None:
    child = subprocess.Popen(["/bin/true"])
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    (_work(place) / "logs").mkdir()
    (place.folder / "w/logs/issue-7.pid").write_text(f"{child.pid}\n")
    try:
        probe = place.probe(spec(place.folder))
        assert (probe.pid, probe.pid_alive) == (child.pid, False)
    finally:
        child.wait()


def test_a_process_that_was_started_by_hand_is_seen_and_not_doubled(place: Place) -> None:
    asked = spec(place.folder, "echo twice")
    (_work(place) / "logs").mkdir()
    (place.folder / "w/logs/issue-7.pid").write_text(f"{os.getpid()}\n")
    (place.folder / "w/logs/issue-7.log").write_text("[phase=done]\n")
    assert place.launch(asked) == Accepted()
    probe = place.probe(asked)
    assert (probe.pid, probe.pid_alive, probe.done, probe.log_bytes) == (os.getpid(), True, True, 13)
    (place.folder / "w/logs/issue-7.pid").unlink()


# What reaches it.


def test_commands_and_values_arrive_unchanged(place: Place) -> None:
    show = "import os, sys; print(ascii([sys.argv[1], os.environ['PIN'], os.environ['log'], os.environ['TOKEN_X']]))"
    asked = spec(
        place.folder,
        f"{_quoted(sys.executable)} -c {_quoted(show)} {_quoted(AWKWARD)}",
        env={"PIN": AWKWARD, "log": "@EXPORTS@", "command": "x"},
        secrets=("TOKEN_X",),
    )
    assert place.launch(asked, place.a_shell(TOKEN_X=AWKWARD)) == Accepted()
    assert place.ended(asked).exit == 0
    assert place.log().splitlines()[0] == ascii([AWKWARD, AWKWARD, "@EXPORTS@", AWKWARD])


def test_a_workload_knows_its_run_and_its_attempt_and_writes_its_lines_at_once(place: Place) -> None:
    asked = spec(place.folder, 'echo "$LEDGER_RUN $LEDGER_ATTEMPT $PYTHONUNBUFFERED"; pwd')
    place.launch(asked)
    assert place.ended(asked).excerpt.splitlines() == ["issue-7 a1 1", str(place.folder / "w"), "[phase=done]"]
    launcher = place.folder / "w/launch_issue_7.sh"
    assert launcher.stat().st_mode & 0o777 == 0o700


def test_a_secret_is_in_the_workloads_environment_and_nowhere_else(place: Place) -> None:
    secret = "quite-secret-words"
    by = place.a_shell(HF_TOKEN=secret, OTHER_TOKEN="not asked for")
    asked = spec(
        place.folder,
        'echo "got $HF_TOKEN, ${OTHER_TOKEN-no other}"; echo up; read line < go',
        secrets=("HF_TOKEN",),
    )
    os.mkfifo(_work(place) / "go")
    assert place.launch(asked, by) == Accepted()
    running = place.seen(asked, lambda probe: bool(probe.log_bytes))
    arguments = [path.read_bytes() for path in Path("/proc").glob("[0-9]*/cmdline") if _readable(path)]
    assert not any(secret.encode() in line for line in arguments)
    assert secret not in (place.folder / "w/launch_issue_7.sh").read_text()
    assert all(secret not in command for command in place.sshd.commands)
    excerpt = place.probe(asked, by).excerpt  # the workload itself printed it
    assert excerpt.splitlines()[0] == "got [redacted], no other"
    assert running.pid is not None


def test_a_secret_that_is_not_there_is_told_and_nothing_is_started(place: Place) -> None:
    answer = place.launch(spec(place.folder, secrets=("HF_TOKEN",)))
    assert isinstance(answer, Refused)
    assert (answer.cls, "HF_TOKEN" in answer.message) == ("invalid", True)
    assert place.sshd.commands == []


@pytest.mark.parametrize(
    "changes",
    [
        {"env": {"A B": "x"}},
        {"env": {"A": "x\0y"}},
        {"env": {"A": "\ud800"}},
        {"attempt": ""},
        {"attempt": "a b"},
        {"branch": "--upload-pack=x"},
        {"secrets": ("log",)},
    ],
)
def test_what_cannot_be_said_is_refused(place: Place, changes: dict[str, Any]) -> None:
    answer = place.launch(spec(place.folder, **changes), place.a_shell(log="x"))
    assert isinstance(answer, Refused)
    assert answer.cls == "invalid"
    assert place.sshd.commands == []


def test_half_a_script_does_nothing(place: Place) -> None:
    script = remote.launch_script(spec(place.folder, "touch started"), {})
    for cut in (len(script) // 3, len(script) - 20):
        subprocess.run(["/bin/sh", "-s"], input=script[:cut], capture_output=True, check=False)
    assert list(place.folder.iterdir()) == []


@pytest.mark.parametrize("interpreter", ["bash", "dash"])
def test_any_posix_shell_will_do(place: Place, interpreter: str) -> None:
    asked = spec(place.folder, "echo up; sleep 600")
    for _ in range(2):
        ran = subprocess.run(
            [interpreter, "-s"], input=remote.launch_script(asked, {}), capture_output=True, check=True
        )
        assert remote.read_launch(ran.stdout) is not None
        assert ran.stderr == b""
    ran = subprocess.run([interpreter, "-s"], input=remote.probe_script(asked), capture_output=True, check=True)
    probe = remote.read_probe(ran.stdout)
    assert probe is not None
    assert (probe.pid_alive, ran.stderr) == (True, b"")


# The branch.


def test_the_branch_is_checked_out_where_there_is_a_repository(place: Place) -> None:
    _repository(place, "feature")
    asked = spec(place.folder, "cat what", branch="feature")
    place.launch(asked)
    assert place.ended(asked).excerpt.splitlines() == ["feature", "[phase=done]"]


def test_a_branch_that_is_not_there_is_told_and_nothing_runs(place: Place) -> None:
    _repository(place, "feature")
    asked = spec(place.folder, "echo ran", branch="nowhere")
    place.launch(asked)
    ended = place.ended(asked)
    assert (ended.done, ended.exit) == (False, remote.CANNOT_START)
    assert "branch nowhere could not be checked out" in ended.excerpt
    assert "ran" not in ended.excerpt.splitlines()


def test_a_branch_without_a_repository_is_no_matter(place: Place) -> None:
    asked = spec(place.folder, "echo ran", branch="feature")
    place.launch(asked)
    assert place.ended(asked).exit == 0


# What a probe reads.


@pytest.mark.parametrize(
    ("prints", "util"),
    [("echo 7; echo 93", 93), ("echo 0", 0), ("echo '[N/A]'", None), ("exit 9", None), ("echo oops >&2; exit 1", None)],
)
def test_the_busiest_gpu(place: Place, prints: str, util: int | None) -> None:
    tools = place.folder / "bin"
    tools.mkdir()
    (tools / "nvidia-smi").write_text(f"#!/bin/sh\n{prints}\n")
    (tools / "nvidia-smi").chmod(0o700)
    place.sshd.path = f"{tools}:{place.sshd.path}"
    assert place.probe(spec(place.folder)).gpu_util == util


def test_an_old_log_is_old(place: Place) -> None:
    log = _work(place) / "logs" / "issue-7.log"
    log.parent.mkdir()
    log.write_text("step\n")
    os.utime(log, (1_000_000_000, 1_000_000_000))
    probe = place.probe(spec(place.folder))
    assert probe.log_age is not None
    assert probe.log_age > 1e8


def test_what_a_start_up_file_prints_does_not_matter(place: Place) -> None:
    place.sshd.before = b"Welcome!\nledger-probe-1\nno prompt $ "
    assert isinstance(place.probe(spec(place.folder)), Probe)


GOOD = b"ledger-probe-1\npid 5\nalive 1\nbytes 3\nage 2\ndone 0\nexit -\ngpus 4,\nexcerpt YQ==\nend\n"


@pytest.mark.parametrize(
    "said",
    [
        b"",
        b"<html>",
        GOOD[:-1],
        GOOD + b"more",
        GOOD.replace(b"pid 5", b"pid "),
        GOOD.replace(b"pid 5", b"pid -"),
        GOOD.replace(b"pid 5", b"pid 5x"),
        GOOD.replace(b"pid 5", b"pid 0"),
        GOOD.replace(b"alive 1", b"alive yes"),
        GOOD.replace(b"bytes 3", b"bytes "),
        GOOD.replace(b"bytes 3", b"bytes -3"),
        GOOD.replace(b"age 2", b"age 2.5"),
        GOOD.replace(b"YQ==", b"YQ="),
        GOOD.replace(b"done 0\n", b""),
        GOOD.replace(b"done 0\n", b"done 0\ndone 1\n"),
        b"x" * 300_000,
    ],
)
def test_an_answer_that_is_not_exactly_one_is_unknown(place: Place, said: bytes) -> None:
    assert remote.read_probe(GOOD) == Probe(5, True, 3, 2.0, False, 4, None, "a")
    place.sshd.say = said
    answer = place.probe(spec(place.folder))
    assert isinstance(answer, Unknown)
    assert answer.error == "malformed"
    launched = place.launch(spec(place.folder))
    assert isinstance(launched, Unresolved)
    assert launched.error == "malformed"


def test_an_excerpt_is_the_last_lines_without_secrets_or_control_characters() -> None:
    import base64

    token = "hf_" + "a1B2" * 8
    text = "old\n" * 50 + f"\x1b[31mtoken {token}\x00\rstep é\n"
    said = GOOD.replace(b"YQ==", base64.b64encode(text.encode()))
    probe = remote.read_probe(said)
    assert probe is not None
    assert probe.excerpt.splitlines()[-2:] == ["[31mtoken [redacted]", "step é"]
    assert len(probe.excerpt.splitlines()) == remote.EXCERPT_LINES
    cut = (token[5:] + "\nnext\n" + "x" * remote.EXCERPT_BYTES)[: remote.EXCERPT_BYTES]
    probe = remote.read_probe(GOOD.replace(b"YQ==", base64.b64encode(cut.encode())))
    assert probe is not None
    assert token[5:] not in probe.excerpt


# The machine itself.


def test_a_host_key_is_pinned_at_first_sight_and_kept(place: Place, keys: Any) -> None:
    asked = spec(place.folder)
    assert isinstance(place.probe(asked), Probe)
    shown = place.sshd.key.export_public_key("openssh").decode().split()[:2]
    assert place.keys.new() == {MACHINE: " ".join(shown)}
    before, said = place.sshd.key, len(place.sshd.commands)
    for kind in ("ssh-ed25519", "ecdsa-sha2-nistp256"):
        place.sshd.key = asyncssh.generate_private_key(kind)
        place.sshd.open()
        for answer in (place.probe(asked), place.launch(asked)):
            assert isinstance(answer, Unknown | Unresolved)
            assert answer.error == "host_key_changed"
    assert len(place.sshd.commands) == said
    assert len(place.said) == 2, "loud, once for each key"
    assert all("another host key" in line and MACHINE in line for line in place.said)
    place.sshd.key = before
    place.sshd.open()
    assert isinstance(place.probe(asked), Probe)


def test_a_server_that_does_not_let_us_in_is_not_pinned(place: Place, tmp_path: Path) -> None:
    other = tmp_path / "other"
    asyncssh.generate_private_key("ssh-ed25519").write_private_key(str(other))
    by = shell(other, place.keys, place.said)
    answer = place.probe(spec(place.folder), by)
    assert isinstance(answer, Unknown)
    assert (answer.error, str(other) in answer.message) == ("unauthorized", True)
    refused = place.launch(spec(place.folder), by)
    assert isinstance(refused, Refused)
    assert refused.cls == "unauthorized"
    assert place.keys.new() == {}


def test_of_two_that_pin_at_once_the_first_one_counts(place: Place) -> None:
    def pin(machine: str, key: str) -> None:
        place.keys.pin(machine, "ssh-ed25519 AAAA")  # another poller was first

    by = Shell("root", place.key_path, _source(), place.keys.pinned, pin, say=place.said.append)
    answer = place.launch(spec(place.folder), by)
    assert isinstance(answer, Unresolved)
    assert answer.error == "host_key_changed"
    assert place.sshd.commands == []


@pytest.mark.parametrize("content", [None, "no key", "-----BEGIN OPENSSH PRIVATE KEY-----\nAAAA\n"])
def test_a_key_that_is_missing_or_broken_is_told(place: Place, content: str | None) -> None:
    path = place.folder / "key"
    if content is not None:
        path.write_text(content)
    answer = place.probe(spec(place.folder), shell(path, place.keys, place.said))
    assert isinstance(answer, Unknown)
    assert (answer.error, str(path) in answer.message) == ("unauthorized", True)


def test_a_machine_that_is_down_is_unreachable(place: Place) -> None:
    place.sshd.shut()
    assert brief(place.probe(spec(place.folder))) == "unreachable"
    assert brief(place.launch(spec(place.folder))) == "unreachable"
    assert brief(place.shell.probe(MACHINE, None, spec(place.folder), timeout=1)) == "unreachable"


def test_a_channel_that_breaks_is_unknown(place: Place) -> None:
    place.sshd.cut = True
    assert brief(place.probe(spec(place.folder))) == "reset"
    assert brief(place.launch(spec(place.folder))) == "reset"


@pytest.mark.parametrize("timeout", [0.3, 0.0, -1.0])
def test_no_call_takes_longer_than_its_caller_waits(place: Place, timeout: float) -> None:
    place.sshd.silent = True
    assert brief(place.probe(spec(place.folder), timeout=timeout)) == "timeout"
    assert brief(place.launch(spec(place.folder), timeout=timeout)) == "timeout"


def test_a_port_that_takes_connections_and_says_nothing_times_out(place: Place) -> None:
    import socket

    with socket.create_server(("127.0.0.1", 0)) as server:
        answer = place.shell.probe(MACHINE, server.getsockname(), spec(place.folder), timeout=0.2)
    assert brief(answer) == "timeout"


def test_a_port_of_another_protocol_is_no_machine(place: Place) -> None:
    import socket

    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            connection, _ = server.accept()
            with connection:
                connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

        thread = threading.Thread(target=serve)
        thread.start()
        answer = place.shell.probe(MACHINE, server.getsockname(), spec(place.folder), timeout=5)
        thread.join()
    assert isinstance(answer, Unknown)
    assert answer.error in ("unreachable", "malformed")


def test_past_the_last_moment_nothing_is_sent(place: Place) -> None:
    answer = place.launch(spec(place.folder, "touch x"), late=_source().steady() - 1)
    assert answer == Refused("absent", answer.message, unsent=True)
    assert place.sshd.scripts in ([], [b""])
    assert list(place.folder.rglob("*")) == []


def test_a_machine_that_lacks_a_tool_is_told(place: Place) -> None:
    tools = place.folder / "bin"
    tools.mkdir()
    for tool in ("sh", "cat", "setsid", "nohup", "stat"):
        (tools / tool).symlink_to(f"/usr/bin/{tool}")
    place.sshd.path = str(tools)
    answer = place.launch(spec(place.folder))
    assert isinstance(answer, Refused)
    assert answer.message.endswith("lacks flock")


def test_a_folder_that_cannot_be_written_is_told(place: Place) -> None:
    (place.folder / "w").write_text("a file in the way")
    answer = place.launch(spec(place.folder))
    assert isinstance(answer, Refused)
    assert "cannot write" in answer.message


def test_the_module_does_not_load_asyncssh() -> None:
    code = "import sys, ledger.clouds.shell; print('asyncssh' in sys.modules)"
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, text=True)
    assert said.stdout == "False\n"


def brief(answer: Any) -> str:
    assert isinstance(answer, Unknown | Unresolved), answer
    return answer.error


def _source() -> Any:
    from ledger.source import SystemSource

    return SystemSource()


def _work(place: Place) -> Path:
    work = place.folder / "w"
    work.mkdir(exist_ok=True)
    return work


def _quoted(text: str) -> str:
    from shlex import quote

    return quote(text)


def _readable(path: Path) -> bool:
    try:
        path.read_bytes()
    except OSError:
        return False
    return True


def _group(leader: int) -> list[str]:
    """The state and the group of each process of the group of `leader` that is no zombie."""
    stats = [
        path.read_text().rpartition(") ")[2].split() for path in Path("/proc").glob("[0-9]*/stat") if _readable(path)
    ]
    return [" ".join(stat[:3]) for stat in stats if stat[2] == str(leader) and stat[0] != "Z"]


def _repository(place: Place, branch: str) -> None:
    """A clone under the work's folder, of a repository with that branch."""
    script = (
        "git init -q -b main up && cd up && git config user.name x && git config user.email x@example.com &&"
        " echo main >what && git add what && git commit -qm one && cd .. && mkdir w && git clone -q up w/repo &&"
        f" cd up && git checkout -q -b {branch} && echo {branch} >what && git commit -qam two"
    )
    subprocess.run(["/bin/sh", "-c", script], cwd=place.folder, check=True, capture_output=True)


def test_the_keys_of_a_process_the_first_one_stays_and_is_told_once() -> None:
    keys = HostKeys({"a": "k1"})
    for key in ("k2", "k3"):
        keys.pin("a", key)
        keys.pin("b", key)
    assert [keys.pinned(machine) for machine in "abc"] == ["k1", "k2", None]
    assert keys.new() == {"b": "k2"}
    keys.learn({"b": "k9"})
    assert keys.pinned("b") == "k9"
    assert keys.new() == {}
