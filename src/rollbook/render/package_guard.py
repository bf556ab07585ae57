"""What another package rendered is taken only where our content rule holds of it.

Checked of each rendering, in this order; the first that fails is a `ModelError` that names the message:

1. Every token has an owner and says whether it is content; owners never step back, and each message has tokens. What
   belongs to no message stands in front of the next one; behind the last it is the generation prompt.
2. No control token is content of a message, and the control tokens of each message are those of a rendering whose
   texts are replaced by a harmless word: so content made none and none is missing. A turn that the policy is shown as
   its own is content for the package, control tokens and all; there, control tokens are scaffold.
3. The text of each message stands in its tokens, white space around it apart, which templates drop; so do the names
   and strings of its calls. A string may stand as JSON spells it. Reasoning may be dropped, as templates do.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any, Protocol, cast

import numpy as np
import numpy.typing as npt

from rollbook.errors import ModelError
from rollbook.render.encode import Encoder, Piece
from rollbook.render.vocabulary import show_bytes
from rollbook.trace.message import Message, Role
from rollbook.trace.runs import RunKind, compress_runs

__all__ = ["Guard", "Owned", "Rendered"]

HARMLESS = "x"
"""Stands for a text that may make no difference to control tokens."""

_Ids = npt.NDArray[np.int32]


class Rendered(Protocol):
    """The package's ``RenderedTokens``."""

    token_ids: list[int]
    message_indices: list[int]
    is_content: list[bool]


class Owned:
    """A rendering whose tokens all have an owner (check 1)."""

    __slots__ = ("content", "count", "ids", "owners")

    def __init__(self, rendered: Rendered, skip: int, count: int) -> None:
        """`skip`: how many ids at the start are not new; `count`: messages."""
        total = len(rendered.token_ids)
        if len(rendered.message_indices) != total or len(rendered.is_content) != total:
            raise ModelError(
                f"the package gives {total} tokens, but {len(rendered.message_indices)} owners and "
                f"{len(rendered.is_content)} marks of content"
            )
        self.ids = np.array(rendered.token_ids[skip:], np.int32)
        self.content = np.array(rendered.is_content[skip:], np.bool_)
        self.count = count
        self.owners = self._fill(np.array(rendered.message_indices[skip:], np.int64))
        """One a token; `count` for the generation prompt."""

    def _fill(self, given: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        if len(given) and (given.min() < -1 or given.max() >= self.count):
            raise ModelError(f"the package gives a token to a message that does not exist ({given.max()})")
        known = np.flatnonzero(given >= 0)
        following = np.append(given[known], self.count)
        owners = following[np.searchsorted(known, np.arange(len(given)))]
        back = np.flatnonzero(np.diff(owners) < 0)
        if len(back):
            raise ModelError(
                f"the package gives tokens to message {owners[back[0] + 1] + 1} behind those of a later one"
            )
        missing = np.flatnonzero(np.bincount(owners, minlength=self.count)[: self.count] == 0)
        if len(missing):
            raise ModelError(f"the package leaves out message {missing[0] + 1}")
        return owners

    def bounds(self) -> list[tuple[int, int]]:
        """First and last token of each message and of the generation prompt, the last exclusive."""
        ends = np.searchsorted(self.owners, np.arange(self.count + 1), side="right").tolist()
        return list(zip([0, *ends[:-1]], ends, strict=True))


class Guard:
    """Checks renderings of one tokenizer."""

    def __init__(self, encoder: Encoder) -> None:
        self._encoder = encoder
        self._is_control = np.zeros(encoder.vocab_size, np.bool_)
        self._is_control[list(encoder.control)] = True

    def control(self, owned: Owned) -> list[tuple[int, int]]:
        """(message, control token), in order."""
        places = np.flatnonzero(self._control_mask(owned.ids))
        return list(zip(owned.owners[places].tolist(), owned.ids[places].tolist(), strict=True))

    def check(self, messages: Sequence[Message], owned: Owned, expected: Sequence[tuple[int, int]]) -> list[Piece]:
        """Checks 2 and 3. `expected`: the control tokens of the harmless rendering. The pieces of the messages, and
        the generation prompt."""
        is_control = self._control_mask(owned.ids)
        self._check_control(messages, owned, is_control, expected)
        content = owned.content & ~is_control
        pieces: list[Piece] = []
        for number, (start, end) in enumerate(owned.bounds()):
            kinds = np.where(content[start:end], RunKind.CONTENT, RunKind.SCAFFOLD)
            pieces.append(Piece(owned.ids[start:end], compress_runs(kinds)))
            if number < len(messages):
                self._check_said(number, messages[number], owned.ids[start:end], content[start:end])
        return pieces

    def _control_mask(self, ids: _Ids) -> npt.NDArray[np.bool_]:
        if len(ids) and (ids.min() < 0 or ids.max() >= len(self._is_control)):
            raise ModelError(f"the package gives token {ids.max()}, which the tokenizer does not have")
        return self._is_control[ids]

    def _check_control(
        self,
        messages: Sequence[Message],
        owned: Owned,
        is_control: npt.NDArray[np.bool_],
        expected: Sequence[tuple[int, int]],
    ) -> None:
        for place in np.flatnonzero(is_control & owned.content).tolist():
            owner = int(owned.owners[place])
            if owner >= len(messages) or messages[owner].role is not Role.ASSISTANT:
                raise self._broken(messages, owner, "makes the control token", int(owned.ids[place]))
        found = self.control(owned)
        if found == list(expected):
            return
        at = next((i for i, (a, b) in enumerate(zip(found, expected, strict=False)) if a != b), None)
        if at is None:
            at = min(len(found), len(expected))
        if at < len(found):
            raise self._broken(messages, found[at][0], "makes the control token", found[at][1])
        raise self._broken(messages, expected[at][0], "loses the control token", expected[at][1])

    def _broken(self, messages: Sequence[Message], owner: int, what: str, token: int) -> ModelError:
        where = f"message {owner + 1} (role {messages[owner].role})" if owner < len(messages) else "some message"
        spelled = show_bytes(self._encoder.vocabulary.join([token]))
        return ModelError(f"in the package's rendering the text of {where} {what} {spelled!r}; it was not taken")

    def _check_said(self, number: int, message: Message, ids: _Ids, content: npt.NDArray[np.bool_]) -> None:
        if message.role is not Role.ASSISTANT:
            places = np.flatnonzero(content)
            # a token of the template's may reach into the text at either end
            ids = ids[max(0, places[0] - 1) : places[-1] + 2] if len(places) else ids[:0]
        text = show_bytes(self._encoder.vocabulary.join(ids.tolist()))
        lost = next((part for part in _parts(message) if not self._stands(part, text)), None)
        if lost is not None:
            raise ModelError(
                f"the package's rendering of message {number + 1} (role {message.role}) leaves out {lost[:60]!r}"
            )

    def _stands(self, part: str, text: str) -> bool:
        shown = self._encoder.escapes.plain(part).strip()
        return (
            shown in text
            or json.dumps(shown, ensure_ascii=False)[1:-1] in text
            or show_bytes(self._encoder.vocabulary.join(self._encoder.encode_content(shown).tolist())).strip() in text
        )


def _parts(message: Message) -> Iterator[str]:
    yield message.content
    for call in message.tool_calls:
        yield call.name or ""
        yield from _strings(call.arguments)


def _strings(value: Any) -> Iterator[str]:
    match value:
        case str():
            yield value
        case list():
            for item in cast("list[Any]", value):
                yield from _strings(item)
        case dict():
            for key, item in cast("dict[str, Any]", value).items():
                yield key
                yield from _strings(item)
        case _:
            return
