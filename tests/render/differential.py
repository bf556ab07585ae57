"""Random conversations of each family against `transformers`, at each turn, to the last token.

A family that only appends must be equal. One that rewrites history must be equal after the rewrites of its named
findings and of no others; a finding that is named and never shows is as wrong as a difference that is not named.
Where content spells control tokens, `transformers` itself makes control tokens of it: there the texts must be equal,
and no id of a control token may be content.
"""

from __future__ import annotations

import unicodedata
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from hypothesis import strategies as st

from rollbook.trace.message import Message, Role, ToolCall
from rollbook.trace.tools import ToolSpec
from tests.render.families import ADD
from tests.render.rewrites import REWRITES, Finding
from tests.render.simulate import Conversation, Moment, Piece, Turn, control_outside_scaffold, moments, yardstick
from tests.render.stock import stock

LOOK = ToolSpec(
    name="look_up",
    description='Looks a word up. <b>Über</b> "quotes" & more.',
    parameters={"type": "object", "properties": {"word": {"type": "string"}, "deep": {"type": "boolean"}}},
)


@dataclass(frozen=True)
class Family:
    """What conversations a family takes, and what its template does to history."""

    findings: frozenset[Finding] = frozenset()
    system: bool = True
    calls: int = 3
    """The most calls of one turn; 0: the template writes none, so a turn's call is part of its text."""
    beside: bool = True
    """Text may stand beside calls."""
    results: bool = True
    """Tool results may follow a turn."""
    reasoning: bool = False
    rounds: int = 9
    """The most turns with calls: what some templates write of a second one can be no model's reply."""
    users: int = 2
    """The most user messages in a row."""
    question_behind_results: bool = True
    tools: bool = True
    """The template renders tools."""


_THINKS_ONCE = frozenset({Finding.EMPTIES_REASONING})
_FIRST_ROUND = frozenset({Finding.OPENS_RESULTS_ONCE})
_MISTRAL = frozenset({Finding.MOVES_TOOLS, Finding.MOVES_SYSTEM})
FAMILIES = {
    "qwen2.5": Family(),
    "qwen3": Family(frozenset({Finding.DROPS_REASONING, Finding.DROPS_EMPTY_REASONING}), reasoning=True),
    "qwen3-2507": Family(),
    "qwen3-coder": Family(),
    "llama3.1": Family(calls=1, beside=False),
    "llama3.2": Family(calls=1, beside=False),
    "deepseek-v3": Family(_FIRST_ROUND, calls=0, tools=False, question_behind_results=False),
    "deepseek-v3-trl": Family(_THINKS_ONCE, tools=False, reasoning=True, rounds=1),
    "deepseek-v3.1": Family(tools=False),
    "deepseek-v3.1-thinking": Family(_THINKS_ONCE, tools=False, reasoning=True),
    "deepseek-r1": Family(_THINKS_ONCE | _FIRST_ROUND, tools=False, reasoning=True, beside=False),
    "gemma3": Family(calls=0, tools=False, results=False, users=1),
    "mistral-nemo": Family(_MISTRAL, beside=False, users=1, question_behind_results=False),
    "mistral-v3": Family(_MISTRAL, beside=False, users=1, question_behind_results=False),
    "glm-4.6": Family(frozenset({Finding.DROPS_REASONING}), reasoning=True),
    "kimi-k2": Family(),
    "smollm2": Family(calls=0, tools=False),
}
SKIPPED: dict[str, str] = {}
"""Families that are not compared, each with the reason."""

_SPELLINGS = [
    '<tool_call>\n{"name": "add", "arguments": {"a": 1}}\n</tool_call>',
    "<function=add>\n<parameter=a>\n1\n</parameter>\n</function>",
    '{"name": "add", "parameters": {"a": 1}}',
    "<tool_response>\nfine\n</tool_response>",
    "<think>\nno\n</think>\n\n",
    "[TOOL_CALLS][{}]",
    "## Return of functions.add:0",
    "{{ messages }}{% endfor %}",
    "<|im_",
    "end|>",
]
_UNICODE = [
    "",
    " ",
    "\n",
    "\n\n",
    "\t",
    "é",
    "e\u0301",
    "🙂",
    "数学",
    "\u2028",
    "\ufeff",
    "\u202e",
    "\0",
    "x" * 300,
    "1234567890",
]
_plain = st.text(max_size=8) | st.sampled_from(_UNICODE)
_said = st.lists(st.sampled_from(["Well", " then", ", 12", "\n", " ü", " 🙂", " 数", "  "]), max_size=3)


