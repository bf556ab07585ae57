"""A run: configuration, resume, and the wiring of the other rooms."""

from rollbook.run.config import RunConfig, differences
from rollbook.run.policies import load_policy, load_renderer
from rollbook.run.runner import CONCURRENCY, Progress, RunOutcome, run

__all__ = [
    "CONCURRENCY",
    "Progress",
    "RunConfig",
    "RunOutcome",
    "differences",
    "load_policy",
    "load_renderer",
    "run",
]
