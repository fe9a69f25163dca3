"""Google's client, as the adapter needs it: one session for all services, and nothing that waits or repeats by itself.

The library would poll an operation at Google's own address whatever the endpoint is, wait 600 s for an answer, repeat
some reads on its own, and send a refused create again after a refresh of the token. None of that is left in: every
call has its caller's time-out, is sent once, and an operation is read where its instance is.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from ledger.clouds.gcp_errors import NO_CREDENTIALS
from ledger.clouds.gcp_settings import GcpSettings
from ledger.clouds.within import within
from ledger.errors import LedgerError
from ledger.secrets import redact

if TYPE_CHECKING:
    from google.auth.credentials import Credentials
    from google.cloud.compute_v1 import InstancesClient, ZoneOperationsClient
    from requests.adapters import BaseAdapter

ENDPOINT = "LEDGER_GCE_ENDPOINT"
SSH_PORT = "LEDGER_GCE_SSH_PORT"
HOST = "compute.googleapis.com"
SCOPES = ("https://www.googleapis.com/auth/cloud-platform",)
LOOPBACK = ("127.0.0.1", "::1", "localhost")
CONNECT_SECONDS = 10.0
WHO = ("service_account_email", "signer_email", "account")
# What a list can show where a zone does not answer. gcloud asks for it; the client has no field for it since 1.55, nor
# has the published description of this call, so a server that names it as unknown is asked without it.
PARTIAL = "returnPartialSuccess"
DATE: ContextVar[str | None] = ContextVar("date", default=None)  # of the last answer in this thread


@dataclass(frozen=True, slots=True)
class Client:
    """The services of a project. `authorize` fetches a token if one is due, within so many seconds.

    `fingerprint` tells two accounts apart, and nothing of their keys.
    """

    instances: InstancesClient
    operations: ZoneOperationsClient
    authorize: Callable[[float], None]
    fingerprint: str


def endpoint_of(env: Mapping[str, str] = os.environ) -> str | None:
    """The address that LEDGER_GCE_ENDPOINT gives, None: Google's. Raises LedgerError for one that leaks a token."""
    text = env.get(ENDPOINT, "").strip()
    if not text:
        return None
    parts = urlsplit(text)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise LedgerError(f"{ENDPOINT}={text} is no address; write http://127.0.0.1:PORT, or unset it")
    if parts.scheme == "http" and parts.hostname not in LOOPBACK:
        raise LedgerError(
            f"{ENDPOINT}={text} would send a token in the clear; use https, or an address of this machine"
        )
    return text.rstrip("/")


def ssh_port_of(env: Mapping[str, str] = os.environ) -> int | None:
    """The port that LEDGER_GCE_SSH_PORT gives for SSH to instances, None: the usual one. Raises LedgerError."""
    text = env.get(SSH_PORT, "").strip()
    if not text:
        return None
    if not text.isdecimal() or not 0 < int(text) < 65536:
        raise LedgerError(f"{SSH_PORT}={text} is no port; write a number from 1 to 65535, or unset it")
    return int(text)


def connect(settings: GcpSettings, transport: BaseAdapter | None = None) -> Client:
    """The clients for `settings.endpoint`; at a loopback address nobody is authenticated. Nothing is sent yet.

    `transport` carries the requests, where a rehearsal has its own. Raises google.auth's DefaultCredentialsError.
    """
    from google.api_core.client_options import ClientOptions
    from google.cloud.compute_v1 import InstancesClient, ZoneOperationsClient
    from google.cloud.compute_v1.services.instances.transports import InstancesRestTransport
    from google.cloud.compute_v1.services.zone_operations.transports import ZoneOperationsRestTransport

    credentials = _credentials(settings.endpoint)
    session = _session(credentials, transport)
    options = ClientOptions(api_endpoint=settings.endpoint) if settings.endpoint else None
    instances = InstancesClient(
        credentials=credentials, transport=_over(session, InstancesRestTransport), client_options=options
    )
    operations = ZoneOperationsClient(
        credentials=credentials, transport=_over(session, ZoneOperationsRestTransport), client_options=options
    )
    return Client(instances, operations, session.authorize, fingerprint(credentials))


