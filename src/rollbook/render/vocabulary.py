"""The exact bytes behind each token id, and ids as text.

Byte-level tokenizers spell a byte as one printable character; SentencePiece-style ones spell a blank as ``▁`` and,
with byte fallback, a byte as ``<0x41>``. Undoing that gives the bytes of a token without the losses of a decoder: no
blank is stripped and nothing is cleaned up, so the bytes of a sequence are the bytes of its tokens one after another.
A ``▁`` in a text is a blank to a SentencePiece-style tokenizer; nothing can tell them apart afterwards. Control
tokens are their own spelling. Text for people shows bytes that are not UTF-8 as U+FFFD; the bytes stay available.
"""

from __future__ import annotations

import codecs
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import numpy.typing as npt
from tokenizers import Tokenizer

from rollbook.errors import ModelError
from rollbook.render.bare import blank_sign
from rollbook.trace.node import TokenIds

__all__ = ["TokenText", "Vocabulary", "show_bytes"]


def _byte_alphabet() -> dict[str, int]:
    """The byte that each character of a byte-level vocabulary stands for (GPT-2's table)."""
    shown = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    hidden = [byte for byte in range(256) if byte not in shown]
    return {chr(byte): byte for byte in shown} | {chr(256 + place): byte for place, byte in enumerate(hidden)}


_ALPHABET = _byte_alphabet()
_BYTE_NAMES = {f"<0x{byte:02X}>": byte for byte in range(256)}


@dataclass(frozen=True, slots=True)
class TokenText:
    """Ids as text, with the characters of each."""

    text: str
    """For people: incomplete characters are U+FFFD."""
    ends: npt.NDArray[np.int32]
    """int32, shape (tokens,): how many characters are complete after each token. A character that takes several
    tokens belongs to the token that completes it, so a token's characters are ``text[ends[i - 1]:ends[i]]``,
    perhaps none."""
    spans: npt.NDArray[np.int32]
    """int32, shape (tokens, 2): first and one behind the last of the characters that hold a byte of the token. A
    character that takes several tokens lies in the spans of all of them; bytes that are not UTF-8 lie in that of the
    U+FFFD that stands for them."""


class Vocabulary(dict[int, bytes]):
    """Bytes by token id, worked out at first use."""

    def __init__(self, tokenizer: Tokenizer, parts: Mapping[str, Any], control: Mapping[int, str]) -> None:
        super().__init__({token: _utf8(text) for token, text in control.items()})
        self.byte_level = _byte_level(parts.get("decoder"))
        """True where tokens are spelled byte by byte, False for the SentencePiece style."""
        self._sign = blank_sign(parts)
        if not self.byte_level and self._sign is None:
            raise ModelError(
                "the tokenizer is not byte-level (its decoder has no ByteLevel part), nor does it replace blanks as "
                "SentencePiece does; this kind is not supported"
            )
        self._byte_names = _BYTE_NAMES if parts["model"].get("byte_fallback") is True else {}
        self._tokenizer = tokenizer

    def __missing__(self, token: int) -> bytes:
        spelled = self._tokenizer.id_to_token(token) if token >= 0 else None
        found = f"<unknown id {token}>".encode() if spelled is None else self._bytes_of(spelled)
        self[token] = found
        return found

    def _bytes_of(self, spelled: str) -> bytes:
        if self.byte_level:
            return bytes(_spell(spelled))
        byte = self._byte_names.get(spelled)
        return _utf8(spelled.replace(self._sign or " ", " ")) if byte is None else bytes([byte])

    def missing(self) -> frozenset[int]:
        """Bytes that no token stands for alone; text that needs them cannot be encoded byte by byte."""
        names = _ALPHABET if self.byte_level else self._byte_names
        found = {byte for name, byte in names.items() if self._tokenizer.token_to_id(name) is not None}
        return frozenset(range(256)) - found

    def characters(self) -> frozenset[str]:
        """Characters that are tokens of their own (a SentencePiece-style vocabulary)."""
        single = (word.replace(self._sign or " ", " ") for word in self._tokenizer.get_vocab() if len(word) == 1)
        return frozenset(single)

    def join(self, token_ids: Iterable[int]) -> bytes:
        """The bytes that the tokens spell."""
        return b"".join(map(self.__getitem__, token_ids))

    def show(self, token_ids: TokenIds) -> TokenText:
        """Text and the characters of each token."""
        spelled = [self[token] for token in token_ids.tolist()]
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        texts = [decoder.decode(data) for data in spelled]
        ends = np.cumsum([len(text) for text in texts], dtype=np.int32)
        tail = decoder.decode(b"", final=True)
        if tail:
            ends[-1] += len(tail)
        return TokenText("".join(texts) + tail, ends, _spans(spelled))


def _spans(spelled: list[bytes]) -> npt.NDArray[np.int32]:
    owner = _owners(b"".join(spelled))
    behind = np.append(owner, owner[-1:] + 1 if len(owner) else 0)
    ends = np.cumsum([len(data) for data in spelled], dtype=np.int64)
    starts = ends - np.array([len(data) for data in spelled], np.int64)
    lasts = np.where(ends > starts, behind[np.maximum(ends - 1, 0)] + 1, behind[starts])
    return np.stack((behind[starts], lasts), axis=1).astype(np.int32)


def _owners(data: bytes) -> npt.NDArray[np.int64]:
    """The character that each byte belongs to."""
    heads = np.frombuffer(data, np.uint8) & 0xC0 != 0x80
    view, at = memoryview(data), 0
    while at < len(data):
        try:
            codecs.utf_8_decode(view[at:], "strict", True)
            break
        except UnicodeDecodeError as error:
            heads[at + error.start : at + error.end] = False
            heads[at + error.start] = True  # one U+FFFD stands for these bytes
            at += error.end
    return np.cumsum(heads) - 1


def show_bytes(data: bytes) -> str:
    """Text for people: what is not UTF-8 becomes U+FFFD."""
    return data.decode("utf-8", "replace")


def _utf8(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def _spell(token: str) -> Iterator[int]:
    for character in token:
        byte = _ALPHABET.get(character)
        yield from _utf8(character) if byte is None else (byte,)


def _byte_level(decoder: Any) -> bool:
    match decoder:
        case {"type": "ByteLevel"}:
            return True
        case {"type": "Sequence"}:
            return any(map(_byte_level, cast("dict[str, Any]", decoder)["decoders"]))
        case _:
            return False
