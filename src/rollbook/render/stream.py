"""Text for people while tokens are still coming.

Nothing is shown before it is certain: bytes that may be the start of a character wait for the rest, and only bytes that
can no longer become one turn into U+FFFD. All pieces together are the text of all tokens, whatever the pieces were.
"""

from __future__ import annotations

import codecs
from collections.abc import Iterable

from rollbook.render.vocabulary import Vocabulary

__all__ = ["TextStream"]


class TextStream:
    """The text of one sequence of tokens, piece by piece."""

    __slots__ = ("_decoder", "_vocabulary")

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._vocabulary = vocabulary
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def push(self, token_ids: Iterable[int]) -> str:
        """What `token_ids` complete; perhaps nothing."""
        return self._decoder.decode(self._vocabulary.join(token_ids))

    def finish(self) -> str:
        """The end of the sequence: U+FFFD for a character that stayed incomplete. The stream can then be used
        for a new sequence."""
        rest = self._decoder.decode(b"", final=True)
        self._decoder.reset()
        return rest
