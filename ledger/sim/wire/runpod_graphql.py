"""RunPod's GraphQL over the simulated world: a real engine over a schema, so that the real queries are checked."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from graphql import GraphQLError, GraphQLSchema, build_schema, graphql_sync

from ledger.moments import iso
from ledger.sim.machine import DOLLARS
from ledger.sim.schema import CallRule
from ledger.sim.wire.pods import (
    FAULT,
    NAME_TAKEN,
    NO_CAPACITY,
    NO_MONEY,
    Pod,
    PodSite,
    Wanted,
    authorized,
    gpu_id,
    html,
    problem,
    sent,
)
from ledger.sim.wire.server import Reply, Request

SCHEMA: Final = """
enum CloudTypeEnum { ALL SECURE COMMUNITY }
enum PodStatus { CREATED RUNNING RESTARTING EXITED PAUSED DEAD TERMINATED }
enum PodType { INTERRUPTABLE RESERVED BID BACKGROUND }
input EnvironmentVariableInput { key: String!, value: String! }
input GpuTypeFilter { id: String, ids: [String] }
input GpuLowestPriceInput { gpuCount: Int, minMemoryInGb: Int, minVcpuCount: Int, secureCloud: Boolean,
  dataCenterId: String }
input PodFilter { podId: String! }
input PodTerminateInput { podId: String! }
input PodFindAndDeployOnDemandInput { name: String, imageName: String, cloudType: CloudTypeEnum, startSsh: Boolean,
  gpuTypeId: String, gpuTypeIdList: [String], supportPublicIp: Boolean, gpuCount: Int, volumeInGb: Int,
  minVcpuCount: Int, minMemoryInGb: Int, allowedCudaVersions: [String], dataCenterId: String, dockerArgs: String,
  countryCode: String, containerDiskInGb: Int, ports: String, volumeMountPath: String,
  env: [EnvironmentVariableInput], templateId: String, networkVolumeId: String, minDownload: Int, minUpload: Int,
  minCudaVersion: String, containerRegistryAuthId: String, deployCost: Float, stopAfter: String,
  terminateAfter: String }
input deployCpuPodInput { name: String, imageName: String, cloudType: CloudTypeEnum, startSsh: Boolean,
  instanceId: String, dataCenterId: String, dockerArgs: String, countryCode: String, containerDiskInGb: Int,
  ports: String, volumeMountPath: String, env: [EnvironmentVariableInput], templateId: String,
  networkVolumeId: String }
type LowestPrice { minimumBidPrice: Float, uninterruptablePrice: Float, stockStatus: String }
type GpuType { id: String, displayName: String, manufacturer: String, memoryInGb: Int, cudaCores: Int,
  maxGpuCount: Int, secureCloud: Boolean, communityCloud: Boolean, securePrice: Float, communityPrice: Float,
  oneMonthPrice: Float, threeMonthPrice: Float, oneWeekPrice: Float, communitySpotPrice: Float,
  secureSpotPrice: Float, lowestPrice(input: GpuLowestPriceInput): LowestPrice }
type PodRuntimePorts { ip: String, isIpPublic: Boolean, privatePort: Int, publicPort: Int, type: String }
type PodRuntimeGpus { id: String, gpuUtilPercent: Int, memoryUtilPercent: Int }
type PodRuntimeContainer { cpuPercent: Int, memoryPercent: Int }
type PodRuntime { uptimeInSeconds: Int, ports: [PodRuntimePorts], gpus: [PodRuntimeGpus],
  container: PodRuntimeContainer }
type PodMachineInfo { podHostId: String, gpuDisplayName: String, dataCenterId: String }
type Pod { id: String!, name: String!, costPerHr: Float!, adjustedCostPerHr: Float, createdAt: String,
  lastStartedAt: String, desiredStatus: PodStatus!, lastStatusChange: String, containerDiskInGb: Int,
  dockerArgs: String, dockerId: String, env: [String], gpuCount: Int, imageName: String, machineId: String,
  memoryInGb: Float, podType: PodType, port: Int, ports: String, uptimeSeconds: Int, vcpuCount: Float,
  volumeInGb: Float, volumeMountPath: String, templateId: String, networkVolumeId: String, runtime: PodRuntime,
  machine: PodMachineInfo }
