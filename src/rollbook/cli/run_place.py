"""Where a stored run is, as an argument: a folder, or the URL of an object store."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

__all__ = ["RUN_PLACE", "RunPlace"]


class RunPlace(click.Path):
    """A path as a `Path`; a URL as the text that it is, for no path can hold one."""

    name = "run"

    def __init__(self) -> None:
        super().__init__(path_type=Path)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        return value if isinstance(value, str) and "://" in value else super().convert(value, param, ctx)


RUN_PLACE = RunPlace()
