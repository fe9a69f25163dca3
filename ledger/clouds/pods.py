"""What both of RunPod's APIs share: the key, whose it is, what a pod is made of, and its machine calls over SSH."""

from __future__ import annotations

import hashlib
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from ledger.clouds.pod_answers import Reply, message_of
from ledger.clouds.values import (
    Absent,
    Accepted,
    CreateSpec,
    Guest,
    LaunchSpec,
    Probe,
    Refused,
    Seen,
    Unknown,
    Unresolved,
)
from ledger.errors import LedgerError
from ledger.moments import parse_time
from ledger.source import Source

if TYPE_CHECKING:
    from ledger.settings import Settings

UNSENT = Refused("absent", "the last moment to send had passed", unsent=True)
ADDRESS_SECONDS = 60.0  # how long an address that a list showed is used without another look
ACCOUNT_SECONDS = 10.0
ACCOUNT_AGAIN_SECONDS = 60.0  # an API that did not tell is not asked again sooner: a tick looks often
LEAST_SECONDS = 1.0  # what asking for the account may take at the end of a call
LEAST_VOLUME = 10  # GB; RunPod makes no smaller one
IMAGE = "runpod/pytorch:1.0.2-cu1281-torch280-ubuntu2404"
GPU_IDS: Mapping[str, Sequence[str]] = {
    "A100": ("NVIDIA A100 80GB PCIe",),
    "H100": ("NVIDIA H100 80GB HBM3",),
    "H200": ("NVIDIA H200",),
    "L4": ("NVIDIA L4",),
    "L40S": ("NVIDIA L40S",),
}


@dataclass(frozen=True, slots=True)
class Build:
    """What an intent's pod has: image (None: the offer's), disks in GB, least memory in GB (GraphQL alone has that).

    `container` is wiped when the container starts anew; `volume` (0: none) is mounted on /workspace and is not.
    """

    image: str | None = None
    container: int = 50
    volume: int = 100
    min_ram: int | None = None


@dataclass(frozen=True, slots=True)
class Offer:
    """What pods are made of. `gpu_ids` is GPU type → RunPod's ids, tried in order; `builds` are by intent.

    `public_key` is the line of authorized_keys that lets the launch in; None: RunPod puts the account's own there.
    """

    image: str = IMAGE
    build: Build = Build()
    builds: Mapping[str, Build] = field(default_factory=dict)
    gpu_ids: Mapping[str, Sequence[str]] = field(default_factory=lambda: GPU_IDS)
    cloud: str = "ALL"
    cpu_flavor: str = "cpu3c"
    vcpus: int = 4
    public_key: str | None = None

    def build_of(self, spec: CreateSpec) -> Build:
        """What this create's pod has."""
        return self.builds.get(spec.intent or "", self.build)

    def image_of(self, spec: CreateSpec) -> str:
        """The container's image."""
        return self.build_of(spec).image or self.image

    def gpus_of(self, spec: CreateSpec) -> Sequence[str | None]:
        """RunPod's ids of the GPU, in the order in which to try them; (None,): a CPU pod. Raises LookupError."""
        if not spec.gpus and not (spec.gpu_type and spec.gpus is None):
            return (None,)
        if not spec.gpu_type:
            raise LookupError("no GPU type is asked for")
        known = {name.upper(): ids for name, ids in self.gpu_ids.items() if ids}
        if found := known.get(spec.gpu_type.upper()):
            return found
        if any(spec.gpu_type in ids for ids in known.values()):
            return (spec.gpu_type,)
        raise LookupError(f"no RunPod id is configured for GPU type {spec.gpu_type!r}; known: {', '.join(known)}")


def offer_of(settings: Settings) -> Offer:
    """What `ledger.toml` says of pods."""
    rented = settings.runpod
    return Offer(
        image=rented.image or IMAGE,
        builds={
            name: Build(intent.image, volume=max(intent.disk_gb, LEAST_VOLUME), min_ram=intent.min_ram_gb)
            for name, intent in settings.intents.items()
        },
        gpu_ids=rented.gpu_ids,
        cloud=rented.cloud_type,
        public_key=public_key_of(settings.ssh.key),
    )


def account_of(settings: Settings) -> str | None:
    """The user id whose pods these must be; None (`default`): the one that the key turns out to be of."""
    return None if settings.runpod.account == "default" else settings.runpod.account


def public_key_of(private: Path | None) -> str | None:
    """The line beside a private key, where there is one."""
    try:
        return Path(f"{private}.pub").read_text(encoding="ascii").strip() or None if private else None
    except (OSError, ValueError):
        return None


class Shell(Protocol):
    """SSH to a machine at (host, port)."""

    def launch(
        self, machine: str, endpoint: tuple[str, int], spec: LaunchSpec, *, send_before: float, timeout: float
    ) -> Accepted | Refused | Unresolved: ...

    def probe(
        self, machine: str, endpoint: tuple[str, int], spec: LaunchSpec, *, timeout: float
    ) -> Probe | Unknown: ...


