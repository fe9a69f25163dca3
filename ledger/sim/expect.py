"""Reads `expect`: one `Expectation` a line, values checked and normalised."""

from __future__ import annotations

from typing import Any

import yaml

from ledger.sim import schema
from ledger.sim.nodes import Reader, Table, is_null, line_of, shown
from ledger.sim.schema import EventMatch, Expectation

KEYS = (
    "handle",
    "events",
    "never",
    "live",
    "created",
    "deleted",
    "max_unlaunched_seconds",
    "max_double_seconds",
    "max_stale_seconds",
    "audit",
    "poll",
    "exits",
    "run",
    "reason",
)
HANDLE = (*schema.SIDECAR_KEYS, "issue")
POLL = (
    "status",
    "current_phase",
    "new_milestone",
    "last_log_mtime_sec_ago",
    "pid_alive",
    "log_tail_excerpt",
    "gate",
    "sentinels_processed",
    "phase_log_mtime_sec_ago",
    "shard_log_mtime_sec_ago",
    "gpu_util",
    "next_interval",
    "stall_reason",
    "failure_class",
    "reason",
    "issue",
)
POLL_STATUSES = ("running", "done", "gate", "stalled", "dead")


def read_expect(reader: Reader, node: yaml.Node) -> tuple[Expectation, ...]:
    """The lines of `expect`. Raises ScenarioError.

    Values: handle None | dict | list of dicts; events and never tuples of EventMatch; live sorted list of
    `cloud/name`; created, deleted dicts of counts; max_* seconds; audit one Expectation a word, its value
    `{word: [ids]}`; poll a dict; exits a list of ints (None: killed); run a word; reason a
    word or None (no terminal reason).
    """
    table = Table(reader, node, "expect", KEYS)
    lines: list[Expectation] = []
    for key, value in table.entries():
        if key == "audit":
            inner = Table(reader, value, "expect audit", ("open", "ever", "not"))
            lines += [
                Expectation("audit", {word: _audit(reader, part, word)}, inner.line_of(word))
                for word, part in inner.entries()
            ]
        else:
            lines.append(Expectation(key, _value(reader, key, value), table.line_of(key)))
    return tuple(lines)


def _value(reader: Reader, key: str, node: yaml.Node) -> Any:
    where = f"expect {key}"
    match key:
        case "handle":
            return _handle(reader, node)
        case "events" | "never":
            return tuple(_event(reader, item, where) for item in reader.items(node, where))
        case "live":
            return sorted(_machine(reader, item, where) for item in reader.items(node, where))
        case "created":
            counts = Table(reader, node, where, schema.CLOUDS)
            return {cloud: counts.integer(cloud, low=0) for cloud, _ in counts.entries()}
        case "deleted":
            counts = Table(reader, node, where, None)
            for name, _ in counts.entries():
                _check_machine(reader, name, counts.line_of(name), where)
            return {name: counts.integer(name, low=0) for name, _ in counts.entries()}
        case "max_unlaunched_seconds" | "max_double_seconds" | "max_stale_seconds":
            return reader.seconds(node, where) / 1e6
        case "poll":
            table = Table(reader, node, where, POLL)
            if "status" in table:
                table.word("status", POLL_STATUSES)
            return {name: reader.plain(value, f"{where} {name}") for name, value in table.entries()}
        case "exits":
            return [
                None if is_null(item) else reader.integer(item, where, low=-255) for item in reader.items(node, where)
            ]
        case "run":
            return reader.word(node, where, schema.RUN_STATES)
        case _:
            return None if is_null(node) else reader.text(node, where)


def _handle(reader: Reader, node: yaml.Node) -> Any:
    if is_null(node):
        return None
    if isinstance(node, yaml.SequenceNode):
        return [_sidecar(reader, item) for item in node.value]
    return _sidecar(reader, node)


def _sidecar(reader: Reader, node: yaml.Node) -> dict[str, Any]:
    table = Table(reader, node, "expect handle", HANDLE)
    value = {key: reader.plain(part, f"expect handle {key}") for key, part in table.entries()}
    if "extra" in table and not isinstance(table.need("extra"), yaml.MappingNode):
        reader.wrong(table.need("extra"), "expect handle extra", "a mapping")
    if "issue" in table:
        value["issue"] = table.integer("issue")
    # The file holds ids as words; YAML reads a bare 5513402277619834112 as a number.
    for key in ("backend", "job_id", "pod_name", "scratch_dir", "log_path"):
        part = table.get(key)
        if isinstance(part, yaml.ScalarNode) and not is_null(part):
            value[key] = part.value
    return value


def _event(reader: Reader, node: yaml.Node, where: str) -> EventMatch:
    if isinstance(node, yaml.ScalarNode):
        return EventMatch(reader.word(node, where, schema.EVENT_TYPES))
    table = Table(reader, node, where, schema.EVENT_TYPES)
    if len(table.values) != 1:
        reader.fail(table.line, f"{where} must be a Type or {{Type: {{field: value}}}}, one type an entry")
    name, fields = table.entries()[0]
    if is_null(fields):
        return EventMatch(name)
    inner = Table(reader, fields, f"{where} {name}", None)
    return EventMatch(name, {key: reader.plain(value, f"{where} {name} {key}") for key, value in inner.entries()})


def _machine(reader: Reader, node: yaml.Node, where: str) -> str:
    name = reader.text(node, where)
    _check_machine(reader, name, line_of(node), where)
    return name


def _check_machine(reader: Reader, name: str, line: int, where: str) -> None:
    cloud, slash, rest = name.partition("/")
    if cloud not in schema.CLOUDS or not slash or not rest:
        reader.fail(line, f"{where} must name machines as cloud/name, cloud one of gcp, runpod; not {shown(name)}")


def _audit(reader: Reader, node: yaml.Node, word: str) -> list[str]:
    where = f"expect audit {word}"
    return sorted({reader.word(item, where, schema.INVARIANTS) for item in reader.items(node, where)})
