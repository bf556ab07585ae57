"""Every kind of sandbox that works here."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rollbook.envs.sandbox import Sandbox, SandboxLimits
from rollbook.envs.sandbox.namespaces import Namespaces
from tests.envs.sandbox.made import LIMITS, NAMES, provider, use


@pytest.fixture(params=NAMES)
def made(request: pytest.FixtureRequest) -> Namespaces:
    found = provider(request.param)
    if found is None:
        if request.param == "unshare-user":
            pytest.fail("no sandbox with a user namespace works here; install util-linux and allow user namespaces")
        pytest.skip(f"{request.param} does not work on this machine")
    return found


@pytest.fixture
def inside(made: Namespaces, tmp_path: Path) -> Callable[..., Any]:
    """Runs an async function in a new sandbox of each kind."""

    def run(work: Callable[[Sandbox], Any], limits: SandboxLimits = LIMITS, network: bool = False) -> Any:
        return use(tmp_path, made, work, limits, network)

    return run