class Key:
    """An API key that does not show itself. `fingerprint` tells two apart and no more; `where` is its place."""

    __slots__ = ("_text", "fingerprint", "where")

    def __init__(self, text: str, where: str = "") -> None:
        self._text = text
        self.where = where
        self.fingerprint = hashlib.sha256(text.encode()).hexdigest()[:16]

    def reveal(self) -> str:
        """The key itself, for the header."""
        return self._text

    def __repr__(self) -> str:
        return f"Key({self.fingerprint})"


def find_key(env: Mapping[str, str], home: Path | None = None, variable: str = "RUNPOD_API_KEY") -> Key:
    """The key in `variable`, else `[default] api_key` of ~/.runpod/config.toml. Raises LedgerError: where it looked."""
    path = (home or Path.home()) / ".runpod" / "config.toml"
    text, where = env.get(variable, "").strip(), variable
    none = f"no RunPod API key: {variable} is not set and {path}"
    if not text:
        text, where = _key_in(path, none), str(path)
    if not text:
        raise LedgerError(f"{none} has no api_key under [default]; set one of them")
    if not text.isascii() or not text.isprintable() or " " in text:
        raise LedgerError(f"the RunPod API key in {where} has characters that no key has; copy it again")
    return Key(text, where)


def _key_in(path: Path, none: str) -> str:
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return ""
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "is no TOML"
        raise LedgerError(f"{none} cannot be read ({reason}); set one of them") from None
    default = table.get("default")
    text = default.get("api_key") if isinstance(default, dict) else None
    return text.strip() if isinstance(text, str) else ""


def environment(spec: CreateSpec, offer: Offer) -> dict[str, str]:
    """The environment of a new pod: the run's pins, the marker, and the key that lets the launch in."""
    parts = spec.marker.split(".")
    ours = {"LEDGER_MARKER": spec.marker}
    if len(parts) == 4:
        ours |= {"LEDGER_RUN": parts[1], "LEDGER_ATTEMPT": parts[2]}
    if offer.public_key:
        ours["PUBLIC_KEY"] = offer.public_key
    return {**spec.env, **ours}


def unsayable(spec: CreateSpec) -> str | None:
    """Why a name or an environment cannot be sent as it is (half a surrogate, a NUL); None: it can."""
    for what, text in (("name", spec.name), *((f"value of {k!a}", f"{k}={v}") for k, v in spec.env.items())):
        if "\0" in text or any("\ud800" <= letter <= "\udfff" for letter in text):
            return f"the {what} holds characters that no environment can hold"
    return None


def address(text: str | None) -> tuple[str, int] | None:
    """(host, port) of `host:port`."""
    host, _, port = (text or "").rpartition(":")
    return (host, int(port)) if host and port.isdecimal() else None


