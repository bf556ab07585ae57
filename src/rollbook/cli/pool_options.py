"""What may be said on the command line of how a run is carried out: workers, resources, groups, the breaker."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from rollbook.errors import ConfigError
from rollbook.rollout import GroupRules, ResourceLimit
from rollbook.rollout.breaker import BreakerRules
from rollbook.run import CONCURRENCY

__all__ = ["pool_options", "read_breaker", "read_groups", "read_limits"]

GROUPS, BREAKER = GroupRules(), BreakerRules()


def pool_options(command: Callable[..., None]) -> Callable[..., None]:
    """The options, in their order."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


_OPTIONS = (
    click.option(
        "--concurrency",
        type=click.IntRange(1),
        default=CONCURRENCY,
        show_default=True,
        help="Rollouts at once, over all workers; with 1, the same seed gives the same run.",
    ),
    click.option(
        "--workers",
        type=click.IntRange(0),
        default=0,
        show_default=True,
        help="Processes that run the rollouts; 0: this one.",
    ),
    click.option(
        "--ray",
        is_flag=False,
        flag_value="auto",
        metavar="[ADDRESS]",
        help="The workers are actors of a Ray cluster: that of this machine, or at ADDRESS.",
    ),
    click.option("--store", metavar="URL", help="Copy the run to an object store while it runs, e.g. s3://bucket/run."),
    click.option("--start-jitter", type=click.FloatRange(0), help="Seconds over which the first rollouts start."),
    click.option(
        "--limit", "limits", multiple=True, metavar="NAME=N", help="So many at once of a resource, e.g. tool:search=4."
    ),
    click.option(
        "--rate", "rates", multiple=True, metavar="NAME=N", help="So many a second, over all workers, e.g. sandbox=5."
    ),
    click.option(
        "--request-retries",
        type=click.IntRange(0),
        default=3,
        show_default=True,
        help="Requests made again after a failure in transit, per member.",
    ),
    click.option(
        "--refill",
        type=click.IntRange(0),
        default=GROUPS.refill,
        show_default=True,
        help="Dropped members of a group that are replaced.",
    ),
    click.option(
        "--min-used",
        type=click.IntRange(1),
        default=GROUPS.min_used,
        show_default=True,
        help="A group with fewer votes is dropped as a whole.",
    ),
    click.option("--enough", type=click.IntRange(1), help="Close a group at so many votes. [default: wait for all]"),
    click.option("--group-deadline", type=float, help="Seconds from a group's start to its close. [default: no limit]"),
    click.option(
        "--resample",
        type=click.IntRange(0),
        default=GROUPS.resample,
        show_default=True,
        help="Further tasks in the place of groups whose rewards are all equal.",
    ),
    click.option(
        "--breaker",
        type=click.FloatRange(0, 1),
        default=BREAKER.share,
        show_default=True,
        help="Stop above this share of errors; 1: never.",
    ),
    click.option("--metrics-port", type=click.IntRange(0, 65535), help="Live numbers for Prometheus, on 127.0.0.1."),
)


def read_groups(given: dict[str, Any]) -> GroupRules:
    """The rules of groups."""
    return GroupRules(
        enough=given["enough"],
        deadline=given["group_deadline"],
        min_used=given["min_used"],
        refill=given["refill"],
        resample=given["resample"],
    )


def read_breaker(given: dict[str, Any]) -> BreakerRules:
    """The rules of the breaker."""
    return BreakerRules(share=given["breaker"])


def read_limits(given: dict[str, Any]) -> dict[str, ResourceLimit]:
    """The limits of resources, by name. Raises `ConfigError` for what is no number."""
    limits = {name: _number(value, int, f"--limit {name}") for name, value in _pairs(given["limits"], "--limit")}
    rates = {name: _number(value, float, f"--rate {name}") for name, value in _pairs(given["rates"], "--rate")}
    return {
        name: ResourceLimit(limit=limits.get(name), per_second=rates.get(name))
        for name in dict.fromkeys([*limits, *rates])
    }


def _pairs(words: tuple[str, ...], option: str) -> list[tuple[str, str]]:
    found: dict[str, str] = {}
    for word in words:
        name, equals, value = word.rpartition("=")
        if not equals or not name:
            raise ConfigError(f"{option} {word!r}: write NAME=N, e.g. {option} engine=64")
        if name in found:
            raise ConfigError(f"{option} {name} is given twice")
        found[name] = value
    return list(found.items())


def _number(value: str, kind: type[int] | type[float], what: str) -> Any:
    try:
        return kind(value)
    except ValueError as error:
        raise ConfigError(f"{what}: {value!r} is no number") from error
