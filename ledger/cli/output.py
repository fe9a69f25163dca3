"""How values are shown: JSON for programs; for people tables, drawn on a terminal and plainly aligned in a pipe."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import click

from ledger.moments import MICROS, iso

NONE = "-"


def emit(value: Any) -> None:
    """One JSON document on stdout."""
    click.echo(json.dumps(value, indent=2, ensure_ascii=False))


def emit_line(value: Any) -> None:
    """One JSON document on one line."""
    click.echo(json.dumps(value, ensure_ascii=False))


_MOMENTS = ("_at", "_since", "_until", "_began", "_deadline")


def iso_times(value: Any, name: str = "") -> Any:
    """The same with every moment (an integer under a name that says so) as ISO 8601, UTC."""
    if isinstance(value, dict):
        return {key: iso_times(inner, key) for key, inner in value.items()}
    if isinstance(value, list):
        return [iso_times(inner) for inner in value]
    moment = isinstance(value, int) and not isinstance(value, bool) and f"_{name}".endswith(_MOMENTS)
    return iso(value) if moment else value


def clean(value: Any) -> str:
    """As one line for a terminal: what a file or a cloud said may hold control characters."""
    text = NONE if value is None or value == "" else str(value)
    return text if text.isprintable() else "".join(c if c.isprintable() else " " for c in text)


def say(text: str = "", style: str | None = None) -> None:
    """One line for people; the style shows on a terminal only."""
    line = "".join(c if c.isprintable() else " " for c in text)
    click.echo(click.style(line, **_STYLES[style]) if style and on_terminal() else line)


def complain(text: str) -> None:
    """One line on stderr. Line breaks and control characters in `text` do not reach the terminal."""
    line = "".join(c if c.isprintable() else " " for c in text)
    with suppress(OSError):
        click.echo(f"ledger: {' '.join(line.split())}", err=True)


_STYLES: dict[str, dict[str, Any]] = {
    "bad": {"fg": "red", "bold": True},
    "good": {"fg": "green"},
    "title": {"bold": True},
    "dim": {"dim": True},
    "warn": {"fg": "yellow"},
}


def on_terminal() -> bool:
    """Whether a person looks at stdout."""
    return sys.stdout.isatty()


def table(columns: Sequence[str], rows: Iterable[Sequence[Any]], *, right: Sequence[str] = ()) -> None:
    """Rows under their columns' names; the columns in `right` are aligned to the right. In a pipe nothing is cut."""
    cells = [[clean(value) for value in row] for row in rows]
    if not on_terminal():
        return _plain(columns, cells, right)
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    drawn = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False, header_style="bold")
    for name in columns:
        drawn.add_column(name, justify="right" if name in right else "left", overflow="fold", no_wrap=name in right)
    for line in cells:
        drawn.add_row(*map(Text, line))
    return Console().print(drawn)


def _plain(columns: Sequence[str], cells: list[list[str]], right: Sequence[str]) -> None:
    lines = [list(columns), *cells]
    widths = [max(len(line[i]) for line in lines) for i in range(len(columns))]
    for line in lines:
        padded = [
            text.rjust(width) if name in right else text.ljust(width)
            for name, text, width in zip(columns, line, widths, strict=True)
        ]
        click.echo("  ".join(padded).rstrip())


def facts(pairs: Iterable[tuple[str, Any]]) -> None:
    """`name  value` lines, aligned; pairs without a value are left out."""
    shown = [(name, clean(value)) for name, value in pairs if value not in (None, "")]
    width = max((len(name) for name, _ in shown), default=0)
    for name, text in shown:
        label = f"  {name.ljust(width)}"
        click.echo(f"{click.style(label, dim=True) if on_terminal() else label}  {text}")


def when(micros: int | None) -> str:
    """To the second, UTC; `-` where nobody knows."""
    return iso(micros - micros % MICROS) if micros is not None else NONE


def span(micros: float | None) -> str:
    """A length of time in its two greatest units: `45 min`, `2 h 05 min`, `3 d 4 h`."""
    if micros is None:
        return NONE
    seconds = max(0, round(micros / MICROS))
    if seconds < 60:
        return f"{seconds} s"
    minutes = seconds // 60
    if minutes < 60:
        return f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    if hours < 48:
        return f"{hours} h {minutes:02d} min"
    days, hours = divmod(hours, 24)
    return f"{days} d {hours} h"


def dollars(value: float | None) -> str:
    """`$11.96`; `?` where nobody knows."""
    return "?" if value is None else f"${value:,.2f}"


def count(number: int, one: str, many: str | None = None) -> str:
    """`1 breach`, `3 breaches`, `no breach`."""
    return f"{number or 'no'} {one if number in (0, 1) else many or one + 's'}"


@contextmanager
def progress(label: str, *, quiet: bool = False) -> Iterator[Callable[..., None]]:
    """A bar on stderr while something takes its time, if stderr is a terminal. Gives `step(done, total=None)`."""
    if quiet or not sys.stderr.isatty():
        yield lambda _done, _total=None: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    shown = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*shown, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(label, total=None)
        yield lambda done, total=None: bar.update(task, completed=done, total=total)
