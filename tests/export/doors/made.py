"""The made-up rollouts of the conformance kit, by name."""

from __future__ import annotations

from rollbook.export.conformance.made import cases, made_up_samples
from rollbook.trace.sample import Sample


def made(*names: str, experts: bool = False) -> list[Sample]:
    """The samples of these rollouts, in this order."""
    by_name = {case.name: case for case in cases()}
    return made_up_samples([by_name[name] for name in names], experts=experts)
