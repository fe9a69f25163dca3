"""A ledger in a folder and the simulated clouds beside it, each as processes of their own on the real clock."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]


@dataclass(slots=True)
class Served:
    """`ledger sim serve` and a ledger whose settings and environment lead there. `policy`: lines of its table."""

    folder: Path
    policy: Sequence[str] = ()
    scenario: str | None = None
    project: str = ""
    env: dict[str, str] = field(default_factory=dict)
    server: subprocess.Popen[str] | None = None

    @property
    def books_file(self) -> Path:
        """Where the server leaves the world's books."""
        return self.folder / "books.json"

    def __enter__(self) -> Served:
        self.folder.mkdir(parents=True, exist_ok=True)
        words = ["sim", "serve", "--json", "--books", str(self.books_file)]
        if self.scenario is not None:
            file = self.folder / "world.yaml"
            file.write_text(self.scenario, encoding="utf-8")
            words.append(str(file))
        self.env = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1"}
        self.server = self.start(*words, stdout=subprocess.PIPE)
        assert self.server.stdout is not None
        said = self.server.stdout.readline()
        if not said:
            raise RuntimeError(f"`ledger sim serve` did not start (exit status {self.server.wait()})")
        told = json.loads(said)
        self.project = told["project"]
        self.env |= told["environment"]
        self.run("init")
        settings = self.folder / "ledger.toml"
        text = settings.read_text(encoding="utf-8").replace('project = ""', f'project = "{self.project}"', 1)
        settings.write_text(text.replace("[policy]\n", "\n".join(["[policy]", *self.policy, ""]), 1), encoding="utf-8")
        return self

    def __exit__(self, *_: object) -> None:
        if self.server is not None and self.server.poll() is None:
            self.server.kill()
            self.server.wait()

    def start(self, *argv: object, env: Mapping[str, str] | None = None, **more: Any) -> subprocess.Popen[str]:
        """A command of the ledger as a process."""
        words = [sys.executable, "-m", "ledger", *map(str, argv)]
        return subprocess.Popen(words, cwd=self.folder, env={**self.env, **(env or {})}, text=True, **more)

    def run(self, *argv: object, fails: bool = False) -> str:
        """What a command prints. Raises RuntimeError where it fails, unless it may."""
        words = [sys.executable, "-m", "ledger", *map(str, argv)]
        done = subprocess.run(words, cwd=self.folder, env=self.env, capture_output=True, text=True, check=False)
        if done.returncode and not fails:
            raise RuntimeError(f"`ledger {' '.join(map(str, argv))}` ended with {done.returncode}: {done.stderr}")
        return done.stdout

    def json(self, *argv: object, fails: bool = False) -> Any:
        """What a command prints as JSON."""
        return json.loads(self.run(*argv, "--json", fails=fails))

    def events(self, *argv: object) -> list[dict[str, Any]]:
        """The log, whole or of a run."""
        return [json.loads(line) for line in self.run("log", *argv, "--json").splitlines()]

    def stop(self) -> dict[str, Any]:
        """Stop the clouds; the world's books."""
        assert self.server is not None
        self.server.send_signal(signal.SIGINT)
        self.server.communicate(timeout=30)
        books: dict[str, Any] = json.loads(self.books_file.read_text(encoding="utf-8"))
        return books
