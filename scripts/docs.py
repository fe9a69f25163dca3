"""docs/commands.md and README.md's table of commands, made from the help texts. `--check` compares and exits 1."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

import click

from ledger.cli.base import LazyGroup
from ledger.cli.main import COMMANDS, cli

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "commands.md"
README = ROOT / "README.md"
TABLE = re.compile(r"(?<=<!-- commands -->\n).*?(?=<!-- /commands -->)", re.DOTALL)
_HEAD = """# Commands

Made by `scripts/docs` from the help texts; `ledger COMMAND --help` says the same.

Which ledger: `--db`, else `LEDGER_DATABASE_URL`, else the nearest `ledger.toml` upwards. `--db`, `--sidecars` and
`--json` may stand before or after the command's name. In JSON, times are ISO 8601 (UTC) and costs are dollars; events
are printed as they are stored, their times integer microseconds. Every error is one line on stderr, and exit status 2
where nothing else is said; `LEDGER_DEBUG=1` adds the traceback.
"""


def walk(group: click.Group, context: click.Context) -> Iterator[tuple[click.Command, click.Context]]:
    """Every command below `group`, with the context that names it."""
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None, name
        inner = click.Context(command, info_name=name, parent=context)
        yield command, inner
        if isinstance(command, click.Group):
            yield from walk(command, inner)


def page() -> str:
    """docs/commands.md."""
    parts = [_HEAD]
    for command, context in walk(
        cli, click.Context(cli, info_name="ledger", terminal_width=88, **cli.context_settings)
    ):
        parts.append(f"\n## {context.command_path}\n\n```text\n{command.get_help(context)}\n```\n")
    return "".join(parts)


def table() -> str:
    """The table of commands in README.md."""
    rows = ["| command | does |", "|---|---|"]
    for name, entry in COMMANDS.items():
        command = cli.get_command(click.Context(cli), name)
        names = [name] if not isinstance(command, LazyGroup) else [f"{name} {inner}" for inner in command.lazy]
        rows.append(f"| {' · '.join(f'`ledger {each}`' for each in names)} | {entry.help} |")
    return "\n".join(rows) + "\n"


def wanted() -> dict[Path, str]:
    """Each file and what it is to be."""
    readme = README.read_text(encoding="utf-8")
    return {PAGE: page(), README: TABLE.sub(lambda _: table(), readme)}


def differing() -> list[Path]:
    """The files that are not as the help texts make them."""
    return [p for p, text in wanted().items() if not p.is_file() or p.read_text(encoding="utf-8") != text]


def main() -> int:
    """Write, or with `--check` compare."""
    differ = differing()
    for path in differ:
        print(path.relative_to(ROOT))
        if "--check" not in sys.argv[1:]:
            path.write_text(wanted()[path], encoding="utf-8")
    return 1 if differ and "--check" in sys.argv[1:] else 0


if __name__ == "__main__":
    sys.exit(main())
