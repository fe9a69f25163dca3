"""What the settings make of the adapters: machine types, prices, set-up, SSH."""

from __future__ import annotations

from pathlib import Path

import pytest

from ledger.clouds.configured import open_cloud
from ledger.clouds.gcp import GcpCloud
from ledger.clouds.host_keys import HostKeys
from ledger.errors import LedgerError
from ledger.settings import load
from tests.sim.making import spec
from tests.support import FakeSource

TOML = """
[intents.big]
gpu_type = "H100"
gpus = 1
machine_type = "a3-megagpu-1g"
[intents.cpu]
machine_type = "c3-standard-4"
[gcp]
project = "p"
setup = "setup.sh"
[gcp.prices]
c3-standard-4 = 0.5
[ssh]
user = "me"
key = "id"
"""


def gcp(folder: Path, text: str = TOML) -> GcpCloud:
    (folder / "ledger.toml").write_text(text, encoding="utf-8")
    opened = open_cloud("gcp", load(cwd=folder, env={}), FakeSource(), lambda _: None, HostKeys(), {})
    assert isinstance(opened, GcpCloud)
    return opened


def test_the_gcp_adapter_is_told_what_the_settings_say(tmp_path: Path) -> None:
    (tmp_path / "setup.sh").write_text("export A=1\n", encoding="utf-8")
    (tmp_path / "id.pub").write_text("ssh-ed25519 AAAA me\n", encoding="utf-8")
    settings = gcp(tmp_path).settings
    assert (settings.setup, settings.ssh_user, settings.public_key) == ("export A=1\n", "me", "ssh-ed25519 AAAA me")
    assert settings.price("c3-standard-4", None) == 0.5
    assert settings.machine_type_of(spec(intent="cpu", gpu_type=None, gpus=0)) == "c3-standard-4"
    assert settings.machine_type_of(spec(intent="big", gpu_type="H100", gpus=1)) == "a3-megagpu-1g"
    # Other GPUs than the intent's were asked for: its machine type has not got them.
    assert settings.machine_type_of(spec(intent="big", gpu_type="H100", gpus=4)) == "a3-highgpu-4g"


def test_a_setup_that_is_not_there_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(LedgerError, match=r"setup\.sh, the setup of \[gcp\] in ledger\.toml, cannot be read"):
        gcp(tmp_path)


def test_a_price_that_is_none_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(LedgerError, match=r"\[gcp\.prices\] c3-standard-4 must be dollars an hour"):
        gcp(tmp_path, TOML.replace("= 0.5", '= "0.5"'))
