"""Host keys between the log and SSH: what the log has pinned is what SSH trusts, and what SSH pins goes to the log."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ledger.edges import Edges
from ledger.events import Draft
from ledger.state.model import Run, State


def learn(edges: Edges, runs: Iterable[Run]) -> None:
    """Before machines are entered: the keys that these runs have."""
    if edges.host_keys is not None:
        for run in runs:
            edges.host_keys.learn(run.host_keys)


def pinned(edges: Edges, state: State, now: int) -> list[Draft]:
    """The facts for a run: keys of its machines that were pinned since, and that it has none for."""
    if edges.host_keys is None or not isinstance(state, Run):
        return []
    return [
        Draft("HostKeyPinned", {"key": key}, now, attempt=state.machines[machine].attempt, machine=machine)
        for machine, key in edges.host_keys.new().items()
        if machine in state.machines and machine not in state.host_keys
    ]


def keep(edges: Edges, stream: str, now: int) -> None:
    """Append what a launch has pinned."""
    if edges.host_keys is None or not edges.host_keys.new():
        return

    def news(state: State) -> Sequence[Draft]:
        return pinned(edges, state, now)

    edges.log.append_facts(stream, news)
    learn(edges, [edges.log.run(stream)])
