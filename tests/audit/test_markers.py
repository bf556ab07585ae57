"""Markers that a policy sampled and the parser took for text: call syntax that nobody read, or none at all."""

# ruff: noqa: RUF001 (the bars are the family's own)

from __future__ import annotations

import json
from functools import cache

import numpy as np
import pytest

from rollbook.audit import Status
from rollbook.render import ChatRenderer, RendererConfig
from rollbook.trace import Trace
from tests.audit.build import Build, Spelling, check, sound
from tests.audit.rendered import CALL, rolled, small
from tests.cases.case import Script, Talk, reply, run_one
from tests.render.families import CONTROL, MARKERS, SMALL, small_tokenizer, template

NAME = "markers_in_content"
OPENS = "<｜tool▁calls▁begin｜>"
FOREIGN = (OPENS, "<｜tool▁calls▁end｜>", "<｜tool▁call▁begin｜>", "<｜tool▁call▁end｜>", "<｜tool▁sep｜>")
DEEPSEEK = f"{OPENS}<｜tool▁call▁begin｜>double<｜tool▁sep｜>{{}}<｜tool▁call▁end｜><｜tool▁calls▁end｜>"


@cache
def hermes() -> tuple[ChatRenderer, dict[str, int]]:
    """A Hermes reader over a vocabulary that also has the markers of DeepSeek, and its added tokens."""
    tokenizer = small_tokenizer((*CONTROL, *MARKERS, *FOREIGN))
    added = {entry["content"]: int(entry["id"]) for entry in json.loads(tokenizer)["added_tokens"]}
    config = RendererConfig(name="mixed", stop_ids=frozenset({added["<|im_end|>"], added["<|endoftext|>"]}))
    return ChatRenderer.build(tokenizer, template("qwen3"), config), added


def mixed(*texts: str) -> Trace:
    """A rollout of the mixed reader, markers sampled as control tokens."""
    renderer, added = hermes()
    return rolled(renderer, *texts, stop=added["<|im_end|>"])


def sampled(*parts: str) -> Trace:
    """One turn of the mixed reader: a part that is an added token is that token, any other is ordinary tokens, and so
    is a part behind ``\\0``."""
    renderer, added = hermes()
    plain = [(part.removeprefix("\0"), part in added) for part in parts]
    ids = [token for part, own in plain for token in ([added[part]] if own else renderer.encode(part).tolist())]
    return run_one(Talk, Script([reply([*ids, added["<|im_end|>"]])]), renderer=renderer)


def test_markers_of_another_family_are_text_that_nobody_read() -> None:
    renderer, added = hermes()
    unread, none = mixed("Hm. " + DEEPSEEK), mixed("It is 8.")
    assert [len(trace.turns()[0].message.tool_calls) for trace in (unread, none)] == [0, 0]
    row = check(NAME, unread, none, renderer=renderer)
    assert (row.status, row.value, row.n, row.details["without_call"]) == (Status.INFO, 0.5, 2, 1)
    assert "name the call format" in row.says
    (finding,) = row.findings
    assert (finding.rollout, finding.node) == (unread.id, 1)
    assert finding.text == f"content holds {OPENS!r}, sampled as a control token"
    assert finding.token is not None
    assert unread.graph[1].token_ids[finding.token] == added[OPENS]


@pytest.mark.parametrize("name", SMALL)
def test_a_real_rollout_has_none(name: str) -> None:
    renderer, stop = small(name)
    row = check(NAME, rolled(renderer, CALL, "It is 8.", stop=stop), renderer=renderer)
    assert (row.value, row.n, row.found) == (0.0, 2, 0)


def test_a_marker_that_ordinary_tokens_spell_is_text() -> None:
    renderer, _ = hermes()
    trace = sampled("say ", "\0" + OPENS)
    assert OPENS in trace.turns()[0].message.content
    assert check(NAME, trace, renderer=renderer).value == 0.0


def test_a_marker_that_was_read_is_no_text_although_content_spells_it_too() -> None:
    renderer, added = hermes()
    trace = sampled("\0<tool_call>", " is how: ", "<tool_call>", '{"name": "double"}', "</tool_call>")
    turn = trace.graph[1]
    assert "<tool_call>" in turn.message.content
    assert added["<tool_call>"] in turn.sampled_ids
    assert check(NAME, trace, renderer=renderer).value == 0.0


def test_one_that_is_sampled_beside_an_ordinary_spelling_counts() -> None:
    renderer, added = hermes()
    trace = sampled("\0" + OPENS, " opens: ", OPENS)
    (finding,) = check(NAME, trace, renderer=renderer).findings
    assert finding.token is not None
    assert trace.graph[1].token_ids[finding.token] == added[OPENS]


def test_a_closing_marker_of_nothing_beside_a_call_is_found_without_a_place() -> None:
    """Two were sampled and one of them was read: which one is text, the record does not say."""
    renderer, _ = hermes()
    trace = sampled("<tool_call>", '{"name": "double"}', "</tool_call>", "</tool_call>")
    row = check(NAME, trace, renderer=renderer)
    assert (row.value, row.details["without_call"]) == (1.0, 0)
    assert (row.findings[0].node, row.findings[0].token) == (1, None)
    assert row.findings[0].text.startswith("content holds '</tool_call>'")


def test_a_marker_in_reasoning_is_no_content() -> None:
    renderer, added = hermes()
    trace = sampled("<think>", "a draft ", OPENS, "</think>", "It is 8.")
    assert added[OPENS] in trace.graph[1].sampled_ids
    assert check(NAME, trace, renderer=renderer).value == 0.0


def test_a_token_that_ends_turns_is_no_marker() -> None:
    renderer, _ = hermes()
    trace = sampled("It is ", "<|endoftext|>", "8.")
    assert "<|endoftext|>" in trace.turns()[0].message.content
    assert check(NAME, trace, renderer=renderer).value == 0.0


def test_without_a_renderer_it_is_not_judged() -> None:
    row = check(NAME, sound())
    assert (row.status, row.value) == (Status.NOT_JUDGED, None)
    assert "pass the run's renderer" in row.says


def test_another_tokenizer_is_skipped_and_counted() -> None:
    other = Build("a", tokenizer="other").observe().turn().end()
    row = check(NAME, other, renderer=Spelling())
    assert (row.status, row.details["other_tokenizer"]) == (Status.NOT_JUDGED, 1)
    mixed_rows = check(NAME, other, sound("c"), renderer=Spelling())
    assert (mixed_rows.value, mixed_rows.n, mixed_rows.details["other_tokenizer"]) == (0.0, 1, 1)


def test_the_place_counts_the_generation_prompt() -> None:
    renderer, added = hermes()
    trace = sampled(OPENS)
    node = trace.graph[1]
    (finding,) = check(NAME, trace, renderer=renderer).findings
    assert finding.token == int(np.flatnonzero(node.token_ids == added[OPENS])[0]) > 0
