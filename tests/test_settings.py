"""Which ledger, which settings, and which of two that disagree."""

from __future__ import annotations

import dataclasses
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

from ledger.errors import LedgerError
from ledger.policy import Policy
from ledger.settings import Settings, init, load
from ledger.settings_template import TEMPLATE


def given(folder: Path, text: str = "", **more: Any) -> Settings:
    """The settings under a `ledger.toml` of this text, and nothing else."""
    (folder / "ledger.toml").write_text(text)
    return load(**{"cwd": folder, "env": {}, **more})


def refused(folder: Path, text: str = "", **more: Any) -> str:
    with pytest.raises(LedgerError) as told:
        given(folder, text, **more)
    assert "\n" not in str(told.value)
    return str(told.value)


def test_no_ledger_here(tmp_path: Path) -> None:
    with pytest.raises(LedgerError, match="no ledger here; `ledger init` makes one"):
        load(cwd=tmp_path, env={})


def test_init_makes_one_and_never_goes_over_one(tmp_path: Path) -> None:
    made = init(tmp_path / "new")
    assert made == [tmp_path / "new" / "ledger.toml", tmp_path / "new" / "handles"]
    settings = load(cwd=tmp_path / "new", env={})
    assert settings.database == f"sqlite:///{tmp_path}/new/ledger.db"
    assert settings.sidecars == tmp_path / "new" / "handles"
    assert settings.policy == Policy()
    (tmp_path / "new" / "ledger.toml").write_text("# mine")
    with pytest.raises(LedgerError, match="left as it is"):
        init(tmp_path / "new")
    assert (tmp_path / "new" / "ledger.toml").read_text() == "# mine"
    (tmp_path / "file").write_text("")
    with pytest.raises(LedgerError, match="file"):
        init(tmp_path / "file")
    (tmp_path / "handles").write_text("")
    with pytest.raises(LedgerError, match="handles is a file"):
        init(tmp_path)
    assert not (tmp_path / "ledger.toml").exists()


def test_the_nearest_upwards(tmp_path: Path) -> None:
    given(tmp_path, 'database = "a.db"')
    deep = tmp_path / "x" / "y"
    deep.mkdir(parents=True)
    assert load(cwd=deep, env={}).database == f"sqlite:///{tmp_path}/a.db"
    given(tmp_path / "x", 'database = "sqlite:///../b.db"')
    assert load(cwd=deep, env={}).database == f"sqlite:///{tmp_path}/b.db"
    assert load(cwd=deep, env={}).file == tmp_path / "x" / "ledger.toml"


def test_which_database(tmp_path: Path) -> None:
    text = 'database = "sqlite:///in.db"'
    env = {"LEDGER_DATABASE_URL": "postgresql+psycopg://u@h/d"}
    assert given(tmp_path, text).database == f"sqlite:///{tmp_path}/in.db"
    assert given(tmp_path, text, env=env).database == "postgresql+psycopg://u@h/d"
    assert given(tmp_path, text, env=env).source("database") == "LEDGER_DATABASE_URL"
    assert given(tmp_path, text, env=env, db="sqlite:///x.db").database == f"sqlite:///{tmp_path}/x.db"
    assert given(tmp_path, text, db="/y.db").database == "sqlite:////y.db"
    assert given(tmp_path).database == f"sqlite:///{tmp_path}/ledger.db"


def test_which_sidecars(tmp_path: Path) -> None:
    text = 'sidecars = "s"'
    env = {"LEDGER_SIDECAR_DIR": "e"}
    assert given(tmp_path).sidecars is None
    assert given(tmp_path, text).sidecars == tmp_path / "s"
    assert given(tmp_path, text, env=env).sidecars == tmp_path / "e"
    assert given(tmp_path, text, env=env, sidecars="f").sidecars == tmp_path / "f"


def test_with_a_database_named_no_file_is_needed(tmp_path: Path) -> None:
    settings = load(db="x.db", cwd=tmp_path, env={})
    assert settings.policy == Policy()
    assert settings.sidecars is None
    assert settings.intent("ft-7b").gpus == 4
    assert settings.gcp.zones[0] == "us-central1-a"