type NetworkVolume { id: String, name: String, size: Int, dataCenterId: String }
type User { id: String, authId: String, email: String, pubKey: String, currentSpendPerHr: Float,
  clientBalance: Float, networkVolumes: [NetworkVolume], pods: [Pod] }
type Query { myself: User, pod(input: PodFilter): Pod, gpuTypes(input: GpuTypeFilter): [GpuType] }
type Mutation { podFindAndDeployOnDemand(input: PodFindAndDeployOnDemandInput): Pod,
  deployCpuPod(input: deployCpuPodInput!): Pod, podTerminate(input: PodTerminateInput!): Boolean }
"""
_schema: list[GraphQLSchema] = []


class Elsewhere(Exception):
    """The scripted answer is no answer of the engine's; it is in the root."""


def handle(site: PodSite, request: Request) -> Reply:
    """Answer one request to `/graphql`."""
    try:
        asked = request.json()
    except ValueError:
        asked = None
    if request.method != "POST" or not isinstance(asked, dict) or not isinstance(asked.get("query"), str):
        return problem(400, "a query is wanted")
    if not authorized(request):
        return problem(401, "missing bearer token")
    if not _schema:
        _schema.append(build_schema(SCHEMA))
    root = _Root(site, request.call)
    result = graphql_sync(_schema[0], asked["query"], root, variable_values=asked.get("variables"))
    if root.instead is not None:
        return sent(root.instead, root.rule)
    told = {key: value for key, value in result.formatted.items() if key != "extensions"}
    # A query that was never executed has no data at all, and is the sender's fault.
    refused = result.data is None and all(error.path is None for error in result.errors or ())
    if refused:
        told.pop("data", None)
    return sent(Reply.of(told, 400 if refused else 200), root.rule)


class _Root:
    """What the engine asks for the fields of a query. `instead`: the answer that takes the place of its."""

    def __init__(self, site: PodSite, token: str | None) -> None:
        self.rule = CallRule("runpod", "")
        self.instead: Reply | None = None
        self._site = site
        self._token = token

    def myself(self, _info: Any) -> _User:
        """Whose the key is, and what it has."""
        return _User(self, self._site, self._token)

    def pod(self, _info: Any, input: Mapping[str, Any]) -> Any:
        """A describe."""
        key = f"runpod:{input['podId']}"
        rule = self.ruled("describe", self._site.name(key))
        if rule.answer in ("not_found", "other_account") or (rule.answer, rule.http) == ("error", 404):
            return None
        self.answer(rule)
        found = self._site.one(key)
        return told(found) if found else None

    def gpuTypes(self, _info: Any, input: Mapping[str, Any] | None = None) -> Any:  # noqa: N802  # the schema's
        """The catalogue."""
        return [
            {
                "id": gpu,
                "displayName": name,
                "maxGpuCount": 8,
                "securePrice": price[1],
                "lowestPrice": lambda _info, price=price, **_: {"uninterruptablePrice": price[1]},
            }
            for name, price in DOLLARS.items()
            if (gpu := gpu_id(name)) and (not input or input.get("id") in (None, gpu))
        ]

    def podFindAndDeployOnDemand(self, _info: Any, input: Mapping[str, Any]) -> Any:  # noqa: N802  # the schema's
        """A create."""
        return self._create(input, input.get("gpuTypeId"), input.get("gpuCount") or 1)

    def deployCpuPod(self, _info: Any, input: Mapping[str, Any]) -> Any:  # noqa: N802  # the schema's
        """A create of a pod without a GPU."""
        return self._create(input, None, 0)

    def podTerminate(self, _info: Any, input: Mapping[str, Any]) -> None:  # noqa: N802  # the schema's
        """A delete."""
        key = f"runpod:{input['podId']}"
        rule = self.ruled("delete", self._site.name(key))
        found = self._site.delete(key, rule)
        absent = rule.answer in ("not_found", "other_account") or (rule.answer, rule.http) == ("error", 404)
        if absent or (rule.answer == "ok" and not found):
            raise GraphQLError("pod not found to terminate", extensions={"code": "POD_NOT_FOUND"})
        self.answer(rule)

    def ruled(self, call: str, name: str | None) -> CallRule:
        """This request is a call of that kind: its rule."""
        self.rule = self._site.admit(call, name, self._token).rule
        return self.rule

    def answer(self, rule: CallRule) -> None:
        """Answer as the rule says; where it says nothing the world is the answer."""
        match rule.answer:
            case "no_capacity":
                raise GraphQLError(NO_CAPACITY)
            case "quota":
                raise GraphQLError(NO_MONEY)
            case "already_exists":
                raise GraphQLError(NAME_TAKEN)
            case "not_found":
                self._instead(problem(404, "not found"))
            case "unauthorized":
                self._instead(problem(401, "invalid API key"))
            case "other_account" if rule.call == "create":
                self._instead(problem(403, "access denied"))
            case "malformed":
                self._instead(Reply(200, b'{"data": {"mys', content_type="application/json"))
            case "timeout" | "reset":
                self._instead(Reply())
            case "error":
                self._instead(_error(rule.http))

    def _instead(self, reply: Reply) -> None:
        self.instead = reply
        raise Elsewhere

    def _create(self, input: Mapping[str, Any], gpu: str | None, gpus: int) -> Any:
        env = {item["key"]: item["value"] for item in input.get("env") or ()}
        wanted = Wanted(input.get("name") or "", env, input.get("imageName") or "", gpu, gpus)
        rule = self.ruled("create", wanted.name)
        made = self._site.create(wanted, rule)
        self.answer(rule)
        return told(made) if made else None


