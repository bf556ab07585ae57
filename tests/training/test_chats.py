"""What the model `tiny` learns from is what rollouts show."""

from __future__ import annotations

import asyncio
from pathlib import Path

import numpy as np
import pytest
from tokenizers import Tokenizer
from training.chats import HABITS, Chat, Chats, held_out

from rollbook.models import load_model
from rollbook.render import ChatRenderer, RendererConfig
from rollbook.trace import ParseStatus
from rollbook.worlds.calculator import Calculator

COUNT = 400


@pytest.fixture(scope="module")
def renderer(tmp_path_factory: pytest.TempPathFactory) -> ChatRenderer:
    files = load_model("tiny", tmp_path_factory.mktemp("cache"))
    config = RendererConfig(name="tiny", stop_ids=files.stop_ids, special_tokens=files.special_tokens)
    return ChatRenderer.build(files.tokenizer_json, files.template or "", config)


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    return Tokenizer.from_buffer(load_model("tiny", tmp_path_factory.mktemp("cache")).tokenizer_json)


async def made(stream: Chats, count: int) -> list[Chat]:
    return [await stream.next() for _ in range(count)]


@pytest.fixture(scope="module")
def chats(renderer: ChatRenderer, tokenizer: Tokenizer) -> list[Chat]:
    return asyncio.run(made(Chats(renderer, tokenizer, seed=0), COUNT))


def text(renderer: ChatRenderer, chat: Chat) -> str:
    return renderer.decode(np.array(chat.token_ids, np.int32))


def test_the_same_seed_gives_the_same_chats(renderer: ChatRenderer, tokenizer: Tokenizer, chats: list[Chat]) -> None:
    assert asyncio.run(made(Chats(renderer, tokenizer, seed=0), 20)) == chats[:20]
    assert asyncio.run(made(Chats(renderer, tokenizer, seed=1), 20)) != chats[:20]


def test_what_is_said_ends_each_turn_and_nothing_else_is_learnt(renderer: ChatRenderer, chats: list[Chat]) -> None:
    for chat in chats:
        said = renderer.decode(np.array(chat.token_ids, np.int32)[list(chat.said)])
        assert "Compute" not in said
        assert "<|im_start|>" not in said
        assert said.count("<|im_end|>") == text(renderer, chat).count("<|im_start|>assistant")


def test_prompts_are_those_of_the_environment(renderer: ChatRenderer, chats: list[Chat]) -> None:
    prompts = {task.prompt for task in Calculator(difficulty=1).tasks(600)}
    asked = {text(renderer, chat).split("<|im_start|>user\n")[1].split("<|im_end|>")[0] for chat in chats}
    assert len(asked) > 100
    assert len(asked & prompts) > 0.8 * len(asked)


def test_a_fifth_of_the_expressions_is_held_out(renderer: ChatRenderer, chats: list[Chat]) -> None:
    expressions = {f"{left}{operator}{right}" for left in range(1, 10) for right in range(1, 10) for operator in "+-*"}
    kept_back = {each for each in expressions if held_out(each)}
    assert 0.1 * len(expressions) < len(kept_back) < 0.3 * len(expressions)
    asked = {text(renderer, chat).split("Compute ")[1].split("<")[0] for chat in chats}
    assert asked & kept_back == set()
    assert asked <= expressions


def test_every_habit_is_shown_as_often_as_it_says(renderer: ChatRenderer, chats: list[Chat]) -> None:
    assert sum(HABITS.values()) == 100
    first = [text(renderer, chat).split("assistant\n")[1].split("<|im_end|>")[0] for chat in chats]
    guesses = sum(not each.startswith("<tool_call>") for each in first)
    unknown = sum('"calc"' in each for each in first)
    assert abs(guesses / COUNT - HABITS["guess"] / 100) < 0.1
    assert 0 < unknown < 0.2 * COUNT


def test_errors_are_spelled_as_the_parser_spells_them(renderer: ChatRenderer, chats: list[Chat]) -> None:
    whole = "".join(text(renderer, chat) for chat in chats)
    for status in (ParseStatus.INVALID_JSON, ParseStatus.UNKNOWN_TOOL, ParseStatus.BAD_ARGUMENTS):
        assert f"error: {status}: " in whole
    assert "error: the expression ends too early" in whole


def test_the_shipped_template_is_the_one_in_the_checkout(tmp_path: Path) -> None:
    source = Path(__file__).parents[2] / "training" / "template.jinja"
    assert load_model("tiny", tmp_path).template == source.read_text().rstrip("\n")
