"""What is said to a machine over SSH: the scripts of a launch and of a probe, and the answers read strictly. Pure.

A script goes to `/bin/sh -s` on its standard input, never into an argument, as one function that is called on the
last line: what arrives in part does nothing. The machine needs sh, coreutils and util-linux (flock, setsid).

Beside the pid file lie `.run` (attempt, pid, start of the process, boot, size of the log before it) and `.exit` (the
workload's exit status). A launch holds a lock, on the machine's own disk since a volume may have none, and the
launched process inherits it until `.run` stands: whoever comes second waits, then sees a process or surely none. An
attempt that has a `.run` is never started again. A pid is taken for alive only if it is no zombie and the very
process that `.run` names.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from shlex import quote

from ledger.canonical import digest
from ledger.clouds.values import LaunchSpec, Probe
from ledger.secrets import REDACTED, redact

COMMAND = "/bin/sh -s"
LAUNCH_MARK = "# ledger launch"
PROBE_MARK = "# ledger probe"
RECORDED = "exec 9>&-"  # the launcher's line after which the workload starts
EXCERPT_LINES = 20
EXCERPT_BYTES = 4096
LOCK_SECONDS = 10
CANNOT_START = 78  # EX_CONFIG: the exit status of a launcher that did not come to its workload

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
_SECRET = re.compile(r"[A-Z_][A-Z0-9_]*\Z")  # the scripts' own variables are in small letters
_ATTEMPT = re.compile(r"[A-Za-z0-9._:-]{1,100}\Z")
_BRANCH = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._/+@#=-]*\Z")

_LOOK = r"""
boot=$(cat /proc/sys/kernel/random/boot_id 2>/dev/null) || boot=-
lives() {
  env kill -0 "$1" 2>/dev/null
  case $? in
    0) ;;
    127) kill -0 "$1" 2>/dev/null || return 1 ;;
    *) return 1 ;;
  esac
  [ -d /proc/self ] || return 0
  line=$(cat "/proc/$1/stat" 2>/dev/null) || return 1
  set -- "$1" "$2" "$3" ${line##*) }
  case $4 in Z | X | x) return 1 ;; esac
  [ "$2" = - ] || { [ "$2" = "${23}" ] && [ "$3" = "$boot" ]; }
}
look() {
  pid=- alive=0 owner=- of= started=- since=- offset=0
  if [ -r "$pid_file" ]; then pid=$(head -n 1 "$pid_file"); fi
  if [ -r "$pid_file.run" ]; then read -r owner of started since offset <"$pid_file.run"; fi
  if [ -z "$offset" ]; then owner=- of= offset=0; fi
  if [ "$pid" = - ] && [ -n "$of" ]; then pid=$of; fi
  if [ "$of" != "$pid" ]; then started=- since=-; fi
  case $pid in
    - | 0* | *[!0-9]*) ;;
    *) if lives "$pid" "$started" "$since"; then alive=1; fi ;;
  esac
}
"""

_PROBE = r"""
look
size=0 age=- done=0 code=- gpus=- excerpt=
if [ "$attempt" != - ] && [ "$owner" != - ] && [ "$owner" != "$attempt" ]; then
  pid=- alive=0
else
  if [ -f "$log" ]; then
    size=$(stat -c %s "$log") changed=$(stat -c %Y "$log") now=$(date +%s)
    if [ "$size" -ge "$offset" ]; then size=$((size - offset)); fi
    if [ "$size" -gt 0 ]; then
      age=$((now - changed))
      part=$size
      if [ "$part" -gt 1048576 ]; then part=1048576; fi
      if tail -c "$part" "$log" | grep -aqF '[phase=done]'; then done=1; fi
      if [ "$part" -gt 4096 ]; then part=4096; fi
      excerpt=$(tail -c "$part" "$log" | base64 | tr -d '\n')
    fi
  fi
  if [ -r "$pid_file.exit" ]; then code=$(head -n 1 "$pid_file.exit"); fi
