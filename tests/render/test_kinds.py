"""SentencePiece-style tokenizers: the library's own ids, exact bytes, no control token out of content."""

from __future__ import annotations

import json
import unicodedata
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer

from rollbook.errors import ModelError
from rollbook.render import ChatRenderer, RendererConfig
from rollbook.render.encode import Encoder
from rollbook.render.tracked import SCAFFOLD, Tracked, concat, scaffold, tags_of
from rollbook.trace.message import Message, Role
from rollbook.trace.runs import RunKind, expand_runs
from tests.render.kinds import BLANK, CONTROL, FLAGS, FORMS, LEGACY, kind, kind_json

SPELLED = ["\n", "\n\n", " ", "  ", "user\n", "The ans", "wer", "é", "🙂", "\0", "数学", "<0x41>", "e\u0301", "INST"]
words = st.text(max_size=4) | st.sampled_from(SPELLED)
harmless = st.lists(words, max_size=6).map("".join).filter(lambda text: not any(name in text for name in CONTROL))
texts = st.lists(words | st.sampled_from(CONTROL), max_size=6).map("".join)
tracked = st.lists(texts.map(scaffold) | texts, max_size=6).map(concat)
forms = pytest.mark.parametrize("name", FORMS)


def as_spelled(name: str, text: str) -> str:
    """What the tokenizer's own normalizer leaves of a text, and what stands in place of the names of bytes."""
    text = unicodedata.normalize("NFC", text) if name.endswith("nfc") else text
    return text.replace(BLANK, " ")


@forms
@settings(max_examples=60, deadline=None)
@given(text=harmless)
def test_harmless_text_has_the_librarys_ids(name: str, text: str) -> None:
    made, library = kind(name), Tokenizer.from_str(kind_json(name).decode())
    text = made.escapes.apply(Tracked(text)).plain
    turns = f"<s>{text}[INST] {text}[/INST]{text}</s>"
    for whole in (text, turns, text + turns, "\n" + turns):
        ids = library.encode(whole, add_special_tokens=False).ids
        assert made.encode(scaffold(whole), ())[0].token_ids.tolist() == ids
    mixed = concat([scaffold("<s>"), text, scaffold("[INST] "), text, scaffold("[/INST]"), text, scaffold("</s>")])
    assert made.encode(mixed, ())[0].token_ids.tolist() == library.encode(turns, add_special_tokens=False).ids
    behind = library.encode(f"</s>{turns}", add_special_tokens=False).ids[1:]
    assert made.encode(mixed, (), behind=True)[0].token_ids.tolist() == behind
    assert made.encode_content(text, behind=True).tolist() == library.encode(f"<s>{text}").ids[1:]


@forms
@settings(max_examples=60, deadline=None)
@given(text=texts)
def test_content_never_makes_control_tokens(name: str, text: str) -> None:
    made = kind(name)
    shown = made.escapes.apply(Tracked(text)).plain
    for behind in (False, True):
        ids = made.encode_content(text, behind=behind).tolist()
        assert made.control.isdisjoint(ids)
        found, expected = made.vocabulary.join(ids).decode(), as_spelled(name, shown)
        blank = (made.blank_behind if behind else made.blank_first) and bool(expected)
        assert found == " " * blank + expected or (found == expected and expected.startswith(" "))


@forms
@settings(max_examples=60, deadline=None)
@given(text=tracked, cuts=st.lists(st.integers(0, 40), max_size=4))
def test_cuts_and_kinds_follow_the_characters(name: str, text: Tracked, cuts: list[int]) -> None:
    """The yardstick walks over the bytes of each token."""
    made = kind(name)
    text = made.escapes.apply(text)
    places = sorted(min(cut, len(text)) for cut in cuts)
    (whole,), pieces = made.encode(text, ()), made.encode(text, places)
    ids = whole.token_ids.tolist()
    assert np.concatenate([piece.token_ids for piece in pieces]).tolist() == ids
    kinds = expand_runs(whole.runs).tolist()
    assert np.concatenate([expand_runs(piece.runs) for piece in pieces]).tolist() == kinds
    if made.vocabulary.join(ids) == text.encode():
        owners = [place for place, char in enumerate(text.plain) for _ in char.encode()]
        ends = np.cumsum([len(made.vocabulary[token]) for token in ids]).tolist()
        spans = [owners[start:end] for start, end in zip([0, *ends], ends, strict=False)]
        assert kinds == [
            RunKind.CONTENT if any(tags_of(text)[at] != SCAFFOLD for at in span) else RunKind.SCAFFOLD for span in spans
        ]
        before = [sum(span[-1] < place for span in spans) for place in places]
        assert np.cumsum([len(piece.token_ids) for piece in pieces[:-1]]).tolist() == before
    for token, run in zip(ids, kinds, strict=True):
        assert token not in made.control or run == RunKind.SCAFFOLD


@forms
@settings(max_examples=30, deadline=None)
@given(text=texts)
def test_the_tokenizers_own_ids_do_not_drift(name: str, text: str) -> None:
    made = kind(name)
    ids = made.encode_parsed(f"<s>{made.escapes.apply(Tracked(text)).plain}")[1:]
    assert made.reencode(ids).tolist() == ids.tolist()