@pytest.mark.parametrize(
    ("text", "env", "flags", "value", "source"),
    [
        ("", {}, {}, 600.0, "default"),
        ("[policy]\nqueue_wait_seconds = 700", {}, {}, 700.0, "ledger.toml"),
        ("[policy]\nqueue_wait_seconds = 700", {"EPS_GCP_QUEUE_WAIT_SECONDS": "800"}, {}, 800.0, "EPS_GCP"),
        (
            "",
            {"EPS_GCP_QUEUE_WAIT_SECONDS": "800", "LEDGER_QUEUE_WAIT_SECONDS": "900.5"},
            {},
            900.5,
            "LEDGER_QUEUE_WAIT_SECONDS",
        ),
        ("", {"LEDGER_QUEUE_WAIT_SECONDS": "900"}, {"queue_wait_seconds": 5}, 5.0, "flag"),
        ("", {"LEDGER_QUEUE_WAIT_SECONDS": ""}, {"queue_wait_seconds": None}, 600.0, "default"),
    ],
)
def test_a_threshold(
    tmp_path: Path, text: str, env: dict[str, str], flags: dict[str, Any], value: float, source: str
) -> None:
    settings = given(tmp_path, text, env=env, flags=flags)
    assert settings.policy.queue_wait_seconds == value
    assert source in settings.source("queue_wait_seconds")


@pytest.mark.parametrize(
    ("variable", "text", "field", "value"),
    [
        ("LEDGER_ALLOW_PAID_FALLBACK", "false", "allow_paid_fallback", False),
        ("LEDGER_ALLOW_PAID_FALLBACK", "1", "allow_paid_fallback", True),
        ("LEDGER_LADDER", "runpod, gcp:STANDARD", "ladder", ("runpod", "gcp:STANDARD")),
        ("LEDGER_PROTECT", "a,b", "protect", ("a", "b")),
        ("LEDGER_MAX_USD_PER_HOUR", "none", "max_usd_per_hour", None),
        ("LEDGER_MAX_USD_PER_HOUR", "12.5", "max_usd_per_hour", 12.5),
        ("LEDGER_WEDGE_MIN_TICKS", "3", "wedge_min_ticks", 3),
        ("LEDGER_ON_LOST", "failover", "on_lost", "failover"),
    ],
)
def test_the_environment_is_typed(tmp_path: Path, variable: str, text: str, field: str, value: Any) -> None:
    assert getattr(given(tmp_path, env={variable: text}).policy, field) == value


@pytest.mark.parametrize(
    ("text", "env", "words"),
    [
        ("x = ", {}, ["ledger.toml", "Invalid value"]),
        ("colour = 1", {}, ["ledger.toml", "colour", "alert_command", "sidecars"]),
        ("database = 5", {}, ["ledger.toml", "database", "a text"]),
        ("policy = 5", {}, ["ledger.toml", "policy", "a table"]),
        ("[policy]\nqueue_wait = 1", {}, ["ledger.toml", "queue_wait", "queue_wait_seconds"]),
        ("[policy]\nqueue_wait_seconds = -1", {}, ["ledger.toml", "queue_wait_seconds", "zero or more"]),
        ('[policy]\non_lost = "x"', {}, ["ledger.toml", "on_lost", "close or failover"]),
        ("[policy]\npaused = true", {}, ["ledger.toml", "ledger pause"]),
        ('[runpod]\napi = "rest"', {}, ["ledger.toml", "[runpod] api", "graphql or rest_v2"]),
        ("[runpod]\nkey = 1", {}, ["ledger.toml", "[runpod] key", "api_key_env"]),
        ('[gcp]\nzones = "a"', {}, ["ledger.toml", "[gcp] zones", "a list"]),
        ('[gcp.machine_types.H100]\nfour = "x"', {}, ["[gcp.machine_types.H100] four", "number of GPUs"]),
        ("[intents.x]\ngpus = 1.5", {}, ["[intents.x] gpus", "whole number"]),
        ("[intents.x]\ngpus = 1", {}, ["[intents.x] gpus", "gpu_type"]),
        ("[intents.x]\ncolour = 1", {}, ["[intents.x] colour", "disk_gb"]),
        ('secrets = ["a", 1]', {}, ["secrets", "a list of texts"]),
        ("", {"LEDGER_QUEUE_WAIT_SECONDS": "soon"}, ["LEDGER_QUEUE_WAIT_SECONDS", "a number", "'soon'"]),
        ("", {"EPS_GCP_QUEUE_WAIT_SECONDS": "soon"}, ["EPS_GCP_QUEUE_WAIT_SECONDS", "a number"]),
        ("", {"LEDGER_ALLOW_PAID_FALLBACK": "maybe"}, ["LEDGER_ALLOW_PAID_FALLBACK", "true or false"]),
        ("", {"LEDGER_LADDER": "moon"}, ["LEDGER_LADDER", "gcp:FLEX_START"]),
        ("", {"LEDGER_WEDGE_MIN_TICKS": "1.5"}, ["LEDGER_WEDGE_MIN_TICKS", "whole number"]),
        ("", {"LEDGER_RUNPOD_API": "x"}, ["LEDGER_RUNPOD_API", "graphql or rest_v2"]),
    ],
)
def test_what_cannot_be_used_is_named(tmp_path: Path, text: str, env: dict[str, str], words: list[str]) -> None:
    told = refused(tmp_path, text, env=env)
    for word in words:
        assert word in told


