"""What all commands share: the options that each takes, how it reaches its ledger, and groups that load on call."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ledger.cli.output import complain
from ledger.clouds.configured import open_source
from ledger.errors import StorageError
from ledger.opening import open_ledger
from ledger.source import Source

if TYPE_CHECKING:
    from ledger.edges import Edges
    from ledger.log.store import Log
    from ledger.projections.files import SidecarFolder
    from ledger.settings import Settings


@dataclass(slots=True)
class Call:
    """One call of the command line: its common options and the edges it works with."""

    source: Source = field(default_factory=lambda: open_source(os.environ))
    env: Mapping[str, str] = field(default_factory=lambda: os.environ)
    cwd: Path | None = None
    sleep: Callable[[float], None] = time.sleep
    db: str | None = None
    sidecars: str | None = None
    json: bool = False
    _settings: Settings | None = None

    def settings(self) -> Settings:
        """Which ledger, and its settings. Raises LedgerError where there is none."""
        from ledger.settings import load

        if self._settings is None:
            self._settings = load(db=self.db, sidecars=self.sidecars, cwd=self.cwd, env=self.env)
        return self._settings

    def use(self, *, sidecars: str) -> None:
        """Another folder of sidecars, where none is configured."""
        self.sidecars, self._settings = sidecars, None

    def folder(self) -> SidecarFolder | None:
        """The folder of sidecars, if one is configured."""
        settings = self.settings()
        if settings.sidecars is None:
            return None
        from ledger.projections.files import SidecarFolder

        return SidecarFolder(settings.sidecars, login=settings.login())

    @contextmanager
    def reading(self) -> Iterator[Log]:
        """The log of an existing ledger, for a command that only reads."""
        with open_ledger(self.settings(), self.source) as log:
            if words := log.connection.moved():
                complain(f"as it was then: {words}")
            yield log

    @contextmanager
    def writing(self, *, create: bool = False) -> Iterator[Log]:
        """The log, for a command that writes: its policy is the settings'. `create`: made where there is none yet."""
        with open_ledger(self.settings(), self.source, write=True, create=create) as log:
            yield log

    @contextmanager
    def edges(self, *, write: bool = True, create: bool = False) -> Iterator[Edges]:
        """What a command that speaks to the clouds works with."""
        from ledger.opening import open_edges

        said: set[str] = set()

        def say(text: str) -> None:
            # Every zone may refuse for the same reason.
            if text not in said:
                said.add(text)
                complain(text)

        with open_edges(self.settings(), self.source, say, write=write, create=create, env=self.env) as edges:
            yield edges

    def project(self, log: Log, streams: Sequence[str]) -> None:
        """Write the sidecars of these runs, as every command does that has appended to them, and tell what is odd.

        Raises StorageError where a file cannot be written: what was appended stands.
        """
        folder = self.folder()
        if folder is None:
            return
        try:
            done = folder.project(log, streams)
        except StorageError as error:
            raise StorageError(f"{error}; what you asked for is recorded, `ledger project` writes the file") from error
        for written in done:
            if written.note:
                complain(written.note)


pass_call = click.make_pass_decorator(Call, ensure=True)


def _keep(context: click.Context, parameter: click.Parameter, value: Any) -> None:
    """A common option may stand before or after the command's name; the last one given counts."""
    call = context.ensure_object(Call)
    if value:
        assert parameter.name is not None
        setattr(call, parameter.name, value)


def common() -> list[click.Parameter]:
    """The options that every command takes."""
    return [
        click.Option(
            ["--db"],
            metavar="URL",
            help="The ledger's database: sqlite:///FILE or a plain path. Else LEDGER_DATABASE_URL, else the nearest "
            "ledger.toml upwards.",
            expose_value=False,
            callback=_keep,
        ),
        click.Option(
            ["--sidecars"],
            metavar="DIR",
            help="The folder of handle files. Else LEDGER_SIDECAR_DIR, else as ledger.toml says.",
            expose_value=False,
            callback=_keep,
        ),
        click.Option(
            ["--json"],
            is_flag=True,
            help="Print JSON.",
            expose_value=False,
            callback=_keep,
        ),
    ]


class Command(click.Command):
    """A command that takes the common options too. What it returns is the exit status; None is 0."""

    def __init__(self, name: str | None, *, params: list[click.Parameter] | None = None, **more: Any) -> None:
        super().__init__(name, params=[*(params or []), *common()], **more)


@dataclass(frozen=True, slots=True)
class Entry:
    """A command before it is loaded: where it stands, and its line in the list of commands."""

    module: str
    help: str
    section: str = "Commands"
    attribute: str = ""


class LazyGroup(click.Group):
    """A group whose commands are imported when called; its help imports none of them."""

    def __init__(self, *args: Any, lazy: Mapping[str, Entry], **more: Any) -> None:
        super().__init__(*args, **more)
        self.lazy = lazy

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's shape
        return list(self.lazy)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        entry = self.lazy.get(cmd_name)
        if entry is None:
            return None
        command = getattr(import_module(entry.module), entry.attribute or cmd_name.replace("-", "_"))
        assert isinstance(command, click.Command)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args[0] not in self.lazy and not args[0].startswith("-"):
            from difflib import get_close_matches

            near = get_close_matches(args[0], self.lazy, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(self.lazy)}"
            raise click.UsageError(f"there is no command {args[0]!r}: {hint}", ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        sections: dict[str, list[tuple[str, str]]] = {}
        for name, entry in self.lazy.items():
            sections.setdefault(entry.section, []).append((name, entry.help))
        width = max(len(name) for name in self.lazy)
        for section, rows in sections.items():
            with formatter.section(section):
                formatter.write_dl([(name.ljust(width), text) for name, text in rows])
