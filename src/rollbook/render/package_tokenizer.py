"""The tokenizer that the ``renderers`` package is given: ours, in the shape that it asks for.

The package joins its own words and a message's text into one string before it encodes it, so a tokenizer cannot tell
them apart and content could make control tokens. Here it cannot: `mask` replaces the first character of each spelling
of a control token in content by a lone surrogate (which no content has any more, for those are escaped first), the
package carries that along like any other character, and `encode` puts the character back as content, which
`rollbook.render.encode` never reads as part of a control token. Content without such a spelling is not changed.
"""

from __future__ import annotations

import re
from typing import Any, cast

from tokenizers import Encoding, Tokenizer

from rollbook.errors import ModelError
from rollbook.render.encode import Encoder
from rollbook.render.tracked import CONTENT, SCAFFOLD, Tracked
from rollbook.render.vocabulary import show_bytes

__all__ = ["PackageTokenizer"]

_FIRST_MASK = 0xDC00
_MASKS = 0x400


class PackageTokenizer:
    """`encode`, `decode`, `convert_tokens_to_ids` and character offsets, without ``transformers``."""

    name_or_path = ""
    """Chooses nothing: the package's renderer is named by the user."""
    unk_token_id: int | None = None
    eos_token_id: int | None = None

    def __init__(self, tokenizer_json: bytes, encoder: Encoder) -> None:
        self._encoder = encoder
        self._whole = Tokenizer.from_str(tokenizer_json.decode("utf-8"))
        self._whole.no_truncation()
        self._whole.no_padding()
        spelled = sorted((text for text, token in encoder.added.items() if token in encoder.control), key=len)
        self._starts = re.compile(f"(?={'|'.join(map(re.escape, spelled))})" if spelled else r"(?!)")
        firsts = sorted({text[0] for text in spelled})
        if len(firsts) > _MASKS:
            raise ModelError(f"the tokenizer's control tokens begin with more than {_MASKS} different characters")
        self._masks = {first: chr(_FIRST_MASK + place) for place, first in enumerate(firsts)}
        self._firsts = {mask: first for first, mask in self._masks.items()}
        self._masked = re.compile(f"[{''.join(self._firsts)}]" if firsts else r"(?!)")

    def mask(self, text: str) -> str:
        """`text` of a message or tool, so that nothing in it can be read as a control token."""
        text = self._encoder.escapes.plain(text)
        starts = [match.start() for match in self._starts.finditer(text)]
        if not starts:
            return text
        pieces: list[str] = []
        done = 0
        for start in starts:
            pieces += [text[done:start], self._masks[text[start]]]
            done = start + 1
        return "".join([*pieces, text[done:]])

    def mask_all(self, value: Any) -> Any:
        """Every string in `value`, keys of objects too."""
        match value:
            case str():
                return self.mask(value)
            case list() | tuple():
                return [self.mask_all(item) for item in cast("list[Any]", value)]
            case dict():
                items = cast("dict[Any, Any]", value).items()
                return {self.mask_all(key): self.mask_all(item) for key, item in items}
            case _:
                return value

    def is_masked(self, text: str) -> bool:
        """Whether `mask` found something in the text that this was."""
        return self._masked.search(text) is not None

    def encode(self, text: str, *_args: Any, **_options: Any) -> list[int]:
        """Ids; control tokens are read where the package wrote them."""
        if self.is_masked(text):
            return self._encoder.encode(self._unmask(text), ())[0].token_ids.tolist()
        return self._encode_whole(text).ids

    def __call__(self, text: str, **_options: Any) -> dict[str, Any]:
        """Ids, and the characters of each."""
        if self.is_masked(text):
            return self._masked_offsets(self._unmask(text))
        encoding = self._encode_whole(text)
        return {"input_ids": encoding.ids, "offset_mapping": encoding.offsets}

    def decode(self, token_ids: list[int], *_args: Any, **_options: Any) -> str:
        """Text, control tokens spelled out, incomplete characters as U+FFFD."""
        return show_bytes(self._encoder.vocabulary.join(token_ids))

    def convert_tokens_to_ids(self, tokens: str | list[str]) -> Any:
        """The id of a token, None where there is none; or a list of them."""
        if isinstance(tokens, str):
            return self._whole.token_to_id(tokens)
        return [self._whole.token_to_id(token) for token in tokens]

    def _encode_whole(self, text: str) -> Encoding:
        return self._whole.encode(text, add_special_tokens=False)

    def _unmask(self, text: str) -> Tracked:
        tags = self._masked.sub("\0", text)
        plain = self._masked.sub(lambda match: self._firsts[match[0]], text)
        return Tracked(plain, "".join(CONTENT if tag == "\0" else SCAFFOLD for tag in tags))

    def _masked_offsets(self, text: Tracked) -> dict[str, Any]:
        """Cut at each character: a token stands in the piece of its last one."""
        ids: list[int] = []
        offsets: list[tuple[int, int]] = []
        begin = 0
        for place, piece in enumerate(self._encoder.encode(text, range(1, len(text)))):
            for token in piece.token_ids.tolist():
                ids.append(token)
                offsets.append((begin, place + 1))
            if len(piece.token_ids):
                begin = place + 1
        return {"input_ids": ids, "offset_mapping": offsets}
