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

import functools
import json
import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise, takewhile
from typing import Any, NamedTuple

import numpy as np
from tokenizers import Encoding, Tokenizer

from rollbook.errors import ModelError, boundary
from rollbook.render.bare import behind_first, blank_sign, is_white, unknown_token, without_control
from rollbook.render.escapes import Escapes
from rollbook.render.offsets import Offsets, offsets_of
from rollbook.render.tracked import SCAFFOLD, Tracked, scaffold, tags_of
from rollbook.render.vocabulary import Vocabulary, show_bytes
from rollbook.trace.node import TokenIds
from rollbook.trace.runs import RunKind, Runs, compress_runs, expand_runs, make_runs

__all__ = ["Encoder", "Piece", "shared_encoder"]

LONG = 16_384
"""Characters from which on the library is asked for a batch of one: only then does it give Python's lock up while it
works, so that other threads go on (tokenizers 0.22)."""
MAX_KEPT = 256
"""Characters of scaffold, and stretches of it, whose encodings are kept."""

_SAMPLE = "a b  c\n\n\td \u00e9 \u6570 \U0001f642 1234 ABC don't <0x41> .;"
_NOTHING = dict.fromkeys(("truncation", "padding", "normalizer", "pre_tokenizer", "decoder"))

_STRETCH = re.compile("s+|[^s]+")


@dataclass(frozen=True, slots=True)
class Piece:
    """The tokens of a stretch of text."""

    token_ids: TokenIds
    """int32, shape (tokens,)."""
    runs: Runs
    """int32, shape (runs, 2), covering `token_ids`."""

    def led_by(self, token: int, kind: RunKind) -> Piece:
        """The piece with one token of `kind` in front."""
        ids = np.concatenate((np.array([token], np.int32), self.token_ids))
        return Piece(ids, compress_runs(np.concatenate(([kind], expand_runs(self.runs)))))


@dataclass(frozen=True, slots=True)
class _Added:
    """How an added token wants to be found."""

    id: int
    lstrip: bool
    rstrip: bool
    single_word: bool


class _Encoded(NamedTuple):
    """A stretch by the library, with its ids as one list: each look at `Encoding.ids` makes a new one."""

    encoding: Encoding
    ids: list[int]


@functools.lru_cache(maxsize=4)
def shared_encoder(tokenizer_json: bytes) -> Encoder:
    """One encoder for one tokenizer, however many templates it is used with: building one takes about a second."""
    return Encoder(tokenizer_json)


