"""Mistral's own vocabulary files: the ids of tiktoken over the same ranks."""

from __future__ import annotations

import base64
import json
from functools import cache
from typing import Any

import pytest
import tiktoken
from hypothesis import given, settings

from rollbook.errors import ModelError
from rollbook.models.tekken import tekken_json
from rollbook.render.encode import Encoder

from .samples import tekken_file, texts


@cache
def pair() -> tuple[tiktoken.Encoding, Encoder]:
    file = json.loads(tekken_file(31000))
    ranks = {base64.b64decode(entry["token_bytes"]): entry["rank"] for entry in file["vocab"][:30000]}
    library = tiktoken.Encoding("t", pat_str=file["config"]["pattern"], mergeable_ranks=ranks, special_tokens={})
    return library, Encoder(tekken_json(tekken_file(31000), "t"))


@settings(max_examples=150, deadline=None)
@given(text=texts)
def test_text_has_the_librarys_ids(text: str) -> None:
    library, made = pair()
    assert made.encode_content(text).tolist() == [token + 1000 for token in library.encode_ordinary(text)]


def test_control_tokens() -> None:
    _, made = pair()
    assert made.vocab_size == 31000
    assert [made.added[name] for name in ("<s>", "</s>", "[TOOL_CALLS]", "<SPECIAL_999>")] == [1, 2, 9, 999]


def small(**changes: Any) -> bytes:
    tokens = [{"rank": at, "token_bytes": base64.b64encode(bytes([at])).decode()} for at in range(256)]
    config = {"pattern": ".+", "default_vocab_size": 258, "default_num_special_tokens": 2}
    special = [{"rank": 1, "token_str": "</s>"}]
    return json.dumps({"config": config, "vocab": tokens, "special_tokens": special} | changes).encode()


def test_named_control_tokens() -> None:
    assert Encoder(tekken_json(small(), "t")).added == {"<SPECIAL_0>": 0, "</s>": 1}


CONFIG = {"pattern": ".+", "default_vocab_size": 258, "default_num_special_tokens": 2}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"vocab": 1}, "is no tekken file"),
        ({"vocab": [{"rank": 0, "token_bytes": "*"}]}, "token 0 are not base64"),
        ({"vocab": [{"rank": 1, "token_bytes": "YQ=="}]}, "token 0 has rank 1"),
        ({"vocab": [{"rank": 0, "token_bytes": ""}]}, "0 bytes"),
        ({"vocab": [{"rank": 0, "token_bytes": "YQ=="}]}, "holds 1 different tokens, 256"),
        ({"config": {**CONFIG, "default_num_special_tokens": 300}}, "cannot be"),
        ({"config": {**CONFIG, "default_vocab_size": 1 << 40}}, "cannot be"),
        ({"special_tokens": [{"rank": 5, "token_str": "<x>"}]}, "ids of their own below 2"),
        ({"special_tokens": [{"rank": 0, "token_str": "x"}, {"rank": 1, "token_str": "x"}]}, "ids of their own"),
    ],
)
def test_what_is_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ModelError, match=f"^t.*{message}"):
        tekken_json(small(**changes), "t")
