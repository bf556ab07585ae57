"""Tracked text to token ids, with the kind of each token.

Added tokens of the tokenizer (special or not) are recognised leftmost-longest, and only where every character is
scaffold. What lies between is encoded whole by the same tokenizer without its added tokens, post-processor,
truncation and padding, so merges across scaffold and content are the model's own and content cannot make a control
token: an id of an added token out of such a piece is an error, never a result. Added tokens that are nothing but
white space (runs of blanks) are text like any other. A token is content if it covers any character of content.
White space that an added token swallows (`lstrip`, `rstrip`) is swallowed from scaffold only. Characters that the
tokenizer cannot spell are escaped first (`rollbook.render.escapes`).
"""

from __future__ import annotations

import json
import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, cast

import numpy as np
from tokenizers import Encoding, Tokenizer

from rollbook.errors import ModelError, boundary
from rollbook.render.escapes import Escapes
from rollbook.render.tracked import SCAFFOLD, Tracked, tags_of
from rollbook.render.vocabulary import Vocabulary
from rollbook.trace.node import TokenIds
from rollbook.trace.runs import RunKind, Runs, make_runs

__all__ = ["Encoder", "Piece"]

MAX_KEPT = 256
"""Characters of scaffold, and stretches of it, whose encodings are kept."""

_STRETCH = re.compile("s+|[^s]+")


@dataclass(frozen=True, slots=True)
class Piece:
    """The tokens of a stretch of text."""

    token_ids: TokenIds
    """int32, shape (tokens,)."""
    runs: Runs
    """int32, shape (runs, 2), covering `token_ids`."""


@dataclass(frozen=True, slots=True)
class _Added:
    """How an added token wants to be found."""

    id: int
    lstrip: bool
    rstrip: bool
    single_word: bool


class Encoder:
    """Encodes tracked text with one tokenizer. Stateless but for caches."""

    def __init__(self, tokenizer_json: bytes) -> None:
        with boundary("the tokenizer cannot be read", ModelError):
            parts: dict[str, Any] = json.loads(tokenizer_json)
            listed: list[dict[str, Any]] = parts["added_tokens"]
            self.added = {entry["content"]: int(entry["id"]) for entry in listed}
            """Ids of all added tokens by their text."""
            control = [entry for entry in listed if not entry["content"].isspace()]
            whole = {**parts, "post_processor": None, "truncation": None, "padding": None}
            self._whole = Tokenizer.from_str(json.dumps(whole))
            self._bare = Tokenizer.from_str(json.dumps(_without(whole, control)))
        self.control = frozenset(int(entry["id"]) for entry in control)
        """Ids that content never makes."""
        self.vocabulary = Vocabulary(self._whole, parts, {token: text for text, token in self.added.items()})
        self.escapes = Escapes.for_missing(self.vocabulary.missing())
        """Replaces what the tokenizer cannot spell."""
        self._rules = {
            entry["content"]: _Added(int(entry["id"]), entry["lstrip"], entry["rstrip"], entry["single_word"])
            for entry in control
        }
        ordered = sorted(self._rules, key=len, reverse=True)
        self._pattern = re.compile("|".join(map(re.escape, ordered)) if ordered else r"(?!)")
        self._known: dict[str, Encoding] = {}
        self._check_bare()

    @property
    def vocab_size(self) -> int:
        """One more than the largest id."""
        return max(self._whole.get_vocab(with_added_tokens=True).values()) + 1

    def _check_bare(self) -> None:
        for text, token in self.added.items():
            if self._whole.token_to_id(text) != token:
                raise ModelError(
                    f"the tokenizer's added token {text!r} has id {token}, which the library cannot give it"
                )
            if text.isspace() and self._bare.token_to_id(text) != token:
                raise ModelError(f"the tokenizer's added token {text!r} cannot be kept apart from its control tokens")
            if not text.isspace():
                self._encode_bare(text)

    def _encode_bare(self, text: str) -> Encoding:
        encoding = self._bare.encode(text, add_special_tokens=False)
        if not self.control.isdisjoint(encoding.ids):
            made = next(token for token in encoding.ids if token in self.control)
            raise ModelError(f"the tokenizer makes control token {made} out of plain text such as {text[:60]!r}")
        return encoding

    def _encode_piece(self, text: str, tags: str) -> Encoding:
        """The template's own words come again and again, so their encodings are kept."""
        if len(text) > MAX_KEPT or tags.strip(SCAFFOLD):
            return self._encode_bare(text)
        known = self._known.get(text)
        if known is None:
            if len(self._known) >= MAX_KEPT:
                self._known.clear()
            known = self._known[text] = self._encode_bare(text)
        return known

    def encode_content(self, text: str) -> TokenIds:
        """`text` as content: never a control token. int32, shape (tokens,)."""
        return np.array(self._encode_bare(self.escapes.apply(Tracked(text))).ids, np.int32)

    def encode_parsed(self, text: str) -> TokenIds:
        """`text` as the tokenizer itself reads it, control tokens parsed. For audits only."""
        return np.array(self._whole.encode(text, add_special_tokens=False).ids, np.int32)

    def spelled_control(self, text: str, start: int) -> tuple[int, str] | None:
        """The first control token that `text` spells at `start` or later: (position, token). None: it spells none."""
        found = self._pattern.search(text, start)
        return None if found is None else (found.start(), found[0])

    def encode(self, text: Tracked, cuts: Sequence[int]) -> list[Piece]:
        """Encode `text` as a whole and cut the ids at the given positions, which rise; a token that straddles a cut
        goes to the later piece. Returns ``len(cuts) + 1`` pieces. `text` holds no lone surrogates
        or other characters that `escapes` replaces.
        """
        ids: list[int] = []
        marks: list[tuple[int, int]] = []  # (token, kind from there on)
        places: list[int] = []  # first token of each cut
        for start, end, token in self._segments(text):
            inside = cuts[len(places) : bisect_left(cuts, end)]
            if token is not None:
                marks.append((len(ids), RunKind.SCAFFOLD))
                places.extend(len(ids) for _ in inside)
                ids.append(token)
                continue
            encoding = self._encode_piece(str.__getitem__(text, slice(start, end)), tags_of(text)[start:end])
            offsets = _Offsets(encoding, start)
            places.extend(len(ids) + offsets.covering(cut) for cut in inside)
            marks.extend((len(ids) + at, kind) for at, kind in _kinds(text, start, end, offsets))
            ids.extend(encoding.ids)
        places.extend(len(ids) for _ in cuts[len(places) :])
        return _cut(np.array(ids, np.int32), marks, [0, *places, len(ids)])

    def _segments(self, text: Tracked) -> Iterator[tuple[int, int, int | None]]:
        """(start, end, added token or None) over the whole text; empty stretches are left out."""
        done = 0
        for stretch in re.finditer("s+", tags_of(text)):
            for match in self._pattern.finditer(text, stretch.start(), stretch.end()):
                start, end = match.span()
                rule = self._rules[match[0]]
                if rule.single_word and _touches_word(text, start, end):
                    continue
                if rule.lstrip:
                    low = max(done, stretch.start())
                    start = low + len(str.__getitem__(text, slice(low, start)).rstrip())
                if rule.rstrip:
                    end = stretch.end() - len(str.__getitem__(text, slice(end, stretch.end())).lstrip())
                if start > done:
                    yield done, start, None
                yield start, end, rule.id
                done = end
        if done < len(text):
            yield done, len(text), None


