"""RunPod over its REST v2, as its published specification has it: a `ledger.clouds.port.Cloud`.

What it cannot do that GraphQL can: set a server-side end of life at the create, and tell whose a key is. The second
is asked of GraphQL while that lives; after it, the account is the configured one, else `key-<fingerprint>`.
`docs/clouds/runpod.md` has the table of answers: what RunPod says → outcome → event.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from ledger.clouds.http_dates import parse_date
from ledger.clouds.pod_answers import Failed, Reply, not_done, not_read, number, percent
from ledger.clouds.pods import (
    UNSENT,
    Key,
    Offer,
    PodCloud,
    Shell,
    account_of,
    environment,
    find_key,
    moment_of,
    offer_of,
    pod_id,
    status_of,
    text_or,
)
from ledger.clouds.values import Absent, Accepted, CreateSpec, Listing, Refused, Seen, Unknown, Unresolved
from ledger.clouds.within import within
from ledger.source import Source

if TYPE_CHECKING:
    import httpx

    from ledger.settings import Settings

DEFAULT_URL = "https://api.runpod.io"
ACCOUNT = "query { myself { id } }"


def open_cloud(
    settings: Settings, source: Source, shell: Shell | None = None, env: Mapping[str, str] = os.environ
) -> RunPodV2Cloud:
    """The account of the key. Nothing is sent yet. Raises LedgerError for a missing or unusable key."""
    return RunPodV2Cloud(
        find_key(env, variable=settings.runpod.api_key_env),
        source,
        url=env.get("LEDGER_RUNPOD_V2_ENDPOINT") or DEFAULT_URL,
        graphql_url=env.get("RUNPOD_API_BASE_URL") or DEFAULT_URL,
        account=account_of(settings),
        offer=offer_of(settings),
        shell=shell,
    )


class _Unsent(Exception):
    """The last moment to send had passed."""


class RunPodV2Cloud(PodCloud):
    """One account over REST v2. `url` is the API's base, without `/v2`; `graphql_url` that of GraphQL.

    `transport`: sends in the caller's own thread, with no limit but the library's; for a rehearsal, where time is
    virtual.
    """

    def __init__(
        self,
        key: Key,
        source: Source,
        *,
        url: str = DEFAULT_URL,
        graphql_url: str = DEFAULT_URL,
        account: str | None = None,
        offer: Offer | None = None,
        shell: Shell | None = None,
        recheck: bool = False,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        super().__init__(key, source, account=account, offer=offer, shell=shell, recheck=recheck)
        self._transport = transport
        self._url = url.rstrip("/")
        self._graphql = f"{graphql_url.rstrip('/')}/graphql"

    def describe(self, machine: str, *, timeout: float) -> Seen | Absent | Unknown:
        """Read one pod."""
        begun = self._source.steady()
        reply = self._send("GET", f"/v2/pods/{quote(pod_id(machine), safe='')}", timeout)
        if isinstance(reply, Failed):
            return Unknown(reply.error, reply.message)
        if reply.status not in (200, 404):
            return not_read(reply, self._say(reply))
        if reply.status == 404 and not _is_problem(reply):
            return Unknown("not_found", "not RunPod's own answer; is the endpoint right?")
        whose = self._whose_since(begun, timeout)
        if isinstance(whose, Unknown):
            return whose
        if reply.status == 404:
            return Absent(whose)
        seen = self._seen(reply.body, whose)
        if seen is None or seen.machine != machine:
            return Unknown("malformed", "the pod cannot be read")
        return Absent(whose) if seen.status == "TERMINATED" else self._remember(seen)

    def list_all(self, *, timeout: float) -> Listing | Unknown:
        """Every pod of the account; with one that cannot be read it is incomplete."""
        begun = self._source.steady()
        reply = self._send("GET", "/v2/pods", timeout)
        if isinstance(reply, Failed):
            return Unknown(reply.error, reply.message)
        if reply.status != 200:
            return not_read(reply, self._say(reply))
        pods = reply.body.get("pods") if isinstance(reply.body, dict) else None
        if not isinstance(pods, list):
            return Unknown("malformed", "the answer cannot be read")
        whose = self._whose_since(begun, timeout)
        if isinstance(whose, Unknown):
            return whose
        seen = [self._seen(pod, whose) for pod in pods]
        return Listing(
            account=whose,
            complete=None not in seen,
            machines=tuple(self._remember(pod) for pod in seen if pod is not None and pod.status != "TERMINATED"),
            fingerprint=self.key.fingerprint,
            server_time=reply.date,
        )

    def delete(self, machine: str, *, send_before: float, timeout: float) -> Accepted | Absent | Refused | Unresolved:
        """Terminate one pod."""
        begun = self._source.steady()
        path = f"/v2/pods/{quote(pod_id(machine), safe='')}"
        reply = self._send("DELETE", path, timeout, send_before=send_before)
        if isinstance(reply, Failed):
            return UNSENT if reply.unsent else Unresolved(reply.error, reply.message)
        if reply.status == 404 and _is_problem(reply):
            whose = self._whose_since(begun, timeout)
            return Absent(whose if isinstance(whose, str) else self._configured or self._told or "")
        if reply.status == 204:
            return Accepted()
        if 200 <= reply.status < 300:
            return Unresolved("malformed", f"HTTP {reply.status} is no answer to a delete")
        return not_done(reply, self._say(reply), taken="invalid")

    def _create(
        self, spec: CreateSpec, gpu: str | None, send_before: float, timeout: float
    ) -> Accepted | Refused | Unresolved:
        body = self._body(spec, gpu)
        reply = self._send("POST", "/v2/pods", timeout, body=body, send_before=send_before)
        if isinstance(reply, Failed):
            return UNSENT if reply.unsent else Unresolved(reply.error, reply.message)
        if not 200 <= reply.status < 300:
            return not_done(reply, self._say(reply, spec), taken="name_taken")
        seen = self._seen(reply.body, self._configured or self._told or "")
        return Accepted(self._remember(seen)) if seen else Unresolved("malformed", "the new pod cannot be read")

    def _ask_account(self, timeout: float) -> str | Unknown:
        reply = self._send("POST", self._graphql, timeout, body={"query": ACCOUNT})
        if isinstance(reply, Failed):
            return Unknown(reply.error, reply.message)
        if reply.status != 200:
            return not_read(reply, self._say(reply))
        try:
            told = reply.body["data"]["myself"]["id"]
        except (TypeError, KeyError):
            told = None
        return told if isinstance(told, str) and told else Unknown("malformed", "whose the key is was not told")

    @functools.cached_property
    def _client(self) -> httpx.Client:
        """Made at the first call. No connection is kept: a dead one would make a create's outcome unknown."""
        import httpx

        none_kept = httpx.Limits(max_keepalive_connections=0)
        return httpx.Client(follow_redirects=False, limits=none_kept, transport=self._transport)

    def _send(
        self,
        method: str,
        path: str,
        timeout: float,
        *,
        body: Any = None,
        send_before: float | None = None,
    ) -> Reply | Failed:
        import httpx

        if timeout <= 0:
            return Failed("timeout", "no time was left for the call")

        def run() -> httpx.Response:
            request = self._client.build_request(
                method,
                path if path.startswith("http") else f"{self._url}{path}",
                json=body,
                headers={"Authorization": f"Bearer {self.key.reveal()}", "Accept": "application/json"},
                timeout=timeout,
            )
            if send_before is not None and self._source.steady() > send_before:
                raise _Unsent
            return self._client.send(request)

        try:
            response = within(timeout, run) if self._transport is None else run()
        except _Unsent:
            return Failed("timeout", "the last moment to send had passed", unsent=True)
        except (TimeoutError, httpx.TimeoutException):
            return Failed("timeout", "no answer within the time-out")
        except (httpx.ConnectError, httpx.UnsupportedProtocol, httpx.ProxyError, httpx.InvalidURL) as error:
            return Failed("unreachable", f"no connection ({type(error).__name__})")
        except (httpx.HTTPError, OSError) as error:
            return Failed("reset", f"the connection broke ({type(error).__name__})")
        return _reply(response)

    def _body(self, spec: CreateSpec, gpu: str | None) -> dict[str, Any]:
        """The `CreatePodRequest`."""
        offer, build = self.offer, self.offer.build_of(spec)
        body: dict[str, Any] = {
            "name": spec.name,
            "image": offer.image_of(spec),
            "cloud": "SECURE" if offer.cloud == "ALL" else offer.cloud,  # v2 has no word for either
            "disk": build.container,
            "ports": ["22/tcp"],
            "startSsh": True,
            "env": environment(spec, offer),
        }
        if gpu is None:
            return {**body, "cpu": {"id": offer.cpu_flavor, "vcpuCount": offer.vcpus}}
        if build.volume:
            body["mounts"] = {"persistent": {"size": build.volume, "path": "/workspace"}}
        return {**body, "gpu": {"id": gpu, "count": spec.gpus or 1}}

    def _seen(self, pod: Any, account: str) -> Seen | None:
        """A pod of an answer; None: it cannot be read."""
        if not isinstance(pod, dict) or not all(text_or(pod.get(k), None) for k in ("id", "name", "status")):
            return None
        env = pod["env"] if isinstance(pod.get("env"), dict) else {}
        runtime = pod["runtime"] if isinstance(pod.get("runtime"), dict) else None
        gpus = runtime.get("gpus") if runtime else None
        gpu = pod["gpu"] if isinstance(pod.get("gpu"), dict) else {}
        count = number(gpu.get("count", 1 if gpu else None))
        running = pod["status"] == "RUNNING"
        cost = number(pod.get("cost"))
        return Seen(
            machine=f"runpod:{pod['id']}",
            backend=self.backend,
            account=account,
            name=pod["name"],
            status=status_of(pod["status"]),
            created_at=moment_of(pod.get("createdAt")),
            marker=text_or(env.get("LEDGER_MARKER"), None),
            # It says 0 of a stopped pod, which is not what the pod costs.
            cost_per_hour=cost or None,
            ports=_direct(pod.get("ssh")) if running else None,
            gpu_util=percent(item.get("util") for item in gpus if isinstance(item, dict))
            if isinstance(gpus, list) and running
            else None,
            gpus=None if count is None else int(count),
            keep_running=env.get("KEEP_RUNNING") == "1",
            had_runtime=runtime is not None,
        )


