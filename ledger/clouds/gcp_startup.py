"""The start-up script of an instance: it launches the workload, and says in the guest attributes where it is. Pure.

It runs the very script that a launch over SSH runs (`ledger.clouds.remote`), so that a probe finds the same files.
`eps/phase` is `startup`, `workload`, then `done` or `failed`; `eps/workload_started` is set once the process runs. At
a reboot the same script runs again: a workload that was started is not started twice, and one that died with the old
boot has failed.
"""

from __future__ import annotations

from dataclasses import replace
from shlex import quote

from ledger.clouds.remote import launch_script
from ledger.clouds.values import LaunchSpec

GUEST = "http://metadata.google.internal/computeMetadata/v1/instance/guest-attributes/eps"

_BODY = r"""
put() {
  curl -fsS -o /dev/null -m 10 --retry 5 --retry-all-errors -X PUT -H 'Metadata-Flavor: Google' \
    --data "$2" "$guest/$1" || echo "ledger: the guest attribute $1=$2 was not taken" >&2
}
fail() {
  echo "ledger: $1" | tee -a "$log" >&2
  put phase failed
  exit 1
}
mkdir -p "${log%/*}"
if [ ! -e "$pid_file.run" ]; then
  put phase startup
  if [ -s "$setup" ]; then . "$setup" || fail "the set-up ended with status $?"; fi
  for name in $secrets; do
    [ -n "${!name:-}" ] || fail "the secret $name is not set: export it in the set-up (GCP settings)"
  done
fi
said=$(/bin/sh -s <"$launch")
case $said in
  *"outcome started"*) put workload_started true; put phase workload ;;
  *"outcome already"*) ;;
  *) fail "the launch did not succeed: $(echo "$said" | tr '\n' ' ')" ;;
esac
read -r _ pid _ boot _ <"$pid_file.run"
while [ ! -e "$pid_file.exit" ]; do
  if [ "$boot" != "$(cat /proc/sys/kernel/random/boot_id)" ] || ! kill -0 "$pid" 2>/dev/null; then
    sleep "$pause"
    [ -e "$pid_file.exit" ] || fail "the workload is gone without an exit status"
  else
    sleep "$pause"
  fi
done
if [ "$(head -n 1 "$pid_file.exit")" = 0 ]; then put phase done; else put phase failed; fi
"""


def startup_script(spec: LaunchSpec | None, setup: str = "", guest: str = GUEST, pause: float = 5) -> str:
    """What an instance runs at each boot; without a workload the set-up alone.

    `guest` is where attributes are put, `pause` the seconds between two looks. Raises `remote.CannotSay`.
    """
    if spec is None:
        return setup if setup.startswith("#!") or not setup else f"#!/bin/bash\n{setup}"
    # Secrets would stand in the instance's metadata for everyone to read: the set-up fetches them.
    launch = launch_script(replace(spec, secrets=()), {}).decode()
    values = {
        "log": spec.log_path,
        "pid_file": spec.pid_file,
        "guest": guest,
        "secrets": " ".join(spec.secrets),
        "pause": f"{pause:g}",
    }
    head = "".join(f"{name}={quote(value)}\n" for name, value in values.items())
    files = "".join(_file(name, text, spec.attempt) for name, text in (("setup", setup), ("launch", launch)))
    return f"#!/bin/bash\n# Written by ledger: runs one workload once.\n{head}{files}{_BODY}"


def _file(name: str, text: str, attempt: str) -> str:
    """A file of that text, its path in the variable `name`."""
    end = f"LEDGER-{name}-{attempt}"
    while end in text:
        end += "-"
    whole = text if text.endswith("\n") or not text else f"{text}\n"
    return f"{name}=$(mktemp)\ncat >\"${name}\" <<'{end}'\n{whole}{end}\n"