fi
if command -v nvidia-smi >/dev/null 2>&1; then
  use='nvidia-smi --query-gpu=utilization.gpu --format=csv,noheader,nounits'
  if command -v timeout >/dev/null 2>&1; then use="timeout 5 $use"; fi
  gpus=$($use 2>/dev/null | tr -d ' \r' | tr '\n' ',')
fi
printf 'ledger-probe-1\npid %s\nalive %s\nbytes %s\nage %s\n' "$pid" "$alive" "$size" "$age"
printf 'done %s\nexit %s\ngpus %s\nexcerpt %s\nend\n' "$done" "$code" "$gpus" "$excerpt"
"""

_LAUNCH = r"""
answer() { printf 'ledger-launch-1\noutcome %s\ndetail %s\nend\n' "$1" "$2"; }
for tool in flock setsid nohup stat; do
  if ! command -v "$tool" >/dev/null 2>&1; then answer missing "$tool"; return; fi
done
mkdir -p "${log%/*}" "${pid_file%/*}" "${launcher%/*}" 2>/dev/null
if ! (: >>"$lock" && : >>"$log") 2>/dev/null; then answer failed unwritable; return; fi
exec 9>>"$lock"
if ! flock -w @LOCK@ 9; then answer busy -; return; fi
look
if [ "$owner" = "$attempt" ]; then answer already "$pid"; return; fi
if [ "$alive" = 1 ] && [ "$owner" = - ]; then answer already "$pid"; return; fi
if [ "$alive" = 1 ]; then answer other "$pid"; return; fi
if ! (umask 077 && printf '%s' "$text" >"$launcher.new" && chmod 700 "$launcher.new" &&
  mv -f "$launcher.new" "$launcher") 2>/dev/null; then
  answer failed unwritable
  return
