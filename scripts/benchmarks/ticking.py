"""Section `tick`: a tick over many active runs, its clouds at the far end of loopback sockets, nothing changed.

The simulated clouds serve from a process of their own; the clients are the real ones (google-cloud-compute, the RunPod
SDK). Probes are answered at once by what a healthy workload would say: SSH is measured on neither side.
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from multiprocessing.connection import Connection as Pipe
from typing import Any

from benchmarks.harness import Block, Bound, Result, Row, Setting, ratio, take_turns
from benchmarks.stories import HOLDER, LADDER
from ledger.clouds.port import Cloud
from ledger.clouds.values import LaunchSpec, Probe
from ledger.edges import Edges
from ledger.events import Draft
from ledger.log.store import Log
from ledger.opening import open_edges
from ledger.poller.observe import DETAIL_SECONDS, LIST_SECONDS
from ledger.poller.tick import tick as tick_once
from ledger.poller.together import threads
from ledger.settings import load
from ledger.sim.schema import ACCOUNT_RUNPOD, PROJECT, Changes, MachineRow
from ledger.sim.wire.serve import Serving, empty
from ledger.source import SystemSource

_HOUR = 3600 * 1_000_000
_TOML = """
database = "ledger.db"
sidecars = "handles"
[gcp]
project = "{project}"
zones = ["us-central1-a"]
[policy]
launch_confirm_seconds = 7200
"""
_HEALTHY = Probe(pid=4242, pid_alive=True, log_bytes=5000, log_age=12.0, done=False, gpu_util=88)
# (cloud, issue, machine)
Rented = tuple[str, int, str]


def tick(setting: Setting, result: Result) -> None:
    """A tick of so many runs, and the clients alone making the same calls."""
    walls: dict[int, float] = {}
    few, many = setting.some(1000, 100), setting.some(4000, 400)
    for runs in (few, many):
        with _served(runs) as (environment, rented), _polling(setting, runs, environment, rented) as poller:
            edges, calls = poller
            for _ in range(3):  # until there is nothing new
                tick_once(edges)
            head = edges.log.head()
            calls.clear()
            tick_once(edges)
            lists = sum(call.startswith("list") for call in calls.made)
            pages = sum(call.startswith("page") for call in calls.made)
            details = len(calls.made) - lists - pages
            mine, raw = f"tick of {runs:,} runs", f"the same calls by the clients alone, {runs:,} runs"
            block = calls.again()
            times = take_turns({raw: block, mine: partial(tick_once, edges)}, setting.some(5, 4))
            news = [e.type for e in edges.log.read_all(after=head) if e.type != "InventoryRead"]
            if news:
                raise AssertionError(f"something changed: {news[:5]}")
            for name, taken in times.items():
                share = ratio(times, name, raw)
                note = f"{lists} lists of {pages} pages, {details} details"
                result.rows.append(Row("tick", name, taken.median() * 1e3, "ms", share, note))
            walls[runs] = times[mine].median()
            bound = Bound("tick", f"{runs:,} runs, of the clients alone", ratio(times, mine, raw), "at most", 2.0)
            result.bounds.append(bound)
            wanted = 2.0
            result.bounds.append(Bound("tick", f"{runs:,} runs, list calls", float(lists), "at most", wanted, "calls"))
    grown = walls[many] / walls[few] / (many / few)
    result.bounds.append(Bound("tick", f"wall time a run, {many:,} of {few:,}", grown, "at most", 1.0))


class Calls:
    """What was asked of the clouds: their names, and how to ask it all again."""

    def __init__(self) -> None:
        self.made: list[str] = []
        self.lists: list[Callable[[], Any]] = []
        self.details: list[Callable[[], Any]] = []

    def clear(self) -> None:
        self.made.clear()
        self.lists.clear()
        self.details.clear()

    def again(self) -> Block:
        lists, details = list(self.lists), list(self.details)

        def run() -> None:
            threads(lists, LIST_SECONDS)
            threads(details, DETAIL_SECONDS)

        return run


class Counted:
    """A cloud whose calls are noted. Probes are answered here."""

    def __init__(self, inner: Cloud, calls: Calls) -> None:
        self._inner, self._calls = inner, calls
        self.backend, self.account = inner.backend, inner.account
        self.create, self.delete, self.launch = inner.create, inner.delete, inner.launch
        page = getattr(inner, "_page", None)
        if page is None:
            return

        def noted(*arguments: Any) -> Any:
            calls.made.append("page of gcp")
            return page(*arguments)

        inner._page = noted  # type: ignore[attr-defined]

    def list_all(self, *, timeout: float) -> Any:
        self._calls.made.append(f"list of {self.backend}")
        if self.backend == "runpod":
            self._calls.made.append("page of runpod")
        self._calls.lists.append(lambda: self._inner.list_all(timeout=timeout))
        return self._inner.list_all(timeout=timeout)

    def describe(self, machine: str, *, timeout: float) -> Any:
        return self._detail("describe", lambda: self._inner.describe(machine, timeout=timeout))

    def guest(self, machine: str, *, timeout: float) -> Any:
        return self._detail("guest", lambda: self._inner.guest(machine, timeout=timeout))

    def probe(self, machine: str, spec: LaunchSpec, *, timeout: float) -> Probe:  # noqa: ARG002 - the port's shape
        self._detail("probe", lambda: _HEALTHY)
        return _HEALTHY

    def _detail(self, name: str, call: Callable[[], Any]) -> Any:
        self._calls.made.append(name)
        self._calls.details.append(call)
        return call()


@contextmanager
def _served(runs: int) -> Iterator[tuple[dict[str, str], list[Rented]]]:
    """The simulated clouds in a process of their own, half of the machines in each."""
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe()
    process = context.Process(target=_serve, args=(runs, there), daemon=True)
    process.start()
    there.close()
    try:
        yield here.recv()
    finally:
        here.send(None)
        process.join(20)
        here.close()


def _serve(runs: int, pipe: Pipe) -> None:
    rows = []
    for issue in range(1, runs + 1):
        gcp = issue % 2 == 0
        rows.append(
            MachineRow(
                cloud="gcp" if gcp else "runpod",
                name=f"eps-issue-{issue}" if gcp else f"pod-{issue}",
                created=-_HOUR,
                zone="us-central1-a" if gcp else None,
                status="RUNNING",
                workload=True,
                changes=Changes({"gpu_util": 88}),
            )
        )
    serving = Serving(replace(empty(), machines=tuple(rows)), SystemSource())
    machines = serving.gate.world.machines
    rented = [(m.cloud, int(m.name.rsplit("-", 1)[1]), m.key) for m in machines]
    pipe.send((serving.environment(), rented))
    pipe.recv()
    serving.close()


@contextmanager
def _polling(
    setting: Setting, runs: int, environment: dict[str, str], rented: Sequence[Rented]
) -> Iterator[tuple[Edges, Calls]]:
    folder = setting.folder / f"tick-{runs}"
    (folder / "handles").mkdir(parents=True)
    (folder / "ledger.toml").write_text(_TOML.format(project=PROJECT))
    settings = load(cwd=folder, env=environment)
    calls = Calls()
    with open_edges(settings, SystemSource(), _say, create=True, env=environment) as edges:
        _record(edges.log, rented)
        edges.clouds = [Counted(cloud, calls) for cloud in edges.clouds]
        yield edges, calls


def _say(line: str) -> None:
    raise AssertionError(line)


def _record(log: Log, rented: Sequence[Rented]) -> None:
    """The runs, each launched on its machine an hour ago."""
    execute = log.connection.execute
    execute("PRAGMA synchronous=OFF")
    began = log.source.now() - _HOUR
    for cloud, issue, machine in rented:
        log.append(f"issue-{issue}", 0, list(_story(cloud, issue, machine, began)))
    execute("PRAGMA synchronous=FULL")


def _story(cloud: str, issue: int, machine: str, at: int) -> Iterator[Draft]:
    gcp = cloud == "gcp"
    attempt = f"0198c5d2-77aa-7c41-b1f4-{issue:012x}"
    name, zone = (f"eps-issue-{issue}", "us-central1-a") if gcp else (f"pod-{issue}", None)
    account = PROJECT if gcp else ACCOUNT_RUNPOD
    rung = "gcp:STANDARD" if gcp else "runpod"
    lease = {"holder": HOLDER, "call_before": at + 20_000_000, "deadline": at + 100_000_000}
    model = "STANDARD" if gcp else None
    yield Draft("RunOpened", {"issue": issue, "workload_cmd": "train", "ladder": LADDER, "rung": rung}, at, "user")
    asked = {"backend": cloud, "rung": rung, "name": name, "account": account, "zone": zone, "request_id": attempt}
    yield Draft("ProvisionRequested", {**asked, "provisioning_model": model, **lease}, at, attempt=attempt)
    made = {"backend": cloud, "name": name, "zone": zone, "account": account, "created_at": at, "status": "RUNNING"}
    yield Draft("Provisioned", {**made, "provisioning_model": model}, at, attempt=attempt, machine=machine)
    confirmed = {"pid": 4242, "log_bytes": 10, "source": "probe"}
    yield Draft("LaunchConfirmed", confirmed, at + 60_000_000, attempt=attempt, machine=machine)
