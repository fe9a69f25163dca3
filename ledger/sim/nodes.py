"""YAML nodes into checked values, each with the line it stands on.

Keys are taken as they are written, because YAML 1.1 reads `off`, `on`, `yes` and `no` as booleans; so are names,
because it reads `1417` and `no` as other things than words.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NoReturn

import yaml

from ledger.moments import MICROS

INT = "tag:yaml.org,2002:int"
FLOAT = "tag:yaml.org,2002:float"
BOOL = "tag:yaml.org,2002:bool"
NULL = "tag:yaml.org,2002:null"
TEXT = "tag:yaml.org,2002:str"
LIST = "tag:yaml.org,2002:seq"
TABLE = "tag:yaml.org,2002:map"
TRUE = frozenset({"true", "yes", "on"})
MOST_SECONDS = 10_000_000_000.0  # some three hundred years: beyond it the wall clock has no date
MOST_NODES = 20_000  # aliases of aliases grow without bound


class ScenarioError(ValueError):
    """A scenario file cannot be used. The message is one line: file, line, what is wrong, the allowed words."""


def shown(value: object) -> str:
    """A value for a one-line message: quoted, and cut where it is long."""
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."


class Reader:
    """What is told of one file: its name in every message, and conversions of single nodes."""

    def __init__(self, file: str) -> None:
        self.file = file

    def fail(self, line: int, message: str) -> NoReturn:
        """Raise ScenarioError for `line` (1-based)."""
        raise ScenarioError(f"{self.file}:{line}: {' '.join(message.split())}")

    def wrong(self, node: yaml.Node, where: str, must: str) -> NoReturn:
        """Raise ScenarioError: the value at `where` must be something else."""
        self.fail(line_of(node), f"{where} must be {must}, not {written(node)}")

    def number(self, node: yaml.Node, where: str) -> float:
        """A finite number; a boolean, a date and `1:30` are none."""
        if isinstance(node, yaml.ScalarNode) and node.tag in (INT, FLOAT) and ":" not in node.value:
            try:
                value = float(scalar(node))
            except (ValueError, OverflowError):
                self.wrong(node, where, "a number")
            if math.isfinite(value):
                return value
        return self.wrong(node, where, "a number")

    def seconds(self, node: yaml.Node, where: str, low: float | None = 0.0, above: float | None = None) -> int:
        """A number of seconds as integer microseconds, at least `low`, more than `above`."""
        value = self.number(node, where)
        if low is not None and value < low:
            self.wrong(node, where, f"{low:g} or more seconds")
        if above is not None and value <= above:
            self.wrong(node, where, f"more than {above:g} seconds")
        if abs(value) > MOST_SECONDS:
            self.wrong(node, where, f"at most {MOST_SECONDS:g} seconds")
        return round(value * MICROS)

    def integer(self, node: yaml.Node, where: str, low: int = 1) -> int:
        """A whole number, at least `low`."""
        value = self.number(node, where)
        if value != int(value) or value < low or value > 2**53:
            self.wrong(node, where, f"a whole number, {low} or more")
        return int(value)

    def flag(self, node: yaml.Node, where: str) -> bool:
        """True or false."""
        if not isinstance(node, yaml.ScalarNode) or node.tag != BOOL:
            self.wrong(node, where, "true or false")
        return node.value.lower() in TRUE

    def text(self, node: yaml.Node, where: str) -> str:
        """A scalar as it is written; not empty."""
        if not isinstance(node, yaml.ScalarNode) or is_null(node) or not node.value.strip():
            self.wrong(node, where, "a word")
        return str(node.value)

    def word(self, node: yaml.Node, where: str, allowed: Sequence[str]) -> str:
        """One of the `allowed` words."""
        if not isinstance(node, yaml.ScalarNode) or node.value not in allowed:
            self.fail(line_of(node), f"{where} has no value {written(node)}; allowed: {', '.join(allowed)}")
        return str(node.value)

    def items(self, node: yaml.Node, where: str) -> list[yaml.Node]:
        """The nodes of a list."""
        if not isinstance(node, yaml.SequenceNode):
            self.wrong(node, where, "a list")
        return list(node.value)

    def plain(self, node: yaml.Node, where: str) -> Any:
        """Free-form JSON: objects, lists, words, finite numbers, true, false, null."""
        budget = [MOST_NODES]
        return self._plain(node, where, (), budget)

    def _plain(self, node: yaml.Node, where: str, above: tuple[int, ...], budget: list[int]) -> Any:
        budget[0] -= 1
        if id(node) in above or budget[0] < 0:
            self.fail(line_of(node), f"{where} holds an alias of itself, or too many")
        inside = (*above, id(node))
        if isinstance(node, yaml.MappingNode):
            table = Table(self, node, where, None)
            return {key: self._plain(value, f"{where}.{key}", inside, budget) for key, value in table.entries()}
        if isinstance(node, yaml.SequenceNode):
            return [self._plain(value, where, inside, budget) for value in node.value]
        if is_null(node):
            return None
        if node.tag == BOOL:
            return self.flag(node, where)
        if isinstance(node, yaml.ScalarNode) and node.tag in (INT, FLOAT):
            self.number(node, where)
            return scalar(node)
        return str(node.value)


class Table:
    """A mapping node: its keys checked against `allowed` (None: any), no key twice."""

    def __init__(self, reader: Reader, node: yaml.Node, where: str, allowed: Iterable[str] | None) -> None:
        self.reader = reader
        self.where = where
        self.line = line_of(node)
        if not isinstance(node, yaml.MappingNode):
            reader.wrong(node, where, "a mapping")
        words = None if allowed is None else tuple(allowed)
        self.keys: dict[str, yaml.Node] = {}
        self.values: dict[str, yaml.Node] = {}
        for key, value in node.value:
            if not isinstance(key, yaml.ScalarNode):
                reader.wrong(key, f"a key of {where}", "a word")
            if words is not None and key.value not in words:
                reader.fail(line_of(key), f"{where} has no key {shown(key.value)}; allowed: {', '.join(words)}")
            if key.value in self.values:
                reader.fail(line_of(key), f"{where} has the key {shown(key.value)} twice")
            self.keys[key.value] = key
            self.values[key.value] = value

    def __contains__(self, key: str) -> bool:
        return key in self.values

    def entries(self) -> list[tuple[str, yaml.Node]]:
        """Keys and value nodes, as written."""
        return list(self.values.items())

    def get(self, key: str) -> yaml.Node | None:
        """The value node, or None where the key is left out."""
        return self.values.get(key)

    def need(self, key: str) -> yaml.Node:
        """The value node; an error that names the key where it is left out."""
        if key not in self.values:
            self.fail(f"{self.where} needs the key {shown(key)}")
        return self.values[key]

    def at(self, key: str) -> str:
        """How messages call the value of `key`."""
        return f"{self.where} {key}"

    def line_of(self, key: str) -> int:
        """The line of `key`, or of the mapping."""
        return line_of(self.keys[key]) if key in self.keys else self.line

    def fail(self, message: str, key: str | None = None) -> NoReturn:
        """Raise ScenarioError at the line of `key`, or of the mapping."""
        self.reader.fail(self.line_of(key) if key else self.line, message)

    def seconds(self, key: str, default: int | None = None, low: float | None = 0.0, above: float | None = None) -> int:
        """Microseconds; an error where the key is left out and there is no default."""
        if key not in self.values and default is not None:
            return default
        return self.reader.seconds(self.need(key), self.at(key), low, above)

    def opt_seconds(self, key: str, low: float | None = 0.0) -> int | None:
        """Microseconds, or None where the key is left out."""
        node = self.get(key)
        return None if node is None else self.reader.seconds(node, self.at(key), low)

    def integer(self, key: str, default: int | None = None, low: int = 1) -> int:
        """A whole number; an error where the key is left out and there is no default."""
        if key not in self.values and default is not None:
            return default
        return self.reader.integer(self.need(key), self.at(key), low)

    def opt_integer(self, key: str, low: int = 1) -> int | None:
        """A whole number, or None where the key is left out."""
        node = self.get(key)
        return None if node is None else self.reader.integer(node, self.at(key), low)

    def opt_text(self, key: str) -> str | None:
        """A word, or None where the key is left out."""
        node = self.get(key)
        return None if node is None else self.reader.text(node, self.at(key))

    def opt_flag(self, key: str) -> bool | None:
        """True or false, or None where the key is left out."""
        node = self.get(key)
        return None if node is None else self.reader.flag(node, self.at(key))

    def word(self, key: str, allowed: Sequence[str]) -> str:
        """One of `allowed`; an error where the key is left out."""
        if key not in self.values:
            self.fail(f"{self.where} needs the key {shown(key)}; allowed: {', '.join(allowed)}")
        return self.reader.word(self.values[key], self.at(key), allowed)

    def opt_word(self, key: str, allowed: Sequence[str]) -> str | None:
        """One of `allowed`, or None where the key is left out."""
        node = self.get(key)
        return None if node is None else self.reader.word(node, self.at(key), allowed)


def line_of(node: yaml.Node) -> int:
    """The 1-based line on which a node begins."""
    return int(node.start_mark.line) + 1


def is_null(node: yaml.Node) -> bool:
    """Whether a node is `null`."""
    return isinstance(node, yaml.ScalarNode) and node.tag == NULL


def scalar(node: yaml.ScalarNode) -> Any:
    """The Python value of a number node. Raises ValueError for one that is too long."""
    constructor = yaml.constructor.SafeConstructor()
    build = constructor.construct_yaml_int if node.tag == INT else constructor.construct_yaml_float
    return build(node)


def written(node: yaml.Node) -> str:
    """A node as a message names it."""
    if isinstance(node, yaml.MappingNode):
        return "a mapping"
    if isinstance(node, yaml.SequenceNode):
        return "a list"
    return "nothing" if is_null(node) and not node.value else shown(node.value)


def compose(data: bytes, file: str) -> yaml.Node:
    """The one document of a file. Raises ScenarioError for what is no YAML, empty, or more than one document."""
    reader = Reader(file)
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        reader.fail(data.count(b"\n", 0, error.start) + 1, f"is no UTF-8 text: {error.reason}")
    try:
        node = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.reader.ReaderError as error:
        reader.fail(text.count("\n", 0, error.position) + 1, f"is no YAML: {error.reason}")
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        reader.fail(mark.line + 1 if mark else 1, f"is no YAML: {error.problem or error.context}")
    except RecursionError:
        reader.fail(1, "is nested too deeply")
    except (yaml.YAMLError, ValueError) as error:
        reader.fail(1, f"is no YAML: {error}")
    if node is None:
        reader.fail(1, "is empty; a scenario is a mapping")
    return node


def node_of(value: Any, line: int) -> yaml.Node:
    """The node that `value` is when it is written on one line of a file (1-based) and read again."""
    mark = yaml.Mark("", 0, line - 1, 0, None, 0)
    match value:
        case dict():
            pairs = [(node_of(key, line), node_of(item, line)) for key, item in value.items()]
            return yaml.MappingNode(TABLE, pairs, mark, mark)
        case list() | tuple():
            return yaml.SequenceNode(LIST, [node_of(item, line) for item in value], mark, mark)
        case None:
            return yaml.ScalarNode(NULL, "null", mark, mark)
        case bool():
            return yaml.ScalarNode(BOOL, str(value).lower(), mark, mark)
        case int() | float():
            return yaml.ScalarNode(INT if isinstance(value, int) else FLOAT, repr(value), mark, mark)
    return yaml.ScalarNode(TEXT, str(value), mark, mark)


def read_bytes(path: Path) -> bytes:
    """The bytes of a file. Raises ScenarioError where it cannot be read."""
    try:
        return path.read_bytes()
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise ScenarioError(f"{path}:1: cannot be read: {reason}") from error
