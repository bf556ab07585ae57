"""Environments by name."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import Any

import pytest

from rollbook.envs import registry
from rollbook.envs.protocol import Environment
from rollbook.errors import UsageError


class Garden(Environment):
    def __init__(self, size: int = 3) -> None:
        self.size = size


def broken() -> Environment:
    return 7  # pyright: ignore[reportReturnType]


class Leaves(Environment):
    def __init__(self) -> None:
        sys.exit(0)


class Falls(Environment):
    def __init__(self) -> None:
        raise ValueError("no server")


class Plain(Environment):
    def final_state(self) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        return None


class AsyncTasks(Environment):
    async def tasks(self, count: int, seed: int = 0) -> list[object]:  # pyright: ignore[reportIncompatibleMethodOverride]
        return []


def timed(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def call(*args: Any) -> Any:
        return function(*args)

    return call


class Timed(Environment):
    @timed
    async def score(self, trace: Any) -> float:
        return 1.0


class Numbered(Environment):
    name = 5  # pyright: ignore[reportAssignmentType]


HERE = f"{__name__}:Garden"
registry.register("garden-of-tests", Garden)
registry.register("garden-by-text", HERE)


def test_a_name_makes_a_new_instance_with_its_options() -> None:
    one, two = registry.make("garden-of-tests", size=5), registry.make("garden-by-text")
    assert isinstance(one, Garden)
    assert isinstance(two, Garden)
    assert (one.size, two.size) == (5, 3)
    assert registry.make("garden-of-tests") is not registry.make("garden-of-tests")


def test_names_are_sorted() -> None:
    known = registry.names()
    assert list(known) == sorted(known)
    assert {"garden-by-text", "garden-of-tests"} <= set(known)


def test_an_import_string_is_a_name() -> None:
    made = registry.make(HERE, size=1)
    assert isinstance(made, Garden)
    assert made.size == 1


def test_nothing_is_imported_before_it_is_made() -> None:
    registry.register("never-made", "this_module_does_not_exist:Thing")
    assert "this_module_does_not_exist" not in sys.modules
    with pytest.raises(UsageError, match=r"this_module_does_not_exist:Thing.*no module"):
        registry.make("never-made")


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("garden-of-test", "did you mean 'garden-of-tests'\\?; known: .*garden-by-text"),
        ("zzz", "no environment 'zzz'; known: "),
        (
            f"{__name__}:Gardn",
            r"test_registry.py\) has no 'Gardn'; did you mean 'Garden'\?; its environments: Garden, ",
        ),
        ("json:nothing", r"module json \(.*json/__init__.py\) has no 'nothing'; it has no environment at all"),
        ("json:JSONDecoder", "is a class that is none; an environment is a subclass of rollbook.Environment"),
        ("cellar_of_nobody:Cellar", r"no module 'cellar_of_nobody': no cellar_of_nobody.py in /.*PYTHONPATH"),
        ("json.nothing_here:X", "no module 'json.nothing_here': no json/nothing_here.py in /"),
        (f"{__name__}:Plain", r"write 'async def final_state' for Plain.final_state \(.*test_registry.py:\d+\)"),
        (f"{__name__}:AsyncTasks", r"write 'def tasks' for AsyncTasks.tasks \("),
        (f"{__name__}:HERE", "is a str; an environment is a subclass"),
        (f"{__name__}:broken", "made a int; an environment is a subclass"),
        (f"{__name__}:Leaves", "cannot be made: SystemExit: 0"),
        (f"{__name__}:Falls", "cannot be made: ValueError: no server"),
        (f"{__name__}:Numbered", "its `name` is 5; it must be text"),
    ],
)
def test_unknown_names_say_what_is_known(name: str, problem: str) -> None:
    with pytest.raises(UsageError, match=problem):
        registry.make(name)


def test_a_plain_wrapper_of_an_async_method_is_one() -> None:
    assert isinstance(registry.make(f"{__name__}:Timed"), Timed)


def test_an_unknown_option_says_which_there_are() -> None:
    with pytest.raises(UsageError, match=r"no option 'sise'; did you mean 'size'\?; it takes size: int = 3"):
        registry.make("garden-of-tests", sise=1)


def test_a_name_stands_for_one_thing() -> None:
    registry.register("garden-of-tests", Garden)
    with pytest.raises(UsageError, match="is taken by"):
        registry.register("garden-of-tests", broken)
    for bad in ("", "a:b"):
        with pytest.raises(UsageError, match="holds no colon"):
            registry.register(bad, Garden)
