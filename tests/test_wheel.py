"""The wheel is whole: what a person installs can make and upgrade a database without the checkout."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    built = subprocess.run(command, cwd=ROOT, check=False, capture_output=True, text=True)
    assert built.returncode == 0, built.stderr
    (path,) = folder.glob("handle_ledger-*.whl")
    return path


@pytest.fixture(scope="module")
def unpacked(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("unpacked")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder)
    return folder


def run_unpacked(unpacked: Path, code: str, cwd: Path) -> str:
    """What `code` prints where `ledger` is the unpacked wheel's, and the checkout is nowhere on the path."""
    isolated = f"import sys; sys.path[:] = [{str(unpacked)!r}] + [p for p in sys.path if p != {str(ROOT)!r}]; {code}"
    env = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "LEDGER_"))}
    command = [sys.executable, "-I", "-c", isolated]
    done = subprocess.run(command, cwd=cwd, env=env, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_the_migrations_are_inside(wheel: Path) -> None:
    sources = [path for path in (ROOT / "migrations").rglob("*") if path.is_file() and "__pycache__" not in path.parts]
    expected = {f"ledger/migrations/{path.relative_to(ROOT / 'migrations').as_posix()}" for path in sources}
    assert expected
    assert expected <= set(zipfile.ZipFile(wheel).namelist())


def test_it_is_typed_licensed_and_free_of_litter(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    assert "ledger/py.typed" in names
    assert any(name.endswith(".dist-info/licenses/LICENSE") for name in names)
    assert [name for name in names if "__pycache__" in name or name.startswith(("tests/", "scripts/"))] == []


def test_every_module_of_the_checkout_is_inside(wheel: Path) -> None:
    modules = {path.relative_to(ROOT).as_posix() for path in (ROOT / "ledger").rglob("*.py")}
    assert modules <= set(zipfile.ZipFile(wheel).namelist())


def test_the_package_comes_from_the_wheel(unpacked: Path, tmp_path: Path) -> None:
    assert run_unpacked(unpacked, "import ledger; print(ledger.__file__)", tmp_path) == str(
        unpacked / "ledger" / "__init__.py"
    )


def test_the_migrations_are_found_from_the_wheel(unpacked: Path, tmp_path: Path) -> None:
    code = "from ledger.log.migrate import head, locate; print(locate()); print(head())"
    where, newest = run_unpacked(unpacked, code, tmp_path).splitlines()
    assert Path(where) == unpacked / "ledger" / "migrations"
    assert newest