def _reply(response: httpx.Response) -> Reply:
    try:
        body, malformed = (response.json(), False) if response.content else (None, False)
    except (ValueError, RecursionError):
        body, malformed = None, True
    after = response.headers.get("Retry-After", "")
    return Reply(
        status=response.status_code,
        body=body,
        malformed=malformed,
        text=_said(body),
        date=parse_date(response.headers.get("Date")),
        retry_after=int(after) if after.isdecimal() else None,
    )


def _said(body: Any) -> str:
    """What an RFC 9457 problem says."""
    if not isinstance(body, dict):
        return ""
    errors = body.get("errors")
    said = [body.get("detail") or body.get("title"), *(errors if isinstance(errors, list) else ())]
    return "; ".join(str(text) for text in said if isinstance(text, str) and text)


def _is_problem(reply: Reply) -> bool:
    """Whether it is an answer of the API, not of something in between."""
    return isinstance(reply.body, dict) and ("detail" in reply.body or "title" in reply.body)


def _direct(ssh: Any) -> str | None:
    """`host:port` of sshd itself; the proxy carries no commands."""
    direct = ssh.get("direct") if isinstance(ssh, dict) else None
    if not isinstance(direct, dict):
        return None
    host, port = text_or(direct.get("host"), None), direct.get("port")
    return f"{host}:{port}" if host and isinstance(port, int) and not isinstance(port, bool) else None
