"""The `ledger.toml` that `ledger init` writes; its tables of what to rent are also the defaults where there is none."""

from __future__ import annotations

from typing import Final

TEMPLATE: Final = """\
# The settings of one ledger. Every line is optional; a line that is commented out shows its default.
# Relative paths are relative to this file. LEDGER_DATABASE_URL, LEDGER_SIDECAR_DIR and LEDGER_<POLICY FIELD>
# in the environment go over what is said here, flags over both.

database = "sqlite:///ledger.db"        # a team: "postgresql+psycopg://user@host/ledger"
sidecars = "handles"                    # where issue-<N>-handle.json lie

# alert_command = "notify-send ledger"  # gets each new breach as JSON on its standard input
# finalize_check = "scripts/check.sh"   # `ledger finalize` asks it first; anything but 0 says no
# hydra_command = "python train.py"     # what the arguments of `ledger dispatch --hydra` are given to
secrets = []                            # names of variables that a launch reads from the environment: ["HF_TOKEN"]

[policy]
# queue_wait_seconds = 600              # a queued instance that has not moved by then is left
# launch_confirm_seconds = 1800         # a billed machine runs its workload by then, or is ended
# teardown_confirm_seconds = 600
# done_grace_seconds = 5400             # how long a machine is kept after its workload has ended
# idle_grace_seconds = 900              # how long an orphan must idle before it is ended
# create_timeout_seconds = 300
# poll_interval_seconds = 60
# fence_hours = 168                     # server-side end of life of a machine
# max_creates_per_run_day = 16
# max_teardowns_per_tick = 10
# max_usd_per_hour = 100.0              # no default: no limit
# ladder = ["gcp:FLEX_START", "runpod", "gcp:STANDARD"]
# default_provisioning_model = "STANDARD"
# allow_paid_fallback = true            # false: no runpod rung
# on_lost = "close"                     # or "failover"
# protect = []                          # names of machines that are never touched
# name_gcp = "eps-issue-{issue}{-lane}"
# name_runpod = "pod-{issue}{-lane}"

# What an intent rents. machine_type is GCP's; where it is left out, gcp.machine_types says it.
[intents.lora-7b]
gpu_type = "H100"
gpus = 1
disk_gb = 300

[intents.ft-7b]
gpu_type = "H100"
gpus = 4
disk_gb = 500

[intents.capture-7b]
gpu_type = "A100"
gpus = 1
disk_gb = 500

[intents.eval]
gpu_type = "A100"
gpus = 1
disk_gb = 200

[intents.inf-70b]
gpu_type = "H100"
gpus = 2
disk_gb = 500

[intents.cpu-small]
machine_type = "n2-standard-8"
disk_gb = 100

[gcp]
project = ""                            # your project's id; empty: nothing is rented on GCP
zones = ["us-central1-a", "us-central1-b", "us-central1-c", "us-central1-f"]  # tried in this order
image = "projects/deeplearning-platform-release/global/images/family/common-cu128-ubuntu-2204-nvidia-570"
# service_account = ""                  # the instance's; empty: the project's default
# network = "default"
# setup = "setup.sh"                    # a shell script that an instance runs before its workload: export secrets there

# [gcp.prices]                          # dollars an hour: what max_usd_per_hour and `ledger status` count
# a3-highgpu-1g = 11.06

[gcp.machine_types.H100]
1 = "a3-highgpu-1g"
2 = "a3-highgpu-2g"
4 = "a3-highgpu-4g"
8 = "a3-highgpu-8g"

[gcp.machine_types.H200]
8 = "a3-ultragpu-8g"

[gcp.machine_types.A100]
1 = "a2-ultragpu-1g"
2 = "a2-ultragpu-2g"
4 = "a2-ultragpu-4g"
8 = "a2-ultragpu-8g"

[gcp.machine_types.A100-40GB]
1 = "a2-highgpu-1g"
2 = "a2-highgpu-2g"
4 = "a2-highgpu-4g"
8 = "a2-highgpu-8g"

[gcp.machine_types.L4]
1 = "g2-standard-12"
2 = "g2-standard-24"
4 = "g2-standard-48"
8 = "g2-standard-96"

[runpod]
account = "default"                     # the user id whose pods these are; "default": the one that the key is of
api = "graphql"                         # or "rest_v2"
api_key_env = "RUNPOD_API_KEY"          # the variable that holds the key; the key itself never stands here
cloud_type = "ALL"                      # or "SECURE", "COMMUNITY"
image = "runpod/pytorch:1.0.2-cu1281-torch280-ubuntu2404"

# RunPod's own ids of a GPU type, tried in this order.
[runpod.gpu_ids]
H100 = ["NVIDIA H100 80GB HBM3", "NVIDIA H100 NVL", "NVIDIA H100 PCIe"]
H200 = ["NVIDIA H200"]
B200 = ["NVIDIA B200"]
A100 = ["NVIDIA A100-SXM4-80GB", "NVIDIA A100 80GB PCIe"]
L40S = ["NVIDIA L40S"]
L4 = ["NVIDIA L4"]
A6000 = ["NVIDIA RTX A6000"]
RTX4090 = ["NVIDIA GeForce RTX 4090"]

[ssh]
user = "root"
# key = "~/.ssh/id_ed25519"             # no default: the agent's keys
"""
