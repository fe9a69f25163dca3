"""Reads a scenario file into a `Scenario`: every key and value checked, every mistake one line with its place."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import yaml

from ledger.moments import parse_time
from ledger.policy import Policy, PolicyError, parse
from ledger.sim import schema
from ledger.sim.expect import read_expect
from ledger.sim.nodes import Reader, ScenarioError, Table, compose, is_null, line_of, read_bytes, shown
from ledger.sim.rows import (
    CHANGES,
    MACHINE,
    read_call,
    read_clock,
    read_crash,
    read_machine,
    read_pause,
    read_workload,
    read_world,
)
from ledger.sim.schema import Dispatch, Poll, Scenario, UserCommand

__all__ = ["Scenario", "ScenarioError", "load", "loads"]

T = TypeVar("T")
START = "2026-07-01T00:00:00Z"
SECTIONS = (
    "scenario",
    "about",
    "start",
    "policy",
    "poll",
    "zones",
    "dispatches",
    "cancels",
    "finalizes",
    "sidecars",
    "machines",
    "calls",
    "world",
    "workloads",
    "crashes",
    "pauses",
    "clocks",
    "expect",
)
DISPATCH = (
    "at",
    "issue",
    "lane",
    "backend",
    "provisioning_model",
    "zone",
    "gpu_type",
    "gpus",
    "workload_cmd",
    "hydra_args",
    "env_pins",
    "time_budget_hours",
    "allow_paid_fallback",
)
LANE = re.compile(r"[a-z0-9-]{1,43}")
MACHINE_NAME = re.compile(r"(?:eps-issue|pod)-(\d+)(?:-([a-z0-9-]+))?")


def load(path: Path) -> Scenario:
    """The scenario in a file. Raises ScenarioError."""
    return loads(read_bytes(path), str(path))


def loads(data: bytes, file: str = "scenario") -> Scenario:
    """The scenario in `data`; `file` is what messages call it. Raises ScenarioError."""
    return of_node(compose(data, file), file)


def of_node(node: yaml.Node, file: str) -> Scenario:
    """The scenario that a composed document holds; `file` is what messages call it. Raises ScenarioError."""
    reader = Reader(file)
    try:
        return _scenario(reader, node)
    except RecursionError:
        reader.fail(line_of(node), "is nested too deeply")


def _scenario(reader: Reader, node: yaml.Node) -> Scenario:
    top = Table(reader, node, "a scenario", SECTIONS)
    name = reader.text(top.need("scenario"), "scenario")
    if not re.fullmatch(r"[a-z0-9-]+", name):
        top.fail(f"scenario must be of the letters a-z, digits and -, not {shown(name)}", "scenario")
    policy, values = _policy(reader, top)
    poll = _poll(reader, top)
    sidecars = _sidecars(reader, top)
    return Scenario(
        file=reader.file,
        name=name,
        about=top.opt_text("about") or "",
        start=_start(top),
        policy=policy,
        policy_values=values,
        poll=poll,
        zones=_zones(reader, top),
        dispatches=_dispatches(reader, top, {_run_of(s) for s in sidecars.values()}),
        cancels=_rows(reader, top, "cancels", ("at", "issue", "lane"), _command),
        finalizes=_rows(reader, top, "finalizes", ("at", "issue", "lane"), _command),
        sidecars=sidecars,
        machines=_rows(reader, top, "machines", ("cloud", "name", *MACHINE, *CHANGES), read_machine),
        calls=_rows(reader, top, "calls", None, read_call),
        world=_rows(reader, top, "world", None, read_world),
        workloads=_rows(reader, top, "workloads", ("cloud", "nth", "does", "after", "runs", "exit"), read_workload),
        crashes=_rows(reader, top, "crashes", None, read_crash),
        pauses=_rows(
            reader,
            top,
            "pauses",
            ("poller", "before", "cloud", "call", "nth", "for"),
            lambda t: read_pause(t, poll.pollers),
        ),
        clocks=_rows(reader, top, "clocks", ("at", "poller", "by"), lambda t: read_clock(t, poll.pollers)),
        expect=read_expect(reader, top.need("expect")),
    )


def _rows(
    reader: Reader, top: Table, key: str, allowed: tuple[str, ...] | None, read: Callable[[Table], T]
) -> tuple[T, ...]:
    node = top.get(key)
    if node is None or is_null(node):
        return ()
    return tuple(read(Table(reader, item, f"{key}", allowed)) for item in reader.items(node, key))


def _start(top: Table) -> int:
    text = top.opt_text("start") or START
    try:
        start = parse_time(text)
    except (ValueError, OverflowError):
        start = -1
    if start < 0:
        top.fail(f"start must be a time such as {START}, not {shown(text)}", "start")
    return start


def _policy(reader: Reader, top: Table) -> tuple[Policy, dict[str, Any]]:
    node = top.get("policy")
    if node is None or is_null(node):
        return Policy(), {}
    table = Table(reader, node, "policy", None)
    values = {key: reader.plain(value, f"policy {key}") for key, value in table.entries()}
    for key, value in values.items():
        try:
            parse({key: value})
        except PolicyError as error:
            table.fail(str(error), key)
    return parse(values), values


def _poll(reader: Reader, top: Table) -> Poll:
    node = top.get("poll")
    if node is None or is_null(node):
        return Poll()
    table = Table(reader, node, "poll", ("every", "until", "pollers", "off"))
    off = []
    if "off" in table:
        for item in reader.items(table.need("off"), "poll off"):
            pair = reader.items(item, "a pair of poll off")
            if len(pair) != 2:
                reader.wrong(item, "a pair of poll off", "[from, to] in seconds")
            begin, end = (reader.seconds(part, "poll off") for part in pair)
            if begin >= end:
                reader.fail(line_of(item), "a pair of poll off must be [from, to] with from before to")
            off.append((begin, end))
    default = Poll()
    return Poll(
        every=table.seconds("every", default.every, above=0),
        until=table.seconds("until", default.until),
        pollers=table.integer("pollers", default.pollers),
        off=tuple(off),
    )


def _zones(reader: Reader, top: Table) -> tuple[str, ...]:
    node = top.get("zones")
    if node is None or is_null(node):
        return ("us-central1-a",)
    zones = tuple(reader.text(item, "a zone") for item in reader.items(node, "zones"))
    if not zones or len(set(zones)) != len(zones):
        top.fail("zones must list at least one zone, each once", "zones")
    return zones


def _lane(table: Table) -> str | None:
    lane = table.opt_text("lane")
    if lane is not None and not LANE.fullmatch(lane):
        table.fail(f"{table.at('lane')} must be up to 43 of a-z, digits and -, not {shown(lane)}", "lane")
    return lane


def _command(table: Table) -> UserCommand:
    return UserCommand(table.seconds("at"), table.integer("issue"), _lane(table))


def _dispatches(reader: Reader, top: Table, known: set[tuple[int, str | None]]) -> tuple[Dispatch, ...]:
    tables: list[Table] = []

    def read(table: Table) -> Dispatch:
        tables.append(table)
        return _dispatch(table)

    rows = _rows(reader, top, "dispatches", DISPATCH, read)
    runs = set(known)
    for row, table in sorted(zip(rows, tables, strict=True), key=lambda pair: pair[0].at):
        if (row.issue, row.lane) not in runs:
            if row.gpus is None:
                table.fail("dispatches needs the key 'gpus', except in a re-run")
            if row.gpu_type is None and row.gpus:
                table.fail("dispatches needs the key 'gpu_type', except in a re-run")
            if row.workload_cmd is None and not row.hydra_args:
                table.fail("dispatches needs one of the keys 'workload_cmd' and 'hydra_args', except in a re-run")
        runs.add((row.issue, row.lane))
    return rows


def _dispatch(table: Table) -> Dispatch:
    reader = table.reader
    backend = table.word("backend", schema.CLOUDS)
    if backend != "gcp" and "provisioning_model" in table:
        table.fail("dispatches provisioning_model is for backend gcp only", "provisioning_model")
    if "workload_cmd" in table and "hydra_args" in table:
        table.fail("dispatches takes one of the keys 'workload_cmd' and 'hydra_args', not both", "hydra_args")
    hydra = table.get("hydra_args")
    pins = table.get("env_pins")
    pinned = Table(reader, pins, "env_pins", None).entries() if pins is not None else []
    budget = table.get("time_budget_hours")
    hours = None if budget is None else reader.number(budget, table.at("time_budget_hours"))
    if hours is not None and budget is not None and hours <= 0:
        reader.wrong(budget, table.at("time_budget_hours"), "more than 0 hours")
    return Dispatch(
        at=table.seconds("at"),
        issue=table.integer("issue"),
        lane=_lane(table),
        backend=backend,
        provisioning_model=table.opt_word("provisioning_model", schema.MODELS),
        zone=table.opt_text("zone"),
        gpu_type=table.opt_text("gpu_type"),
        gpus=table.opt_integer("gpus", low=0),
        workload_cmd=table.opt_text("workload_cmd"),
        hydra_args=()
        if hydra is None
        else tuple(reader.text(item, "hydra_args") for item in reader.items(hydra, "hydra_args")),
        env_pins={key: _pin(reader, value, key) for key, value in pinned},
        time_budget_hours=hours,
        allow_paid_fallback=table.opt_flag("allow_paid_fallback"),
    )


def _pin(reader: Reader, node: yaml.Node, key: str) -> str:
    if isinstance(node, yaml.ScalarNode) and not is_null(node):
        return str(node.value)
    return reader.wrong(node, f"env_pins {key}", "a word")


def _run_of(sidecar: dict[str, Any]) -> tuple[int, str | None]:
    match = MACHINE_NAME.fullmatch(sidecar["pod_name"])
    issue = int(sidecar["extra"]["issue"])
    return issue, match[2] if match and int(match[1]) == issue else None


def _sidecars(reader: Reader, top: Table) -> dict[str, dict[str, Any]]:
    node = top.get("sidecars")
    files: dict[str, dict[str, Any]] = {}
    for item in [] if node is None or is_null(node) else reader.items(node, "sidecars"):
        table = Table(reader, item, "sidecars", schema.SIDECAR_KEYS)
        for key in schema.SIDECAR_KEYS:
            table.need(key)
        extra = Table(reader, table.need("extra"), "sidecars extra", None)
        reader.text(table.need("pod_name"), "sidecars pod_name")
        value = {key: reader.plain(part, f"sidecars {key}") for key, part in table.entries()}
        # Ids and names are words in the file, however the YAML was written.
        for key in ("backend", "job_id", "pod_name", "scratch_dir", "log_path"):
            part = table.need(key)
            value[key] = part.value if isinstance(part, yaml.ScalarNode) and not is_null(part) else ""
        value["extra"]["issue"] = extra.integer("issue")
        issue, lane = _run_of(value)
        name = f"issue-{issue}{'-' + lane if lane else ''}-handle.json"
        if name in files:
            table.fail(f"sidecars holds two files for {name}")
        files[name] = value
    return files
