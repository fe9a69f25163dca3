"""RunPod over GraphQL, through its SDK: a `ledger.clouds.port.Cloud`.

`docs/clouds/runpod.md` has the table of answers: what RunPod says → outcome → event.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ledger.clouds import runpod_graphql as graphql
from ledger.clouds.pod_answers import (
    Failed,
    Reply,
    not_done,
    not_read,
    number,
    percent,
    refusal_in,
    says_pod_gone,
)
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
from ledger.clouds.port import Cloud
from ledger.clouds.runpod_graphql import Word, errors_of, literal
from ledger.clouds.values import Absent, Accepted, CreateSpec, Listing, Refused, Seen, Unknown, Unresolved
from ledger.moments import MICROS, iso
from ledger.source import Source

if TYPE_CHECKING:
    from ledger.settings import Settings

# The SDK's own queries lack createdAt, GPU use and whose the key is.
POD = (
    "id name desiredStatus createdAt costPerHr adjustedCostPerHr env gpuCount runtime { uptimeInSeconds"
    " ports { ip isIpPublic privatePort publicPort type } gpus { id gpuUtilPercent memoryUtilPercent } }"
)
LIST = f"query {{ myself {{ pods {{ {POD} }} id }} }}"
ACCOUNT = "query { myself { id } }"


def open_cloud(
    settings: Settings, source: Source, shell: Shell | None = None, env: Mapping[str, str] = os.environ
) -> Cloud:
    """The account of the key, by the API that the settings choose. Nothing is sent yet.

    Raises LedgerError for a missing or unusable key.
    """
    if settings.runpod.api == "rest_v2":
        from ledger.clouds import runpod_v2

        return runpod_v2.open_cloud(settings, source, shell, env)
    return RunPodCloud(
        find_key(env, variable=settings.runpod.api_key_env),
        source,
        url=env.get("RUNPOD_API_BASE_URL") or graphql.DEFAULT_URL,
        account=account_of(settings),
        offer=offer_of(settings),
        shell=shell,
    )


class RunPodCloud(PodCloud):
    """One account over GraphQL. `url` is the API's base, without `/graphql`.

    `session`: a `requests.Session` that sends in the caller's own thread, with no limit but the library's; for a
    rehearsal, where time is virtual.
    """

    def __init__(
        self,
        key: Key,
        source: Source,
        *,
        url: str = graphql.DEFAULT_URL,
        account: str | None = None,
        offer: Offer | None = None,
        shell: Shell | None = None,
        recheck: bool = False,
        session: Any = None,
    ) -> None:
        super().__init__(key, source, account=account, offer=offer, shell=shell, recheck=recheck)
        self._url = url
        self._session = session

    def describe(self, machine: str, *, timeout: float) -> Seen | Absent | Unknown:
        """Read one pod, and whose the key is that reads it."""
        query = f"query {{ pod(input: {literal({'podId': pod_id(machine)})}) {{ {POD} }} myself {{ id }} }}"
        reply = self._send(query, timeout)
        myself = self._read(reply)
        if isinstance(myself, Unknown):
            return myself
        assert isinstance(reply, Reply)
        data = reply.body["data"]
        if data.get("pod", ...) is None:
            gone = all(says_pod_gone(graphql.errors_text({"errors": [e]})) for e in errors_of(reply.body))
            return Absent(myself["id"]) if gone else Unknown("graphql_error", self._say(reply))
        seen = self._seen(data.get("pod"), myself["id"])
        if seen is None or seen.machine != machine:
            return Unknown("malformed", "the pod cannot be read")
        return Absent(myself["id"]) if seen.status == "TERMINATED" else self._remember(seen)

    def list_all(self, *, timeout: float) -> Listing | Unknown:
        """Every pod of the account; an answer with an error beside its data, or an unreadable pod, is incomplete."""
        reply = self._send(LIST, timeout)
        myself = self._read(reply)
        if isinstance(myself, Unknown):
            return myself
        assert isinstance(reply, Reply)
        pods = myself.get("pods")
        if not isinstance(pods, list):
            return Unknown("malformed" if not errors_of(reply.body) else "graphql_error", self._say(reply))
        seen = [self._seen(pod, myself["id"]) for pod in pods]
        return Listing(
            account=myself["id"],
            complete=None not in seen and not errors_of(reply.body),
            machines=tuple(self._remember(pod) for pod in seen if pod is not None and pod.status != "TERMINATED"),
            fingerprint=self.key.fingerprint,
            server_time=reply.date,
        )

    def delete(self, machine: str, *, send_before: float, timeout: float) -> Accepted | Absent | Refused | Unresolved:
        """Terminate one pod."""
        begun = self._source.steady()
        mutation = f"mutation {{ podTerminate(input: {literal({'podId': pod_id(machine)})}) }}"
        reply = self._send(mutation, timeout, send_before)
        if isinstance(reply, Failed):
            return UNSENT if reply.unsent else Unresolved(reply.error, reply.message)
        if says_pod_gone(reply.text) and reply.status in (200, 400, 404, 500):
            whose = self._whose_since(begun, timeout)
            return Absent(whose if isinstance(whose, str) else self._configured or self._told or "")
        if reply.status != 200 or errors_of(reply.body):
            return _failed(reply, self._say(reply), taken="invalid")
        if "podTerminate" not in (_data(reply) or ()):
            return Unresolved("malformed", "the answer to a terminate cannot be read")
        return Accepted()

    def _create(
        self, spec: CreateSpec, gpu: str | None, send_before: float, timeout: float
    ) -> Accepted | Refused | Unresolved:
        field, wanted = self._deploy(spec, gpu)
        mutation = f"mutation {{ {field}(input: {literal(wanted)}) {{ {POD} }} }}"
        reply = self._send(mutation, timeout, send_before)
        if isinstance(reply, Failed):
            return UNSENT if reply.unsent else Unresolved(reply.error, reply.message)
        data = _data(reply)
        if data is not None and isinstance(data.get(field), dict):
            # Whatever else it complains of, a pod with an id is a pod that bills.
            seen = self._seen(data[field], self._configured or self._told or "")
            return Accepted(self._remember(seen)) if seen else Unresolved("malformed", "the new pod cannot be read")
        if reply.status != 200 or errors_of(reply.body):
            return _failed(reply, self._say(reply, spec), taken="name_taken")
        nothing = data is not None and not data.get(field)
        return Unresolved("empty" if nothing else "malformed", "the answer to a create names no pod")

    def _send(self, query: str, timeout: float, send_before: float | None = None) -> Reply | Failed:
        return graphql.send(
            query,
            self.key,
            self._url,
            self._source,
            timeout=timeout,
            send_before=send_before,
            session=self._session,
        )

    def _ask_account(self, timeout: float) -> str | Unknown:
        myself = self._read(self._send(ACCOUNT, timeout))
        return myself if isinstance(myself, Unknown) else str(myself["id"])

    def _deploy(self, spec: CreateSpec, gpu: str | None) -> tuple[str, dict[str, Any]]:
        """The mutation and its input."""
        offer, build = self.offer, self.offer.build_of(spec)
        wanted: dict[str, Any] = {
            "name": spec.name,
            "imageName": offer.image_of(spec),
            "cloudType": Word(offer.cloud),
            "containerDiskInGb": build.container,
            "ports": "22/tcp",
            "startSsh": True,
            "env": [{"key": k, "value": v} for k, v in environment(spec, offer).items()],
        }
        if gpu is None:
            wanted["instanceId"] = f"{offer.cpu_flavor}-{offer.vcpus}-{2 * offer.vcpus}"
            return "deployCpuPod", wanted
        fence = self._source.now() + round(spec.fence_hours * 3600 * MICROS)
        wanted |= {
            "gpuTypeId": gpu,
            "gpuCount": spec.gpus or 1,
            "supportPublicIp": True,
            "volumeInGb": build.volume,
            "volumeMountPath": "/workspace",
            "terminateAfter": iso(fence - fence % MICROS),
        }
        if build.min_ram is not None:
            wanted["minMemoryInGb"] = build.min_ram
        return "podFindAndDeployOnDemand", wanted

    def _read(self, reply: Reply | Failed) -> dict[str, Any] | Unknown:
        """`myself` of an answer, with its id: whose pods these are."""
        if isinstance(reply, Failed):
            return Unknown(reply.error, reply.message)
        data = _data(reply)
        myself = data.get("myself") if data is not None else None
        if reply.status != 200:
            return not_read(reply, self._say(reply))
        if not isinstance(myself, dict):
            if errors_of(reply.body):
                unauthorized = refusal_in(reply.text) == "unauthorized"
                return Unknown("unauthorized" if unauthorized else "graphql_error", self._say(reply))
            if data is not None and "myself" in data and myself is None:
                return Unknown("unauthorized", "RunPod knows no account of this key")
            return Unknown("malformed", "the answer cannot be read")
        if not isinstance(myself.get("id"), str) or not myself["id"]:
            return Unknown("malformed", "the answer does not tell the account")
        self._told = myself["id"]
        return myself

    def _seen(self, pod: Any, account: str) -> Seen | None:
        """A pod of an answer; None: it cannot be read."""
        if not isinstance(pod, dict) or not all(text_or(pod.get(k), None) for k in ("id", "name", "desiredStatus")):
            return None
        env = _env(pod.get("env"))
        runtime = pod["runtime"] if isinstance(pod.get("runtime"), dict) else None
        status = status_of(pod["desiredStatus"])
        gpus = runtime.get("gpus") if runtime else None
        cost = number(pod.get("adjustedCostPerHr"))
        count = number(pod.get("gpuCount"))
        return Seen(
            machine=f"runpod:{pod['id']}",
            backend=self.backend,
            account=account,
            name=pod["name"],
            status=status,
            created_at=moment_of(pod.get("createdAt")),
            marker=text_or(env.get("LEDGER_MARKER"), None),
            cost_per_hour=number(pod.get("costPerHr")) if cost is None else cost,
            ports=_ssh(runtime) if status == "RUNNING" else None,
            gpu_util=percent(gpu.get("gpuUtilPercent") for gpu in gpus if isinstance(gpu, dict))
            if isinstance(gpus, list) and status == "RUNNING"
            else None,
            gpus=None if count is None else int(count),
            keep_running=env.get("KEEP_RUNNING") == "1",
            had_runtime=runtime is not None,
        )


def _failed(reply: Reply, message: str, *, taken: str) -> Refused | Unresolved:
    """A mutation that was answered with errors or a status. `taken`: what a 409 means for it."""
    errors = errors_of(reply.body)
    if errors and reply.status in (200, 400, 500) and (cls := refusal_in(reply.text)):
        return Refused(cls, message)
    # Errors with a path: it was executed, and failed somewhere on the way.
    if reply.status == 200 or (reply.status == 400 and any(error.get("path") for error in errors)):
        return Unresolved("graphql_error", message)
    return not_done(reply, message, taken=taken)


def _data(reply: Reply) -> dict[str, Any] | None:
    data = reply.body.get("data") if isinstance(reply.body, dict) else None
    return data if isinstance(data, dict) else None


def _env(told: Any) -> dict[str, str]:
    """`["K=V"]` as a mapping."""
    pairs = (item.partition("=") for item in told if isinstance(item, str)) if isinstance(told, list) else ()
    return {name: value for name, _, value in pairs}


def _ssh(runtime: dict[str, Any] | None) -> str | None:
    """`host:port` of the public port that leads to the container's 22."""
    ports = runtime.get("ports") if runtime else None
    for port in ports if isinstance(ports, list) else ():
        if isinstance(port, dict) and port.get("privatePort") == 22 and port.get("isIpPublic") is True:
            host, public = text_or(port.get("ip"), None), port.get("publicPort")
            if host and isinstance(public, int) and not isinstance(public, bool):
                return f"{host}:{public}"
    return None
