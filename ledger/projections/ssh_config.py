"""The machines that are open as an ssh configuration: `ssh -F handles/ssh_config issue-1417`, or by an `Include`.

A machine whose host key is pinned is let in under that key alone, whatever known_hosts says; the others by the rule
`accept-new`, under the machine's own id, since addresses pass from machine to machine. Pure.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

FILE: Final = "ssh_config"
HEAD: Final = "# Written by ledger from its log, when it changes. In ~/.ssh/config: Include {path}\n"
_ADDRESS = re.compile(r"(?P<host>[A-Za-z0-9.-]+|\[?[0-9A-Fa-f:]+\]?):(?P<port>\d{1,5})\Z")
_WORD = re.compile(r"[A-Za-z0-9._-]+\Z")
_KEY = re.compile(r"[a-z0-9@.-]+ [A-Za-z0-9+/]+=*\Z")


@dataclass(frozen=True, slots=True)
class Login:
    """As whom machines are entered, from the settings. `key`: the private key's file; None: the agent's."""

    user: str
    key: str | None = None


@dataclass(frozen=True, slots=True)
class Host:
    """One machine that SSH may reach: `address` is `host:port`, `host_key` the pinned one, `names` its aliases."""

    machine: str
    address: str
    names: tuple[str, ...] = ()
    host_key: str | None = None


def options(host: Host, login: Login) -> list[tuple[str, str]]:
    """What ssh must be told of the machine, in order. Raises ValueError for an address that is none."""
    match = _ADDRESS.match(host.address)
    if match is None:
        raise ValueError(f"{host.address!r} is no address; it should be host:port")
    alias = re.sub(r"[^a-z0-9.-]", "-", host.machine.lower())
    told = [("HostName", match["host"].strip("[]")), ("Port", match["port"]), ("User", login.user)]
    if login.key is not None:
        told += [("IdentityFile", f'"{login.key.replace("%", "%%")}"'), ("IdentitiesOnly", "yes")]
    told.append(("HostKeyAlias", alias))
    if host.host_key is not None and _KEY.match(host.host_key):
        told += [
            ("StrictHostKeyChecking", "yes"),
            ("UserKnownHostsFile", "/dev/null"),
            ("GlobalKnownHostsFile", "/dev/null"),
            ("KnownHostsCommand", f"/bin/echo {alias} {host.host_key}"),
        ]
    else:
        told.append(("StrictHostKeyChecking", "accept-new"))
    return told


def text(hosts: Sequence[Host], login: Login, path: str) -> str:
    """The whole file, for `path`. A name that two machines bear is left out, and so is a machine without an address."""
    borne = Counter(name for host in hosts for name in host.names)
    blocks = [HEAD.format(path=path)]
    for host in hosts:
        names = [name for name in host.names if borne[name] == 1 and _WORD.match(name)]
        if not names or not _ADDRESS.match(host.address):
            continue
        lines = "".join(f"  {name} {value}\n" for name, value in options(host, login))
        blocks.append(f"\nHost {' '.join(names)}\n{lines}")
    return "".join(blocks)