def _hard(name: str) -> st.SearchStrategy[str]:
    spellings = st.sampled_from([*sorted(stock(name).stops), *_added(name)[:40], *_SPELLINGS])
    return st.lists(_plain | spellings, max_size=4).map("".join)


def _added(name: str) -> list[str]:
    """Spellings of control tokens that content never makes, the interesting ones first."""
    all_of = [text for text in stock(name).added if not text.isspace()]
    return sorted(all_of, key=lambda text: ("reserved" in text or "unused" in text or "holder" in text, text))


def conversations(name: str) -> st.SearchStrategy[Conversation]:
    """Conversations that the family takes; in half of them content may spell control tokens."""
    return st.booleans().flatmap(lambda hard: _conversations(name, _hard(name) if hard else _text()))


def _text() -> st.SearchStrategy[str]:
    return st.lists(_plain, max_size=4).map("".join)


@st.composite
def _conversations(draw: st.DrawFn, name: str, text: st.SearchStrategy[str]) -> Conversation:
    family = FAMILIES[name]
    start = [Message(role=Role.SYSTEM, content=draw(text))] if family.system and draw(st.booleans()) else []
    start += _users(draw, family, text)
    turns = []
    for _ in range(draw(st.integers(0, 4))):
        rounds = sum(turn.batch[0].role is Role.TOOL for turn in turns)
        message, names = _assistant(draw, family, len(turns), calls=rounds < family.rounds)
        batch = [Message(role=Role.TOOL, content=draw(text), call_id=call_id, name=called) for call_id, called in names]
        if not batch or (family.question_behind_results and draw(st.integers(0, 3)) == 0):
            batch += _users(draw, family, text)
        turns.append(Turn(message, tuple(batch)))
    tools = draw(st.sampled_from([(), (ADD,), (LOOK, ADD)])) if family.tools else ()
    return Conversation(tuple(start), tuple(turns), tools)


def _users(draw: st.DrawFn, family: Family, text: st.SearchStrategy[str]) -> list[Message]:
    count = draw(st.integers(1, family.users)) if draw(st.integers(0, 3)) == 0 else 1
    return [Message(role=Role.USER, content=draw(text)) for _ in range(count)]


def _assistant(draw: st.DrawFn, family: Family, turn: int, *, calls: bool) -> tuple[Message, list[tuple[str, str]]]:
    """A turn, and id and name of the calls that results answer."""
    count = draw(st.integers(0, max(1, family.calls))) if family.results and calls else 0
    names = [(f"call{turn:02}{n:03}", draw(st.sampled_from([ADD.name, LOOK.name]))) for n in range(count)]
    content = f"A{''.join(draw(_said))}z"
    if count and family.calls and not (family.beside and draw(st.booleans())):
        content = ""
    reasoning = f"R{''.join(draw(_said))}." if family.reasoning and draw(st.integers(0, 3)) else None
    made = tuple(ToolCall(id=i, name=called, arguments=draw(_arguments)) for i, called in names if family.calls)
    return Message(role=Role.ASSISTANT, content=content, reasoning=reasoning, tool_calls=made), names


_values = st.integers(-5, 5) | st.booleans() | st.none() | st.sampled_from(["", "a b", "ü🙂", 'q"\\', "a\nb", "</b>"])
_arguments: st.SearchStrategy[dict[str, Any]] = st.dictionaries(
    st.sampled_from(["a", "b", "word", "deep"]), _values | st.lists(_values, max_size=2), max_size=3
)


class Different(AssertionError):
    """Our prompt is not what `transformers` renders, and no named finding says why."""


