"""For the scripts that existing callers run with any Python: the package of this checkout, and what it needs."""

from __future__ import annotations

import os
import sys
from importlib.util import find_spec
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def enter() -> str | None:
    """Make `import ledger` work, in .venv's Python where this one lacks a library. Why it cannot, in one line."""
    sys.path.insert(0, str(ROOT))
    if all(find_spec(name) for name in ("click", "pydantic", "sqlalchemy")):
        return None
    python = ROOT / ".venv" / "bin" / "python"
    if not python.is_file() or Path(sys.prefix).resolve() == (ROOT / ".venv").resolve():
        return f"the ledger's libraries are not installed for {sys.executable}; run {ROOT / 'scripts' / 'demo'} once"
    return os.execv(python, [str(python), *sys.argv])