def test_where_dummy_blanks_stand() -> None:
    found = {name: (kind(name).blank_first, kind(name).blank_behind) for name in FORMS if name.startswith("bpe")}
    assert found == {
        "bpe-legacy": (True, True),
        "bpe-always": (True, True),
        "bpe-first": (True, False),
        "bpe-never": (False, False),
        "bpe-gemma": (False, False),
        "bpe-nfc": (True, True),
    }
    (piece,) = kind("bpe-first").encode(scaffold("a<s>a"), ())
    assert kind("bpe-first").vocabulary.join(piece.token_ids.tolist()) == b" a<s>a"


def test_bytes_of_tokens() -> None:
    words = kind("bpe-legacy").vocabulary
    assert [words[CONTROL.index("[INST]")], words[5 + 0xC3], words[5 + 0x41]] == [b"[INST]", b"\xc3", b"A"]
    assert words.join([5 + byte for byte in "🙂".encode()]).decode() == "🙂"


def test_runs_of_blanks_are_text() -> None:
    made = kind("bpe-gemma")
    ids = made.encode_content("a    b\n\n<s>").tolist()
    assert made.added[4 * BLANK] in ids
    assert made.added["\n\n"] in ids
    assert made.vocabulary.join(ids) == b"a    b\n\n<s>"


def test_a_composed_character_belongs_to_content_that_is_part_of_it() -> None:
    made = kind("bpe-nfc")
    (piece,) = made.encode(concat([scaffold("ae"), "\u0301", scaffold("b")]), ())
    kinds = expand_runs(piece.runs).tolist()
    shown = list(zip([made.vocabulary[token] for token in piece.token_ids.tolist()], kinds, strict=True))
    assert [run for data, run in shown if data in (b"\xc3", b"\xa9")] == [RunKind.CONTENT] * 2
    assert shown[-1] == (b"b", RunKind.SCAFFOLD)


@pytest.mark.parametrize("name", ["bpe-legacy", "unigram-first"])
@settings(max_examples=60, deadline=None)
@given(text=texts)
def test_what_the_vocabulary_lacks_is_escaped(name: str, text: str) -> None:
    made = kind(name, fallback=False)
    ids = made.encode_content(text).tolist()
    assert 0 not in ids
    known = made.vocabulary.characters()
    expected = "".join(char if char in known else spell(char) for char in text.replace(BLANK, " "))
    assert made.vocabulary.join(ids).decode() in (expected, " " + expected)


def test_a_character_that_the_normalizer_replaces_is_not_escaped() -> None:
    made = kind("bpe-nfc", fallback=False)
    assert made.vocabulary.join(made.encode_content("\u212a\u0394").tolist()) == b" K\\u0394"


def spell(char: str) -> str:
    code = ord(char)
    width = (code >= 0x100) + (code >= 0x10000)
    return f"\\{'xuU'[width]}{code:0{(2, 4, 8)[width]}x}"


def test_scaffold_that_cannot_be_spelled_is_refused() -> None:
    with pytest.raises(ModelError, match="cannot spell plain text"):
        kind("bpe-legacy", fallback=False).encode(scaffold("é"), ())


def test_a_vocabulary_that_cannot_spell_escapes_is_refused() -> None:
    parts = json.loads(kind_json("bpe-legacy", fallback=False))
    parts["model"]["vocab"] = {("\0" if word == "7" else word): at for word, at in parts["model"]["vocab"].items()}
    parts["model"]["merges"] = [pair for pair in parts["model"]["merges"] if "7" not in "".join(pair)]
    with pytest.raises(ModelError, match="cannot spell '7'"):
        Encoder(json.dumps(parts).encode())


def changed(name: str, **change: Any) -> bytes:
    return json.dumps({**json.loads(kind_json(name)), **change}).encode()


def test_control_tokens_that_are_looked_for_in_normalized_text_are_refused() -> None:
    """With the legacy normalizer the library then finds them behind a blank only."""
    parts = json.loads(kind_json("bpe-legacy"))
    for entry in parts["added_tokens"]:
        entry["normalized"] = True
    with pytest.raises(ModelError, match="reads text between control tokens differently"):
        Encoder(json.dumps(parts).encode())


@pytest.mark.parametrize("normalizer", [{"type": "Lowercase"}, {"type": "NFD"}, {"type": "NFKC"}])
def test_normalizers_that_change_more_than_the_form(normalizer: dict[str, Any]) -> None:
    both = {"type": "Sequence", "normalizers": [normalizer, *LEGACY["normalizers"]]}
    if normalizer["type"] == "NFKC":
        assert Encoder(changed("bpe-legacy", normalizer=both)).blank_first
    else:
        with pytest.raises(ModelError, match="do not spell the text"):
            Encoder(changed("bpe-legacy", normalizer=both))


