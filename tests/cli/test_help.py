"""Help that a newcomer can use, and documentation that is what the commands say."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import click
import pytest

from ledger.cli.base import LazyGroup
from ledger.cli.main import COMMANDS, cli, run

ROOT = Path(__file__).resolve().parents[2]


def _docs() -> ModuleType:
    spec = importlib.util.spec_from_file_location("docs", ROOT / "scripts" / "docs.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _all() -> list[tuple[str, click.Command]]:
    found = []
    for command, context in _docs().walk(cli, click.Context(cli, info_name="ledger", **cli.context_settings)):
        found.append((context.command_path, command))
    return found


@pytest.mark.parametrize(("path", "command"), _all(), ids=lambda v: v if isinstance(v, str) else "")
def test_every_help_says_what_it_does_and_gives_an_example(
    path: str, command: click.Command, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([*path.split()[1:], "--help"]) == 0
    text = capsys.readouterr().out
    assert "Example" in text
    assert f"  {path}" in text, "an example that can be copied"
    before = text.split("Example", maxsplit=1)[0].split("\n\n", maxsplit=1)[1]
    assert len(before) > 25, before
    if not isinstance(command, LazyGroup):
        for option in ("--db", "--sidecars", "--json"):
            assert option in text


def test_the_list_of_commands_names_all_and_loads_none(capsys: pytest.CaptureFixture[str]) -> None:
    loaded = set(sys.modules)
    assert run(["--help"]) == 0
    text = capsys.readouterr().out
    for name, entry in COMMANDS.items():
        assert f"  {name} " in text
        assert entry.help in " ".join(text.split())
    assert not {m for m in set(sys.modules) - loaded if m.startswith("ledger.")}


def test_alone_it_shows_its_help_and_exits_2(capsys: pytest.CaptureFixture[str]) -> None:
    assert run([]) == 2
    assert "See what is:" in capsys.readouterr().err


def test_the_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--version"]) == 0
    assert capsys.readouterr().out.strip().replace(".", "").isdigit()


def test_readme_names_every_command_and_the_pages_are_what_the_help_says() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    section = readme.split("## Commands", maxsplit=1)[1].split("\n## ", maxsplit=1)[0]
    for path, command in _all():
        if not isinstance(command, LazyGroup):
            assert f"`{path}`" in section
    assert _docs().differing() == [], "run scripts/docs"
