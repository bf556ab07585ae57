"""The copy world: examples as turns, a graded reward."""

from __future__ import annotations

import asyncio

import pytest

from rollbook.envs.toolset import ToolSet
from rollbook.errors import UsageError
from rollbook.trace.message import Role
from rollbook.trace.task import Task
from rollbook.worlds.copy_words import CopyWords
from tests.worlds.made import played, rewards

TASK = Task(id="t", prompt="apple river stone", target="apple river stone")


def test_a_task_has_as_many_different_words_as_asked() -> None:
    for words in (1, 3, 6):
        for task in CopyWords(words).tasks(20):
            assert task.prompt == task.target
            assert len(set(str(task.target).split())) == words
    for bad in (0, 7):
        with pytest.raises(UsageError, match="words is 1 to 6"):
            CopyWords(bad)


def test_two_examples_of_the_same_length_come_first() -> None:
    messages = asyncio.run(CopyWords(2).setup(TASK))
    assert [message.role for message in messages] == [
        Role.SYSTEM,
        Role.USER,
        Role.ASSISTANT,
        Role.USER,
        Role.ASSISTANT,
        Role.USER,
    ]
    assert messages[1].content == messages[2].content == "red cat"
    assert messages[-1].content == "apple river stone"
    assert len(ToolSet.of(CopyWords())) == 0


@pytest.mark.parametrize(
    ("said", "total", "exact"),
    [
        ("apple river stone", 1.0, 1.0),
        ("Apple, River, Stone.", 1.0, 1.0),
        ("apple river", 2 / 3, 0.0),
        ("apple stone river", 1 / 3, 0.0),
        ("apple river stone and more words", 0.5, 0.0),
        ("so apple river stone", 0.0, 0.0),
        ("", 0.0, 0.0),
    ],
)
def test_words_in_their_place_count(said: str, total: float, exact: float) -> None:
    given = rewards(CopyWords(), played(TASK, said))
    assert (given.total, given.metrics["exact"]) == (pytest.approx(total), exact)


def test_without_a_reply_nothing_counts() -> None:
    assert rewards(CopyWords(), played(TASK)).total == 0.0
