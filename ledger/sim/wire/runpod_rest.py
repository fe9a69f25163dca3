"""RunPod's REST v2 over the simulated world, as its published specification has it."""

from __future__ import annotations

from typing import Any
from urllib.parse import unquote

from ledger.moments import iso
from ledger.sim.schema import CallRule
from ledger.sim.wire.pods import (
    NAME_TAKEN,
    NO_CAPACITY,
    NO_MONEY,
    Pod,
    PodSite,
    Wanted,
    authorized,
    html,
    problem,
    sent,
)
from ledger.sim.wire.server import JSON, Reply, Request

PROVISIONING_SECONDS = 10


def handle(site: PodSite, request: Request) -> Reply:
    """Answer one request under `/v2`."""
    if not authorized(request):
        return problem(401, "missing bearer token")
    parts = [unquote(part) for part in request.path.split("/")[2:]]
    match (request.method, parts):
        case ("GET", ["account", "ssh-keys"]):
            return Reply.of({"keys": []})
        case ("GET", ["pods"]):
            return _list(site, request)
        case ("POST", ["pods"]):
            return _create(site, request)
        case ("GET", ["pods", key]):
            return _describe(site, f"runpod:{key}", request)
        case ("DELETE", ["pods", key]) | ("POST", ["pods", key, "action"]):
            return _delete(site, f"runpod:{key}", request)
    return problem(404, "resource not found")


def _list(site: PodSite, request: Request) -> Reply:
    rule = site.admit("list", None, request.call).rule
    pods: list[Any] = [told(pod) for pod in site.listed(rule)]
    if rule.answer == "partial":
        pods.append({"id": "unreadable"})  # it has no pages: what is missing of a list is a pod that cannot be read
    return sent(_scripted(rule) or Reply.of({"pods": pods}), rule)


def _describe(site: PodSite, key: str, request: Request) -> Reply:
    rule = site.admit("describe", site.name(key), request.call).rule
    found = site.one(key)
    if rule.answer == "other_account" or (rule.answer == "ok" and found is None):
        return sent(problem(404, "pod not found"), rule)
    return sent(_scripted(rule) or Reply.of(told(found) if found else {}), rule)


def _delete(site: PodSite, key: str, request: Request) -> Reply:
    if request.method == "POST":
        try:
            action = request.json().get("action")
        except (ValueError, AttributeError):
            action = None
        if action != "terminate":
            return problem(422, "Request validation failed.", ("$.action: only terminate is simulated",))
    rule = site.admit("delete", site.name(key), request.call).rule
    found = site.delete(key, rule)
    if rule.answer == "other_account" or (rule.answer == "ok" and not found):
        return sent(problem(404, "pod not found"), rule)
    return sent(_scripted(rule) or Reply(204), rule)


def _create(site: PodSite, request: Request) -> Reply:
    try:
        body = request.json()
    except ValueError:
        return problem(400, "request could not be processed")
    wrong = _violations(body)
    if wrong:
        return problem(422, "Request validation failed.", tuple(wrong))
    if ("gpu" in body) == ("cpu" in body):
        return problem(400, "exactly one of gpu and cpu must be set")
    gpu = body.get("gpu") or {}
    wanted = Wanted(
        body["name"], body.get("env") or {}, body["image"], gpu.get("id"), gpu.get("count", 1) if gpu else 0
    )
    rule = site.admit("create", wanted.name, request.call).rule
    made = site.create(wanted, rule)
    if rule.answer == "other_account":
        return sent(problem(403, "access denied"), rule)
    return sent(_scripted(rule) or Reply.of(told(made) if made else {}, 201), rule)


def _violations(body: Any) -> list[str]:
    """What is wrong with a create's body, as far as the simulation looks; tests hold it against the specification."""
    if not isinstance(body, dict):
        return ["$: an object is wanted"]
    wrong = [f"$.{key}: a text is wanted" for key in ("name", "image") if not isinstance(body.get(key), str)]
    env = body.get("env", {})
    if not isinstance(env, dict) or not all(isinstance(value, str) for value in env.values()):
        wrong.append("$.env: an object of texts is wanted")
    if not isinstance(body.get("gpu", {}), dict):
        wrong.append("$.gpu: an object is wanted")
    return wrong


def _scripted(rule: CallRule) -> Reply | None:
    """The answer that a rule puts in the place of the world's; None: it does not."""
    match rule.answer:
        case "no_capacity":
            return problem(400, NO_CAPACITY)
        case "quota":
            return problem(402, NO_MONEY)
        case "already_exists":
            return problem(400, NAME_TAKEN)
        case "unauthorized":
            return problem(401, "invalid bearer token")
        case "not_found":
            return problem(404, "resource not found")
        case "malformed":
            return Reply(200, b"<html>", content_type=JSON)
        case "timeout" | "reset":
            return Reply()
        case "error":
            # What stands before the API answers for it when it is down.
            return html(rule.http) if rule.http > 500 else problem(rule.http, f"answered {rule.http}")
    return None


def told(pod: Pod) -> dict[str, Any]:
    """A pod in the specification's words."""
    seen = pod.seen
    status = seen.status
    if status == "RUNNING" and not pod.runtime and pod.up is not None and seen.ports is None:
        status = "PROVISIONING" if pod.up < PROVISIONING_SECONDS else "STARTING"
    ssh = None
    if pod.ssh:
        host, port = pod.ssh
        ssh = {"host": host, "port": port, "username": "root", "command": f"ssh root@{host} -p {port}"}
    runtime = None
    if pod.runtime:
        gpus = [] if seen.gpu_util is None else [{"util": seen.gpu_util, "memoryUtil": 0}] * (seen.gpus or 1)
        ports = [
            {"private": 22, "public": port, "type": "tcp", "ip": host} for host, port in ([pod.ssh] if pod.ssh else ())
        ]
        usage = {"util": 0}
        runtime = {"uptime": pod.up or 0, "gpus": gpus, "cpu": usage, "memory": usage, "ports": ports}
    actions = {"RUNNING": ["stop", "restart", "terminate"], "EXITED": ["start", "terminate"]}
    body: dict[str, Any] = {
        "id": pod.id,
        "name": seen.name,
        "status": status,
        "actions": actions.get(status, ["stop", "terminate"]),
        "image": pod.image,
        "args": "",
        "disk": 50,
        "mounts": {},
        "ports": ["22/tcp"],
        "env": dict(pod.env),
        "registry": None,
        "cloud": "SECURE",
        "dataCenterId": "US-TX-3",
        "cudaVersion": "12.8",
        "ssh": {"proxy": None, "direct": ssh},
        "template": None,
        "cost": 0.0 if status == "EXITED" else seen.cost_per_hour,
        "locked": False,
        "runtime": runtime,
        "createdAt": iso(seen.created_at or 0),
        "startedAt": None if pod.up is None else iso(seen.created_at or 0),
        "globalNetworking": {"enabled": False},
    }
    if pod.gpu is not None:
        return {**body, "gpu": {"id": pod.gpu, "count": seen.gpus or 1}}
    return {**body, "cpu": {"id": "cpu3c", "vcpuCount": 4, "memory": 8}}
