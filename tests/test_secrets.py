"""What is taken for a secret, and what is not."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledger.secrets import REDACTED, find, is_secret_name, redact, redact_all

HEX = "0123456789abcdef0123456789abcdef01234567"
SECRETS = [
    ("HF_TOKEN=abc123 bash run.sh", "HF_TOKEN=[redacted] bash run.sh"),
    (f"export WANDB_API_KEY={HEX}", "export WANDB_API_KEY=[redacted]"),
    (f"wandb login --relogin {HEX} && run", "wandb login --relogin [redacted] && run"),
    ("python x.py --api-key foo123 --max-tokens 512", "python x.py --api-key [redacted] --max-tokens 512"),
    ("run --hf-token=abc", "run --hf-token=[redacted]"),
    ("run --export --x HF_TOKEN=q", "run --export --x HF_TOKEN=[redacted]"),
    ('api_key = "zzz"', 'api_key = "[redacted]"'),
    ("data.api_key=zzz", "data.api_key=[redacted]"),
    ("env SECRET_KEY='a b c' run", "env SECRET_KEY='[redacted]' run"),
    ("HF_TOKEN=a;X_SECRET=b", "HF_TOKEN=[redacted];X_SECRET=[redacted]"),
    ("AWS_SECRET_ACCESS_KEY=abc/def+x", "AWS_SECRET_ACCESS_KEY=[redacted]"),
    ('{"HF_TOKEN": "abc"}', '{"HF_TOKEN": "[redacted]"}'),
    ("401: password: hunter2", "401: password: [redacted]"),
    ("postgresql://u:p4ss@h/db", "postgresql://u:[redacted]@h/db"),
    ("git clone https://me:pw@github.com/x", "git clone https://me:[redacted]@github.com/x"),
    ("curl -H 'Authorization: Bearer x'", "curl -H 'Authorization: Bearer [redacted]'"),
    ("sent Bearer abcdefgh12345678 there", "sent Bearer [redacted] there"),
    ("sk-proj-abcdefghijklmnopqrstuvwxyz0123", "[redacted]"),
    ("sk-ant-api03-AbCdEfGhIjKlMnOpQrStUvWx-yz", "[redacted]"),
    ("hf_abcdefghijklmnopqrstuvwxyzABCDEFGH", "[redacted]"),
    ("ghp_" + "a1" * 18, "[redacted]"),
    ("gho_" + "a1" * 18, "[redacted]"),
    ("github_pat_" + "a1_" * 20, "[redacted]"),
    ("AKIAIOSFODNN7EXAMPLE", "[redacted]"),
    ("AIza" + "Sy1-_" * 7, "[redacted]"),
    ("rpa_" + "A1" * 20, "[redacted]"),
    ("xoxb-1234567890-abcdef", "[redacted]"),
    ("x eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.abc-_1 y", "x [redacted] y"),
    ("-----BEGIN OPENSSH PRIVATE KEY-----\nb3Blb\n-----END OPENSSH PRIVATE KEY----- z", "[redacted] z"),
    ("-----BEGIN PRIVATE KEY-----\ncut off", "[redacted]"),
]
NONE = [
    "",
    "WANDB_PROJECT=swap",
    "TOKENIZERS_PARALLELISM=false",
    "HF_TOKEN=$HF_TOKEN bash run.sh",
    "HF_TOKEN=${HF_TOKEN}",
    'HF_TOKEN="$HF_TOKEN"',
    "HF_TOKEN=$(cat /run/secrets/hf)",
    "HF_TOKEN=`cat f`",
    "HF_TOKEN= bash run.sh",
    "HF_TOKEN=[redacted]",
    "GOOGLE_APPLICATION_CREDENTIALS=/root/key.json",
    "HF_TOKEN_PATH=/root/.cache/token",
    f"git checkout {HEX}",
    f"sha256:{HEX}{HEX[:24]}",
    "python -m train --max-tokens 512 --tokenizer gpt2",
    "model.pad_token=eos tokenizer.eos_token_id=2 MAX_NEW_TOKEN=foo",
    "secret_word=apple task=password_game",
    "the password is missing; the token expired",
    "postgresql://u:$PW@h/db",
    "postgresql://user@h:5432/db",
    "bash scripts/issue1417_dispatch.sh --out /workspace/eval_results/issue_1417/",
    "task-sk-learn-baseline-run-for-everyone",
    "sk-learn-experiment-v1-long-name",
    "hf_model_paths=example-org/eps",
    "att-20260718-001502-4f1c0e 5513402277619834112 6b0a2c0e-5d0e-5c61-9f0f-7a8f3a1d9a11",
    "a bearer of bad news",
]


@pytest.mark.parametrize(("text", "clean"), SECRETS)
def test_a_secret_is_found_and_taken_out(text: str, clean: str) -> None:
    assert redact(text) == clean
    assert find(text)
    assert redact(clean) == clean
    assert not find(clean)


@pytest.mark.parametrize("text", NONE)
def test_what_is_no_secret_is_left_alone(text: str) -> None:
    assert find(text) == []
    assert redact(text) == text


@pytest.mark.parametrize(
    ("name", "secret"),
    [
        ("HF_TOKEN", True),
        ("TOKEN_FOR_CI", True),
        ("HF_TOKEN_2", True),
        ("dbPassword", True),
        ("db.password", True),
        ("apiKey", True),
        ("AWS_SESSION_TOKEN", True),
        ("TOKENS", False),
        ("EOS_TOKEN", False),
        ("KEY", False),
        ("secret_santa", False),
        ("PASSWORD_FILE", False),
        ("", False),
        ("123", False),
    ],
)
def test_names(name: str, secret: bool) -> None:
    assert is_secret_name(name) is secret


def test_a_mapping_says_where() -> None:
    value: dict[str, Any] = {
        "env_pins": {"HF_TOKEN": "abc", "Z_TOKEN": "$Z", "OMP_NUM_THREADS": "8"},
        "hydra_args": ["a=b", "rpa_" + "A1" * 20],
        "workload_cmd": "HF_TOKEN=abc run",
        "gpus": 4,
    }
    assert [str(found) for found in find(value)] == [
        "secret by its name at env_pins.HF_TOKEN",
        "RunPod key at hydra_args[1]",
        "secret by its name at workload_cmd",
    ]
    clean = redact_all(value)
    assert clean["env_pins"] == {"HF_TOKEN": REDACTED, "Z_TOKEN": "$Z", "OMP_NUM_THREADS": "8"}
    assert clean["hydra_args"] == ["a=b", REDACTED]
    assert clean["gpus"] == 4
    assert find(clean) == []


@given(st.text(alphabet="aA1=:-_ '\"/@$[]\nBearertokenHF", max_size=80))
def test_a_second_time_changes_nothing(text: str) -> None:
    clean = redact(text)
    assert redact(clean) == clean
