"""Which ledger a command works on, and with what settings: `ledger.toml`, then the environment, then flags.

Standard library only: a command that only reads starts with nothing else. A relative path in `ledger.toml` is
relative to it, any other to the working directory at the start; after `load` nothing depends on the directory.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from ledger import policy
from ledger.errors import LedgerError
from ledger.policy import Policy, PolicyError
from ledger.projections.ssh_config import Login
from ledger.settings_table import Table
from ledger.settings_template import TEMPLATE

FILE: Final = "ledger.toml"
SIDECARS: Final = "handles"
HYDRA_COMMAND: Final = "python train.py"  # what hydra arguments are given to
RUNPOD_APIS: Final = ("graphql", "rest_v2")
RUNPOD_CLOUDS: Final = ("ALL", "COMMUNITY", "SECURE")
_LEGACY_QUEUE_WAIT: Final = "EPS_GCP_QUEUE_WAIT_SECONDS"
_DEFAULT: Final = "default"


@dataclass(frozen=True, slots=True)
class Intent:
    """What an intent's name rents: a GPU type and count (none: a CPU machine), disk and image."""

    gpu_type: str | None = None
    gpus: int = 0
    machine_type: str | None = None  # on GCP; else by gpu_type and gpus from gcp.machine_types
    disk_gb: int = 200
    min_ram_gb: int | None = None
    image: str | None = None  # of a pod; else runpod.image


@dataclass(frozen=True, slots=True)
class Gcp:
    """Where and what to rent on GCP. `machine_types` is GPU type → count → machine type.

    `setup` is a shell script that an instance runs before its workload; `prices` are dollars an hour by machine type.
    """

    project: str = ""
    zones: tuple[str, ...] = ()
    image: str = ""
    service_account: str = ""
    network: str = "default"
    setup: Path | None = None
    machine_types: Mapping[str, Mapping[int, str]] = field(default_factory=dict)
    prices: Mapping[str, float] = field(default_factory=dict)

    def machine_type(self, gpu_type: str | None, gpus: int) -> str | None:
        """The machine type with that many GPUs of that type, if one is listed."""
        return self.machine_types.get(gpu_type or "", {}).get(gpus)


@dataclass(frozen=True, slots=True)
class Runpod:
    """Where and what to rent on RunPod. `gpu_ids` is GPU type → RunPod's own ids, tried in order."""

    account: str = "default"
    api: str = "graphql"
    api_key_env: str = "RUNPOD_API_KEY"
    cloud_type: str = "ALL"
    image: str = ""
    gpu_ids: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Ssh:
    """How to reach a machine. `key` is the private key's file; None: the agent's."""

    user: str = "root"
    key: Path | None = None


@dataclass(frozen=True, slots=True)
class Settings:
    """All that a command is told. `sources` says of each value that is no default where it comes from."""

    database: str
    sidecars: Path | None
    policy: Policy
    intents: Mapping[str, Intent]
    gcp: Gcp
    runpod: Runpod
    ssh: Ssh
    alert_command: str | None = None
    finalize_check: str | None = None
    secrets: tuple[str, ...] = ()
    hydra_command: str = HYDRA_COMMAND
    file: Path | None = None
    sources: Mapping[str, str] = field(default_factory=dict)

    def source(self, name: str) -> str:
        """Where a value comes from: `queue_wait_seconds` → `LEDGER_QUEUE_WAIT_SECONDS`, or `default`."""
        return self.sources.get(name, _DEFAULT)

    def intent(self, name: str) -> Intent:
        """What that name rents. Raises LedgerError naming the ones that there are."""
        if name not in self.intents:
            raise LedgerError(f"there is no intent {name!r}; {self._where()} has {', '.join(sorted(self.intents))}")
        return self.intents[name]

    def login(self) -> Login:
        """As whom machines are entered over SSH."""
        return Login(self.ssh.user, str(self.ssh.key) if self.ssh.key is not None else None)

    def _where(self) -> str:
        return str(self.file) if self.file is not None else "the built-in table"


def load(
    db: str | None = None,
    sidecars: str | Path | None = None,
    cwd: str | Path | None = None,
    env: Mapping[str, str] | None = None,
    flags: Mapping[str, Any] | None = None,
) -> Settings:
    """The settings of a command started in `cwd`. `flags`: policy fields given on the command line.

    Raises LedgerError, naming the file and the key, for what cannot be used, and where there is no ledger.
    """
    env = os.environ if env is None else env
    try:
        here = Path(cwd or Path.cwd()).absolute()
        file = find(here)
    except OSError as error:
        raise LedgerError(f"the working directory cannot be read ({error.strerror}); go to another") from None
    table = Table(file, _parse(file)) if file is not None else Table(None, {})
    sources: dict[str, str] = {}
    database = _database(db, env, table, here, sources)
    settings = Settings(
        database=database,
        sidecars=_sidecars(sidecars, env, table, here, sources),
        policy=_policy(table, env, flags or {}, sources),
        alert_command=table.text("alert_command", sources),
        finalize_check=table.text("finalize_check", sources),
        secrets=table.words("secrets"),
        hydra_command=(table.text("hydra_command", sources) or HYDRA_COMMAND).strip(),
        file=file,
        sources=sources,
        **_rented(table, env, sources),
    )
    table.close()
    return settings


