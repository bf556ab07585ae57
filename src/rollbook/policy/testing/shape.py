"""How a fake engine is built, apart from what it says and what goes wrong."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rollbook.errors import UsageError
from rollbook.trace.call import LogprobKind

__all__ = ["EngineShape", "letters"]

_LARGEST = 2**31


def letters(ids: Sequence[int]) -> str:
    """The text of ids where nothing better is given: one letter each."""
    return "".join(chr(ord("a") + each % 26) for each in ids)


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineShape:
    """The defaults are those of the real servers where they have any."""

    model: str = "fake"
    """The served name."""
    context_length: int = 4096
    """Tokens of prompt and reply together."""
    vocabulary: int = 64
    """Ids that the hashed model samples: from 0 to this, not included."""
    stop_ids: tuple[int, ...] = (2,)
    """The model's own ends of a turn; a script's lists are closed with the first."""
    seed: int = 0
    """Of the hashed model's weights."""
    logprob_kind: LogprobKind | None = None
    """None: the server's own default, which is `temperature` for SGLang and `raw` for the others."""
    decode: Callable[[Sequence[int]], str] = letters
    """The text of ids, for stop strings and the replies' text."""
    generate_route: bool = True
    """vLLM: whether ``/inference/v1/generate`` is offered."""
    cached_details: bool = True
    """vLLM: whether cached tokens are told (``--enable-prompt-tokens-details``; the real server's default is not)."""
    timings: bool = False
    """Whether vLLM tells a request's times (``metrics``) and SGLang its queue (``--enable-metrics``), as neither does
    by default. llama.cpp always tells them."""
    experts: tuple[int, int] | None = None
    """vLLM: (layers, experts a token) of the routing that is returned; None: none is."""
    tokenizer_workers: int = 1
    """SGLang: with one, an abort must name a running request; with several, any prefix of names will do."""
    slots: int = 4
    """llama.cpp: slots that ``/slots`` shows; more requests than these run all the same."""

    def __post_init__(self) -> None:
        ids = all(0 <= each < _LARGEST for each in self.stop_ids) and len(self.stop_ids) > 0
        if not (0 < self.vocabulary < _LARGEST and 0 < self.context_length < _LARGEST and ids):
            raise UsageError("a fake engine has a vocabulary and a context above 0, and stop ids; all fit 32 bits")
