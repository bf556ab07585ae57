"""Vocabularies of the ``tiktoken`` library as ``tokenizer.json``.

A rank file has one line a token, ``base64 rank``; the rank is the id, and of two neighbours those are merged first
whose joint has the lowest rank. As merges this is every way to cut a token into two ranked ones, in the order of
ranks: when the turn of a token comes, its bytes are always cut in the one way that its own merging leaves, so that
the further ways never apply. A piece of text that is a token as a whole is that token (``ignore_merges``). The
pattern that cuts text into pieces and the control tokens stand in no rank file.
"""

from __future__ import annotations

import binascii
import re
from collections.abc import Mapping
from dataclasses import dataclass

from rollbook.errors import ModelError
from rollbook.models.document import added_token, byte_level, merges_of, sequence, spelled, split, write

__all__ = ["FAMILIES", "TiktokenFamily", "is_rank_file", "read_ranks", "tiktoken_json"]

MAX_TOKENS = 1 << 21
"""Tokens of a vocabulary."""
MAX_TOKEN = 1 << 12
"""Bytes of one token."""

_WORDS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|"
_REST = r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_UPPER, _LOWER = r"\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}", r"\p{Ll}\p{Lm}\p{Lo}\p{M}"
_ENDING = "(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
_NO_HAN = r"&&[^\p{Han}]"


@dataclass(frozen=True, slots=True, kw_only=True)
class TiktokenFamily:
    """What the program beside a rank file adds to it."""

    pattern: str
    """Cuts text into pieces; tokens never reach over a cut."""
    nfc: bool = False
    """True where text is brought to the composed form first."""
    control: tuple[str, ...] = ()
    """Control tokens, behind the ranks in this order."""
    filler: str = ""
    """Names of the control tokens behind those: ``{id}`` is the id, ``{n}`` counts from 0."""
    reserved: int = 0
    """How many control tokens there are, fillers among them."""

    def tokens(self, first: int, named: Mapping[int, str]) -> dict[str, int]:
        """Control tokens from id `first` on; `named` says how some are called."""
        names = {first + place: text for place, text in enumerate(self.control)}
        for number in range(first + len(self.control), first + self.reserved):
            names[number] = self.filler.format(id=number, n=number - first - len(self.control))
        return {text: number for number, text in sorted((names | dict(named)).items())}


FAMILIES: dict[str, TiktokenFamily] = {
    "kimi": TiktokenFamily(
        pattern=rf"[\p{{Han}}]+|[^\r\n\p{{L}}\p{{N}}]?[{_UPPER}{_NO_HAN}]*[{_LOWER}{_NO_HAN}]+{_ENDING}"
        rf"|[^\r\n\p{{L}}\p{{N}}]?[{_UPPER}{_NO_HAN}]+[{_LOWER}{_NO_HAN}]*{_ENDING}|\p{{N}}{{1,3}}{_REST}",
        filler="<|reserved_token_{id}|>",
        reserved=256,
    ),
    "qwen": TiktokenFamily(
        pattern=rf"{_WORDS}\p{{N}}{_REST}",
        nfc=True,
        control=("<|endoftext|>", "<|im_start|>", "<|im_end|>"),
        filler="<|extra_{n}|>",
        reserved=208,
    ),
    "llama3": TiktokenFamily(pattern=rf"{_WORDS}\p{{N}}{{1,3}}{_REST}"),
    "o200k": TiktokenFamily(
        pattern=rf"[^\r\n\p{{L}}\p{{N}}]?[{_UPPER}]*[{_LOWER}]+{_ENDING}|[^\r\n\p{{L}}\p{{N}}]?[{_UPPER}]+[{_LOWER}]*{_ENDING}"
        r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
    ),
}
"""By name. The control tokens of ``llama3`` and ``o200k`` differ from model to model and have to be given."""


def is_rank_file(data: bytes) -> bool:
    """True where the first line has the form of a rank file's."""
    return re.match(rb"[A-Za-z0-9+/]+={0,2} [0-9]+\r?(\n|\Z)", data) is not None


def read_ranks(data: bytes, source: str) -> dict[bytes, int]:
    """Tokens and ranks of a rank file, in the order of ranks. `source` names it in errors. Raises `ModelError`."""
    ranks: dict[bytes, int] = {}
    lines = data.splitlines()
    if len(lines) > MAX_TOKENS:
        raise ModelError(f"{source} holds {len(lines)} tokens; {MAX_TOKENS} are the most that can be read")
    for place, line in enumerate(lines):
        if not line:
            continue
        try:
            token, number = line.split()
            ranks[binascii.a2b_base64(token, strict_mode=True)] = int(number)
        except ValueError as error:
            raise ModelError(f"{source} is no rank file: line {place + 1} is not 'base64 rank'") from error
    if not ranks:
        raise ModelError(f"{source} is no rank file: it is empty")
    _check(ranks, sum(map(bool, lines)), source)
    return dict(sorted(ranks.items(), key=lambda pair: pair[1]))


def _check(ranks: Mapping[bytes, int], lines: int, source: str) -> None:
    if len(ranks) < lines or len(set(ranks.values())) < lines:
        raise ModelError(f"{source} holds the same token or the same rank twice")
    if min(ranks.values()) < 0 or max(ranks.values()) >= MAX_TOKENS:
        raise ModelError(f"{source} holds a rank outside 0 to {MAX_TOKENS}")
    if not all(0 < len(token) <= MAX_TOKEN for token in ranks):
        raise ModelError(f"{source} holds an empty token or one of more than {MAX_TOKEN} bytes")


def tiktoken_json(
    ranks: Mapping[bytes, int], pattern: str, control: Mapping[str, int], *, offset: int = 0, nfc: bool = False
) -> bytes:
    """The bytes of a ``tokenizer.json``. `ranks`: as `read_ranks` gives them; `control`: control tokens and their
    ids; `offset`: what an id is more than its rank. Raises `ModelError` where two tokens have one id or name."""
    words = {token: spelled(token) for token in ranks}
    vocab = {word: ranks[token] + offset for token, word in words.items()}
    if taken := set(vocab.values()) & set(control.values()):
        raise ModelError(f"id {min(taken)} stands for a token of the vocabulary and for a control token")
    if twice := vocab.keys() & control.keys():
        raise ModelError(f"{min(twice)!r} is a token of the vocabulary and a control token")
    merges = merges_of(
        (words[token[:at]], words[token[at:]])
        for token in ranks
        for at in range(1, len(token))
        if token[:at] in ranks and token[at:] in ranks
    )
    return write(
        {"type": "BPE", "vocab": {**vocab, **control}, "merges": merges, "ignore_merges": True},
        [added_token(number, text, special=True) for text, number in control.items()],
        normalizer={"type": "NFC"} if nfc else None,
        pre_tokenizer=sequence(split(pattern), byte_level(use_regex=False)),
        decoder=byte_level(use_regex=True),
    )
