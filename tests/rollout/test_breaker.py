"""The breaker: opens for errors alone, over the last attempts alone, and says which."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rollbook.errors import ConfigError
from rollbook.rollout.breaker import Breaker, BreakerRules, InfrastructureDown
from rollbook.trace import EndingKind, Reason

COUNTED = [reason for reason in Reason if reason not in (Reason.CANCELLED, Reason.PEER, Reason.INTERRUPTED)]


@given(
    st.lists(st.sampled_from(Reason), max_size=40),
    st.integers(1, 8),
    st.integers(0, 8),
    st.sampled_from([0.0, 0.25, 0.5, 1.0]),
)
def test_it_opens_for_the_share_of_errors_among_the_last(
    ended: list[Reason], least: int, more: int, share: float
) -> None:
    breaker = Breaker(BreakerRules(share=share, window=least + more, least=least))
    for reason in ended:
        breaker.ended(reason)
    last = [reason for reason in ended if reason in COUNTED][-least - more :]
    errors = sum(reason.kind is EndingKind.ERROR for reason in last)
    assert breaker.open is (len(last) >= least and errors > share * len(last))


def test_it_names_the_reasons_and_the_remedy() -> None:
    breaker = Breaker(BreakerRules(window=4, least=4))
    for reason in [Reason.FINAL_ANSWER, Reason.ENV_SETUP, Reason.ENV_SETUP, Reason.SANDBOX_LOST]:
        breaker.check()
        breaker.ended(reason)
    with pytest.raises(InfrastructureDown, match=r"3 errors \(2 env_setup, 1 sandbox_lost\).*go on with the run"):
        breaker.check()


@pytest.mark.parametrize("given", [{"share": 1.5}, {"share": -0.1}, {"least": 0}, {"window": 10, "least": 11}])
def test_rules_that_cannot_be_kept_are_refused(given: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        BreakerRules(**given)