def fingerprint(credentials: Any) -> str:
    """A hash of who the credentials are: the account's name, else the client and its refresh token."""
    for name in WHO:
        who = getattr(credentials, name, None)
        if isinstance(who, str) and who and who != "default":
            break
    else:
        parts = (getattr(credentials, name, None) or "" for name in ("client_id", "refresh_token"))
        who = "/".join((type(credentials).__name__, *map(str, parts)))
    return hashlib.sha256(who.encode()).hexdigest()[:16]


def whose(endpoint: str | None, env: Mapping[str, str] = os.environ, seconds: float = 10.0) -> str:
    """Where the credentials were found, and whose they are as far as they say. Raises LedgerError: there are none.

    Nothing is asked of Google but, where no file is named, whether this is a machine of its own.
    """
    from google.auth.exceptions import GoogleAuthError

    named = env.get("GOOGLE_APPLICATION_CREDENTIALS")
    try:
        found = within(seconds, lambda: _credentials(endpoint))
    except (GoogleAuthError, OSError, ValueError) as error:
        reason = f"{named}: {' '.join(str(error).split())}" if named else NO_CREDENTIALS
        raise LedgerError(redact(reason)) from None
    if type(found).__name__ == "AnonymousCredentials":
        return "none are asked for at a loopback address"
    who = next((w for n in WHO if isinstance(w := getattr(found, n, None), str) and w and w != "default"), None)
    server = "compute_engine" in type(found).__module__
    where = named or ("the metadata server" if server else "gcloud's application default")
    return f"{where}: {who or 'an account that it does not name'}"


def _credentials(endpoint: str | None) -> Credentials:
    if endpoint is not None and urlsplit(endpoint).hostname in LOOPBACK:
        from google.auth.credentials import AnonymousCredentials

        return AnonymousCredentials()
    import google.auth
    from google.oauth2 import service_account

    found, _ = google.auth.default(scopes=SCOPES)
    if isinstance(found, service_account.Credentials):
        found = found.with_always_use_jwt_access(True)  # a token that it signs itself: no other server is asked
    credentials: Credentials = found
    return credentials


def _over(session: Any, base: Any) -> Any:
    """The library's transport on a session of ours: put in before it makes its methods, which look it up."""

    class Transport(base):  # type: ignore[misc]
        def _prep_wrapped_messages(self, client_info: Any) -> None:
            held: Any = self
            held._session.close()
            held._session = session
            super()._prep_wrapped_messages(client_info)

    return Transport


def _session(credentials: Credentials, transport: BaseAdapter | None) -> Any:
    import requests
    from google.auth.credentials import AnonymousCredentials
    from google.auth.transport.requests import AuthorizedSession, Request

    class Session(AuthorizedSession):
        """Sends once; tells the `Date`; asks lists for what they can show where a zone does not answer."""

        def __init__(self) -> None:
            # Its own session for tokens, which does not repeat either.
            tokens = Request(requests.Session())
            parent: Any = super()
            parent.__init__(credentials, max_refresh_attempts=0, auth_request=tokens, default_host=HOST)
            self._tokens = tokens
            self._refused = False
            self._partial = True
            if transport is not None:
                self.mount("http://", transport)

        def authorize(self, seconds: float) -> None:
            """Have a token that was not refused. Raises google.auth's errors."""
            request = partial(self._tokens, timeout=seconds)
            if self._refused and not isinstance(credentials, AnonymousCredentials):
                self._refused = False
                credentials.refresh(request)
            credentials.before_request(request, "GET", f"https://{HOST}/", {})

        def request(self, *args: Any, **rest: Any) -> requests.Response:
            """As its parent's, without following redirects, and with one limit for connecting and reading."""
            _, url = args[:2]
            timeout = rest.pop("timeout", None)
            if isinstance(timeout, int | float):
                connecting = min(CONNECT_SECONDS, timeout / 2)
                timeout = (connecting, timeout - connecting)
            rest |= {"timeout": timeout, "allow_redirects": False}
            parent: Any = super()
            listing = self._partial and urlsplit(url).path.endswith("/aggregated/instances")
            wanted = {**rest, "params": [*(rest.get("params") or ()), (PARTIAL, "true")]} if listing else rest
            DATE.set(None)
            response: requests.Response = parent.request(*args, **wanted)
            if listing and response.status_code == 400 and PARTIAL.encode() in response.content:
                self._partial = False
                response = parent.request(*args, **rest)
            DATE.set(response.headers.get("Date"))
            self._refused = response.status_code == 401
            return response

    return Session()
