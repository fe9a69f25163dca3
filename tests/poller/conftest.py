"""A scene for each test that asks for one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.poller.scene import Scene, scene, scratch

MakeScene = Callable[..., Scene]


@pytest.fixture
def memory() -> Iterator[Path]:
    """A folder in memory, where there is one."""
    with TemporaryDirectory(prefix="scene-", dir=scratch()) as folder:
        yield Path(folder)


@pytest.fixture
def make_scene(memory: Path, capsys: pytest.CaptureFixture[str]) -> Iterator[MakeScene]:
    """`make_scene(world, policy=[...], top="...")`; each in a folder of its own."""
    with ExitStack() as stack:

        def make(world: str = "", **more: object) -> Scene:
            folder = memory / f"scene-{len(list(memory.iterdir()))}"
            return stack.enter_context(scene(folder, world, capsys=capsys, **more))  # type: ignore[arg-type]

        yield make
