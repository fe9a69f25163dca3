"""The ssh configuration as text."""

from __future__ import annotations

import pytest

from ledger.projections.ssh_config import Host, Login, options, text

KEY = "ssh-ed25519 AAAAC3Nza"
LOGIN = Login("root", "/home/a b/id%x")


def test_a_machine_with_a_pinned_key_and_one_without() -> None:
    hosts = [
        Host("runpod:Abc_1", "198.51.100.3:10003", ("issue-7", "pod-7"), KEY),
        Host("gcp:p/z/42", "198.51.100.4:22", ("eps-issue-7",)),
    ]
    assert text(hosts, LOGIN, "/h/ssh_config") == (
        "# Written by ledger from its log, when it changes. In ~/.ssh/config: Include /h/ssh_config\n"
        "\nHost issue-7 pod-7\n  HostName 198.51.100.3\n  Port 10003\n  User root\n"
        '  IdentityFile "/home/a b/id%%x"\n  IdentitiesOnly yes\n  HostKeyAlias runpod-abc-1\n'
        "  StrictHostKeyChecking yes\n  UserKnownHostsFile /dev/null\n  GlobalKnownHostsFile /dev/null\n"
        f"  KnownHostsCommand /bin/echo runpod-abc-1 {KEY}\n"
        "\nHost eps-issue-7\n  HostName 198.51.100.4\n  Port 22\n  User root\n"
        '  IdentityFile "/home/a b/id%%x"\n  IdentitiesOnly yes\n  HostKeyAlias gcp-p-z-42\n'
        "  StrictHostKeyChecking accept-new\n"
    )


def test_a_name_that_two_machines_bear_names_neither() -> None:
    told = text([Host("a", "h:1", ("issue-7", "pod-7")), Host("b", "h:2", ("pod-7",))], Login("root"), "p")
    assert [line for line in told.splitlines() if line.startswith("Host")] == ["Host issue-7"]


@pytest.mark.parametrize("address", ["", "h", "h:", ":1", "h:x", "h\nProxyCommand x:1", "-o x:1", "h:1\n"])
def test_what_is_no_address_is_left_out(address: str) -> None:
    assert "Host " not in text([Host("a", address, ("n",))], Login("root"), "p")
    with pytest.raises(ValueError, match="is no address"):
        options(Host("a", address), Login("root"))


@pytest.mark.parametrize("name", ["a b", "*", "!x", "x\nProxyCommand y", ""])
def test_what_is_no_name_is_left_out(name: str) -> None:
    assert "Host " not in text([Host("a", "h:1", (name,))], Login("root"), "p")


def test_a_key_that_is_none_is_not_passed_on() -> None:
    told = dict(options(Host("a", "h:1", host_key="ssh-ed25519 AAAA\nProxyCommand x"), Login("root")))
    assert told["StrictHostKeyChecking"] == "accept-new"


def test_an_address_of_ipv6() -> None:
    assert dict(options(Host("a", "[2001:db8::1]:22"), Login("root")))["HostName"] == "2001:db8::1"
