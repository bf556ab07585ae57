"""What only a template with its tokenizer can tell: the tokens of harmless text, the start token, control tokens."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import takewhile

from rollbook.errors import ModelError
from rollbook.render.conversation import TemplateMessage, call_entry
from rollbook.render.encode import Encoder
from rollbook.render.findings import Property, TemplateFinding, Verdict
from rollbook.render.formats.families import REASONING
from rollbook.render.probe import Probe
from rollbook.render.specimens import CALL_ID, CALLS, PLAIN, say, tagged
from rollbook.render.tracked import Tracked, call_tag, message_tag

__all__ = ["token_findings"]


def token_findings(seen: Probe, encoder: Encoder) -> Iterator[TemplateFinding]:
    """Findings about tokens."""
    yield _tokens(seen, encoder)
    yield _start(seen, encoder)
    yield _control(seen, encoder)


def _tokens(seen: Probe, encoder: Encoder) -> TemplateFinding:
    """Piecewise encoding must give what the tokenizer makes of harmless text."""
    sample = seen.facts.sample
    ours = encoder.encode(sample, ())[0].token_ids.tolist()
    theirs = encoder.encode_parsed(sample.plain).tolist()
    if ours == theirs:
        meaning = "Text that is encoded piece by piece gives the tokenizer's own tokens of the whole."
        return TemplateFinding(about=Property.TOKENS, value="exact", meaning=meaning)
    at = next((i for i, (a, b) in enumerate(zip(ours, theirs, strict=False)) if a != b), min(len(ours), len(theirs)))
    meaning = (
        "the tokenizer reads text between control tokens differently when it stands alone; this kind is not "
        f"supported (token {at}: {theirs[at : at + 3]} in the whole, {ours[at : at + 3]} alone)"
    )
    return TemplateFinding(
        about=Property.TOKENS, value="differ", verdict=Verdict.UNSOUND, meaning=meaning, forbids=True
    )


def _start(seen: Probe, encoder: Encoder) -> TemplateFinding:
    text = seen.increments.template.special_tokens.get("bos_token")
    token = encoder.added.get(text or "")
    ids: list[int] = encoder.encode(seen.facts.sample, ())[0].token_ids.tolist()
    count = sum(1 for _ in takewhile(lambda each: each == token, ids))
    own = encoder.vocabulary.join(encoder.adds_bos).decode("utf-8", "replace")
    if token is None or not count:
        meaning = "A conversation begins with no start token."
        if own:
            meaning += f" The tokenizer's own defaults put {own} before a text; the template writes none."
        return TemplateFinding(about=Property.BOS, value="none", meaning=meaning)
    if count > 1:
        return TemplateFinding(
            about=Property.BOS,
            value="double",
            verdict=Verdict.UNSOUND,
            meaning=f"a conversation begins with {count} start tokens {text}; the model was trained with one",
            forbids=True,
        )
    meaning = f"A conversation begins with one {text}, written by the template."
    if own:
        meaning += f" A program that encodes the text with the tokenizer's own defaults puts {own} before it again."
    return TemplateFinding(about=Property.BOS, value="one", meaning=meaning)


def _control(seen: Probe, encoder: Encoder) -> TemplateFinding:
    """Messages that spell every control token must come out with the control tokens of harmless ones."""
    spelled = sorted(encoder.added)
    marks = {mark for pair in REASONING for mark in pair}
    text, turn = " ".join(spelled), " ".join(each for each in spelled if each not in marks)
    harmless = _conversations(seen, "harmless", "harmless")
    for (what, given), (_, plain) in zip(_conversations(seen, text, turn), harmless, strict=True):
        try:
            expected = _control_of(seen, encoder, plain)
        except ModelError:
            continue  # the template takes no such conversation
        if _control_of(seen, encoder, given) != expected:
            return TemplateFinding(
                about=Property.CONTROL,
                value="from content",
                verdict=Verdict.UNSOUND,
                meaning=f"{what} that spells control tokens makes some, or changes what the template writes",
                forbids=True,
            )
    meaning = f"Messages that spell all {len(spelled)} added tokens make none of them."
    return TemplateFinding(about=Property.CONTROL, value="safe", meaning=meaning)


def _conversations(seen: Probe, text: str, turn: str) -> list[tuple[str, list[TemplateMessage]]]:
    """Conversations with `text` in each place in turn, and what to call the place. `turn`: for an assistant's own
    text, from which templates take reasoning."""
    shape = seen.facts.shape
    called = tagged(CALLS, shape)
    given = call_entry(CALL_ID, "lookup", {"word": text}, tag=call_tag(1), as_text=shape.arguments_as_text)
    return [
        ("a message", tagged([say("user", text)])),
        ("a system message", tagged([say("system", text), PLAIN[0]])),
        ("an assistant's text", tagged([PLAIN[0], say("assistant", turn), PLAIN[2]])),
        ("a tool result", [*called[:2], {**called[2], "content": Tracked(text, message_tag(2) * len(text))}]),
        ("a call", [called[0], {**called[1], "tool_calls": [given]}, called[2]]),
    ]


def _control_of(seen: Probe, encoder: Encoder, entries: list[TemplateMessage]) -> list[int]:
    """The control tokens of a conversation."""
    made = seen.increments.template.render(entries, None, prompt=True)
    ids = encoder.encode(encoder.escapes.apply(made), ())[0].token_ids.tolist()
    return [token for token in ids if token in encoder.control]
