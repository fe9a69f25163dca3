"""Reads the rows of a scenario that script the world: machines, what happens, answers, workloads, deaths."""

from __future__ import annotations

from typing import Any

import yaml

from ledger.sim import schema
from ledger.sim.nodes import Table, is_null, shown
from ledger.sim.schema import (
    CallRule,
    Changes,
    ClockJump,
    Crash,
    Effect,
    MachineRow,
    Pause,
    WorkloadRule,
    WorldRow,
)

DEFAULT_LAG = 60_000_000
CHANGES = ("phase", "workload_started", "gpu_util", "log_age", "ports", "pid", "reachable")
MACHINE = ("id", "zone", "created", "status", "provisioning_model", "gpu_type", "gpus", "marker", "workload")
CALL = ("cloud", "call", "name", "zone", "nth", "times", "from", "to", "answer", "http", "effect", "takes")
CRASH = ("before", "after", "during")


def _only(table: Table, allowed: tuple[str, ...]) -> None:
    for key, _ in table.entries():
        if key not in allowed:
            table.fail(f"{table.where} has no key {shown(key)} here; allowed: {', '.join(allowed)}", key)


def _changes(table: Table) -> Changes:
    reader = table.reader
    fields: dict[str, Any] = {}
    for key, node in table.entries():
        where = table.at(key)
        if key == "phase":
            fields[key] = None if is_null(node) else reader.text(node, where)
        elif key in ("workload_started", "ports", "reachable"):
            fields[key] = reader.flag(node, where)
        elif key == "gpu_util":
            fields[key] = None if is_null(node) else reader.integer(node, where, low=0)
            if fields[key] is not None and fields[key] > 100:
                reader.wrong(node, where, "a percentage, 0 to 100, or null")
        elif key == "log_age":
            fields[key] = None if is_null(node) else reader.seconds(node, where) / 1e6
        elif key == "pid":
            fields[key] = reader.word(node, where, ("alive", "dead"))
    return Changes(fields)


def read_machine(table: Table, appears_at: int | None = None) -> MachineRow:
    """One of `machines`, or of an `appears` row at `appears_at`. Raises ScenarioError."""
    cloud = table.word("cloud", schema.CLOUDS)
    created = table.seconds("created", -3_600_000_000 if appears_at is None else appears_at, low=None)
    if created > (appears_at or 0):
        table.fail("created must not be later than the machine is there", "created")
    if cloud != "gcp" and "zone" in table:
        table.fail(f"{table.where} zone is for cloud gcp only", "zone")
    if cloud != "gcp" and "provisioning_model" in table:
        table.fail(f"{table.where} provisioning_model is for cloud gcp only", "provisioning_model")
    name = "name" if appears_at is None else "appears"
    return MachineRow(
        cloud=cloud,
        name=table.reader.text(table.need(name), table.at(name)),
        created=created,
        id=table.opt_text("id"),
        zone=table.opt_text("zone"),
        status=table.opt_word("status", schema.STATUSES[cloud]),
        provisioning_model=table.opt_word("provisioning_model", schema.MODELS),
        gpu_type=table.opt_text("gpu_type"),
        gpus=table.opt_integer("gpus", low=0),
        marker=table.opt_word("marker", schema.MARKERS) or "none",
        workload=table.opt_flag("workload") or False,
        changes=_changes(table),
    )


def read_world(table: Table) -> WorldRow:
    """One of `world`. Raises ScenarioError."""
    if "appears" in table:
        _only(table, ("at", "cloud", "appears", *MACHINE, *CHANGES))
        at = table.seconds("at")
        return WorldRow(at, table.word("cloud", schema.CLOUDS), appears=read_machine(table, at))
    allowed = ("at", "cloud", "name", "id", "becomes", *CHANGES)
    for key, _ in table.entries():
        if key not in allowed:
            words = ", ".join((*allowed, "appears"))
            table.fail(f"world has no key {shown(key)} here; allowed: {words}", key)
    cloud = table.word("cloud", schema.CLOUDS)
    row = WorldRow(
        at=table.seconds("at"),
        cloud=cloud,
        name=table.opt_text("name"),
        id=table.opt_text("id"),
        becomes=table.opt_word("becomes", (*schema.STATUSES[cloud], "gone")),
        changes=_changes(table),
    )
    if row.name is None and row.id is None:
        table.fail("world needs one of the keys 'name', 'id' and 'appears'")
    return row


