"""Where a generation ended, held against its tokens: an engine's word alone is not believed.

Order of the checks: an abort is one whatever was sampled; an end token as the last id is a stop; a stop string that
was asked for and matched is one; as many tokens as were asked for are a cut, whatever the engine calls it; everything
else is a broken contract. A stop string is whole when the last token completes it: not before, and not behind it.
"""

from __future__ import annotations

from collections.abc import Callable

from rollbook.trace.call import Finish
from rollbook.trace.ending import Reason, RolloutFailure

__all__ = ["check_stop_string", "finish_of"]

_ABORTS = ("abort", "aborted", "cancelled")


def finish_of(
    word: str | None,
    *,
    last: int | None,
    tokens: int,
    limit: int,
    ends: frozenset[int],
    matched: int | str | None = None,
    stop: tuple[str, ...] = (),
) -> Finish:
    """Our finish for the engine's `word` (None: it gave none).

    `last`: the last sampled id, of `tokens` out of `limit`; `ends`: the ids that end a generation; `matched`: the id or
    string that the engine says it stopped at; `stop`: the strings that were asked for. Raises `RolloutFailure`:
    `engine_unreachable` for an error of the engine, `engine_contract` where the tokens do not bear the word out.
    """
    if word in _ABORTS:
        return Finish.ABORT
    if word == "error":
        raise RolloutFailure(Reason.ENGINE_UNREACHABLE, "the engine failed in the middle of the generation")
    if isinstance(matched, int) and matched != last:
        raise RolloutFailure(Reason.ENGINE_CONTRACT, f"the engine stopped at id {matched} and returned {last} as last")
    if last in ends:
        return Finish.STOP
    if isinstance(matched, str) and matched in stop:
        return Finish.STOP_STRING
    if tokens == limit:
        return Finish.LENGTH
    detail = f"finish {word!r:.80} behind {tokens} of {limit} tokens, and the last id {last} is no end of a turn"
    raise RolloutFailure(Reason.ENGINE_CONTRACT, detail)


def check_stop_string(stop: str, tokens: int, text_of: Callable[[int], str]) -> None:
    """Hold that the last of `tokens` tokens completes `stop`; `text_of(n)`: the text of the first n tokens.

    Raises `RolloutFailure` (`engine_contract`).
    """
    if stop in text_of(tokens - 1):
        raise RolloutFailure(Reason.ENGINE_CONTRACT, f"the engine returned tokens behind the stop string {stop!r}")
    if stop not in text_of(tokens):
        raise RolloutFailure(Reason.ENGINE_CONTRACT, f"the returned tokens end before the stop string {stop!r} does")
