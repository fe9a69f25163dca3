"""The clouds that the settings name, each opened when a command first needs one; and the clock that goes with them."""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ledger.errors import LedgerError
from ledger.policy import RUNPOD
from ledger.source import Source, SystemSource

if TYPE_CHECKING:
    from ledger.clouds.host_keys import HostKeys
    from ledger.clouds.port import Cloud
    from ledger.settings import Settings

SIMULATED = "LEDGER_SIM"
_ADAPTERS = {"gcp": "GCP", "runpod": "RunPod"}


def open_source(env: Mapping[str, str]) -> Source:
    """This machine's clock and chance; under `LEDGER_SIM` the clock of that simulated world. Raises LedgerError."""
    if env.get(SIMULATED):
        from ledger.sim.remote import RemoteSource, RemoteWorld

        return RemoteSource(RemoteWorld(env[SIMULATED]))
    return SystemSource()


def open_clouds(
    settings: Settings,
    source: Source,
    say: Callable[[str], Any],
    keys: HostKeys | None = None,
    env: Mapping[str, str] = os.environ,
) -> list[Cloud]:
    """One cloud an account, for a source of `open_source`, and SSH to its machines. Nothing is sent yet.

    `keys`: the host keys that are known, and those that will be pinned.

    Under `LEDGER_SIM` the accounts of the simulated world; else GCP where a project is set, and RunPod. One that
    cannot be opened (a missing key) is told in one line and left out. Raises LedgerError where none is left.
    """
    world = getattr(source, "world", None)
    if world is not None:
        return list(world.clouds())
    clouds: list[Cloud] = []
    failed: list[str] = []
    for backend in configured(settings):
        try:
            clouds.append(open_cloud(backend, settings, source, say, keys, env))
        except LedgerError as error:
            failed.append(str(error))
    if not clouds:
        no_project = "" if settings.gcp.project else "no GCP project is set ([gcp] project in ledger.toml); "
        raise LedgerError(f"no cloud can be reached: {no_project}{'; '.join(failed)}")
    for line in failed if RUNPOD in settings.policy.ladder else ():
        say(f"{line}; it is left out")
    return clouds


def configured(settings: Settings) -> tuple[str, ...]:
    """The backends that the settings speak of."""
    return ("gcp", "runpod") if settings.gcp.project else ("runpod",)


def open_cloud(
    backend: str,
    settings: Settings,
    source: Source,
    say: Callable[[str], Any],
    keys: HostKeys | None = None,
    env: Mapping[str, str] = os.environ,
) -> Cloud:
    """One real cloud, and SSH to its machines. Nothing is sent yet. Raises LedgerError (a missing key)."""
    from ledger.clouds.host_keys import HostKeys
    from ledger.clouds.shell import Shell

    kept = keys if keys is not None else HostKeys()
    shell = Shell(settings.ssh.user, settings.ssh.key, source, kept.pinned, kept.pin, environment=env, say=say)
    told = _gcp(settings) if backend == "gcp" else settings
    cloud: Cloud = _adapter(backend).open_cloud(told, source, shell, env)
    return cloud


def account_of(backend: str, settings: Settings, source: Source, env: Mapping[str, str] = os.environ) -> str:
    """Whose machines a backend's are, as the cloud tells it; "" where it does not, or cannot be asked."""
    world = getattr(source, "world", None)
    try:
        clouds = world.clouds() if world is not None else [open_cloud(backend, settings, source, _silent, env=env)]
    except LedgerError:
        return ""
    return next((str(cloud.account) for cloud in clouds if cloud.backend == backend), "")


def found_credentials(backend: str, settings: Settings, env: Mapping[str, str] = os.environ) -> str:
    """Where a backend's credentials were found and whose they are, as far as they say; never what they are.

    Raises LedgerError where there are none.
    """
    if backend == "gcp":
        from ledger.clouds.gcp_client import endpoint_of, whose

        endpoint = endpoint_of(env)
        return f"{whose(endpoint, env)}{f'; asked at {endpoint}' if endpoint else ''}"
    from ledger.clouds.pods import find_key

    key = find_key(env, variable=settings.runpod.api_key_env)
    variable = "LEDGER_RUNPOD_V2_ENDPOINT" if settings.runpod.api == "rest_v2" else "RUNPOD_API_BASE_URL"
    asked = f", asked at {env[variable]}" if env.get(variable) else ""
    return f"a key in {key.where}; {settings.runpod.api}{asked}"


def _silent(_: str) -> None:
    pass


def _gcp(settings: Settings) -> Any:
    """What the GCP adapter is told."""
    from ledger.clouds.gcp_settings import GcpSettings
    from ledger.clouds.pods import public_key_of

    gcp = settings.gcp
    return GcpSettings(
        project=gcp.project,
        zones=gcp.zones,
        machine_types=gcp.machine_types,
        intent_types={
            name: (intent.gpu_type, intent.gpus, intent.machine_type)
            for name, intent in settings.intents.items()
            if intent.machine_type
        },
        prices=gcp.prices,
        image=gcp.image,
        disks={name: intent.disk_gb for name, intent in settings.intents.items()},
        network=gcp.network if "/" in gcp.network else f"global/networks/{gcp.network}",
        service_account=gcp.service_account or None,
        setup=_setup(gcp.setup),
        ssh_user=settings.ssh.user,
        public_key=public_key_of(settings.ssh.key),
    )


def _setup(script: Path | None) -> str:
    try:
        return "" if script is None else script.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is no UTF-8 text"
        raise LedgerError(f"{script}, the setup of [gcp] in ledger.toml, cannot be read: {reason}") from None


def _adapter(backend: str) -> Any:
    try:
        return importlib.import_module(f"ledger.clouds.{backend}")
    except ModuleNotFoundError as error:
        if error.name is None or not error.name.startswith("ledger."):
            raise LedgerError(
                f"{_ADAPTERS[backend]} needs the library {error.name}; install handle-ledger with its clouds"
            ) from None
        raise LedgerError(
            f"this version does not speak to {_ADAPTERS[backend]} yet; {SIMULATED} names a simulated world"
        ) from None