def read_call(table: Table) -> CallRule:
    """One of `calls`. Raises ScenarioError."""
    cloud = table.word("cloud", schema.CLOUDS)
    call = table.word("call", schema.CALLS)
    if call not in schema.CALLS_OF[cloud]:
        table.fail(f"calls call {call!r} is no call on {cloud}; allowed: {', '.join(schema.CALLS_OF[cloud])}", "call")
    extra = {"create": ("status", "provisioning_model"), "list": ("lag",)}.get(call, ())
    _only(table, (*CALL, *extra))
    answers = schema.ANSWERS if call == "list" else tuple(a for a in schema.ANSWERS if a not in schema.LIST_ANSWERS)
    http = table.opt_integer("http", low=400)
    if http is not None and http > 599:
        table.fail(f"calls http must be a status of 400 to 599, not {http}", "http")
    begin, end = table.opt_seconds("from"), table.opt_seconds("to")
    if begin is not None and end is not None and begin >= end:
        table.fail("calls from must be before to", "from")
    return CallRule(
        cloud=cloud,
        call=call,
        answer=table.opt_word("answer", answers) or "ok",
        name=table.opt_text("name"),
        zone=table.opt_text("zone"),
        nth=table.opt_integer("nth"),
        times=table.opt_integer("times"),
        begin=begin,
        end=end,
        http=http or 500,
        effect=_effect(table),
        takes=table.seconds("takes", 0),
        lag=table.seconds("lag", DEFAULT_LAG),
        status=table.opt_word("status", schema.STATUSES[cloud]),
        provisioning_model=table.opt_word("provisioning_model", schema.MODELS),
    )


def _effect(table: Table) -> Effect:
    node = table.get("effect")
    if node is None:
        return Effect()
    if isinstance(node, yaml.MappingNode):
        inner = Table(table.reader, node, "calls effect", ("late",))
        return Effect(times=1, late=inner.seconds("late"))
    allowed = (*schema.EFFECTS, "{late: seconds}")
    word = table.reader.word(node, "calls effect", allowed)
    return Effect(times={"none": 0, "done": 1, "twice": 2}.get(word, 0))


def read_workload(table: Table) -> WorkloadRule:
    """One of `workloads`. Raises ScenarioError."""
    exit_code = table.integer("exit", 0, low=-255)
    return WorkloadRule(
        cloud=table.word("cloud", schema.CLOUDS),
        does=table.word("does", ("never_starts", "starts")),
        nth=table.opt_integer("nth"),
        after=table.opt_seconds("after"),
        runs=table.seconds("runs", 3_600_000_000),
        exit=exit_code,
    )


def read_crash(table: Table) -> Crash:
    """One of `crashes`. Raises ScenarioError."""
    points = [key for key in CRASH if key in table]
    if len(points) != 1:
        _only(table, ("before", "after", "during", "cloud", "call", "type", "nth"))
        table.fail("crashes needs one of the keys 'before', 'after' and 'during'")
    point = points[0]
    what = table.word(point, {"before": ("call",), "after": ("call", "event"), "during": ("projection",)}[point])
    nth = table.integer("nth", 1)
    if what == "event":
        _only(table, ("after", "type", "nth"))
        return Crash("after-event", nth, type=table.word("type", schema.EVENT_TYPES))
    if what == "projection":
        _only(table, ("during", "nth"))
        return Crash("during-projection", nth)
    _only(table, (point, "cloud", "call", "nth"))
    cloud = table.word("cloud", schema.CLOUDS)
    return Crash(f"{point}-call", nth, cloud, table.word("call", schema.CALLS_OF[cloud]))


def _poller(table: Table, pollers: int) -> int:
    number = table.integer("poller")
    if number > pollers:
        table.fail(f"{table.where} poller must be one of the {pollers} of poll, not {number}", "poller")
    return number


def read_pause(table: Table, pollers: int) -> Pause:
    """One of `pauses`; `pollers` is how many there are. Raises ScenarioError."""
    table.word("before", ("call",))
    cloud = table.word("cloud", schema.CLOUDS)
    return Pause(
        poller=_poller(table, pollers),
        cloud=cloud,
        call=table.word("call", schema.CALLS_OF[cloud]),
        lasts=table.seconds("for"),
        nth=table.integer("nth", 1),
    )


def read_clock(table: Table, pollers: int) -> ClockJump:
    """One of `clocks`; `pollers` is how many there are. Raises ScenarioError."""
    return ClockJump(table.seconds("at"), _poller(table, pollers), table.seconds("by", low=None))
