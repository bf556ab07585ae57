"""What may be said on the command line of how advantages are computed."""

from __future__ import annotations

from collections.abc import Callable

import click

from rollbook.rewards import DEFAULT_ESTIMATOR, ESTIMATORS

__all__ = ["ONE_GROUP", "estimator_options"]

ONE_GROUP = [name for name, row in ESTIMATORS.items() if not row.whole_batch]
"""Estimators that can close a group without the others of its batch."""


def estimator_options(command: Callable[..., None]) -> Callable[..., None]:
    """The options, in their order."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


_OPTIONS = (
    click.option(
        "--estimator",
        type=click.Choice(ONE_GROUP),
        default=DEFAULT_ESTIMATOR,
        show_default=True,
        help="How advantages are computed from the rewards of a group.",
    ),
    click.option(
        "--outcome-part",
        metavar="PART",
        help="The reward part that must differ in a group to learn from it. [default: any difference counts]",
    ),
)
