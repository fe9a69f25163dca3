"""Holds an exchange with RunPod's REST v2 against its published specification (runpod-openapi-v2.json)."""

from __future__ import annotations

import json
import re
from functools import cache
from pathlib import Path
from typing import Any

from jsonschema import Draft202012Validator, FormatChecker

from ledger.sim.wire.server import Reply, Request

FILE = Path(__file__).with_name("runpod-openapi-v2.json")


@cache
def specification() -> dict[str, Any]:
    """The document."""
    loaded: dict[str, Any] = json.loads(FILE.read_text(encoding="utf-8"))
    return loaded


def violations(request: Request, reply: Reply) -> list[str]:
    """What the specification has against a request and its answer. What never left the server has no answer."""
    path = next((p for p in specification()["paths"] if _matches(p, request.path)), None)
    if path is None:
        return [f"{request.path}: no such path"]
    operation = specification()["paths"][path].get(request.method.lower())
    if operation is None:
        return [f"{request.method} {path}: no such operation"]
    found = [f"query {name}" for name in request.query if name not in _parameters(operation)]
    body = operation.get("requestBody")
    if body is not None:
        found += _against(body["content"]["application/json"]["schema"], json.loads(request.body))
    elif request.body:
        found.append("a body that is not asked for")
    if reply.cut or reply.lost:
        return found
    return found + _answer(operation["responses"], reply)


def _answer(responses: dict[str, Any], reply: Reply) -> list[str]:
    told = responses.get(str(reply.status), responses.get("default"))
    if told is None:
        return [f"{reply.status}: no such answer"]
    told = _resolved(told)
    if "content" not in told:
        return [f"{reply.status}: a body"] if reply.body else []
    kind = reply.content_type.split(";")[0]
    if kind not in told["content"]:
        return [f"{reply.status}: {kind} instead of {', '.join(told['content'])}"]
    if reply.status == 429 and "Retry-After" not in reply.headers:
        return ["429 without Retry-After"]
    try:
        body = json.loads(reply.body)
    except ValueError:
        return [f"{reply.status}: no JSON"]
    return _against(told["content"][kind]["schema"], body)


def _against(schema: dict[str, Any], body: Any) -> list[str]:
    whole = {**schema, "components": specification()["components"]}
    checker = Draft202012Validator(whole, format_checker=FormatChecker())
    return [f"{error.json_path}: {error.message}" for error in checker.iter_errors(body)]


def _parameters(operation: dict[str, Any]) -> set[str]:
    return {_resolved(parameter)["name"] for parameter in operation.get("parameters", ())}


def _resolved(item: dict[str, Any]) -> dict[str, Any]:
    while "$ref" in item:
        target: Any = specification()
        for part in item["$ref"].removeprefix("#/").split("/"):
            target = target[part]
        item = target
    return item


def _matches(template: str, path: str) -> bool:
    return re.fullmatch(re.sub(r"\\\{\w+\\\}", "[^/]+", re.escape(template)), path) is not None
