"""What every renderer over a tokenizer of ours gives beside rendering and parsing: ids as text, and back for audits."""

from __future__ import annotations

from rollbook.render.encode import Encoder
from rollbook.render.stream import TextStream
from rollbook.render.vocabulary import TokenText, show_bytes
from rollbook.trace.node import TokenIds

__all__ = ["TextSide"]


class TextSide:
    """The base of the renderers that hold the tokenizer. Stateless but for caches."""

    def __init__(self, encoder: Encoder, begin: str | None) -> None:
        self._encoder = encoder
        self._begin = begin

    @property
    def control_ids(self) -> frozenset[int]:
        """Tokens that only the template and the policy write, never content."""
        return self._encoder.control

    @property
    def control_tokens(self) -> dict[str, int]:
        """Spelling and id of every control token; tokens of nothing but blanks are text and not among them."""
        control = self._encoder.control
        return {text: token for text, token in self._encoder.added.items() if token in control}

    @property
    def begin_id(self) -> int | None:
        """The begin-of-sequence token; None: the model names none."""
        return None if self._begin is None else self._encoder.added.get(self._begin)

    def encode(self, text: str) -> TokenIds:
        """`text` as content behind a control token, as a reply stands: never a control token itself; lone surrogates
        as their escape."""
        return self._encoder.encode_content(text, behind=True)

    def decode(self, token_ids: TokenIds) -> str:
        """Text for people."""
        return show_bytes(self._encoder.vocabulary.join(token_ids.tolist()))

    def stream(self) -> TextStream:
        """Text for people while tokens are still coming."""
        return TextStream(self._encoder.vocabulary)

    def show(self, token_ids: TokenIds) -> TokenText:
        """Text for people, with the characters of each token."""
        return self._encoder.vocabulary.show(token_ids)

    def reencode(self, token_ids: TokenIds) -> TokenIds:
        """What the tokenizer makes of the decoded text, control tokens parsed: where it differs, re-encoding would
        have drifted."""
        return self._encoder.reencode(token_ids)

    def spelled_control(self, text: str, start: int = 0) -> tuple[int, str] | None:
        """The first control token that `text` spells at `start` or later: (position, token). None: it spells none."""
        return self._encoder.spelled_control(text, start)
