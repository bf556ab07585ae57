"""Tasks."""

from __future__ import annotations

import msgspec
import pytest

from rollbook.trace import Message, Role, Task


def test_a_text_stands_for_one_user_message() -> None:
    said = (Message(role=Role.USER, content="hi"),)
    assert Task(id="t", prompt="hi").messages() == said
    assert Task(id="t", prompt=said).messages() == said


def test_a_task_crosses_processes_unchanged() -> None:
    task = Task(id="t", prompt=(Message(role=Role.SYSTEM, content="s"),), target={"a": [1, None]}, data={"b": 1.5})
    assert msgspec.json.decode(msgspec.json.encode(task), type=Task) == task
    with pytest.raises(AttributeError):
        task.id = "u"  # type: ignore[misc]