class _User:
    def __init__(self, root: _Root, site: PodSite, token: str | None) -> None:
        self._root = root
        self._site = site
        self._token = token

    def id(self, _info: Any) -> str:
        return self._site.account(self._token)

    def pods(self, _info: Any) -> Any:
        """A list. A partial one is data with an error beside it."""
        rule = self._root.ruled("list", None)
        self._root.answer(rule)
        pods: list[Any] = [told(pod) for pod in self._site.listed(rule)]
        return [*pods, GraphQLError("a pod could not be read")] if rule.answer == "partial" else pods


def told(pod: Pod) -> dict[str, Any]:
    """A pod in the schema's words."""
    seen = pod.seen
    ports = [
        {"ip": host, "isIpPublic": True, "privatePort": 22, "publicPort": port, "type": "tcp"}
        for host, port in ([pod.ssh] if pod.ssh else ())
    ]
    gpus = [] if seen.gpu_util is None else [{"id": f"GPU-{n}", "gpuUtilPercent": seen.gpu_util} for n in range(8)]
    return {
        "id": pod.id,
        "name": seen.name,
        "costPerHr": seen.cost_per_hour,
        "adjustedCostPerHr": seen.cost_per_hour,
        "createdAt": None if seen.created_at is None else iso(seen.created_at),
        "desiredStatus": seen.status,
        "env": [f"{name}={value}" for name, value in pod.env.items()],
        "gpuCount": seen.gpus,
        "imageName": pod.image,
        "podType": "RESERVED",
        "uptimeSeconds": pod.up or 0,
        "runtime": {"uptimeInSeconds": pod.up, "ports": ports, "gpus": gpus[: seen.gpus or 1]} if pod.runtime else None,
        "machine": {"podHostId": f"{pod.id}-64410065", "gpuDisplayName": pod.gpu},
    }


def _error(status: int) -> Reply:
    """An HTTP error as what stands at that status answers: the engine, the gateway, or a proxy in between."""
    if status == 400:
        return Reply.of({"errors": [{"message": "Syntax Error: Unexpected <EOF>."}]}, 400)
    if status == 500:
        fault = {"message": FAULT, "extensions": {"code": "INTERNAL_SERVER_ERROR"}}
        return Reply.of({"errors": [fault], "data": None}, 500)
    return html(status) if status > 500 else problem(status, f"answered {status}")