fi
set -- "$launcher" "$log"
(
  @SECRETS@
  exec setsid nohup /bin/sh "$1" </dev/null >>"$2" 2>&1 9>&9
) &
exec 9>&-
exec 8>>"$lock"
if ! flock -w @LOCK@ 8; then answer busy -; return; fi
exec 8>&-
look
if [ "$owner" = "$attempt" ]; then answer started "$pid"; else answer failed launcher; fi
"""

_LAUNCHER = r"""
boot=$(cat /proc/sys/kernel/random/boot_id 2>/dev/null) || boot=-
started=-
if line=$(cat "/proc/$$/stat" 2>/dev/null); then
  set -- ${line##*) }
  started=${20}
fi
offset=$(stat -c %s "$log") || offset=0
rm -f "$pid_file.exit"
printf '%s\n' "$$" >"$pid_file.new" && mv -f "$pid_file.new" "$pid_file" || exit 73
printf '%s %s %s %s %s\n' "$attempt" "$$" "$started" "$boot" "$offset" >"$pid_file.run.new" &&
  mv -f "$pid_file.run.new" "$pid_file.run" || exit 73
@RECORDED@
end() {
  if [ "$1" = 0 ]; then
    if [ -n "$(tail -c 1 "$log")" ]; then echo >>"$log"; fi
    echo '[phase=done]' >>"$log"
  fi
  printf '%s\n' "$1" >"$pid_file.exit.new" && mv -f "$pid_file.exit.new" "$pid_file.exit"
  exit "$1"
}
give_up() {
  printf 'ledger: %s\n' "$1" >>"$log"
  end @CANNOT_START@
}
# A pod keeps its image's environment from SSH sessions, and leaves it there.
if [ -r /etc/rp_environment ]; then . /etc/rp_environment; fi
# Else a quiet program's log stays empty for as long as its buffer is not full.
export PYTHONUNBUFFERED="${PYTHONUNBUFFERED-1}"
repos=0
if [ -n "$work" ] || [ -e "$base/.git" ]; then
  repos=1 work=${work:-$base}
else
  for found in "$base"/*/.git; do
    if [ -e "$found" ]; then repos=$((repos + 1)) work=${found%/.git}; fi
  done
  if [ "$repos" != 1 ]; then work=$base; fi
fi
cd "$work" || give_up "there is no folder $work to run in"
if [ -n "$branch" ] && [ "$repos" -gt 1 ]; then
  give_up "branch $branch of which repository? There are $repos under $base; pin LEDGER_REPO"
fi
if [ -n "$branch" ] && [ "$repos" = 1 ]; then
  export GIT_TERMINAL_PROMPT=0
  checkout() {
    git fetch -q origin "+refs/heads/$branch:refs/remotes/origin/$branch" || return 1
    if git show-ref -q --verify "refs/heads/$branch"; then
      git checkout -q "$branch" -- && git merge -q --ff-only "refs/remotes/origin/$branch"
    else
      git checkout -q -b "$branch" --track "origin/$branch"
    fi
  }
  if ! told=$(checkout 2>&1); then give_up "branch $branch could not be checked out in $work: $told"; fi
fi
set -- "$(command -v bash || echo /bin/sh)" "$command"
stopped=
(
  @EXPORTS@
  exec "$1" -c "$2"
) &
child=$!
trap 'stopped=1; trap "" TERM INT; kill -TERM 0' TERM INT
wait "$child"
code=$?
if [ -n "$stopped" ]; then
  wait "$child"
  code=$?
fi
end "$code"
"""

_PROBED = re.compile(
    rb"ledger-probe-1\npid (-|[1-9][0-9]{0,9})\nalive ([01])\nbytes ([0-9]{1,18})\nage (-|-?[0-9]{1,12})\n"
    rb"done ([01])\nexit (-|[0-9]{1,3})\ngpus ([ -~]*)\nexcerpt ([A-Za-z0-9+/=]*)\nend\n\Z"
)
_LAUNCHED = re.compile(
    rb"ledger-launch-1\noutcome (started|already|other|missing|failed|busy)\ndetail ([ -~]{0,80})\nend\n\Z"
)


class CannotSay(ValueError):
    """A spec that no script can carry unchanged. The message is one line."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What a launch found: `started`, `already`, `other`, `missing`, `failed` or `busy`, and which pid or tool."""

    outcome: str
    detail: str


def launcher_path(spec: LaunchSpec) -> str:
    """Where the launcher of a run lies: `/workspace/launch_issue_1417.sh`, beside the folder of the logs."""
    return str(_base(spec) / f"launch_{spec.run.replace('-', '_')}.sh")


def lock_path(spec: LaunchSpec) -> str:
    """The lock of a launch: one for each pid file."""
    return f"/tmp/ledger-{digest(spec.pid_file)[:16]}.lock"


def launch_script(spec: LaunchSpec, secrets: dict[str, str]) -> bytes:
    """The script of a launch. `secrets` reach the workload's environment alone. Raises CannotSay."""
    if not _ATTEMPT.match(spec.attempt):
        raise CannotSay(f"{spec.attempt!r} is no attempt")
    for name in spec.env:
        if not _NAME.match(name):
            raise CannotSay(f"{name!r} is no name of an environment variable")
    for name in secrets:
        if not _SECRET.match(name):
            raise CannotSay(f"{name!r} is no name of a secret: write it in capitals")
    text = _LAUNCH.replace("@LOCK@", str(LOCK_SECONDS)).replace("@SECRETS@", _exports(secrets))
    given = {"launcher": launcher_path(spec), "lock": lock_path(spec), "text": _launcher(spec)}
    return _script(LAUNCH_MARK, spec, given, _LOOK + text)


def probe_script(spec: LaunchSpec) -> bytes:
    """The script of a probe. Raises CannotSay."""
    return _script(PROBE_MARK, spec, {}, _LOOK + _PROBE)


def read_launch(said: bytes) -> Answer | None:
    """The answer to a launch; None: malformed. What a start-up file of the shell printed before it does not matter."""
    match = _LAUNCHED.search(said)
    return Answer(match[1].decode(), match[2].decode()) if match else None


def read_probe(said: bytes, secrets: Sequence[str] = ()) -> Probe | None:
    """The answer to a probe, its excerpt without secrets, those values among them; None: malformed."""
    match = _PROBED.search(said)
    if match is None or (match[1] == b"-" and match[2] == b"1"):
        return None
    try:
        excerpt = base64.b64decode(match[8], validate=True)
    except binascii.Error:
        return None
    alive = match[2] == b"1"
    return Probe(
        pid=_number(match[1]),
        pid_alive=alive,
        log_bytes=int(match[3]),
        log_age=None if match[4] == b"-" else float(max(0, int(match[4]))),
        done=match[5] == b"1",
        gpu_util=_busiest(match[7].decode()),
        exit=None if alive else _number(match[6]),
        excerpt=_excerpt(excerpt, secrets),
    )


def _script(mark: str, spec: LaunchSpec, given: dict[str, str], body: str) -> bytes:
    values = {"log": spec.log_path, "pid_file": spec.pid_file, "attempt": spec.attempt or "-", **given}
    for path in (spec.log_path, spec.pid_file):
        if not path.startswith("/") or path.endswith("/"):
            raise CannotSay(f"{path!r} is no absolute path of a file")
    text = f"{mark}\nmain() {{\n{_assign(values)}{body}}}\nmain </dev/null\n"
    if "\0" in text:
        raise CannotSay("a NUL character cannot reach a command or an environment")
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise CannotSay("a command, a path or a value is no valid text") from None


def _launcher(spec: LaunchSpec) -> str:
    if spec.branch is not None and not _BRANCH.match(spec.branch):
        raise CannotSay(f"{spec.branch!r} is no name of a branch")
    exports = _exports({**spec.env, "LEDGER_RUN": spec.run, "LEDGER_ATTEMPT": spec.attempt})
    values = {
        "log": spec.log_path,
        "pid_file": spec.pid_file,
        "attempt": spec.attempt,
        "base": str(_base(spec)),
        "branch": spec.branch or "",
        "work": spec.env.get("LEDGER_REPO", ""),
        "command": spec.command,
    }
    head = "#!/bin/sh\n# Written by ledger; a launch writes it anew.\n"
    text = _LAUNCHER.replace("@RECORDED@", RECORDED).replace("@CANNOT_START@", str(CANNOT_START))
    # Last: a pin may hold anything, a placeholder too. In a subshell: it may bear the name of a variable here.
    return head + _assign(values) + text.replace("@EXPORTS@", exports)


def _base(spec: LaunchSpec) -> PurePosixPath:
    """The folder that the work is in: that of the logs' folder."""
    return PurePosixPath(spec.log_path).parent.parent


def _assign(values: dict[str, str]) -> str:
    return "".join(f"{name}={quote(value)}\n" for name, value in values.items())


def _exports(values: dict[str, str]) -> str:
    return "\n".join(f"export {name}={quote(value)}" for name, value in values.items())


def _number(text: bytes) -> int | None:
    return None if text == b"-" else int(text)


def _busiest(told: str) -> int | None:
    """Percent of the busiest GPU; None where one of them does not tell."""
    parts = [part for part in told.split(",") if part]
    if not parts or not all(part.isdigit() and int(part) <= 100 for part in parts):
        return None
    return max(map(int, parts))


def _excerpt(raw: bytes, secrets: Sequence[str]) -> str:
    text = raw.decode("utf-8", errors="replace")
    if len(raw) >= EXCERPT_BYTES:
        # Cut out of the log's middle, it may begin inside a secret, which would not be recognised.
        text = text.partition("\n")[2] or text[EXCERPT_BYTES // 2 :]
    for secret in sorted(filter(None, secrets), key=len, reverse=True):
        text = text.replace(secret, REDACTED)
    text = redact(text.replace("\r", "\n"))
    lines = ["".join(c for c in line if c.isprintable() or c == "\t") for line in text.splitlines()]
    return "\n".join([line for line in lines if line.strip()][-EXCERPT_LINES:])