def test_what_the_post_processor_puts_in_front() -> None:
    assert kind("bpe-legacy").adds_bos == ()
    piece = {"Sequence": {"id": "A", "type_id": 0}}
    bos, eos = ({"SpecialToken": {"id": name, "type_id": 0}} for name in ("<s>", "</s>"))
    ids = {name: {"id": name, "ids": [at], "tokens": [name]} for at, name in ((1, "<s>"), (2, "</s>"))}
    pair = [piece, {"Sequence": {"id": "B", "type_id": 1}}]
    template = {"type": "TemplateProcessing", "single": [bos, piece, eos], "pair": pair, "special_tokens": ids}
    level = {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": False, "use_regex": True}
    for processor in (template, {"type": "Sequence", "processors": [level, template]}):
        made = Encoder(changed("bpe-legacy", post_processor=processor))
        assert made.adds_bos == (1,)
        assert made.encode_content("a").tolist() == kind("bpe-legacy").encode_content("a").tolist()


def test_merges_are_never_dropped_at_random() -> None:
    parts = json.loads(kind_json("bpe-legacy"))
    parts["model"]["dropout"] = 0.9
    made, text = Encoder(json.dumps(parts).encode()), "The answer is five. " * 5
    assert made.encode_content(text).tolist() == kind("bpe-legacy").encode_content(text).tolist()
    assert made.encode_parsed(text).tolist() == kind("bpe-legacy").encode_parsed(text).tolist()


TURNS = (
    "{% for message in messages %}<s>{{ message.role }}\n{{ message.content }}</s>\n{% endfor %}"
    "{% if add_generation_prompt %}<s>assistant\n{% endif %}"
)


@pytest.mark.parametrize("name", ["bpe-legacy", "bpe-first", "bpe-always", "bpe-gemma", "unigram-first"])
@settings(max_examples=20, deadline=None)
@given(question=harmless, reply=harmless.filter(str.strip), more=harmless)
def test_a_conversation_step_by_step_has_the_librarys_ids(name: str, question: str, reply: str, more: str) -> None:
    made = RENDERERS.setdefault(name, build(name))
    question, reply, more = (kind(name).escapes.apply(Tracked(text)).plain for text in (question, reply, more))
    opened = made.open([Message(role=Role.USER, content=question)], ())
    first = f"<s>user\n{question}</s>\n<s>assistant\n"
    library = kind(name).encode_parsed(f"{first}{reply}</s>\n<s>user\n{more}</s>\n<s>assistant\n").tolist()
    ids = [*opened.messages[0].token_ids.tolist(), *opened.prompt_ids.tolist()]
    assert ids == kind(name).encode_parsed(first).tolist()
    extended = made.extend(2, [Message(role=Role.USER, content=more)], ())
    behind = [*extended.messages[0].token_ids.tolist(), *extended.prompt_ids.tolist()]
    assert behind == library[-len(behind) :]
    assert library[-len(behind) - 1] == 2


def build(name: str) -> ChatRenderer:
    return ChatRenderer.build(kind_json(name), TURNS, RendererConfig(name=name, stop_ids=frozenset({2})))


RENDERERS: dict[str, ChatRenderer] = {}


def test_a_tokenizer_without_control_tokens() -> None:
    parts = json.loads(kind_json("bpe-legacy"))
    made = Encoder(json.dumps({**parts, "added_tokens": []}).encode())
    ids = made.encode_parsed("hi there")
    assert made.reencode(ids).tolist() == ids.tolist()


def test_text_without_dummy_blanks() -> None:
    made = kind("bpe-legacy")
    ids = made.encode_parsed("hi<s> there</s>you")
    assert made.text_of(ids, behind=False) == "hi<s> there</s>you"
    assert made.vocabulary.join(ids.tolist()) == b" hi<s>  there</s> you"
    first = kind("bpe-first")
    assert first.text_of(first.encode_content(" hi", behind=True), behind=True) == " hi"


def test_control_words_of_a_unigram_vocabulary_are_no_text() -> None:
    """The library's own Unigram model finds the words of control tokens in any text."""
    parts = json.loads(kind_json("unigram-never"))
    bare = Tokenizer.from_str(json.dumps({**parts, "added_tokens": []}))
    assert 1 in bare.encode("<s>").ids
    assert 1 not in kind("unigram-never").encode_content("<s>").tolist()


def test_an_unknown_token_that_is_none() -> None:
    parts = json.loads(kind_json("bpe-legacy", fallback=False))
    parts["model"]["unk_token"] = "<none>"
    with pytest.raises(ModelError, match="cannot be read: Exception: Unk token `<none>` not found"):
        Encoder(json.dumps(parts).encode())


def test_other_models_are_refused() -> None:
    model = {"type": "WordLevel", "vocab": {"a": 0, "<unk>": 1}, "unk_token": "<unk>"}
    with pytest.raises(ModelError, match="'WordLevel' is not supported"):
        Encoder(changed("bpe-legacy", model=model, added_tokens=[]))
    entry = {"id": 0, "content": "</s>", "special": True, **FLAGS}
    with pytest.raises(ModelError, match="id 0"):
        Encoder(changed("bpe-legacy", added_tokens=[entry]))
