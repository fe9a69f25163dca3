"""The boundaries that import contracts cannot express: who writes files, how long a module is, what a file names."""

from __future__ import annotations

import ast
import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "ledger"
MODULES = sorted(PACKAGE.rglob("*.py"))
MAX_LINES = 400
MAX_PORT_LINES = 100

# Modules outside ledger/projections/ that may write files, each with what it writes. None of it is a sidecar.
MAY_WRITE: dict[str, str] = {
    "ledger/settings.py": "the ledger.toml of a new ledger",
    "ledger/sim/rehearse.py": "the files that a scenario lays down, and the world's own record",
    "ledger/sim/host.py": "a temporary folder for the socket of a world that processes share",
    "ledger/sim/wire/ssh.py": "makes the temporary folder of the simulated machines",
    "ledger/sim/wire/ssh_folder.py": "what lies on a simulated machine",
    "ledger/sim/program.py": "the database of a rehearsed ledger, copied from one that was migrated once",
    "ledger/sim/wire/rehearsed.py": "a temporary folder for the key with which the simulated machines are reached",
    "ledger/sim/search.py": "the scenarios to which failures were shrunk",
    "ledger/cli/sim.py": "the books of a world that was served",
    "ledger/cli/main.py": "opens /dev/null in the place of an output that nobody can take any more",
}


def _name(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def _dotted(node: ast.expr) -> str:
    """`os.path.join` of an attribute chain; the part before a call or a subscript is left out."""
    if isinstance(node, ast.Attribute):
        return f"{_dotted(node.value)}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else ""


def _writes_mode(call: ast.Call, position: int) -> bool:
    """Whether an `open` call asks for anything but reading; a mode that is not a literal counts as writing."""
    mode = next((k.value for k in call.keywords if k.arg == "mode"), None)
    if mode is None and len(call.args) > position:
        mode = call.args[position]
    if mode is None:
        return False
    return not (isinstance(mode, ast.Constant) and isinstance(mode.value, str) and set(mode.value) <= set("rbt"))


def _is_write(call: ast.Call) -> bool:
    dotted = _dotted(call.func)
    owner, _, name = dotted.rpartition(".")
    if dotted == "open":
        return _writes_mode(call, 1)
    if not owner and not dotted.startswith("."):
        return False
    if owner in ("os", "shutil", "io", "tempfile"):
        return (
            name in {"replace", "rename", "renames", "link", "symlink", "open", "fdopen", "truncate", "move"}
            or name.startswith("copy")
            or owner == "tempfile"
        )
    if name == "open":
        return _writes_mode(call, 0)
    if name == "replace":  # Path.replace(target); str.replace takes two, dataclasses.replace and datetime's take names
        return len(call.args) == 1 and not call.keywords
    return name in {"write_text", "write_bytes", "rename", "touch", "symlink_to", "hardlink_to"}


def file_writes(source: str) -> list[int]:
    """Lines of `source` that write, move or replace a file, or import the means to do so by a bare name."""
    lines = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call) and _is_write(node):
            lines.append(node.lineno)
        if isinstance(node, ast.ImportFrom) and node.module in ("os", "shutil", "tempfile"):
            lines += [node.lineno for a in node.names if a.name in {"replace", "rename", "move", "open", "fdopen"}]
    return sorted(lines)


@pytest.mark.parametrize("module", MODULES, ids=_name)
def test_only_the_projections_write_files(module: Path) -> None:
    name = _name(module)
    if name.startswith("ledger/projections/"):
        return
    lines = file_writes(module.read_text(encoding="utf-8"))
    if name in MAY_WRITE:
        assert lines, f"{name} writes no file any more: take it off MAY_WRITE"
    else:
        where = ", ".join(f"{name}:{line}" for line in lines)
        assert not lines, f"{where}: only ledger/projections/ writes files; else explain it in MAY_WRITE"


def test_the_allow_list_names_modules_that_are_there() -> None:
    assert [name for name in MAY_WRITE if not (ROOT / name).is_file()] == []


@pytest.mark.parametrize(
    "line",
    [
        "os.replace(a, b)",
        "os.rename(a, b)",
        "path.rename(other)",
        "path.with_suffix('.x').replace(other)",
        "(folder / name).write_text('x')",
        "open(path, 'w')",
        "open(path, mode=mode)",
        "path.open('ab')",
        "os.fdopen(fd, 'w')",
        "tempfile.NamedTemporaryFile()",
        "from os import replace",
    ],
)
def test_a_write_is_recognised(line: str) -> None:
    assert file_writes(line) == [1]


@pytest.mark.parametrize(
    "line",
    [
        "text.replace('a', 'b')",
        "moment.replace(tzinfo=UTC)",
        "dataclasses.replace(state, version=1)",
        "replace(state, version=1)",
        "open(path)",
        "path.open('rb')",
        "path.read_text()",
    ],
)
def test_what_only_reads_is_no_write(line: str) -> None:
    assert file_writes(line) == []


@pytest.mark.parametrize("module", MODULES, ids=_name)
def test_a_module_is_short_or_says_why_not(module: Path) -> None:
    text = module.read_text(encoding="utf-8")
    length = text.count("\n")
    reason = re.search(r"^\s*Length:", ast.get_docstring(ast.parse(text)) or "", re.MULTILINE)
    assert length <= MAX_LINES or reason, (
        f"{_name(module)} has {length} lines: split it, or give the reason in its docstring, on a line `Length: …`"
    )


def test_the_cloud_port_is_small() -> None:
    assert (PACKAGE / "clouds" / "port.py").read_text(encoding="utf-8").count("\n") < MAX_PORT_LINES


@pytest.mark.parametrize("folder", sorted({module.parent for module in MODULES}), ids=_name)
def test_a_package_says_what_it_is_in_one_sentence(folder: Path) -> None:
    init = folder / "__init__.py"
    assert init.is_file(), f"{_name(folder)} has no __init__.py"
    sentence = ast.get_docstring(ast.parse(init.read_text(encoding="utf-8"))) or ""
    assert re.fullmatch(r"[^.]+(\.[^\s.][^.]*)*\.", sentence), f"{_name(init)}: one sentence, ended by a full stop"


def _tracked() -> list[Path]:
    """The files of the project: what git tracks, or, in an unpacked archive, what is there."""
    if (ROOT / ".git").exists():
        listed = subprocess.run(["git", "-C", ROOT, "ls-files", "-z"], check=True, capture_output=True)
        return [ROOT / name for name in listed.stdout.decode().split("\0") if name and (ROOT / name).is_file()]
    return [path for path in ROOT.rglob("*") if path.is_file() and ".venv" not in path.parts]


def test_no_file_names_a_path_of_one_machine() -> None:
    # Put together here, so that this file does not name them either.
    foreign = [f"{'..'}/shared".encode(), f"/{'work'}/".encode()]
    found = [_name(path) for path in _tracked() if any(word in path.read_bytes() for word in foreign)]
    assert found == []