def test_a_file_that_is_no_text(tmp_path: Path) -> None:
    (tmp_path / "ledger.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(LedgerError, match="no UTF-8"):
        load(cwd=tmp_path, env={})


def test_everything_else_that_a_file_says(tmp_path: Path) -> None:
    settings = given(
        tmp_path,
        """
        alert_command = "mail"
        finalize_check = "check"
        secrets = ["HF_TOKEN"]
        [intents.tiny]
        gpu_type = "L4"
        gpus = 1
        image = "i"
        [gcp]
        project = "p"
        zones = ["europe-west4-a"]
        [runpod]
        account = "team"
        api = "rest_v2"
        [ssh]
        user = "me"
        key = "keys/id"
        """,
    )
    assert (settings.alert_command, settings.finalize_check, settings.secrets) == ("mail", "check", ("HF_TOKEN",))
    assert set(settings.intents) == {"tiny"}
    assert settings.intent("tiny").image == "i"
    with pytest.raises(LedgerError, match=r"ledger\.toml has tiny"):
        settings.intent("ft-7b")
    assert (settings.gcp.project, settings.gcp.zones) == ("p", ("europe-west4-a",))
    assert settings.gcp.machine_type("H100", 4) == "a3-highgpu-4g"
    assert settings.gcp.machine_type("H100", 3) is None
    assert settings.gcp.machine_type(None, 0) is None
    assert (settings.runpod.account, settings.runpod.api) == ("team", "rest_v2")
    assert "NVIDIA H100 80GB HBM3" in settings.runpod.gpu_ids["H100"]
    assert (settings.ssh.user, settings.ssh.key) == ("me", tmp_path / "keys" / "id")


def test_the_intents_that_ship(tmp_path: Path) -> None:
    settings = load(db="x", cwd=tmp_path, env={})
    assert {"lora-7b", "ft-7b", "capture-7b", "eval", "inf-70b", "cpu-small"} <= set(settings.intents)
    for intent in settings.intents.values():
        if intent.gpu_type is None:
            assert intent.machine_type
            continue
        assert settings.gcp.machine_type(intent.gpu_type, intent.gpus)
        assert settings.runpod.gpu_ids[intent.gpu_type]


def test_what_the_template_shows_as_defaults_are_the_defaults() -> None:
    section = TEMPLATE.partition("[policy]\n")[2].partition("\n\n")[0]
    shown = tomllib.loads(re.sub(r"^# ", "", section, flags=re.MULTILINE))
    assert shown.pop("max_usd_per_hour")
    defaults = Policy().to_payload()
    assert shown == {name: defaults[name] for name in shown}
    assert set(shown) < {field.name for field in dataclasses.fields(Policy)}


def test_every_commented_line_of_the_template_is_allowed(tmp_path: Path) -> None:
    given(tmp_path, re.sub(r"^# (?=\w+ = )", "", TEMPLATE, flags=re.MULTILINE))


def test_reading_settings_loads_the_standard_library_alone() -> None:
    code = (
        "import sys; before = set(sys.modules); import ledger.settings;"
        "loaded = {m.split('.')[0] for m in set(sys.modules) - before};"
        "print(sorted(loaded - set(sys.stdlib_module_names) - {'ledger'}))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