class PodCloud:
    """One RunPod account on either API. The reads and calls of each API are its subclass's.

    `account` is the configured user id, else what the key turns out to be of, else "" while nobody knows.
    `recheck`: ask whose the key is at every read instead of once, for where that can change under a key: a rehearsal.
    """

    backend = "runpod"

    def __init__(
        self,
        key: Key,
        source: Source,
        *,
        account: str | None = None,
        offer: Offer | None = None,
        shell: Shell | None = None,
        recheck: bool = False,
    ) -> None:
        self.key = key
        self.offer = offer or Offer()
        self._source = source
        self._configured = account
        self._shell = shell
        self._recheck = recheck
        self._told: str | None = None
        self._asked_at = float("-inf")
        self._addresses: dict[str, tuple[float, str | None]] = {}

    @property
    def account(self) -> str:
        """Whose pods these are."""
        if self._configured is None and self._told is None:
            now = self._source.steady()
            if now - self._asked_at >= ACCOUNT_AGAIN_SECONDS:
                self._asked_at = now
                self._whose(ACCOUNT_SECONDS)
        return self._configured or self._told or ""

    def create(self, spec: CreateSpec, *, send_before: float, timeout: float) -> Accepted | Refused | Unresolved:
        """Ask for one pod. A type with several ids is asked for by each, while the one before surely made nothing."""
        begun = self._source.steady()
        reason = unsayable(spec)
        gpus: Sequence[str | None] = ()
        try:
            gpus = self.offer.gpus_of(spec)
        except LookupError as error:
            reason = reason or str(error)
        if reason:
            return Refused("invalid", reason, unsent=True)
        answer: Accepted | Refused | Unresolved = UNSENT
        for number, gpu in enumerate(gpus):
            left = timeout - (self._source.steady() - begun)
            if number and left <= 0:
                break
            earlier, answer = answer, self._create(spec, gpu, send_before, left)
            if number and isinstance(answer, Refused) and answer.unsent:
                return earlier
            if not isinstance(answer, Refused) or answer.cls != "capacity":
                break
        return answer

    def describe(self, machine: str, *, timeout: float) -> Seen | Absent | Unknown:
        """Read one pod."""
        raise NotImplementedError

    def _create(
        self, spec: CreateSpec, gpu: str | None, send_before: float, timeout: float
    ) -> Accepted | Refused | Unresolved:
        """One create call. `gpu` is RunPod's id; None: a CPU pod."""
        raise NotImplementedError

    def _ask_account(self, timeout: float) -> str | Unknown:
        """The user id that the key is of, by the API; Unknown `not_found` or `http_410`: it has no such call."""
        raise NotImplementedError

    def _whose_since(self, begun: float, timeout: float) -> str | Unknown:
        """`_whose` with what is left of a call's time-out since `begun`."""
        return self._whose(max(LEAST_SECONDS, timeout - (self._source.steady() - begun)))

    def _whose(self, timeout: float) -> str | Unknown:
        """Whose key this is. A key is of one account for life, so once told it is not asked again."""
        if self._told is not None and not self._recheck:
            return self._told
        told = self._ask_account(timeout)
        if isinstance(told, str):
            self._told = told
        elif told.error in ("not_found", "http_410"):
            # No call tells it any more. What is made under a key is then at least found again under that key.
            return self._configured or self._told or f"key-{self.key.fingerprint}"
        return told

    def guest(self, machine: str, *, timeout: float) -> Guest | Unknown:  # noqa: ARG002  # the port's
        """A pod has no guest attributes."""
        return Unknown("unsupported", "a pod has no guest attributes")

    def launch(
        self, machine: str, spec: LaunchSpec, *, send_before: float, timeout: float
    ) -> Accepted | Refused | Unresolved:
        """Start the workload over SSH."""
        if self._shell is None:
            return Refused("invalid", "no SSH is configured", unsent=True)
        begun = self._source.steady()
        endpoint = self._endpoint(machine, timeout)
        if isinstance(endpoint, Unknown):
            return Unresolved(endpoint.error, endpoint.message)
        left = timeout - (self._source.steady() - begun)
        return self._shell.launch(machine, endpoint, spec, send_before=send_before, timeout=left)

    def probe(self, machine: str, spec: LaunchSpec, *, timeout: float) -> Probe | Unknown:
        """Look for the workload over SSH."""
        if self._shell is None:
            return Unknown("unsupported", "no SSH is configured")
        begun = self._source.steady()
        endpoint = self._endpoint(machine, timeout)
        if isinstance(endpoint, Unknown):
            return endpoint
        return self._shell.probe(machine, endpoint, spec, timeout=timeout - (self._source.steady() - begun))

    def _endpoint(self, machine: str, timeout: float) -> tuple[str, int] | Unknown:
        read_at, ports = self._addresses.get(machine, (float("-inf"), None))
        if self._source.steady() - read_at > ADDRESS_SECONDS:
            answer = self.describe(machine, timeout=timeout)
            if not isinstance(answer, Seen):
                return Unknown("unreachable", "the pod is not shown") if isinstance(answer, Absent) else answer
            ports = answer.ports
        return address(ports) or Unknown("unreachable", "the pod shows no public port for SSH")

    def _remember(self, seen: Seen) -> Seen:
        self._addresses[seen.machine] = (self._source.steady(), seen.ports)
        return seen

    def _say(self, reply: Reply, spec: CreateSpec | None = None) -> str:
        """What was answered, on one line, without the key and without the values of an environment.

        Of a key that is not taken, where it was found.
        """
        said = message_of(reply, (self.key.reveal(), *(spec.env.values() if spec else ())))
        return f"{said}; the key in {self.key.where} was sent" if reply.status == 401 and self.key.where else said


def pod_id(machine: str) -> str:
    """RunPod's own id of a port id."""
    return machine.removeprefix("runpod:")


def status_of(told: str) -> str:
    """A pod's status in the port's words. Both APIs say RUNNING of a pod that no SSH reaches yet: `ports` tells that.

    An unknown status passes as it is.
    """
    waiting = {"CREATED", "RESTARTING", "PROVISIONING", "STARTING"}
    return "RUNNING" if told in waiting else {"ERROR": "DEAD"}.get(told, told)


def moment_of(told: Any) -> int | None:
    """Microseconds UTC of a time as RunPod writes it: ISO 8601, or `2026-03-13 20:00:00.1 +0000 UTC`."""
    if not isinstance(told, str):
        return None
    try:
        return parse_time(re.sub(r" ([+-]\d{4})( UTC)?$", r"\1", told.strip()))
    except ValueError:
        return None


def text_or(value: Any, other: str | None) -> str | None:
    """`value` if it is text that says something."""
    return value if isinstance(value, str) and value else other