def find(start: Path) -> Path | None:
    """The nearest `ledger.toml` upwards from a folder."""
    return next((file for folder in (start, *start.parents) if (file := folder / FILE).is_file()), None)


def init(folder: str | Path) -> list[Path]:
    """Make `folder` a ledger's: a `ledger.toml` with comments and the sidecar folder. What was made.

    Raises LedgerError where there is a `ledger.toml` already (it is left as it is), or where nothing can be written.
    """
    try:
        folder = Path(folder).absolute()
        file, sidecars = folder / FILE, folder / SIDECARS
        if not os.path.lexists(file):
            sidecars.mkdir(parents=True, exist_ok=True)
        with file.open("x", encoding="utf-8") as new:
            new.write(TEMPLATE)
    except FileExistsError:
        if os.path.lexists(file):
            raise LedgerError(f"{file} is there already; it is left as it is") from None
        raise LedgerError(f"{sidecars} is a file; the sidecars need a folder there: move it away") from None
    except OSError as error:
        raise LedgerError(f"{folder} cannot be made a ledger's: {error.strerror}") from None
    return [file, sidecars]


def _parse(file: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(file.read_text(encoding="utf-8"))
    except tomllib.TOMLDecodeError as error:
        raise LedgerError(f"{file}: {str(error).splitlines()[0]}") from None
    except UnicodeDecodeError:
        raise LedgerError(f"{file} is no UTF-8 text") from None
    except RecursionError:
        raise LedgerError(f"{file} is nested too deeply to be read") from None
    except OSError as error:
        raise LedgerError(f"{file} cannot be read: {error.strerror}") from None


def _database(db: str | None, env: Mapping[str, str], table: Table, here: Path, sources: dict[str, str]) -> str:
    inside = table.text("database", sources)
    given, source = (db, "--db") if db else (env.get("LEDGER_DATABASE_URL"), "LEDGER_DATABASE_URL")
    if given:
        sources["database"] = source
        return _url(given, here)
    if table.file is None:
        raise LedgerError("no ledger here; `ledger init` makes one")
    return _url(inside or "sqlite:///ledger.db", table.file.parent)


def _url(text: str, base: Path) -> str:
    """A SQLite file's URL or plain path made absolute; any other URL as it is."""
    if text.startswith("sqlite:///"):
        name = text.removeprefix("sqlite:///")
        return f"sqlite:///{_absolute(name, base)}" if name not in ("", ":memory:") else text
    return text if "://" in text else f"sqlite:///{_absolute(text, base)}"


def _absolute(path: str | Path, base: Path) -> Path:
    try:
        return Path(os.path.normpath(base / Path(path).expanduser()))
    except RuntimeError:
        raise LedgerError(f"{path}: nobody knows that home folder; write the path without ~") from None


def _sidecars(
    given: str | Path | None, env: Mapping[str, str], table: Table, here: Path, sources: dict[str, str]
) -> Path | None:
    inside = table.text("sidecars", sources)
    if given:
        sources["sidecars"] = "--sidecars"
        return _absolute(given, here)
    if env.get("LEDGER_SIDECAR_DIR"):
        sources["sidecars"] = "LEDGER_SIDECAR_DIR"
        return _absolute(env["LEDGER_SIDECAR_DIR"], here)
    return _absolute(inside, table.file.parent) if inside and table.file is not None else None


def _policy(table: Table, env: Mapping[str, str], flags: Mapping[str, Any], sources: dict[str, str]) -> Policy:
    result = Policy()
    section = table.section("policy")
    section.take_all()
    layers: list[tuple[str, dict[str, Any]]] = [(str(table.file), dict(section.values))]
    legacy = env.get(_LEGACY_QUEUE_WAIT)
    if legacy:
        layers.append(
            (_LEGACY_QUEUE_WAIT, {"queue_wait_seconds": _typed(_LEGACY_QUEUE_WAIT, "queue_wait_seconds", legacy)})
        )
    for name in policy.FIELDS:
        variable = f"LEDGER_{name.upper()}"
        if env.get(variable) and name != "paused":
            layers.append((variable, {name: _typed(variable, name, env[variable])}))
    layers.append(("flag", {name: value for name, value in flags.items() if value is not None}))
    for source, values in layers:
        if "paused" in values:
            raise LedgerError(f"{source}: policy paused is no setting; `ledger pause` and `ledger resume` set it")
        try:
            result = policy.parse(values, result)
        except PolicyError as error:
            raise LedgerError(f"{source}: {error}") from None
        sources |= dict.fromkeys(values, source)
    return result


def _typed(variable: str, name: str, text: str) -> Any:
    """An environment's text as a value of that policy field; what does not fit is told by `policy.parse`."""
    default = policy.FIELDS[name].default
    word = text.strip()
    if name == "max_usd_per_hour" and word.lower() == "none":
        return None
    if isinstance(default, bool):
        return {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}.get(word.lower(), word)
    if isinstance(default, tuple):
        return [part.strip() for part in word.split(",") if part.strip()]
    if isinstance(default, int | float) or name == "max_usd_per_hour":
        try:
            return float(word)
        except ValueError:
            raise LedgerError(f"{variable}: policy {name} must be a number, not {text!r}") from None
    return word


def _rented(table: Table, env: Mapping[str, str], sources: dict[str, str]) -> dict[str, Any]:
    """Intents and clouds: as the file has them, else as `ledger init` would write them."""
    shipped = tomllib.loads(TEMPLATE)
    defaults = Table(None, {name: shipped[name] for name in ("intents", "gcp", "runpod", "ssh")})
    given = table.section("intents")
    intents = given if "intents" in table.values else defaults.section("intents")
    gcp, default_gcp = table.section("gcp"), defaults.section("gcp")
    runpod, default_runpod = table.section("runpod"), defaults.section("runpod")
    ssh = table.section("ssh")
    types = gcp if "machine_types" in gcp.values else default_gcp
    ids = runpod if "gpu_ids" in runpod.values else default_runpod
    api = runpod.word("api", RUNPOD_APIS) or "graphql"
    if env.get("LEDGER_RUNPOD_API"):
        api, sources["runpod.api"] = env["LEDGER_RUNPOD_API"], "LEDGER_RUNPOD_API"
        if api not in RUNPOD_APIS:
            raise LedgerError(f"LEDGER_RUNPOD_API must be {' or '.join(RUNPOD_APIS)}, not {api!r}")
    key, setup, prices = ssh.text("key"), gcp.text("setup"), gcp.section("prices")
    rented = {
        "intents": {name: _intent(intents.section(name)) for name in list(intents.values)},
        "gcp": Gcp(
            project=gcp.text("project") or "",
            zones=gcp.words("zones") or default_gcp.words("zones"),
            image=gcp.text("image") or default_gcp.text("image") or "",
            service_account=gcp.text("service_account") or "",
            network=gcp.text("network") or "default",
            setup=_absolute(setup, table.file.parent) if setup and table.file is not None else None,
            machine_types=_machine_types(types.section("machine_types")),
            prices={machine_type: prices.dollars(machine_type) for machine_type in list(prices.values)},
        ),
        "runpod": Runpod(
            account=runpod.text("account") or "default",
            api=api,
            api_key_env=runpod.text("api_key_env") or "RUNPOD_API_KEY",
            cloud_type=runpod.word("cloud_type", RUNPOD_CLOUDS) or "ALL",
            image=runpod.text("image") or default_runpod.text("image") or "",
            gpu_ids=_gpu_ids(ids.section("gpu_ids")),
        ),
        "ssh": Ssh(
            user=ssh.text("user") or "root",
            key=_absolute(key, table.file.parent) if key and table.file is not None else None,
        ),
    }
    for section in (gcp, runpod, ssh, intents):
        section.close()
    return rented


def _intent(section: Table) -> Intent:
    intent = Intent(
        gpu_type=section.text("gpu_type"),
        gpus=section.count("gpus", 0),
        machine_type=section.text("machine_type"),
        disk_gb=section.count("disk_gb", Intent().disk_gb),
        min_ram_gb=section.count("min_ram_gb", 0) or None,
        image=section.text("image"),
    )
    if bool(intent.gpus) != bool(intent.gpu_type):
        raise section.wrong("gpus", "and gpu_type go together; leave both out for a CPU machine")
    section.close()
    return intent


def _machine_types(section: Table) -> dict[str, dict[int, str]]:
    table: dict[str, dict[int, str]] = {}
    for gpu_type in list(section.values):
        row = section.section(gpu_type)
        for count in list(row.values):
            if not count.isascii() or not count.isdigit():
                raise row.wrong(count, "must be a number of GPUs")
            table.setdefault(gpu_type, {})[int(count)] = row.text(count) or ""
    return table


def _gpu_ids(section: Table) -> dict[str, tuple[str, ...]]:
    return {gpu_type: section.words(gpu_type) for gpu_type in list(section.values)}
