"""Only tokens that were made with the renderer at hand are judged by it."""

from __future__ import annotations

import pytest

from rollbook.audit.origin import foreign_template, foreign_tokenizer, policies_of
from rollbook.render.protocol import RendererInfo
from rollbook.trace import PolicyRecord
from tests.audit.build import Build, sound

INFO = RendererInfo(
    name="n",
    tokenizer_hash="tok",
    template_hash="tem",
    vocab_size=1,
    stop_ids=frozenset(),
    tool_prompt="p",
    settings={"date": "2026-01-31"},
)


def policy(tokenizer: str = "tok", template: str = "tem", prompt: str | None = "p", **settings: object) -> PolicyRecord:
    return PolicyRecord(
        name="p",
        tokenizer_hash=tokenizer,
        template_hash=template,
        tool_prompt=prompt,
        template_settings={"date": "2026-01-31", **settings},
    )


@pytest.mark.parametrize(
    ("policies", "tokens", "template"),
    [
        ([policy()], None, None),
        ([policy(), policy()], None, None),
        ([], "unknown_tokenizer", "unknown_tokenizer"),
        ([policy(""), policy()], "unknown_tokenizer", "unknown_tokenizer"),
        ([policy("x"), policy()], "other_tokenizer", "other_tokenizer"),
        ([policy(template="")], None, "unknown_template"),
        ([policy(), policy(template="x")], None, "other_template"),
        ([policy(prompt=None)], None, "other_tool_prompt"),
        ([policy(), policy(date="2026-02-01")], None, "other_settings"),
        ([policy(variables={"a": 1})], None, "other_settings"),
    ],
)
def test_why_tokens_are_foreign(policies: list[PolicyRecord], tokens: str | None, template: str | None) -> None:
    assert foreign_tokenizer(policies, INFO) == tokens
    assert foreign_template(policies, INFO) == template


def test_the_policies_of_nodes_are_those_of_their_calls() -> None:
    trace = sound()
    assert policies_of(trace, [0]) == []
    assert policies_of(trace, [0, 1]) == list(trace.head.policies)
    assert policies_of(Build().observe().end(), [0]) == []
