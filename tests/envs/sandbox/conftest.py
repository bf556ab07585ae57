"""Every kind of sandbox that works here."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rollbook.envs.sandbox import Sandbox, SandboxLimits
from rollbook.envs.sandbox.namespaces import Namespaces
from tests.envs.sandbox.made import LIMITS, NAMES, provider, use

USUAL = [name for name in NAMES if name.endswith("-user")]


def working(name: str) -> Namespaces:
    found = provider(name)
    if found is None:
        if name in USUAL and not any(map(provider, NAMES)):
            pytest.fail("no sandbox works here; install bubblewrap, or allow user namespaces")
        pytest.skip(f"{name} does not work on this machine")
    return found


@pytest.fixture(params=NAMES)
def made(request: pytest.FixtureRequest) -> Namespaces:
    """Each kind with each kind of rights."""
    return working(request.param)


@pytest.fixture(params=USUAL)
def usual(request: pytest.FixtureRequest) -> Namespaces:
    """What is chosen where it works; for the tests that take long."""
    return working(request.param)


@pytest.fixture
def best() -> Namespaces:
    """The first of the usual ones that works; for what is the same code in all of them, or takes very long."""
    return working(next((name for name in USUAL if provider(name)), USUAL[0]))


@pytest.fixture
def inside(made: Namespaces, tmp_path: Path) -> Callable[..., Any]:
    """Runs an async function in a new sandbox of each kind."""

    def run(work: Callable[[Sandbox], Any], limits: SandboxLimits = LIMITS, network: bool = False) -> Any:
        return use(tmp_path, made, work, limits, network)

    return run
