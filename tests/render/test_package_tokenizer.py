"""The tokenizer that the package is given: the library's ids for plain text, and none out of content that spells a
control token."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer

from rollbook.render.encode import Encoder
from rollbook.render.package_tokenizer import PackageTokenizer
from tests.render.families import CONTROL, MARKERS, encoder, tokenizer_json

MADE = PackageTokenizer(tokenizer_json(marked=True), encoder(marked=True))
LIBRARY = Tokenizer.from_str(tokenizer_json(marked=True).decode())
TEXTS = st.lists(
    st.one_of(st.sampled_from([*CONTROL, *MARKERS, "<", "im_end|>", "\udc00", "é"]), st.text(max_size=3)), max_size=6
).map("".join)


@given(TEXTS)
def test_masked_text_makes_no_control_token_and_spells_what_it_was(text):
    escaped = encoder(marked=True).escapes.pattern.sub(lambda match: f"\\u{ord(match[0]):04x}", text)
    masked = MADE.mask(text)
    ids = MADE.encode(f"<|im_start|>user\n{masked}\n")
    assert encoder(marked=True).control.isdisjoint(ids[1:])
    assert MADE.decode(ids) == f"<|im_start|>user\n{escaped}\n"
    assert MADE.is_masked(masked) == any(spelled in escaped for spelled in [*CONTROL, *MARKERS])
    assert len(masked) == len(escaped)


@given(TEXTS)
def test_offsets_are_those_of_the_library_and_end_at_each_tokens_last_character(text):
    masked = MADE.mask(text)
    given = MADE(f"user\n{masked}<|im_end|>")
    ids, offsets = given["input_ids"], given["offset_mapping"]
    assert ids == MADE.encode(f"user\n{masked}<|im_end|>")
    assert [begin for begin, _ in offsets] == sorted(begin for begin, _ in offsets)
    assert offsets[-1] == (len(masked) + 5, len(masked) + 15)
    if masked == text:
        assert ids == LIBRARY.encode(f"user\n{text}<|im_end|>", add_special_tokens=False).ids


def test_every_spelling_is_masked_where_they_overlap():
    parts = json.loads(tokenizer_json(marked=True))
    size = max(entry["id"] for entry in parts["added_tokens"])
    flags = {"special": True, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
    parts["added_tokens"] += [{"id": size + n, "content": text, **flags} for n, text in ((1, "<<"), (2, "<|x"))]
    data = json.dumps(parts).encode()
    made = PackageTokenizer(data, Encoder(data))
    assert made.encode("<<") == [size + 1]
    assert made.encode(made.mask("<<|x")) == Encoder(data).encode_content("<<|x").tolist()


def test_names_of_tokens_and_all_strings_of_a_value():
    end = encoder(marked=True).added["<|im_end|>"]
    assert MADE.convert_tokens_to_ids("<|im_end|>") == end
    assert MADE.convert_tokens_to_ids(["<|im_end|>", "no such token"]) == [end, None]
    masked = MADE.mask_all({"<think>": ["<think>", 1, None, {"a": ("<think>",)}]})
    assert "<think>" not in str(masked)
    assert masked[MADE.mask("<think>")][1:] == [1, None, {"a": [MADE.mask("<think>")]}]
