"""The kind of logprobs, from engines of each kind."""

import asyncio
import math

import pytest

from rollbook.policy.kind import LISTED, NOISE, find_kind, kind_of
from rollbook.trace.call import LogprobKind

LOGITS = [3.0, 2.2, 1.0, 0.4, -1.0, -2.0]


def softmax(logits):
    whole = math.log(sum(map(math.exp, logits)))
    return [logit - whole for logit in logits]


def engine(kind, logits=LOGITS, hidden=-9999.0):
    """The highest logprobs that an engine of this kind gives."""

    async def ask(sampling):
        hot = [logit / sampling.temperature for logit in logits]
        cut = softmax(hot[: sampling.top_k or None]) + [hidden] * (len(hot) - (sampling.top_k or len(hot)))
        made = {"raw": softmax(logits), "temperature": softmax(hot), "processed": cut}[kind]
        return made[:LISTED]

    return ask


@pytest.mark.parametrize("hidden", [-9999.0, None, -math.inf])
@pytest.mark.parametrize("kind", ["raw", "temperature", "processed"])
def test_each_kind_is_told_from_the_others(kind, hidden):
    assert asyncio.run(find_kind(engine(kind, hidden=hidden))) is LogprobKind(kind)


@pytest.mark.parametrize("kind", ["raw", "temperature", "processed"])
def test_a_flat_distribution_tells_nothing(kind):
    flat = [NOISE * place for place in (3, 2, 1, 1, 0)]
    assert asyncio.run(find_kind(engine(kind, flat))) is LogprobKind.UNKNOWN


def test_a_peaked_distribution_still_tells():
    peaked = [20.0, 4.0, 3.0, 2.0, 1.0, 0.0]
    assert asyncio.run(find_kind(engine("temperature", peaked))) is LogprobKind.TEMPERATURE
    assert asyncio.run(find_kind(engine("raw", peaked))) is LogprobKind.RAW


@pytest.mark.parametrize(
    "lists",
    [
        ([], [], []),
        ([-1.0, -2.0, -3.0], [-1.0, -2.0, -3.0], [-0.3, -1.3]),  # raw, but not behind a cut
        ([-1.0, -2.0, -3.0], [-1.5, -2.0, -2.5], [-1.0, -2.0]),  # a cut that does not add up
        ([-1.0, -2.0, -3.0], [-1.5, -2.0, -2.5], [None, None]),
    ],
)
def test_what_fits_no_kind_is_unknown(lists):
    assert kind_of(*lists) is LogprobKind.UNKNOWN
