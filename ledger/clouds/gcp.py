"""GCE through google-cloud-compute: a `ledger.clouds.port.Cloud` for one project.

`docs/clouds/gcp.md` has the table of answers: what GCE says → outcome → event. Google's client is imported at the
first call, never by a command that only reads the log.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from ledger.clouds import gcp_client
from ledger.clouds.gcp_client import DATE, Client
from ledger.clouds.gcp_errors import Malformed, as_absent, as_call, as_unknown, clean, fault, of_operation
from ledger.clouds.gcp_instances import instance, parse_machine, project_of, seen, zone_of
from ledger.clouds.gcp_settings import GcpSettings, Shell
from ledger.clouds.gcp_startup import startup_script
from ledger.clouds.http_dates import parse_date
from ledger.clouds.values import (
    Absent,
    Accepted,
    CreateSpec,
    Guest,
    LaunchSpec,
    Listing,
    Probe,
    Refused,
    Seen,
    Unknown,
    Unresolved,
)
from ledger.clouds.within import within
from ledger.source import Source

if TYPE_CHECKING:
    from google.cloud.compute_v1.types import Operation

T = TypeVar("T")
UNSENT = Refused("absent", "the last moment to send had passed", unsent=True)
LEAST_SECONDS = 1.0  # what a look gets that a call owes, however little of its time is left
FIRST_PAUSE, LONGEST_PAUSE = 1.0, 10.0  # seconds between two looks at an operation
ADDRESS_SECONDS = 60.0  # how long an address that a read showed is used without another look
GUEST_PATH = "eps/"
NOT_SAID = ("", "0", "false", "no")


class Limit(Protocol):
    """Gives what a call gives or raises, if it ends within so many seconds; else raises TimeoutError."""

    def __call__(self, seconds: float, call: Callable[[], T], /) -> T: ...


def open_cloud(
    settings: GcpSettings, source: Source, shell: Shell | None = None, env: Mapping[str, str] = os.environ
) -> GcpCloud:
    """The project of `settings`; LEDGER_GCE_ENDPOINT is another address of the API, loopback without credentials,
    and LEDGER_GCE_SSH_PORT another port of SSH.

    Nothing is imported or sent yet: missing credentials are told by the first call. Raises LedgerError for an
    address or a port that cannot be used.
    """
    endpoint = gcp_client.endpoint_of(env) or settings.endpoint
    port = gcp_client.ssh_port_of(env) or settings.ssh_port
    return GcpCloud(replace(settings, endpoint=endpoint, ssh_port=port), source, shell)


class _TooLate(Exception):
    """The last moment to send has passed."""


class GcpCloud:
    """One GCE project, which is its `account`. May be called from several threads at once.

    `connect` makes the clients at the first call, `limit` bounds each request, `sleep` waits between two looks at
    an operation: a rehearsal has its own.
    """

    backend = "gcp"

    def __init__(
        self,
        settings: GcpSettings,
        source: Source,
        shell: Shell | None = None,
        *,
        connect: Callable[[GcpSettings], Client] = gcp_client.connect,
        limit: Limit = within,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.account = settings.project
        self.settings = settings
        self._source = source
        self._shell = shell
        self._connect = connect
        self._limit = limit
        self._sleep = sleep
        self._client: Client | None = None
        self._lock = threading.Lock()
        self._addresses: dict[str, tuple[float, str | None]] = {}

    def create(self, spec: CreateSpec, *, send_before: float, timeout: float) -> Accepted | Refused | Unresolved:
        """Ask for one instance in one zone, and wait for what became of it; a queued one is known while it waits.

        Where time is up when the instance was made, one more look of a second says which it is.
        """
        from google.cloud.compute_v1 import InsertInstanceRequest

        deadline = self._source.steady() + timeout
        zone = spec.zone or self.settings.zones[0]
        try:
            machine_type = self.settings.machine_type_of(spec)
            script = startup_script(spec.launch, self.settings.setup)
            wanted = instance(spec, zone, machine_type, script, self.settings)
        except (LookupError, ValueError) as error:
            return Refused("invalid", clean(str(error.args[0] if error.args else error)), unsent=True)
        request = InsertInstanceRequest(
            project=self.account, zone=zone, instance_resource=wanted, request_id=spec.request_id
        )

        def send(client: Client, seconds: float) -> Operation:
            return client.instances.insert_unary(request, retry=None, timeout=seconds)

        try:
            operation = self._ask(send, deadline, send_before)
            if not operation.name or not operation.target_id:
                raise Malformed("the answer to the create names no operation or no instance")
        except _TooLate:
            return UNSENT
        except Exception as error:
            return as_call(fault(error))
        return self._await(operation, zone, spec.provisioning_model == "FLEX_START", deadline)

    def _await(self, operation: Operation, zone: str, queued: bool, deadline: float) -> Accepted | Refused | Unresolved:
        """What became of an insert. The operation of a queued instance may go on for as long as its wait."""
        machine = f"gcp:{self.account}/{zone}/{operation.target_id}"
        pause, news = 0.0, "it is not done"
        while True:
            done = operation.status.name == "DONE"
            failed = of_operation(operation) if done else None
            if failed is not None:
                return failed
            if done or queued:
                shown = self.describe(machine, timeout=deadline - self._source.steady())
                if isinstance(shown, Seen):
                    return Accepted(shown)
                if done and isinstance(shown, Absent):
                    return Unresolved("vanished", f"{machine} was made and is not there", operation.name)
                news = shown.message if isinstance(shown, Unknown) else news
            left = deadline - self._source.steady()
            if pause and left <= 0:
                return Unresolved("timeout", clean(f"operation {operation.name}: {news}"), operation.name)
            if pause:
                self._sleep(min(pause, left))
            pause = min(pause * 1.5, LONGEST_PAUSE) or FIRST_PAUSE
            if not done:
                try:
                    operation = self._operation(operation.name, zone, deadline)
                except Exception as error:
                    news = fault(error).message

    def _operation(self, name: str, zone: str, deadline: float) -> Operation:
        from google.cloud.compute_v1 import GetZoneOperationRequest

        request = GetZoneOperationRequest(project=self.account, zone=zone, operation=name)
        return self._ask(lambda client, seconds: client.operations.get(request, retry=None, timeout=seconds), deadline)

    def describe(self, machine: str, *, timeout: float) -> Seen | Absent | Unknown:
        """Read one instance by its numeric id."""
        from google.cloud.compute_v1 import GetInstanceRequest

        deadline = self._source.steady() + timeout
        try:
            project, zone, number = parse_machine(machine)
        except ValueError as error:
            return Unknown("invalid", clean(str(error)))
        request = GetInstanceRequest(project=project, zone=zone, instance=number)
        try:
            shown = self._ask(
                lambda client, seconds: client.instances.get(request, retry=None, timeout=seconds), deadline
            )
            if str(shown.id) != number:
                raise Malformed(f"asked for instance {number}, told of {shown.id}")
            return self._remember(seen(shown, self.account, self.settings))
        except Exception as error:
            told = fault(error)
            return as_absent(told, number) or as_unknown(told)

    def list_all(self, *, timeout: float) -> Listing | Unknown:
        """One aggregated list: all pages, all zones. What came before a page that failed is shown, as incomplete."""
        deadline = self._source.steady() + timeout
        account: str | None = None
        machines: dict[str, Seen] = {}
        missing: list[str] = []
        token, tokens, date = "", set[str](), None
        while True:
            try:
                page, date = self._page(token, deadline)
                account, whole = self._read_page(page, machines, missing, account)
                token = page.next_page_token
                if token in tokens:
                    raise Malformed("the list says the same page twice")
            except Exception as error:
                told = fault(error)
                if account is None:
                    return as_unknown(told)
                missing.append(f"page {len(tokens) + 1}: {told.error}")
                break
            if not whole:
                missing.append("an instance that could not be read")
            if not token:
                break
            tokens.add(token)
        assert self._client is not None
        return Listing(
            account=account,
            complete=not missing,
            machines=tuple(self._remember(shown) for shown in machines.values()),
            unreachable=tuple(dict.fromkeys(missing)),
            fingerprint=self._client.fingerprint,
            server_time=parse_date(date),
        )

    def _page(self, token: str, deadline: float) -> tuple[Any, str | None]:
        from google.cloud.compute_v1 import AggregatedListInstancesRequest

        request = AggregatedListInstancesRequest(
            project=self.account, page_token=token, max_results=self.settings.page_size
        )

        def send(client: Client, seconds: float) -> tuple[Any, str | None]:
            pager = client.instances.aggregated_list(request, retry=None, timeout=seconds)
            return next(iter(pager.pages)), DATE.get()

        return self._ask(send, deadline)

    def _read_page(
        self, page: Any, machines: dict[str, Seen], missing: list[str], account: str | None
    ) -> tuple[str, bool]:
        """Whose page it is, and whether every instance on it could be read. An object that is no list is Malformed."""
        told = project_of(page.id or page.self_link)
        if page.kind != "compute#instanceAggregatedList" or told is None or account not in (None, told):
            raise Malformed("the answer is no list of instances")
        missing += [zone_of(zone) for zone in page.unreachables]
        if page.warning.code not in ("", "NO_RESULTS_ON_PAGE"):
            missing.append(page.warning.code)
        whole = True
        for scope, held in page.items.items():
            if held.warning.code not in ("", "NO_RESULTS_ON_PAGE"):
                missing.append(zone_of(scope))
            for shown in held.instances:
                try:
                    one = seen(shown, told, self.settings)
                except Malformed:
                    whole = False
                else:
                    machines[one.machine] = one
        return told, whole

    def delete(self, machine: str, *, send_before: float, timeout: float) -> Accepted | Absent | Refused | Unresolved:
        """Ask for the end of one instance, by its numeric id."""
        from google.cloud.compute_v1 import DeleteInstanceRequest

        deadline = self._source.steady() + timeout
        try:
            project, zone, number = parse_machine(machine)
        except ValueError as error:
            return Refused("invalid", clean(str(error)))
        request = DeleteInstanceRequest(project=project, zone=zone, instance=number)

        def send(client: Client, seconds: float) -> Operation:
            return client.instances.delete_unary(request, retry=None, timeout=seconds)

        try:
            operation = self._ask(send, deadline, send_before)
            if not operation.name:
                raise Malformed("the answer to the delete names no operation")
        except _TooLate:
            return UNSENT
        except Exception as error:
            told = fault(error)
            return as_absent(told, number) or as_call(told)
        failed = of_operation(operation) if operation.status.name == "DONE" else None
        return failed or Accepted()

    def guest(self, machine: str, *, timeout: float) -> Guest | Unknown:
        """`eps/phase` and `eps/workload_started` of one instance, by its numeric id."""
        from google.cloud.compute_v1 import GetGuestAttributesInstanceRequest

        deadline = self._source.steady() + timeout
        try:
            project, zone, number = parse_machine(machine)
        except ValueError as error:
            return Unknown("invalid", clean(str(error)))
        request = GetGuestAttributesInstanceRequest(project=project, zone=zone, instance=number, query_path=GUEST_PATH)
        try:
            told = self._ask(
                lambda client, seconds: client.instances.get_guest_attributes(request, retry=None, timeout=seconds),
                deadline,
            )
            if told.kind != "compute#guestAttributes":
                raise Malformed("the answer is no guest attributes")
        except Exception as error:
            wrong = fault(error)
            # An instance that has put nothing there yet: GCE calls that a 404 of the attribute.
            if wrong.status == 404 and "Guest Attribute" in wrong.message:
                return Guest(None, None)
            return as_unknown(wrong)
        values = {item.key: item.value for item in told.query_value.items if item.namespace == GUEST_PATH[:-1]}
        started = values.get("workload_started")
        return Guest(values.get("phase"), None if started is None else started.strip().lower() not in NOT_SAID)

    def launch(
        self,
        machine: str,  # noqa: ARG002  # the port's
        spec: LaunchSpec,  # noqa: ARG002
        *,
        send_before: float,  # noqa: ARG002
        timeout: float,  # noqa: ARG002
    ) -> Accepted | Refused | Unresolved:
        """The start-up script of an instance launches."""
        return Refused("invalid", "the start-up script of an instance launches")

    def probe(self, machine: str, spec: LaunchSpec, *, timeout: float) -> Probe | Unknown:
        """Look for the workload over SSH."""
        if self._shell is None:
            return Unknown("unsupported", "no SSH is configured")
        begun = self._source.steady()
        read_at, ports = self._addresses.get(machine, (float("-inf"), None))
        if begun - read_at > ADDRESS_SECONDS:
            shown = self.describe(machine, timeout=timeout)
            if isinstance(shown, Unknown):
                return shown
            ports = shown.ports if isinstance(shown, Seen) else None
        host, _, port = (ports or "").rpartition(":")
        if not host:
            return Unknown("unreachable", "the instance shows no address for SSH")
        left = timeout - (self._source.steady() - begun)
        return self._shell.probe(machine, (host, int(port)), spec, timeout=left)

    def _remember(self, shown: Seen) -> Seen:
        self._addresses[shown.machine] = (self._source.steady(), shown.ports)
        return shown

    def _ask(self, call: Callable[[Client, float], T], deadline: float, send_before: float | None = None) -> T:
        """One request, sent at most once, and not after `send_before`: looked at when all else is ready.

        Raises _TooLate, TimeoutError, and what the client raises.
        """

        def left() -> float:
            return max(deadline - self._source.steady(), LEAST_SECONDS)

        def go() -> T:
            with self._lock:
                if self._client is None:
                    self._client = self._connect(self.settings)
            self._client.authorize(left())
            if send_before is not None and self._source.steady() > send_before:
                raise _TooLate
            return call(self._client, left())

        return self._limit(left(), go)
