"""The compute v1 discovery document, as google-api-python-client ships it, and what it says of a request or a value."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

INT64 = re.compile(r"-?[0-9]{1,20}")


@cache
def document() -> Mapping[str, Any]:
    """The document."""
    import googleapiclient  # type: ignore[import-untyped]

    path = Path(googleapiclient.__file__).parent / "discovery_cache" / "documents" / "compute.v1.json"
    loaded: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return loaded


def method_of(verb: str, path: str) -> Mapping[str, Any]:
    """The method that serves `verb path`; `path` begins behind the service's own. Raises LookupError."""
    for resource in document()["resources"].values():
        for method in resource.get("methods", {}).values():
            pattern = re.sub(r"\\{(\w+)\\}", lambda m: f"(?P<{m[1]}>[^/]+)", re.escape(method["path"]))
            match = re.fullmatch(pattern, path)
            if match is None or method["httpMethod"] != verb:
                continue
            fits = (
                re.fullmatch(method["parameters"][name].get("pattern", ".*"), value)
                for name, value in match.groupdict().items()
            )
            if all(fits):
                found: Mapping[str, Any] = method
                return found
    raise LookupError(f"the document knows no {verb} {path}")


def wrong_query(method: Mapping[str, Any], query: Mapping[str, str]) -> list[str]:
    """Parameters of a query that the method does not know, or whose value does not fit."""
    wrong = []
    known = {**document()["parameters"], **method["parameters"]}
    if method["id"].endswith(".aggregatedList"):
        known["returnPartialSuccess"] = {"type": "boolean"}  # of every other list of the document, and sent by gcloud
    for name, value in query.items():
        if name not in known:
            wrong.append(f"{name}: unknown")
        elif known[name]["type"] == "boolean" and value not in ("true", "false"):
            wrong.append(f"{name}={value}: no boolean")
        elif known[name]["type"] == "integer" and not INT64.fullmatch(value):
            wrong.append(f"{name}={value}: no integer")
    return wrong


def wrong(schema: Mapping[str, Any], value: Any, where: str = "") -> Iterator[str]:
    """What of `value` the schema does not allow, by place. An enum's words are all it may say."""
    if "$ref" in schema:
        schema = document()["schemas"][schema["$ref"]]
    match schema.get("type"):
        case "object":
            if not isinstance(value, dict):
                yield f"{where}: no object"
                return
            known = schema.get("properties", {})
            for key, item in value.items():
                inner = known.get(key, schema.get("additionalProperties"))
                if inner is None:
                    yield f"{where}.{key}: unknown"
                else:
                    yield from wrong(inner, item, f"{where}.{key}")
        case "array":
            if not isinstance(value, list):
                yield f"{where}: no array"
                return
            for place, item in enumerate(value):
                yield from wrong(schema["items"], item, f"{where}[{place}]")
        case "string":
            if not isinstance(value, str):
                yield f"{where}: {value!r} is no text"
            elif schema.get("format") in ("int64", "uint64") and not INT64.fullmatch(value):
                yield f"{where}: {value!r} is no int64"
            elif "enum" in schema and value not in schema["enum"]:
                yield f"{where}: {value!r} is none of the enum"
            elif "pattern" in schema and not re.fullmatch(schema["pattern"], value):
                yield f"{where}: {value!r} is not as the pattern"
        case "integer":
            if not isinstance(value, int) or isinstance(value, bool):
                yield f"{where}: {value!r} is no integer"
        case "boolean":
            if not isinstance(value, bool):
                yield f"{where}: {value!r} is no boolean"