class _Offsets:
    """Where the tokens of one encoded stretch lie, in positions of the whole text."""

    __slots__ = ("_encoding", "_start", "count")

    def __init__(self, encoding: Encoding, start: int) -> None:
        self._encoding = encoding
        self._start = start
        self.count = len(encoding)

    def covering(self, position: int) -> int:
        """The first token that ends behind `position`."""
        inside = position - self._start
        if inside <= 0:
            return 0
        found = self._encoding.char_to_token(inside)
        if found is not None:
            return found
        return next((at for at, (_, end) in enumerate(self._encoding.offsets) if end > inside), self.count)

    def behind(self, position: int) -> int:
        """The first token that starts at `position` or later."""
        inside = position - self._start
        token = self.covering(position)
        while token < self.count:
            span = self._encoding.token_to_chars(token)
            if span is None or span[0] >= inside:
                break
            token += 1
        return token


def _kinds(text: Tracked, start: int, end: int, offsets: _Offsets) -> Iterator[tuple[int, int]]:
    """(token of the stretch, kind from there on). Content wins over scaffold where a token covers both."""
    for stretch in _STRETCH.finditer(tags_of(text), start, end):
        if stretch[0][0] == SCAFFOLD:
            yield offsets.behind(stretch.start()), RunKind.SCAFFOLD
        else:
            yield offsets.covering(stretch.start()), RunKind.CONTENT


def _cut(ids: TokenIds, marks: list[tuple[int, int]], places: list[int]) -> list[Piece]:
    """Pieces between `places`, with runs from `marks`, of which each holds to the next one."""
    spans: list[tuple[int, int, int]] = []
    for (start, kind), (end, _) in pairwise([*marks, (len(ids), 0)]):
        if spans and spans[-1][2] == kind:
            spans[-1] = (spans[-1][0], end, kind)
        elif end > start:
            spans.append((start, end, kind))
    starts = [start for start, _, _ in spans]
    return [
        Piece(ids[a:b], _runs(spans[max(0, bisect_right(starts, a) - 1) : bisect_left(starts, b)], a, b))
        for a, b in pairwise(places)
    ]


def _runs(spans: list[tuple[int, int, int]], first: int, last: int) -> Runs:
    inside = ((kind, min(end, last) - max(start, first)) for start, end, kind in spans)
    return make_runs(*(pair for pair in inside if pair[1] > 0))


def _touches_word(text: str, start: int, end: int) -> bool:
    around = str.__getitem__(text, slice(max(0, start - 1), start)) + str.__getitem__(text, slice(end, end + 1))
    return re.search(r"\w", around) is not None


def _without(parts: dict[str, Any], control: list[dict[str, Any]]) -> dict[str, Any]:
    """The tokenizer without its control tokens; they also leave the vocabulary, unless a merge needs them."""
    names = {entry["content"] for entry in control}
    kept = [entry for entry in parts["added_tokens"] if entry["content"] not in names]
    model = parts["model"]
    match model:
        case {"type": "BPE"}:
            vocab, merges = model["vocab"], cast("list[Any]", model["merges"])
            pairs = (merge.split(" ", 1) if isinstance(merge, str) else merge for merge in merges)
            needed = {part for first, second in pairs for part in (first, second, first + second)} & names
            words = cast("dict[str, int]", vocab)
            model = {**model, "vocab": {word: at for word, at in words.items() if word not in names or word in needed}}
        case _:
            pass
    return {**parts, "added_tokens": kept, "model": model}