class Encoder:
    """Encodes tracked text with one tokenizer. Stateless but for caches.

    A SentencePiece-style tokenizer may write a blank of its own before a stretch of text (the dummy blank). It is an
    artefact of where the stretch begins, not of what it says: with the vocabulary of Mistral 7B, ``<|user|>`` encoded
    alone begins with id 523 and behind a line end with id 28789. So text is encoded as a whole, ids of pieces are cut
    out of it, and `blank_first` and `blank_behind` say where ids spell one blank more than the text has.
    """

    def __init__(self, tokenizer_json: bytes) -> None:
        with boundary("the tokenizer cannot be read", ModelError):
            parts: dict[str, Any] = json.loads(tokenizer_json)
            listed: list[dict[str, Any]] = parts["added_tokens"]
            self.added = {entry["content"]: int(entry["id"]) for entry in listed}
            """Ids of all added tokens by their text."""
            sign = blank_sign(parts)
            control = [entry for entry in listed if not is_white(entry["content"], sign)]
            exact = {**parts["model"], "dropout": None} if "dropout" in parts["model"] else parts["model"]
            whole = {**parts, "model": exact, "post_processor": None, "truncation": None, "padding": None}
            self._whole = Tokenizer.from_str(json.dumps(whole))
            bare = without_control(whole, {entry["content"] for entry in control})
            behind = behind_first(bare)
            self._bare = Tokenizer.from_str(json.dumps(bare))
            self._behind = self._bare if behind is None else Tokenizer.from_str(json.dumps(behind))
            self._unknown = unknown_token(parts["model"])
            self.adds_bos = _in_front(parts.get("post_processor"))
            """Ids that the tokenizer's own post-processor puts in front of a text. `Encoder` never does; a template
            that writes them too gets two of them where another program leaves the post-processor on."""
            self.control = frozenset(int(entry["id"]) for entry in control)
            """Ids that content never makes."""
            spelling = {token: text for text, token in self.added.items() if token in self.control}
            self.vocabulary = Vocabulary(self._whole, parts, spelling)
            self._rules = {
                entry["content"]: _Added(int(entry["id"]), entry["lstrip"], entry["rstrip"], entry["single_word"])
                for entry in control
            }
            ordered = sorted(self._rules, key=len, reverse=True)
            self._pattern = re.compile("|".join(map(re.escape, ordered)) if ordered else r"(?!)")
            self._known: dict[tuple[str, bool], _Encoded] = {}
            self.escapes = self._find_escapes()
            """Replaces what the tokenizer cannot spell."""
            self._check_bare()
            self.blank_first = self._adds_blank(behind=False)
            """True where the tokenizer puts a dummy blank before the first segment of a text (a Metaspace does so only
            where the segment does not begin with a blank)."""
            self.blank_behind = self._adds_blank(behind=True)
            """True where it also puts one before each segment behind a control token."""
            doubled = self._encode_bare(" a", behind=False).ids
            # a Metaspace adds none where the text begins with one
            self._doubles = self.vocabulary.join(doubled) == b"  a"
            self._check_whole()

    @property
    def vocab_size(self) -> int:
        """One more than the largest id."""
        return max(self._whole.get_vocab(with_added_tokens=True).values()) + 1

    def _find_escapes(self) -> Escapes:
        if self.vocabulary.byte_level:
            return Escapes.for_missing(self.vocabulary.missing())
        if self.vocabulary.missing():
            return Escapes.for_unspelled(self.vocabulary.characters(), self._keeps)
        return Escapes.for_byte_names() if not self._spells("<0x41>") else Escapes()

    def _spells(self, text: str) -> bool:
        ids = self._bare.encode(text, add_special_tokens=False).ids
        return self._unknown not in ids and self.vocabulary.join(ids) in (text.encode(), b" " + text.encode())

    def _keeps(self, char: str) -> bool:
        """Whether something is left of a character, perhaps in another form (the Kelvin sign is a K to NFC)."""
        ids = self._bare.encode(char, add_special_tokens=False).ids
        return self._unknown not in ids and bool(self.vocabulary.join(ids).strip())

    def _check_bare(self) -> None:
        for text, token in self.added.items():
            if self._whole.token_to_id(text) != token:
                raise ModelError(
                    f"the tokenizer's added token {text!r} has id {token}, which the library cannot give it"
                )
            if token in self.control:
                self._encode_bare(self.escapes.plain(text), behind=False)
            elif self._bare.token_to_id(text) != token:
                raise ModelError(f"the tokenizer's added token {text!r} cannot be kept apart from its control tokens")

    def _adds_blank(self, *, behind: bool) -> bool:
        """Whether a dummy blank stands before text; refuses a tokenizer whose tokens do not spell the text."""
        text = self.escapes.plain(_SAMPLE)
        found = self.vocabulary.join(self._encode_bare(text, behind=behind).ids)
        blanks = len(found) - len(text.encode())
        if blanks not in (0, 1) or found != b" " * blanks + text.encode():
            raise ModelError(
                f"the tokenizer's tokens do not spell the text that they stand for ({_SAMPLE!r} becomes {found!r}); "
                "this kind is not supported"
            )
        return blanks == 1

    def _check_whole(self) -> None:
        """Segments must give what the library makes of the whole text, at each control token."""
        text = "a" + "".join(f"{name} a{name}a" for name in self._rules)
        ours, theirs = self.encode(scaffold(text), ())[0].token_ids, self.encode_parsed(text)
        if not np.array_equal(ours, theirs):
            at = next((i for i, (a, b) in enumerate(zip(ours, theirs, strict=False)) if a != b), 0)
            raise ModelError(
                "the tokenizer reads text between control tokens differently when it stands alone; this kind is not "
                f"supported (near {self.vocabulary.join(theirs[at : at + 3].tolist())!r})"
            )

    def _encode_bare(self, text: str, *, behind: bool) -> _Encoded:
        tokenizer = self._behind if behind else self._bare
        if len(text) < LONG:
            encoding = tokenizer.encode(text, add_special_tokens=False)
        else:
            (encoding,) = tokenizer.encode_batch([text], add_special_tokens=False)
        ids = encoding.ids
        if self._unknown is not None and self._unknown in ids:
            raise ModelError(f"the tokenizer cannot spell plain text such as {text[:60]!r}")
        if not self.control.isdisjoint(ids):
            made = next(token for token in ids if token in self.control)
            raise ModelError(f"the tokenizer makes control token {made} out of plain text such as {text[:60]!r}")
        return _Encoded(encoding, ids)

    def _encode_piece(self, text: str, tags: str, *, behind: bool) -> _Encoded:
        """The template's own words come again and again, so their encodings are kept."""
        if len(text) > MAX_KEPT or tags.strip(SCAFFOLD):
            return self._encode_bare(text, behind=behind)
        known = self._known.get((text, behind))
        if known is None:
            if len(self._known) >= MAX_KEPT:
                self._known.clear()
            known = self._known[text, behind] = self._encode_bare(text, behind=behind)
        return known

    def encode_content(self, text: str, *, behind: bool = False) -> TokenIds:
        """`text` as content: never a control token. `behind`: it stands behind a control token, not at the start.
        int32, shape (tokens,). The ids spell `text`, after a dummy blank where `blank_first` or `blank_behind` is
        true."""
        encoding = self._encode_bare(self.escapes.plain(text), behind=behind)
        return np.array(encoding.ids, np.int32)

    def encode_parsed(self, text: str) -> TokenIds:
        """`text` as the tokenizer itself reads it, control tokens parsed. For audits only."""
        return np.array(self._whole.encode(text, add_special_tokens=False).ids, np.int32)

    def reencode(self, token_ids: TokenIds) -> TokenIds:
        """What the tokenizer makes of the text of `token_ids`, control tokens parsed, where they stand behind a
        control token: dummy blanks are taken off before and come again. For audits only."""
        if not self.control:
            return self.encode_parsed(self.text_of(token_ids, behind=False))
        head = next((name for name, rule in self._rules.items() if not rule.rstrip and not rule.single_word), "")
        found = self.encode_parsed(head + self.text_of(token_ids, behind=True))
        return found[1:] if head else found

    def text_of(self, token_ids: TokenIds, *, behind: bool) -> str:
        """Text for people without dummy blanks: those that the tokenizer would put back are left out. `behind`: the
        ids stand behind a control token."""
        ids: list[int] = token_ids.tolist()
        breaks = [at for at, token in enumerate(ids) if token in self.control]
        pieces: list[str] = []
        for start, end in pairwise([-1, *breaks, len(ids)]):
            text = show_bytes(self.vocabulary.join(ids[start + 1 : end]))
            blank = self.blank_behind if behind or start >= 0 else self.blank_first
            pieces.append(text.removeprefix(" ") if blank and self._doubles else text)
            pieces.append(show_bytes(self.vocabulary.join(ids[end : end + 1])))
        return "".join(pieces)

    def spelled_control(self, text: str, start: int) -> tuple[int, str] | None:
        """The first control token that `text` spells at `start` or later: (position, token). None: it spells none."""
        found = self._pattern.search(text, start)
        return None if found is None else (found.start(), found[0])

    def encode(self, text: Tracked, cuts: Sequence[int], *, behind: bool = False) -> list[Piece]:
        """Encode `text` as a whole and cut the ids at the given positions, which rise; a token that straddles a cut
        goes to the later piece. Returns ``len(cuts) + 1`` pieces. `text` holds no lone surrogates
        or other characters that `escapes` replaces. `behind`: it stands behind a control token (a sampled turn's
        end), not at the start of a conversation.
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
            plain, tags = str.__getitem__(text, slice(start, end)), tags_of(text)[start:end]
            piece = self._encode_piece(plain, tags, behind=behind or start > 0)
            if tags == tags[0] * len(tags) and not (inside and inside[-1] > start):
                marks.append((len(ids), RunKind.SCAFFOLD if tags[0] == SCAFFOLD else RunKind.CONTENT))
                places.extend(len(ids) for _ in inside)
            else:
                offsets = offsets_of(piece.encoding, list(map(self.vocabulary.__getitem__, piece.ids)), plain)
                places.extend(len(ids) + (offsets.covering(cut - start) if cut > start else 0) for cut in inside)
                marks.extend((len(ids) + at, kind) for at, kind in _kinds(tags, offsets))
            ids.extend(piece.ids)
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


def _kinds(tags: str, offsets: Offsets) -> Iterator[tuple[int, int]]:
    """(token of the stretch, kind from there on). Content wins over scaffold where a token covers both."""
    for stretch in _STRETCH.finditer(tags):
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


def _in_front(processor: Any) -> tuple[int, ...]:
    """What a post-processor puts before a text; a tokenizer of one word shows it."""
    if processor is None:
        return ()
    model: dict[str, Any] = {"type": "BPE", "vocab": {"a": 0}, "merges": []}
    parts: dict[str, Any] = {"version": "1.0", "added_tokens": [], "post_processor": processor, "model": model}
    encoding = Tokenizer.from_str(json.dumps({**_NOTHING, **parts})).encode("a")
    front = takewhile(lambda pair: pair[1] is None, zip(encoding.ids, encoding.sequence_ids, strict=True))
    return tuple(token for token, _ in front)