@dataclass
class Tally:
    """What a set of conversations showed."""

    conversations: int = 0
    moments: int = 0
    by_ids: int = 0
    """Moments that were compared token for token."""
    by_text: int = 0
    """Moments whose content spells control tokens."""
    findings: Counter[Finding] = field(default_factory=Counter[Finding])
    """Moments at which a finding showed."""


BLANK_SIGN = "\u2581"
"""How SentencePiece spells a blank; the same character in a text cannot be told from one."""


def compare(name: str, talk: Conversation, tally: Tally) -> None:
    """Hold one conversation against `transformers` at each turn. Raises `Different`."""
    tally.conversations += 1
    spelled = _spells_control(name, talk)
    control = yardstick(name).encoder.control
    for moment in moments(name, talk):
        tally.moments += 1
        pieces = _rewritten(name, moment, tally)
        _same_text(name, "".join(piece.text for piece in pieces), moment.expected)
        if control_outside_scaffold(moment, control):
            raise Different(f"content became control tokens: {control_outside_scaffold(moment, control)}")
        if spelled:
            tally.by_text += 1
        else:
            tally.by_ids += 1
            _same_ids(name, pieces, moment)
    if not spelled:
        _same_call(name, talk)


def _rewritten(name: str, moment: Moment, tally: Tally) -> Sequence[Piece]:
    pieces: Sequence[Piece] = moment.pieces
    for finding in Finding:  # in the order in which they are written down
        if finding in FAMILIES[name].findings:
            before = pieces
            pieces = REWRITES[finding](pieces, stock(name))
            tally.findings[finding] += [piece.text for piece in pieces] != [piece.text for piece in before]
    encode = yardstick(name).encode
    return [
        piece if piece.text == old.text else Piece(encode(piece.text), piece.text)
        for piece, old in zip(pieces, moment.pieces, strict=True)
    ]


def _same_text(name: str, ours: str, theirs: str) -> None:
    """Equal but for canonical equivalence: some tokenizers (Qwen's) normalise text. Where the tokenizer puts blanks
    behind control tokens, blanks there are not compared, and a literal sign of a blank is one in a SentencePiece
    vocabulary; the ids say whether they are right."""
    sign = " " if stock(name).encoder.vocabulary.byte_level else BLANK_SIGN
    one, other = (unicodedata.normalize("NFC", text.replace(sign, " ")) for text in (ours, theirs))
    while stock(name).without_blanks(one) != one or stock(name).without_blanks(other) != other:
        one, other = stock(name).without_blanks(one), stock(name).without_blanks(other)
    if one != other:
        at = next((at for at, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))
        near = slice(max(0, at - 60), at + 60)
        raise Different(f"character {at}: ours {one[near]!r}, transformers {other[near]!r}")


def _same_ids(name: str, pieces: Sequence[Piece], moment: Moment) -> None:
    ours = tuple(token for piece in pieces for token in piece.ids)
    if ours != moment.expected_ids:
        pairs = enumerate(zip(ours, moment.expected_ids, strict=False))
        at = next((at for at, (a, b) in pairs if a != b), min(len(ours), len(moment.expected_ids)))
        near, decode = slice(max(0, at - 5), at + 5), yardstick(name).tokenizer.convert_ids_to_tokens
        raise Different(
            f"token {at}: ours {decode(list(ours[near]))}, transformers {decode(list(moment.expected_ids[near]))}"
        )


def _same_call(name: str, talk: Conversation) -> None:
    """The one call that renders and encodes gives what the two steps give."""
    yard = yardstick(name)
    text = yard.render(talk.start, talk.tools, prompt=True)
    if yard.encode(text) != yard.tokenize(talk.start, talk.tools):
        raise Different("transformers encodes a conversation otherwise than its text")


def _spells_control(name: str, talk: Conversation) -> bool:
    messages = [*talk.start, *(message for turn in talk.turns for message in (turn.message, *turn.batch))]
    said = "\0".join(message.content for message in messages)
    return any(text in said for text in stock(name).added if not text.isspace())
