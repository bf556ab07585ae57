"""Where a generation ended, held against its tokens: an engine's word alone is not believed.

Order of the checks: an abort is one whatever was sampled; an end token as the last id is a stop; a stop string that
was asked for and matched is one; as many tokens as were asked for are a cut, whatever the engine calls it; everything
else is a broken contract. A stop string is whole when the last token completes it: not before, and not behind it. The
clients put their engines' words into ours by this rule, and a turn holds every policy's reply to it, one's own too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rollbook.trace.call import Finish
from rollbook.trace.ending import Reason, RolloutFailure
from rollbook.trace.node import TokenIds

__all__ = ["check_stop_string", "checked_finish", "finish_of"]

_ABORTS = ("abort", "aborted", "cancelled")


def checked_finish(
    said: Finish,
    word: str | None,
    *,
    last: int | None,
    tokens: int,
    limit: int,
    ends: frozenset[int],
    stop: tuple[str, ...],
) -> Finish:
    """How a generation ended, where `said` is what the engine's `word` stands for.

    `last`: the last sampled id, of `tokens` out of `limit`; `ends`: the ids that end a generation; `stop`: the strings
    that were asked for. Raises `RolloutFailure` (`engine_contract`) where the tokens do not bear it out.
    """
    if said is Finish.ABORT:
        return Finish.ABORT
    if said is Finish.ERROR:
        raise RolloutFailure(Reason.ENGINE_CONTRACT, f"an error came as a reply: {word}")
    if last in ends:
        return Finish.STOP
    if said is Finish.STOP_STRING and stop:
        return Finish.STOP_STRING
    if tokens == limit:
        return Finish.LENGTH
    detail = f"finish {word!r:.80} behind {tokens} of {limit} tokens, and the last id {last} is no end of a turn"
    raise RolloutFailure(Reason.ENGINE_CONTRACT, detail)


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
    """Our finish for the `word` of vLLM or SGLang (None: it gave none), the others as in `checked_finish`.

    `matched`: the id or string that the engine says it stopped at. Raises `RolloutFailure`: `engine_unreachable` for an
    error of the engine, `engine_contract` where the tokens do not bear the word out.
    """
    if word == "error":
        raise RolloutFailure(Reason.ENGINE_UNREACHABLE, "the engine failed in the middle of the generation")
    if word in _ABORTS:
        said = Finish.ABORT
    elif isinstance(matched, int) and matched != last:
        raise RolloutFailure(Reason.ENGINE_CONTRACT, f"the engine stopped at id {matched} and returned {last} as last")
    else:
        said = Finish.STOP_STRING if matched in stop else Finish.STOP
    return checked_finish(said, word, last=last, tokens=tokens, limit=limit, ends=ends, stop=stop)


def check_stop_string(stop: Sequence[str], ids: TokenIds, decode: Callable[[TokenIds], str]) -> None:
    """Hold that the last of `ids` completes one of the strings `stop`, and none was whole before: what came behind it
    was never asked for (vLLM's speculative decoding has handed such tokens on, vllm-project/vllm#47616).

    `decode`: the text of ids, control tokens included. Raises `RolloutFailure` (`engine_contract`).
    """
    before, whole = decode(ids[:-1]), decode(ids)
    if early := [each for each in stop if each in before]:
        raise RolloutFailure(Reason.ENGINE_CONTRACT, f"the engine returned tokens behind the stop string {early[0]!r}")
    if not any(each in whole for each in stop):
        raise RolloutFailure(
            Reason.ENGINE_CONTRACT, f"the returned tokens end before a stop string of {list(stop)} does"
        )
