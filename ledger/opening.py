"""Opening a ledger for one process: its log, and, for what speaks to the clouds, all its edges."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import ledger
from ledger.log.open import create_log, on_server, open_log, sqlite_path
from ledger.source import Source

if TYPE_CHECKING:
    from ledger.edges import Edges
    from ledger.log.store import Hooks, Log
    from ledger.settings import Settings


@contextmanager
def open_ledger(
    settings: Settings, source: Source, *, write: bool = False, create: bool = False, hooks: Hooks | None = None
) -> Iterator[Log]:
    """The log that the settings name. `write`: its policy becomes the settings'. `create`: made where there is none.

    Raises StorageError and SchemaError as `open_log` does.
    """
    from ledger.recording import sync_policy

    if write and create and (on_server(settings.database) or not sqlite_path(settings.database).exists()):
        log = create_log(settings.database, source, settings.policy, ledger.__version__, hooks=hooks)
    else:
        log = open_log(settings.database, source, hooks=hooks, write=write)
    try:
        if write:
            sync_policy(log, settings)
        yield log
    finally:
        log.connection.close()


@contextmanager
def open_edges(
    settings: Settings,
    source: Source,
    say: Callable[[str], Any],
    *,
    write: bool = True,
    create: bool = False,
    env: Mapping[str, str] = os.environ,
) -> Iterator[Edges]:
    """What one process of the ledger works with: clock, log, clouds, sidecars. Without `write` nothing is written.

    `env` has the clouds' keys and addresses.

    Raises LedgerError where no cloud can be reached, and as `open_ledger` does.
    """
    import socket

    from ledger.clouds.configured import open_clouds
    from ledger.clouds.host_keys import HostKeys
    from ledger.decide.view import Rent
    from ledger.edges import Edges, Kind
    from ledger.poller.together import threads
    from ledger.projections.files import SidecarFolder
    from ledger.recording import policy_in_force

    keys = HostKeys()
    clouds = open_clouds(settings, source, say, keys, env)
    log_hooks, file_hooks = _hooks(source)
    accounts = {cloud.backend: cloud.account for cloud in clouds}
    folder: SidecarFolder | None = None
    if write and settings.sidecars is not None:
        folder = SidecarFolder(settings.sidecars, file_hooks, settings.login())
    with open_ledger(settings, source, write=write, create=create, hooks=log_hooks) as log:
        yield Edges(
            source=source,
            log=log,
            clouds=clouds,
            sidecars=folder,
            policy=policy_in_force(log, settings),
            rent=Rent(settings.gcp.zones, accounts.get("gcp"), accounts.get("runpod")),
            kinds={name: Kind(intent.gpu_type, intent.gpus) for name, intent in settings.intents.items()},
            together=threads,
            holder=f"{socket.gethostname()}:{os.getpid()}:{source.random_bytes(3).hex()}",
            say=say,
            host_keys=keys,
            hydra_command=settings.hydra_command,
        )


def _hooks(source: Source) -> tuple[Any, Any]:
    """The points at which a simulated world may stop or kill this process; a real one has none."""
    world = getattr(source, "world", None)
    if world is None:
        return None, None
    from ledger.sim.remote import file_hooks, log_hooks

    return log_hooks(world), file_hooks(world)
