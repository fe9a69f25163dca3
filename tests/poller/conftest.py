"""A scene for each test that asks for one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.poller.scene import Scene, scene

MakeScene = Callable[..., Scene]


@pytest.fixture
def make_scene(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Iterator[MakeScene]:
    """`make_scene(world, policy=[...], top="...")`; each in a folder of its own."""
    with ExitStack() as stack:

        def make(world: str = "", **more: object) -> Scene:
            folder = tmp_path / f"scene-{len(list(tmp_path.iterdir()))}"
            return stack.enter_context(scene(folder, world, capsys=capsys, **more))  # type: ignore[arg-type]

        yield make
