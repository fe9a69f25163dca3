"""Secrets in texts: where they stand, and the same text without them.

A secret must never enter the log. What is looked for has a shape that only secrets have (a provider's prefix, a
private key, a password in a URL), or stands under a name that says what it is (`HF_TOKEN=…`, `--api-key …`). A
reference to the environment (`$HF_TOKEN`) is no secret, nor is a path, a number or a word of a tokenizer's.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

REDACTED: Final = "[redacted]"


class Found(NamedTuple):
    """One secret: of what kind, and where (a key, a list's index, or a character's offset). Never the secret."""

    kind: str
    where: str

    def __str__(self) -> str:
        return f"{self.kind} at {self.where}"


# Not inside a longer word, so that `task-…` is no `sk-…`.
_START = r"(?<![A-Za-z0-9_-])"
# kind → pattern; the group `secret` is what is taken out (the whole match, where there is none).
_SHAPES: Final[tuple[tuple[str, re.Pattern[str]], ...]] = tuple(
    (kind, re.compile(pattern))
    for kind, pattern in (
        ("private key", r"-----BEGIN [A-Z0-9 ]*PRIVATE KEY-----[\s\S]*?(?:-----END [A-Z0-9 ]*PRIVATE KEY-----|\Z)"),
        ("Hugging Face token", _START + r"(?:hf|api_org)_[A-Za-z0-9]{20,}"),
        ("API key", _START + r"sk-(?=[A-Za-z0-9_-]*[A-Za-z0-9_]{16})[A-Za-z0-9_-]{20,}"),
        ("GitHub token", _START + r"(?:gh[pousr]_[A-Za-z0-9]{20,}|github_pat_[A-Za-z0-9_]{20,})"),
        ("AWS access key", _START + r"(?:AKIA|ASIA)[0-9A-Z]{16}(?![0-9A-Za-z])"),
        ("Google API key", _START + r"(?:AIza[0-9A-Za-z_-]{30,}|GOCSPX-[0-9A-Za-z_-]{20,}|ya29\.[0-9A-Za-z_.-]{20,})"),
        ("RunPod key", _START + r"rpa_[A-Za-z0-9]{20,}"),
        ("Weights & Biases key", _START + r"wandb_v\d+_[A-Za-z0-9_]{20,}"),
        ("Weights & Biases key", r"wandb\s+login\s+(?:--?\S+\s+)*(?P<secret>[0-9a-f]{40})(?![0-9a-f])"),
        ("Slack token", _START + r"(?:xox[a-z]|xapp)-[A-Za-z0-9-]{10,}"),
        ("JSON web token", _START + r"eyJ[A-Za-z0-9_-]{8,}\.eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]*"),
        (
            "password in a URL",
            r"(?<![A-Za-z0-9+.-])[A-Za-z][A-Za-z0-9+.-]*+://[^\s/:@'\"]*:(?P<secret>[^\s/@'\"$\[][^\s/@'\"]*)@",
        ),
        ("bearer token", r"(?i:authorization['\"]?\s*[:=]\s*['\"]?(?:bearer|basic|token))\s+(?P<secret>[\w.~+/=-]+)"),
        ("bearer token", r"\b[Bb]earer\s+(?P<secret>(?=[\w.~+/=-]*\d)[\w.~+/=-]{8,}|[\w.~+/=-]{24,})"),
    )
)
# NAME=value, name = value, NAME: value (as in an error's text), --name value, "name": "value".
_NAMED: Final = re.compile(
    r"""(?<![A-Za-z0-9_.-])(?P<dashes>-{0,2})(?P<name>[A-Za-z][A-Za-z0-9_.-]*+)"""
    r"""(?:["']?(?:=|\s*+:\s*+|[ ]++=[ ]++)|(?P<gap>[ \t]++))"""
)
_VALUE: Final = re.compile(r"""(?P<quote>["'])(?P<quoted>[^"'\n]*)(?P=quote)|[^\s"';&|,)}\]]+""")
_WORDS: Final = ("token", "secret", "password", "passwd", "passphrase", "apikey", "credential", "credentials")
_PAIRS: Final = (("api", "key"), ("access", "key"), ("secret", "key"), ("private", "key"), ("auth", "key"))
# Before TOKEN: a token of a text, not of a person. After any of the words: something about the secret, not itself.
_OF_A_TEXT: Final = re.compile(
    "pad|eos|bos|unk|mask|sep|cls|stop|special|start|end|image|next|last|first|per|max|min|num|new|prompt|system|user|"
    "assistant|think|bot|eot|eom|audio|video|fim|prefix|suffix|middle"
)
_ABOUT: Final = re.compile(
    "path|file|dir|folder|name|type|ids?|count|limit|len|length|size|url|uri|env|var|index|pos|position|budget|"
    "strategy|embeddings?|words?|classification|level|loss|mode|ttl|expiry"
)
_REFERENCE: Final = re.compile(r"[$`]|%\w+%|\{\{|<|\*{3}|\[redacted|(?:~|\.{0,2})/|file:|gs:|s3:")
_PLAIN: Final = re.compile(r"[-+]?\d+(?:\.\d+)?|(?i:true|false|none|null|yes|no|on|off|auto|required|missing|invalid)")


def is_secret_name(name: str) -> bool:
    """Whether a variable, a flag or a key of this name holds a secret: `HF_TOKEN`, `--api-key`, `db.password`."""
    shouted = name == name.upper()
    parts = [part for part in re.split(r"[_.-]+", re.sub(r"([a-z0-9])([A-Z])", r"\1_\2", name).lower()) if part]
    while parts and parts[-1].isdigit():
        parts.pop()
    if not parts or _ABOUT.fullmatch(parts[-1]):
        return False
    # A shouted name is a variable's and may bear the word anywhere; `secret_word` in small letters is a task's.
    for at in range(len(parts)) if shouted else (len(parts) - 1,):
        before = parts[at - 1] if at else ""
        if parts[at] == "token" and _OF_A_TEXT.fullmatch(before):
            continue
        if parts[at] in _WORDS or (before, parts[at]) in _PAIRS:
            return True
    return False


def find(value: Any) -> list[Found]:
    """The secrets in a text, or anywhere in a mapping or list of texts, in order of place."""
    return [Found(kind, where) for kind, where in _search(value, "", "")]


def redact(text: str) -> str:
    """`text` with `[redacted]` in place of each secret; a second time changes nothing."""
    parts, at = [], 0
    for start, end, _ in _spans(text):
        parts += [text[at:start], REDACTED]
        at = end
    return "".join([*parts, text[at:]])


def redact_all(value: Any) -> Any:
    """`value` (texts, mappings and lists of them) with `redact` applied to every text, and to what secret keys hold."""
    if isinstance(value, str):
        return redact(value)
    if isinstance(value, Mapping):
        return {
            redact(key): REDACTED if isinstance(item, str) and _held(key, item) else redact_all(item)
            for key, item in value.items()
        }
    return [redact_all(item) for item in value] if isinstance(value, list | tuple) else value


def _search(value: Any, where: str, name: str) -> Iterator[tuple[str, str]]:
    if isinstance(value, Mapping):
        for key, item in value.items():
            at = f"{where}.{redact(str(key))}" if where else redact(str(key))
            yield from ((kind, at) for _, _, kind in _spans(str(key)))
            yield from _search(item, at, str(key))
    elif isinstance(value, list | tuple):
        for index, item in enumerate(value):
            yield from _search(item, f"{where}[{index}]", "")
    elif isinstance(value, str):
        spans = _spans(value)
        if not spans and name and _held(name, value):
            yield "secret by its name", where
        yield from ((kind, where or f"character {start + 1}") for start, _, kind in spans)


def _held(name: str, value: str) -> bool:
    return is_secret_name(name) and _is_value(value)


def _is_value(text: str) -> bool:
    return bool(text) and not _REFERENCE.match(text) and not _PLAIN.fullmatch(text)


def _spans(text: str) -> list[tuple[int, int, str]]:
    """(start, end, kind) of every secret, without overlaps, in order."""
    found = [
        (*match.span("secret" if "secret" in pattern.groupindex else 0), kind)
        for kind, pattern in _SHAPES
        for match in pattern.finditer(text)
    ]
    found += _named(text)
    spans: list[tuple[int, int, str]] = []
    for start, end, kind in sorted(found, key=lambda span: (span[0], -span[1])):
        if text[start:end].startswith(REDACTED):
            continue
        if spans and start < spans[-1][1]:
            spans[-1] = (spans[-1][0], max(end, spans[-1][1]), spans[-1][2])
        else:
            spans.append((start, end, kind))
    return spans


def _named(text: str) -> Iterator[tuple[int, int, str]]:
    done = 0
    for match in _NAMED.finditer(text):
        if match.start() < done or (match["gap"] and match["dashes"] != "--") or not is_secret_name(match["name"]):
            continue
        held = _VALUE.match(text, match.end())
        if held is None:
            continue
        start, end = held.span("quoted" if held["quote"] else 0)
        if _is_value(text[start:end]):
            done = end
            yield start, end, "secret by its name"
